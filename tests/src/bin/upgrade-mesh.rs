//! A mesh of the version before and this one side by side: `upgrade-mesh OLD NEW`, two folders with
//! the programs of each. `make upgrade-mesh` builds both and calls it, as root.
//!
//! Real coordinators and agents with real containers, in network namespaces. Each member is killed
//! and started again with the new program, one after the other; once the coordinator comes first, once
//! the cells. Meanwhile no member may find another missing, and no instance may be replaced. When half
//! of the cells are upgraded, one of each version loses its power: the mixed mesh must notice both.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use volvox_tests::site::{Settings, Site};

/// Cells of the site. More than neighbours, so that members have different ones.
const CELLS: usize = 10;

/// Instances of the application.
const INSTANCES: u32 = 20;

/// The mesh is watched for so long after each step: longer than a member needs to find another missing.
const WATCHED: Duration = Duration::from_secs(8);

/// Both versions must notice a death within this time.
const DETECTED: Duration = Duration::from_secs(15);

/// What a member logs when it finds another missing.
const MISSING: &str = "member is missing";

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [old, new] = &arguments[..] else {
        bail!("usage: upgrade-mesh OLD NEW: folders with the programs of both versions");
    };
    if !nix::unistd::geteuid().is_root() {
        bail!("containers need root: sudo make upgrade-mesh");
    }
    for folder in [old, new] {
        let agent = folder.join("volvox-agent");
        ensure!(agent.is_file(), "{} is missing: make upgrade-mesh builds it", agent.display());
    }
    for order in [Order::CoordinatorFirst, Order::CellsFirst] {
        say(&format!(
            "{order:?}: {CELLS} cells and {INSTANCES} instances begin with the old programs"
        ));
        play(order, old, new).with_context(|| format!("{order:?}"))?;
    }
    say(
        "both orders: no cell was found missing, no instance was replaced, and the dead were noticed",
    );
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    CoordinatorFirst,
    CellsFirst,
}

fn play(order: Order, old: &Path, new: &Path) -> anyhow::Result<()> {
    let mut site = Site::of(old.to_owned(), &Settings::new())?;
    let names: Vec<String> = (0..CELLS).map(|nth| format!("cell-{nth}")).collect();
    for name in &names {
        site.add_cell(name, "z1", "")?;
    }
    site.freshen("tests", 0)?;
    site.desire(&idle("p", INSTANCES))?;
    let before = instances(&site.until_running("p", INSTANCES as usize)?);
    let mut logs = Logs::of(&site, &names)?;
    logs.watch(&site, "all are of the old version")?;

    if order == Order::CoordinatorFirst {
        upgrade_coordinator(&mut site, new, &names)?;
        logs.watch(&site, "the coordinator is upgraded")?;
    }
    for (nth, name) in names.iter().enumerate() {
        site.use_programs(new.to_owned());
        site.kill_agent(name)?;
        site.start_agent(name)?;
        until_all_see_all(&site, &names)?;
        logs.watch(&site, &format!("{name} is upgraded"))?;
        if nth + 1 == CELLS / 2 {
            // One of each version.
            detects(&mut site, &mut logs, &names[0], "new")?;
            detects(&mut site, &mut logs, &names[CELLS - 1], "old")?;
            site.use_programs(old.to_owned());
            site.start_agent(&names[CELLS - 1])?;
            site.use_programs(new.to_owned());
            site.start_agent(&names[0])?;
            until_all_see_all(&site, &names)?;
            logs.skip()?;
        }
    }
    if order == Order::CellsFirst {
        upgrade_coordinator(&mut site, new, &names)?;
        logs.watch(&site, "the coordinator is upgraded")?;
    }
    let after = instances(&site.until_running("p", INSTANCES as usize)?);
    // Those of the two cells that lost their power are replaced, and no others.
    let lost = |guid: &&String| !after.contains(*guid);
    let replaced = before.iter().filter(lost).count();
    let most = 2 * (INSTANCES as usize).div_ceil(CELLS);
    ensure!(replaced <= most, "{replaced} of {INSTANCES} instances were replaced, {most} at most");
    site.check()
}

/// kill -9, then the new program at the same address and on the same folder.
fn upgrade_coordinator(site: &mut Site, new: &Path, names: &[String]) -> anyhow::Result<()> {
    site.use_programs(new.to_owned());
    site.kill_coordinator()?;
    site.start_coordinator()?;
    until_all_see_all(site, names)
}

/// A cell loses its power: how soon the coordinator knows.
fn detects(site: &mut Site, logs: &mut Logs, name: &str, version: &str) -> anyhow::Result<()> {
    site.power_off(name)?;
    let begun = Instant::now();
    site.until_cell(name, false)?;
    let took = begun.elapsed();
    ensure!(took < DETECTED, "{name} was found missing after {took:?} only");
    say(&format!("  {name} ({version}) lost its power: noticed after {took:.1?}"));
    logs.skip()
}

/// Each cell and the coordinator have all members in their lists.
fn until_all_see_all(site: &Site, names: &[String]) -> anyhow::Result<()> {
    for name in names {
        site.until_cell(name, true)?;
    }
    site.wait("each cell sees all members", |site| {
        let sees_all = |name: &String| {
            let Ok(output) = site.agent(name, &["members", "--json"]) else { return false };
            let Ok(members) = serde_json::from_slice::<Value>(&output.stdout) else { return false };
            let present = |member: &&Value| member["present"] == true;
            members.as_array().is_some_and(|all| all.iter().filter(present).count() > CELLS)
        };
        names.iter().all(sees_all).then_some(())
    })
}

/// The logs of all members, and how far each was read.
struct Logs(Vec<(PathBuf, usize)>);

impl Logs {
    fn of(site: &Site, names: &[String]) -> anyhow::Result<Logs> {
        let members = names.iter().map(String::as_str).chain(["coordinator"]);
        let mut logs = Logs(members.map(|name| (site.log(name), 0)).collect());
        logs.skip()?;
        Ok(logs)
    }

    /// What came since the last look.
    fn news(&mut self) -> anyhow::Result<Vec<String>> {
        let mut news = Vec::new();
        for (path, read) in &mut self.0 {
            let text = std::fs::read_to_string(&*path)
                .with_context(|| format!("read {}", path.display()))?;
            let fresh = text.get(*read..).unwrap_or_default();
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            news.extend(fresh.lines().map(|line| format!("{name}: {line}")));
            *read = text.len();
        }
        Ok(news)
    }

    fn skip(&mut self) -> anyhow::Result<()> {
        self.news().map(drop)
    }

    /// For [`WATCHED`] nobody finds anybody missing, and nobody did since the last look.
    fn watch(&mut self, site: &Site, what: &str) -> anyhow::Result<()> {
        let end = Instant::now() + WATCHED;
        while Instant::now() < end {
            if let Some(line) = self.news()?.iter().find(|line| line.contains(MISSING)) {
                bail!("{what}: {line}\n{}", site.story());
            }
            volvox_tests::wait::pause(Duration::from_millis(200));
        }
        say(&format!("  {what}: nobody was found missing"));
        Ok(())
    }
}

fn instances(lrps: &[Value]) -> Vec<String> {
    lrps.iter().filter_map(|lrp| Some(lrp["instance_guid"].as_str()?.to_owned())).collect()
}

/// An application that does nothing until it is stopped.
fn idle(process: &str, instances: u32) -> Value {
    json!({
        "process_guid": process, "domain": "tests", "instances": instances, "rootfs": "host:",
        "log_guid": "log", "log_source": "APP", "memory_mb": 64, "disk_mb": 64,
        "action": {"run": {"path": "/bin/sh", "args": ["-c", "exec sleep 1000000"], "user": "root"}},
    })
}

#[expect(clippy::print_stdout, reason = "a program for people and for make")]
fn say(what: &str) {
    println!("{what}");
}
