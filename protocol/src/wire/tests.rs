//! Tests of decoding: limits, versions, lies about lengths.

use std::mem::size_of;

use super::*;
use crate::action::{
    Action, CodependentAction, DownloadAction, EmitProgressAction, EnvironmentVariable, File,
    ParallelAction, RunAction, SerialAction, TimeoutAction, TryAction, UploadAction,
};
use crate::actual_lrp::{InternalRoute, PortMapping};
use crate::cell::{CellInfo, CellLoad, RootfsProvider};
use crate::definition::{
    CachedDependency, Check, ImageLayer, LrpDefinition, RouteValue, Routes, Sidecar, VolumeMount,
};
use crate::deployment::{Definition, LrpDeployment};
use crate::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use crate::egress::SecurityGroupRule;
use crate::id::DefinitionId;
use crate::limits::{ANNOTATION_BYTES, ENTRIES, MOUNTED_FILES_BYTES, ROUTES_BYTES, TEXT_BYTES};
use crate::modification_tag::ModificationTag;
use crate::request::{LrpStart, Requirements, TaskStart};
use crate::task::{Task, TaskDefinition};
use crate::validate::Valid;

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
    let fits = "x".repeat(FRAME_BYTES - 4);
    let frame = encode_frame(&fits).unwrap();
    assert_eq!(frame.len(), FRAME_BYTES);
    assert_eq!(decode_frame::<String>(&frame).unwrap(), fits);
    let given = FRAME_BYTES + 1;
    assert_eq!(encode_frame(&format!("{fits}x")), Err(EncodeError::TooLarge { given }));
    let expected = DecodeError::TooLarge { given, limit: FRAME_BYTES };
    assert_eq!(decode_frame::<String>(&vec![WIRE_VERSION; given]), Err(expected));
}

/// The largest that each limit admits, all at once, with a line end at every 64th character of the
/// files: what the limits' own words promise.
#[test]
fn the_largest_files_routes_and_annotation_fit_together() {
    let line = format!("{}\n", "x".repeat(63));
    let routes = RouteValue::new(&format!("{:?}", "r".repeat(ROUTES_BYTES - 2))).unwrap();
    let file = |path: String| File {
        path,
        content: line.repeat(MOUNTED_FILES_BYTES / ENTRIES / line.len()),
    };
    let mut desired: DesiredLrp =
        decode_json(include_bytes!("../../tests/samples/desired_lrp.json")).unwrap();
    desired.routes = [("router".to_owned(), routes)].into_iter().collect();
    desired.annotation = "a".repeat(ANNOTATION_BYTES);
    desired.definition.volume_mounted_files =
        (0..ENTRIES).map(|at| file(format!("{at:03}/{}", "p".repeat(TEXT_BYTES / 32)))).collect();
    let content = &desired.definition.volume_mounted_files;
    assert_eq!(content.iter().map(|file| file.content.len()).sum::<usize>(), MOUNTED_FILES_BYTES);
    let desired = Valid::new(desired).unwrap();

    let text = serde_json::to_vec(&desired).unwrap();
    assert!(text.len() + (800 << 10) < JSON_BYTES, "{} bytes of JSON", text.len());
    assert_eq!(decode_json::<Valid<DesiredLrp>>(&text).unwrap(), desired);
    let frame = encode_frame(&desired).unwrap();
    assert_eq!(decode_frame::<DesiredLrp>(&frame).unwrap(), desired.clone().into_inner());
    let deployment = LrpDeployment::promote(desired.into_inner(), ModificationTag::default());
    let frame = encode_frame(&deployment).unwrap();
    assert_eq!(decode_frame::<LrpDeployment>(&frame).unwrap(), deployment);
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
        let text = opener.repeat(JSON_BYTES / opener.len() - 16);
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
        frame.extend(opener.iter().cycle().take(FRAME_BYTES - 16));
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
        ("index", size_of::<u32>(), 2, 1),
        ("port mapping", size_of::<PortMapping>(), r#"{"container_port":0},"#.len(), 4),
        ("internal route", size_of::<InternalRoute>(), r#"{"hostname":""},"#.len(), 1),
        ("LRP start", size_of::<LrpStart>() + 3 * ID + NEEDS, r#"{"process_guid":"p"},"#.len(), 13),
        ("task start", size_of::<TaskStart>() + 2 * ID + NEEDS, r#"{"task_guid":"t"},"#.len(), 10),
        ("definition", packed_definition(), r#"["a",{}],"#.len(), 3 + LrpDefinition::FIELDS),
    ];
    for (entry, size, json, frame) in rows {
        assert!(size < 40 * json, "{entry}: {size} bytes for {json} of JSON");
        assert!(size < 40 * frame, "{entry}: {size} bytes for {frame} of a frame");
    }
}

/// What stands behind an identifier of one letter, and behind the requirements of some work: two
/// counts and the thing.
const ID: usize = 16 + 8;
const NEEDS: usize = 16 + size_of::<Requirements>();

/// A definition of a deployment: only its packed bytes are kept, and every field takes one.
const fn packed_definition() -> usize {
    size_of::<(DefinitionId, Definition)>() + ID + NEEDS + 16 + LrpDefinition::FIELDS
}

/// An action in a list: its place, and what is behind it.
fn boxed<T>() -> usize {
    size_of::<Action>() + size_of::<T>()
}
