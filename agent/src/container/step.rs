//! What a step of a container asks of the machine, by which name, and what came of it.

use serde::{Deserialize, Serialize};

use super::exit::Exit;

/// One thing that the tree started. Every start has a new one, a monitor's second run too, so that
/// what comes late cannot be taken for something newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(pub u32);

/// What came of a thing that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepEvent {
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
    ProcessExited(Exit),
    /// A download or upload has ended; after a cancel too.
    TransferDone {
        /// Which one.
        step: StepId,
        /// How.
        result: Result<Transferred, TransferFailure>,
    },
    /// A check has been made. A cancelled one needs no answer.
    CheckResult {
        /// Which one.
        step: StepId,
        /// What it found.
        outcome: CheckOutcome,
    },
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

/// How a process is told to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepSignal {
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}
