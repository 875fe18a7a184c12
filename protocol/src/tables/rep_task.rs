//! Container × task record → what the rep does.
//!
//! The rep calls this as it calls [`rep_lrp`](super::rep_lrp): at its regular pass and when a
//! container changes. A task runs to its end at most once, so nothing here starts one twice: a task
//! that is lost is failed, and only one whose container was never made may be tried again
//! ([`completed_task_call`]). An action that fails is logged and left to the next pass.

use super::Likelihood::{self, Conceivable, Expected, Inconceivable};
use super::Whose::{self, Ours, Theirs};
use crate::container::RunResult;
use TaskAction::{CompleteFailed, CompleteThenDelete, Delete, Nothing, Start, StartThenRun};
use {TaskContainerView as C, TaskView as T};

/// The container of a task on this cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskContainerView {
    /// There is none, not even a reservation.
    Absent,
    /// `RESERVED`.
    Reserved,
    /// `INITIALIZING`, `CREATED` or `RUNNING`.
    Active,
    /// `COMPLETED`, well or badly.
    Completed,
}

impl TaskContainerView {
    /// Every view, in the order of declaration.
    pub const ALL: [TaskContainerView; 4] = [C::Absent, C::Reserved, C::Active, C::Completed];
}

/// The record of the task, seen from this cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskView {
    /// There is none.
    Missing,
    /// Waiting for an auction.
    Pending,
    /// Running.
    Running(Whose),
    /// Done, and not fetched yet.
    Completed(Whose),
    /// Done, and the consumer is being told.
    Resolving(Whose),
}

impl TaskView {
    /// Every view, in the order of declaration.
    pub const ALL: [TaskView; 8] = [
        T::Missing,
        T::Pending,
        T::Running(Ours),
        T::Running(Theirs),
        T::Completed(Ours),
        T::Completed(Theirs),
        T::Resolving(Ours),
        T::Resolving(Theirs),
    ];
}

/// What the rep does about one task. After *then* comes what is done only if the board agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskAction {
    /// Nothing.
    Nothing,
    /// Delete the container.
    Delete,
    /// Start the task on the board, then run the container.
    StartThenRun,
    /// Start the task on the board; the container is on its way.
    Start,
    /// Report the result by [`completed_task_call`], then delete the container.
    CompleteThenDelete,
    /// Complete the task as failed: the cell has lost it.
    CompleteFailed,
}

/// Which call reports a completed container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CompletedTaskCall {
    /// Back to the auction, as long as tries are left: the task never began.
    Reject,
    /// Done, well or badly.
    Complete,
}

/// What the rep does about one task. Mirrors `docs/tables/rep_task.md`.
#[rustfmt::skip]
pub const fn rep_task(container: TaskContainerView, task: TaskView) -> (TaskAction, Likelihood) {
    match (container, task) {
        (C::Reserved, T::Missing)            => (Delete,             Conceivable),   // cancelled
        (C::Reserved, T::Pending)            => (StartThenRun,       Expected),      // we won the auction
        (C::Reserved, T::Running(Ours))      => (Nothing,            Expected),      // just started
        (C::Reserved, T::Running(Theirs))    => (Delete,             Conceivable),   // another cell has it
        (C::Reserved, T::Completed(Ours))    => (Delete,             Conceivable),   // over already
        (C::Reserved, T::Completed(Theirs))  => (Delete,             Conceivable),   // over, elsewhere
        (C::Reserved, T::Resolving(Ours))    => (Delete,             Conceivable),   // over already
        (C::Reserved, T::Resolving(Theirs))  => (Delete,             Conceivable),   // over, elsewhere

        (C::Active, T::Missing)              => (Delete,             Conceivable),   // cancelled
        (C::Active, T::Pending)              => (Start,              Inconceivable), // should be started
        (C::Active, T::Running(Ours))        => (Nothing,            Expected),      // on its way, and known
        (C::Active, T::Running(Theirs))      => (Delete,             Inconceivable), // it runs twice
        (C::Active, T::Completed(Ours))      => (Delete,             Conceivable),   // cancelled
        (C::Active, T::Completed(Theirs))    => (Delete,             Inconceivable), // it ran twice
        (C::Active, T::Resolving(Ours))      => (Delete,             Conceivable),   // cancelled
        (C::Active, T::Resolving(Theirs))    => (Delete,             Inconceivable), // it ran twice

        (C::Completed, T::Missing)           => (Delete,             Conceivable),   // nobody asks for it
        (C::Completed, T::Pending)           => (CompleteThenDelete, Inconceivable), // must not run again
        (C::Completed, T::Running(Ours))     => (CompleteThenDelete, Expected),      // done
        (C::Completed, T::Running(Theirs))   => (Delete,             Inconceivable), // it runs twice
        (C::Completed, T::Completed(Ours))   => (Delete,             Conceivable),   // reported before
        (C::Completed, T::Completed(Theirs)) => (Delete,             Inconceivable), // it ran twice
        (C::Completed, T::Resolving(Ours))   => (Delete,             Conceivable),   // reported before
        (C::Completed, T::Resolving(Theirs)) => (Delete,             Inconceivable), // it ran twice

        (C::Absent, T::Running(Ours))        => (CompleteFailed,     Conceivable),   // we do not have it
        (C::Absent, T::Completed(Ours))      => (Nothing,            Expected),      // not fetched yet
        (C::Absent, T::Resolving(Ours))      => (Nothing,            Expected),      // being told

        // Silent in the document: nothing of ours runs and nothing of ours is recorded.
        (C::Absent, T::Missing | T::Pending | T::Running(Theirs)) => (Nothing, Expected),
        (C::Absent, T::Completed(Theirs) | T::Resolving(Theirs))  => (Nothing, Expected),
    }
}

/// How the result of a completed container is reported: a failure to make the container is a
/// rejection, because the task has not begun. Mirrors the note in `docs/tables/rep_task.md`.
pub const fn completed_task_call(result: &RunResult) -> CompletedTaskCall {
    match (result.failed, result.retryable) {
        (true, true) => CompletedTaskCall::Reject,
        (true | false, false) | (false, true) => CompletedTaskCall::Complete,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::agree;
    use crate::tables::bbs_task::{TaskRecordView, TaskRequest, TaskTransition, bbs_task};
    use crate::tables::doc::{Page, Pair};

    const MARKDOWN: &str = include_str!("../../../docs/tables/rep_task.md");

    #[test]
    fn the_table_is_the_one_in_the_document() {
        let mut product = Vec::new();
        for container in TaskContainerView::ALL {
            for task in TaskView::ALL {
                let (action, likelihood) = rep_task(container, task);
                product.push(Pair::new(&[&container, &task], &[&action, &likelihood]));
            }
        }
        assert_eq!(product.len(), 32);
        let page =
            Page { name: "rep_task", markdown: MARKDOWN, headings: &["The table"], rows: 27 };
        agree(&page, &product);
    }

    #[test]
    fn a_completed_container_is_reported_as_the_document_says() {
        let mut product = Vec::new();
        for failed in [false, true] {
            for retryable in [false, true] {
                let result = RunResult { failed, retryable, ..RunResult::default() };
                let call = completed_task_call(&result);
                product.push(Pair::new(&[&failed, &retryable], &[&call]));
            }
        }
        let name = "rep_task (completed)";
        // The omitted pairs belong to the other table of the page.
        let (markdown, others) = MARKDOWN.split_once("## The table").unwrap();
        assert!(others.contains("## Silent in the document"));
        agree(&Page { name, markdown, headings: &["A completed container"], rows: 4 }, &product);
    }

    /// The board's view of the task that the rep sees: both look from the same cell.
    fn record(task: TaskView) -> TaskRecordView {
        match task {
            T::Missing => TaskRecordView::Missing,
            T::Pending => TaskRecordView::Pending,
            T::Running(whose) => TaskRecordView::Running(whose),
            T::Completed(Ours | Theirs) => TaskRecordView::Completed,
            T::Resolving(Ours | Theirs) => TaskRecordView::Resolving,
        }
    }

    #[test]
    fn the_board_grants_whatever_the_rep_asks_of_it() {
        for container in TaskContainerView::ALL {
            for task in TaskView::ALL {
                let requests: &[TaskRequest] = match rep_task(container, task).0 {
                    Start | StartThenRun => &[TaskRequest::Start],
                    CompleteThenDelete => &[TaskRequest::Complete, TaskRequest::Reject],
                    CompleteFailed => &[TaskRequest::Complete],
                    Nothing | Delete => &[],
                };
                for request in requests {
                    let answer = bbs_task(record(task), *request);
                    let case = format!("{container:?} × {task:?}: {request:?}");
                    // A task that no cell holds needs no rejection to wait for the next auction.
                    // The container goes when the board's task has a cell, or is no more.
                    let waits = (task, *request) == (T::Pending, TaskRequest::Reject);
                    let granted =
                        if waits { TaskTransition::Refuse } else { TaskTransition::Apply };
                    assert_eq!(answer, granted, "{case}");
                }
            }
        }
    }
}
