//! The board: `apply(now, seed, command)` decides everything and does nothing.
//!
//! A family of commands each has a file below. They share [`Txn`], the one way to change the
//! board: every change goes through [`Board::put`], is remembered so that it can be undone, and
//! brings its events with it. A rejected command leaves no trace.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod actual;
pub mod check;
mod converge;
mod deployment;
mod desired;
mod evacuate;
mod group_events;
mod load;
mod rollout;
mod schedule;
mod suspect;
mod task;
#[cfg(test)]
mod tests;
mod txn;

use std::collections::BTreeMap;

use volvox_protocol::cell::CellPresence;
use volvox_protocol::id::{CellId, Domain, ProcessGuid};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::request::{CellRequest, Rejection};
use volvox_protocol::time::Timestamp;

use super::command::{
    CellCoverage, Change, Command, ConvergeKey, DomainRecord, Reply, RowId, Verdict,
};
use super::settings::BoardSettings;
use super::state::Records;
use schedule::{ConvergeSchedule, DueTime};
use txn::Txn;

/// The whole state of the BBS.
#[derive(Debug, Clone)]
pub struct Board {
    settings: BoardSettings,
    records: Records,
    /// What the mesh has said of each cell since this coordinator began to listen. Missing cells
    /// that no record names are forgotten when all have been heard.
    presence: BTreeMap<CellId, CellPresence>,
    heard: CellCoverage,
    /// When the outside was last asked for something that has not come about since: a start, a
    /// stop, a replacement, a call back. An index has one question at a time. Any change of its
    /// ordinary record answers it; a stop and a failed auction, which change the record too, put
    /// it anew. Convergence repeats it after a while. Without an entry a stop is asked for at
    /// once, a start when the record is old enough: what another coordinator asked may be lost.
    asked: BTreeMap<ConvergeKey, Timestamp>,
    /// What convergence has to look at, and when. Follows from all of the above.
    agenda: ConvergeSchedule,
    /// When the records were read back; the beginning of time for a board that began empty.
    opened_at: Timestamp,
    next_row: RowId,
}

impl Board {
    /// An empty board.
    pub fn new(settings: BoardSettings) -> Self {
        Board {
            settings,
            records: Records::default(),
            presence: BTreeMap::new(),
            heard: CellCoverage::Some,
            asked: BTreeMap::new(),
            agenda: ConvergeSchedule::default(),
            opened_at: Timestamp::ZERO,
            next_row: RowId(1),
        }
    }

    /// The records, to read.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// The settings that the board goes by.
    pub fn settings(&self) -> &BoardSettings {
        &self.settings
    }

    /// What the mesh has said of a cell; nothing when it has not been mentioned and more may come.
    pub fn presence(&self, cell: &CellId) -> Option<CellPresence> {
        match (self.presence.get(cell), self.heard) {
            (Some(presence), _) => Some(*presence),
            (None, CellCoverage::All) => Some(CellPresence::Missing),
            (None, CellCoverage::Some) => None,
        }
    }

    /// When [`Command::ConvergeDue`] next has something to do.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        self.agenda.next_deadline()
    }

    /// Whether the consumer vouches for the desired state of this domain.
    pub fn is_fresh(&self, now: Timestamp, domain: &Domain) -> bool {
        let is_fresh = |record: &DomainRecord| record.expires_at > now;
        mutated(Bug::AlwaysFresh) || self.records.domain(domain).is_some_and(|(_, it)| is_fresh(it))
    }

    /// Carries out one command. `seed` is the randomness for new ids: the same board, time, seed
    /// and command give the same outcome, to the byte. A rejection changes nothing.
    pub fn apply(&mut self, now: Timestamp, seed: u64, command: Command) -> Verdict {
        let mut turn = Txn::new(self, now, seed);
        match turn.dispatch(command) {
            Ok(reply) => Ok(turn.finish(reply)),
            Err(rejection) => {
                turn.undo();
                Err(rejection)
            }
        }
    }

    /// Takes back the commands whose commit failed, but not what they said of the mesh: that is so
    /// whether or not it could be saved, and nobody will say it again. What follows from it is due
    /// anew, and [`Command::ConvergeDue`] does it.
    pub fn roll_back(&mut self, now: Timestamp, changes: impl DoubleEndedIterator<Item = Change>) {
        let heard = |change: &Change| matches!(change, Change::Presence(..) | Change::Settled(..));
        self.undo(now, changes.filter(|change| !heard(change)));
    }

    /// Takes steps back, the last one first.
    pub fn undo(&mut self, now: Timestamp, changes: impl DoubleEndedIterator<Item = Change>) {
        for change in changes.rev() {
            self.put(now, &change.inverse());
        }
    }

    /// Takes one step and keeps the agenda true to it. The only way anything here changes.
    fn put(&mut self, now: Timestamp, change: &Change) {
        self.records.put(change);
        match change {
            Change::Domain(_, before, after) => {
                let Some(record) = before.as_ref().or(after.as_ref()) else { return };
                self.reschedule(now, ConvergeKey::Domain(record.domain.clone()));
                for subject in self.agenda.waiting_for(&record.domain) {
                    self.reschedule(now, subject);
                }
            }
            Change::Deployment(_, before, after) => {
                self.judge_deployment(now, before.as_deref(), after.as_deref());
            }
            Change::Actual(_, before, after) => {
                let Some(lrp) = before.as_ref().or(after.as_ref()) else { return };
                self.reschedule(now, txn::subject_of(lrp));
                self.judge_beside(now, lrp);
            }
            Change::Task(_, before, after) => {
                let Some(task) = before.as_ref().or(after.as_ref()) else { return };
                self.reschedule(now, ConvergeKey::Task(task.task_guid.clone()));
            }
            Change::Presence(cell, _, after) => {
                match after {
                    Some(presence) => self.presence.insert(cell.clone(), *presence),
                    None => self.presence.remove(cell),
                };
                self.judge_cell(now, cell);
            }
            Change::Settled(_, after) => {
                self.heard = *after;
                for cell in self.unmentioned_cells() {
                    self.judge_cell(now, &cell);
                }
            }
            Change::Asked(subject, _, after) => {
                match after {
                    Some(at) => self.asked.insert(subject.clone(), *at),
                    None => self.asked.remove(subject),
                };
                self.reschedule(now, subject.clone());
            }
        }
    }

    /// Works out anew when convergence has to look at `subject`.
    fn reschedule(&mut self, now: Timestamp, subject: ConvergeKey) {
        let attention = match self.evaluate(now, &subject) {
            Some((attention, _)) => attention,
            None => DueTime::None,
        };
        self.agenda.set(subject, attention);
    }

    fn judge_cell(&mut self, now: Timestamp, cell: &CellId) {
        let instances = self.records.instances_on(cell).map(|lrp| txn::subject_of(lrp));
        let tasks =
            self.records.tasks_on(cell).map(|task| ConvergeKey::Task(task.task_guid.clone()));
        let subjects: Vec<ConvergeKey> = instances.chain(tasks).collect();
        for subject in subjects {
            self.reschedule(now, subject);
        }
    }

    /// The cells that records name and that the mesh has not mentioned.
    fn unmentioned_cells(&self) -> Vec<CellId> {
        let named = self.records.named_cells();
        named.filter(|cell| !self.presence.contains_key(*cell)).cloned().collect()
    }
}

impl Txn<'_> {
    fn dispatch(&mut self, command: Command) -> Result<Reply, Rejection> {
        match command {
            Command::UpsertDomain(domain, ttl) => self.upsert_domain(domain, ttl),
            Command::DesireLrp(desired) => self.desire_lrp(desired.into_inner()),
            Command::UpdateDesiredLrp(process, update) => {
                self.update_desired_lrp(&process, update.into_inner())
            }
            Command::RemoveDesiredLrp(process) | Command::DeleteDeployment(process) => {
                self.remove_desired_lrp(&process)
            }
            Command::CreateDeployment(asked) => self.create_deployment(asked.into_inner()),
            Command::UpdateDeployment(process, update) => {
                self.update_deployment(&process, update.into_inner())
            }
            Command::ActivateDefinition(process, definition) => {
                self.activate_definition(&process, &definition)
            }
            Command::CancelUpdate(process) => self.cancel_update(&process),
            Command::Rollback(process, definition) => self.roll_back(&process, &definition),
            Command::PromoteUpdate(process) => self.promote_update(&process),
            Command::PauseUpdate(process) => self.pause_update(&process),
            Command::ResumeUpdate(process) => self.resume_update(&process),
            Command::Cell(request) => self.cell_request(request.into_inner()),
            Command::FailLrp(key, reason) => self.fail_lrp(&key, &reason),
            Command::RemoveLrp(key) => self.remove_any_lrp(&key),
            Command::RetireLrp(key) => self.retire_lrp(&key),
            Command::DesireTask(guid, domain, definition) => {
                self.desire_task(guid, domain, definition.into_inner())
            }
            Command::CancelTask(guid) => self.cancel_task(&guid),
            Command::FailTask(guid, reason) => self.fail_task(&guid, &reason),
            Command::RejectTask(guid, reason) => self.reject_task_by_auction(&guid, &reason),
            Command::ResolvingTask(guid, which) => self.resolving_task(&guid, which),
            Command::DeleteTask(guid, which) => self.delete_task(&guid, which),
            Command::CellPresence(cell, presence) => self.cell_presence(cell, presence),
            Command::CellsSettled => self.cells_settled(),
            Command::ConvergeDue => self.converge_due(),
            Command::ConvergeAll => self.converge_all(),
        }
    }

    fn cell_request(&mut self, request: CellRequest) -> Result<Reply, Rejection> {
        match request {
            CellRequest::ClaimLrp(key, instance) => self.claim_lrp(&key, instance),
            CellRequest::StartLrp(key, instance, running) => {
                self.start_lrp(&key, instance, running)
            }
            CellRequest::CrashLrp(key, instance, reason) => {
                self.crash_lrp(&key, &instance, &reason)
            }
            CellRequest::RemoveLrp(key, instance) => self.remove_lrp(&key, &instance),
            CellRequest::EvacuateClaimed(key, instance) => self.evacuate_claimed(&key, &instance),
            CellRequest::EvacuateRunning(key, instance, running) => {
                self.evacuate_running(&key, &instance, running)
            }
            CellRequest::EvacuateCrashed(key, instance, reason) => {
                self.evacuate_crashed(&key, &instance, &reason)
            }
            CellRequest::EvacuateStopped(key, instance) => self.evacuate_stopped(&key, &instance),
            CellRequest::RemoveEvacuating(key, instance) => self.remove_evacuating(&key, &instance),
            CellRequest::StartTask(guid, cell) => self.start_task(&guid, cell),
            CellRequest::CompleteTask(guid, cell, outcome) => {
                self.complete_task(&guid, &cell, outcome)
            }
            CellRequest::RejectTask(guid, cell, reason) => self.reject_task(&guid, &cell, &reason),
        }
    }
}

/// How a rejection names an instance.
fn instance_name(process: &ProcessGuid, index: u32) -> String {
    format!("actual LRP {process}/{index}")
}
