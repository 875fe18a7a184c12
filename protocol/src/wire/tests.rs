//! Tests of decoding: limits, versions, lies about lengths.

use std::mem::size_of;

use super::*;
use crate::action::{
    Action, CodependentAction, DownloadAction, EmitProgressAction, EnvironmentVariable, File,
    ParallelAction, RunAction, SerialAction, TimeoutAction, TryAction, UploadAction,
};
use crate::cell::{CellInfo, CellLoad, RootfsProvider};
use crate::definition::{
    CachedDependency, Check, ImageLayer, LrpDefinition, Routes, Sidecar, VolumeMount,
};
use crate::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use crate::egress::SecurityGroupRule;
use crate::task::{Task, TaskDefinition};

const MIB: usize = 1 << 20;

#[test]
fn json_is_measured_before_it_is_read() {
    let text = vec![b'x'; JSON_BYTES + 1];
    let expected = DecodeError::TooLarge { given: JSON_BYTES + 1, limit: JSON_BYTES };
    assert_eq!(decode_json::<String>(&text), Err(expected));
    let mut text = vec![b'x'; JSON_BYTES];
    (text[0], text[JSON_BYTES - 1]) = (b'"', b'"');
    assert_eq!(decode_json::<String>(&text).unwrap().len(), JSON_BYTES - 2);
}

#[test]
fn a_json_error_says_where() {
    for (text, path) in [
        (&br#"{"definition":1,"ports":[1,"a"]}"#[..], "ports[1]"),
        (
            br#"{"action":{"serial":{"actions":[{"try":{"log_source":1}}]}}}"#,
            "action.serial.actions[0].try.log_source",
        ),
        (br#"{"routes":{"a":{"b":}}}"#, "routes.a"),
        (br#"{"metric_tags":{"a":{"dynamic":7}}}"#, "metric_tags.a.dynamic"),
        (br#"{"modification_tag":{"epoch":"x"}}"#, "modification_tag.epoch"),
        (br#"{"domain":"a","process_guid":"b"} {}"#, "."),
        (b"", "."),
    ] {
        match decode_json::<DesiredLrp>(text) {
            Err(DecodeError::Json { path: given, .. }) => assert_eq!(given, path),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_json_error_does_not_repeat_its_input() {
    let text = format!(r#"{{"{}":1}}"#, "é".repeat(100_000));
    let error = decode_json::<Action>(text.as_bytes()).unwrap_err().to_string();
    assert!(error.len() < 2 * MESSAGE_BYTES + 16, "{} bytes", error.len());
}

#[test]
fn a_frame_is_a_version_and_a_record() {
    assert_eq!(encode_frame(&7_u8).unwrap(), [WIRE_VERSION, 7]);
    assert_eq!(decode_frame::<u8>(&[WIRE_VERSION, 7]), Ok(7));
    assert_eq!(decode_frame::<u8>(&[]), Err(DecodeError::Empty));
    assert_eq!(decode_frame::<u8>(&[WIRE_VERSION, 7, 8, 9]), Err(DecodeError::Trailing(2)));
    assert!(matches!(decode_frame::<u8>(&[WIRE_VERSION]), Err(DecodeError::Frame(_))));
    let text = decode_frame::<u8>(&[9, 7]).unwrap_err().to_string();
    assert_eq!(text, "the frame has wire version 9, we speak version 1");
}

#[test]
fn frames_are_measured_on_both_ways() {
    let fits = "x".repeat(FRAME_BYTES - 5);
    let frame = encode_frame(&fits).unwrap();
    assert_eq!(frame.len(), FRAME_BYTES);
    assert_eq!(decode_frame::<String>(&frame).unwrap(), fits);
    let given = FRAME_BYTES + 1;
    assert_eq!(encode_frame(&format!("{fits}x")), Err(EncodeError::TooLarge { given }));
    let expected = DecodeError::TooLarge { given, limit: FRAME_BYTES };
    assert_eq!(decode_frame::<String>(&vec![WIRE_VERSION; given]), Err(expected));
}

#[test]
fn a_length_that_lies_is_found_out() {
    // A version, then a length of 2^63 in the first place where the record has one.
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let lie = |before: &[u8]| [&[WIRE_VERSION], before, &huge[..], &[0; 64]].concat();
    assert!(decode_frame::<String>(&lie(&[])).is_err());
    assert!(decode_frame::<Vec<u64>>(&lie(&[])).is_err());
    assert!(decode_frame::<Routes>(&lie(&[])).is_err());
    assert!(decode_frame::<LrpDefinition>(&lie(&[])).is_err(), "rootfs");
    assert!(decode_frame::<LrpDefinition>(&lie(&[0])).is_err(), "env");
    assert!(decode_frame::<Action>(&lie(&[7])).is_err(), "actions of a serial action");
    assert!(decode_frame::<Task>(&lie(&[1, b't', 1, b'd', 0])).is_err(), "env");
    assert!(decode_frame::<CellInfo>(&lie(&[1, b'c', 0, 0, 0, 0])).is_err(), "providers");
}

#[test]
fn megabytes_of_openers_overflow_nothing() {
    let json = [
        "[",
        "{\"a\":",
        r#"{"action":"#,
        r#"{"routes":"#,
        r#"{"routes":{"a":["#,
        r#"{"try":{"action":"#,
        r#"{"serial":{"actions":["#,
    ];
    for opener in json {
        let text = opener.repeat(4 * MIB / opener.len() - 16);
        let inside = format!(r#"{{"action":{text}"#);
        for text in [text.as_bytes(), inside.as_bytes()] {
            assert!(text.len() <= JSON_BYTES, "it must get past the measure");
            assert!(decode_json::<DesiredLrp>(text).is_err(), "{opener}");
            assert!(decode_json::<DesiredLrpUpdate>(text).is_err(), "{opener}");
            assert!(decode_json::<TaskDefinition>(text).is_err(), "{opener}");
            assert!(decode_json::<Task>(text).is_err(), "{opener}");
            assert!(decode_json::<Action>(text).is_err(), "{opener}");
            assert!(decode_json::<Routes>(text).is_err(), "{opener}");
        }
    }
    // A try, a timeout and a progress action; serial actions of one; of many.
    for opener in [&[5_u8, 1][..], &[3, 1], &[4, 1], &[7, 1], &[7, 0xff, 0x7f]] {
        let mut frame = vec![WIRE_VERSION];
        frame.extend(opener.iter().cycle().take(4 * MIB - 16));
        assert!(decode_frame::<Action>(&frame).is_err(), "{opener:?}");
        frame.splice(1..1, [0, 0, 1]);
        assert!(decode_frame::<LrpDefinition>(&frame).is_err(), "{opener:?}");
        assert!(decode_frame::<CellLoad>(&frame).is_err(), "{opener:?}");
    }
}

/// Holds the promise of this module's header: what the cheapest entry of a list costs in memory,
/// against the bytes that it takes in JSON (with its comma) and in a frame.
#[test]
fn no_entry_of_a_list_is_forty_times_as_large_as_its_input() {
    let rows = [
        ("text", size_of::<String>(), 3, 1),
        ("variable", size_of::<EnvironmentVariable>(), r#"{"name":""},"#.len(), 2),
        ("file", size_of::<File>(), r#"{"path":""},"#.len(), 2),
        (
            "egress rule",
            size_of::<SecurityGroupRule>(),
            r#"{"protocol":"","destinations":[]},"#.len(),
            7,
        ),
        ("dependency", size_of::<CachedDependency>(), r#"{"from":"","to":""},"#.len(), 7),
        ("layer", size_of::<ImageLayer>(), r#"{"url":"","destination_path":""},"#.len(), 7),
        ("volume", size_of::<VolumeMount>(), r#"{"driver":""},"#.len(), 5),
        ("sidecar", size_of::<Sidecar>(), 3, 3),
        ("check", size_of::<Check>(), r#"{"tcp_check":{}},"#.len(), 4),
        ("provider", size_of::<RootfsProvider>(), 3, 2),
        ("download", boxed::<DownloadAction>(), r#"{"download":{}},"#.len(), 9),
        ("upload", boxed::<UploadAction>(), r#"{"upload":{}},"#.len(), 6),
        ("run", boxed::<RunAction>(), r#"{"run":{}},"#.len(), 10),
        ("timeout", boxed::<TimeoutAction>(), r#"{"timeout":{}},"#.len(), 5),
        ("progress", boxed::<EmitProgressAction>(), r#"{"emit_progress":{}},"#.len(), 6),
        ("try", boxed::<TryAction>(), r#"{"try":{}},"#.len(), 3),
        ("parallel", boxed::<ParallelAction>(), r#"{"parallel":{}},"#.len(), 3),
        ("serial", boxed::<SerialAction>(), r#"{"serial":{}},"#.len(), 3),
        ("codependent", boxed::<CodependentAction>(), r#"{"codependent":{}},"#.len(), 3),
    ];
    for (entry, size, json, frame) in rows {
        assert!(size < 40 * json, "{entry}: {size} bytes for {json} of JSON");
        assert!(size < 40 * frame, "{entry}: {size} bytes for {frame} of a frame");
    }
}

/// An action in a list: its place, and what is behind it.
fn boxed<T>() -> usize {
    size_of::<Action>() + size_of::<T>()
}
