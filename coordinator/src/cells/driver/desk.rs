//! The desk: what cells ask, answered from the board, by the rules of [`cells::desk`](crate::cells::desk).
//!
//! Called by the mesh, a task for each question. Nothing here waits but for the board, which answers
//! when a change is on the disk, and for a turn with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::{debug, info, warn};
use volvox_mesh::identity::MemberIdentity;
use volvox_mesh::request::{Refusal, Router};
use volvox_protocol::exchange::{
    CellReport, CellReportReply, FetchDefinitions, FetchedDefinitions, SyncCell, SyncedCell,
};
use volvox_protocol::id::CellId;
use volvox_protocol::request::CellRequest;

use super::tally::{self, Tally};
use crate::bbs::driver::{Bbs, CallError};
use crate::cells::desk::{self, NotAdmitted, Pending, REQUESTS_AT_ONCE, TURN_WITHIN, Turn, Visit};
use crate::cells::records::{self, PageSize};

/// How often impostors are told of in the log. All are counted.
const TELL_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Desk {
    bbs: Bbs,
    tally: Arc<Tally>,
    visitors: Mutex<Visitors>,
    told: Mutex<Option<Instant>>,
}

/// Who is there, and how those who stand in line are called.
struct Visitors {
    desk: desk::Desk,
    line: BTreeMap<Visit, oneshot::Sender<()>>,
}

impl Visitors {
    fn call(&mut self, next: Vec<Visit>) {
        for visit in next {
            if let Some(waits) = self.line.remove(&visit) {
                let _nobody_waits = waits.send(());
            }
        }
    }
}

/// A question being answered. Counts until it is dropped, also when its asker gives up.
struct Serving<'a>(&'a Desk, Visit);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let mut visitors = self.0.visitors();
        visitors.line.remove(&self.1);
        let next = visitors.desk.leave(self.1);
        visitors.call(next);
    }
}

impl Desk {
    pub(super) fn new(bbs: Bbs, tally: Arc<Tally>, requests_per_cell: usize) -> Arc<Self> {
        let desk = desk::Desk::new(requests_per_cell, REQUESTS_AT_ONCE);
        let visitors = Mutex::new(Visitors { desk, line: BTreeMap::new() });
        Arc::new(Desk { bbs, tally, visitors, told: Mutex::default() })
    }

    fn visitors(&self) -> MutexGuard<'_, Visitors> {
        self.visitors.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.visitors().desk.is_serving(cell)
    }

    fn admit<'a>(
        &'a self,
        from: &MemberIdentity,
        requests: &[CellRequest],
    ) -> Result<Serving<'a>, Refusal> {
        let admitted = self.visitors().desk.admit(from, requests);
        admitted.map(|visit| Serving(self, visit)).map_err(|refused| {
            match &refused {
                NotAdmitted::Busy => self.tally.refused_busy.add(1),
                NotAdmitted::NoCell => self.tell_of_impostor(from, None),
                NotAdmitted::SpeaksFor(other) => self.tell_of_impostor(from, Some(other)),
            }
            refused.refusal(from)
        })
    }

    fn tell_of_impostor(&self, from: &MemberIdentity, stranger: Option<&CellId>) {
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
    }

    async fn report(
        &self,
        from: &MemberIdentity,
        report: CellReport,
    ) -> Result<CellReportReply, Refusal> {
        let serving = self.admit(from, &report.requests)?;
        self.tally.reports.add(1);
        let kinds: Vec<usize> = report.requests.iter().map(tally::kind).collect();
        let turn = self.turn(serving.1, kinds.len()).await;
        let pending = desk::queue(report.requests, turn, |command| self.bbs.send(command));
        let mut answers = Vec::with_capacity(pending.len());
        for (kind, pending) in kinds.into_iter().zip(pending) {
            let answer = match pending {
                Pending::Answered(answer) => answer,
                Pending::Sent(reply) => desk::answer(reply.await.unwrap_or(Err(CallError::Closed))),
            };
            self.tally.request(kind, &answer);
            answers.push(answer);
        }
        Ok(desk::reply(&self.bbs.view().snapshot(), &from.name, answers, report.fetch))
    }

    /// Stands in line until the turn comes, or not in time.
    async fn turn(&self, visit: Visit, requests: usize) -> Turn {
        let called = {
            let mut visitors = self.visitors();
            if visitors.desk.line_up(visit, requests) == Turn::Came {
                return Turn::Came;
            }
            let (call, called) = oneshot::channel();
            visitors.line.insert(visit, call);
            called
        };
        let in_time = tokio::time::timeout(TURN_WITHIN, called).await;
        let mut visitors = self.visitors();
        if in_time.is_err() {
            visitors.line.remove(&visit);
            let next = visitors.desk.give_up(visit);
            visitors.call(next);
        }
        visitors.desk.turn(visit)
    }

    fn fetch(
        &self,
        from: &MemberIdentity,
        asked: FetchDefinitions,
    ) -> Result<FetchedDefinitions, Refusal> {
        let _serving = self.admit(from, &[])?;
        self.tally.fetches.add(1);
        Ok(records::fetch(&self.bbs.view().snapshot(), &from.name, asked))
    }

    fn sync(&self, from: &MemberIdentity, asked: &SyncCell) -> Result<SyncedCell, Refusal> {
        let _serving = self.admit(from, &[])?;
        self.tally.sync_pages.add(1);
        let records = self.bbs.view().snapshot();
        let reply = records::sync(&records, &from.name, asked, PageSize::FULL);
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
