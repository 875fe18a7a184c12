//! Tests of the writer: what leaves it, when, and what it does when the store lets it down.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use volvox_protocol::cell::CellPresence;
use volvox_protocol::id::{CellId, Domain};

use super::*;

/// Passes on what leaves the writer.
struct Probe(Sender<String>);

impl Outlet for Probe {
    fn tell(&mut self, events: Vec<Event>) {
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
    let json = serde_json::json!({
        "process_guid": process, "domain": "d", "instances": 1, "rootfs": "host:",
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    });
    Command::DesireLrp(Box::new(serde_json::from_value(json).unwrap()))
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
    assert!(writer.patience() <= hour);
    let now = writer.clock.now();
    let mut due_in = |span| writer.own_command(now + span).map(|command| format!("{command:?}"));
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
    Loop { board, store, view, outlet: Box::new(()), clock, converge, next_full_pass: None }
}

#[test]
fn a_broken_connection_is_replaced_and_what_the_mesh_said_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = writer(folder.path(), Converge::WhenTold);
    let view = writer.view.clone();
    let call = |writer: &mut Loop, command| {
        let (reply, answer) = oneshot::channel();
        writer.step(vec![Job { command, reply }]);
        answer.blocking_recv().unwrap()
    };
    let cell = CellId::new("cell-1").unwrap();
    call(&mut writer, Command::CellPresence(cell.clone(), CellPresence::Present)).unwrap();
    call(&mut writer, desire("kept")).unwrap();
    writer.store.break_connection();
    assert!(!writer.store.is_usable());
    call(&mut writer, desire("after")).unwrap();
    assert!(writer.store.is_usable());
    assert_eq!(writer.board.presence(&cell), Some(CellPresence::Present));
    assert_eq!(view.snapshot().process_count(), 2);
    assert_eq!(crate::bbs::logic::check::check(&writer.board, writer.clock.now()), [""; 0]);
}

#[test]
fn a_full_queue_refuses_instead_of_growing() {
    /// An outlet that holds the writer up until it is let go.
    struct Held(Arc<Mutex<()>>);
    impl Outlet for Held {
        fn tell(&mut self, _: Vec<Event>) {
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
