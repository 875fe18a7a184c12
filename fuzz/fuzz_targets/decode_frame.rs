//! Frames from disk and mesh. What decodes must encode to a frame that decodes to the same, and
//! must have a JSON form that does too: what the board holds, a consumer may ask for.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::action::Action;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::request::{CellOrder, CellRequest};
use volvox_protocol::task::Task;
use volvox_protocol::validate::{Valid, Validate};
use volvox_protocol::wire::{decode_frame, decode_json, encode_frame};

fn again<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = reframed(bytes)?;
    if bytes.len() < 1 << 16 {
        let text = serde_json::to_vec(&value).expect("every record has a JSON form");
        assert_eq!(decode_json::<T>(&text).expect("our own JSON decodes"), value);
    }
    Some(value)
}

fn reframed<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = decode_frame(bytes).ok()?;
    let frame = encode_frame(&value).expect("what decodes fits a frame");
    assert_eq!(decode_frame::<T>(&frame).expect("our own frame decodes"), value);
    Some(value)
}

/// A deployment is packed anew when it is read: what came in odd bytes, or from JSON, is equal.
fn deployment(bytes: &[u8]) -> Option<LrpDeployment> {
    let value: LrpDeployment = reframed(bytes)?;
    if bytes.len() < 1 << 16 {
        let text = serde_json::to_vec(&value).expect("every record has a JSON form");
        let read: LrpDeployment = decode_json(&text).expect("our own JSON decodes");
        assert_eq!(read, value);
    }
    Some(value)
}

/// Runs the rules, whatever they say.
fn judge<T: Validate>(value: Option<T>) {
    if let Some(Err(invalid)) = value.map(Valid::new) {
        assert!(!invalid.0.is_empty());
    }
}

// The first byte says which record the frame is to hold.
fuzz_target!(|bytes: &[u8]| {
    let Some((kind, frame)) = bytes.split_first() else { return };
    match kind % 9 {
        0 => judge(again::<LrpDefinition>(frame)),
        1 => judge(again::<Action>(frame)),
        2 => judge(again::<CellInfo>(frame)),
        3 => judge(again::<Task>(frame).map(|task| (*task.definition).clone())),
        4 => judge(again::<ActualLrp>(frame).and_then(|lrp| lrp.running().cloned())),
        5 => judge(deployment(frame).map(|deployment| deployment.project())),
        6 => judge(again::<CellRequest>(frame)),
        7 => drop(again::<CellOrder>(frame)),
        _ => drop(again::<CellLoad>(frame)),
    }
});
