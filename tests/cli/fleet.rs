//! The fleet: events across a restart, evacuation, machines in and out; and the program itself.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use volvox_tests::wait::until;

use crate::stage::{Begun, Stage, coordinator_program, program, said};

/// The events of a program that follows them.
fn follow(begun: &mut Begun) -> impl Iterator<Item = Value> + use<> {
    let lines = BufReader::new(begun.0.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).map(|line| serde_json::from_str(&line).unwrap())
}

#[test]
fn events_go_on_across_a_restart_of_the_coordinator() {
    let mut stage = Stage::of_cells(&["a"]);
    let mut begun = stage.begin(&["events", "--json", "--snapshot"]);
    let mut events = follow(&mut begun);
    let mut next = |name: &str| -> Value {
        events.find(|event| event["event"] == name).unwrap_or_else(|| panic!("no {name}"))
    };
    next("snapshot_end");
    stage.done(&["apply", "-f", &stage.app(1, 64, "")]);
    assert_eq!(next("desired_lrp_created")["data"]["desired_lrp"]["process_guid"], "web");
    let up = next("actual_lrp_instance_changed");
    assert_eq!(up["data"]["process_guid"], "web");
    assert!(up["id"].as_str().is_some_and(|id| !id.is_empty()));
    stage.stop();
    next("closing");
    stage.start();
    // Its ids are of another life: the reader is told, and misses nothing from then on.
    next("resync");
    stage.done(&["scale", "web", "2"]);
    assert_eq!(next("desired_lrp_changed")["data"]["after"]["instances"], 2);
}

#[test]
fn events_of_one_cell_and_of_tasks_are_told_apart() {
    let stage = Stage::of_cells(&["a"]);
    stage.done(&["apply", "-f", &stage.app(1, 64, ""), "--wait"]);
    let snapshot = |words: &[&str]| -> Vec<String> {
        let lines = stage.done(&[&["events", "--json", "--snapshot"], words].concat()).lines();
        lines.iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
    };
    let all =
        ["snapshot_begin", "desired_lrp_created", "actual_lrp_instance_created", "snapshot_end"];
    assert_eq!(snapshot(&["--count", "4", "--cell", "a"]), all);
    let other = ["snapshot_begin", "desired_lrp_created", "snapshot_end"];
    assert_eq!(snapshot(&["--count", "3", "--cell", "other"]), other);
    assert_eq!(snapshot(&["--count", "2", "--tasks"]), ["snapshot_begin", "snapshot_end"]);
}

#[test]
fn a_cell_is_evacuated_and_waited_for() {
    let stage = Stage::of_cells(&["a", "b"]);
    stage.done(&["apply", "-f", &stage.app(4, 64, ""), "--wait"]);
    let said = stage.done(&["evacuate", "a", "--wait", "--timeout", "1m"]);
    assert!(said.out.ends_with("a: 0 instances and 0 tasks are left\n"), "{said:?}");
    let all = stage.instances("web");
    assert!(all.iter().all(|it| it["cell_id"] == "b" && it["state"] == "RUNNING"), "{all:?}");
    let cells = stage.done(&["cells"]).out;
    assert!(cells.contains("a     z1    evacuating  0"), "{cells}");
    assert!(stage.cell("a").look().evacuating);
    let said = stage.volvox(&["evacuate", "nope"]);
    assert!(said.code == 3 && said.err.contains("volvox cells"), "{said:?}");
    let top = stage.done(&["top"]).out;
    assert!(top.contains("CELL  ZONE") && top.contains("web  default  4/4"), "{top}");
    let top = stage.done(&["top", "--json"]).json();
    assert_eq!(
        (top["cells"].as_array().unwrap().len(), &top["apps"][0]["running"]),
        (2, &json!(4))
    );
}

#[test]
fn machines_are_let_in_and_out() {
    let stage = Stage::of_cells(&["a"]);
    let made =
        stage.done(&["join-token", "make", "--uses", "3", "--label", "rack 7", "--json"]).json();
    assert!(made["join_token"].as_str().unwrap().starts_with("volvox-join-v1."));
    let listed = stage.done(&["join-token", "list"]).out;
    assert!(
        listed.contains("cell  any   3          23h59m") && listed.contains("rack 7"),
        "{listed}"
    );
    let id = made["id"].as_str().unwrap();
    stage.done(&["join-token", "revoke", id]);
    let said = stage.volvox(&["join-token", "revoke", "nope"]);
    assert!(said.code == 2 && said.err.contains("nope: "), "{said:?}");
    let listed = stage.done(&["member", "list", "--json"]).json();
    assert_eq!(listed["members"].as_array().unwrap().len(), 2);
    stage.done(&["member", "revoke", "a"]);
    assert!(stage.done(&["member", "list"]).out.contains("expelled"));
    assert_eq!(stage.volvox(&["member", "revoke", "nope"]).code, 3);
    assert_eq!(stage.done(&["hold", "show"]).out, "nothing is held\n");
    assert_eq!(stage.done(&["hold", "release"]).out, "nothing was held\n");
}

#[test]
fn a_list_that_is_watched_tells_what_changes() {
    let stage = Stage::of_cells(&["a"]);
    let mut begun = stage.begin(&["ps", "--watch", "--interval", "20ms", "--json"]);
    let mut looks = follow(&mut begun);
    assert_eq!(looks.next().unwrap(), json!({"instances": []}));
    stage.done(&["apply", "-f", &stage.app(1, 64, ""), "--wait"]);
    let runs = |look: &Value| look["instances"][0]["state"] == "RUNNING";
    assert!(looks.any(|look| runs(&look)));
}

#[test]
fn a_coordinator_that_is_a_process_of_its_own_is_found_and_missed() {
    let name = "a_coordinator_that_is_a_process_of_its_own_is_found_and_missed";
    let Some(coordinator) = coordinator_program() else {
        return volvox_tests::skip(name, "volvox-coordinator was not built beside the tests");
    };
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("coordinator.toml");
    let data = folder.path().join("data");
    let text = format!(
        "name = \"test\"\ndata_dir = {data:?}\napi.listen = [\"127.0.0.1:0\"]\n\
         mesh.listen = \"127.0.0.1:0\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let child = Command::new(coordinator)
        .args(["run", "--config"])
        .arg(&config)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Begun(child);
    let volvox = |words: &[&str]| {
        let mut command = program();
        command.env("VOLVOX_API", format!("unix:{}", data.join("api.sock").display())).args(words);
        said(command)
    };
    until(|| volvox(&["version"]).code == 0, || "it does not answer".to_owned());
    let version = volvox(&["version", "--json"]).json();
    assert_eq!(version["client"]["version"], version["server"]["version"]);
    let run = ["run", "web", "--rootfs", "host:", "--", "/bin/true"];
    assert_eq!(volvox(&run).code, 0);
    assert_eq!(volvox(&["ps", "web"]).code, 0);
    drop(begun);
    let said = volvox(&["ps"]);
    assert!(said.code == 5 && said.err.contains("is the coordinator running"), "{said:?}");
}
