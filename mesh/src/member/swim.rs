//! SWIM's failure detector. This module and its parts are the only ones that know foca.
//!
//! A [`Detector`] is one foca instance with the timers that foca asked for. Each member has one for
//! its neighbourhood, and one for each single member that it must probe now. The detector probes,
//! asks others to probe, suspects, refutes and spreads suspicions; `probe` and `suspicion` connect it
//! to links, signatures and records.
//!
//! foca trusts its input, so it receives only what is proven:
//! - The source of a message is the member that the link's certificate names, with the incarnation
//!   of that member's newest signed alive record. The destination is this member.
//! - The mesh has no message for foca's announce, feed, broadcast and "turn undead", and none that
//!   says of another member that it is alive or down.
//! - A suspicion reaches foca only after its signature was verified, and only if it names the newest
//!   alive record. A newer alive record reaches foca from the record layer.
//! - A sender that is not a neighbour is removed from foca's list right after its message.
//!
//! In the other direction a suspicion that foca wants to spread leaves with its signed proof, or not
//! at all. foca's bytes never leave this module; a datagram of the mesh is a [`crate::message`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod host;
mod identity;
mod pace;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foca::{Codec as _, Foca, Header, Incarnation, Message, NoCustomBroadcast, PostcardCodec};
use foca::{State, Timer};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use self::host::{Random, Requests};
use self::identity::FocaId;
pub(super) use self::identity::Proven;
pub(super) use self::pace::{Health, Pace};
use crate::identity::MemberId;
use crate::record::Version;

/// In worse health than this a probe fails even if no helper answers: it may be the truth. A probe
/// is also not held more often than this.
const LONELY: u32 = 3;

/// What a detector wants done. The members in `suspects` are suspected, as of that alive record: a
/// signed proof of it may go with the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outgoing {
    pub(super) to: MemberId,
    pub(super) what: Step,
    pub(super) suspects: Vec<Proven>,
}

/// One message of SWIM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Are you alive? The same number comes back.
    Ping(u32),
    /// The answer to the ping that was just received.
    Ack,
    /// Ping `target` for me.
    PingReq { seq: u32, target: MemberId },
    /// A ping for the member whose request was just received.
    IndirectPing,
    /// `target` answered the ping that was sent for `to`.
    Reached { target: MemberId },
    /// A message that carries suspicions and nothing else.
    Gossip,
}

/// What a detector found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// To be sent.
    Send(Outgoing),
    /// The probe of this member failed: it is suspected. `alone`: there was no helper to ask.
    Suspect { member: MemberId, alone: bool },
    /// The suspicion timeout of this member was delivered, and it did not refute.
    Down(MemberId),
    /// This member refutes a suspicion: it needs a newer alive record.
    Refute,
}

/// The probe in progress.
#[derive(Debug)]
struct Probe {
    target: MemberId,
    seq: u32,
    /// When it began, moved by our own lateness.
    began: Timestamp,
    /// When the ping is repeated.
    again: Timestamp,
    helpers: Vec<MemberId>,
    /// A helper received the request.
    heard: bool,
    /// How often its end was put off because no helper did.
    holds: u32,
    /// foca's timer that asks helpers, once it was delivered.
    indirect: Option<Timer<FocaId>>,
    answered: bool,
    /// How far this member's own lateness may still postpone the end.
    spare: Duration,
}

type Engine = Foca<FocaId, PostcardCodec, Random, NoCustomBroadcast>;

/// One foca instance and its timers.
pub(super) struct Detector {
    foca: Engine,
    pace: Pace,
    /// The upper 24 bits of all sequence numbers of this instance.
    tag: u32,
    /// Members that are to be probed, as foca knows them.
    members: BTreeMap<MemberId, Version>,
    timers: Vec<(Timestamp, Timer<FocaId>)>,
    probe: Option<Probe>,
    /// Members that foca suspects because a probe failed, with its timer that declares them down.
    suspects: BTreeMap<MemberId, Timer<FocaId>>,
    /// Our own incarnation in this instance.
    incarnation: Incarnation,
    /// The probe that ends now had no helper to ask.
    asked_none: bool,
    /// The target of foca's probe, if it was removed meanwhile. foca cannot drop a probe: if the
    /// member is added again, foca takes it for one that did not answer.
    abandoned: Option<MemberId>,
    /// foca must not shuffle its list now.
    keeps_order: Arc<AtomicBool>,
    /// For the phase of the first round.
    random: SplitMix,
    out: Vec<Finding>,
}

impl Detector {
    pub(super) fn new(me: MemberId, pace: Pace, tag: u32, random: u64) -> Detector {
        let id = FocaId::own(me);
        let mut random = SplitMix(random);
        let keeps_order = Arc::new(AtomicBool::new(false));
        let own = Random::new(SplitMix(random.next()), Arc::clone(&keeps_order));
        Detector {
            foca: Foca::new(id, pace.config(), own, PostcardCodec),
            pace,
            tag: tag << 8,
            members: BTreeMap::new(),
            timers: Vec::new(),
            probe: None,
            suspects: BTreeMap::new(),
            incarnation: 0,
            asked_none: false,
            abandoned: None,
            keeps_order,
            random,
            out: Vec::new(),
        }
    }

    /// Whether a sequence number is one of this instance's.
    pub(super) fn is_its(&self, seq: u32) -> bool {
        seq & !0xff == self.tag
    }

    /// What was found since the last call, in order.
    pub(super) fn findings(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.out)
    }

    /// Who is being probed.
    fn target(&self) -> Option<MemberId> {
        self.probe.as_ref().map(|probe| probe.target)
    }

    /// Whether a ping to this member waits for its answer.
    pub(super) fn is_probing(&self, member: MemberId) -> bool {
        self.probe.as_ref().is_some_and(|probe| probe.target == member && !probe.answered)
    }

    /// The members that are probed.
    pub(super) fn members(&self) -> impl Iterator<Item = MemberId> + '_ {
        self.members.keys().copied()
    }

    /// How many members foca has in its list. For the test that strangers do not stay.
    #[cfg(test)]
    pub(super) fn listed(&self) -> usize {
        self.foca.iter_membership_state().count()
    }

    /// Probes these members from now on, and no others.
    pub(super) fn set_members(&mut self, now: Timestamp, health: &Health, wanted: &[Proven]) {
        let is_wanted = |member: &MemberId| wanted.iter().any(|proven| proven.member == *member);
        let gone: Vec<MemberId> = self.members().filter(|member| !is_wanted(member)).collect();
        for proven in wanted {
            self.set_alive(now, health, *proven, true);
        }
        for member in gone {
            self.remove(now, health, member);
        }
    }

    /// A newer alive record of a member was verified: it refutes suspicions of older ones.
    /// `add`: also if it is not among those that are probed.
    pub(super) fn set_alive(&mut self, now: Timestamp, health: &Health, proven: Proven, add: bool) {
        let known = self.members.get(&proven.member);
        if known.is_none() && !add || known.is_some_and(|known| *known >= proven.alive) {
            return;
        }
        if known.is_some() && mutated(Bug::AliveIsNotApplied) {
            return;
        }
        self.members.insert(proven.member, proven.alive);
        self.suspects.remove(&proven.member);
        let update = proven.state(State::Alive);
        self.drive(now, health, |foca, requests| {
            foca.apply_many(std::iter::once(update), false, requests)
        });
    }

    /// Stops to probe a member.
    pub(super) fn remove(&mut self, now: Timestamp, health: &Health, member: MemberId) {
        let Some(alive) = self.members.remove(&member) else { return };
        self.suspects.remove(&member);
        if self.target() == Some(member) {
            self.probe = None;
            self.abandoned = Some(member);
        }
        self.forget(now, health, Proven { member, alive }.state(State::Down));
    }

    /// Takes a member out of foca's list, so that it may come again.
    fn forget(&mut self, now: Timestamp, health: &Health, down: foca::Member<FocaId>) {
        let (id, before) = (down.id().clone(), self.out.len());
        self.drive(now, health, |foca, requests| {
            foca.apply_many(std::iter::once(down), false, &mut *requests)?;
            foca.handle_timer(Timer::RemoveDown(id), requests)
        });
        // That it is down is not news: the caller decided it.
        self.out.truncate(before);
    }

    /// Begins a probe of the only member now.
    pub(super) fn probe_now(&mut self, now: Timestamp, health: &Health) {
        for (at, timer) in &mut self.timers {
            if matches!(timer, Timer::ProbeRandomMember(_)) {
                *at = now;
            }
        }
        self.deliver(now, health);
    }

    /// Asks these helpers now: the target cannot be pinged yet. The probe ends at `until`.
    pub(super) fn ask_helpers_now(
        &mut self,
        now: Timestamp,
        health: &Health,
        helpers: &[Proven],
        until: Timestamp,
    ) {
        if let Some(place) = self.place_of_indirect() {
            let (_, timer) = self.timers.remove(place);
            self.ask_helpers(now, health, timer, helpers);
        }
        self.end_probe_at(until);
    }

    /// Moves the end of the probe in progress.
    pub(super) fn end_probe_at(&mut self, until: Timestamp) {
        for (at, timer) in &mut self.timers {
            if matches!(timer, Timer::ProbeRandomMember(_)) {
                *at = until;
            }
        }
    }

    /// The ping of the probe in progress is sent again now: its target has a link.
    pub(super) fn ping_now(&mut self, now: Timestamp) {
        if let Some(probe) = self.probe.as_mut().filter(|probe| !probe.answered) {
            probe.again = now;
        }
    }

    fn place_of_indirect(&self) -> Option<usize> {
        self.timers.iter().position(|(_, timer)| matches!(timer, Timer::SendIndirectProbe { .. }))
    }

    /// When [`Detector::tick`] is due.
    pub(super) fn next_wake(&self) -> Timestamp {
        let timers = self.timers.iter().map(|(at, _)| *at);
        let ping = self.probe.as_ref().filter(|probe| !probe.answered).map(|probe| probe.again);
        timers.chain(ping).min().unwrap_or(Timestamp::NEVER)
    }

    /// Delivers what is due: repeated pings, foca's timers. `helpers` are members beyond this
    /// instance's own that may be asked to probe.
    pub(super) fn tick(&mut self, now: Timestamp, health: &mut Health, helpers: &[Proven]) {
        if mutated(Bug::TimersAreNotDelivered) {
            (self.timers, self.probe) = (Vec::new(), None);
            return;
        }
        if let Some(probe) = self.probe.as_mut()
            && !probe.answered
            && probe.again <= now
        {
            probe.again = now + health.scaled(self.pace.ping_every);
            let (to, seq) = (probe.target, probe.seq);
            self.send(to, Step::Ping(seq), Vec::new());
        }
        while let Some(place) = self.next_due(now) {
            let (_, timer) = self.timers.remove(place);
            match &timer {
                Timer::SendIndirectProbe { .. } => self.ask_helpers(now, health, timer, helpers),
                Timer::ProbeRandomMember(_) if now < self.earliest_end(health) => {
                    self.timers.push((self.earliest_end(health), timer));
                }
                Timer::ProbeRandomMember(_) if self.is_lonely(health) => {
                    // No helper says that it hears us: the fault may be ours. The probe goes on, and
                    // others are asked.
                    health.worsen(1);
                    self.timers.push((now + health.scaled(self.pace.period), timer));
                    let probe = self.probe.as_mut();
                    let again = probe.and_then(|probe| {
                        probe.holds += 1;
                        probe.indirect.take()
                    });
                    if let Some(again) = again {
                        self.ask_helpers(now, health, again, helpers);
                    }
                }
                Timer::ProbeRandomMember(_)
                | Timer::ChangeSuspectToDown { .. }
                | Timer::PeriodicAnnounce(_)
                | Timer::PeriodicAnnounceDown(_)
                | Timer::PeriodicGossip(_)
                | Timer::RemoveDown(_) => {
                    let probe = self.probe.take();
                    self.asked_none = probe.is_none_or(|probe| probe.helpers.is_empty());
                    self.keeps_order.store(true, Ordering::Relaxed);
                    self.drive(now, health, |foca, requests| foca.handle_timer(timer, requests));
                    self.keeps_order.store(false, Ordering::Relaxed);
                    self.abandoned = None;
                }
            }
        }
    }

    /// The first due timer, in foca's order if several are due at the same time.
    fn next_due(&self, now: Timestamp) -> Option<usize> {
        let due = self.timers.iter().enumerate().filter(|(_, (at, _))| *at <= now);
        due.min_by(|(_, one), (_, other)| one.cmp(other)).map(|(place, _)| place)
    }

    /// Delivers what is due now and cannot ask anybody.
    fn deliver(&mut self, now: Timestamp, health: &Health) {
        while let Some(place) = self.next_due(now) {
            let (_, timer) = self.timers.remove(place);
            self.probe = None;
            self.drive(now, health, |foca, requests| foca.handle_timer(timer, requests));
        }
    }

    /// A probe that was not answered takes as long as our health demands at its end.
    fn earliest_end(&self, health: &Health) -> Timestamp {
        let probe = self.probe.as_ref().filter(|probe| !probe.answered);
        probe.map_or(Timestamp::ZERO, |probe| probe.began + health.scaled(self.pace.period))
    }

    fn is_lonely(&self, health: &Health) -> bool {
        let Some(probe) = &self.probe else { return false };
        let is_unheard = !probe.answered && !probe.helpers.is_empty() && !probe.heard;
        is_unheard && health.level.max(probe.holds) <= LONELY && health.worst > 0
    }

    /// foca chooses its helpers among the members of its list, so others are there meanwhile.
    fn ask_helpers(
        &mut self,
        now: Timestamp,
        health: &Health,
        timer: Timer<FocaId>,
        others: &[Proven],
    ) {
        let others: Vec<_> = others.iter().map(|proven| proven.state(State::Alive)).collect();
        if let Some(probe) = &mut self.probe {
            probe.indirect = Some(timer.clone());
        }
        self.drive(now, health, |foca, requests| {
            foca.apply_many(others.into_iter(), false, &mut *requests)?;
            foca.handle_timer(timer, requests)
        });
        self.remove_strangers(now, health);
    }

    /// Removes from foca's list who is not to be probed.
    fn remove_strangers(&mut self, now: Timestamp, health: &Health) {
        if mutated(Bug::StrangersStay) || self.foca.num_members() == self.members.len() {
            return;
        }
        let listed = self.foca.iter_members();
        let strangers = listed.filter(|other| !self.members.contains_key(&other.id().member));
        let down = |stranger: &foca::Member<FocaId>| {
            foca::Member::new(stranger.id().clone(), stranger.incarnation(), State::Down)
        };
        for stranger in strangers.map(down).collect::<Vec<_>>() {
            self.forget(now, health, stranger);
        }
    }

    /// A ping came: foca answers it.
    pub(super) fn on_ping(&mut self, now: Timestamp, health: &Health, from: Proven) {
        self.on_message(now, health, from, Message::Ping(0));
    }

    /// An answer to a ping came. True: to the probe in progress, for the first time.
    pub(super) fn on_ack(
        &mut self,
        now: Timestamp,
        health: &mut Health,
        from: Proven,
        seq: u32,
    ) -> bool {
        let Some(probe) = self.probe.as_mut() else { return false };
        let is_its = probe.seq == seq
            && !probe.answered
            && (probe.target == from.member || mutated(Bug::SourceIsNotChecked));
        if !is_its {
            return false;
        }
        probe.answered = true;
        let (source, number) = (probe.target, number_of(seq));
        let source = if source == from.member { from } else { self.proven(source) };
        health.improve();
        self.on_message(now, health, source, Message::Ack(number));
        true
    }

    /// A helper reached the target. False: it was not asked.
    pub(super) fn on_reached(
        &mut self,
        now: Timestamp,
        health: &mut Health,
        helper: Proven,
        seq: u32,
        target: MemberId,
    ) -> bool {
        let Some(probe) = self.probe_with(helper.member, seq, target) else { return false };
        probe.answered = true;
        let origin = self.proven(target).id();
        health.improve();
        let message = Message::ForwardedAck { origin, probe_number: number_of(seq) };
        self.on_message(now, health, helper, message);
        true
    }

    /// A helper received the request, whatever comes of it. False: it was not asked.
    pub(super) fn on_heard(
        &mut self,
        now: Timestamp,
        health: &Health,
        helper: MemberId,
        seq: u32,
        target: MemberId,
    ) -> bool {
        let Some(probe) = self.probe_with(helper, seq, target) else { return false };
        let was_held = !std::mem::replace(&mut probe.heard, true) && probe.holds > 0;
        if was_held {
            // We are not cut off: it has the time of a helper, and no more.
            self.end_probe_at(now + health.scaled(self.pace.period - self.pace.rtt));
        }
        true
    }

    fn probe_with(&mut self, helper: MemberId, seq: u32, target: MemberId) -> Option<&mut Probe> {
        let probe = self.probe.as_mut()?;
        let is_its = probe.seq == seq && probe.target == target;
        (is_its && probe.helpers.contains(&helper)).then_some(probe)
    }

    fn proven(&self, member: MemberId) -> Proven {
        Proven { member, alive: self.members.get(&member).copied().unwrap_or_default() }
    }

    /// `from` asks us to ping `target`.
    pub(super) fn on_ping_req(
        &mut self,
        now: Timestamp,
        health: &Health,
        from: Proven,
        target: Proven,
    ) {
        let message = Message::PingReq { target: target.id(), probe_number: 0 };
        self.on_message(now, health, from, message);
    }

    /// `target` answered the ping that was sent for `origin`.
    pub(super) fn on_indirect_ack(
        &mut self,
        now: Timestamp,
        health: &Health,
        target: Proven,
        origin: Proven,
    ) {
        let message = Message::IndirectAck { target: origin.id(), probe_number: 0 };
        self.on_message(now, health, target, message);
    }

    /// A proven suspicion of a member that is probed here, as of its newest alive record.
    pub(super) fn on_suspicion(&mut self, now: Timestamp, health: &Health, of: Proven) {
        let is_newest = self.members.get(&of.member) == Some(&of.alive);
        let is_known = self.members.contains_key(&of.member);
        if is_newest || is_known && mutated(Bug::NewerIsBelieved) {
            let update = of.state(State::Suspect);
            self.drive(now, health, |foca, requests| {
                foca.apply_many(std::iter::once(update), true, requests)
            });
        }
    }

    /// A proven suspicion of ourselves, as of our newest alive record: foca raises our incarnation.
    pub(super) fn on_own_suspicion(&mut self, now: Timestamp, health: &Health) {
        let (own, incarnation) = (self.foca.identity().clone(), self.incarnation);
        self.drive(now, health, |foca, requests| {
            let update = foca::Member::new(own.clone(), incarnation, State::Suspect);
            foca.apply_many(std::iter::once(update), false, &mut *requests)?;
            // Without a neighbour foca has sent nothing from which its incarnation can be read. This
            // header shows it; the message itself is dropped.
            foca.announce(own, requests)
        });
    }

    /// The suspicion timeout of a member has passed. True: foca suspected it, and decides.
    pub(super) fn end_suspicion(
        &mut self,
        now: Timestamp,
        health: &Health,
        member: MemberId,
    ) -> bool {
        let Some(timer) = self.suspects.remove(&member) else { return false };
        if !mutated(Bug::TimersAreNotDelivered) {
            self.drive(now, health, |foca, requests| foca.handle_timer(timer, requests));
        }
        true
    }

    /// This member came too late to its own timers: answers may have arrived meanwhile.
    pub(super) fn postpone(&mut self, late: Duration) {
        let late = match &mut self.probe {
            // One that is always late must come to an end too.
            Some(Probe { spare: Duration::ZERO, .. }) => Duration::ZERO,
            Some(probe) => {
                probe.spare = probe.spare.saturating_sub(late);
                probe.again = probe.again + late;
                probe.began = probe.began + late;
                late
            }
            None => late,
        };
        self.timers.iter_mut().for_each(|(at, _)| *at = *at + late);
    }

    /// Hands foca a message, framed as foca wants it: from `from` to us, and nothing else in it.
    fn on_message(
        &mut self,
        now: Timestamp,
        health: &Health,
        from: Proven,
        message: Message<FocaId>,
    ) {
        let dst = self.foca.identity().clone();
        let header = Header { src: from.id(), src_incarnation: from.incarnation(), dst, message };
        let mut frame = Vec::with_capacity(96);
        if PostcardCodec.encode_header(&header, &mut frame).is_err() {
            return;
        }
        self.drive(now, health, |foca, requests| foca.handle_data(&frame, requests));
        self.remove_strangers(now, health);
    }

    /// Calls foca and turns what it asks for into findings and timers.
    fn drive(
        &mut self,
        now: Timestamp,
        health: &Health,
        call: impl FnOnce(&mut Engine, &mut Requests) -> Result<(), foca::Error>,
    ) {
        let mut requests = Requests::default();
        // What foca can refuse: a message from or for ourselves, which the caller excludes, and a
        // probe that began before the last timer came, which it makes good itself.
        let _refused = call(&mut self.foca, &mut requests);
        if requests.rejoined {
            // foca starts again as if it had no members.
            let _refused = self.foca.apply_many(std::iter::empty(), false, &mut requests);
        }
        let Requests { sent, timers, down, reset, rejoined } = requests;
        if reset {
            self.timers.clear();
            self.suspects.clear();
            self.probe = None;
        }
        if rejoined {
            self.incarnation = 0;
            self.out.push(Finding::Refute);
        }
        for (to, header, updates) in sent {
            if header.src_incarnation > self.incarnation {
                self.incarnation = header.src_incarnation;
                self.out.push(Finding::Refute);
            }
            self.translate(now, health, to.member, header.message, &updates);
        }
        for (timer, after) in timers {
            self.schedule(now, health, timer, after);
        }
        self.out.extend(down.into_iter().map(Finding::Down));
    }

    fn schedule(&mut self, now: Timestamp, health: &Health, timer: Timer<FocaId>, after: Duration) {
        match timer {
            Timer::ChangeSuspectToDown { ref member_id, incarnation, .. } => {
                let member = member_id.member;
                let known = self.proven(member);
                // foca asks for the timer also if a newer alive record came during the probe.
                let is_current = known.id() == *member_id && known.incarnation() == incarnation;
                if is_current && self.abandoned != Some(member) {
                    self.suspects.insert(member, timer);
                    self.out.push(Finding::Suspect { member, alone: self.asked_none });
                }
            }
            Timer::ProbeRandomMember(_) if self.probe.is_none() => {
                // The first of all rounds: members start together, their rounds should not.
                let round = after * u32::try_from(self.pace.helpers + 1).unwrap_or(1);
                let span = u64::try_from(round.as_nanos()).unwrap_or(u64::MAX).max(1);
                let phase = Duration::from_nanos(self.random.next() % span);
                self.timers.push((now + phase, timer));
            }
            Timer::ProbeRandomMember(_)
            | Timer::SendIndirectProbe { .. }
            | Timer::PeriodicAnnounce(_)
            | Timer::PeriodicAnnounceDown(_)
            | Timer::PeriodicGossip(_)
            | Timer::RemoveDown(_) => self.timers.push((now + health.scaled(after), timer)),
        }
    }

    fn send(&mut self, to: MemberId, what: Step, suspects: Vec<Proven>) {
        self.out.push(Finding::Send(Outgoing { to, what, suspects }));
    }

    fn translate(
        &mut self,
        now: Timestamp,
        health: &Health,
        to: MemberId,
        message: Message<FocaId>,
        updates: &[foca::Member<FocaId>],
    ) {
        // Only suspicions travel. Who is alive says so itself; who is down, each finds out.
        let suspects = updates.iter().filter(|update| update.state() == State::Suspect);
        let suspects: Vec<Proven> = suspects.map(Proven::of).collect();
        let what = match message {
            Message::Ping(number) => {
                let seq = self.tag | u32::from(number);
                let again = now + health.scaled(self.pace.ping_every);
                self.probe = Some(Probe {
                    target: to,
                    seq,
                    began: now,
                    again,
                    helpers: Vec::new(),
                    heard: false,
                    holds: 0,
                    indirect: None,
                    answered: false,
                    spare: self.pace.spare,
                });
                Step::Ping(seq)
            }
            Message::Ack(_) => Step::Ack,
            Message::PingReq { target, probe_number } => {
                if let Some(probe) = &mut self.probe {
                    probe.helpers.push(to);
                }
                Step::PingReq { seq: self.tag | u32::from(probe_number), target: target.member }
            }
            Message::IndirectPing { .. } => Step::IndirectPing,
            Message::ForwardedAck { origin, .. } => Step::Reached { target: origin.member },
            Message::Gossip if !suspects.is_empty() => Step::Gossip,
            // An indirect ping reaches its target as an ordinary one, so nobody sends the answer to it.
            Message::Gossip
            | Message::IndirectAck { .. }
            | Message::Announce
            | Message::Feed
            | Message::Broadcast
            | Message::TurnUndead => return,
        };
        self.send(to, what, suspects);
    }
}

fn number_of(seq: u32) -> foca::ProbeNumber {
    seq.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn neighbour(nth: u8) -> Proven {
        Proven { member: MemberId([nth; 16]), alive: Version { generation: 1, count: 1 } }
    }

    /// The members that are pinged in so many rounds, if all answer.
    fn pinged(seed: u64, neighbours: &[Proven], rounds: usize) -> Vec<MemberId> {
        let pace = Pace::of_rounds(&Profile::lan());
        let mut detector = Detector::new(MemberId([9; 16]), pace, 0, seed);
        let mut health = Health::new(8);
        let mut now = Timestamp::ZERO;
        detector.set_members(now, &health, neighbours);
        let mut pinged = Vec::new();
        while pinged.len() < rounds {
            now = detector.next_wake();
            detector.tick(now, &mut health, &[]);
            for finding in detector.findings() {
                let Finding::Send(Outgoing { to, what: Step::Ping(seq), .. }) = finding else {
                    continue;
                };
                pinged.push(to);
                let from = neighbours.iter().find(|proven| proven.member == to).unwrap();
                assert!(detector.on_ack(now, &mut health, *from, seq));
            }
        }
        pinged
    }

    #[test]
    fn each_neighbour_is_pinged_once_in_a_cycle_and_in_the_same_order() {
        let neighbours: Vec<Proven> = (1..=4).map(neighbour).collect();
        let mut orders = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let pinged = pinged(seed, &neighbours, 40);
            let mut first = pinged[..4].to_vec();
            assert!(pinged.chunks(4).all(|cycle| cycle == first), "seed {seed}: {pinged:?}");
            orders.insert(first.clone());
            first.sort();
            first.dedup();
            assert_eq!(first.len(), 4, "seed {seed}");
        }
        assert!(orders.len() > 12, "members have different orders: {}", orders.len());
    }
}
