//! The decision: its rules, Diego's own assertions, and what must hold for all inputs.

mod diego;
mod properties;
mod rules;

use std::sync::Arc;

use volvox_protocol::cell::{CellCapacity, CellInfo, RootfsProvider};
use volvox_protocol::id::{CellId, Domain, TaskGuid};
use volvox_protocol::request::{Requirements, TaskStart};

use super::*;
use crate::auction::fleet::{Eligibility, FleetCell};

pub(crate) fn capacity(memory_mb: u32, disk_mb: u32, containers: u32) -> CellCapacity {
    CellCapacity { memory_mb, disk_mb, containers }
}

/// An empty cell that mounts `preloaded:linux`.
pub(crate) fn cell(id: &str, zone: &str, total: CellCapacity) -> FleetCell {
    let info = CellInfo {
        cell_id: CellId::new(id).unwrap(),
        zone: zone.to_owned(),
        capacity: total,
        rootfs_providers: vec![RootfsProvider {
            name: "preloaded".to_owned(),
            properties: vec!["linux".to_owned()],
        }],
        placement_tags: Vec::new(),
        optional_placement_tags: Vec::new(),
        volume_drivers: Vec::new(),
        rep_address: "10.0.0.1:1801".to_owned(),
        annotations: BTreeMap::new(),
        version: 1,
    };
    FleetCell { info: Arc::new(info), free: total, starting: 0, standing: Eligibility::Takes }
}

/// Equal empty cells, dealt out to so many zones.
pub(in crate::auction) fn cells(count: usize, zones: usize, total: CellCapacity) -> Vec<FleetCell> {
    (0..count)
        .map(|nth| cell(&format!("cell-{nth:04}"), &format!("z{}", nth % zones), total))
        .collect()
}

/// The cell with so much in use.
pub(in crate::auction) fn used(
    cell: FleetCell,
    memory_mb: u32,
    disk_mb: u32,
    containers: u32,
) -> FleetCell {
    let total = cell.info.capacity;
    let free = capacity(
        total.memory_mb - memory_mb,
        total.disk_mb - disk_mb,
        total.containers - containers,
    );
    FleetCell { free, ..cell }
}

pub(in crate::auction) fn info(
    mut cell: FleetCell,
    change: impl FnOnce(&mut CellInfo),
) -> FleetCell {
    change(Arc::make_mut(&mut cell.info));
    cell
}

pub(in crate::auction) fn needs(memory_mb: u32, disk_mb: u32) -> Arc<Requirements> {
    let rootfs = "preloaded:linux".to_owned();
    Arc::new(Requirements { memory_mb, disk_mb, rootfs, ..Requirements::default() })
}

pub(in crate::auction) fn process(guid: &str) -> ProcessGuid {
    ProcessGuid::new(guid).unwrap()
}

pub(in crate::auction) fn lrp(
    guid: &str,
    indices: impl IntoIterator<Item = u32>,
    requirements: Arc<Requirements>,
) -> LrpStart {
    let process_guid = process(guid);
    LrpStart {
        definition_id: (&process_guid).into(),
        process_guid,
        domain: Domain::new("d").unwrap(),
        indices: indices.into_iter().collect(),
        requirements,
    }
}

/// So many processes with one instance each.
pub(in crate::auction) fn singles(
    prefix: &str,
    count: usize,
    requirements: &Arc<Requirements>,
) -> Vec<LrpStart> {
    (0..count).map(|nth| lrp(&format!("{prefix}-{nth}"), [0], Arc::clone(requirements))).collect()
}

pub(in crate::auction) fn task(guid: &str, requirements: Arc<Requirements>) -> TaskStart {
    let (task_guid, domain) = (TaskGuid::new(guid).unwrap(), Domain::new("d").unwrap());
    TaskStart { task_guid, domain, requirements }
}

/// A decision with the names of what it is about.
pub(in crate::auction) struct Decided {
    pub(in crate::auction) fleet: Fleet,
    pub(in crate::auction) batch: Batch,
    pub(in crate::auction) outcome: Decision,
}

pub(in crate::auction) fn decide(
    settings: &AuctionSettings,
    cells: Vec<FleetCell>,
    lrps: Vec<LrpStart>,
    tasks: Vec<TaskStart>,
    residents: &impl PlacedInstances,
) -> Decided {
    let (fleet, batch) = (Fleet::new(cells), Batch::of(lrps, tasks));
    let outcome = auction(settings, &fleet, &batch, residents);
    assert_eq!(outcome.placements.len() + outcome.failures.len(), batch.len(), "all is decided");
    Decided { fleet, batch, outcome }
}

impl Decided {
    /// Such as `p/0` or `t`.
    pub(in crate::auction) fn name(&self, work: BatchItem) -> String {
        match work {
            BatchItem::Lrp { start, index } => {
                let start = self.batch.lrps().nth(start as usize).unwrap();
                format!("{}/{index}", start.process_guid)
            }
            BatchItem::Task(at) => {
                self.batch.tasks().nth(at as usize).unwrap().task_guid.to_string()
            }
        }
    }

    /// Work and cells, in the order in which it was decided.
    pub(in crate::auction) fn placed(&self) -> Vec<(String, String)> {
        let named = self.outcome.placements.iter().map(|placement| {
            let cell = &self.fleet.cells()[placement.cell as usize];
            (self.name(placement.work), cell.info.cell_id.to_string())
        });
        named.collect()
    }

    /// Work and what its consumer reads.
    pub(in crate::auction) fn failed(&self) -> Vec<(String, String)> {
        let failures = self.outcome.failures.iter();
        failures.map(|failure| (self.name(failure.work), failure.error.to_string())).collect()
    }

    /// How much each cell got.
    pub(in crate::auction) fn counts(&self) -> Vec<u32> {
        let mut counts = vec![0; self.fleet.cells().len()];
        self.outcome.placements.iter().for_each(|it| counts[it.cell as usize] += 1);
        counts
    }

    /// How much of a process each zone got.
    pub(in crate::auction) fn zones(&self, guid: &str) -> Vec<u32> {
        let mut counts = vec![0; self.fleet.zones().len()];
        for (placement, (name, _)) in self.outcome.placements.iter().zip(self.placed()) {
            if name.starts_with(&format!("{guid}/")) {
                counts[self.fleet.zone_of(placement.cell as usize) as usize] += 1;
            }
        }
        counts
    }
}

/// The difference between the largest and the smallest.
pub(in crate::auction) fn spread(counts: &[u32]) -> u32 {
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}
