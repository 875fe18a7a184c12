//! Events, by the name that [`Event::name`] gives.

use prost::Message as _;

use super::super::message as m;
use super::actual::{instance_key, key, net_info, presence};
use super::{ListEntry as _, Writer, count, desired_lrp, modification_tag, task, time};
use crate::actual_lrp::{ActualLrp, LrpGroup, NetInfo};
use crate::desired_lrp::DesiredLrp;
use crate::event::Event;

/// The bytes of the event's message. `form` is how the reader wants desired LRPs; `trace_id` is the number
/// that the caller gave the call that caused it, empty for none.
pub fn event(event: &Event, form: impl Fn(DesiredLrp) -> DesiredLrp, trace_id: &str) -> Vec<u8> {
    let desired = |lrp: DesiredLrp| Some(desired_lrp(form(lrp)));
    let trace_id = trace_id.to_owned();
    match event {
        Event::DesiredLrpCreated(lrp) => {
            let desired_lrp = desired(lrp.project());
            m::DesiredLrpCreatedEvent { desired_lrp, trace_id }.encode_to_vec()
        }
        Event::DesiredLrpChanged(before, after) => {
            let (before, after) = (desired(before.project()), desired(after.project()));
            m::DesiredLrpChangedEvent { before, after, trace_id }.encode_to_vec()
        }
        Event::DesiredLrpRemoved(lrp) => {
            let desired_lrp = desired(lrp.project());
            m::DesiredLrpRemovedEvent { desired_lrp, trace_id }.encode_to_vec()
        }
        Event::InstanceCreated(lrp) | Event::InstanceRemoved(lrp) => {
            let mut out = Vec::with_capacity(512);
            let mut writer = Writer(&mut out);
            writer.message(1, |out| out.actual_lrp(lrp));
            if !trace_id.is_empty() {
                writer.bytes(2, trace_id.as_bytes());
            }
            out
        }
        Event::InstanceChanged(before, after) => m::ActualLrpInstanceChangedEvent {
            actual_lrp_key: Some(key(&after.key())),
            actual_lrp_instance_key: Some(instance_key(after.instance().or(before.instance()))),
            before: Some(info(before, before)),
            after: Some(info(after, before)),
            trace_id,
        }
        .encode_to_vec(),
        Event::Crashed(crash) => m::ActualLrpCrashedEvent {
            actual_lrp_key: Some(key(&crash.key)),
            actual_lrp_instance_key: Some(instance_key(Some(&crash.instance))),
            crash_count: count(crash.crash_count),
            crash_reason: crash.crash_reason.to_string(),
            since: time(crash.since),
        }
        .encode_to_vec(),
        Event::GroupCreated(group) | Event::GroupRemoved(group) => groups(&[group]),
        Event::GroupChanged(before, after) => groups(&[before, after]),
        Event::TaskCreated(it) | Event::TaskRemoved(it) => {
            m::TaskCreatedEvent { task: Some(task(it)) }.encode_to_vec()
        }
        Event::TaskChanged(before, after) => {
            let (before, after) = (Some(task(before)), Some(task(after)));
            m::TaskChangedEvent { before, after }.encode_to_vec()
        }
    }
}

/// Groups, as fields 1 and 2.
fn groups(given: &[&LrpGroup]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1_024);
    for (number, group) in (1..).zip(given) {
        Writer(&mut out).message(number, |out| group.put_diego(out.0));
    }
    out
}

/// The half of an instance that can change. What does not run is as routable as it was before: the BBS
/// leaves that alone when an instance ends, and readers who look for a change of it must not take an end
/// for one.
fn info(given: &ActualLrp, before: &ActualLrp) -> m::ActualLrpInfo {
    let running = given.running();
    let routable = running.or(before.running()).is_some_and(|it| it.routable);
    let nowhere = NetInfo::default();
    m::ActualLrpInfo {
        actual_lrp_net_info: Some(net_info(running.map_or(&nowhere, |it| &it.net_info))),
        crash_count: count(given.crash_count),
        crash_reason: given.crash_reason.to_string(),
        state: given.state.name().to_owned(),
        placement_error: given.placement_error().to_owned(),
        since: time(given.since),
        modification_tag: Some(modification_tag(given.modification_tag)),
        presence: presence(given.presence).into(),
        routable: Some(routable),
        availability_zone: running.map_or(String::new(), |it| it.availability_zone.to_string()),
    }
}
