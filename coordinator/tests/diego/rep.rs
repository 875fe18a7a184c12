//! What Diego's cells tell: the life of instances, evacuation, and that a cell speaks for itself only.

use volvox_coordinator::api::access::Role;
use volvox_protocol::diego::message as m;

use crate::client::{Client, NOTHING, Stage, desire, task};

fn key(index: i32) -> Option<m::ActualLrpKey> {
    Some(m::ActualLrpKey { process_guid: "p".into(), index, domain: "apps".into() })
}

fn instance(guid: &str, cell: &str) -> Option<m::ActualLrpInstanceKey> {
    Some(m::ActualLrpInstanceKey { instance_guid: guid.into(), cell_id: cell.into() })
}

fn net() -> Option<m::ActualLrpNetInfo> {
    let port = m::PortMapping { container_port: 8080, host_port: 61_001, ..Default::default() };
    Some(m::ActualLrpNetInfo {
        address: "10.0.0.1".into(),
        ports: vec![port],
        preferred_address: m::PreferredAddress::Host.into(),
        ..Default::default()
    })
}

fn claim(client: &mut Client, index: i32, guid: &str) {
    let request = m::ClaimActualLrpRequest {
        process_guid: "p".into(),
        index,
        actual_lrp_instance_key: instance(guid, "c"),
    };
    client.done("/v1/actual_lrps/claim", &request);
}

fn started(index: i32, guid: &str) -> m::StartActualLrpRequest {
    let route = m::ActualLrpInternalRoute { hostname: "a.internal".into() };
    m::StartActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(guid, "c"),
        actual_lrp_net_info: net(),
        actual_lrp_internal_routes: vec![route],
        metric_tags: [("a".into(), "b".into())].into(),
        routable: None,
        availability_zone: "z1".into(),
    }
}

fn at(client: &mut Client, index: i32) -> Vec<m::ActualLrp> {
    let request =
        m::ActualLrpsRequest { process_guid: "p".into(), index: Some(index), ..Default::default() };
    let listed: m::ActualLrpsResponse = client.call("/v1/actual_lrps/list", &request);
    listed.actual_lrps
}

#[test]
fn an_instance_lives_as_its_cell_tells() {
    let stage = Stage::new();
    let mut client = stage.client("c", Role::Cell);
    desire(&mut stage.admin(), "p", 3);
    claim(&mut client, 0, "i0");
    assert_eq!(at(&mut client, 0)[0].state, "CLAIMED");
    let other = m::ClaimActualLrpRequest {
        process_guid: "p".into(),
        index: 0,
        actual_lrp_instance_key: instance("i9", "d"),
    };
    let mut admin = stage.admin();
    assert_eq!(admin.refused("/v1/actual_lrps/claim", &other).0, 15, "it has another");
    client.done("/v1/actual_lrps/start.r1", &started(0, "i0"));
    let running = at(&mut client, 0).remove(0);
    assert_eq!((running.state.as_str(), running.routable), ("RUNNING", Some(true)));
    assert_eq!(running.actual_lrp_net_info, net());
    assert_eq!(running.actual_lrp_internal_routes.len(), 1);
    assert_eq!((running.metric_tags["a"].as_str(), running.availability_zone), ("b", "z1".into()));
    // What an older cell says has neither routes nor tags, and no address is none.
    claim(&mut client, 1, "i1");
    client.done("/v1/actual_lrps/start", &started(1, "i1"));
    let running = at(&mut client, 1).remove(0);
    assert_eq!(running.state, "RUNNING");
    assert_eq!((running.actual_lrp_internal_routes.len(), running.metric_tags.len()), (0, 0));
    let mut silent = started(1, "i1");
    silent.actual_lrp_net_info = Some(m::ActualLrpNetInfo::default());
    let refused = client.refused("/v1/actual_lrps/start.r1", &silent);
    assert_eq!(refused, (4, "Invalid field: address".into()));
    let crash = m::CrashActualLrpRequest {
        actual_lrp_key: key(1),
        actual_lrp_instance_key: instance("i1", "c"),
        error_message: "exit 1".into(),
    };
    client.done("/v1/actual_lrps/crash", &crash);
    let crashed = at(&mut client, 1).remove(0);
    assert_eq!((crashed.state.as_str(), crashed.crash_count), ("UNCLAIMED", 1));
    assert_eq!(crashed.crash_reason, "exit 1");
    assert_eq!(client.refused("/v1/actual_lrps/crash", &crash).0, 17);
    let fail = m::FailActualLrpRequest { actual_lrp_key: key(2), error_message: "full".into() };
    admin.done("/v1/actual_lrps/fail", &fail);
    claim(&mut client, 2, "i2");
    assert_eq!(admin.refused("/v1/actual_lrps/fail", &fail).0, 18, "it has a cell");
    let remove = m::RemoveActualLrpRequest {
        process_guid: "p".into(),
        index: 2,
        actual_lrp_instance_key: instance("i2", "c"),
    };
    client.done("/v1/actual_lrps/remove", &remove);
    let retire = m::RetireActualLrpRequest { actual_lrp_key: key(0) };
    admin.done("/v1/actual_lrps/retire", &retire);
}

#[test]
fn a_cell_that_leaves_hands_its_instances_over() {
    let stage = Stage::new();
    let mut client = stage.client("c", Role::Cell);
    desire(&mut stage.admin(), "p", 5);
    for (index, guid) in [(0, "i0"), (1, "i1"), (2, "i2"), (3, "i3"), (4, "i4")] {
        claim(&mut client, index, guid);
        if index != 1 {
            client.done("/v1/actual_lrps/start.r1", &started(index, guid));
        }
    }
    let running = |index, guid: &str| m::EvacuateRunningActualLrpRequest {
        actual_lrp_key: key(index),
        actual_lrp_instance_key: instance(guid, "c"),
        actual_lrp_net_info: net(),
        metric_tags: [("a".into(), "b".into())].into(),
        ..Default::default()
    };
    for (path, index, guid) in [
        ("/v1/actual_lrps/evacuate_running.r1", 0, "i0"),
        ("/v1/actual_lrps/evacuate_running", 4, "i4"),
    ] {
        let kept: m::EvacuationResponse = client.call(path, &running(index, guid));
        assert_eq!((kept.error, kept.keep_container), (None, true), "{path}");
    }
    let mut both = at(&mut client, 0);
    both.sort_by_key(|lrp| lrp.presence);
    let states: Vec<(&str, i32)> =
        both.iter().map(|lrp| (lrp.state.as_str(), lrp.presence)).collect();
    assert_eq!(states, [("UNCLAIMED", 0), ("RUNNING", 1)]);
    let leaves = m::EvacuateClaimedActualLrpRequest {
        actual_lrp_key: key(1),
        actual_lrp_instance_key: instance("i1", "c"),
    };
    let kept: m::EvacuationResponse = client.call("/v1/actual_lrps/evacuate_claimed", &leaves);
    assert_eq!((kept.error, kept.keep_container), (None, false));
    assert_eq!(at(&mut client, 1)[0].state, "UNCLAIMED");
    let stopped = m::EvacuateStoppedActualLrpRequest {
        actual_lrp_key: key(2),
        actual_lrp_instance_key: instance("i2", "c"),
    };
    let kept: m::EvacuationResponse = client.call("/v1/actual_lrps/evacuate_stopped", &stopped);
    assert_eq!((kept.error, kept.keep_container), (None, false));
    let mut crashed = m::EvacuateCrashedActualLrpRequest {
        actual_lrp_key: key(3),
        actual_lrp_instance_key: instance("i3", "c"),
        error_message: String::new(),
    };
    let refused = client.refused("/v1/actual_lrps/evacuate_crashed", &crashed);
    assert_eq!(refused, (4, "Invalid field: error_message".into()));
    crashed.error_message = "exit 1".into();
    let kept: m::EvacuationResponse = client.call("/v1/actual_lrps/evacuate_crashed", &crashed);
    assert_eq!((kept.error, kept.keep_container), (None, false));
    let gone = m::RemoveEvacuatingActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("i0", "c"),
    };
    client.done("/v1/actual_lrps/remove_evacuating", &gone);
    assert_eq!(at(&mut client, 0).len(), 1);
}

/// A Diego cell ends what runs unless it reads that it is to go on: a call that was refused is no reason.
#[test]
fn a_cell_that_is_refused_is_told_to_keep_what_runs() {
    let stage = Stage::new();
    let mut own = stage.client("c", Role::Cell);
    desire(&mut stage.admin(), "p", 1);
    claim(&mut own, 0, "i0");
    let leaves = m::EvacuateClaimedActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("i0", "c"),
    };
    let running = m::EvacuateRunningActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("i0", "c"),
        actual_lrp_net_info: net(),
        ..Default::default()
    };
    let nowhere = m::EvacuateRunningActualLrpRequest {
        actual_lrp_net_info: Some(m::ActualLrpNetInfo::default()),
        ..running.clone()
    };
    for (name, role) in [("d", Role::Cell), ("c", Role::Read)] {
        let mut stranger = stage.client(name, role);
        let answers: [m::EvacuationResponse; 3] = [
            stranger.call("/v1/actual_lrps/evacuate_claimed", &leaves),
            stranger.call("/v1/actual_lrps/evacuate_running", &running),
            stranger.call("/v1/actual_lrps/evacuate_running.r1", &running),
        ];
        for answer in answers {
            assert!(answer.error.is_some() && answer.keep_container, "{name}: {answer:?}");
        }
    }
    let wrong: m::EvacuationResponse = own.call("/v1/actual_lrps/evacuate_running.r1", &nowhere);
    assert_eq!(wrong.error.unwrap().message, "Invalid field: address");
    assert!(wrong.keep_container);
    // Of an end there is nothing to keep, and nothing of what the board does not know.
    let stopped = m::EvacuateStoppedActualLrpRequest {
        actual_lrp_key: key(0),
        actual_lrp_instance_key: instance("i0", "c"),
    };
    let mut stranger = stage.client("d", Role::Cell);
    let refused: m::EvacuationResponse =
        stranger.call("/v1/actual_lrps/evacuate_stopped", &stopped);
    assert!(refused.error.is_some() && !refused.keep_container);
}

#[test]
fn a_cell_speaks_for_itself_and_nobody_else_does() {
    let stage = Stage::new();
    let mut admin = stage.admin();
    desire(&mut admin, "p", 1);
    admin.done("/v1/tasks/desire.r2", &task("t"));
    let claim = m::ClaimActualLrpRequest {
        process_guid: "p".into(),
        index: 0,
        actual_lrp_instance_key: instance("i0", "c"),
    };
    let start = m::StartTaskRequest { task_guid: "t".into(), cell_id: "c".into() };
    let mut other = stage.client("d", Role::Cell);
    for refused in
        [other.refused("/v1/actual_lrps/claim", &claim), other.refused("/v1/tasks/start", &start)]
    {
        assert_eq!(refused, (0, "the cell d may not speak for c".into()));
    }
    let unnamed = m::RemoveActualLrpRequest { process_guid: "p".into(), ..Default::default() };
    assert!(other.refused("/v1/actual_lrps/remove", &unnamed).1.contains("must name its instance"));
    let lost = m::FailActualLrpRequest { actual_lrp_key: key(0), error_message: "full".into() };
    let refused = other.refused("/v1/actual_lrps/fail", &lost);
    assert!(refused.1.contains("needs the role admin"), "{refused:?}");
    for role in [Role::Read, Role::Write] {
        let mut consumer = stage.client("c", role);
        let refused = consumer.refused("/v1/actual_lrps/claim", &claim);
        assert!(refused.1.contains("needs the role cell"), "{refused:?}");
    }
    // A cell looks, but desires nothing.
    let domains: m::DomainsResponse = other.call("/v1/domains/list", &NOTHING);
    assert_eq!(domains.error, None);
    let upsert = m::UpsertDomainRequest { domain: "apps".into(), ttl: 0 };
    assert!(other.refused("/v1/domains/upsert", &upsert).1.contains("needs the role write"));
    admin.done("/v1/actual_lrps/claim", &claim);
    stage.client("c", Role::Cell).done("/v1/actual_lrps/claim", &claim);
}

#[test]
fn a_task_is_given_up_by_the_cell_that_has_it() {
    let stage = Stage::new();
    let mut admin = stage.admin();
    let mut own = stage.client("c", Role::Cell);
    let mut other = stage.client("d", Role::Cell);
    admin.done("/v1/tasks/desire.r2", &task("t"));
    let fail = m::FailTaskRequest { task_guid: "t".into(), failure_reason: "no".into() };
    let reject = m::RejectTaskRequest { task_guid: "t".into(), rejection_reason: "full".into() };
    // Who was offered it may say that it has no room, but not that all is over.
    other.done("/v1/tasks/reject", &reject);
    let expected = (0, "the cell d does not have the task t".to_owned());
    assert_eq!(other.refused("/v1/tasks/fail", &fail), expected);
    let start = m::StartTaskRequest { task_guid: "t".into(), cell_id: "c".into() };
    let started: m::StartTaskResponse = own.call("/v1/tasks/start", &start);
    assert!(started.should_start);
    assert_eq!(other.refused("/v1/tasks/fail", &fail), expected);
    assert_eq!(other.refused("/v1/tasks/reject", &reject), expected);
    own.done("/v1/tasks/fail", &fail);
    // It is over: of a rejection the BBS says that the request is wrong.
    let (kind, text) = admin.refused("/v1/tasks/reject", &reject);
    assert_eq!((kind, text.as_str()), (4, "cannot transition from Completed to Pending"));
    let delete = m::TaskGuidRequest { task_guid: "t".into() };
    let (kind, text) = admin.refused("/v1/tasks/delete", &delete);
    assert_eq!((kind, text.as_str()), (9, "Cannot transition from Completed to Resolving"));
    let missing = m::FailTaskRequest { task_guid: "u".into(), ..fail };
    assert_eq!(other.refused("/v1/tasks/fail", &missing).0, 13, "there is none");
}

#[test]
fn a_task_is_given_back_by_the_cell_that_has_begun_it() {
    let stage = Stage::new();
    let mut admin = stage.admin();
    let mut own = stage.client("c", Role::Cell);
    admin.done("/v1/tasks/desire.r2", &task("t"));
    let start = m::StartTaskRequest { task_guid: "t".into(), cell_id: "c".into() };
    let started: m::StartTaskResponse = own.call("/v1/tasks/start", &start);
    assert!(started.should_start);
    let mut task = || {
        let by_guid = m::TaskByGuidRequest { task_guid: "t".into() };
        let found: m::TaskResponse = admin.call("/v1/tasks/get_by_task_guid.r3", &by_guid);
        found.task.unwrap()
    };
    assert_eq!(task().state, m::TaskState::Running as i32);
    let reject = m::RejectTaskRequest { task_guid: "t".into(), rejection_reason: "broken".into() };
    own.done("/v1/tasks/reject", &reject);
    let given_back = task();
    assert_eq!(given_back.state, m::TaskState::Pending as i32, "it is tried again");
    assert!(given_back.rejection_count >= 1, "{given_back:?}");
}
