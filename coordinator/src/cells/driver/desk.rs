//! The desk: what cells ask, answered from the board. Each is allowed only what its certificate says.
//!
//! Called by the mesh, a task for each question. Nothing here waits but for the board, which answers
//! when a change is on the disk. Cells together may fill a half of its queue: when all report at once,
//! they wait their turn here, first come first served, and consumers are not shut out. If the board is
//! busy nevertheless, or the turn does not come, the cell is told to ask again later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};
use tracing::{debug, info, warn};
use volvox_mesh::identity::{Holder, Kind};
use volvox_mesh::request::{Refusal, Router};
use volvox_protocol::exchange::{
    CellAnswer, CellReport, CellReportReply, FetchDefinitions, FetchedDefinitions, Later, SyncCell,
    SyncedCell,
};
use volvox_protocol::id::CellId;
use volvox_protocol::request::{CellRequest, Rejection};
use volvox_protocol::validate::Valid;

use super::tally::{self, Tally};
use crate::bbs::command::{Command, Reply};
use crate::bbs::driver::{Bbs, CallError};
use crate::cells::records;

/// Requests of cells that may be with the board at once: half of what it lets wait.
const REQUESTS_AT_ONCE: usize = 4_096;
/// How long a report waits for its turn.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// How often impostors are told of in the log. All are counted.
const TELL_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Desk {
    bbs: Bbs,
    tally: Arc<Tally>,
    most: usize,
    /// Questions being answered, by cell.
    serving: Mutex<BTreeMap<CellId, usize>>,
    told: Mutex<Option<Instant>>,
    /// Room for requests that are with the board.
    room: Semaphore,
}

/// A question being answered. Counts until it is dropped, also when its asker gives up.
struct Serving<'a>(&'a Desk, CellId);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let mut serving = self.0.serving.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = serving.get_mut(&self.1) {
            *count -= 1;
            if *count == 0 {
                serving.remove(&self.1);
            }
        }
    }
}

enum Pending {
    Sent(oneshot::Receiver<Result<Reply, CallError>>),
    Answered(CellAnswer),
}

impl Desk {
    pub(super) fn new(bbs: Bbs, tally: Arc<Tally>, requests_per_cell: usize) -> Arc<Self> {
        let (serving, told) = (Mutex::default(), Mutex::default());
        let room = Semaphore::new(REQUESTS_AT_ONCE);
        Arc::new(Desk { bbs, tally, most: requests_per_cell, serving, told, room })
    }

    /// What the mesh is served by.
    pub(super) fn router(self: &Arc<Self>) -> Router {
        let (one, two, three) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        Router::new()
            .on::<CellReport, _, _>(move |from, report, _| {
                let desk = Arc::clone(&one);
                async move { desk.report(&from, report).await }
            })
            .on::<FetchDefinitions, _, _>(move |from, asked, _| {
                std::future::ready(two.fetch(&from, asked))
            })
            .on::<SyncCell, _, _>(move |from, asked, _| {
                std::future::ready(three.sync(&from, &asked))
            })
    }

    /// Whether something that this cell asked is being answered.
    pub(super) fn is_serving(&self, cell: &CellId) -> bool {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner).contains_key(cell)
    }

    fn admit<'a>(
        &'a self,
        from: &Holder,
        requests: &[CellRequest],
    ) -> Result<Serving<'a>, Refusal> {
        let stranger = requests.iter().map(CellRequest::cell_id).find(|cell| **cell != from.name);
        if from.kind != Kind::Cell || stranger.is_some() {
            return Err(self.turn_away(from, stranger));
        }
        let mut serving = self.serving.lock().unwrap_or_else(PoisonError::into_inner);
        let count = serving.entry(from.name.clone()).or_default();
        if *count >= self.most {
            self.tally.refused_busy.add(1);
            return Err(Refusal::Busy);
        }
        *count += 1;
        Ok(Serving(self, from.name.clone()))
    }

    fn turn_away(&self, from: &Holder, stranger: Option<&CellId>) -> Refusal {
        self.tally.refused_impostors.add(1);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            warn!(
                member = %from.member,
                name = %from.name,
                kind = ?from.kind,
                claims_to_be = stranger.map(CellId::as_str),
                refused_so_far = self.tally.refused_impostors.get(),
                "audit: a member asked what only another cell may"
            );
        }
        Refusal::NotAllowed(match stranger {
            Some(stranger) => format!("{} may not speak for {stranger}", from.name),
            None => format!("{} is no cell", from.name),
        })
    }

    async fn report(&self, from: &Holder, report: CellReport) -> Result<CellReportReply, Refusal> {
        let _serving = self.admit(from, &report.requests)?;
        self.tally.reports.add(1);
        let kinds: Vec<usize> = report.requests.iter().map(tally::kind).collect();
        let count = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
        let turn = tokio::time::timeout(TURN_WITHIN, self.room.acquire_many(count)).await;
        let mut later = if turn.is_ok() { None } else { Some(Later::Busy) };
        let mut pending = Vec::with_capacity(kinds.len());
        for request in report.requests {
            pending.push(match later {
                Some(later) => Pending::Answered(CellAnswer::Later(later)),
                None => self.send(request, &mut later),
            });
        }
        let mut answers = Vec::with_capacity(pending.len());
        for (kind, pending) in kinds.into_iter().zip(pending) {
            let answer = match pending {
                Pending::Answered(answer) => answer,
                Pending::Sent(reply) => answer(reply.await.unwrap_or(Err(CallError::Closed))),
            };
            self.tally.request(kind, &answer);
            answers.push(answer);
        }
        // After the answers: what was claimed just now is in the view.
        let fetched = if report.fetch.is_empty() {
            FetchedDefinitions::default()
        } else {
            records::fetch(&self.bbs.view().snapshot(), &from.name, report.fetch)
        };
        Ok(CellReportReply { answers, fetched })
    }

    /// Queues a request. If it cannot be, neither may what follows it in the report.
    fn send(&self, request: CellRequest, later: &mut Option<Later>) -> Pending {
        let request = match Valid::new(request) {
            Ok(request) => request,
            Err(invalid) => {
                let rejection = Rejection::Invalid(invalid.to_string());
                return Pending::Answered(CellAnswer::Rejected(rejection));
            }
        };
        match self.bbs.send(Command::Cell(request)) {
            Ok(reply) => Pending::Sent(reply),
            Err(error) => {
                *later = Some(Later::Busy);
                Pending::Answered(answer(Err(error)))
            }
        }
    }

    fn fetch(&self, from: &Holder, asked: FetchDefinitions) -> Result<FetchedDefinitions, Refusal> {
        let _serving = self.admit(from, &[])?;
        self.tally.fetches.add(1);
        Ok(records::fetch(&self.bbs.view().snapshot(), &from.name, asked))
    }

    fn sync(&self, from: &Holder, asked: &SyncCell) -> Result<SyncedCell, Refusal> {
        let _serving = self.admit(from, &[])?;
        self.tally.sync_pages.add(1);
        let records = self.bbs.view().snapshot();
        let reply = records::sync(&records, &from.name, asked);
        let differences = records::differences(&records, &from.name, asked);
        let (instances, tasks) = (asked.lrps.len(), asked.tasks.len());
        let cell = from.name.as_str();
        if differences > 0 {
            info!(cell, instances, tasks, differences, "a cell syncs");
        } else {
            debug!(cell, instances, tasks, "a cell syncs");
        }
        Ok(reply)
    }
}

fn answer(outcome: Result<Reply, CallError>) -> CellAnswer {
    match outcome {
        Ok(Reply::Done | Reply::Converged(_)) => CellAnswer::Done,
        Ok(Reply::ShouldStart(should)) => CellAnswer::ShouldStart(should),
        Ok(Reply::KeepContainer(keep)) => CellAnswer::KeepContainer(keep),
        Err(CallError::Rejected(rejection)) => CellAnswer::Rejected(rejection),
        Err(CallError::Store(_)) => CellAnswer::Later(Later::NotSaved),
        Err(CallError::Busy | CallError::Closed) => CellAnswer::Later(Later::Busy),
    }
}
