//! Streams of events, read as a client reads them: from a socket, line by line.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};

use crate::stage::{Stage, agent, lrp, task};

/// One event as it was read.
#[derive(Debug, Clone)]
struct Read {
    id: Option<String>,
    name: String,
    data: Value,
}

/// A reader of a stream.
struct Reader {
    lines: std::io::Lines<BufReader<ureq::BodyReader<'static>>>,
}

impl Reader {
    fn open(stage: &Stage, path: &str, last: Option<&str>) -> Reader {
        let mut request = agent()
            .get(format!("http://{}{path}", stage.address))
            .header("authorization", format!("Bearer {}", stage.token));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let answer = request.call().unwrap();
        assert_eq!(answer.status(), 200);
        let kind = answer.headers()["content-type"].to_str().unwrap();
        assert_eq!(kind, "text/event-stream; charset=utf-8");
        let lines = BufReader::new(answer.into_body().into_reader()).lines();
        Reader { lines }
    }

    /// The next event; none: the stream has ended.
    fn next(&mut self) -> Option<Read> {
        let (mut id, mut name, mut data) = (None, None, None);
        loop {
            let line = self.lines.next()?.ok()?;
            match line.split_once(": ") {
                Some(("id", text)) => id = Some(text.to_owned()),
                Some(("event", text)) => name = Some(text.to_owned()),
                Some(("data", text)) => data = Some(serde_json::from_str(text).unwrap()),
                _ => {}
            }
            if line.is_empty()
                && let Some(name) = name.take()
            {
                return Some(Read { id, name, data: data.unwrap() });
            }
        }
    }

    /// The next event of this name; those before it are passed over.
    fn until(&mut self, name: &str) -> Read {
        loop {
            let read = self.next().unwrap_or_else(|| panic!("the stream ended before {name}"));
            if read.name == name {
                return read;
            }
        }
    }
}

fn desire(stage: &Stage, guid: &str, instances: u32) {
    stage.done("/v1/desired_lrp/desire.r2", json!({"desired_lrp": lrp(guid, instances)}));
}

#[test]
fn each_step_of_an_update_is_told_to_readers_of_deployments() {
    let stage = Stage::new();
    desire(&stage, "p", 1);
    let path = "/v1/events/lrp_deployments";
    let mut reader = Reader::open(&stage, &format!("{path}?snapshot"), None);
    let created = reader.until("lrp_deployment_created").data;
    assert_eq!(created["lrp_deployment"]["active_definition_id"], "p");
    reader.until("actual_lrp_instance_created");
    reader.until("snapshot_end");
    let mut definition = lrp("p", 1);
    for name in ["process_guid", "domain", "instances", "routes"] {
        definition.as_object_mut().unwrap().remove(name);
    }
    let update = json!({"definition_id": "v2", "definition": definition});
    stage.done("/v1/lrp_deployment/update", json!({"process_guid": "p", "update": update}));
    let changed = reader.until("lrp_deployment_changed");
    assert_eq!(changed.data["after"]["active_definition_id"], "v2");
    // Who comes back goes on from there.
    let mut again = Reader::open(&stage, path, changed.id.as_deref());
    stage.done("/v1/desired_lrp/remove", json!({"process_guid": "p"}));
    for reader in [&mut reader, &mut again] {
        let removed = reader.until("lrp_deployment_removed").data;
        assert_eq!(removed["lrp_deployment"]["process_guid"], "p");
    }
}

#[test]
fn what_changes_is_told_on_its_stream_and_no_other() {
    let stage = Stage::new();
    let mut instances = Reader::open(&stage, "/v1/events/lrp_instances.r1", None);
    let mut groups = Reader::open(&stage, "/v1/events.r1", None);
    let mut tasks = Reader::open(&stage, "/v1/events/tasks.r1", None);
    desire(&stage, "p", 1);
    stage.done("/v1/tasks/desire.r2", task("t"));
    let created = instances.next().unwrap();
    assert_eq!(created.name, "desired_lrp_created");
    assert_eq!(created.data["desired_lrp"]["process_guid"], "p");
    let instance = instances.next().unwrap();
    assert_eq!(instance.name, "actual_lrp_instance_created");
    assert_eq!(instance.data["actual_lrp"]["state"], "UNCLAIMED");
    assert_eq!(groups.next().unwrap().name, "desired_lrp_created");
    assert_eq!(groups.next().unwrap().name, "actual_lrp_created");
    let task = tasks.next().unwrap();
    assert_eq!(
        (task.name.as_str(), &task.data["task"]["task_guid"]),
        ("task_created", &json!("t"))
    );
    stage.done("/v1/tasks/cancel", json!({"task_guid": "t"}));
    // Before that the auction may have said that there is no cell.
    while tasks.until("task_changed").data["after"]["failure_reason"] != "cancelled" {}
    stage.done("/v1/desired_lrp/remove", json!({"process_guid": "p"}));
    instances.until("desired_lrp_removed");
    groups.until("desired_lrp_removed");
}

#[test]
fn a_reader_that_comes_back_goes_on_where_it_was() {
    let stage = Stage::new();
    let path = "/v1/events/lrp_instances.r1";
    let mut reader = Reader::open(&stage, path, None);
    desire(&stage, "a", 1);
    let first = reader.until("desired_lrp_created");
    drop(reader);
    desire(&stage, "b", 1);
    let last = first.id.unwrap();
    let mut reader = Reader::open(&stage, path, Some(&last));
    let next = reader.next().unwrap();
    assert_eq!(next.name, "actual_lrp_instance_created", "just what came after");
    assert_eq!(next.data["actual_lrp"]["process_guid"], "a");
    assert_eq!(reader.until("desired_lrp_created").data["desired_lrp"]["process_guid"], "b");
    // The query says the same, for those who cannot set a header.
    let mut reader = Reader::open(&stage, &format!("{path}?last_event_id={last}"), None);
    assert_eq!(reader.next().unwrap().name, "actual_lrp_instance_created");
}

#[test]
fn a_reader_whose_place_is_forgotten_is_told_to_list_again() {
    let stage = Stage::new();
    let path = "/v1/events/lrp_instances.r1";
    let mut reader = Reader::open(&stage, path, Some("0000000000000000-7"));
    let told = reader.next().unwrap();
    assert_eq!(told.name, "resync");
    assert!(told.data["message"].as_str().unwrap().contains("list again"), "{told:?}");
    // What comes after is not lost.
    desire(&stage, "p", 1);
    assert_eq!(reader.next().unwrap().name, "desired_lrp_created");
    // After a restart the ids are of another life.
    let id = reader.until("actual_lrp_instance_created").id.unwrap();
    drop(reader);
    let stage = Stage::at(stage.stop(), "");
    assert_eq!(Reader::open(&stage, path, Some(&id)).next().unwrap().name, "resync");
}

#[test]
fn first_what_there_is_then_what_changes() {
    let stage = Stage::new();
    desire(&stage, "p", 2);
    for (path, created) in [
        ("/v1/events/lrp_instances.r1?snapshot", "actual_lrp_instance_created"),
        ("/v1/events.r1?snapshot=true", "actual_lrp_created"),
    ] {
        let mut reader = Reader::open(&stage, path, None);
        assert_eq!(reader.next().unwrap().name, "snapshot_begin");
        assert_eq!(reader.next().unwrap().name, "desired_lrp_created");
        assert_eq!(reader.next().unwrap().name, created);
        assert_eq!(reader.next().unwrap().name, created);
        let end = reader.next().unwrap();
        assert_eq!(end.name, "snapshot_end");
        assert_eq!(end.id.unwrap(), end.data["last_event_id"].as_str().unwrap());
    }
    // A reader that knows its place gets what it missed, not everything.
    let mut reader = Reader::open(&stage, "/v1/events/lrp_instances.r1?snapshot", None);
    let end = reader.until("snapshot_end").id.unwrap();
    drop(reader);
    stage.done(
        "/v1/desired_lrp/update",
        json!({"process_guid": "p", "update": {"annotation": "x"}}),
    );
    let mut reader = Reader::open(&stage, "/v1/events/lrp_instances.r1?snapshot", Some(&end));
    let changed = reader.until("desired_lrp_changed");
    assert_eq!(changed.data["after"]["annotation"], "x");
    // One that does not gets everything.
    let mut reader =
        Reader::open(&stage, "/v1/events/lrp_instances.r1?snapshot", Some("0000000000000000-7"));
    assert_eq!(reader.next().unwrap().name, "snapshot_begin");
}

/// Plays events upon a snapshot, and compares with what is listed at the end.
#[test]
fn a_snapshot_and_the_events_after_it_are_the_next_snapshot() {
    use std::collections::BTreeMap;
    let stage = Stage::new();
    desire(&stage, "p0", 3);
    let mut known: BTreeMap<(String, u64), Value> = BTreeMap::new();
    let key = |lrp: &Value| {
        (lrp["process_guid"].as_str().unwrap().to_owned(), lrp["index"].as_u64().unwrap())
    };
    let (begun, has_begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let stage = &stage;
        let writer = scope.spawn(move || {
            has_begun.recv().unwrap();
            for nth in 1..30 {
                desire(stage, &format!("p{nth}"), 2);
                let update = json!({"instances": nth % 4});
                let last = format!("p{}", nth - 1);
                stage.done(
                    "/v1/desired_lrp/update",
                    json!({"process_guid": last, "update": update}),
                );
            }
            desire(stage, "last", 1);
        });
        let mut reader = Reader::open(stage, "/v1/events/lrp_instances.r1?snapshot", None);
        begun.send(()).unwrap();
        loop {
            let read = reader.next().unwrap();
            match read.name.as_str() {
                "actual_lrp_instance_created" => {
                    let lrp = read.data["actual_lrp"].clone();
                    let done = lrp["process_guid"] == "last";
                    assert!(known.insert(key(&lrp), lrp).is_none(), "created twice");
                    if done {
                        break;
                    }
                }
                "actual_lrp_instance_changed" => {
                    let (before, after) = (&read.data["before"], &read.data["after"]);
                    let was = known.insert(key(after), after.clone()).expect("known before");
                    assert_eq!(was["modification_tag"], before["modification_tag"], "no gap");
                }
                "actual_lrp_instance_removed" => {
                    known.remove(&key(&read.data["actual_lrp"])).expect("known before");
                }
                _ => {}
            }
        }
        writer.join().unwrap();
    });
    let listed = stage.get("/v1/actual_lrps/list").json();
    let mut listed: Vec<(String, u64)> =
        listed["actual_lrps"].as_array().unwrap().iter().map(key).collect();
    listed.sort();
    let expected: Vec<_> = known.keys().cloned().collect();
    assert_eq!(listed, expected);
}

#[test]
fn a_silent_stream_says_that_it_is_there() {
    let stage = Stage::with("events.heartbeat_s = 1\n");
    let mut reader = Reader::open(&stage, "/v1/events/tasks.r1", None);
    let mut beats = 0;
    while beats < 2 {
        let line = reader.lines.next().unwrap().unwrap();
        beats += usize::from(line == ": heartbeat");
    }
    stage.done("/v1/tasks/desire.r2", task("t"));
    assert_eq!(reader.until("task_created").data["task"]["task_guid"], "t");
}

#[test]
fn readers_of_one_cell_see_desires_and_nothing_of_others() {
    let stage = Stage::new();
    let mut one = Reader::open(&stage, "/v1/events/lrp_instances.r1?cell_id=cell-1", None);
    let mut all = Reader::open(&stage, "/v1/events/lrp_instances.r1", None);
    desire(&stage, "a", 1);
    desire(&stage, "b", 1);
    assert_eq!(all.next().unwrap().name, "desired_lrp_created");
    assert_eq!(all.next().unwrap().name, "actual_lrp_instance_created");
    for guid in ["a", "b"] {
        let read = one.next().unwrap();
        assert_eq!(
            (read.name.as_str(), &read.data["desired_lrp"]["process_guid"]),
            ("desired_lrp_created", &json!(guid))
        );
    }
}

#[test]
fn a_reader_is_told_when_the_coordinator_stops() {
    let stage = Stage::new();
    let mut reader = Reader::open(&stage, "/v1/events/tasks.r1", None);
    let reading = std::thread::spawn(move || {
        let told = reader.next();
        (told, reader.next().is_none())
    });
    drop(stage);
    let (told, ended) = reading.join().unwrap();
    assert_eq!(told.unwrap().name, "closing");
    assert!(ended);
}

#[test]
fn a_slow_reader_is_dropped_and_told_and_slows_nobody() {
    // So little is remembered that a reader which does not read falls out of it at once.
    let stage = Stage::with("events.memory = 8192\n");
    let mut slow = Reader::open(&stage, "/v1/events/lrp_instances.r1", None);
    let mut quick = Reader::open(&stage, "/v1/events/lrp_instances.r1", None);
    let mut seen = 0;
    // Each brings 301 events of some 400 bytes: more than the sockets' buffers hold in the end.
    let many = 200;
    for nth in 0..many {
        desire(&stage, &format!("p{nth}"), 300);
        while quick.until("actual_lrp_instance_created").data["actual_lrp"]["process_guid"]
            != format!("p{nth}").as_str()
        {
            seen += 1;
        }
    }
    assert!(seen > 0);
    let mut told = None;
    while let Some(read) = slow.next() {
        told = Some(read);
    }
    let told = told.unwrap();
    assert_eq!(told.name, "lagged", "{told:?}");
    assert!(told.data["message"].as_str().unwrap().contains("list again"));
}
