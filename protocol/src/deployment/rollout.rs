//! An update under way: from one definition to the next, index by index.
//!
//! The record says which indices have been taken up and which are in flight. What runs where is in
//! the instance records; both together are all that the board needs to go on after a restart.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::id::DefinitionId;
use crate::record::record;
use crate::time::Timestamp;

record! {
    /// How the updates of a deployment go. The default is what the seeds tell: one index after the
    /// other, as soon as the new instance runs, for ever.
    #[derive(Default, Copy)]
    pub struct RolloutPolicy {
        /// How many indices are replaced at the same time; 0: one.
        max_in_flight: u32 = "max_in_flight" omit,
        /// After so many indices the update waits until it is promoted; 0: it does not wait.
        canary_instances: u32 = "canary_instances" omit,
        /// How long a new instance must have run before the old one is stopped.
        min_healthy_time_ms: u64 = "min_healthy_time_ms" omit,
        /// After so long the update goes on past an index that does not come to run, provided that
        /// another one has; 0: the coordinator's setting.
        stuck_after_ms: u64 = "stuck_after_ms" omit,
        /// After so long without progress the update has failed; 0: it never fails.
        progress_deadline_ms: u64 = "progress_deadline_ms" omit,
        /// Whether a failed update is rolled back by itself. It has failed when its deadline has
        /// passed, or when a new instance has crashed more often than it is restarted at once.
        rollback_on_failure: bool = "rollback_on_failure" omit,
    }
}

impl RolloutPolicy {
    /// How many indices are replaced at the same time: at least one.
    pub fn in_flight(&self) -> u32 {
        self.max_in_flight.max(1)
    }

    /// How long a new instance must have run.
    pub const fn min_healthy_time(&self) -> Duration {
        Duration::from_millis(self.min_healthy_time_ms)
    }

    /// How long an index may hold up the update; `otherwise` when the policy does not say.
    pub const fn stuck_after(&self, otherwise: Duration) -> Duration {
        match self.stuck_after_ms {
            0 => otherwise,
            ms => Duration::from_millis(ms),
        }
    }

    /// How long it may be without progress; [`Duration::MAX`] when it may be so for ever.
    pub const fn progress_deadline(&self) -> Duration {
        match self.progress_deadline_ms {
            0 => Duration::MAX,
            ms => Duration::from_millis(ms),
        }
    }
}

/// In which order the indices are taken up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RolloutDirection {
    /// From index 0 up.
    #[default]
    Rising,
    /// From the highest index down: the way back of an update that was cancelled or has failed.
    Falling,
}

/// Why an update does not take up more indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RolloutPause {
    /// The canaries are there, and nobody has promoted the update yet.
    Canary,
    /// Somebody said so.
    Asked,
    /// There was no progress within the deadline.
    Stalled,
}

record! {
    /// An index whose old instance is being replaced.
    #[derive(Copy)]
    pub struct InFlight {
        /// Which one.
        index: u32 = "index" required,
        /// When it was taken up.
        since: Timestamp = "since" required,
    }
}

record! {
    /// An update under way.
    pub struct Rollout as "Roll" {
        /// The definition that was active before, and to which a cancelled update goes back.
        previous_definition_id: DefinitionId = "previous_definition_id" required,
        /// In which order the indices are taken up.
        order: RolloutDirection = "order" always,
        /// The border between what was taken up and what was not. Rising: the next index to be
        /// taken up. Falling: the one below it is.
        border: u32 = "border" always,
        /// The indices that are being replaced, in rising order.
        in_flight: Vec<InFlight> = "in_flight" always,
        /// Those that held up the update for too long, in rising order: they are tried on, and the
        /// update goes on without waiting for them.
        stuck: Vec<u32> = "stuck" omit,
        /// Why no more indices are taken up, when none are.
        pause: Option<RolloutPause> = "pause" omit,
        /// The canaries have been found to be good.
        promoted: bool = "promoted" omit,
        /// When it began.
        began_at: Timestamp = "began_at" always,
        /// When an index was last done, or somebody last let it go on.
        progressed_at: Timestamp = "progressed_at" always,
        /// Why it goes back, when it goes back by itself or was cancelled.
        reason: Box<str> = "reason" omit,
    }
}

/// How far an update has come at one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RolloutPhase {
    /// Not taken up yet: what is there stays.
    Ahead,
    /// The new instance is to run beside the old one.
    InFlight,
    /// Only the new one is to run.
    Done,
}

impl Rollout {
    /// An update that has taken up nothing yet.
    pub fn rising(now: Timestamp, previous_definition_id: DefinitionId) -> Self {
        Rollout {
            previous_definition_id,
            order: RolloutDirection::Rising,
            border: 0,
            in_flight: Vec::new(),
            stuck: Vec::new(),
            pause: None,
            promoted: false,
            began_at: now,
            progressed_at: now,
            reason: Box::default(),
        }
    }

    /// The way back from `previous_definition_id`, over so many instances.
    pub fn falling(
        now: Timestamp,
        previous_definition_id: DefinitionId,
        instances: u32,
        reason: &str,
    ) -> Self {
        Rollout {
            order: RolloutDirection::Falling,
            border: instances,
            // Canaries are for what is new.
            promoted: true,
            reason: reason.into(),
            ..Rollout::rising(now, previous_definition_id)
        }
    }

    /// How far it has come at `index`.
    pub fn phase(&self, index: u32) -> RolloutPhase {
        let ahead = match self.order {
            RolloutDirection::Rising => index >= self.border,
            RolloutDirection::Falling => index < self.border,
        };
        if ahead {
            RolloutPhase::Ahead
        } else if self.flight(index).is_some() || self.stuck.binary_search(&index).is_ok() {
            RolloutPhase::InFlight
        } else {
            RolloutPhase::Done
        }
    }

    /// The flight of an index, if it is in flight and not stuck.
    pub fn flight(&self, index: u32) -> Option<&InFlight> {
        let nth = self.in_flight.binary_search_by_key(&index, |flight| flight.index).ok()?;
        self.in_flight.get(nth)
    }

    /// The next index to be taken up, of so many instances.
    pub fn next(&self, instances: u32) -> Option<u32> {
        match self.order {
            RolloutDirection::Rising => (self.border < instances).then_some(self.border),
            RolloutDirection::Falling => self.border.min(instances).checked_sub(1),
        }
    }

    /// Takes up an index that [`Rollout::next`] gave.
    pub fn take_up(&mut self, now: Timestamp, index: u32) {
        self.pass(index);
        if let Err(nth) = self.in_flight.binary_search_by_key(&index, |flight| flight.index) {
            self.in_flight.insert(nth, InFlight { index, since: now });
        }
    }

    /// Goes past an index that [`Rollout::next`] gave and at which there is nothing to do.
    pub fn pass(&mut self, index: u32) {
        self.border = match self.order {
            RolloutDirection::Rising => index.saturating_add(1),
            RolloutDirection::Falling => index,
        };
    }

    /// An index is done.
    pub fn land(&mut self, index: u32) {
        self.in_flight.retain(|flight| flight.index != index);
        self.stuck.retain(|known| *known != index);
    }

    /// Goes on without waiting for an index.
    pub fn leave_behind(&mut self, index: u32) {
        self.in_flight.retain(|flight| flight.index != index);
        if let Err(nth) = self.stuck.binary_search(&index) {
            self.stuck.insert(nth, index);
        }
    }

    /// Forgets the indices from `instances` on: they are no longer desired.
    pub fn scale_to(&mut self, instances: u32) {
        self.border = self.border.min(instances);
        self.in_flight.retain(|flight| flight.index < instances);
        self.stuck.retain(|index| *index < instances);
    }

    /// Whether every index of so many is done.
    pub fn is_over(&self, instances: u32) -> bool {
        self.next(instances).is_none() && self.in_flight.is_empty() && self.stuck.is_empty()
    }

    /// How many indices of so many are done.
    pub fn done(&self, instances: u32) -> u32 {
        let taken_up = match self.order {
            RolloutDirection::Rising => self.border.min(instances),
            RolloutDirection::Falling => instances.saturating_sub(self.border),
        };
        let waiting = self.in_flight.len() + self.stuck.len();
        taken_up.saturating_sub(u32::try_from(waiting).unwrap_or(u32::MAX))
    }
}
