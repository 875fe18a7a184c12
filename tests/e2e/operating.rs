//! What an operator asks a cell, with and without a coordinator.

use std::io::{Seek as _, Write as _};

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::stage::{can_run, idle, site, site_with, text};

#[test]
fn a_cell_tells_of_itself_with_and_without_a_coordinator() -> anyhow::Result<()> {
    if !can_run("e2e::operating::a_cell_tells_of_itself_with_and_without_a_coordinator") {
        return Ok(());
    }
    let mut site = site(2, &[])?;
    site.freshen("tests", 0)?;
    site.desire(&idle("p", 2))?;
    site.until_running("p", 2)?;
    for with in [true, false] {
        if !with {
            site.kill_coordinator()?;
        }
        let json = |words: &[&str]| -> anyhow::Result<Value> {
            let output = site.agent("a", words)?;
            let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{words:?}: {complaint}");
            Ok(serde_json::from_slice(&output.stdout)?)
        };
        let status = json(&["status", "--json"])?;
        ensure!(status["containers"]["RUNNING"] == 1, "{status}");
        ensure!(status["mesh"]["name"] == "a", "{status}");
        let members = json(&["members", "--json"])?;
        let names: Vec<&str> =
            members.as_array().context("no list")?.iter().map(|it| text(it, "name")).collect();
        ensure!(names == ["a", "b", "coordinator"], "{names:?}");
        ensure!(json(&["containers", "--json"])?.as_array().map(Vec::len) == Some(1));
        let findings = json(&["check", "--json"])?;
        let bad: Vec<&Value> = findings
            .as_array()
            .context("no list")?
            .iter()
            .filter(|it| it["verdict"] == "bad")
            .collect();
        ensure!(bad.is_empty(), "{bad:?}");
        let metrics = String::from_utf8(site.agent("a", &["metrics"])?.stdout)?;
        for wanted in [
            "volvox_agent_containers{state=\"RUNNING\"} 1",
            "process_guid=\"p\"",
            "volvox_container_memory_bytes{",
            "volvox_container_cpu_seconds_total{",
            "volvox_container_pids{",
            "volvox_container_disk_bytes{",
            "volvox_agent_mesh_members",
        ] {
            ensure!(metrics.contains(wanted), "no {wanted} in\n{metrics}");
        }
    }
    let words = String::from_utf8(site.agent("a", &["check"])?.stdout)?;
    ensure!(words.contains("good  root"), "{words}");
    Ok(())
}

#[test]
fn a_cell_whose_self_test_fails_gets_no_work() -> anyhow::Result<()> {
    if !can_run("e2e::operating::a_cell_whose_self_test_fails_gets_no_work") {
        return Ok(());
    }
    let ill = "[self_test]\nrootfs = \"preloaded:missing\"\nagain_s = 1\nfailures = 2\n";
    let mut site = site_with(1, &[], ill)?;
    site.freshen("tests", 0)?;
    site.wait("the cell says that it is ill", |site| {
        let output = site.agent("a", &["status", "--json"]).ok()?;
        let status: Value = serde_json::from_slice(&output.stdout).ok()?;
        (status["rep"]["load"]["healthy"] == false).then_some(())
    })?;
    let well = "[self_test]\nenabled = true\n";
    site.add_cell("well", "z1", well)?;
    site.desire(&idle("p", 3))?;
    let three = site.until_running("p", 3)?;
    ensure!(three.iter().all(|it| text(it, "cell_id") == "well"), "{three:?}");
    site.check()
}

#[test]
fn a_machine_that_cannot_join_is_told_why() -> anyhow::Result<()> {
    if !can_run("e2e::operating::a_machine_that_cannot_join_is_told_why") {
        return Ok(());
    }
    let site = site(1, &[])?;
    for (line, told) in [("nonsense", "volvox-join-v1"), ("", "volvox-join-v1")] {
        let output = site.agent("a", &["join", line])?;
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && complaint.contains(told), "{line:?}: {complaint}");
    }
    let again =
        std::process::Command::new(volvox_tests::site::programs()?.join("volvox-coordinator"))
            .args(["join-token", "create", "--data-dir"])
            .arg(site.data())
            .output()?;
    let line = String::from_utf8(again.stdout)?;
    let output = site.agent("a", &["join", line.trim()])?;
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(complaint.contains("a member already"), "{complaint}");
    Ok(())
}

#[test]
fn a_person_reads_logs_and_gets_a_terminal() -> anyhow::Result<()> {
    if !can_run("e2e::operating::a_person_reads_logs_and_gets_a_terminal") {
        return Ok(());
    }
    let site = site(2, &[])?;
    site.freshen("tests", 0)?;
    let script = "echo $INSTANCE_GUID >/tmp/me; echo first $INSTANCE_INDEX; echo second $INSTANCE_INDEX >&2; exec sleep 1000000";
    site.desire(&super::stage::app("p", 2, script))?;
    let both = site.until_running("p", 2)?;
    let logs = site.wait("all lines are there", |site| {
        let output = site.volvox(&["logs", "p"]).ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let whole = (0..2).all(|it| {
            text.contains(&format!("first {it}")) && text.contains(&format!("second {it}"))
        });
        whole.then_some(text)
    })?;
    ensure!(!logs.contains("sleep"), "{logs}");
    let one = site.volvox(&["logs", "p", "1", "--tail", "1", "--json"])?;
    let line: Value = serde_json::from_slice(&one.stdout)
        .with_context(|| String::from_utf8_lossy(&one.stderr).into_owned())?;
    ensure!(line["index"] == 1, "{line}");
    let exec = site.volvox(&["exec", "p", "1", "--", "/bin/sh", "-c", "cat /tmp/me; exit 7"])?;
    let said = String::from_utf8_lossy(&exec.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&exec.stderr).into_owned();
    ensure!(exec.status.code() == Some(7), "{:?} {said} {complaint}", exec.status);
    let guid = both.iter().find(|it| it["index"] == 1).map(|it| text(it, "instance_guid"));
    ensure!(said.contains(guid.context("no index 1")?), "{said}");
    // Its status is heard, however much is typed that it does not read.
    let mut typed = tempfile::tempfile()?;
    typed.write_all(&vec![b'x'; 1 << 20])?;
    for _ in 0..5 {
        typed.rewind()?;
        let ends = ["exec", "p", "1", "--", "/bin/sh", "-c", "exit 7"];
        let ended = site.volvox_typed(&ends, typed.try_clone()?.into())?;
        ensure!(ended.status.code() == Some(7), "{ended:?}");
    }
    let nobody = site.volvox(&["exec", "nobody", "--", "true"])?;
    ensure!(nobody.status.code() == Some(3), "{:?}", nobody.status);
    let apps = site.volvox(&["ps", "--json"])?;
    ensure!(apps.status.success());
    site.check()
}
