//! The callbacks that failed last, for people to look at.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, VecDeque};

use volvox_protocol::api::CallbackFailure;
use volvox_protocol::id::TaskGuid;

/// Tasks whose failures are remembered.
const MOST: usize = 1_000;

/// Of each task its last failure, of as many tasks as have room.
#[derive(Debug, Default)]
pub struct Failures {
    last: BTreeMap<TaskGuid, CallbackFailure>,
    /// The order in which they failed first.
    order: VecDeque<TaskGuid>,
}

impl Failures {
    /// Remembers one. Who failed first is forgotten first.
    pub fn note(&mut self, failure: CallbackFailure) {
        let guid = failure.task_guid.clone();
        if self.last.insert(guid.clone(), failure).is_none() {
            self.order.push_back(guid);
        }
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.last.remove(&oldest);
        }
    }

    /// All of them, the latest first.
    pub fn list(&self) -> Vec<CallbackFailure> {
        let mut failures: Vec<_> = self.last.values().cloned().collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.failed_at));
        failures
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::time::Timestamp;

    use super::*;

    #[test]
    fn so_many_are_remembered_and_of_each_task_the_last() {
        let mut failures = Failures::default();
        let failure = |nth: usize, attempts: u32, at: u64| CallbackFailure {
            task_guid: TaskGuid::new(&format!("t{nth}")).unwrap(),
            url: "http://consumer".to_owned(),
            attempts,
            failed_at: Timestamp::from_secs(at),
            reason: "nobody listens there".to_owned(),
            given_up: false,
        };
        for nth in 0..=MOST {
            failures.note(failure(nth, 1, nth as u64));
        }
        failures.note(failure(5, 2, 9_999));
        let list = failures.list();
        assert_eq!(list.len(), MOST);
        assert_eq!((list[0].task_guid.as_str(), list[0].attempts), ("t5", 2), "the latest first");
        assert!(list.iter().all(|it| it.task_guid.as_str() != "t0"), "the first is forgotten");
    }
}
