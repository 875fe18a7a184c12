//! A client in another language: Python, with Google's own protobuf, from descriptors that are made here.

use std::path::Path;
use std::process::{Command, Output};

use volvox_coordinator::api::access::Role;

use crate::client::Stage;

const SCRIPT: &str = include_str!("client.py");

/// Says that a test could not be run, and why, where `make check` counts it.
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

/// A Python with protobuf in it, or why there is none.
fn python(folder: &Path) -> Result<std::path::PathBuf, String> {
    let venv = folder.join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    let program = venv.join("bin/python");
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "protobuf"];
    run(Command::new(&program).args(install))?;
    Ok(program)
}

#[test]
fn a_client_in_python_reads_lists_and_events() {
    let name = "a_client_in_python_reads_lists_and_events";
    let folder = tempfile::tempdir().unwrap();
    let program = match python(folder.path()) {
        Ok(program) => program,
        Err(why) => {
            let first = why.lines().next().unwrap_or_default().to_owned();
            return skipped(name, &first);
        }
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
    let first: Vec<&str> =
        told["events"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(first[0], "0 desired_lrp_created py-0 from-python", "{told}");
    assert_eq!(first[1], "1 actual_lrp_instance_created py-0 from-python", "{told}");
    assert_eq!(first.len(), 5, "{told}");
}
