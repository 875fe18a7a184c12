//! Ordinary × evacuating record → what an evacuating cell's running container gets.
//!
//! The board calls this when a cell that is being emptied reports a `RUNNING` container. It is not
//! for containers in other states: those are destroyed and their records unclaimed, crashed or
//! removed, which needs no table. Every evacuating record that is written expires with the
//! evacuation timeout; the caller sets that.

use super::Likelihood::{self, Conceivable, Expected, Inconceivable};
use super::Whose::{self, Ours, Theirs};
use EvacuateAction::{
    CreateEvacuating, CreateEvacuatingAndUnclaim, DeleteContainer, Nothing,
    RemoveEvacuatingAndDeleteContainer, TakeOverEvacuatingAndUnclaim, Unclaim,
};
use {EvacuatingView as E, OrdinaryView as O, TargetView as T};

/// The ordinary record of the index, seen from the evacuating instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrdinaryView {
    /// There is none: scaled down, or never written.
    Missing,
    /// Waiting for an auction.
    Unclaimed,
    /// Waiting for an auction after one that found no place: a placement error is set.
    UnclaimedWithError,
    /// Being started.
    Claimed(Whose),
    /// Running.
    Running(Whose),
    /// Crashed and waiting; it names no instance.
    Crashed,
}

impl OrdinaryView {
    /// Every view, in the order of declaration.
    pub const ALL: [OrdinaryView; 8] = [
        O::Missing,
        O::Unclaimed,
        O::UnclaimedWithError,
        O::Claimed(Ours),
        O::Claimed(Theirs),
        O::Running(Ours),
        O::Running(Theirs),
        O::Crashed,
    ];
}

/// The evacuating record of the index. It is always `RUNNING`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvacuatingView {
    /// There is none.
    Missing,
    /// It keeps the routes of an instance that is being moved.
    Running(Whose),
}

impl EvacuatingView {
    /// Every view, in the order of declaration.
    pub const ALL: [EvacuatingView; 3] = [E::Missing, E::Running(Ours), E::Running(Theirs)];
}

/// Under which presence the request found the record that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetView {
    /// As an evacuating record, of which nothing is left to be seen.
    Evacuating,
    /// As an ordinary record.
    Ordinary,
}

impl TargetView {
    /// Every view, in the order of the document.
    pub const ALL: [TargetView; 2] = [T::Evacuating, T::Ordinary];
}

/// What the board does, and what the cell is told to do with its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EvacuateAction {
    /// Write the evacuating record, `RUNNING` and ours.
    CreateEvacuating,
    /// Write the evacuating record, make the ordinary one `UNCLAIMED`, ask for an auction.
    CreateEvacuatingAndUnclaim,
    /// Leave both records and the container as they are.
    Nothing,
    /// The container goes; the records stay.
    DeleteContainer,
    /// Make the ordinary record `UNCLAIMED` and ask for an auction.
    Unclaim,
    /// Make the evacuating record ours, the ordinary one `UNCLAIMED`, ask for an auction.
    TakeOverEvacuatingAndUnclaim,
    /// The evacuating record goes, and the container with it.
    RemoveEvacuatingAndDeleteContainer,
}

impl EvacuateAction {
    /// Whether the cell keeps the container until it asks again.
    pub const fn keeps_container(self) -> bool {
        match self {
            CreateEvacuating | CreateEvacuatingAndUnclaim | Nothing | Unclaim => true,
            TakeOverEvacuatingAndUnclaim => true,
            DeleteContainer | RemoveEvacuatingAndDeleteContainer => false,
        }
    }
}

/// The evacuating record that is written where there was none: the same whichever record the
/// request named. Mirrors the first table of `docs/tables/bbs_evacuate.md`.
#[rustfmt::skip]
pub const fn created_for(target: TargetView) -> EvacuatingView {
    match target {
        T::Evacuating => E::Running(Ours),   // it was lost on the way: write it again
        T::Ordinary   => E::Running(Ours),   // the first step of every move
    }
}

/// What becomes of a running container on an evacuating cell. Mirrors the tables of
/// `docs/tables/bbs_evacuate.md`.
#[rustfmt::skip]
pub const fn bbs_evacuate(
    ordinary: OrdinaryView,
    evacuating: EvacuatingView,
) -> (EvacuateAction, Likelihood) {
    match (ordinary, evacuating) {
        (O::Unclaimed, E::Missing)                  => (CreateEvacuating, Inconceivable),                 // ours is all that runs: keep its routes
        (O::UnclaimedWithError, E::Missing)         => (Nothing, Inconceivable),                          // no cell had room: stay
        (O::Claimed(Ours), E::Missing)              => (CreateEvacuatingAndUnclaim, Conceivable),         // it runs, unreported
        (O::Claimed(Theirs), E::Missing)            => (CreateEvacuating, Inconceivable),                 // keep the routes until theirs runs
        (O::Running(Ours), E::Missing)              => (CreateEvacuatingAndUnclaim, Expected),            // how it begins
        (O::Running(Theirs), E::Missing)            => (DeleteContainer, Conceivable),                    // moved; its start took our record
        (O::Crashed, E::Missing)                    => (DeleteContainer, Conceivable),                    // moved, crashed; our record was lost
        (O::Missing, E::Missing)                    => (DeleteContainer, Conceivable),                    // nobody asks for this index

        (O::Unclaimed, E::Running(Ours))            => (Nothing, Expected),                               // the auction goes on
        (O::Unclaimed, E::Running(Theirs))          => (DeleteContainer, Conceivable),                    // moved to β, which leaves as well
        (O::UnclaimedWithError, E::Running(Ours))   => (Nothing, Conceivable),                            // no cell had room: stay
        (O::Claimed(Ours), E::Running(Ours))        => (Unclaim, Conceivable),                            // an earlier call broke off
        (O::Claimed(Ours), E::Running(Theirs))      => (TakeOverEvacuatingAndUnclaim, Conceivable),       // came from β, unreported
        (O::Claimed(Theirs), E::Running(Ours))      => (Nothing, Expected),                               // wait for theirs to run
        (O::Claimed(Theirs), E::Running(Theirs))    => (DeleteContainer, Conceivable),                    // moved to β, which passes it on
        (O::Running(Ours), E::Running(Ours))        => (Unclaim, Conceivable),                            // an earlier call broke off
        (O::Running(Ours), E::Running(Theirs))      => (TakeOverEvacuatingAndUnclaim, Conceivable),       // came from β
        (O::Running(Theirs), E::Running(Ours))      => (RemoveEvacuatingAndDeleteContainer, Expected),    // moved: the good end
        (O::Running(Theirs), E::Running(Theirs))    => (DeleteContainer, Conceivable),                    // moved twice
        (O::Crashed, E::Running(Ours))              => (RemoveEvacuatingAndDeleteContainer, Expected),    // moved, and crashed there
        (O::Crashed, E::Running(Theirs))            => (DeleteContainer, Conceivable),                    // moved twice, then crashed
        (O::Missing, E::Running(Ours))              => (RemoveEvacuatingAndDeleteContainer, Expected),    // scaled down meanwhile
        (O::Missing, E::Running(Theirs))            => (DeleteContainer, Conceivable),                    // moved to β, then scaled down

        // Silent in the document: an error of placement does not make β's record ours.
        (O::UnclaimedWithError, E::Running(Theirs)) => (DeleteContainer, Conceivable),                    // as for Unclaimed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::agree;
    use crate::tables::doc::{Page, Pair};

    const MARKDOWN: &str = include_str!("../../../docs/tables/bbs_evacuate.md");

    #[test]
    fn the_table_is_the_one_in_the_document() {
        let mut product = Vec::new();
        for ordinary in OrdinaryView::ALL {
            for evacuating in EvacuatingView::ALL {
                let (action, likelihood) = bbs_evacuate(ordinary, evacuating);
                product.push(Pair::new(&[&ordinary, &evacuating], &[&action, &likelihood]));
            }
        }
        assert_eq!(product.len(), 24);
        let headings = &["No evacuating record", "With an evacuating record"];
        let page = Page { name: "bbs_evacuate", markdown: MARKDOWN, headings, rows: 23 };
        agree(&page, &product);
    }

    #[test]
    fn the_created_record_is_the_one_in_the_document() {
        let product: Vec<_> = TargetView::ALL
            .iter()
            .map(|target| Pair::new(&[&EvacuatingView::Missing, target], &[&created_for(*target)]))
            .collect();
        let name = "bbs_evacuate (created)";
        // The omitted pairs belong to the other table of the page.
        let (markdown, others) = MARKDOWN.split_once("## No evacuating record").unwrap();
        assert!(others.contains("## Silent in the document"));
        agree(&Page { name, markdown, headings: &["What is created"], rows: 2 }, &product);
    }

    #[test]
    fn the_container_is_kept_just_as_the_page_says() {
        let actions = crate::tables::doc::table_under(MARKDOWN, "The actions").unwrap();
        let told: Vec<_> = actions.rows.iter().map(|row| (&*row[0], &*row[1])).collect();
        let all = [
            CreateEvacuating,
            CreateEvacuatingAndUnclaim,
            Nothing,
            DeleteContainer,
            Unclaim,
            TakeOverEvacuatingAndUnclaim,
            RemoveEvacuatingAndDeleteContainer,
        ];
        let names = all.map(|action| format!("{action:?}"));
        let kept = all.map(|action| if action.keeps_container() { "kept" } else { "deleted" });
        let ours: Vec<_> = names.iter().map(String::as_str).zip(kept).collect();
        assert_eq!(ours, told);
    }

    #[test]
    fn a_container_is_deleted_only_when_the_board_does_not_count_on_it() {
        for evacuating in EvacuatingView::ALL {
            for ordinary in [O::Claimed(Ours), O::Running(Ours)] {
                assert!(bbs_evacuate(ordinary, evacuating).0.keeps_container());
            }
        }
    }
}
