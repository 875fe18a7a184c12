//! How a process ended: one value for the shim that saw it, its disk, and the steps that wait for it.

use serde::{Deserialize, Serialize};

use super::step::StepId;

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// The agent's name for it.
    pub id: u32,
    /// How.
    pub end: End,
    /// Whether it was killed and the kernel had killed in this container for want of memory.
    pub out_of_memory: bool,
    /// Whether it was killed because the container had more on disk than it may.
    pub out_of_disk: bool,
    /// When, in nanoseconds since the Unix epoch.
    pub at: u64,
    /// What it said, if that was captured; at most 4 KiB.
    pub output: String,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// With this status.
    Status(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// An end of which nothing else is known.
    pub fn new(id: u32, end: End) -> Self {
        let output = String::new();
        Exit { id, end, out_of_memory: false, out_of_disk: false, at: 0, output }
    }

    /// The step that started it.
    pub fn step(&self) -> StepId {
        StepId(self.id)
    }
}

impl End {
    /// One number for both, as a Unix shell and Diego say it: the status, or 128 and the signal.
    pub fn status(self) -> i32 {
        const BY_SIGNAL: i32 = 128;
        match self {
            End::Status(status) => status,
            End::Signal(signal) => BY_SIGNAL + signal,
        }
    }
}
