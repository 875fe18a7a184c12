//! The auction: how fast it decides, how even the result is, and how both grow. The workload is the
//! one that Diego's own scheduler was measured with, so the figures stand beside each other.

mod diego;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use volvox_bench::figures::{Figures, percentile};
use volvox_coordinator::auction::batch::{Batch, BatchItem};
use volvox_coordinator::auction::board::InstanceIndex;
use volvox_coordinator::auction::fleet::{Eligibility, Fleet, FleetCell};
use volvox_coordinator::auction::logic::{Decision, auction};
use volvox_coordinator::auction::rounds::Auction;
use volvox_coordinator::auction::settings::AuctionSettings;
use volvox_protocol::cell::{CellCapacity, CellInfo, CellLoad, RootfsProvider};
use volvox_protocol::id::{CellId, DefinitionId, Domain, ProcessGuid, TaskGuid};
use volvox_protocol::random::SplitMix;
use volvox_protocol::request::{LrpStart, Requirements};
use volvox_protocol::time::Timestamp;

const ZONES: usize = 3;
const CELL: CellCapacity = CellCapacity { memory_mb: 65_536, disk_mb: 204_800, containers: 250 };
/// How many more come to a fleet that already runs.
const MORE: usize = 100;
/// Each decision is made so often and the fastest counts: it is the same work each time, and what
/// takes longer was interrupted by others.
const RUNS: usize = 9;

/// What Diego's scheduler (Go, with its production logger) needed for the same workload on the same
/// kind of machine, and how even it was.
struct Diego {
    size: (usize, usize),
    ms: f64,
    memory_stddev_mb: f64,
    instances: (usize, usize),
}

/// As measured once for the issue that asked for this auction.
const DIEGO: [Diego; 4] = [
    diego((100, 10_000), 2_302.0, 2_197.0, (99, 101)),
    diego((1_000, 10_000), 16_915.0, 1_147.0, (9, 11)),
    diego((1_000, 50_000), 131_172.0, 2_511.0, (49, 51)),
    diego((2_000, 100_000), 710_000.0, 2_993.0, (49, 51)),
];

const fn diego(
    size: (usize, usize),
    ms: f64,
    memory_stddev_mb: f64,
    instances: (usize, usize),
) -> Diego {
    Diego { size, ms, memory_stddev_mb, instances }
}

/// The same for 100 more on 1,000 cells that run 50,000.
const DIEGO_WARM_MS: f64 = 366.0;

const SIZES: [(usize, usize); 5] =
    [(100, 10_000), (1_000, 10_000), (1_000, 50_000), (2_000, 100_000), (10_000, 250_000)];

/// What a decision left behind.
struct Evenness {
    memory: (u64, f64, u64, f64),
    instances: (usize, usize),
    max_same_lrp: usize,
    zone_difference: usize,
}

#[expect(clippy::print_stdout, reason = "a benchmark talks to a person")]
pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for (cells, instances) in SIZES {
        let fleet = empty_cells(cells)?;
        let batch = Batch::of(workload(42, instances)?, Vec::new());
        let (cold_ms, outcome) = timed(&fleet, &batch, &());
        let even = evenness(&fleet, &batch, &outcome)?;
        let (fleet, residents) = settled(&fleet, &batch, &outcome);
        let round_ms = whole_round(&empty_cells(cells)?, instances)?;
        let more = Batch::of(workload(43, MORE)?, Vec::new());
        let (warm_ms, warm) = timed(&fleet, &more, &residents);
        anyhow::ensure!(warm.placements.len() == MORE, "{} found no cell", warm.failures.len());

        let name = |what: &str| format!("auction.cold.{cells}x{instances}.{what}");
        figures.note(&name("ms"), cold_ms, "ms");
        figures.note(&format!("auction.round.{cells}x{instances}.ms"), round_ms, "ms");
        figures.note(&name("per_s"), instances as f64 / cold_ms * 1e3, "1/s");
        figures.note(&name("memory_stddev_mb"), even.memory.3, "MB");
        figures.note(&name("max_same_lrp"), even.max_same_lrp as f64, "instances");
        figures.note(&name("zone_difference"), even.zone_difference as f64, "instances");
        figures.note(&format!("auction.warm.{cells}x{instances}.ms"), warm_ms, "ms");
        rows.push(Row { cells, instances, cold_ms, round_ms, warm_ms, even });
    }
    println!("\n{}", table(&rows));
    println!("{}", other_seeds(figures)?);
    println!("{}", full_fleet(figures)?);
    Ok(())
}

/// One line of the table.
struct Row {
    cells: usize,
    instances: usize,
    cold_ms: f64,
    round_ms: f64,
    warm_ms: f64,
    even: Evenness,
}

/// A board on which everything is wanted and nothing runs.
struct Everything;

impl InstanceIndex for Everything {
    fn each_instance(&self, _: &ProcessGuid, _: &mut dyn FnMut(&DefinitionId, u32, &CellId)) {}

    fn wants_lrp(&self, _: &ProcessGuid, _: &DefinitionId, _: u32) -> bool {
        true
    }

    fn wants_task(&self, _: &TaskGuid) -> bool {
        true
    }
}

/// An auction that has heard of these cells.
fn hears(cells: &[FleetCell]) -> Auction {
    let mut rounds = Auction::new(AuctionSettings::default());
    for cell in cells {
        rounds.cell_info(Arc::clone(&cell.info));
        rounds.cell_load(load(cell, 1));
    }
    rounds
}

fn load(cell: &FleetCell, version: u64) -> CellLoad {
    CellLoad {
        cell_id: cell.info.cell_id.clone(),
        version,
        free: cell.free,
        starting_containers: 0,
        evacuating: false,
        healthy: true,
        last_batch: 0,
        digest: 0,
    }
}

/// All that a round does: it takes the requests, asks the board, decides, writes each cell's batch
/// and remembers.
fn whole_round(cells: &[FleetCell], instances: usize) -> anyhow::Result<f64> {
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let mut rounds = hears(cells);
        let starts = workload(42, instances)?;
        let start = Instant::now();
        rounds.request(starts, Vec::new());
        let orders = rounds.run_round(Timestamp::from_secs(1), &Everything);
        times.push(start.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(orders.unplaced.is_empty(), "{} found no cell", orders.unplaced.len());
    }
    Ok(percentile(&times, 0))
}

/// Other workloads of the same kind, beside Diego's rule on the very same.
fn other_seeds(figures: &mut Figures) -> anyhow::Result<String> {
    let (cells, instances) = (100, 10_000);
    let mut text = format!("memory stddev on {cells} cells, other seeds, ours / by Diego's rule:");
    for seed in 1..=5 {
        let fleet = empty_cells(cells)?;
        let starts = workload(seed, instances)?;
        let diego = spread(&diego::memory(&fleet, &starts)).3;
        let batch = Batch::of(starts, Vec::new());
        let outcome = auction(&AuctionSettings::default(), &Fleet::new(fleet.clone()), &batch, &());
        let ours = evenness(&fleet, &batch, &outcome)?.memory.3;
        figures.note(&format!("auction.seed_{seed}.memory_stddev_mb"), ours, "MB");
        anyhow::ensure!(ours < diego, "seed {seed}: {ours} MB, by Diego's rule {diego} MB");
        text += &format!("  {ours:.0} / {diego:.0}");
    }
    Ok(text)
}

/// What 100,000 pieces that have no place cost: to look at all of them, and to hear a load.
fn full_fleet(figures: &mut Figures) -> anyhow::Result<String> {
    let cells = empty_cells(1_000)?;
    let full = |cell: &FleetCell, memory_mb| FleetCell {
        free: CellCapacity { memory_mb, ..cell.free },
        ..cell.clone()
    };
    let cells: Vec<FleetCell> = cells.iter().map(|cell| full(cell, 0)).collect();
    let mut rounds = hears(&cells);
    rounds.request(workload(42, 100_000)?, Vec::new());
    let mut now = Timestamp::from_secs(1);
    rounds.run_round(now, &Everything);
    let mut times = Vec::new();
    for version in 2..2 + RUNS as u64 {
        // Enough for the smallest: somebody must look.
        rounds.cell_load(load(&full(&cells[0], 64), 2 * version));
        rounds.cell_load(load(&cells[0], 2 * version + 1));
        now = rounds.wake_at().map_or(now, |at| at.max(now));
        anyhow::ensure!(rounds.is_due(now) && rounds.waiting() == 100_000, "all of it waits");
        let start = Instant::now();
        rounds.run_round(now, &Everything);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let look_ms = percentile(&times, 0);
    let start = Instant::now();
    let loads = 100_000;
    for nth in 0..loads {
        let cell = &cells[1 + nth % (cells.len() - 1)];
        rounds.cell_load(load(&full(cell, 1 + u32::try_from(nth % 60)?), 2 + nth as u64));
        rounds.pass(now);
        anyhow::ensure!(!rounds.is_due(now), "too little for anybody");
    }
    let load_us = start.elapsed().as_secs_f64() * 1e6 / loads as f64;
    figures.note("auction.parked_100000.look_ms", look_ms, "ms");
    figures.note("auction.parked_100000.load_us", load_us, "us");
    Ok(format!(
        "100,000 without a place: {look_ms:.0} ms to look at all, {load_us:.2} µs to hear a load"
    ))
}

fn table(rows: &[Row]) -> String {
    let mut text = format!(
        "{:>15} {:>9} {:>10} {:>7} {:>11} {:>8}  {:<31} {:<9} {:>8} {:>5}  {}\n",
        "cells × starts",
        "ms",
        "starts/s",
        "ns each",
        "whole round",
        "100 more",
        "memory min/mean/max/stddev MB",
        "per cell",
        "same LRP",
        "zones",
        "Diego: time, stddev, per cell"
    );
    for Row { cells, instances, cold_ms, round_ms, warm_ms, even } in rows {
        let (min, mean, max, stddev) = even.memory;
        let diego = DIEGO.iter().find(|row| row.size == (*cells, *instances));
        let diego = diego.map_or("not measured".to_owned(), |diego| {
            let (times, spread) = (diego.ms / cold_ms, diego.memory_stddev_mb);
            let (few, many) = diego.instances;
            let wider = spread / stddev;
            format!("{times:.0} times longer, {spread:.0} MB ({wider:.1} times), {few}..{many}")
        });
        text += &format!(
            "{:>15} {cold_ms:>9.2} {:>10.0} {:>7.0} {round_ms:>11.2} {warm_ms:>8.2}  {:<31} {:<9} {:>8} {:>5}  {diego}\n",
            format!("{cells} × {instances}"),
            *instances as f64 / cold_ms * 1e3,
            cold_ms * 1e6 / *instances as f64,
            format!("{min} / {mean:.0} / {max} / {stddev:.0}"),
            format!("{}..{}", even.instances.0, even.instances.1),
            even.max_same_lrp,
            even.zone_difference,
        );
    }
    let warm = rows.iter().find(|row| (row.cells, row.instances) == (1_000, 50_000));
    let warm = warm.map_or(1.0, |row| row.warm_ms);
    text + &format!(
        "100 more on 1,000 cells with 50,000: Diego takes {:.0} times longer ({DIEGO_WARM_MS} ms).\n",
        DIEGO_WARM_MS / warm
    )
}

/// The time of the whole decision, from the cells as they were heard to the placements.
fn timed(
    cells: &[FleetCell],
    batch: &Batch,
    residents: &impl volvox_coordinator::auction::logic::PlacedInstances,
) -> (f64, Decision) {
    let settings = AuctionSettings::default();
    let mut times = Vec::new();
    let mut outcome = Decision::default();
    for _ in 0..RUNS {
        let cells = cells.to_vec();
        let start = Instant::now();
        let fleet = Fleet::new(cells);
        outcome = auction(&settings, &fleet, batch, residents);
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    (percentile(&times, 0), outcome)
}

/// LRPs until their instances are so many: half of them have one, a few have up to fifty.
fn workload(seed: u64, instances: usize) -> anyhow::Result<Vec<LrpStart>> {
    let mut random = SplitMix(seed);
    let mut starts = Vec::new();
    let mut left = u64::try_from(instances)?;
    while left > 0 {
        let (a, b, c) = (random.next() % 100, random.next(), random.next() % 100);
        let count = match a {
            0..50 => 1,
            50..80 => 2 + b % 3,
            80..95 => 5 + b % 11,
            _ => 16 + b % 35,
        };
        let memory_mb = match c {
            0..10 => 64,
            10..25 => 128,
            25..55 => 256,
            55..80 => 512,
            80..95 => 1_024,
            _ => 2_048,
        };
        let count = count.min(left);
        left -= count;
        let process_guid = ProcessGuid::new(&format!("lrp-{seed}-{:06}", starts.len()))?;
        starts.push(LrpStart {
            definition_id: (&process_guid).into(),
            process_guid,
            domain: Domain::new("bench")?,
            indices: (0..u32::try_from(count)?).collect(),
            requirements: Arc::new(Requirements {
                memory_mb,
                disk_mb: 1_024,
                rootfs: "preloaded:linux".to_owned(),
                ..Requirements::default()
            }),
        });
    }
    Ok(starts)
}

fn empty_cells(count: usize) -> anyhow::Result<Vec<FleetCell>> {
    let cell = |nth: usize| -> anyhow::Result<FleetCell> {
        let info = CellInfo {
            cell_id: CellId::new(&format!("cell-{nth:05}"))?,
            zone: format!("z{}", nth % ZONES),
            capacity: CELL,
            rootfs_providers: vec![RootfsProvider {
                name: "preloaded".to_owned(),
                properties: vec!["linux".to_owned()],
            }],
            placement_tags: Vec::new(),
            optional_placement_tags: Vec::new(),
            volume_drivers: Vec::new(),
            rep_address: "10.0.0.1:1801".to_owned(),
            annotations: BTreeMap::new(),
            version: 1,
        };
        Ok(FleetCell {
            info: Arc::new(info),
            free: CELL,
            starting: 0,
            standing: Eligibility::Takes,
        })
    };
    (0..count).map(cell).collect()
}

/// The same cells when everything that was placed runs, and where the instances are.
fn settled(
    cells: &[FleetCell],
    batch: &Batch,
    outcome: &Decision,
) -> (Vec<FleetCell>, BTreeMap<ProcessGuid, Vec<CellId>>) {
    let starts: Vec<&LrpStart> = batch.lrps().collect();
    let mut cells = cells.to_vec();
    let mut residents: BTreeMap<ProcessGuid, Vec<CellId>> = BTreeMap::new();
    for placement in &outcome.placements {
        let BatchItem::Lrp { start, .. } = placement.work else { continue };
        let (start, cell) = (starts[start as usize], &mut cells[placement.cell as usize]);
        cell.free.memory_mb -= start.requirements.memory_mb;
        cell.free.disk_mb -= start.requirements.disk_mb;
        cell.free.containers -= 1;
        let at = residents.entry(start.process_guid.clone()).or_default();
        at.push(cell.info.cell_id.clone());
    }
    (cells, residents)
}

fn evenness(cells: &[FleetCell], batch: &Batch, outcome: &Decision) -> anyhow::Result<Evenness> {
    anyhow::ensure!(outcome.failures.is_empty(), "{} found no cell", outcome.failures.len());
    let starts: Vec<&LrpStart> = batch.lrps().collect();
    let mut memory = vec![0_u64; cells.len()];
    let mut instances = vec![0_usize; cells.len()];
    let mut same: BTreeMap<(u32, u32), usize> = BTreeMap::new();
    let mut zones = vec![[0_usize; ZONES]; starts.len()];
    for placement in &outcome.placements {
        let BatchItem::Lrp { start, .. } = placement.work else { continue };
        let cell = placement.cell as usize;
        memory[cell] += u64::from(starts[start as usize].requirements.memory_mb);
        instances[cell] += 1;
        *same.entry((start, placement.cell)).or_default() += 1;
        zones[start as usize][cell % ZONES] += 1;
    }
    let difference = |zones: &[usize; ZONES]| {
        zones.iter().max().unwrap_or(&0) - zones.iter().min().unwrap_or(&0)
    };
    Ok(Evenness {
        memory: spread(&memory),
        instances: (
            instances.iter().copied().min().unwrap_or(0),
            instances.iter().copied().max().unwrap_or(0),
        ),
        max_same_lrp: same.into_values().max().unwrap_or(0),
        zone_difference: zones.iter().map(difference).max().unwrap_or(0),
    })
}

/// The smallest, the mean, the largest and the standard deviation.
fn spread(memory: &[u64]) -> (u64, f64, u64, f64) {
    let mean = memory.iter().sum::<u64>() as f64 / memory.len() as f64;
    let squares: f64 = memory.iter().map(|it| (*it as f64 - mean).powi(2)).sum();
    let (least, most) = (memory.iter().min(), memory.iter().max());
    let stddev = (squares / memory.len() as f64).sqrt();
    (least.copied().unwrap_or(0), mean, most.copied().unwrap_or(0), stddev)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workload_is_the_one_that_diego_was_measured_with() {
        for (instances, lrps, memory_mb) in
            [(50_000, 10_879, 24_640_448), (10_000, 2_148, 5_152_448)]
        {
            let starts = workload(42, instances).unwrap();
            let memory = starts
                .iter()
                .map(|start| start.indices.len() as u64 * u64::from(start.requirements.memory_mb));
            assert_eq!((starts.len(), memory.sum::<u64>()), (lrps, memory_mb));
        }
    }
}
