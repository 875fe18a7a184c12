//! Things that die, under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use anyhow::ensure;
use volvox_tests::site::Site;

use super::stage::{can_run, idle, names, site, spread, text};

/// Desires and scales small applications until it is told to stop; counts what was acknowledged.
struct Load {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU32>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Load {
    fn on(site: &volvox_tests::site::Site) -> Load {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (end, count, caller) = (Arc::clone(&stop), Arc::clone(&acknowledged), site.caller());
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) && count.load(Ordering::Acquire) < 12 {
                let nth = count.load(Ordering::Acquire);
                let body = serde_json::json!({"desired_lrp": idle(&format!("load-{nth}"), 1)});
                let answer = caller.call("/v1/desired_lrp/desire.r2", &body);
                if answer.is_ok_and(|it| it.status == 200 || it.status == 409) {
                    count.fetch_add(1, Ordering::AcqRel);
                }
                volvox_tests::wait::pause(std::time::Duration::from_millis(50));
            }
        });
        Load { stop, acknowledged, thread: Some(thread) }
    }

    /// Waits until all of it runs.
    fn settle(mut self, site: &volvox_tests::site::Site) -> anyhow::Result<()> {
        site.wait("all was asked for", |_| {
            (self.acknowledged.load(Ordering::Acquire) >= 12).then_some(())
        })?;
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
        for nth in 0..self.acknowledged.load(Ordering::Acquire) {
            site.until_running(&format!("load-{nth}"), 1)?;
        }
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
    }
}

#[test]
fn a_killed_agent_under_load() -> anyhow::Result<()> {
    if !can_run("e2e::faults::a_killed_agent_under_load") {
        return Ok(());
    }
    let mut site = site(3, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 6))?;
    let before = site.until_running("p", 6)?;
    let load = Load::on(&site);
    for _ in 0..2 {
        site.kill_agent("a")?;
        site.start_agent("a")?;
    }
    load.settle(&site)?;
    let after = site.until_running("p", 6)?;
    ensure!(names(&before) == names(&after), "nothing moved");
    site.check()
}

#[test]
fn a_killed_cell_under_load_is_replaced() -> anyhow::Result<()> {
    if !can_run("e2e::faults::a_killed_cell_under_load_is_replaced") {
        return Ok(());
    }
    let mut site = site(4, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 8))?;
    let before = site.until_running("p", 8)?;
    ensure!(spread(&before).contains_key("a"));
    let load = Load::on(&site);
    site.power_off("a")?;
    site.wait("nothing is on the dead cell", |site| {
        let all = site.lrps("p").ok()?;
        let settled = all.len() == 8
            && all.iter().all(|it| it["state"] == "RUNNING" && text(it, "cell_id") != "a");
        settled.then_some(())
    })?;
    load.settle(&site)?;
    site.check()?;
    // It comes back: what it was assigned has moved, and the tables settle who stays.
    site.start_agent("a")?;
    site.until_cell("a", true)?;
    site.until_running("p", 8)?;
    site.check()
}

#[test]
fn a_killed_coordinator_under_load_loses_nothing() -> anyhow::Result<()> {
    if !can_run("e2e::faults::a_killed_coordinator_under_load_loses_nothing") {
        return Ok(());
    }
    let mut site = site(3, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 6))?;
    let before = site.until_running("p", 6)?;
    let load = Load::on(&site);
    for _ in 0..3 {
        site.wait("some was asked for", |_| {
            (load.acknowledged.load(Ordering::Acquire) > 2).then_some(())
        })?;
        site.kill_coordinator()?;
        site.start_coordinator()?;
    }
    load.settle(&site)?;
    let after = site.until_running("p", 6)?;
    ensure!(names(&before) == names(&after), "nothing moved");
    site.check()
}

/// Cells notice the restart at once and connect again. None counts as missing, so no hold begins and
/// nothing is replaced.
#[test]
fn a_coordinator_that_restarts_finds_all_its_cells() -> anyhow::Result<()> {
    if !can_run("e2e::faults::a_coordinator_that_restarts_finds_all_its_cells") {
        return Ok(());
    }
    let mut site = site(5, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 10))?;
    let before = site.until_running("p", 10)?;
    let log = |site: &Site| std::fs::read_to_string(site.log("coordinator")).unwrap_or_default();
    let lives = |site: &Site| log(site).matches("all cells have been heard").count();
    for _ in 0..2 {
        let earlier = lives(&site);
        site.kill_coordinator()?;
        site.start_coordinator()?;
        site.wait("it has heard all cells", |site| (lives(site) > earlier).then_some(()))?;
        for name in site.cell_names() {
            site.until_cell(&name, true)?;
        }
    }
    let said = log(&site);
    for loss in ["MANY CELLS VANISHED", "a cell is missing", "member is missing"] {
        let line = said.lines().find(|line| line.contains(loss));
        ensure!(line.is_none(), "{line:?}\n{}", site.story());
    }
    let after = site.until_running("p", 10)?;
    ensure!(names(&before) == names(&after), "nothing moved");
    site.check()
}
