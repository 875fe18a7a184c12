//! What the driver tells a step tree, and what the tree has the driver do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::{DownloadAction, RunAction, UploadAction};
use volvox_protocol::container::RunResult;
use volvox_protocol::definition::Check;

pub(super) use crate::container::spec::{LogStream, OutputTarget};
pub(super) use crate::container::step::{
    CheckOutcome, StepEvent, StepId, StepSignal, TransferFailure, Transferred,
};

/// One timer. Every start of one has a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimerId(pub u32);

/// What the driver tells the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepInput {
    /// The container is there: begin.
    Begin,
    /// Something that the tree started has come to something.
    Event(StepEvent),
    /// A timer is due.
    TimerFired(TimerId),
    /// Stop gracefully.
    Cancel,
}

/// What the driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepOutput {
    /// Make a process; then say `ProcessStarted` or `SpawnFailed`, and later `ProcessExited`.
    Spawn {
        /// Its id.
        step: StepId,
        /// What to run.
        run: Box<RunAction>,
        /// Where its output goes.
        output: OutputTarget,
        /// The source of its log lines.
        source: String,
    },
    /// Signal a process, and all it started. Ignore it when the process has exited.
    Signal {
        /// Which process.
        step: StepId,
        /// Which signal.
        signal: StepSignal,
    },
    /// Fetch and unpack; then say `TransferDone`.
    StartDownload {
        /// Its id.
        step: StepId,
        /// What, from where, to where.
        download: Box<DownloadAction>,
        /// The source of its log lines.
        source: String,
    },
    /// Send; then say `TransferDone`.
    StartUpload {
        /// Its id.
        step: StepId,
        /// What, from where, to where.
        upload: Box<UploadAction>,
        /// The source of its log lines.
        source: String,
    },
    /// Break a transfer off; `TransferDone` must follow, for one that is not known too.
    CancelTransfer {
        /// Which one.
        step: StepId,
    },
    /// Say `TimerFired` after this time.
    StartTimer {
        /// Its id.
        timer: TimerId,
        /// How long to wait.
        after: Duration,
    },
    /// Forget a timer.
    CancelTimer {
        /// Which one.
        timer: TimerId,
    },
    /// Make a check; then say `CheckResult`.
    RunCheck {
        /// Its id.
        step: StepId,
        /// What to check.
        check: Check,
        /// When to give up.
        timeout: Duration,
    },
    /// Forget a check.
    CancelCheck {
        /// Which one.
        step: StepId,
    },
    /// Write a line into the application's log.
    Log {
        /// Its source.
        source: String,
        /// On which stream.
        stream: LogStream,
        /// The line, without its end.
        text: String,
    },
    /// The container runs, and if it has a monitor, is healthy.
    Ready,
    /// Whether traffic may go there. First said right before `Ready`.
    Routable(bool),
    /// It is over. No further effect follows.
    Finished(RunResult),
}
