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

use super::{Delivery, Effect, Member, Standing, is_coordinator};
use crate::identity::{Holder, Kind, MemberId, Notary};
use crate::message::Message;
use crate::profile::Profile;
use crate::record::{Accusation, Item, Topic};

/// Accusations by one cell that are open at one time. A cell that cannot reach more than this many
/// others should look at itself.
const OPEN_ACCUSATIONS: usize = 64;

/// Accusers that are kept for one trial.
const ACCUSERS: usize = 8;

/// How many are asked to look for themselves, on average, when one cell alone accuses.
const JURY: u64 = 8;

/// The longest time that one cell's repeated accusations wait for an answer: shorter than the trial in
/// which that cell itself, if it is honest and merely cut off from us, finds us missing.
const LONGEST_GAP: Duration = Duration::from_secs(5);

/// Cells wait this many times as long as coordinators.
const PATIENCE: u32 = 3;

/// One member, accused.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) accusations: Vec<Arc<Accusation>>,
    charges: Charges,
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
pub struct Charges {
    /// How many accuse.
    pub accusers: usize,
    /// Whether we are among them.
    pub ours: bool,
    /// Whether a coordinator is among them.
    pub coordinator: bool,
}

/// How long the accused has to answer, or `None`: what speaks against it is not enough.
pub fn time_to_answer(profile: &Profile, judge: Kind, charges: Charges) -> Option<Duration> {
    let (shortest, longest) = (profile.trial_shortest, profile.trial_longest);
    let span = match charges {
        // Nobody but one cell, and not we.
        Charges { accusers: 0 | 1, ours: false, coordinator: false } => return None,
        Charges { accusers: 0 | 1, .. } => longest,
        Charges { coordinator: true, .. } => shortest,
        Charges { accusers: 2, .. } => shortest * 2,
        Charges { .. } => shortest,
    };
    match judge {
        Kind::Coordinator => Some(span),
        Kind::Cell => Some(span * PATIENCE),
    }
}

impl<N: Notary> Member<N> {
    pub(super) fn hear_accusation(
        &mut self,
        now: Timestamp,
        from: MemberId,
        accusation: Arc<Accusation>,
    ) {
        let Accusation { accuser, subject, card, .. } = *accusation;
        if accuser == self.me.member {
            return;
        }
        let Some(known) = self.roster.version(subject, Topic::Card) else {
            // Nobody, or somebody forgotten. Of somebody real, the card comes first.
            self.refused.strangers += 1;
            return;
        };
        if card > known {
            self.want(now, from, subject);
            return;
        }
        if card < known {
            self.refused.stale += 1;
            return;
        }
        if self.has_charge(&accusation) {
            return;
        }
        let holder = self.roster.get(accuser).and_then(|s| s.holder().cloned());
        let Some(holder) = holder else {
            self.want(now, from, accuser);
            return;
        };
        // To an accusation against ourselves we answer even if we take the accuser for missing: after
        // a partition each side takes the other for that.
        if self.revoked.contains_key(&accuser) {
            self.refused.strangers += 1;
            return;
        }
        if !is_coordinator(&holder) && self.open_accusations(accuser) >= OPEN_ACCUSATIONS {
            self.refused.accusations += 1;
            return;
        }
        if !accusation.is_signed_by(&self.notary, &holder) {
            self.refused.forged += 1;
            return;
        }
        let is_gone = self.roster.standing(accuser) == Standing::Missing;
        if subject == self.me.member {
            self.defend(now, from, &holder);
        } else if is_gone {
            // Its word does not count any more. But it may be why all others take the subject for
            // missing, and then nobody will accuse it again: we have to look for ourselves.
            self.refused.strangers += 1;
            self.probe(now, subject);
        } else {
            self.charge(now, accusation, Some(from));
        }
    }

    /// We are accused, and we are here. Cells are answered together, so that one who accuses every
    /// new card cannot flood the mesh with them; a trial on their word lasts at least as long. And
    /// what one says again and again is still the opinion of one: it makes us no worse.
    fn defend(&mut self, now: Timestamp, from: MemberId, accuser: &Holder) {
        if mutated(Bug::AccusedIsSilent) {
            return;
        }
        let is_news = self.own.accuser.replace(accuser.member) != Some(accuser.member);
        if is_news || is_coordinator(accuser) {
            self.worse();
        }
        // One cell alone convinces nobody, so its repeated word can wait longer and longer.
        self.own.answer_gap = if is_news {
            self.profile.trial_shortest
        } else {
            (self.own.answer_gap * 2).min(LONGEST_GAP)
        };
        let at = self.own.answered + self.own.answer_gap;
        if at > now && !is_coordinator(accuser) {
            self.timers.answer = self.timers.answer.min(at);
            return;
        }
        self.answer_charges(now);
        if let Some(card) = self.roster.record(self.me.member, Topic::Card).cloned() {
            let message = Message::Gossip { items: vec![Item::Record(card)] };
            self.send(from, message, Delivery::Stream);
        }
    }

    pub(super) fn answer_charges(&mut self, now: Timestamp) {
        self.timers.answer = Timestamp::NEVER;
        self.own.answered = now;
        self.say_card(now);
    }

    /// We cannot reach somebody.
    pub(super) fn accuse(&mut self, now: Timestamp, subject: MemberId) {
        let is_new = self.trials.get(&subject).is_none_or(|trial| !trial.charges.ours);
        let is_new = is_new && !mutated(Bug::NeverAccuses);
        if self.roster.standing(subject) != Standing::Present || !is_new {
            return;
        }
        let card = self.roster.version(subject, Topic::Card).unwrap_or_default();
        let accusation = Accusation::signed(&self.notary, self.me.member, subject, card);
        self.charge(now, Arc::new(accusation), None);
    }

    /// A checked accusation counts from now on.
    fn charge(&mut self, now: Timestamp, accusation: Arc<Accusation>, from: Option<MemberId>) {
        let subject = accusation.subject;
        if self.roster.standing(subject) != Standing::Present {
            // Found missing already: kept as a reason for those who come later.
            let verdict = self.verdicts.entry(subject).or_default();
            if verdict.len() < ACCUSERS {
                verdict.push(accusation.clone());
                self.rumour(now, Item::Accusation(accusation), from);
            }
            return;
        }
        let by_coordinator = self.is_coordinator_id(accusation.accuser);
        let is_full = self.trials.get(&subject).is_some_and(|t| t.accusations.len() >= ACCUSERS);
        if is_full && from.is_some() && !by_coordinator {
            // One that is not kept would be counted, and passed on, whenever it is heard again.
            return;
        }
        let spare = self.profile.trial_longest;
        let trial = self.trials.entry(subject).or_insert_with(|| Trial {
            accusations: Vec::new(),
            charges: Charges { accusers: 0, ours: false, coordinator: false },
            since: now,
            due: Timestamp::NEVER,
            vouched: false,
            drawn: false,
            spare,
        });
        trial.charges.accusers += 1;
        trial.charges.ours |= from.is_none();
        trial.charges.coordinator |= by_coordinator;
        trial.accusations.push(accusation.clone());
        let span = time_to_answer(&self.profile, self.me.kind, trial.charges);
        let lot = self.profile.trial_longest;
        trial.due = match span {
            Some(span) => trial.since + span,
            None if !trial.drawn => trial.since + lot,
            None => Timestamp::NEVER,
        };
        self.timers.trials = self.timers.trials.min(trial.due);
        self.rumour(now, Item::Accusation(accusation), from);
        let is_ours = is_coordinator(&self.me)
            || self.is_leaf(subject) && self.is_linked(subject)
            || self.watched().contains(&subject);
        if from.is_some() && is_ours {
            self.probe(now, subject);
        }
    }

    pub(super) fn step_trials(&mut self, now: Timestamp) {
        let due = self.trials.iter().filter(|(_, trial)| trial.due <= now);
        for subject in due.map(|(subject, _)| *subject).collect::<Vec<_>>() {
            self.judge(now, subject);
        }
        self.timers.trials =
            self.trials.values().map(|trial| trial.due).min().unwrap_or(Timestamp::NEVER);
    }

    fn judge(&mut self, now: Timestamp, subject: MemberId) {
        let is_drawn = self.is_drawn(subject);
        let longest = self.profile.trial_longest;
        let Some(trial) = self.trials.get_mut(&subject) else { return };
        let is_enough = time_to_answer(&self.profile, self.me.kind, trial.charges).is_some();
        if !is_enough {
            trial.drawn = true;
            trial.due = Timestamp::NEVER;
            if is_drawn {
                self.probe(now, subject);
            }
        } else if trial.vouched {
            // It answers us, whoever says what. We ask again, and it hears who accuses it.
            trial.vouched = false;
            trial.due = now + longest;
            self.probe(now, subject);
        } else {
            self.convict(now, subject);
        }
    }

    fn convict(&mut self, now: Timestamp, subject: MemberId) {
        let Some(trial) = self.trials.remove(&subject) else { return };
        self.verdicts.insert(subject, trial.accusations);
        self.probes.remove(&subject);
        self.roster.set_standing(subject, Standing::Missing);
        self.place_on_rings(subject, false);
        self.missing_since.insert(subject, now);
        self.timers.links = now;
        if self.links.get(&subject).is_some_and(|link| link.open) {
            // Nobody is at its other end. As long as it stands, nobody dials: and who starts again
            // at the same address cannot tell us that the old connection is void.
            self.out.push(Effect::Close { peer: subject });
        }
        if let Some(holder) = self.roster.get(subject).and_then(|s| s.holder().cloned()) {
            self.out.push(Effect::Missing { holder, left: false });
        }
    }

    /// A member answered us: nobody talks us into its absence for now.
    pub(super) fn vouch(&mut self, member: MemberId) {
        if let Some(trial) = self.trials.get_mut(&member) {
            trial.vouched = true;
        }
    }

    /// A newer card voids what was said of an older one.
    pub(super) fn clear_charges(&mut self, member: MemberId) {
        self.trials.remove(&member);
        self.verdicts.remove(&member);
    }

    pub(super) fn postpone_trials(&mut self, late: Duration) {
        for trial in self.trials.values_mut() {
            let put_off = late.min(trial.spare);
            trial.spare -= put_off;
            trial.due = trial.due + put_off;
        }
        self.timers.trials =
            self.trials.values().map(|trial| trial.due).min().unwrap_or(Timestamp::NEVER);
    }

    fn has_charge(&self, accusation: &Accusation) -> bool {
        let trial = self.trials.get(&accusation.subject).map(|trial| &trial.accusations);
        let charges = trial.or(self.verdicts.get(&accusation.subject));
        charges.into_iter().flatten().any(|charge| charge.accuser == accusation.accuser)
    }

    fn open_accusations(&self, accuser: MemberId) -> usize {
        if self.trials.len() < OPEN_ACCUSATIONS {
            return 0;
        }
        let open = self.trials.values();
        open.filter(|trial| trial.accusations.iter().any(|a| a.accuser == accuser)).count()
    }

    fn is_coordinator_id(&self, member: MemberId) -> bool {
        self.coordinator_ids.contains(&member)
            || member == self.me.member && is_coordinator(&self.me)
    }

    /// Whether the lot falls on us to look for ourselves. All draw from the same urn.
    fn is_drawn(&self, subject: MemberId) -> bool {
        let card = self.roster.version(subject, Topic::Card).unwrap_or_default();
        let lot = mix(mix(self.me.member.halves().0) ^ subject.halves().0 ^ u64::from(card.count));
        lot % (self.roster.present() as u64).max(1) < JURY
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
            Profile { trial_shortest: shortest, trial_longest: longest, ..Profile::lan() };
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
        for (accusers, ours, coordinator, seconds) in table {
            let charges = Charges { accusers, ours, coordinator };
            let at = |judge| time_to_answer(&profile, judge, charges);
            let span = seconds.map(|seconds| shortest * seconds);
            assert_eq!(at(Kind::Coordinator), span, "{charges:?}");
            assert_eq!(at(Kind::Cell), span.map(|span| span * PATIENCE), "{charges:?}");
        }
    }

    /// Whoever joins in, and whoever judges: more voices never give the accused more time.
    #[test]
    fn every_further_accuser_shortens_the_time_or_leaves_it() {
        let order = |span: Option<Duration>| span.unwrap_or(Duration::MAX);
        for profile in [Profile::lan(), Profile::wan(), Profile::metered()] {
            assert!(profile.trial_shortest * 2 <= profile.trial_longest);
            for judge in [Kind::Cell, Kind::Coordinator] {
                for (accusers, bits) in (0..6).flat_map(|n| (0..4).map(move |bits| (n, bits))) {
                    let (ours, coordinator) = (bits & 1 != 0, bits & 2 != 0);
                    let now = Charges { accusers, ours, coordinator };
                    let more = [
                        Charges { accusers: accusers + 1, ..now },
                        Charges { accusers: accusers + 1, ours: true, ..now },
                        Charges { accusers: accusers + 1, coordinator: true, ..now },
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
