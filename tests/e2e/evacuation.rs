//! Evacuation, row by row of its story, and by each way that it may begin.

use std::time::{Duration, Instant};

use anyhow::ensure;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::stage::{address, app, can_run, idle, server, shell, site, site_with, spread, text};

/// Instances move before they stop: whoever looks sees one that serves, all the time.
#[test]
fn running_instances_move_before_they_stop() -> anyhow::Result<()> {
    if !can_run("e2e::evacuation::running_instances_move_before_they_stop") {
        return Ok(());
    }
    let mut site = site(3, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 6, "x"))?;
    let before = site.until_running("web", 6)?;
    ensure!(spread(&before).get("a") == Some(&2));
    site.call("/v1/cells/evacuate", &json!({"cell_id": "a"}))?;
    let begun = Instant::now();
    let last = loop {
        // What readers without definitions see, one for each index: it answers, or has just moved.
        let groups = site
            .call("/v1/actual_lrp_groups/list_by_process_guid", &json!({"process_guid": "web"}))?;
        let groups = groups["actual_lrp_groups"].as_array().cloned().unwrap_or_default();
        ensure!(groups.len() == 6, "{} indices", groups.len());
        for group in &groups {
            let serving = [&group["instance"], &group["evacuating"]].into_iter().any(|it| {
                it["state"] == "RUNNING"
                    && address(it)
                        .is_ok_and(|at| site.outside.get(at, Duration::from_secs(5)).is_ok())
            });
            if !serving {
                // It may have moved between the look and the call: then it is elsewhere now.
                let now = site.lrps("web")?;
                let moved = now.iter().any(|it| {
                    it["index"] == group["instance"]["index"]
                        && it["state"] == "RUNNING"
                        && address(it)
                            .is_ok_and(|at| site.outside.get(at, Duration::from_secs(5)).is_ok())
                });
                ensure!(moved, "an index is served by nobody: {group}\n{}", site.story());
            }
        }
        let now = site.lrps("web")?;
        if now.len() == 6
            && now.iter().all(|it| text(it, "cell_id") != "a" && it["state"] == "RUNNING")
        {
            break now;
        }
        ensure!(begun.elapsed() < volvox_tests::site::PATIENCE, "{}", site.story());
    };
    ensure!(site.until_agent_ended("a")? == 0, "a drained cell ends by itself");
    ensure!(!spread(&last).contains_key("a"));
    site.until_cell("a", false)?;
    site.check()?;
    // It comes back empty, and takes work again.
    site.start_agent("a")?;
    site.until_cell("a", true)?;
    site.scale("web", 9)?;
    let nine = site.until_running("web", 9)?;
    ensure!(spread(&nine).contains_key("a"));
    site.check()
}

#[test]
fn what_has_not_come_to_run_is_placed_anew_and_new_work_is_refused() -> anyhow::Result<()> {
    if !can_run("e2e::evacuation::what_has_not_come_to_run_is_placed_anew_and_new_work_is_refused")
    {
        return Ok(());
    }
    let mut site = site(1, &[("convergence", "full_pass_s = 1\nstale_after_s = 1")])?;
    site.freshen("tests", 0)?;
    // Never healthy, so it stays CLAIMED.
    let mut slow = app("slow", 1, "exec sleep 1000000");
    slow["monitor"] = shell("exit 1");
    slow["start_timeout_ms"] = json!(600_000);
    site.desire(&slow)?;
    site.wait("it is claimed", |site| {
        let all = site.lrps("slow").ok()?;
        all.iter().any(|it| it["state"] == "CLAIMED").then_some(())
    })?;
    let told = site.agent("a", &["evacuate"])?;
    ensure!(told.status.success());
    ensure!(site.until_agent_ended("a")? == 0);
    let record = site.wait("it waits for a cell", |site| {
        let all = site.lrps("slow").ok()?;
        all.into_iter().find(|it| it["state"] == "UNCLAIMED")
    })?;
    ensure!(text(&record, "cell_id").is_empty(), "{record}");
    site.add_cell("b", "z1", "")?;
    site.wait("another cell has it", |site| {
        let all = site.lrps("slow").ok()?;
        all.iter().any(|it| it["state"] == "CLAIMED" && text(it, "cell_id") == "b").then_some(())
    })?;
    site.check()
}

#[test]
fn what_finds_no_other_cell_stays_until_the_timeout_and_tasks_end_with_its_reason()
-> anyhow::Result<()> {
    if !can_run(
        "e2e::evacuation::what_finds_no_other_cell_stays_until_the_timeout_and_tasks_end_with_its_reason",
    ) {
        return Ok(());
    }
    let mut site = site_with(1, &[], "[rep]\nevacuation_timeout_s = 6\n")?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 1, "x"))?;
    let before = site.until_running("web", 1)?;
    for (guid, script) in [("lasting", "exec sleep 1000000"), ("short", "sleep 2; echo done")] {
        let task = json!({"task_guid": guid, "domain": "tests", "task_definition": {
            "rootfs": "host:", "memory_mb": 32, "disk_mb": 32, "log_guid": "l", "action": shell(script)}});
        site.call("/v1/tasks/desire.r2", &task)?;
    }
    site.wait("both tasks run", |site| {
        let all = site.containers("a").ok()?;
        (all.iter().filter(|it| it["state"] == "RUNNING").count() == 3).then_some(())
    })?;
    site.signal_agent("a", Signal::SIGUSR1)?;
    let short = site.wait("a task may run to its end", |site| {
        site.task("short").ok()?.filter(|it| it["state"] == "Completed")
    })?;
    ensure!(short["failed"] == false, "{short}");
    let serves = site.outside.get(address(&before[0])?, Duration::from_secs(5))?;
    ensure!(serves.status == 200, "it serves on: nobody else can");
    let status: Value = serde_json::from_slice(&site.agent("a", &["status", "--json"])?.stdout)?;
    ensure!(status["rep"]["evacuation"]["instances_left"] == 1, "progress is visible: {status}");
    ensure!(site.until_agent_ended("a")? == 0);
    let long = site.wait("the other task has ended", |site| {
        site.task("lasting").ok()?.filter(|it| it["state"] == "Completed")
    })?;
    ensure!(text(&long, "failure_reason") == "timed out during cell evacuation", "{long}");
    let all = site.lrps("web")?;
    ensure!(all.iter().all(|it| it["presence"] != "EVACUATING"), "{all:?}");
    ensure!(all.iter().all(|it| it["state"] == "UNCLAIMED"), "{all:?}");
    site.check()
}

#[test]
fn crashed_and_stopped_instances_leave_with_their_cell() -> anyhow::Result<()> {
    if !can_run("e2e::evacuation::crashed_and_stopped_instances_leave_with_their_cell") {
        return Ok(());
    }
    let mut site =
        site_with(1, &[], "[rep]\nevacuation_timeout_s = 60\nevacuate_on_stop = true\n")?;
    site.freshen("tests", 0)?;
    site.desire(&idle("dies", 1))?;
    site.desire(&idle("goes", 1))?;
    let dies = site.until_running("dies", 1)?;
    site.until_running("goes", 1)?;
    // systemctl stop: no other cell has room, so both stay.
    site.signal_agent("a", Signal::SIGTERM)?;
    site.wait("both evacuate", |site| {
        let all: Vec<Value> =
            ["dies", "goes"].iter().flat_map(|it| site.lrps(it).unwrap_or_default()).collect();
        (all.iter().filter(|it| it["presence"] == "EVACUATING").count() == 2).then_some(())
    })?;
    let pid = super::life::process_of(&site, text(&dies[0], "instance_guid"))?;
    nix::sys::signal::kill(pid, Signal::SIGKILL)?;
    site.wait("the crashed one has no evacuating record", |site| {
        let all = site.lrps("dies").ok()?;
        all.iter().all(|it| it["presence"] != "EVACUATING").then_some(())
    })?;
    site.call("/v1/desired_lrp/remove", &json!({"process_guid": "goes"}))?;
    ensure!(site.until_agent_ended("a")? == 0, "it is empty, and ends at once");
    site.until_running("goes", 0)?;
    site.check()
}
