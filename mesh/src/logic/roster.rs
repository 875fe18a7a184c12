//! All that a member knows of all members, with digests by which two of them compare it.
//!
//! Decides nothing: what is put in here was checked before.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use volvox_protocol::random::mix;

use crate::identity::{Holder, Kind, MemberId};
use crate::message::{BUCKETS, Holding, Roots, Scope};
use crate::record::{Card, Record, Topic, Version};

/// What we hold a member to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Standing {
    /// Heard of; its certificate or its card is not here yet.
    #[default]
    Unproven,
    /// There.
    Present,
    /// Accused, and it did not answer; or it said goodbye.
    Missing,
}

/// One member, as known here. Ten thousand of these stand in every member, so it is small.
#[derive(Debug, Default)]
pub(super) struct Subject {
    holder: Option<Arc<Holder>>,
    certificate: Option<Arc<Record>>,
    card: Option<Arc<Record>>,
    info: Option<Arc<Record>>,
    load: Option<Arc<Record>>,
    standing: Standing,
}

impl Subject {
    pub(super) fn holder(&self) -> Option<&Arc<Holder>> {
        self.holder.as_ref()
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) fn card(&self) -> Option<&Card> {
        self.card.as_ref().and_then(|record| record.card())
    }

    pub(super) fn card_version(&self) -> Version {
        self.card.as_ref().map(|record| record.version).unwrap_or_default()
    }

    pub(super) fn is_coordinator(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.kind == Kind::Coordinator)
    }

    /// Whether it stands on the rings.
    pub(super) fn is_on_rings(&self) -> bool {
        self.standing == Standing::Present && self.card().is_some_and(|card| !card.leaf)
    }
}

/// The table.
#[derive(Debug)]
pub(super) struct Roster {
    /// By parts, and in order within each: a lookup looks at few places of a large table, and a
    /// comparison of one part at that part alone.
    parts: Vec<Vec<(MemberId, Subject)>>,
    len: usize,
    revocations: BTreeMap<MemberId, Arc<Record>>,
    standing: [u64; BUCKETS],
    load: [u64; BUCKETS],
    roots: Roots,
    present: usize,
}

impl Roster {
    pub(super) fn new() -> Roster {
        Roster {
            parts: (0..BUCKETS).map(|_| Vec::new()).collect(),
            len: 0,
            revocations: BTreeMap::new(),
            standing: [0; BUCKETS],
            load: [0; BUCKETS],
            roots: Roots::default(),
            present: 0,
        }
    }

    pub(super) fn get(&self, member: MemberId) -> Option<&Subject> {
        let part = &self.parts[bucket_of(member)];
        let place = part.binary_search_by_key(&key(member), |(known, _)| key(*known)).ok()?;
        Some(&part[place].1)
    }

    /// The entry of a member, made if there is none.
    fn entry(&mut self, member: MemberId) -> &mut Subject {
        let part = &mut self.parts[bucket_of(member)];
        let place = part.binary_search_by_key(&key(member), |(known, _)| key(*known));
        let place = place.unwrap_or_else(|place| {
            // Less than doubling: most of what a large mesh takes in memory stands here.
            if part.len() == part.capacity() {
                part.reserve_exact(4 + part.len() / 8);
            }
            part.insert(place, (member, Subject::default()));
            self.len += 1;
            place
        });
        &mut part[place].1
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (MemberId, &Subject)> {
        self.parts.iter().flatten().map(|(member, subject)| (*member, subject))
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

    pub(super) fn standing(&self, member: MemberId) -> Standing {
        self.get(member).map(Subject::standing).unwrap_or_default()
    }

    pub(super) fn record(&self, member: MemberId, topic: Topic) -> Option<&Arc<Record>> {
        let subject = self.get(member);
        match topic {
            Topic::Certificate => subject?.certificate.as_ref(),
            Topic::Card => subject?.card.as_ref(),
            Topic::Info => subject?.info.as_ref(),
            Topic::Load => subject?.load.as_ref(),
            Topic::Revocations => self.revocations.get(&member),
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
    pub(super) fn put(&mut self, record: Arc<Record>, holder: Option<Arc<Holder>>) {
        let (member, topic) = (record.subject, record.topic);
        let old = self.version(member, topic).map_or(0, |version| digest(member, topic, version));
        let change = old ^ digest(member, topic, record.version);
        self.toggle(member, topic, change);
        let subject = self.entry(member);
        match topic {
            Topic::Certificate => {
                subject.certificate = Some(record);
                subject.holder = holder;
            }
            Topic::Card => subject.card = Some(record),
            Topic::Info => subject.info = Some(record),
            Topic::Load => subject.load = Some(record),
            Topic::Revocations => {
                self.revocations.insert(member, record);
            }
        }
    }

    /// Changes what we hold a member to be. To be called before a newer card is put in, too: the
    /// digest of "missing" names the card.
    pub(super) fn set_standing(&mut self, member: MemberId, standing: Standing) {
        let subject = self.entry(member);
        let old = std::mem::replace(&mut subject.standing, standing);
        let mark = missing_mark(member, subject.card_version());
        self.present += usize::from(standing == Standing::Present);
        self.present -= usize::from(old == Standing::Present);
        if (old == Standing::Missing) != (standing == Standing::Missing) {
            self.toggle(member, Topic::Card, mark);
        }
    }

    /// Forgets a member wholly.
    pub(super) fn remove(&mut self, member: MemberId) {
        self.set_standing(member, Standing::Unproven);
        for topic in Topic::ALL {
            if let Some(version) = self.version(member, topic) {
                self.toggle(member, topic, digest(member, topic, version));
            }
        }
        let part = &mut self.parts[bucket_of(member)];
        if let Ok(place) = part.binary_search_by_key(&key(member), |(known, _)| key(*known)) {
            part.remove(place);
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
            Scope::Standing | Scope::Coordinators => &self.standing,
            Scope::Load => &self.load,
        }
    }

    /// What we have of one member that belongs to `scope`.
    pub(super) fn holding(&self, member: MemberId, scope: Scope) -> Holding {
        let versions = topics(scope).iter();
        let versions = versions.filter_map(|t| Some((*t, self.version(member, *t)?))).collect();
        let missing = scope != Scope::Load && self.standing(member) == Standing::Missing;
        Holding { subject: member, versions, missing }
    }

    /// The members of one part.
    pub(super) fn members_of(&self, bucket: usize) -> impl Iterator<Item = MemberId> {
        self.parts[bucket].iter().map(|(member, _)| *member)
    }

    fn toggle(&mut self, member: MemberId, topic: Topic, change: u64) {
        let bucket = bucket_of(member);
        if topic == Topic::Load {
            self.load[bucket] ^= change;
            self.roots.load ^= change;
        } else {
            self.standing[bucket] ^= change;
            self.roots.standing ^= change;
        }
    }
}

/// The topics that belong to a comparison.
pub(super) const fn topics(scope: Scope) -> &'static [Topic] {
    match scope {
        Scope::Standing => &[Topic::Certificate, Topic::Card, Topic::Info, Topic::Revocations],
        Scope::Load => &[Topic::Load],
        Scope::Coordinators => &[Topic::Certificate, Topic::Card, Topic::Revocations],
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

fn missing_mark(member: MemberId, card: Version) -> u64 {
    mix(digest(member, Topic::Card, card) ^ 0x6d69_7373_696e_6721)
}
