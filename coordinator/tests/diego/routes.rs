//! What consumers ask: every route, with messages.

use volvox_protocol::diego::message as m;

use crate::client::{NOTHING, Stage, desire, lrp, task};

#[test]
fn domains_cells_and_a_ping() {
    let stage = Stage::new();
    let mut client = stage.admin();
    let ping: m::PingResponse = client.call("/v1/ping", &NOTHING);
    assert!(ping.available);
    for (domain, ttl) in [("apps", 300), ("ever", 0)] {
        let request = m::UpsertDomainRequest { domain: domain.into(), ttl };
        client.done("/v1/domains/upsert", &request);
    }
    let domains: m::DomainsResponse = client.call("/v1/domains/list", &NOTHING);
    assert_eq!((domains.error, domains.domains), (None, vec!["apps".into(), "ever".into()]));
    let empty = m::UpsertDomainRequest::default();
    let refused = client.refused("/v1/domains/upsert", &empty);
    assert_eq!(refused, (4, "Invalid field: domain".into()));
    let cells: m::CellsResponse = client.call("/v1/cells/list.r1", &NOTHING);
    assert_eq!((cells.error, cells.cells), (None, vec![]));
}

#[test]
fn a_desired_lrp_from_its_desire_to_its_removal() {
    let stage = Stage::new();
    let mut client = stage.admin();
    desire(&mut client, "p", 2);
    let again = m::DesireLrpRequest { desired_lrp: Some(lrp("p", 2)) };
    assert_eq!(client.refused("/v1/desired_lrp/desire.r2", &again).0, 12, "ResourceExists");
    let by_guid = m::DesiredLrpByProcessGuidRequest { process_guid: "p".into() };
    let got: m::DesiredLrpResponse =
        client.call("/v1/desired_lrps/get_by_process_guid.r3", &by_guid);
    let got = got.desired_lrp.unwrap();
    assert_eq!(got.modification_tag.as_ref().unwrap().epoch.len(), 36);
    assert_eq!(got.metrics_guid, "app", "filled in from the tag");
    let as_sent =
        m::DesiredLrp { modification_tag: None, metrics_guid: String::new(), ..got.clone() };
    assert_eq!(as_sent, lrp("p", 2));
    // Without layers: a dependency for the shared one, a download in setup for the other.
    let older: m::DesiredLrpResponse =
        client.call("/v1/desired_lrps/get_by_process_guid.r2", &by_guid);
    let older = older.desired_lrp.unwrap();
    assert_eq!((older.image_layers.len(), older.cached_dependencies.len()), (0, 1));
    assert_eq!(older.cached_dependencies[0].from, "http://blobs/shared");
    let setup = older.setup.clone().unwrap().parallel_action.unwrap();
    let download = setup.actions[0].download_action.as_ref().unwrap();
    assert_eq!((download.user.as_str(), download.cache_key.as_str()), ("vcap", "sha256:ab"));
    for (path, wanted) in [("/v1/desired_lrps/list.r3", got), ("/v1/desired_lrps/list.r2", older)] {
        let request = m::DesiredLrpsRequest { app_guids: vec!["p".into()], ..Default::default() };
        let listed: m::DesiredLrpsResponse = client.call(path, &request);
        assert_eq!(listed.desired_lrps, [wanted], "{path}");
    }
    let infos: m::DesiredLrpSchedulingInfosResponse =
        client.call("/v1/desired_lrp_scheduling_infos/list", &m::DesiredLrpsRequest::default());
    let info: m::DesiredLrpSchedulingInfoByProcessGuidResponse =
        client.call("/v1/desired_lrp_scheduling_infos/get_by_process_guid", &by_guid);
    assert_eq!(
        info.desired_lrp_scheduling_info.as_ref(),
        infos.desired_lrp_scheduling_infos.first()
    );
    let info = info.desired_lrp_scheduling_info.unwrap();
    assert_eq!(info.desired_lrp_resource.unwrap().memory_mb, 64);
    assert_eq!(info.desired_lrp_key.unwrap().log_guid, "log");
    let routing: m::DesiredLrpsResponse =
        client.call("/v1/desired_lrp_routing_infos/list", &m::DesiredLrpsRequest::default());
    let routing = &routing.desired_lrps[0];
    assert_eq!(routing.routes.as_ref().unwrap().routes["cf-router"], b"[1]");
    assert_eq!((routing.root_fs.as_str(), routing.memory_mb, &routing.action), ("", 0, &None));
    let tag = m::MetricTagValue { fixed: "app".into(), ..Default::default() };
    let routes = m::ProtoRoutes { routes: [("other".into(), b"{}".to_vec())].into() };
    let more = m::DesiredLrpUpdate {
        routes: Some(routes.clone()),
        metric_tags: [("source_id".into(), tag.clone()), ("more".into(), tag)].into(),
        image_username: Some("u".into()),
        image_password: Some("w".into()),
        ..Default::default()
    };
    let more = m::UpdateDesiredLrpRequest { process_guid: "p".into(), update: Some(more) };
    client.done("/v1/desired_lrp/update", &more);
    let got: m::DesiredLrpResponse =
        client.call("/v1/desired_lrps/get_by_process_guid.r3", &by_guid);
    let got = got.desired_lrp.unwrap();
    assert_eq!((got.routes, got.metric_tags.len()), (Some(routes), 2));
    assert_eq!((got.image_username.as_str(), got.image_password.as_str()), ("u", "w"));
    assert_eq!(got.annotation, "note", "what was not said stays");
    let update = m::DesiredLrpUpdate {
        instances: Some(0),
        annotation: Some("new".into()),
        ..Default::default()
    };
    let update = m::UpdateDesiredLrpRequest { process_guid: "p".into(), update: Some(update) };
    client.done("/v1/desired_lrp/update", &update);
    let got: m::DesiredLrpResponse =
        client.call("/v1/desired_lrps/get_by_process_guid.r3", &by_guid);
    let got = got.desired_lrp.unwrap();
    assert_eq!((got.instances, got.annotation.as_str()), (0, "new"));
    assert_eq!(got.routes.unwrap().routes.len(), 1, "what was not said stays");
    let remove = m::RemoveDesiredLrpRequest { process_guid: "p".into() };
    client.done("/v1/desired_lrp/remove", &remove);
    assert_eq!(client.refused("/v1/desired_lrp/remove", &remove).0, 13, "ResourceNotFound");
    assert_eq!(client.refused("/v1/desired_lrp/update", &update).0, 13);
    for path in [
        "/v1/desired_lrps/get_by_process_guid.r3",
        "/v1/desired_lrps/get_by_process_guid.r2",
        "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
    ] {
        assert_eq!(client.refused(path, &by_guid).0, 13, "{path}");
    }
}

#[test]
fn instances_and_groups_are_listed() {
    let stage = Stage::new();
    let mut client = stage.admin();
    desire(&mut client, "p", 3);
    desire(&mut client, "q", 1);
    let all: m::ActualLrpsResponse =
        client.call("/v1/actual_lrps/list", &m::ActualLrpsRequest::default());
    assert_eq!((all.error, all.actual_lrps.len()), (None, 4));
    let first = &all.actual_lrps[0];
    assert_eq!((first.state.as_str(), &first.routable), ("UNCLAIMED", &Some(false)));
    assert_eq!(first.actual_lrp_instance_key, Some(Default::default()), "empty, but there");
    let request = m::ActualLrpsRequest {
        process_guid: "p".into(),
        index: Some(0),
        domain: "apps".into(),
        ..Default::default()
    };
    let one: m::ActualLrpsResponse = client.call("/v1/actual_lrps/list", &request);
    assert_eq!(one.actual_lrps.len(), 1);
    let nowhere = m::ActualLrpsRequest { cell_id: "c".into(), ..Default::default() };
    let none = client.post("/v1/actual_lrps/list", &nowhere);
    assert_eq!((none.status, none.body.len()), (200, 0), "nothing found is a success");
    let path = "/v1/actual_lrps/list_by_process_guids";
    let request =
        m::ActualLrpsByProcessGuidsRequest { process_guids: vec!["q".into(), "no".into()] };
    let some: m::ActualLrpsByProcessGuidsResponse = client.call(path, &request);
    assert_eq!(some.actual_lrps.len(), 1);
    let refused = client.refused(path, &m::ActualLrpsByProcessGuidsRequest::default());
    assert_eq!(refused, (4, "process_guids must not be empty".into()));
    let groups: m::ActualLrpGroupsResponse =
        client.call("/v1/actual_lrp_groups/list", &m::ActualLrpGroupsRequest::default());
    assert_eq!(groups.actual_lrp_groups.len(), 4);
    let request = m::ActualLrpGroupsByProcessGuidRequest { process_guid: "p".into() };
    let groups: m::ActualLrpGroupsResponse =
        client.call("/v1/actual_lrp_groups/list_by_process_guid", &request);
    assert_eq!(groups.actual_lrp_groups.len(), 3);
    let path = "/v1/actual_lrp_groups/get_by_process_guid_and_index";
    let at =
        |index| m::ActualLrpGroupByProcessGuidAndIndexRequest { process_guid: "p".into(), index };
    let group: m::ActualLrpGroupResponse = client.call(path, &at(2));
    let group = group.actual_lrp_group.unwrap();
    assert_eq!(group.instance.unwrap().actual_lrp_key.unwrap().index, 2);
    assert_eq!(group.evacuating, None);
    assert_eq!(client.refused(path, &at(9)).0, 13);
}

#[test]
fn a_task_from_its_desire_to_its_end() {
    let stage = Stage::new();
    let mut client = stage.admin();
    client.done("/v1/tasks/desire.r2", &task("t"));
    assert_eq!(client.refused("/v1/tasks/desire.r2", &task("t")).0, 12);
    let by_guid = m::TaskByGuidRequest { task_guid: "t".into() };
    let got: m::TaskResponse = client.call("/v1/tasks/get_by_task_guid.r3", &by_guid);
    let got = got.task.unwrap();
    assert_eq!((got.state, got.task_definition.as_ref().unwrap().image_layers.len()), (1, 2));
    let older: m::TaskResponse = client.call("/v1/tasks/get_by_task_guid.r2", &by_guid);
    let older = older.task.unwrap().task_definition.unwrap();
    assert_eq!((older.image_layers.len(), older.cached_dependencies.len()), (0, 1));
    assert!(older.action.unwrap().serial_action.is_some(), "downloads before the action");
    for path in ["/v1/tasks/list.r3", "/v1/tasks/list.r2"] {
        let request = m::TasksRequest { domain: "apps".into(), ..Default::default() };
        let listed: m::TasksResponse = client.call(path, &request);
        assert_eq!(listed.tasks.len(), 1, "{path}");
    }
    let start = m::StartTaskRequest { task_guid: "t".into(), cell_id: "c".into() };
    let started: m::StartTaskResponse = client.call("/v1/tasks/start", &start);
    assert_eq!((started.error, started.should_start), (None, true));
    let started: m::StartTaskResponse = client.call("/v1/tasks/start", &start);
    assert!(!started.should_start, "only once");
    let complete = |cell: &str| m::CompleteTaskRequest {
        task_guid: "t".into(),
        cell_id: cell.into(),
        result: "42".into(),
        ..Default::default()
    };
    let wrong = client.refused("/v1/tasks/complete", &complete("other"));
    assert_eq!(wrong, (24, "Running on cell c not other".into()));
    client.done("/v1/tasks/complete", &complete("c"));
    let got: m::TaskResponse = client.call("/v1/tasks/get_by_task_guid.r3", &by_guid);
    let got = got.task.unwrap();
    assert_eq!((got.state, got.result.as_str(), got.failed), (3, "42", false));
    assert!(got.first_completed_at > 0);
    let guid = m::TaskGuidRequest { task_guid: "t".into() };
    let (kind, text) = client.refused("/v1/tasks/delete", &guid);
    assert_eq!(kind, 9);
    assert!(text.starts_with("Cannot transition from "), "{text}");
    client.done("/v1/tasks/resolving", &guid);
    client.done("/v1/tasks/delete", &guid);
    assert_eq!(client.refused("/v1/tasks/get_by_task_guid.r3", &by_guid).0, 13);
    assert_eq!(client.refused("/v1/tasks/cancel", &guid).0, 13);
    // Cancelled, failed, rejected.
    for guid in ["a", "b", "c"] {
        client.done("/v1/tasks/desire.r2", &task(guid));
    }
    client.done("/v1/tasks/cancel", &m::TaskGuidRequest { task_guid: "a".into() });
    let fail = m::FailTaskRequest { task_guid: "b".into(), failure_reason: "no".into() };
    client.done("/v1/tasks/fail", &fail);
    let reject = m::RejectTaskRequest { task_guid: "c".into(), rejection_reason: "full".into() };
    client.done("/v1/tasks/reject", &reject);
    let empty = m::RejectTaskRequest { task_guid: "c".into(), ..Default::default() };
    let refused = client.refused("/v1/tasks/reject", &empty);
    assert_eq!(refused, (4, "Invalid field: failure_reason".into()));
    let listed: m::TasksResponse = client.call("/v1/tasks/list.r3", &m::TasksRequest::default());
    let of = |guid: &str| listed.tasks.iter().find(|task| task.task_guid == guid).unwrap();
    assert!(of("a").failed && of("b").failed);
    assert_eq!(of("b").failure_reason, "no");
    assert!(of("c").rejection_count >= 1);
}

#[test]
fn what_breaks_rules_is_told_in_the_bbs_s_words() {
    let stage = Stage::new();
    let mut client = stage.admin();
    let path = "/v1/desired_lrp/desire.r2";
    let mut bad = lrp("p", -1);
    bad.domain.clear();
    bad.action = None;
    let refused = client.refused(path, &m::DesireLrpRequest { desired_lrp: Some(bad) });
    let expected = "Invalid field: domain, Invalid field: instances, invalid action type";
    assert_eq!(refused, (4, expected.into()));
    assert_eq!(client.refused(path, &m::DesireLrpRequest::default()).0, 4);
    // Bytes that are no message, and a body that is too large.
    client.send(&format!("POST {path}"), "content-type: application/x-protobuf\r\n", &[0xff; 9]);
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    let refused = <m::DesiredLrpLifecycleResponse as prost::Message>::decode(&answer.body[..]);
    let refused = refused.unwrap().error.unwrap();
    assert_eq!(refused.message, "the request received is invalid");
    let mut large = lrp("p", 1);
    large.annotation = "x".repeat(3 << 20);
    let refused = client.refused(path, &m::DesireLrpRequest { desired_lrp: Some(large) });
    assert!(refused.1.contains("the limit is"), "{refused:?}");
    // The connection is still good for more.
    let ping: m::PingResponse = client.call("/v1/ping", &NOTHING);
    assert!(ping.available);
}

#[test]
fn a_long_list_is_whole() {
    let stage = Stage::new();
    let mut client = stage.admin();
    for nth in 0..10 {
        desire(&mut client, &format!("p{nth}"), 600);
    }
    let answer = client.post("/v1/actual_lrps/list", &m::ActualLrpsRequest::default());
    assert_eq!(answer.header("transfer-encoding"), "chunked", "sent while it is written");
    let all = <m::ActualLrpsResponse as prost::Message>::decode(&answer.body[..]).unwrap();
    let mut keys: Vec<(String, i32)> = all
        .actual_lrps
        .into_iter()
        .map(|lrp| lrp.actual_lrp_key.unwrap())
        .map(|key| (key.process_guid, key.index))
        .collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 6_000, "each once");
}
