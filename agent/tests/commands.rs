//! The commands of `volvox-agent`, as a person types them. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "executor/cell.rs"]
#[allow(dead_code, reason = "the other tests of the executor use the rest")]
mod cell;
#[path = "executor/program.rs"]
mod program;
mod stage;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use cell::{Cell, until};
use program::{Agent, command};

/// Types a command: its status, what it said, what it complained of.
fn typed(cell: &Cell, words: &[&str]) -> (i32, String, String) {
    let output = command(cell).args(words).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_container_is_started_looked_at_used_stopped_and_deleted() {
    let Some(mut cell) = Cell::new("a_container_is_started_looked_at_used_stopped_and_deleted")
    else {
        return;
    };
    cell.executor = None;
    let mut agent = Agent::start(&cell);
    drop(agent.client());
    let name = format!("{}-one", cell.folder.path().file_name().unwrap().to_str().unwrap());
    let name = name.trim_start_matches('.');
    let script = "echo hello from $0; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let words =
        ["container", "start", "--name", name, "--port", "8080", "--", "/bin/sh", "-c", script];
    let (status, said, complained) = typed(&cell, &words);
    assert_eq!(status, 0, "{said}{complained}");
    assert!(said.contains("RUNNING") && said.contains("->8080"), "{said}");
    let (_, said, _) = typed(&cell, &["container", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(listed[0]["guid"], name, "{said}");
    assert_eq!(listed[0]["state"], "RUNNING", "{said}");
    let (_, said, _) = typed(&cell, &["container", "show", name]);
    assert!(said.contains("\"host_port\""), "{said}");
    until("it has spoken", || {
        let (_, said, _) = typed(&cell, &["container", "logs", name]);
        said.contains("[APP] hello from").then_some(())
    });
    let inside = ["container", "exec", name, "--", "/bin/sh", "-c", "id -u; hostname; exit 7"];
    let (status, said, complained) = typed(&cell, &inside);
    assert_eq!(status, 7, "{said}{complained}");
    assert_eq!(said, format!("0\n{name}\n"));
    let (status, said, _) = typed(&cell, &["container", "stop", name]);
    assert_eq!(status, 0);
    assert!(said.contains("COMPLETED") && said.contains("stopped"), "{said}");
    let (status, said, _) = typed(&cell, &["container", "delete", "--all"]);
    assert_eq!((status, said), (0, format!("deleted {name}\n")));
    drop(agent);
    let (status, said, complained) = typed(&cell, &["clean"]);
    assert_eq!(status, 0, "{complained}");
    assert!(said.contains("removed 0 containers"), "{said}");
    cell.open();
}

/// What a removal of the package rests on: one container that cannot go does not keep the others, and
/// nothing is forgotten.
#[test]
fn clean_goes_on_after_a_failure_and_can_be_done_again() {
    let Some(mut cell) = Cell::new("clean_goes_on_after_a_failure") else { return };
    cell.executor = None;
    let mut agent = Agent::start(&cell);
    drop(agent.client());
    let prefix = cell.folder.path().file_name().unwrap().to_str().unwrap().to_owned();
    let prefix = prefix.trim_start_matches('.');
    let names = ["a", "b"].map(|it| format!("{prefix}-{it}"));
    for name in &names {
        let words = ["container", "start", "--name", name, "--", "/bin/sleep", "1000"];
        let (status, said, complained) = typed(&cell, &words);
        assert_eq!(status, 0, "{said}{complained}");
    }
    drop(agent);
    let state = cell.folder.path();
    let containers = walk_for(state, &names[0]);
    let blocked = containers.join(&names[0]).join("blocked");
    std::fs::create_dir(&blocked).unwrap();
    let mount = |words: &[&str]| {
        let done = std::process::Command::new(words[0]).args(&words[1..]).status().unwrap();
        assert!(done.success(), "{words:?}");
    };
    mount(&["mount", "-t", "tmpfs", "none", blocked.to_str().unwrap()]);
    let (status, said, complained) = typed(&cell, &["clean"]);
    mount(&["umount", blocked.to_str().unwrap()]);
    assert_eq!(status, 2, "{said}{complained}");
    assert!(complained.contains(&format!("delete {}", names[0])), "{complained}");
    assert!(!complained.contains(&names[1]), "{complained}");
    assert!(!containers.join(&names[1]).exists(), "the other one was kept");
    let (status, said, complained) = typed(&cell, &["clean"]);
    assert_eq!(status, 0, "{complained}");
    assert!(said.contains("removed 1 containers"), "{said}");
    let (status, said, _) = typed(&cell, &["clean"]);
    assert_eq!(status, 0, "with nothing to do");
    assert!(said.contains("removed 0 containers"), "{said}");
    cell.open();
}

/// Who looks after the agent is to start another: it must not stay as one that is no member and says
/// nothing. What runs does not notice.
#[test]
fn an_agent_that_cannot_become_a_member_ends_and_the_next_one_goes_on() {
    let Some(mut cell) = Cell::new("an_agent_that_cannot_become_a_member_ends") else { return };
    cell.executor = None;
    let mut agent = Agent::start(&cell);
    drop(agent.client());
    let name = format!("{}-one", cell.folder.path().file_name().unwrap().to_str().unwrap());
    let name = name.trim_start_matches('.');
    let words = ["container", "start", "--name", name, "--", "/bin/sleep", "1000"];
    let (status, said, complained) = typed(&cell, &words);
    assert_eq!(status, 0, "{said}{complained}");
    let log = || std::fs::read_to_string(cell.folder.path().join("agent.log")).unwrap();
    assert!(log().contains("no member of a mesh yet"), "{}", log());

    // It has joined, and what it got by that is of no use.
    let mesh = cell.config.state.join("mesh");
    std::fs::create_dir_all(&mesh).unwrap();
    std::fs::write(mesh.join("member.pem"), "no certificate").unwrap();
    let ended = until("the agent has ended", || agent.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(2), "{}", log());
    assert!(log().contains("cannot become a member"), "{}", log());
    assert!(log().contains("the rep has ended, or could not begin"), "{}", log());

    // Now it is one from the start, and tells why it cannot.
    let mut second = Agent::start(&cell);
    let ended = until("the second has ended", || second.child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(2), "{}", log());
    let last = log().lines().last().unwrap_or_default().to_owned();
    assert!(last.contains("member.pem"), "it names the file: {last}");

    std::fs::remove_dir_all(&mesh).unwrap();
    let mut third = Agent::start(&cell);
    drop(third.client());
    let (_, said, _) = typed(&cell, &["container", "list", "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(listed[0]["guid"], name, "{said}");
    assert_eq!(listed[0]["state"], "RUNNING", "{said}");
    assert_eq!(typed(&cell, &["container", "delete", name]).0, 0);
    drop(third);
    cell.open();
}

/// The folder below this one that has an entry of this name.
fn walk_for(folder: &std::path::Path, name: &str) -> std::path::PathBuf {
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        if next.join(name).exists() {
            return next;
        }
        let entries = std::fs::read_dir(&next).into_iter().flatten().flatten();
        folders.extend(entries.filter(|it| it.file_type().unwrap().is_dir()).map(|it| it.path()));
    }
    panic!("{name} is nowhere in {}", folder.display());
}

/// When the machine goes down: programs have their grace, and nothing is forgotten.
#[test]
fn shutdown_asks_programs_to_end_and_leaves_the_records() {
    let Some(mut cell) = Cell::new("shutdown_asks_programs_to_end") else { return };
    cell.executor = None;
    let mut agent = Agent::start(&cell);
    drop(agent.client());
    let name = format!("{}-one", cell.folder.path().file_name().unwrap().to_str().unwrap());
    let name = name.trim_start_matches('.');
    let script = "trap 'echo farewell; exit 0' TERM; echo up; while :; do sleep 0.1; done";
    let words = ["container", "start", "--name", name, "--", "/bin/sh", "-c", script];
    let (status, said, complained) = typed(&cell, &words);
    assert_eq!(status, 0, "{said}{complained}");
    until("it has begun", || {
        let (_, said, _) = typed(&cell, &["container", "logs", name]);
        said.contains("up").then_some(())
    });
    drop(agent);
    let (status, said, _) = typed(&cell, &["shutdown"]);
    assert_eq!((status, said.as_str()), (0, ""), "this machine is not going down");
    let (status, said, complained) = typed(&cell, &["shutdown", "--anyway"]);
    assert_eq!(status, 0, "{complained}");
    assert_eq!(said, "asked 1 processes in containers to end; 0 still run\n");
    let mut agent = Agent::start(&cell);
    drop(agent.client());
    let (_, said, _) = typed(&cell, &["container", "logs", name]);
    assert!(said.contains("farewell"), "{said}");
    let (_, said, _) = typed(&cell, &["container", "list"]);
    assert!(said.contains(name), "{said}");
    drop(agent);
    assert_eq!(typed(&cell, &["clean"]).0, 0);
    cell.open();
}

#[test]
fn a_line_may_come_from_stdin() {
    let Some(mut cell) = Cell::new("a_line_may_come_from_stdin") else { return };
    cell.executor = None;
    drop(Agent::start(&cell).client());
    for (given, told) in [
        ("volvox-agent join volvox-join-v1.nonsense\n", "the join token is cut"),
        ("nothing of the kind", "no line volvox-join-... on stdin"),
    ] {
        let mut joining = command(&cell)
            .args(["join", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        joining.stdin.take().unwrap().write_all(given.as_bytes()).unwrap();
        let output = joining.wait_with_output().unwrap();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complained}");
        assert!(complained.contains(told), "{complained}");
    }
    cell.open();
}

#[test]
fn what_cannot_be_is_said_with_the_way_out() {
    let Some(mut cell) = Cell::new("what_cannot_be_is_said_with_the_way_out") else { return };
    cell.executor = None;
    let mut agent = Agent::start(&cell);
    drop(agent.client());
    let definition = cell.folder.path().join("bad.json");
    std::fs::write(&definition, "{\"rootfs\": \"host:\", \"memory_mb\": \"much\"}").unwrap();
    let definition = definition.to_str().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["container", "show", "nobody"], "there is no container nobody"),
        (&["container", "delete", "nobody"], "container nobody not found"),
        (&["container", "stop", "no body"], "no body"),
        (&["container", "logs", "nobody"], "there is no log of nobody"),
        (&["container", "exec", "nobody", "--", "sh"], "nobody"),
        (&["container", "start"], "give a program after --"),
        (&["container", "start", "--task", definition], "bad.json"),
        (&["container", "start", "--lrp", "/no/such.json"], "/no/such.json"),
        (&["container", "start", "--memory-mb", "9999999", "--", "true"], "insufficient resources"),
    ];
    for (words, told) in cases {
        let (status, said, complained) = typed(&cell, words);
        assert_eq!(status, 2, "{words:?}: {said}{complained}");
        assert!(complained.contains(told), "{words:?}: {complained}");
    }
    let (status, _, complained) = typed(&cell, &["run"]);
    assert_eq!(status, 2);
    assert!(complained.contains("another agent is using it"), "{complained}");

    // Nonsense on the socket is answered, and the agent goes on.
    let socket = cell.folder.path().join("agent-run/agent.sock");
    let mut stream = UnixStream::connect(&socket).unwrap();
    let mut answer = String::new();
    stream.write_all(b"nonsense\n{\"start\":{}}\n\xff\xfe\n\"list\"\n").unwrap();
    let mut lines = BufReader::new(stream);
    for told in ["not a request", "not a request", "not a request", "containers"] {
        answer.clear();
        lines.read_line(&mut answer).unwrap();
        assert!(answer.contains(told), "{answer}");
    }
    drop(agent);
    let (status, _, complained) = typed(&cell, &["container", "list"]);
    assert_eq!(status, 2);
    assert!(complained.contains("is it running?"), "{complained}");
    std::fs::write(cell.folder.path().join("agent.toml"), "sate_dir = \"/x\"\n").unwrap();
    let (status, _, complained) = typed(&cell, &["run"]);
    assert_eq!(status, 2);
    assert!(complained.contains("sate_dir") && complained.contains("agent.toml"), "{complained}");
    cell.open();
}
