//! Streams of events, as Diego's clients read them.

use prost::Message;
use volvox_coordinator::api::access::Role;
use volvox_coordinator::api::tls::Written;
use volvox_protocol::diego::message as m;

use crate::client::{ANY, Client, Stage, desire, task};

/// Undoes base64.
fn letters(text: &str) -> Vec<u8> {
    let value = |letter: u8| -> u32 {
        let known = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        known.iter().position(|it| *it == letter).map_or(0, |at| u32::try_from(at).unwrap())
    };
    let mut bytes = Vec::new();
    for four in text.as_bytes().chunks(4) {
        let bits = four.iter().fold(0, |bits, letter| bits << 6 | value(*letter));
        let padding = four.iter().filter(|letter| **letter == b'=').count();
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    bytes
}

/// Subscribes, and has the head before anything happens.
fn subscribe(stage: &Stage, line: &str, cell: &str) -> Client {
    let mut reader = stage.admin();
    let body = m::EventsByCellId { cell_id: cell.into() }.encode_to_vec();
    // Diego's clients say no content type here.
    reader.send(line, "", &body);
    let (status, headers) = reader.head();
    assert_eq!(status, 200, "{line}");
    let of = |name: &str| {
        headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    };
    assert_eq!(of("content-type"), "text/event-stream; charset=utf-8");
    assert_eq!(of("cache-control"), "no-cache, no-store, must-revalidate");
    assert_eq!((of("connection"), of("transfer-encoding")), ("keep-alive", "chunked"));
    reader
}

/// The next event: its id, its name and its message.
fn next(reader: &mut Client) -> (u64, String, Vec<u8>) {
    let (mut id, mut name) = (None, String::new());
    loop {
        let line = reader.line();
        match line.split_once(": ") {
            Some(("id", number)) => id = Some(number.parse().unwrap()),
            Some(("event", given)) => name = given.to_owned(),
            Some(("data", data)) => return (id.unwrap(), name, letters(data)),
            // The lines of chunks, and the empty ones between events.
            _ => assert!(!line.starts_with(':'), "no comments: {line}"),
        }
    }
}

#[test]
fn instances_and_what_is_desired_are_told_as_they_change() {
    let stage = Stage::new();
    let mut reader = subscribe(&stage, "POST /v1/events/lrp_instances.r1", "");
    let mut of_cell = subscribe(&stage, "POST /v1/events/lrp_instances.r1", "c");
    let mut client = stage.admin();
    desire(&mut client, "p", 1);
    let (id, name, data) = next(&mut reader);
    assert_eq!((id, name.as_str()), (0, "desired_lrp_created"));
    let created = m::DesiredLrpCreatedEvent::decode(&data[..]).unwrap();
    assert_eq!(created.trace_id, "trace-1", "as the header said");
    assert_eq!(created.desired_lrp.unwrap().image_layers.len(), 2);
    let (id, name, data) = next(&mut reader);
    assert_eq!((id, name.as_str()), (1, "actual_lrp_instance_created"));
    let created = m::ActualLrpInstanceCreatedEvent::decode(&data[..]).unwrap();
    assert_eq!(created.trace_id, "trace-1");
    assert_eq!(created.actual_lrp.unwrap().state, "UNCLAIMED");
    let claim = m::ClaimActualLrpRequest {
        process_guid: "p".into(),
        index: 0,
        actual_lrp_instance_key: Some(m::ActualLrpInstanceKey {
            instance_guid: "i".into(),
            cell_id: "c".into(),
        }),
    };
    client.done("/v1/actual_lrps/claim", &claim);
    // The auction may have said before that it found no cell: then the state stays.
    let changed = loop {
        let (_, name, data) = next(&mut reader);
        assert_eq!(name, "actual_lrp_instance_changed");
        let changed = m::ActualLrpInstanceChangedEvent::decode(&data[..]).unwrap();
        if changed.after.as_ref().unwrap().state == "CLAIMED" {
            break changed;
        }
    };
    assert_eq!(changed.before.unwrap().state, "UNCLAIMED");
    assert_eq!(changed.actual_lrp_instance_key, claim.actual_lrp_instance_key);
    assert_eq!(changed.actual_lrp_key.unwrap().process_guid, "p");
    // Through a cell's filter: what is desired, and then what came to the cell.
    assert_eq!(next(&mut of_cell).1, "desired_lrp_created");
    let (id, name, data) = next(&mut of_cell);
    assert_eq!((id, name.as_str()), (1, "actual_lrp_instance_changed"));
    let changed = m::ActualLrpInstanceChangedEvent::decode(&data[..]).unwrap();
    assert_eq!(changed.after.unwrap().state, "CLAIMED");
    let crash = m::CrashActualLrpRequest {
        actual_lrp_key: changed.actual_lrp_key,
        actual_lrp_instance_key: changed.actual_lrp_instance_key,
        error_message: "exit 1".into(),
    };
    client.done("/v1/actual_lrps/crash", &crash);
    let (_, name, data) = next(&mut reader);
    assert_eq!(name, "actual_lrp_crashed", "the crash comes first");
    let crashed = m::ActualLrpCrashedEvent::decode(&data[..]).unwrap();
    assert_eq!((crashed.crash_count, crashed.crash_reason.as_str()), (1, "exit 1"));
    let names = [next(&mut reader).1, next(&mut reader).1];
    assert_eq!(names, ["actual_lrp_instance_created", "actual_lrp_instance_removed"]);
    let remove = m::RemoveDesiredLrpRequest { process_guid: "p".into() };
    client.done("/v1/desired_lrp/remove", &remove);
    let removed = loop {
        let (_, name, data) = next(&mut reader);
        if name == "desired_lrp_removed" {
            break m::DesiredLrpRemovedEvent::decode(&data[..]).unwrap();
        }
    };
    assert_eq!(removed.desired_lrp.unwrap().process_guid, "p");
}

#[test]
fn the_older_stream_tells_of_groups() {
    let stage = Stage::new();
    let mut reader = subscribe(&stage, "GET /v1/events.r1", "");
    let mut client = stage.admin();
    desire(&mut client, "p", 1);
    assert_eq!(next(&mut reader).1, "desired_lrp_created");
    let (_, name, data) = next(&mut reader);
    assert_eq!(name, "actual_lrp_created");
    let created = m::ActualLrpCreatedEvent::decode(&data[..]).unwrap();
    let group = created.actual_lrp_group.unwrap();
    assert_eq!(group.instance.unwrap().actual_lrp_key.unwrap().process_guid, "p");
    let update = m::DesiredLrpUpdate { annotation: Some("x".into()), ..Default::default() };
    let update = m::UpdateDesiredLrpRequest { process_guid: "p".into(), update: Some(update) };
    client.done("/v1/desired_lrp/update", &update);
    let changed = loop {
        let (_, name, data) = next(&mut reader);
        if name == "desired_lrp_changed" {
            break m::DesiredLrpChangedEvent::decode(&data[..]).unwrap();
        }
    };
    assert_eq!(changed.before.unwrap().annotation, "note");
    assert_eq!(changed.after.unwrap().annotation, "x");
    assert_eq!(changed.trace_id, "trace-1");
    let instance = m::ActualLrpInstanceKey { instance_guid: "i".into(), cell_id: "c".into() };
    let claim = m::ClaimActualLrpRequest {
        process_guid: "p".into(),
        index: 0,
        actual_lrp_instance_key: Some(instance.clone()),
    };
    client.done("/v1/actual_lrps/claim", &claim);
    let changed = loop {
        let (_, name, data) = next(&mut reader);
        assert_eq!(name, "actual_lrp_changed");
        let changed = m::ActualLrpChangedEvent::decode(&data[..]).unwrap();
        if changed.after.as_ref().unwrap().instance.as_ref().unwrap().state == "CLAIMED" {
            break changed;
        }
    };
    assert_eq!(changed.before.unwrap().instance.unwrap().state, "UNCLAIMED");
    let remove = m::RemoveActualLrpRequest {
        process_guid: "p".into(),
        index: 0,
        actual_lrp_instance_key: Some(instance.clone()),
    };
    client.done("/v1/actual_lrps/remove", &remove);
    let (_, name, data) = next(&mut reader);
    assert_eq!(name, "actual_lrp_removed");
    let removed = m::ActualLrpRemovedEvent::decode(&data[..]).unwrap();
    let gone = removed.actual_lrp_group.unwrap().instance.unwrap();
    assert_eq!(gone.actual_lrp_instance_key, Some(instance));
}

#[test]
fn the_oldest_streams_tell_in_the_oldest_form() {
    let stage = Stage::new();
    let mut groups = subscribe(&stage, "GET /v1/events", "");
    let mut instances = subscribe(&stage, "POST /v1/events/lrp_instances", "");
    let mut tasks = subscribe(&stage, "POST /v1/events/tasks", "");
    let mut client = stage.admin();
    desire(&mut client, "p", 1);
    for reader in [&mut groups, &mut instances] {
        let (_, name, data) = next(reader);
        assert_eq!(name, "desired_lrp_created");
        let lrp = m::DesiredLrpCreatedEvent::decode(&data[..]).unwrap().desired_lrp.unwrap();
        assert_eq!((lrp.image_layers.len(), lrp.cached_dependencies.len()), (0, 0));
        assert_eq!(lrp.deprecated_start_timeout_s, 61);
        let timeout = lrp.monitor.unwrap().timeout_action.unwrap();
        assert_eq!(timeout.deprecated_timeout_ns, 1_500_000_000);
        let setup = lrp.setup.unwrap().serial_action.unwrap();
        assert_eq!(setup.actions.len(), 2, "dependencies, then the exclusive layer");
    }
    client.done("/v1/tasks/desire.r2", &task("t"));
    let (id, name, data) = next(&mut tasks);
    assert_eq!((id, name.as_str()), (0, "task_created"));
    let told = m::TaskCreatedEvent::decode(&data[..]).unwrap().task.unwrap();
    let definition = told.task_definition.unwrap();
    assert_eq!((definition.image_layers.len(), definition.cached_dependencies.len()), (0, 1));
}

#[test]
fn the_oldest_form_is_told_in_json_too() {
    let stage = Stage::new();
    let mut reader = stage.admin();
    reader.send("GET /v1/events/lrp_instances", "accept: application/json\r\n", b"");
    assert_eq!(reader.head().0, 200);
    let mut client = stage.admin();
    desire(&mut client, "p", 1);
    let data = loop {
        if let Some(data) = reader.line().strip_prefix("data: ") {
            break serde_json::from_str::<serde_json::Value>(data).unwrap();
        }
    };
    let lrp = &data["desired_lrp"];
    assert_eq!((lrp.get("image_layers"), lrp.get("cached_dependencies")), (None, None));
    assert_eq!(lrp["deprecated_timeout_ns"], 61, "{data}");
    assert!(lrp["setup"]["serial"].is_object(), "{data}");
}

#[test]
fn tasks_are_told_whatever_the_cell() {
    let stage = Stage::new();
    let mut reader = subscribe(&stage, "POST /v1/events/tasks.r1", "nowhere");
    let mut client = stage.admin();
    client.done("/v1/tasks/desire.r2", &task("t"));
    let (id, name, data) = next(&mut reader);
    assert_eq!((id, name.as_str()), (0, "task_created"));
    let told = m::TaskCreatedEvent::decode(&data[..]).unwrap().task.unwrap();
    assert_eq!(told.task_definition.unwrap().image_layers.len(), 2);
    client.done("/v1/tasks/cancel", &m::TaskGuidRequest { task_guid: "t".into() });
    let (_, _, data) = loop {
        let event = next(&mut reader);
        let changed = m::TaskChangedEvent::decode(&event.2[..]).unwrap();
        if event.1 == "task_changed" && changed.after.unwrap().state == 3 {
            break event;
        }
    };
    let changed = m::TaskChangedEvent::decode(&data[..]).unwrap();
    assert!(changed.after.unwrap().failed && !changed.before.unwrap().failed);
    let guid = m::TaskGuidRequest { task_guid: "t".into() };
    client.done("/v1/tasks/resolving", &guid);
    client.done("/v1/tasks/delete", &guid);
    let removed = loop {
        let (_, name, data) = next(&mut reader);
        if name == "task_removed" {
            break m::TaskRemovedEvent::decode(&data[..]).unwrap();
        }
    };
    assert_eq!(removed.task.unwrap().task_guid, "t");
}

#[test]
fn a_subscription_that_cannot_be_read_is_an_error_of_the_server() {
    let stage = Stage::new();
    let mut client = stage.admin();
    client.send("POST /v1/events/lrp_instances.r1", "", &[0x0a, 0x05]);
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (500, 0));
}

#[test]
fn a_stream_ends_cleanly_when_the_coordinator_stops() {
    let stage = Stage::new();
    let mut reader = subscribe(&stage, "POST /v1/events/lrp_instances.r1", "");
    drop(stage);
    assert_eq!(reader.line(), "0", "the last chunk, and no event before it");
}

#[test]
fn an_instance_that_is_told_to_stop_is_gone_for_diego_and_marked_for_us() {
    let stage = Stage::new();
    let mut client = stage.admin();
    desire(&mut client, "p", 2);
    let instance = m::ActualLrpInstanceKey { instance_guid: "i".into(), cell_id: "c".into() };
    let claim = m::ClaimActualLrpRequest {
        process_guid: "p".into(),
        index: 1,
        actual_lrp_instance_key: Some(instance.clone()),
    };
    client.done("/v1/actual_lrps/claim", &claim);
    let mut instances = subscribe(&stage, "POST /v1/events/lrp_instances.r1", "c");
    let mut groups = subscribe(&stage, "POST /v1/events.r1", "c");
    let mut ours = stage.admin();
    ours.send("GET /v1/events/lrp_instances.r1?cell_id=c", "accept: application/json\r\n", b"");
    assert_eq!(ours.head().0, 200);
    let update = m::DesiredLrpUpdate { instances: Some(1), ..Default::default() };
    let update = m::UpdateDesiredLrpRequest { process_guid: "p".into(), update: Some(update) };
    client.done("/v1/desired_lrp/update", &update);
    for reader in [&mut instances, &mut groups] {
        assert_eq!(next(reader).1, "desired_lrp_changed");
    }
    let (_, name, data) = next(&mut instances);
    assert_eq!(name, "actual_lrp_instance_removed", "as soon as the stop is asked");
    let told = m::ActualLrpInstanceRemovedEvent::decode(&data[..]).unwrap();
    let gone = told.actual_lrp.unwrap();
    assert_eq!((gone.state.as_str(), told.trace_id.as_str()), ("CLAIMED", "trace-1"));
    assert_eq!(gone.actual_lrp_instance_key, Some(instance.clone()));
    let (_, name, data) = next(&mut groups);
    assert_eq!(name, "actual_lrp_removed");
    let group = m::ActualLrpRemovedEvent::decode(&data[..]).unwrap().actual_lrp_group.unwrap();
    assert_eq!(group.instance.unwrap().actual_lrp_instance_key, Some(instance.clone()));
    // Ours say what happened: the record is there, and its instance is to stop.
    let data = loop {
        let line = ours.line();
        match line.strip_prefix("data: ") {
            Some(data) if data.contains("\"stopping\"") => break data.to_owned(),
            _ => assert!(!line.contains("removed"), "{line}"),
        }
    };
    let changed: serde_json::Value = serde_json::from_str(&data).unwrap();
    assert_eq!(changed["after"]["stopping"], true, "{data}");
    // When the record goes Diego's clients hear it again, as of a BBS.
    let remove = m::RemoveActualLrpRequest {
        process_guid: "p".into(),
        index: 1,
        actual_lrp_instance_key: Some(instance),
    };
    client.done("/v1/actual_lrps/remove", &remove);
    assert_eq!(next(&mut instances).1, "actual_lrp_instance_removed");
    assert_eq!(next(&mut groups).1, "actual_lrp_removed");
}

#[test]
fn a_record_that_follows_a_removed_one_is_told_after_it() {
    let stage = Stage::new();
    let mut client = stage.admin();
    desire(&mut client, "p", 1);
    let instance = m::ActualLrpInstanceKey { instance_guid: "i".into(), cell_id: "c".into() };
    let claim = m::ClaimActualLrpRequest {
        process_guid: "p".into(),
        index: 0,
        actual_lrp_instance_key: Some(instance.clone()),
    };
    client.done("/v1/actual_lrps/claim", &claim);
    let mut reader = subscribe(&stage, "POST /v1/events/lrp_instances.r1", "");
    let remove = m::RemoveActualLrpRequest {
        process_guid: "p".into(),
        index: 0,
        actual_lrp_instance_key: Some(instance),
    };
    client.done("/v1/actual_lrps/remove", &remove);
    let names = [next(&mut reader).1, next(&mut reader).1];
    assert_eq!(names, ["actual_lrp_instance_removed", "actual_lrp_instance_created"]);
}

#[test]
fn a_subscription_that_is_refused_is_not_answered_as_if_it_were_open() {
    // A certificate of another authority, whose name has no role here.
    let elsewhere = Stage::new();
    let foreign = elsewhere.certificate("guest", Role::Admin);
    let folder = tempfile::tempdir().unwrap();
    let lines = format!("api.tls.client_ca = \"{}\"\n", foreign.ca.display());
    let stage = Stage::with(folder, &lines);
    let ca = stage.certificate("own", Role::Read).ca;
    for path in ["events.r1", "events/lrp_instances.r1", "events/tasks.r1", "events"] {
        let shown = Written { ca: ca.clone(), ..foreign.clone() };
        let mut client = Client::connect(stage.address, &shown, ANY);
        client.send(&format!("POST /v1/{path}"), "", b"");
        let answer = client.answer();
        assert_eq!((answer.status, answer.body.len()), (401, 0), "{path}");
        assert_eq!(answer.header("content-type"), "", "{path}");
    }
}

#[test]
fn an_older_instance_that_stops_is_no_end_of_the_group_of_a_newer_one() {
    let stage = Stage::new();
    let mut client = stage.admin();
    desire(&mut client, "p", 1);
    let key = m::ActualLrpKey { process_guid: "p".into(), index: 0, domain: "apps".into() };
    let start = |client: &mut Client, guid: &str| {
        let request = m::StartActualLrpRequest {
            actual_lrp_key: Some(key.clone()),
            actual_lrp_instance_key: Some(m::ActualLrpInstanceKey {
                instance_guid: guid.into(),
                cell_id: "c".into(),
            }),
            actual_lrp_net_info: Some(m::ActualLrpNetInfo {
                address: "10.0.0.1".into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        client.done("/v1/actual_lrps/start.r1", &request);
    };
    start(&mut client, "old");
    let mut groups = subscribe(&stage, "POST /v1/events.r1", "");
    let mut instances = subscribe(&stage, "POST /v1/events/lrp_instances.r1", "");
    let update = serde_json::json!({"process_guid": "p", "update": {"lrp_definition": {
        "definition_id": "v2", "rootfs": "preloaded:fs4",
        "action": {"run": {"path": "/bin/true", "user": "vcap"}},
    }}});
    let json = "content-type: application/json\r\n";
    client.send("POST /v1/desired_lrp/update", json, update.to_string().as_bytes());
    assert_eq!(client.answer().status, 200);
    start(&mut client, "new");
    // On the stream of instances the older one is gone, as soon as it is told to stop.
    loop {
        let (_, name, data) = next(&mut instances);
        if name == "actual_lrp_instance_removed" {
            let told = m::ActualLrpInstanceRemovedEvent::decode(&data[..]).unwrap();
            let of = told.actual_lrp.unwrap().actual_lrp_instance_key.unwrap();
            if of.instance_guid == "old" {
                break;
            }
        }
    }
    let note = m::DesiredLrpUpdate { annotation: Some("last".into()), ..Default::default() };
    let note = m::UpdateDesiredLrpRequest { process_guid: "p".into(), update: Some(note) };
    client.done("/v1/desired_lrp/update", &note);
    loop {
        let (_, name, data) = next(&mut groups);
        assert_ne!(name, "actual_lrp_removed");
        if name == "desired_lrp_changed" {
            let told = m::DesiredLrpChangedEvent::decode(&data[..]).unwrap();
            if told.after.unwrap().annotation == "last" {
                break;
            }
        }
    }
}
