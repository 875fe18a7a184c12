//! Bytes that were put together by hand, from the numbers and types in the tables of the BBS's messages.
//! A tag is the field's number times eight, plus 0 for a number and 2 for what has a length.

use std::sync::Arc;

use prost::Message as _;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::api::{
    ActualLrpsRequest, ApiError, DesireTaskRequest, EvacuateRunningActualLrpRequest,
    EvacuationResponse, LifecycleResponse, PingResponse, StartActualLrpRequest, StartTaskResponse,
    UpdateDesiredLrpRequest, UpsertDomainRequest,
};
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use volvox_protocol::diego::{
    DiegoReply as _, DiegoRequest as _, ListEntry as _, message as m, write,
};
use volvox_protocol::event::Event;

#[test]
fn a_domain_and_its_ttl() {
    // 1 domain "cf", 2 ttl 300.
    let bytes = [0x0a, 0x02, b'c', b'f', 0x10, 0xac, 0x02];
    let read = UpsertDomainRequest::from_diego(&bytes).unwrap();
    assert_eq!((read.domain.as_str(), read.ttl), ("cf", 300));
    // No ttl is a ttl of zero; fields that nobody knows are skipped.
    let bytes = [0x0a, 0x02, b'c', b'f', 0x78, 0x01, 0xfa, 0x01, 0x01, b'x'];
    assert_eq!(UpsertDomainRequest::from_diego(&bytes).unwrap().ttl, 0);
}

#[test]
fn a_filter_with_an_index_of_zero() {
    // 2 cell_id "z", 4 index 0: said, because it is one of a kind that can be left out.
    let read = ActualLrpsRequest::from_diego(&[0x12, 0x01, b'z', 0x20, 0x00]).unwrap();
    assert_eq!((read.cell_id.as_str(), read.index), ("z", Some(0)));
    assert_eq!(ActualLrpsRequest::from_diego(&[]).unwrap().index, None);
    // -1 takes ten bytes on the wire. It is a filter that nothing passes.
    let negative = [&[0x20][..], &[0xff; 9], &[0x01]].concat();
    assert_eq!(ActualLrpsRequest::from_diego(&negative).unwrap().index, Some(u32::MAX));
}

#[test]
fn a_task_with_one_action() {
    let run = [
        &[0x0a, 0x07][..],
        b"/bin/sh",
        // 2 args, twice.
        &[0x12, 0x02, b'-', b'c', 0x12, 0x01, b':'],
        // 5 resource_limits { 1 nofile 0 }.
        &[0x2a, 0x02, 0x08, 0x00],
        // 6 user, 8 suppress_log_output.
        &[0x32, 0x04],
        b"vcap",
        &[0x40, 0x01],
    ]
    .concat();
    let action = [&[0x1a, u8::try_from(run.len()).unwrap()][..], &run].concat();
    let definition = [
        &[0x0a, 0x0d][..],
        b"preloaded:fs4",
        &[0x1a, u8::try_from(action.len()).unwrap()],
        &action,
        // 5 memory_mb 128, 21 max_pids 1.
        &[0x28, 0x80, 0x01, 0xa8, 0x01, 0x01],
        // 27 metric_tags { "a": { 2 dynamic INDEX } }.
        &[0xda, 0x01, 0x07, 0x0a, 0x01, b'a', 0x12, 0x02, 0x10, 0x01],
    ]
    .concat();
    let bytes = [
        &[0x0a, u8::try_from(definition.len()).unwrap()][..],
        &definition,
        &[0x12, 0x02, b't', b'1', 0x1a, 0x01, b'd'],
    ]
    .concat();
    let read = DesireTaskRequest::from_diego(&bytes).unwrap();
    let shown = serde_json::to_value(&read.task_definition).unwrap();
    assert_eq!((read.task_guid.as_str(), read.domain.as_str()), ("t1", "d"));
    assert_eq!((&shown["rootfs"], &shown["memory_mb"]), (&"preloaded:fs4".into(), &128.into()));
    assert_eq!(shown["max_pids"], 1);
    assert_eq!(shown["metric_tags"]["a"]["dynamic"], "INDEX");
    let run = &shown["action"]["run"];
    assert_eq!(run["args"], serde_json::json!(["-c", ":"]));
    assert_eq!((&run["user"], &run["resource_limits"]["nofile"]), (&"vcap".into(), &0.into()));
    assert_eq!(run["suppress_log_output"], true);
}

/// The key `p`/1 of the domain `d`, then the instance `i` on the cell `c`.
const KEYS: [u8; 18] = [
    0x0a, 0x08, 0x0a, 0x01, b'p', 0x10, 0x01, 0x1a, 0x01, b'd', 0x12, 0x06, 0x0a, 0x01, b'i', 0x12,
    0x01, b'c',
];

#[test]
fn a_start_and_an_evacuation_have_other_numbers_for_the_same() {
    // 3 net info { 1 address, 2 ports { 1 8080, 2 61001 }, 4 preferred HOST }.
    let net = [
        &[0x1a, 0x0f, 0x0a, 0x02, b'1', b'0', 0x12, 0x07][..],
        &[0x08, 0x90, 0x3f, 0x10, 0xc9, 0xdc, 0x03],
        &[0x20, 0x02],
    ]
    .concat();
    // Start: 4 internal route { hostname "h" }, 6 routable false, 7 zone "z".
    let start =
        [&KEYS[..], &net, &[0x22, 0x03, 0x0a, 0x01, b'h', 0x30, 0x00, 0x3a, 0x01, b'z']].concat();
    let start = StartActualLrpRequest::from_diego(&start).unwrap();
    assert_eq!(start.actual_lrp_key.index, 1);
    assert_eq!(start.actual_lrp_net_info.ports[0].host_port, 61_001);
    let (.., running) = start.clone().into_parts();
    assert!(!running.routable, "a false that was said is false");
    // Evacuate: 5 internal route, 7 routable, 8 zone.
    let leave =
        [&KEYS[..], &net, &[0x2a, 0x03, 0x0a, 0x01, b'h', 0x38, 0x00, 0x42, 0x01, b'z']].concat();
    assert_eq!(EvacuateRunningActualLrpRequest::from_diego(&leave).unwrap().0, start);
    // Left out, it is taken for routable.
    let silent = [&KEYS[..], &net].concat();
    let (.., running) = StartActualLrpRequest::from_diego(&silent).unwrap().into_parts();
    assert!(running.routable);
}

#[test]
fn an_unclaimed_instance_has_its_empty_parts() {
    let lrp: ActualLrp = serde_json::from_str(
        r#"{"process_guid": "p", "index": 0, "domain": "d", "state": "UNCLAIMED",
            "placement_error": "full", "since": 300, "presence": "ORDINARY",
            "modification_tag": {"epoch": "", "index": 2}}"#,
    )
    .unwrap();
    let mut bytes = Vec::new();
    (&lrp).put_diego(&mut bytes);
    let expected = [
        // 1 key, without an index of zero; 2 and 3 empty, but there.
        &[0x0a, 0x06, 0x0a, 0x01, b'p', 0x1a, 0x01, b'd', 0x12, 0x00, 0x1a, 0x00][..],
        // 6 state, 7 placement error, 8 since.
        &[0x32, 0x09],
        b"UNCLAIMED",
        &[0x3a, 0x04],
        b"full",
        &[0x40, 0xac, 0x02],
        // 9 tag { 2 index 2 }.
        &[0x4a, 0x02, 0x10, 0x02],
        // 13 routable: said, though it is false.
        &[0x68, 0x00],
    ]
    .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn an_end_is_no_change_of_what_is_routable() {
    let running: ActualLrp = serde_json::from_str(
        r#"{"process_guid": "p", "index": 0, "domain": "d", "state": "RUNNING",
            "instance_guid": "i", "cell_id": "c", "since": 1, "presence": "ORDINARY",
            "routable": true, "modification_tag": {"epoch": "", "index": 1}}"#,
    )
    .unwrap();
    let crashed: ActualLrp = serde_json::from_str(
        r#"{"process_guid": "p", "index": 0, "domain": "d", "state": "CRASHED",
            "crash_count": 4, "since": 2, "presence": "ORDINARY",
            "modification_tag": {"epoch": "", "index": 2}}"#,
    )
    .unwrap();
    let event = Event::InstanceChanged(Arc::new(running), Arc::new(crashed));
    let bytes = write::event(&event, |lrp| lrp, "t");
    let before = [
        // 3 net info, empty; 6 state; 8 since; 9 tag; 11 routable.
        &[0x1a, 0x00, 0x32, 0x07][..],
        b"RUNNING",
        &[0x40, 0x01, 0x4a, 0x02, 0x10, 0x01, 0x58, 0x01],
    ]
    .concat();
    let after = [
        // 4 crash count.
        &[0x1a, 0x00, 0x20, 0x04, 0x32, 0x07][..],
        b"CRASHED",
        &[0x40, 0x02, 0x4a, 0x02, 0x10, 0x02, 0x58, 0x01],
    ]
    .concat();
    let expected = [
        // 1 key, 2 instance key: that of before.
        &[0x0a, 0x06, 0x0a, 0x01, b'p', 0x1a, 0x01, b'd'][..],
        &[0x12, 0x06, 0x0a, 0x01, b'i', 0x12, 0x01, b'c'],
        // 3 before, 4 after, 5 the caller's name for the call.
        &[0x1a, u8::try_from(before.len()).unwrap()],
        &before,
        &[0x22, u8::try_from(after.len()).unwrap()],
        &after,
        &[0x2a, 0x01, b't'],
    ]
    .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn a_running_instance_in_full() {
    let lrp: ActualLrp = serde_json::from_str(
        r#"{"process_guid": "p", "index": 1, "domain": "d", "state": "RUNNING",
            "instance_guid": "i", "cell_id": "c", "address": "a", "instance_address": "b",
            "preferred_address": "HOST", "ports": [{"container_port": 8080, "host_port": 61001,
                "container_tls_proxy_port": 0, "host_tls_proxy_port": 0}],
            "crash_count": 1, "crash_reason": "r", "since": 300, "presence": "SUSPECT",
            "actual_lrp_internal_routes": [{"hostname": "h"}], "metric_tags": {"k": "v"},
            "routable": true, "availability_zone": "z",
            "modification_tag": {"epoch": "", "index": 2}}"#,
    )
    .unwrap();
    let mut bytes = Vec::new();
    (&lrp).put_diego(&mut bytes);
    let expected = [
        // 1 key and 2 instance key.
        &KEYS[..],
        // 3 net info { 1 address, 2 ports { 1, 2 }, 3 instance address, 4 preferred HOST }.
        &[0x1a, 0x11, 0x0a, 0x01, b'a', 0x12, 0x07, 0x08, 0x90, 0x3f, 0x10, 0xc9, 0xdc, 0x03],
        &[0x1a, 0x01, b'b', 0x20, 0x02],
        // 4 crash count, 5 crash reason, 6 state, 8 since, 9 tag, 10 SUSPECT.
        &[0x20, 0x01, 0x2a, 0x01, b'r', 0x32, 0x07],
        b"RUNNING",
        &[0x40, 0xac, 0x02, 0x4a, 0x02, 0x10, 0x02, 0x50, 0x02],
        // 11 internal route { 1 hostname }, 12 tags { 1 key, 2 value }, 13 routable, 14 zone.
        &[0x5a, 0x03, 0x0a, 0x01, b'h', 0x62, 0x06, 0x0a, 0x01, b'k', 0x12, 0x01, b'v'],
        &[0x68, 0x01, 0x72, 0x01, b'z'],
    ]
    .concat();
    assert_eq!(bytes, expected);
}

#[test]
fn a_cell_in_full() {
    let cell = serde_json::from_value(serde_json::json!({
        "cell_id": "c", "rep_address": "a", "zone": "z", "rep_url": "u",
        "capacity": {"memory_mb": 300, "disk_mb": 2, "containers": 3},
        "rootfs_provider_list": [{"name": "preloaded", "properties": ["fs4"]}],
        "placement_tags": ["p"], "optional_placement_tags": ["o"], "annotations": {"k": "v"},
    }))
    .unwrap();
    let expected = [
        &[0x0a, 0x01, b'c', 0x12, 0x01, b'a', 0x1a, 0x01, b'z'][..],
        // 4 capacity, 5 provider { 1 name, 2 property }.
        &[0x22, 0x07, 0x08, 0xac, 0x02, 0x10, 0x02, 0x18, 0x03],
        &[0x2a, 0x10, 0x0a, 0x09],
        b"preloaded",
        &[0x12, 0x03, b'f', b's', b'4'],
        // 6 and 7 tags, 8 url, 9 annotations.
        &[0x32, 0x01, b'p', 0x3a, 0x01, b'o', 0x42, 0x01, b'u'],
        &[0x4a, 0x06, 0x0a, 0x01, b'k', 0x12, 0x01, b'v'],
    ]
    .concat();
    assert_eq!(write::cell_presence(cell).encode_to_vec(), expected);
}

#[test]
fn an_update_tells_nothing_from_empty() {
    // 1 process_guid "p", 2 update { 1 instances 0, 2 routes { 1 "r": "1" }, 3 annotation "",
    // 4 tags { "t": { 1 static "s" } }, 5 and 6 credentials }.
    let update = [
        &[0x08, 0x00, 0x12, 0x08, 0x0a, 0x06, 0x0a, 0x01, b'r', 0x12, 0x01, b'1', 0x1a, 0x00][..],
        &[0x22, 0x08, 0x0a, 0x01, b't', 0x12, 0x03, 0x0a, 0x01, b's'],
        &[0x2a, 0x01, b'u', 0x32, 0x01, b'w'],
    ]
    .concat();
    let bytes =
        [&[0x0a, 0x01, b'p', 0x12, u8::try_from(update.len()).unwrap()][..], &update].concat();
    let read = UpdateDesiredLrpRequest::from_diego(&bytes).unwrap().update;
    assert_eq!((read.instances, read.annotation.as_deref()), (Some(0), Some("")));
    assert_eq!(serde_json::to_value(&read.routes).unwrap(), serde_json::json!({"r": 1}));
    let tags = serde_json::to_value(&read.metric_tags).unwrap();
    assert_eq!(tags, serde_json::json!({"t": {"static": "s"}}));
    assert_eq!(read.image_username.as_deref(), Some("u"));
    let silent = UpdateDesiredLrpRequest::from_diego(&[0x0a, 0x01, b'p', 0x12, 0x00]).unwrap();
    assert_eq!(silent.update, DesiredLrpUpdate::default());
}

#[test]
fn a_container_is_kept_in_field_two() {
    let kept = EvacuationResponse { error: None, keep_container: true };
    assert_eq!(kept.into_diego(), [0x10, 0x01]);
    let started = StartTaskResponse { error: None, should_start: true };
    assert_eq!(started.into_diego(), [0x10, 0x01]);
}

#[test]
fn answers_have_their_error_in_field_one() {
    assert_eq!(PingResponse { available: true }.into_diego(), [0x08, 0x01]);
    assert!(LifecycleResponse { error: None }.into_diego().is_empty());
    let error = ApiError { kind: "InvalidRequest".into(), message: "x".into(), details: vec![] };
    let bytes = LifecycleResponse { error: Some(error) }.into_diego();
    assert_eq!(bytes, [0x0a, 0x05, 0x08, 0x04, 0x12, 0x01, b'x']);
    // Some kinds have the BBS's own words, whatever ours were.
    for (kind, number, words) in [
        ("ResourceExists", 12, "the requested resource already exists"),
        ("ResourceNotFound", 13, "the requested resource could not be found"),
        ("ActualLRPCannotBeClaimed", 15, "cannot claim actual LRP"),
        ("ActualLRPCannotBeStarted", 16, "cannot start actual LRP"),
        ("ActualLRPCannotBeCrashed", 17, "cannot crash actual LRP"),
        ("ActualLRPCannotBeFailed", 18, "cannot fail actual LRP"),
        ("ActualLRPCannotBeRemoved", 19, "cannot remove actual LRP"),
    ] {
        let error = ApiError { kind: kind.into(), message: "x".into(), details: vec![] };
        let told = write::error(&error);
        assert_eq!((told.kind, told.message.as_str()), (number, words), "{kind}");
    }
    // A kind of our own is unknown to the BBS: number zero, which is not written.
    let error = ApiError { kind: "Forbidden".into(), message: "x".into(), details: vec![] };
    let bytes = LifecycleResponse { error: Some(error) }.into_diego();
    assert_eq!(bytes, [0x0a, 0x03, 0x12, 0x01, b'x']);
}

#[test]
fn ports_are_written_one_by_one_and_read_either_way() {
    let lrp = m::DesiredLrp { ports: vec![80, 8080], ..Default::default() };
    assert_eq!(lrp.encode_to_vec(), [0x70, 0x50, 0x70, 0x90, 0x3f]);
    let packed = m::DesiredLrp::decode(&[0x72, 0x03, 0x50, 0x90, 0x3f][..]).unwrap();
    assert_eq!(packed.ports, [80, 8080]);
}

#[test]
fn what_is_desired_in_short() {
    let lrp: DesiredLrp = serde_json::from_str(
        r#"{"process_guid": "p", "domain": "d", "instances": 2, "rootfs": "preloaded:fs4",
            "routes": {"r": [1]}, "annotation": "n", "metric_tags": {"t": {"static": "s"}},
            "update_strategy": 1, "modification_tag": {"epoch": "", "index": 7},
            "env": [{"name": "A", "value": "b"}], "start_timeout_ms": 300, "memory_mb": 128,
            "cpu_weight": 4294967295, "ports": [8080, 80], "log_guid": "l",
            "action": {"run": {"path": "x", "user": "u", "suppress_log_output": false,
                "volume_mounted_files": []}},
            "monitor": {"timeout": {"timeout": -1, "timeout_ms": 5}},
            "egress_rules": [{"protocol": "icmp", "destinations": ["a"], "log": false,
                "icmp_info": {"type": -1, "code": 8}}],
            "log_rate_limit": {"bytes_per_second": -1}, "volume_mounted_files": []}"#,
    )
    .unwrap();
    // Below zero: ten bytes, whether the field has 32 bits or 64.
    let below = [&[0xff; 9][..], &[0x01]].concat();
    let expected = [
        // 1 process guid, 2 domain, 3 root fs, 4 instances.
        &[0x0a, 0x01, b'p', 0x12, 0x01, b'd', 0x1a, 0x0d][..],
        b"preloaded:fs4",
        &[0x20, 0x02],
        // 5 environment { 1 name, 2 value }.
        &[0x2a, 0x06, 0x0a, 0x01, b'A', 0x12, 0x01, b'b'],
        // 7 action { 3 run { 1 path, 6 user } }.
        &[0x3a, 0x08, 0x1a, 0x06, 0x0a, 0x01, b'x', 0x32, 0x01, b'u'],
        // 9 monitor { 4 timeout { 2 deprecated timeout -1, 4 timeout } }.
        &[0x4a, 0x0f, 0x22, 0x0d, 0x10],
        &below,
        &[0x20, 0x05],
        // 11 memory, 12 weight: all 32 bits of it.
        &[0x58, 0x80, 0x01, 0x60, 0xff, 0xff, 0xff, 0xff, 0x0f],
        // 14 ports, one by one; 15 routes { 1 { 1 router, 2 value } }.
        &[0x70, 0x90, 0x3f, 0x70, 0x50],
        &[0x7a, 0x0a, 0x0a, 0x08, 0x0a, 0x01, b'r', 0x12, 0x03, b'[', b'1', b']'],
        // 17 log guid, 19 annotation: from 16 on a tag has two bytes.
        &[0x8a, 0x01, 0x01, b'l', 0x9a, 0x01, 0x01, b'n'],
        // 20 egress rule { 1 protocol, 2 destination, 5 icmp { 1 type -1, 2 code } }.
        &[0xa2, 0x01, 0x18, 0x0a, 0x04],
        b"icmp",
        &[0x12, 0x01, b'a', 0x2a, 0x0d, 0x08],
        &below,
        &[0x10, 0x08],
        // 21 tag { 2 index }, 27 start timeout.
        &[0xaa, 0x01, 0x02, 0x10, 0x07, 0xd8, 0x01, 0xac, 0x02],
        // 35 metric tags { 1 name, 2 { 1 static } }.
        &[0x9a, 0x02, 0x08, 0x0a, 0x01, b't', 0x12, 0x03, 0x0a, 0x01, b's'],
        // 37 log rate limit { 1 bytes a second -1 }, 39 strategy RECREATE.
        &[0xaa, 0x02, 0x0b, 0x08],
        &below,
        &[0xb8, 0x02, 0x01],
    ]
    .concat();
    let mut bytes = Vec::new();
    (&lrp).put_diego(&mut bytes);
    assert_eq!(bytes, expected);
    assert_eq!(write::desired_lrp(lrp).encode_to_vec(), expected);
    // And the other way round.
    let message = m::DesiredLrp::decode(&expected[..]).unwrap();
    assert_eq!((message.cpu_weight, message.start_timeout_ms), (u32::MAX, 300));
    let icmp = message.egress_rules[0].icmp_info.as_ref().unwrap();
    assert_eq!((icmp.kind, icmp.code), (-1, 8));
    assert_eq!(message.log_rate_limit.unwrap().bytes_per_second, -1);
}

#[test]
fn a_time_of_our_days_takes_nine_bytes() {
    let lrp: ActualLrp = serde_json::from_str(
        r#"{"process_guid": "p", "index": 0, "domain": "d", "state": "CRASHED",
            "crash_count": 3000000000, "since": 1700000000123456789, "presence": "ORDINARY",
            "modification_tag": {"epoch": "", "index": 4294967295}}"#,
    )
    .unwrap();
    let mut bytes = Vec::new();
    (&lrp).put_diego(&mut bytes);
    let expected = [
        &[0x0a, 0x06, 0x0a, 0x01, b'p', 0x1a, 0x01, b'd', 0x12, 0x00, 0x1a, 0x00][..],
        // 4 crash count: more than the BBS can count is the most that it can.
        &[0x20, 0xff, 0xff, 0xff, 0xff, 0x07, 0x32, 0x07],
        b"CRASHED",
        // 8 since, seven bits at a time from the lowest; 9 tag { 2 index }.
        &[0x40, 0x95, 0x9a, 0x97, 0xec, 0xe3, 0x9f, 0xe7, 0xcb, 0x17],
        &[0x4a, 0x06, 0x10, 0xff, 0xff, 0xff, 0xff, 0x0f],
        &[0x68, 0x00],
    ]
    .concat();
    assert_eq!(bytes, expected);
}
