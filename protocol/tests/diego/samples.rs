//! The samples from which the properties begin: valid, and with every field of every message in them, so that
//! none goes through these tests unseen.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::diego::{message as m, write};
use volvox_protocol::task::Task;
use volvox_protocol::validate::{Valid, Validate};

use super::{LRP, RUNNING, TASK, straight};

/// Numbers of the fields that were met, by message.
type Met = BTreeMap<&'static str, BTreeSet<u32>>;

/// `Action` of `Option<Box<Action>>`, and of `BTreeMap<String, Action>`.
fn innermost(held_as: &'static str) -> &'static str {
    held_as.trim_end_matches('>').rsplit(['<', ' ']).next().unwrap()
}

/// Notes all fields of a message, and of those inside of it.
fn meet(held_as: &'static str, mut rest: &[u8], met: &mut Met) {
    let Some(declared) = m::declaration(held_as) else { return };
    while !rest.is_empty() {
        let (number, kind) = prost::encoding::decode_key(&mut rest).unwrap();
        met.entry(held_as).or_default().insert(number);
        let field = declared.fields.iter().find(|field| field.number == number).unwrap();
        let before = rest;
        let context = prost::encoding::DecodeContext::default();
        prost::encoding::skip_field(kind, number, &mut rest, context).unwrap();
        let content = &before[..before.len() - rest.len()];
        let is_map = field.kind.starts_with("btree_map");
        if !is_map && !field.kind.starts_with("message") {
            continue;
        }
        let mut content = content;
        prost::encoding::decode_varint(&mut content).unwrap();
        if is_map {
            // An entry has the value as its field 2.
            while !content.is_empty() {
                let (number, kind) = prost::encoding::decode_key(&mut content).unwrap();
                let mut value = content;
                let context = prost::encoding::DecodeContext::default();
                prost::encoding::skip_field(kind, number, &mut content, context).unwrap();
                if number == 2 && field.kind.contains("message") {
                    let end = value.len() - content.len();
                    value = &value[..end];
                    prost::encoding::decode_varint(&mut value).unwrap();
                    meet(innermost(field.held_as), value, met);
                }
            }
        } else {
            meet(innermost(field.held_as), content, met);
        }
    }
}

fn valid<T: Validate>(value: T) {
    assert_eq!(Valid::new(value).err().map(|invalid| invalid.to_string()), None);
}

#[test]
fn the_samples_are_valid_and_have_every_field() {
    let lrp: DesiredLrp = serde_json::from_str(LRP).unwrap();
    let task: Task = serde_json::from_str(TASK).unwrap();
    let running: ActualLrp = serde_json::from_str(RUNNING).unwrap();
    let mut unclaimed: serde_json::Value = serde_json::from_str(RUNNING).unwrap();
    unclaimed["state"] = "UNCLAIMED".into();
    unclaimed["placement_error"] = "full".into();
    let unclaimed: ActualLrp = serde_json::from_value(unclaimed).unwrap();
    let mut met = Met::new();
    meet("DesiredLrp", &straight(&lrp), &mut met);
    meet("Task", &straight(&task), &mut met);
    meet("ActualLrp", &straight(&running), &mut met);
    meet("ActualLrp", &straight(&unclaimed), &mut met);
    let info = volvox_protocol::desired_lrp::DesiredLrpSchedulingInfo::from(lrp.clone());
    meet("DesiredLrpSchedulingInfo", &write::scheduling_info(info).encode_to_vec(), &mut met);
    for (held_as, numbers) in &met {
        let declared = m::declaration(held_as).unwrap();
        let left: Vec<&str> = declared
            .fields
            .iter()
            .filter(|field| !numbers.contains(&field.number))
            .map(|field| field.name)
            .collect();
        assert_eq!(left, [""; 0], "{held_as}: not in the samples, nothing is said of them");
    }
    assert!(met.len() > 35, "{} messages were met", met.len());
    valid(lrp);
    valid((*task.definition).clone());
}
