//! Tests of the writer: what leaves it, when, and what it does when the store lets it down.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, Running, Tags};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid};
use volvox_protocol::request::{CellRequest, Rejection};
use volvox_protocol::validate::Valid;

use super::super::command::Effect;
use super::super::writer::PAUSE;
use super::*;

/// Passes on what leaves the writer.
struct Probe(Sender<String>);

impl Outlet for Probe {
    fn tell(&mut self, _: u64, events: Vec<Event>) {
        for event in events {
            let _ = self.0.send(event.name().to_owned());
        }
    }

    fn ask(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            let name = format!("{effect:?}");
            let _ = self.0.send(name.split('(').next().unwrap_or_default().to_owned());
        }
    }
}

fn desire(process: &str) -> Command {
    desire_many(process, 1)
}

fn open(settings: Settings, converge: Converge) -> (tempfile::TempDir, Bbs, Receiver<String>) {
    let folder = tempfile::tempdir().unwrap();
    let (probe, heard) = channel();
    let bbs = Bbs::open(folder.path(), settings, converge, Probe(probe)).unwrap();
    (folder, bbs, heard)
}

#[test]
fn events_come_before_effects_and_both_before_the_reply() {
    let (_folder, bbs, heard) = open(Settings::default(), Converge::WhenTold);
    bbs.call(desire("p")).unwrap();
    let heard: Vec<String> = heard.try_iter().collect();
    let expected = [
        "desired_lrp_created",
        "actual_lrp_instance_created",
        "actual_lrp_created",
        "RequestAuction",
    ];
    assert_eq!(heard, expected);
    assert_eq!(bbs.view().snapshot().instance_count(), 1, "a caller sees what it wrote");
}

#[test]
fn a_rejection_tells_nobody_anything() {
    let (_folder, bbs, heard) = open(Settings::default(), Converge::WhenTold);
    bbs.call(desire("p")).unwrap();
    heard.try_iter().for_each(drop);
    let again = bbs.call(desire("p"));
    assert!(matches!(&again, Err(CallError::Rejected(Rejection::Exists(_)))), "{again:?}");
    assert_eq!(heard.try_iter().count(), 0);
}

#[test]
fn a_lost_start_is_asked_for_again_by_itself() {
    let stale_after = Duration::from_millis(20);
    let settings = Settings { stale_after, ..Settings::default() };
    let (_folder, bbs, heard) = open(settings, Converge::Itself(Duration::from_secs(3_600)));
    bbs.call(desire("p")).unwrap();
    for _ in 0..3 {
        while heard.recv_timeout(Duration::from_secs(30)).unwrap() != "RequestAuction" {}
    }
}

#[test]
fn a_full_pass_comes_on_its_schedule() {
    let folder = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3_600);
    let mut writer = writer(folder.path(), Converge::Itself(hour));
    let now = writer.clock.now();
    assert!(writer.writer.patience(now) <= hour);
    let mut due_in =
        |span| writer.writer.own_command(now + span).map(|command| format!("{command:?}"));
    assert_eq!(due_in(hour / 2), None);
    assert_eq!(due_in(hour).as_deref(), Some("ConvergeAll"));
    assert_eq!(due_in(hour * 3 / 2), None);
    assert_eq!(due_in(hour * 2).as_deref(), Some("ConvergeAll"));
}

/// A writer that steps when it is told to.
fn writer(folder: &Path, converge: Converge) -> Loop {
    let mut store = Store::open(folder).unwrap();
    let mut clock = Clock::default();
    let (board, _) = store.load(Settings::default(), clock.now()).unwrap();
    let view = View::new(board.records().clone());
    let outlet = Box::new(());
    Loop { writer: Writer::new(board, store, view, converge), outlet, clock }
}

#[test]
fn a_broken_connection_is_replaced_and_what_the_mesh_said_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Converge::WhenTold);
    let view = writer.writer.view.clone();
    let cell = CellId::new("cell-1").unwrap();
    call(&mut writer, Command::CellPresence(cell.clone(), CellPresence::Present)).unwrap();
    call(&mut writer, desire("kept")).unwrap();
    writer.writer.store.break_connection();
    assert!(!writer.writer.store.is_usable());
    call(&mut writer, desire("after")).unwrap();
    assert!(writer.writer.store.is_usable());
    assert_eq!(writer.writer.board.presence(&cell), Some(CellPresence::Present));
    assert_eq!(view.snapshot().process_count(), 2);
    assert_eq!(crate::bbs::logic::check::check(&writer.writer.board, writer.clock.now()), [""; 0]);
}

/// What the simulator found: the news was answered with an error, and nobody says it again.
#[test]
fn what_the_mesh_says_while_the_database_cannot_be_opened_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Converge::WhenTold);
    let cell = CellId::new("cell-1").unwrap();
    call(&mut writer, desire("kept")).unwrap();
    writer.writer.store.break_connection();
    let (database, away) = (folder.path().join(DATABASE), folder.path().join("away"));
    std::fs::rename(&database, &away).unwrap();
    let lost = call(&mut writer, Command::CellPresence(cell.clone(), CellPresence::Present));
    assert!(matches!(lost, Err(CallError::Store(_))), "{lost:?}");
    assert!(call(&mut writer, desire("refused")).is_err());
    std::fs::rename(&away, &database).unwrap();
    let soon = call(&mut writer, desire("after")).unwrap_err().to_string();
    assert!(soon.contains("tried again soon"), "{soon}");
    writer.writer.recovers_at = Timestamp::default();
    call(&mut writer, desire("after")).unwrap();
    assert_eq!(writer.writer.board.presence(&cell), Some(CellPresence::Present));
    assert_eq!(writer.writer.view.snapshot().process_count(), 2);
}

#[test]
fn a_database_that_was_opened_again_is_of_no_use_before_it_was_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Converge::WhenTold);
    call(&mut writer, desire("kept")).unwrap();
    writer.writer.store.break_connection();
    let other = rusqlite::Connection::open(folder.path().join(DATABASE)).unwrap();
    let rename = |from: &str, to: &str| {
        other.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).unwrap();
    };
    rename("tasks", "elsewhere");
    for _ in 0..2 {
        writer.writer.recovers_at = Timestamp::default();
        assert!(call(&mut writer, desire("refused")).is_err());
        assert!(!writer.writer.store.is_usable());
    }
    rename("elsewhere", "tasks");
    writer.writer.recovers_at = Timestamp::default();
    call(&mut writer, desire("after")).unwrap();
    assert_eq!(writer.writer.view.snapshot().process_count(), 2);
}

#[test]
fn a_full_queue_refuses_instead_of_growing() {
    /// An outlet that holds the writer up until it is let go.
    struct Held(Arc<Mutex<()>>);
    impl Outlet for Held {
        fn tell(&mut self, _: u64, _: Vec<Event>) {
            drop(self.0.lock());
        }
        fn ask(&mut self, _: Vec<Effect>) {}
    }
    let folder = tempfile::tempdir().unwrap();
    let gate = Arc::new(Mutex::new(()));
    let held = gate.lock().unwrap();
    let outlet = Held(Arc::clone(&gate));
    let bbs = Bbs::open(folder.path(), Settings::default(), Converge::WhenTold, outlet).unwrap();
    let first = bbs.send(desire("p")).unwrap();
    let upsert = || Command::UpsertDomain(Domain::new("d").unwrap(), Duration::ZERO);
    let mut answers = vec![first];
    let refusal = loop {
        match bbs.send(upsert()) {
            Ok(answer) => answers.push(answer),
            Err(refusal) => break refusal,
        }
        assert!(answers.len() < 2 * QUEUE + BATCH, "the queue has no end");
    };
    assert!(matches!(refusal, CallError::Busy), "{refusal}");
    drop(held);
    for answer in answers {
        answer.blocking_recv().unwrap().unwrap();
    }
}

/// Steps a writer with one command.
fn call(writer: &mut Loop, command: Command) -> Result<Reply, CallError> {
    let (reply, answer) = oneshot::channel();
    writer.step(&mut VecDeque::from([Job { command, trace: None, who: reply }]));
    answer.blocking_recv().unwrap()
}

#[test]
fn what_the_mesh_said_outlives_a_commit_that_failed() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Converge::WhenTold);
    let cell = CellId::new("cell-1").unwrap();
    call(&mut writer, desire("p")).unwrap();
    call(&mut writer, started("p", &cell)).unwrap();
    writer.writer.store.refuse_writes("ON");
    let lost = call(&mut writer, Command::CellPresence(cell.clone(), CellPresence::Missing));
    assert!(matches!(lost, Err(CallError::Store(_))), "{lost:?}");
    assert_eq!(writer.writer.board.presence(&cell), Some(CellPresence::Missing));
    assert_eq!(writer.writer.view.snapshot().instance_count(), 1, "nothing of it has happened");
    writer.writer.store.refuse_writes("OFF");
    call(&mut writer, Command::ConvergeDue).unwrap();
    assert_eq!(writer.writer.view.snapshot().instance_count(), 2, "the replacement has been made");
}

#[test]
fn work_of_its_own_that_cannot_be_saved_is_tried_again_with_pauses() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Converge::Itself(Duration::from_secs(3_600)));
    let cell = CellId::new("cell-1").unwrap();
    call(&mut writer, desire("p")).unwrap();
    call(&mut writer, started("p", &cell)).unwrap();
    writer.writer.store.refuse_writes("ON");
    let lost = call(&mut writer, Command::CellPresence(cell, CellPresence::Missing));
    assert!(lost.is_err());
    assert!(writer.writer.board.next_deadline().is_some(), "there is something due");
    let now = writer.clock.now();
    assert!(writer.writer.patience(now) > PAUSE.first / 2, "the writer does not spin");
    assert!(writer.writer.own_command(now).is_none());
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let trouble = writer.writer.trouble.unwrap();
        pauses.push(PAUSE.after(trouble.failures).as_secs());
        let error = StoreError::Commit { reason: "as before".to_owned() };
        writer.writer.failed(trouble.until, &error);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
    writer.writer.store.refuse_writes("OFF");
    call(&mut writer, desire("q")).unwrap();
    assert!(writer.writer.trouble.is_none());
    let now = writer.clock.now();
    assert!(writer.writer.own_command(now).is_some(), "what was due is due still");
}

#[test]
fn only_a_write_shows_that_the_disk_is_well_and_a_pass_that_failed_is_due_again() {
    let folder = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3_600);
    let mut writer = writer(folder.path(), Converge::Itself(hour));
    let cell = CellId::new("cell-1").unwrap();
    let begin = writer.clock.now();
    writer.writer.patience(begin);
    call(&mut writer, desire("p")).unwrap();
    call(&mut writer, started("p", &cell)).unwrap();
    writer.writer.store.refuse_writes("ON");
    assert!(call(&mut writer, Command::CellPresence(cell, CellPresence::Missing)).is_err());
    let again = call(&mut writer, desire("p"));
    assert!(matches!(again, Err(CallError::Rejected(_))), "{again:?}");
    assert!(writer.writer.trouble.is_some(), "a rejection writes nothing");
    let own_work = |writer: &mut Loop, at: Timestamp| {
        let mut nobody: VecDeque<Job<()>> = VecDeque::new();
        writer.writer.step(at, &mut || 1, &mut nobody, &mut ());
    };
    // A full pass that cannot be saved is due after the pause, not after another hour.
    let at = begin + hour * 2;
    own_work(&mut writer, at);
    let until = writer.writer.trouble.unwrap().until;
    assert!(until > at);
    let next = writer.writer.own_command(until).map(|command| format!("{command:?}"));
    assert_eq!(next.as_deref(), Some("ConvergeAll"));
    // One that finds nothing to write leaves the disk alone, and does not come again at once.
    writer.writer.store.refuse_writes("OFF");
    own_work(&mut writer, until + hour);
    assert!(writer.writer.trouble.is_none(), "the replacement was written");
    writer.writer.failed(until + hour, &StoreError::Commit { reason: "once".to_owned() });
    let later = until + hour * 9;
    own_work(&mut writer, later);
    assert!(writer.writer.trouble.is_some(), "nothing was written");
    let next = writer.writer.own_command(later).map(|command| format!("{command:?}"));
    assert_ne!(next.as_deref(), Some("ConvergeAll"), "the writer does not spin");
}

#[test]
fn a_command_that_brings_very_much_does_not_take_the_rest_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Converge::WhenTold);
    let mut answers = Vec::new();
    let mut batch = VecDeque::new();
    for (process, instances) in [("many", 25_000), ("few", 1)] {
        let (reply, answer) = oneshot::channel();
        batch.push_back(Job { command: desire_many(process, instances), trace: None, who: reply });
        answers.push(answer);
    }
    writer.step(&mut batch);
    assert_eq!(batch.len(), 1, "the second one waits for the next transaction");
    writer.step(&mut batch);
    for answer in answers {
        answer.blocking_recv().unwrap().unwrap();
    }
    assert_eq!(writer.writer.view.snapshot().instance_count(), 25_001);
}

fn desire_many(process: &str, instances: u32) -> Command {
    let json = serde_json::json!({
        "process_guid": process, "domain": "d", "instances": instances, "rootfs": "host:",
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    });
    Command::DesireLrp(Box::new(serde_json::from_value(json).unwrap()))
}

fn started(process: &str, cell: &CellId) -> Command {
    let key = LrpKey {
        process_guid: ProcessGuid::new(process).unwrap(),
        index: 0,
        domain: Domain::new("d").unwrap(),
        definition_id: None,
    };
    let instance =
        InstanceKey { instance_guid: InstanceGuid::new("i1").unwrap(), cell_id: cell.clone() };
    let running = Running {
        net_info: NetInfo { address: "192.0.2.1".into(), ..NetInfo::default() },
        internal_routes: Box::default(),
        metric_tags: Tags::default(),
        routable: true,
        availability_zone: "z".into(),
    };
    Command::Cell(Valid::new(CellRequest::StartLrp(key, instance, Arc::new(running))).unwrap())
}
