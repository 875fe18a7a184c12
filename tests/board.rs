//! The board from outside: killed without warning, on a full disk, started twice.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use volvox_coordinator::bbs::command::{CallError, Command as BoardCommand};
use volvox_coordinator::bbs::logic::check::check;
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::bbs::store::inspect::Inspection;
use volvox_coordinator::bbs::store::{DATABASE, SqliteStore, StoreError};
use volvox_coordinator::core::{Converge, CoreSettings, Traces};
use volvox_coordinator::driver::{Bbs, Subscribers};
use volvox_protocol::event::Event;
use volvox_protocol::time::Timestamp;
use volvox_tests::disk::{SmallDisk, is_root};
use volvox_tests::load::{Acknowledged, Stage, command};
use volvox_tests::skip;

fn open(folder: &Path) -> Result<Bbs, StoreError> {
    Bbs::open(folder, BoardSettings::default(), told(), (), None)
}

/// A board that converges when it is told to.
fn told() -> CoreSettings {
    CoreSettings { converge: Converge::WhenTold, ..CoreSettings::default() }
}

/// Lets a writer run until it has acknowledged so much, kills it, and notes what it said.
fn kill_after(folder: &Path, round: usize, lines: usize, acknowledged: &mut Acknowledged) {
    let mut writer = Command::new(env!("CARGO_BIN_EXE_board-writer"))
        .arg(folder)
        .args([&round.to_string(), "16"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(writer.stdout.take().unwrap()).lines();
    let mut note = |line: &str| {
        let (process, stage) = line.split_once(' ').unwrap();
        acknowledged.note(process, Stage::parse(stage).unwrap());
    };
    for line in said.by_ref().take(lines) {
        note(&line.unwrap());
    }
    writer.kill().unwrap();
    let status = writer.wait().unwrap();
    assert!(!status.success(), "the writer ended by itself: {status}");
    // What it had said before it died and we had not read yet. The last line may be cut short.
    for line in said.map_while(Result::ok).filter(|line| line.split(' ').count() == 2) {
        if line.split_once(' ').is_some_and(|(_, stage)| Stage::parse(stage).is_some()) {
            note(&line);
        }
    }
}

#[test]
fn kill_9_at_any_moment_loses_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut acknowledged = Acknowledged::default();
    for round in 0..25 {
        // From the first acknowledgement of all to the middle of a checkpoint.
        let lines = [1, 7, 40, 150, 900][round % 5] + round * 13;
        kill_after(folder.path(), round, lines, &mut acknowledged);
        let mut store = SqliteStore::open(folder.path()).unwrap();
        let now = Timestamp::from_secs(4_000_000_000);
        let (board, report) = store.load(BoardSettings::default(), now).unwrap();
        assert_eq!(report.set_aside, [], "round {round}");
        assert_eq!(acknowledged.lost(board.records()).unwrap(), [""; 0], "round {round}");
        assert_eq!(check(&board, now), [""; 0], "round {round}");
    }
    assert!(acknowledged.len() > 25 * 10, "there was hardly any load: {}", acknowledged.len());
    assert!(Inspection::of(&folder.path().join(DATABASE)).unwrap().is_sound());
}

#[test]
fn a_full_disk_refuses_what_it_cannot_keep_and_recovers_when_it_is_emptied() {
    if !is_root() {
        let why = "mounting a small disk needs root";
        return skip("a_full_disk_refuses_what_it_cannot_keep_and_recovers", why);
    }
    let disk = SmallDisk::mount(3_072).unwrap();
    let folder = disk.path().join("data");
    let count = Arc::new(AtomicUsize::new(0));
    let counter = Counter(Arc::clone(&count));
    let bbs = Bbs::open(&folder, BoardSettings::default(), told(), counter, None).unwrap();
    let mut acknowledged = Acknowledged::default();
    bbs.call(command("before", Stage::Desired).unwrap()).unwrap();
    acknowledged.note("before", Stage::Desired);

    for round in 0..3 {
        let filler = disk.fill().unwrap();
        let mut refused = 0;
        for nth in 0..200 {
            let process = format!("full-{round}-{nth}");
            let before = bbs.view().snapshot().process_count();
            let told_before = count.load(Ordering::SeqCst);
            match bbs.call(command(&process, Stage::Desired).unwrap()) {
                Ok(_) => acknowledged.note(&process, Stage::Desired),
                Err(CallError::Store(error)) => {
                    refused += 1;
                    let text = error.to_string();
                    assert!(
                        text.starts_with("the change was not saved and did not happen"),
                        "{text}"
                    );
                    assert_eq!(bbs.view().snapshot().process_count(), before, "it became visible");
                    assert_eq!(count.load(Ordering::SeqCst), told_before, "somebody was told");
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(refused > 0, "round {round}: the disk was not full");
        std::fs::remove_file(filler).unwrap();
        let process = format!("after-{round}");
        bbs.call(command(&process, Stage::Desired).unwrap()).unwrap();
        acknowledged.note(&process, Stage::Desired);
        assert_eq!(acknowledged.lost(&bbs.view().snapshot()).unwrap(), [""; 0]);
    }
    let shown = records(&bbs);
    drop(bbs);
    let bbs = open(&folder).unwrap();
    assert_eq!(records(&bbs), shown, "what is on the disk is what was shown");
}

/// Counts what leaves the board.
struct Counter(Arc<AtomicUsize>);

impl Subscribers for Counter {
    fn tell(&mut self, _: u64, events: Vec<Event>, _: Traces) {
        self.0.fetch_add(events.len(), Ordering::SeqCst);
    }

    fn resync(&mut self, _: u64) {}
}

/// The records in a form that can be compared.
fn records(bbs: &Bbs) -> BTreeMap<String, String> {
    let records = bbs.view().snapshot();
    records.processes().map(|(guid, it)| (guid.to_string(), format!("{it:?}"))).collect()
}

#[test]
fn a_second_coordinator_on_the_same_folder_is_refused_and_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path()).unwrap();
    let text = open(folder.path()).unwrap_err().to_string();
    assert!(text.contains("in use by another coordinator"), "{text}");
    assert!(text.contains("--data-dir"), "{text}");
    drop(first);
    open(folder.path()).unwrap();
}

#[test]
fn a_backup_made_under_load_is_sound_and_has_all_that_was_acknowledged_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let bbs = open(folder.path()).unwrap();
    let mut acknowledged = Acknowledged::default();
    for nth in 0..500 {
        let process = format!("early-{nth}");
        bbs.call(command(&process, Stage::Desired).unwrap()).unwrap();
        acknowledged.note(&process, Stage::Desired);
    }
    let to = folder.path().join("copy").join("board.db");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in 0_u64.. {
                bbs.call(command(&format!("late-{nth}"), Stage::Desired).unwrap()).unwrap();
                if stop.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        });
        bbs.backup(&to).unwrap();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(Inspection::of(&to).unwrap().is_sound());
    let copy = open(to.parent().unwrap()).unwrap();
    assert_eq!(acknowledged.lost(&copy.view().snapshot()).unwrap(), [""; 0]);
    let again = bbs.backup(&to).unwrap_err().to_string();
    assert!(again.contains("exists already"), "{again}");
}

#[test]
fn a_writer_that_panics_ends_the_process_and_loses_nothing_that_was_committed() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_board-writer"))
        .arg(folder.path())
        .args(["panic", "1"])
        .output()
        .unwrap();
    let abort = 6;
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(abort));
    let bbs = open(folder.path()).unwrap();
    let mut acknowledged = Acknowledged::default();
    acknowledged.note("last-words", Stage::Desired);
    assert_eq!(acknowledged.lost(&bbs.view().snapshot()).unwrap(), [""; 0]);
}

#[test]
fn a_closed_board_answers_what_was_queued() {
    let folder = tempfile::tempdir().unwrap();
    let bbs = open(folder.path()).unwrap();
    let answers: Vec<_> = (0..100)
        .map(|nth| bbs.send(command(&format!("queued-{nth}"), Stage::Desired).unwrap()).unwrap())
        .collect();
    drop(bbs);
    for answer in answers {
        answer.blocking_recv().unwrap().unwrap();
    }
    let bbs = open(folder.path()).unwrap();
    assert_eq!(bbs.view().snapshot().process_count(), 100);
    let error = bbs.call(BoardCommand::ConvergeDue);
    assert!(error.is_ok(), "{error:?}");
}
