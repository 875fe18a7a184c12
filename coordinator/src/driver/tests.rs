//! Tests of the thread around the core: its queues, and what it does when the store lets it down.

use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use volvox_protocol::cell::CellPresence;
use volvox_protocol::id::{CellId, Domain};
use volvox_protocol::request::Rejection;

use super::inbox::{BATCH, REPORTS};
use super::*;
use crate::bbs::logic::check::check;
use crate::core::{Converge, Signal};

fn desire(process: &str) -> Command {
    let json = serde_json::json!({
        "process_guid": process, "domain": "d", "instances": 1, "rootfs": "host:",
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    });
    Command::DesireLrp(Box::new(serde_json::from_value(json).unwrap()))
}

fn settings() -> CoreSettings {
    CoreSettings { converge: Converge::WhenTold, ..CoreSettings::default() }
}

/// A coordinator that takes a turn when it is told to.
fn driver(folder: &Path) -> Driver {
    let mut store = SqliteStore::open(folder).unwrap();
    let clock = Clock::new();
    let (board, _) = store.load(BoardSettings::default(), clock.now().machine).unwrap();
    let core = Core::new(clock.now(), settings(), board);
    let inbox = Arc::new(Inbox::new(clock));
    let (shared, link) = (Arc::default(), Arc::default());
    let outputs = Outputs::new(Box::new(()), None, Arc::clone(&inbox), shared, link);
    Driver { core, store, inbox, outputs, random: SplitMix(1), inputs: VecDeque::new(), clock }
}

/// One turn with one command.
fn call(driver: &mut Driver, command: Command) -> Result<Reply, CallError> {
    let mut answer = driver.inbox.command(command, None).unwrap();
    let taken = driver.inbox.take(Duration::ZERO);
    driver.turn(taken);
    answer.try_recv().expect("each command is answered in its turn")
}

/// Waits as long as the core wants before the next try to open the database.
fn wait_for_reload(driver: &Driver) {
    while !driver.core.is_reload_due(driver.clock.now()) {
        std::thread::yield_now();
    }
}

#[test]
fn a_full_queue_refuses_instead_of_growing_and_leaves_room_for_the_other() {
    /// Somebody who holds the thread up until it is let go.
    struct Held(Arc<Mutex<()>>, Sender<()>);
    impl Subscribers for Held {
        fn tell(&mut self, _: u64, _: Vec<Event>, _: Traces) {
            let _nobody_waits = self.1.send(());
            drop(self.0.lock());
        }
        fn resync(&mut self, _: u64) {}
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap();
    let (here, is_here) = channel();
    let subscriber = Held(Arc::clone(&gate), here);
    let board = BoardSettings::default();
    let bbs = Bbs::open(folder.path(), board, settings(), subscriber, None).unwrap();
    let mut answers = vec![bbs.send(desire("p")).unwrap()];
    is_here.recv().unwrap();
    let upsert = || Command::UpsertDomain(Domain::new("d").unwrap(), Duration::ZERO);
    let refusal = loop {
        match bbs.send(upsert()) {
            Ok(answer) => answers.push(answer),
            Err(refusal) => break refusal,
        }
        assert!(answers.len() < 2 * QUEUE + BATCH, "the queue has no end");
    };
    assert!(matches!(refusal, CallError::Busy), "{refusal}");
    let mut reports = Vec::new();
    while let Ok(report) = bbs.inbox.report(Vec::new()) {
        reports.push(report);
    }
    assert_eq!(reports.len(), REPORTS, "calls take none of the room of reports");
    drop(held);
    for answer in answers {
        answer.blocking_recv().unwrap().unwrap();
    }
    for (_, report) in reports {
        assert_eq!(report.blocking_recv().unwrap(), []);
    }
}

#[test]
fn a_turn_takes_of_both_queues_and_the_end_comes_when_they_are_empty() {
    let inbox = Inbox::new(Clock::new());
    for _ in 0..BATCH + 1 {
        inbox.command(Command::ConvergeDue, None).unwrap();
        inbox.report(Vec::new()).unwrap();
    }
    inbox.close();
    assert!(matches!(inbox.command(Command::ConvergeDue, None), Err(CallError::Closed)));
    let taken = inbox.take(Duration::ZERO);
    let reports = taken.inputs.iter().filter(|it| matches!(it, CoreInput::Report { .. })).count();
    assert_eq!((taken.inputs.len(), reports, taken.is_end), (2 * BATCH, BATCH, false));
    assert_eq!(inbox.take(Duration::ZERO).inputs.len(), 2);
    assert!(inbox.take(Duration::from_secs(3_600)).is_end, "nobody sleeps any more");
}

#[test]
fn a_report_that_waits_can_be_taken_back_and_one_that_was_taken_cannot() {
    let inbox = Inbox::new(Clock::new());
    let (first, mut answers) = inbox.report(Vec::new()).unwrap();
    let (second, _) = inbox.report(Vec::new()).unwrap();
    assert!(inbox.withdraw(first));
    assert!(answers.try_recv().is_err(), "nobody is left who could answer it");
    assert_eq!(inbox.take(Duration::ZERO).inputs.len(), 1);
    assert!(!inbox.withdraw(second));
}

#[test]
fn what_the_mesh_says_is_given_back_when_there_is_no_room() {
    let inbox = Inbox::new(Clock::new());
    let mut heard = 0;
    while inbox.hear_mesh(Signal::MeshSynced).is_ok() {
        heard += 1;
        assert!(heard < 100_000, "the queue has no end");
    }
    assert_eq!(inbox.take(Duration::ZERO).signals.len(), heard);
    assert!(inbox.hear_mesh(Signal::MeshSynced).is_ok());
}

#[test]
fn a_broken_connection_is_replaced_and_what_the_mesh_said_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = driver(folder.path());
    let cell = CellId::new("cell-1").unwrap();
    call(&mut driver, Command::CellPresence(cell.clone(), CellPresence::Present)).unwrap();
    call(&mut driver, desire("kept")).unwrap();
    driver.store.break_connection();
    assert!(!driver.store.is_usable());
    call(&mut driver, desire("after")).unwrap();
    assert!(driver.store.is_usable());
    assert_eq!(driver.core.board().presence(&cell), Some(CellPresence::Present));
    assert_eq!(driver.core.view().snapshot().process_count(), 2);
    let now = driver.core.board_time(driver.clock.now());
    assert_eq!(check(driver.core.board(), now), [""; 0]);
}

/// What the simulator found: the news was answered with an error, and nobody says it again.
#[test]
fn what_the_mesh_says_while_the_database_cannot_be_opened_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = driver(folder.path());
    let cell = CellId::new("cell-1").unwrap();
    call(&mut driver, desire("kept")).unwrap();
    driver.store.break_connection();
    let (database, away) = (folder.path().join(DATABASE), folder.path().join("away"));
    std::fs::rename(&database, &away).unwrap();
    let lost = call(&mut driver, Command::CellPresence(cell.clone(), CellPresence::Present));
    assert!(matches!(lost, Err(CallError::Store(_))), "{lost:?}");
    std::fs::rename(&away, &database).unwrap();
    let soon = call(&mut driver, desire("after")).unwrap_err().to_string();
    assert!(soon.contains("tried again soon"), "{soon}");
    wait_for_reload(&driver);
    call(&mut driver, desire("after")).unwrap();
    assert_eq!(driver.core.board().presence(&cell), Some(CellPresence::Present));
    assert_eq!(driver.core.view().snapshot().process_count(), 2);
}

#[test]
fn a_database_that_was_opened_again_is_of_no_use_before_it_was_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = driver(folder.path());
    call(&mut driver, desire("kept")).unwrap();
    driver.store.break_connection();
    let other = rusqlite::Connection::open(folder.path().join(DATABASE)).unwrap();
    let rename = |from: &str, to: &str| {
        other.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).unwrap();
    };
    rename("tasks", "elsewhere");
    for _ in 0..2 {
        wait_for_reload(&driver);
        assert!(call(&mut driver, desire("refused")).is_err());
        assert!(!driver.store.is_usable());
    }
    rename("elsewhere", "tasks");
    wait_for_reload(&driver);
    call(&mut driver, desire("after")).unwrap();
    assert_eq!(driver.core.view().snapshot().process_count(), 2);
}

#[test]
fn a_disk_that_refuses_changes_only_the_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut driver = driver(folder.path());
    call(&mut driver, desire("p")).unwrap();
    driver.store.refuse_writes("ON");
    assert!(matches!(call(&mut driver, desire("q")), Err(CallError::Store(_))));
    let again = call(&mut driver, desire("p"));
    assert!(matches!(&again, Err(CallError::Rejected(Rejection::Exists(_)))), "{again:?}");
    assert_eq!(driver.core.view().snapshot().process_count(), 1);
    driver.store.refuse_writes("OFF");
    call(&mut driver, desire("q")).unwrap();
    assert_eq!(driver.core.view().snapshot().process_count(), 2);
}
