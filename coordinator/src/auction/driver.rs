//! The loop around the rounds: it hears, has them think, sends and reports. It never waits for a
//! cell: what a cell says is a later input.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use tracing::{debug, info, warn};
use volvox_host::thread::JoinOnDrop;
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::id::CellId;
use volvox_protocol::request::{LrpStart, TaskStart, WorkBatch};
use volvox_protocol::time::Timestamp;

use super::batch::Batch;
use super::explain::{Explanation, Round, Subject};
use super::rounds::{Rounds, Unplaced};
use super::settings::Settings;
use crate::bbs::view::View;

/// Inputs that may wait. More are refused.
const QUEUE: usize = 16_384;
/// Inputs that are heard before a round is held: what comes while one is under way goes into the
/// next, but an endless stream of gossip must not keep work waiting.
const TURN: usize = 4_096;

/// The way to the cells and to the BBS. Called by the auction's thread: none of these may wait.
pub trait Cells: Send + 'static {
    /// Sends a cell its work. The answer, or that there was none, comes back as [`Input`].
    fn send(&self, cell: &CellId, batch: WorkBatch);
    /// Tells the BBS what found no cell.
    fn unplaced(&self, work: Vec<Unplaced>);
}

/// What the auction hears.
#[derive(Debug)]
pub enum Input {
    /// This work wants cells.
    Request(Vec<LrpStart>, Vec<TaskStart>),
    /// A cell says what it is.
    Info(Arc<CellInfo>),
    /// A cell says how it is doing.
    Load(CellLoad),
    /// A cell has left.
    Gone(CellId),
    /// A cell was restarted. Said before anything that it says in its new life.
    Reborn(CellId),
    /// A cell has taken the batch of this number, but for what is named here.
    Answered(CellId, u64, WorkBatch),
    /// A cell has not answered to the batch of this number, and will not.
    Unanswered(CellId, u64),
    /// Why is this where it is?
    Explain(Subject, SyncSender<Option<Explanation>>),
    /// What would become of this?
    Simulate(Batch, SyncSender<Box<Round>>),
}

/// Why the auction did not take an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HearError {
    /// Nothing has happened; try again in a moment.
    #[error("the auction is busy: {QUEUE} inputs are waiting already")]
    Busy,
    /// It has ended.
    #[error("the auction has been closed")]
    Closed,
}

/// An auction at work. Clones are handles on the same one; it ends when the last is dropped.
#[derive(Debug, Clone)]
pub struct Auction {
    queue: SyncSender<Input>,
    // Declared after the queue: dropping the last handle closes the queue, then waits here.
    _thread: Arc<JoinOnDrop>,
}

impl Auction {
    /// Sets an auction to work.
    pub fn open(settings: Settings, board: View, cells: impl Cells) -> std::io::Result<Self> {
        Auction::open_after(0, settings, board, cells)
    }

    /// Sets an auction to work whose batches are numbered above `last`.
    pub fn open_after(
        last: u64,
        settings: Settings,
        board: View,
        cells: impl Cells,
    ) -> std::io::Result<Self> {
        let (queue, inputs) = sync_channel(QUEUE);
        let rounds = Rounds::new(settings).counting_from(last);
        let thread = std::thread::Builder::new()
            .name("auction".to_owned())
            .spawn(move || run(rounds, &board, &cells, &inputs))?;
        Ok(Auction { queue, _thread: Arc::new(JoinOnDrop::new("the auction", thread)) })
    }

    /// Lets it hear this. Does not wait.
    pub fn hear(&self, input: Input) -> Result<(), HearError> {
        self.queue.try_send(input).map_err(|refused| match refused {
            TrySendError::Full(_) => HearError::Busy,
            TrySendError::Disconnected(_) => HearError::Closed,
        })
    }

    /// Why this is where it is, on a thread that may wait. None: no remembered round was about it.
    pub fn explain(&self, subject: Subject) -> Result<Option<Explanation>, HearError> {
        let (reply, answer) = sync_channel(1);
        self.hear(Input::Explain(subject, reply))?;
        answer.recv().map_err(|_| HearError::Closed)
    }

    /// What would become of this work now, on a thread that may wait.
    pub fn simulate(&self, batch: Batch) -> Result<Round, HearError> {
        let (reply, answer) = sync_channel(1);
        self.hear(Input::Simulate(batch, reply))?;
        answer.recv().map(|round| *round).map_err(|_| HearError::Closed)
    }
}

fn run(mut rounds: Rounds, board: &View, cells: &impl Cells, inputs: &Receiver<Input>) {
    // Only differences of times matter here.
    let begin = Instant::now();
    let now = || Timestamp::ZERO + begin.elapsed();
    while let Ok(first) = next(&rounds, now(), inputs) {
        let heard_at = now();
        for input in first.into_iter().chain(inputs.try_iter().take(TURN - 1)) {
            hear(&mut rounds, heard_at, board, input);
        }
        rounds.pass(heard_at);
        if !rounds.is_due(heard_at) {
            continue;
        }
        let orders = rounds.think(heard_at, &*board.snapshot());
        debug!(
            round = orders.round,
            cells = orders.sends.len(),
            unplaced = orders.unplaced.len(),
            waiting = rounds.waiting(),
            "a round of the auction"
        );
        for (cell, batch) in orders.sends {
            cells.send(&cell, batch);
        }
        if !orders.unplaced.is_empty() {
            cells.unplaced(orders.unplaced);
        }
    }
    info!("the auction is closed");
}

/// Waits for an input, or until there is something to do without one.
fn next(
    rounds: &Rounds,
    now: Timestamp,
    inputs: &Receiver<Input>,
) -> Result<Option<Input>, RecvTimeoutError> {
    let Some(wake_at) = rounds.wake_at() else {
        return inputs.recv().map(Some).map_err(|_| RecvTimeoutError::Disconnected);
    };
    match inputs.recv_timeout(wake_at.since(now)) {
        Err(RecvTimeoutError::Timeout) => Ok(None),
        heard => heard.map(Some),
    }
}

fn hear(rounds: &mut Rounds, now: Timestamp, board: &View, input: Input) {
    let mut lost = 0;
    match input {
        Input::Request(lrps, tasks) => lost = rounds.request(lrps, tasks),
        Input::Info(info) => rounds.cell_info(info),
        Input::Load(load) => rounds.cell_load(load),
        Input::Gone(cell) => lost = rounds.cell_gone(&cell),
        Input::Reborn(cell) => rounds.cell_reborn(&cell),
        Input::Answered(cell, number, refused) => {
            lost = rounds.answered(now, &cell, number, &refused);
        }
        Input::Unanswered(cell, number) => {
            warn!(cell = cell.as_str(), number, "no answer to a batch; convergence will mend it");
            rounds.unanswered(now, &cell, number);
        }
        // Whoever asked may be gone: then the answer is nobody's.
        Input::Explain(subject, reply) => _ = reply.try_send(rounds.explain(&subject)),
        Input::Simulate(batch, reply) => {
            _ = reply.try_send(Box::new(rounds.simulate(batch, &*board.snapshot())));
        }
    }
    if lost > 0 {
        warn!(lost, "too much work waits for cells; convergence will ask again");
    }
}
