//! Does what the core says, and shows what readers see of it. Nothing here waits: who is told is told by a
//! queue or by a task of its own.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tracing::{debug, error, info, warn};
use volvox_mesh::driver::Mesh;
use volvox_mesh::request::AskError;
use volvox_protocol::api::CallbackFailure;
use volvox_protocol::cell_rpc::{CellOrders, OrderAnswer};
use volvox_protocol::id::CellId;
use volvox_protocol::task::Task;

use super::Subscribers;
use super::inbox::{Inbox, Waiter};
use super::tally::CellMetrics;
use crate::callback::failures::Failures;
use crate::callback::http::CallbackClient;
use crate::callback::logic::Counts;
use crate::cells::logic::{CellNotice, CellStatus};
use crate::cells::loss::HoldStatus;
use crate::core::{Core, CoreOutput, Dispatch, Notice, ReplyId, Signal};

/// How often numbers are shown that every cell is looked at for.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What readers see, beside the records.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) cells: RwLock<BTreeMap<CellId, CellStatus>>,
    pub(super) holding: RwLock<Option<HoldStatus>>,
    pub(super) is_settled: AtomicBool,
    pub(super) orders_waiting: AtomicUsize,
    pub(super) tally: CellMetrics,
    counts: Mutex<Counts>,
    failures: Mutex<Failures>,
    callbacks_end: AtomicBool,
}

impl Shared {
    pub(super) fn callback_failures(&self) -> Vec<CallbackFailure> {
        lock(&self.failures).list()
    }

    pub(super) fn callback_counts(&self) -> Counts {
        *lock(&self.counts)
    }

    pub(super) fn stop_callbacks(&self) {
        self.callbacks_end.store(true, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The way to cells, once there is one.
pub(super) struct MeshLink {
    pub(super) mesh: Mesh,
    pub(super) runtime: Handle,
    pub(super) answer_within: Duration,
}

pub(super) struct Outputs {
    subscribers: Box<dyn Subscribers>,
    client: Option<CallbackClient>,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    link: Arc<OnceLock<MeshLink>>,
    waiters: HashMap<ReplyId, Waiter>,
    idle: Vec<oneshot::Sender<()>>,
    counted_at: Option<Instant>,
}

impl Outputs {
    pub(super) fn new(
        subscribers: Box<dyn Subscribers>,
        client: Option<CallbackClient>,
        inbox: Arc<Inbox>,
        shared: Arc<Shared>,
        link: Arc<OnceLock<MeshLink>>,
    ) -> Self {
        let (waiters, idle) = (HashMap::new(), Vec::new());
        Outputs { subscribers, client, inbox, shared, link, waiters, idle, counted_at: None }
    }

    /// These wait for an answer, and these until no order is under way.
    pub(super) fn expect(
        &mut self,
        waiters: Vec<(ReplyId, Waiter)>,
        idle: Vec<oneshot::Sender<()>>,
    ) {
        self.waiters.extend(waiters);
        self.idle.extend(idle);
    }

    pub(super) fn perform(&mut self, outputs: Vec<CoreOutput>) {
        for output in outputs {
            match output {
                // Who no longer waits is no reason to stop.
                CoreOutput::Reply(id, result) => {
                    if let Some(Waiter::Call(waiter)) = self.waiters.remove(&id) {
                        let _ = waiter.send(result);
                    }
                }
                CoreOutput::Answers(id, answers) => {
                    if let Some(Waiter::Report(waiter)) = self.waiters.remove(&id) {
                        let _ = waiter.send(answers);
                    }
                }
                CoreOutput::Explained(id, explanation) => {
                    if let Some(Waiter::Explain(waiter)) = self.waiters.remove(&id) {
                        let _ = waiter.send(explanation);
                    }
                }
                CoreOutput::Send(dispatch) => self.send(dispatch),
                CoreOutput::Events { commit, events, traces } => {
                    self.subscribers.tell(commit, events, traces);
                }
                CoreOutput::Resync { commit } => self.subscribers.resync(commit),
                CoreOutput::Call(task) => self.call(task),
                CoreOutput::PublishCell(cell, shown) => {
                    let mut cells =
                        self.shared.cells.write().unwrap_or_else(PoisonError::into_inner);
                    match shown {
                        Some(shown) => cells.insert(cell, shown),
                        None => cells.remove(&cell),
                    };
                }
                CoreOutput::Notice(notice) => self.notice(notice),
            }
        }
    }

    /// Shows readers what is not in the records.
    pub(super) fn show(&mut self, core: &Core) {
        let holding = core.holding();
        let shown = self.shared.holding.read().unwrap_or_else(PoisonError::into_inner).clone();
        if shown != holding {
            *self.shared.holding.write().unwrap_or_else(PoisonError::into_inner) = holding;
        }
        self.shared.is_settled.store(core.is_settled(), Ordering::Relaxed);
        *lock(&self.shared.counts) = core.callbacks().counts();
        if self.counted_at.is_none_or(|at| at.elapsed() >= COUNT_EVERY) {
            self.counted_at = Some(Instant::now());
            self.shared.orders_waiting.store(core.orders_waiting(), Ordering::Relaxed);
        }
        if !self.idle.is_empty() && core.orders_are_idle() {
            for waiter in self.idle.drain(..) {
                let _ = waiter.send(());
            }
        }
    }

    fn send(&self, Dispatch { id, cell, to, orders }: Dispatch) {
        let Some(MeshLink { mesh, runtime, answer_within }) = self.link.get() else {
            return self.inbox.signal(Signal::Delivered(id, Err(AskError::NoLink)));
        };
        let (mesh, within) = (mesh.clone(), *answer_within);
        let (inbox, shared) = (Arc::clone(&self.inbox), Arc::clone(&self.shared));
        runtime.spawn(async move {
            let answers = mesh.ask(to, &orders, within).await.map(|reply| reply.answers);
            count(&shared.tally, &cell, &orders, &answers);
            inbox.signal(Signal::Delivered(id, answers));
        });
    }

    fn call(&self, task: Arc<Task>) {
        // What is not called convergence asks for again: of the next coordinator, if this one ends.
        if let Some(client) = &self.client
            && !self.shared.callbacks_end.load(Ordering::Relaxed)
        {
            let inbox = Arc::clone(&self.inbox);
            client.call(task, move |key, told| inbox.signal(Signal::Called(key, told)));
        }
    }

    fn notice(&self, notice: Notice) {
        let tally = &self.shared.tally;
        match notice {
            Notice::Cell(note) => self.note(note),
            Notice::Settled(cells) => info!(cells, "all cells have been heard"),
            Notice::OrdersLost(cell, orders) => {
                tally.orders_lost.add(orders);
                debug!(cell = cell.as_str(), orders, "orders are lost");
                if orders > 1 {
                    let cell = cell.as_str();
                    warn!(cell, lost = orders, "it is gone, or too many orders waited for it");
                }
            }
            Notice::AllSync => {
                warn!("what the board asked of its cells may be lost: all are to sync");
            }
            Notice::WorkCut(cell) => {
                warn!(cell = cell.as_str(), "work is too long for one message: cut");
            }
            Notice::Unplaced(pieces) => debug!(pieces, "work found no cell"),
            Notice::CallbackFailed(failure) => {
                let CallbackFailure { task_guid, url, attempts, reason, .. } = &failure;
                let task_guid = task_guid.as_str();
                info!(task_guid, url, attempt = attempts, reason, "a callback failed");
                lock(&self.shared.failures).note(failure);
            }
            Notice::CallbackNotOurs(guid, error) => {
                debug!(task_guid = guid.as_str(), error, "not ours to tell");
            }
            Notice::CallbackNotDeleted(guid, error) => {
                warn!(task_guid = guid.as_str(), error, "told, not deleted");
            }
        }
    }

    fn note(&self, note: CellNotice) {
        let tally = &self.shared.tally;
        match note {
            CellNotice::Came(cell, member) => {
                info!(cell = cell.as_str(), %member, "a cell is there");
                tally.cells_came.add(1);
            }
            CellNotice::Restarted(cell, member) => {
                info!(cell = cell.as_str(), %member, "a cell was restarted");
            }
            CellNotice::Went(cell, left) => {
                info!(cell = cell.as_str(), left, "a cell is missing");
                tally.cells_went.add(1);
            }
            CellNotice::Differs(cell) => {
                info!(cell = cell.as_str(), "cell and board lastingly differ: the cell is to sync");
                tally.mismatches.add(1);
            }
            CellNotice::Held(holding, missing) => {
                tally.holds.add(1);
                error!(
                    missing,
                    held = holding.cells,
                    of = holding.of,
                    for_seconds = holding.until.since(holding.since).as_secs(),
                    until = ?holding.until,
                    "MANY CELLS VANISHED TOGETHER: nothing is replaced until they are back or \
                     the time is over. Look at the network; release the hold if they are lost"
                );
            }
            CellNotice::Released(why) => warn!(?why, "the loss of cells is no longer held"),
        }
    }
}

/// Counts what became of a message.
fn count(
    tally: &CellMetrics,
    cell: &CellId,
    message: &CellOrders,
    answers: &Result<Vec<OrderAnswer>, AskError>,
) {
    let cell = cell.as_str();
    let answers = match answers {
        Ok(answers) if answers.len() == message.orders.len() => answers,
        lost => {
            tally.messages_failed.add(1);
            tally.orders_lost.add(message.orders.len());
            let error = lost.as_ref().err().map(ToString::to_string);
            let error = error.unwrap_or_else(|| "other answers than orders".to_owned());
            return warn!(cell, orders = message.orders.len(), error, "orders are lost");
        }
    };
    tally.messages_answered.add(1);
    for (order, answer) in message.orders.iter().zip(answers) {
        tally.order(order);
        match answer {
            OrderAnswer::Taken => {}
            OrderAnswer::Refused(refused) => {
                debug!(cell, ?refused, "a cell refuses work");
                let lrps: usize = refused.lrps.iter().map(|it| it.indices.len()).sum();
                tally.work_refused.add(lrps + refused.tasks.len());
            }
            OrderAnswer::Failed(reason) => {
                warn!(cell, %reason, "a cell cannot do what it was told");
            }
        }
    }
}
