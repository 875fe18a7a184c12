//! Single losses at once, many together held, and the board knows the truth in the end.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_secs(1_000 + seconds)
}

fn cell(nth: usize) -> CellId {
    CellId::new(&format!("c{nth:03}")).unwrap()
}

/// So many cells, all heard and settled.
fn fleet(cells: usize) -> LossTracker {
    let mut presence = LossTracker::new(HoldPolicy::default());
    for nth in 0..cells {
        assert_eq!(presence.cell_present(at(0), &cell(nth)), [PresenceChange::Present(cell(nth))]);
    }
    assert_eq!(presence.settle(at(0), []), [PresenceChange::Settled]);
    presence
}

fn missing(words: &[PresenceChange]) -> Vec<CellId> {
    let missing = words.iter().filter_map(|word| match word {
        PresenceChange::Missing(cell) => Some(cell.clone()),
        PresenceChange::Present(_)
        | PresenceChange::Settled
        | PresenceChange::Held(_)
        | PresenceChange::Released(_) => None,
    });
    missing.collect()
}

#[test]
fn a_lone_loss_is_told_at_once_and_so_is_the_return() {
    let mut fleet = fleet(10);
    assert_eq!(fleet.cell_missing(at(1), &cell(0)), [PresenceChange::Missing(cell(0))]);
    assert_eq!(fleet.cell_missing(at(1), &cell(0)), []);
    assert_eq!(fleet.cell_present(at(2), &cell(0)), [PresenceChange::Present(cell(0))]);
    assert_eq!(fleet.cell_present(at(2), &cell(0)), []);
    assert_eq!(fleet.wake_at(), None);
}

#[test]
fn the_third_loss_of_a_large_fleet_waits_a_moment_and_is_told() {
    let mut fleet = fleet(100);
    assert_eq!(fleet.cell_missing(at(1), &cell(0)), [PresenceChange::Missing(cell(0))]);
    assert_eq!(fleet.cell_missing(at(1), &cell(1)), [PresenceChange::Missing(cell(1))]);
    assert_eq!(fleet.cell_missing(at(1), &cell(2)), []);
    assert_eq!(fleet.wake_at(), Some(at(4)));
    assert_eq!(fleet.pass(at(3)), []);
    assert_eq!(fleet.pass(at(4)), [PresenceChange::Missing(cell(2))]);
    assert_eq!(fleet.wake_at(), None);
}

#[test]
fn many_that_vanish_together_are_held_and_told_when_the_grace_is_over() {
    let mut fleet = fleet(10);
    let mut told = Vec::new();
    for nth in 0..3 {
        told.extend(fleet.cell_missing(at(1), &cell(nth)));
    }
    assert_eq!(missing(&told), [cell(0), cell(1)], "fewer than could be many");
    let held = HoldStatus { cells: 2, of: 10, since: at(2), until: at(62) };
    assert_eq!(fleet.cell_missing(at(2), &cell(3)), [PresenceChange::Held(held.clone())]);
    assert_eq!(fleet.holding(), Some(held));
    // What is lost later is held with them, and until the same end.
    assert_eq!(fleet.cell_missing(at(50), &cell(4)), []);
    assert_eq!(fleet.holding().unwrap().cells, 3);
    assert_eq!(fleet.wake_at(), Some(at(62)));
    assert_eq!(fleet.pass(at(61)), []);
    let words = fleet.pass(at(62));
    assert_eq!(words[0], PresenceChange::Released(HoldEnd::TimeIsUp));
    assert_eq!(missing(&words), [cell(2), cell(3), cell(4)]);
    assert_eq!(fleet.holding(), None);
    // Counting begins anew: one more of five is one.
    assert_eq!(fleet.cell_missing(at(63), &cell(5)), [PresenceChange::Missing(cell(5))]);
}

#[test]
fn who_comes_back_was_never_gone() {
    let mut fleet = fleet(10);
    for nth in 0..6 {
        fleet.cell_missing(at(1), &cell(nth));
    }
    assert_eq!(fleet.holding().unwrap().cells, 4, "two were told before they were many");
    for nth in 2..5 {
        assert_eq!(fleet.cell_present(at(10), &cell(nth)), []);
    }
    assert_eq!(fleet.cell_present(at(10), &cell(5)), [PresenceChange::Released(HoldEnd::CameBack)]);
    assert_eq!(fleet.cell_present(at(11), &cell(0)), [PresenceChange::Present(cell(0))]);
}

#[test]
fn an_operator_can_let_go() {
    let mut fleet = fleet(4);
    for nth in 0..4 {
        fleet.cell_missing(at(1), &cell(nth));
    }
    assert_eq!(fleet.holding().unwrap().cells, 2);
    let words = fleet.release(at(5));
    assert_eq!(words[0], PresenceChange::Released(HoldEnd::Told));
    assert_eq!(missing(&words), [cell(2), cell(3)]);
    assert_eq!(fleet.release(at(6)), []);
}

#[test]
fn losses_that_are_far_apart_are_no_hold() {
    let mut fleet = fleet(10);
    for nth in 0..9 {
        let words = fleet.cell_missing(at(31 * nth as u64), &cell(nth));
        assert_eq!(words, [PresenceChange::Missing(cell(nth))], "{nth}");
    }
}

#[test]
fn a_share_of_all_is_never_held() {
    let policy = HoldPolicy { share_percent: 100, ..HoldPolicy::default() };
    let mut fleet = LossTracker::new(policy);
    (0..5).for_each(|nth| drop(fleet.cell_present(at(0), &cell(nth))));
    (0..5).for_each(|nth| drop(fleet.cell_missing(at(1), &cell(nth))));
    assert_eq!(fleet.holding(), None);
    assert_eq!(missing(&fleet.pass(at(4))).len(), 3);
}

#[test]
fn a_coordinator_that_hears_too_few_at_its_start_waits_before_it_says_so() {
    let mut presence = LossTracker::new(HoldPolicy::default());
    for nth in 0..5 {
        presence.cell_present(at(0), &cell(nth));
    }
    let named: Vec<CellId> = (0..10).map(cell).collect();
    let words = presence.settle(at(20), &named);
    assert_eq!(
        words,
        [PresenceChange::Held(HoldStatus { cells: 5, of: 10, since: at(20), until: at(80) })]
    );
    assert!(!presence.is_settled());
    // The board has never heard of it, so it is told.
    assert_eq!(presence.cell_present(at(30), &cell(5)), [PresenceChange::Present(cell(5))]);
    let words = presence.pass(at(80));
    assert_eq!(words[0], PresenceChange::Released(HoldEnd::TimeIsUp));
    assert_eq!(missing(&words), (6..10).map(cell).collect::<Vec<_>>());
    assert_eq!(words.last(), Some(&PresenceChange::Settled));
    assert!(presence.is_settled());
    assert_eq!(presence.settle(at(90), &named), []);
}

#[test]
fn few_that_were_not_heard_at_the_start_are_found_missing_by_the_board() {
    let mut presence = LossTracker::new(HoldPolicy::default());
    for nth in 0..5 {
        presence.cell_present(at(0), &cell(nth));
    }
    let named: Vec<CellId> = (0..7).map(cell).collect();
    assert_eq!(presence.settle(at(20), &named), [PresenceChange::Settled]);
    assert_eq!(presence.cell_present(at(21), &cell(6)), [PresenceChange::Present(cell(6))]);
}

#[derive(Debug, Clone)]
enum Step {
    Came(usize),
    Went(usize),
    Pass(u64),
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..12usize).prop_map(Step::Came),
        6 => (0..12usize).prop_map(Step::Went),
        4 => (0..20u64).prop_map(Step::Pass),
        1 => Just(Step::Release),
    ]
}

proptest! {
    /// Whatever happens: nothing is told twice, nothing is told missing while it is held, what is
    /// held is more than the share, and in the end the board knows who is there.
    #[test]
    fn the_board_knows_the_truth_in_the_end(steps in proptest::collection::vec(step(), 0..80)) {
        let mut presence = LossTracker::new(HoldPolicy::default());
        let mut now = at(0);
        let mut real = BTreeSet::new();
        let mut board: BTreeMap<CellId, bool> = BTreeMap::new();
        let mut settled = 0;
        let mut take = |words: Vec<PresenceChange>, held: bool, board: &mut BTreeMap<CellId, bool>| {
            let released = words.iter().any(|word| matches!(word, PresenceChange::Released(_)));
            for word in words {
                match word {
                    PresenceChange::Present(cell) => {
                        prop_assert_ne!(board.insert(cell, true), Some(true));
                    }
                    PresenceChange::Missing(cell) => {
                        prop_assert!(!held || released, "told missing while held");
                        prop_assert_ne!(board.insert(cell, false), Some(false));
                    }
                    PresenceChange::Settled => settled += 1,
                    PresenceChange::Held(holding) => {
                        prop_assert!(holding.cells >= 1);
                        prop_assert!(holding.until > holding.since);
                    }
                    PresenceChange::Released(_) => prop_assert!(held),
                }
            }
            Ok(())
        };
        let words = presence.settle(now, []);
        take(words, false, &mut board)?;
        for step in steps {
            let held = presence.holding().is_some();
            let words = match step {
                Step::Came(nth) => {
                    real.insert(cell(nth));
                    presence.cell_present(now, &cell(nth))
                }
                Step::Went(nth) => {
                    real.remove(&cell(nth));
                    presence.cell_missing(now, &cell(nth))
                }
                Step::Pass(seconds) => {
                    now = now + Duration::from_secs(seconds);
                    presence.pass(now)
                }
                Step::Release => presence.release(now),
            };
            take(words, held, &mut board)?;
            prop_assert_eq!(presence.present(), &real);
            prop_assert!(presence.wake_at().is_none_or(|at| at >= now || held || at + Duration::from_secs(20) > now));
        }
        while let Some(wake) = presence.wake_at() {
            now = now.max(wake);
            let held = presence.holding().is_some();
            let words = presence.pass(now);
            take(words, held, &mut board)?;
        }
        let known: BTreeSet<CellId> =
            board.into_iter().filter(|(_, there)| *there).map(|(cell, _)| cell).collect();
        prop_assert_eq!(known, real);
        prop_assert_eq!(settled, 1);
    }
}
