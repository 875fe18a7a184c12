//! Which cell is to sync, because it and the board lastingly disagree.
//!
//! Looked at once in a while. A difference that is on its way (a claim, a stop, a report) changes or
//! goes; one that stays the same for long enough, with nothing under way to or from the cell, will not
//! go by itself. On a cell on which something always changes no difference stays the same: there a
//! difference that was never gone for [`RESTLESS`] times as long is enough. Each further order waits
//! twice as long as the one before, until the two have agreed.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::time::Duration;

use volvox_protocol::id::CellId;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::time::{Backoff, Timestamp};

/// How much longer than one that stays the same a changing difference may last.
pub const RESTLESS: u32 = 6;

/// What a look at a cell finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observation {
    /// What the cell said last, and what the board holds.
    Quiet {
        /// The cell's digest.
        said: u128,
        /// The board's.
        board: u128,
    },
    /// Something is under way to or from it.
    UnderWay,
}

/// A difference.
#[derive(Debug, Clone, Copy)]
struct Drift {
    said: u128,
    board: u128,
    /// Since when it is this one.
    same_since: Timestamp,
    /// Since when there is one.
    since: Timestamp,
    /// Orders to sync since then.
    ordered: u32,
    last_order: Timestamp,
}

/// The differences that there are.
#[derive(Debug)]
pub struct DriftDetector {
    lasts: Duration,
    longest_pause: Duration,
    differ: BTreeMap<CellId, Drift>,
}

impl DriftDetector {
    /// Differences of less than `lasts` are left alone, and two orders are at most `longest_pause`
    /// apart.
    pub fn new(lasts: Duration, longest_pause: Duration) -> Self {
        DriftDetector { lasts, longest_pause, differ: BTreeMap::new() }
    }

    /// Looks at a cell; says whether it is to sync now.
    pub fn check_drift(&mut self, now: Timestamp, cell: &CellId, sight: Observation) -> bool {
        let Observation::Quiet { said, board } = sight else {
            // Not to be judged now. If the difference outlasts it, it begins anew.
            if let Some(known) = self.differ.get_mut(cell) {
                known.same_since = now;
            }
            return false;
        };
        if said == board {
            self.differ.remove(cell);
            return false;
        }
        let Some(known) = self.differ.get_mut(cell) else {
            let first = Drift {
                said,
                board,
                same_since: now,
                since: now,
                ordered: 0,
                last_order: Timestamp::ZERO,
            };
            self.differ.insert(cell.clone(), first);
            return false;
        };
        if (known.said, known.board) != (said, board) {
            (known.said, known.board, known.same_since) = (said, board, now);
        }
        let stays = known.same_since + self.lasts <= now;
        let restless = known.since.max(known.last_order) + self.lasts * RESTLESS <= now;
        let pause = Backoff { first: self.lasts.saturating_mul(2), longest: self.longest_pause };
        let rested = known.last_order + pause.after(known.ordered) <= now;
        if (stays || restless) && rested && !mutated(Bug::NoSyncOnMismatch) {
            known.ordered += 1;
            known.last_order = now;
            return true;
        }
        false
    }

    /// The cell is gone, or began anew: it syncs by itself when it comes.
    pub fn forget(&mut self, cell: &CellId) {
        self.differ.remove(cell);
    }

    /// Cells that differ now, transiently or not.
    pub fn differing(&self) -> usize {
        self.differ.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LASTS: Duration = Duration::from_secs(10);

    fn cell() -> CellId {
        CellId::new("c").unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + seconds)
    }

    fn watch() -> DriftDetector {
        DriftDetector::new(LASTS, Duration::from_secs(60))
    }

    /// The seconds at which an order is given, if each second is looked at.
    fn orders(seconds: std::ops::Range<u64>, sight: impl Fn(u64) -> Observation) -> Vec<u64> {
        let mut watch = watch();
        let due = |second: &u64| watch.check_drift(at(*second), &cell(), sight(*second));
        seconds.filter(due).collect()
    }

    const fn sight(said: u128, board: u128) -> Observation {
        Observation::Quiet { said, board }
    }

    #[test]
    fn who_agrees_is_left_alone() {
        assert_eq!(orders(0..100, |_| sight(7, 7)), [0u64; 0]);
    }

    #[test]
    fn a_lasting_difference_is_one_order_and_then_fewer_and_fewer() {
        assert_eq!(orders(0..250, |_| sight(1, 2)), [10, 30, 70, 130, 190]);
    }

    #[test]
    fn one_order_that_helps_is_the_only_one() {
        assert_eq!(orders(0..100, |second| sight(1, if second < 13 { 2 } else { 1 })), [10]);
        // And the next difference is as new.
        let twice = |second: u64| sight(1, if (13..50).contains(&second) { 1 } else { 2 });
        assert_eq!(orders(0..65, twice), [10, 60]);
    }

    #[test]
    fn passing_differences_are_none() {
        assert_eq!(
            orders(0..300, |second| sight(u128::from(second.is_multiple_of(9)), 1)),
            [0u64; 0]
        );
        // What is under way is not judged.
        let busy = |second: u64| {
            if second.is_multiple_of(5) { Observation::UnderWay } else { sight(1, 2) }
        };
        assert_eq!(orders(0..40, busy), [0u64; 0]);
    }

    #[test]
    fn a_difference_that_always_changes_is_seen_in_the_end() {
        assert_eq!(orders(0..70, |second| sight(second.into(), 1_000)), [60]);
    }

    #[test]
    fn who_is_forgotten_begins_anew() {
        let mut watch = watch();
        watch.check_drift(at(0), &cell(), sight(1, 2));
        watch.forget(&cell());
        assert!(!watch.check_drift(at(10), &cell(), sight(1, 2)));
        assert!(watch.check_drift(at(20), &cell(), sight(1, 2)));
        assert_eq!(watch.differing(), 1);
    }

    proptest! {
        /// No order without a difference that lasted, and none to a cell that agrees just now.
        #[test]
        fn no_order_comes_early(sights in proptest::collection::vec(0..4u8, 1..200)) {
            let mut watch = watch();
            let (mut since, mut last) = (None, None);
            for (second, kind) in (0u64..).zip(sights) {
                let seen = match kind {
                    0 => sight(1, 1),
                    1 | 2 => sight(1, 2),
                    _ => Observation::UnderWay,
                };
                match kind {
                    0 => since = None,
                    1 | 2 => since = since.or(Some(second)),
                    _ => {}
                }
                if watch.check_drift(at(second), &cell(), seen) {
                    prop_assert!(since.is_some_and(|since| since + 10 <= second));
                    prop_assert!(last.is_none_or(|last| last + 10 <= second));
                    last = Some(second);
                }
            }
        }
    }
}
