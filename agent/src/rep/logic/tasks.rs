//! Tasks: what the table says to a container and its record. None is started twice.

use volvox_protocol::cell_rpc::CellAnswer;
use volvox_protocol::container::ContainerState;
use volvox_protocol::id::TaskGuid;
use volvox_protocol::request::{CellRequest, TaskOutcome};
use volvox_protocol::tables::Whose::Ours;
use volvox_protocol::tables::rep_task::{
    CompletedTaskCall, TaskAction, TaskContainerView, TaskView, completed_task_call, rep_task,
};

use super::definitions::Fetch;
use super::evacuation::TIMED_OUT;
use super::instances::{UNREADABLE, cut};
use super::{BoardRecord, Freshness, PendingOp, Rep, RepOutput};
use crate::container::guid::ContainerGuid;
use crate::executor::workload::{Owner, Workload};
use crate::rep::view;

/// The reason of a task whose container is not there.
const LOST: &str = "task container does not exist";
/// The reason of a container that could not be made and left none: the board wants one.
const NOT_MADE: &str = "the container could not be made";

impl Rep {
    pub(super) fn judge_task(&mut self, guid: &ContainerGuid, look: Freshness) {
        let Some(entry) = self.entries.get(guid) else { return };
        let (Owner::Task { guid: task, .. }, BoardRecord::Task(record)) =
            (&entry.owner, &entry.belief)
        else {
            return;
        };
        if self.coordinator.is_none() {
            return;
        }
        let (task, record, granted) = (task.clone(), *record, entry.granted);
        let container = view::of_task_container(entry.container.as_ref().map(|it| &it.container));
        let (action, likelihood) = rep_task(container, record);
        self.note_unexpected_row(
            guid,
            likelihood,
            format!("{container:?} × {record:?}: {action:?}"),
        );
        let cell = self.settings.cell_id.clone();
        match action {
            TaskAction::Nothing if granted => self.run_task(guid, &task),
            TaskAction::Nothing => {}
            TaskAction::Delete
                if container == TaskContainerView::Active && look == Freshness::Believed =>
            {
                self.read(guid);
            }
            TaskAction::Delete => self.delete(guid),
            TaskAction::StartThenRun | TaskAction::Start => {
                self.ask(guid, CellRequest::StartTask(task, cell));
            }
            TaskAction::CompleteThenDelete => {
                let request = self.completed(guid, task);
                self.ask(guid, request);
            }
            TaskAction::CompleteFailed => {
                let lost = TaskOutcome::failed_because(self.why_lost());
                self.ask(guid, CellRequest::CompleteTask(task, cell, lost));
            }
        }
    }

    /// The reason of a task that has no container.
    pub(super) fn why_lost(&self) -> &'static str {
        if self.has_timed_out() { TIMED_OUT } else { LOST }
    }

    /// The call that reports a completed container.
    fn completed(&self, guid: &ContainerGuid, task: TaskGuid) -> CellRequest {
        let cell = self.settings.cell_id.clone();
        let view = self.entries.get(guid).and_then(|it| it.container.as_ref());
        let Some(view) = view else {
            return CellRequest::CompleteTask(task, cell, TaskOutcome::failed_because(LOST));
        };
        let result = &view.container.result;
        match completed_task_call(result) {
            CompletedTaskCall::Reject => {
                let reason = cut(&result.failure_reason);
                let reason = if reason.is_empty() { NOT_MADE } else { reason };
                CellRequest::RejectTask(task, cell, reason.into())
            }
            CompletedTaskCall::Complete => {
                let stopped = result.stopped;
                let reason = if stopped { "stopped" } else { cut(&result.failure_reason) };
                let outcome = TaskOutcome {
                    failed: result.failed || stopped,
                    failure_reason: reason.to_owned(),
                    result: view.task_result.clone(),
                };
                CellRequest::CompleteTask(task, cell, outcome)
            }
        }
    }

    /// What the board answered to a request about a task.
    pub(super) fn task_answered(
        &mut self,
        guid: &ContainerGuid,
        request: &CellRequest,
        answer: &CellAnswer,
    ) {
        match request {
            CellRequest::StartTask(..) => {
                self.believe(guid, TaskView::Running(Ours));
                let is_ours_to_run = *answer == CellAnswer::ShouldStart(true);
                if let Some(entry) = self.entries.get_mut(guid)
                    && entry.state() == Some(ContainerState::Reserved)
                {
                    // It runs when it is judged next, which is at once.
                    entry.granted = is_ours_to_run;
                }
            }
            CellRequest::CompleteTask(..) => self.believe(guid, TaskView::Completed(Ours)),
            // It waits for another cell, and has never begun here.
            CellRequest::RejectTask(..) => self.believe(guid, TaskView::Missing),
            CellRequest::ClaimLrp(..)
            | CellRequest::StartLrp(..)
            | CellRequest::CrashLrp(..)
            | CellRequest::RemoveLrp(..)
            | CellRequest::EvacuateClaimed(..)
            | CellRequest::EvacuateRunning(..)
            | CellRequest::EvacuateCrashed(..)
            | CellRequest::EvacuateStopped(..)
            | CellRequest::RemoveEvacuating(..) => {}
        }
    }

    pub(super) fn believe(&mut self, guid: &ContainerGuid, view: TaskView) {
        if let Some(entry) = self.entries.get_mut(guid) {
            entry.belief = BoardRecord::Task(view);
        }
    }

    pub(super) fn run_task(&mut self, guid: &ContainerGuid, task: &TaskGuid) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        // It is run once, if at all, and the executor keeps what it needs.
        let Some(definition) = self.tasks.remove(task) else {
            entry.busy = PendingOp::Fetching;
            return self.fetching.want(Fetch::Task(task.clone()));
        };
        entry.granted = false;
        let work = definition.map(Workload::Task).ok_or_else(|| UNREADABLE.to_owned());
        match work.and_then(|work| work.validate().map(|()| work)) {
            Ok(work) => {
                entry.busy = PendingOp::Beginning;
                self.effects.push(RepOutput::Run(guid.clone(), work));
            }
            Err(problem) => {
                let reason = format!("this cell cannot run its definition: {}", cut(&problem));
                self.effects.push(RepOutput::Note(guid.clone(), reason.clone()));
                let (cell, outcome) =
                    (self.settings.cell_id.clone(), TaskOutcome::failed_because(&reason));
                self.ask(guid, CellRequest::CompleteTask(task.clone(), cell, outcome));
            }
        }
    }
}
