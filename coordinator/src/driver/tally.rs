//! What is counted, for `/metrics`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use volvox_protocol::cell_rpc::CellAnswer;
use volvox_protocol::request::{CellOrder, CellRequest};

/// Everything counted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests of cells by kind (`claim`, `start`, …) and result (`done`, `rejected`, `later`).
    pub requests: BTreeMap<(&'static str, &'static str), u64>,
    /// Reports that were served.
    pub reports: u64,
    /// Questions for definitions that were served, those in reports not counted.
    pub fetches: u64,
    /// Pages of syncs that were served.
    pub sync_pages: u64,
    /// Questions that were refused because too many of the same cell were being served.
    pub refused_busy: u64,
    /// Questions in the name of another cell, or of one that is no cell. All of them were refused.
    pub refused_impostors: u64,
    /// Messages with orders that cells have answered.
    pub messages_answered: u64,
    /// Messages with orders that cells have not answered, or that could not be sent.
    pub messages_failed: u64,
    /// Orders that were sent and answered, by kind (`work`, `stop`, …).
    pub orders: BTreeMap<&'static str, u64>,
    /// Orders that were lost: to a cell that is gone, in a queue that was full, or not answered.
    pub orders_lost: u64,
    /// Orders to sync because of a lasting difference.
    pub mismatches: u64,
    /// Pieces of work that cells have refused.
    pub work_refused: u64,
    /// Cells that came.
    pub cells_came: u64,
    /// Cells that went.
    pub cells_went: u64,
    /// Times that the loss of many cells was held.
    pub holds: u64,
    /// Times that the members had to be listed anew because too much had happened.
    pub lagged: u64,
}

const KINDS: [&str; 12] = [
    "claim",
    "start",
    "crash",
    "remove",
    "evacuate_claimed",
    "evacuate_running",
    "evacuate_crashed",
    "evacuate_stopped",
    "remove_evacuating",
    "start_task",
    "complete_task",
    "reject_task",
];
const RESULTS: [&str; 3] = ["done", "rejected", "later"];
const ORDERS: [&str; 6] = ["work", "stop", "cancel", "update", "sync", "evacuate"];

pub(super) const fn kind(request: &CellRequest) -> usize {
    match request {
        CellRequest::ClaimLrp(..) => 0,
        CellRequest::StartLrp(..) => 1,
        CellRequest::CrashLrp(..) => 2,
        CellRequest::RemoveLrp(..) => 3,
        CellRequest::EvacuateClaimed(..) => 4,
        CellRequest::EvacuateRunning(..) => 5,
        CellRequest::EvacuateCrashed(..) => 6,
        CellRequest::EvacuateStopped(..) => 7,
        CellRequest::RemoveEvacuating(..) => 8,
        CellRequest::StartTask(..) => 9,
        CellRequest::CompleteTask(..) => 10,
        CellRequest::RejectTask(..) => 11,
    }
}

const fn result(answer: &CellAnswer) -> usize {
    match answer {
        CellAnswer::Done | CellAnswer::ShouldStart(_) | CellAnswer::KeepContainer(_) => 0,
        CellAnswer::Rejected(_) => 1,
        CellAnswer::Later(_) => 2,
    }
}

const fn order(order: &CellOrder) -> usize {
    match order {
        CellOrder::Work(_) => 0,
        CellOrder::StopInstance(..) => 1,
        CellOrder::CancelTask(_) => 2,
        CellOrder::UpdateInstance(..) => 3,
        CellOrder::Sync => 4,
        CellOrder::Evacuate => 5,
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where it is counted.
#[derive(Debug, Default)]
pub(super) struct CellMetrics {
    requests: [[Count; RESULTS.len()]; KINDS.len()],
    orders: [Count; ORDERS.len()],
    pub(super) reports: Count,
    pub(super) fetches: Count,
    pub(super) sync_pages: Count,
    pub(super) refused_busy: Count,
    pub(super) refused_impostors: Count,
    pub(super) messages_answered: Count,
    pub(super) messages_failed: Count,
    pub(super) orders_lost: Count,
    pub(super) mismatches: Count,
    pub(super) work_refused: Count,
    pub(super) cells_came: Count,
    pub(super) cells_went: Count,
    pub(super) holds: Count,
    pub(super) lagged: Count,
}

impl CellMetrics {
    pub(super) fn request(&self, kind: usize, answer: &CellAnswer) {
        self.requests[kind][result(answer)].add(1);
    }

    pub(super) fn order(&self, sent: &CellOrder) {
        self.orders[order(sent)].add(1);
    }

    pub(super) fn read(&self) -> Counters {
        let requests = KINDS.iter().zip(&self.requests).flat_map(|(kind, results)| {
            let results = RESULTS.iter().zip(results);
            results.map(|(result, count)| ((*kind, *result), count.get()))
        });
        Counters {
            requests: requests.collect(),
            reports: self.reports.get(),
            fetches: self.fetches.get(),
            sync_pages: self.sync_pages.get(),
            refused_busy: self.refused_busy.get(),
            refused_impostors: self.refused_impostors.get(),
            messages_answered: self.messages_answered.get(),
            messages_failed: self.messages_failed.get(),
            orders: ORDERS.iter().zip(&self.orders).map(|(name, it)| (*name, it.get())).collect(),
            orders_lost: self.orders_lost.get(),
            mismatches: self.mismatches.get(),
            work_refused: self.work_refused.get(),
            cells_came: self.cells_came.get(),
            cells_went: self.cells_went.get(),
            holds: self.holds.get(),
            lagged: self.lagged.get(),
        }
    }
}
