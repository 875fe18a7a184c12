//! How often a member speaks, and how long it waits: three profiles, and every number in them.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The pace of a member. All members of a mesh may have different ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Time from one probe of the neighbourhood to the next, and from its ping to its failure.
    pub probe_period: Duration,
    /// Time from the ping of such a probe until helpers are asked.
    pub probe_rtt: Duration,
    /// Time until a ping that is not answered is repeated.
    pub ping_every: Duration,
    /// Time that a probe of one member takes to fail: half of it before helpers are asked.
    pub question: Duration,
    /// The worst health level. All waits of a probe grow by one part for each level. 0: they never
    /// grow, which is there to be compared with.
    pub worst_health: u32,
    /// Number of helpers that are asked to probe.
    pub helpers: usize,
    /// Time that a probe waits for a handshake. It never counts as a missed ping.
    pub dial_wait: Duration,
    /// Shortest suspicion timeout: several members suspect it. Cells wait three times as long: they
    /// have nothing to decide.
    pub suspicion_shortest: Duration,
    /// Longest suspicion timeout: one member suspects it.
    pub suspicion_longest: Duration,
    /// News of who is there waits this long for more of it.
    pub urgent_delay: Duration,
    /// Other news waits this long.
    pub gossip_every: Duration,
    /// Bytes each second for news of who is there.
    pub urgent_bytes: u32,
    /// Bytes each second for other news.
    pub gossip_bytes: u32,
    /// Loads that go straight to coordinators each second, for more than a moment.
    pub pushes_per_second: u32,
    /// The least time between two comparisons of who is there.
    pub compare_every: Duration,
    /// The least time between two comparisons of loads.
    pub compare_loads_every: Duration,
    /// Somebody who is missing, or a seed, is tried once in this time.
    pub reach_out_every: Duration,
    /// Coordinators, and the cells that a leaf has links to, ask it once in this time. It also keeps the way through a NAT open.
    pub leaf_probe_every: Duration,
    /// A member that has been missing for so long is forgotten.
    pub forget_after: Duration,
    /// The longest wait between two dials to one whom we want a link with.
    pub longest_retry: Duration,
    /// Stands on no ring, and talks only to coordinators and a few cells.
    pub leaf: bool,
}

impl Profile {
    /// For machines of one site.
    pub const fn lan() -> Profile {
        Profile {
            probe_period: ms(850),
            probe_rtt: ms(550),
            ping_every: ms(130),
            question: ms(1_200),
            worst_health: 8,
            helpers: 3,
            dial_wait: ms(3_000),
            suspicion_shortest: ms(800),
            suspicion_longest: ms(5_000),
            urgent_delay: ms(20),
            gossip_every: ms(200),
            urgent_bytes: 128 << 10,
            gossip_bytes: 8 << 10,
            pushes_per_second: 10,
            compare_every: ms(5_000),
            compare_loads_every: ms(30_000),
            reach_out_every: ms(20_000),
            leaf_probe_every: ms(25_000),
            forget_after: Duration::from_secs(24 * 60 * 60),
            longest_retry: ms(15_000),
            leaf: false,
        }
    }

    /// For sites that are far from each other.
    pub const fn wan() -> Profile {
        Profile {
            probe_period: ms(3_000),
            probe_rtt: ms(1_900),
            ping_every: ms(450),
            question: ms(3_500),
            dial_wait: ms(8_000),
            suspicion_shortest: ms(2_500),
            suspicion_longest: ms(15_000),
            urgent_delay: ms(50),
            gossip_every: ms(500),
            urgent_bytes: 64 << 10,
            gossip_bytes: 4 << 10,
            pushes_per_second: 5,
            compare_every: ms(10_000),
            compare_loads_every: ms(60_000),
            reach_out_every: ms(40_000),
            ..Profile::lan()
        }
    }

    /// For a machine whose link is paid by the byte, or that nobody can dial.
    pub const fn metered() -> Profile {
        Profile {
            probe_period: ms(60_000),
            pushes_per_second: 1,
            compare_every: ms(600_000),
            compare_loads_every: ms(600_000),
            reach_out_every: ms(120_000),
            // A dial that nobody answers costs some thousand bytes.
            longest_retry: ms(120_000),
            leaf: true,
            ..Profile::wan()
        }
    }

    /// The profile of that name, as in a configuration file.
    pub fn named(name: &str) -> Option<Profile> {
        match name {
            "lan" => Some(Profile::lan()),
            "wan" => Some(Profile::wan()),
            "metered" => Some(Profile::metered()),
            _ => None,
        }
    }
}
