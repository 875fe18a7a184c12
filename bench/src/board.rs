//! The BBS and its store: how large, how fast, how durable.

use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use volvox_bench::figures::{Figures, median_ms, resident_bytes};
use volvox_bench::fleet;
use volvox_coordinator::bbs::command::{Change, Command, Reply};
use volvox_coordinator::bbs::logic::Board;
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::bbs::store::SqliteStore;
use volvox_coordinator::core::{Converge, CoreSettings};
use volvox_coordinator::driver::Bbs;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::cell::CellPresence;
use volvox_protocol::desired_lrp::DesiredLrpUpdate;
use volvox_protocol::time::Timestamp;
use volvox_protocol::validate::Valid;

const CELLS: usize = 1_000;
const PROCESSES: usize = 25_000;
const INSTANCES_EACH: u32 = 10;
const INSTANCES: usize = PROCESSES * INSTANCES_EACH as usize;
/// How long each throughput is measured.
const MEASURE: Duration = Duration::from_secs(4);

pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let scratch = Path::new("target/bench-scratch");
    std::fs::create_dir_all(scratch)?;
    let folder = tempfile::tempdir_in(scratch)?;
    figures.note("disk.append_fdatasync.per_s", appends_per_second(folder.path())?, "1/s");
    at_size(figures, &folder.path().join("fleet"))?;
    for callers in [1, 16, 256] {
        let folder = folder.path().join(format!("callers-{callers}"));
        throughput(figures, &folder, callers)?;
    }
    Ok(())
}

/// What the disk itself can do, measured beside what we do with it.
fn appends_per_second(folder: &Path) -> anyhow::Result<f64> {
    let file = std::fs::File::create(folder.join("appends"))?;
    let page = [0x5a_u8; 4096];
    let start = Instant::now();
    let mut written: u64 = 0;
    while start.elapsed() < Duration::from_secs(1) {
        file.write_all_at(&page, written * 4096)?;
        file.sync_data()?;
        written += 1;
    }
    Ok(written as f64 / start.elapsed().as_secs_f64())
}

fn at_size(figures: &mut Figures, folder: &Path) -> anyhow::Result<()> {
    fill(folder, PROCESSES, INSTANCES_EACH)?;
    // In a process of its own, so that the memory is the board's and nobody else's.
    let program = std::env::current_exe()?;
    let output = std::process::Command::new(program)
        .arg("board-at-rest")
        .arg(folder)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "measuring at rest ended with {}", output.status);
    let measured: Vec<(String, f64)> = serde_json::from_slice(&output.stdout)?;
    for (name, value) in measured {
        let unit = if name.ends_with(".bytes") { "bytes" } else { "ms" };
        figures.note(&name, value, unit);
    }
    Ok(())
}

/// Puts running instances into a database, so many for each process, through the logic and the store.
pub(crate) fn fill(folder: &Path, processes: usize, each: u32) -> anyhow::Result<()> {
    let mut store = SqliteStore::open(folder)?;
    let mut board = Board::new(BoardSettings::default());
    let mut seed = 0;
    let mut apply = |board: &mut Board, command| {
        seed += 1;
        board.apply(Timestamp::from_secs(1_700_000_000), seed, command)
    };
    let ttl = Duration::ZERO;
    let upsert = apply(&mut board, Command::UpsertDomain(fleet::domain()?, ttl))?;
    store.commit(&upsert.changes)?;
    let mut changes: Vec<Change> = Vec::new();
    for nth in 0..processes {
        changes.extend(apply(&mut board, fleet::desire(nth, each)?)?.changes);
        for index in 0..each {
            let cell = fleet::cell_id((nth * each as usize + index as usize) % CELLS)?;
            changes.extend(apply(&mut board, fleet::claim(nth, index, &cell)?)?.changes);
            changes.extend(apply(&mut board, fleet::start(nth, index, &cell)?)?.changes);
        }
        if nth % 100 == 99 {
            store.commit(&changes)?;
            changes.clear();
        }
    }
    store.commit(&changes)?;
    let instances = processes * each as usize;
    ensure!(board.records().instance_count() == instances, "the fleet is not complete");
    Ok(())
}

/// Opens the database that [`fill`] made and measures. Prints JSON for [`at_size`].
pub(crate) fn at_rest(folder: &Path) -> anyhow::Result<()> {
    let mut measured: Vec<(&str, f64)> = Vec::new();
    let start = Instant::now();
    let bbs = open(folder)?;
    measured.push(("board.load.250000.ms", start.elapsed().as_secs_f64() * 1e3));
    let loaded = bbs.view().snapshot().instance_count();
    ensure!(loaded == INSTANCES, "{loaded} instances were read back");
    let rss = resident_bytes()?;
    measured.push(("board.rss_per_instance.bytes", rss as f64 / INSTANCES as f64));

    for nth in 0..CELLS {
        bbs.call(Command::CellPresence(fleet::cell_id(nth)?, CellPresence::Present))?;
    }
    // The readers' copy shares its contents with the writer's until either is written to: this is
    // what it comes to when every process has been written once.
    touch_everything(&bbs)?;
    let rss = resident_bytes()?;
    measured.push(("board.rss_per_instance_after_writes.bytes", rss as f64 / INSTANCES as f64));

    let full_pass = median_ms(5, |_| {
        let found = bbs.call(Command::ConvergeAll);
        assert!(matches!(found, Ok(Reply::Converged(_))), "{found:?}");
    });
    measured.push(("board.full_pass.250000.ms", full_pass));

    let snapshot = median_ms(5, |_| {
        let records = bbs.view().snapshot();
        let all: Vec<Arc<ActualLrp>> = records.instances().cloned().collect();
        assert_eq!(all.len(), INSTANCES);
    });
    measured.push(("board.snapshot.250000.ms", snapshot));

    // Each time another cell: 250 records become suspect, 250 are created, all of it committed.
    let cells: Vec<_> = (0..11).map(|nth| fleet::cell_id(nth * 7)).collect::<Result<_, _>>()?;
    let lost_cell = median_ms(cells.len(), |nth| {
        let gone = Command::CellPresence(cells[nth].clone(), CellPresence::Missing);
        let found = bbs.call(gone);
        assert!(
            matches!(&found, Ok(Reply::Converged(report)) if report.findings == INSTANCES / CELLS),
            "{found:?}"
        );
    });
    measured.push(("board.lost_cell.ms", lost_cell));
    let count = bbs.view().snapshot().instance_count();
    ensure!(count == INSTANCES + cells.len() * INSTANCES / CELLS, "replacements are missing");
    std::io::stdout().write_all(&serde_json::to_vec(&measured)?).context("print the figures")
}

/// A board that converges when it is told to, without a mesh: so no round of the auction is held.
fn open(folder: &Path) -> anyhow::Result<Bbs> {
    let settings = CoreSettings { converge: Converge::WhenTold, ..CoreSettings::default() };
    Ok(Bbs::open(folder, BoardSettings::default(), settings, (), None)?)
}

fn touch_everything(bbs: &Bbs) -> anyhow::Result<()> {
    for chunk in (0..PROCESSES).collect::<Vec<_>>().chunks(1_000) {
        let mut answers = Vec::new();
        for nth in chunk {
            let annotation = Some("touched".to_owned());
            let update = Valid::new(DesiredLrpUpdate { annotation, ..Default::default() })?;
            let process = fleet::process_guid(*nth)?;
            answers.push(bbs.send(Command::UpdateDesiredLrp(process, Box::new(update)))?);
        }
        for answer in answers {
            answer.blocking_recv()??;
        }
    }
    Ok(())
}

fn throughput(figures: &mut Figures, folder: &Path, callers: usize) -> anyhow::Result<()> {
    let bbs = open(folder)?;
    let cell = fleet::cell_id(0)?;
    bbs.call(Command::CellPresence(cell.clone(), CellPresence::Present))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;

    let next = Arc::new(AtomicUsize::new(0));
    let desired = runtime.block_on(measure(callers, &bbs, {
        let next = Arc::clone(&next);
        move || Some(vec![fleet::desire(next.fetch_add(1, Ordering::Relaxed), 1)])
    }))?;
    figures.note(&format!("board.desire.{callers}.per_s"), desired, "1/s");

    // Each instance is claimed once; whoever finds none left stops before the time is over.
    let enough = 40_000 * usize::try_from(MEASURE.as_secs())?;
    let first = next.load(Ordering::Relaxed);
    let more = runtime.block_on(desire_up_to(&bbs, first, enough))?;
    let claimed = Arc::new(AtomicUsize::new(0));
    let pairs = runtime.block_on(measure(callers, &bbs, move || {
        let nth = claimed.fetch_add(1, Ordering::Relaxed);
        (nth < more).then(|| vec![fleet::claim(nth, 0, &cell), fleet::start(nth, 0, &cell)])
    }))?;
    figures.note(&format!("board.claim_start.{callers}.per_s"), pairs, "1/s");
    Ok(())
}

async fn desire_up_to(bbs: &Bbs, first: usize, upto: usize) -> anyhow::Result<usize> {
    for chunk in (first..upto.max(first)).collect::<Vec<_>>().chunks(1_000) {
        let mut answers = Vec::with_capacity(chunk.len());
        for nth in chunk {
            answers.push(bbs.send(fleet::desire(*nth, 1)?)?);
        }
        for answer in answers {
            answer.await??;
        }
    }
    Ok(upto.max(first))
}

/// Has `callers` call one after another for a while, and counts what was answered.
async fn measure(
    callers: usize,
    bbs: &Bbs,
    make: impl Fn() -> Option<Vec<anyhow::Result<Command>>> + Clone + Send + 'static,
) -> anyhow::Result<f64> {
    let start = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..callers {
        let (bbs, make) = (bbs.clone(), make.clone());
        tasks.push(tokio::spawn(async move {
            let mut done: usize = 0;
            while start.elapsed() < MEASURE
                && let Some(commands) = make()
            {
                for command in commands {
                    bbs.ask(command?).await?;
                }
                done += 1;
            }
            anyhow::Ok(done)
        }));
    }
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
