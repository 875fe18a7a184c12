//! Draining: an instance that is to stop goes on for a moment after the board was told that no more
//! traffic may go there, so that routers have heard of it before anybody is turned away.

use volvox_protocol::container::ContainerState;
use volvox_protocol::time::Timestamp;

use super::{Effect, Look, Rep};
use crate::executor::registry::ContainerGuid;

/// When an instance that takes no more traffic is stopped. Without a time: it has been told.
pub(super) type StopAt = Option<Timestamp>;

impl Rep {
    /// Stops a container: at once, unless somebody may be talking to it.
    pub(super) fn drain(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let Some(container) = self.entries.get(guid).and_then(|it| it.container.as_ref()) else {
            return;
        };
        let serves = container.container.state == ContainerState::Running
            && container.network.as_ref().is_some_and(|it| !it.ports.is_empty());
        if serves && !self.settings.drain.is_zero() && self.coordinator.is_some() {
            self.draining.entry(guid.clone()).or_insert(Some(now + self.settings.drain));
            self.judge(now, guid, Look::Believed);
        } else {
            self.effects.push(Effect::Stop(guid.clone()));
        }
    }

    /// Stops what has been drained. It stays drained until it is gone.
    pub(super) fn end_drains(&mut self, now: Timestamp) {
        for (guid, until) in &mut self.draining {
            if until.is_some_and(|until| until <= now) {
                *until = None;
                self.effects.push(Effect::Stop(guid.clone()));
            }
        }
    }

    pub(super) fn drain_due(&self) -> Option<Timestamp> {
        self.draining.values().flatten().copied().min()
    }
}
