//! Wires that are cut: between a cell and the coordinator, a cell and all others, a cell and half.

use anyhow::ensure;

use super::stage::{can_run, idle, names, site, spread, text};

#[test]
fn a_cell_cut_off_from_the_coordinator_only_is_heard_through_others() -> anyhow::Result<()> {
    if !can_run("e2e::partitions::a_cell_cut_off_from_the_coordinator_only_is_heard_through_others")
    {
        return Ok(());
    }
    let mut site = site(5, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 5))?;
    site.until_running("p", 5)?;
    site.cut("a", &["coordinator"])?;
    // Whatever the board makes of it, each index goes on being served, and when the wire is mended all
    // is as desired.
    site.desire(&idle("q", 4))?;
    site.wait("new work runs on the others", |site| {
        let all = site.lrps("q").ok()?;
        (all.iter().filter(|it| it["state"] == "RUNNING").count() >= 4).then_some(())
    })?;
    site.check_rules()?;
    site.cut("a", &[])?;
    site.until_running("p", 5)?;
    site.until_running("q", 4)?;
    site.check()
}

#[test]
fn a_cell_cut_off_from_all_is_suspect_and_returns() -> anyhow::Result<()> {
    if !can_run("e2e::partitions::a_cell_cut_off_from_all_is_suspect_and_returns") {
        return Ok(());
    }
    // One index is at home on the cell alone: no other cell has room for its replacement.
    let mut site = site(3, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 3))?;
    let before = site.until_running("p", 3)?;
    let lost = before.iter().find(|it| text(it, "cell_id") == "a").cloned();
    ensure!(lost.is_some(), "{:?}", spread(&before));
    site.cut("a", &["coordinator", "b", "c"])?;
    site.wait("its instance is replaced", |site| {
        site.check_rules().ok()?;
        let all = site.lrps("p").ok()?;
        let settled = all.len() == 3
            && all.iter().all(|it| it["state"] == "RUNNING" && text(it, "cell_id") != "a");
        settled.then_some(())
    })?;
    ensure!(!site.containers("a")?.is_empty(), "on its side it runs on");
    site.cut("a", &[])?;
    site.until_cell("a", true)?;
    site.until_running("p", 3)?;
    site.wait("who came second has gone", |site| {
        let all = site.containers("a").ok()?;
        let kept = names(&site.lrps("p").ok()?);
        all.iter().all(|it| kept.iter().any(|name| name == text(it, "guid"))).then_some(())
    })?;
    site.check()
}

#[test]
fn a_suspect_whose_cell_returns_in_time_stays() -> anyhow::Result<()> {
    if !can_run("e2e::partitions::a_suspect_whose_cell_returns_in_time_stays") {
        return Ok(());
    }
    let small = "[capacity]\nmemory_mb = 80\ndisk_mb = 4096\ncontainers = 10\n";
    let mut site = super::stage::site_with(2, &[("cells", "hold_at_least = 9")], small)?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 2))?;
    let before = site.until_running("p", 2)?;
    site.cut("a", &["coordinator", "b"])?;
    site.wait("its instance is suspect", |site| {
        let all = site.lrps("p").ok()?;
        all.iter().any(|it| it["presence"] == "SUSPECT").then_some(())
    })?;
    site.check_rules()?;
    site.cut("a", &[])?;
    let after = site.until_running("p", 2)?;
    ensure!(names(&before) == names(&after), "nobody had room for the replacement");
    ensure!(after.iter().all(|it| it["presence"] == "ORDINARY"));
    site.check()
}

#[test]
fn a_cell_cut_off_from_half_goes_on() -> anyhow::Result<()> {
    if !can_run("e2e::partitions::a_cell_cut_off_from_half_goes_on") {
        return Ok(());
    }
    let mut site = site(5, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 5))?;
    let before = site.until_running("p", 5)?;
    site.cut("a", &["b", "c"])?;
    // It reaches the coordinator: it must not be taken for lost, and takes work.
    site.desire(&idle("q", 10))?;
    let ten = site.until_running("q", 10)?;
    ensure!(spread(&ten).contains_key("a"), "{:?}", spread(&ten));
    let after = site.until_running("p", 5)?;
    ensure!(names(&before) == names(&after));
    site.cut("a", &[])?;
    site.check()
}
