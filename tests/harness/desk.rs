//! The coordinator's desk: answers what cells ask, from the records that are shown, and has the board
//! decide about what they report. The real rules say who is served when, and in which order; this does
//! what `cells/driver/desk.rs` does.

use std::sync::Arc;

use volvox_coordinator::bbs::command::Reply as BoardReply;
use volvox_coordinator::bbs::driver::CallError;
use volvox_coordinator::cells::desk::{
    self, Desk, Pending, REQUESTS_AT_ONCE, TURN_WITHIN, Turn, Visit,
};
use volvox_coordinator::cells::records;
use volvox_coordinator::cells::settings::Settings as CellsSettings;
use volvox_mesh::request::AskError;
use volvox_protocol::exchange::{CellAnswer, CellReport, FetchDefinitions, Later, size};

use super::center::Ticket;
use super::plan::{Kind, Plan};
use super::world::{CENTER, Event, For, Question, Reply, World};

/// Room for requests where a crowd is to be seen.
const LITTLE_ROOM: usize = 4;

/// The rules, with little room in some runs.
pub(super) fn new(plan: &Plan) -> Desk {
    let room = if plan.kinds.contains(&Kind::Crowd) { LITTLE_ROOM } else { REQUESTS_AT_ONCE };
    Desk::new(CellsSettings::default().requests_per_cell, room)
}

/// Who asked: the place of the cell, its life, the number of the question there.
pub(super) type Asker = (usize, u32, u64);

/// A report being answered.
pub(super) struct Serving {
    asker: Asker,
    /// What is still to go to the board.
    report: Option<CellReport>,
    answers: Vec<Option<CellAnswer>>,
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
                let fetched = records::fetch(&records, &identity.name, asked);
                let bytes = size(&fetched);
                (Reply::Fetch(fetched), bytes)
            }
            Question::Sync(asked) => {
                let synced = records::sync(&records, &identity.name, &asked, page);
                let bytes = size(&synced);
                (Reply::Sync(synced), bytes)
            }
            Question::Report(report) => return self.take_report(visit, asker, report),
        };
        self.leave(visit);
        self.reply(asker, reply, bytes);
    }

    fn take_report(&mut self, visit: Visit, asker: Asker, mut report: CellReport) {
        let fetch = std::mem::take(&mut report.fetch);
        let (count, answers) = (report.requests.len(), Vec::new());
        let (now, to) = (self.now(), For::Center(self.center.life));
        let Some(alive) = &mut self.center.alive else { return };
        let serving = Serving { asker, report: Some(report), answers, fetch };
        alive.reports.insert(visit, serving);
        match alive.desk.line_up(visit, count) {
            Turn::Came => self.turn_came(visit, Turn::Came),
            Turn::NotYet => {
                self.count("report in line");
                self.plan(now + TURN_WITHIN, to, Event::TurnOver(visit));
            }
        }
    }

    /// A report has stood in line for long enough.
    pub(super) fn turn_over(&mut self, visit: Visit) {
        let Some(alive) = &mut self.center.alive else { return };
        let waits = alive.reports.get(&visit).is_some_and(|it| it.report.is_some());
        if !waits {
            return;
        }
        let next = alive.desk.give_up(visit);
        self.count("turn not in time");
        self.turn_came(visit, Turn::NotYet);
        next.into_iter().for_each(|visit| self.turn_came(visit, Turn::Came));
    }

    /// The requests of a report go to the board, or have to wait for another time.
    fn turn_came(&mut self, visit: Visit, turn: Turn) {
        let Some(alive) = &mut self.center.alive else { return };
        let Some(serving) = alive.reports.get_mut(&visit) else { return };
        let Some(report) = serving.report.take() else { return };
        let mut place = 0;
        let pending = desk::queue(report.requests, turn, |command| {
            let queued = self.submit(command, Ticket::Report(visit, place));
            place += 1;
            if queued { Ok(()) } else { Err(CallError::Busy) }
        });
        let answers = pending.into_iter().map(|it| match it {
            Pending::Sent(()) => None,
            Pending::Answered(answer) => Some(answer),
        });
        let answers: Vec<Option<CellAnswer>> = answers.collect();
        // The places would not be those of the requests.
        if let Some(answer @ CellAnswer::Rejected(_)) = answers.iter().flatten().next() {
            return self.checks.fail(format!("a cell asks what is not valid: {answer:?}"));
        }
        let Some(alive) = &mut self.center.alive else { return };
        if let Some(serving) = alive.reports.get_mut(&visit) {
            serving.answers = answers;
        }
        self.finish_report(visit);
    }

    pub(super) fn request_answered(
        &mut self,
        visit: Visit,
        place: usize,
        result: Result<BoardReply, CallError>,
    ) {
        let Some(alive) = &mut self.center.alive else { return };
        let Some(serving) = alive.reports.get_mut(&visit) else { return };
        serving.answers[place] = Some(desk::answer(result));
        self.finish_report(visit);
    }

    fn finish_report(&mut self, visit: Visit) {
        let Some(alive) = &mut self.center.alive else { return };
        let Some(serving) = alive.reports.get(&visit) else { return };
        if serving.answers.iter().any(Option::is_none) {
            return;
        }
        let Some(Serving { asker, answers, fetch, .. }) = alive.reports.remove(&visit) else {
            return;
        };
        let cell = &self.cells[asker.0].id;
        let answers: Vec<CellAnswer> = answers.into_iter().flatten().collect();
        let later = |it: &CellAnswer| *it == CellAnswer::Later(Later::Busy);
        let first = answers.iter().position(later).unwrap_or(answers.len());
        if !answers[first..].iter().all(later) {
            let what = format!("what {cell} asked was put off, and what follows it was not");
            return self.checks.fail(what);
        }
        if first < answers.len() {
            self.count("request put off");
        }
        let Some(alive) = &mut self.center.alive else { return };
        let cell = &self.cells[asker.0].id;
        let reply = desk::reply(&alive.view.snapshot(), cell, answers, fetch);
        let bytes = size(&reply);
        self.leave(visit);
        self.reply(asker, Reply::Report(reply), bytes);
    }

    fn leave(&mut self, visit: Visit) {
        let Some(alive) = &mut self.center.alive else { return };
        let next = alive.desk.leave(visit);
        next.into_iter().for_each(|visit| self.turn_came(visit, Turn::Came));
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
