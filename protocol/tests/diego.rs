//! Diego's messages: our value → bytes → our value, whatever the value; bytes that were made by hand from
//! the tables of fields; bytes that nobody meant.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "diego/again.rs"]
mod again;
#[path = "diego/bytes.rs"]
mod bytes;
#[path = "diego/fields.rs"]
mod fields;
#[path = "diego/refused.rs"]
mod refused;
#[path = "diego/samples.rs"]
mod samples;

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::Index;
use prost::Message as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use volvox_protocol::actual_lrp::{ActualLrp, LrpGroup};
use volvox_protocol::api::DesireLrpRequest;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpSchedulingInfo, routing_info};
use volvox_protocol::diego::read::{self, DiegoRequest as _, decode};
use volvox_protocol::diego::{ListEntry, message as m, write};
use volvox_protocol::modification_tag::ModificationTag;
use volvox_protocol::task::Task;
use volvox_protocol::validate::Checker;

const LRP: &str = include_str!("samples/desired_lrp.json");
const TASK: &str = include_str!("samples/task.json");
const RUNNING: &str = r#"{
  "process_guid": "p", "index": 3, "domain": "d", "definition_id": "p",
  "instance_guid": "ig-1", "cell_id": "cell-1", "address": "10.0.0.1",
  "ports": [{"container_port": 8080, "host_port": 60001,
    "container_tls_proxy_port": 61001, "host_tls_proxy_port": 60002},
    {"container_port": 0, "host_port": 0,
    "container_tls_proxy_port": 0, "host_tls_proxy_port": 0}],
  "instance_address": "10.255.0.2", "preferred_address": "HOST",
  "instance_ipv6_address": "fd00::2", "crash_count": 1, "crash_reason": "exit 1",
  "state": "RUNNING", "since": 77, "presence": "SUSPECT",
  "modification_tag": {"epoch": "01234567-89ab-4def-8123-456789abcdef", "index": 3},
  "actual_lrp_internal_routes": [{"hostname": "a.internal"}],
  "metric_tags": {"source_id": "app", "empty": ""}, "routable": true, "availability_zone": "z1"
}"#;

/// One thing done to a JSON value: at some leaf or branch, something else.
#[derive(Debug, Clone)]
struct Twist {
    place: Index,
    deed: Deed,
}

#[derive(Debug, Clone)]
enum Deed {
    Say(String),
    Count(u32),
    Long(i64),
    Flip,
    Empty,
    LeaveOut(Index),
    Twice(Index),
}

/// Whatever the messages can say again.
fn twists() -> impl Strategy<Value = Vec<Twist>> {
    twists_with(i32::MAX.unsigned_abs())
}

fn twists_with(most: u32) -> impl Strategy<Value = Vec<Twist>> {
    // Times of our days, and what takes ten bytes.
    let long = prop_oneof![
        1_700_000_000_000_000_000..1_800_000_000_000_000_000_i64,
        i64::MIN..0,
        i64::from(i32::MIN)..0,
        Just(i64::MAX),
    ];
    let deed = prop_oneof![
        "\\PC{0,300}".prop_map(Deed::Say),
        (0..=most).prop_map(Deed::Count),
        (most.saturating_sub(9)..=most).prop_map(Deed::Count),
        long.prop_map(Deed::Long),
        Just(Deed::Flip),
        Just(Deed::Empty),
        any::<Index>().prop_map(Deed::LeaveOut),
        any::<Index>().prop_map(Deed::Twice),
    ];
    let twist = (any::<Index>(), deed).prop_map(|(place, deed)| Twist { place, deed });
    prop::collection::vec(twist, 0..8)
}

/// How many values there are inside, itself counted.
fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(inside) => inside.iter().map(size).sum::<usize>(),
        Value::Object(inside) => inside.values().map(size).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Does something to the nth value inside.
fn at_nth(value: &mut Value, mut nth: usize, deed: &Deed) {
    if nth == 0 {
        return apply(value, deed);
    }
    nth -= 1;
    let inside: Vec<&mut Value> = match value {
        Value::Array(inside) => inside.iter_mut().collect(),
        Value::Object(inside) => inside.values_mut().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return,
    };
    for one in inside {
        let size = size(one);
        if nth < size {
            return at_nth(one, nth, deed);
        }
        nth -= size;
    }
}

fn apply(value: &mut Value, deed: &Deed) {
    match (value, deed) {
        (Value::String(text), Deed::Say(other)) => text.clone_from(other),
        (Value::String(text), Deed::Empty) => text.clear(),
        (value @ Value::Number(_), Deed::Count(other)) => *value = json!(other),
        (value @ Value::Number(_), Deed::Long(other)) => *value = json!(other),
        (value @ Value::Number(_), Deed::Empty) => *value = json!(0),
        (Value::Bool(it), Deed::Flip) => *it = !*it,
        (Value::Array(some), Deed::LeaveOut(at)) if !some.is_empty() => {
            some.remove(at.index(some.len()));
        }
        (Value::Array(some), Deed::Twice(at)) if !some.is_empty() => {
            some.push(some[at.index(some.len())].clone());
        }
        (Value::Object(some), Deed::LeaveOut(at)) if !some.is_empty() => {
            let key = some.keys().nth(at.index(some.len())).unwrap().clone();
            some.remove(&key);
        }
        _ => {}
    }
}

/// A value like the sample, if what became of it is one.
fn like<T: DeserializeOwned>(sample: &str, twists: &[Twist]) -> Option<T> {
    let mut value: Value = serde_json::from_str(sample).unwrap();
    for twist in twists {
        let at = twist.place.index(size(&value));
        at_nth(&mut value, at, &twist.deed);
    }
    serde_json::from_value(value).ok()
}

/// What the messages cannot say is gone: ids of definitions, a port named twice.
fn as_told(mut lrp: DesiredLrp) -> DesiredLrp {
    lrp.definition.ports = lrp.definition.distinct_ports();
    lrp.definition_id = None;
    lrp.previous_definition_id = None;
    lrp
}

/// The bytes that an entry of a list has.
fn straight(entry: impl ListEntry) -> Vec<u8> {
    let mut bytes = Vec::new();
    entry.put_diego(&mut bytes);
    bytes
}

fn desired_again(lrp: &DesiredLrp) -> Option<DesiredLrp> {
    let message: m::DesiredLrp = decode("DesiredLrp", &straight(lrp)).ok()?;
    Some(read::desired_lrp(&mut Checker::default(), message))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_desired_lrp_comes_back_as_it_was(twists in twists()) {
        if let Some(lrp) = like::<DesiredLrp>(LRP, &twists) {
            prop_assert_eq!(desired_again(&lrp), Some(as_told(lrp)));
        }
    }

    #[test]
    fn written_straight_the_bytes_are_those_of_the_message(twists in twists_with(u32::MAX)) {
        if let Some(lrp) = like::<DesiredLrp>(LRP, &twists) {
            let message = write::desired_lrp(lrp.clone());
            prop_assert_eq!(straight(&lrp), message.encode_to_vec());
            let tag = ModificationTag { index: 7, ..lrp.modification_tag };
            let deployment = LrpDeployment::promote(lrp, tag);
            let lrp = deployment.project();
            let info = DesiredLrpSchedulingInfo::from(lrp.clone());
            prop_assert_eq!(&deployment.scheduling_info(), &info);
            let mut bytes = Vec::new();
            write::Writer(&mut bytes).scheduling_info(&deployment);
            prop_assert_eq!(&bytes, &write::scheduling_info(info).encode_to_vec());
            let info = routing_info(lrp);
            prop_assert_eq!(&deployment.routing_info(), &info);
            bytes.clear();
            write::Writer(&mut bytes).routing_info(&deployment);
            prop_assert_eq!(&bytes, &write::desired_lrp(info).encode_to_vec());
        }
        if let Some(task) = like::<Task>(TASK, &twists) {
            prop_assert_eq!(straight(&task), write::task(&task).encode_to_vec());
        }
    }

    #[test]
    fn what_is_valid_is_valid_in_a_message_too(twists in twists()) {
        if let Some(lrp) = like::<DesiredLrp>(LRP, &twists) {
            let wanted = as_told(lrp);
            let message =
                m::DesireLrpRequest { desired_lrp: Some(write::desired_lrp(wanted.clone())) };
            let read = DesireLrpRequest::from_diego(&message.encode_to_vec());
            let valid = volvox_protocol::validate::Valid::new(wanted.clone());
            match (read, valid) {
                (Ok(read), Ok(_)) => prop_assert_eq!(read.desired_lrp, wanted),
                (Err(_), Err(_)) => {}
                (read, valid) => prop_assert!(false, "{read:?}\n{valid:?}"),
            }
        }
    }

    #[test]
    fn a_task_comes_back_as_it_was(twists in twists()) {
        if let Some(task) = like::<Task>(TASK, &twists) {
            let message: m::Task = decode("Task", &straight(&task)).unwrap();
            let read = read::task(&mut Checker::default(), message);
            prop_assert_eq!(read, task);
        }
    }

    #[test]
    fn an_instance_comes_back_as_it_was(twists in twists(), state in 0..4_usize) {
        if let Some(lrp) = like::<ActualLrp>(RUNNING, &twists) {
            let mut value = serde_json::to_value(&lrp).unwrap();
            value["state"] = ["RUNNING", "UNCLAIMED", "CLAIMED", "CRASHED"][state].into();
            let Ok(mut lrp) = serde_json::from_value::<ActualLrp>(value) else { return Ok(()) };
            lrp.definition_id = (&lrp.process_guid).into();
            let bytes = straight(&lrp);
            let message: m::ActualLrp = decode("ActualLrp", &bytes).unwrap();
            // Written straight, the bytes are those of the message.
            prop_assert_eq!(message.encode_to_vec(), bytes);
            let read = read::actual_lrp(&mut Checker::default(), message);
            prop_assert_eq!(&read, &lrp);
            let lrp = Arc::new(lrp);
            let group = LrpGroup { instance: Some(Arc::clone(&lrp)), evacuating: Some(lrp) };
            let bytes = straight(&group);
            let message: m::ActualLrpGroup = decode("ActualLrpGroup", &bytes).unwrap();
            prop_assert_eq!(write::group(&group), message.clone());
            prop_assert_eq!(read::group(&mut Checker::default(), message), group);
        }
    }

    #[test]
    fn random_bytes_are_refused_or_read_and_never_worse(
        bytes in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        let _ = DesireLrpRequest::from_diego(&bytes);
        let _ = volvox_protocol::api::DesireTaskRequest::from_diego(&bytes);
        let _ = volvox_protocol::api::StartActualLrpRequest::from_diego(&bytes);
        let _ = volvox_protocol::api::UpdateDesiredLrpRequest::from_diego(&bytes);
        let _ = decode::<m::ActualLrp>("ActualLrp", &bytes)
            .map(|message| read::actual_lrp(&mut Checker::default(), message));
    }

    #[test]
    fn damaged_messages_are_refused_or_read_and_never_worse(
        places in prop::collection::vec((any::<Index>(), any::<u8>()), 1..6),
        cut in any::<Index>(),
    ) {
        let lrp: DesiredLrp = serde_json::from_str(LRP).unwrap();
        let message = m::DesireLrpRequest { desired_lrp: Some(write::desired_lrp(lrp)) };
        let mut bytes = message.encode_to_vec();
        for (place, byte) in places {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = DesireLrpRequest::from_diego(&bytes);
        bytes.truncate(cut.index(bytes.len()));
        let _ = DesireLrpRequest::from_diego(&bytes);
    }
}
