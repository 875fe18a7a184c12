//! What the driver tells a step tree, and what the tree has the driver do.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::{DownloadAction, RunAction, UploadAction};
use volvox_protocol::container::RunResult;
use volvox_protocol::definition::Check;

pub use crate::shim::wire::LogStream;

/// One thing that the tree started. Every start has a new one, a monitor's second run too, so that
/// what comes late cannot be taken for something newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(pub u32);

/// One timer. Every start of one has a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimerId(pub u32);

/// What the driver tells the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// The container is there: begin.
    Begin,
    /// A process exists.
    ProcessStarted(StepId),
    /// A process could not be made. Nothing of it runs.
    SpawnFailed {
        /// Which one.
        step: StepId,
        /// Why.
        error: String,
    },
    /// A process has exited and was waited for.
    ProcessExited {
        /// Which one.
        step: StepId,
        /// How.
        exit: Exit,
    },
    /// A download or upload has ended; after a cancel too.
    TransferDone {
        /// Which one.
        step: StepId,
        /// How.
        result: Result<Transferred, TransferFailure>,
    },
    /// A timer is due.
    TimerFired(TimerId),
    /// A check has been made. A cancelled one needs no answer.
    CheckResult {
        /// Which one.
        step: StepId,
        /// What it found.
        outcome: CheckOutcome,
    },
    /// Stop gracefully.
    Cancel,
}

/// How a process exited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// Its status; 128 and the number for one that a signal ended.
    pub status: i32,
    /// Whether the kernel ended something in the container because memory ran out.
    pub out_of_memory: bool,
    /// Whether everything in the container was ended because it had used up its disk.
    pub out_of_disk: bool,
    /// What it printed, for [`Output::Capture`]; else empty.
    pub output: String,
}

/// What a transfer moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transferred {
    /// This many bytes came or went.
    Bytes(u64),
    /// The cell had the archive already.
    FromCache,
}

/// How a transfer failed. The details that consumers do not see are for the driver's own log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferFailure {
    /// Download: it could not be fetched, or is not what was promised.
    Fetch,
    /// Download: it could not be unpacked into the container, for this reason.
    Copy(String),
    /// Upload: the URL is none.
    ParseUrl,
    /// Upload: no folder to work in.
    CreateTempDir,
    /// Upload: the container gave no stream.
    EstablishStream,
    /// Upload: there is no such file.
    FindFirstItem,
    /// Upload: no file to copy into.
    CreateTempFile,
    /// Upload: the copy broke off.
    CopyStream,
    /// Upload: it could not be sent.
    UploadPayload,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckOutcome {
    /// All is well.
    Passed,
    /// It is not, for this reason.
    Failed(String),
    /// The check could not be made, for this reason. Counts as failed.
    CouldNotRun(String),
}

/// What the driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Effect {
    /// Make a process; then say `ProcessStarted` or `SpawnFailed`, and later `ProcessExited`.
    Spawn {
        /// Its id.
        step: StepId,
        /// What to run.
        run: Box<RunAction>,
        /// Where its output goes.
        output: Output,
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

/// Where a process's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Output {
    /// Into the log.
    Log,
    /// Nowhere.
    Discard,
    /// Into [`Exit::output`]: what a monitor prints is the reason why it failed.
    Capture,
}

/// How a process is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepSignal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}
