//! Reports: requests to the board, in batches, one batch at a time; and what their answers mean.

use std::collections::VecDeque;
use std::time::Duration;

use volvox_protocol::cell_rpc::{CellAnswer, CellReport, CellReportReply, FetchDefinitions};
use volvox_protocol::id::TaskGuid;
use volvox_protocol::request::CellRequest;
use volvox_protocol::tables::Whose::Ours;
use volvox_protocol::tables::rep_task::TaskView;
use volvox_protocol::time::{Backoff, Timestamp};

use super::{AskFailure, Freshness, PendingOp, Rep, RepOutput, definition_of};
use crate::container::guid::ContainerGuid;
use crate::executor::workload::Owner;

/// The wait before a question that failed is asked again.
pub(super) const ASK_AGAIN: Backoff =
    Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };

/// Who wants to know the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum RequestOrigin {
    /// A container.
    Container(ContainerGuid),
    /// Nobody: it is about a record that has no container.
    Record,
    /// Nobody any more.
    Gone,
}

/// One request.
type QueuedRequest = (RequestOrigin, CellRequest);

/// What is to be reported, and what is being reported.
#[derive(Debug, Default)]
pub(super) struct Reports {
    waiting: VecDeque<QueuedRequest>,
    under_way: Vec<QueuedRequest>,
    not_before: Timestamp,
    /// In a row.
    failures: u32,
}

impl RequestOrigin {
    fn is(&self, guid: &ContainerGuid) -> bool {
        matches!(self, RequestOrigin::Container(of) if of == guid)
    }
}

impl Reports {
    pub(super) fn queue(&mut self, guid: &ContainerGuid, request: CellRequest) {
        self.waiting.push_back((RequestOrigin::Container(guid.clone()), request));
    }

    /// About a record that has no container. Each sync may find it again before it is struck out.
    pub(super) fn queue_once(&mut self, request: CellRequest) {
        let wish = (RequestOrigin::Record, request);
        if !self.waiting.contains(&wish) && !self.under_way.contains(&wish) {
            self.waiting.push_back(wish);
        }
    }

    /// What is to be asked about a container that goes is not asked any more.
    pub(super) fn drop_waiting(&mut self, guid: &ContainerGuid) {
        self.waiting.retain(|(of, _)| !of.is(guid));
    }

    /// A task of this name is to run here: what was to be said of an older one is not said any more.
    pub(super) fn drop_older_task(&mut self, task: &TaskGuid) {
        self.waiting.retain(|(of, request)| {
            let is_its = matches!(request, CellRequest::CompleteTask(of, ..) if of == task);
            *of != RequestOrigin::Record || !is_its
        });
    }

    /// Nor is an answer meant for the next container of that name.
    pub(super) fn forget(&mut self, guid: &ContainerGuid) {
        self.drop_waiting(guid);
        for (of, _) in self.under_way.iter_mut().filter(|(of, _)| of.is(guid)) {
            *of = RequestOrigin::Gone;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Reports::default();
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        let waits = self.under_way.is_empty() && !self.waiting.is_empty();
        waits.then_some(self.not_before)
    }

    fn put_off(&mut self, now: Timestamp) {
        self.failures = self.failures.saturating_add(1);
        self.not_before = now + ASK_AGAIN.after(self.failures);
    }
}

impl Rep {
    /// Sends what has come together, unless a report is under way.
    pub(super) fn report(&mut self, now: Timestamp) {
        let reports = &mut self.reports;
        let can = self.coordinator.is_some() && reports.under_way.is_empty();
        if !can || reports.waiting.is_empty() || now < reports.not_before {
            return;
        }
        let (guids, mut requests): (VecDeque<_>, VecDeque<_>) = reports.waiting.drain(..).unzip();
        let mut report = CellReport::take(&mut requests);
        let mut guids = guids.into_iter();
        reports.under_way = guids.by_ref().zip(report.requests.iter().cloned()).collect();
        reports.waiting.extend(guids.zip(requests));
        report.fetch = self.needed_for(&report.requests);
        self.effects.push(RepOutput::Report(self.contact, report));
    }

    /// Definitions that will be needed when these have been answered.
    fn needed_for(&self, requests: &[CellRequest]) -> FetchDefinitions {
        let mut fetch = FetchDefinitions::default();
        for request in requests {
            if let CellRequest::ClaimLrp(key, _) = request {
                let key = definition_of(key);
                if !self.definitions.contains_key(&key) {
                    fetch.lrps.push(key);
                }
            } else if let CellRequest::StartTask(task, _) = request {
                fetch.tasks.push(task.clone());
            }
        }
        fetch.lrps.sort();
        fetch.lrps.dedup();
        fetch
    }

    pub(super) fn reported(
        &mut self,
        now: Timestamp,
        outcome: Result<CellReportReply, AskFailure>,
    ) {
        let asked = std::mem::take(&mut self.reports.under_way);
        let reply = match outcome {
            Ok(reply) if reply.answers.len() == asked.len() => reply,
            Ok(_) | Err(AskFailure::Unknown) => return self.report_lost(now, asked),
            Err(AskFailure::NotDone) => return self.ask_later(now, asked),
        };
        self.learn(reply.fetched);
        let mut later = Vec::new();
        for (wish, answer) in asked.into_iter().zip(reply.answers) {
            match answer {
                CellAnswer::Later(_) => later.push(wish),
                CellAnswer::Done
                | CellAnswer::ShouldStart(_)
                | CellAnswer::KeepContainer(_)
                | CellAnswer::Rejected(_) => self.answered(now, wish, &answer),
            }
        }
        if later.is_empty() {
            self.reports.failures = 0;
        } else {
            self.ask_later(now, later);
        }
    }

    /// Nothing was done: the same again, in the same order, after a while, if somebody still wants it.
    fn ask_later(&mut self, now: Timestamp, asked: Vec<QueuedRequest>) {
        self.reports.put_off(now);
        for wish in asked.into_iter().rev() {
            let is_wanted = match &wish.0 {
                RequestOrigin::Container(guid) => {
                    self.entries.get(guid).is_some_and(|it| it.busy == PendingOp::Asking)
                }
                RequestOrigin::Record => true,
                RequestOrigin::Gone => false,
            };
            if is_wanted {
                self.reports.waiting.push_front(wish);
            }
        }
    }

    /// Perhaps it was done, perhaps not: the records tell.
    fn report_lost(&mut self, now: Timestamp, asked: Vec<QueuedRequest>) {
        self.reports.put_off(now);
        self.syncing.want_full();
        for (of, _) in asked {
            if let RequestOrigin::Container(guid) = of
                && let Some(entry) = self.entries.get_mut(&guid)
                && entry.busy == PendingOp::Asking
            {
                entry.busy = PendingOp::No;
                entry.version += 1;
                self.forget_if_over_and_unknown(&guid);
            }
        }
    }

    fn answered(&mut self, now: Timestamp, (of, request): QueuedRequest, answer: &CellAnswer) {
        let RequestOrigin::Container(guid) = of else { return };
        let Some(entry) = self.entries.get_mut(&guid) else { return };
        entry.version += 1;
        if entry.busy == PendingOp::Asking {
            entry.busy = PendingOp::No;
        }
        if let CellAnswer::Rejected(rejection) = answer {
            self.effects.push(RepOutput::Note(guid.clone(), format!("the board: {rejection}")));
            return self.refused(now, &guid, &request);
        }
        entry.refusals = 0;
        let entry = &self.entries[&guid];
        match entry.owner {
            Owner::Lrp { .. } => {
                self.lrp_answered(&guid, &request);
                self.evacuee_answered(now, &guid, &request, Some(answer));
            }
            Owner::Task { .. } => self.task_answered(&guid, &request, answer),
            Owner::Local(_) => {}
        }
        self.evaluate(now, &guid, Freshness::Believed);
        self.forget_if_over(&guid);
    }

    /// Our picture is old.
    fn refused(&mut self, now: Timestamp, guid: &ContainerGuid, request: &CellRequest) {
        if self.evacuee_answered(now, guid, request, None) {
            return;
        }
        self.look_again(now, guid);
    }

    /// The record is not what we took it for. The first time it is read; after that, the next pass
    /// will see. What has no container was only to be struck out, and is: nothing there is ours.
    pub(super) fn look_again(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        entry.refusals += 1;
        if entry.container.is_none() {
            self.forget_if_over(guid);
        } else if entry.refusals > 1 {
            entry.not_before = now + self.settings.pass_every;
        } else {
            self.read(guid);
        }
    }

    /// Whoever has the task's container hears that it is not to run.
    pub(super) fn cancel(&mut self, task: &TaskGuid) {
        let guid = ContainerGuid::from(task);
        let is_task = self.entries.get(&guid).is_some_and(|entry| {
            matches!(entry.owner, Owner::Task { .. }) && entry.container.is_some()
        });
        if is_task {
            // It has ended on the board, which need not hear of it: by then the name may be another's.
            self.believe(&guid, TaskView::Completed(Ours));
            self.delete(&guid);
        }
    }
}
