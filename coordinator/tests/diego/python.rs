//! A client in another language: Python, with Google's own protobuf, from descriptors that are made here.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use volvox_coordinator::api::access::Role;

use crate::client::Stage;

const SCRIPT: &str = include_str!("client.py");

/// Says that a test could not be run, and why, where `make test` names it.
fn skipped(name: &str, why: &str) {
    use std::io::Write as _;
    let line = format!("SKIPPED {name}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }
}

fn run(command: &mut Command) -> Result<Output, String> {
    let shown = format!("{command:?}");
    let output = command.output().map_err(|error| format!("{shown}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(format!("{shown}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The Python with protobuf in it that `make tools` keeps, or why there is none.
fn python() -> Result<PathBuf, String> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools");
    let program = tools.join("python/bin/python");
    let look = run(Command::new(&program).args(["-c", "import google.protobuf"]));
    look.map(|_| program).map_err(|_| "no Python with protobuf: make tools".to_owned())
}

fn texts(list: &serde_json::Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect()
}

#[test]
fn a_client_in_python_reads_lists_and_events() {
    let name = "a_client_in_python_reads_lists_and_events";
    let folder = tempfile::tempdir().unwrap();
    let program = match python() {
        Ok(program) => program,
        Err(why) => return skipped(name, &why),
    };
    let (descriptor, script) = (folder.path().join("bbs.pb"), folder.path().join("client.py"));
    std::fs::write(&descriptor, volvox_protocol::diego::descriptor::file()).unwrap();
    std::fs::write(&script, SCRIPT).unwrap();
    let stage = Stage::new();
    let shown = stage.certificate("python", Role::Admin);
    let output = run(Command::new(program)
        .arg(&script)
        .arg(stage.address.port().to_string())
        .args([&descriptor, &shown.ca, &shown.cert, &shown.key]));
    let output = output.unwrap_or_else(|error| panic!("{error}"));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["desired"], serde_json::json!(["py-0", "py-1"]), "{told}");
    assert_eq!(told["actual"], 5, "{told}");
    assert_eq!(told["error"], "ResourceExists", "{told}");
    assert_eq!(told["route"], "[{\"port\":8080}]", "{told}");
    assert_eq!(told["tag"], "app", "{told}");
    let instances = texts(&told["instances"]);
    assert_eq!(instances[0], "0 desired_lrp_created py-0 from-python", "{told}");
    assert_eq!(instances[1], "1 actual_lrp_instance_created py-0 from-python", "{told}");
    assert_eq!(instances.len(), 5, "{told}");
    let groups = texts(&told["groups"]);
    assert_eq!(groups[0], "0 desired_lrp_created py-0", "{told}");
    assert_eq!(groups[1], "1 actual_lrp_created py-0", "{told}");
    assert_eq!(told["listed_groups"], serde_json::json!([["py-0", 2], ["py-1", 3]]), "{told}");
    let infos = serde_json::json!([
        ["py-0", 2, "preloaded:fs4", "log"],
        ["py-1", 3, "preloaded:fs4", "log"]
    ]);
    assert_eq!(told["infos"], infos, "{told}");
    assert_eq!(told["tasks"], serde_json::json!([["py-task", "/bin/true", -1]]), "{told}");
    assert_eq!(told["one_task"], "py-task", "{told}");
    assert_eq!(told["cells"], 0, "none is in the mesh: {told}");
    let tasks = texts(&told["task_events"]);
    assert_eq!(tasks[0], "0 task_created py-task", "{told}");
    assert_eq!(tasks.last(), Some(&"Completed"), "{told}");
}
