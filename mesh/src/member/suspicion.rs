//! When an accused member is missing. Every member judges for itself.
//!
//! An accusation opens a trial. The accused can end it by a newer card, which only it can sign. Until
//! then the trial runs: short when several say the same, long on the word of few. On the word of one
//! cell alone nobody but that cell itself finds against the accused; a few, chosen by lot, then ask
//! the accused themselves, and accuse it too if it is silent. So one member that lies, or that is cut
//! off, puts nobody out. A coordinator asks the accused itself at once, and as long as it is answered
//! it finds for the accused, whoever says what.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::mutation::{Bug, mutated};
use volvox_protocol::random::mix;
use volvox_protocol::time::Timestamp;

use super::{Delivery, Member, MemberOutput, MemberState, is_coordinator};
use crate::identity::{Authenticator, Kind, MemberId, MemberIdentity};
use crate::message::Message;
use crate::profile::Profile;
use crate::record::{Item, Suspicion, Topic};

/// Accusations by one cell that are open at one time. A cell that cannot reach more than this many
/// others should look at itself.
const OPEN_SUSPICIONS: usize = 64;

/// Accusers that are kept for one trial.
const KEPT_SUSPICIONS: usize = 8;

/// How many are asked to look for themselves, on average, when one cell alone accuses.
const VERIFIERS: u64 = 8;

/// The longest time that one cell's repeated accusations wait for an answer: shorter than the trial in
/// which that cell itself, if it is honest and merely cut off from us, finds us missing.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// Cells wait this many times as long as coordinators.
const PATIENCE: u32 = 3;

/// One member, accused.
#[derive(Debug)]
pub(super) struct SuspicionState {
    pub(super) suspicions: Vec<Arc<Suspicion>>,
    evidence: Evidence,
    since: Timestamp,
    due: Timestamp,
    /// It answered us since the accusation.
    vouched: bool,
    /// The lot was drawn.
    drawn: bool,
    /// How far our own lateness may still put it off.
    spare: Duration,
}

/// What speaks against somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// How many accuse.
    pub members: usize,
    /// Whether we are among them.
    pub ours: bool,
    /// Whether a coordinator is among them.
    pub coordinator: bool,
}

/// How long the accused has to answer, or `None`: what speaks against it is not enough.
pub fn time_to_answer(profile: &Profile, judge: Kind, evidence: Evidence) -> Option<Duration> {
    let (shortest, longest) = (profile.suspicion_shortest, profile.suspicion_longest);
    let span = match evidence {
        // Nobody but one cell, and not we.
        Evidence { members: 0 | 1, ours: false, coordinator: false } => return None,
        Evidence { members: 0 | 1, .. } => longest,
        Evidence { coordinator: true, .. } => shortest,
        Evidence { members: 2, .. } => shortest * 2,
        Evidence { .. } => shortest,
    };
    match judge {
        Kind::Coordinator => Some(span),
        Kind::Cell => Some(span * PATIENCE),
    }
}

impl<N: Authenticator> Member<N> {
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
            // Nobody, or somebody forgotten. Of somebody real, the card comes first.
            self.refused.strangers += 1;
            return;
        };
        if alive > known {
            self.want(now, from, subject);
            return;
        }
        if alive < known {
            self.refused.stale += 1;
            return;
        }
        if self.has_charge(&suspicion) {
            return;
        }
        let identity = self.members.get(by).and_then(|s| s.identity().cloned());
        let Some(identity) = identity else {
            self.want(now, from, by);
            return;
        };
        // To an accusation against ourselves we answer even if we take the accuser for missing: after
        // a partition each side takes the other for that.
        if self.revoked.contains_key(&by) {
            self.refused.strangers += 1;
            return;
        }
        if !is_coordinator(&identity) && self.open_suspicions(by) >= OPEN_SUSPICIONS {
            self.refused.suspicions += 1;
            return;
        }
        if !suspicion.is_signed_by(&self.authenticator, &identity) {
            self.refused.forged += 1;
            return;
        }
        let is_gone = self.members.state(by) == MemberState::Missing;
        if subject == self.me.member {
            self.defend(now, from, &identity);
        } else if is_gone {
            // Its word does not count any more. But it may be why all others take the subject for
            // missing, and then nobody will accuse it again: we have to look for ourselves.
            self.refused.strangers += 1;
            self.probe(now, subject);
        } else {
            self.charge(now, suspicion, Some(from));
        }
    }

    /// We are accused, and we are here. Cells are answered together, so that one who accuses every
    /// new card cannot flood the mesh with them; a trial on their word lasts at least as long. And
    /// what one says again and again is still the opinion of one: it makes us no worse.
    fn defend(&mut self, now: Timestamp, from: MemberId, by: &MemberIdentity) {
        if mutated(Bug::NeverRefutes) {
            return;
        }
        let is_news = self.own.by.replace(by.member) != Some(by.member);
        if is_news || is_coordinator(by) {
            self.worse();
        }
        // One cell alone convinces nobody, so its repeated word can wait longer and longer.
        self.own.answer_gap = if is_news {
            self.profile.suspicion_shortest
        } else {
            (self.own.answer_gap * 2).min(LONGEST_GAP)
        };
        let at = self.own.answered + self.own.answer_gap;
        if at > now && !is_coordinator(by) {
            self.timers.answer = self.timers.answer.min(at);
            return;
        }
        self.refute(now);
        if let Some(alive) = self.members.record(self.me.member, Topic::Alive).cloned() {
            let message = Message::Gossip { items: vec![Item::Record(alive)] };
            self.send(from, message, Delivery::Stream);
        }
    }

    pub(super) fn refute(&mut self, now: Timestamp) {
        self.timers.answer = Timestamp::NEVER;
        self.own.answered = now;
        self.publish_alive(now);
    }

    /// We cannot reach somebody.
    pub(super) fn suspect(&mut self, now: Timestamp, subject: MemberId) {
        let is_new = self.suspects.get(&subject).is_none_or(|suspect| !suspect.evidence.ours);
        let is_new = is_new && !mutated(Bug::NeverSuspects);
        if self.members.state(subject) != MemberState::Present || !is_new {
            return;
        }
        let alive = self.members.version(subject, Topic::Alive).unwrap_or_default();
        let suspicion = Suspicion::signed(&self.authenticator, self.me.member, subject, alive);
        self.charge(now, Arc::new(suspicion), None);
    }

    /// A checked accusation counts from now on.
    fn charge(&mut self, now: Timestamp, suspicion: Arc<Suspicion>, from: Option<MemberId>) {
        let subject = suspicion.subject;
        if self.members.state(subject) != MemberState::Present {
            // Found missing already: kept as a reason for those who come later.
            let kept = self.missing_because.entry(subject).or_default();
            if kept.len() < KEPT_SUSPICIONS {
                kept.push(suspicion.clone());
                self.enqueue(now, Item::Suspicion(suspicion), from);
            }
            return;
        }
        let by_coordinator = self.is_coordinator_id(suspicion.by);
        let is_full =
            self.suspects.get(&subject).is_some_and(|t| t.suspicions.len() >= KEPT_SUSPICIONS);
        if is_full && from.is_some() && !by_coordinator {
            // One that is not kept would be counted, and passed on, whenever it is heard again.
            return;
        }
        let spare = self.profile.suspicion_longest;
        let suspect = self.suspects.entry(subject).or_insert_with(|| SuspicionState {
            suspicions: Vec::new(),
            evidence: Evidence { members: 0, ours: false, coordinator: false },
            since: now,
            due: Timestamp::NEVER,
            vouched: false,
            drawn: false,
            spare,
        });
        suspect.evidence.members += 1;
        suspect.evidence.ours |= from.is_none();
        suspect.evidence.coordinator |= by_coordinator;
        suspect.suspicions.push(suspicion.clone());
        let span = time_to_answer(&self.profile, self.me.kind, suspect.evidence);
        let lot = self.profile.suspicion_longest;
        suspect.due = match span {
            Some(span) => suspect.since + span,
            None if !suspect.drawn => suspect.since + lot,
            None => Timestamp::NEVER,
        };
        self.timers.suspects = self.timers.suspects.min(suspect.due);
        self.enqueue(now, Item::Suspicion(suspicion), from);
        let is_ours = is_coordinator(&self.me)
            || self.is_leaf(subject) && self.is_linked(subject)
            || self.watched().contains(&subject);
        if from.is_some() && is_ours {
            self.probe(now, subject);
        }
    }

    pub(super) fn step_suspects(&mut self, now: Timestamp) {
        let due = self.suspects.iter().filter(|(_, suspect)| suspect.due <= now);
        for subject in due.map(|(subject, _)| *subject).collect::<Vec<_>>() {
            self.judge(now, subject);
        }
        self.timers.suspects =
            self.suspects.values().map(|suspect| suspect.due).min().unwrap_or(Timestamp::NEVER);
    }

    fn judge(&mut self, now: Timestamp, subject: MemberId) {
        let is_drawn = self.is_drawn(subject);
        let longest = self.profile.suspicion_longest;
        let Some(suspect) = self.suspects.get_mut(&subject) else { return };
        let is_enough = time_to_answer(&self.profile, self.me.kind, suspect.evidence).is_some();
        if !is_enough {
            suspect.drawn = true;
            suspect.due = Timestamp::NEVER;
            if is_drawn {
                self.probe(now, subject);
            }
        } else if suspect.vouched {
            // It answers us, whoever says what. We ask again, and it hears who accuses it.
            suspect.vouched = false;
            suspect.due = now + longest;
            self.probe(now, subject);
        } else {
            self.convict(now, subject);
        }
    }

    fn convict(&mut self, now: Timestamp, subject: MemberId) {
        let Some(suspect) = self.suspects.remove(&subject) else { return };
        self.missing_because.insert(subject, suspect.suspicions);
        self.probes.remove(&subject);
        self.members.set_state(subject, MemberState::Missing);
        self.place_on_rings(subject, false);
        self.missing_since.insert(subject, now);
        self.timers.links = now;
        if self.links.get(&subject).is_some_and(|link| link.open) {
            // Nobody is at its other end. As long as it stands, nobody dials: and who starts again
            // at the same address cannot tell us that the old connection is void.
            self.out.push(MemberOutput::Close { peer: subject });
        }
        if let Some(identity) = self.members.get(subject).and_then(|s| s.identity().cloned()) {
            self.out.push(MemberOutput::Missing { identity, left: false });
        }
    }

    /// A member answered us: nobody talks us into its absence for now.
    pub(super) fn vouch(&mut self, member: MemberId) {
        if let Some(suspect) = self.suspects.get_mut(&member) {
            suspect.vouched = true;
        }
    }

    /// A newer card voids what was said of an older one.
    pub(super) fn clear_suspicions(&mut self, member: MemberId) {
        self.suspects.remove(&member);
        self.missing_because.remove(&member);
    }

    pub(super) fn postpone_suspects(&mut self, late: Duration) {
        for suspect in self.suspects.values_mut() {
            let put_off = late.min(suspect.spare);
            suspect.spare -= put_off;
            suspect.due = suspect.due + put_off;
        }
        self.timers.suspects =
            self.suspects.values().map(|suspect| suspect.due).min().unwrap_or(Timestamp::NEVER);
    }

    fn has_charge(&self, suspicion: &Suspicion) -> bool {
        let suspect = self.suspects.get(&suspicion.subject).map(|suspect| &suspect.suspicions);
        let evidence = suspect.or(self.missing_because.get(&suspicion.subject));
        evidence.into_iter().flatten().any(|charge| charge.by == suspicion.by)
    }

    fn open_suspicions(&self, by: MemberId) -> usize {
        if self.suspects.len() < OPEN_SUSPICIONS {
            return 0;
        }
        let open = self.suspects.values();
        open.filter(|suspect| suspect.suspicions.iter().any(|a| a.by == by)).count()
    }

    fn is_coordinator_id(&self, member: MemberId) -> bool {
        self.coordinator_ids.contains(&member)
            || member == self.me.member && is_coordinator(&self.me)
    }

    /// Whether the lot falls on us to look for ourselves. All draw from the same urn.
    fn is_drawn(&self, subject: MemberId) -> bool {
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
    fn the_time_to_answer_is_as_this_table_says() {
        let shortest = Duration::from_secs(1);
        let longest = shortest * 5;
        let profile =
            Profile { suspicion_shortest: shortest, suspicion_longest: longest, ..Profile::lan() };
        // Accusers, ours, a coordinator's; then the time at a coordinator. None: not enough.
        let table = [
            (0, false, false, None),
            (0, false, true, Some(5)),
            (0, true, false, Some(5)),
            (0, true, true, Some(5)),
            (1, false, false, None),
            (1, false, true, Some(5)),
            (1, true, false, Some(5)),
            (1, true, true, Some(5)),
            (2, false, false, Some(2)),
            (2, false, true, Some(1)),
            (2, true, false, Some(2)),
            (2, true, true, Some(1)),
            (3, false, false, Some(1)),
            (3, false, true, Some(1)),
            (3, true, false, Some(1)),
            (3, true, true, Some(1)),
            (99, false, false, Some(1)),
            (99, false, true, Some(1)),
            (99, true, false, Some(1)),
            (99, true, true, Some(1)),
        ];
        for (members, ours, coordinator, seconds) in table {
            let evidence = Evidence { members, ours, coordinator };
            let at = |judge| time_to_answer(&profile, judge, evidence);
            let span = seconds.map(|seconds| shortest * seconds);
            assert_eq!(at(Kind::Coordinator), span, "{evidence:?}");
            assert_eq!(at(Kind::Cell), span.map(|span| span * PATIENCE), "{evidence:?}");
        }
    }

    /// Whoever joins in, and whoever judges: more voices never give the accused more time.
    #[test]
    fn every_further_suspicion_shortens_the_time_or_leaves_it() {
        let order = |span: Option<Duration>| span.unwrap_or(Duration::MAX);
        for profile in [Profile::lan(), Profile::wan(), Profile::metered()] {
            assert!(profile.suspicion_shortest * 2 <= profile.suspicion_longest);
            for judge in [Kind::Cell, Kind::Coordinator] {
                for (members, bits) in (0..6).flat_map(|n| (0..4).map(move |bits| (n, bits))) {
                    let (ours, coordinator) = (bits & 1 != 0, bits & 2 != 0);
                    let now = Evidence { members, ours, coordinator };
                    let more = [
                        Evidence { members: members + 1, ..now },
                        Evidence { members: members + 1, ours: true, ..now },
                        Evidence { members: members + 1, coordinator: true, ..now },
                    ];
                    let before = order(time_to_answer(&profile, judge, now));
                    for more in more {
                        let after = order(time_to_answer(&profile, judge, more));
                        assert!(after <= before, "{now:?} then {more:?}");
                    }
                }
            }
        }
    }
}
