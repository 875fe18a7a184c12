//! MemberSelector to dial, when again, when to let go.
//!
//! Links are few: to those we watch, to every coordinator (cells dial them, which works through a
//! NAT), and those that others made to us. One that is not wanted any more is closed after a while by
//! the side that dialled.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::time::{Backoff, Timestamp};

use super::dissemination::Urgency;
use super::gossip_log::Budget;
use super::{Delivery, Member, MemberOutput, MemberState, is_coordinator, issued_ms};
use crate::identity::{Authenticator, MemberId};
use crate::message::Message;
use crate::record::{Item, Record, Topic};

/// The first wait after a dial that failed. Each is twice the last, up to the profile's longest.
const RETRY: Duration = Duration::from_millis(250);

/// A link that nobody wants any more is kept for so long: rings move back sometimes.
const LINGER: Duration = Duration::from_secs(30);

/// A newcomer that asked one for everything asks another after this time.
const CATCH_UP: Duration = Duration::from_secs(2);

/// A link that ends before this time did not come about, for the question when to dial again.
const LASTING: Duration = Duration::from_secs(2);

/// How often links are looked at when all is well.
const LOOK: Duration = Duration::from_secs(5);

/// A link that is up, being made, or to be made again.
#[derive(Debug)]
pub(super) struct MemberLink {
    pub(super) open: bool,
    pub(super) dialling: bool,
    /// When we last dialled.
    pub(super) dialled_at: Timestamp,
    /// Comparisons of digests in a row that differed, and whether the loads' did last.
    pub(super) mismatches: u32,
    pub(super) loads_differ: bool,
    dialled: bool,
    /// When it came up.
    up_at: Timestamp,
    address: SocketAddr,
    retry_at: Timestamp,
    failures: u32,
    unwanted_since: Option<Timestamp>,
    /// What was told to this one of the two logs.
    urgent_place: u64,
    gossip_place: u64,
    /// The address that we told it that it has.
    told: Option<SocketAddr>,
    /// Comparisons that we asked for, a bit for each scope.
    pub(super) asked: u8,
    /// A comparison was too large for one answer.
    pub(super) unfinished: bool,
    /// What we may ask it for.
    pub(super) wants: Budget,
    /// What it may ask us for: questions, and more for long answers.
    pub(super) questions: Budget,
    /// MemberSelector it may have us ask.
    pub(super) errands: Budget,
    /// What it may say of itself that we have to check.
    pub(super) words: Budget,
    /// What of it may turn out to be forged, before the link ends.
    pub(super) forgeries: Budget,
}

impl MemberLink {
    fn new(now: Timestamp, address: SocketAddr) -> MemberLink {
        MemberLink {
            open: false,
            dialling: false,
            dialled_at: now,
            mismatches: 0,
            loads_differ: false,
            dialled: false,
            up_at: now,
            address,
            retry_at: now,
            failures: 0,
            unwanted_since: None,
            urgent_place: 0,
            gossip_place: 0,
            told: None,
            asked: 0,
            unfinished: false,
            wants: Budget::new(50, 500, now),
            questions: Budget::new(5, 40, now),
            errands: Budget::new(20, 100, now),
            words: Budget::new(30, 200, now),
            forgeries: Budget::new(1, 50, now),
        }
    }

    pub(super) fn place(&self, class: Urgency) -> u64 {
        match class {
            Urgency::Urgent => self.urgent_place,
            Urgency::Gossip => self.gossip_place,
        }
    }

    pub(super) fn place_mut(&mut self, class: Urgency) -> &mut u64 {
        match class {
            Urgency::Urgent => &mut self.urgent_place,
            Urgency::Gossip => &mut self.gossip_place,
        }
    }
}

impl<N: Authenticator> Member<N> {
    pub(super) fn link_entry(
        &mut self,
        now: Timestamp,
        peer: MemberId,
        address: SocketAddr,
    ) -> &mut MemberLink {
        let (urgent, gossip) = (self.urgent.recent(now), self.gossip.recent(now));
        let link = self.links.entry(peer).or_insert_with(|| MemberLink {
            urgent_place: urgent,
            gossip_place: gossip,
            ..MemberLink::new(now, address)
        });
        if !link.open {
            link.address = address;
        }
        link
    }

    pub(super) fn link_up(
        &mut self,
        now: Timestamp,
        peer: MemberId,
        certificate: &[u8],
        address: SocketAddr,
        dialled: bool,
    ) {
        let is_stranger = self.revoked.contains_key(&peer) || peer == self.me.member;
        if is_stranger || self.own.left || self.own.expelled {
            self.refused.strangers += u64::from(is_stranger);
            self.out.push(MemberOutput::Close { peer });
            return;
        }
        // It speaks to us itself: who was forgotten is remembered again.
        if self.forgotten.remove(&peer).is_some() {
            self.speak_up(now);
        }
        if let Ok(identity) = self.authenticator.identity(now, certificate) {
            let record = Arc::new(Record::certificate(peer, issued_ms(&identity), certificate));
            let known = self.members.version(peer, Topic::Certificate);
            if known.is_none_or(|known| known < record.version) {
                self.hear_certificate(now, Some(peer), record);
            }
        }
        if self.members.get(peer).is_none() {
            // The table is full, or the certificate does not hold after all.
            self.out.push(MemberOutput::Close { peer });
            return;
        }
        let link = self.link_entry(now, peer, address);
        let was_open = link.open;
        let old = std::mem::replace(link, MemberLink::new(now, address));
        // What a member may ask for is not more because it comes again; and what came up while the
        // link was being made is told now.
        let MemberLink { wants, questions, errands, words, forgeries, .. } = old;
        let MemberLink { urgent_place, gossip_place, failures, .. } = old;
        let new = MemberLink { open: true, dialled, ..MemberLink::new(now, address) };
        let new = MemberLink { wants, questions, errands, words, forgeries, ..new };
        *link = MemberLink { urgent_place, gossip_place, failures, ..new };
        if urgent_place < self.urgent.end() {
            self.timers.urgent = self.timers.urgent.min(now + self.profile.urgent_delay);
        }
        if gossip_place < self.gossip.end() {
            self.timers.gossip = self.timers.gossip.min(now + self.profile.gossip_every);
        }
        self.timers.seeds = Timestamp::NEVER;
        self.timers.links = now;
        self.greet(peer);
        let is_waiting = now.since(self.asked_everything) < CATCH_UP;
        let is_needed = self.profile.leaf || !self.synced && !is_waiting || was_open;
        if is_needed {
            self.ask_everything(now, peer);
        }
        self.probe_on_link(now, peer);
    }

    /// What one who was not linked with us until now should know: that we are here, what we said, and
    /// what is said against it.
    fn greet(&mut self, peer: MemberId) {
        let to_coordinator = self.coordinator_ids.contains(&peer);
        let mut topics = vec![Topic::Alive];
        // A leaf's other links hear these only when no coordinator does.
        if to_coordinator || self.profile.leaf && !self.has_coordinator() {
            topics.extend([Topic::Info, Topic::Load]);
        }
        let me = self.me.member;
        let records = topics.into_iter().filter_map(|topic| self.members.record(me, topic));
        let mut items: Vec<Item> = records.cloned().map(Item::Record).collect();
        items.extend(self.suspicions_of(peer));
        self.send(peer, Message::Gossip { items }, Delivery::Stream);
    }

    pub(super) fn link_down(&mut self, now: Timestamp, peer: MemberId) {
        let Some(link) = self.links.get_mut(&peer) else { return };
        // One that ends us as soon as we come is dialled as one that does not answer.
        let has_lasted = now.since(link.up_at) >= LASTING;
        link.open = false;
        link.dialling = false;
        link.asked = 0;
        self.probes.is_stale = true;
        link.failures = if has_lasted { 0 } else { link.failures.saturating_add(1) };
        let failures = link.failures;
        self.seed_backoff = if has_lasted { 0 } else { self.seed_backoff };
        let wait = if has_lasted { Duration::ZERO } else { self.backoff(failures) };
        if let Some(link) = self.links.get_mut(&peer) {
            link.retry_at = now + wait;
        }
        self.timers.links = now;
        if !self.links.values().any(|link| link.open) {
            self.timers.seeds = self.timers.seeds.min(now + wait);
        }
        // A broken link is a reason to ask: at once, not when its turn comes. A leaf ends links that
        // it does not want any more.
        let is_ours = is_coordinator(&self.me)
            || self.watched().contains(&peer)
            || self.is_leaf(peer) && self.minds_leaf(peer);
        if is_ours {
            self.probe(now, peer);
        }
        if self.profile.leaf && self.coordinator_ids.contains(&peer) && !self.has_coordinator() {
            self.tell_peers(now);
        }
    }

    pub(super) fn dial_failed(
        &mut self,
        now: Timestamp,
        peer: Option<MemberId>,
        address: SocketAddr,
    ) {
        let Some(peer) = peer else { return };
        let wait = self.backoff(self.links.get(&peer).map_or(0, |link| link.failures));
        let link = self.link_entry(now, peer, address);
        if link.open {
            return;
        }
        link.dialling = false;
        link.failures = link.failures.saturating_add(1);
        link.retry_at = now + wait;
        self.timers.links = self.timers.links.min(now + wait);
        self.probe_without_link(now, peer);
    }

    /// One whom we could not reach is there, in a new life or elsewhere: it is dialled at once.
    pub(super) fn dial_soon(&mut self, now: Timestamp, peer: MemberId) {
        if let Some(link) = self.links.get_mut(&peer).filter(|link| !link.open) {
            link.failures = 0;
            link.retry_at = now;
        }
    }

    fn backoff(&mut self, failures: u32) -> Duration {
        let backoff = Backoff { first: RETRY, longest: self.profile.longest_retry };
        self.jittered(backoff.after(failures.saturating_add(1)))
    }

    /// Makes the links that we want, and ends those that we dialled and want no more.
    pub(super) fn mind_links(&mut self, now: Timestamp) {
        let mut wanted = self.watched();
        wanted.extend(self.coordinators());
        let mut next = now + LOOK;
        for peer in &wanted {
            let retry_at = self.links.get(peer).map(|link| (link.open, link.retry_at));
            match retry_at {
                Some((true, _)) => {}
                Some((false, at)) if at > now => next = next.min(at),
                Some((false, _)) | None => self.dial(now, *peer),
            }
        }
        if !self.synced {
            next = next.min(self.catch_up(now));
        }
        let mut unwanted = Vec::new();
        let members = &self.members;
        let in_probe = &self.probes.questions;
        self.links.retain(|peer, link| {
            if wanted.contains(peer) || in_probe.contains_key(peer) {
                link.unwanted_since = None;
                return true;
            }
            let since = *link.unwanted_since.get_or_insert(now);
            let is_over = now.since(since) >= LINGER;
            if is_over && link.open && link.dialled {
                unwanted.push(*peer);
            }
            // What is neither open nor wanted needs no memory, but for those who may come back.
            link.open || !is_over || members.state(*peer) == MemberState::Present && link.dialling
        });
        for peer in unwanted {
            self.out.push(MemberOutput::Close { peer });
        }
        self.timers.links = next;
    }

    /// MemberSelector a newcomer asked may have ended, or its answer was lost: then it asks another. When to
    /// look again.
    fn catch_up(&mut self, now: Timestamp) -> Timestamp {
        let due = self.asked_everything + CATCH_UP;
        if due > now {
            return due;
        }
        let open = self.links.iter().filter(|(_, link)| link.open).map(|(peer, _)| *peer);
        let open: Vec<MemberId> = open.collect();
        if !open.is_empty() {
            let peer = open[self.random.below(open.len())];
            self.ask_everything(now, peer);
        }
        now + CATCH_UP
    }

    /// A leaf's peers pass on what it says of itself when no coordinator hears it.
    fn tell_peers(&mut self, now: Timestamp) {
        for topic in [Topic::Info, Topic::Load] {
            if let Some(record) = self.members.record(self.me.member, topic).cloned() {
                self.enqueue(now, Item::Record(record), None);
            }
        }
    }

    /// Nobody is linked with us: somebody of those we were told of at the beginning may be there.
    pub(super) fn try_seeds(&mut self, now: Timestamp) {
        if self.seeds.is_empty() || self.links.values().any(|link| link.open) {
            self.timers.seeds = Timestamp::NEVER;
            return;
        }
        let tries = self.seed_backoff;
        self.seed_backoff = tries.saturating_add(1);
        let place = usize::try_from(tries).unwrap_or(0) % self.seeds.len();
        let rounds = tries / u32::try_from(self.seeds.len()).unwrap_or(u32::MAX).max(1);
        self.timers.seeds = now + self.backoff(rounds);
        let address = self.seeds[place];
        if address != self.own.alive.address {
            self.out.push(MemberOutput::Dial { peer: None, address });
        }
    }

    /// Tries one who is missing, or a seed that is not known to be there: after a partition each side
    /// takes the other for gone.
    pub(super) fn reach_out(&mut self) {
        let missing = self.missing_since.keys();
        let missing = missing.filter_map(|peer| {
            let alive = self.members.get(*peer)?.alive()?;
            (!alive.leaf && !alive.left).then_some((Some(*peer), alive.address))
        });
        let known = |address: &SocketAddr| {
            self.links.values().any(|link| link.open && link.address == *address)
                || self.members.iter().any(|(_, s)| {
                    s.state() == MemberState::Present
                        && s.alive().is_some_and(|alive| alive.address == *address)
                })
        };
        let mut candidates: Vec<_> = missing.collect();
        candidates.extend(self.seeds.iter().filter(|a| !known(a)).map(|a| (None, *a)));
        if !candidates.is_empty() {
            let (peer, address) = candidates[self.random.below(candidates.len())];
            // A short partition leaves the link as it was. Nobody asks one who is missing, so each
            // has to be told why the other takes it for that.
            let linked = peer.filter(|peer| self.links.get(peer).is_some_and(|link| link.open));
            match linked {
                Some(peer) => self.send_suspicions_of(peer),
                None => self.out.push(MemberOutput::Dial { peer, address }),
            }
        }
    }

    /// A packet came from this address. If the sender says it is elsewhere, it is told.
    pub(super) fn seen(&mut self, from: MemberId, address: SocketAddr) {
        let alive = self.members.get(from).and_then(|subject| subject.alive());
        let says = alive.map(|alive| alive.address.ip());
        let Some(link) = self.links.get_mut(&from) else { return };
        link.address = address;
        if says.is_some_and(|says| says != address.ip()) && link.told != Some(address) {
            link.told = Some(address);
            self.send(from, Message::Observed { address }, Delivery::Datagram);
        }
    }
}
