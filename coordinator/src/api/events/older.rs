//! Events for Diego's own clients, and for readers of old among them.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::json;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::event::Event;

use super::downgraded;
use crate::bbs::hub::{self, Entry, Hub};

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

/// The text of an event for one of Diego's clients, but for its id.
pub(super) fn diego_frame(hub: &Hub, form: Form, entry: &Entry) -> Bytes {
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

/// Puts events into the BBS's order. When an instance goes and its record begins anew, the BBS tells of the
/// new one first; on our own streams the old one goes first, so that snapshot and events make the next
/// snapshot.
pub(super) fn in_bbs_order(entries: &mut [Arc<Entry>]) {
    let mut at = 1;
    while at < entries.len() {
        let (gone, new) = (&entries[at - 1], &entries[at]);
        let same = gone.commit == new.commit
            && match (&gone.event, &new.event) {
                (Event::InstanceRemoved(gone), Event::InstanceCreated(new)) => {
                    gone.process_guid == new.process_guid && gone.order() == new.order()
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
