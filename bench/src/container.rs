//! Containers: how long one takes from nothing to nothing, beside the same in crun and runc and
//! beside a bare fork and exec; what its network adds; what its shim weighs. Needs root.
//!
//! One run is: make a container, run `/bin/true` in it, hear its end, remove everything. All
//! contestants take turns in one loop, and the order turns too, so that noise hits all alike.
//!
//! The same for all: the root file system (one folder, with the host's /usr bound into it, read
//! only), the user and its id range, all seven namespaces, the limits of memory, pids and processors,
//! the file systems in /proc, /sys, /dev and /tmp, the capabilities, no_new_privs, the hidden and the
//! read-only paths, the refused system calls. See `peers.rs` for how the others are told.
//!
//! Not the same. To our disadvantage: we make an overlay over the folder, which is then not written
//! to, and remove it; the others use the folder itself, which they find ready. We start a process that
//! holds the container, keep a log, write down the end, and are asked for each step over a socket;
//! the others wait for their one process, and pass its output on. To our advantage: the others read a
//! whole OCI configuration, and keep a state folder of their own below /run.

mod cpu;
mod peers;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use volvox_agent::container::exit::End;
use volvox_agent::container::spec::Hierarchy;
use volvox_agent::container::spec::{
    Access, Bind, ContainerSpec, Limits, LogLimits, OutputTarget, ProcessSpec,
};
use volvox_agent::runtime::net::{CellNetwork, Ipv4Network, NetworkConfig};
use volvox_agent::runtime::shim::{Shim, Shims};
use volvox_bench::figures::{Figures, percentile};

use cpu::Meter;
use peers::Peer;

const RUNS: usize = 100;
/// How many run at once in the second loop.
const AT_ONCE: usize = 2;
const PATIENCE: Duration = Duration::from_secs(30);
const FIRST_ID: u32 = 100_000;
const IDS: u32 = 65_536;
const LIMITS: Limits =
    Limits { memory_bytes: 256 << 20, cpu_shares: 1_024, pids: 1_024, disk_bytes: 0, inodes: 0 };

pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    if !nix::unistd::geteuid().is_root() {
        for (name, unit) in [
            ("container.start.p50_ms", "ms"),
            ("container.start.p90_ms", "ms"),
            ("container.start.ratio_to_crun", ""),
            ("container.start.ratio_to_runc", ""),
            ("container.network.p50_ms", "ms"),
            ("shim.pss.kib", "KiB"),
        ] {
            figures.missing(name, unit, "needs root");
        }
        return Ok(());
    }
    leave_out_the_unified_tree()?;
    let stage = Stage::new()?;
    let started = starts(figures, &stage);
    let measured = started.and_then(|()| network(figures, &stage)).and_then(|()| {
        let mut shim = stage.shims.create(&stage.spec("weigh"))?;
        let weighed = weigh(figures, &mut shim);
        shim.destroy()?;
        stage.shims.clear(&stage.id("weigh"))?;
        weighed
    });
    stage.clear()?;
    measured
}

/// Where both kinds of cgroups are mounted and the unified tree has a controller, crun refuses to
/// run. So everything here runs in a mount namespace without that tree, which nobody here uses.
fn leave_out_the_unified_tree() -> anyhow::Result<()> {
    let both = Path::new("/sys/fs/cgroup/unified");
    if both.exists() {
        unshare(CloneFlags::CLONE_NEWNS).context("make a mount namespace")?;
        let (nothing, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        mount(nothing, "/", nothing, private, nothing).context("part the mounts")?;
        umount(both).context("unmount the unified cgroups")?;
    }
    Ok(())
}

/// What all contestants share.
struct Stage {
    folder: tempfile::TempDir,
    layer: PathBuf,
    shims: Shims,
    cgroup: Hierarchy,
    peers: Vec<Peer>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.shims.close();
    }
}

impl Stage {
    fn new() -> anyhow::Result<Stage> {
        let shim = std::env::current_exe()?.with_file_name("volvox-shim");
        ensure!(shim.exists(), "there is no {}: `make bench` builds it", shim.display());
        let scratch = std::path::absolute("target/bench-scratch")?;
        std::fs::create_dir_all(&scratch)?;
        let folder = tempfile::tempdir_in(scratch)?;
        // The container's root, who is nobody here, has to get to its root folder.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open)?;
        let layer = folder.path().join("layer");
        for made in ["usr", "etc", "proc", "sys", "dev", "tmp"] {
            std::fs::create_dir_all(layer.join(made))?;
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), layer.join(link))?;
        }
        std::fs::write(layer.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n")?;
        let shims = Shims::new(&folder.path().join("containers"), &shim);
        let cgroup = Hierarchy::detect()?;
        let mut stage = Stage { folder, layer, shims, cgroup, peers: Vec::new() };
        for name in ["crun", "runc"] {
            stage.peers.extend(Peer::find(name, &stage.layer, stage.folder.path())?);
        }
        Ok(stage)
    }

    /// A name that no other run of this has.
    fn id(&self, name: &str) -> String {
        let unique = self.folder.path().file_name().unwrap_or_default().to_string_lossy();
        format!("bench-{}-{name}", unique.trim_start_matches('.'))
    }

    fn spec(&self, name: &str) -> ContainerSpec {
        ContainerSpec {
            id: self.id(name),
            layers: vec![self.layer.clone()],
            binds: vec![Bind {
                source: PathBuf::from("/usr"),
                target: PathBuf::from("/usr"),
                access: Access::ReadOnly,
            }],
            first_id: FIRST_ID,
            ids: IDS,
            privileged: false,
            limits: LIMITS,
            cgroup: self.cgroup.clone(),
            log: LogLimits::default(),
        }
    }

    /// One run of ours.
    fn ours(&self, name: &str) -> anyhow::Result<()> {
        let spec = self.spec(name);
        let mut shim = self.shims.create(&spec)?;
        run_true(&mut shim)?;
        shim.destroy()?;
        Ok(self.shims.clear(&spec.id)?)
    }

    /// Whatever a run that failed has left.
    fn clear(&self) -> anyhow::Result<()> {
        for id in self.shims.list()? {
            if let Ok(shim) = self.shims.attach(&id) {
                let _ = shim.destroy();
            }
            self.shims.clear(&id)?;
        }
        Ok(())
    }
}

fn run_true(shim: &mut Shim) -> anyhow::Result<()> {
    shim.run(ProcessSpec {
        id: 1,
        path: "/bin/true".to_owned(),
        args: vec![],
        env: vec![],
        dir: "/".to_owned(),
        user: "root".to_owned(),
        nofile: Some(1_024),
        source: "APP".to_owned(),
        output: OutputTarget::Log,
        terminal: None,
    })?;
    let exit = shim.wait(1, PATIENCE)?.context("it did not end")?;
    ensure!(exit.end == End::Status(0), "it ended with {:?}", exit.end);
    Ok(())
}

type Run<'a> = Box<dyn Fn(&str) -> anyhow::Result<()> + Sync + 'a>;

/// One who runs, and how long it took each time.
struct Contestant<'a> {
    name: String,
    run: Run<'a>,
    alone_ms: Vec<f64>,
    together_ms: Vec<f64>,
    cpu_ms: Vec<f64>,
}

fn starts(figures: &mut Figures, stage: &Stage) -> anyhow::Result<()> {
    let mut runs: Vec<(String, Run<'_>)> = vec![
        ("container.start".to_owned(), Box::new(|name| stage.ours(name))),
        ("container.start.fork_exec".to_owned(), Box::new(|_| bare())),
    ];
    for peer in &stage.peers {
        let name = format!("container.start.{}", peer.name);
        runs.push((name, Box::new(|name| peer.run(&stage.id(name)))));
    }
    let mut contestants: Vec<Contestant<'_>> = runs
        .into_iter()
        .map(|(name, run)| Contestant {
            name,
            run,
            alone_ms: vec![],
            together_ms: vec![],
            cpu_ms: vec![],
        })
        .collect();
    let meter = Meter::new();
    for round in 0..RUNS {
        for turn in 0..contestants.len() {
            let nth = (round + turn) % contestants.len();
            let one = &mut contestants[nth];
            let before = meter.used_ms();
            one.alone_ms.push(timed(&one.run, &format!("a{round}-{nth}"))?);
            one.cpu_ms.extend(meter.used_ms().zip(before).map(|(after, before)| after - before));
            let together: Vec<anyhow::Result<f64>> = thread::scope(|scope| {
                let run = &one.run;
                let threads: Vec<_> = (0..AT_ONCE)
                    .map(|of| scope.spawn(move || timed(run, &format!("t{round}-{nth}-{of}"))))
                    .collect();
                threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
            });
            for time in together {
                one.together_ms.push(time?);
            }
        }
    }
    for one in &contestants {
        figures.spread(&one.name, &one.alone_ms);
        figures.spread(&one.name.replacen("start", "start_two", 1), &one.together_ms);
        let name = one.name.replacen("start", "start_cpu", 1) + ".p50_ms";
        if one.cpu_ms.is_empty() {
            figures.missing(&name, "ms", "no cpuacct cgroups");
        } else {
            figures.note(&name, percentile(&one.cpu_ms, 50), "ms");
        }
    }
    let medians: BTreeMap<&str, [f64; 2]> = contestants
        .iter()
        .map(|one| {
            (one.name.as_str(), [&one.alone_ms, &one.together_ms].map(|it| percentile(it, 50)))
        })
        .collect();
    for (nth, start) in ["start", "start_two"].into_iter().enumerate() {
        for peer in ["crun", "runc"] {
            let name = format!("container.{start}.ratio_to_{peer}");
            match medians.get(format!("container.start.{peer}").as_str()) {
                Some(theirs) => {
                    figures.note(&name, medians["container.start"][nth] / theirs[nth], "");
                }
                None => figures.missing(&name, "", "it is not installed"),
            }
        }
    }
    Ok(())
}

fn timed(run: &impl Fn(&str) -> anyhow::Result<()>, name: &str) -> anyhow::Result<f64> {
    let start = Instant::now();
    run(name)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

fn bare() -> anyhow::Result<()> {
    let status = Command::new("/bin/true").stdin(Stdio::null()).status()?;
    ensure!(status.success(), "/bin/true ended with {status}");
    Ok(())
}

/// What the network adds to a container: an interface, an address and one mapped port, made and
/// removed, in the agent's order: a container is ended first, and the kernel takes its end of the
/// interface away by itself. In a network namespace of our own, so that the host's is left alone.
fn network(figures: &mut Figures, stage: &Stage) -> anyhow::Result<()> {
    let measured = thread::scope(|scope| {
        let inside = scope.spawn(|| -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
            unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
            let mut network = CellNetwork::open(NetworkConfig {
                bridge: "bench0".to_owned(),
                subnet: Ipv4Network::new([10, 200, 0, 0].into(), 16)?,
                host_address: [198, 51, 100, 1].into(),
                port_range: 61_001..=61_100,
                mtu: 1_500,
                deny: vec![],
            })?;
            let (mut attach, mut detach) = (Vec::new(), Vec::new());
            for round in 0..RUNS {
                let spec = stage.spec(&format!("n{round}"));
                let mut shim = stage.shims.create(&spec)?;
                let init = shim.status()?.init;
                let netns = std::fs::File::open(format!("/proc/{init}/ns/net"))?;
                let start = Instant::now();
                network.attach(&spec.id, netns.as_fd(), &[8_080], &[])?;
                attach.push(start.elapsed().as_secs_f64() * 1e3);
                drop(netns);
                run_true(&mut shim)?;
                shim.destroy()?;
                stage.shims.clear(&spec.id)?;
                let start = Instant::now();
                network.detach(&spec.id)?;
                detach.push(start.elapsed().as_secs_f64() * 1e3);
            }
            Ok((attach, detach))
        });
        inside.join().map_err(|_| anyhow::anyhow!("measuring the network panicked"))?
    });
    let (attach, detach) = measured?;
    let both: Vec<f64> = attach.iter().zip(&detach).map(|(one, other)| one + other).collect();
    figures.spread("container.network", &both);
    figures.note("container.network.attach.p50_ms", percentile(&attach, 50), "ms");
    figures.note("container.network.detach.p50_ms", percentile(&detach, 50), "ms");
    Ok(())
}

/// The memory of a shim and of its container's first process, after one process has run.
fn weigh(figures: &mut Figures, shim: &mut Shim) -> anyhow::Result<()> {
    run_true(shim)?;
    let init = shim.status()?.init;
    let stat = std::fs::read_to_string(format!("/proc/{init}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let holder = after_name.split_whitespace().nth(1).context("read the parent of init")?;
    for (name, pid) in [("shim", holder.to_owned()), ("init", init.to_string())] {
        let path = format!("/proc/{pid}/smaps_rollup");
        let rollup = std::fs::read_to_string(Path::new(&path)).context(path)?;
        for (field, line) in [("pss", "Pss:"), ("rss", "Rss:")] {
            let kib =
                rollup.lines().find_map(|it| it.strip_prefix(line)?.split_whitespace().next());
            let kib: f64 = kib.context("read the memory")?.parse()?;
            figures.note(&format!("{name}.{field}.kib"), kib, "KiB");
        }
    }
    Ok(())
}
