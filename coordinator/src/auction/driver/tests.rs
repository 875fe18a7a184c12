//! The loop: inputs in, work out, and answers to questions.

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use volvox_protocol::cell::{CellCapacity, CellLoad};

use super::*;
use crate::auction::explain::Verdict;
use crate::auction::logic::tests::{cell, lrp, needs, process};

const PATIENCE: Duration = Duration::from_secs(30);
const ROOM: CellCapacity = CellCapacity { memory_mb: 100, disk_mb: 100, containers: 10 };

struct Post(Sender<String>);

impl Cells for Post {
    fn send(&self, cell: &CellId, batch: WorkBatch) {
        self.0.send(format!("{cell}#{}", batch.number)).unwrap();
    }

    fn unplaced(&self, work: Vec<Unplaced>) {
        self.0.send(format!("{} unplaced", work.len())).unwrap();
    }
}

/// A view of a board that wants one instance of `p`.
fn wanting() -> View {
    use crate::bbs::command::Command;
    use crate::bbs::logic::Board;
    use crate::bbs::settings::Settings;
    use volvox_protocol::desired_lrp::DesiredLrp;
    use volvox_protocol::time::Timestamp;
    use volvox_protocol::validate::Valid;

    let json = serde_json::json!({
        "process_guid": "p", "domain": "d", "rootfs": "preloaded:linux", "instances": 1,
        "action": {"run": {"path": "/bin/true", "user": "root"}},
    });
    let desired: DesiredLrp = serde_json::from_value(json).unwrap();
    let mut board = Board::new(Settings::default());
    let command = Command::DesireLrp(Box::new(Valid::new(desired).unwrap()));
    board.apply(Timestamp::ZERO, 1, command).unwrap();
    View::new(board.records().clone())
}

#[test]
fn work_is_sent_when_a_cell_is_heard_and_questions_are_answered() {
    let (post, heard) = channel();
    let auction = Auction::open(Settings::default(), wanting(), Post(post)).unwrap();
    let start = || lrp("p", [0], needs(1, 1));
    auction.hear(Input::Request(vec![start()], vec![])).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "1 unplaced");
    let load = CellLoad {
        cell_id: CellId::new("a").unwrap(),
        version: 1,
        free: ROOM,
        starting_containers: 0,
        evacuating: false,
        healthy: true,
        last_batch: 0,
        digest: 0,
    };
    auction.hear(Input::Info(cell("a", "z", ROOM).info)).unwrap();
    auction.hear(Input::Load(load)).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "a#1");
    let why = auction.explain(Subject::Lrp(process("p"), 0)).unwrap().unwrap();
    assert_eq!(why.verdict, Verdict::Placed(CellId::new("a").unwrap()));
    let round = auction.simulate(Batch::of(vec![start()], vec![])).unwrap();
    assert_eq!(round.outcome().placements.len(), 1);
    assert_eq!(auction.explain(Subject::Lrp(process("q"), 0)).unwrap(), None);
    drop(auction);
    assert!(heard.recv_timeout(PATIENCE).is_err(), "the loop has ended, and sent nothing else");
}

/// Holds the auction up in its first round until it is let go.
struct Held(std::sync::Mutex<Receiver<()>>);

impl Cells for Held {
    fn send(&self, _: &CellId, _: WorkBatch) {}

    fn unplaced(&self, _: Vec<Unplaced>) {
        _ = self.0.lock().unwrap().recv_timeout(PATIENCE);
    }
}

#[test]
fn a_full_queue_refuses_and_takes_again_later() {
    let (let_go, held) = channel();
    let held = Held(std::sync::Mutex::new(held));
    let auction = Auction::open(Settings::default(), wanting(), held).unwrap();
    auction.hear(Input::Request(vec![lrp("p", [0], needs(1, 1))], vec![])).unwrap();
    let gone = || auction.hear(Input::Gone(CellId::new("a").unwrap()));
    // At most twice as many as the queue takes: a turn may have been taken out of it before.
    let refused = (0..2 * QUEUE + TURN).find_map(|_| gone().err());
    assert_eq!(refused, Some(HearError::Busy));
    let_go.send(()).unwrap();
    // The question goes in as soon as there is a place, and is answered behind all the others.
    let subject = || Subject::Lrp(process("p"), 0);
    let deadline = Instant::now() + PATIENCE;
    let why = loop {
        match auction.explain(subject()) {
            Err(HearError::Busy) if Instant::now() < deadline => std::thread::yield_now(),
            answer => break answer,
        }
    };
    assert!(matches!(why.unwrap().unwrap().verdict, Verdict::Unplaced(_)));
}

#[test]
fn a_refused_batch_is_placed_again_when_its_pause_is_over_though_nobody_says_anything() {
    let (post, heard) = channel();
    let auction = Auction::open(Settings::default(), wanting(), Post(post)).unwrap();
    let load = CellLoad {
        cell_id: CellId::new("a").unwrap(),
        version: 1,
        free: ROOM,
        starting_containers: 0,
        evacuating: false,
        healthy: true,
        last_batch: 0,
        digest: 0,
    };
    auction.hear(Input::Info(cell("a", "z", ROOM).info)).unwrap();
    auction.hear(Input::Load(load)).unwrap();
    auction.hear(Input::Request(vec![lrp("p", [0], needs(1, 1))], vec![])).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "a#1");
    let refused = WorkBatch { number: 1, lrps: vec![lrp("p", [0], needs(1, 1))], tasks: vec![] };
    auction.hear(Input::Answered(CellId::new("a").unwrap(), 1, refused)).unwrap();
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "1 unplaced");
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "a#2", "the loop wakes by itself");
}
