//! Where the instances of a process are, while a round is decided.

use crate::auction::fleet::number;

/// The seat of a cell that takes no part.
pub(super) const NOWHERE: u32 = u32::MAX;
/// Seats for which room is made when the first is noted.
const MOST_AT_ONCE: usize = 64;

/// Where the instances of a process are.
pub(super) struct ProcessSpread {
    pub(super) hash: u64,
    /// Pieces of work that are still to come. Where the last one goes need not be remembered, and
    /// half of all processes have one instance.
    pub(super) left: usize,
    /// Seats and how many are there, by seat.
    pub(super) seats: Vec<(u32, u32)>,
    pub(super) zones: ZoneCounts,
}

/// How many instances of a process are in each zone. Few fleets have more than four zones: the
/// others cost a second look into memory.
#[derive(Default)]
pub(super) struct ZoneCounts {
    first: [u32; 4],
    /// By zone; those without any are not named.
    others: Vec<(u32, u32)>,
}

impl ProcessSpread {
    pub(super) fn add(&mut self, seat: u32, zone: u32) {
        self.zones.add(zone);
        if seat == NOWHERE {
            return;
        }
        match self.seats.binary_search_by_key(&seat, |(known, _)| *known) {
            Ok(at) => self.seats[at].1 += 1,
            Err(at) => {
                if self.seats.is_empty() {
                    self.seats.reserve_exact(self.left.min(MOST_AT_ONCE));
                }
                self.seats.insert(at, (seat, 1));
            }
        }
    }

    pub(super) fn in_zone(&self, zone: u32) -> u32 {
        self.zones.count(zone)
    }
}

impl ZoneCounts {
    fn add(&mut self, zone: u32) {
        if let Some(count) = self.first.get_mut(zone as usize) {
            *count += 1;
            return;
        }
        match self.others.binary_search_by_key(&zone, |(known, _)| *known) {
            Ok(at) => self.others[at].1 += 1,
            Err(at) => self.others.insert(at, (zone, 1)),
        }
    }

    fn count(&self, zone: u32) -> u32 {
        if let Some(count) = self.first.get(zone as usize) {
            return *count;
        }
        let found = self.others.binary_search_by_key(&zone, |(known, _)| *known);
        found.map_or(0, |at| self.others[at].1)
    }
}

pub(super) fn is_among(taken: &[(u32, u32)], seat: usize) -> bool {
    taken.binary_search_by_key(&number(seat), |(known, _)| *known).is_ok()
}
