//! Diego's rule, told again in a few lines: so that both can be held to the same workloads, not to
//! the one that was measured. It looks at every cell for every piece of work.

use volvox_coordinator::auction::fleet::FleetCell;
use volvox_protocol::request::LrpStart;

use super::ZONES;

/// A cell as the rule sees it.
#[derive(Clone, Default)]
struct State {
    memory_mb: u64,
    disk_mb: u64,
    containers: u64,
}

/// The memory in use on each cell after everything was placed. All of it must fit.
pub(super) fn memory(cells: &[FleetCell], starts: &[LrpStart]) -> Vec<u64> {
    let mut order: Vec<(u32, std::cmp::Reverse<u32>, usize)> = Vec::new();
    for (place, start) in starts.iter().enumerate() {
        let memory = std::cmp::Reverse(start.requirements.memory_mb);
        order.extend(start.indices.iter().map(|index| (*index, memory, place)));
    }
    order.sort_unstable();
    let mut states = vec![State::default(); cells.len()];
    let mut placed: Vec<Vec<usize>> = vec![Vec::new(); starts.len()];
    for (_, _, place) in order {
        let mut zones = [0; ZONES];
        placed[place].iter().for_each(|cell| zones[cell % ZONES] += 1);
        let fewest = zones.iter().min().copied().unwrap_or(0);
        let needs = &starts[place].requirements;
        let score = |cell: usize| {
            let (total, state) = (cells[cell].info.capacity, &states[cell]);
            let used =
                |now: u64, more: u32, all: u32| (now + u64::from(more)) as f64 / f64::from(all);
            let resources = used(state.memory_mb, needs.memory_mb, total.memory_mb)
                + used(state.disk_mb, needs.disk_mb, total.disk_mb)
                + used(state.containers, 1, total.containers);
            // All that was placed in this round is still starting.
            let starting = state.containers as f64 * 0.25;
            let same = placed[place].iter().filter(|it| **it == cell).count();
            resources / 3.0 + starting + same as f64 * 1_000.0
        };
        let candidates = (0..cells.len()).filter(|cell| zones[cell % ZONES] == fewest);
        let scored = candidates.map(|cell| (score(cell), cell));
        let best = scored.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, cell)| cell);
        states[best].memory_mb += u64::from(needs.memory_mb);
        states[best].disk_mb += u64::from(needs.disk_mb);
        states[best].containers += 1;
        placed[place].push(best);
    }
    states.into_iter().map(|state| state.memory_mb).collect()
}
