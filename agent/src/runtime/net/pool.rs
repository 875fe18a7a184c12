//! Which addresses and host ports are free. Pure: a pool only counts, `net.rs` knows what for.
//!
//! The next one given out is the lowest free one above the last, and then from the start again. So
//! the choice is determined by what happened before, and what was just given back is given out
//! last: late packets, and peers that remember, then meet nobody rather than a stranger.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::ops::RangeInclusive;

/// A set of numbers, some taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NumberPool {
    first: u32,
    /// How many numbers there are, from `first` on.
    count: u32,
    /// A bit each, 64 to a word; set is taken.
    taken: Vec<u64>,
    free: u32,
    /// Where the search begins, counted from `first`.
    next: u32,
}

impl NumberPool {
    /// All of the range, none taken. An empty range is a pool that has nothing.
    pub(super) fn new(range: RangeInclusive<u32>) -> NumberPool {
        let (first, last) = range.into_inner();
        // The whole of u32 would not fit in a u32 count; nobody has a subnet like that.
        let count = last.checked_sub(first).map_or(0, |most| most.saturating_add(1));
        let words = usize::try_from(count.div_ceil(64)).unwrap_or(usize::MAX);
        NumberPool { first, count, taken: vec![0; words], free: count, next: 0 }
    }

    /// How many are free.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// The next so many in the order they would be given out, or nothing if there are not as many.
    /// They are still free: whoever succeeds with them takes them.
    pub(super) fn pick(&self, wanted: usize) -> Option<Vec<u32>> {
        if u32::try_from(wanted).ok()? > self.free {
            return None;
        }
        let order = (self.next..self.count).chain(0..self.next);
        let picked = order.filter(|at| !self.is_taken(*at)).take(wanted);
        Some(picked.map(|at| self.first + at).collect())
    }

    /// Marks it as taken. What is not of this pool, or is taken, is no change.
    pub(super) fn take(&mut self, number: u32) {
        let Some(at) = self.place(number).filter(|at| !self.is_taken(*at)) else { return };
        self.taken[(at / 64) as usize] |= 1 << (at % 64);
        self.free -= 1;
        self.next = if at + 1 == self.count { 0 } else { at + 1 };
    }

    /// Marks it as free. What is not of this pool, or is free, is no change.
    pub(super) fn give_back(&mut self, number: u32) {
        let Some(at) = self.place(number).filter(|at| self.is_taken(*at)) else { return };
        self.taken[(at / 64) as usize] &= !(1 << (at % 64));
        self.free += 1;
    }

    fn place(&self, number: u32) -> Option<u32> {
        number.checked_sub(self.first).filter(|at| *at < self.count)
    }

    fn is_taken(&self, at: u32) -> bool {
        self.taken[(at / 64) as usize] & (1 << (at % 64)) != 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn take_one(pool: &mut NumberPool) -> Option<u32> {
        let picked = *pool.pick(1)?.first()?;
        pool.take(picked);
        Some(picked)
    }

    #[test]
    fn numbers_go_out_in_order_and_the_freed_one_last() {
        let mut pool = NumberPool::new(10..=13);
        assert_eq!([take_one(&mut pool), take_one(&mut pool)], [Some(10), Some(11)]);
        pool.give_back(10);
        assert_eq!(pool.pick(3), Some(vec![12, 13, 10]));
        assert_eq!(pool.pick(4), None);
        assert_eq!([take_one(&mut pool), take_one(&mut pool)], [Some(12), Some(13)]);
        assert_eq!([take_one(&mut pool), take_one(&mut pool)], [Some(10), None]);
    }

    #[test]
    fn to_pick_is_not_to_take() {
        let pool = NumberPool::new(1..=3);
        assert_eq!(pool.pick(2), pool.pick(2));
        assert_eq!((pool.free(), pool.pick(0)), (3, Some(vec![])));
    }

    #[test]
    fn the_ends_of_a_range_belong_to_it_and_strangers_do_not() {
        let mut pool = NumberPool::new(65_534..=65_535);
        pool.take(65_533);
        pool.take(65_536);
        pool.give_back(65_534);
        assert_eq!((pool.free(), pool.pick(2)), (2, Some(vec![65_534, 65_535])));
        #[expect(clippy::reversed_empty_ranges, reason = "that is the case to test")]
        let nothing = NumberPool::new(5..=4);
        assert_eq!((nothing.free(), nothing.pick(1)), (0, None));
    }

    proptest! {
        #[test]
        fn nothing_is_given_out_twice_and_nothing_is_lost(
            count in 1_u32..200,
            steps in prop::collection::vec((any::<bool>(), 0_u32..200), 0..400),
        ) {
            let mut pool = NumberPool::new(1_000..=999 + count);
            let mut held = BTreeSet::new();
            for (take, which) in steps {
                if take {
                    match take_one(&mut pool) {
                        Some(number) => prop_assert!(held.insert(number)),
                        None => prop_assert_eq!(held.len(), count as usize),
                    }
                } else {
                    held.remove(&(1_000 + which));
                    pool.give_back(1_000 + which);
                }
                prop_assert_eq!(pool.free() as usize + held.len(), count as usize);
            }
        }
    }
}
