//! How long a failure detector waits, and how far it trusts its own findings.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::num::{NonZeroU8, NonZeroUsize};
use std::time::Duration;

use crate::profile::Profile;

/// Bytes of foca's frames: about 30 suspicions. They do not leave the process.
const FRAME_BYTES: usize = 1_150;

/// How often foca sends one suspicion to neighbours.
const TRANSMISSIONS: u8 = 6;

/// How far this member trusts its own findings. 0: fully. All waits grow by one part for each step.
#[derive(Debug)]
pub(in crate::member) struct Health {
    pub(super) level: u32,
    pub(super) worst: u32,
}

impl Health {
    pub(in crate::member) fn new(worst: u32) -> Health {
        Health { level: 0, worst }
    }

    pub(in crate::member) fn level(&self) -> u32 {
        self.level
    }

    pub(in crate::member) fn worsen(&mut self, steps: u32) {
        self.level = self.level.saturating_add(steps).min(self.worst);
    }

    pub(super) fn improve(&mut self) {
        self.level = self.level.saturating_sub(1);
    }

    pub(in crate::member) fn scaled(&self, span: Duration) -> Duration {
        span * (1 + self.level)
    }
}

/// How long a detector waits.
#[derive(Debug, Clone, Copy)]
pub(in crate::member) struct Pace {
    /// From one probe to the next, and from a ping to the end of its probe.
    pub(in crate::member) period: Duration,
    /// From a ping until helpers are asked.
    pub(in crate::member) rtt: Duration,
    /// From a ping to the same ping again.
    pub(in crate::member) ping_every: Duration,
    /// Helpers that are asked.
    pub(in crate::member) helpers: usize,
    /// Sum of postponements of one probe, after which this member's own lateness is no excuse.
    pub(in crate::member) spare: Duration,
}

impl Pace {
    /// Pace of the rounds in which a member probes its neighbours.
    pub(in crate::member) fn of_rounds(profile: &Profile) -> Pace {
        Pace { period: profile.probe_period, rtt: profile.probe_rtt, ..Pace::of_question(profile) }
    }

    /// That of a probe of one member.
    pub(in crate::member) fn of_question(profile: &Profile) -> Pace {
        Pace {
            period: profile.question,
            rtt: profile.question / 2,
            ping_every: profile.ping_every,
            helpers: profile.helpers,
            spare: profile.dial_wait,
        }
    }

    pub(super) fn config(&self) -> foca::Config {
        let none_is_one = |count: usize| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        foca::Config {
            probe_period: self.period,
            probe_rtt: self.rtt,
            num_indirect_probes: none_is_one(self.helpers),
            max_transmissions: NonZeroU8::new(TRANSMISSIONS).unwrap_or(NonZeroU8::MIN),
            // `suspicion` decides when this timer is delivered.
            suspect_to_down_after: Duration::ZERO,
            remove_down_after: None,
            max_packet_size: none_is_one(FRAME_BYTES),
            notify_down_members: false,
            periodic_announce: None,
            periodic_announce_to_down_members: None,
            periodic_gossip: None,
        }
    }
}
