//! Draining: an instance that is to go serves on for a moment after routers could hear of it. One that
//! is to stop says first that no more traffic may go there; one that was replaced elsewhere has just
//! lost its record.

use std::time::Duration;

use volvox_protocol::container::ContainerState;
use volvox_protocol::time::Timestamp;

use super::{Freshness, Rep, RepOutput};
use crate::container::guid::ContainerGuid;

/// How long the executor has until it is told again.
const AGAIN: Duration = Duration::from_secs(1);

/// An instance that takes no more traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Drain {
    /// When it ends. None: it has.
    until: Option<Timestamp>,
    then: Then,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Stop,
    Delete,
}

impl Rep {
    /// Stops a container: at once, unless somebody may be talking to it.
    pub(super) fn drain(&mut self, now: Timestamp, guid: &ContainerGuid) {
        if self.begin_drain(now, guid, Then::Stop) {
            self.evaluate(now, guid, Freshness::Believed);
        } else {
            self.effects.push(RepOutput::Stop(guid.clone()));
        }
    }

    /// Deletes a container that was replaced elsewhere: at once, unless somebody may be talking to it.
    pub(super) fn drain_then_delete(&mut self, now: Timestamp, guid: &ContainerGuid) {
        if !self.begin_drain(now, guid, Then::Delete) {
            return self.delete(guid);
        }
        if let Some(entry) = self.entries.get_mut(guid) {
            entry.not_before = now + self.settings.drain;
        }
    }

    /// Whether it serves on. When that is over, what it was drained for is asked for again: the first time
    /// the executor may have been too busy to hear of it.
    fn begin_drain(&mut self, now: Timestamp, guid: &ContainerGuid, then: Then) -> bool {
        let container = self.entries.get(guid).and_then(|it| it.container.as_ref());
        let serves = container.is_some_and(|it| {
            it.container.state == ContainerState::Running
                && it.network.as_ref().is_some_and(|it| !it.ports.is_empty())
        });
        if !serves || self.settings.drain.is_zero() || self.coordinator.is_none() {
            return false;
        }
        let until = Some(now + self.settings.drain);
        let drain = self.draining.entry(guid.clone()).or_insert(Drain { until, then });
        drain.until.is_some()
    }

    /// The executor had no time to hear of it: again in a moment.
    pub(super) fn not_stopped(&mut self, now: Timestamp, guid: ContainerGuid) {
        let is_there = self.entries.get(&guid).is_some_and(|it| it.container.is_some());
        if is_there {
            self.draining.insert(guid, Drain { until: Some(now + AGAIN), then: Then::Stop });
        }
    }

    /// Ends what has been drained. It stays so until it is gone.
    pub(super) fn end_drains(&mut self, now: Timestamp) {
        let mut over = Vec::new();
        for (guid, drain) in &mut self.draining {
            if drain.until.is_some_and(|until| until <= now) {
                drain.until = None;
                over.push((guid.clone(), drain.then));
            }
        }
        for (guid, then) in over {
            match then {
                Then::Stop => self.effects.push(RepOutput::Stop(guid)),
                Then::Delete => self.delete(&guid),
            }
        }
    }

    pub(super) fn drain_due(&self) -> Option<Timestamp> {
        self.draining.values().filter_map(|it| it.until).min()
    }
}
