//! The host's user and group ids that containers have, a range for each.
//!
//! They lie above what systemd gives to its own containers and below 2³¹, where some programs lose
//! count. So a file or process of a container never belongs to somebody else on the machine.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeSet;

/// Ids of one container.
pub(crate) const IDS: u32 = 65_536;
/// The first id of all.
const FIRST: u32 = 0x7000_0000;
/// Ranges there are.
const RANGES: u32 = 4_096;

/// Which ranges are taken.
#[derive(Debug, Default)]
pub(crate) struct IdRanges {
    taken: BTreeSet<u32>,
}

impl IdRanges {
    /// Takes a range: its first id. Nothing when all are taken.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let free = (0..RANGES).find(|nth| !self.taken.contains(nth))?;
        self.taken.insert(free);
        Some(FIRST + free * IDS)
    }

    /// Takes the range that was found in use.
    pub(crate) fn found(&mut self, first: u32) {
        self.taken.extend(nth(first));
    }

    /// Gives a range back.
    pub(crate) fn give_back(&mut self, first: u32) {
        if let Some(nth) = nth(first) {
            self.taken.remove(&nth);
        }
    }
}

fn nth(first: u32) -> Option<u32> {
    first.checked_sub(FIRST).map(|past| past / IDS).filter(|nth| *nth < RANGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_come_back() {
        let mut ranges = IdRanges::default();
        let all: BTreeSet<u32> = std::iter::from_fn(|| ranges.take()).collect();
        assert_eq!(all.len(), RANGES as usize);
        let steps = all.iter().zip(all.iter().skip(1));
        assert!(steps.clone().all(|(one, next)| next - one >= IDS));
        assert!(all.iter().all(|it| (FIRST..1 << 31).contains(it)));
        ranges.give_back(FIRST + 7 * IDS);
        ranges.give_back(5);
        assert_eq!(ranges.take(), Some(FIRST + 7 * IDS));
        let mut ranges = IdRanges::default();
        ranges.found(FIRST);
        ranges.found(12);
        assert_eq!(ranges.take(), Some(FIRST + IDS));
    }
}
