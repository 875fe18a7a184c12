//! What goes into the board and what comes out of it.
//!
//! A command brings everything it needs: the time, and the randomness for new ids, come with it.
//! What comes out is data: the driver commits the changes, publishes the events and carries out
//! the effects, in that order.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpKey};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::deployment::{LrpDeployment, LrpDeploymentDefinition, LrpDeploymentUpdate};
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, DefinitionId, Domain, ProcessGuid, TaskGuid};
use volvox_protocol::request::{CellRequest, LrpStart, Rejection, TaskStart};
use volvox_protocol::task::{Task, TaskDefinition};
use volvox_protocol::time::Timestamp;
use volvox_protocol::validate::Valid;

use super::store::StoreError;

/// An order to the board.
#[derive(Debug, Clone)]
pub enum Command {
    /// The consumer's desired state of this domain is complete and current, for so long
    /// ([`Duration::ZERO`]: for ever).
    UpsertDomain(Domain, Duration),
    /// Run this.
    DesireLrp(Box<Valid<DesiredLrp>>),
    /// Change it. A definition that comes with it is refused while an update is under way.
    UpdateDesiredLrp(ProcessGuid, Box<Valid<DesiredLrpUpdate>>),
    /// Stop running this.
    RemoveDesiredLrp(ProcessGuid),
    /// Run this, from this definition.
    CreateDeployment(Box<Valid<LrpDeploymentDefinition>>),
    /// Change a deployment. A definition that comes with it supersedes an update under way.
    UpdateDeployment(ProcessGuid, Box<Valid<LrpDeploymentUpdate>>),
    /// Go to a definition that the deployment has. Supersedes an update under way.
    ActivateDefinition(ProcessGuid, DefinitionId),
    /// Stop running this.
    DeleteDeployment(ProcessGuid),
    /// Take the update back: every instance returns to the definition that was active before.
    CancelUpdate(ProcessGuid),
    /// Go to an earlier definition, from the deployment or from its history. Refused while an
    /// update is under way.
    Rollback(ProcessGuid, DefinitionId),
    /// The canaries are good: let the update go on.
    PromoteUpdate(ProcessGuid),
    /// Take up no more indices before [`Command::ResumeUpdate`].
    PauseUpdate(ProcessGuid),
    /// Let an update go on that was paused or has stalled. Canaries want to be promoted instead.
    ResumeUpdate(ProcessGuid),
    /// A cell reports.
    Cell(Valid<CellRequest>),
    /// The auction could not place this instance, for this reason.
    FailLrp(LrpKey, Box<str>),
    /// Remove this record, whatever holds it.
    RemoveLrp(LrpKey),
    /// Stop this instance; what is desired stays, so another takes its place.
    RetireLrp(LrpKey),
    /// Run this once.
    DesireTask(TaskGuid, Domain, Box<Valid<TaskDefinition>>),
    /// Do not run this task, or stop it.
    CancelTask(TaskGuid),
    /// Give this task up, for this reason.
    FailTask(TaskGuid, Box<str>),
    /// The auction could not place this task, for this reason. Refused once a cell has it.
    RejectTask(TaskGuid, Box<str>),
    /// Somebody takes it on to tell the consumer that this task has ended.
    ResolvingTask(TaskGuid, TaskRef),
    /// The consumer knows: forget this task.
    DeleteTask(TaskGuid, TaskRef),
    /// This cell has joined or left the mesh.
    CellPresence(CellId, CellPresence),
    /// Every cell that is there has been heard: those that have not been are missing.
    CellsSettled,
    /// Do what is due.
    ConvergeDue,
    /// Look at everything, find what is due, do it: the safety net under the agenda.
    ConvergeAll,
}

/// Which task of a name is meant: once one is forgotten, another may have its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskRef {
    /// The one that has it now.
    Present,
    /// The one that was made at this time, and no other.
    MadeAt(Timestamp),
}

/// The answer to a command that was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Done, or there was nothing to do.
    Done,
    /// Whether the calling cell shall run the task: true only for the call that started it.
    ShouldStart(bool),
    /// Whether the evacuating cell shall leave the container running.
    KeepContainer(bool),
    /// What convergence found.
    Converged(ConvergenceReport),
}

/// Commands that may wait. More are refused: a caller that hears "busy" can tell its own caller.
pub const QUEUE: usize = 8_192;

/// Why a call to the board did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The board said no. Nothing has changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The change could not be saved, so it did not happen. It may be tried again.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    /// Too many calls are waiting. Nothing has happened; try again in a moment.
    #[error("the board is busy: {QUEUE} calls are waiting already")]
    Busy,
    /// The board has been closed. Whether the change happened before that is not known.
    #[error("the board has been closed")]
    Closed,
}

/// What one run of convergence found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConvergenceReport {
    /// Things that were due and were dealt with.
    pub findings: usize,
    /// Entries of the agenda that did not agree with the records: each is a bug, mended.
    pub healed: usize,
}

/// Everything that follows from one command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyResult {
    /// The answer for the caller.
    pub reply: Reply,
    /// What changed, in order. The store commits these, the view applies them.
    pub changes: Vec<Change>,
    /// What subscribers are told, in order.
    pub events: Vec<Event>,
    /// What is to be done outside. May be lost in a crash: convergence asks again.
    pub effects: Vec<BoardEffect>,
}

/// An order to the driver, carried out after the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoardEffect {
    /// Find cells for these.
    RequestAuction(Vec<LrpStart>, Vec<TaskStart>),
    /// Tell the cell to stop this instance. Its record says so, and convergence asks again until
    /// the record is gone.
    StopInstance(LrpKey, InstanceKey),
    /// Tell the cell that the routes or tags of this instance changed.
    UpdateInstance(LrpKey, InstanceKey),
    /// Tell the cell to delete this task's container.
    CancelTask(CellId, TaskGuid),
    /// Tell the consumer that this task has ended: resolve it, call its URL, delete it.
    CallBack(Arc<Task>),
}

/// Where the store keeps a record. Given by the board in rising order and never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub u64);

/// How long a domain is fresh.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DomainRecord {
    /// The domain.
    pub domain: Domain,
    /// How long it was to be fresh when the consumer last said so; [`Duration::ZERO`] for ever.
    pub ttl: Duration,
    /// When its freshness ends; [`Timestamp::NEVER`] for never.
    pub expires_at: Timestamp,
}

impl DomainRecord {
    /// When freshness ends that is granted at `now`.
    pub fn end(now: Timestamp, ttl: Duration) -> Timestamp {
        if ttl.is_zero() { Timestamp::NEVER } else { now + ttl }
    }
}

/// What convergence looks at as one: an index of a process, a deployment, a task, a domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConvergeKey {
    /// A domain.
    Domain(Domain),
    /// All the records of one index of one definition.
    Index(ProcessGuid, DefinitionId, u32),
    /// The definitions of a process and the way from one to the next.
    Deployment(ProcessGuid),
    /// A task.
    Task(TaskGuid),
}

/// One step from a state of the board to the next. Swapping before and after undoes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A domain record.
    Domain(RowId, Option<DomainRecord>, Option<DomainRecord>),
    /// A deployment.
    Deployment(RowId, Option<Arc<LrpDeployment>>, Option<Arc<LrpDeployment>>),
    /// An instance record. Its presence may change, the rest of its key may not.
    Actual(RowId, Option<Arc<ActualLrp>>, Option<Arc<ActualLrp>>),
    /// A task.
    Task(RowId, Option<Arc<Task>>, Option<Arc<Task>>),
    /// What the mesh says of a cell. Not stored: a new coordinator listens anew.
    Presence(CellId, Option<CellPresence>, Option<CellPresence>),
    /// Whether the mesh has been heard out. Not stored.
    Settled(CellCoverage, CellCoverage),
    /// When something was last asked of the outside. Not stored: a new coordinator asks again.
    Asked(ConvergeKey, Option<Timestamp>, Option<Timestamp>),
}

/// How much of the mesh the board has heard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CellCoverage {
    /// A cell that was not mentioned may still be there.
    #[default]
    Some,
    /// A cell that was not mentioned is missing.
    All,
}

impl Change {
    /// Whether it is stored.
    pub fn is_kept(&self) -> bool {
        match self {
            Change::Domain(..) | Change::Deployment(..) | Change::Actual(..) | Change::Task(..) => {
                true
            }
            Change::Presence(..) | Change::Settled(..) | Change::Asked(..) => false,
        }
    }

    /// The step back.
    #[must_use]
    pub fn inverse(self) -> Self {
        match self {
            Change::Domain(row, before, after) => Change::Domain(row, after, before),
            Change::Deployment(row, before, after) => Change::Deployment(row, after, before),
            Change::Actual(row, before, after) => Change::Actual(row, after, before),
            Change::Task(row, before, after) => Change::Task(row, after, before),
            Change::Presence(cell, before, after) => Change::Presence(cell, after, before),
            Change::Settled(before, after) => Change::Settled(after, before),
            Change::Asked(subject, before, after) => Change::Asked(subject, after, before),
        }
    }
}

/// What the board says to a command.
pub type Verdict = Result<ApplyResult, Rejection>;
