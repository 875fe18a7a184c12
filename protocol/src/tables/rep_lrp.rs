//! Container × LRP record → what the rep does.
//!
//! The rep calls this for each container of its cell and for each record that names the cell, both
//! at its regular pass and when a container changes. It is not for a cell that is being evacuated
//! ([`bbs_evacuate`](super::bbs_evacuate) is). An action that fails is logged and left to the next
//! pass. Before a container that is starting or running is deleted, the rep reads the record anew.

use super::Likelihood::{self, Conceivable, Expected, Inconceivable};
use super::Whose::{self, Ours, Theirs};
use LrpAction::{
    Claim, ClaimThenRun, CrashThenDelete, Delete, Nothing, Remove, RemoveThenDelete, Run, Start,
};
use {ContainerPhase as C, LrpView as L};

/// The container of an instance on this cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContainerPhase {
    /// There is none, not even a reservation.
    Absent,
    /// `RESERVED`.
    Reserved,
    /// `INITIALIZING` or `CREATED`.
    Starting,
    /// `RUNNING`.
    Running,
    /// `COMPLETED` without having been told to.
    Crashed,
    /// `COMPLETED` because it was told to stop.
    Shutdown,
}

impl ContainerPhase {
    /// Every view, in the order of declaration.
    pub const ALL: [ContainerPhase; 6] =
        [C::Absent, C::Reserved, C::Starting, C::Running, C::Crashed, C::Shutdown];
}

/// The ordinary record of the index, seen from the container's instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LrpView {
    /// There is none.
    Missing,
    /// Waiting for an auction.
    Unclaimed,
    /// Being started.
    Claimed(Whose),
    /// Running.
    Running(Whose),
    /// Crashed and waiting; it names no instance.
    Crashed,
}

impl LrpView {
    /// Every view, in the order of declaration.
    pub const ALL: [LrpView; 7] = [
        L::Missing,
        L::Unclaimed,
        L::Claimed(Ours),
        L::Claimed(Theirs),
        L::Running(Ours),
        L::Running(Theirs),
        L::Crashed,
    ];
}

/// What the rep does about one instance. After *then* comes what is done only if the board agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LrpAction {
    /// Nothing.
    Nothing,
    /// Delete the container.
    Delete,
    /// Claim the record, then run the container.
    ClaimThenRun,
    /// Run the container.
    Run,
    /// Claim the record.
    Claim,
    /// Tell the board that the instance runs. The board makes or writes the record, and takes an
    /// evacuating or suspect twin away.
    Start,
    /// Report the crash, then delete the container. The board decides about the restart.
    CrashThenDelete,
    /// Remove the record, then delete the container.
    RemoveThenDelete,
    /// Remove the record.
    Remove,
}

/// What the rep does about one container. Mirrors `docs/tables/rep_lrp.md`.
#[rustfmt::skip]
pub const fn rep_lrp(container: ContainerPhase, lrp: LrpView) -> (LrpAction, Likelihood) {
    match (container, lrp) {
        (C::Reserved, L::Missing)         => (Delete,           Conceivable),   // no longer desired
        (C::Reserved, L::Unclaimed)       => (ClaimThenRun,     Expected),      // we won the auction
        (C::Reserved, L::Claimed(Ours))   => (Run,              Conceivable),   // claimed, not yet run
        (C::Reserved, L::Claimed(Theirs)) => (Delete,           Conceivable),   // another cell is ahead
        (C::Reserved, L::Running(Ours))   => (ClaimThenRun,     Inconceivable), // set the board right
        (C::Reserved, L::Running(Theirs)) => (Delete,           Conceivable),   // another cell is ahead
        (C::Reserved, L::Crashed)         => (Delete,           Conceivable),   // not due yet

        (C::Starting, L::Missing)         => (Delete,           Conceivable),   // no longer desired
        (C::Starting, L::Unclaimed)       => (Claim,            Inconceivable), // should be claimed
        (C::Starting, L::Claimed(Ours))   => (Nothing,          Expected),      // on its way, and known
        (C::Starting, L::Claimed(Theirs)) => (Delete,           Conceivable),   // another is starting
        (C::Starting, L::Running(Ours))   => (Claim,            Inconceivable), // set the board right
        (C::Starting, L::Running(Theirs)) => (Delete,           Conceivable),   // another runs
        (C::Starting, L::Crashed)         => (Delete,           Conceivable),   // not due yet

        (C::Running, L::Missing)          => (Start,            Conceivable),   // an empty board stops nothing
        (C::Running, L::Unclaimed)        => (Start,            Conceivable),   // it need not be placed
        (C::Running, L::Claimed(Ours))    => (Start,            Expected),      // it is up
        (C::Running, L::Claimed(Theirs))  => (Start,            Conceivable),   // ours is up first
        (C::Running, L::Running(Ours))    => (Nothing,          Expected),      // up, and known
        (C::Running, L::Running(Theirs))  => (Delete,           Conceivable),   // the other was first
        (C::Running, L::Crashed)          => (Start,            Conceivable),   // it is not crashed

        (C::Crashed, L::Missing)          => (CrashThenDelete,  Conceivable),   // tell an empty board
        (C::Crashed, L::Unclaimed)        => (Delete,           Conceivable),   // will be placed anyway
        (C::Crashed, L::Claimed(Ours))    => (CrashThenDelete,  Expected),      // crashed while starting
        (C::Crashed, L::Claimed(Theirs))  => (Delete,           Conceivable),   // another is starting
        (C::Crashed, L::Running(Ours))    => (CrashThenDelete,  Expected),      // crashed while running
        (C::Crashed, L::Running(Theirs))  => (Delete,           Conceivable),   // another runs
        (C::Crashed, L::Crashed)          => (Delete,           Conceivable),   // noted before

        (C::Shutdown, L::Missing)         => (Delete,           Conceivable),   // stopped, record gone
        (C::Shutdown, L::Unclaimed)       => (Delete,           Conceivable),   // none of ours recorded
        (C::Shutdown, L::Claimed(Ours))   => (RemoveThenDelete, Conceivable),   // stopped while starting
        (C::Shutdown, L::Claimed(Theirs)) => (Delete,           Conceivable),   // another is starting
        (C::Shutdown, L::Running(Ours))   => (RemoveThenDelete, Expected),      // stopped as told
        (C::Shutdown, L::Running(Theirs)) => (Delete,           Conceivable),   // another runs
        (C::Shutdown, L::Crashed)         => (Delete,           Conceivable),   // none of ours recorded

        (C::Absent, L::Claimed(Ours))     => (Remove,           Conceivable),   // we do not have it
        (C::Absent, L::Running(Ours))     => (Remove,           Conceivable),   // we do not have it

        // Silent in the document: nothing of ours runs and nothing of ours is recorded.
        (C::Absent, L::Missing | L::Unclaimed | L::Crashed)  => (Nothing, Expected),
        (C::Absent, L::Claimed(Theirs) | L::Running(Theirs)) => (Nothing, Expected),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::agree;
    use crate::tables::bbs_transition::{LrpRequest, RecordView, Transition, bbs_transition};
    use crate::tables::doc::{Page, Pair};

    #[test]
    fn the_table_is_the_one_in_the_document() {
        let mut product = Vec::new();
        for container in ContainerPhase::ALL {
            for lrp in LrpView::ALL {
                let (action, likelihood) = rep_lrp(container, lrp);
                product.push(Pair::new(&[&container, &lrp], &[&action, &likelihood]));
            }
        }
        assert_eq!(product.len(), 42);
        let markdown = include_str!("../../../docs/tables/rep_lrp.md");
        let headings = &["The table"];
        agree(&Page { name: "rep_lrp", markdown, headings, rows: 37 }, &product);
    }

    /// The board's view of the record that the rep sees: both look from the same instance.
    fn record(lrp: LrpView) -> RecordView {
        match lrp {
            L::Missing => RecordView::Missing,
            L::Unclaimed => RecordView::Unclaimed,
            L::Claimed(whose) => RecordView::Claimed(whose),
            L::Running(whose) => RecordView::Running(whose),
            L::Crashed => RecordView::Crashed,
        }
    }

    #[test]
    fn the_board_grants_whatever_the_rep_asks_of_it() {
        for container in ContainerPhase::ALL {
            for lrp in LrpView::ALL {
                let request = match rep_lrp(container, lrp).0 {
                    Claim | ClaimThenRun => LrpRequest::Claim,
                    Start => LrpRequest::Start,
                    CrashThenDelete => LrpRequest::Crash,
                    Remove | RemoveThenDelete => LrpRequest::Remove,
                    Nothing | Delete | Run => continue,
                };
                let answer = bbs_transition(record(lrp), request);
                let granted = matches!(answer, Transition::Apply | Transition::Create);
                assert!(granted, "{container:?} × {lrp:?}: {request:?} gives {answer:?}");
            }
        }
    }

    #[test]
    fn an_empty_board_stops_no_running_container() {
        assert_eq!(rep_lrp(C::Running, L::Missing).0, Start);
    }
}
