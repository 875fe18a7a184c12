//! Cells of one zone and one kind, and which of them are the cheapest for work of each size.

use crate::auction::fleet::number;
use crate::auction::index::Tournament;
use crate::auction::score::{Headroom, ResourceRequest};
use crate::auction::settings::AuctionSettings;

/// Sizes of work for which a group keeps its cheapest cells.
const MOST_INDEXES: usize = 32;
/// What an index has seen whose keys are of another size.
const NEVER_FILLED: usize = usize::MAX;

/// Cells of one zone and one kind: to any filter they are the same.
pub(super) struct Group {
    pub(super) zone: u32,
    pub(super) kind: u32,
    /// Their seats.
    pub(super) first: usize,
    pub(super) len: usize,
    /// For each size of work that was weighed lately. A batch goes from size to size and comes
    /// back to each: then only what changed in between is weighed again.
    indexes: Vec<Index>,
    /// The one that was used last.
    current: usize,
    /// The one that is given up next for another size.
    oldest: usize,
    /// Whose room changed, in order.
    changed: Vec<u32>,
}

/// The cheapest cells of a group for one size of work.
struct Index {
    weighed: ResourceRequest,
    keys: Tournament,
    /// How many of the group's changes are in the keys.
    seen: usize,
}

impl Group {
    pub(super) fn new(zone: u32, kind: u32, first: usize) -> Self {
        let (indexes, changed) = (Vec::new(), Vec::new());
        Group { zone, kind, first, len: 1, indexes, current: 0, oldest: 0, changed }
    }

    /// The room on the cell at this seat is another.
    pub(super) fn change(&mut self, seat: usize) {
        self.changed.push(number(seat - self.first));
    }

    /// The keys for this size of work, as things stand.
    pub(super) fn keys(
        &mut self,
        weighed: ResourceRequest,
        rooms: &[Headroom],
        settings: &AuctionSettings,
    ) -> &Tournament {
        let current = self.indexes.get(self.current).is_some_and(|it| it.weighed == weighed);
        if !current {
            let known = self.indexes.iter().position(|it| it.weighed == weighed);
            self.current = known.unwrap_or_else(|| self.open(weighed));
        }
        let rooms = &rooms[self.first..self.first + self.len];
        let index = &mut self.indexes[self.current];
        let news = self.changed.get(index.seen..).unwrap_or(&self.changed);
        // To change one key costs about as much as to fill in a few.
        if index.seen == NEVER_FILLED || news.len() > self.len / 4 {
            index.keys.fill(rooms.iter().map(|room| room.key(weighed, settings)));
        } else {
            for place in news {
                let place = *place as usize;
                index.keys.set(place, rooms[place].key(weighed, settings));
            }
        }
        index.seen = self.changed.len();
        &index.keys
    }

    /// A place for another size.
    fn open(&mut self, weighed: ResourceRequest) -> usize {
        if self.indexes.len() < MOST_INDEXES {
            let keys = Tournament::new(self.len);
            self.indexes.push(Index { weighed, keys, seen: NEVER_FILLED });
            return self.indexes.len() - 1;
        }
        let at = self.oldest;
        self.oldest = (at + 1) % MOST_INDEXES;
        self.indexes[at].weighed = weighed;
        self.indexes[at].seen = NEVER_FILLED;
        at
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::cell::CellCapacity;
    use volvox_protocol::random::SplitMix;

    use super::*;

    /// More sizes than are kept, in any order, with few and many changes in between.
    #[test]
    fn the_keys_are_those_that_would_be_worked_out_anew() {
        let (mut random, settings) = (SplitMix(1), AuctionSettings::default());
        let total = CellCapacity { memory_mb: 10_000, disk_mb: 10_000, containers: 1_000 };
        let mut rooms: Vec<Headroom> =
            (0..40).map(|nth| Headroom::new(total, total, 0, 0, nth << 44)).collect();
        let mut group = Group::new(0, 0, 10);
        group.len = 30;
        for _ in 0..3_000 {
            for _ in 0..random.below(12) {
                let seat = 10 + random.below(30);
                let needs = ResourceRequest {
                    memory_mb: 1 + u32::try_from(random.below(9)).unwrap(),
                    disk_mb: 1,
                };
                if rooms[seat].fits(needs) {
                    rooms[seat].take(needs);
                    group.change(seat);
                }
            }
            let memory_mb = u32::try_from(random.below(MOST_INDEXES * 3 / 2)).unwrap();
            let weighed = ResourceRequest { memory_mb, disk_mb: 1 };
            let keys = group.keys(weighed, &rooms, &settings);
            let lowest = rooms[10..].iter().map(|room| room.key(weighed, &settings)).min();
            assert_eq!(Some(keys.lowest()), lowest);
        }
        assert_eq!(group.indexes.len(), MOST_INDEXES);
    }
}
