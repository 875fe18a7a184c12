//! Convergence: bringing what is into line with what is desired when a message was lost, a cell
//! went, a wait is over.
//!
//! [`Board::evaluate`] looks at one subject and says what is to be done about it and when. The
//! agenda remembers its answers as records change, so [`Command::ConvergeDue`] costs what is due;
//! [`Command::ConvergeAll`] asks it about everything, which finds the same from scratch.
//!
//! [`Command::ConvergeDue`]: crate::bbs::command::Command::ConvergeDue
//! [`Command::ConvergeAll`]: crate::bbs::command::Command::ConvergeAll

use std::collections::BTreeSet;
use std::sync::Arc;

use volvox_protocol::actual_lrp::{LrpState, Presence};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, DefinitionId, Domain, ProcessGuid, TaskGuid};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::request::{Rejection, TaskOutcome};
use volvox_protocol::tables::crash::Restart;
use volvox_protocol::task::{Task, TaskState};
use volvox_protocol::time::Timestamp;

use super::rollout::{RolloutStep, is_eventful};
use super::schedule::DueTime;
use super::txn::{Txn, group_of, subject_of};
use super::{Board, instance_name};
use crate::bbs::command::{CellCoverage, Change, ConvergeKey, ConvergenceReport, Reply, RowId};
use crate::bbs::state::{InstanceRow, Process};

/// Why a task failed that no cell took in time.
pub(super) const NOT_STARTED: &str = "not started within time limit";
/// Why a task failed whose cell went missing.
pub(super) const CELL_DISAPPEARED: &str = "cell disappeared before completion";

/// What is to be done about a subject.
#[derive(Debug, Clone)]
pub(super) enum Repair {
    /// The domain is no longer fresh.
    ExpireDomain,
    /// The evacuating record has lived its time.
    ExpireEvacuating(InstanceRow),
    /// The suspect's cell is back.
    CellFound(InstanceRow),
    /// The suspect's replacement runs, or nobody desires it any more.
    RemoveSuspect(InstanceRow),
    /// The cell of an ordinary record is missing.
    CellLost(InstanceRow),
    /// No longer desired, and the consumer vouches for that; or its cell was told to stop it and
    /// may not have heard.
    Retire(InstanceRow),
    /// UNCLAIMED for too long: its start may have been lost.
    Stale(InstanceRow),
    /// CRASHED, and the wait is over.
    Restart(InstanceRow),
    /// Desired, and there is nothing.
    Create,
    /// An update goes on, or what it left behind goes.
    Deployment(RolloutStep),
    /// PENDING for longer than a consumer should have to wait.
    ExpirePendingTask,
    /// PENDING for too long: its start may have been lost.
    StaleTask,
    /// The cell of a running task is missing.
    TaskCellLost,
    /// RESOLVING for too long: whoever resolved it may have died.
    DemoteTask,
    /// COMPLETED and not called back yet.
    CallBackTask,
    /// COMPLETED for longer than a consumer is waited for.
    ExpireCompletedTask,
}

type Evaluation = Option<(DueTime, Repair)>;

impl Board {
    /// What is to be done about `subject`, and when.
    pub(super) fn evaluate(&self, now: Timestamp, subject: &ConvergeKey) -> Evaluation {
        match subject {
            ConvergeKey::Domain(domain) => {
                let (_, record) = self.records.domain(domain)?;
                let never = record.expires_at == Timestamp::NEVER;
                let at = DueTime::At(record.expires_at);
                (!never).then_some((at, Repair::ExpireDomain))
            }
            ConvergeKey::Index(process, definition, index) => {
                self.judge_index(now, process, definition, *index)
            }
            ConvergeKey::Deployment(process) => self.judge_roll(process),
            ConvergeKey::Task(guid) => {
                let (_, task) = self.records.task(guid)?;
                self.judge_task(now, subject, task)
            }
        }
    }

    fn judge_index(
        &self,
        now: Timestamp,
        guid: &ProcessGuid,
        definition: &DefinitionId,
        index: u32,
    ) -> Evaluation {
        let process = self.records.process(guid)?;
        let desired = process.wants(definition, index);
        let (mut ordinary, mut evacuating, mut suspect) = (None, None, None);
        for slot in process.at(definition, index) {
            match slot.lrp.presence {
                Presence::Ordinary => ordinary = Some(slot),
                Presence::Evacuating => evacuating = Some(slot),
                Presence::Suspect => suspect = Some(slot),
            }
        }
        // The common case, on the way of every start: it runs, it is desired, its cell is there.
        if let (Some(slot), None, None, true) = (ordinary, evacuating, suspect, desired)
            && slot.lrp.state.is_running()
            && !slot.lrp.stopping
            && !self.is_lost(slot)
        {
            return None;
        }
        let subject = || ConvergeKey::Index(guid.clone(), definition.clone(), index);
        let place =
            if desired { IndexRole::Wanted } else { self.place(process, definition, index) };
        let first = suspect.and_then(|suspect| self.judge_suspect(now, suspect, ordinary, place));
        let then = || match ordinary {
            Some(slot) => self.judge_ordinary(now, &subject(), slot, place),
            None if desired && !process.must_wait(definition, index) => {
                Some((self.retry(&subject()), Repair::Create))
            }
            None => None,
        };
        let rest = match first {
            // Beside a suspect that waits for its domain, a stop may have to be repeated.
            Some((DueTime::WhenFresh(_), _)) => sooner(first, then()),
            first => first.or_else(then),
        };
        let expiry = evacuating.map(|slot| {
            let at = match place {
                // It stood in for its index while another definition came to run there.
                IndexRole::Served => DueTime::NOW,
                IndexRole::Wanted | IndexRole::Unserved | IndexRole::Nowhere => {
                    DueTime::At(slot.lrp.since + self.settings.evacuation_timeout)
                }
            };
            (at, Repair::ExpireEvacuating(slot.clone()))
        });
        // It has to go in time whether or not the domain ever becomes fresh.
        sooner(rest, expiry)
    }

    /// How a definition stands at an index where it is not wanted.
    fn place(&self, process: &Process, definition: &DefinitionId, index: u32) -> IndexRole {
        match &process.deployment {
            Some((_, deployment))
                if index < deployment.instances
                    && deployment.definitions.get(definition).is_some() =>
            {
                if process.is_served(index) { IndexRole::Served } else { IndexRole::Unserved }
            }
            Some(_) | None => IndexRole::Nowhere,
        }
    }

    fn judge_suspect(
        &self,
        now: Timestamp,
        suspect: &InstanceRow,
        ordinary: Option<&InstanceRow>,
        place: IndexRole,
    ) -> Evaluation {
        let cell = suspect.lrp.cell_id()?;
        if self.presence(cell) == Some(CellPresence::Present) {
            return Some((DueTime::NOW, Repair::CellFound(suspect.clone())));
        }
        if ordinary.is_some_and(|slot| slot.lrp.state.is_running() && !self.is_lost(slot))
            && !mutated(Bug::SuspectStays)
        {
            return Some((DueTime::NOW, Repair::RemoveSuspect(suspect.clone())));
        }
        let when = match place {
            IndexRole::Wanted | IndexRole::Unserved => return None,
            IndexRole::Served => DueTime::NOW,
            IndexRole::Nowhere => self.when_fresh(now, &suspect.lrp.domain),
        };
        Some((when, Repair::RemoveSuspect(suspect.clone())))
    }

    fn judge_ordinary(
        &self,
        now: Timestamp,
        subject: &ConvergeKey,
        slot: &InstanceRow,
        place: IndexRole,
    ) -> Evaluation {
        let lrp = &slot.lrp;
        if lrp.stopping {
            // It was decided before that this instance goes: neither a new desire nor the end of
            // freshness takes that back.
            let when = if self.is_lost(slot) { DueTime::NOW } else { self.retry(subject) };
            return Some((when, Repair::Retire(slot.clone())));
        }
        match place {
            IndexRole::Wanted => {}
            IndexRole::Served => return Some((DueTime::NOW, Repair::Retire(slot.clone()))),
            IndexRole::Unserved | IndexRole::Nowhere => {
                let when = self.when_fresh(now, &lrp.domain);
                return Some((when, Repair::Retire(slot.clone())));
            }
        }
        match &lrp.state {
            LrpState::Unclaimed { .. } if mutated(Bug::StartsAreNotRepeated) => None,
            LrpState::Unclaimed { .. } => {
                let last = self.asked.get(subject).copied().unwrap_or(lrp.since);
                let at = last.max(lrp.since) + self.settings.stale_after;
                Some((DueTime::At(at), Repair::Stale(slot.clone())))
            }
            LrpState::Claimed(_) if mutated(Bug::ClaimedIsNotReplaced) => None,
            LrpState::Claimed(_) | LrpState::Running(..) => {
                self.is_lost(slot).then(|| (DueTime::NOW, Repair::CellLost(slot.clone())))
            }
            LrpState::Crashed => match self.settings.crash_policy.restart(lrp.crash_count) {
                Restart::After(wait) => {
                    Some((DueTime::At(lrp.since + wait), Repair::Restart(slot.clone())))
                }
                Restart::Never => None,
            },
        }
    }

    fn judge_task(&self, now: Timestamp, subject: &ConvergeKey, task: &Task) -> Evaluation {
        let settings = &self.settings;
        // When both are due, nobody is asked for what is about to go.
        let either = |kick: Timestamp, again: Repair, end: Timestamp, over: Repair| {
            let finding = if end <= kick || end <= now { over } else { again };
            Some((DueTime::At(kick.min(end)), finding))
        };
        match task.state {
            TaskState::Pending => {
                let last = self.asked.get(subject).copied().unwrap_or(task.updated_at);
                let kick = last.max(task.updated_at) + settings.kick_task_after;
                let give_up = task.created_at + settings.expire_pending_task_after;
                either(kick, Repair::StaleTask, give_up, Repair::ExpirePendingTask)
            }
            TaskState::Running => {
                let cell = task.cell_id.as_ref()?;
                let lost = self.presence(cell) == Some(CellPresence::Missing)
                    && !mutated(Bug::LostTaskIsNotEnded);
                lost.then_some((DueTime::NOW, Repair::TaskCellLost))
            }
            TaskState::Completed => {
                // While nobody was here nobody was told: the time of the consumer begins anew.
                let from = task.first_completed_at.max(self.opened_at);
                let patience = match mutated(Bug::ForgetsTasks) {
                    true => std::time::Duration::ZERO,
                    false => settings.expire_completed_task_after,
                };
                let forget = from + patience;
                if task.definition.completion_callback_url.is_empty() {
                    return Some((DueTime::At(forget), Repair::ExpireCompletedTask));
                }
                let last = self.asked.get(subject).copied().unwrap_or(task.updated_at);
                let kick = last.max(task.updated_at) + settings.kick_task_after;
                either(kick, Repair::CallBackTask, forget, Repair::ExpireCompletedTask)
            }
            TaskState::Resolving => {
                let at = task.updated_at + settings.kick_task_after;
                Some((DueTime::At(at), Repair::DemoteTask))
            }
        }
    }

    fn is_lost(&self, slot: &InstanceRow) -> bool {
        let cell = slot.lrp.cell_id();
        cell.is_some_and(|cell| self.presence(cell) == Some(CellPresence::Missing))
    }

    /// Now, or some time after this was last asked for.
    fn retry(&self, subject: &ConvergeKey) -> DueTime {
        match self.asked.get(subject) {
            Some(asked) => DueTime::At(*asked + self.settings.stale_after),
            None => DueTime::NOW,
        }
    }

    fn when_fresh(&self, now: Timestamp, domain: &Domain) -> DueTime {
        if self.is_fresh(now, domain) { DueTime::NOW } else { DueTime::WhenFresh(domain.clone()) }
    }

    /// Everything there is to judge, in order.
    pub(super) fn every_subject(&self) -> BTreeSet<ConvergeKey> {
        let mut all: Vec<ConvergeKey> = Vec::new();
        self.each_subject(|subject| all.push(subject));
        all.into_iter().collect()
    }

    pub(super) fn each_subject(&self, mut visit: impl FnMut(ConvergeKey)) {
        for record in self.records.domains() {
            visit(ConvergeKey::Domain(record.domain.clone()));
        }
        for (guid, process) in self.records.processes() {
            let mut last: Option<(&DefinitionId, u32)> = None;
            for slot in process.instances() {
                let this = (&slot.lrp.definition_id, slot.lrp.index);
                if last != Some(this) {
                    visit(subject_of(&slot.lrp));
                    last = Some(this);
                }
            }
            if let Some((_, deployment)) = &process.deployment {
                // Where all is there, as it mostly is, no index has to be looked for.
                let complete = deployment.roll.is_none()
                    && process.instances().len() == deployment.instances as usize
                    && process.instances().iter().zip(0..).all(|(slot, index)| {
                        let lrp = &slot.lrp;
                        lrp.index == index && lrp.definition_id == deployment.active_definition_id
                    });
                for index in 0..if complete { 0 } else { deployment.instances } {
                    for definition in process.wanted(index) {
                        if process.at(definition, index).is_empty() {
                            visit(ConvergeKey::Index(guid.clone(), definition.clone(), index));
                        }
                    }
                }
                if is_eventful(deployment) {
                    visit(ConvergeKey::Deployment(guid.clone()));
                }
            }
        }
        for task in self.records.tasks() {
            visit(ConvergeKey::Task(task.task_guid.clone()));
        }
    }
}

/// How a definition stands at an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexRole {
    /// It is to run there.
    Wanted,
    /// Another one is, and does.
    Served,
    /// Another one is, and does not yet.
    Unserved,
    /// Nobody desires the index, or the deployment does not know the definition.
    Nowhere,
}

/// The judgement that wants attention first; the first one when they agree. When the one that
/// comes later waits for its domain, so do both.
fn sooner(one: Evaluation, other: Evaluation) -> Evaluation {
    let rank = |judgement: &Evaluation| match judgement {
        None | Some((DueTime::None, _)) => (2, Timestamp::NEVER),
        Some((DueTime::WhenFresh(_), _)) => (1, Timestamp::NEVER),
        Some((DueTime::At(at) | DueTime::AtOrWhenFresh(at, _), _)) => (0, *at),
    };
    let (first, then) = if rank(&other) < rank(&one) { (other, one) } else { (one, other) };
    match (first, then) {
        (
            Some((DueTime::At(at), finding)),
            Some((DueTime::WhenFresh(domain) | DueTime::AtOrWhenFresh(_, domain), _)),
        ) => Some((DueTime::AtOrWhenFresh(at, domain), finding)),
        (first, _) => first,
    }
}

impl Txn<'_> {
    pub(super) fn converge_due(&mut self) -> Result<Reply, Rejection> {
        let due = self.board.agenda.due(self.now);
        Ok(Reply::Converged(ConvergenceReport { findings: self.settle(due), healed: 0 }))
    }

    /// Judges everything from scratch. What the agenda had not known is a bug of ours: it is
    /// mended and counted, and whoever asked is told.
    pub(super) fn converge_all(&mut self) -> Result<Reply, Rejection> {
        let mut due = BTreeSet::new();
        let mut wrong = Vec::new();
        let mut older = 0;
        let mut known = 0;
        self.board.each_subject(|subject| {
            let judged = self.board.evaluate(self.now, &subject);
            let attention = judged.map_or(DueTime::None, |(attention, _)| attention);
            let remembered = self.board.agenda.get(&subject);
            known += usize::from(*remembered != DueTime::None);
            if attention.is_due(self.now) {
                due.insert(subject.clone());
            }
            if attention != *remembered {
                older += usize::from(attention.is_only_older(remembered));
                wrong.push((subject, attention));
            }
        });
        if known != self.board.agenda.subjects().count() {
            let all = self.board.every_subject();
            let gone = self.board.agenda.subjects().filter(|subject| !all.contains(subject));
            wrong.extend(gone.map(|subject| (subject.clone(), DueTime::None)));
        }
        let healed = wrong.len() - older;
        for (subject, attention) in wrong {
            self.board.agenda.set(subject, attention);
        }
        let findings = self.settle(due);
        self.forget_cells();
        Ok(Reply::Converged(ConvergenceReport { findings, healed }))
    }

    /// Once all cells have been heard, one that is not mentioned is missing: those that are
    /// missing and that no record names need no mention. Cells come and go, and their names would
    /// pile up.
    fn forget_cells(&mut self) {
        if self.board.heard != CellCoverage::All {
            return;
        }
        let gone = |(cell, presence): &(&CellId, &CellPresence)| {
            **presence == CellPresence::Missing && self.board.records.named_cell(cell).is_none()
        };
        let gone = self.board.presence.iter().filter(gone);
        let gone: Vec<CellId> = gone.map(|(cell, _)| cell.clone()).collect();
        for cell in gone {
            self.put(Change::Presence(cell, Some(CellPresence::Missing), None));
        }
    }

    /// Deals with what is due, and with what becomes due by that: a step of an update has others
    /// follow, a handful for each index in flight.
    fn settle(&mut self, due: BTreeSet<ConvergeKey>) -> usize {
        const ROUNDS: usize = 64;
        let mut findings = 0;
        let mut due = due;
        for _ in 0..ROUNDS {
            if due.is_empty() {
                break;
            }
            findings += self.settle_once(due);
            due = self.board.agenda.due(self.now);
        }
        findings
    }

    /// Deals with what is due, in the order of the subjects. Each is judged again when its turn
    /// comes, and as long as it has something due: at most a handful of steps, since each step
    /// takes the index or task further.
    fn settle_once(&mut self, due: BTreeSet<ConvergeKey>) -> usize {
        const STEPS: usize = 8;
        let mut findings = 0;
        for subject in due {
            for _ in 0..STEPS {
                let judged = self.board.evaluate(self.now, &subject);
                match judged {
                    Some((attention, finding)) if attention.is_due(self.now) => {
                        findings += 1;
                        self.deal_with(&subject, finding);
                        // What was done has been judged on the way: mostly there is no more.
                        if !self.board.agenda.get(&subject).is_due(self.now) {
                            break;
                        }
                    }
                    Some((attention, _)) => {
                        self.board.agenda.set(subject, attention);
                        break;
                    }
                    None => {
                        self.board.agenda.set(subject, DueTime::None);
                        break;
                    }
                }
            }
        }
        findings
    }

    fn deal_with(&mut self, subject: &ConvergeKey, finding: Repair) {
        match subject {
            ConvergeKey::Domain(domain) => {
                if let Some((row, record)) = self.board.records.domain(domain).cloned() {
                    self.put(Change::Domain(row, Some(record), None));
                }
            }
            ConvergeKey::Index(process, definition, index) => {
                self.deal_with_index(process, definition, *index, finding);
            }
            ConvergeKey::Deployment(process) => {
                if let Repair::Deployment(deed) = finding {
                    self.deal_with_deployment(process, deed);
                } else {
                    debug_assert!(false, "{process}: not about a deployment");
                }
            }
            ConvergeKey::Task(guid) => self.deal_with_task(guid, finding),
        }
    }

    fn deal_with_index(
        &mut self,
        process: &ProcessGuid,
        definition: &DefinitionId,
        index: u32,
        finding: Repair,
    ) {
        let at = self.index_of(process, definition, index);
        match finding {
            Repair::ExpireEvacuating(slot) => self.remove_evacuee(&slot),
            Repair::CellFound(slot) => self.cell_found(&at, &slot),
            Repair::RemoveSuspect(slot) => self.remove_suspect(&slot),
            Repair::CellLost(slot) => self.cell_lost(&at, &slot),
            Repair::Retire(slot) => self.retire(&at, &slot),
            Repair::Stale(slot) => {
                self.request_start(&slot.lrp);
                self.set_asked(subject_of(&slot.lrp), Some(self.now));
            }
            Repair::Restart(slot) => {
                let lrp = self.unclaim(&slot);
                self.group_changed(&at, &slot, &lrp);
            }
            Repair::Create => {
                if let Some(deployment) = self.deployment(process) {
                    let lrp = self.create_unclaimed(&deployment, definition, index);
                    if at.suspect.is_none() {
                        self.emit(Event::GroupCreated(group_of(&lrp)));
                    }
                }
            }
            Repair::ExpireDomain
            | Repair::Deployment(_)
            | Repair::ExpirePendingTask
            | Repair::StaleTask
            | Repair::TaskCellLost
            | Repair::DemoteTask
            | Repair::CallBackTask
            | Repair::ExpireCompletedTask => {
                debug_assert!(false, "{}: not about an index", instance_name(process, index));
            }
        }
    }

    fn deal_with_task(&mut self, guid: &TaskGuid, finding: Repair) {
        let Some(known) = self.board.records.task(guid).cloned() else { return };
        let subject = ConvergeKey::Task(guid.clone());
        match finding {
            Repair::ExpirePendingTask => {
                self.end_task(&known, TaskOutcome::failed_because(NOT_STARTED));
            }
            Repair::StaleTask => {
                self.request_task_start(&known.1);
                self.set_asked(subject, Some(self.now));
            }
            Repair::TaskCellLost if mutated(Bug::LostTaskStartsAgain) => {
                self.try_again(&known, CELL_DISAPPEARED);
            }
            Repair::TaskCellLost => {
                self.end_task(&known, TaskOutcome::failed_because(CELL_DISAPPEARED));
            }
            Repair::DemoteTask => self.demote_task(&known),
            Repair::CallBackTask => {
                self.call_back(known.1);
                self.set_asked(subject, Some(self.now));
            }
            Repair::ExpireCompletedTask => {
                self.put_task(Some(&known), None);
            }
            Repair::ExpireDomain
            | Repair::ExpireEvacuating(_)
            | Repair::CellFound(_)
            | Repair::RemoveSuspect(_)
            | Repair::CellLost(_)
            | Repair::Retire(_)
            | Repair::Stale(_)
            | Repair::Restart(_)
            | Repair::Create
            | Repair::Deployment(_) => debug_assert!(false, "task {guid}: not about a task"),
        }
    }

    /// Back to COMPLETED, as old as it was, so that it is called back again at once.
    fn demote_task(&mut self, known: &(RowId, Arc<Task>)) {
        let task = Task { state: TaskState::Completed, ..(*known.1).clone() };
        self.put_task(Some(known), Some(task));
    }
}
