//! When which timer of which container is due. The step trees start and cancel them.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};

use volvox_protocol::time::Timestamp;

use super::steps::TimerId;
use crate::container::guid::ContainerGuid;

/// All timers of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Timers {
    due: BTreeSet<(Timestamp, ContainerGuid, TimerId)>,
    of: BTreeMap<ContainerGuid, BTreeMap<TimerId, Timestamp>>,
}

impl Timers {
    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    pub(super) fn start(&mut self, at: Timestamp, guid: &ContainerGuid, timer: TimerId) {
        self.cancel(guid, timer);
        self.due.insert((at, guid.clone(), timer));
        self.of.entry(guid.clone()).or_default().insert(timer, at);
    }

    pub(super) fn cancel(&mut self, guid: &ContainerGuid, timer: TimerId) {
        if let Some(at) = self.of.get_mut(guid).and_then(|it| it.remove(&timer)) {
            self.due.remove(&(at, guid.clone(), timer));
        }
    }

    /// Forgets all of a container's.
    pub(super) fn forget(&mut self, guid: &ContainerGuid) {
        for (timer, at) in self.of.remove(guid).unwrap_or_default() {
            self.due.remove(&(at, guid.clone(), timer));
        }
    }

    /// Takes out one that is due by now, the earliest first.
    pub(super) fn fire(&mut self, now: Timestamp) -> Option<(ContainerGuid, TimerId)> {
        let (at, ..) = self.due.first()?;
        if *at > now {
            return None;
        }
        let (_, guid, timer) = self.due.pop_first()?;
        if let Some(timers) = self.of.get_mut(&guid) {
            timers.remove(&timer);
        }
        Some((guid, timer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use volvox_protocol::id::InstanceGuid;

    #[test]
    fn timers_fire_in_order_once_and_not_when_cancelled() {
        let guid = |name: &str| ContainerGuid::from(InstanceGuid::new(name).unwrap());
        let (one, two) = (guid("one"), guid("two"));
        let at = Timestamp::from_secs;
        let mut timers = Timers::default();
        timers.start(at(5), &one, TimerId(1));
        timers.start(at(3), &two, TimerId(1));
        timers.start(at(4), &two, TimerId(2));
        timers.start(at(9), &one, TimerId(2));
        timers.start(at(2), &one, TimerId(3));
        timers.cancel(&one, TimerId(3));
        assert_eq!(timers.next(), Some(at(3)));
        assert_eq!(timers.fire(at(2)), None);
        assert_eq!(timers.fire(at(5)), Some((two.clone(), TimerId(1))));
        timers.forget(&two);
        assert_eq!(timers.fire(at(5)), Some((one.clone(), TimerId(1))));
        assert_eq!(timers.fire(at(5)), None);
        timers.start(at(1), &one, TimerId(2));
        assert_eq!(timers.fire(at(5)), Some((one, TimerId(2))), "started again, due earlier");
        assert_eq!(timers.next(), None);
    }
}
