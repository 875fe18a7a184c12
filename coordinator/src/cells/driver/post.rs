//! The post: orders to cells. One message at a time to each, each in a task of its own.
//!
//! The auction's thread, the main loop and an operator put orders in; none of them waits.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{debug, warn};
use volvox_mesh::driver::Mesh;
use volvox_mesh::identity::MemberId;
use volvox_mesh::request::{AskError, Refusal};
use volvox_protocol::exchange::{CellOrders, OrderAnswer};
use volvox_protocol::id::CellId;
use volvox_protocol::request::{CellOrder, WorkBatch};

use super::Time;
use super::tally::Tally;
use super::teller::Teller;
use crate::auction::driver::{Cells, Input};
use crate::auction::rounds::Unplaced;
use crate::cells::orders::{self, Pushed, Queue};

/// How long a cell is left alone after a message that failed.
const PAUSE: Duration = Duration::from_secs(1);

struct Address {
    member: MemberId,
    /// Which of all addresses: what comes of a message to one that was closed is not told to the next.
    number: u64,
    queue: Queue,
}

pub(super) struct Post {
    mesh: Mesh,
    runtime: Handle,
    time: Time,
    answer_within: Duration,
    tally: Arc<Tally>,
    addresses: Mutex<BTreeMap<CellId, Address>>,
    opened: AtomicU64,
    /// What the auction is to hear: bounded, and waited for.
    heard: mpsc::Sender<Input>,
}

impl Post {
    pub(super) fn new(
        mesh: Mesh,
        time: Time,
        answer_within: Duration,
        tally: Arc<Tally>,
        heard: mpsc::Sender<Input>,
    ) -> Arc<Self> {
        let (runtime, addresses) = (Handle::current(), Mutex::default());
        let opened = AtomicU64::new(0);
        Arc::new(Post { mesh, runtime, time, answer_within, tally, addresses, opened, heard })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<CellId, Address>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cell is there, as this member. What waited for another life or member is dropped: a cell
    /// syncs when it comes.
    pub(super) fn open(&self, cell: &CellId, member: MemberId) {
        let mut addresses = self.lock();
        let number = self.opened.fetch_add(1, Ordering::Relaxed);
        let address = Address { member, number, queue: Queue::default() };
        if let Some(before) = addresses.insert(cell.clone(), address) {
            self.tally.orders_lost.add(before.queue.len());
        }
    }

    /// The cell is gone.
    pub(super) fn close(&self, cell: &CellId) {
        if let Some(address) = self.lock().remove(cell) {
            self.tally.orders_lost.add(address.queue.len());
        }
    }

    /// Who a cell is in the mesh.
    pub(super) fn member(&self, cell: &CellId) -> Option<MemberId> {
        self.lock().get(cell).map(|address| address.member)
    }

    /// Whether nothing waits for the cell and nothing is under way to it.
    pub(super) fn is_idle(&self, cell: &CellId) -> bool {
        self.lock().get(cell).is_none_or(|address| address.queue.is_idle())
    }

    /// Whether nothing waits for any cell, and nothing is under way.
    pub(super) fn is_all_idle(&self) -> bool {
        self.lock().values().all(|address| address.queue.is_idle())
    }

    /// Orders that wait for all cells together.
    pub(super) fn waiting(&self) -> usize {
        self.lock().values().map(|address| address.queue.len()).sum()
    }

    /// Puts an order last. One to a cell that is not there is lost: see [`orders`].
    pub(super) fn push(self: &Arc<Self>, cell: &CellId, order: CellOrder) {
        let mut addresses = self.lock();
        let Some(address) = addresses.get_mut(cell) else {
            self.tally.orders_lost.add(1);
            return;
        };
        match address.queue.push(order) {
            Pushed::Waits => {}
            Pushed::Folded(lost) => {
                self.tally.orders_lost.add(lost);
                warn!(cell = cell.as_str(), lost, "too many orders wait: the cell is to sync");
            }
        }
        self.begin(cell, address);
    }

    /// All cells are to sync: orders to some of them were lost.
    pub(super) fn sync_all(self: &Arc<Self>) {
        for (cell, address) in self.lock().iter_mut() {
            address.queue.push(CellOrder::Sync);
            self.begin(cell, address);
        }
    }

    /// Sends what waited for the end of a pause.
    pub(super) fn pass(self: &Arc<Self>) {
        let now = self.time.now();
        for (cell, address) in self.lock().iter_mut() {
            if address.queue.is_due(now) {
                self.begin(cell, address);
            }
        }
    }

    fn begin(self: &Arc<Self>, cell: &CellId, address: &mut Address) {
        if let Some(message) = address.queue.next(self.time.now()) {
            let (post, cell) = (Arc::clone(self), cell.clone());
            let (member, number) = (address.member, address.number);
            self.runtime.spawn(async move { post.send(cell, member, number, message).await });
        }
    }

    /// Sends messages to a cell until none waits.
    async fn send(
        self: Arc<Self>,
        cell: CellId,
        member: MemberId,
        number: u64,
        mut message: CellOrders,
    ) {
        loop {
            let rest = trim(&cell, &mut message);
            let answer = self.mesh.ask(member, &message, self.answer_within).await;
            let answer = match answer {
                Ok(reply) if reply.answers.len() == message.orders.len() => Ok(reply.answers),
                Ok(_) => Err(AskError::BadReply("other answers than orders".to_owned())),
                Err(error) => Err(error),
            };
            let mut inputs = match &answer {
                Ok(answers) => self.answered(&cell, &message, answers),
                Err(error) => self.failed(&cell, &message, error),
            };
            if let (Some(rest), Some(Input::Answered(_, _, back))) = (rest, inputs.first_mut()) {
                back.lrps.extend(rest.lrps);
                back.tasks.extend(rest.tasks);
            }
            for input in inputs {
                // The loop is gone: so is the auction.
                let _ended = self.heard.send(input).await;
            }
            let now = self.time.now();
            let mut addresses = self.lock();
            let address = addresses.get_mut(&cell).filter(|it| it.number == number);
            let Some(address) = address else { return };
            match answer {
                Ok(_) => address.queue.done(),
                Err(_) => address.queue.failed(&message, now + PAUSE),
            }
            let Some(next) = address.queue.next(now) else { return };
            message = next;
        }
    }

    fn answered(&self, cell: &CellId, message: &CellOrders, answers: &[OrderAnswer]) -> Vec<Input> {
        self.tally.messages_answered.add(1);
        let mut inputs = Vec::new();
        for (order, answer) in message.orders.iter().zip(answers) {
            self.tally.order(order);
            if let OrderAnswer::Failed(reason) = answer {
                warn!(cell = cell.as_str(), %reason, "a cell cannot do what it was told");
            }
            if let CellOrder::Work(batch) = order {
                let back = orders::refused(batch, answer);
                if let OrderAnswer::Refused(refused) = answer {
                    debug!(cell = cell.as_str(), ?refused, "a cell refuses work");
                    let lrps: usize = back.lrps.iter().map(|start| start.indices.len()).sum();
                    self.tally.work_refused.add(lrps + back.tasks.len());
                }
                inputs.push(Input::Answered(cell.clone(), batch.number, back));
            }
        }
        inputs
    }

    fn failed(&self, cell: &CellId, message: &CellOrders, error: &AskError) -> Vec<Input> {
        self.tally.messages_failed.add(1);
        self.tally.orders_lost.add(message.orders.len());
        warn!(cell = cell.as_str(), orders = message.orders.len(), %error, "orders are lost");
        let known = known(error);
        let batches = message.orders.iter().filter_map(|order| match order {
            CellOrder::Work(batch) => Some(batch),
            _ => None,
        });
        let inputs = batches.map(|batch| match known {
            Known::NotDone => Input::Answered(cell.clone(), batch.number, batch.clone()),
            Known::Nothing => Input::Unanswered(cell.clone(), batch.number),
        });
        inputs.collect()
    }

    /// Asks one order of a cell, apart from what waits, and waits for the answer.
    pub(super) async fn ask(
        &self,
        member: MemberId,
        order: CellOrder,
    ) -> Result<OrderAnswer, AskError> {
        let message = CellOrders { orders: vec![order] };
        let reply = self.mesh.ask(member, &message, self.answer_within).await?;
        let answer = reply.answers.into_iter().next();
        answer.ok_or_else(|| AskError::BadReply("no answer to an order".to_owned()))
    }
}

/// Cuts a batch of work that is too long for one message, which then has no other. What is cut off
/// counts as refused.
fn trim(cell: &CellId, message: &mut CellOrders) -> Option<WorkBatch> {
    let [CellOrder::Work(batch)] = &mut message.orders[..] else { return None };
    let rest = orders::cut(batch);
    if rest.lrps.is_empty() && rest.tasks.is_empty() {
        return None;
    }
    warn!(cell = cell.as_str(), number = batch.number, "work is too long for one message: cut");
    Some(rest)
}

/// What is known of a message that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// The cell has done nothing of it: the work may go elsewhere at once.
    NotDone,
    /// The cell may have done it: convergence will see.
    Nothing,
}

fn known(error: &AskError) -> Known {
    match error {
        AskError::NoLink
        | AskError::TooLarge { .. }
        | AskError::Refused(
            Refusal::Unsupported
            | Refusal::Busy
            | Refusal::TooLarge
            | Refusal::Malformed(_)
            | Refusal::NotAllowed(_),
        ) => Known::NotDone,
        AskError::Deadline
        | AskError::Lost(_)
        | AskError::BadReply(_)
        | AskError::Refused(Refusal::DeadlineExceeded | Refusal::Failed(_)) => Known::Nothing,
    }
}

/// The auction's way out.
pub(super) struct Counter {
    pub(super) post: Arc<Post>,
    pub(super) teller: Teller,
}

impl Cells for Counter {
    fn send(&self, cell: &CellId, batch: WorkBatch) {
        self.post.push(cell, CellOrder::Work(batch));
    }

    fn unplaced(&self, work: Vec<Unplaced>) {
        self.teller.unplaced(work);
    }
}
