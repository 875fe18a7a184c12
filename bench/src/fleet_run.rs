//! A fleet at work: the whole coordinator but its HTTP, and cells with simulated containers, on real
//! QUIC over loopback with real certificates, all in this process and on its cores.
//!
//! Containers start at once, so what is measured is ours: board, auction, mesh and the calls between.
//! Cells are leaves of the mesh (they are watched by the coordinator alone), with `lan`'s ten loads a
//! second: a thousand cells that watch each other on two cores would measure that. Claims and starts
//! are timed from the cell's wish until it has the answer, which includes the wait for the report
//! before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::runtime::{Builder, Runtime};
use volvox_bench::figures::{Figures, percentile, resident_bytes};
use volvox_bench::fleet::{desire, process_guid};
use volvox_coordinator::bbs::command::Command;
use volvox_host::sync::lock;
use volvox_mesh::profile::Profile;
use volvox_tests::fleet::rep::Stats;
use volvox_tests::fleet::{CellPlan, Cluster, Coordinator, FakeCell, Plan};

/// The fleet that the issue asks for, and what it takes.
const CELLS: usize = 1_000;
const INSTANCES: usize = 50_000;
const INSTANCES_EACH: u32 = 100;
/// The fleet of the figures of the real BBS.
const FEW_CELLS: usize = 100;
/// How long cells may take to come: with fewer by then, it is measured with those.
const JOINING: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(300);
/// Single instances that are timed.
const SINGLES: usize = 200;

/// Measures the group `fleet`.
pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    few(figures)?;
    many(figures)
}

/// One process with all members of a fleet.
struct Fleet {
    coordinator: Coordinator,
    cells: Vec<FakeCell>,
    stats: Arc<Stats>,
    runtime: Runtime,
    _cluster: Cluster,
    processes: usize,
}

impl Fleet {
    /// As many cells as come in time, up to `most`.
    fn start(most: usize) -> anyhow::Result<Fleet> {
        let cluster = Cluster::new()?;
        let coordinator = Coordinator::start(&cluster, &Plan::default())?;
        let at = coordinator.address();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let stats = Arc::new(Stats::default());
        let mut cells = Vec::new();
        let begun = Instant::now();
        for nth in 0..most {
            if begun.elapsed() > JOINING {
                break;
            }
            let profile = Profile { leaf: true, ..Profile::lan() };
            let zone = format!("z{}", nth % 3 + 1);
            let plan = CellPlan { zone, profile, ..CellPlan::named(&format!("cell-{nth:04}")) };
            let stats = Arc::clone(&stats);
            cells.push(FakeCell::start_on(runtime.handle(), &cluster, at, plan, stats)?);
        }
        let all = cells.len();
        let fleet = Fleet { coordinator, cells, stats, runtime, _cluster: cluster, processes: 0 };
        fleet.wait_until(|| fleet.heard() == all).context("not all cells were heard")?;
        Ok(fleet)
    }

    fn heard(&self) -> usize {
        self.coordinator.cells().list().iter().filter(|cell| cell.load.is_some()).count()
    }

    fn wait_until(&self, condition: impl Fn() -> bool) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !condition() {
            ensure!(Instant::now() < end, "waited for {PATIENCE:?} in vain");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Desires LRPs of so many instances each, and gives back the seconds until all of them run.
    fn desire(&mut self, sizes: &[u32]) -> anyhow::Result<f64> {
        let first = self.processes;
        self.processes += sizes.len();
        let commands: Vec<Command> = sizes
            .iter()
            .zip(first..)
            .map(|(instances, nth)| desire(nth, *instances))
            .collect::<anyhow::Result<_>>()?;
        let wanted = self.coordinator.came_up().count()
            + sizes.iter().map(|instances| u64::from(*instances)).sum::<u64>();
        let begun = Instant::now();
        let mut answers = Vec::new();
        for command in commands {
            answers.push(self.coordinator.bbs().send(command)?);
        }
        for answer in answers {
            answer.blocking_recv()??;
        }
        ensure!(
            self.coordinator.came_up().wait_for(wanted, PATIENCE),
            "not all came to run: {} of {wanted}",
            self.coordinator.came_up().count()
        );
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Removes everything, and waits until nothing is left.
    fn clear(&self) -> anyhow::Result<()> {
        for nth in 0..self.processes {
            let guid = process_guid(nth)?;
            if self.coordinator.records().deployment(&guid).is_some() {
                self.coordinator.call(Command::RemoveDesiredLrp(guid))?;
            }
        }
        self.wait_until(|| self.coordinator.records().instance_count() == 0)
            .context("not everything was stopped")
    }

    fn forget_times(&self) {
        for times in [&self.stats.claims_ms, &self.stats.starts_ms] {
            lock(times).clear();
        }
    }

    fn end(self) -> anyhow::Result<()> {
        self.coordinator.stop()?;
        drop(self.cells);
        self.runtime.shutdown_timeout(Duration::from_secs(10));
        Ok(())
    }
}

/// The workloads that the real BBS was measured with.
fn few(figures: &mut Figures) -> anyhow::Result<()> {
    let mut fleet = Fleet::start(FEW_CELLS)?;
    // The first of all pays for what is made once.
    fleet.desire(&[10])?;
    let seconds = fleet.desire(&[500])?;
    figures.note("fleet.100x500.all_running.s", seconds, "s");
    fleet.clear()?;

    let mut singles = Vec::new();
    for _ in 0..SINGLES {
        singles.push(fleet.desire(&[1])? * 1e3);
    }
    figures.note("fleet.one.p50_ms", percentile(&singles, 50), "ms");
    figures.note("fleet.one.p99_ms", percentile(&singles, 99), "ms");
    fleet.clear()?;

    // 5,000 instances of 610 LRPs: most are small, a few are large.
    let mix: Vec<u32> = (0..610u32)
        .map(|nth| match nth % 61 {
            0 => 136,
            1..=4 => 40,
            5..=14 => 10,
            15..=24 => 5,
            25..=30 => 4,
            _ => 1,
        })
        .collect();
    let total: u32 = mix.iter().sum();
    ensure!(total == 5_000, "the mix has {total} instances");
    let seconds = fleet.desire(&mix)?;
    figures.note("fleet.mixed5000.per_s", f64::from(total) / seconds, "1/s");
    fleet.end()
}

/// The large fleet.
fn many(figures: &mut Figures) -> anyhow::Result<()> {
    let before = resident_bytes()?;
    let begun = Instant::now();
    let mut fleet = Fleet::start(CELLS)?;
    let cells = fleet.cells.len();
    figures.note("fleet.cells", cells as f64, "");
    figures.note("fleet.joining.s", begun.elapsed().as_secs_f64(), "s");
    let each = (resident_bytes()?.saturating_sub(before)) as f64 / cells as f64;
    figures.note("fleet.rss_per_cell.kib", each / 1024.0, "KiB");
    fleet.forget_times();
    let sizes = vec![INSTANCES_EACH; INSTANCES / INSTANCES_EACH as usize];
    let seconds = fleet.desire(&sizes)?;
    figures.note(&format!("fleet.{cells}x{INSTANCES}.all_running.s"), seconds, "s");
    figures.note(
        &format!("fleet.{cells}x{INSTANCES}.instances_per_s"),
        INSTANCES as f64 / seconds,
        "1/s",
    );
    for (name, times) in [("claim", &fleet.stats.claims_ms), ("start", &fleet.stats.starts_ms)] {
        let times = lock(times).clone();
        ensure!(!times.is_empty(), "no {name} was timed");
        figures.note(&format!("fleet.{name}.p50_ms"), percentile(&times, 50), "ms");
        figures.note(&format!("fleet.{name}.p99_ms"), percentile(&times, 99), "ms");
    }
    let counters = fleet.coordinator.cells().counters();
    let later: u64 =
        counters.requests.iter().filter(|((_, it), _)| *it == "later").map(|(_, n)| n).sum();
    figures.note("fleet.asked_again", later as f64, "");
    figures.note("fleet.refused_work", counters.work_refused as f64, "");
    figures.note("fleet.syncs_by_mismatch", counters.mismatches as f64, "");
    fleet.end()
}
