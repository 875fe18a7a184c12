//! What waits to be sent to one cell: bounded, in order, one message at a time.
//!
//! An order may be lost: the cell is gone, the queue is full, no answer came. What then?
//!
//! | order | when it is lost |
//! |---|---|
//! | work | if it was surely not begun, the auction is told that it was refused; else convergence auctions it again |
//! | stop | the record says that it is to stop: convergence orders it again |
//! | cancel, update | nobody orders it again. So the cell is told to sync as soon as it can be told anything, and a sync says all of it |
//! | sync | as above |
//!
//! A cell that has begun anew syncs by itself when it comes. One that only seemed to be gone does not: it
//! is told to, if something was lost that it needs ([`order_queues`](super::order_queues)).
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::VecDeque;

use volvox_protocol::cell_rpc::{CellOrders, OrderAnswer, RefusedWork, size};
use volvox_protocol::limits::ORDER_BYTES;
use volvox_protocol::request::{CellOrder, LrpStart, TaskStart, WorkBatch};
use volvox_protocol::time::Timestamp;

/// Orders other than work that may wait for one cell. When there are more, they are all dropped for
/// an order to sync.
pub const MOST_WAITING: usize = 1_024;

/// What waits for one cell.
#[derive(Debug, Default)]
pub struct OrderQueue {
    waiting: VecDeque<CellOrder>,
    /// Of those, how many are work. The auction sends no more than it has answers for.
    work: usize,
    /// Something was lost that only a sync can make good.
    wants_sync: bool,
    /// A message is under way.
    under_way: bool,
    /// After a message that failed, nothing is sent before this.
    not_before: Timestamp,
}

/// What became of an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnqueueResult {
    /// It waits its turn.
    Waits,
    /// So many that waited were dropped, this one included: the cell will be told to sync.
    Folded(usize),
}

impl OrderQueue {
    /// Puts an order last.
    pub fn push(&mut self, order: CellOrder) -> EnqueueResult {
        if let CellOrder::Work(_) = order {
            self.work += 1;
            self.waiting.push_back(order);
            return EnqueueResult::Waits;
        }
        if order == CellOrder::Sync {
            self.wants_sync = true;
            return EnqueueResult::Waits;
        }
        if self.waiting.len() - self.work < MOST_WAITING {
            self.waiting.push_back(order);
            return EnqueueResult::Waits;
        }
        let before = self.waiting.len();
        self.waiting.retain(|order| matches!(order, CellOrder::Work(_)));
        self.wants_sync = true;
        EnqueueResult::Folded(before - self.waiting.len() + 1)
    }

    /// The next message, if one may be sent now. Then none may until [`OrderQueue::done`].
    pub fn next(&mut self, now: Timestamp) -> Option<CellOrders> {
        if self.under_way || now < self.not_before {
            return None;
        }
        let mut message = CellOrders::take(&mut self.waiting);
        let taken = message.orders.iter().filter(|order| matches!(order, CellOrder::Work(_)));
        self.work -= taken.count();
        if std::mem::take(&mut self.wants_sync) {
            // Last: what stands before it need not be made good.
            message.orders.push(CellOrder::Sync);
        }
        if message.orders.is_empty() {
            return None;
        }
        self.under_way = true;
        Some(message)
    }

    /// The message that was under way has been answered.
    pub fn done(&mut self) {
        self.under_way = false;
        self.not_before = Timestamp::ZERO;
    }

    /// The message that was under way was not answered: nothing more until then.
    pub fn failed(&mut self, lost: &CellOrders, not_before: Timestamp) {
        self.under_way = false;
        self.not_before = not_before;
        self.wants_sync |= lost.orders.iter().any(needs_sync);
    }

    /// Whether something waits, or was lost, that only a sync can make good once this queue is gone.
    pub fn wants_sync(&self) -> bool {
        self.wants_sync || self.waiting.iter().any(needs_sync)
    }

    /// Whether nothing waits and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.wants_sync && !self.under_way
    }

    /// Whether a message could be sent now.
    pub fn is_due(&self, now: Timestamp) -> bool {
        !self.under_way && now >= self.not_before && (!self.waiting.is_empty() || self.wants_sync)
    }

    /// What waits, when nobody will send it.
    pub fn into_orders(self) -> impl IntoIterator<Item = CellOrder> {
        self.waiting
    }

    /// Orders that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Whether nobody repeats this order: if it is lost, only a sync makes it good.
pub fn needs_sync(order: &CellOrder) -> bool {
    match order {
        CellOrder::CancelTask(_) | CellOrder::UpdateInstance(..) | CellOrder::Sync => true,
        CellOrder::Work(_) | CellOrder::StopInstance(..) | CellOrder::Evacuate => false,
    }
}

/// Cuts a batch to what fits into one message. What is cut off is treated as refused: a cell that can
/// take so much gets the rest a moment later.
pub fn cut(batch: &mut WorkBatch) -> WorkBatch {
    let mut rest = WorkBatch { number: batch.number, lrps: Vec::new(), tasks: Vec::new() };
    let mut room = ORDER_BYTES;
    let mut fits = |bytes: usize| {
        let fits = bytes <= room;
        room = room.saturating_sub(bytes);
        fits
    };
    let (lrps, cut): (Vec<LrpStart>, _) = batch.lrps.drain(..).partition(|it| fits(size(it)));
    (batch.lrps, rest.lrps) = (lrps, cut);
    let (tasks, cut): (Vec<TaskStart>, _) = batch.tasks.drain(..).partition(|it| fits(size(it)));
    (batch.tasks, rest.tasks) = (tasks, cut);
    rest
}

/// What an answer leaves undone of a batch, as the auction wants to hear it.
pub fn refused(batch: &WorkBatch, answer: &OrderAnswer) -> WorkBatch {
    match answer {
        OrderAnswer::Taken => {
            WorkBatch { number: batch.number, lrps: Vec::new(), tasks: Vec::new() }
        }
        OrderAnswer::Refused(refused) => named(batch, refused),
        OrderAnswer::Failed(_) => batch.clone(),
    }
}

/// Of the batch, what is named. What the cell names and was not sent is not believed.
fn named(batch: &WorkBatch, refused: &RefusedWork) -> WorkBatch {
    let mut back = WorkBatch { number: batch.number, lrps: Vec::new(), tasks: Vec::new() };
    for start in &batch.lrps {
        let of_start = refused.lrps.iter().filter(|it| {
            it.key.process_guid == start.process_guid && it.key.definition_id == start.definition_id
        });
        let named: Vec<u32> = of_start.flat_map(|it| it.indices.iter().copied()).collect();
        let indices: Vec<u32> =
            start.indices.iter().copied().filter(|index| named.contains(index)).collect();
        if !indices.is_empty() {
            back.lrps.push(LrpStart { indices, ..start.clone() });
        }
    }
    let tasks = batch.tasks.iter();
    let tasks = tasks.filter(|it| refused.tasks.iter().any(|no| no.task_guid == it.task_guid));
    back.tasks = tasks.cloned().collect();
    back
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use volvox_protocol::cell_rpc::{DefinitionKey, RefusedLrps, RefusedTask};
    use volvox_protocol::id::{DefinitionId, Domain, ProcessGuid, TaskGuid};
    use volvox_protocol::request::Requirements;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn cancel(nth: usize) -> CellOrder {
        CellOrder::CancelTask(TaskGuid::new(&format!("t{nth}")).unwrap())
    }

    fn start(process: &str, indices: &[u32], rootfs: &str) -> LrpStart {
        LrpStart {
            process_guid: ProcessGuid::new(process).unwrap(),
            definition_id: DefinitionId::new("v1").unwrap(),
            domain: Domain::new("d").unwrap(),
            indices: indices.to_vec(),
            requirements: Arc::new(Requirements {
                rootfs: rootfs.to_owned(),
                ..Requirements::default()
            }),
        }
    }

    fn batch(lrps: Vec<LrpStart>) -> WorkBatch {
        WorkBatch { number: 5, lrps, tasks: Vec::new() }
    }

    #[test]
    fn orders_go_in_their_order_one_message_at_a_time() {
        let mut queue = OrderQueue::default();
        assert_eq!(queue.next(NOW), None);
        queue.push(cancel(1));
        queue.push(cancel(2));
        assert_eq!(queue.next(NOW).unwrap().orders, [cancel(1), cancel(2)]);
        queue.push(cancel(3));
        assert_eq!(queue.next(NOW), None, "one is under way");
        queue.done();
        assert_eq!(queue.next(NOW).unwrap().orders, [cancel(3)]);
        queue.done();
        assert!(queue.is_idle());
    }

    #[test]
    fn a_queue_that_overflows_becomes_one_order_to_sync() {
        let mut queue = OrderQueue::default();
        queue.push(CellOrder::Work(batch(vec![])));
        for nth in 0..MOST_WAITING {
            assert_eq!(queue.push(cancel(nth)), EnqueueResult::Waits);
        }
        assert_eq!(queue.push(cancel(0)), EnqueueResult::Folded(MOST_WAITING + 1));
        let orders = queue.next(NOW).unwrap().orders;
        assert_eq!(orders, [CellOrder::Work(batch(vec![])), CellOrder::Sync]);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_lost_cancel_becomes_a_sync_and_a_lost_stop_does_not() {
        let mut queue = OrderQueue::default();
        queue.push(cancel(1));
        let lost = queue.next(NOW).unwrap();
        let later = NOW + Duration::from_secs(1);
        queue.failed(&lost, later);
        assert!(!queue.is_idle() && !queue.is_due(NOW) && queue.is_due(later));
        assert_eq!(queue.next(NOW), None);
        assert_eq!(queue.next(later).unwrap().orders, [CellOrder::Sync]);
        queue.done();
        queue.push(CellOrder::Evacuate);
        let lost = queue.next(later).unwrap();
        queue.failed(&lost, later);
        assert!(queue.is_idle());
    }

    #[test]
    fn only_what_was_sent_can_be_refused() {
        let mut sent = batch(vec![start("p", &[0, 1, 2], ""), start("q", &[0], "")]);
        let task = |name: &str| TaskGuid::new(name).unwrap();
        sent.tasks = vec![TaskStart {
            task_guid: task("t"),
            domain: Domain::new("d").unwrap(),
            requirements: Arc::default(),
        }];
        let key = DefinitionKey {
            process_guid: ProcessGuid::new("p").unwrap(),
            definition_id: DefinitionId::new("v1").unwrap(),
        };
        let no = RefusedWork {
            lrps: vec![RefusedLrps { key, indices: vec![1, 9], reason: "full".into() }],
            tasks: vec![
                RefusedTask { task_guid: task("t"), reason: "full".into() },
                RefusedTask { task_guid: task("other"), reason: "full".into() },
            ],
        };
        let back = refused(&sent, &OrderAnswer::Refused(no));
        assert_eq!(back.lrps, [start("p", &[1], "")]);
        assert_eq!(back.tasks, sent.tasks);
        assert_eq!(refused(&sent, &OrderAnswer::Failed("no".into())), sent);
        assert_eq!(refused(&sent, &OrderAnswer::Taken).lrps, []);
    }

    #[test]
    fn a_batch_that_is_too_long_is_cut_and_the_rest_given_back() {
        let long = "x".repeat(4_000);
        let names: Vec<String> = (0..500).map(|nth| format!("p{nth}")).collect();
        let mut batch = batch(names.iter().map(|name| start(name, &[0], &long)).collect());
        let rest = cut(&mut batch);
        assert!(size(&batch) <= ORDER_BYTES + 32);
        assert_eq!(batch.lrps.len() + rest.lrps.len(), 500);
        assert!(batch.lrps.len() > 200 && !rest.lrps.is_empty());
        let mut small = self::batch(vec![start("p", &[0], "")]);
        assert_eq!(cut(&mut small).lrps, []);
        assert_eq!(small.lrps.len(), 1);
    }
}
