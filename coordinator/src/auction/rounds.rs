//! What each round of the auction is about: a state machine of what was heard, asked and sent.
//!
//! It collects work at any time. A round takes all of it, decides at once, and sends each cell at
//! most one numbered batch. It waits for nobody: a cell's capacity is what its last load says minus
//! the batches that the load does not reflect yet. Work that a cell refuses, and work that found no
//! place, is carried into the next round, which is due as soon as there is something new to know.
//! A batch to which nobody answers is left to convergence: the cell may have it. If that cell then
//! turns out to be gone, what it had and nobody saw is carried into the next round too.
//!
//! Work is *fresh* when nobody has looked for a cell since it was asked for or refused, and *parked*
//! when none was found. A round is about both, but much parked work is not looked at again for
//! every cell that has a little more room: see [`retry_pause`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod sent_batch;
#[cfg(test)]
mod tests;
mod tracked_cell;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::id::{CellId, DefinitionId, ProcessGuid, TaskGuid};
use volvox_protocol::request::{LrpStart, TaskStart, WorkBatch};
use volvox_protocol::time::Timestamp;

use super::batch::{Batch, BatchItem, MOST_WORK};
use super::board::InstanceIndex;
use super::explain::{ExplainTarget, Explanation, History, Round};
use super::filter::PlacementError;
use super::fleet::{Eligibility, Fleet, FleetCell};
use super::score::ResourceRequest;
use super::settings::AuctionSettings;
use tracked_cell::TrackedCell;

pub use tracked_cell::{ANSWER_WITHIN, MOST_UNANSWERED, PAUSE, QUICK_REFUSALS, REFLECTED_WITHIN};

/// Cells that are listened to: more than any mesh has.
pub const MOST_CELLS: usize = 100_000;

/// Parked work up to this is looked at in every round.
pub const PARKED_AT_ONCE: usize = 1_000;
/// For each piece above that, the pause before parked work is looked at again. A look takes about
/// a tenth of it: so a full fleet costs little, however often its cells say a new load.
pub const PAUSE_PER_PIECE: Duration = Duration::from_micros(10);
/// The longest such pause.
pub const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The highest number that is believed of a cell. More batches than there are numbers above it
/// are never sent.
const HIGHEST_BELIEVED: u64 = u64::MAX / 2;

/// How long much parked work is left alone after a look at it.
pub fn retry_pause(parked: usize) -> Duration {
    if parked <= PARKED_AT_ONCE {
        return Duration::ZERO;
    }
    LONGEST_PAUSE.min(PAUSE_PER_PIECE * u32::try_from(parked).unwrap_or(u32::MAX))
}

/// Work that found no cell, with what the consumer shall read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplaced {
    /// An instance.
    Lrp(LrpKey, Arc<str>),
    /// A task.
    Task(TaskGuid, Arc<str>),
}

/// What a round orders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RoundResult {
    /// The number of the round.
    pub round: u64,
    /// What to send to whom: one batch for each cell at most.
    pub sends: Vec<(CellId, WorkBatch)>,
    /// What to tell the BBS. Each piece of work once for each time it was asked for, and again if
    /// the reason is another (a task not even then: each time counts as a try).
    pub unplaced: Vec<Unplaced>,
}

/// What the auction hears.
#[derive(Debug)]
pub enum AuctionInput {
    /// This work wants cells.
    Request(Vec<LrpStart>, Vec<TaskStart>),
    /// A cell says what it is.
    Info(Arc<CellInfo>),
    /// A cell says how it is doing.
    Load(CellLoad),
    /// A cell has left.
    Gone(CellId),
    /// A cell was restarted. Said before anything that it says in its new life.
    Reborn(CellId),
    /// A cell has taken the batch of this number, but for what is named here.
    Answered(CellId, u64, WorkBatch),
    /// A cell has not answered to the batch of this number, and will not.
    Unanswered(CellId, u64),
}

/// One piece of work, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum WorkKey {
    Lrp(ProcessGuid, DefinitionId, u32),
    Task(TaskGuid),
}

/// Whether parked work may find a cell that it did not find last time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ParkedRetry {
    #[default]
    None,
    Some,
}

/// The state of the auction between rounds.
#[derive(Debug, Default)]
pub struct Auction {
    settings: AuctionSettings,
    cells: BTreeMap<CellId, TrackedCell>,
    /// The last number that a batch got, to whichever cell it went: a cell that went and came back
    /// never gets a number twice.
    last_number: u64,
    /// Asked for or refused since the last round.
    fresh: Batch,
    /// Found no cell. No piece is here and in `fresh`.
    parked: Batch,
    /// No cell with less free than this can help what is parked.
    smallest: ResourceRequest,
    hope: ParkedRetry,
    /// Parked work is left alone until then.
    retry_at: Timestamp,
    /// What the BBS was told of parked work.
    told: BTreeMap<WorkKey, Arc<str>>,
    /// When to look at a cell again, though nobody says anything: one entry for each cell.
    agenda: BTreeSet<(Timestamp, CellId)>,
    agenda_of: BTreeMap<CellId, Timestamp>,
    number: u64,
    history: History,
}

impl Auction {
    /// An auction that has heard of no cell and has no work.
    pub fn new(settings: AuctionSettings) -> Self {
        Auction { settings, ..Auction::default() }
    }

    /// The same, with batches that are numbered above `last`: those of a coordinator before us must
    /// not share a number with ours, or a cell's word about one would be taken for the other.
    #[must_use]
    pub fn counting_from(self, last: u64) -> Self {
        Auction { last_number: last.min(HIGHEST_BELIEVED), ..self }
    }

    /// Takes in what was heard. Gives back how many pieces of work could not be kept because too many
    /// wait: convergence asks for them again.
    pub fn hear(&mut self, now: Timestamp, input: AuctionInput) -> usize {
        match input {
            AuctionInput::Request(lrps, tasks) => return self.request(lrps, tasks),
            AuctionInput::Gone(cell) => return self.cell_gone(&cell),
            AuctionInput::Answered(cell, number, refused) => {
                return self.answered(now, &cell, number, &refused);
            }
            AuctionInput::Info(info) => self.cell_info(info),
            AuctionInput::Load(load) => self.cell_load(load),
            AuctionInput::Reborn(cell) => self.cell_restarted(&cell),
            AuctionInput::Unanswered(cell, number) => self.unanswered(now, &cell, number),
        }
        0
    }

    /// This work wants cells. Gives back how many pieces could not be kept because too many wait:
    /// convergence asks for them again.
    pub fn request(&mut self, lrps: Vec<LrpStart>, tasks: Vec<TaskStart>) -> usize {
        let mut refused = 0;
        for start in lrps {
            if !self.told.is_empty() {
                for index in &start.indices {
                    self.told.remove(&WorkKey::of(&start, *index));
                }
            }
            self.parked.remove_lrp(&start);
            refused += self.fresh.add_lrp_up_to(MOST_WORK - self.parked.len(), start);
        }
        for task in tasks {
            self.told.remove(&WorkKey::Task(task.task_guid.clone()));
            self.parked.remove_task(&task.task_guid);
            refused += self.fresh.add_task_up_to(MOST_WORK - self.parked.len(), task);
        }
        if refused > 0 {
            // Perhaps nobody wants some of what is parked any more.
            self.hope = ParkedRetry::Some;
        }
        refused
    }

    /// A cell says what it is.
    pub fn cell_info(&mut self, info: Arc<CellInfo>) {
        let Some(heard) = self.heard_of(&info.cell_id) else { return };
        if heard.take_info(info) {
            self.hope = ParkedRetry::Some;
        }
    }

    /// A cell says how it is doing.
    pub fn cell_load(&mut self, load: CellLoad) {
        let Some(heard) = self.heard_of(&load.cell_id) else { return };
        let before = heard.cell();
        if heard.take_load(load) {
            let after = heard.cell();
            self.compare(before.as_ref(), after.as_ref());
        }
    }

    /// A cell that only became fuller makes nothing possible that was not. Nor does one that still
    /// has too little for the smallest of what is parked.
    fn compare(&mut self, before: Option<&FleetCell>, after: Option<&FleetCell>) {
        let Some(after) = after else { return };
        let limited = self.settings.in_flight_starts > 0;
        if limited && before.is_some_and(|before| after.starting < before.starting) {
            self.hope = ParkedRetry::Some;
        }
        let gained = before.is_none_or(|before| {
            let (was, is) = (before.free, after.free);
            is.memory_mb > was.memory_mb
                || is.disk_mb > was.disk_mb
                || is.containers > was.containers
                || before.standing != Eligibility::Takes
        });
        if gained
            && after.standing == Eligibility::Takes
            && after.free.memory_mb >= self.smallest.memory_mb
            && after.free.disk_mb >= self.smallest.disk_mb
            && after.free.containers > 0
        {
            self.hope = ParkedRetry::Some;
        }
    }

    fn heard_of(&mut self, cell: &CellId) -> Option<&mut TrackedCell> {
        if self.cells.len() >= MOST_CELLS && !self.cells.contains_key(cell) {
            return None;
        }
        Some(self.cells.entry(cell.clone()).or_default())
    }

    /// A cell has left. What was sent to it and has not been seen there is carried into the next
    /// round, as far as the board still wants it: a fleet that loses many cells at once sends much to
    /// some of which it has not heard yet that they are lost. Gives back how many pieces could not be
    /// kept because too many wait.
    pub fn cell_gone(&mut self, cell: &CellId) -> usize {
        let Some(heard) = self.cells.remove(cell) else { return 0 };
        // Its starts no longer count against the limit, and zones may be others.
        self.hope = ParkedRetry::Some;
        heard.left_behind().map(|batch| self.take_back(batch.lrps, batch.tasks)).sum()
    }

    /// A cell was restarted: it counts its versions and batches from the beginning.
    pub fn cell_restarted(&mut self, cell: &CellId) {
        if let Some(heard) = self.cells.get_mut(cell) {
            heard.reset();
        }
    }

    /// A cell has taken a batch, but for what it names. That is carried into the next round, as far
    /// as it was in the batch. Gives back how many pieces could not be kept because too many wait.
    pub fn answered(
        &mut self,
        now: Timestamp,
        cell: &CellId,
        number: u64,
        refused: &WorkBatch,
    ) -> usize {
        let Some(heard) = self.cells.get_mut(cell) else { return 0 };
        let before = heard.cell();
        let Some(back) = heard.answered(now, number, refused) else { return 0 };
        let after = heard.cell();
        self.compare(before.as_ref(), after.as_ref());
        self.schedule(cell);
        self.take_back(back.lrps, back.tasks)
    }

    /// Work that was sent wants other cells. Gives back how many pieces could not be kept.
    fn take_back(&mut self, lrps: Vec<LrpStart>, tasks: Vec<TaskStart>) -> usize {
        let mut lost = 0;
        for mut start in lrps {
            // What was asked for since then is newer than what was sent.
            let of = (&start.process_guid, &start.definition_id);
            let newer = self.fresh.requirements(of.0, of.1);
            if let Some(newer) = newer.or_else(|| self.parked.requirements(of.0, of.1)) {
                start.requirements = Arc::clone(newer);
            }
            self.parked.remove_lrp(&start);
            lost += self.fresh.add_lrp_up_to(MOST_WORK - self.parked.len(), start);
        }
        for task in tasks {
            if !self.parked.has_task(&task.task_guid) && !self.fresh.has_task(&task.task_guid) {
                // To the BBS each word about a task is a try. Of this one it hears when it asks again.
                self.told.insert(WorkKey::Task(task.task_guid.clone()), Arc::from("refused"));
                lost += self.fresh.add_task_up_to(MOST_WORK - self.parked.len(), task);
            }
        }
        lost
    }

    /// Nobody answered to a batch, and nobody will. By now the cell's load would reflect it, had
    /// it been admitted: the room is free again, the work is convergence's, or the next round's if
    /// the cell goes. For a while the cell gets no more.
    pub fn unanswered(&mut self, now: Timestamp, cell: &CellId, number: u64) {
        let Some(heard) = self.cells.get_mut(cell) else { return };
        if heard.unanswered(now, number) {
            self.hope = ParkedRetry::Some;
            self.schedule(cell);
        }
    }

    /// Does what is due by now though nobody said anything. A pause ends, or a batch is given up.
    pub fn pass(&mut self, now: Timestamp) {
        while self.agenda.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, cell)) = self.agenda.pop_first() else { break };
            self.agenda_of.remove(&cell);
            let Some(heard) = self.cells.get_mut(&cell) else { continue };
            if heard.expire(now) {
                self.hope = ParkedRetry::Some;
            }
            self.schedule(&cell);
        }
    }

    /// Puts the cell's next deadline on the agenda. An earlier entry may stay: it is looked at and
    /// put off when its time comes.
    fn schedule(&mut self, cell: &CellId) {
        let Some(at) = self.cells.get(cell).and_then(TrackedCell::deadline) else { return };
        let known = self.agenda_of.get(cell).copied();
        if known.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = known {
            self.agenda.remove(&(known, cell.clone()));
        }
        self.agenda.insert((at, cell.clone()));
        self.agenda_of.insert(cell.clone(), at);
    }

    /// Whether a round would have something to do that the last one had not.
    pub fn is_due(&self, now: Timestamp) -> bool {
        !self.fresh.is_empty()
            || (self.hope == ParkedRetry::Some && !self.parked.is_empty() && now >= self.retry_at)
    }

    /// When to [`pass`](Auction::pass) and to ask again whether a round is due, if nothing is heard.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let retry = self.hope == ParkedRetry::Some && !self.parked.is_empty();
        let retry = retry.then_some(self.retry_at);
        self.agenda.first().map(|(at, _)| *at).into_iter().chain(retry).min()
    }

    /// Pieces of work that wait.
    pub fn waiting(&self) -> usize {
        self.fresh.len() + self.parked.len()
    }

    /// Holds a round with all work that waits and is still wanted; much parked work is left alone
    /// until its time has come.
    pub fn run_round(&mut self, now: Timestamp, board: &impl InstanceIndex) -> RoundResult {
        let mut batch = std::mem::take(&mut self.fresh);
        let whole = now >= self.retry_at;
        if whole {
            self.hope = ParkedRetry::None;
            let fresh = std::mem::replace(&mut batch, std::mem::take(&mut self.parked));
            batch.merge(fresh);
        }
        batch.retain(
            |start, index| board.wants_lrp(&start.process_guid, &start.definition_id, index),
            |task| board.wants_task(&task.task_guid),
        );
        // What was said of parked work holds on if that is not in this round. Of fresh work nothing
        // was said.
        let before = if whole { std::mem::take(&mut self.told) } else { BTreeMap::new() };
        if batch.is_empty() {
            return RoundResult { round: self.number, ..RoundResult::default() };
        }
        self.number += 1;
        let round = self.decide(self.number, batch, board);
        let sends = self.send(now, &round);
        let unplaced = self.carry_over(&round, &before);
        if whole {
            self.retry_at = now + retry_pause(self.parked.len());
        }
        self.smallest = self.parked.smallest();
        // Parked work that is looked at again and again in vain must not push out of memory why
        // everything else is where it is.
        if whole && round.outcome().placements.is_empty() {
            self.history.renew(round);
        } else {
            self.history.keep(round);
        }
        RoundResult { round: self.number, sends, unplaced }
    }

    /// What a round with this work would decide. Nothing is sent, and nothing is remembered.
    pub fn simulate(&self, batch: Batch, board: &impl InstanceIndex) -> Round {
        self.decide(self.number + 1, batch, board)
    }

    /// Why this is where it is, or is nowhere. None: no remembered round was about it.
    pub fn explain(&self, subject: &ExplainTarget) -> Option<Explanation> {
        self.history.explain(subject)
    }

    /// The rounds that are remembered.
    pub fn history(&self) -> &History {
        &self.history
    }

    fn decide(&self, number: u64, batch: Batch, board: &impl InstanceIndex) -> Round {
        let fleet = Fleet::new(self.cells.values().filter_map(TrackedCell::cell));
        let residents = self.residents(&batch, board);
        Round::decide(number, self.settings.clone(), fleet, batch, residents)
    }

    /// Where the instances of the batch's processes are: on the board, or sent and not yet there.
    fn residents(
        &self,
        batch: &Batch,
        board: &impl InstanceIndex,
    ) -> BTreeMap<ProcessGuid, Vec<CellId>> {
        let processes: BTreeSet<&ProcessGuid> =
            batch.lrps().map(|start| &start.process_guid).collect();
        let mut under_way: BTreeMap<&ProcessGuid, BTreeSet<(&DefinitionId, u32, &CellId)>> =
            BTreeMap::new();
        for (cell, heard) in &self.cells {
            for start in heard.under_way().filter(|it| processes.contains(&it.process_guid)) {
                let of_process = under_way.entry(&start.process_guid).or_default();
                let named = start.indices.iter().map(|index| (&start.definition_id, *index, cell));
                of_process.extend(named);
            }
        }
        let mut residents = BTreeMap::new();
        for process in processes {
            let mut at = Vec::new();
            let coming = under_way.remove(process).unwrap_or_default();
            let coming: Vec<(&DefinitionId, u32, &CellId)> = coming.into_iter().collect();
            let mut arrived = vec![false; coming.len()];
            board.each_instance(process, &mut |definition, index, cell| {
                if let Ok(known) = coming.binary_search(&(definition, index, cell)) {
                    arrived[known] = true;
                }
                at.push(cell.clone());
            });
            let coming = coming.into_iter().zip(arrived).filter(|(_, arrived)| !arrived);
            at.extend(coming.map(|((_, _, cell), _)| cell.clone()));
            if !at.is_empty() {
                residents.insert(process.clone(), at);
            }
        }
        residents
    }

    /// One batch for each cell that got something, noted as sent.
    fn send(&mut self, now: Timestamp, round: &Round) -> Vec<(CellId, WorkBatch)> {
        let lrps: Vec<&LrpStart> = round.batch().lrps().collect();
        let tasks: Vec<&TaskStart> = round.batch().tasks().collect();
        let mut placed = round.outcome().placements.clone();
        placed.sort_unstable_by_key(|placement| (placement.cell, placement.work));
        let mut sends = Vec::new();
        for of_cell in placed.chunk_by(|a, b| a.cell == b.cell) {
            let cell = &round.fleet().cells()[of_cell[0].cell as usize].info.cell_id;
            let Some(heard) = self.cells.get_mut(cell) else { continue };
            // Numbers go on after those of a coordinator before us.
            let reflected = heard.last_batch().min(HIGHEST_BELIEVED);
            self.last_number = self.last_number.max(reflected) + 1;
            let number = self.last_number;
            let mut batch = WorkBatch { number, lrps: Vec::new(), tasks: Vec::new() };
            let mut last = None;
            for placement in of_cell {
                match placement.work {
                    BatchItem::Lrp { start, index } if last == Some(start) => {
                        let open = batch.lrps.last_mut().expect("the last start was put here");
                        open.indices.push(index);
                    }
                    BatchItem::Lrp { start, index } => {
                        let LrpStart { process_guid, definition_id, domain, requirements, .. } =
                            lrps[start as usize];
                        batch.lrps.push(LrpStart {
                            process_guid: process_guid.clone(),
                            definition_id: definition_id.clone(),
                            domain: domain.clone(),
                            indices: vec![index],
                            requirements: Arc::clone(requirements),
                        });
                        last = Some(start);
                    }
                    BatchItem::Task(task) => batch.tasks.push(tasks[task as usize].clone()),
                }
            }
            heard.note(now, batch.clone());
            self.schedule(cell);
            sends.push((cell.clone(), batch));
        }
        sends
    }

    /// Parks what found no place, and says what the BBS has not been told.
    fn carry_over(&mut self, round: &Round, before: &BTreeMap<WorkKey, Arc<str>>) -> Vec<Unplaced> {
        let lrps: Vec<&LrpStart> = round.batch().lrps().collect();
        let tasks: Vec<&TaskStart> = round.batch().tasks().collect();
        let mut indices: Vec<Vec<u32>> = vec![Vec::new(); lrps.len()];
        let mut unplaced = Vec::new();
        // Full fleets refuse much for one reason: its text is made once.
        let mut last: Option<(&PlacementError, Arc<str>)> = None;
        for failure in &round.outcome().failures {
            let known = last.take().filter(|(error, _)| **error == failure.error);
            let (_, reason) = last.insert(
                known.unwrap_or_else(|| (&failure.error, failure.error.to_string().into())),
            );
            let name = match failure.work {
                BatchItem::Lrp { start, index } => {
                    indices[start as usize].push(index);
                    let start = lrps[start as usize];
                    let name = WorkKey::of(start, index);
                    if before.get(&name) != Some(reason) {
                        let key = LrpKey {
                            process_guid: start.process_guid.clone(),
                            index,
                            domain: start.domain.clone(),
                            definition_id: Some(start.definition_id.clone()),
                        };
                        unplaced.push(Unplaced::Lrp(key, Arc::clone(reason)));
                    }
                    name
                }
                BatchItem::Task(task) => {
                    let task = tasks[task as usize];
                    let name = WorkKey::Task(task.task_guid.clone());
                    if !before.contains_key(&name) && !self.told.contains_key(&name) {
                        unplaced.push(Unplaced::Task(task.task_guid.clone(), Arc::clone(reason)));
                    }
                    self.parked.add_task(task.clone());
                    name
                }
            };
            self.told.insert(name, Arc::clone(reason));
        }
        for (start, indices) in lrps.into_iter().zip(indices) {
            if !indices.is_empty() {
                self.parked.add_lrp(LrpStart { indices, ..start.clone() });
            }
        }
        unplaced
    }
}

impl WorkKey {
    fn of(start: &LrpStart, index: u32) -> Self {
        WorkKey::Lrp(start.process_guid.clone(), start.definition_id.clone(), index)
    }
}
