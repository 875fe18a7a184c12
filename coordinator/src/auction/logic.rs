//! The decision: from cells as last heard and a batch of work to placements and failures.
//!
//! One piece of work after the other, in the batch's order, each on the best cell as things then
//! stand. Best is, in falling weight: the zone with the fewest instances of the process, the cell
//! with the fewest of them, the lowest cost ([`super::score`]), and a hash of the cell's id. A task
//! goes by cost and hash alone. The result follows from the sets of cells and work, not from the
//! order they came in.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod group;
mod process;
mod state;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;

use volvox_protocol::id::{CellId, ProcessGuid};
use volvox_protocol::request::LrpStart;

use super::batch::{Batch, BatchItem};
use super::filter::{PlacementError, same_class};
use super::fleet::{Fleet, number};
use super::score::ResourceRequest;
use super::settings::AuctionSettings;

pub(super) use state::{Preferred, RoundState, WorkItem};

/// Where instances are already.
pub trait PlacedInstances {
    /// Names the cell of every instance of the process, as often as it has instances there.
    fn each(&self, process: &ProcessGuid, tell: &mut dyn FnMut(&CellId));
}

/// Nothing runs anywhere.
impl PlacedInstances for () {
    fn each(&self, _: &ProcessGuid, _: &mut dyn FnMut(&CellId)) {}
}

impl PlacedInstances for BTreeMap<ProcessGuid, Vec<CellId>> {
    fn each(&self, process: &ProcessGuid, tell: &mut dyn FnMut(&CellId)) {
        self.get(process).into_iter().flatten().for_each(tell);
    }
}

/// Work that found a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// The work, in the batch.
    pub work: BatchItem,
    /// The cell, in the fleet.
    pub cell: u32,
}

/// Work that found none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementFailure {
    /// The work, in the batch.
    pub work: BatchItem,
    /// How many placements were made before it was tried.
    pub after: u32,
    /// Why.
    pub error: PlacementError,
}

/// What was decided, in the order in which it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// What found a cell.
    pub placements: Vec<Placement>,
    /// What found none.
    pub failures: Vec<PlacementFailure>,
}

/// What is worked out once for each start and task of a batch.
pub(super) struct PreparedBatch {
    lrp_claims: Vec<WorkItem>,
    task_claims: Vec<WorkItem>,
}

impl PreparedBatch {
    pub(super) fn claim(&self, work: BatchItem) -> WorkItem {
        match work {
            BatchItem::Lrp { start, index } => {
                WorkItem { index, ..self.lrp_claims[start as usize] }
            }
            BatchItem::Task(task) => self.task_claims[task as usize],
        }
    }
}

/// Decides.
pub fn auction(
    settings: &AuctionSettings,
    fleet: &Fleet,
    batch: &Batch,
    residents: &impl PlacedInstances,
) -> Decision {
    let mut stand = RoundState::new(settings, fleet);
    let prepared = prepare(&mut stand, batch, residents);
    let mut outcome = Decision::default();
    outcome.placements.reserve(batch.len());
    for work in batch.order() {
        match stand.place(&prepared.claim(work)) {
            Ok(cell) => outcome.placements.push(Placement { work, cell }),
            Err(error) => {
                let after = number(outcome.placements.len());
                outcome.failures.push(PlacementFailure { work, after, error });
            }
        }
    }
    outcome
}

/// Makes the stand know the batch's classes and processes, and where their instances are.
pub(super) fn prepare(
    stand: &mut RoundState<'_>,
    batch: &Batch,
    residents: &impl PlacedInstances,
) -> PreparedBatch {
    let lrps: Vec<&LrpStart> = batch.lrps().collect();
    let mut lrp_claims: Vec<WorkItem> = Vec::with_capacity(lrps.len());
    for (nth, start) in lrps.iter().enumerate() {
        // Most neighbours want the same of a cell: then there is nothing to look up.
        let before = nth.checked_sub(1).map(|before| (lrps[before], lrp_claims[before]));
        let class = before
            .filter(|(lrp, _)| same_class(&lrp.requirements, &start.requirements))
            .map_or_else(|| stand.class(&start.requirements), |(_, claim)| claim.class);
        // Definitions of one process stand side by side, and are one process to its zones.
        let process = before
            .filter(|(lrp, _)| lrp.process_guid == start.process_guid)
            .map_or_else(|| stand.process(&start.process_guid, residents), |(_, it)| it.process);
        stand.expect(process, start.indices.len());
        let needs = ResourceRequest::from(&*start.requirements);
        lrp_claims.push(WorkItem { class, process, index: 0, needs, weighed: needs.weighed() });
    }
    let mut task_claims = Vec::with_capacity(batch.tasks().len());
    for task in batch.tasks() {
        let needs = ResourceRequest::from(&*task.requirements);
        let class = stand.class(&task.requirements);
        let process = state::TASK;
        task_claims.push(WorkItem { class, process, index: 0, needs, weighed: needs.weighed() });
    }
    PreparedBatch { lrp_claims, task_claims }
}
