//! What cells ask of the coordinator: definitions and pages of a sync from the records that are shown,
//! reports by the core. Does what the coordinator does for the mesh.

use std::sync::Arc;

use volvox_coordinator::cells::admission::{self, Admission, PUT_OFF, RequestId, TURN_WITHIN};
use volvox_coordinator::cells::settings::CellsSettings;
use volvox_coordinator::cells::sync;
use volvox_coordinator::core::CoreInput;
use volvox_mesh::request::AskError;
use volvox_protocol::cell_rpc::{CellAnswer, CellReport, FetchDefinitions, size};
use volvox_protocol::request::{CellRequest, Rejection};

use super::center::Ticket;
use super::plan::Kind;
use super::world::{CENTER, Event, For, Question, Reply, World};

/// Reports that may wait.
const REPORTS: usize = 1_024;
/// As many as may wait where a crowd is to be seen.
const LITTLE_ROOM: usize = 4;

/// Who may ask, and how much at once.
pub(super) fn new() -> Admission {
    Admission::new(CellsSettings::default().requests_per_cell)
}

/// Who asked: the place of the cell, its life, the number of the question there.
pub(super) type Asker = (usize, u32, u64);

/// A report being answered.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    asker: Asker,
    visit: RequestId,
    fetch: FetchDefinitions,
}

impl World {
    pub(super) fn serve(&mut self, asker: Asker, question: Question) {
        let identity = Arc::clone(self.mesh.identity(self.cells[asker.0].place));
        let page = self.plan.page;
        let Some(alive) = &mut self.center.alive else { return };
        let requests = match &question {
            Question::Report(report) => &report.requests[..],
            Question::Fetch(_) | Question::Sync(_) => &[],
        };
        let visit = match alive.desk.admit(&identity, requests) {
            Ok(visit) => visit,
            Err(refused) => {
                self.count("question refused");
                self.tell(|| format!("desk: {} is refused: {refused:?}", identity.name));
                return self.refuse(asker, AskError::Refused(refused.refusal(&identity)));
            }
        };
        let records = alive.view.snapshot();
        let (reply, bytes) = match question {
            Question::Fetch(asked) => {
                let fetched = sync::fetch(&records, &identity.name, asked);
                let bytes = size(&fetched);
                (Reply::Fetch(fetched), bytes)
            }
            Question::Sync(asked) => {
                let synced = sync::sync(&records, &identity.name, &asked, page);
                let bytes = size(&synced);
                (Reply::Sync(synced), bytes)
            }
            Question::Report(CellReport { requests, fetch }) => {
                let serving = Serving { asker, visit, fetch };
                return self.take_report(serving, requests);
            }
        };
        alive.desk.leave(visit);
        self.reply(asker, reply, bytes);
    }

    fn take_report(&mut self, serving: Serving, requests: Vec<CellRequest>) {
        let now = self.now();
        let room = match self.plan.kinds.contains(&Kind::Crowd) {
            true => LITTLE_ROOM,
            false => REPORTS,
        };
        let no_time = self.trouble.crowded && self.center.random.once_in(3);
        let Some(alive) = &mut self.center.alive else { return };
        // It asks the board for nothing.
        if requests.is_empty() {
            return self.report_answered(serving, Vec::new());
        }
        if alive.reports.len() >= room {
            return self.report_answered(serving, vec![PUT_OFF; requests.len()]);
        }
        let waits = alive.is_committing();
        let reply = alive.new_reply(Ticket::Report(Box::new(serving)));
        // In a crowd some have waited for too long when their turn comes.
        let deadline = if no_time { now } else { now + TURN_WITHIN };
        alive.reports.push_back(CoreInput::Report { reply, requests, deadline });
        if waits {
            self.count("report waited for a commit");
        }
        let soon = self.now() + self.moment();
        self.plan_turn(soon);
    }

    pub(super) fn report_answered(&mut self, serving: Serving, answers: Vec<CellAnswer>) {
        let Serving { asker, visit, fetch } = serving;
        let cell = &self.cells[asker.0].id;
        let first = answers.iter().position(|it| *it == PUT_OFF).unwrap_or(answers.len());
        if !answers[first..].iter().all(|it| *it == PUT_OFF) {
            let what = format!("what {cell} asked was put off, and what follows it was not");
            return self.checks.fail(what);
        }
        if let Some(answer @ CellAnswer::Rejected(Rejection::Invalid(_))) =
            answers.iter().find(|it| matches!(it, CellAnswer::Rejected(Rejection::Invalid(_))))
        {
            return self.checks.fail(format!("a cell asks what is not valid: {answer:?}"));
        }
        if first < answers.len() {
            self.count("request put off");
        }
        let Some(alive) = &mut self.center.alive else { return };
        let cell = &self.cells[asker.0].id;
        let reply = admission::reply(&alive.view.snapshot(), cell, answers, fetch);
        let bytes = size(&reply);
        alive.desk.leave(visit);
        self.reply(asker, Reply::Report(reply), bytes);
    }

    pub(super) fn refuse(&mut self, (nth, life, ask): Asker, error: AskError) {
        if let Some(delay) = self.mesh.carry(CENTER, self.cells[nth].place, 8) {
            let at = self.now() + delay;
            self.plan(at, For::Cell(nth, life), Event::NotReplied(ask, error));
        }
    }

    /// Answers the agent of that life: a later one asked something else.
    fn reply(&mut self, (nth, life, ask): Asker, reply: Reply, bytes: usize) {
        let place = self.cells[nth].place;
        if let Some(delay) = self.mesh.carry(CENTER, place, bytes) {
            let reply = self.by_wire(reply);
            let at = self.now() + delay;
            self.plan(at, For::Cell(nth, life), Event::Replied(ask, reply));
        }
    }
}
