//! Why an instance or a task is where it is, or is nowhere.
//!
//! A round is kept as what went into it and what came out. Since the decision is a plain function,
//! that is enough: to explain one piece of work, all that was placed before it is placed again,
//! and then every cell is looked at. So remembering costs a round next to nothing, and asking
//! costs about as much as the round did.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use volvox_protocol::id::{CellId, ProcessGuid, TaskGuid};

use super::batch::{Batch, BatchItem};
use super::filter::{Mismatch, Short};
use super::fleet::{Eligibility, Fleet};
use super::logic::{Decision, Preferred, RoundState, auction, prepare};
use super::score::ResourceRequest;
use super::settings::AuctionSettings;

/// Rounds that are remembered.
pub const KEPT_ROUNDS: usize = 64;
/// Cells, pieces of work and instances beside them in all remembered rounds together; the last
/// round is always kept.
pub const KEPT_WEIGHT: usize = 1_000_000;
/// Candidates that an explanation names.
pub const BEST: usize = 5;

/// What somebody asks about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExplainTarget {
    /// An instance.
    Lrp(ProcessGuid, u32),
    /// A task.
    Task(TaskGuid),
}

/// A round, with all that went into it and all that came of it.
#[derive(Debug, Clone)]
pub struct Round {
    /// Its number.
    pub number: u64,
    settings: AuctionSettings,
    fleet: Fleet,
    batch: Batch,
    residents: BTreeMap<ProcessGuid, Vec<CellId>>,
    outcome: Decision,
}

/// What became of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ExplainedResult {
    /// This cell was chosen.
    Placed(CellId),
    /// None was, and this is what the consumer reads.
    Unplaced(String),
}

/// Why a cell was none to choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FilteredOut {
    /// It took no part.
    Standing(Eligibility),
    /// It lacks something that was asked for.
    Lacks(Mismatch),
    /// It has too little room.
    Short(Short),
    /// It is not in the zone in which this instance must be.
    Zone,
}

/// A cell that could have been chosen. The first is the one that was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// The cell.
    pub cell: CellId,
    /// Its zone.
    pub zone: String,
    /// Instances of the same process in the zone: fewer are better, before all else.
    pub in_zone: u32,
    /// Instances of the same process on the cell: fewer are better.
    pub on_cell: u32,
    /// By how much placing it here makes the fleet less even: less is better. A whole cell, filled
    /// at once, costs 2⁴⁰ for each resource.
    pub cost: u64,
    /// Containers that were being started there.
    pub starting: u32,
}

/// Why a piece of work is where it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The round that decided.
    pub round: u64,
    /// What it decided.
    pub verdict: ExplainedResult,
    /// How many cells could have been chosen.
    pub candidates: usize,
    /// The best of them, the best first.
    pub best: Vec<Candidate>,
    /// Every other cell, and what ruled it out.
    pub ruled_out: Vec<(CellId, FilteredOut)>,
}

impl Round {
    /// Decides a round.
    pub fn decide(
        number: u64,
        settings: AuctionSettings,
        fleet: Fleet,
        batch: Batch,
        residents: BTreeMap<ProcessGuid, Vec<CellId>>,
    ) -> Self {
        let outcome = auction(&settings, &fleet, &batch, &residents);
        Round { number, settings, fleet, batch, residents, outcome }
    }

    /// What was decided.
    pub fn outcome(&self) -> &Decision {
        &self.outcome
    }

    /// The cells it was decided about.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// The work it was decided about.
    pub fn batch(&self) -> &Batch {
        &self.batch
    }

    /// Why this is where it is, if it was part of the round. Of several definitions of a process
    /// the one that was decided last.
    pub fn explain(&self, subject: &ExplainTarget) -> Option<Explanation> {
        let (work, before, placed) = self.find(subject)?;
        let mut stand = RoundState::new(&self.settings, &self.fleet);
        let prepared = prepare(&mut stand, &self.batch, &self.residents);
        for placement in &self.outcome.placements[..before] {
            stand.replay(&prepared.claim(placement.work), placement.cell);
        }
        let claim = prepared.claim(work);
        let preferred = stand.preferred_zone(&claim);
        let mut ruled_out = Vec::new();
        let mut candidates = Vec::new();
        for (place, cell) in self.fleet.cells().iter().enumerate() {
            let id = &cell.info.cell_id;
            let zone = Some(self.fleet.zone_of(place));
            let elsewhere = match preferred {
                Preferred::Only(only) if only != zone => {
                    ruled_out.push((id.clone(), FilteredOut::Zone));
                    continue;
                }
                Preferred::First(first) => first != zone,
                Preferred::Any | Preferred::Only(_) => false,
            };
            match self.rank(&stand, &claim, place) {
                Err(why) => ruled_out.push((id.clone(), why)),
                Ok((in_zone, on_cell, key, seat)) => {
                    // In its preferred zone, the zone's count makes no difference.
                    let by_zone = match preferred {
                        Preferred::First(_) if !elsewhere => 0,
                        Preferred::Any | Preferred::First(_) | Preferred::Only(_) => in_zone,
                    };
                    candidates.push(((elsewhere, by_zone, on_cell, key, seat), place));
                }
            }
        }
        candidates.sort_unstable();
        let best = candidates.iter().take(BEST).map(|((.., on_cell, _, _), place)| {
            let cell = &self.fleet.cells()[*place];
            let room = stand.room(*place).expect("a candidate takes part");
            Candidate {
                cell: cell.info.cell_id.clone(),
                zone: cell.info.zone.clone(),
                in_zone: stand.company(&claim, *place).0,
                on_cell: *on_cell,
                cost: room.cost(claim.weighed, &self.settings),
                starting: room.starting(),
            }
        });
        let best = best.collect();
        let verdict = match placed {
            Ok(cell) => ExplainedResult::Placed(self.fleet.cells()[cell].info.cell_id.clone()),
            Err(error) => ExplainedResult::Unplaced(error),
        };
        let candidates = candidates.len();
        Some(Explanation { round: self.number, verdict, candidates, best, ruled_out })
    }

    fn rank(
        &self,
        stand: &RoundState<'_>,
        claim: &super::logic::WorkItem,
        cell: usize,
    ) -> Result<(u32, u32, u64, u32), FilteredOut> {
        let Some((seat, room)) = stand.seat(cell) else {
            return Err(FilteredOut::Standing(self.fleet.cells()[cell].standing));
        };
        stand.judged(claim, cell).map_err(FilteredOut::Lacks)?;
        if !room.fits(claim.needs) {
            let (free, ResourceRequest { memory_mb, disk_mb }) = (room.free(), claim.needs);
            return Err(FilteredOut::Short(Short {
                containers: free.containers < 1,
                disk: free.disk_mb < disk_mb,
                memory: free.memory_mb < memory_mb,
            }));
        }
        let (in_zone, on_cell) = stand.company(claim, cell);
        Ok((in_zone, on_cell, room.key(claim.weighed, &self.settings), seat))
    }

    /// The work, how many placements were made before it, and its cell or its error.
    fn find(&self, subject: &ExplainTarget) -> Option<(BatchItem, usize, Result<usize, String>)> {
        // The places of the process's definitions, or of the task. Looked for once: they are few.
        let places: Vec<u32> = match subject {
            ExplainTarget::Lrp(process, _) => {
                let starts = self.batch.lrps().zip(0..);
                starts.filter(|(it, _)| it.process_guid == *process).map(|(_, at)| at).collect()
            }
            ExplainTarget::Task(guid) => {
                let tasks = self.batch.tasks().zip(0..);
                tasks.filter(|(it, _)| it.task_guid == *guid).map(|(_, at)| at).collect()
            }
        };
        let is_it = |work: BatchItem| match (work, subject) {
            (BatchItem::Lrp { start, index }, ExplainTarget::Lrp(_, wanted)) => {
                index == *wanted && places.contains(&start)
            }
            (BatchItem::Task(task), ExplainTarget::Task(_)) => places.contains(&task),
            (BatchItem::Lrp { .. }, ExplainTarget::Task(_))
            | (BatchItem::Task(_), ExplainTarget::Lrp(..)) => false,
        };
        let placed = self.outcome.placements.iter().rposition(|it| is_it(it.work)).map(|at| {
            let placement = self.outcome.placements[at];
            (placement.work, at, Ok(placement.cell as usize))
        });
        placed.or_else(|| {
            let failure = self.outcome.failures.iter().rfind(|it| is_it(it.work))?;
            Some((failure.work, failure.after as usize, Err(failure.error.to_string())))
        })
    }

    fn weight(&self) -> usize {
        let residents: usize = self.residents.values().map(|cells| 1 + cells.len()).sum();
        self.fleet.cells().len() + self.batch.len() + residents
    }
}

/// The last rounds.
#[derive(Debug, Clone, Default)]
pub struct History {
    rounds: VecDeque<Round>,
    weight: usize,
}

impl History {
    /// Remembers a round about all work that waits, none of which found a cell. If the last round
    /// was in vain too, it has nothing more to say.
    pub fn renew(&mut self, round: Round) {
        if self.rounds.back().is_some_and(|last| last.outcome.placements.is_empty()) {
            let last = self.rounds.pop_back();
            self.weight -= last.map_or(0, |round| round.weight());
        }
        self.keep(round);
    }

    /// Remembers a round, and forgets old ones for it.
    pub fn keep(&mut self, round: Round) {
        self.weight += round.weight();
        self.rounds.push_back(round);
        while self.rounds.len() > 1
            && (self.rounds.len() > KEPT_ROUNDS || self.weight > KEPT_WEIGHT)
        {
            let oldest = self.rounds.pop_front();
            self.weight -= oldest.map_or(0, |round| round.weight());
        }
    }

    /// The rounds, the oldest first.
    pub fn rounds(&self) -> impl ExactSizeIterator<Item = &Round> {
        self.rounds.iter()
    }

    /// What the last round that had to do with it says. None: no remembered round had.
    pub fn explain(&self, subject: &ExplainTarget) -> Option<Explanation> {
        self.rounds.iter().rev().find_map(|round| round.explain(subject))
    }
}
