//! The board's times and counts. The defaults are those of the seeds, or Diego's where the seeds
//! leave a number open.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

use volvox_protocol::tables::crash::CrashPolicy;

/// How long the board waits before it acts, and how often it tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardSettings {
    /// When a crashed instance restarts.
    pub crash_policy: CrashPolicy,
    /// How long an instance may be UNCLAIMED before its start is asked for again; also the pause
    /// before any other order to a cell is repeated.
    pub stale_after: Duration,
    /// How long an evacuating record lasts.
    pub evacuation_timeout: Duration,
    /// How often a task may be rejected and tried again.
    pub task_retries: u32,
    /// How long a task may be stuck before it is pushed on: PENDING is auctioned again,
    /// COMPLETED is called back again, RESOLVING falls back to COMPLETED.
    pub kick_task_after: Duration,
    /// How long a task may wait for a cell before it fails.
    pub expire_pending_task_after: Duration,
    /// How long a completed task is kept for its consumer.
    pub expire_completed_task_after: Duration,
    /// How long an index may hold up an update whose definition runs elsewhere, where the
    /// deployment does not say.
    pub stuck_after: Duration,
    /// How many definitions a deployment keeps to go back to.
    pub definition_history: usize,
    /// How long it keeps them.
    pub definition_history_age: Duration,
}

impl Default for BoardSettings {
    fn default() -> Self {
        BoardSettings {
            crash_policy: CrashPolicy::default(),
            stale_after: Duration::from_secs(30),
            evacuation_timeout: Duration::from_secs(600),
            task_retries: 3,
            kick_task_after: Duration::from_secs(30),
            expire_pending_task_after: Duration::from_secs(1_800),
            expire_completed_task_after: Duration::from_secs(120),
            stuck_after: Duration::from_secs(600),
            definition_history: 10,
            definition_history_age: Duration::from_secs(30 * 24 * 60 * 60),
        }
    }
}
