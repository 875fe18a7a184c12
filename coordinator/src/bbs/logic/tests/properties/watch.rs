//! Takes steps one by one and looks at the board, and at what it said, after each.

use std::collections::BTreeSet;

use volvox_protocol::deployment::LrpDeployment;

use super::super::*;
use super::fits::{effects_fit, tags_fit};
use super::heard::Heard;
use super::play::{Step, What};
use crate::bbs::command::{ConvergenceReport, DomainRecord, RowId};
use crate::bbs::state::Records;

type Deployed = (RowId, Arc<LrpDeployment>);

/// A board, and everything that others have learned from it.
pub(super) struct Watch {
    pub(super) board: Board,
    pub(super) now: Timestamp,
    /// Gets the same commands.
    twin: Board,
    /// Gets the changes, as a view does.
    view: Records,
    /// Gets the events, as a subscriber does.
    heard: Heard,
    /// The tasks that a cell was told to start and that it has not given back since.
    started: BTreeSet<TaskGuid>,
}

impl Watch {
    pub(super) fn new(settings: BoardSettings) -> Self {
        Watch {
            board: Board::new(settings.clone()),
            now: Timestamp::from_secs(1_000_000),
            twin: Board::new(settings),
            view: Records::default(),
            heard: Heard::default(),
            started: BTreeSet::new(),
        }
    }

    /// Takes a step. There is an outcome when it was a command and was not refused.
    pub(super) fn take(&mut self, step: Step) -> Result<Option<ApplyResult>, String> {
        self.now = self.now + step.after;
        match step.what {
            What::Apply(command) => self.apply(step.seed, command),
            What::Restart => {
                self.board = reload(&self.board, self.now);
                self.twin = reload(&self.twin, self.now);
                hold(&check(&self.board, self.now)).map(|()| None)
            }
        }
    }

    /// Carries out a command and looks at everything. The outcome is left out when it was refused.
    pub(super) fn apply(
        &mut self,
        seed: u64,
        command: Command,
    ) -> Result<Option<ApplyResult>, String> {
        let before = self.board.clone();
        let verdict = self.board.apply(self.now, seed, command.clone());
        if self.twin.apply(self.now, seed, command.clone()) != verdict {
            return Err(format!("{command:?} has another outcome the second time"));
        }
        let told = || format!("{command:?}");
        hold(&check(&self.board, self.now))?;
        let outcome = match verdict {
            Ok(outcome) => outcome,
            Err(_) => {
                same(&before, &self.board).map_err(|what| format!("{} changed {what}", told()))?;
                return Ok(None);
            }
        };
        for change in &outcome.changes {
            self.view.put(change);
        }
        same_records(&self.view, &self.board.records)
            .map_err(|what| format!("the changes of {} do not make {what}", told()))?;
        self.heard.hear(&outcome.events)?;
        self.heard.agrees(&self.board.records).map_err(|what| format!("{}: {what}", told()))?;
        self.at_most_once(&command, &outcome)?;
        tags_fit(&outcome).map_err(|it| format!("{}: {it}", told()))?;
        effects_fit(&before, &self.board, &outcome).map_err(|it| format!("{}: {it}", told()))?;
        if seed.is_multiple_of(2) {
            let mut undone = self.board.clone();
            undone.undo(self.now, outcome.changes.clone().into_iter());
            undone.next_row = before.next_row;
            hold(&check(&undone, self.now)).map_err(|what| format!("undone: {what}"))?;
            same_but_agenda(&before, &undone)
                .map_err(|what| format!("{} undone leaves {what}", told()))?;
        }
        if let Reply::Converged(report) = &outcome.reply {
            self.convergence(&before, seed, &command, &outcome, report)?;
        }
        if destroys_only_what_is_vouched_for(&command) {
            self.spares_the_unfresh(&before, &outcome)
                .map_err(|what| format!("{}: {what}", told()))?;
        }
        Ok(Some(outcome))
    }

    /// Both ways of converging do the same, and once is enough.
    fn convergence(
        &mut self,
        before: &Board,
        seed: u64,
        command: &Command,
        outcome: &ApplyResult,
        report: &ConvergenceReport,
    ) -> Result<(), String> {
        if report.healed > 0 {
            return Err(format!("{command:?} healed {}", report.healed));
        }
        if let Command::ConvergeDue | Command::ConvergeAll = command {
            let other = if let Command::ConvergeDue = command {
                Command::ConvergeAll
            } else {
                Command::ConvergeDue
            };
            let mut board = before.clone();
            let found = board.apply(self.now, seed, other).map_err(|no| no.to_string())?;
            if without_forgetting(&found) != without_forgetting(outcome) {
                return Err(format!("one way to converge: {outcome:#?}, the other: {found:#?}"));
            }
            same_but_mesh(&board, &self.board)
                .and_then(|()| same_mesh(&board, &self.board))
                .map_err(|what| format!("the other way to converge leaves {what}"))?;
        }
        let mut again = self.board.clone();
        let found =
            again.apply(self.now, seed, Command::ConvergeDue).map_err(|no| no.to_string())?;
        let nothing = Reply::Converged(ConvergenceReport::default());
        if found.reply != nothing || !found.changes.is_empty() || !found.effects.is_empty() {
            return Err(format!("after {command:?}, converging again found {found:#?}"));
        }
        Ok(())
    }

    /// Nothing is destroyed for a domain that nobody vouches for.
    fn spares_the_unfresh(&self, before: &Board, outcome: &ApplyResult) -> Result<(), String> {
        for effect in &outcome.effects {
            let repeated = |key: &LrpKey, of: &InstanceKey| {
                let mut known = before.records.instances();
                known.any(|lrp| lrp.stopping && lrp.key() == *key && lrp.is_held_by(of))
            };
            if let BoardEffect::StopInstance(key, of) = effect
                && !before.is_fresh(self.now, &key.domain)
                && !repeated(key, of)
                && !self.is_replaced(key)
            {
                return Err(format!("{of:?} of {key:?} was stopped and its domain is not fresh"));
            }
        }
        for change in &outcome.changes {
            if let Change::Actual(_, Some(lrp), None) = change
                && !before.is_fresh(self.now, &lrp.domain)
                && !self.may_go(before, lrp, outcome)
            {
                return Err(format!("{lrp:?} was removed and its domain is not fresh"));
            }
        }
        Ok(())
    }

    /// Whether an update has brought another definition to run at this index.
    fn is_replaced(&self, key: &LrpKey) -> bool {
        let Some(process) = self.board.records.process(&key.process_guid) else { return false };
        let other = |lrp: &ActualLrp| Some(&lrp.definition_id) != key.definition_id.as_ref();
        process.instances().iter().map(|slot| &slot.lrp).any(|lrp| {
            lrp.index == key.index && other(lrp) && lrp.state.is_running() && !lrp.stopping
        })
    }

    /// Whether a record may go whatever its domain: somebody else serves instead, its time is up,
    /// or it was to be stopped before and its cell is gone.
    fn may_go(&self, before: &Board, lrp: &ActualLrp, outcome: &ApplyResult) -> bool {
        if self.is_replaced(&lrp.key()) {
            return true;
        }
        let process = before.records.process(&lrp.process_guid);
        let find = |presence| {
            process.and_then(|process| process.find(&lrp.definition_id, lrp.index, presence))
        };
        let promoted = outcome.changes.iter().any(|change| {
            matches!(change, Change::Actual(_, Some(old), Some(new))
                if old.presence == Presence::Suspect && new.presence == Presence::Ordinary
                    && (&new.process_guid, new.index) == (&lrp.process_guid, lrp.index))
        });
        match lrp.presence {
            Presence::Evacuating => lrp.since + before.settings.evacuation_timeout <= self.now,
            Presence::Suspect => {
                find(Presence::Ordinary).is_some_and(|slot| slot.lrp.state.is_running())
            }
            Presence::Ordinary => {
                let lost = lrp
                    .cell_id()
                    .is_some_and(|cell| self.board.presence(cell) == Some(CellPresence::Missing));
                promoted || (lost && (lrp.stopping || find(Presence::Suspect).is_some()))
            }
        }
    }

    /// A task is started once, and again only when the cell that had it says that it has not begun.
    fn at_most_once(&mut self, command: &Command, outcome: &ApplyResult) -> Result<(), String> {
        for change in &outcome.changes {
            let Change::Task(_, before, after) = change else { continue };
            let Some(guid) = before.as_ref().or(after.as_ref()).map(|task| &task.task_guid) else {
                continue;
            };
            let holder = before.as_ref().and_then(|task| task.cell_id.as_ref());
            let given_back = if let Command::Cell(request) = command
                && let CellRequest::RejectTask(_, cell, _) = &**request
            {
                holder == Some(cell)
            } else {
                false
            };
            // A guid may be used again for another task.
            if given_back || after.is_none() {
                self.started.remove(guid);
            }
            if outcome.reply == Reply::ShouldStart(true) && !self.started.insert(guid.clone()) {
                return Err(format!("task {guid} was to be started twice"));
            }
        }
        Ok(())
    }
}

/// Whether a command may destroy nothing in a domain that is not fresh: convergence, and updates
/// that do not say how many instances there shall be.
fn destroys_only_what_is_vouched_for(command: &Command) -> bool {
    if let Command::UpdateDesiredLrp(_, update) = command {
        return update.instances.is_none();
    }
    if let Command::UpdateDeployment(_, update) = command {
        return update.instances.is_none();
    }
    matches!(
        command,
        Command::ConvergeDue
            | Command::ConvergeAll
            | Command::CellPresence(..)
            | Command::CellsSettled
            | Command::ActivateDefinition(..)
            | Command::CancelUpdate(_)
            | Command::Rollback(..)
            | Command::PromoteUpdate(_)
            | Command::PauseUpdate(_)
            | Command::ResumeUpdate(_)
    )
}

fn hold(broken: &[String]) -> Result<(), String> {
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

/// Compares two boards, or says what differs.
fn same(one: &Board, other: &Board) -> Result<(), String> {
    same_but_agenda(one, other)?;
    if one.next_deadline() != other.next_deadline() {
        return Err("the next deadline".into());
    }
    Ok(())
}

fn same_but_agenda(one: &Board, other: &Board) -> Result<(), String> {
    same_but_mesh(one, other)?;
    if one.presence != other.presence || one.heard != other.heard {
        return Err("what the mesh said".into());
    }
    Ok(())
}

fn same_but_mesh(one: &Board, other: &Board) -> Result<(), String> {
    same_records(&one.records, &other.records)?;
    let what = if one.asked != other.asked {
        "what was asked"
    } else if one.next_row != other.next_row {
        "the next row"
    } else if one.opened_at != other.opened_at {
        "when it was opened"
    } else {
        return Ok(());
    };
    Err(what.into())
}

/// Compares how the cells stand. A full pass forgets some that are missing, and they still are.
fn same_mesh(one: &Board, other: &Board) -> Result<(), String> {
    let mut cells = one.presence.keys().chain(other.presence.keys());
    if cells.all(|cell| one.presence(cell) == other.presence(cell)) {
        return Ok(());
    }
    Err("what the mesh said".into())
}

/// What came of converging, but for the forgetting of cells: only a full pass does that.
fn without_forgetting(outcome: &ApplyResult) -> ApplyResult {
    let mut outcome = outcome.clone();
    outcome.changes.retain(|change| !matches!(change, Change::Presence(_, _, None)));
    outcome
}

fn same_records(one: &Records, other: &Records) -> Result<(), String> {
    fn processes(records: &Records) -> impl Iterator<Item = (&ProcessGuid, &Option<Deployed>)> {
        records.processes().map(|(guid, process)| (guid, &process.deployment))
    }
    fn instances(records: &Records) -> impl Iterator<Item = (RowId, &Arc<ActualLrp>)> {
        let slots = records.processes().flat_map(|(_, process)| process.instances());
        slots.map(|slot| (slot.row, &slot.lrp))
    }
    fn tasks(records: &Records) -> impl Iterator<Item = Option<&(RowId, Arc<Task>)>> {
        records.tasks().map(|task| records.task(&task.task_guid))
    }
    fn domains(records: &Records) -> impl Iterator<Item = Option<&(RowId, DomainRecord)>> {
        records.domains().map(|record| records.domain(&record.domain))
    }
    let counts = |of: &Records| (of.process_count(), of.instance_count(), of.task_count());
    if counts(one) != counts(other) {
        return Err(format!("{:?} records, or {:?}", counts(one), counts(other)));
    }
    // Equal only if they are as long as each other, in the same order.
    if !processes(one).eq(processes(other)) {
        return Err("the deployments".into());
    }
    if !instances(one).eq(instances(other)) {
        let told = |of| instances(of).map(|it| format!("{it:#?}")).collect::<Vec<_>>().join("\n");
        return Err(format!("{}\nor\n{}", told(one), told(other)));
    }
    if !tasks(one).eq(tasks(other)) {
        return Err("the tasks".into());
    }
    if !domains(one).eq(domains(other)) {
        return Err("the domains".into());
    }
    Ok(())
}
