//! Completion callbacks of tasks, to a consumer that is a real HTTP server of ours.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use crate::stage::{PATIENCE, Stage, eventually, task};

/// A consumer that answers with these statuses, one after the other, the last for ever.
fn consumer(statuses: &'static [u16]) -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://user:secret@{}/done?key=secret", listener.local_addr().unwrap());
    let (told, hears) = channel();
    std::thread::spawn(move || {
        for (nth, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut length = 0;
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
                    break;
                }
                if let Some(given) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = given.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            if stream.read_exact(&mut body).is_err() {
                continue;
            }
            let status = statuses[nth.min(statuses.len() - 1)];
            let answer =
                format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            // The test may be over.
            let _ = stream.get_mut().write_all(answer.as_bytes());
            if told.send(serde_json::from_slice(&body).unwrap()).is_err() {
                return;
            }
        }
    });
    (url, hears)
}

/// A task that ends at once: it is cancelled before any cell has it.
fn ended(stage: &Stage, guid: &str, url: &str) {
    let mut body = task(guid);
    body["task_definition"]["completion_callback_url"] = url.into();
    body["task_definition"]["annotation"] = "note".into();
    stage.done("/v1/tasks/desire.r2", body);
    stage.done("/v1/tasks/cancel", json!({"task_guid": guid}));
}

#[test]
fn a_consumer_is_told_and_the_task_is_forgotten() {
    let stage = Stage::new();
    let (url, hears) = consumer(&[200]);
    ended(&stage, "t", &url);
    let told = hears.recv_timeout(PATIENCE).unwrap();
    assert_eq!(told["task_guid"], "t");
    assert_eq!(told["failed"], true);
    assert_eq!(told["failure_reason"], "cancelled");
    assert_eq!(told["annotation"], "note");
    assert!(told["created_at"].as_u64().unwrap() > 0);
    eventually("the task is gone", || {
        let answer = stage.post("/v1/tasks/get_by_task_guid.r3", json!({"task_guid": "t"}));
        (answer.status == 404).then_some(())
    });
    assert_eq!(stage.get("/v1/tasks/callbacks/list").json(), json!({}), "nothing failed");
}

#[test]
fn a_consumer_that_is_not_there_yet_is_called_again() {
    let stage =
        Stage::with("callbacks.pause_ms = 10\ncallbacks.tries = 5\ncallbacks.timeout_s = 2\n");
    let (url, hears) = consumer(&[503, 504, 200]);
    ended(&stage, "t", &url);
    for _ in 0..3 {
        hears.recv_timeout(PATIENCE).unwrap();
    }
    eventually("the task is gone", || {
        let answer = stage.post("/v1/tasks/get_by_task_guid.r3", json!({"task_guid": "t"}));
        (answer.status == 404).then_some(())
    });
    let failures = stage.get("/v1/tasks/callbacks/list").json();
    let failure = &failures["callbacks"][0];
    assert_eq!(failure["attempts"], 2);
    assert_eq!(failure["reason"], "status 504");
    assert_eq!(failure["given_up"], false);
    assert!(!failures.to_string().contains("secret"), "{failures}");
    let metrics = stage.get("/metrics").text;
    assert!(metrics.contains("volvox_task_callbacks_total 1\n"), "{metrics}");
    assert!(metrics.contains("volvox_task_callback_failures_total 2\n"));
}

#[test]
fn any_other_answer_counts_as_heard() {
    let stage = Stage::new();
    let (url, hears) = consumer(&[404]);
    ended(&stage, "t", &url);
    hears.recv_timeout(PATIENCE).unwrap();
    eventually("the task is gone", || {
        let answer = stage.post("/v1/tasks/get_by_task_guid.r3", json!({"task_guid": "t"}));
        (answer.status == 404).then_some(())
    });
}

#[test]
fn a_consumer_that_never_answers_is_given_up_and_convergence_begins_again() {
    let stage = Stage::with(
        "callbacks.pause_ms = 1\ncallbacks.tries = 2\ncallbacks.timeout_s = 1\n\
         convergence.kick_task_after_s = 3\nconvergence.full_pass_s = 1\n",
    );
    // A port where nobody is: it was given to us, and given back.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ended(&stage, "t", &format!("http://{port}/"));
    let given_up = || {
        let failures = stage.get("/v1/tasks/callbacks/list").json();
        let failure = failures["callbacks"].get(0)?.clone();
        (failure["given_up"] == true).then_some(failure)
    };
    let first = eventually("it is given up", given_up);
    assert_eq!(first["attempts"], 2);
    eventually("it is tried again", || {
        (given_up()?["failed_at"].as_u64() > first["failed_at"].as_u64()).then_some(())
    });
}
