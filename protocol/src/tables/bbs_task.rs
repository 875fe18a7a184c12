//! Task record × request → allowed or not: the life of a task, from desire to delete.
//!
//! The board asks this for every request about a task, whether from a consumer, a cell or the
//! auction. It is about permission only: what an applied request writes, and when a rejected task
//! has been tried often enough, is the business of the caller.

use super::Whose::{self, Ours, Theirs};
use TaskTransition::{Apply, Create, Exists, NotFound, Nothing, Refuse, WrongCell};
use {TaskRecordView as R, TaskRequest as Q};

/// The record of a task, seen from the cell that the request names. Once a task is done, its cell
/// has no say in it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskRecordView {
    /// There is none.
    Missing,
    /// Waiting for an auction.
    Pending,
    /// Running. A request that names no cell sees it as `Theirs`.
    Running(Whose),
    /// Done, and not fetched yet.
    Completed,
    /// Done, and the consumer is being told.
    Resolving,
}

impl TaskRecordView {
    /// Every view, in the order of declaration.
    pub const ALL: [TaskRecordView; 6] =
        [R::Missing, R::Pending, R::Running(Ours), R::Running(Theirs), R::Completed, R::Resolving];
}

/// What is asked of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskRequest {
    /// A consumer wants it run.
    Desire,
    /// A cell is about to run it.
    Start,
    /// A consumer wants it no more.
    Cancel,
    /// It has failed for a reason outside its container.
    Fail,
    /// The cell that holds it could not make its container: try again while tries are left.
    Reject,
    /// The auction found no cell for it: try again while tries are left.
    RejectByAuction,
    /// A cell has its result.
    Complete,
    /// Its consumer is about to be told.
    Resolving,
    /// Its consumer has been told.
    Delete,
}

impl TaskRequest {
    /// Every request, in the order of declaration.
    pub const ALL: [TaskRequest; 9] = [
        Q::Desire,
        Q::Start,
        Q::Cancel,
        Q::Fail,
        Q::Reject,
        Q::RejectByAuction,
        Q::Complete,
        Q::Resolving,
        Q::Delete,
    ];
}

/// What the board answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskTransition {
    /// Granted: a record is made.
    Create,
    /// Granted: the record is written, or removed.
    Apply,
    /// Granted, and nothing is written: it is so already. The cell must not run it again.
    Nothing,
    /// Refused: a task of this guid is there.
    Exists,
    /// Refused: there is no such task.
    NotFound,
    /// Refused: the task is in no state for this.
    Refuse,
    /// Refused: the task runs on another cell.
    WrongCell,
}

/// Whether a request may change a task. Mirrors `docs/tables/bbs_task.md`.
#[rustfmt::skip]
pub const fn bbs_task(record: TaskRecordView, request: TaskRequest) -> TaskTransition {
    match (record, request) {
        (R::Missing, Q::Desire)                  => Create,    // the beginning
        (R::Missing, Q::Start)                   => NotFound,  // cancelled and deleted
        (R::Missing, Q::Cancel)                  => NotFound,  // nothing to cancel
        (R::Missing, Q::Fail)                    => NotFound,  // nothing to fail
        (R::Missing, Q::Reject)                  => NotFound,  // nothing to try again
        (R::Missing, Q::RejectByAuction)         => NotFound,  // nothing to try again
        (R::Missing, Q::Complete)                => NotFound,  // nobody asks for the result
        (R::Missing, Q::Resolving)               => NotFound,  // nobody to be told
        (R::Missing, Q::Delete)                  => NotFound,  // gone already

        (R::Pending, Q::Desire)                  => Exists,    // a guid is used once at a time
        (R::Pending, Q::Start)                   => Apply,     // the auction's winner reports
        (R::Pending, Q::Cancel)                  => Apply,     // before it was placed
        (R::Pending, Q::Fail)                    => Apply,     // waited too long
        (R::Pending, Q::Reject)                  => Refuse,    // no cell holds it
        (R::Pending, Q::RejectByAuction)         => Apply,     // no cell had room
        (R::Pending, Q::Complete)                => Apply,     // it ran unstarted: it must not run again
        (R::Pending, Q::Resolving)               => Refuse,    // not done
        (R::Pending, Q::Delete)                  => Refuse,    // not done

        (R::Running(Ours), Q::Desire)            => Exists,    // a guid is used once at a time
        (R::Running(Ours), Q::Start)             => Nothing,   // said before
        (R::Running(Ours), Q::Cancel)            => Apply,     // its cell is told
        (R::Running(Ours), Q::Fail)              => Apply,     // given up: its cell is told
        (R::Running(Ours), Q::Reject)            => Apply,     // its container could not be made
        (R::Running(Ours), Q::RejectByAuction)   => Refuse,    // a cell has it by now: at most once
        (R::Running(Ours), Q::Complete)          => Apply,     // done
        (R::Running(Ours), Q::Resolving)         => Refuse,    // not done
        (R::Running(Ours), Q::Delete)            => Refuse,    // not done

        (R::Running(Theirs), Q::Desire)          => Exists,    // a guid is used once at a time
        (R::Running(Theirs), Q::Start)           => Refuse,    // at most once
        (R::Running(Theirs), Q::Cancel)          => Apply,     // consumers name no cell
        (R::Running(Theirs), Q::Fail)            => Apply,     // the board itself names no cell
        (R::Running(Theirs), Q::Reject)          => WrongCell, // not that cell's to reject
        (R::Running(Theirs), Q::RejectByAuction) => Refuse,    // a cell has it by now: at most once
        (R::Running(Theirs), Q::Complete)        => WrongCell, // not that cell's to finish
        (R::Running(Theirs), Q::Resolving)       => Refuse,    // not done
        (R::Running(Theirs), Q::Delete)          => Refuse,    // not done

        (R::Completed, Q::Desire)                => Exists,    // it must be deleted first
        (R::Completed, Q::Start)                 => Refuse,    // at most once
        (R::Completed, Q::Cancel)                => Refuse,    // too late
        (R::Completed, Q::Fail)                  => Refuse,    // its result stands
        (R::Completed, Q::Reject)                => Refuse,    // its result stands
        (R::Completed, Q::RejectByAuction)       => Refuse,    // its result stands
        (R::Completed, Q::Complete)              => Refuse,    // its result stands
        (R::Completed, Q::Resolving)             => Apply,     // one teller takes it
        (R::Completed, Q::Delete)                => Refuse,    // first by way of resolving

        (R::Resolving, Q::Desire)                => Exists,    // it must be deleted first
        (R::Resolving, Q::Start)                 => Refuse,    // at most once
        (R::Resolving, Q::Cancel)                => Refuse,    // too late
        (R::Resolving, Q::Fail)                  => Refuse,    // its result stands
        (R::Resolving, Q::Reject)                => Refuse,    // its result stands
        (R::Resolving, Q::RejectByAuction)       => Refuse,    // its result stands
        (R::Resolving, Q::Complete)              => Refuse,    // its result stands
        (R::Resolving, Q::Resolving)             => Refuse,    // another teller has it
        (R::Resolving, Q::Delete)                => Apply,     // told
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::agree;
    use crate::tables::doc::{Page, Pair};

    #[test]
    fn the_table_is_the_one_in_the_document() {
        let mut product = Vec::new();
        for record in TaskRecordView::ALL {
            for request in TaskRequest::ALL {
                let transition = bbs_task(record, request);
                product.push(Pair::new(&[&record, &request], &[&transition]));
            }
        }
        assert_eq!(product.len(), 54);
        let markdown = include_str!("../../../docs/tables/bbs_task.md");
        agree(&Page { name: "bbs_task", markdown, headings: &["The table"], rows: 54 }, &product);
    }

    #[test]
    fn only_a_pending_task_can_be_started() {
        for record in TaskRecordView::ALL {
            let starts = bbs_task(record, Q::Start) == Apply;
            assert_eq!(starts, record == R::Pending, "{record:?}");
        }
    }

    #[test]
    fn only_the_cell_that_holds_a_task_can_let_go_of_it() {
        for request in [Q::Reject, Q::RejectByAuction] {
            for whose in [Ours, Theirs] {
                let granted = bbs_task(R::Running(whose), request) == Apply;
                assert_eq!(granted, (request, whose) == (Q::Reject, Ours), "{request:?} {whose:?}");
            }
        }
    }
}
