//! What cells and coordinator say to each other, and how a request is refused.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::actual_lrp::{InstanceKey, LrpKey, Running};
use crate::definition::LrpDefinition;
use crate::id::{CellId, DefinitionId, Domain, ProcessGuid, TaskGuid};
use crate::limits::{ARGUMENT_BYTES, RESULT_BYTES};
use crate::task::TaskDefinition;
use crate::validate::{Checker, Validate};

/// What a cell tells the board about its instances and tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CellRequest {
    /// We won this instance and are about to start it.
    ClaimLrp(LrpKey, InstanceKey),
    /// It runs, and this is how to reach it.
    StartLrp(LrpKey, InstanceKey, Arc<Running>),
    /// It ended without being asked to, for this reason.
    CrashLrp(LrpKey, InstanceKey, Box<str>),
    /// It was stopped as asked, or we have no such container.
    RemoveLrp(LrpKey, InstanceKey),
    /// We are leaving, and it had not come to run.
    EvacuateClaimed(LrpKey, InstanceKey),
    /// We are leaving, and it runs: find a replacement.
    EvacuateRunning(LrpKey, InstanceKey, Arc<Running>),
    /// We are leaving, and it crashed.
    EvacuateCrashed(LrpKey, InstanceKey, Box<str>),
    /// We are leaving, and it was stopped.
    EvacuateStopped(LrpKey, InstanceKey),
    /// We have left: its evacuating record may go.
    RemoveEvacuating(LrpKey, InstanceKey),
    /// We have room for this task and ask whether to run it.
    StartTask(TaskGuid, CellId),
    /// The task ended.
    CompleteTask(TaskGuid, CellId, TaskOutcome),
    /// The task could not be begun here.
    RejectTask(TaskGuid, CellId, Box<str>),
}

/// How a task ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutcome {
    /// Whether it failed.
    pub failed: bool,
    /// Why it failed; empty when it did not.
    pub failure_reason: String,
    /// The contents of its result file.
    pub result: String,
}

impl TaskOutcome {
    /// The end of a task that failed for this reason.
    pub fn failed_because(reason: &str) -> Self {
        TaskOutcome { failed: true, failure_reason: reason.to_owned(), result: String::new() }
    }
}

impl CellRequest {
    /// The cell that speaks: it must be the one in the sender's certificate.
    pub fn cell_id(&self) -> &CellId {
        match self {
            CellRequest::ClaimLrp(_, instance)
            | CellRequest::StartLrp(_, instance, _)
            | CellRequest::CrashLrp(_, instance, _)
            | CellRequest::RemoveLrp(_, instance)
            | CellRequest::EvacuateClaimed(_, instance)
            | CellRequest::EvacuateRunning(_, instance, _)
            | CellRequest::EvacuateCrashed(_, instance, _)
            | CellRequest::EvacuateStopped(_, instance)
            | CellRequest::RemoveEvacuating(_, instance) => &instance.cell_id,
            CellRequest::StartTask(_, cell)
            | CellRequest::CompleteTask(_, cell, _)
            | CellRequest::RejectTask(_, cell, _) => cell,
        }
    }
}

impl Validate for CellRequest {
    fn check(&self, at: &mut Checker) {
        match self {
            CellRequest::ClaimLrp(key, _)
            | CellRequest::RemoveLrp(key, _)
            | CellRequest::EvacuateClaimed(key, _)
            | CellRequest::EvacuateStopped(key, _)
            | CellRequest::RemoveEvacuating(key, _) => key.check(at),
            CellRequest::StartLrp(key, _, running)
            | CellRequest::EvacuateRunning(key, _, running) => {
                key.check(at);
                running.check(at);
            }
            CellRequest::CrashLrp(key, _, reason)
            | CellRequest::EvacuateCrashed(key, _, reason) => {
                key.check(at);
                at.at_most("error_message", reason.len(), ARGUMENT_BYTES, "bytes");
            }
            CellRequest::StartTask(..) => {}
            CellRequest::CompleteTask(_, _, outcome) => {
                at.at_most("failure_reason", outcome.failure_reason.len(), ARGUMENT_BYTES, "bytes");
                at.at_most("result", outcome.result.len(), RESULT_BYTES, "bytes");
            }
            CellRequest::RejectTask(_, _, reason) => {
                at.not_empty("rejection_reason", reason);
                at.at_most("rejection_reason", reason.len(), ARGUMENT_BYTES, "bytes");
            }
        }
    }
}

/// What the coordinator tells a cell to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CellOrder {
    /// Take on this work, or say what does not fit.
    Work(WorkBatch),
    /// Stop this instance, gracefully.
    StopInstance(LrpKey, InstanceKey),
    /// Delete this task's container.
    CancelTask(TaskGuid),
    /// The routes or metric tags of this instance changed: read them again.
    UpdateInstance(LrpKey, InstanceKey),
    /// What you have and what we believe you have differ, or an order was lost: sync.
    Sync,
    /// Hand your work over to others, take no more, and say when you are empty.
    Evacuate,
}

/// One numbered batch of work for one cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkBatch {
    /// Its number, which the cell names in its load once it has admitted it.
    pub number: u64,
    /// Instances to start.
    pub lrps: Vec<LrpStart>,
    /// Tasks to run.
    pub tasks: Vec<TaskStart>,
}

/// What a piece of work needs of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// Memory in MiB.
    pub memory_mb: u32,
    /// Disk in MiB.
    pub disk_mb: u32,
    /// Processes and threads; 0 for no limit.
    pub max_pids: u32,
    /// The root file system's URL.
    pub rootfs: String,
    /// Tags that the cell must accept.
    pub placement_tags: Vec<String>,
    /// Volume drivers that the cell must have.
    pub volume_drivers: Vec<String>,
}

impl Requirements {
    /// What an instance of this definition needs.
    pub fn of(definition: &LrpDefinition) -> Self {
        Requirements {
            memory_mb: definition.memory_mb,
            disk_mb: definition.disk_mb,
            max_pids: definition.max_pids,
            rootfs: definition.rootfs.clone(),
            placement_tags: definition.placement_tags.clone(),
            volume_drivers: definition.volume_drivers(),
        }
    }

    /// What this task needs.
    pub fn of_task(definition: &TaskDefinition) -> Self {
        let mut volume_drivers: Vec<String> =
            definition.volume_mounts.iter().map(|mount| mount.driver.clone()).collect();
        volume_drivers.sort();
        volume_drivers.dedup();
        Requirements {
            memory_mb: definition.memory_mb,
            disk_mb: definition.disk_mb,
            max_pids: definition.max_pids,
            rootfs: definition.rootfs.clone(),
            placement_tags: definition.placement_tags.clone(),
            volume_drivers,
        }
    }
}

/// Instances of one process that want a cell each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LrpStart {
    /// The process.
    pub process_guid: ProcessGuid,
    /// The definition to make them from.
    pub definition_id: DefinitionId,
    /// The domain.
    pub domain: Domain,
    /// Which instances, in rising order.
    pub indices: Vec<u32>,
    /// What each needs.
    pub requirements: Arc<Requirements>,
}

/// A task that wants a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStart {
    /// The task.
    pub task_guid: TaskGuid,
    /// Its domain.
    pub domain: Domain,
    /// What it needs.
    pub requirements: Arc<Requirements>,
}

/// Why the board said no. Nothing has changed; what to do is in each variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Rejection {
    /// There is no such record. The caller's picture is old: read again.
    #[error("{0} could not be found")]
    NotFound(String),
    /// There is such a record already. Update it, or choose another name.
    #[error("{0} already exists")]
    Exists(String),
    /// The request breaks a rule. The message names the field and the rule.
    #[error("{0}")]
    Invalid(String),
    /// Another instance is further than the caller: give up this container.
    #[error("cannot claim actual LRP: it is {0}")]
    CannotClaim(String),
    /// Another instance already runs: stop this container.
    #[error("cannot start actual LRP: it is {0}")]
    CannotStart(String),
    /// The record is not the caller's to crash: the crash is known, or is not its own.
    #[error("cannot crash actual LRP: it is {0}")]
    CannotCrash(String),
    /// It has found a cell meanwhile: nothing to do.
    #[error("cannot fail actual LRP: it is {0}")]
    CannotFail(String),
    /// The evacuating record is another instance's: leave it.
    #[error("cannot remove actual LRP: it is {0}")]
    CannotRemove(String),
    /// A task cannot go that way. Read it again.
    #[error("cannot transition from {from} to {to}")]
    TaskTransition {
        /// Where the task is.
        from: String,
        /// Where it was to go.
        to: String,
    },
    /// Another cell runs the task: delete this container.
    #[error("running on cell {recorded} not {caller}")]
    RunningOnDifferentCell {
        /// The cell in the record.
        recorded: String,
        /// The cell that called.
        caller: String,
    },
    /// An update is under way. Cancel it, wait for its end, or supersede it by an update of the
    /// deployment.
    #[error("an update of {0} is in progress")]
    UpdateInProgress(String),
    /// No update is under way, so there is nothing to cancel, promote, pause or resume.
    #[error("no update of {0} is in progress")]
    NoUpdateInProgress(String),
}

impl Rejection {
    /// The BBS's name for this kind of error.
    pub const fn kind(&self) -> &'static str {
        match self {
            Rejection::NotFound(_) => "ResourceNotFound",
            Rejection::Exists(_) => "ResourceExists",
            Rejection::Invalid(_) => "InvalidRequest",
            Rejection::CannotClaim(_) => "ActualLRPCannotBeClaimed",
            Rejection::CannotStart(_) => "ActualLRPCannotBeStarted",
            Rejection::CannotCrash(_) => "ActualLRPCannotBeCrashed",
            Rejection::CannotFail(_) => "ActualLRPCannotBeFailed",
            Rejection::CannotRemove(_) => "ActualLRPCannotBeRemoved",
            Rejection::TaskTransition { .. } => "InvalidStateTransition",
            Rejection::RunningOnDifferentCell { .. } => "RunningOnDifferentCell",
            Rejection::UpdateInProgress(_) => "UpdateInProgress",
            Rejection::NoUpdateInProgress(_) => "NoUpdateInProgress",
        }
    }
}
