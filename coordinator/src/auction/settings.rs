//! What an operator may choose about the auction.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::random::mix;

/// How zones bear on the choice of a cell for an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ZonePolicy {
    /// The zone with the fewest instances of the process, among those that have room.
    #[default]
    Even,
    /// Each instance has one zone that follows from its process and index. The first two indices
    /// go elsewhere if there is no room, the others wait.
    Preferred {
        /// All zones of the fleet; empty: those that are heard of. To name them keeps the preferred
        /// zones where they are while a whole zone is away.
        zones: Vec<String>,
    },
}

/// The auction's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuctionSettings {
    /// How zones bear on the choice.
    pub zone_policy: ZonePolicy,
    /// How much a container that is being started weighs on top of one that runs, in containers.
    pub starting_weight: u32,
    /// Fills cells in the order of their ids, within each zone, instead of evenly. In thousandths
    /// of a cell: 100 means that a cell is chosen before the next until it is a tenth fuller.
    /// 0: evenly.
    pub bin_pack_weight: u32,
    /// Containers that may be starting in the whole fleet at once; 0: as many as there are.
    pub in_flight_starts: u32,
    /// The cluster's own number. Equal cells are taken in an order that follows from it, so that
    /// two equal clusters do not fill the same cell first.
    pub seed: u64,
}

impl Default for AuctionSettings {
    fn default() -> Self {
        AuctionSettings {
            zone_policy: ZonePolicy::default(),
            starting_weight: 1,
            bin_pack_weight: 0,
            in_flight_starts: 0,
            seed: 0,
        }
    }
}

/// A number from a text and a seed: the same on all machines and for all time.
pub fn stable_hash(seed: u64, text: &str) -> u64 {
    // FNV-1a, then SplitMix64's last steps: FNV alone hardly moves the upper bits of short texts.
    let mut bits = 0xcbf2_9ce4_8422_2325 ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in text.bytes() {
        bits = (bits ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mix(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_differs_by_text_and_by_seed_and_never_changes() {
        assert_ne!(stable_hash(1, "cell-1"), stable_hash(1, "cell-2"));
        assert_ne!(stable_hash(1, "cell-1"), stable_hash(2, "cell-1"));
        assert_eq!(stable_hash(0, ""), 0xf52a_15e9_a9b5_e89b, "written down once, true for ever");
    }
}
