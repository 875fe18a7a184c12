//! What subscribers see. Every event carries what was before and what is after, so that a reader
//! who holds a snapshot and applies the events has the next snapshot.

use std::sync::Arc;

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
