//! A board that is a map of records: what a coordinator answers, by the tables of the protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, Running};
use volvox_protocol::cell_rpc::{
    CellAnswer, CellReport, CellReportReply, DefinitionKey, RecordState,
};
use volvox_protocol::digest::{Digest, DigestItem};
use volvox_protocol::id::{CellId, TaskGuid};
use volvox_protocol::modification_tag::ModificationTag;
use volvox_protocol::request::{CellRequest, Rejection, TaskOutcome};
use volvox_protocol::tables::Whose::{self, Ours, Theirs};
use volvox_protocol::tables::bbs_evacuate::{
    EvacuateAction, EvacuatingView, OrdinaryView, bbs_evacuate,
};
use volvox_protocol::tables::bbs_task::{TaskRecordView, TaskRequest, TaskTransition, bbs_task};
use volvox_protocol::tables::bbs_transition::{LrpRequest, RecordView, Transition, bbs_transition};
use volvox_protocol::task::TaskState;
use volvox_protocol::validate::Valid;

use super::super::definition_of;
use super::{cell, key};

pub(super) type Place = (DefinitionKey, u32);

#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) state: RecordState,
    pub(super) reported: Option<Arc<Running>>,
    pub(super) stopping: bool,
    pub(super) error: bool,
}

#[derive(Debug, Clone)]
pub(super) struct TaskOnBoard {
    pub(super) state: TaskState,
    pub(super) cell: Option<CellId>,
    pub(super) outcome: Option<TaskOutcome>,
    pub(super) rejected: Vec<String>,
}

/// How the definitions are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tells {
    All,
    /// One at a time, and the rest is left.
    OneAtATime,
    /// None is known.
    Nothing,
    /// In bytes that cannot be read.
    Rubbish,
    /// Of a definition that breaks a rule.
    Invalid,
}

#[derive(Debug)]
pub(super) struct Board {
    pub(super) ordinary: BTreeMap<Place, Record>,
    pub(super) evacuating: BTreeMap<Place, Record>,
    pub(super) suspect: BTreeMap<Place, Record>,
    pub(super) tasks: BTreeMap<TaskGuid, TaskOnBoard>,
    /// Indices that are to have an instance.
    pub(super) desired: BTreeSet<Place>,
    pub(super) tag: ModificationTag,
    pub(super) color: String,
    pub(super) tells: Tells,
    /// Whether it says no to everything.
    pub(super) refuses: bool,
    /// Every request that was decided, and what was said.
    pub(super) decided: Vec<(CellRequest, CellAnswer)>,
}

pub(super) fn place(key: &LrpKey) -> Place {
    (definition_of(key), key.index)
}

fn record(state: RecordState) -> Record {
    Record { state, reported: None, stopping: false, error: false }
}

fn not_found() -> CellAnswer {
    CellAnswer::Rejected(Rejection::NotFound("it".to_owned()))
}

fn no() -> CellAnswer {
    CellAnswer::Rejected(Rejection::CannotClaim("another's".to_owned()))
}

fn whose(holder: &InstanceKey, caller: &InstanceKey) -> Whose {
    if holder == caller { Ours } else { Theirs }
}

pub(super) fn holder(record: &Record) -> Option<&InstanceKey> {
    match &record.state {
        RecordState::Claimed(on) | RecordState::Running(on) => Some(on),
        RecordState::Unclaimed | RecordState::Crashed => None,
    }
}

impl Board {
    pub(super) fn new() -> Self {
        Board {
            ordinary: BTreeMap::new(),
            evacuating: BTreeMap::new(),
            suspect: BTreeMap::new(),
            tasks: BTreeMap::new(),
            desired: BTreeSet::new(),
            tag: ModificationTag::default(),
            color: "red".to_owned(),
            tells: Tells::All,
            refuses: false,
            decided: Vec::new(),
        }
    }

    pub(super) fn put(&mut self, index: u32, state: RecordState) {
        self.ordinary.insert(place(&key(index)), record(state));
    }

    pub(super) fn desire(&mut self, index: u32) {
        self.desired.insert(place(&key(index)));
        self.put(index, RecordState::Unclaimed);
    }

    pub(super) fn put_task(&mut self, guid: &TaskGuid, state: TaskState, cell: Option<CellId>) {
        let task = TaskOnBoard { state, cell, outcome: None, rejected: Vec::new() };
        self.tasks.insert(guid.clone(), task);
    }

    pub(super) fn state(&self, index: u32) -> Option<&RecordState> {
        self.ordinary.get(&place(&key(index))).map(|it| &it.state)
    }

    /// Other routes and tags from now on.
    pub(super) fn paint(&mut self, color: &str) {
        self.color = color.to_owned();
        self.tag = self.tag.next();
    }

    /// What the coordinator's digest of the cell is.
    pub(super) fn digest(&self) -> u128 {
        use volvox_protocol::container::ContainerState::{Created, Running};
        let all =
            self.ordinary.values().chain(self.evacuating.values()).chain(self.suspect.values());
        let lrps = all.filter_map(|it| match &it.state {
            RecordState::Claimed(on) if on.cell_id == cell() => {
                Some(DigestItem::of_container(&on.instance_guid, Created))
            }
            RecordState::Running(on) if on.cell_id == cell() => {
                Some(DigestItem::of_container(&on.instance_guid, Running))
            }
            RecordState::Unclaimed
            | RecordState::Claimed(_)
            | RecordState::Running(_)
            | RecordState::Crashed => None,
        });
        let ours = |it: &TaskOnBoard| it.state == TaskState::Running && it.cell == Some(cell());
        let tasks = self.tasks.iter().filter(|(_, it)| ours(it));
        let tasks = tasks.map(|(guid, _)| DigestItem::of_task_container(guid, Running));
        lrps.chain(tasks).collect::<Digest>().number()
    }

    // Reports.

    pub(super) fn report(&mut self, report: CellReport) -> CellReportReply {
        let answers = report.requests.into_iter().map(|request| self.decide(request)).collect();
        CellReportReply { answers, fetched: self.fetch(report.fetch) }
    }

    fn decide(&mut self, request: CellRequest) -> CellAnswer {
        let answer = match Valid::new(request.clone()) {
            Err(problem) => CellAnswer::Rejected(Rejection::Invalid(problem.to_string())),
            Ok(_) if self.refuses => no(),
            Ok(_) => self.answer(request.clone()),
        };
        self.decided.push((request, answer.clone()));
        answer
    }

    fn answer(&mut self, request: CellRequest) -> CellAnswer {
        match request {
            CellRequest::ClaimLrp(key, on) => {
                self.change(&key, &on, LrpRequest::Claim, RecordState::Claimed(on.clone()), None)
            }
            CellRequest::StartLrp(key, on, running) => {
                let state = RecordState::Running(on.clone());
                let answer = self.change(&key, &on, LrpRequest::Start, state, Some(running));
                if answer == CellAnswer::Done {
                    self.evacuating.remove(&place(&key));
                }
                answer
            }
            CellRequest::CrashLrp(key, on, _) => {
                self.change(&key, &on, LrpRequest::Crash, RecordState::Crashed, None)
            }
            CellRequest::RemoveLrp(key, on) => self.remove(&key, &on),
            CellRequest::EvacuateClaimed(key, on) => self.leave(&key, &on, RecordState::Unclaimed),
            CellRequest::EvacuateCrashed(key, on, _) => self.leave(&key, &on, RecordState::Crashed),
            CellRequest::EvacuateStopped(key, on) => {
                let answer = self.leave(&key, &on, RecordState::Unclaimed);
                if self.ordinary.get(&place(&key)).is_some_and(|it| holder(it).is_none())
                    && !self.desired.contains(&place(&key))
                {
                    self.ordinary.remove(&place(&key));
                }
                answer
            }
            CellRequest::RemoveEvacuating(key, on) => {
                match self.evacuating.get(&place(&key)).map(|it| holder(it) == Some(&on)) {
                    Some(true) => {
                        self.evacuating.remove(&place(&key));
                        CellAnswer::Done
                    }
                    Some(false) => no(),
                    None => CellAnswer::Done,
                }
            }
            CellRequest::EvacuateRunning(key, on, running) => self.evacuate(&key, &on, running),
            CellRequest::StartTask(guid, cell) => self.start_task(&guid, cell),
            CellRequest::CompleteTask(guid, cell, outcome) => {
                self.end_task(&guid, &cell, TaskRequest::Complete, |task| {
                    task.state = TaskState::Completed;
                    task.cell = Some(cell.clone());
                    task.outcome = Some(outcome);
                })
            }
            CellRequest::RejectTask(guid, cell, reason) => {
                self.end_task(&guid, &cell, TaskRequest::Reject, |task| {
                    task.state = TaskState::Pending;
                    task.cell = None;
                    task.rejected.push(reason.to_string());
                })
            }
        }
    }

    fn change(
        &mut self,
        key: &LrpKey,
        on: &InstanceKey,
        request: LrpRequest,
        state: RecordState,
        reported: Option<Arc<Running>>,
    ) -> CellAnswer {
        let at = place(key);
        let before = self.ordinary.get(&at);
        let view = match before.map(|it| &it.state) {
            None => RecordView::Missing,
            Some(RecordState::Unclaimed) => RecordView::Unclaimed,
            Some(RecordState::Claimed(by)) => RecordView::Claimed(whose(by, on)),
            Some(RecordState::Running(by)) => RecordView::Running(whose(by, on)),
            Some(RecordState::Crashed) => RecordView::Crashed,
        };
        match bbs_transition(view, request) {
            Transition::Apply | Transition::Create => {
                let stopping = before.is_some_and(|it| it.stopping);
                self.ordinary.insert(at, Record { reported, stopping, ..record(state) });
                CellAnswer::Done
            }
            Transition::Nothing => CellAnswer::Done,
            Transition::NotFound => not_found(),
            Transition::Refuse => no(),
        }
    }

    fn remove(&mut self, key: &LrpKey, on: &InstanceKey) -> CellAnswer {
        let at = place(key);
        let is_its = |it: &Record| holder(it) == Some(on);
        if self.suspect.get(&at).is_some_and(is_its) {
            self.suspect.remove(&at);
        } else if self.ordinary.get(&at).is_some_and(is_its) {
            self.ordinary.remove(&at);
        } else {
            return not_found();
        }
        if self.desired.contains(&at) && !self.ordinary.contains_key(&at) {
            self.ordinary.insert(at, record(RecordState::Unclaimed));
        }
        CellAnswer::Done
    }

    /// An instance that is not running leaves: this becomes of its ordinary record.
    fn leave(&mut self, key: &LrpKey, on: &InstanceKey, becomes: RecordState) -> CellAnswer {
        let at = place(key);
        let was_evacuating = self.evacuating.get(&at).is_some_and(|it| holder(it) == Some(on));
        if was_evacuating {
            self.evacuating.remove(&at);
        }
        let ordinary = self.ordinary.get_mut(&at).filter(|it| holder(it) == Some(on));
        match ordinary {
            Some(it) => *it = record(becomes),
            None if was_evacuating => {}
            None => return not_found(),
        }
        CellAnswer::KeepContainer(false)
    }

    fn evacuate(&mut self, key: &LrpKey, on: &InstanceKey, running: Arc<Running>) -> CellAnswer {
        let at = place(key);
        let ordinary = match self.ordinary.get(&at).map(|it| (&it.state, it.error)) {
            None => OrdinaryView::Missing,
            Some((RecordState::Unclaimed, false)) => OrdinaryView::Unclaimed,
            Some((RecordState::Unclaimed, true)) => OrdinaryView::UnclaimedWithError,
            Some((RecordState::Claimed(by), _)) => OrdinaryView::Claimed(whose(by, on)),
            Some((RecordState::Running(by), _)) => OrdinaryView::Running(whose(by, on)),
            Some((RecordState::Crashed, _)) => OrdinaryView::Crashed,
        };
        let evacuating = match self.evacuating.get(&at).and_then(holder) {
            None => EvacuatingView::Missing,
            Some(by) => EvacuatingView::Running(whose(by, on)),
        };
        let (action, _) = bbs_evacuate(ordinary, evacuating);
        let writes = matches!(
            action,
            EvacuateAction::CreateEvacuating
                | EvacuateAction::CreateEvacuatingAndUnclaim
                | EvacuateAction::TakeOverEvacuatingAndUnclaim
        );
        let unclaims = matches!(
            action,
            EvacuateAction::Unclaim
                | EvacuateAction::CreateEvacuatingAndUnclaim
                | EvacuateAction::TakeOverEvacuatingAndUnclaim
        );
        if writes {
            let state = RecordState::Running(on.clone());
            let reported = Some(running);
            self.evacuating.insert(at.clone(), Record { reported, ..record(state) });
        }
        if unclaims {
            self.ordinary.insert(at.clone(), record(RecordState::Unclaimed));
        }
        if action == EvacuateAction::RemoveEvacuatingAndDeleteContainer {
            self.evacuating.remove(&at);
        }
        CellAnswer::KeepContainer(action.keeps_container())
    }

    pub(super) fn task_view(&self, guid: &TaskGuid, by: &CellId) -> TaskRecordView {
        let Some(task) = self.tasks.get(guid) else { return TaskRecordView::Missing };
        match task.state {
            TaskState::Pending => TaskRecordView::Pending,
            TaskState::Running if task.cell.as_ref() == Some(by) => TaskRecordView::Running(Ours),
            TaskState::Running => TaskRecordView::Running(Theirs),
            TaskState::Completed => TaskRecordView::Completed,
            TaskState::Resolving => TaskRecordView::Resolving,
        }
    }

    fn start_task(&mut self, guid: &TaskGuid, by: CellId) -> CellAnswer {
        match bbs_task(self.task_view(guid, &by), TaskRequest::Start) {
            TaskTransition::Apply | TaskTransition::Create => {
                let task = self.tasks.get_mut(guid).unwrap();
                (task.state, task.cell) = (TaskState::Running, Some(by));
                CellAnswer::ShouldStart(true)
            }
            TaskTransition::Nothing => CellAnswer::ShouldStart(false),
            TaskTransition::NotFound => not_found(),
            TaskTransition::Exists | TaskTransition::Refuse | TaskTransition::WrongCell => no(),
        }
    }

    fn end_task(
        &mut self,
        guid: &TaskGuid,
        by: &CellId,
        request: TaskRequest,
        write: impl FnOnce(&mut TaskOnBoard),
    ) -> CellAnswer {
        match bbs_task(self.task_view(guid, by), request) {
            TaskTransition::Apply | TaskTransition::Create => {
                write(self.tasks.get_mut(guid).unwrap());
                CellAnswer::Done
            }
            TaskTransition::Nothing => CellAnswer::Done,
            TaskTransition::NotFound => not_found(),
            TaskTransition::Exists | TaskTransition::Refuse | TaskTransition::WrongCell => no(),
        }
    }
}
