//! What the transport refused or lost, counted by reason, and a log that cannot be flooded.
//!
//! A peer decides how often something is refused, so a line per refusal would let it fill the disk.
//! Each reason has one line per [`LOG_EVERY`], which says how many there were since the last one.

use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The least time between two log lines with the same reason.
const LOG_EVERY: Duration = Duration::from_secs(10);

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why something was refused, dropped or given up.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them, in the order of their counters.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// Its name in logs and metrics.
            pub fn name(self) -> &'static str {
                match self {
                    $(Reason::$name => $text,)*
                }
            }
        }
    };
}

reasons! {
    /// A packet came and the receiver of happenings was too slow.
    PacketDropped = "packet_dropped",
    /// A packet was to go to a member without a link.
    NoLink = "no_link",
    /// A packet to be sent was too long for a stream.
    Oversized = "oversized",
    /// A packet to be sent gave way to a newer one, because the link is slow.
    SendReplaced = "send_replaced",
    /// A packet could not be sent by stream in time.
    SendFailed = "send_failed",
    /// A packet came by stream and was too long.
    IncomingOversized = "incoming_oversized",
    /// A packet came by stream and did not end in time, or was broken off.
    IncomingBroken = "incoming_broken",
    /// A packet was more than one member may send.
    OverShare = "over_share",
    /// A member sent too much for too long: its link was ended, or another one refused.
    Barred = "barred",
    /// More bytes came at once than may be held, from all links together or from one.
    OverBudget = "over_budget",
    /// A connection spoke no protocol that we speak.
    UnknownProtocol = "unknown_protocol",
    /// A connection to the mesh showed no certificate.
    NoIdentity = "no_identity",
    /// A certificate was not accepted.
    BadCertificate = "bad_certificate",
    /// A handshake that others began did not succeed.
    HandshakeFailed = "handshake_failed",
    /// A handshake was sent back to prove its address, because many were under way.
    Retried = "retried",
    /// A handshake was refused because too many were under way.
    HalfOpenFull = "half_open_full",
    /// A link was refused because there were as many as there may be.
    PoolFull = "pool_full",
    /// A link gave way to another one.
    Displaced = "displaced",
    /// A dial did not become a link.
    DialFailed = "dial_failed",
    /// Somebody else answered a dial than the expected member.
    UnexpectedMember = "unexpected_member",
    /// A request was not understood, or not by its deadline.
    RequestMalformed = "request_malformed",
    /// A request was refused because too many were being served.
    RequestBusy = "request_busy",
    /// A request or its reply was too long.
    RequestTooLarge = "request_too_large",
    /// A request to enrol was refused: too many, too long, too slow, or not served here.
    EnrolRefused = "enrol_refused",
    /// A task of one connection panicked. The others went on.
    Panicked = "panicked",
}

/// How often each [`Reason`] occurred since the transport was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters(Vec<u64>);

impl Counters {
    /// How often for this reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }

    /// All of them with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Reason::ALL.iter().map(|reason| (reason.name(), self.of(*reason)))
    }
}

/// The counters while they count.
pub(super) struct Tally {
    counts: Vec<AtomicU64>,
    throttles: Mutex<Vec<Throttle>>,
    opened: Instant,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            counts: Reason::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
            throttles: Mutex::new(vec![Throttle::default(); Reason::ALL.len()]),
            opened: Instant::now(),
        }
    }

    /// Counts one, and logs it unless the reason was logged a moment ago.
    pub(super) fn count(&self, reason: Reason, detail: impl Display) {
        self.counts[reason as usize].fetch_add(1, Ordering::Relaxed);
        let now = self.opened.elapsed();
        let line = super::lock(&self.throttles)[reason as usize].pass(now);
        if let Some(since) = line {
            tracing::warn!(reason = reason.name(), count = since, example = %detail, "refused");
        }
    }

    pub(super) fn read(&self) -> Counters {
        Counters(self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect())
    }
}

/// Lets one line pass per [`LOG_EVERY`].
#[derive(Debug, Clone, Copy, Default)]
struct Throttle {
    next: Duration,
    waiting: u64,
}

impl Throttle {
    /// How many lines this one stands for, or `None` if it is too early for one.
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
        let tally = Tally::new();
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
