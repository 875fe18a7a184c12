//! LRP record × request → allowed or not.
//!
//! The board asks this for every request about an ordinary record, after it has looked for a
//! suspect or evacuating twin that the request may mean instead. It is about permission only: what
//! an applied request writes is the business of the caller.

use super::Whose::{self, Ours, Theirs};
use Transition::{Apply, Create, NotFound, Nothing, Refuse};
use {LrpRequest as Q, RecordView as R};

/// The ordinary record of the index, seen from the instance that the request names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordView {
    /// There is none.
    Missing,
    /// Waiting for an auction; it names no instance.
    Unclaimed,
    /// Being started.
    Claimed(Whose),
    /// Running.
    Running(Whose),
    /// Crashed and waiting; it names no instance.
    Crashed,
}

impl RecordView {
    /// Every view, in the order of declaration.
    pub const ALL: [RecordView; 7] = [
        R::Missing,
        R::Unclaimed,
        R::Claimed(Ours),
        R::Claimed(Theirs),
        R::Running(Ours),
        R::Running(Theirs),
        R::Crashed,
    ];
}

/// What is asked of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LrpRequest {
    /// A cell has room reserved and will start the instance.
    Claim,
    /// A cell runs the instance.
    Start,
    /// A cell saw the instance crash.
    Crash,
    /// An auction found no place.
    Fail,
    /// The record goes, if it is that of the named instance.
    Remove,
    /// The record goes, whatever instance it names.
    RemoveAny,
}

impl LrpRequest {
    /// Every request, in the order of declaration.
    pub const ALL: [LrpRequest; 6] =
        [Q::Claim, Q::Start, Q::Crash, Q::Fail, Q::Remove, Q::RemoveAny];
}

/// What the board answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transition {
    /// Granted: the record is written, or removed.
    Apply,
    /// Granted: a record is made, because the cell knows better than an empty board.
    Create,
    /// Granted, and nothing is written: it is so already, or there is nothing to note it on.
    Nothing,
    /// Refused: there is no such record.
    NotFound,
    /// Refused: the record is in no state for this, or another instance's.
    Refuse,
}

/// Whether a request may change the ordinary record. Mirrors `docs/tables/bbs_transition.md`.
#[rustfmt::skip]
pub const fn bbs_transition(record: RecordView, request: LrpRequest) -> Transition {
    match (record, request) {
        (R::Missing, Q::Claim)             => NotFound, // nothing to claim
        (R::Missing, Q::Start)             => Create,   // it runs: a purged board learns of it
        (R::Missing, Q::Crash)             => Create,   // it crashed: a purged board learns of it
        (R::Missing, Q::Fail)              => Nothing,  // no longer desired, no matter
        (R::Missing, Q::Remove)            => NotFound, // gone already
        (R::Missing, Q::RemoveAny)         => NotFound, // gone already

        (R::Unclaimed, Q::Claim)           => Apply,    // the auction's winner reports
        (R::Unclaimed, Q::Start)           => Apply,    // it runs, no need to place it
        (R::Unclaimed, Q::Crash)           => Refuse,   // it will be placed anyway
        (R::Unclaimed, Q::Fail)            => Apply,    // the placement error is kept
        (R::Unclaimed, Q::Remove)          => NotFound, // it names no instance
        (R::Unclaimed, Q::RemoveAny)       => Apply,    // retired before it was placed

        (R::Claimed(Ours), Q::Claim)       => Nothing,  // said before
        (R::Claimed(Ours), Q::Start)       => Apply,    // up
        (R::Claimed(Ours), Q::Crash)       => Apply,    // crashed while starting
        (R::Claimed(Ours), Q::Fail)        => Refuse,   // it was placed after all
        (R::Claimed(Ours), Q::Remove)      => Apply,    // stopped while starting
        (R::Claimed(Ours), Q::RemoveAny)   => Apply,    // its cell will not answer any more

        (R::Claimed(Theirs), Q::Claim)     => Refuse,   // the other was first
        (R::Claimed(Theirs), Q::Start)     => Apply,    // running beats starting
        (R::Claimed(Theirs), Q::Crash)     => Refuse,   // the other's start is not touched
        (R::Claimed(Theirs), Q::Fail)      => Refuse,   // it was placed after all
        (R::Claimed(Theirs), Q::Remove)    => NotFound, // not the instance that was named
        (R::Claimed(Theirs), Q::RemoveAny) => Apply,    // its cell will not answer any more

        (R::Running(Ours), Q::Claim)       => Apply,    // the cell says it is only starting
        (R::Running(Ours), Q::Start)       => Apply,    // written only when something differs
        (R::Running(Ours), Q::Crash)       => Apply,    // crashed while running
        (R::Running(Ours), Q::Fail)        => Refuse,   // it was placed after all
        (R::Running(Ours), Q::Remove)      => Apply,    // stopped
        (R::Running(Ours), Q::RemoveAny)   => Apply,    // its cell will not answer any more

        (R::Running(Theirs), Q::Claim)     => Refuse,   // the other got further
        (R::Running(Theirs), Q::Start)     => Refuse,   // one per index, and the other was first
        (R::Running(Theirs), Q::Crash)     => Refuse,   // the other is well
        (R::Running(Theirs), Q::Fail)      => Refuse,   // it was placed after all
        (R::Running(Theirs), Q::Remove)    => NotFound, // not the instance that was named
        (R::Running(Theirs), Q::RemoveAny) => Apply,    // its cell will not answer any more

        (R::Crashed, Q::Claim)             => Refuse,   // it waits out its time first
        (R::Crashed, Q::Start)             => Apply,    // a running container proves it
        (R::Crashed, Q::Crash)             => Refuse,   // noted before
        (R::Crashed, Q::Fail)              => Refuse,   // no auction was asked for
        (R::Crashed, Q::Remove)            => NotFound, // it names no instance
        (R::Crashed, Q::RemoveAny)         => Apply,    // retired while it waited
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
        for record in RecordView::ALL {
            for request in LrpRequest::ALL {
                let transition = bbs_transition(record, request);
                product.push(Pair::new(&[&record, &request], &[&transition]));
            }
        }
        assert_eq!(product.len(), 42);
        let markdown = include_str!("../../../docs/tables/bbs_transition.md");
        let headings = &["The table"];
        agree(&Page { name: "bbs_transition", markdown, headings, rows: 42 }, &product);
    }

    #[test]
    fn nobody_but_a_start_takes_a_record_from_another_instance() {
        for record in [R::Claimed(Theirs), R::Running(Theirs)] {
            for request in [Q::Claim, Q::Crash, Q::Fail, Q::Remove] {
                let answer = bbs_transition(record, request);
                assert!(matches!(answer, Refuse | NotFound), "{record:?} × {request:?}");
            }
        }
        assert_eq!(bbs_transition(R::Running(Theirs), Q::Start), Refuse);
    }
}
