//! Draining: an instance that is to stop goes on for a moment after the board was told that no more
//! traffic may go there, so that routers have heard of it before anybody is turned away.

use volvox_protocol::container::ContainerState;
use volvox_protocol::time::Timestamp;

use super::{Effect, Rep};
use crate::executor::registry::ContainerGuid;

impl Rep {
    /// Stops a container: at once, unless somebody may be talking to it.
    pub(super) fn drain(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let Some(container) = self.entries.get(guid).and_then(|it| it.container.as_ref()) else {
            return;
        };
        let serves = container.container.state == ContainerState::Running
            && container.network.as_ref().is_some_and(|it| !it.ports.is_empty());
        if serves && !self.settings.drain.is_zero() && self.coordinator.is_some() {
            self.draining.entry(guid.clone()).or_insert(now + self.settings.drain);
        } else {
            self.effects.push(Effect::Stop(guid.clone()));
        }
    }

    /// Stops what has been drained.
    pub(super) fn end_drains(&mut self, now: Timestamp) {
        let over: Vec<ContainerGuid> = self
            .draining
            .iter()
            .filter(|(_, until)| **until <= now)
            .map(|(guid, _)| guid.clone())
            .collect();
        for guid in over {
            self.draining.remove(&guid);
            if self.entries.get(&guid).is_some_and(|it| it.container.is_some()) {
                self.effects.push(Effect::Stop(guid));
            }
        }
    }

    pub(super) fn drain_due(&self) -> Option<Timestamp> {
        self.draining.values().copied().min()
    }
}
