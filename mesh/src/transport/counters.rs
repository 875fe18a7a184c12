//! Counters of what the transport refused or lost, by reason, and a rate-limited log.
//!
//! A peer controls how often something is refused. One log line per refusal would let it fill the
//! disk. So each reason logs one line per [`LOG_EVERY`], with the count since the last line.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use volvox_host::sync::lock;

/// Minimum time between two log lines with the same reason.
const LOG_EVERY: Duration = Duration::from_secs(10);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why the transport refused, dropped or gave up something.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// Name of the reason in logs and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// A packet was received, but the owner's event queue was full or closed.
    PacketDropped = "packet_dropped",
    /// A packet was sent to a member without a link.
    NoLink = "no_link",
    /// A packet to send was too long for a stream.
    Oversized = "oversized",
    /// A packet to send was replaced by a newer one, because the link is slow.
    SendReplaced = "send_replaced",
    /// A packet could not be sent by stream within the deadline.
    SendFailed = "send_failed",
    /// A packet was received by stream and was too long.
    IncomingOversized = "incoming_oversized",
    /// A packet by stream was incomplete at the deadline, or was interrupted.
    IncomingBroken = "incoming_broken",
    /// A packet was above the quota of its sender.
    OverShare = "over_share",
    /// A member sent too much for too long: its link was closed, or a new link was refused.
    Barred = "barred",
    /// Received messages and requests need more memory than the budget, of one member or of all.
    OverBudget = "over_budget",
    /// A connection uses a protocol that this member does not support.
    UnknownProtocol = "unknown_protocol",
    /// A connection to the mesh presented no certificate.
    NoIdentity = "no_identity",
    /// A certificate was rejected.
    BadCertificate = "bad_certificate",
    /// An incoming handshake failed.
    HandshakeFailed = "handshake_failed",
    /// A client had to prove its address first, because many handshakes were in progress.
    Retried = "retried",
    /// A handshake was refused because too many were in progress.
    HalfOpenFull = "half_open_full",
    /// A link was refused because the number of links was at its limit.
    PoolFull = "pool_full",
    /// A link was closed to make a slot free for another one.
    Displaced = "displaced",
    /// A dial did not become a link.
    DialFailed = "dial_failed",
    /// Another member than the expected one answered a dial, or the peer is this member itself.
    UnexpectedMember = "unexpected_member",
    /// A request was not understood, or its head was incomplete at the deadline.
    RequestMalformed = "request_malformed",
    /// A request was refused because too many were being served.
    RequestBusy = "request_busy",
    /// A request or its reply was too long.
    RequestTooLarge = "request_too_large",
    /// An enrolment was refused: too many, too long, too slow, or not served by this member.
    EnrolRefused = "enrol_refused",
    /// A task of one connection panicked. The other connections continued.
    Panicked = "panicked",
}

/// Number of occurrences of each [`Reason`] since the transport was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(Vec<u64>);

impl Counters {
    /// Number of occurrences of one reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// All counters with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::ALL.iter().map(|reason| (reason.name(), self.of(*reason)))
    }
}

/// The live counters, and the throttle of each log line.
pub(super) struct TransportCounters {
    counts: Vec<AtomicU64>,
    throttles: Mutex<Vec<Throttle>>,
    opened: Instant,
}

impl TransportCounters {
    pub(super) fn new() -> Self {
        Self {
            counts: Reason::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            throttles: Mutex::new(vec![Throttle::default(); Reason::ALL.len()]),
            opened: Instant::now(),
        }
    }

    /// Adds one, and logs it unless this reason was logged less than [`LOG_EVERY`] ago.
    pub(super) fn count(&self, reason: Reason, detail: impl Display) {
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
        let now = self.opened.elapsed();
        let line = lock(&self.throttles)[reason as usize].pass(now);
        if let Some(since) = line {
            tracing::warn!(reason = reason.name(), count = since, example = %detail, "refused");
        }
    }

    pub(super) fn read(&self) -> Counters {
        Counters(self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }
}

/// Allows one log line per [`LOG_EVERY`].
#[derive(Debug, Clone, Copy, Default)]
struct Throttle {
    next: Duration,
    waiting: u64,
}

impl Throttle {
    /// Number of occurrences that this log line covers. `None`: it is too early for a line.
    fn pass(&mut self, now: Duration) -> Option<u64> {
        self.waiting += 1;
        if now < self.next {
            return None;
        }
        self.next = now + LOG_EVERY;
        Some(std::mem::take(&mut self.waiting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_stands_for_all_since_the_last() {
        let mut throttle = Throttle::default();
        let at = Duration::from_secs;
        assert_eq!(throttle.pass(at(0)), Some(1));
        assert_eq!(throttle.pass(at(1)), None);
        assert_eq!(throttle.pass(at(9)), None);
        assert_eq!(throttle.pass(at(10)), Some(3));
        assert_eq!(throttle.pass(at(30)), Some(1));
    }

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        let tally = TransportCounters::new();
        for (index, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            tally.count(*reason, "a test");
        }
        let counters = tally.read();
        assert!(counters.iter().all(|(_, count)| count == 1), "{counters:?}");
        let names: std::collections::BTreeSet<_> = counters.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
