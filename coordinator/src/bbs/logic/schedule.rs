//! When convergence has to look at what. Follows from the records: `converge.rs` judges, this
//! remembers the judgement so that a tick costs what is due and not what there is.

use std::collections::{BTreeMap, BTreeSet};

use volvox_protocol::id::Domain;
use volvox_protocol::time::Timestamp;

use crate::bbs::command::ConvergeKey;

/// When a subject wants to be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DueTime {
    /// Not before something about it changes.
    None,
    /// From this time on.
    At(Timestamp),
    /// As soon as its domain is fresh: it would be stopped.
    WhenFresh(Domain),
    /// From this time on, and as soon as its domain is fresh.
    AtOrWhenFresh(Timestamp, Domain),
}

impl DueTime {
    /// Now. Not the present time, so that the agenda does not depend on when it was asked.
    pub(super) const NOW: DueTime = DueTime::At(Timestamp::ZERO);

    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.at().is_some_and(|at| at <= now)
    }

    /// Whether this is what has become of `remembered` because its domain lost its freshness.
    /// That is the passing of time: the agenda learns of it when it looks.
    pub(super) fn is_only_older(&self, remembered: &DueTime) -> bool {
        matches!(remembered, DueTime::At(_)) && self.domain().is_some()
    }

    fn at(&self) -> Option<Timestamp> {
        match self {
            DueTime::At(at) | DueTime::AtOrWhenFresh(at, _) => Some(*at),
            DueTime::None | DueTime::WhenFresh(_) => None,
        }
    }

    fn domain(&self) -> Option<&Domain> {
        match self {
            DueTime::WhenFresh(domain) | DueTime::AtOrWhenFresh(_, domain) => Some(domain),
            DueTime::None | DueTime::At(_) => None,
        }
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct ConvergeSchedule {
    entries: BTreeMap<ConvergeKey, DueTime>,
    due: BTreeSet<(Timestamp, ConvergeKey)>,
    waiting: BTreeMap<Domain, BTreeSet<ConvergeKey>>,
}

impl ConvergeSchedule {
    pub(super) fn set(&mut self, subject: ConvergeKey, attention: DueTime) {
        if self.get(&subject) == &attention {
            return;
        }
        let before = self.entries.remove(&subject).unwrap_or(DueTime::None);
        if let Some(at) = before.at() {
            self.due.remove(&(at, subject.clone()));
        }
        if let Some(domain) = before.domain()
            && let Some(waiting) = self.waiting.get_mut(domain)
        {
            waiting.remove(&subject);
            if waiting.is_empty() {
                self.waiting.remove(domain);
            }
        }
        if let Some(at) = attention.at() {
            self.due.insert((at, subject.clone()));
        }
        if let Some(domain) = attention.domain() {
            self.waiting.entry(domain.clone()).or_default().insert(subject.clone());
        }
        if attention != DueTime::None {
            self.entries.insert(subject, attention);
        }
    }

    pub(super) fn get(&self, subject: &ConvergeKey) -> &DueTime {
        self.entries.get(subject).unwrap_or(&DueTime::None)
    }

    /// What is due, in the order of the subjects.
    pub(super) fn due(&self, now: Timestamp) -> BTreeSet<ConvergeKey> {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        due.map(|(_, subject)| subject.clone()).collect()
    }

    pub(super) fn waiting_for(&self, domain: &Domain) -> Vec<ConvergeKey> {
        self.waiting.get(domain).into_iter().flatten().cloned().collect()
    }

    pub(super) fn next_deadline(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn subjects(&self) -> impl Iterator<Item = &ConvergeKey> {
        self.entries.keys()
    }
}
