//! Who watches whom: every member stands on [`RINGS`] rings, in an order of its own on each, and
//! watches the one after it on each ring.
//!
//! So each is watched by about as many as it watches, all reach each other along the rings in a few
//! steps, and a change moves only the links around it: that keeps connections few and old, which is
//! where the bytes of an idle mesh would be. Two members that know the same draw the same rings.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::random::mix;

use crate::identity::MemberId;

/// Rings, and so the members that each one watches.
pub const RINGS: usize = 4;

/// Cells that a leaf has links to, beside the coordinators.
pub const LEAF_PEERS: usize = 2;

/// Cells that it is told of: more than it needs, as one may be out of its reach.
pub const LEAF_CANDIDATES: usize = 4;

/// The cells that a leaf has links to: those after it on the first ring. All who know the same find
/// the same.
pub(super) fn leaf_peers(
    leaf: MemberId,
    cells: impl Iterator<Item = MemberId>,
    count: usize,
) -> Vec<MemberId> {
    let start = position(0, leaf);
    let mut nearest: Vec<(u64, MemberId)> = Vec::with_capacity(count + 1);
    for cell in cells.filter(|cell| *cell != leaf) {
        let entry = (position(0, cell).wrapping_sub(start), cell);
        if nearest.len() < count || nearest.last().is_some_and(|last| entry < *last) {
            let place = nearest.partition_point(|near| *near < entry);
            nearest.insert(place, entry);
            nearest.truncate(count);
        }
    }
    nearest.into_iter().map(|(_, cell)| cell).collect()
}

/// The members after us on each ring, the nearest first.
#[derive(Debug)]
pub(super) struct Rings {
    me: MemberId,
    after: [Vec<(u64, MemberId)>; RINGS],
}

impl Rings {
    pub(super) fn new(me: MemberId) -> Rings {
        Rings { me, after: Default::default() }
    }

    /// A member now stands on the rings.
    pub(super) fn insert(&mut self, member: MemberId) {
        if member == self.me {
            return;
        }
        for (ring, after) in self.after.iter_mut().enumerate() {
            let distance = position(ring, member).wrapping_sub(position(ring, self.me));
            let entry = (distance, member);
            if after.len() == RINGS && after.last().is_some_and(|last| *last < entry) {
                continue;
            }
            if let Err(at) = after.binary_search(&entry) {
                after.insert(at, entry);
                after.truncate(RINGS);
            }
        }
    }

    /// A member is gone from the rings. `others`: all that still stand there.
    pub(super) fn remove(&mut self, member: MemberId, others: impl Iterator<Item = MemberId>) {
        if self.after.iter().flatten().any(|(_, near)| *near == member) {
            self.after.iter_mut().for_each(Vec::clear);
            others.filter(|other| *other != member).for_each(|other| self.insert(other));
        }
    }

    /// Those we watch: the next on each ring whom no earlier ring gave us.
    pub(super) fn watched(&self) -> Vec<MemberId> {
        let mut picks = Vec::with_capacity(RINGS);
        for after in &self.after {
            let next = after.iter().map(|(_, member)| *member).find(|m| !picks.contains(m));
            picks.extend(next);
        }
        picks
    }
}

fn position(ring: usize, member: MemberId) -> u64 {
    let (first, second) = member.halves();
    let turn = (ring as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mix(mix(first ^ turn) ^ second)
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use volvox_protocol::random::SplitMix;

    use super::*;

    fn members(count: usize) -> Vec<MemberId> {
        let mut random = SplitMix(7);
        let mut id = || (u128::from(random.next()) << 64 | u128::from(random.next())).to_le_bytes();
        (0..count).map(|_| MemberId(id())).collect()
    }

    fn rings_of(me: MemberId, all: &[MemberId]) -> Rings {
        let mut rings = Rings::new(me);
        all.iter().filter(|other| **other != me).for_each(|other| rings.insert(*other));
        rings
    }

    #[test]
    fn everybody_is_watched_and_everybody_is_reached() {
        for count in [2, 3, 5, 6, 20, 500] {
            let all = members(count);
            let watches: BTreeMap<_, _> =
                all.iter().map(|me| (*me, rings_of(*me, &all).watched())).collect();
            let watched: BTreeSet<_> = watches.values().flatten().copied().collect();
            assert_eq!(watched.len(), count, "of {count} some are watched by nobody");
            assert!(watches.values().all(|picks| picks.len() == RINGS.min(count - 1)));
            let mut reached = BTreeSet::from([all[0]]);
            let mut edge = vec![all[0]];
            let mut steps = 0;
            while !edge.is_empty() {
                edge = edge.iter().flat_map(|m| watches[m].clone()).collect();
                edge.retain(|member| reached.insert(*member));
                steps += 1;
            }
            assert_eq!(reached.len(), count);
            assert!(steps <= 9, "{steps} steps among {count}");
        }
    }

    #[test]
    fn a_leaf_has_the_same_peers_whoever_counts_and_loses_only_who_is_gone() {
        let mut all = members(300);
        let leaf = all.pop().unwrap();
        let peers = leaf_peers(leaf, all.iter().copied(), LEAF_PEERS);
        let more = leaf_peers(leaf, all.iter().rev().copied(), LEAF_CANDIDATES);
        assert_eq!((peers.len(), &more[..LEAF_PEERS]), (LEAF_PEERS, &peers[..]));
        let rest = all.iter().copied().filter(|cell| *cell != peers[0]);
        assert_eq!(leaf_peers(leaf, rest, LEAF_PEERS), more[1..=LEAF_PEERS]);
        assert_eq!(leaf_peers(leaf, all[..1].iter().copied(), LEAF_PEERS), all[..1]);
    }

    #[test]
    fn rings_do_not_depend_on_the_order_of_arrival_and_mend_themselves() {
        let mut all = members(60);
        let me = all[0];
        let rings = rings_of(me, &all);
        all.reverse();
        assert_eq!(rings_of(me, &all).watched(), rings.watched());
        for gone in rings.watched() {
            let mut mended = rings_of(me, &all);
            mended.remove(gone, all.iter().copied().filter(|other| *other != me));
            let rest: Vec<_> = all.iter().copied().filter(|other| *other != gone).collect();
            assert_eq!(mended.watched(), rings_of(me, &rest).watched());
        }
    }
}
