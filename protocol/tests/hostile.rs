//! Bytes that nobody meant: random ones, and good ones with damage. The same ground as the fuzz
//! targets in `fuzz/`, for every test run.
//!
//! Nothing may panic, and what does decode must encode to something that decodes to the same.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::sample::Index;
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::action::Action;
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpSchedulingInfo, DesiredLrpUpdate};
use volvox_protocol::task::{Task, TaskDefinition};
use volvox_protocol::validate::{Valid, Validate};
use volvox_protocol::wire::{decode_frame, decode_json, encode_frame};

const LRP: &str = include_str!("samples/desired_lrp.json");
const UPDATE: &str = include_str!("samples/desired_lrp_update.json");
const TASK: &str = include_str!("samples/task.json");
const INFO: &str = include_str!("samples/cell_info.json");
const LOAD: &str = include_str!("samples/cell_load.json");

fn json<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = decode_json(bytes).ok()?;
    let again = serde_json::to_vec(&value).unwrap();
    // What was written in full may have grown past the limit; smaller inputs must come back.
    if again.len() < 1 << 20 {
        assert_eq!(decode_json::<T>(&again).unwrap(), value);
    }
    Some(value)
}

fn frame<T: DeserializeOwned + Serialize + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value: T = decode_frame(bytes).ok()?;
    assert_eq!(decode_frame::<T>(&encode_frame(&value).unwrap()).unwrap(), value);
    Some(value)
}

/// Runs the rules over a value, whatever they say.
fn judge<T: Validate>(value: Option<T>) {
    if let Some(Err(invalid)) = value.map(Valid::new) {
        assert!(!invalid.0.is_empty() && invalid.0.len() <= 20);
    }
}

fn every_json(bytes: &[u8]) {
    judge(json::<DesiredLrp>(bytes));
    judge(json::<DesiredLrpUpdate>(bytes));
    judge(json::<TaskDefinition>(bytes));
    judge(json::<LrpDefinition>(bytes));
    judge(json::<Action>(bytes));
    judge(json::<CellInfo>(bytes));
    json::<Task>(bytes);
    json::<CellLoad>(bytes);
    json::<DesiredLrpSchedulingInfo>(bytes);
}

fn every_frame(bytes: &[u8]) {
    judge(frame::<DesiredLrp>(bytes));
    judge(frame::<DesiredLrpUpdate>(bytes));
    judge(frame::<TaskDefinition>(bytes));
    judge(frame::<LrpDefinition>(bytes));
    judge(frame::<Action>(bytes));
    judge(frame::<CellInfo>(bytes));
    frame::<Task>(bytes);
    frame::<CellLoad>(bytes);
    frame::<DesiredLrpSchedulingInfo>(bytes);
}

fn reframe<T: DeserializeOwned + Serialize>(json: &str) -> Vec<u8> {
    encode_frame(&decode_json::<T>(json.as_bytes()).unwrap()).unwrap()
}

fn frames() -> Vec<Vec<u8>> {
    let lrp: DesiredLrp = decode_json(LRP.as_bytes()).unwrap();
    vec![
        reframe::<DesiredLrp>(LRP),
        reframe::<LrpDefinition>(LRP),
        reframe::<DesiredLrpUpdate>(UPDATE),
        reframe::<TaskDefinition>(TASK),
        reframe::<Task>(TASK),
        reframe::<CellInfo>(INFO),
        reframe::<CellLoad>(LOAD),
        encode_frame(&lrp.definition.action).unwrap(),
        encode_frame(&DesiredLrpSchedulingInfo::from(&lrp)).unwrap(),
    ]
}

/// One way to damage a text of bytes.
#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    Repeat(Index, usize),
    Cut(Index),
}

fn damage(tokens: &'static [&'static str]) -> impl Strategy<Value = Damage> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 1..12),
        prop::sample::select(tokens).prop_map(|token| token.as_bytes().to_vec()),
    ];
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (any::<Index>(), piece).prop_map(|(at, piece)| Damage::Insert(at, piece)),
        (any::<Index>(), 1..24_usize).prop_map(|(at, bytes)| Damage::Remove(at, bytes)),
        (any::<Index>(), 1..64_usize).prop_map(|(at, bytes)| Damage::Repeat(at, bytes)),
        any::<Index>().prop_map(Damage::Cut),
    ]
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let place = |at: &Index| at.index(bytes.len() + 1);
    match damage {
        Damage::Set(at, byte) => {
            let at = place(at);
            if let Some(place) = bytes.get_mut(at) {
                *place = *byte;
            }
        }
        Damage::Insert(at, piece) => {
            let at = place(at);
            bytes.splice(at..at, piece.iter().copied());
        }
        Damage::Remove(at, count) => {
            let at = place(at);
            let end = bytes.len().min(at + count);
            bytes.drain(at..end);
        }
        Damage::Repeat(at, count) => {
            let at = place(at);
            let piece = bytes[at..bytes.len().min(at + count)].to_vec();
            bytes.splice(at..at, piece);
        }
        Damage::Cut(at) => bytes.truncate(place(at)),
    }
}

/// Pieces of JSON that change the meaning and not only the spelling.
const JSON_TOKENS: &[&str] = &[
    "null",
    "{}",
    "[]",
    "\"\"",
    "-1",
    "0",
    "4294967296",
    "1e999",
    "{\"try\":{\"action\":",
    ",",
    "[",
    "{",
    "}",
    "]",
    "\\u0000",
    "\\ud800",
    "\"dynamic\":\"INDEX\",",
    "\"run\":{},",
    "18446744073709551616",
];
/// Pieces of postcard that do: long lengths, large numbers, variant numbers.
const FRAME_TOKENS: &[&str] =
    &["\u{7f}", "\0\0", "\u{1}\u{1}", "\u{7}\u{1}", "\u{5}\u{1}", "\u{8}"];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_bytes_panic_nowhere(mut bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        every_json(&bytes);
        every_frame(&bytes);
        bytes.insert(0, volvox_protocol::wire::WIRE_VERSION);
        every_frame(&bytes);
    }

    #[test]
    fn damaged_json_panics_nowhere(
        sample in prop::sample::select(vec![LRP, UPDATE, TASK, INFO, LOAD]),
        damages in prop::collection::vec(damage(JSON_TOKENS), 1..4),
    ) {
        let mut bytes = sample.as_bytes().to_vec();
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        every_json(&bytes);
    }

    #[test]
    fn damaged_frames_panic_nowhere(
        sample in prop::sample::select(frames()),
        damages in prop::collection::vec(damage(FRAME_TOKENS), 1..4),
    ) {
        let mut bytes = sample;
        damages.iter().for_each(|damage| apply(&mut bytes, damage));
        every_frame(&bytes);
    }
}

#[test]
fn every_truncation_of_a_sample_is_refused() {
    for sample in [LRP, UPDATE, TASK, INFO, LOAD] {
        let sample = sample.trim_end();
        for end in (0..sample.len()).step_by(7) {
            assert_eq!(json::<DesiredLrp>(&sample.as_bytes()[..end]), None, "{end}");
        }
    }
    let frame_of_task = reframe::<Task>(TASK);
    for end in 0..frame_of_task.len() {
        assert_eq!(frame::<Task>(&frame_of_task[..end]), None, "{end}");
    }
}
