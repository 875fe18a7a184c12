//! Tests of the payloads: what a subscriber reads, to the letter.

use serde_json::{Value, json};

use super::*;

const EPOCH: &str = "01234567-89ab-4def-8123-456789abcdef";

fn desired(instances: u32) -> Value {
    json!({
        "process_guid": "p", "domain": "d", "instances": instances, "annotation": "note",
        "routes": {"cf-router": [{"hostnames": ["a.example.com"], "port": 8080}]},
        "metric_tags": {"source_id": {"static": "s"}}, "update_strategy": 0,
        "modification_tag": {"epoch": EPOCH, "index": instances}, "definition_id": "v1",
        "rootfs": "host:", "env": [], "action": {"run": {
            "path": "/bin/true", "user": "nobody", "suppress_log_output": false,
            "volume_mounted_files": [],
        }},
        "start_timeout_ms": 0, "disk_mb": 32, "memory_mb": 64, "cpu_weight": 0, "max_pids": 0,
        "privileged": false, "log_source": "", "log_guid": "", "metrics_guid": "",
        "volume_mounted_files": [],
    })
}

fn unclaimed() -> Value {
    json!({
        "process_guid": "p", "index": 3, "domain": "d", "definition_id": "v1",
        "instance_guid": "", "cell_id": "", "address": "", "ports": [],
        "preferred_address": "UNKNOWN", "crash_count": 1, "crash_reason": "exit 1",
        "state": "UNCLAIMED", "placement_error": "no room", "since": 6,
        "modification_tag": {"epoch": EPOCH, "index": 1}, "presence": "ORDINARY",
        "availability_zone": "",
    })
}

fn claimed() -> Value {
    json!({
        "process_guid": "p", "index": 3, "domain": "d", "definition_id": "v1",
        "instance_guid": "ig-1", "cell_id": "cell-1", "address": "", "ports": [],
        "preferred_address": "UNKNOWN", "crash_count": 0,
        "state": "CLAIMED", "since": 7,
        "modification_tag": {"epoch": EPOCH, "index": 2}, "presence": "ORDINARY",
        "availability_zone": "",
    })
}

fn running(presence: &str) -> Value {
    json!({
        "process_guid": "p", "index": 3, "domain": "d", "definition_id": "v1",
        "instance_guid": "ig-2", "cell_id": "cell-2", "address": "10.0.0.2", "ports": [{
            "container_port": 8080, "host_port": 60001,
            "container_tls_proxy_port": 61001, "host_tls_proxy_port": 60002,
        }],
        "instance_address": "10.255.0.2", "preferred_address": "HOST",
        "instance_ipv6_address": "fd00::2", "crash_count": 0,
        "state": "RUNNING", "since": 8,
        "modification_tag": {"epoch": EPOCH, "index": 3}, "presence": presence,
        "actual_lrp_internal_routes": [{"hostname": "a.internal"}],
        "metric_tags": {"source_id": "s"}, "routable": true, "availability_zone": "z1",
    })
}

fn task(state: &str, cell_id: &str) -> Value {
    json!({
        "task_guid": "t", "domain": "d", "created_at": 1, "updated_at": 2,
        "first_completed_at": 0, "state": state, "cell_id": cell_id, "result": "",
        "failed": false, "failure_reason": "", "rejection_count": 0, "rejection_reason": "",
        "rootfs": "host:", "disk_mb": 0, "memory_mb": 0, "cpu_weight": 0, "privileged": false,
        "log_source": "", "log_guid": "", "metrics_guid": "", "result_file": "/result",
        "max_pids": 0, "image_username": "", "image_password": "", "volume_mounted_files": [],
    })
}

fn deployment(instances: u32) -> Arc<LrpDeployment> {
    let desired: crate::desired_lrp::DesiredLrp =
        serde_json::from_value(desired(instances)).unwrap();
    let tag = desired.modification_tag;
    Arc::new(LrpDeployment::promote(desired, tag))
}

fn lrp(json: Value) -> Arc<ActualLrp> {
    Arc::new(serde_json::from_value(json).unwrap())
}

fn group(instance: Option<Value>, evacuating: Option<Value>) -> LrpGroup {
    LrpGroup { instance: instance.map(lrp), evacuating: evacuating.map(lrp) }
}

fn task_record(state: &str, cell_id: &str) -> Arc<Task> {
    Arc::new(serde_json::from_value(task(state, cell_id)).unwrap())
}

fn check(event: &Event, name: &str, payload: &Value) {
    assert_eq!(event.name(), name);
    assert_eq!(serde_json::to_value(event).unwrap(), *payload, "{name}");
    // A value forgets a key that was written twice; the text has them all.
    let text = serde_json::to_string(event).unwrap();
    assert_eq!(text.len(), payload.to_string().len(), "{name}: {text}");
}

#[test]
fn desired_lrp_events_show_the_projection() {
    check(
        &Event::DesiredLrpCreated(deployment(2)),
        "desired_lrp_created",
        &json!({"desired_lrp": desired(2)}),
    );
    check(
        &Event::DesiredLrpChanged(deployment(2), deployment(5)),
        "desired_lrp_changed",
        &json!({"before": desired(2), "after": desired(5)}),
    );
    check(
        &Event::DesiredLrpRemoved(deployment(2)),
        "desired_lrp_removed",
        &json!({"desired_lrp": desired(2)}),
    );
}

#[test]
fn instance_events_show_whole_records() {
    check(
        &Event::InstanceCreated(lrp(unclaimed())),
        "actual_lrp_instance_created",
        &json!({"actual_lrp": unclaimed()}),
    );
    check(
        &Event::InstanceRemoved(lrp(running("SUSPECT"))),
        "actual_lrp_instance_removed",
        &json!({"actual_lrp": running("SUSPECT")}),
    );
}

#[test]
fn a_changed_instance_has_the_key_of_where_it_is_or_was() {
    let rows = [
        (unclaimed(), claimed(), "ig-1", "cell-1"),
        (claimed(), running("ORDINARY"), "ig-2", "cell-2"),
        (running("ORDINARY"), running("EVACUATING"), "ig-2", "cell-2"),
        (running("ORDINARY"), claimed(), "ig-1", "cell-1"),
        (claimed(), unclaimed(), "ig-1", "cell-1"),
        (unclaimed(), unclaimed(), "", ""),
    ];
    for (before, after, instance_guid, cell_id) in rows {
        check(
            &Event::InstanceChanged(lrp(before.clone()), lrp(after.clone())),
            "actual_lrp_instance_changed",
            &json!({
                "process_guid": "p", "index": 3, "domain": "d", "definition_id": "v1",
                "instance_guid": instance_guid, "cell_id": cell_id,
                "before": before, "after": after,
            }),
        );
    }
}

/// Who keeps records replaces them by what the event says, and has what the board has.
#[test]
fn both_sides_of_a_changed_instance_read_back_as_the_records() {
    let records = [unclaimed(), claimed(), running("ORDINARY"), running("SUSPECT")].map(lrp);
    for before in &records {
        for after in &records {
            let event = Event::InstanceChanged(Arc::clone(before), Arc::clone(after));
            let told = serde_json::to_value(event).unwrap();
            let read = |key| serde_json::from_value::<ActualLrp>(told[key].clone()).unwrap();
            assert_eq!((&read("before"), &read("after")), (&**before, &**after));
        }
    }
}

#[test]
fn a_crash_is_told_flat() {
    let was = lrp(running("ORDINARY"));
    let crash = Crash {
        key: was.key(),
        instance: was.instance().unwrap().clone(),
        crash_count: 2,
        crash_reason: "exit 1".into(),
        since: Timestamp::from_nanos(9),
    };
    let mut payload = json!({
        "process_guid": "p", "index": 3, "domain": "d", "definition_id": "v1",
        "instance_guid": "ig-2", "cell_id": "cell-2",
        "crash_count": 2, "crash_reason": "exit 1", "since": 9,
    });
    check(&Event::Crashed(crash.clone()), "actual_lrp_crashed", &payload);
    // What is not known is left out.
    let key = LrpKey { definition_id: None, ..crash.key.clone() };
    let silent = Crash { key, crash_reason: "".into(), ..crash };
    for unknown in ["definition_id", "crash_reason"] {
        payload.as_object_mut().unwrap().remove(unknown);
    }
    check(&Event::Crashed(silent), "actual_lrp_crashed", &payload);
}

#[test]
fn group_events_show_both_places_or_the_one_that_is_taken() {
    let (ordinary, evacuating) = (running("ORDINARY"), running("EVACUATING"));
    check(
        &Event::GroupCreated(group(Some(ordinary.clone()), None)),
        "actual_lrp_created",
        &json!({"actual_lrp_group": {"instance": ordinary.clone()}}),
    );
    check(
        &Event::GroupChanged(
            group(Some(claimed()), None),
            group(Some(claimed()), Some(evacuating.clone())),
        ),
        "actual_lrp_changed",
        &json!({
            "before": {"instance": claimed()},
            "after": {"instance": claimed(), "evacuating": evacuating.clone()},
        }),
    );
    check(
        &Event::GroupRemoved(group(None, Some(evacuating.clone()))),
        "actual_lrp_removed",
        &json!({"actual_lrp_group": {"evacuating": evacuating}}),
    );
}

#[test]
fn task_events_show_the_task_with_its_definition() {
    check(
        &Event::TaskCreated(task_record("Pending", "")),
        "task_created",
        &json!({"task": task("Pending", "")}),
    );
    check(
        &Event::TaskChanged(task_record("Pending", ""), task_record("Running", "cell-1")),
        "task_changed",
        &json!({"before": task("Pending", ""), "after": task("Running", "cell-1")}),
    );
    check(
        &Event::TaskRemoved(task_record("Resolving", "cell-1")),
        "task_removed",
        &json!({"task": task("Resolving", "cell-1")}),
    );
}

#[test]
fn an_event_has_no_binary_form() {
    let event = Event::DesiredLrpCreated(deployment(1));
    assert!(crate::wire::encode_frame(&event).is_err());
}

#[test]
fn readers_of_deployments_are_told_of_all_definitions() {
    use crate::deployment::Rollout;
    use crate::desired_lrp::DesiredLrp;
    let lrp: DesiredLrp = serde_json::from_value(desired(1)).unwrap();
    let tag = lrp.modification_tag;
    let before = Arc::new(LrpDeployment::promote(lrp, tag));
    let mut after = (*before).clone();
    let id = crate::id::DefinitionId::new("v0").unwrap();
    after.roll = Some(Box::new(Rollout::rising(Timestamp::from_secs(1), id)));
    let after = Arc::new(after);
    let created = Event::DesiredLrpCreated(Arc::clone(&before));
    let told = created.deployment().unwrap();
    assert_eq!(told.name(), "lrp_deployment_created");
    let told = serde_json::to_value(told).unwrap();
    assert_eq!(told["lrp_deployment"]["definitions"]["v1"]["memory_mb"], json!(64));
    let changed = Event::DesiredLrpChanged(Arc::clone(&before), Arc::clone(&after));
    let told = changed.deployment().unwrap();
    assert_eq!(told.name(), "lrp_deployment_changed");
    let told = serde_json::to_value(told).unwrap();
    assert!(told["before"].get("roll").is_none());
    assert_eq!(told["after"]["roll"]["previous_definition_id"], json!("v0"));
    // The older streams see the same step by projection.
    let told = serde_json::to_value(&changed).unwrap();
    assert!(told["before"].get("previous_definition_id").is_none());
    assert_eq!(told["after"]["previous_definition_id"], json!("v0"));
    let removed = Event::DesiredLrpRemoved(after);
    assert_eq!(removed.deployment().unwrap().name(), "lrp_deployment_removed");
    let lrp: ActualLrp = serde_json::from_value(claimed()).unwrap();
    assert!(Event::InstanceCreated(Arc::new(lrp)).deployment().is_none());
}
