//! Tasks: at most once, with a result, a callback, and a way to end them.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::stage::{can_run, shell, site, text};

fn task(guid: &str, script: &str, more: Value) -> Value {
    let mut definition = json!({
        "rootfs": "host:", "memory_mb": 32, "disk_mb": 32, "log_guid": "log",
        "action": shell(script),
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        definition[name] = value.clone();
    }
    json!({"task_guid": guid, "domain": "tests", "task_definition": definition})
}

#[test]
fn a_task_gives_its_result_and_its_consumer_is_called() -> anyhow::Result<()> {
    if !can_run("e2e::tasks::a_task_gives_its_result_and_its_consumer_is_called") {
        return Ok(());
    }
    let site = site(2, &[])?;
    let plain =
        task("plain", "echo -n forty-two > /tmp/result", json!({"result_file": "/tmp/result"}));
    site.call("/v1/tasks/desire.r2", &plain)?;
    let done = site.wait("it is done", |site| {
        site.task("plain").ok()?.filter(|it| it["state"] == "Completed")
    })?;
    ensure!(text(&done, "result") == "forty-two" && done["failed"] == false, "{done}");
    let bad = task("bad", "echo no >&2; exit 3", json!({}));
    site.call("/v1/tasks/desire.r2", &bad)?;
    let done = site.wait("it has failed", |site| {
        site.task("bad").ok()?.filter(|it| it["state"] == "Completed")
    })?;
    ensure!(done["failed"] == true && text(&done, "failure_reason").contains('3'), "{done}");
    for guid in ["plain", "bad"] {
        site.call("/v1/tasks/resolving", &json!({"task_guid": guid}))?;
        site.call("/v1/tasks/delete", &json!({"task_guid": guid}))?;
    }
    site.check()
}

#[test]
fn a_callback_is_called_with_the_result() -> anyhow::Result<()> {
    if !can_run("e2e::tasks::a_callback_is_called_with_the_result") {
        return Ok(());
    }
    let site = site(1, &[])?;
    let listener = site.listen_beside_the_coordinator()?;
    let port = listener.local_addr()?.port();
    let url = format!("http://127.0.0.1:{port}/done");
    let more =
        json!({"result_file": "/tmp/r", "completion_callback_url": url, "annotation": "mine"});
    site.call("/v1/tasks/desire.r2", &task("called", "echo -n yes > /tmp/r", more))?;
    let body = heard(&listener)?;
    ensure!(body["task_guid"] == "called" && body["result"] == "yes", "{body}");
    ensure!(body["failed"] == false && body["annotation"] == "mine", "{body}");
    site.wait("it is deleted after its callback", |site| {
        site.task("called").ok()?.is_none().then_some(())
    })?;
    site.check()
}

/// The body of the first call.
fn heard(listener: &TcpListener) -> anyhow::Result<Value> {
    let (mut stream, _) = listener.accept()?;
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut part)?;
        ensure!(count > 0, "the call broke off");
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(value) = serde_json::from_str(body)
        {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
            return Ok(value);
        }
    }
}

#[test]
fn a_cancelled_task_is_gone_from_its_cell() -> anyhow::Result<()> {
    if !can_run("e2e::tasks::a_cancelled_task_is_gone_from_its_cell") {
        return Ok(());
    }
    let site = site(1, &[])?;
    site.call("/v1/tasks/desire.r2", &task("long", "exec sleep 1000000", json!({})))?;
    site.wait("it runs", |site| {
        let states = site.containers("a").ok()?;
        states.iter().any(|it| it["state"] == "RUNNING").then_some(())
    })?;
    site.call("/v1/tasks/cancel", &json!({"task_guid": "long"}))?;
    let done = site.task("long")?.context("it is kept for its consumer")?;
    ensure!(done["failed"] == true && text(&done, "failure_reason") == "cancelled", "{done}");
    site.wait("its container is gone", |site| site.containers("a").ok()?.is_empty().then_some(()))?;
    site.check()
}
