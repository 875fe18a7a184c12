//! Takes steps one by one and looks at the board, and at what it said, after each.

use std::collections::{BTreeMap, BTreeSet};

use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::id::DefinitionId;
use volvox_protocol::task::TaskState;

use super::super::*;
use super::play::{Step, What};
use crate::bbs::command::Report;
use crate::bbs::state::Records;

type Key = (ProcessGuid, DefinitionId, u32, Presence);

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
    steps: u64,
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
            steps: 0,
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
        self.steps += 1;
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
        if self.steps.is_multiple_of(4) {
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
        let other = match command {
            Command::ConvergeDue => Some(Command::ConvergeAll),
            Command::ConvergeAll => Some(Command::ConvergeDue),
            _ => None,
        };
        if let Some(other) = other {
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

/// What a subscriber knows that applies every event to its snapshot.
#[derive(Default)]
struct Heard {
    deployments: BTreeMap<ProcessGuid, Arc<LrpDeployment>>,
    instances: BTreeMap<Key, Arc<ActualLrp>>,
    tasks: BTreeMap<TaskGuid, Arc<Task>>,
}

impl Heard {
    fn hear(&mut self, events: &[Event]) -> Result<(), String> {
        for event in events {
            let heard = match event {
                Event::DesiredLrpCreated(new) => {
                    step(&mut self.deployments, process_of, None, Some(new))
                }
                Event::DesiredLrpChanged(old, new) => {
                    step(&mut self.deployments, process_of, Some(old), Some(new))
                }
                Event::DesiredLrpRemoved(old) => {
                    step(&mut self.deployments, process_of, Some(old), None)
                }
                Event::InstanceCreated(new) => step(&mut self.instances, key_of, None, Some(new)),
                Event::InstanceChanged(old, new) => {
                    step(&mut self.instances, key_of, Some(old), Some(new))
                }
                Event::InstanceRemoved(old) => step(&mut self.instances, key_of, Some(old), None),
                Event::TaskCreated(new) => step(&mut self.tasks, guid_of, None, Some(new)),
                Event::TaskChanged(old, new) => {
                    step(&mut self.tasks, guid_of, Some(old), Some(new))
                }
                Event::TaskRemoved(old) => step(&mut self.tasks, guid_of, Some(old), None),
                Event::Crashed(_)
                | Event::GroupCreated(_)
                | Event::GroupChanged(..)
                | Event::GroupRemoved(_) => Ok(()),
            };
            heard.map_err(|what| format!("{what}: {event:#?}"))?;
        }
        Ok(())
    }

    fn agrees(&self, records: &Records) -> Result<(), String> {
        let missed = || "the events do not make the records".to_owned();
        if self.instances.len() != records.instance_count()
            || self.tasks.len() != records.task_count()
        {
            return Err(missed());
        }
        let mut deployments = 0;
        for (guid, process) in records.processes() {
            if let Some((_, deployment)) = &process.deployment {
                deployments += 1;
                if self.deployments.get(guid) != Some(deployment) {
                    return Err(missed());
                }
            }
            for slot in process.instances() {
                if self.instances.get(&key_of(&slot.lrp)) != Some(&slot.lrp) {
                    return Err(missed());
                }
            }
        }
        let tasks_agree = records.tasks().all(|task| self.tasks.get(&task.task_guid) == Some(task));
        if deployments != self.deployments.len() || !tasks_agree {
            return Err(missed());
        }
        Ok(())
    }
}

fn process_of(deployment: &LrpDeployment) -> ProcessGuid {
    deployment.process_guid.clone()
}

fn key_of(lrp: &ActualLrp) -> Key {
    (lrp.process_guid.clone(), lrp.definition_id.clone(), lrp.index, lrp.presence)
}

fn guid_of(task: &Task) -> TaskGuid {
    task.task_guid.clone()
}

/// Removes what was and inserts what is; both must be as the event has them.
fn step<K: Ord, V: PartialEq>(
    known: &mut BTreeMap<K, Arc<V>>,
    key: impl Fn(&V) -> K,
    before: Option<&Arc<V>>,
    after: Option<&Arc<V>>,
) -> Result<(), &'static str> {
    if let Some(before) = before
        && known.remove(&key(before)).as_ref() != Some(before)
    {
        return Err("what was is not what it was");
    }
    if let Some(after) = after
        && known.insert(key(after), Arc::clone(after)).is_some()
    {
        return Err("there is one already");
    }
    Ok(())
}
