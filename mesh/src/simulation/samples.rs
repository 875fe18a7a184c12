//! What cells might say of themselves.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;

use volvox_protocol::cell::{CellCapacity, CellInfo, CellLoad};
use volvox_protocol::id::CellId;

/// An info such as a cell might have.
pub fn sample_info(cell_id: CellId, place: usize) -> CellInfo {
    CellInfo {
        cell_id,
        zone: format!("z{}", place % 3),
        capacity: CellCapacity { memory_mb: 65_536, disk_mb: 204_800, containers: 250 },
        rootfs_providers: Vec::new(),
        placement_tags: Vec::new(),
        optional_placement_tags: Vec::new(),
        volume_drivers: Vec::new(),
        rep_address: "10.0.0.1:7000".to_owned(),
        annotations: BTreeMap::new(),
        version: 1,
    }
}

/// A load such as a cell might have.
pub fn sample_load(cell_id: CellId, free_mb: u32) -> CellLoad {
    CellLoad {
        cell_id,
        version: 0,
        free: CellCapacity { memory_mb: free_mb, disk_mb: 100_000, containers: 200 },
        starting_containers: 0,
        evacuating: false,
        healthy: true,
        last_batch: 0,
        digest: u128::MAX / 3,
    }
}
