//! Tests of tasks: names, rules and both encodings, as data.

use serde_json::json;

use super::*;
use crate::definition::tests::{check, round_trip};
use crate::validate::Valid;
use crate::wire::decode_json;

const SAMPLE: &str = include_str!("../../tests/samples/task.json");
const BASE: &str = r#"{"rootfs":"preloaded:a","action":{"run":{"path":"/a","user":"u"}}}"#;

#[test]
fn a_task_with_every_field_reads_as_it_writes() {
    let task: Task = round_trip(SAMPLE);
    assert_eq!(task.cell_id.as_ref().map(CellId::as_str), Some("cell-1.z1"));
    let definition: TaskDefinition = decode_json(SAMPLE.as_bytes()).unwrap();
    assert_eq!(*task.definition, definition);
    assert_eq!(definition.volume_drivers(), ["nfs"]);
    assert!(Valid::new(definition).is_ok());
}

#[test]
fn a_task_to_be_created_needs_little() {
    let task: Task = decode_json(br#"{"task_guid":"t","domain":"d","cell_id":""}"#).unwrap();
    assert_eq!((task.state, &task.cell_id), (TaskState::Pending, &None));
    assert_eq!(serde_json::to_value(&task).unwrap()["cell_id"], json!(""));
    for (text, expected) in [
        ("{}", ".: missing field `task_guid`"),
        (r#"{"task_guid":"t"}"#, ".: missing field `domain`"),
        (r#"{"task_guid":"a/b"}"#, "task_guid: task_guid \"a/b\" may only contain"),
        (r#"{"cell_id":".."}"#, "cell_id: cell_id \"..\" may only contain"),
        (r#"{"state":"Done"}"#, "state: unknown variant `Done`"),
        (r#"{"action":{"run":{"args":[1]}}}"#, "action.run.args[0]: invalid type"),
        ("[]", ".: invalid type: sequence, expected a task"),
    ] {
        let error = decode_json::<Task>(text.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn states_go_by_their_names() {
    for (state, name) in [
        (TaskState::Pending, "\"Pending\""),
        (TaskState::Running, "\"Running\""),
        (TaskState::Completed, "\"Completed\""),
        (TaskState::Resolving, "\"Resolving\""),
    ] {
        assert_eq!(round_trip::<TaskState>(name), state);
    }
}

#[test]
fn task_definitions_keep_their_rules() {
    let url = |given: &str| format!("completion_callback_url: {given:?} is no http or https URL");
    check::<TaskDefinition>(
        BASE,
        &[
            ("{}", ""),
            (r#"{"rootfs":"a"}"#, "rootfs: \"a\" is no URL with a scheme"),
            (r#"{"action":null}"#, "action: must be given"),
            (r#"{"memory_mb":4294967295}"#, "memory_mb: is 4294967295, the limit is 1073741824"),
            (r#"{"disk_mb":-1}"#, "disk_mb: invalid value: integer `-1`, expected u32"),
            (r#"{"max_pids":4294967295}"#, "max_pids: is 4294967295, the limit is 4194304"),
            (r#"{"cpu_weight":2000}"#, "cpu_weight: is 2000, the limit is 1024"),
            (
                r#"{"log_rate_limit":{"bytes_per_second":-2}}"#,
                "log_rate_limit.bytes_per_second: is -2, must be -1 (no limit) or more",
            ),
            (r#"{"env":[{"name":""}]}"#, "env[0].name: must not be empty"),
            (r#"{"result_file":"a\u0000b"}"#, "result_file: must not contain a zero byte"),
            (r#"{"completion_callback_url":"http://a"}"#, ""),
            (r#"{"completion_callback_url":"HTTPS://a/b?c"}"#, ""),
            (r#"{"completion_callback_url":"ftp://a"}"#, &url("ftp://a")),
            (r#"{"completion_callback_url":"http:a"}"#, &url("http:a")),
            (r#"{"completion_callback_url":"http://"}"#, &url("http://")),
            (r#"{"completion_callback_url":"http:///a"}"#, &url("http:///a")),
            (r#"{"completion_callback_url":"http://a\nb"}"#, &url("http://a\nb")),
            (
                r#"{"egress_rules":[{"protocol":"x","destinations":["::"]}]}"#,
                "egress_rules[0].protocol: must be tcp, udp, icmp, icmpv6 or all, not \"x\"",
            ),
            (
                r#"{"cached_dependencies":[{"from":"","to":"a"}]}"#,
                "cached_dependencies[0].from: must not be empty",
            ),
            (
                r#"{"image_username":"a"}"#,
                "image_password: must be set when there is an image_username",
            ),
            (
                r#"{"image_layers":[{"url":"a","destination_path":"b","layer_type":"EXCLUSIVE","media_type":"TAR","digest_algorithm":"SHA256","digest_value":"0"}]}"#,
                "legacy_download_user: must be set for EXCLUSIVE layers",
            ),
            (
                r#"{"volume_mounts":[{"driver":"d"}]}"#,
                "volume_mounts[0].mode: must be r or rw, not \"\"",
            ),
            (r#"{"metric_tags":{"a":{"static":""}}}"#, "metric_tags.a.static: must not be empty"),
            (
                r#"{"volume_mounted_files":[{"path":".."}]}"#,
                "volume_mounted_files[0].path: must not contain '..'",
            ),
        ],
    );
}

#[test]
fn texts_of_a_task_have_an_end() {
    for (key, bytes, limit) in [("annotation", 10_241, 10_240), ("result_file", 4_097, 4_096)] {
        let patch = json!({ key: "x".repeat(bytes) }).to_string();
        let expected = format!("{key}: has {bytes} bytes, the limit is {limit}");
        check::<TaskDefinition>(BASE, &[(&patch, &expected)]);
    }
}

#[test]
fn the_callback_tells_how_the_task_went() {
    let task: Task = decode_json(SAMPLE.as_bytes()).unwrap();
    let expected = json!({
        "task_guid": "task-1", "failed": true, "failure_reason": "exit 3", "result": "42",
        "annotation": "note", "created_at": 1_700_000_000_000_000_001_u64,
    });
    assert_eq!(serde_json::to_value(TaskCallback::from(&task)).unwrap(), expected);
    round_trip::<TaskCallback>(&expected.to_string());
}
