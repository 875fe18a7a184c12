//! When somebody does not answer, and how far we trust ourselves in saying so.
//!
//! A probe is a few pings, then a few others who are asked to try, then an accusation. A handshake
//! is waited for first and never counts as a missed ping. Every wait grows with our own bad health:
//! when our timers come late, when those we asked for help do not even say that they hear us, or when
//! others accuse us, the fault may be ours.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

use volvox_protocol::time::Timestamp;

use super::{Delivery, Member, MemberOutput, MemberState, is_coordinator, rings};
use crate::identity::{Authenticator, MemberId};
use crate::message::{Message, Roots};
use crate::record::Item;

/// In worse health than this we accuse even though nobody answers us: it may be the truth.
const LONELY: u32 = 3;

/// Probes at one time: more than this are never needed by a cell, and a coordinator that loses a
/// large part of its fleet works through it in turns.
const PROBES: usize = 4_096;

/// Pings on behalf of others at one time.
const RELAYS: usize = 1_024;

/// So often in a row others may reach somebody for us before we accuse it all the same. One that
/// answers us by no way is in trouble or dead, and then one of those others lies; if it is well, it
/// answers the accusation.
const HEARSAY: u32 = 3;

/// While others are trying, [`Profile::indirect_wait`], this many pings are sent. Those others send
/// one less: the last part of the time is for their answer.
///
/// [`Profile::indirect_wait`]: crate::profile::Profile::indirect_wait
const INDIRECT_STEPS: u32 = 4;

/// A dial that nobody told the end of is made again after this time.
const LOST_DIAL: Duration = Duration::from_secs(30);

/// Accusations that a ping tells the one who is accused.
const SUSPICIONS_IN_PING: usize = 4;

/// Asking one member whether it is there.
#[derive(Debug)]
pub(super) struct Probe {
    seq: u32,
    stage: Stage,
    until: Timestamp,
    asked: Vec<MemberId>,
    heard: bool,
    /// How far our own lateness may still put it off: who is always late must come to an end too.
    spare: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// A link is being made.
    Dialling,
    /// So many pings were sent.
    Direct(u32),
    /// Others are trying, and so are we: so many pings were sent since.
    Indirect(u32),
}

/// Asking on behalf of another.
#[derive(Debug)]
pub(super) struct Relay {
    origin: MemberId,
    seq: u32,
    target: MemberId,
    /// When the next ping is due.
    again: Timestamp,
    until: Timestamp,
}

impl<N: Authenticator> Member<N> {
    /// The next of those we watch is asked.
    pub(super) fn probe_next(&mut self, now: Timestamp) {
        let watched = self.watched();
        if watched.is_empty() {
            return;
        }
        let target = watched[self.next_pick % watched.len()];
        self.next_pick = self.next_pick.wrapping_add(1);
        self.probe(now, target);
    }

    /// Leaves stand on no ring. A coordinator asks them all, a cell those that have a link to it:
    /// each once in a period.
    pub(super) fn probe_next_leaf(&mut self, now: Timestamp) {
        let leaves: Vec<MemberId> = if is_coordinator(&self.me) {
            let leaf = |alive: &crate::record::AliveRecord| alive.leaf;
            let all = self.members.iter().filter(|(_, s)| s.state() == MemberState::Present);
            all.filter(|(_, s)| s.alive().is_some_and(leaf)).map(|(member, _)| member).collect()
        } else {
            self.linked_leaves()
        };
        let every = self.profile.leaf_probe_every;
        let count = u32::try_from(leaves.len()).unwrap_or(u32::MAX).max(1);
        self.timers.leaf_probe = now + (every / count).max(Duration::from_millis(10));
        let last = self.next_leaf;
        let after = leaves.iter().find(|leaf| last.is_none_or(|last| **leaf > last));
        if let Some(target) = after.or(leaves.first()).copied() {
            self.next_leaf = Some(target);
            self.probe(now, target);
        }
    }

    /// The leaves that have a link to us. A leaf itself has none.
    pub(super) fn linked_leaves(&self) -> Vec<MemberId> {
        if self.profile.leaf {
            return Vec::new();
        }
        let open = self.links.iter().filter(|(_, link)| link.open).map(|(peer, _)| *peer);
        open.filter(|peer| self.is_leaf(*peer)).collect()
    }

    /// Begins to ask a member, unless we are asking it already.
    pub(super) fn probe(&mut self, now: Timestamp, target: MemberId) {
        let is_needed = self.members.state(target) == MemberState::Present
            && target != self.me.member
            && !self.probes.contains_key(&target)
            && self.probes.len() < PROBES;
        if !is_needed {
            return;
        }
        self.next_seq = self.next_seq.wrapping_add(1);
        let seq = self.next_seq;
        let is_open = self.links.get(&target).is_some_and(|link| link.open);
        let (stage, wait) = if is_open {
            self.ping(target, seq);
            (Stage::Direct(1), self.profile.probe_step)
        } else {
            self.dial(now, target);
            (Stage::Dialling, self.profile.dial_wait)
        };
        let until = now + self.scaled(wait);
        self.timers.probes = self.timers.probes.min(until);
        let spare = self.profile.dial_wait;
        let probe = Probe { seq, stage, until, asked: Vec::new(), heard: false, spare };
        self.probes.insert(target, probe);
    }

    fn ping(&mut self, target: MemberId, seq: u32) {
        let items = self.suspicions_of(target);
        let message = Message::Ping { seq, roots: self.shown_roots(), items };
        self.send(target, message, Delivery::Datagram);
    }

    /// Tells one whom we take for missing what it must answer to. What it says to that counts; its
    /// answer to the ping does not.
    pub(super) fn send_suspicions_of(&mut self, member: MemberId) {
        self.next_seq = self.next_seq.wrapping_add(1);
        self.ping(member, self.next_seq);
    }

    pub(super) fn answer_ping(&mut self, from: MemberId, seq: u32) {
        let items = self.suspicions_of(from);
        let message = Message::Ack { seq, roots: self.shown_roots(), items };
        self.send(from, message, Delivery::Datagram);
    }

    /// A leaf compares with nobody.
    fn shown_roots(&self) -> Roots {
        if self.profile.leaf { Roots::default() } else { self.members.roots() }
    }

    /// What `member` must answer to, if it is there.
    pub(super) fn suspicions_of(&self, member: MemberId) -> Vec<Item> {
        let suspect = self.suspects.get(&member).map(|suspect| &suspect.suspicions);
        let evidence = suspect.or(self.missing_because.get(&member));
        let evidence = evidence.into_iter().flatten().take(SUSPICIONS_IN_PING);
        evidence.cloned().map(Item::Suspicion).collect()
    }

    /// A link is up: those who waited for it are asked.
    pub(super) fn probe_on_link(&mut self, now: Timestamp, target: MemberId) {
        let step = self.scaled(self.profile.probe_step);
        if let Some(probe) = self.probes.get_mut(&target)
            && probe.stage == Stage::Dialling
        {
            probe.stage = Stage::Direct(1);
            probe.until = now + step;
            let seq = probe.seq;
            self.timers.probes = self.timers.probes.min(now + step);
            self.ping(target, seq);
        }
        let waiting = self.relays.iter().filter(|(_, relay)| relay.target == target);
        for seq in waiting.map(|(seq, _)| *seq).collect::<Vec<_>>() {
            self.ping(target, seq);
        }
    }

    /// A link could not be made.
    pub(super) fn probe_without_link(&mut self, now: Timestamp, target: MemberId) {
        if self.probes.get(&target).is_some_and(|probe| probe.stage == Stage::Dialling) {
            self.ask_others(now, target);
        }
    }

    pub(super) fn step_probes(&mut self, now: Timestamp) {
        let due = self.probes.iter().filter(|(_, probe)| probe.until <= now);
        for target in due.map(|(target, _)| *target).collect::<Vec<_>>() {
            self.step_probe(now, target);
        }
        let due = self.relays.iter().filter(|(_, relay)| relay.again <= now);
        for seq in due.map(|(seq, _)| *seq).collect::<Vec<_>>() {
            self.step_relay(now, seq);
        }
        self.set_probe_timer();
    }

    fn step_relay(&mut self, now: Timestamp, seq: u32) {
        let pause = self.profile.indirect_wait / INDIRECT_STEPS;
        let Some(relay) = self.relays.get_mut(&seq) else { return };
        if relay.until <= now {
            let message = Message::Missed { seq: relay.seq, target: relay.target };
            let origin = relay.origin;
            self.relays.remove(&seq);
            self.send(origin, message, Delivery::Stream);
        } else {
            relay.again = (now + pause).min(relay.until);
            let target = relay.target;
            if self.links.get(&target).is_some_and(|link| link.open) {
                self.ping(target, seq);
            }
        }
    }

    fn set_probe_timer(&mut self) {
        let probes = self.probes.values().map(|probe| probe.until);
        let relays = self.relays.values().map(|relay| relay.again);
        self.timers.probes = probes.chain(relays).min().unwrap_or(Timestamp::NEVER);
    }

    fn step_probe(&mut self, now: Timestamp, target: MemberId) {
        let step = self.scaled(self.profile.probe_step);
        let pause = self.scaled(self.profile.indirect_wait) / INDIRECT_STEPS;
        let Some(probe) = self.probes.get_mut(&target) else { return };
        match probe.stage {
            Stage::Direct(tries) if tries < self.profile.probe_tries => {
                probe.stage = Stage::Direct(tries + 1);
                probe.until = now + step;
                let seq = probe.seq;
                self.ping(target, seq);
            }
            Stage::Dialling | Stage::Direct(_) => self.ask_others(now, target),
            Stage::Indirect(tries) if tries < INDIRECT_STEPS => {
                probe.stage = Stage::Indirect(tries + 1);
                probe.until = now + pause;
                let seq = probe.seq;
                self.ping(target, seq);
            }
            Stage::Indirect(_) => self.failed(now, target),
        }
    }

    /// Asks others to try: a coordinator first, who has a link to everybody. A leaf can be reached only
    /// by those that it has a link to.
    fn ask_others(&mut self, now: Timestamp, target: MemberId) {
        let open = self.links.iter().filter(|(peer, link)| link.open && **peer != target);
        let mut others: Vec<MemberId> = open.map(|(peer, _)| *peer).collect();
        others.retain(|peer| self.members.state(*peer) == MemberState::Present);
        if self.is_leaf(target) {
            let peers = self.leaf_peers(target, rings::LEAF_CANDIDATES);
            others.retain(|peer| self.coordinator_ids.contains(peer) || peers.contains(peer));
        }
        for place in (1..others.len()).rev() {
            others.swap(place, self.random.below(place + 1));
        }
        if let Some(place) = others.iter().position(|peer| self.coordinator_ids.contains(peer)) {
            others.swap(0, place);
        }
        others.truncate(self.profile.go_betweens);
        // With nobody to ask there is nothing more to wait for.
        let (tries, wait) = if others.is_empty() {
            (INDIRECT_STEPS, Duration::ZERO)
        } else {
            (1, self.profile.indirect_wait / INDIRECT_STEPS)
        };
        let until = now + self.scaled(wait);
        let Some(probe) = self.probes.get_mut(&target) else { return };
        probe.stage = Stage::Indirect(tries);
        probe.until = until;
        probe.asked.clone_from(&others);
        let seq = probe.seq;
        self.timers.probes = self.timers.probes.min(until);
        for other in others {
            // By stream, as all that is rare: one lost packet should not look like a lost member.
            self.send(other, Message::PingReq { seq, target }, Delivery::Stream);
        }
        self.ping(target, seq);
    }

    fn failed(&mut self, now: Timestamp, target: MemberId) {
        let Some(probe) = self.probes.remove(&target) else { return };
        if probe.asked.is_empty() && self.is_leaf(target) && !self.minds_leaf(target) {
            // Nobody whom we could ask has a link to it either: that says nothing.
            return;
        }
        let alone = !probe.asked.is_empty() && !probe.heard;
        if alone {
            self.worse();
        }
        if !alone || self.health > LONELY || self.profile.worst_health == 0 {
            self.suspect(now, target);
        }
    }

    /// An answer: to us, or to one for whom we asked.
    pub(super) fn answered(&mut self, from: MemberId, seq: u32) {
        if self.probes.get(&from).is_some_and(|probe| probe.seq == seq) {
            self.succeeded(from);
            self.hearsay.remove(&from);
            self.vouch(from);
        }
        if self.relays.get(&seq).is_some_and(|relay| relay.target == from)
            && let Some(relay) = self.relays.remove(&seq)
        {
            let message = Message::Reached { seq: relay.seq, target: from };
            self.send(relay.origin, message, Delivery::Stream);
        }
    }

    pub(super) fn reached(&mut self, now: Timestamp, from: MemberId, seq: u32, target: MemberId) {
        let asked = self.probes.get(&target);
        if asked.is_none_or(|probe| probe.seq != seq || !probe.asked.contains(&from)) {
            self.refused.unasked += 1;
            return;
        }
        self.succeeded(target);
        let times = self.hearsay.entry(target).or_default();
        *times += 1;
        if *times > HEARSAY {
            self.hearsay.remove(&target);
            self.suspect(now, target);
        }
    }

    pub(super) fn missed(&mut self, from: MemberId, seq: u32, target: MemberId) {
        if let Some(probe) = self.probes.get_mut(&target)
            && probe.seq == seq
            && probe.asked.contains(&from)
        {
            probe.heard = true;
        }
    }

    fn succeeded(&mut self, target: MemberId) {
        self.probes.remove(&target);
        if self.probes.is_empty() && self.relays.is_empty() {
            self.timers.probes = Timestamp::NEVER;
        }
        self.health = self.health.saturating_sub(1);
    }

    /// Another asks us to try. We make a link if we have none.
    pub(super) fn ask_for(&mut self, now: Timestamp, from: MemberId, seq: u32, target: MemberId) {
        if target == self.me.member {
            self.answer_ping(from, seq);
            return;
        }
        let is_known = self.members.get(target).is_some_and(|subject| subject.alive().is_some());
        let link = self.links.get_mut(&from).filter(|link| link.open);
        let is_within = link.is_some_and(|link| link.errands.take(now, 1));
        if !is_known || !is_within || self.relays.len() >= RELAYS {
            self.refused.excessive += u64::from(is_known);
            self.send(from, Message::Missed { seq, target }, Delivery::Stream);
            return;
        }
        self.next_seq = self.next_seq.wrapping_add(1);
        let own = self.next_seq;
        let pause = self.profile.indirect_wait / INDIRECT_STEPS;
        let (again, until) = (now + pause, now + pause * (INDIRECT_STEPS - 1));
        self.relays.insert(own, Relay { origin: from, seq, target, again, until });
        self.timers.probes = self.timers.probes.min(again);
        if self.links.get(&target).is_some_and(|link| link.open) {
            self.ping(target, own);
        } else {
            self.dial(now, target);
        }
    }

    pub(super) fn worse(&mut self) {
        self.health = (self.health + 1).min(self.profile.worst_health);
    }

    fn scaled(&self, span: Duration) -> Duration {
        span * (1 + self.health)
    }

    /// If we come late to our own timers, then others may have answered long ago: nothing that ran
    /// out meanwhile counts, and we trust ourselves less.
    pub(super) fn mind_lateness(&mut self, now: Timestamp) {
        let late = now.since(self.expected);
        if self.expected == Timestamp::NEVER || late <= self.profile.probe_step {
            return;
        }
        // The later, the less: a pause of a second is not made good by one answer.
        let steps = late.as_millis() / (2 * self.profile.probe_step).as_millis().max(1);
        let steps = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
        self.health = self.health.saturating_add(steps).min(self.profile.worst_health);
        for probe in self.probes.values_mut() {
            let put_off = late.min(probe.spare);
            probe.spare -= put_off;
            probe.until = probe.until + put_off;
        }
        for relay in self.relays.values_mut() {
            relay.again = relay.again + late;
            relay.until = relay.until + late;
        }
        self.set_probe_timer();
        self.postpone_suspects(late);
    }

    /// The effect that makes a link, if we know where.
    pub(super) fn dial(&mut self, now: Timestamp, target: MemberId) {
        let alive = self.members.get(target).and_then(|subject| subject.alive());
        let Some(address) = alive.filter(|alive| !alive.leaf).map(|alive| alive.address) else {
            return;
        };
        let link = self.link_entry(now, target, address);
        let is_lost = now.since(link.dialled_at) >= LOST_DIAL;
        if !link.open && (!link.dialling || is_lost) {
            link.dialling = true;
            link.dialled_at = now;
            self.out.push(MemberOutput::Dial { peer: Some(target), address });
        }
    }
}
