//! Frames from disk and mesh. What decodes must encode to a frame that decodes to the same, and
//! must have a JSON form that does too: what the board holds, a consumer may ask for.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::action::Action;
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::task::Task;
use volvox_protocol::validate::{Valid, Validate};
use volvox_protocol::wire::{decode_frame, decode_json, encode_frame};

fn again<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = decode_frame(bytes).ok()?;
    let frame = encode_frame(&value).expect("what decodes fits a frame");
    assert_eq!(decode_frame::<T>(&frame).expect("our own frame decodes"), value);
    if bytes.len() < 1 << 16 {
        let text = serde_json::to_vec(&value).expect("every record has a JSON form");
        assert_eq!(decode_json::<T>(&text).expect("our own JSON decodes"), value);
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
    match kind % 5 {
        0 => judge(again::<LrpDefinition>(frame)),
        1 => judge(again::<Action>(frame)),
        2 => judge(again::<CellInfo>(frame)),
        3 => judge(again::<Task>(frame).map(|task| (*task.definition).clone())),
        _ => drop(again::<CellLoad>(frame)),
    }
});
