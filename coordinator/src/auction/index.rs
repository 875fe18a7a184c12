//! The cheapest cell of many: a tournament. The leaves are cells, and above each two stands the
//! lower of their keys. To change one key or to find the lowest takes as many steps as the number
//! of cells has binary digits.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use super::score::NEVER;

/// Keys of cells, with the lowest on top.
#[derive(Debug, Clone)]
pub struct Tournament {
    /// The winner is at 1, the two below `n` are at `2n` and `2n + 1`, the leaves are last.
    keys: Vec<u64>,
    /// A power of two. Leaves without a cell have the key [`NEVER`].
    leaves: usize,
}

impl Tournament {
    /// A tournament of so many cells, none of which is a candidate.
    pub fn new(cells: usize) -> Self {
        let leaves = cells.next_power_of_two();
        Tournament { keys: vec![NEVER; 2 * leaves], leaves }
    }

    /// Gives all cells their keys anew.
    pub fn fill(&mut self, keys: impl Iterator<Item = u64>) {
        for (leaf, key) in self.keys[self.leaves..].iter_mut().zip(keys) {
            *leaf = key;
        }
        for at in (1..self.leaves).rev() {
            self.keys[at] = self.keys[2 * at].min(self.keys[2 * at + 1]);
        }
    }

    /// Gives one cell a new key.
    pub fn set(&mut self, cell: usize, key: u64) {
        let mut at = self.leaves + cell;
        self.keys[at] = key;
        while at > 1 {
            at /= 2;
            let lower = self.keys[2 * at].min(self.keys[2 * at + 1]);
            if self.keys[at] == lower {
                break;
            }
            self.keys[at] = lower;
        }
    }

    /// The lowest key of all.
    pub fn lowest(&self) -> u64 {
        self.keys[1]
    }

    /// The cell with the lowest key below `bound` that is accepted. Of equals, the first.
    pub fn best(&self, bound: u64, accept: impl Fn(usize) -> bool) -> Option<(u64, usize)> {
        if self.keys[1] >= bound {
            return None;
        }
        // Nearly always the winner is accepted.
        let mut at = 1;
        while at < self.leaves {
            at = 2 * at + usize::from(self.keys[2 * at] > self.keys[2 * at + 1]);
        }
        if accept(at - self.leaves) {
            return Some((self.keys[at], at - self.leaves));
        }
        let mut best = (bound, usize::MAX);
        self.descend(1, &accept, &mut best);
        (best.1 != usize::MAX).then_some(best)
    }

    fn descend(&self, at: usize, accept: &impl Fn(usize) -> bool, best: &mut (u64, usize)) {
        if self.keys[at] >= best.0 {
            return;
        }
        if at >= self.leaves {
            if accept(at - self.leaves) {
                *best = (self.keys[at], at - self.leaves);
            }
            return;
        }
        let (left, right) = (2 * at, 2 * at + 1);
        let (first, then) =
            if self.keys[left] <= self.keys[right] { (left, right) } else { (right, left) };
        self.descend(first, accept, best);
        self.descend(then, accept, best);
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::random::SplitMix;

    use super::*;

    #[test]
    fn the_best_is_what_looking_at_all_would_find() {
        let mut random = SplitMix(1);
        for cells in [1, 2, 3, 7, 8, 33, 100] {
            let mut keys: Vec<u64> = (0..cells).map(|_| random.next() % 50).collect();
            let mut tournament = Tournament::new(cells);
            tournament.fill(keys.iter().copied());
            for _ in 0..500 {
                let (cell, key) = (random.below(cells), random.next() % 50);
                keys[cell] = key;
                tournament.set(cell, key);
                let (digit, bound) = (random.below(4), random.next() % 60);
                let accept = |cell: usize| cell % 4 != digit;
                let expected = keys
                    .iter()
                    .enumerate()
                    .filter(|(cell, key)| accept(*cell) && **key < bound)
                    .map(|(_, key)| *key)
                    .min();
                let found = tournament.best(bound, accept);
                assert_eq!(found.map(|(key, _)| key), expected);
                assert!(found.is_none_or(|(key, cell)| keys[cell] == key && accept(cell)));
                assert_eq!(tournament.lowest(), *keys.iter().min().unwrap());
            }
        }
    }
}
