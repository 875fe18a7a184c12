//! Bytes that nobody meant: random ones, and good ones with damage. The same ground as the fuzz
//! targets in `fuzz/`, for every test run.
//!
//! Nothing may panic, and what does decode must encode to something that decodes to the same.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Debug;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::action::Action;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::deployment::{
    Definition, LrpDeployment, LrpDeploymentDefinition, LrpDeploymentUpdate, LrpDeploymentsRequest,
    PastDefinition, Rollout, RolloutPolicy,
};
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpSchedulingInfo, DesiredLrpUpdate};
use volvox_protocol::id::{CellId, DefinitionId, TaskGuid};
use volvox_protocol::modification_tag::{Epoch, ModificationTag};
use volvox_protocol::request::{
    CellOrder, CellRequest, LrpStart, Requirements, TaskOutcome, TaskStart, WorkBatch,
};
use volvox_protocol::task::{Task, TaskDefinition};
use volvox_protocol::time::Timestamp;
use volvox_protocol::validate::{Valid, Validate};
use volvox_protocol::wire::{decode_frame, decode_json, encode_frame};

const LRP: &str = include_str!("samples/desired_lrp.json");
const UPDATE: &str = include_str!("samples/desired_lrp_update.json");
const DEPLOYMENT: &str = include_str!("samples/lrp_deployment_definition.json");
const ROLL_OUT: &str = include_str!("samples/lrp_deployment_update.json");
const TASK: &str = include_str!("samples/task.json");
const INFO: &str = include_str!("samples/cell_info.json");
const LOAD: &str = include_str!("samples/cell_load.json");
const RUNNING: &str = r#"{
  "process_guid": "p", "index": 3, "domain": "d", "definition_id": "v1",
  "instance_guid": "ig-1", "cell_id": "cell-1", "address": "10.0.0.1",
  "ports": [{"container_port": 8080, "host_port": 60001,
    "container_tls_proxy_port": 61001, "host_tls_proxy_port": 60002}],
  "instance_address": "10.255.0.2", "preferred_address": "HOST",
  "instance_ipv6_address": "fd00::2", "crash_count": 1, "crash_reason": "exit 1",
  "state": "RUNNING", "since": 77, "presence": "SUSPECT",
  "modification_tag": {"epoch": "01234567-89ab-4def-8123-456789abcdef", "index": 3},
  "actual_lrp_internal_routes": [{"hostname": "a.internal"}],
  "metric_tags": {"source_id": "app"}, "routable": true, "availability_zone": "z1"
}"#;
const UNCLAIMED: &str = r#"{
  "process_guid": "p", "index": 0, "domain": "d", "instance_guid": "", "cell_id": "",
  "state": "UNCLAIMED", "placement_error": "no room", "presence": "ORDINARY", "since": 7
}"#;

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
    judge(json::<LrpDeploymentDefinition>(bytes));
    judge(json::<LrpDeploymentUpdate>(bytes));
    judge(json::<LrpDeploymentsRequest>(bytes));
    judge(json::<TaskDefinition>(bytes));
    judge(json::<LrpDefinition>(bytes));
    judge(json::<Action>(bytes));
    judge(json::<CellInfo>(bytes));
    judge(json::<ActualLrp>(bytes).and_then(|lrp| lrp.running().cloned()));
    json::<Task>(bytes);
    json::<CellLoad>(bytes);
    json::<DesiredLrpSchedulingInfo>(bytes);
}

fn every_frame(bytes: &[u8]) {
    judge(frame::<DesiredLrp>(bytes));
    judge(frame::<DesiredLrpUpdate>(bytes));
    judge(frame::<LrpDeploymentDefinition>(bytes));
    judge(frame::<LrpDeploymentUpdate>(bytes));
    judge(frame::<TaskDefinition>(bytes));
    judge(frame::<LrpDefinition>(bytes));
    judge(frame::<Action>(bytes));
    judge(frame::<CellInfo>(bytes));
    judge(frame::<CellRequest>(bytes));
    judge(frame::<ActualLrp>(bytes).and_then(|lrp| lrp.running().cloned()));
    judge(frame::<LrpDeployment>(bytes).map(|deployment| deployment.project()));
    frame::<CellOrder>(bytes);
    frame::<Task>(bytes);
    frame::<CellLoad>(bytes);
    frame::<DesiredLrpSchedulingInfo>(bytes);
}

fn reframe<T: DeserializeOwned + Serialize>(json: &str) -> Vec<u8> {
    encode_frame(&decode_json::<T>(json.as_bytes()).unwrap()).unwrap()
}

fn deployment() -> LrpDeployment {
    let lrp: DesiredLrp = decode_json(LRP.as_bytes()).unwrap();
    let definition = LrpDefinition::default();
    let mut deployment = LrpDeployment::promote(lrp, ModificationTag::new(Epoch::from_random(7)));
    let definition = Definition::new(&definition);
    let (v0, v2) = (DefinitionId::new("v0").unwrap(), DefinitionId::new("v2").unwrap());
    let past = PastDefinition {
        definition_id: v0,
        definition: definition.packed().clone(),
        retired_at: Timestamp::from_secs(1),
    };
    deployment.history.push(past, 10);
    deployment.definitions.insert(v2.clone(), definition);
    deployment.healthy_definition_id = Some(deployment.active_definition_id.clone());
    let mut roll = Rollout::rising(Timestamp::from_secs(2), v2);
    roll.take_up(Timestamp::from_secs(3), 0);
    roll.take_up(Timestamp::from_secs(3), 1);
    roll.leave_behind(0);
    deployment.roll = Some(Box::new(roll));
    deployment.rollout = Some(Box::new(RolloutPolicy { max_in_flight: 2, ..Default::default() }));
    deployment
}

/// One request of every shape that a request has.
fn requests() -> Vec<CellRequest> {
    let lrp: ActualLrp = decode_json(RUNNING.as_bytes()).unwrap();
    let (key, instance) = (lrp.key(), lrp.instance().unwrap().clone());
    let running = Arc::new(lrp.running().unwrap().clone());
    let (task, cell) = (TaskGuid::new("t").unwrap(), CellId::new("cell-1").unwrap());
    let outcome = TaskOutcome { result: "42".to_owned(), ..TaskOutcome::failed_because("oom") };
    vec![
        CellRequest::ClaimLrp(key.clone(), instance.clone()),
        CellRequest::StartLrp(key.clone(), instance.clone(), running),
        CellRequest::CrashLrp(key, instance, "exit 1".into()),
        CellRequest::StartTask(task.clone(), cell.clone()),
        CellRequest::CompleteTask(task.clone(), cell.clone(), outcome),
        CellRequest::RejectTask(task, cell, "no room".into()),
    ]
}

/// One order of every shape that an order has.
fn orders() -> Vec<CellOrder> {
    let lrp: ActualLrp = decode_json(RUNNING.as_bytes()).unwrap();
    let task_guid = TaskGuid::new("t").unwrap();
    let requirements = Arc::new(Requirements {
        memory_mb: 64,
        rootfs: "host:".to_owned(),
        placement_tags: vec!["gpu".to_owned()],
        volume_drivers: vec!["nfs".to_owned()],
        ..Requirements::default()
    });
    let start = LrpStart {
        process_guid: lrp.process_guid.clone(),
        definition_id: lrp.definition_id.clone(),
        domain: lrp.domain.clone(),
        indices: vec![0, 3, 300],
        requirements: Arc::clone(&requirements),
    };
    let task_start =
        TaskStart { task_guid: task_guid.clone(), domain: lrp.domain.clone(), requirements };
    vec![
        CellOrder::Work(WorkBatch { number: 9, lrps: vec![start], tasks: vec![task_start] }),
        CellOrder::StopInstance(lrp.key(), lrp.instance().unwrap().clone()),
        CellOrder::CancelTask(task_guid),
    ]
}

fn frames() -> Vec<Vec<u8>> {
    let lrp: DesiredLrp = decode_json(LRP.as_bytes()).unwrap();
    let requests = requests().into_iter().map(|request| encode_frame(&request).unwrap());
    let orders = orders().into_iter().map(|order| encode_frame(&order).unwrap());
    let mut frames = vec![
        reframe::<ActualLrp>(RUNNING),
        reframe::<ActualLrp>(UNCLAIMED),
        encode_frame(&deployment()).unwrap(),
        reframe::<DesiredLrp>(LRP),
        reframe::<LrpDefinition>(LRP),
        reframe::<DesiredLrpUpdate>(UPDATE),
        reframe::<TaskDefinition>(TASK),
        reframe::<Task>(TASK),
        reframe::<CellInfo>(INFO),
        reframe::<CellLoad>(LOAD),
        encode_frame(&lrp.definition.action).unwrap(),
        encode_frame(&DesiredLrpSchedulingInfo::from(lrp.clone())).unwrap(),
    ];
    frames.extend(requests.chain(orders));
    frames
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
        sample in prop::sample::select(vec![
            LRP, UPDATE, DEPLOYMENT, ROLL_OUT, TASK, INFO, LOAD, RUNNING, UNCLAIMED,
        ]),
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

/// A value comes back from its frame, and from no beginning of it.
fn check_frame<T: DeserializeOwned + Serialize + PartialEq + Debug>(value: &T) {
    let bytes = encode_frame(value).unwrap();
    assert_eq!(frame::<T>(&bytes).as_ref(), Some(value));
    for end in 0..bytes.len() {
        assert_eq!(frame::<T>(&bytes[..end]), None, "{end} bytes of {value:?}");
    }
}

#[test]
fn every_truncation_of_a_sample_is_refused() {
    for sample in [LRP, UPDATE, TASK, INFO, LOAD, RUNNING, UNCLAIMED] {
        let sample = sample.trim_end();
        for end in (0..sample.len()).step_by(7) {
            assert_eq!(json::<DesiredLrp>(&sample.as_bytes()[..end]), None, "{end}");
            assert_eq!(json::<DesiredLrpUpdate>(&sample.as_bytes()[..end]), None, "{end}");
            assert_eq!(json::<ActualLrp>(&sample.as_bytes()[..end]), None, "{end}");
        }
    }
    check_frame(&decode_json::<Task>(TASK.as_bytes()).unwrap());
    check_frame(&decode_json::<ActualLrp>(RUNNING.as_bytes()).unwrap());
    check_frame(&decode_json::<ActualLrp>(UNCLAIMED.as_bytes()).unwrap());
    check_frame(&deployment());
    requests().iter().for_each(check_frame);
    orders().iter().for_each(check_frame);
}
