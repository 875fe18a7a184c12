//! What the program says and how it ends: to bad input, to a coordinator that is not there or says no,
//! to people and to programs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod stage;

use std::io::Read as _;
use std::process::Stdio;

use serde_json::{Value, json};

use stage::{Server, check, command, ended};

fn instance(index: u32, state: &str, more: Value) -> Value {
    let mut value = json!({
        "process_guid": "web", "index": index, "domain": "default", "definition_id": "v1",
        "state": state, "instance_guid": "g", "cell_id": "cell-1", "since": 0, "crash_count": 0,
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    value
}

fn refusal(kind: &str, message: &str) -> Value {
    json!({"error": {"type": kind, "message": message}})
}

fn deployment(instances: u32) -> Value {
    json!({"deployment": {
        "process_guid": "web", "domain": "default", "instances": instances,
        "definitions": {"v2": {"rootfs": "host:", "memory_mb": 128}}, "active_definition_id": "v2",
        "history": [{
            "definition_id": "v1", "definition": {"rootfs": "host:", "memory_mb": 64},
            "retired_at": 1_000_000_000_u64,
        }],
    }})
}

const DEPLOYMENT: &str = "/v1/lrp_deployments/get_by_process_guid";

#[test]
fn bad_words_end_with_2_and_name_what_was_wrong() {
    for (words, expected) in [
        (&["scale", "web"][..], "<INSTANCES>"),
        (&["scale", "a b", "3"], "process_guid \"a b\" may only contain"),
        (&["scale", "web", "-3"], "-3"),
        (&["bogus"], "unrecognized subcommand 'bogus'"),
        (&["ps", "--wach"], "--watch"),
        (&["apply"], "--file <FILE>"),
        (&["apply", "-f", "/nonexistent.toml"], "/nonexistent.toml: cannot read it"),
        (&["run", "web", "--rootfs", "host:"], "<COMMAND>"),
        (&["run", "web", "--", "/a"], "rootfs: must not be empty"),
        (&["run", "web", "--rootfs", "host:", "--env", "A", "--", "/a"], "--env \"A\": NAME=VALUE"),
        (&["run", "web", "--rootfs", "host:", "--memory", "x", "--", "/a"], "`memory` is \"x\""),
        (&["task", "run", "--rootfs", "host:"], "<COMMAND>"),
        (&["scale", "web", "3", "--timeout", "soon"], "such as 90s"),
        (&["--api", "nowhere", "ps"], "\"nowhere\" is no address of a coordinator"),
        (&["--api", "http://192.0.2.1:1", "--token", "t", "ps"], "in the clear"),
        (&["--token-file", "/nonexistent", "ps"], "/nonexistent: cannot read the token"),
        (&["--api", "https://127.0.0.1:1", "--ca", "/nonexistent", "ps"], "/nonexistent"),
        (&["--cert", "/c", "ps"], "--cert needs --key"),
        (&["--config", "/nonexistent", "ps"], "/nonexistent: cannot read the configuration"),
        (&["explain"], "<APP>"),
        (&["completions", "cmd.exe"], "cmd.exe"),
    ] {
        let output = ended(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(expected), "{words:?}: {said}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn bad_words_are_told_to_programs_in_json() {
    for words in [&["scale", "web", "--json"][..], &["run", "web", "--json", "--", "/a"]] {
        let output = ended(words);
        let said: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!((&said["error"]["code"], output.status.code()), (&json!(2), Some(2)));
        assert!(!said["error"]["message"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_coordinator_that_is_not_there_ends_with_5() {
    let output = ended(&["--api", "unix:/nonexistent.sock", "ps"]);
    let expected = "volvox: cannot reach the coordinator at unix:/nonexistent.sock: io: No such \
                    file or directory (os error 2)\n  is the coordinator running, and is that its \
                    address?\n";
    check(&output, 5, "", expected);
    let output = ended(&["--api", "unix:/nonexistent.sock", "ps", "--json"]);
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(
        (&said["error"]["code"], &said["error"]["kind"]),
        (&json!(5), &json!("unreachable"))
    );
    // What is known without it is said.
    let output = ended(&["--api", "unix:/nonexistent.sock", "version"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("client"));
    let output = ended(&["version", "--client", "--json"]);
    assert!(output.status.success());
}

#[test]
fn what_the_coordinator_says_has_a_code_and_a_way_out() {
    for (status, kind, code, hint) in [
        (400, "InvalidRequest", 2, ""),
        (401, "Unauthorized", 4, "--token-file"),
        (403, "Forbidden", 4, "ask an operator"),
        (404, "ResourceNotFound", 3, "volvox apps"),
        (404, "RouteNotFound", 4, "volvox version"),
        (409, "UpdateInProgress", 4, "volvox cancel"),
        (429, "TooManyRequests", 5, "try again"),
        (503, "Unavailable", 5, "try again"),
    ] {
        let server =
            Server::new(&[("/v1/lrp_deployment/update", status, refusal(kind, "because"))]);
        let output = server.ended(&["scale", "web", "3"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{status} {kind}: {said}");
        assert!(said.contains(hint), "{status} {kind}: {said}");
    }
    let server = Server::new(&[("/v1/cells/states", 200, json!("what"))]);
    let output = server.ended(&["cells"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("not understood") && said.contains("volvox version"), "{said}");
}

#[test]
fn instances_are_shown_to_people_and_to_programs() {
    let all = json!({"actual_lrps": [
        instance(0, "RUNNING", json!({"address": "10.0.0.1", "ports": [{
            "container_port": 80, "host_port": 61_001, "container_tls_proxy_port": 0,
            "host_tls_proxy_port": 0,
        }]})),
        instance(1, "UNCLAIMED", json!({"cell_id": "", "placement_error": "no \u{1b}[31mroom"})),
    ]});
    let server = Server::new(&[("/v1/actual_lrps/list", 200, all)]);
    let expected = "\
APP  INDEX  STATE      CELL    ADDRESS         SINCE  CRASHES  NOTE
web  0      RUNNING    cell-1  10.0.0.1:61001  -      0
web  1      UNCLAIMED  -       -               -      0        no  [31mroom
";
    check(&server.ended(&["ps"]), 0, expected, "");
    check(&server.ended(&["ps", "--color", "never"]), 0, expected, "");
    let coloured = server.ended(&["ps", "--color", "always"]);
    assert!(String::from_utf8_lossy(&coloured.stdout).contains("\u{1b}[32mRUNNING\u{1b}[0m"));
    let output = server.ended(&["ps", "--json", "--cell", "cell-1", "web"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["instances"][1]["placement_error"], "no \u{1b}[31mroom");
    let asked = server.asked("/v1/actual_lrps/list");
    let last = asked.last().unwrap();
    assert_eq!((&last["cell_id"], &last["process_guid"]), (&json!("cell-1"), &json!("web")));
}

#[test]
fn definitions_are_listed_and_compared() {
    let server = Server::new(&[(DEPLOYMENT, 200, deployment(2))]);
    let expected = "web: v1 → v2\n  ~ memory_mb: 64 → 128\n";
    check(&server.ended(&["diff", "web"]), 0, expected, "");
    let output = server.ended(&["diff", "web", "--exit-code"]);
    check(&output, 1, expected, "volvox: 1 keys differ\n");
    let output = server.ended(&["diff", "web", "v2", "v2", "--exit-code"]);
    check(&output, 0, "web: v2 → v2\n  nothing differs\n", "");
    let output = server.ended(&["diff", "web", "v7"]);
    let expected = "volvox: web has no definition v7\n  `volvox history web` lists them\n";
    check(&output, 3, "", expected);
    let output = server.ended(&["history", "web", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["definitions"][0]["role"], "active");
    assert_eq!(said["definitions"][1]["definition_id"], "v1");
    // Going back goes to the one before, unless another one is named.
    let output = server.ended(&["rollback", "web"]);
    assert_eq!(output.status.code(), Some(4), "the route is not there: {output:?}");
    let asked = server.asked("/v1/desired_lrp/rollback");
    assert_eq!(asked, [json!({"process_guid": "web", "definition_id": "v1"})]);
    let output = server.ended(&["rollback", "web", "v2"]);
    let expected = "volvox: web is to run v2 already\n  `volvox history web` lists the others\n";
    check(&output, 4, "", expected);
}

#[test]
fn waiting_ends_with_6_when_it_cannot_come() {
    let crashed = instance(
        0,
        "CRASHED",
        json!({"definition_id": "v2", "crash_count": 4, "crash_reason": "exit status 1"}),
    );
    let server = Server::new(&[
        (DEPLOYMENT, 200, deployment(1)),
        ("/v1/lrp_deployment/update", 200, json!({})),
        ("/v1/actual_lrps/list", 200, json!({"actual_lrps": [crashed]})),
    ]);
    let output = server.ended(&["scale", "web", "1", "--wait", "--timeout", "30s"]);
    let stdout = "web scaled to 1 instance\nweb/0 crashed (v2): exit status 1\n";
    let stderr = "volvox: web/0 has crashed 4 times in a row: exit status 1\n  it is tried on: \
                  `volvox ps web` shows how it goes, `volvox history web` what to go back to\n";
    check(&output, 6, stdout, stderr);
    let waiting = instance(0, "CLAIMED", json!({"definition_id": "v2"}));
    let server = Server::new(&[
        (DEPLOYMENT, 200, deployment(1)),
        ("/v1/lrp_deployment/update", 200, json!({})),
        ("/v1/actual_lrps/list", 200, json!({"actual_lrps": [waiting]})),
    ]);
    let output = server.ended(&["scale", "web", "1", "--wait", "--timeout", "300ms", "--json"]);
    assert_eq!(output.status.code(), Some(6));
    let lines: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0], json!({"app": "web", "action": "scaled", "instances": 1}));
    let step = json!({
        "app": "web", "index": 0, "state": "CLAIMED", "cell_id": "cell-1", "definition_id": "v2",
    });
    assert_eq!(lines[1], step);
}

#[test]
fn a_closed_pipe_ends_quietly() {
    let many: Vec<Value> = (0..20_000).map(|index| instance(index, "CLAIMED", json!({}))).collect();
    let server = Server::new(&[("/v1/actual_lrps/list", 200, json!({"actual_lrps": many}))]);
    let api = format!("http://{}", server.address);
    for words in [&["ps"][..], &["ps", "--json"]] {
        let mut child = command(&["--api", &api])
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 10];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn who_watches_notices_that_the_reader_has_gone() {
    let server = Server::new(&[("/v1/actual_lrps/list", 200, json!({"actual_lrps": []}))]);
    let api = format!("http://{}", server.address);
    let mut child = command(&["--api", &api, "ps", "--watch", "--json", "--interval", "1h"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn help_man_pages_and_completions_are_there() {
    let output = ended(&["--help"]);
    let help = String::from_utf8(output.stdout).unwrap();
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 20, "{help}");
    for name in commands.iter().filter(|name| **name != "help") {
        let output = ended(&[name, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains("Usage: volvox"), "{name}: {text}");
        assert!(text.contains("Examples:") || text.contains("Commands:"), "{name}: {text}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = ended(&["completions", shell]);
        assert!(output.status.success() && output.stdout.len() > 1_000, "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("man");
    let output = ended(&["man", "--to", path.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(path.join("volvox-task-run.1")).unwrap();
    assert!(page.contains("volvox\\-task\\-run") || page.contains("volvox task run"), "{page}");
    assert!(path.join("volvox.1").exists() && path.join("volvox-apply.1").exists());
    let output = ended(&["man", "--to", "/dev/null/x"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_configuration_file_is_read() {
    let server = Server::new(&[("/v1/domains/list", 200, json!({"domains": ["default"]}))]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("volvox")).unwrap();
    let path = folder.path().join("volvox/config.toml");
    std::fs::write(&path, format!("api = \"http://{}\"\n", server.address)).unwrap();
    let asked =
        |home: &str| command(&["domain", "list"]).env("XDG_CONFIG_HOME", home).output().unwrap();
    check(&asked(folder.path().to_str().unwrap()), 0, "FRESH DOMAIN\ndefault\n", "");
    let mut by_environment = command(&["domain", "list"]);
    by_environment.env("VOLVOX_API", format!("http://{}", server.address));
    assert!(by_environment.output().unwrap().status.success());
    std::fs::write(&path, "apy = \"x\"\n").unwrap();
    let output = asked(folder.path().to_str().unwrap());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("unknown key `apy`: did you mean `api`?"), "{said}");
    assert_eq!(output.status.code(), Some(2));
}
