//! What each round of the auction is about: a state machine of what was heard, asked and sent.
//!
//! It collects work at any time. A round takes all of it, decides at once, and sends each cell at
//! most one numbered batch. It waits for nobody: a cell's capacity is what its last load says minus
//! the batches that the load does not reflect yet. Work that a cell refuses, and work that found no
//! place, is carried into the next round, which is due as soon as there is something new to know.
//! A batch to which nobody answers is left to convergence: the cell may have it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod sent;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::cell::{CellCapacity, CellInfo, CellLoad};
use volvox_protocol::id::{CellId, DefinitionId, ProcessGuid, TaskGuid};
use volvox_protocol::request::{LrpStart, TaskStart, WorkBatch};

use super::batch::{Batch, Work};
use super::board::Board;
use super::explain::{Explanation, History, Round, Subject};
use super::fleet::{Cell, Fleet, Standing};
use super::settings::Settings;
use sent::Sent;

/// Batches of one cell that may be unanswered. Such a cell gets no more until it answers or is
/// given up on.
pub const MOST_UNANSWERED: usize = 16;

/// Cells that are listened to: more than any mesh has.
pub const MOST_CELLS: usize = 100_000;

/// Work that found no cell, with what the consumer shall read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unplaced {
    /// An instance.
    Lrp(LrpKey, Box<str>),
    /// A task.
    Task(TaskGuid, Box<str>),
}

/// What a round orders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orders {
    /// The number of the round.
    pub round: u64,
    /// What to send to whom: one batch for each cell at most.
    pub sends: Vec<(CellId, WorkBatch)>,
    /// What to tell the BBS. Each piece of work once for each time it was asked for, and again if
    /// the reason is another (a task not even then: each time counts as a try).
    pub unplaced: Vec<Unplaced>,
}

/// One piece of work, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Lrp(ProcessGuid, DefinitionId, u32),
    Task(TaskGuid),
}

/// What was heard of a cell and sent to it.
#[derive(Debug, Default)]
struct Heard {
    info: Option<Arc<CellInfo>>,
    load: Option<CellLoad>,
    /// In the order of their numbers.
    sent: Vec<Sent>,
    last_number: u64,
    /// It refused work that was sent on the strength of its load of this version: until it has said
    /// a newer one, our picture of it is known to be wrong.
    doubted: Option<u64>,
}

/// Whether there is anything new to think about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum News {
    #[default]
    None,
    Some,
}

/// The state of the auction between rounds.
#[derive(Debug, Default)]
pub struct Rounds {
    settings: Settings,
    cells: BTreeMap<CellId, Heard>,
    waiting: Batch,
    /// What the BBS was told of waiting work.
    told: BTreeMap<Name, Box<str>>,
    news: News,
    number: u64,
    history: History,
}

impl Rounds {
    /// An auction that has heard of no cell and has no work.
    pub fn new(settings: Settings) -> Self {
        Rounds { settings, ..Rounds::default() }
    }

    /// This work wants cells. Gives back how many pieces could not be kept because too many wait:
    /// convergence asks for them again.
    pub fn request(&mut self, lrps: Vec<LrpStart>, tasks: Vec<TaskStart>) -> usize {
        let mut refused = 0;
        for start in lrps {
            if !self.told.is_empty() {
                for index in &start.indices {
                    self.told.remove(&Name::of(&start, *index));
                }
            }
            refused += self.waiting.add_lrp(start);
        }
        for task in tasks {
            self.told.remove(&Name::Task(task.task_guid.clone()));
            refused += self.waiting.add_task(task);
        }
        self.news = News::Some;
        refused
    }

    /// A cell says what it is.
    pub fn cell_info(&mut self, info: Arc<CellInfo>) {
        let Some(heard) = self.hear(&info.cell_id) else { return };
        if heard.info.as_ref().is_none_or(|known| known.version < info.version) {
            heard.info = Some(info);
            self.news = News::Some;
        }
    }

    /// A cell says how it is doing.
    pub fn cell_load(&mut self, load: CellLoad) {
        let limited = self.settings.in_flight_starts > 0;
        let Some(heard) = self.hear(&load.cell_id) else { return };
        let before = heard.cell();
        if !heard.take(load) {
            return;
        }
        let gained = match (before, heard.cell()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(after)) => {
                let (was, is) = (before.free, after.free);
                is.memory_mb > was.memory_mb
                    || is.disk_mb > was.disk_mb
                    || is.containers > was.containers
                    || (after.standing == Standing::Takes && before.standing != Standing::Takes)
                    || (limited && after.starting < before.starting)
            }
        };
        // A cell that only became fuller makes nothing possible that was not.
        if gained {
            self.news = News::Some;
        }
    }

    fn hear(&mut self, cell: &CellId) -> Option<&mut Heard> {
        if self.cells.len() >= MOST_CELLS && !self.cells.contains_key(cell) {
            return None;
        }
        Some(self.cells.entry(cell.clone()).or_default())
    }

    /// A cell has left. What was sent to it is convergence's business.
    pub fn cell_gone(&mut self, cell: &CellId) {
        self.cells.remove(cell);
    }

    /// A cell has taken a batch, but for what it names. That is carried into the next round, as far
    /// as it was in the batch.
    pub fn answered(&mut self, cell: &CellId, number: u64, refused: &WorkBatch) {
        let Some(heard) = self.cells.get_mut(cell) else { return };
        let Some(at) = heard.sent.iter().position(|sent| sent.number() == number) else { return };
        let was_silent = heard.is_silent();
        let back = heard.sent[at].answered(refused);
        let carried = !back.is_empty();
        if carried {
            heard.doubt(heard.sent[at].load_version());
        }
        heard.tidy();
        for (start, indices) in back.lrps {
            self.waiting.add_lrp(LrpStart { indices, ..start });
        }
        for task in back.tasks {
            self.waiting.add_task(task);
        }
        if carried || was_silent {
            self.news = News::Some;
        }
    }

    /// Nobody answered to a batch, and nobody will. By now the cell's load would reflect it, had
    /// it been admitted: the room is free again, the work is convergence's.
    pub fn unanswered(&mut self, cell: &CellId, number: u64) {
        let Some(heard) = self.cells.get_mut(cell) else { return };
        let before = heard.sent.len();
        heard.sent.retain(|sent| sent.number() != number);
        if heard.sent.len() < before {
            self.news = News::Some;
        }
    }

    /// Whether a round would have something to do that the last one had not.
    pub fn is_due(&self) -> bool {
        self.news == News::Some && !self.waiting.is_empty()
    }

    /// Pieces of work that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Holds a round with all work that waits and is still wanted.
    pub fn think(&mut self, board: &impl Board) -> Orders {
        self.news = News::None;
        let mut batch = std::mem::take(&mut self.waiting);
        batch.retain(
            |start, index| board.wants_lrp(&start.process_guid, &start.definition_id, index),
            |task| board.wants_task(&task.task_guid),
        );
        if batch.is_empty() {
            self.told.clear();
            return Orders { round: self.number, ..Orders::default() };
        }
        self.number += 1;
        let round = self.decide(self.number, batch, board);
        let sends = self.send(&round);
        let unplaced = self.carry_over(&round);
        self.history.keep(round);
        Orders { round: self.number, sends, unplaced }
    }

    /// What a round with this work would decide. Nothing is sent, and nothing is remembered.
    pub fn simulate(&self, batch: Batch, board: &impl Board) -> Round {
        self.decide(self.number + 1, batch, board)
    }

    /// Why this is where it is, or is nowhere. None: no remembered round was about it.
    pub fn explain(&self, subject: &Subject) -> Option<Explanation> {
        self.history.explain(subject)
    }

    /// The rounds that are remembered.
    pub fn history(&self) -> &History {
        &self.history
    }

    fn decide(&self, number: u64, batch: Batch, board: &impl Board) -> Round {
        let fleet = Fleet::new(self.cells.values().filter_map(Heard::cell));
        let residents = self.residents(&batch, board);
        Round::decide(number, self.settings.clone(), fleet, batch, residents)
    }

    /// Where the instances of the batch's processes are: on the board, or sent and not yet there.
    fn residents(&self, batch: &Batch, board: &impl Board) -> BTreeMap<ProcessGuid, Vec<CellId>> {
        let mut residents: BTreeMap<ProcessGuid, Vec<CellId>> = BTreeMap::new();
        let processes: BTreeSet<&ProcessGuid> =
            batch.lrps().map(|start| &start.process_guid).collect();
        for process in &processes {
            board.each_instance(process, &mut |_, _, cell| {
                residents.entry((*process).clone()).or_default().push(cell.clone());
            });
        }
        for (cell, heard) in &self.cells {
            for start in heard.sent.iter().flat_map(Sent::lrps) {
                if !processes.contains(&start.process_guid) {
                    continue;
                }
                for index in &start.indices {
                    let mut known = false;
                    board.each_instance(&start.process_guid, &mut |definition, at, on| {
                        known |= *definition == start.definition_id && at == *index && on == cell;
                    });
                    if !known {
                        residents.entry(start.process_guid.clone()).or_default().push(cell.clone());
                    }
                }
            }
        }
        residents
    }

    /// One batch for each cell that got something, noted as sent.
    fn send(&mut self, round: &Round) -> Vec<(CellId, WorkBatch)> {
        let lrps: Vec<&LrpStart> = round.batch().lrps().collect();
        let tasks: Vec<&TaskStart> = round.batch().tasks().collect();
        let mut placed = round.outcome().placements.clone();
        placed.sort_unstable_by_key(|placement| (placement.cell, placement.work));
        let mut sends = Vec::new();
        for of_cell in placed.chunk_by(|a, b| a.cell == b.cell) {
            let cell = &round.fleet().cells()[of_cell[0].cell as usize].info.cell_id;
            let Some(heard) = self.cells.get_mut(cell) else { continue };
            let mut batch = WorkBatch { number: 0, lrps: Vec::new(), tasks: Vec::new() };
            let mut last = None;
            for placement in of_cell {
                match placement.work {
                    Work::Lrp { start, index } if last == Some(start) => {
                        let open = batch.lrps.last_mut().expect("the last start was put here");
                        open.indices.push(index);
                    }
                    Work::Lrp { start, index } => {
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
                    Work::Task(task) => batch.tasks.push(tasks[task as usize].clone()),
                }
            }
            sends.push((cell.clone(), heard.note(batch)));
        }
        sends
    }

    /// Keeps what found no place for the next round, and says what the BBS has not been told.
    fn carry_over(&mut self, round: &Round) -> Vec<Unplaced> {
        let lrps: Vec<&LrpStart> = round.batch().lrps().collect();
        let tasks: Vec<&TaskStart> = round.batch().tasks().collect();
        let mut told = BTreeMap::new();
        let mut unplaced = Vec::new();
        for failure in &round.outcome().failures {
            let reason: Box<str> = failure.error.to_string().into();
            match failure.work {
                Work::Lrp { start, index } => {
                    let start = lrps[start as usize];
                    let name = Name::of(start, index);
                    if self.told.get(&name) != Some(&reason) {
                        let key = LrpKey {
                            process_guid: start.process_guid.clone(),
                            index,
                            domain: start.domain.clone(),
                            definition_id: Some(start.definition_id.clone()),
                        };
                        unplaced.push(Unplaced::Lrp(key, reason.clone()));
                    }
                    told.insert(name, reason);
                    self.waiting.add_lrp(LrpStart { indices: vec![index], ..start.clone() });
                }
                Work::Task(task) => {
                    let task = tasks[task as usize];
                    let name = Name::Task(task.task_guid.clone());
                    if !self.told.contains_key(&name) {
                        unplaced.push(Unplaced::Task(task.task_guid.clone(), reason.clone()));
                    }
                    told.insert(name, reason);
                    self.waiting.add_task(task.clone());
                }
            }
        }
        self.told = told;
        unplaced
    }
}

impl Name {
    fn of(start: &LrpStart, index: u32) -> Self {
        Name::Lrp(start.process_guid.clone(), start.definition_id.clone(), index)
    }
}

impl Heard {
    /// The cell as a round sees it, once it has said both what it is and how it is doing.
    fn cell(&self) -> Option<Cell> {
        let (info, load) = (self.info.as_ref()?, self.load.as_ref()?);
        let mut cell = Cell::heard(Arc::clone(info), load);
        for sent in self.sent.iter().filter(|sent| sent.number() > load.last_batch) {
            let CellCapacity { memory_mb, disk_mb, containers } = sent.room();
            cell.free.memory_mb = cell.free.memory_mb.saturating_sub(memory_mb);
            cell.free.disk_mb = cell.free.disk_mb.saturating_sub(disk_mb);
            cell.free.containers = cell.free.containers.saturating_sub(containers);
            cell.starting = cell.starting.saturating_add(containers);
        }
        if cell.standing == Standing::Takes && self.is_silent() {
            cell.standing = Standing::Silent;
        } else if cell.standing == Standing::Takes && self.doubted.is_some() {
            cell.standing = Standing::Refused;
        }
        Some(cell)
    }

    fn is_silent(&self) -> bool {
        self.sent.iter().filter(|sent| sent.is_unanswered()).count() >= MOST_UNANSWERED
    }

    /// Gives it no more work until it has said a load after this one. Else the same work would go
    /// to the same cell and back, as fast as the network can.
    fn doubt(&mut self, version: u64) {
        if self.load.as_ref().is_some_and(|load| load.version <= version) {
            self.doubted = Some(version);
        }
    }

    /// Takes a newer load; says whether it was newer.
    fn take(&mut self, load: CellLoad) -> bool {
        if let Some(known) = &self.load {
            if load.version <= known.version {
                return false;
            }
            // It counts from the beginning: it has forgotten what we sent, or says so in `free`.
            if load.last_batch < known.last_batch {
                self.sent.clear();
            }
        }
        self.doubted = None;
        self.load = Some(load);
        self.tidy();
        true
    }

    /// Forgets what is answered and reflected: the rest is in the load, and soon on the board.
    fn tidy(&mut self) {
        let reflected = self.load.as_ref().map_or(0, |load| load.last_batch);
        self.sent.retain(|sent| {
            sent.is_unanswered() || (sent.number() > reflected && sent.room().containers > 0)
        });
    }

    /// Numbers a batch and notes it. Numbers go on after those of a coordinator before us.
    fn note(&mut self, mut batch: WorkBatch) -> WorkBatch {
        let reflected = self.load.as_ref().map_or(0, |load| load.last_batch);
        self.last_number = self.last_number.max(reflected) + 1;
        batch.number = self.last_number;
        let version = self.load.as_ref().map_or(0, |load| load.version);
        self.sent.push(Sent::new(batch.clone(), version));
        batch
    }
}
