//! What subscribers see. Every event carries what was before and what is after, so that a reader
//! who holds a snapshot and applies the events has the next snapshot.
//!
//! An event is told in JSON, or to Diego's clients in a message ([`crate::diego`]), and has no other
//! binary form: the board stores records, not events. Its payload has the keys of the BBS's
//! messages, its name ([`Event::name`]) stands beside it. Of the BBS's keys `trace_id` alone is
//! missing: traces are not the board's, and who tells the event adds it. And in one place there is
//! more: `before` and `after` of a changed instance are whole records, a superset of the BBS's
//! ActualLRPInfo, which leaves out keys, internal routes and metric tags, and so could not be
//! applied to a snapshot.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::ser::{Error as _, SerializeStruct};
use serde::{Serialize, Serializer};

use crate::actual_lrp::{ActualLrp, InstanceKey, LrpGroup, LrpKey};
use crate::deployment::LrpDeployment;
use crate::task::Task;
use crate::time::Timestamp;

/// One thing that happened on the board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A process is desired.
    DesiredLrpCreated(Arc<LrpDeployment>),
    /// What is desired of a process changed, or was said again.
    DesiredLrpChanged(Arc<LrpDeployment>, Arc<LrpDeployment>),
    /// A process is no longer desired.
    DesiredLrpRemoved(Arc<LrpDeployment>),

    /// An instance record came to be.
    InstanceCreated(Arc<ActualLrp>),
    /// An instance record changed, its presence perhaps too.
    InstanceChanged(Arc<ActualLrp>, Arc<ActualLrp>),
    /// An instance record went.
    InstanceRemoved(Arc<ActualLrp>),
    /// An instance crashed. A notice: the change itself has an event of its own.
    Crashed(Crash),

    /// On the older group stream: something to route to was added.
    GroupCreated(LrpGroup),
    /// On the older group stream: the record that stands for an index changed.
    GroupChanged(LrpGroup, LrpGroup),
    /// On the older group stream: something to route to went away.
    GroupRemoved(LrpGroup),

    /// A task was desired.
    TaskCreated(Arc<Task>),
    /// A task changed.
    TaskChanged(Arc<Task>, Arc<Task>),
    /// A task was deleted.
    TaskRemoved(Arc<Task>),
}

/// What is told of a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// Which instance.
    pub key: LrpKey,
    /// The container that crashed.
    pub instance: InstanceKey,
    /// Crashes in a row, this one counted.
    pub crash_count: u32,
    /// Why.
    pub crash_reason: Box<str>,
    /// When.
    pub since: Timestamp,
}

impl Event {
    /// The name that the event has on the BBS's streams.
    pub const fn name(&self) -> &'static str {
        match self {
            Event::DesiredLrpCreated(_) => "desired_lrp_created",
            Event::DesiredLrpChanged(..) => "desired_lrp_changed",
            Event::DesiredLrpRemoved(_) => "desired_lrp_removed",
            Event::InstanceCreated(_) => "actual_lrp_instance_created",
            Event::InstanceChanged(..) => "actual_lrp_instance_changed",
            Event::InstanceRemoved(_) => "actual_lrp_instance_removed",
            Event::Crashed(_) => "actual_lrp_crashed",
            Event::GroupCreated(_) => "actual_lrp_created",
            Event::GroupChanged(..) => "actual_lrp_changed",
            Event::GroupRemoved(_) => "actual_lrp_removed",
            Event::TaskCreated(_) => "task_created",
            Event::TaskChanged(..) => "task_changed",
            Event::TaskRemoved(_) => "task_removed",
        }
    }
}

/// A change of what is desired, as readers of deployments are told it: with all definitions in use
/// and how far an update has come, but without the history. Older streams have the projection.
#[derive(Debug, Clone, Copy)]
pub enum DeploymentEvent<'a> {
    /// A deployment was created.
    Created(&'a LrpDeployment),
    /// A deployment changed, or its update took a step.
    Changed(&'a LrpDeployment, &'a LrpDeployment),
    /// A deployment was deleted.
    Removed(&'a LrpDeployment),
}

impl Event {
    /// The same event for readers of deployments, when it is about one.
    pub fn deployment(&self) -> Option<DeploymentEvent<'_>> {
        match self {
            Event::DesiredLrpCreated(new) => Some(DeploymentEvent::Created(new)),
            Event::DesiredLrpChanged(old, new) => Some(DeploymentEvent::Changed(old, new)),
            Event::DesiredLrpRemoved(old) => Some(DeploymentEvent::Removed(old)),
            Event::InstanceCreated(_)
            | Event::InstanceChanged(..)
            | Event::InstanceRemoved(_)
            | Event::Crashed(_)
            | Event::GroupCreated(_)
            | Event::GroupChanged(..)
            | Event::GroupRemoved(_)
            | Event::TaskCreated(_)
            | Event::TaskChanged(..)
            | Event::TaskRemoved(_) => None,
        }
    }
}

impl DeploymentEvent<'_> {
    /// The name that the event has on the stream of deployments.
    pub const fn name(&self) -> &'static str {
        match self {
            DeploymentEvent::Created(_) => "lrp_deployment_created",
            DeploymentEvent::Changed(..) => "lrp_deployment_changed",
            DeploymentEvent::Removed(_) => "lrp_deployment_removed",
        }
    }
}

impl Serialize for DeploymentEvent<'_> {
    /// The payload, without the name.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return Err(S::Error::custom("an event is told in JSON only"));
        }
        match self {
            DeploymentEvent::Created(it) | DeploymentEvent::Removed(it) => {
                one(to, "lrp_deployment", &it.without_history())
            }
            DeploymentEvent::Changed(before, after) => {
                both(to, &before.without_history(), &after.without_history())
            }
        }
    }
}

impl Serialize for Event {
    /// The payload, without the name.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return Err(S::Error::custom("an event is told in JSON only"));
        }
        match self {
            Event::DesiredLrpCreated(lrp) | Event::DesiredLrpRemoved(lrp) => {
                one(to, "desired_lrp", &lrp.project())
            }
            Event::DesiredLrpChanged(before, after) => {
                both(to, &before.project(), &after.project())
            }
            Event::InstanceCreated(lrp) | Event::InstanceRemoved(lrp) => one(to, "actual_lrp", lrp),
            Event::InstanceChanged(before, after) => changed(to, before, after),
            Event::Crashed(crash) => crashed(to, crash),
            Event::GroupCreated(group) | Event::GroupRemoved(group) => {
                one(to, "actual_lrp_group", group)
            }
            Event::GroupChanged(before, after) => both(to, before, after),
            Event::TaskCreated(task) | Event::TaskRemoved(task) => one(to, "task", task),
            Event::TaskChanged(before, after) => both(to, before, after),
        }
    }
}

fn one<S: Serializer>(to: S, key: &'static str, value: &impl Serialize) -> Result<S::Ok, S::Error> {
    let mut open = to.serialize_struct("Event", 1)?;
    open.serialize_field(key, value)?;
    open.end()
}

fn both<S: Serializer, T: Serialize>(to: S, before: &T, after: &T) -> Result<S::Ok, S::Error> {
    let mut open = to.serialize_struct("Event", 2)?;
    open.serialize_field("before", before)?;
    open.serialize_field("after", after)?;
    open.end()
}

/// The instance key on top is what subscribers of one cell are chosen by: the cell that the
/// instance is on, or that it left by this change.
fn changed<S: Serializer>(to: S, before: &ActualLrp, after: &ActualLrp) -> Result<S::Ok, S::Error> {
    let mut open = to.serialize_struct("Event", 8)?;
    keys(&mut open, &after.key(), after.instance().or(before.instance()))?;
    open.serialize_field("before", before)?;
    open.serialize_field("after", after)?;
    open.end()
}

fn crashed<S: Serializer>(to: S, crash: &Crash) -> Result<S::Ok, S::Error> {
    let mut open = to.serialize_struct("Event", 9)?;
    keys(&mut open, &crash.key, Some(&crash.instance))?;
    open.serialize_field("crash_count", &crash.crash_count)?;
    if !crash.crash_reason.is_empty() {
        open.serialize_field("crash_reason", &crash.crash_reason)?;
    }
    open.serialize_field("since", &crash.since)?;
    open.end()
}

/// Both keys, flat; an instance on no cell has empty texts, as in the record.
fn keys<S: SerializeStruct>(
    open: &mut S,
    key: &LrpKey,
    instance: Option<&InstanceKey>,
) -> Result<(), S::Error> {
    open.serialize_field("process_guid", &key.process_guid)?;
    open.serialize_field("index", &key.index)?;
    open.serialize_field("domain", &key.domain)?;
    if let Some(definition_id) = &key.definition_id {
        open.serialize_field("definition_id", definition_id)?;
    }
    let guid = instance.map_or("", |instance| instance.instance_guid.as_str());
    open.serialize_field("instance_guid", guid)?;
    open.serialize_field("cell_id", instance.map_or("", |instance| instance.cell_id.as_str()))
}
