//! The post: orders to cells. One message at a time to each, each in a task of its own.
//!
//! The auction's thread, the main loop and an operator put orders in; none of them waits. What waits
//! and what comes of it [`Addresses`] decides.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tracing::{debug, warn};
use volvox_host::clock::Clock;
use volvox_mesh::driver::Mesh;
use volvox_mesh::identity::MemberId;
use volvox_mesh::request::AskError;
use volvox_protocol::exchange::{CellOrders, OrderAnswer};
use volvox_protocol::id::CellId;
use volvox_protocol::request::{CellOrder, WorkBatch};

use super::tally::Tally;
use super::teller::Teller;
use crate::auction::driver::{Cells, Input};
use crate::auction::rounds::Unplaced;
use crate::cells::addresses::{Addresses, Letter, Lost};

pub(super) struct Post {
    mesh: Mesh,
    runtime: Handle,
    time: Clock,
    answer_within: Duration,
    tally: Arc<Tally>,
    addresses: Mutex<Addresses>,
    /// What the auction is to hear: bounded, and waited for.
    heard: mpsc::Sender<Input>,
}

impl Post {
    pub(super) fn new(
        mesh: Mesh,
        time: Clock,
        answer_within: Duration,
        tally: Arc<Tally>,
        heard: mpsc::Sender<Input>,
    ) -> Arc<Self> {
        let (runtime, addresses) = (Handle::current(), Mutex::default());
        Arc::new(Post { mesh, runtime, time, answer_within, tally, addresses, heard })
    }

    fn lock(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cell is there, as this member.
    pub(super) fn open(&self, cell: &CellId, member: MemberId) {
        let lost = self.lock().open(cell, member);
        self.note_lost(lost);
    }

    /// The cell is gone.
    pub(super) fn close(&self, cell: &CellId) {
        let lost = self.lock().close(cell);
        self.note_lost(lost);
    }

    /// The auction hears of it, and nobody here waits until it does.
    fn note_lost(&self, Lost { orders, heard }: Lost) {
        self.tally.orders_lost.add(orders);
        if !heard.is_empty() {
            let auction = self.heard.clone();
            self.runtime.spawn(async move {
                for input in heard {
                    // The loop is gone: so is the auction.
                    let _ended = auction.send(input).await;
                }
            });
        }
    }

    /// Who a cell is in the mesh.
    pub(super) fn member(&self, cell: &CellId) -> Option<MemberId> {
        self.lock().member(cell)
    }

    /// Whether nothing waits for the cell and nothing is under way to it.
    pub(super) fn is_idle(&self, cell: &CellId) -> bool {
        self.lock().is_idle(cell)
    }

    /// Whether nothing waits for any cell, and nothing is under way.
    pub(super) fn is_all_idle(&self) -> bool {
        self.lock().is_all_idle()
    }

    /// Orders that wait for all cells together.
    pub(super) fn waiting(&self) -> usize {
        self.lock().waiting()
    }

    /// Puts an order last. One to a cell that is not there is lost: see [`crate::cells::orders`].
    pub(super) fn push(self: &Arc<Self>, cell: &CellId, order: CellOrder) {
        let (letter, lost) = self.lock().push(self.time.now(), cell, order);
        if lost.orders > 1 {
            warn!(
                cell = cell.as_str(),
                lost = lost.orders,
                "too many orders wait: the cell is to sync"
            );
        }
        self.note_lost(lost);
        self.dispatch(letter);
    }

    /// All cells are to sync: orders to some of them were lost.
    pub(super) fn sync_all(self: &Arc<Self>) {
        let letters = self.lock().sync_all(self.time.now());
        self.dispatch(letters);
    }

    /// Sends what waited for the end of a pause.
    pub(super) fn pass(self: &Arc<Self>) {
        let letters = self.lock().pass(self.time.now());
        self.dispatch(letters);
    }

    fn dispatch(self: &Arc<Self>, letters: impl IntoIterator<Item = Letter>) {
        for letter in letters {
            let post = Arc::clone(self);
            self.runtime.spawn(async move { post.send(letter).await });
        }
    }

    /// Sends messages to a cell until none waits.
    async fn send(self: Arc<Self>, mut letter: Letter) {
        loop {
            let Letter { cell, member, message, cut_off, .. } = &letter;
            if cut_off.is_some() {
                warn!(cell = cell.as_str(), "work is too long for one message: cut");
            }
            let answer = self.mesh.ask(*member, message, self.answer_within).await;
            let answer = match answer {
                Ok(reply) if reply.answers.len() == message.orders.len() => Ok(reply.answers),
                Ok(_) => Err(AskError::BadReply("other answers than orders".to_owned())),
                Err(error) => Err(error),
            };
            match &answer {
                Ok(answers) => self.note_answers(cell, message, answers),
                Err(error) => self.note_failure(cell, message, error),
            }
            let now = self.time.now();
            let (heard, next) = match answer {
                Ok(answers) => self.lock().answered(now, letter, &answers),
                Err(error) => self.lock().failed(now, letter, &error),
            };
            for input in heard {
                // The loop is gone: so is the auction.
                let _ended = self.heard.send(input).await;
            }
            let Some(next) = next else { return };
            letter = next;
        }
    }

    fn note_answers(&self, cell: &CellId, message: &CellOrders, answers: &[OrderAnswer]) {
        self.tally.messages_answered.add(1);
        for (order, answer) in message.orders.iter().zip(answers) {
            self.tally.order(order);
            match answer {
                OrderAnswer::Taken => {}
                OrderAnswer::Refused(refused) => {
                    debug!(cell = cell.as_str(), ?refused, "a cell refuses work");
                    let lrps: usize = refused.lrps.iter().map(|it| it.indices.len()).sum();
                    self.tally.work_refused.add(lrps + refused.tasks.len());
                }
                OrderAnswer::Failed(reason) => {
                    warn!(cell = cell.as_str(), %reason, "a cell cannot do what it was told");
                }
            }
        }
    }

    fn note_failure(&self, cell: &CellId, message: &CellOrders, error: &AskError) {
        self.tally.messages_failed.add(1);
        self.tally.orders_lost.add(message.orders.len());
        warn!(cell = cell.as_str(), orders = message.orders.len(), %error, "orders are lost");
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
