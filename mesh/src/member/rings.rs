//! Who is whose neighbour. Every member has a place on [`RINGS`] rings, in an order of its own on
//! each (a hash of its id). Its neighbours are the next and the previous member on each ring: four,
//! or all in a smaller mesh. Neighbours probe each other and pass gossip on to each other.
//!
//! So all members reach each other along the rings in a few steps, and a change moves only the links
//! around it: connections are few and old, which is where the bytes of an idle mesh would be. Two
//! members with the same knowledge compute the same rings.
//!
//! Members of the version before foca have another rule: four rings, and they watch only the next
//! member on each. A pair of which one is older follows the older rule, so everybody is watched while
//! a mesh is upgraded.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::random::mix;

use crate::identity::MemberId;

/// Rings on which neighbours are found.
pub const RINGS: usize = 2;

/// Neighbours of a member, at most: two on each ring.
pub const NEIGHBOURS: usize = 2 * RINGS;

/// Rings of the version before foca, whose members watch only the next one on each.
const OLDER_RINGS: usize = 4;

/// Members that are kept for each ring and direction: one more than neighbours, which tells whether
/// there are more members than that.
const KEPT: usize = NEIGHBOURS + 1;

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

/// The neighbours of another member, among all that are on the rings.
pub(super) fn neighbours_of(
    member: MemberId,
    all: impl Iterator<Item = MemberId>,
) -> Vec<MemberId> {
    let mut rings = Rings::new(member);
    all.for_each(|other| rings.insert(other));
    rings.neighbours()
}

/// The nearest members on each ring.
#[derive(Debug)]
pub(super) struct Rings {
    me: MemberId,
    /// After us, the nearest first.
    after: [Vec<(u64, MemberId)>; OLDER_RINGS],
    /// Before us, the nearest first.
    before: [Vec<(u64, MemberId)>; RINGS],
}

impl Rings {
    pub(super) fn new(me: MemberId) -> Rings {
        Rings { me, after: Default::default(), before: Default::default() }
    }

    /// A member is on the rings now.
    pub(super) fn insert(&mut self, member: MemberId) {
        if member == self.me {
            return;
        }
        let distance = |ring| position(ring, member).wrapping_sub(position(ring, self.me));
        for (ring, after) in self.after.iter_mut().enumerate() {
            keep_nearest(after, (distance(ring), member));
        }
        for (ring, before) in self.before.iter_mut().enumerate() {
            keep_nearest(before, (distance(ring).wrapping_neg(), member));
        }
    }

    /// A member is not on the rings any more. `others`: all that still are.
    pub(super) fn remove(&mut self, member: MemberId, others: impl Iterator<Item = MemberId>) {
        let mut near = self.after.iter().chain(&self.before).flatten();
        if near.any(|(_, near)| *near == member) {
            self.after.iter_mut().chain(&mut self.before).for_each(Vec::clear);
            others.filter(|other| *other != member).for_each(|other| self.insert(other));
        }
    }

    /// The neighbours: the next and the previous member on each ring. The relation is mutual. In a
    /// mesh so small that all fit, everybody is.
    pub(super) fn neighbours(&self) -> Vec<MemberId> {
        let all = &self.after[0];
        if all.len() <= NEIGHBOURS {
            return all.iter().map(|(_, member)| *member).collect();
        }
        let mut picks = Vec::with_capacity(NEIGHBOURS);
        for near in self.after.iter().take(RINGS).chain(&self.before) {
            picks.extend(near.first().map(|(_, member)| *member).filter(|m| !picks.contains(m)));
        }
        picks
    }

    /// Those that a member of the older version watches: the next on each of its rings that no
    /// earlier ring gave it.
    pub(super) fn watched_by_older(&self) -> Vec<MemberId> {
        let mut picks = Vec::with_capacity(OLDER_RINGS);
        for after in &self.after {
            let next = after.iter().map(|(_, member)| *member).find(|m| !picks.contains(m));
            picks.extend(next);
        }
        picks
    }
}

fn keep_nearest(near: &mut Vec<(u64, MemberId)>, entry: (u64, MemberId)) {
    if near.len() == KEPT && near.last().is_some_and(|last| *last < entry) {
        return;
    }
    if let Err(at) = near.binary_search(&entry) {
        near.insert(at, entry);
        near.truncate(KEPT);
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

    /// From the first on, along the links that `watches` names: all are reached, in how many steps.
    fn steps_to_all(all: &[MemberId], watches: &BTreeMap<MemberId, Vec<MemberId>>) -> usize {
        let mut reached = BTreeSet::from([all[0]]);
        let mut edge = vec![all[0]];
        let mut steps = 0;
        while !edge.is_empty() {
            edge = edge.iter().flat_map(|m| watches[m].clone()).collect();
            edge.retain(|member| reached.insert(*member));
            steps += 1;
        }
        assert_eq!(reached.len(), all.len());
        steps
    }

    #[test]
    fn everybody_is_watched_and_everybody_is_reached() {
        for count in [2, 3, 5, 6, 20, 500, 5_000] {
            let all = members(count);
            let neighbours: BTreeMap<_, _> =
                all.iter().map(|me| (*me, rings_of(*me, &all).neighbours())).collect();
            for (me, theirs) in &neighbours {
                assert!(theirs.len() >= RINGS.min(count - 1) && theirs.len() <= NEIGHBOURS);
                assert!(theirs.iter().all(|other| neighbours[other].contains(me)), "mutual");
            }
            let full = neighbours.values().filter(|n| n.len() == NEIGHBOURS.min(count - 1));
            let full = full.count();
            assert!(count < 20 || full * 10 >= count * 6, "{full} of {count} have four");
            let steps = steps_to_all(&all, &neighbours);
            assert!(steps <= 11, "{steps} steps among {count}");
        }
    }

    /// In any order of upgrades each member is watched, and gossip reaches all.
    #[test]
    fn in_a_mesh_of_two_versions_everybody_is_watched_and_reached() {
        for (count, older) in [(2, 1), (3, 1), (6, 3), (40, 1), (40, 20), (40, 39), (400, 200)] {
            let all = members(count);
            let is_older = |member: &MemberId| all[..older].contains(member);
            let watches: BTreeMap<MemberId, Vec<MemberId>> = all
                .iter()
                .map(|me| {
                    let rings = rings_of(*me, &all);
                    let mut watched = rings.watched_by_older();
                    if !is_older(me) {
                        watched.retain(is_older);
                        watched.extend(rings.neighbours().into_iter().filter(|m| !is_older(m)));
                    }
                    (*me, watched)
                })
                .collect();
            for member in &all {
                let by = watches.values().filter(|watched| watched.contains(member)).count();
                assert!(by >= 2.min(count - 1), "{by} watch one of {count}, {older} older");
            }
            steps_to_all(&all, &watches);
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
    fn rings_do_not_depend_on_the_order_of_arrival_and_close_again() {
        let mut all = members(60);
        let me = all[0];
        let rings = rings_of(me, &all);
        all.reverse();
        assert_eq!(rings_of(me, &all).neighbours(), rings.neighbours());
        for gone in rings.neighbours() {
            let mut mended = rings_of(me, &all);
            mended.remove(gone, all.iter().copied().filter(|other| *other != me));
            let rest: Vec<_> = all.iter().copied().filter(|other| *other != gone).collect();
            assert_eq!(mended.neighbours(), rings_of(me, &rest).neighbours());
        }
    }
}
