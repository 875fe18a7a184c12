//! How much of everything: the limits, and the count of calls for each caller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use volvox_host::sync::lock;
use volvox_protocol::time::{Timestamp, TokenBucket};

use super::access::Caller;
use super::reply::ApiFailure;

/// What the API allows. Every number is a setting; these are the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections of callers who have shown who they are.
    pub connections: usize,
    /// Connections that have not: the oldest of the address with the most goes when there are more.
    pub strangers: usize,
    /// How long a request's head, or a TLS handshake, may take; also how long a connection may idle that
    /// showed no certificate.
    pub header_time: Duration,
    /// How long a connection may idle that showed one. Longer than Go's clients keep theirs (90 s): who
    /// closes first while the other begins a call makes that call fail.
    pub idle_time: Duration,
    /// How long a body may take.
    pub body_time: Duration,
    /// How long a write may not get on.
    pub stall_time: Duration,
    /// How long a call may take.
    pub call_time: Duration,
    /// Bytes of all bodies together that are being read or worked on.
    pub bodies_bytes: usize,
    /// Streams of events.
    pub streams: usize,
    /// Calls of one caller in a second, over some seconds; 0: as many as there are.
    pub requests_per_second: u32,
    /// How often a silent stream says that it is there.
    pub heartbeat: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 8_192,
            strangers: 1_024,
            header_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(120),
            body_time: Duration::from_secs(30),
            stall_time: Duration::from_secs(30),
            call_time: Duration::from_secs(60),
            bodies_bytes: 64 << 20,
            streams: 4_096,
            requests_per_second: 20_000,
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// Callers that are remembered. More than there are tokens in any sensible fleet.
const CALLERS: usize = 10_000;
/// Seconds' worth of calls that may come at once.
const BURST_S: u64 = 2;

/// Counts the calls of each caller.
#[derive(Debug)]
pub(crate) struct Quota {
    per_second: u32,
    callers: Mutex<BTreeMap<Arc<str>, TokenBucket>>,
}

impl Quota {
    pub(crate) fn new(per_second: u32) -> Self {
        Quota { per_second, callers: Mutex::default() }
    }

    /// Lets one call through, or says when to try again.
    pub(crate) fn take(&self, caller: &Caller, now: Timestamp) -> Result<(), ApiFailure> {
        if self.per_second == 0 {
            return Ok(());
        }
        let mut callers = lock(&self.callers);
        if callers.len() >= CALLERS {
            callers.retain(|_, bucket| !bucket.is_full(now));
        }
        let rate = u64::from(self.per_second);
        let bucket = callers
            .entry(Arc::clone(&caller.name))
            .or_insert_with(|| TokenBucket::full(now, rate, rate * BURST_S));
        if bucket.take(now, 1) {
            return Ok(());
        }
        let message = format!("more than {} calls a second: slow down", self.per_second);
        Err(ApiFailure::too_many(message, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::Role;
    use super::*;

    fn caller(name: &str) -> Caller {
        Caller { name: name.into(), role: Role::Read, token: None }
    }

    #[test]
    fn who_calls_too_often_is_slowed_and_others_are_not() {
        let quota = Quota::new(10);
        let begin = Timestamp::from_secs(1_000);
        let taken = (0..100).filter(|_| quota.take(&caller("a"), begin).is_ok()).count();
        assert_eq!(taken, 20, "two seconds' worth at once");
        assert!(quota.take(&caller("b"), begin).is_ok());
        let later = begin + Duration::from_millis(500);
        let taken = (0..100).filter(|_| quota.take(&caller("a"), later).is_ok()).count();
        assert_eq!(taken, 5);
        let unlimited = Quota::new(0);
        assert!((0..100_000).all(|_| unlimited.take(&caller("a"), begin).is_ok()));
    }
}
