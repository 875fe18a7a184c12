//! Where orders to cells wait, and what comes of each message: one message at a time to each cell.
//!
//! A cell that seemed gone may never have noticed: if orders that only a sync can make good were lost
//! meanwhile, it is told to sync when it is there again. Orders are put in; a message that may be sent
//! comes out and is given back as [`OrderQueues::answered`] or [`OrderQueues::failed`], with what the
//! auction is to hear and the next message.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use volvox_mesh::identity::MemberId;
use volvox_mesh::request::{AskError, RpcRefusal};
use volvox_protocol::cell_rpc::{CellOrders, OrderAnswer};
use volvox_protocol::id::CellId;
use volvox_protocol::request::{CellOrder, WorkBatch};
use volvox_protocol::time::Timestamp;

use super::orders::{self, EnqueueResult, OrderQueue};
use crate::auction::rounds::AuctionInput;

/// How long a cell is left alone after a message that failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Cells that are not there and are remembered because they have to sync. Anybody with the role of a
/// cell may name cells that never come.
const MOST_OWED: usize = 10_000;

/// A message to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderMessage {
    /// To which cell.
    pub cell: CellId,
    /// Who that is in the mesh.
    pub member: MemberId,
    /// To which of all addresses: what comes of a message to one that was closed is not told to the
    /// next.
    pub number: u64,
    /// What it says.
    pub message: CellOrders,
    /// Work that was too long for it, and counts as refused.
    pub cut_off: Option<WorkBatch>,
}

#[derive(Debug)]
struct CellQueue {
    member: MemberId,
    number: u64,
    queue: OrderQueue,
}

/// Orders that nobody will send.
#[derive(Debug, Default)]
pub struct Undelivered {
    /// How many.
    pub orders: usize,
    /// What the auction is to hear: work among them was surely not begun.
    pub heard: Vec<AuctionInput>,
}

impl Undelivered {
    fn never_sent(cell: &CellId, orders: impl IntoIterator<Item = CellOrder>) -> Self {
        let mut lost = Undelivered::default();
        for order in orders {
            lost.orders += 1;
            if let CellOrder::Work(batch) = order {
                lost.heard.push(AuctionInput::Answered(cell.clone(), batch.number, batch));
            }
        }
        lost
    }
}

/// What waits for all cells.
#[derive(Debug, Default)]
pub struct OrderQueues {
    all: BTreeMap<CellId, CellQueue>,
    opened: u64,
    owed: SyncDebt,
}

/// Cells that are not there and have to sync when they are.
#[derive(Debug)]
enum SyncDebt {
    /// These.
    Some(BTreeSet<CellId>),
    /// Every cell that comes: there were too many to remember which.
    All,
}

impl Default for SyncDebt {
    fn default() -> Self {
        SyncDebt::Some(BTreeSet::new())
    }
}

impl SyncDebt {
    fn add(&mut self, cell: &CellId) {
        if let SyncDebt::Some(cells) = self {
            cells.insert(cell.clone());
            if cells.len() > MOST_OWED {
                *self = SyncDebt::All;
            }
        }
    }

    /// Whether this cell, which is there now, has to sync.
    fn take(&mut self, cell: &CellId) -> bool {
        match self {
            SyncDebt::Some(cells) => cells.remove(cell),
            SyncDebt::All => true,
        }
    }
}

impl OrderQueues {
    /// The cell is there, as this member. What waited for another life or member is lost. What may be
    /// sent now [`OrderQueues::pass`] says.
    pub fn open(&mut self, cell: &CellId, member: MemberId) -> Undelivered {
        self.opened += 1;
        let lost = self.close(cell);
        let mut queue = OrderQueue::default();
        if self.owed.take(cell) {
            queue.push(CellOrder::Sync);
        }
        self.all.insert(cell.clone(), CellQueue { member, number: self.opened, queue });
        lost
    }

    /// The cell is gone. Gives what is lost with it.
    pub fn close(&mut self, cell: &CellId) -> Undelivered {
        let Some(address) = self.all.remove(cell) else { return Undelivered::default() };
        if address.queue.wants_sync() {
            self.owed.add(cell);
        }
        Undelivered::never_sent(cell, address.queue.into_orders())
    }

    /// An order was lost that only a sync can make good.
    fn owe(&mut self, cell: &CellId) {
        match self.all.get_mut(cell) {
            Some(address) => drop(address.queue.push(CellOrder::Sync)),
            None => self.owed.add(cell),
        }
    }

    /// Who a cell is in the mesh.
    pub fn member(&self, cell: &CellId) -> Option<MemberId> {
        self.all.get(cell).map(|address| address.member)
    }

    /// Whether nothing waits for the cell and nothing is under way to it.
    pub fn is_idle(&self, cell: &CellId) -> bool {
        self.all.get(cell).is_none_or(|address| address.queue.is_idle())
    }

    /// Whether nothing waits for any cell, and nothing is under way.
    pub fn is_all_idle(&self) -> bool {
        self.all.values().all(|address| address.queue.is_idle())
    }

    /// Orders that wait for all cells together.
    pub fn waiting(&self) -> usize {
        self.all.values().map(|address| address.queue.len()).sum()
    }

    /// Puts an order last. Gives what may be sent now, and what is lost: this order, if no such cell is
    /// there, or all that waited, if there are too many ([`orders`]).
    pub fn push(
        &mut self,
        now: Timestamp,
        cell: &CellId,
        order: CellOrder,
    ) -> (Option<OrderMessage>, Undelivered) {
        let Some(address) = self.all.get_mut(cell) else {
            if orders::needs_sync(&order) {
                self.owe(cell);
            }
            return (None, Undelivered::never_sent(cell, [order]));
        };
        let lost = match address.queue.push(order) {
            EnqueueResult::Waits => Undelivered::default(),
            // Work is not among them.
            EnqueueResult::Folded(orders) => Undelivered { orders, heard: Vec::new() },
        };
        (next(now, cell, address), lost)
    }

    /// All cells are to sync: orders to some of them were lost. Gives what may be sent now.
    pub fn sync_all(&mut self, now: Timestamp) -> Vec<OrderMessage> {
        for address in self.all.values_mut() {
            address.queue.push(CellOrder::Sync);
        }
        self.pass(now)
    }

    /// What waited for the end of a pause, and may be sent now.
    pub fn pass(&mut self, now: Timestamp) -> Vec<OrderMessage> {
        let due = self.all.iter_mut().filter(|(_, address)| address.queue.is_due(now));
        due.filter_map(|(cell, address)| next(now, cell, address)).collect()
    }

    /// A cell has answered to each order of a message.
    pub fn answered(
        &mut self,
        now: Timestamp,
        letter: OrderMessage,
        answers: &[OrderAnswer],
    ) -> (Vec<AuctionInput>, Option<OrderMessage>) {
        let cell = &letter.cell;
        let answered = letter.message.orders.iter().zip(answers);
        let heard = answered.filter_map(|(order, answer)| match order {
            CellOrder::Work(batch) => {
                let back = orders::refused(batch, answer);
                Some(AuctionInput::Answered(cell.clone(), batch.number, back))
            }
            CellOrder::StopInstance(..)
            | CellOrder::CancelTask(_)
            | CellOrder::UpdateInstance(..)
            | CellOrder::Sync
            | CellOrder::Evacuate => None,
        });
        let heard = with_rest(heard.collect(), letter.cut_off);
        let address = self.all.get_mut(cell).filter(|it| it.number == letter.number);
        let Some(address) = address else { return (heard, None) };
        address.queue.done();
        (heard, next(now, cell, address))
    }

    /// A message was not answered, or could not be sent.
    pub fn failed(
        &mut self,
        now: Timestamp,
        letter: OrderMessage,
        error: &AskError,
    ) -> (Vec<AuctionInput>, Option<OrderMessage>) {
        let cell = &letter.cell;
        let known = known(error);
        let heard = work_of(&letter.message).map(|batch| match known {
            Certainty::NotDone => AuctionInput::Answered(cell.clone(), batch.number, batch.clone()),
            Certainty::Nothing => AuctionInput::Unanswered(cell.clone(), batch.number),
        });
        let heard = with_rest(heard.collect(), letter.cut_off);
        let address = self.all.get_mut(cell).filter(|it| it.number == letter.number);
        let Some(address) = address else {
            if letter.message.orders.iter().any(orders::needs_sync) {
                self.owe(cell);
            }
            return (heard, None);
        };
        address.queue.failed(&letter.message, now + PAUSE);
        (heard, next(now, cell, address))
    }
}

/// The next message to an address, if one may be sent now. A batch of work that is too long for one
/// message has it to itself, and is cut.
fn next(now: Timestamp, cell: &CellId, address: &mut CellQueue) -> Option<OrderMessage> {
    let mut message = address.queue.next(now)?;
    let mut cut_off = None;
    if let [CellOrder::Work(batch)] | [CellOrder::Work(batch), CellOrder::Sync] =
        &mut message.orders[..]
    {
        let rest = orders::cut(batch);
        cut_off = Some(rest).filter(|rest| !rest.lrps.is_empty() || !rest.tasks.is_empty());
    }
    let (member, number) = (address.member, address.number);
    Some(OrderMessage { cell: cell.clone(), member, number, message, cut_off })
}

/// What was cut off is refused with the rest.
fn with_rest(mut heard: Vec<AuctionInput>, cut_off: Option<WorkBatch>) -> Vec<AuctionInput> {
    if let (Some(rest), Some(AuctionInput::Answered(_, _, back))) = (cut_off, heard.first_mut()) {
        back.lrps.extend(rest.lrps);
        back.tasks.extend(rest.tasks);
    }
    heard
}

/// The batches in a message.
fn work_of(message: &CellOrders) -> impl Iterator<Item = &WorkBatch> {
    message.orders.iter().filter_map(|order| match order {
        CellOrder::Work(batch) => Some(batch),
        CellOrder::StopInstance(..)
        | CellOrder::CancelTask(_)
        | CellOrder::UpdateInstance(..)
        | CellOrder::Sync
        | CellOrder::Evacuate => None,
    })
}

/// What is known of a message that was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certainty {
    /// The cell has done nothing of it: the work may go elsewhere at once.
    NotDone,
    /// The cell may have done it: convergence will see.
    Nothing,
}

fn known(error: &AskError) -> Certainty {
    match error {
        AskError::NoLink
        | AskError::TooLarge { .. }
        | AskError::Refused(
            RpcRefusal::Unsupported | RpcRefusal::Busy | RpcRefusal::Malformed(_)
            | RpcRefusal::NotAllowed(_),
        ) => Certainty::NotDone,
        AskError::Deadline
        | AskError::Lost(_)
        | AskError::BadReply(_)
        // Its answer may have been what was too large.
        | AskError::Refused(
            RpcRefusal::TooLarge | RpcRefusal::DeadlineExceeded | RpcRefusal::Failed(_),
        ) => Certainty::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use volvox_protocol::id::{Domain, TaskGuid};
    use volvox_protocol::limits::ORDER_BYTES;
    use volvox_protocol::request::{Requirements, TaskStart};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn cell() -> CellId {
        CellId::new("cell-1").unwrap()
    }

    fn member(number: u8) -> MemberId {
        MemberId([number; 16])
    }

    fn cancel() -> CellOrder {
        CellOrder::CancelTask(TaskGuid::new("t").unwrap())
    }

    fn orders(letters: Vec<OrderMessage>) -> Vec<CellOrder> {
        letters.into_iter().flat_map(|letter| letter.message.orders).collect()
    }

    #[test]
    fn a_cell_that_seemed_gone_syncs_for_what_was_lost_meanwhile() {
        let mut all = OrderQueues::default();
        all.open(&cell(), member(1));
        assert_eq!(orders(all.pass(NOW)), [], "nothing was lost yet");
        all.close(&cell());
        let (letter, lost) = all.push(NOW, &cell(), cancel());
        assert!(letter.is_none() && lost.orders == 1 && lost.heard.is_empty());
        all.open(&cell(), member(1));
        assert_eq!(orders(all.pass(NOW)), [CellOrder::Sync]);
    }

    #[test]
    fn what_waited_when_it_went_is_made_good_by_a_sync_and_a_stop_need_not_be() {
        let mut all = OrderQueues::default();
        all.open(&cell(), member(1));
        let (first, _) = all.push(NOW, &cell(), CellOrder::Evacuate);
        all.push(NOW, &cell(), cancel());
        assert_eq!(all.close(&cell()).orders, 1);
        all.open(&cell(), member(1));
        assert_eq!(orders(all.pass(NOW)), [CellOrder::Sync]);
        // The order of before comes to nothing: nobody has to sync for it.
        let first = first.expect("it was sent at once");
        let (heard, next) = all.failed(NOW, first, &AskError::Deadline);
        assert!(heard.is_empty() && next.is_none());
    }

    #[test]
    fn a_message_that_fails_after_its_cell_came_anew_is_made_good_there() {
        let mut all = OrderQueues::default();
        all.open(&cell(), member(1));
        let (letter, _) = all.push(NOW, &cell(), cancel());
        let letter = letter.expect("it was sent at once");
        all.open(&cell(), member(2));
        assert_eq!(orders(all.pass(NOW)), [], "it is still under way");
        let (_, next) = all.failed(NOW, letter, &AskError::Deadline);
        assert_eq!(next, None, "that address is no more");
        assert_eq!(orders(all.pass(NOW)), [CellOrder::Sync]);
    }

    #[test]
    fn cells_that_never_come_are_not_remembered_without_end() {
        let mut all = OrderQueues::default();
        for nth in 0..=MOST_OWED {
            let stranger = CellId::new(&format!("stranger-{nth}")).unwrap();
            assert_eq!(all.push(NOW, &stranger, cancel()).1.orders, 1);
        }
        assert!(matches!(all.owed, SyncDebt::All));
        all.open(&cell(), member(1));
        assert_eq!(orders(all.pass(NOW)), [CellOrder::Sync], "it may have been one of them");
    }

    #[test]
    fn of_work_that_was_never_sent_the_auction_hears_that_it_was_refused() {
        let batch = |number| WorkBatch { number, lrps: Vec::new(), tasks: Vec::new() };
        let back = |lost: Undelivered| -> Vec<u64> {
            let number = |input| {
                let AuctionInput::Answered(at, number, back) = input else { panic!("{input:?}") };
                assert_eq!((at, back), (cell(), batch(number)));
                number
            };
            lost.heard.into_iter().map(number).collect()
        };
        let mut all = OrderQueues::default();
        let (letter, lost) = all.push(NOW, &cell(), CellOrder::Work(batch(1)));
        assert!(letter.is_none() && back(lost) == [1], "no such cell is there");
        all.open(&cell(), member(1));
        let (letter, lost) = all.push(NOW, &cell(), CellOrder::Work(batch(2)));
        assert!(letter.is_some() && back(lost).is_empty(), "it is under way");
        all.push(NOW, &cell(), CellOrder::Work(batch(3)));
        all.push(NOW, &cell(), CellOrder::Work(batch(4)));
        // It has begun anew before anybody missed it.
        assert_eq!(back(all.open(&cell(), member(1))), [3, 4]);
        all.push(NOW, &cell(), CellOrder::Evacuate);
        all.push(NOW, &cell(), CellOrder::Work(batch(5)));
        assert_eq!(back(all.close(&cell())), [5]);
    }

    #[test]
    fn work_that_is_too_long_is_cut_with_a_sync_behind_it_too() {
        let long = |nth: usize| TaskStart {
            task_guid: TaskGuid::new(&format!("{nth}-{}", "x".repeat(100))).unwrap(),
            domain: Domain::new("d").unwrap(),
            requirements: Arc::new(Requirements::default()),
        };
        let many = ORDER_BYTES / 100;
        let tasks: Vec<TaskStart> = (0..many).map(long).collect();
        let mut all = OrderQueues::default();
        all.open(&cell(), member(1));
        let (first, _) = all.push(NOW, &cell(), CellOrder::Evacuate);
        all.push(NOW, &cell(), CellOrder::Work(WorkBatch { number: 1, lrps: vec![], tasks }));
        all.push(NOW, &cell(), CellOrder::Sync);
        let (_, next) = all.answered(NOW, first.expect("sent"), &[OrderAnswer::Taken]);
        let next = next.expect("what waited");
        let [CellOrder::Work(batch), CellOrder::Sync] = &next.message.orders[..] else {
            panic!("{} orders", next.message.orders.len());
        };
        let cut = next.cut_off.expect("it does not fit");
        assert_eq!(batch.tasks.len() + cut.tasks.len(), many);
        assert!(!batch.tasks.is_empty() && !cut.tasks.is_empty());
    }
}
