//! What containers take of the cell: memory, disk, and places.
//!
//! Not a measurement: a container counts with what it asked for, from its reservation to the end
//! of its deletion. The [`container_store`](super::container_store) takes and gives back; nobody else does. What
//! is taken is never negative and never wraps.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;

use serde::{Deserialize, Serialize};
use volvox_protocol::cell::CellCapacity;

/// What one container takes, besides its place. 0 is no limit in the container, and takes nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerResources {
    /// Memory.
    pub memory_mb: u32,
    /// Disk.
    pub disk_mb: u32,
}

/// A cell's room: all of it, and what is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resources {
    total: CellCapacity,
    taken: Taken,
}

/// Sums are wider than their parts: 2³² containers of 2³² MB each fit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taken {
    memory_mb: u64,
    disk_mb: u64,
    containers: u64,
}

impl Resources {
    /// All of this, and nothing taken.
    pub fn new(total: CellCapacity) -> Self {
        Resources { total, taken: Taken::default() }
    }

    /// All of the cell's room.
    pub fn total(&self) -> CellCapacity {
        self.total
    }

    /// What is not taken.
    pub fn remaining(&self) -> CellCapacity {
        CellCapacity {
            memory_mb: left(self.total.memory_mb, self.taken.memory_mb),
            disk_mb: left(self.total.disk_mb, self.taken.disk_mb),
            containers: left(self.total.containers, self.taken.containers),
        }
    }

    /// Takes room for one container, all or nothing.
    pub fn take(&mut self, wanted: ContainerResources) -> Result<(), Shortage> {
        let left = self.remaining();
        let short: Vec<_> = [
            (Resource::Memory, wanted.memory_mb, left.memory_mb),
            (Resource::Disk, wanted.disk_mb, left.disk_mb),
            (Resource::Containers, 1, left.containers),
        ]
        .into_iter()
        .filter(|(_, wanted, left)| wanted > left)
        .map(|(resource, wanted, left)| Short { resource, wanted, left })
        .collect();
        if short.is_empty() {
            self.take_what_is_there(wanted);
            Ok(())
        } else {
            Err(Shortage(short))
        }
    }

    /// Takes room for a container that exists already, whether it fits or not.
    ///
    /// After a restart the cell may be smaller than it was. Its containers run all the same.
    pub fn take_what_is_there(&mut self, held: ContainerResources) {
        self.taken.memory_mb = self.taken.memory_mb.saturating_add(held.memory_mb.into());
        self.taken.disk_mb = self.taken.disk_mb.saturating_add(held.disk_mb.into());
        self.taken.containers = self.taken.containers.saturating_add(1);
    }

    /// Gives back what one container took.
    pub fn give_back(&mut self, held: ContainerResources) {
        self.taken.memory_mb = less(self.taken.memory_mb, held.memory_mb.into());
        self.taken.disk_mb = less(self.taken.disk_mb, held.disk_mb.into());
        self.taken.containers = less(self.taken.containers, 1);
    }
}

fn left(total: u32, taken: u64) -> u32 {
    u32::try_from(u64::from(total).saturating_sub(taken)).expect("at most the total, which fits")
}

fn less(taken: u64, back: u64) -> u64 {
    debug_assert!(taken >= back, "gave back {back} of {taken}");
    taken.saturating_sub(back)
}

/// What a cell can be short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Memory.
    Memory,
    /// Disk.
    Disk,
    /// Places for containers.
    Containers,
}

/// One resource of which there is too little.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Which one.
    pub resource: Resource,
    /// How much was asked for.
    pub wanted: u32,
    /// How much is left.
    pub left: u32,
}

/// Why a container does not fit: everything of which there is too little.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("insufficient resources: {}", listed(.0))]
pub struct Shortage(pub Vec<Short>);

fn listed(short: &[Short]) -> String {
    short.iter().map(Short::to_string).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, unit) = match self.resource {
            Resource::Memory => ("memory", " MB"),
            Resource::Disk => ("disk", " MB"),
            Resource::Containers => ("containers", ""),
        };
        write!(f, "{name} (wanted {}{unit}, {}{unit} left)", self.wanted, self.left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(memory_mb: u32, disk_mb: u32, containers: u32) -> Resources {
        Resources::new(CellCapacity { memory_mb, disk_mb, containers })
    }

    fn need(memory_mb: u32, disk_mb: u32) -> ContainerResources {
        ContainerResources { memory_mb, disk_mb }
    }

    #[test]
    fn what_is_taken_comes_back() {
        let mut room = cell(10, 20, 2);
        room.take(need(10, 5)).unwrap();
        assert_eq!(room.remaining(), CellCapacity { memory_mb: 0, disk_mb: 15, containers: 1 });
        room.take(need(0, 15)).unwrap();
        assert_eq!(room.remaining(), CellCapacity { memory_mb: 0, disk_mb: 0, containers: 0 });
        room.give_back(need(10, 5));
        room.give_back(need(0, 15));
        assert_eq!(room, cell(10, 20, 2));
    }

    #[test]
    fn a_refusal_names_all_that_is_short_and_takes_nothing() {
        for (room, wanted, text) in [
            ((1, 9, 9), (2, 9), "memory (wanted 2 MB, 1 MB left)"),
            ((9, 1, 9), (9, 2), "disk (wanted 2 MB, 1 MB left)"),
            ((9, 9, 0), (0, 0), "containers (wanted 1, 0 left)"),
            (
                (0, 0, 0),
                (u32::MAX, 1),
                "memory (wanted 4294967295 MB, 0 MB left), disk (wanted 1 MB, 0 MB left), \
                 containers (wanted 1, 0 left)",
            ),
        ] {
            let mut cell = cell(room.0, room.1, room.2);
            let before = cell.clone();
            let refusal = cell.take(need(wanted.0, wanted.1)).unwrap_err();
            assert_eq!(refusal.to_string(), format!("insufficient resources: {text}"));
            assert_eq!(cell, before);
        }
    }

    #[test]
    fn the_largest_numbers_do_not_wrap() {
        let mut room = cell(u32::MAX, u32::MAX, 3);
        room.take(need(u32::MAX, u32::MAX)).unwrap();
        assert!(room.take(need(1, 0)).is_err());
        room.take_what_is_there(need(u32::MAX, u32::MAX));
        assert_eq!(room.remaining(), CellCapacity { memory_mb: 0, disk_mb: 0, containers: 1 });
        room.give_back(need(u32::MAX, u32::MAX));
        room.give_back(need(u32::MAX, u32::MAX));
        assert_eq!(room, cell(u32::MAX, u32::MAX, 3));
    }
}
