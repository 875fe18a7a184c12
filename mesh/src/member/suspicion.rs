//! When a suspected member is missing. Each member decides for itself.
//!
//! A suspicion is signed by the member that could not reach another. The suspected member ends it
//! with a newer alive record, which only it can sign. Until then a timeout runs: short if several
//! members suspect the same, long on the word of few. One cell alone convinces only itself; a few
//! members, chosen by hash, then probe the suspected member, and suspect it too if it is silent. So
//! one member that lies, or that is cut off, makes nobody missing. A coordinator probes the suspected
//! member itself at once, and does not declare it missing while it answers. It probes that member's
//! neighbours too: they may have died together. What only a coordinator suspects is verified in the
//! same way.
//!
//! If this member's own probe failed, the timeout is foca's timer, and foca declares the member down.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::random::mix;
use volvox_protocol::time::{Backoff, Timestamp};

use super::probe::Probes;
use super::swim::{Detector, Finding, Proven};
use super::{Delivery, Member, MemberEvent, MemberOutput, MemberState, is_coordinator, rings};
use crate::identity::{Authenticator, MemberId, MemberIdentity, MemberKind};
use crate::message::Message;
use crate::profile::Profile;
use crate::record::{Item, Suspicion, Topic, Version};

/// Open suspicions by one cell. A cell that cannot reach more members than this is itself cut off.
const OPEN_SUSPICIONS: usize = 64;

/// Signed suspicions that are kept of one member.
const KEPT_SUSPICIONS: usize = 8;

/// Number of members, on average, that probe a member which one member alone suspects.
const VERIFIERS: u64 = 8;

/// The longest wait of one cell's repeated suspicions for a refutation: shorter than the time after
/// which that cell, if it is honest and only cut off from us, declares us missing.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// A member that refuted a suspicion this recently must miss two probes of a coordinator in a row.
const LATELY: Duration = Duration::from_secs(60);

/// Cells wait this many times as long as coordinators: they have nothing to decide.
const PATIENCE: u32 = 3;

/// A suspected member.
pub(super) struct SuspicionState {
    pub(super) suspicions: Vec<Arc<Suspicion>>,
    evidence: Evidence,
    since: Timestamp,
    due: Timestamp,
    /// It answered our probe since it is suspected.
    answered: bool,
    /// The members that verify were chosen.
    is_drawn: bool,
    /// How far our own lateness may still postpone the end.
    spare: Duration,
    /// The detector whose probe failed, unless that is the neighbourhood's.
    detector: Option<Box<Detector>>,
}

/// What speaks against a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Number of members that suspect it.
    pub members: usize,
    /// This member is among them: its own probe failed.
    pub ours: bool,
    /// A coordinator is among them.
    pub coordinator: bool,
    /// There is no other member that could confirm or contradict it.
    pub no_witness: bool,
}

/// Time that a suspected member has to refute. `None`: the evidence is not enough.
pub fn suspicion_timeout(
    profile: &Profile,
    judge: MemberKind,
    evidence: Evidence,
) -> Option<Duration> {
    let (shortest, longest) = (profile.suspicion_shortest, profile.suspicion_longest);
    match (judge, evidence) {
        // A coordinator probes for itself, and waits for what comes of it.
        (MemberKind::Coordinator, Evidence { ours: false, .. }) => None,
        (MemberKind::Coordinator, Evidence { members: 0 | 1, .. }) => Some(longest),
        (MemberKind::Coordinator, Evidence { .. }) => Some(shortest),
        // One cell alone, and not this member.
        (MemberKind::Cell, Evidence { members: 0 | 1, ours: false, coordinator: false, .. }) => {
            None
        }
        // No other member will ever speak: there is nothing to be patient for.
        (MemberKind::Cell, Evidence { members: 0 | 1, ours: true, no_witness: true, .. }) => {
            Some(longest)
        }
        (MemberKind::Cell, Evidence { members: 0 | 1, .. }) => Some(longest * PATIENCE),
        (MemberKind::Cell, Evidence { coordinator: true, .. }) => Some(shortest * PATIENCE),
        (MemberKind::Cell, Evidence { members: 2, .. }) => Some(shortest * 2 * PATIENCE),
        (MemberKind::Cell, Evidence { .. }) => Some(shortest * PATIENCE),
    }
}

impl<N: Authenticator> Member<N> {
    /// Takes in a suspicion, if it is proven and as new as what is known. This is the filter in
    /// front of foca.
    pub(super) fn ingest_suspicion(
        &mut self,
        now: Timestamp,
        from: MemberId,
        suspicion: Arc<Suspicion>,
    ) {
        let Suspicion { by, subject, alive, .. } = *suspicion;
        if by == self.me.member {
            return;
        }
        let Some(known) = self.members.version(subject, Topic::Alive) else {
            // Unknown, or forgotten. Of a real member the alive record comes first.
            self.refused.strangers += 1;
            return;
        };
        if alive > known && !mutated(Bug::NewerIsBelieved) {
            self.want(now, from, subject);
            return;
        }
        if alive < known && !mutated(Bug::AnyAliveRecord) {
            self.refused.stale += 1;
            return;
        }
        if self.has_suspicion(&suspicion) {
            return;
        }
        let identity = self.members.get(by).and_then(|entry| entry.identity().cloned());
        let Some(identity) = identity else {
            self.want(now, from, by);
            return;
        };
        // A suspicion of ourselves is refuted even if its author is missing here: after a partition
        // each side takes the other for missing.
        if self.revoked.contains_key(&by) {
            self.refused.strangers += 1;
            return;
        }
        if !is_coordinator(&identity) && self.open_suspicions(by) >= OPEN_SUSPICIONS {
            self.refused.suspicions += 1;
            return;
        }
        let is_signed = suspicion.is_signed_by(&self.authenticator, &identity);
        if !is_signed && !mutated(Bug::UnsignedSuspicions) {
            self.refused.forged += 1;
            return;
        }
        let is_gone = self.members.state(by) == MemberState::Missing;
        if subject == self.me.member {
            self.refute(now, from, &identity, alive);
        } else if is_gone {
            // Its word does not count any more. But it may be why all others take the subject for
            // missing, and then nobody will suspect it again: this member has to probe it.
            self.refused.strangers += 1;
            self.probe(now, subject);
        } else {
            let Probes { neighbourhood, health, .. } = &mut self.probes;
            neighbourhood.on_suspicion(now, health, Proven { member: subject, alive });
            self.add_evidence(now, suspicion, Some(from));
        }
    }

    /// We are suspected, and alive. Cells are answered together, so that one that suspects every new
    /// alive record cannot flood the mesh with them; a timeout on their word lasts at least as long.
    /// What one member repeats is still the opinion of one: it does not lower our health.
    fn refute(&mut self, now: Timestamp, from: MemberId, by: &MemberIdentity, alive: Version) {
        if mutated(Bug::NeverRefutes) {
            return;
        }
        let last = self.own.suspected_by.replace((by.member, alive));
        if last == Some((by.member, alive)) {
            // Another copy of what is refuted soon.
            return;
        }
        let is_news = last.is_none_or(|(member, _)| member != by.member);
        if is_news || is_coordinator(by) {
            self.probes.health.worsen(1);
        }
        // One cell alone convinces nobody, so its repeated word can wait longer and longer.
        self.own.suspicions = if is_news { 1 } else { self.own.suspicions.saturating_add(1) };
        let gap = Backoff { first: self.profile.suspicion_shortest, longest: LONGEST_GAP };
        let at = self.own.refuted + gap.after(self.own.suspicions);
        if at > now && !is_coordinator(by) && !mutated(Bug::RefutesAtOnce) {
            if !mutated(Bug::DropsInsteadOfPostponing) {
                self.timers.refute = self.timers.refute.min(at);
            }
            return;
        }
        self.raise_incarnation(now);
        if let Some(alive) = self.members.record(self.me.member, Topic::Alive).cloned() {
            let message = Message::Gossip { items: vec![Item::Record(alive)] };
            self.send(from, message, Delivery::Stream);
        }
    }

    /// Tells foca that we are suspected. It raises our incarnation, and a newer alive record follows.
    pub(super) fn raise_incarnation(&mut self, now: Timestamp) {
        self.timers.refute = Timestamp::NEVER;
        let Probes { neighbourhood, health, .. } = &mut self.probes;
        neighbourhood.on_own_suspicion(now, health);
        self.follow_neighbourhood(now, None);
    }

    /// foca has raised our incarnation.
    pub(super) fn publish_refutation(&mut self, now: Timestamp) {
        self.own.refuted = now;
        self.publish_alive(now);
    }

    /// Our probe of a member failed. `detector`: it found that, unless it was the neighbourhood's.
    pub(super) fn suspect(
        &mut self,
        now: Timestamp,
        subject: MemberId,
        detector: Option<Box<Detector>>,
    ) {
        let is_new = self.suspects.get(&subject).is_none_or(|suspect| !suspect.evidence.ours);
        let is_new = is_new && !mutated(Bug::NeverSuspects);
        if self.members.state(subject) != MemberState::Present || !is_new {
            return;
        }
        let alive = self.members.version(subject, Topic::Alive).unwrap_or_default();
        let signed = Suspicion::signed(&self.authenticator, self.me.member, subject, alive);
        self.add_evidence(now, Arc::new(signed), None);
        if let Some(suspect) = self.suspects.get_mut(&subject) {
            suspect.detector = detector;
        }
    }

    /// A verified suspicion counts from now on.
    fn add_evidence(&mut self, now: Timestamp, suspicion: Arc<Suspicion>, from: Option<MemberId>) {
        let subject = suspicion.subject;
        if self.members.state(subject) != MemberState::Present {
            // Missing already: kept as a reason for those who come later.
            let kept = self.missing_because.entry(subject).or_default();
            if kept.len() < KEPT_SUSPICIONS {
                kept.push(suspicion.clone());
                self.enqueue(now, Item::Suspicion(suspicion), from);
            }
            return;
        }
        let by_coordinator = self.is_coordinator_id(suspicion.by);
        let is_full =
            self.suspects.get(&subject).is_some_and(|s| s.suspicions.len() >= KEPT_SUSPICIONS);
        if is_full && from.is_some() && !by_coordinator {
            // One that is not kept would be counted, and passed on, whenever it comes again.
            return;
        }
        let spare = self.profile.suspicion_longest;
        // Beside us and the subject.
        let no_witness = self.members.present() <= 2;
        let suspect = self.suspects.entry(subject).or_insert_with(|| SuspicionState {
            suspicions: Vec::new(),
            evidence: Evidence { members: 0, ours: false, coordinator: false, no_witness },
            since: now,
            due: Timestamp::NEVER,
            answered: false,
            is_drawn: false,
            spare,
            detector: None,
        });
        suspect.evidence.members += 1;
        suspect.evidence.ours |= from.is_none();
        suspect.evidence.coordinator |= by_coordinator;
        suspect.evidence.no_witness = no_witness;
        suspect.suspicions.push(suspicion.clone());
        if suspect.evidence.members == 2 && !is_coordinator(&self.me) {
            // The refutation of what one cell alone says may wait, so the time begins now.
            suspect.since = now;
        }
        let span = suspicion_timeout(&self.profile, self.me.kind, suspect.evidence);
        suspect.due = match span {
            Some(span) => suspect.since + span,
            None if !suspect.is_drawn => suspect.since + self.profile.suspicion_longest,
            None => Timestamp::NEVER,
        };
        self.timers.suspicions = self.timers.suspicions.min(suspect.due);
        let is_first = suspect.evidence.members == 1;
        self.enqueue(now, Item::Suspicion(suspicion), from);
        let is_ours = is_coordinator(&self.me)
            || self.is_leaf(subject) && self.is_linked(subject)
            || self.watched().contains(&subject);
        let is_ours = is_ours || is_first && by_coordinator && self.is_verifier(subject);
        if from.is_some() && is_ours {
            self.probe(now, subject);
        }
        if from.is_some() && is_first && is_coordinator(&self.me) {
            self.probe_neighbours_of(now, subject);
        }
    }

    /// If the suspected member is dead, its neighbours have one member less that pings them. If they
    /// died with it, there may be none left: so a coordinator does not wait for others to notice.
    fn probe_neighbours_of(&mut self, now: Timestamp, subject: MemberId) {
        if self.is_leaf(subject) {
            return;
        }
        for neighbour in rings::neighbours_of(subject, self.members.on_rings()) {
            self.probe(now, neighbour);
        }
    }

    pub(super) fn step_suspicions(&mut self, now: Timestamp) {
        let due = self.suspects.iter().filter(|(_, suspect)| suspect.due <= now);
        for subject in due.map(|(subject, _)| *subject).collect::<Vec<_>>() {
            self.end_suspicion(now, subject);
        }
        self.schedule_suspicions();
    }

    fn schedule_suspicions(&mut self) {
        let due = self.suspects.values().map(|suspect| suspect.due).min();
        self.timers.suspicions = due.unwrap_or(Timestamp::NEVER);
    }

    /// The suspicion timeout has passed.
    fn end_suspicion(&mut self, now: Timestamp, subject: MemberId) {
        let is_verifier = self.is_verifier(subject);
        let longest = self.profile.suspicion_longest;
        let Some(suspect) = self.suspects.get_mut(&subject) else { return };
        let is_enough = suspicion_timeout(&self.profile, self.me.kind, suspect.evidence).is_some();
        if !is_enough && is_coordinator(&self.me) {
            suspect.due = now + longest;
            self.probe(now, subject);
            return;
        }
        if !is_enough {
            suspect.is_drawn = true;
            suspect.due = Timestamp::NEVER;
            if is_verifier {
                self.probe(now, subject);
            }
            return;
        }
        suspect.due = now + longest;
        if suspect.answered {
            // It answers us, whatever others say. It is probed again, and learns who suspects it.
            suspect.answered = false;
            self.probe(now, subject);
            return;
        }
        let Probes { neighbourhood, health, .. } = &mut self.probes;
        if neighbourhood.end_suspicion(now, health, subject) {
            self.follow_neighbourhood(now, None);
        } else if let Some(detector) = &mut suspect.detector {
            detector.end_suspicion(now, health, subject);
            if detector.findings().contains(&Finding::Down(subject)) {
                self.declare_missing(now, subject);
            }
        } else {
            self.declare_missing(now, subject);
        }
    }

    pub(super) fn declare_missing(&mut self, now: Timestamp, subject: MemberId) {
        let Some(suspect) = self.suspects.remove(&subject) else { return };
        self.missing_because.insert(subject, suspect.suspicions);
        self.probes.forget(subject);
        self.members.set_state(subject, MemberState::Missing);
        self.place_on_rings(subject, false);
        self.missing_since.insert(subject, now);
        self.timers.links = now;
        if self.is_linked(subject) {
            // Nothing is at its other end. As long as it is open, nobody dials; and a member that
            // starts again at the same address cannot say that the old connection is void.
            self.out.push(MemberOutput::Close { peer: subject });
        }
        if let Some(identity) = self.members.get(subject).and_then(|s| s.identity().cloned()) {
            self.tell(MemberEvent::Missing { identity, left: false });
        }
    }

    /// A member answered our probe: it is not declared missing for now.
    pub(super) fn confirm_alive(&mut self, member: MemberId) {
        if let Some(suspect) = self.suspects.get_mut(&member) {
            suspect.answered = true;
        }
    }

    /// Whether a suspected member answered our probe.
    pub(super) fn has_answered(&self, member: MemberId) -> bool {
        self.suspects.get(&member).is_some_and(|suspect| suspect.answered)
    }

    /// Whether a member refuted a suspicion within [`LATELY`].
    pub(super) fn refuted_lately(&self, now: Timestamp, member: MemberId) -> bool {
        self.refuted.get(&member).is_some_and(|at| now.since(*at) < LATELY)
    }

    /// A newer alive record refutes the suspicions of an older one.
    pub(super) fn clear_suspicions(&mut self, now: Timestamp, member: MemberId) {
        if is_coordinator(&self.me) && self.suspects.contains_key(&member) {
            self.refuted.retain(|_, at| now.since(*at) < LATELY);
            self.refuted.insert(member, now);
        }
        self.suspects.remove(&member);
        self.missing_because.remove(&member);
    }

    pub(super) fn postpone_suspicions(&mut self, late: Duration) {
        for suspect in self.suspects.values_mut() {
            let put_off = late.min(suspect.spare);
            suspect.spare -= put_off;
            suspect.due = suspect.due + put_off;
        }
        self.schedule_suspicions();
    }

    fn has_suspicion(&self, suspicion: &Suspicion) -> bool {
        let suspect = self.suspects.get(&suspicion.subject).map(|suspect| &suspect.suspicions);
        let known = suspect.or(self.missing_because.get(&suspicion.subject));
        known.into_iter().flatten().any(|known| known.by == suspicion.by)
    }

    fn open_suspicions(&self, by: MemberId) -> usize {
        if self.suspects.len() < OPEN_SUSPICIONS {
            return 0;
        }
        let open = self.suspects.values();
        open.filter(|suspect| suspect.suspicions.iter().any(|s| s.by == by)).count()
    }

    fn is_coordinator_id(&self, member: MemberId) -> bool {
        self.coordinator_ids.contains(&member)
            || member == self.me.member && is_coordinator(&self.me)
    }

    /// Whether this member verifies a lone suspicion. All members compute the same choice.
    fn is_verifier(&self, subject: MemberId) -> bool {
        let alive = self.members.version(subject, Topic::Alive).unwrap_or_default();
        let lot = mix(mix(self.me.member.halves().0) ^ subject.halves().0 ^ u64::from(alive.count));
        lot % (self.members.present() as u64).max(1) < VERIFIERS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In units of the shortest time; the longest is 5 of them here.
    #[test]
    fn the_suspicion_timeout_is_as_this_table_says() {
        let shortest = Duration::from_secs(1);
        let longest = shortest * 5;
        let profile =
            Profile { suspicion_shortest: shortest, suspicion_longest: longest, ..Profile::lan() };
        // Members, ours, a coordinator's; then the time at a coordinator, and at a cell, where the
        // unit is three times as long. None: not enough.
        let table = [
            (0, false, false, None, None),
            (0, false, true, None, Some(5)),
            (0, true, false, Some(5), Some(5)),
            (0, true, true, Some(5), Some(5)),
            (1, false, false, None, None),
            (1, false, true, None, Some(5)),
            (1, true, false, Some(5), Some(5)),
            (1, true, true, Some(5), Some(5)),
            (2, false, false, None, Some(2)),
            (2, false, true, None, Some(1)),
            (2, true, false, Some(1), Some(2)),
            (2, true, true, Some(1), Some(1)),
            (3, false, false, None, Some(1)),
            (3, false, true, None, Some(1)),
            (3, true, false, Some(1), Some(1)),
            (3, true, true, Some(1), Some(1)),
            (99, false, false, None, Some(1)),
            (99, false, true, None, Some(1)),
            (99, true, false, Some(1), Some(1)),
            (99, true, true, Some(1), Some(1)),
        ];
        for (members, ours, coordinator, at_coordinator, at_cell) in table {
            let evidence = Evidence { members, ours, coordinator, no_witness: false };
            let at = |judge| suspicion_timeout(&profile, judge, evidence);
            let units = |unit: Duration, count: Option<u32>| count.map(|count| unit * count);
            assert_eq!(
                at(MemberKind::Coordinator),
                units(shortest, at_coordinator),
                "{evidence:?}"
            );
            assert_eq!(at(MemberKind::Cell), units(shortest * PATIENCE, at_cell), "{evidence:?}");
        }
        // If there are only two members, a cell waits no longer than a coordinator.
        let alone = Evidence { members: 1, ours: true, coordinator: false, no_witness: true };
        for judge in [MemberKind::Cell, MemberKind::Coordinator] {
            assert_eq!(suspicion_timeout(&profile, judge, alone), Some(longest));
        }
        let another = Evidence { ours: false, ..alone };
        assert_eq!(suspicion_timeout(&profile, MemberKind::Cell, another), None);
    }

    /// At cells and coordinators, more suspicions never give the suspected member more time.
    #[test]
    fn every_further_suspicion_shortens_the_time_or_leaves_it() {
        let order = |span: Option<Duration>| span.unwrap_or(Duration::MAX);
        for profile in [Profile::lan(), Profile::wan(), Profile::metered()] {
            assert!(profile.suspicion_shortest * 2 <= profile.suspicion_longest);
            for judge in [MemberKind::Cell, MemberKind::Coordinator] {
                for (members, bits) in (0..6).flat_map(|n| (0..4).map(move |bits| (n, bits))) {
                    let (ours, coordinator) = (bits & 1 != 0, bits & 2 != 0);
                    let now = Evidence { members, ours, coordinator, no_witness: false };
                    let more = [
                        Evidence { members: members + 1, ..now },
                        Evidence { members: members + 1, ours: true, ..now },
                        Evidence { members: members + 1, coordinator: true, ..now },
                    ];
                    let before = order(suspicion_timeout(&profile, judge, now));
                    for more in more {
                        let after = order(suspicion_timeout(&profile, judge, more));
                        assert!(after <= before, "{now:?} then {more:?}");
                    }
                }
            }
        }
    }
}
