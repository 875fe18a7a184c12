//! What is believed of what is said: records of others, and of ourselves.
//!
//! Everything that is kept here is signed by its subject, newer than what was known, and within
//! what the subject may speak of. A copy that is not new costs a look into the table, nothing more:
//! signatures are checked once.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::time::Timestamp;

use super::probe::Probes;
use super::revocation::revoked_by;
use super::swim::Proven;
use super::{
    Delivery, MEMBERS, Member, MemberEvent, MemberOutput, MemberState, RemovedMember,
    is_coordinator, issued_ms,
};
use crate::identity::{Authenticator, MemberId, MemberIdentity};
use crate::message::Message;
use crate::record::{Content, Item, Record, Topic};

/// The least time between two alive records that a reunion calls for.
const SPEAK_UP: Duration = Duration::from_secs(10);

/// Forgeries in one message after which the rest is not looked at, and the link ends: who passes news on
/// has checked it, and each check costs us time. A link has a budget of them, too.
const FORGERIES: u32 = 8;

/// The least time between two new lives that a record of an older one forces on us. Two machines
/// with one key would otherwise outbid each other without end.
const REBIRTH: Duration = Duration::from_secs(10);

impl<N: Authenticator> Member<N> {
    pub(super) fn hear_all(&mut self, now: Timestamp, from: MemberId, items: Vec<Item>) {
        let mut forgeries = 0;
        for item in items {
            let before = self.refused.forged + self.refused.certificates;
            match item {
                Item::Record(record) => self.hear_record(now, from, record),
                Item::Suspicion(suspicion) => self.ingest_suspicion(now, from, suspicion),
            }
            if self.refused.forged + self.refused.certificates == before {
                continue;
            }
            forgeries += 1;
            let link = self.links.get_mut(&from);
            let is_within = link.is_none_or(|link| link.forgeries.take(now, 1));
            if forgeries >= FORGERIES || !is_within {
                self.out.push(MemberOutput::Close { peer: from });
                return;
            }
        }
    }

    fn hear_record(&mut self, now: Timestamp, from: MemberId, record: Arc<Record>) {
        let subject = record.subject;
        if subject == self.me.member {
            self.hear_of_ourselves(now, record);
            return;
        }
        if self.revoked.contains_key(&subject) {
            self.refused.strangers += 1;
            return;
        }
        let known = self.members.version(subject, record.topic);
        if let Some(known) = known.filter(|known| *known >= record.version) {
            self.refused.stale += u64::from(known > record.version);
            return;
        }
        if record.topic == Topic::Certificate {
            self.hear_certificate(now, Some(from), record);
            return;
        }
        let forgotten = self.forgotten.get(&subject);
        if forgotten.is_some_and(|f| record.topic != Topic::Alive || record.version <= f.alive) {
            self.refused.stale += 1;
            return;
        }
        // A check costs us time, and a member could sign new versions without end.
        if subject == from
            && let Some(link) = self.links.get_mut(&from)
            && !link.words.take(now, 1)
        {
            self.refused.excessive += 1;
            return;
        }
        let identity = self.members.get(subject).and_then(|s| s.identity().cloned());
        let Some(identity) = identity.or(forgotten.map(|f| f.identity.clone())) else {
            self.want(now, from, subject);
            return;
        };
        if !may_say(&identity, &record.content) {
            self.refused.misreported += 1;
            return;
        }
        if identity.not_after < now {
            self.refused.certificates += 1;
            return;
        }
        if !record.is_signed_by(&self.authenticator, &identity) {
            self.refused.forged += 1;
            return;
        }
        match record.topic {
            Topic::Alive => self.take_alive(now, from, record, identity),
            Topic::Revocations => self.take_revocations(now, from, record),
            Topic::Info | Topic::Load => {
                self.members.put(record.clone(), None);
                self.tell(MemberEvent::Published(record.clone()));
                self.enqueue(now, Item::Record(record), Some(from));
            }
            Topic::Certificate => {}
        }
    }

    /// Takes in a certificate: from its holder's own link, or passed on.
    pub(super) fn hear_certificate(
        &mut self,
        now: Timestamp,
        from: Option<MemberId>,
        record: Arc<Record>,
    ) {
        let Ok(identity) = self.authenticator.identity(now, &record.body) else {
            self.refused.certificates += 1;
            return;
        };
        let is_the_one = identity.member == record.subject
            && issued_ms(&identity) == record.version.generation
            && record.version.count == 0;
        if !is_the_one {
            self.refused.certificates += 1;
            return;
        }
        if let Some(forgotten) = self.forgotten.get_mut(&identity.member) {
            // It is back when it has said something, and not when others tell of it.
            if forgotten.certificate.version < record.version {
                *forgotten = RemovedMember { certificate: record, identity, ..*forgotten };
            }
            return;
        }
        if self.members.get(identity.member).is_none() && self.members.len() >= MEMBERS {
            self.refused.excessive += 1;
            return;
        }
        if is_coordinator(&identity) {
            self.coordinator_ids.insert(identity.member);
        } else {
            self.coordinator_ids.remove(&identity.member);
        }
        self.members.put(record.clone(), Some(identity));
        self.enqueue(now, Item::Record(record), from);
    }

    fn take_alive(
        &mut self,
        now: Timestamp,
        from: MemberId,
        record: Arc<Record>,
        identity: Arc<MemberIdentity>,
    ) {
        let member = record.subject;
        let Some(alive) = record.alive().copied() else { return };
        let before = self.members.state(member);
        let last = self.members.version(member, Topic::Alive).unwrap_or_default();
        let last_address =
            self.members.get(member).and_then(|s| s.alive()).map(|alive| alive.address);
        self.clear_suspicions(now, member);
        self.missing_since.remove(&member);
        if let Some(forgotten) = self.forgotten.remove(&member) {
            if forgotten.alive.generation == record.version.generation {
                self.speak_up(now);
            }
            self.hear_certificate(now, Some(from), forgotten.certificate);
        }
        if before == MemberState::Missing {
            self.members.set_state(member, MemberState::Unproven);
        }
        self.members.put(record.clone(), None);
        let proven = Proven { member, alive: record.version };
        let Probes { neighbourhood, health, .. } = &mut self.probes;
        neighbourhood.set_alive(now, health, proven, false);
        self.probes.trust_again(member);
        if alive.left {
            self.members.set_state(member, MemberState::Missing);
            self.missing_since.insert(member, now);
            if before == MemberState::Present {
                self.tell(MemberEvent::Missing { identity, left: true });
            }
        } else {
            self.members.set_state(member, MemberState::Present);
            let generation = record.version.generation;
            let address = alive.address;
            let is_elsewhere = last_address != Some(address);
            if generation != last.generation || is_elsewhere {
                self.dial_soon(now, member);
            }
            if generation != last.generation && from != member && self.is_linked(member) {
                // The link may be one to its earlier process. A ping shows it: the new process
                // answers that it does not know the connection.
                self.probe(now, member);
            }
            if is_coordinator(&identity) {
                self.tell_leaves(&record);
            }
            if before != MemberState::Present || generation != last.generation || is_elsewhere {
                self.tell(MemberEvent::Present { identity, generation, address });
            }
        }
        self.place_on_rings(member, !alive.left && !alive.leaf);
        self.timers.links = now;
        self.enqueue(now, Item::Record(record), Some(from));
    }

    /// One whom we forgot is there again, in the life that we knew: we were apart, and its side may have
    /// forgotten us. Only a newer alive record of ours brings us back there.
    pub(super) fn speak_up(&mut self, now: Timestamp) {
        if now.since(self.own.refuted) >= SPEAK_UP {
            let at = now + self.jittered(Duration::from_secs(1));
            self.timers.refute = self.timers.refute.min(at);
        }
    }

    pub(super) fn place_on_rings(&mut self, member: MemberId, is_there: bool) {
        self.probes.is_stale = true;
        if is_there {
            self.rings.insert(member);
        } else {
            self.rings.remove(member, self.members.on_rings());
        }
    }

    /// Takes a member out of every table.
    pub(super) fn remove_member(&mut self, member: MemberId) {
        if self.members.state(member) == MemberState::Present
            && let Some(identity) = self.members.get(member).and_then(|s| s.identity().cloned())
        {
            self.tell(MemberEvent::Missing { identity, left: false });
        }
        self.members.remove(member);
        self.place_on_rings(member, false);
        self.suspects.remove(&member);
        self.missing_because.remove(&member);
        self.refuted.remove(&member);
        self.coordinator_ids.remove(&member);
        self.missing_since.remove(&member);
        self.links.remove(&member);
        self.probes.forget(member);
    }

    /// Something that carries our name. If it is later than all that we said, our clock went back, or
    /// our memory: this life has to be a later one. If it is of an earlier life, then it counts until
    /// we say something new: others hold it to be so.
    fn hear_of_ourselves(&mut self, now: Timestamp, record: Arc<Record>) {
        let known = self.members.version(self.me.member, record.topic);
        if let Some(known) = known.filter(|known| *known >= record.version) {
            self.refused.stale += u64::from(known > record.version);
            return;
        }
        if record.topic == Topic::Certificate {
            return;
        }
        if !record.is_signed_by(&self.authenticator, &self.me) {
            self.refused.forged += 1;
            return;
        }
        let said = self.own.counts[record.topic as usize];
        if (record.version.generation, record.version.count) > (self.own.generation, said) {
            if now.since(self.own.reborn) >= REBIRTH {
                self.own.reborn = now;
                self.own.generation = record.version.generation.saturating_add(1);
                self.publish_alive(now);
                self.say_again(now);
            }
        } else if may_say(&self.me, &record.content) {
            let list = revoked_by(&record).to_vec();
            self.members.put(record, None);
            self.expel(now, &list);
        }
    }

    /// Asks `from`, who spoke of `subject`, for what proves it.
    pub(super) fn want(&mut self, now: Timestamp, from: MemberId, subject: MemberId) {
        let Some(link) = self.links.get_mut(&from).filter(|link| link.open) else { return };
        if link.wants.take(now, 1) {
            let message = Message::Want { wanted: vec![(subject, u8::MAX)] };
            self.send(from, message, Delivery::Datagram);
        }
    }

    /// Forgets who has been missing for long, and what was forgotten long ago.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        let after = self.profile.forget_after;
        let old = self.missing_since.iter().filter(|(_, since)| now.since(**since) >= after);
        let old: Vec<MemberId> = old.map(|(member, _)| *member).collect();
        for member in old {
            let known = self.members.get(member).and_then(|subject| subject.identity().cloned());
            let certificate = self.members.record(member, Topic::Certificate).cloned();
            if let Some((identity, certificate)) = known.zip(certificate) {
                let alive = self.members.version(member, Topic::Alive).unwrap_or_default();
                let forgotten = RemovedMember { alive, certificate, identity, at: now };
                self.forgotten.insert(member, forgotten);
            }
            self.remove_member(member);
        }
        self.forgotten.retain(|_, forgotten| now.since(forgotten.at) < after);
        self.forget_revoked(now);
    }
}

/// Whether it is the holder's to say: a cell speaks of itself, a coordinator of who is expelled.
fn may_say(identity: &MemberIdentity, content: &Content) -> bool {
    match content {
        Content::Alive(_) => true,
        Content::Info(info) => !is_coordinator(identity) && info.cell_id == identity.name,
        Content::Load(load) => !is_coordinator(identity) && load.cell_id == identity.name,
        Content::Revocations(_) => is_coordinator(identity),
        Content::Certificate => false,
    }
}
