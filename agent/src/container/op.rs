//! What the executor has a machine do for a container, and what comes of it, later.

use std::time::Duration;

use volvox_protocol::action::{DownloadAction, UploadAction};
use volvox_protocol::definition::Check;

use super::network::ContainerNetwork;
use super::plan::ContainerPlan;
use super::spec::{LogLine, ProcessSpec};
use super::step::{StepEvent, StepId, StepSignal};

/// One thing to do for one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerOp {
    /// Make it; then say `Made` or `NotMade`.
    Make(Box<ContainerPlan>),
    /// Hurry the making to its end. `Made` or `NotMade` still follows.
    Abandon,
    /// Run a process; then say `ProcessStarted` or `SpawnFailed`, and later `ProcessExited`.
    Spawn(Box<ProcessSpec>),
    /// Signal a process and all it started, if it runs.
    Signal(StepId, StepSignal),
    /// The exit of this process was taken note of: its record may go.
    ForgetExit(u32),
    /// Write a line into the container's log.
    Log(LogLine),
    /// Fetch and unpack; then say `TransferDone`.
    Download(StepId, Box<DownloadAction>),
    /// Send; then say `TransferDone`.
    Upload(StepId, Box<UploadAction>),
    /// Break a transfer off; `TransferDone` must follow, for one that is not known too.
    CancelTransfer(StepId),
    /// Make a check; then say `CheckResult`.
    Check {
        /// Its id.
        step: StepId,
        /// What to check.
        check: Check,
        /// When to give up.
        timeout: Duration,
    },
    /// Forget a check.
    CancelCheck(StepId),
    /// Read the result file; then say `ResultRead`.
    ReadResult(String),
    /// Take it away, whatever there is of it, or nothing; then say `Destroyed` or `DestroyFailed`.
    Destroy,
}

impl ContainerOp {
    /// Whether it is for what runs in the container, and void when nothing does.
    pub fn is_for_processes(&self) -> bool {
        match self {
            ContainerOp::Spawn(_)
            | ContainerOp::Signal(..)
            | ContainerOp::ForgetExit(_)
            | ContainerOp::Log(_) => true,
            ContainerOp::Make(_)
            | ContainerOp::Abandon
            | ContainerOp::Download(..)
            | ContainerOp::Upload(..)
            | ContainerOp::CancelTransfer(_)
            | ContainerOp::Check { .. }
            | ContainerOp::CancelCheck(_)
            | ContainerOp::ReadResult(_)
            | ContainerOp::Destroy => false,
        }
    }
}

/// What came of a deed, or happened to a container by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpOutcome {
    /// It is made, and this is how it is reached.
    Made(ContainerNetwork),
    /// It could not be made, for this reason. Nothing of it is left.
    NotMade(String),
    /// Something that a step waits for has happened.
    Step(StepEvent),
    /// The contents of the result file, or why there are none.
    ResultRead(Result<String, String>),
    /// It died as a whole: nothing in it runs any more.
    Gone,
    /// It is taken away.
    Destroyed,
    /// It could not be taken away, for this reason.
    DestroyFailed(String),
}
