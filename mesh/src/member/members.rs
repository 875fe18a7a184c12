//! All that a member knows of all members, with digests by which two of them compare it.
//!
//! Decides nothing: what is put in here was checked before.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use volvox_protocol::random::mix;

use crate::identity::{MemberId, MemberIdentity, MemberKind};
use crate::message::{BUCKETS, HeldVersions, Roots, Scope, Versions};
use crate::record::{AliveRecord, Record, Topic, Version};

/// What we hold a member to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemberState {
    /// Known by name; its certificate or its alive record is not here yet.
    #[default]
    Unproven,
    /// There.
    Present,
    /// Suspected, and it did not refute; or it sent a leave message.
    Missing,
}

/// One member, as known here. Ten thousand of these stand in every member, so it is small.
#[derive(Debug, Default)]
pub(super) struct MemberEntry {
    identity: Option<Arc<MemberIdentity>>,
    certificate: Option<Arc<Record>>,
    alive: Option<Arc<Record>>,
    info: Option<Arc<Record>>,
    load: Option<Arc<Record>>,
    state: MemberState,
}

impl MemberEntry {
    pub(super) fn identity(&self) -> Option<&Arc<MemberIdentity>> {
        self.identity.as_ref()
    }

    pub(super) fn state(&self) -> MemberState {
        self.state
    }

    pub(super) fn alive(&self) -> Option<&AliveRecord> {
        self.alive.as_ref().and_then(|record| record.alive())
    }

    pub(super) fn alive_version(&self) -> Version {
        self.alive.as_ref().map(|record| record.version).unwrap_or_default()
    }

    /// The newest on a topic. Revocations stand elsewhere: few have any.
    fn record(&self, topic: Topic) -> Option<&Arc<Record>> {
        match topic {
            Topic::Certificate => self.certificate.as_ref(),
            Topic::Alive => self.alive.as_ref(),
            Topic::Info => self.info.as_ref(),
            Topic::Load => self.load.as_ref(),
            Topic::Revocations => None,
        }
    }

    pub(super) fn is_coordinator(&self) -> bool {
        self.identity.as_ref().is_some_and(|identity| identity.kind == MemberKind::Coordinator)
    }

    /// Whether it stands on the rings.
    pub(super) fn is_on_rings(&self) -> bool {
        self.state == MemberState::Present && self.alive().is_some_and(|alive| !alive.leaf)
    }
}

/// The members whose ids begin with the same six bits, in the order of their ids.
///
/// The ids stand apart from what is known: a large table lies far from the processor, and a lookup
/// should touch little of it. Ids are drawn evenly by the authority, so the place of one can be
/// guessed from its bits to within a few.
#[derive(Debug, Default)]
struct TableShard {
    ids: Vec<MemberId>,
    subjects: Vec<MemberEntry>,
}

impl TableShard {
    /// The place of a member, or where it would stand.
    fn place(&self, member: MemberId) -> Result<usize, usize> {
        let (ids, wanted) = (&self.ids, key(member));
        // The sixteen bits after those that all of this part have in common.
        let share = u16::try_from((wanted << 6) >> 112).map_or(0, usize::from);
        let guess = (share * ids.len()) >> 16;
        // From the guess on in steps that double, until the id is between two of them.
        let (mut from, mut to, mut step) = (guess, guess, 2);
        while from > 0 && wanted < key(ids[from]) {
            to = from;
            from = from.saturating_sub(step);
            step *= 2;
        }
        while to < ids.len() && key(ids[to]) <= wanted {
            from = to;
            to = (to + step).min(ids.len());
            step *= 2;
        }
        let found = ids[from..to].binary_search_by_key(&wanted, |known| key(*known));
        found.map(|place| place + from).map_err(|place| place + from)
    }

    fn get(&self, member: MemberId) -> Option<&MemberEntry> {
        Some(&self.subjects[self.place(member).ok()?])
    }

    fn insert(&mut self, place: usize, member: MemberId) {
        // Less than doubling: most of what a large mesh takes in memory stands here.
        if self.ids.len() == self.ids.capacity() {
            let more = 4 + self.ids.len() / 8;
            self.ids.reserve_exact(more);
            self.subjects.reserve_exact(more);
        }
        self.ids.insert(place, member);
        self.subjects.insert(place, MemberEntry::default());
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct MemberTable {
    /// A comparison of one part looks at that part alone.
    parts: Vec<TableShard>,
    len: usize,
    revocations: BTreeMap<MemberId, Arc<Record>>,
    membership: [u64; BUCKETS],
    load: [u64; BUCKETS],
    roots: Roots,
    present: usize,
}

impl MemberTable {
    pub(super) fn new() -> MemberTable {
        MemberTable {
            parts: (0..BUCKETS).map(|_| TableShard::default()).collect(),
            len: 0,
            revocations: BTreeMap::new(),
            membership: [0; BUCKETS],
            load: [0; BUCKETS],
            roots: Roots::default(),
            present: 0,
        }
    }

    pub(super) fn get(&self, member: MemberId) -> Option<&MemberEntry> {
        self.parts[bucket_of(member)].get(member)
    }

    /// The entry of a member, made if there is none.
    fn entry(&mut self, member: MemberId) -> &mut MemberEntry {
        let part = &mut self.parts[bucket_of(member)];
        let place = part.place(member).unwrap_or_else(|place| {
            part.insert(place, member);
            self.len += 1;
            place
        });
        &mut part.subjects[place]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberId, &MemberEntry)> {
        self.parts.iter().flat_map(|part| part.ids.iter().copied().zip(&part.subjects))
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// How many are present.
    pub(super) fn present(&self) -> usize {
        self.present
    }

    pub(super) fn on_rings(&self) -> impl Iterator<Item = MemberId> {
        self.iter().filter(|(_, subject)| subject.is_on_rings()).map(|(member, _)| member)
    }

    pub(super) fn state(&self, member: MemberId) -> MemberState {
        self.get(member).map(MemberEntry::state).unwrap_or_default()
    }

    pub(super) fn record(&self, member: MemberId, topic: Topic) -> Option<&Arc<Record>> {
        match topic {
            Topic::Revocations => self.revocations.get(&member),
            Topic::Certificate | Topic::Alive | Topic::Info | Topic::Load => {
                self.get(member)?.record(topic)
            }
        }
    }

    /// The lists of all coordinators.
    pub(super) fn revocations(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.revocations.values()
    }

    pub(super) fn version(&self, member: MemberId, topic: Topic) -> Option<Version> {
        self.record(member, topic).map(|record| record.version)
    }

    /// Puts a record in the place of an older one. A certificate comes with whom it names.
    pub(super) fn put(&mut self, record: Arc<Record>, identity: Option<Arc<MemberIdentity>>) {
        let (member, topic) = (record.subject, record.topic);
        let new = digest(member, topic, record.version);
        let subject = self.entry(member);
        let old = match topic {
            Topic::Certificate => {
                subject.identity = identity;
                subject.certificate.replace(record)
            }
            Topic::Alive => subject.alive.replace(record),
            Topic::Info => subject.info.replace(record),
            Topic::Load => subject.load.replace(record),
            Topic::Revocations => self.revocations.insert(member, record),
        };
        let old = old.map_or(0, |old| digest(member, topic, old.version));
        self.toggle(member, topic, old ^ new);
    }

    /// Changes what we hold a member to be. To be called before a newer alive record is put in, too: the
    /// digest of "missing" names that record.
    pub(super) fn set_state(&mut self, member: MemberId, state: MemberState) {
        let subject = self.entry(member);
        let old = std::mem::replace(&mut subject.state, state);
        let mark = missing_mark(member, subject.alive_version());
        self.present += usize::from(state == MemberState::Present);
        self.present -= usize::from(old == MemberState::Present);
        if (old == MemberState::Missing) != (state == MemberState::Missing) {
            self.toggle(member, Topic::Alive, mark);
        }
    }

    /// Forgets a member wholly.
    pub(super) fn remove(&mut self, member: MemberId) {
        self.set_state(member, MemberState::Unproven);
        for topic in Topic::ALL {
            if let Some(version) = self.version(member, topic) {
                self.toggle(member, topic, digest(member, topic, version));
            }
        }
        let part = &mut self.parts[bucket_of(member)];
        if let Ok(place) = part.place(member) {
            part.ids.remove(place);
            part.subjects.remove(place);
            self.len -= 1;
        }
        self.revocations.remove(&member);
    }

    pub(super) fn roots(&self) -> Roots {
        self.roots
    }

    /// The digests of the parts. Empty when there is nothing: short for a newcomer.
    pub(super) fn buckets(&self, scope: Scope) -> Vec<u64> {
        let buckets = self.digests(scope);
        if buckets.iter().all(|digest| *digest == 0) { Vec::new() } else { buckets.to_vec() }
    }

    pub(super) fn digests(&self, scope: Scope) -> &[u64; BUCKETS] {
        match scope {
            Scope::Membership | Scope::Coordinators => &self.membership,
            Scope::Load => &self.load,
        }
    }

    /// What we have of one member that belongs to `scope`.
    pub(super) fn holding(&self, member: MemberId, scope: Scope) -> HeldVersions {
        match self.get(member) {
            Some(subject) => self.holding_of(member, subject, scope),
            None => HeldVersions { subject: member, versions: Versions::default(), missing: false },
        }
    }

    fn holding_of(&self, member: MemberId, subject: &MemberEntry, scope: Scope) -> HeldVersions {
        let versions = topics(scope).iter().filter_map(|topic| {
            let record = match topic {
                Topic::Revocations => self.revocations.get(&member),
                Topic::Certificate | Topic::Alive | Topic::Info | Topic::Load => {
                    subject.record(*topic)
                }
            };
            Some((*topic, record?.version))
        });
        let versions = versions.collect();
        let missing = scope == Scope::Membership && subject.state == MemberState::Missing;
        HeldVersions { subject: member, versions, missing }
    }

    /// What we have of all members of one part, in the order of their ids.
    pub(super) fn holdings(
        &self,
        bucket: usize,
        scope: Scope,
    ) -> impl Iterator<Item = HeldVersions> {
        let part = &self.parts[bucket];
        let all = part.ids.iter().zip(&part.subjects);
        all.map(move |(member, subject)| self.holding_of(*member, subject, scope))
    }

    /// The members of one part.
    pub(super) fn members_of(&self, bucket: usize) -> impl Iterator<Item = MemberId> {
        self.parts[bucket].ids.iter().copied()
    }

    fn toggle(&mut self, member: MemberId, topic: Topic, change: u64) {
        let bucket = bucket_of(member);
        if topic == Topic::Load {
            self.load[bucket] ^= change;
            self.roots.load ^= change;
        } else {
            self.membership[bucket] ^= change;
            self.roots.membership ^= change;
        }
    }
}

/// The topics that belong to a comparison.
pub(super) const fn topics(scope: Scope) -> &'static [Topic] {
    match scope {
        Scope::Membership => &[Topic::Certificate, Topic::Alive, Topic::Info, Topic::Revocations],
        Scope::Load => &[Topic::Load],
        Scope::Coordinators => &[Topic::Certificate, Topic::Alive, Topic::Revocations],
    }
}

/// Orders ids as their bytes do, in one comparison.
const fn key(member: MemberId) -> u128 {
    u128::from_be_bytes(member.0)
}

/// The part that a member belongs to: by its first six bits.
pub(super) const fn bucket_of(member: MemberId) -> usize {
    (member.0[0] >> 2) as usize
}

fn digest(member: MemberId, topic: Topic, version: Version) -> u64 {
    let (first, second) = member.halves();
    let about = u64::from(version.count) << 8 | u64::from(topic.bit());
    mix(mix(mix(first ^ about) ^ second) ^ version.generation)
}

fn missing_mark(member: MemberId, alive: Version) -> u64 {
    mix(digest(member, Topic::Alive, alive) ^ 0x6d69_7373_696e_6721)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use volvox_protocol::random::SplitMix;

    use super::*;
    use crate::identity::Signature;
    use crate::record::{Content, Version};

    fn id(random: &mut SplitMix, spread: u32) -> MemberId {
        // Few bits that differ: ids that stand close together, as no authority draws them.
        let id = u128::from(random.next()) << 64 | u128::from(random.next());
        MemberId((id >> spread).to_be_bytes())
    }

    fn record(member: MemberId, count: u32) -> Arc<Record> {
        let version = Version { generation: 1, count };
        let (body, content) = (Box::default(), Content::Certificate);
        let (topic, signature) = (Topic::Alive, Signature::NONE);
        Arc::new(Record { subject: member, topic, version, body, content, signature })
    }

    /// Against a plain map, whatever the ids are like: what is in, in which order, and the digests.
    #[test]
    fn the_table_holds_what_was_put_in_wherever_the_ids_lie() {
        for (seed, spread) in [(1, 0), (2, 3), (3, 40), (4, 70), (5, 110), (6, 120)] {
            let mut random = SplitMix(seed);
            let (mut members, mut model) = (MemberTable::new(), BTreeMap::new());
            for count in 0..3_000 {
                let member = id(&mut random, spread);
                if random.once_in(4) {
                    members.remove(member);
                    model.remove(&member);
                } else {
                    members.put(record(member, count), None);
                    model.insert(member, count);
                }
                let other = id(&mut random, spread);
                let known = members.version(other, Topic::Alive).map(|version| version.count);
                assert_eq!(known, model.get(&other).copied());
            }
            let all: Vec<MemberId> = members.iter().map(|(member, _)| member).collect();
            assert_eq!(all, model.keys().copied().collect::<Vec<_>>(), "spread {spread}");
            assert_eq!(members.len(), model.len());
            let mut afresh = MemberTable::new();
            model.iter().for_each(|(member, count)| afresh.put(record(*member, *count), None));
            assert_eq!(members.roots(), afresh.roots());
        }
    }
}
