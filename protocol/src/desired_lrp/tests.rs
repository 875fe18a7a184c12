//! Tests of desired LRPs and their updates: names, rules and both encodings, as data.

use serde_json::json;

use super::*;
use crate::definition::tests::{check, complaints, round_trip};
use crate::validate::Valid;
use crate::wire::decode_json;

const SAMPLE: &str = include_str!("../../tests/samples/desired_lrp.json");
const BASE: &str = r#"{"process_guid":"p","domain":"d","rootfs":"preloaded:a",
    "action":{"run":{"path":"/a","user":"u"}}}"#;

#[test]
fn a_desired_lrp_with_every_field_is_valid_and_reads_as_it_writes() {
    let lrp: DesiredLrp = round_trip(SAMPLE);
    assert_eq!(lrp.definition.ports, [8080, 2222, 8080]);
    assert!(Valid::new(lrp).is_ok());
}

#[test]
fn a_small_desired_lrp_leaves_out_what_is_empty() {
    let lrp: DesiredLrp = decode_json(BASE.as_bytes()).unwrap();
    let value = serde_json::to_value(&lrp).unwrap();
    for absent in ["routes", "metric_tags", "modification_tag", "definition_id", "setup"] {
        assert!(value.get(absent).is_none(), "{absent} is there");
    }
    assert_eq!(value["instances"], json!(0));
    assert_eq!(value["annotation"], json!(""));
    assert_eq!(value["update_strategy"], json!(0));
}

#[test]
fn desired_lrps_keep_their_rules() {
    check::<DesiredLrp>(
        BASE,
        &[
            ("{}", ""),
            (
                r#"{"process_guid":"a b"}"#,
                "process_guid: process_guid \"a b\" may only contain letters, digits, '_' and '-'",
            ),
            (r#"{"process_guid":null}"#, ".: missing field `process_guid`"),
            (r#"{"domain":""}"#, "domain: domain must not be empty"),
            (r#"{"instances":100000}"#, ""),
            (r#"{"instances":100001}"#, "instances: is 100001, the limit is 100000"),
            (r#"{"instances":-1}"#, "instances: invalid value: integer `-1`, expected u32"),
            (r#"{"rootfs":""}"#, "rootfs: must not be empty"),
            (
                r#"{"action":{}}"#,
                concat!(
                    "action: an action needs one of download, upload, run, ",
                    "timeout, emit_progress, try, parallel, serial, codependent"
                ),
            ),
            (r#"{"metric_tags":{}}"#, ""),
            (r#"{"metric_tags":{"a":{"static":""}}}"#, "metric_tags.a.static: must not be empty"),
            (
                r#"{"metric_tags":{"a":{}}}"#,
                "metric_tags.a: a metric tag needs one of static, dynamic",
            ),
            (
                r#"{"metric_tags":{"a":{"static":"x","dynamic":"INDEX"}}}"#,
                "metric_tags.a: `static` is one too many: a metric tag has exactly one key",
            ),
            (
                r#"{"metric_tags":{"a":{"dynamic":"AGE"}}}"#,
                "metric_tags.a.dynamic: unknown variant `AGE`, expected `INDEX` or `INSTANCE_GUID`",
            ),
            (r#"{"metrics_guid":"m","metric_tags":{"source_id":{"static":"m"}}}"#, ""),
            (r#"{"metrics_guid":"m"}"#, ""),
            (
                r#"{"metrics_guid":"m","metric_tags":{"a":{"static":"x"}}}"#,
                "metric_tags.source_id: must be given, equal to metrics_guid \"m\"",
            ),
            (r#"{"metric_tags":{"source_id":{"dynamic":"INDEX"}}}"#, ""),
            (
                r#"{"metrics_guid":"m","metric_tags":{"source_id":{"static":"n"}}}"#,
                "metric_tags.source_id: must be static and equal to metrics_guid \"m\"",
            ),
            (
                r#"{"metrics_guid":"m","metric_tags":{"source_id":{"dynamic":"INDEX"}}}"#,
                "metric_tags.source_id: must be static and equal to metrics_guid \"m\"",
            ),
            (
                r#"{"egress_rules":[{"protocol":"all","destinations":["x"]}]}"#,
                "egress_rules[0].destinations[0]: \"x\" is no IP address, CIDR network or IP-IP range",
            ),
        ],
    );
}

#[test]
fn annotation_and_routes_have_an_end() {
    let long = |bytes| "x".repeat(bytes);
    for (key, value, expected) in [
        ("annotation", json!(long(10_240)), ""),
        ("annotation", json!(long(10_241)), "annotation: has 10241 bytes, the limit is 10240"),
        ("routes", json!({"a": long(65_534), "b": long(65_534)}), ""),
        (
            "routes",
            json!({"a": long(65_534), "b": long(65_535)}),
            "routes: has 131073 bytes of values, the limit is 131072",
        ),
        ("routes", json!({ long(4097): 1 }), "routes: has a key of 4097 bytes, the limit is 4096"),
    ] {
        let patch = json!({ key: value }).to_string();
        assert_eq!(complaints::<DesiredLrp>(BASE, &patch), expected);
        assert_eq!(complaints::<DesiredLrpUpdate>("{}", &patch), expected);
    }
}

#[test]
fn a_key_given_twice_is_refused_on_both_sides_of_the_flat_form() {
    for key in ["domain", "rootfs"] {
        let text = format!(r#"{{"{key}":"a","{key}":"b"}}"#);
        let error = decode_json::<DesiredLrp>(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(&format!("duplicate field `{key}`")), "{error}");
    }
}

#[test]
fn updates_keep_their_rules() {
    let update = round_trip(include_str!("../../tests/samples/desired_lrp_update.json"));
    assert!(Valid::<DesiredLrpUpdate>::new(update).is_ok());
    assert_eq!(round_trip::<DesiredLrpUpdate>("{}"), DesiredLrpUpdate::default());
    check::<DesiredLrpUpdate>(
        "{}",
        &[
            (r#"{"instances":0,"annotation":"","routes":{},"metric_tags":{}}"#, ""),
            (r#"{"instances":100001}"#, "instances: is 100001, the limit is 100000"),
            (r#"{"metric_tags":{"a":{"static":""}}}"#, "metric_tags.a.static: must not be empty"),
            (
                r#"{"image_username":"a"}"#,
                "image_password: must be given together with image_username",
            ),
            (
                r#"{"image_password":"a"}"#,
                "image_username: must be given together with image_password",
            ),
            (r#"{"image_username":"","image_password":""}"#, ""),
            (
                r#"{"image_username":"a","image_password":""}"#,
                "image_password: must be set when there is an image_username",
            ),
        ],
    );
}

#[test]
fn scheduling_info_is_flat() {
    let lrp: DesiredLrp = decode_json(SAMPLE.as_bytes()).unwrap();
    let info = DesiredLrpSchedulingInfo::from(lrp.clone());
    let expected = json!({
        "process_guid": "app-1_a", "domain": "cf apps", "log_guid": "log-1", "annotation": "note",
        "instances": 3, "memory_mb": 512, "disk_mb": 1024, "rootfs": "preloaded:cflinuxfs4",
        "max_pids": 100, "epoch": "01234567-89ab-4def-8123-456789abcdef", "index": 7,
        "routes": {
            "cf-router": [{"hostnames": ["a.example.com"], "port": 8080}],
            "diego-ssh": {"container_port": 2222, "user": "a b"}
        },
        "volume_placement": {"driver_names": ["disk", "nfs"]}, "placement_tags": ["windows"],
    });
    assert_eq!(serde_json::to_value(&info).unwrap(), expected);
    assert_eq!(round_trip::<DesiredLrpSchedulingInfo>(&expected.to_string()), info);
}

#[test]
fn routing_info_holds_nothing_that_routing_does_not_need() {
    let lrp: DesiredLrp = decode_json(SAMPLE.as_bytes()).unwrap();
    let info = routing_info(lrp.clone());
    assert_eq!((&info.routes, &info.metric_tags), (&lrp.routes, &lrp.metric_tags));
    assert_eq!(info.modification_tag, lrp.modification_tag);
    let text = serde_json::to_string(&info).unwrap();
    for secret in ["secret", "preloaded", "PATH", "note", "/bin/app"] {
        assert!(!text.contains(secret), "{secret} is there");
    }
    assert_eq!(round_trip::<DesiredLrp>(&text), info);
}
