//! Tasks: what the table says to a container and its record. None is started twice.

use std::sync::Arc;

use volvox_protocol::exchange::CellAnswer;
use volvox_protocol::id::TaskGuid;
use volvox_protocol::request::{CellRequest, TaskOutcome};
use volvox_protocol::tables::Whose::Ours;
use volvox_protocol::tables::rep_task::{
    CompletedTaskCall, TaskAction, TaskContainerView, TaskView, completed_task_call, rep_task,
};

use super::instances::cut;
use super::{Belief, Busy, Effect, Fetch, Look, Rep};
use crate::executor::registry::ContainerGuid;
use crate::executor::work::{Owner, Work};
use crate::rep::view;

/// The reason of a task whose container is not there.
const LOST: &str = "task container does not exist";

impl Rep {
    pub(super) fn judge_task(&mut self, guid: &ContainerGuid, look: Look) {
        let Some(entry) = self.entries.get(guid) else { return };
        let (Owner::Task { guid: task, .. }, Belief::Task(record)) = (&entry.owner, &entry.belief)
        else {
            return;
        };
        if self.coordinator.is_none() {
            return;
        }
        let (task, record) = (task.clone(), *record);
        let container = view::of_task_container(entry.container.as_ref().map(|it| &it.container));
        let (action, likelihood) = rep_task(container, record);
        self.surprised(guid, likelihood, format!("{container:?} × {record:?}: {action:?}"));
        let cell = self.settings.cell_id.clone();
        match action {
            TaskAction::Nothing => {}
            TaskAction::Delete
                if container == TaskContainerView::Active && look == Look::Believed =>
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
                let lost = TaskOutcome::failed_because(LOST);
                self.ask(guid, CellRequest::CompleteTask(task, cell, lost));
            }
        }
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
                CellRequest::RejectTask(task, cell, cut(&result.failure_reason).into())
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
            CellRequest::StartTask(task, _) => {
                self.believe(guid, TaskView::Running(Ours));
                let is_ours_to_run = *answer == CellAnswer::ShouldStart(true);
                let reserved = self.entries.get(guid).and_then(super::Entry::state)
                    == Some(volvox_protocol::container::ContainerState::Reserved);
                if is_ours_to_run && reserved {
                    self.run_task(guid, task);
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

    fn believe(&mut self, guid: &ContainerGuid, view: TaskView) {
        if let Some(entry) = self.entries.get_mut(guid) {
            entry.belief = Belief::Task(view);
        }
    }

    pub(super) fn run_task(&mut self, guid: &ContainerGuid, task: &TaskGuid) {
        let Some(definition) = self.tasks.get(task).cloned() else {
            self.fetch.push_back(Fetch::Task(task.clone()));
            if let Some(entry) = self.entries.get_mut(guid) {
                entry.busy = Busy::Fetching;
            }
            return;
        };
        let work = Work::Task(Arc::clone(&definition));
        match work.validate() {
            Ok(()) => self.effects.push(Effect::Run(guid.clone(), work)),
            Err(problem) => {
                let reason = format!("this cell cannot run its definition: {}", cut(&problem));
                self.effects.push(Effect::Note(guid.clone(), reason.clone()));
                let (cell, outcome) =
                    (self.settings.cell_id.clone(), TaskOutcome::failed_because(&reason));
                self.ask(guid, CellRequest::CompleteTask(task.clone(), cell, outcome));
            }
        }
    }
}
