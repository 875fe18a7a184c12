//! How the rep is doing, as the control socket tells it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use serde::{Deserialize, Serialize};
use volvox_protocol::cell::{CellCapacity, CellLoad};

use super::logic::EvacuationStatus;

/// How the rep is doing, for people on the machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RepStatus {
    /// Whether a coordinator can be asked.
    pub coordinator: bool,
    /// What everybody was last told.
    pub load: Option<LoadStatus>,
    /// The evacuation, if there is one.
    pub evacuation: Option<EvacuationStatus>,
    /// Self-tests that failed in a row.
    pub self_test_failures: u32,
    /// Rows of the tables that should not have been met.
    pub inconceivable: u64,
}

/// A cell's load, for people.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadStatus {
    /// The room that is left.
    pub free: CellCapacity,
    /// Containers that are being started.
    pub starting_containers: u32,
    /// Whether it hands its work over.
    pub evacuating: bool,
    /// Whether its self-test passes.
    pub healthy: bool,
}

impl From<&CellLoad> for LoadStatus {
    fn from(load: &CellLoad) -> Self {
        LoadStatus {
            free: load.free,
            starting_containers: load.starting_containers,
            evacuating: load.evacuating,
            healthy: load.healthy,
        }
    }
}
