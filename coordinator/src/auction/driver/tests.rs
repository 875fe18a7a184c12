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
