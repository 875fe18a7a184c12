//! What cells ask over the mesh: reports go to the coordinator's thread, definitions and pages of a sync
//! are read from the view. Who may ask, and how much at once, [`cells::admission`](crate::cells::admission) says.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};
use volvox_mesh::identity::MemberIdentity;
use volvox_mesh::request::{Router, RpcRefusal};
use volvox_protocol::cell_rpc::{
    CellAnswer, CellReport, CellReportReply, FetchDefinitions, FetchedDefinitions, SyncCell,
    SyncedCell,
};
use volvox_protocol::id::CellId;
use volvox_protocol::request::CellRequest;

use super::inbox::Inbox;
use super::outputs::Shared;
use super::tally;
use crate::bbs::view::View;
use crate::cells::admission::{self, Admission, AdmissionError, PUT_OFF, RequestId, TURN_WITHIN};
use crate::cells::sync::{self, PageSize};

/// How often impostors are told of in the log. All are counted.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Holds nothing that keeps the coordinator's thread at work.
pub(super) struct Rpc {
    pub(super) inbox: Arc<Inbox>,
    pub(super) view: View,
    pub(super) shared: Arc<Shared>,
    pub(super) desk: Mutex<Admission>,
    pub(super) told: Mutex<Option<Instant>>,
}

/// A question being answered. Counts until it is dropped, also when its asker gives up.
struct RequestPermit<'a>(&'a Rpc, RequestId);

impl Drop for RequestPermit<'_> {
    fn drop(&mut self) {
        self.0.desk().leave(self.1);
    }
}

impl Rpc {
    fn desk(&self) -> MutexGuard<'_, Admission> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the mesh is served by.
    pub(super) fn router(self: Arc<Self>) -> Router {
        let (one, two, three) = (Arc::clone(&self), Arc::clone(&self), self);
        Router::new()
            .on::<CellReport, _, _>(move |from, report, _| {
                let rpc = Arc::clone(&one);
                async move { rpc.report(&from, report).await }
            })
            .on::<FetchDefinitions, _, _>(move |from, asked, _| {
                std::future::ready(two.fetch(&from, asked))
            })
            .on::<SyncCell, _, _>(move |from, asked, _| {
                std::future::ready(three.sync(&from, &asked))
            })
    }

    fn admit<'a>(
        &'a self,
        from: &MemberIdentity,
        requests: &[CellRequest],
    ) -> Result<RequestPermit<'a>, RpcRefusal> {
        let admitted = self.desk().admit(from, requests);
        admitted.map(|visit| RequestPermit(self, visit)).map_err(|refused| {
            match &refused {
                AdmissionError::Busy => self.shared.tally.refused_busy.add(1),
                AdmissionError::NoCell => self.tell_of_impostor(from, None),
                AdmissionError::SpeaksFor(other) => self.tell_of_impostor(from, Some(other)),
            }
            refused.refusal(from)
        })
    }

    fn tell_of_impostor(&self, from: &MemberIdentity, stranger: Option<&CellId>) {
        self.shared.tally.refused_impostors.add(1);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            warn!(
                member = %from.member,
                name = %from.name,
                kind = ?from.kind,
                claims_to_be = stranger.map(CellId::as_str),
                refused_so_far = self.shared.tally.refused_impostors.get(),
                "audit: a member asked what only another cell may"
            );
        }
    }

    async fn report(
        &self,
        from: &MemberIdentity,
        report: CellReport,
    ) -> Result<CellReportReply, RpcRefusal> {
        let _serving = self.admit(from, &report.requests)?;
        let tally = &self.shared.tally;
        tally.reports.add(1);
        let kinds: Vec<usize> = report.requests.iter().map(tally::kind).collect();
        let put_off = || vec![PUT_OFF; kinds.len()];
        let answers = match kinds.is_empty() {
            // It asks the board for nothing.
            true => Vec::new(),
            false => self.answers(report.requests).await.unwrap_or_else(put_off),
        };
        kinds.iter().zip(&answers).for_each(|(kind, answer)| tally.request(*kind, answer));
        Ok(admission::reply(&self.view.snapshot(), &from.name, answers, report.fetch))
    }

    /// What the core answers to a report; none: it was not taken, or not in time.
    async fn answers(&self, requests: Vec<CellRequest>) -> Option<Vec<CellAnswer>> {
        let (report, mut answers) = self.inbox.report(requests).ok()?;
        match tokio::time::timeout(TURN_WITHIN, &mut answers).await {
            Ok(answers) => answers.ok(),
            Err(_elapsed) if self.inbox.withdraw(report) => None,
            Err(_elapsed) => answers.await.ok(),
        }
    }

    fn fetch(
        &self,
        from: &MemberIdentity,
        asked: FetchDefinitions,
    ) -> Result<FetchedDefinitions, RpcRefusal> {
        let _serving = self.admit(from, &[])?;
        self.shared.tally.fetches.add(1);
        Ok(sync::fetch(&self.view.snapshot(), &from.name, asked))
    }

    fn sync(&self, from: &MemberIdentity, asked: &SyncCell) -> Result<SyncedCell, RpcRefusal> {
        let _serving = self.admit(from, &[])?;
        self.shared.tally.sync_pages.add(1);
        let records = self.view.snapshot();
        let reply = sync::sync(&records, &from.name, asked, PageSize::FULL);
        let differences = sync::differences(&records, &from.name, asked);
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
