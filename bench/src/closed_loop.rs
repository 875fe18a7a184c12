//! The closed loop: the real programs in network namespaces, real containers, from a request to the
//! API until the board says RUNNING; what dies, leaves or loses its power, and how soon it is made
//! good; and what an agent costs that has nothing to do. Needs root.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use volvox_bench::figures::{Figures, percentile};
use volvox_tests::site::{Settings, Site, is_running};

/// Instances that are started one by one.
const ONES: usize = 30;
/// How long an agent is watched that has nothing to do.
const IDLE: Duration = Duration::from_secs(120);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(1);

const NAMES: [(&str, &str); 9] = [
    ("loop.one.p50_ms", "ms"),
    ("loop.hundred.s", "s"),
    ("loop.replace.s", "s"),
    ("loop.evacuate50.s", "s"),
    ("loop.cold_boot.s", "s"),
    ("agent.pss.idle.kib", "KiB"),
    ("agent.pss.100_containers.kib", "KiB"),
    ("agent.cpu.idle.percent", "%"),
    ("agent.disk.idle.bytes_per_h", "bytes/h"),
];

/// Measures the group `loop`.
pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        for (name, unit) in NAMES {
            figures.missing(name, unit, "containers need root");
        }
        return Ok(());
    }
    starts(figures)?;
    replacement(figures)?;
    evacuation(figures)?;
    cold_boot(figures)?;
    idle(figures)
}

fn app(process: &str, instances: usize) -> Value {
    json!({
        "process_guid": process, "domain": "bench", "instances": instances, "rootfs": "host:",
        "log_guid": "log", "memory_mb": 16, "disk_mb": 16, "ports": [8080],
        "action": {"run": {"path": "/bin/sleep", "args": ["1000000"], "user": "root"}},
    })
}

fn site(cells: usize, self_test: bool) -> anyhow::Result<Site> {
    let mut site = Site::new(&Settings::new())?;
    let more = "[capacity]\nmemory_mb = 65536\ndisk_mb = 65536\ncontainers = 250\n";
    let test = if self_test { "[self_test]\nenabled = true\n" } else { "" };
    for nth in 0..cells {
        site.add_cell(&format!("cell-{nth}"), &format!("z{}", nth % 2), &format!("{more}{test}"))?;
    }
    site.freshen("bench", 0)?;
    Ok(site)
}

/// Waits until so many run and no other record is there; gives how long that took since `begun`.
fn until(site: &Site, process: &str, count: usize, begun: Instant) -> anyhow::Result<Duration> {
    let end = Instant::now() + volvox_tests::site::PATIENCE;
    loop {
        let all = site.lrps(process)?;
        if all.len() == count && all.iter().all(is_running) {
            return Ok(begun.elapsed());
        }
        ensure!(Instant::now() < end, "{process} does not come to run\n{}", site.story());
        std::thread::sleep(LOOK);
    }
}

fn starts(figures: &mut Figures) -> anyhow::Result<()> {
    let site = site(5, false)?;
    let mut times = Vec::new();
    for nth in 0..ONES {
        let process = format!("one-{nth}");
        let begun = Instant::now();
        site.desire(&app(&process, 1))?;
        times.push(until(&site, &process, 1, begun)?.as_secs_f64() * 1e3);
    }
    // The first has to unpack nothing, but finds cold caches: it is left in.
    figures.note("loop.one.p50_ms", percentile(&times, 50), "ms");
    figures.note("loop.one.p90_ms", percentile(&times, 90), "ms");
    let begun = Instant::now();
    site.desire(&app("hundred", 100))?;
    let took = until(&site, "hundred", 100, begun)?;
    figures.note("loop.hundred.s", took.as_secs_f64(), "s");
    Ok(())
}

fn replacement(figures: &mut Figures) -> anyhow::Result<()> {
    let mut site = site(5, false)?;
    site.desire(&app("p", 50))?;
    until(&site, "p", 50, Instant::now())?;
    let begun = Instant::now();
    site.power_off("cell-0")?;
    let end = begun + volvox_tests::site::PATIENCE;
    loop {
        let all = site.lrps("p")?;
        let elsewhere = all.iter().all(|it| is_running(it) && it["cell_id"] != "cell-0");
        if all.len() == 50 && elsewhere {
            break;
        }
        ensure!(Instant::now() < end, "the cell is not replaced\n{}", site.story());
        std::thread::sleep(LOOK);
    }
    figures.note("loop.replace.s", begun.elapsed().as_secs_f64(), "s");
    Ok(())
}

fn evacuation(figures: &mut Figures) -> anyhow::Result<()> {
    let mut site = site(1, false)?;
    site.desire(&app("p", 50))?;
    until(&site, "p", 50, Instant::now())?;
    for nth in 1..3 {
        let more = "[capacity]\nmemory_mb = 65536\ndisk_mb = 65536\ncontainers = 250\n";
        site.add_cell(&format!("cell-{nth}"), "z1", more)?;
    }
    let begun = Instant::now();
    site.call("/v1/cells/evacuate", &json!({"cell_id": "cell-0"}))?;
    ensure!(site.until_agent_ended("cell-0")? == 0, "the evacuation failed");
    figures.note("loop.evacuate50.s", begun.elapsed().as_secs_f64(), "s");
    let all = site.lrps("p")?;
    ensure!(all.len() == 50 && all.iter().all(is_running), "{}", site.story());
    Ok(())
}

fn cold_boot(figures: &mut Figures) -> anyhow::Result<()> {
    let mut site = site(1, false)?;
    site.desire(&app("p", 20))?;
    until(&site, "p", 20, Instant::now())?;
    site.kill_coordinator()?;
    site.power_off("cell-0")?;
    let begun = Instant::now();
    site.start_agent("cell-0")?;
    let end = begun + volvox_tests::site::PATIENCE;
    loop {
        let all = site.containers("cell-0")?;
        if all.len() == 20 && all.iter().all(is_running) {
            break;
        }
        ensure!(Instant::now() < end, "the cell does not start its instances again");
        std::thread::sleep(LOOK);
    }
    figures.note("loop.cold_boot.s", begun.elapsed().as_secs_f64(), "s");
    Ok(())
}

/// Memory, processor and disk of an agent with nothing to do: its self-test is on, as it comes.
fn idle(figures: &mut Figures) -> anyhow::Result<()> {
    let site = site(3, true)?;
    let pid = site.cell("cell-0")?.pid().context("no agent")?;
    // What a start costs is not what idling costs.
    std::thread::sleep(Duration::from_secs(10));
    let (processor, written) = (processor_ticks(pid)?, written_bytes(pid)?);
    std::thread::sleep(IDLE);
    let seconds = IDLE.as_secs_f64();
    let ticks = processor_ticks(pid)? - processor;
    figures.note("agent.pss.idle.kib", pss_kib(pid)?, "KiB");
    figures.note("agent.cpu.idle.percent", ticks / ticks_per_second() / seconds * 100.0, "%");
    let bytes = written_bytes(pid)? - written;
    figures.note("agent.disk.idle.bytes_per_h", bytes * 3_600.0 / seconds, "bytes/h");
    site.desire(&app("p", 300))?;
    until(&site, "p", 300, Instant::now())?;
    std::thread::sleep(Duration::from_secs(5));
    figures.note("agent.pss.100_containers.kib", pss_kib(pid)?, "KiB");
    let processor = processor_ticks(pid)?;
    std::thread::sleep(Duration::from_secs(30));
    let ticks = processor_ticks(pid)? - processor;
    figures.note(
        "agent.cpu.100_containers.percent",
        ticks / ticks_per_second() / 30.0 * 100.0,
        "%",
    );
    Ok(())
}

fn read(pid: u32, file: &str) -> anyhow::Result<String> {
    let path = format!("/proc/{pid}/{file}");
    std::fs::read_to_string(Path::new(&path)).with_context(|| format!("read {path}"))
}

fn number(text: &str, name: &str) -> anyhow::Result<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let word = line.and_then(|line| line.split_whitespace().next());
    Ok(word.with_context(|| format!("no {name}"))?.parse()?)
}

fn pss_kib(pid: u32) -> anyhow::Result<f64> {
    number(&read(pid, "smaps_rollup")?, "Pss:")
}

fn written_bytes(pid: u32) -> anyhow::Result<f64> {
    number(&read(pid, "io")?, "write_bytes:")
}

fn processor_ticks(pid: u32) -> anyhow::Result<f64> {
    let stat = read(pid, "stat")?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let words: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |nth: usize| -> anyhow::Result<f64> {
        Ok(words.get(nth).context("a short stat")?.parse()?)
    };
    Ok(ticks(11)? + ticks(12)?)
}

fn ticks_per_second() -> f64 {
    let asked = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    asked.ok().flatten().map_or(100.0, |ticks| {
        #[expect(clippy::cast_precision_loss, reason = "a hundred or so")]
        let ticks = ticks as f64;
        ticks
    })
}
