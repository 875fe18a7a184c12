//! Events for Diego's own clients, and for readers of old among them.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use volvox_protocol::actual_lrp::{ActualLrp, LrpGroup};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::event::Event;

use super::{Stream, downgraded};
use crate::bbs::hub::{self, Hub, NumberedEvent};

/// In which form desired LRPs and tasks are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As they are.
    Latest,
    /// For readers of old: without layers, desired LRPs without dependencies too.
    Oldest,
}

/// A desired LRP as readers of old know it.
fn oldest(mut lrp: DesiredLrp) -> DesiredLrp {
    lrp.definition.in_oldest_form();
    lrp
}

/// The content of an event about a desired LRP or a task, in JSON, for readers of old.
pub(super) fn older(event: &Event) -> Option<serde_json::Value> {
    let lrp = |lrp: &LrpDeployment| oldest(lrp.project());
    match event {
        Event::DesiredLrpCreated(it) | Event::DesiredLrpRemoved(it) => {
            Some(json!({ "desired_lrp": lrp(it) }))
        }
        Event::DesiredLrpChanged(before, after) => {
            Some(json!({ "before": lrp(before), "after": lrp(after) }))
        }
        Event::TaskCreated(it) | Event::TaskRemoved(it) => Some(json!({ "task": downgraded(it) })),
        Event::TaskChanged(before, after) => {
            Some(json!({ "before": downgraded(before), "after": downgraded(after) }))
        }
        Event::InstanceCreated(_)
        | Event::InstanceChanged(..)
        | Event::InstanceRemoved(_)
        | Event::Crashed(_)
        | Event::GroupCreated(_)
        | Event::GroupChanged(..)
        | Event::GroupRemoved(_) => None,
    }
}

/// Whether this is the moment in which an instance's cell is told to stop it. Our own readers see a mark on
/// the record; Diego's messages have none, and the BBS tells at that moment that the instance is gone, so
/// that nobody is sent there while it ends. It tells so again when the record goes.
fn is_told_to_stop(before: &ActualLrp, after: &ActualLrp) -> bool {
    !before.stopping && after.stopping
}

/// What Diego's clients are told on this stream instead of an event of ours; none: the event itself.
pub(super) fn instead(stream: Stream, event: &Event) -> Option<Event> {
    match event {
        Event::InstanceChanged(before, after) if is_told_to_stop(before, after) => match stream {
            Stream::Groups => Some(Event::GroupRemoved(LrpGroup::fold([before]))),
            Stream::Instances | Stream::Deployments | Stream::Tasks => {
                Some(Event::InstanceRemoved(Arc::clone(before)))
            }
        },
        _ => None,
    }
}

/// The text of an event that stands for another, for one of Diego's clients. It is of an instance, which
/// is the same in every form.
pub(super) fn diego_frame_instead(event: &Event, entry: &NumberedEvent) -> Bytes {
    hub::diego_frame(event, |lrp| lrp, entry.trace.as_deref())
}

/// The text of an event for one of Diego's clients, but for its id.
pub(super) fn diego_frame(hub: &Hub, form: Form, entry: &NumberedEvent) -> Bytes {
    let older = match (form, &entry.event) {
        (Form::Latest, _) => return hub.diego_frame(entry),
        (Form::Oldest, Event::TaskCreated(it)) => Event::TaskCreated(downgraded(it)),
        (Form::Oldest, Event::TaskChanged(before, after)) => {
            Event::TaskChanged(downgraded(before), downgraded(after))
        }
        (Form::Oldest, Event::TaskRemoved(it)) => Event::TaskRemoved(downgraded(it)),
        (Form::Oldest, other) => other.clone(),
    };
    hub::diego_frame(&older, oldest, entry.trace.as_deref())
}

/// Puts events into the BBS's order. When an instance goes and its record goes on without one, the BBS tells
/// of what it is now first; on our own streams the old one goes first, so that snapshot and events make the
/// next snapshot. A record that takes the place of one that was removed has another epoch, and comes after
/// it there too.
pub(super) fn in_bbs_order(entries: &mut [Arc<NumberedEvent>]) {
    let mut at = 1;
    while at < entries.len() {
        let (gone, new) = (&entries[at - 1], &entries[at]);
        let same = gone.commit == new.commit
            && match (&gone.event, &new.event) {
                (Event::InstanceRemoved(gone), Event::InstanceCreated(new)) => {
                    gone.process_guid == new.process_guid
                        && gone.order() == new.order()
                        && gone.modification_tag.epoch == new.modification_tag.epoch
                }
                _ => false,
            };
        if same {
            entries.swap(at - 1, at);
            at += 1;
        }
        at += 1;
    }
}
