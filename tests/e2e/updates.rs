//! The story of rolling updates, sentence by sentence, with real containers: what supersedes, crashes,
//! scales, waits, goes back, and is lost in the middle of it.

use anyhow::ensure;
use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};
use volvox_tests::site::Site;

use super::life::process_of;
use super::rolling::{definition_of, deployment, until_rolled, update, update_with};
use super::stage::{app, can_run, failing, idle, names, shell, site, text};

/// One that starts and never comes to run.
fn never_ready(process: &str, instances: u32) -> Value {
    let mut lrp = app(process, instances, "exec sleep 1000000");
    lrp["monitor"] = shell("exit 1");
    lrp["start_timeout_ms"] = json!(600_000);
    lrp
}

/// Those of a definition, and their states.
fn states_of(site: &Site, process: &str, definition: &str) -> Vec<String> {
    let all = site.lrps(process).unwrap_or_default();
    let of = all.iter().filter(|it| text(it, "definition_id") == definition);
    of.map(|it| text(it, "state").to_owned()).collect()
}

#[test]
fn a_newer_definition_supersedes_one_that_is_under_way() -> anyhow::Result<()> {
    if !can_run("e2e::updates::a_newer_definition_supersedes_one_that_is_under_way") {
        return Ok(());
    }
    let site = site(2, &[("convergence", "full_pass_s = 1\nstale_after_s = 1")])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 3))?;
    let before = site.until_running("p", 3)?;
    update(&site, "p", "v2", &never_ready("p", 3))?;
    site.wait("the new one is claimed", |site| {
        (states_of(site, "p", "v2") == ["CLAIMED"]).then_some(())
    })?;
    let now = site.lrps("p")?;
    let kept = names(&before).iter().all(|name| names(&now).contains(name));
    ensure!(kept, "only one index is taken up, and nothing stops for one that does not run");
    ensure!(deployment(&site, "p")?["healthy_definition_id"] == "p");
    update(&site, "p", "v3", &idle("p", 3))?;
    until_rolled(&site, "p", "v3", 3)?;
    let after = site.wait("what is not used any more is in the history", |site| {
        let found = deployment(site, "p").ok()?;
        (found["definitions"].as_object()?.len() == 1).then_some(found)
    })?;
    ensure!(after["active_definition_id"] == "v3" && after["healthy_definition_id"] == "v3");
    ensure!(after.to_string().contains("v2"), "v2 can still be gone back to: {after}");
    site.check()
}

#[test]
fn crashes_and_scaling_during_a_roll_follow_the_healthy_definition() -> anyhow::Result<()> {
    if !can_run("e2e::updates::crashes_and_scaling_during_a_roll_follow_the_healthy_definition") {
        return Ok(());
    }
    let site = site(2, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 3))?;
    let before = site.until_running("p", 3)?;
    update(&site, "p", "v2", &never_ready("p", 3))?;
    site.wait("the new one is claimed", |site| {
        (states_of(site, "p", "v2") == ["CLAIMED"]).then_some(())
    })?;
    let last = before.iter().find(|it| it["index"] == 2).cloned().unwrap_or_default();
    kill(process_of(&site, text(&last, "instance_guid"))?, Signal::SIGKILL)?;
    site.wait("what crashed outside of the sequence is healthy again", |site| {
        let all = site.lrps("p").ok()?;
        let again = all.iter().find(|it| it["index"] == 2 && it["state"] == "RUNNING")?;
        let new = text(again, "instance_guid") != text(&last, "instance_guid");
        (new && text(again, "definition_id") == "p").then_some(())
    })?;
    site.scale("p", 5)?;
    site.wait("new indices are of the healthy definition", |site| {
        (states_of(site, "p", "p").len() == 5).then_some(())
    })?;
    site.scale("p", 2)?;
    site.wait("those that go, go", |site| (states_of(site, "p", "p").len() == 2).then_some(()))?;
    site.call("/v1/desired_lrp/cancel_update", &json!({"process_guid": "p"}))?;
    until_rolled(&site, "p", "p", 2)?;
    site.check()
}

#[test]
fn canaries_wait_and_what_fails_goes_back_by_itself() -> anyhow::Result<()> {
    if !can_run("e2e::updates::canaries_wait_and_what_fails_goes_back_by_itself") {
        return Ok(());
    }
    let site = site(2, &[("convergence", "crash_immediate_restarts = 1")])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 4))?;
    site.until_running("p", 4)?;
    update_with(&site, "p", "v2", &idle("p", 4), json!({"canary_instances": 1}))?;
    site.wait("it waits after the canary", |site| {
        let paused = deployment(site, "p").ok()?["roll"].to_string().contains("CANARY");
        (paused && states_of(site, "p", "v2") == ["RUNNING"]).then_some(())
    })?;
    site.wait("the rest is as it was", |site| {
        (states_of(site, "p", "p") == ["RUNNING"; 3]).then_some(())
    })?;
    site.call("/v1/lrp_deployment/promote", &json!({"process_guid": "p"}))?;
    let good = until_rolled(&site, "p", "v2", 4)?;
    let policy = json!({"rollback_on_failure": true, "max_in_flight": 2});
    update_with(&site, "p", "bad", &failing("p", 4), policy)?;
    site.wait("it has gone back by itself", |site| {
        let found = deployment(site, "p").ok()?;
        (found["active_definition_id"] == "v2" && found["roll"].is_null()).then_some(())
    })?;
    let after = until_rolled(&site, "p", "v2", 4)?;
    ensure!(names(&good) == names(&after), "the good ones were never touched");
    site.check()
}

#[test]
fn a_deployment_is_created_seen_as_a_desired_lrp_activated_and_deleted() -> anyhow::Result<()> {
    if !can_run("e2e::updates::a_deployment_is_created_seen_as_a_desired_lrp_activated_and_deleted")
    {
        return Ok(());
    }
    let site = site(2, &[])?;
    site.freshen("tests", 0)?;
    let new = json!({"deployment": {
        "process_guid": "p", "domain": "tests", "instances": 2, "annotation": "mine",
        "definition_id": "d1", "definition": definition_of(&idle("p", 2))}});
    site.call("/v1/lrp_deployment/create", &new)?;
    let first = until_rolled(&site, "p", "d1", 2)?;
    let seen =
        site.call("/v1/desired_lrps/get_by_process_guid.r3", &json!({"process_guid": "p"}))?;
    ensure!(
        seen["desired_lrp"]["annotation"] == "mine" && seen["desired_lrp"]["memory_mb"] == 64,
        "{seen}"
    );
    update(&site, "p", "d2", &never_ready("p", 2))?;
    site.wait("the update is under way", |site| {
        (states_of(site, "p", "d2") == ["CLAIMED"]).then_some(())
    })?;
    let body = json!({"process_guid": "p", "definition_id": "d1"});
    site.call("/v1/lrp_deployment/activate", &body)?;
    let again = until_rolled(&site, "p", "d1", 2)?;
    ensure!(names(&first) == names(&again), "what runs stays");
    site.call("/v1/lrp_deployment/delete", &json!({"process_guid": "p"}))?;
    site.until_running("p", 0)?;
    site.check()
}

#[test]
fn a_cell_that_is_lost_in_the_middle_of_a_roll_does_not_stop_it() -> anyhow::Result<()> {
    if !can_run("e2e::updates::a_cell_that_is_lost_in_the_middle_of_a_roll_does_not_stop_it") {
        return Ok(());
    }
    let mut site = site(4, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 8))?;
    site.until_running("p", 8)?;
    let mut slow = idle("p", 8);
    slow["setup"] = shell("sleep 0.2");
    update(&site, "p", "v2", &slow)?;
    site.wait("the roll has begun", |site| {
        states_of(site, "p", "v2").contains(&"RUNNING".to_owned()).then_some(())
    })?;
    site.power_off("b")?;
    let all = until_rolled(&site, "p", "v2", 8)?;
    ensure!(all.iter().all(|it| text(it, "cell_id") != "b"));
    site.check_rules()?;
    site.start_agent("b")?;
    site.until_cell("b", true)?;
    until_rolled(&site, "p", "v2", 8)?;
    site.check()
}

#[test]
fn a_flaky_definition_gets_past_a_stuck_index_and_a_roll_can_be_paused_or_stall()
-> anyhow::Result<()> {
    if !can_run(
        "e2e::updates::a_flaky_definition_gets_past_a_stuck_index_and_a_roll_can_be_paused_or_stall",
    ) {
        return Ok(());
    }
    let site = site(2, &[("convergence", "full_pass_s = 1\nstale_after_s = 1")])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 4))?;
    let before = site.until_running("p", 4)?;
    // It comes to run everywhere but at index 1.
    let mut flaky = never_ready("p", 4);
    flaky["monitor"] = shell("[ $INSTANCE_INDEX != 1 ]");
    update_with(
        &site,
        "p",
        "v2",
        &flaky,
        json!({"stuck_after_ms": 1_000, "min_healthy_time_ms": 200}),
    )?;
    site.wait("all but the stuck one are new", |site| {
        let mut states = states_of(site, "p", "v2");
        states.sort();
        (states == ["CLAIMED", "RUNNING", "RUNNING", "RUNNING"]).then_some(())
    })?;
    let old = before.iter().find(|it| it["index"] == 1).cloned().unwrap_or_default();
    site.wait("at the stuck index the old one serves", |site| {
        let all = site.lrps("p").ok()?;
        let left: Vec<&Value> = all.iter().filter(|it| text(it, "definition_id") == "p").collect();
        let same = left.len() == 1 && text(left[0], "instance_guid") == text(&old, "instance_guid");
        same.then_some(())
    })?;
    ensure!(!deployment(&site, "p")?["roll"].is_null(), "it is not over before that one runs");
    // What supersedes it never comes to run: it stalls, and goes on when it is told to.
    update_with(&site, "p", "v3", &never_ready("p", 4), json!({"progress_deadline_ms": 1_000}))?;
    site.wait("it has stalled", |site| {
        deployment(site, "p").ok()?["roll"].to_string().contains("STALLED").then_some(())
    })?;
    site.call("/v1/lrp_deployment/resume", &json!({"process_guid": "p"}))?;
    site.call("/v1/lrp_deployment/pause", &json!({"process_guid": "p"}))?;
    ensure!(deployment(&site, "p")?["roll"].to_string().contains("ASKED"));
    site.call("/v1/lrp_deployment/resume", &json!({"process_guid": "p"}))?;
    update_with(&site, "p", "v4", &idle("p", 4), json!({}))?;
    until_rolled(&site, "p", "v4", 4)?;
    site.check()
}
