//! The cheapest cell of many: a tournament. The leaves are cells, and above each eight stands the
//! lowest of their keys. Eight keys are one line of the processor's cache, and a step up or down
//! looks at one line: 10,000 cells take five.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use super::score::NEVER;

/// Keys that stand together.
const WIDTH: usize = 8;

/// Keys of neighbours. Places without a cell have the key [`NEVER`].
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct KeyLine([u64; WIDTH]);

impl KeyLine {
    const EMPTY: KeyLine = KeyLine([NEVER; WIDTH]);

    fn lowest(&self) -> u64 {
        self.0.iter().copied().fold(NEVER, u64::min)
    }

    /// The place of this key; of equals, the first.
    fn place_of(&self, key: u64) -> usize {
        self.0.iter().position(|it| *it == key).unwrap_or(0)
    }
}

/// Keys of cells, with the lowest on top.
#[derive(Debug, Clone)]
pub struct Tournament {
    /// Level by level, the cells' own first. Above each line stands its lowest key.
    lines: Vec<KeyLine>,
    /// Where each level begins in `lines`; the last level is one line.
    levels: Vec<usize>,
    lowest: u64,
}

impl Tournament {
    /// A tournament of so many cells, none of which is a candidate.
    pub fn new(cells: usize) -> Self {
        let mut levels = vec![0];
        let mut width = cells.div_ceil(WIDTH).max(1);
        let mut lines = width;
        while width > 1 {
            levels.push(lines);
            width = width.div_ceil(WIDTH);
            lines += width;
        }
        Tournament { lines: vec![KeyLine::EMPTY; lines], levels, lowest: NEVER }
    }

    /// Gives all cells their keys anew.
    pub fn fill(&mut self, keys: impl Iterator<Item = u64>) {
        for (place, key) in keys.enumerate() {
            self.lines[place / WIDTH].0[place % WIDTH] = key;
        }
        for above in 1..self.levels.len() {
            let (below, begin) = (self.levels[above - 1], self.levels[above]);
            for place in 0..begin - below {
                let lowest = self.lines[below + place].lowest();
                self.lines[begin + place / WIDTH].0[place % WIDTH] = lowest;
            }
        }
        self.lowest = self.lines.last().map_or(NEVER, KeyLine::lowest);
    }

    /// Gives one cell a new key.
    pub fn set(&mut self, cell: usize, key: u64) {
        let (mut place, mut key) = (cell, key);
        for begin in &self.levels {
            let line = &mut self.lines[begin + place / WIDTH];
            line.0[place % WIDTH] = key;
            key = line.lowest();
            place /= WIDTH;
        }
        self.lowest = key;
    }

    /// The lowest key of all.
    pub fn lowest(&self) -> u64 {
        self.lowest
    }

    /// The cell with the lowest key below `bound` that is accepted. Of equals, the first.
    pub fn best(&self, bound: u64, accept: impl Fn(usize) -> bool) -> Option<(u64, usize)> {
        if self.lowest >= bound {
            return None;
        }
        // Nearly always the winner is accepted.
        let mut place = 0;
        for begin in self.levels.iter().rev() {
            place = place * WIDTH + self.lines[begin + place].place_of(self.lowest);
        }
        if accept(place) {
            return Some((self.lowest, place));
        }
        let mut best = (bound, usize::MAX);
        self.descend(self.levels.len() - 1, 0, &accept, &mut best);
        (best.1 != usize::MAX).then_some(best)
    }

    /// Looks at what is below this line of this level, the lowest first, as far as it can be better.
    fn descend(
        &self,
        level: usize,
        line: usize,
        accept: &impl Fn(usize) -> bool,
        best: &mut (u64, usize),
    ) {
        let mut keys = self.lines[self.levels[level] + line].0;
        for _ in 0..WIDTH {
            let lowest = KeyLine(keys).lowest();
            if lowest >= best.0 {
                return;
            }
            let at = KeyLine(keys).place_of(lowest);
            keys[at] = NEVER;
            let place = line * WIDTH + at;
            if level > 0 {
                self.descend(level - 1, place, accept, best);
            } else if accept(place) {
                *best = (lowest, place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::random::SplitMix;

    use super::*;

    #[test]
    fn the_best_is_what_looking_at_all_would_find() {
        let mut random = SplitMix(1);
        for cells in [1, 2, 7, 8, 9, 33, 64, 65, 100, 513, 600] {
            let mut keys: Vec<u64> = (0..cells).map(|_| random.next() % 50).collect();
            let mut tournament = Tournament::new(cells);
            tournament.fill(keys.iter().copied());
            for _ in 0..300 {
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
