//! The cells of one round: as last heard, less what was sent to them and is not yet reflected.
//!
//! Cells stand in the order of their ids, zones in the order of their names, kinds in the order of
//! their first cell: whoever hands the cells over in another order gets the same fleet.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use volvox_protocol::cell::{CellCapacity, CellInfo, CellLoad};
use volvox_protocol::id::CellId;

use super::filter::{kind_key, same_kind};

/// Whether a cell takes part in the auction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Eligibility {
    /// It does.
    Takes,
    /// Its self-test fails.
    Unhealthy,
    /// It hands its work over.
    Evacuating,
    /// It did not answer to a batch a moment ago, or has not answered to too many.
    Silent,
    /// It refused work a moment ago, and has not said since how it is doing.
    Refused,
}

impl From<&CellLoad> for Eligibility {
    fn from(load: &CellLoad) -> Self {
        if load.evacuating {
            Eligibility::Evacuating
        } else if load.healthy {
            Eligibility::Takes
        } else {
            Eligibility::Unhealthy
        }
    }
}

/// One cell at the beginning of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetCell {
    /// What it is.
    pub info: Arc<CellInfo>,
    /// The room that is left, as far as we know.
    pub free: CellCapacity,
    /// Containers that are being started there.
    pub starting: u32,
    /// Whether it takes part.
    pub standing: Eligibility,
}

impl FleetCell {
    /// A cell as it says of itself. More cannot be free than there is: what is taken off later
    /// must not come off a surplus that does not exist.
    pub fn heard(info: Arc<CellInfo>, load: &CellLoad) -> Self {
        let (free, total) = (load.free, info.capacity);
        let free = CellCapacity {
            memory_mb: free.memory_mb.min(total.memory_mb),
            disk_mb: free.disk_mb.min(total.disk_mb),
            containers: free.containers.min(total.containers),
        };
        FleetCell { info, free, starting: load.starting_containers, standing: load.into() }
    }
}

/// All cells of a round.
#[derive(Debug, Clone, Default)]
pub struct Fleet {
    cells: Vec<FleetCell>,
    /// The zone of each cell.
    zone_of: Vec<u32>,
    /// The kind of each cell.
    kind_of: Vec<u32>,
    zones: Vec<String>,
    /// A cell of each kind.
    kinds: Vec<Arc<CellInfo>>,
}

impl Fleet {
    /// The fleet of these cells. If an id is there twice, its first cell counts.
    pub fn new(cells: impl IntoIterator<Item = FleetCell>) -> Self {
        let mut cells: Vec<FleetCell> = cells.into_iter().collect();
        cells.sort_by(|a, b| a.info.cell_id.cmp(&b.info.cell_id));
        cells.dedup_by(|later, first| later.info.cell_id == first.info.cell_id);

        let mut zones: Vec<&str> = Vec::new();
        for cell in &cells {
            if let Err(at) = zones.binary_search(&cell.info.zone.as_str()) {
                zones.insert(at, &cell.info.zone);
            }
        }
        let zone_of = cells.iter().map(|cell| {
            let found = zones.binary_search(&cell.info.zone.as_str());
            number(found.expect("every zone was put in above"))
        });
        let zone_of = zone_of.collect();
        let zones = zones.into_iter().map(str::to_owned).collect();

        let mut kinds: Vec<Arc<CellInfo>> = Vec::new();
        let mut kind_of: Vec<u32> = Vec::with_capacity(cells.len());
        let mut known = BTreeMap::new();
        for cell in &cells {
            // Most neighbours are alike: then there is nothing to look up.
            let last = kind_of.last().copied();
            let last = last.filter(|last| same_kind(&kinds[*last as usize], &cell.info));
            kind_of.push(last.unwrap_or_else(|| {
                *known.entry(kind_key(&cell.info)).or_insert_with(|| {
                    kinds.push(Arc::clone(&cell.info));
                    number(kinds.len() - 1)
                })
            }));
        }
        drop(known);
        Fleet { cells, zone_of, kind_of, zones, kinds }
    }

    /// The cells, in the order of their ids.
    pub fn cells(&self) -> &[FleetCell] {
        &self.cells
    }

    /// The zones, in the order of their names.
    pub fn zones(&self) -> &[String] {
        &self.zones
    }

    /// A cell of each kind: to a filter, cells of one kind are the same.
    pub fn kinds(&self) -> &[Arc<CellInfo>] {
        &self.kinds
    }

    /// The place of a cell's zone in [`Fleet::zones`].
    pub fn zone_of(&self, cell: usize) -> u32 {
        self.zone_of[cell]
    }

    /// The place of a cell's kind in [`Fleet::kinds`].
    pub fn kind_of(&self, cell: usize) -> u32 {
        self.kind_of[cell]
    }

    /// The place of a cell in [`Fleet::cells`].
    pub fn find(&self, id: &CellId) -> Option<usize> {
        self.cells.binary_search_by(|cell| cell.info.cell_id.cmp(id)).ok()
    }
}

/// A place as a small number: tables of places are most of a round's memory.
pub(super) fn number(place: usize) -> u32 {
    u32::try_from(place).expect("there are fewer than 2^32 of anything in a round")
}
