//! The simulator: how many fleets in a minute, and what becomes of a very large one that loses cells.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use volvox_bench::figures::Figures;
use volvox_tests::harness::scale::{Loss, Scale};
use volvox_tests::harness::{Plan, run as play};

/// How long fleets are counted.
const COUNTED_FOR: Duration = Duration::from_secs(30);
/// What it takes to make a container: about what ours take on a small machine.
const MAKING: Duration = Duration::from_millis(15);

/// The memory that the largest fleet takes: every member of it knows every other.
const SCALE_KIB: u64 = 20 << 20;

/// Measures the group `sim`.
pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    seeds(figures)?;
    if let Some(free) = free_kib()?.filter(|free| *free < SCALE_KIB) {
        let why = format!("{} GiB of memory are free, it needs {}", free >> 20, SCALE_KIB >> 20);
        for loss in ["kill10", "kill20"] {
            for what in ["detect_s", "place_s", "converge_s"] {
                figures.missing(&format!("sim.10000x250000.{loss}.{what}"), "s, simulated", &why);
            }
        }
        return Ok(());
    }
    scale(figures, 10_000, 2_500, 100)
}

/// What the kernel thinks could be had now, if it says so.
fn free_kib() -> anyhow::Result<Option<u64>> {
    let said = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let line = said.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    Ok(line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()))
}

/// Only how many fleets in a minute.
pub(crate) fn run_seeds(figures: &mut Figures) -> anyhow::Result<()> {
    seeds(figures)
}

/// A small part of it, to see whether it works.
pub(crate) fn run_small(figures: &mut Figures) -> anyhow::Result<()> {
    scale(figures, 1_000, 250, 100)
}

fn seeds(figures: &mut Figures) -> anyhow::Result<()> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while began.elapsed() < COUNTED_FOR {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let outcome = play(&Plan::new(seed, 50));
                    done.fetch_add(1, Ordering::Relaxed);
                    failed.fetch_add(u64::from(outcome.failure.is_some()), Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    anyhow::ensure!(failed == 0, "{failed} seeds failed: make sim tells more");
    let each_minute = 60.0 * done.into_inner() as f64 / began.elapsed().as_secs_f64();
    figures.note("sim.seeds_per_minute.50_cells", each_minute, "1/min");
    Ok(())
}

#[expect(clippy::print_stdout, reason = "long work says how far it is")]
fn scale(figures: &mut Figures, cells: usize, processes: usize, each: usize) -> anyhow::Result<()> {
    let began = Instant::now();
    let instances = processes * each;
    println!("sim: {cells} cells begin, then {instances} instances");
    let scale = Scale::new(1, cells, processes, each, MAKING, progress);
    let mut scale = scale.map_err(|failure| anyhow!("{failure}"))?;
    println!("sim: all of it runs, after {} s of ours", began.elapsed().as_secs());
    let name = format!("sim.{cells}x{instances}");
    // One in ten; then one in five of those that are left.
    let loss = scale.lose(|nth| nth % 10 == 3).map_err(|failure| anyhow!("{failure}"))?;
    note(figures, &format!("{name}.kill10"), &loss);
    let loss = scale.lose(|nth| (nth / 10) % 5 == 2).map_err(|failure| anyhow!("{failure}"))?;
    note(figures, &format!("{name}.kill20"), &loss);
    println!("sim: that took {} s of ours", began.elapsed().as_secs());
    Ok(())
}

#[expect(clippy::print_stdout, reason = "long work says how far it is")]
fn progress(what: &str, at: Duration) {
    println!("sim: {:.1} s simulated, until {what}", at.as_secs_f64());
}

fn note(figures: &mut Figures, name: &str, loss: &Loss) {
    figures.note(&format!("{name}.cells"), loss.cells as f64, "cells lost");
    figures.note(&format!("{name}.instances"), loss.instances as f64, "instances lost");
    for (what, reached) in
        [("detect", loss.detected), ("place", loss.placed), ("converge", loss.converged)]
    {
        let parts =
            [("_half_s", reached.half), ("_99_percent_s", reached.most), ("_s", reached.all)];
        for (part, after) in parts {
            if let Some(after) = after {
                figures.note(&format!("{name}.{what}{part}"), after.as_secs_f64(), "s, simulated");
            }
        }
    }
    figures.note(&format!("{name}.packets"), loss.packets as f64, "packets");
    figures.note(&format!("{name}.mb"), loss.bytes as f64 / 1e6, "MB, all members");
    let center = loss.bytes_of_coordinator as f64 / 1e6;
    figures.note(&format!("{name}.coordinator_mb"), center, "MB, the coordinator");
}
