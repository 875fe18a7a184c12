//! Tests of definitions and their parts: names, rules and both encodings, as data.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;
use crate::desired_lrp::DesiredLrp;
use crate::limits::ENTRIES;
use crate::validate::{Valid, Validate};
use crate::wire::{decode_frame, decode_json, encode_frame};

/// Lays the keys of `patch` over those of `base`, reads that as a `T` and tells every complaint
/// about it, of the reader or of the rules; nothing when there is none.
pub(crate) fn complaints<T: DeserializeOwned + Validate>(base: &str, patch: &str) -> String {
    let mut value: Value = serde_json::from_str(base).unwrap();
    let patch: serde_json::Map<String, Value> = serde_json::from_str(patch).unwrap();
    value.as_object_mut().unwrap().extend(patch);
    match decode_json::<T>(value.to_string().as_bytes()) {
        Ok(value) => Valid::new(value).err().map(|bad| bad.to_string()).unwrap_or_default(),
        // Where in the text is of no interest here.
        Err(error) => error.to_string().split(" at line ").next().unwrap_or_default().to_owned(),
    }
}

/// Holds every row, a patch and the complaints about it, against the rules of `T`.
pub(crate) fn check<T: DeserializeOwned + Validate>(base: &str, rows: &[(&str, &str)]) {
    for (patch, expected) in rows {
        assert_eq!(complaints::<T>(base, patch), *expected, "for {patch}");
    }
}

/// Asserts that `json` reads as a `T` that writes the very same JSON, and survives a frame.
pub(crate) fn round_trip<T>(json: &str) -> T
where
    T: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug,
{
    let value: T = decode_json(json.as_bytes()).unwrap();
    let expected: Value = serde_json::from_str(json).unwrap();
    assert_eq!(serde_json::to_value(&value).unwrap(), expected);
    let text = serde_json::to_vec(&value).unwrap();
    assert_eq!(decode_json::<T>(&text).unwrap(), value);
    assert_eq!(decode_frame::<T>(&encode_frame(&value).unwrap()).unwrap(), value);
    value
}

const BASE: &str = r#"{"rootfs":"preloaded:a","action":{"run":{"path":"/a","user":"u"}}}"#;

#[test]
fn a_definition_with_every_field_reads_as_it_writes() {
    let lrp: DesiredLrp = round_trip(include_str!("../../tests/samples/desired_lrp.json"));
    let text = serde_json::to_string(&lrp.definition).unwrap();
    assert_eq!(round_trip::<LrpDefinition>(&text), lrp.definition);
    assert_eq!(lrp.definition.volume_drivers(), ["disk", "nfs"]);
    assert_eq!(lrp.definition.distinct_ports(), [8080, 2222]);
}

#[test]
fn an_empty_definition_shows_only_the_keys_that_are_always_there() {
    assert_eq!(
        serde_json::to_string(&LrpDefinition::default()).unwrap(),
        r#"{"rootfs":"","env":[],"start_timeout_ms":0,"disk_mb":0,"memory_mb":0,"cpu_weight":0,"#
            .to_owned()
            + r#""max_pids":0,"privileged":false,"log_source":"","log_guid":"","metrics_guid":"","#
            + r#""volume_mounted_files":[]}"#,
    );
}

#[test]
fn texts_and_numbers_of_a_definition_keep_their_rules() {
    check::<LrpDefinition>(
        BASE,
        &[
            ("{}", ""),
            (r#"{"unknown":[{}],"env":null}"#, ""),
            (r#"{"rootfs":""}"#, "rootfs: must not be empty"),
            (r#"{"rootfs":"host:"}"#, ""),
            (r#"{"rootfs":"cflinuxfs4"}"#, r#"rootfs: "cflinuxfs4" is no URL with a scheme"#),
            (r#"{"rootfs":":a"}"#, r#"rootfs: ":a" is no URL with a scheme"#),
            (r#"{"rootfs":"1a:b"}"#, r#"rootfs: "1a:b" is no URL with a scheme"#),
            (r#"{"rootfs":"a:b\nc"}"#, r#"rootfs: "a:b\nc" is no URL with a scheme"#),
            (r#"{"memory_mb":-1}"#, "memory_mb: invalid value: integer `-1`, expected u32"),
            (r#"{"memory_mb":1073741825}"#, "memory_mb: is 1073741825, the limit is 1073741824"),
            (r#"{"disk_mb":1073741825}"#, "disk_mb: is 1073741825, the limit is 1073741824"),
            (r#"{"cpu_weight":1025}"#, "cpu_weight: is 1025, the limit is 1024"),
            (r#"{"max_pids":4194305}"#, "max_pids: is 4194305, the limit is 4194304"),
            (
                r#"{"start_timeout_ms":31622400001}"#,
                "start_timeout_ms: is 31622400001, the limit is 31622400000",
            ),
            (r#"{"ports":[1,65535,1]}"#, ""),
            (
                r#"{"ports":[0,65536]}"#,
                "ports[0]: is 0, a port is 1 to 65535, ports[1]: is 65536, a port is 1 to 65535",
            ),
            (r#"{"log_source":"a\u0000"}"#, "log_source: must not contain a zero byte"),
            (r#"{"log_rate_limit":{"bytes_per_second":-1}}"#, ""),
            (
                r#"{"log_rate_limit":{"bytes_per_second":-2}}"#,
                "log_rate_limit.bytes_per_second: is -2, must be -1 (no limit) or more",
            ),
            (r#"{"env":[{"name":"A"}]}"#, ""),
            (r#"{"env":[{}]}"#, "env[0]: missing field `name`"),
            (r#"{"env":[{"name":""}]}"#, "env[0].name: must not be empty"),
            (r#"{"env":[{"name":"A=B"}]}"#, "env[0].name: must not contain '='"),
            (
                r#"{"env":[{"name":"A","value":"\u0000"}]}"#,
                "env[0].value: must not contain a zero byte",
            ),
            (
                r#"{"volume_mounted_files":[{"path":""},{"path":"a/../b"}]}"#,
                "volume_mounted_files[0].path: must not be empty, \
                 volume_mounted_files[1].path: must not contain '..'",
            ),
            (
                r#"{"image_username":"a"}"#,
                "image_password: must be set when there is an image_username",
            ),
            (
                r#"{"image_password":"a"}"#,
                "image_username: must be set when there is an image_password",
            ),
        ],
    );
}

#[test]
fn actions_of_a_definition_keep_their_rules() {
    check::<LrpDefinition>(
        BASE,
        &[
            (r#"{"action":null}"#, "action: must be given"),
            (
                r#"{"setup":{"run":{"user":"u"}},"monitor":{"run":{"path":"/p"}}}"#,
                "setup.run.path: must not be empty, monitor.run.user: must not be empty",
            ),
            (r#"{"sidecars":[{}]}"#, "sidecars[0].action: must be given"),
            (
                r#"{"sidecars":[{"action":{"run":{"path":"/p"}},"disk_mb":4294967295,"memory_mb":4294967295}]}"#,
                "sidecars[0].action.run.user: must not be empty, \
                 sidecars[0].disk_mb: is 4294967295, the limit is 1073741824, \
                 sidecars[0].memory_mb: is 4294967295, the limit is 1073741824",
            ),
        ],
    );
}

#[test]
fn dependencies_and_layers_keep_their_rules() {
    check::<LrpDefinition>(
        BASE,
        &[
            (
                r#"{"cached_dependencies":[{"from":"","to":""}]}"#,
                "cached_dependencies[0].from: must not be empty, \
                 cached_dependencies[0].to: must not be empty",
            ),
            (
                r#"{"cached_dependencies":[{"to":""}]}"#,
                "cached_dependencies[0]: missing field `from`",
            ),
            (
                r#"{"cached_dependencies":[{"from":"a","to":"b","checksum_value":"0"}]}"#,
                "cached_dependencies[0].checksum_algorithm: must be set when there is a checksum_value",
            ),
            (
                r#"{"cached_dependencies":[{"from":"a","to":"b","checksum_algorithm":"Sha1"}]}"#,
                "cached_dependencies[0].checksum_value: must be set when there is a checksum_algorithm",
            ),
            (
                r#"{"cached_dependencies":[{"from":"a","to":"b","checksum_algorithm":"crc","checksum_value":"0"}]}"#,
                r#"cached_dependencies[0].checksum_algorithm: must be md5, sha1 or sha256, not "crc""#,
            ),
            (
                r#"{"image_layers":[{"url":"","destination_path":""}]}"#,
                "image_layers[0].url: must not be empty, \
                 image_layers[0].destination_path: must not be empty, \
                 image_layers[0].layer_type: must be SHARED or EXCLUSIVE, \
                 image_layers[0].media_type: must be TGZ, TAR or ZIP",
            ),
            (
                r#"{"image_layers":[{"url":"a","destination_path":"b","layer_type":"NEW"}]}"#,
                "image_layers[0].layer_type: unknown variant `NEW`, expected one of \
                 `LayerTypeInvalid`, `SHARED`, `EXCLUSIVE`",
            ),
            (
                r#"{"legacy_download_user":"u","image_layers":[{"url":"a","destination_path":"b","layer_type":"EXCLUSIVE","media_type":"TAR"}]}"#,
                "image_layers[0].digest_algorithm: must be SHA256 or SHA512 for an EXCLUSIVE layer",
            ),
            (
                r#"{"image_layers":[{"url":"a","destination_path":"b","layer_type":"EXCLUSIVE","media_type":"TAR","digest_algorithm":"SHA512","digest_value":"0"}]}"#,
                "legacy_download_user: must be set for EXCLUSIVE layers",
            ),
            (
                r#"{"image_layers":[{"url":"a","destination_path":"b","layer_type":"SHARED","media_type":"TAR","digest_value":"0"}]}"#,
                "image_layers[0].digest_algorithm: must be SHA256 or SHA512 when there is a digest_value",
            ),
            (
                r#"{"image_layers":[{"url":"a","destination_path":"b","layer_type":"SHARED","media_type":"TAR","digest_algorithm":"SHA256"}]}"#,
                "image_layers[0].digest_value: must be set when there is a digest_algorithm",
            ),
        ],
    );
}

#[test]
fn volumes_and_checks_keep_their_rules() {
    check::<LrpDefinition>(
        BASE,
        &[
            (r#"{"volume_mounts":[{"driver":"d","mode":"r"}]}"#, ""),
            (
                r#"{"volume_mounts":[{"driver":"","mode":"w"}]}"#,
                r#"volume_mounts[0].driver: must not be empty, volume_mounts[0].mode: must be r or rw, not "w""#,
            ),
            (
                r#"{"volume_mounts":[{"driver":"d","mode":"r","shared":{},"dedicated":{}}]}"#,
                "volume_mounts[0].shared.volume_id: must not be empty, \
                 volume_mounts[0].dedicated.mounter_id: must not be empty",
            ),
            (
                r#"{"check_definition":{"checks":[{}]}}"#,
                "check_definition.checks[0]: a check needs one of tcp_check, http_check",
            ),
            (
                r#"{"check_definition":{"checks":[{"tcp_check":{"port":1},"http_check":{"port":1}}]}}"#,
                "check_definition.checks[0]: `tcp_check` is one too many: a check has exactly one key",
            ),
            (r#"{"check_definition":{"checks":[{"tcp_check":{"port":1},"http_check":null}]}}"#, ""),
            (
                r#"{"check_definition":{"checks":[{"tcp_check":{}}],"readiness_checks":[{"http_check":{"port":65536}}]}}"#,
                "check_definition.checks[0].tcp_check.port: is 0, a port is 1 to 65535, \
                 check_definition.readiness_checks[0].http_check.port: is 65536, a port is 1 to 65535",
            ),
            (
                r#"{"check_definition":{"checks":[{"http_check":{"port":1,"path":"/a\r\nb"}}]}}"#,
                "check_definition.checks[0].http_check.path: must not contain spaces or control characters",
            ),
            (
                r#"{"check_definition":{"checks":[{"tcp_check":{"port":1,"interval_ms":99999999999}}]}}"#,
                "check_definition.checks[0].tcp_check.interval_ms: is 99999999999, the limit is 31622400000",
            ),
        ],
    );
}

#[test]
fn every_list_and_text_has_an_end() {
    let long = "x".repeat(4097);
    let many = |entry: &str, count: usize| vec![entry; count].join(",");
    let run = r#"{"run":{"path":"/a","user":"u"}}"#;
    let rows = [
        (format!(r#"{{"log_guid":"{long}"}}"#), "log_guid: has 4097 bytes, the limit is 4096"),
        (
            format!(r#"{{"placement_tags":["{long}"]}}"#),
            "placement_tags[0]: has 4097 bytes, the limit is 4096",
        ),
        (
            format!(r#"{{"placement_tags":[{}]}}"#, many("\"\"", ENTRIES + 1)),
            "placement_tags: has 257 entries, the limit is 256",
        ),
        (
            format!(r#"{{"certificate_properties":{{"organizational_unit":["{long}"]}}}}"#),
            "certificate_properties.organizational_unit[0]: has 4097 bytes, the limit is 4096",
        ),
        (
            format!(r#"{{"network":{{"properties":{{"a":"{long}"}}}}}}"#),
            "network.properties.a: has 4097 bytes, the limit is 4096",
        ),
        (
            format!(r#"{{"network":{{"properties":{{"{long}":""}}}}}}"#),
            "network.properties: has a key of 4097 bytes, the limit is 4096",
        ),
        (
            format!(r#"{{"ports":[{}]}}"#, many("1", 257)),
            "ports: has 257 entries, the limit is 256",
        ),
        (
            format!(r#"{{"env":[{}]}}"#, many(r#"{"name":"A"}"#, 4097)),
            "env: has 4097 entries, the limit is 4096",
        ),
        (
            format!(r#"{{"env":[{{"name":"A","value":"{}"}}]}}"#, "x".repeat(131_073)),
            "env[0].value: has 131073 bytes, the limit is 131072",
        ),
        (
            format!(
                r#"{{"egress_rules":[{}]}}"#,
                many(r#"{"protocol":"all","destinations":["::"]}"#, 4097)
            ),
            "egress_rules: has 4097 entries, the limit is 4096",
        ),
        (
            format!(
                r#"{{"volume_mounted_files":[{{"path":"a","content":"{}"}}]}}"#,
                "x".repeat((1 << 20) + 1)
            ),
            "volume_mounted_files: has 1048577 bytes of content, the limit is 1048576",
        ),
        (
            format!(r#"{{"sidecars":[{}]}}"#, many(&format!(r#"{{"action":{run}}}"#), 257)),
            "sidecars: has 257 entries, the limit is 256",
        ),
    ];
    for (patch, expected) in rows {
        assert_eq!(complaints::<LrpDefinition>(BASE, &patch), expected);
    }
}

#[test]
fn a_complaint_never_repeats_a_long_text() {
    let long = "é".repeat(2000);
    let text = complaints::<LrpDefinition>(BASE, &format!(r#"{{"rootfs":"{long}"}}"#));
    assert_eq!(text, format!("rootfs: \"{}…\" is no URL with a scheme", "é".repeat(64)));
}

#[test]
fn a_route_value_is_any_json_kept_as_text() {
    let text = r#"{"a": [1, 2.50, 1e400, "x \" y"], "b" : null }"#;
    let value: RouteValue = decode_json(text.as_bytes()).unwrap();
    assert_eq!(value.as_str(), r#"{"a":[1,2.50,1e400,"x \" y"],"b":null}"#);
    assert_eq!(serde_json::to_string(&value).unwrap(), value.as_str());
    assert_eq!(RouteValue::new(value.as_str()).unwrap(), value);
    assert_eq!(decode_frame::<RouteValue>(&encode_frame(&value).unwrap()).unwrap(), value);
    for plain in ["null", "1", "\"\\\\\"", "[]"] {
        assert_eq!(RouteValue::new(plain).unwrap().as_str(), plain);
    }
}

#[test]
fn what_is_no_json_is_no_route_value_in_either_form() {
    for bad in ["", "{", "1 2", "{a:1}", "nul"] {
        assert!(matches!(RouteValue::new(bad), Err(RouteError::Json(_))), "{bad:?}");
        assert!(decode_frame::<RouteValue>(&encode_frame(&bad).unwrap()).is_err(), "{bad:?}");
    }
    let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(RouteValue::new(&nested(64)).is_ok());
    assert_eq!(RouteValue::new(&nested(65)), Err(RouteError::Depth));
    assert_eq!(RouteValue::new(&nested(1_000_000)), Err(RouteError::Depth));
}

#[test]
fn an_update_strategy_is_a_number() {
    assert_eq!(round_trip::<UpdateStrategy>("1"), UpdateStrategy::Recreate);
    let text = decode_json::<UpdateStrategy>(b"2").unwrap_err().to_string();
    assert!(text.contains("0 (rolling) or 1 (recreate), not 2"), "{text}");
}
