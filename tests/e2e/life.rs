//! The way of an instance when nothing breaks but itself.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use super::stage::{address, app, can_run, idle, names, server, site, spread, text};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn instances_are_spread_reached_from_outside_and_scaled() -> anyhow::Result<()> {
    if !can_run("e2e::life::instances_are_spread_reached_from_outside_and_scaled") {
        return Ok(());
    }
    let site = site(5, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&server("web", 5, "one"))?;
    let five = site.until_running("web", 5)?;
    let cells = spread(&five);
    ensure!(cells.len() == 5, "one on each cell: {cells:?}");
    let mut answered = BTreeSet::new();
    for lrp in &five {
        let answer = site.outside.get(address(lrp)?, SOON)?;
        ensure!(answer.text == format!("{} one", text(lrp, "instance_guid")), "{}", answer.text);
        ensure!(text(lrp, "availability_zone").starts_with('z'));
        answered.insert(answer.text);
    }
    ensure!(answered.len() == 5);
    site.check()?;

    site.scale("web", 8)?;
    let eight = site.until_running("web", 8)?;
    ensure!(names(&five).iter().all(|name| names(&eight).contains(name)), "the five stayed");
    site.scale("web", 2)?;
    let two = site.until_running("web", 2)?;
    let indices: BTreeSet<u64> = two.iter().filter_map(|it| it["index"].as_u64()).collect();
    ensure!(indices == BTreeSet::from([0, 1]));
    for lrp in &two {
        site.outside.get(address(lrp)?, SOON)?;
    }
    site.check()?;
    site.call("/v1/desired_lrp/remove", &json!({"process_guid": "web"}))?;
    site.until_running("web", 0)?;
    site.check()
}

#[test]
fn a_crash_is_restarted_at_once_then_later_and_then_not_at_all() -> anyhow::Result<()> {
    if !can_run("e2e::life::a_crash_is_restarted_at_once_then_later_and_then_not_at_all") {
        return Ok(());
    }
    let policy = "crash_immediate_restarts = 2\ncrash_smallest_wait_s = 1\n\
                  crash_largest_wait_s = 2\ncrash_give_up_after = 4\nfull_pass_s = 1";
    let site = site(1, &[("convergence", policy)])?;
    site.desire(&app("bad", 1, "exit 7"))?;
    let record = |count: u64| {
        site.wait(&format!("{count} crashes"), |site| {
            let all = site.lrps("bad").ok()?;
            all.into_iter().find(|it| it["crash_count"].as_u64() >= Some(count))
        })
    };
    let third = record(3)?;
    ensure!(text(&third, "crash_reason").contains("status 7"), "{third}");
    let begun = Instant::now();
    record(4)?;
    ensure!(begun.elapsed() >= Duration::from_millis(700), "the fourth waits for its time");
    record(5)?;
    let last = site.wait("it is left alone", |site| {
        let all = site.lrps("bad").ok()?;
        all.into_iter().find(|it| it["state"] == "CRASHED" && it["crash_count"] == 5)
    })?;
    ensure!(text(&last, "cell_id").is_empty());
    site.check()?;

    // One that had run long enough begins to count anew; here it is enough that it is restarted.
    site.desire(&idle("good", 1))?;
    let before = site.until_running("good", 1)?;
    let pid = process_of(&site, text(&before[0], "instance_guid"))?;
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
    site.wait("another instance runs", |site| {
        let all = site.lrps("good").ok()?;
        let new = all.iter().any(|it| it["state"] == "RUNNING" && it["crash_count"] == 1);
        (new && names(&all) != names(&before)).then_some(())
    })?;
    site.check()
}

/// The first process of a container: the one whose environment names it.
pub(crate) fn process_of(
    site: &volvox_tests::site::Site,
    instance: &str,
) -> anyhow::Result<nix::unistd::Pid> {
    let wanted = format!("INSTANCE_GUID={instance}");
    site.wait(&format!("a process of {instance}"), |_| {
        for entry in std::fs::read_dir("/proc").ok()?.flatten() {
            let pid: i32 = match entry.file_name().to_str().and_then(|it| it.parse().ok()) {
                Some(pid) => pid,
                None => continue,
            };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|it| *it == 0).any(|it| it == wanted.as_bytes()) {
                return Some(nix::unistd::Pid::from_raw(pid));
            }
        }
        None
    })
}

#[test]
fn a_full_fleet_says_so_and_goes_on_when_a_cell_joins() -> anyhow::Result<()> {
    if !can_run("e2e::life::a_full_fleet_says_so_and_goes_on_when_a_cell_joins") {
        return Ok(());
    }
    let small = "[capacity]\nmemory_mb = 128\ndisk_mb = 4096\ncontainers = 10\n";
    let convergence = "full_pass_s = 1\nstale_after_s = 1\ntask_retries = 0";
    let mut site = super::stage::site_with(1, &[("convergence", convergence)], small)?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 3))?;
    let unplaced = site.wait("one finds no room", |site| {
        let all = site.lrps("p").ok()?;
        let running = all.iter().filter(|it| it["state"] == "RUNNING").count();
        let unplaced = all.into_iter().find(|it| !text(it, "placement_error").is_empty());
        unplaced.filter(|_| running == 2)
    })?;
    let told = text(&unplaced, "placement_error").to_owned();
    ensure!(told.contains("memory"), "{told}");
    site.add_cell("late", "z2", small)?;
    let three = site.until_running("p", 3)?;
    ensure!(spread(&three).get("late") == Some(&1));
    ensure!(three.iter().all(|it| text(it, "placement_error").is_empty()));

    let asked = json!({"task_guid": "big", "domain": "tests", "task_definition": {
        "rootfs": "host:", "memory_mb": 4096, "disk_mb": 10, "log_guid": "l",
        "action": super::stage::shell("true")}});
    site.call("/v1/tasks/desire.r2", &asked)?;
    let task = site.wait("the task is given up", |site| {
        site.task("big").ok()?.filter(|it| it["state"] == "Completed")
    })?;
    ensure!(task["failed"] == true && text(&task, "failure_reason").contains("memory"), "{task}");
    site.check()
}

#[test]
fn nothing_is_stopped_for_a_domain_that_is_not_fresh() -> anyhow::Result<()> {
    if !can_run("e2e::life::nothing_is_stopped_for_a_domain_that_is_not_fresh") {
        return Ok(());
    }
    let mut site = site(2, &[("convergence", "full_pass_s = 1")])?;
    site.desire(&idle("p", 2))?;
    site.desire(&idle("q", 1))?;
    let before = site.until_running("p", 2)?;
    site.until_running("q", 1)?;
    // The board forgets all of it while nobody looks: containers without a record are reported again,
    // and as long as nobody vouches for the domain they stay.
    site.kill_coordinator()?;
    for name in ["board.db", "board.db-wal", "board.db-shm"] {
        let path = site.data().join(name);
        if path.exists() {
            std::fs::remove_file(&path)?;
        }
    }
    site.start_coordinator()?;
    let after = site.until_running("p", 2)?;
    ensure!(names(&before) == names(&after), "an empty board stops nothing");
    site.until_running("q", 1)?;
    site.check()?;
    // Now somebody does, and desires only one of the two.
    site.desire(&idle("p", 2))?;
    site.freshen("tests", 0)?;
    site.until_running("q", 0)?;
    let kept = site.until_running("p", 2)?;
    ensure!(names(&before) == names(&kept));
    site.check()
}
