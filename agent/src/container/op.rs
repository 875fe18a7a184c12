//! What the executor has a machine do for a container. The outcomes come back later, as inputs of
//! the executor.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

use volvox_protocol::action::{DownloadAction, EnvironmentVariable, RunAction, UploadAction};
use volvox_protocol::definition::Check;

use crate::executor::steps::{Output, StepId, StepSignal};
use crate::executor::work::Plan;
pub use crate::shim::wire::LogLine;

/// One thing to do for one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deed {
    /// Make it; then say `Made` or `NotMade`.
    Make(Box<Plan>),
    /// Hurry the making to its end. `Made` or `NotMade` still follows.
    Abandon,
    /// Run a process; then say `ProcessStarted` or `SpawnFailed`, and later `ProcessExited`.
    Spawn(Box<ProcessOrder>),
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

impl Deed {
    /// Whether it is for what runs in the container, and void when nothing does.
    pub fn is_for_processes(&self) -> bool {
        match self {
            Deed::Spawn(_) | Deed::Signal(..) | Deed::ForgetExit(_) | Deed::Log(_) => true,
            Deed::Make(_)
            | Deed::Abandon
            | Deed::Download(..)
            | Deed::Upload(..)
            | Deed::CancelTransfer(_)
            | Deed::Check { .. }
            | Deed::CancelCheck(_)
            | Deed::ReadResult(_)
            | Deed::Destroy => false,
        }
    }
}

/// A process to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessOrder {
    /// Its id.
    pub step: StepId,
    /// What to run. Its variables are in `env`.
    pub run: Box<RunAction>,
    /// All of its variables.
    pub env: Vec<EnvironmentVariable>,
    /// Where its output goes.
    pub output: Output,
    /// The source of its log lines.
    pub source: String,
}
