//! Takes steps one by one and looks at the board, and at what it said, after each.

use std::collections::BTreeSet;

use volvox_protocol::task::TaskState;

use super::super::*;
use super::fits::{effects_fit, tags_fit};
use super::heard::Heard;
use super::play::{Step, What};
use crate::bbs::command::Report;
use crate::bbs::state::Records;

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
    /// The tasks that a cell was told to start and that were not rejected since.
    started: BTreeSet<TaskGuid>,
}

impl Watch {
    pub(super) fn new(settings: Settings) -> Self {
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
    pub(super) fn take(&mut self, step: Step) -> Result<Option<Outcome>, String> {
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
    pub(super) fn apply(&mut self, seed: u64, command: Command) -> Result<Option<Outcome>, String> {
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
        self.at_most_once(&outcome)?;
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
        Ok(Some(outcome))
    }

    /// Both ways of converging do the same, once is enough, and nothing is destroyed for a domain
    /// that nobody vouches for.
    fn convergence(
        &mut self,
        before: &Board,
        seed: u64,
        command: &Command,
        outcome: &Outcome,
        report: &Report,
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
            if found != *outcome {
                return Err(format!("one way to converge: {outcome:#?}, the other: {found:#?}"));
            }
            same_but_agenda(&board, &self.board)
                .map_err(|what| format!("the other way to converge leaves {what}"))?;
        }
        let mut again = self.board.clone();
        let found =
            again.apply(self.now, seed, Command::ConvergeDue).map_err(|no| no.to_string())?;
        let nothing = Reply::Converged(Report::default());
        if found.reply != nothing || !found.changes.is_empty() || !found.effects.is_empty() {
            return Err(format!("after {command:?}, converging again found {found:#?}"));
        }
        for effect in &outcome.effects {
            if let Effect::StopInstance(key, of) = effect
                && !before.is_fresh(self.now, &key.domain)
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

    /// Whether a record may go whatever its domain: somebody else serves instead, or its time is up.
    fn may_go(&self, before: &Board, lrp: &ActualLrp, outcome: &Outcome) -> bool {
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
                promoted || (lost && find(Presence::Suspect).is_some())
            }
        }
    }

    fn at_most_once(&mut self, outcome: &Outcome) -> Result<(), String> {
        for change in &outcome.changes {
            let Change::Task(_, before, after) = change else { continue };
            let Some(guid) = before.as_ref().or(after.as_ref()).map(|task| &task.task_guid) else {
                continue;
            };
            let rejected = |task: &Arc<Task>| task.state == TaskState::Pending;
            if after.as_ref().is_none_or(rejected) {
                self.started.remove(guid);
            }
            if outcome.reply == Reply::ShouldStart(true) && !self.started.insert(guid.clone()) {
                return Err(format!("task {guid} was to be started twice"));
            }
        }
        Ok(())
    }
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
    same_records(&one.records, &other.records)?;
    let what = if one.asked != other.asked {
        "what was asked"
    } else if one.presence != other.presence || one.heard != other.heard {
        "what the mesh said"
    } else if one.next_row != other.next_row {
        "the next row"
    } else {
        return Ok(());
    };
    Err(what.into())
}

fn same_records(one: &Records, other: &Records) -> Result<(), String> {
    let processes = |records: &'_ Records| records.process_count();
    let counts =
        |records: &Records| (processes(records), records.instance_count(), records.task_count());
    if counts(one) != counts(other) {
        return Err(format!("{:?} records, or {:?}", counts(one), counts(other)));
    }
    for ((guid, one), (_, other)) in one.processes().zip(other.processes()) {
        if one.deployment != other.deployment {
            return Err(format!("the deployment of {guid}"));
        }
        for (one, other) in one.instances().iter().zip(other.instances()) {
            if (one.row, &one.lrp) != (other.row, &other.lrp) {
                return Err(format!("{one:#?}, or {other:#?}"));
            }
        }
    }
    for (task, with) in one.tasks().zip(other.tasks()) {
        if one.task(&task.task_guid) != other.task(&with.task_guid) {
            return Err(format!("{task:#?}, or {with:#?}"));
        }
    }
    if !one.domains().eq(other.domains()) {
        return Err("the domains".into());
    }
    Ok(())
}
