//! What it costs to place work on a cell: by how much the fleet becomes less even.
//!
//! Evenness is the sum, over all cells, of the squares of the used fractions of memory, disk and
//! containers: for a given load it is smallest when all cells are equally used. The cost of a cell
//! is what placing there adds to that sum, `(u + d)² − u²` for each resource. So large work goes by
//! memory, and small work, which takes a container like any other, goes by containers: both end up
//! even, where the mean of the fractions would let one make up for the other. A container that is
//! being started counts as one more resource of the same size, times its weight.
//!
//! Fixed point: [`ONE`] is a whole cell. A cost stays below 2⁴⁴.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::cell::CellCapacity;
use volvox_protocol::request::Requirements;

use super::settings::AuctionSettings;

/// A whole cell, as a fraction.
pub const ONE: u64 = 1 << FRACTION_BITS;
const FRACTION_BITS: u32 = 20;
/// Bits of the hash that settles ties, below the cost in a key: its highest.
pub const TIE_BITS: u32 = 20;
/// The highest cost; what would be above it is equally bad.
const MOST: u64 = (1 << (64 - TIE_BITS)) - 2;
/// The key of a cell that cannot take the work: above that of any that can.
pub const NEVER: u64 = u64::MAX;
/// Needs are weighed by their first bits only: see [`ResourceRequest::weighed`].
const WEIGHED_BITS: u32 = 3;

/// What a piece of work takes of a cell, beside one container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceRequest {
    /// Memory.
    pub memory_mb: u32,
    /// Disk.
    pub disk_mb: u32,
}

impl From<&Requirements> for ResourceRequest {
    fn from(requirements: &Requirements) -> Self {
        ResourceRequest { memory_mb: requirements.memory_mb, disk_mb: requirements.disk_mb }
    }
}

impl ResourceRequest {
    /// Whether these are no more than those, of everything.
    pub fn within(self, others: ResourceRequest) -> bool {
        self.memory_mb <= others.memory_mb && self.disk_mb <= others.disk_mb
    }

    /// The needs to weigh by: rounded down to three binary digits. Work that is nearly equal then
    /// shares one index of cells, however many different sizes there are. Whether it fits is
    /// decided by the needs themselves.
    #[must_use]
    pub fn weighed(self) -> Self {
        let round = |need: u32| {
            let spare = (u32::BITS - need.leading_zeros()).saturating_sub(WEIGHED_BITS);
            (need >> spare) << spare
        };
        ResourceRequest { memory_mb: round(self.memory_mb), disk_mb: round(self.disk_mb) }
    }
}

/// One resource of a cell.
#[derive(Debug, Clone, Copy)]
struct Resource {
    total: u32,
    free: u32,
    /// `ONE²` divided by the total: a division for each cost would be most of its time.
    inverse: u64,
}

impl Resource {
    fn new(total: u32, free: u32) -> Self {
        let inverse = (ONE * ONE).checked_div(u64::from(total)).unwrap_or(0);
        Resource { total, free: free.min(total), inverse }
    }

    fn used(&self) -> u64 {
        self.fraction(self.total - self.free)
    }

    fn fraction(&self, amount: u32) -> u64 {
        // At most ONE²: the inverse is ONE² / total, and the amount at most the total.
        (u64::from(amount.min(self.total)) * self.inverse) >> FRACTION_BITS
    }

    fn take(&mut self, amount: u32) {
        debug_assert!(amount <= self.free, "{amount} of {} free", self.free);
        self.free = self.free.saturating_sub(amount);
    }
}

/// The room on one cell while a round is decided: one line of the processor's cache.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub struct Headroom {
    memory: Resource,
    disk: Resource,
    containers: Resource,
    starting: u32,
    /// How many cells of the zone come before it by id.
    rank: u32,
    tie: u32,
}

const _: () = assert!(size_of::<Headroom>() == 64, "a round looks at most of its rooms often");

impl Headroom {
    /// A cell's room. `rank` counts the cells of its zone before it, `hash` settles ties.
    pub fn new(
        total: CellCapacity,
        free: CellCapacity,
        starting: u32,
        rank: u32,
        hash: u64,
    ) -> Self {
        Headroom {
            memory: Resource::new(total.memory_mb, free.memory_mb),
            disk: Resource::new(total.disk_mb, free.disk_mb),
            containers: Resource::new(total.containers, free.containers),
            starting,
            rank,
            tie: u32::try_from(hash >> (64 - TIE_BITS)).expect("it is 20 bits"),
        }
    }

    /// What is free.
    pub fn free(&self) -> CellCapacity {
        CellCapacity {
            memory_mb: self.memory.free,
            disk_mb: self.disk.free,
            containers: self.containers.free,
        }
    }

    /// Containers that are being started.
    pub fn starting(&self) -> u32 {
        self.starting
    }

    /// Whether there is room for this and its container.
    pub fn fits(&self, needs: ResourceRequest) -> bool {
        self.memory.free >= needs.memory_mb
            && self.disk.free >= needs.disk_mb
            && self.containers.free >= 1
    }

    /// Takes the room. It must be there.
    pub fn take(&mut self, needs: ResourceRequest) {
        self.memory.take(needs.memory_mb);
        self.disk.take(needs.disk_mb);
        self.containers.take(1);
        self.starting = self.starting.saturating_add(1);
    }

    /// By how much placing this here makes the fleet less even.
    pub fn cost(&self, needs: ResourceRequest, settings: &AuctionSettings) -> u64 {
        let memory = self.memory.fraction(needs.memory_mb);
        let disk = self.disk.fraction(needs.disk_mb);
        let container = self.containers.fraction(1);
        let mut cost = memory * (2 * self.memory.used() + memory)
            + disk * (2 * self.disk.used() + disk)
            + container * (2 * self.containers.used() + container);
        if settings.starting_weight > 0 {
            let starting = (2 * u64::from(self.starting) + 1).saturating_mul(container * container);
            cost = cost.saturating_add(starting.saturating_mul(settings.starting_weight.into()));
        }
        if settings.bin_pack_weight > 0 {
            // As if all resources were so much fuller for each cell that comes before.
            let fuller = u64::from(self.rank)
                .saturating_mul(settings.bin_pack_weight.into())
                .saturating_mul(ONE / 1_000);
            cost = cost.saturating_add(fuller.saturating_mul(2 * (memory + disk + container)));
        }
        cost.min(MOST)
    }

    /// The cost and, below it, the hash: the lowest key of a fleet is the cell to take. [`NEVER`]
    /// if there is no room.
    pub fn key(&self, needs: ResourceRequest, settings: &AuctionSettings) -> u64 {
        if self.fits(needs) {
            (self.cost(needs, settings) << TIE_BITS) | u64::from(self.tie)
        } else {
            NEVER
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENLY: AuctionSettings = AuctionSettings {
        zone_policy: super::super::settings::ZonePolicy::Even,
        starting_weight: 0,
        bin_pack_weight: 0,
        in_flight_starts: 0,
        seed: 0,
    };

    fn room(total: [u32; 3], free: [u32; 3]) -> Headroom {
        let capacity = |[memory_mb, disk_mb, containers]: [u32; 3]| CellCapacity {
            memory_mb,
            disk_mb,
            containers,
        };
        Headroom::new(capacity(total), capacity(free), 0, 0, 0)
    }

    fn needs(memory_mb: u32, disk_mb: u32) -> ResourceRequest {
        ResourceRequest { memory_mb, disk_mb }
    }

    #[test]
    fn large_work_goes_by_memory_and_small_work_by_containers() {
        let many_small = room([1_000, 1_000, 100], [800, 1_000, 50]);
        let few_large = room([1_000, 1_000, 100], [500, 1_000, 90]);
        let costs = |needs| (many_small.cost(needs, &EVENLY), few_large.cost(needs, &EVENLY));
        let (small, large) = (costs(needs(1, 0)), costs(needs(200, 0)));
        assert!(small.0 > small.1, "{small:?}");
        assert!(large.0 < large.1, "{large:?}");
    }

    #[test]
    fn the_cost_is_the_growth_of_the_sum_of_squares() {
        let room = room([1 << 20, 1 << 20, 1 << 20], [3 << 18, 1 << 20, 1 << 20]);
        // A quarter is used and a quarter comes: (1/2)² − (1/4)² = 3/16. One container: 2⁻⁴⁰.
        assert_eq!(room.cost(needs(1 << 18, 0), &EVENLY), ONE * ONE * 3 / 16 + 1);
    }

    #[test]
    fn starting_containers_and_a_later_rank_cost_more() {
        let total = CellCapacity { memory_mb: 100, disk_mb: 100, containers: 100 };
        let of = |starting, rank| Headroom::new(total, total, starting, rank, 0);
        let weighs = AuctionSettings { starting_weight: 1, ..EVENLY };
        let packs = AuctionSettings { bin_pack_weight: 1, ..EVENLY };
        let work = needs(1, 1);
        assert!(of(0, 0).cost(work, &weighs) < of(1, 0).cost(work, &weighs));
        assert!(of(0, 0).cost(work, &packs) < of(0, 1).cost(work, &packs));
        assert_eq!(of(0, 0).cost(work, &EVENLY), of(9, 9).cost(work, &EVENLY));
    }

    #[test]
    fn needs_are_weighed_by_three_digits() {
        for (given, weighed) in [(0, 0), (1, 1), (7, 7), (9, 8), (64, 64), (100, 96), (1_023, 896)]
        {
            assert_eq!(needs(given, given).weighed(), needs(weighed, weighed), "{given}");
        }
    }

    #[test]
    fn no_input_overflows() {
        let odd = [0, 1, 2, 1 << 30, u32::MAX];
        let worst =
            AuctionSettings { starting_weight: u32::MAX, bin_pack_weight: u32::MAX, ..EVENLY };
        for total in odd {
            for free in odd {
                for need in odd {
                    let capacity = CellCapacity { memory_mb: total, disk_mb: 1, containers: free };
                    let room = Headroom::new(capacity, capacity, u32::MAX, u32::MAX, u64::MAX);
                    assert!(room.key(needs(need, 1), &worst) > 0);
                    assert_eq!(
                        room.key(needs(need, 1), &EVENLY) == NEVER,
                        need > total || free == 0
                    );
                }
            }
        }
    }
}
