//! Connects the failure detector (`swim`) to links and messages.
//!
//! The neighbourhood's detector probes all neighbours that have an open link, in foca's rounds. A
//! *question* is a detector for one member that must be probed now: a suspected one, a neighbour
//! whose link broke, a leaf. A question to a member without a link dials it, and asks helpers
//! meanwhile; the handshake never counts as a missed ping.
//!
//! A *relay* is a ping for another member's probe. The helper says at once that it received the
//! request. That is how a prober learns whether it is cut off itself: if no helper says so, or if
//! its own timers are late, or if others suspect it, its health level rises and all its waits grow.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use super::swim::{Detector, Finding, Health, Outgoing, Pace, Proven, Step};
use super::{Delivery, Member, MemberOutput, MemberState, is_coordinator, rings};
use crate::identity::{Authenticator, MemberId};
use crate::message::{Message, Roots};
use crate::profile::Profile;
use crate::record::{Item, Suspicion, Topic};

/// Questions at the same time. A cell never needs this many; a coordinator that loses a large part of
/// its fleet works through it in turns.
const QUESTIONS: usize = 4_096;

/// Relays at the same time.
const RELAYS: usize = 1_024;

/// So often in a row helpers may reach a member for us. After that only its own answer counts: one
/// that never answers us directly is failing, or a helper lies. If it is well, it refutes.
const HEARSAY: u32 = 3;

/// Pings of one relay, within the time of a question.
const RELAY_PINGS: u32 = 4;

/// A dial whose end was not reported is repeated after this time.
const LOST_DIAL: Duration = Duration::from_secs(30);

/// Suspicions of its target that a ping carries, and suspicions of others.
const SUSPICIONS_IN_PING: usize = 4;

/// Every so many probes the ping shows the digest of loads too. Neighbours are pinged in a fixed order,
/// so this is no multiple or divisor of their number: each has its turn.
const LOADS_SHOWN: u32 = 7;

/// The detectors and what belongs to them.
pub(super) struct Probes {
    pub(super) neighbourhood: Detector,
    pub(super) questions: BTreeMap<MemberId, Question>,
    /// By the sequence number of our ping.
    pub(super) relays: BTreeMap<u32, Relay>,
    pub(super) health: Health,
    /// How often in a row only helpers reached a member.
    hearsay: BTreeMap<MemberId, u32>,
    next_tag: u32,
    next_pick: usize,
    next_leaf: Option<MemberId>,
    /// Neighbours, their links or their alive records changed.
    pub(super) is_stale: bool,
}

/// The probe of one member.
pub(super) struct Question {
    detector: Box<Detector>,
    /// A link is being made.
    is_dialling: bool,
    /// Probes in a row that must fail.
    failures: u32,
}

/// A ping for the probe of another member.
#[derive(Debug)]
pub(super) struct Relay {
    origin: MemberId,
    /// The sequence number of the request.
    seq: u32,
    target: MemberId,
    /// When the next ping is due.
    again: Timestamp,
    until: Timestamp,
}

impl Probes {
    pub(super) fn new(me: MemberId, profile: &Profile, random: &mut SplitMix) -> Probes {
        let pace = Pace::of_rounds(profile);
        Probes {
            neighbourhood: Detector::new(me, pace, 0, random.next()),
            questions: BTreeMap::new(),
            relays: BTreeMap::new(),
            health: Health::new(profile.worst_health),
            hearsay: BTreeMap::new(),
            next_tag: 0,
            next_pick: 0,
            next_leaf: None,
            is_stale: true,
        }
    }

    fn tag(&mut self) -> u32 {
        // 0 is the neighbourhood's.
        self.next_tag = (self.next_tag % 0x00ff_fffe) + 1;
        self.next_tag
    }

    /// A member signed a newer alive record.
    pub(super) fn trust_again(&mut self, member: MemberId) {
        self.hearsay.remove(&member);
    }

    pub(super) fn forget(&mut self, member: MemberId) {
        self.questions.remove(&member);
        self.hearsay.remove(&member);
        self.is_stale = true;
    }

    pub(super) fn next_wake(&self) -> Timestamp {
        let questions = self.questions.values().map(|question| question.detector.next_wake());
        let relays = self.relays.values().map(|relay| relay.again);
        questions.chain(relays).fold(self.neighbourhood.next_wake(), Timestamp::min)
    }
}

impl<N: Authenticator> Member<N> {
    /// A member as far as its signed alive record says.
    fn proven(&self, member: MemberId) -> Proven {
        let alive = self.members.version(member, Topic::Alive).unwrap_or_default();
        Proven { member, alive }
    }

    /// Gives the neighbourhood's detector the neighbours that have a link. A leaf has none: it asks
    /// those it has links to one by one, as rarely as its profile says.
    pub(super) fn refresh_neighbourhood(&mut self, now: Timestamp) {
        if !std::mem::take(&mut self.probes.is_stale) {
            return;
        }
        let mut neighbours = if self.profile.leaf { Vec::new() } else { self.watched() };
        neighbours.retain(|peer| {
            self.is_linked(*peer) && self.members.state(*peer) == MemberState::Present
        });
        let neighbours: Vec<Proven> =
            neighbours.into_iter().map(|peer| self.proven(peer)).collect();
        let Probes { neighbourhood, health, .. } = &mut self.probes;
        neighbourhood.set_members(now, health, &neighbours);
    }

    /// What the detectors have no rounds for. A leaf asks the next one of its peers; others ask the
    /// neighbours that they have no link to.
    pub(super) fn probe_unlinked(&mut self, now: Timestamp) {
        let mut watched = self.watched();
        if self.profile.leaf {
            let turn = self.probes.next_pick % watched.len().max(1);
            self.probes.next_pick = self.probes.next_pick.wrapping_add(1);
            watched = watched.get(turn).copied().into_iter().collect();
        } else {
            watched.retain(|peer| !self.is_linked(*peer));
        }
        for peer in watched {
            self.probe(now, peer);
        }
    }

    /// Leaves are on no ring. A coordinator asks all of them, a cell those that have a link to it:
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
        let last = self.probes.next_leaf;
        let after = leaves.iter().find(|leaf| last.is_none_or(|last| **leaf > last));
        if let Some(target) = after.or(leaves.first()).copied() {
            self.probes.next_leaf = Some(target);
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

    /// Probes one member now, unless a question to it is open.
    pub(super) fn probe(&mut self, now: Timestamp, target: MemberId) {
        let is_needed = self.members.state(target) == MemberState::Present
            && target != self.me.member
            && !self.probes.questions.contains_key(&target)
            && self.probes.questions.len() < QUESTIONS;
        if !is_needed {
            return;
        }
        let (tag, random) = (self.probes.tag(), self.random.next());
        let pace = Pace::of_question(&self.profile);
        let mut detector = Box::new(Detector::new(self.me.member, pace, tag, random));
        detector.set_members(now, &self.probes.health, &[self.proven(target)]);
        detector.probe_now(now, &self.probes.health);
        let is_dialling = !self.is_linked(target);
        if is_dialling {
            self.dial(now, target);
            let helpers = self.helpers(target);
            let until = now + self.probes.health.scaled(self.profile.dial_wait);
            detector.ask_helpers_now(now, &self.probes.health, &helpers, until);
        }
        let findings = detector.findings();
        self.probes.questions.insert(target, Question { detector, is_dialling, failures: 1 });
        self.follow(now, findings);
        self.timers.probes = self.timers.probes.min(self.probes.next_wake());
    }

    /// A link is up: the question that waited for it continues, and so do relays.
    pub(super) fn probe_on_link(&mut self, now: Timestamp, target: MemberId) {
        self.probes.is_stale = true;
        if let Some(question) = self.probes.questions.get_mut(&target)
            && question.is_dialling
        {
            question.is_dialling = false;
            question.detector.ping_now(now);
            let span = self.probes.health.scaled(self.profile.question / 2);
            question.detector.end_probe_at(now + span);
        }
        for relay in self.probes.relays.values_mut().filter(|relay| relay.target == target) {
            relay.again = now;
        }
        self.timers.probes = now;
    }

    /// A link could not be made: the helpers that were asked have a little more time.
    pub(super) fn probe_without_link(&mut self, now: Timestamp, target: MemberId) {
        if let Some(question) = self.probes.questions.get_mut(&target)
            && question.is_dialling
        {
            question.is_dialling = false;
            let span = self.probes.health.scaled(self.profile.question / 2);
            question.detector.end_probe_at(now + span);
            self.timers.probes = self.timers.probes.min(now + span);
        }
    }

    /// Members that may be asked to probe `target`: a coordinator first, which has a link to every
    /// cell. A leaf can be reached only by those that it has a link to.
    fn helpers(&mut self, target: MemberId) -> Vec<Proven> {
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
        others.truncate(self.profile.helpers);
        others.into_iter().map(|peer| self.proven(peer)).collect()
    }

    /// Coordinators that have a link to us: helpers of the neighbourhood's probes beside neighbours.
    fn linked_coordinator(&self) -> Vec<Proven> {
        let mut linked = self
            .coordinator_ids
            .iter()
            .filter(|id| self.is_linked(**id) && self.members.state(**id) == MemberState::Present);
        linked.next().map(|id| self.proven(*id)).into_iter().collect()
    }

    /// Delivers what is due: foca's timers, repeated pings.
    pub(super) fn step_probes(&mut self, now: Timestamp) {
        if self.probes.neighbourhood.next_wake() <= now {
            let coordinator = self.linked_coordinator();
            let Probes { neighbourhood, health, .. } = &mut self.probes;
            neighbourhood.tick(now, health, &coordinator);
            self.follow_neighbourhood(now, None);
        }
        let due = self.probes.questions.iter();
        let due = due.filter(|(_, question)| question.detector.next_wake() <= now);
        for target in due.map(|(target, _)| *target).collect::<Vec<_>>() {
            self.step_question(now, target);
        }
        let due = self.probes.relays.iter().filter(|(_, relay)| relay.again <= now);
        for seq in due.map(|(seq, _)| *seq).collect::<Vec<_>>() {
            self.step_relay(now, seq);
        }
        self.timers.probes = self.probes.next_wake();
    }

    fn step_question(&mut self, now: Timestamp, target: MemberId) {
        let helpers = self.helpers(target);
        let Probes { questions, health, .. } = &mut self.probes;
        let Some(question) = questions.get_mut(&target) else { return };
        question.detector.tick(now, health, &helpers);
        let findings = question.detector.findings();
        let is_suspected = |finding: &Finding| match finding {
            Finding::Suspect { alone, .. } => Some(*alone),
            Finding::Send(_) | Finding::Down(_) | Finding::Refute => None,
        };
        match findings.iter().find_map(is_suspected) {
            None => self.follow(now, findings),
            Some(_) if self.must_fail_again(now, target) => self.follow(now, findings),
            Some(alone) => {
                // The question is over. foca would go on to ask again.
                let question = self.probes.questions.remove(&target);
                let is_leaf = alone && self.is_leaf(target) && !self.minds_leaf(target);
                // Nobody whom we could ask has a link to that leaf either: that says nothing.
                if !is_leaf {
                    self.suspect(now, target, question.map(|question| question.detector));
                }
            }
        }
    }

    /// Whether one failed probe is not enough: a coordinator's word counts for all, and this member
    /// answered a moment ago, or refuted a suspicion not long ago. It may be slow, and not dead.
    fn must_fail_again(&mut self, now: Timestamp, target: MemberId) -> bool {
        let is_slow = is_coordinator(&self.me)
            && (self.has_answered(target) || self.refuted_lately(now, target));
        let question = self.probes.questions.get_mut(&target).filter(|q| q.failures == 1);
        match question {
            Some(question) if is_slow => {
                question.failures = 2;
                true
            }
            Some(_) | None => false,
        }
    }

    fn step_relay(&mut self, now: Timestamp, seq: u32) {
        let pause = self.profile.question / RELAY_PINGS / 2;
        let Some(relay) = self.probes.relays.get_mut(&seq) else { return };
        if relay.until <= now {
            self.probes.relays.remove(&seq);
        } else {
            relay.again = (now + pause).min(relay.until);
            let target = relay.target;
            self.ping(target, seq, &[]);
        }
    }

    /// Does what the neighbourhood's detector found.
    pub(super) fn follow_neighbourhood(
        &mut self,
        now: Timestamp,
        request: Option<(MemberId, u32)>,
    ) {
        for finding in self.probes.neighbourhood.findings() {
            match finding {
                Finding::Send(outgoing) => self.send_step(now, outgoing, request),
                Finding::Suspect { member, .. } => self.neighbour_failed(now, member),
                Finding::Down(member) => self.declare_missing(now, member),
                Finding::Refute => self.publish_refutation(now),
            }
        }
    }

    /// A neighbour did not answer. Cells suspect it. A coordinator, whose word counts for all, asks
    /// once more, as it does when a cell suspects.
    fn neighbour_failed(&mut self, now: Timestamp, member: MemberId) {
        if is_coordinator(&self.me) {
            self.probe(now, member);
        } else {
            self.suspect(now, member, None);
        }
    }

    /// Does what another detector found: it only sends.
    fn follow(&mut self, now: Timestamp, findings: Vec<Finding>) {
        for finding in findings {
            match finding {
                Finding::Send(outgoing) => self.send_step(now, outgoing, None),
                Finding::Suspect { .. } | Finding::Down(_) | Finding::Refute => {}
            }
        }
    }

    /// Sends one message of SWIM. `request`: what is being answered, its sender and number.
    fn send_step(&mut self, now: Timestamp, outgoing: Outgoing, request: Option<(MemberId, u32)>) {
        let Outgoing { to, what, suspects } = outgoing;
        match what {
            Step::Ping(seq) => self.ping(to, seq, &suspects),
            Step::Ack => {
                if let Some((_, seq)) = request {
                    let items = self.items_for(to, &suspects);
                    let message = Message::Ack { seq, roots: self.roots_in_ack(to), items };
                    self.send(to, message, Delivery::Datagram);
                }
            }
            Step::PingReq { seq, target } => {
                // By stream, as all that is rare: a lost packet must not look like a lost member.
                self.send(to, Message::PingReq { seq, target }, Delivery::Stream);
            }
            Step::IndirectPing => {
                if let Some((origin, seq)) = request {
                    self.begin_relay(now, origin, seq, to);
                }
            }
            Step::Reached { target } => {
                if let Some((_, seq)) = request {
                    self.send(to, Message::Reached { seq, target }, Delivery::Stream);
                }
            }
            Step::Gossip => {
                let items = self.items_for(to, &suspects);
                if !items.is_empty() {
                    self.send(to, Message::Gossip { items }, Delivery::Stream);
                }
            }
        }
    }

    fn ping(&mut self, target: MemberId, seq: u32, suspects: &[Proven]) {
        if self.is_linked(target) {
            let items = self.items_for(target, suspects);
            let message = Message::Ping { seq, roots: self.roots_in_ping(target, seq), items };
            self.send(target, message, Delivery::Datagram);
        }
    }

    /// The suspicions of `to` itself, and signed proofs of those that foca wants to spread.
    fn items_for(&self, to: MemberId, suspects: &[Proven]) -> Vec<Item> {
        let mut items = self.suspicions_of(to);
        let others = suspects.iter().filter(|proven| proven.member != to);
        let proofs = others.filter_map(|proven| self.proof_of(*proven));
        items.extend(proofs.take(SUSPICIONS_IN_PING).map(Item::Suspicion));
        items
    }

    /// A signed suspicion of a member as of this alive record: ours, if there is one.
    fn proof_of(&self, proven: Proven) -> Option<Arc<Suspicion>> {
        let signed = &self.suspects.get(&proven.member)?.suspicions;
        let signed = || signed.iter().filter(|suspicion| suspicion.alive == proven.alive);
        signed().find(|suspicion| suspicion.by == self.me.member).or(signed().next()).cloned()
    }

    /// A ping shows the digest of membership, so that both find out whether they differ; now and then
    /// that of loads. A relay's ping shows nothing, and a leaf compares with no member.
    fn roots_in_ping(&self, to: MemberId, seq: u32) -> Roots {
        if self.profile.leaf || self.probes.relays.contains_key(&seq) {
            return Roots::default();
        }
        let roots = self.members.roots();
        let is_turn = seq.is_multiple_of(LOADS_SHOWN) || self.is_older(to);
        Roots { load: if is_turn { roots.load } else { 0 }, ..roots }
    }

    /// Neighbours ping each other, so an answer need not show what the next ping does. Members of an
    /// older version are pinged, and do not ping back.
    fn roots_in_ack(&self, to: MemberId) -> Roots {
        let shows = self.is_older(to) && !self.profile.leaf;
        if shows { self.members.roots() } else { Roots::default() }
    }

    /// Sends a member that is taken for missing what it must refute. Its answer to the ping says
    /// nothing; its newer alive record does.
    pub(super) fn send_suspicions_of(&mut self, member: MemberId) {
        let seq = self.probes.tag() << 8;
        self.ping(member, seq, &[]);
    }

    /// The signed suspicions that `member` must refute, if it is alive.
    pub(super) fn suspicions_of(&self, member: MemberId) -> Vec<Item> {
        let suspect = self.suspects.get(&member).map(|suspect| &suspect.suspicions);
        let signed = suspect.or(self.missing_because.get(&member));
        let signed = signed.into_iter().flatten().take(SUSPICIONS_IN_PING);
        signed.cloned().map(Item::Suspicion).collect()
    }

    pub(super) fn on_ping(&mut self, now: Timestamp, from: MemberId, seq: u32) {
        let source = self.proven(from);
        let Probes { neighbourhood, health, .. } = &mut self.probes;
        neighbourhood.on_ping(now, health, source);
        self.follow_neighbourhood(now, Some((from, seq)));
    }

    /// An answer: to us, or to one for whom we asked.
    pub(super) fn on_ack(&mut self, now: Timestamp, from: MemberId, seq: u32) {
        let source = self.proven(from);
        let Probes { neighbourhood, questions, relays, health, .. } = &mut self.probes;
        if neighbourhood.is_its(seq) {
            if neighbourhood.on_ack(now, health, source, seq) {
                self.answered(from);
            }
            self.follow_neighbourhood(now, None);
            return;
        }
        if let Some(question) = questions.get_mut(&from).filter(|q| q.detector.is_its(seq)) {
            if question.detector.on_ack(now, health, source, seq) {
                questions.remove(&from);
                self.answered(from);
            }
            return;
        }
        if relays.get(&seq).is_some_and(|relay| relay.target == from)
            && let Some(relay) = relays.remove(&seq)
        {
            let origin = self.proven(relay.origin);
            let Probes { neighbourhood, health, .. } = &mut self.probes;
            neighbourhood.on_indirect_ack(now, health, source, origin);
            self.follow_neighbourhood(now, Some((relay.origin, relay.seq)));
        }
    }

    fn answered(&mut self, member: MemberId) {
        self.probes.hearsay.remove(&member);
        self.confirm_alive(member);
    }

    pub(super) fn on_reached(
        &mut self,
        now: Timestamp,
        from: MemberId,
        seq: u32,
        target: MemberId,
    ) {
        let helper = self.proven(from);
        let Probes { neighbourhood, questions, health, hearsay, .. } = &mut self.probes;
        let is_question = !neighbourhood.is_its(seq);
        let detector = match questions.get_mut(&target) {
            Some(question) if is_question => &mut *question.detector,
            Some(_) | None => neighbourhood,
        };
        // That it was heard counts in any case.
        if !detector.is_its(seq) || !detector.on_heard(now, health, from, seq, target) {
            self.refused.unasked += 1;
            return;
        }
        if !detector.is_probing(target) {
            return;
        }
        // Until it answers us itself, or signs a newer alive record.
        let times = hearsay.entry(target).or_default();
        if *times >= HEARSAY && !mutated(Bug::HearsayCounts) {
            return;
        }
        *times += 1;
        detector.on_reached(now, health, helper, seq, target);
        if is_question {
            questions.remove(&target);
        }
        self.follow_neighbourhood(now, None);
        // Asked again at once: one helper that lies must not hide a death for whole cycles.
        self.probe(now, target);
    }

    pub(super) fn on_heard(&mut self, now: Timestamp, from: MemberId, seq: u32, target: MemberId) {
        let Probes { neighbourhood, questions, health, .. } = &mut self.probes;
        if neighbourhood.is_its(seq) {
            neighbourhood.on_heard(now, health, from, seq, target);
        } else if let Some(question) = questions.get_mut(&target) {
            question.detector.on_heard(now, health, from, seq, target);
        }
    }

    /// Another member asks us to ping `target`. We make a link if we have none.
    pub(super) fn on_ping_req(
        &mut self,
        now: Timestamp,
        from: MemberId,
        seq: u32,
        target: MemberId,
    ) {
        if target == self.me.member {
            let message = Message::Ack { seq, roots: Roots::default(), items: Vec::new() };
            self.send(from, message, Delivery::Datagram);
            return;
        }
        // That we received it, whatever comes of it.
        self.send(from, Message::Missed { seq, target }, Delivery::Stream);
        let is_known = self.members.get(target).is_some_and(|entry| entry.alive().is_some());
        let link = self.links.get_mut(&from).filter(|link| link.open);
        let is_within = link.is_some_and(|link| link.errands.take(now, 1));
        if !is_known || !is_within || self.probes.relays.len() >= RELAYS {
            self.refused.excessive += u64::from(is_known);
            return;
        }
        let (source, target) = (self.proven(from), self.proven(target));
        let Probes { neighbourhood, health, .. } = &mut self.probes;
        neighbourhood.on_ping_req(now, health, source, target);
        self.follow_neighbourhood(now, Some((from, seq)));
    }

    fn begin_relay(&mut self, now: Timestamp, origin: MemberId, seq: u32, target: MemberId) {
        let own = self.probes.tag() << 8;
        let pause = self.profile.question / RELAY_PINGS / 2;
        let (again, until) = (now + pause, now + pause * (RELAY_PINGS - 1));
        self.probes.relays.insert(own, Relay { origin, seq, target, again, until });
        self.timers.probes = self.timers.probes.min(again);
        if self.is_linked(target) {
            self.ping(target, own, &[]);
        } else {
            self.dial(now, target);
        }
    }

    /// If we are late for our own timers, then others may have answered long ago: what ran out
    /// meanwhile does not count, and we trust ourselves less.
    pub(super) fn mind_lateness(&mut self, now: Timestamp) {
        let late = now.since(self.expected);
        let tolerated = self.profile.ping_every;
        if self.expected == Timestamp::NEVER || late <= tolerated {
            return;
        }
        // The later, the less: a pause of a second is not made good by one answer.
        let steps = late.as_millis() / (2 * tolerated).as_millis().max(1);
        let steps = u32::try_from(steps).unwrap_or(u32::MAX).max(1);
        self.probes.health.worsen(steps);
        self.probes.neighbourhood.postpone(late);
        self.probes.questions.values_mut().for_each(|question| question.detector.postpone(late));
        for relay in self.probes.relays.values_mut() {
            relay.again = relay.again + late;
            relay.until = relay.until + late;
        }
        self.timers.probes = self.probes.next_wake();
        self.postpone_suspicions(late);
    }

    /// The output that makes a link, if we know where.
    pub(super) fn dial(&mut self, now: Timestamp, target: MemberId) {
        let alive = self.members.get(target).and_then(|entry| entry.alive());
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
