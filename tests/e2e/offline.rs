//! A cell without a coordinator.

use anyhow::ensure;
use nix::sys::signal::{Signal, kill};
use serde_json::json;

use super::life::process_of;
use super::stage::{address, can_run, idle, names, server, site, site_with, text};

#[test]
fn a_cell_starts_again_what_it_was_assigned_after_a_power_cut() -> anyhow::Result<()> {
    if !can_run("e2e::offline::a_cell_starts_again_what_it_was_assigned_after_a_power_cut") {
        return Ok(());
    }
    let mut site = site(1, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 2, "x"))?;
    site.desire(&idle("stopped", 1))?;
    let before = site.until_running("web", 2)?;
    site.until_running("stopped", 1)?;
    let task = json!({"task_guid": "once", "domain": "tests", "task_definition": {
        "rootfs": "host:", "memory_mb": 32, "disk_mb": 32, "log_guid": "l",
        "action": super::stage::shell("exec sleep 1000000")}});
    site.call("/v1/tasks/desire.r2", &task)?;
    site.wait("the task runs", |site| {
        site.task("once").ok()?.filter(|it| it["state"] == "Running")
    })?;
    // A stop that was received before the cut is honoured.
    site.call("/v1/desired_lrp/remove", &json!({"process_guid": "stopped"}))?;
    site.until_running("stopped", 0)?;
    site.kill_coordinator()?;
    site.power_off("a")?;
    site.start_agent("a")?;
    let again = |site: &volvox_tests::site::Site| {
        let all = site.containers("a").ok()?;
        let running = all.iter().filter(|it| it["state"] == "RUNNING").count();
        (running == 2 && all.len() == 2).then_some(all)
    };
    let again = site.wait("both run again, and nothing else", again)?;
    let mut guids: Vec<&str> = again.iter().map(|it| text(it, "guid")).collect();
    guids.sort_unstable();
    ensure!(guids == names(&before), "under the names that the board knows");
    // On reconnection they stay, and the board learns where they are now.
    site.start_coordinator()?;
    let after = site.until_running("web", 2)?;
    ensure!(names(&before) == names(&after));
    site.wait("they are reached where the board says", |site| {
        let all = site.lrps("web").ok()?;
        let answer = |lrp| {
            let answer =
                site.outside.get(address(lrp).ok()?, std::time::Duration::from_secs(5)).ok()?;
            (answer.text == format!("{} x", text(lrp, "instance_guid"))).then_some(())
        };
        all.iter().all(|lrp| answer(lrp).is_some()).then_some(())
    })?;
    let task = site.wait("a task is not started twice", |site| {
        site.task("once").ok()?.filter(|it| it["state"] == "Completed")
    })?;
    ensure!(task["failed"] == true, "{task}");
    site.check()
}

#[test]
fn a_lone_cell_restarts_what_crashes_within_the_policy() -> anyhow::Result<()> {
    if !can_run("e2e::offline::a_lone_cell_restarts_what_crashes_within_the_policy") {
        return Ok(());
    }
    let more = "[rep]\ncrash_immediate_restarts = 1\ncrash_smallest_wait_s = 1\n";
    let mut site = site_with(2, &[], more)?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 2))?;
    let before = site.until_running("p", 2)?;
    site.kill_coordinator()?;
    for name in ["a", "b"] {
        site.wait("the coordinator is missed", |site| {
            let output = site.agent(name, &["status", "--json"]).ok()?;
            let status: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            (status["rep"]["coordinator"] == false).then_some(())
        })?;
    }
    let victim = text(&before[0], "instance_guid").to_owned();
    let cell = text(&before[0], "cell_id").to_owned();
    for _ in 0..2 {
        let pid = process_of(&site, &victim)?;
        kill(pid, Signal::SIGKILL)?;
        site.wait("it runs again", |site| {
            let all = site.containers(&cell).ok()?;
            let runs = all.iter().any(|it| it["state"] == "RUNNING" && text(it, "guid") == victim);
            (runs && process_of(site, &victim).ok()? != pid).then_some(())
        })?;
    }
    site.start_coordinator()?;
    let after = site.until_running("p", 2)?;
    ensure!(names(&before) == names(&after), "the board finds what it knows");
    site.check()
}

#[test]
fn an_agent_that_is_killed_or_replaced_stops_nothing() -> anyhow::Result<()> {
    if !can_run("e2e::offline::an_agent_that_is_killed_or_replaced_stops_nothing") {
        return Ok(());
    }
    let mut site = site(2, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 4, "x"))?;
    let before = site.until_running("web", 4)?;
    let pid = process_of(&site, &names(&before)[0])?;
    for end in [Signal::SIGKILL, Signal::SIGTERM] {
        for name in ["a", "b"] {
            if end == Signal::SIGKILL {
                site.kill_agent(name)?;
            } else {
                site.signal_agent(name, end)?;
                ensure!(site.until_agent_ended(name)? == 0);
            }
            site.start_agent(name)?;
        }
    }
    site.check()?;
    let after = site.until_running("web", 4)?;
    ensure!(names(&before) == names(&after));
    ensure!(process_of(&site, &names(&after)[0])? == pid, "the same process, all the time");
    // Stopped while no agent was there: the next one hears of it.
    site.kill_agent("a")?;
    site.scale("web", 1)?;
    site.start_agent("a")?;
    site.until_running("web", 1)?;
    site.check()
}
