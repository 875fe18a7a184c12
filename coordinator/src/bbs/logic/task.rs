//! Tasks: run once, tell, forget. What is allowed is `tables/bbs_task.rs`.

use std::sync::Arc;

use volvox_protocol::id::{CellId, Domain, TaskGuid};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::request::{Rejection, TaskOutcome};
use volvox_protocol::tables::Whose;
use volvox_protocol::tables::bbs_task::{TaskRecordView, TaskRequest, TaskTransition, bbs_task};
use volvox_protocol::task::{Task, TaskDefinition, TaskState};
use volvox_protocol::time::Timestamp;

use super::txn::{Txn, reason};
use crate::bbs::command::{BoardEffect, Reply, RowId, TaskRef};

/// Why a cancelled task failed.
pub(super) const CANCELLED: &str = "cancelled";

type TaskRow = (RowId, Arc<Task>);

impl Txn<'_> {
    pub(super) fn desire_task(
        &mut self,
        task_guid: TaskGuid,
        domain: Domain,
        definition: TaskDefinition,
    ) -> Result<Reply, Rejection> {
        if self.judge_task_request(&task_guid, TaskRequest::Desire, None)?.is_some() {
            return Ok(Reply::Done);
        }
        let task = Task {
            task_guid,
            domain,
            definition: Arc::new(definition),
            state: TaskState::Pending,
            cell_id: None,
            created_at: self.now,
            updated_at: self.now,
            first_completed_at: Timestamp::ZERO,
            result: String::new(),
            failed: false,
            failure_reason: String::new(),
            rejection_count: 0,
            rejection_reason: String::new(),
        };
        if let Some(task) = self.put_task(None, Some(task)) {
            self.request_task_start(&task);
        }
        Ok(Reply::Done)
    }

    pub(super) fn start_task(&mut self, guid: &TaskGuid, cell: CellId) -> Result<Reply, Rejection> {
        let Some(known) = self.judge_task_request(guid, TaskRequest::Start, Some(&cell))? else {
            return Ok(Reply::ShouldStart(false));
        };
        let mut task = self.next_task(&known);
        task.state = TaskState::Running;
        task.cell_id = Some(match self.board.presence.get_key_value(&cell) {
            Some((shared, _)) => shared.clone(),
            None => cell,
        });
        self.put_task(Some(&known), Some(task));
        Ok(Reply::ShouldStart(true))
    }

    pub(super) fn cancel_task(&mut self, guid: &TaskGuid) -> Result<Reply, Rejection> {
        if let Some(known) = self.judge_task_request(guid, TaskRequest::Cancel, None)? {
            self.give_up(&known, CANCELLED);
        }
        Ok(Reply::Done)
    }

    pub(super) fn fail_task(&mut self, guid: &TaskGuid, why: &str) -> Result<Reply, Rejection> {
        required(why, "failure_reason")?;
        if let Some(known) = self.judge_task_request(guid, TaskRequest::Fail, None)? {
            self.give_up(&known, why);
        }
        Ok(Reply::Done)
    }

    /// Ends a task that may still run: its cell is told.
    fn give_up(&mut self, known: &TaskRow, why: &str) {
        self.end_task(known, TaskOutcome::failed_because(why));
        let task = &known.1;
        if let (TaskState::Running, Some(cell)) = (task.state, &task.cell_id) {
            self.effect(BoardEffect::CancelTask(cell.clone(), task.task_guid.clone()));
        }
    }

    /// The cell that has taken the task could not begin it.
    pub(super) fn reject_task(
        &mut self,
        guid: &TaskGuid,
        cell: &CellId,
        why: &str,
    ) -> Result<Reply, Rejection> {
        required(why, "rejection_reason")?;
        if let Some(known) = self.judge_task_request(guid, TaskRequest::Reject, Some(cell))? {
            self.try_again(&known, why);
        }
        Ok(Reply::Done)
    }

    /// The auction found no cell for the task.
    pub(super) fn reject_task_by_auction(
        &mut self,
        guid: &TaskGuid,
        why: &str,
    ) -> Result<Reply, Rejection> {
        required(why, "rejection_reason")?;
        if let Some(known) = self.judge_task_request(guid, TaskRequest::RejectByAuction, None)? {
            self.try_again(&known, why);
        }
        Ok(Reply::Done)
    }

    /// The task has not begun: it waits for the next auction, unless it has been tried enough.
    pub(super) fn try_again(&mut self, known: &TaskRow, why: &str) {
        let retries_left = known.1.rejection_count < self.board.settings.task_retries;
        let mut task = self.next_task(known);
        task.rejection_count = task.rejection_count.saturating_add(1);
        task.rejection_reason = String::from(reason(why));
        if retries_left {
            task.state = TaskState::Pending;
            task.cell_id = None;
            self.put_task(Some(known), Some(task));
        } else {
            self.end(known, task, TaskOutcome::failed_because(why));
        }
    }

    pub(super) fn complete_task(
        &mut self,
        guid: &TaskGuid,
        cell: &CellId,
        outcome: TaskOutcome,
    ) -> Result<Reply, Rejection> {
        if let Some(known) = self.judge_task_request(guid, TaskRequest::Complete, Some(cell))? {
            self.end_task(&known, outcome);
        }
        Ok(Reply::Done)
    }

    pub(super) fn resolving_task(
        &mut self,
        guid: &TaskGuid,
        which: TaskRef,
    ) -> Result<Reply, Rejection> {
        self.is_meant(guid, which)?;
        if let Some(known) = self.judge_task_request(guid, TaskRequest::Resolving, None)? {
            let mut task = self.next_task(&known);
            task.state = TaskState::Resolving;
            self.put_task(Some(&known), Some(task));
        }
        Ok(Reply::Done)
    }

    pub(super) fn delete_task(
        &mut self,
        guid: &TaskGuid,
        which: TaskRef,
    ) -> Result<Reply, Rejection> {
        self.is_meant(guid, which)?;
        if let Some(known) = self.judge_task_request(guid, TaskRequest::Delete, None)? {
            self.put_task(Some(&known), None);
        }
        Ok(Reply::Done)
    }

    /// The task has come to its end, one way or another: its consumer is to be told.
    pub(super) fn end_task(&mut self, known: &TaskRow, outcome: TaskOutcome) {
        let task = self.next_task(known);
        self.end(known, task, outcome);
    }

    fn end(&mut self, known: &TaskRow, mut task: Task, outcome: TaskOutcome) {
        task.state = TaskState::Completed;
        task.first_completed_at = self.now;
        task.failed = outcome.failed;
        task.failure_reason = String::from(reason(&outcome.failure_reason));
        task.result = outcome.result;
        if let Some(task) = self.put_task(Some(known), Some(task)) {
            self.call_back(task);
        }
    }

    pub(super) fn call_back(&mut self, task: Arc<Task>) {
        if !task.definition.completion_callback_url.is_empty() {
            self.effect(BoardEffect::CallBack(task));
        }
    }

    fn next_task(&self, known: &TaskRow) -> Task {
        Task { updated_at: self.now, ..(*known.1).clone() }
    }

    /// Another task that has the name by now is not the one that was asked for.
    fn is_meant(&self, guid: &TaskGuid, which: TaskRef) -> Result<(), Rejection> {
        match (which, self.board.records.task(guid)) {
            (TaskRef::MadeAt(made), Some((_, task)))
                if task.created_at != made && !mutated(Bug::NamesakeIsForgotten) =>
            {
                Err(Rejection::NotFound(format!("task {guid} (another has its name by now)")))
            }
            (TaskRef::Present | TaskRef::MadeAt(_), _) => Ok(()),
        }
    }

    /// Asks the table. `Some` is the record to act on, `None` means that nothing is to be done
    /// (or, for a desire, that the way is free).
    fn judge_task_request(
        &self,
        guid: &TaskGuid,
        request: TaskRequest,
        caller: Option<&CellId>,
    ) -> Result<Option<TaskRow>, Rejection> {
        let known = self.board.records.task(guid).cloned();
        let task = known.as_ref().map(|(_, task)| task);
        let holder = task.and_then(|task| task.cell_id.as_ref());
        let whose = if holder == caller { Whose::Ours } else { Whose::Theirs };
        let view = match task.map(|task| task.state) {
            None => TaskRecordView::Missing,
            Some(TaskState::Pending) => TaskRecordView::Pending,
            Some(TaskState::Running) => TaskRecordView::Running(whose),
            Some(TaskState::Completed) => TaskRecordView::Completed,
            Some(TaskState::Resolving) => TaskRecordView::Resolving,
        };
        match bbs_task(view, request) {
            TaskTransition::Apply => Ok(known),
            TaskTransition::Create | TaskTransition::Nothing => Ok(None),
            TaskTransition::Exists => Err(Rejection::Exists(format!("task {guid}"))),
            TaskTransition::NotFound => Err(Rejection::NotFound(format!("task {guid}"))),
            TaskTransition::WrongCell => Err(match (holder, caller) {
                (Some(holder), Some(caller)) => different_cell(holder, caller),
                (None | Some(_), _) => transition(task.map(|task| task.state), request),
            }),
            TaskTransition::Refuse => Err(transition(task.map(|task| task.state), request)),
        }
    }
}

fn required(text: &str, field: &str) -> Result<(), Rejection> {
    if text.is_empty() {
        return Err(Rejection::Invalid(format!("{field}: must not be empty")));
    }
    Ok(())
}

fn different_cell(holder: &CellId, caller: &CellId) -> Rejection {
    let (recorded, caller) = (holder.to_string(), caller.to_string());
    Rejection::RunningOnDifferentCell { recorded, caller }
}

fn transition(from: Option<TaskState>, request: TaskRequest) -> Rejection {
    let to = match request {
        TaskRequest::Desire | TaskRequest::Reject | TaskRequest::RejectByAuction => "Pending",
        TaskRequest::Start => "Running",
        TaskRequest::Cancel | TaskRequest::Fail | TaskRequest::Complete => "Completed",
        TaskRequest::Resolving => "Resolving",
        TaskRequest::Delete => "Deleted",
    };
    let from = from.map_or("Missing".to_owned(), |state| format!("{state:?}"));
    Rejection::TaskTransition { from, to: to.to_owned() }
}
