//! The coordinator's desk: answers what cells ask, from the records that are shown, and has the board
//! decide about what they report. Does what `cells/driver/desk.rs` does.

use volvox_coordinator::bbs::command::{Command, Reply as BoardReply};
use volvox_coordinator::bbs::driver::CallError;
use volvox_coordinator::cells::records;
use volvox_coordinator::cells::settings::Settings as CellsSettings;
use volvox_protocol::exchange::{
    CellAnswer, CellReportReply, FetchDefinitions, FetchedDefinitions, Later, OwnRecords, SyncCell,
    SyncedCell, size,
};
use volvox_protocol::request::{CellRequest, Rejection};
use volvox_protocol::validate::Valid;

use super::center::Ticket;
use super::world::{CENTER, Event, For, Question, Reply, World};

/// A report being answered.
pub(super) struct Serving {
    nth: usize,
    life: u32,
    ask: u64,
    answers: Vec<Option<CellAnswer>>,
    fetch: FetchDefinitions,
}

impl World {
    pub(super) fn serve(&mut self, nth: usize, life: u32, ask: u64, question: Question) {
        let cell = self.cells[nth].id.clone();
        let Some(alive) = &mut self.center.alive else { return };
        let records = alive.view.snapshot();
        let reply = match question {
            Question::Fetch(asked) => Reply::Fetch(records::fetch(&records, &cell, asked)),
            Question::Sync(asked) => {
                let pages = all_pages(&asked, |asked| records::sync(&records, &cell, asked));
                self.count("sync");
                Reply::Sync(pages)
            }
            Question::Report(report) => {
                let most = CellsSettings::default().requests_per_cell;
                let count = alive.serving.entry(cell).or_default();
                if *count >= most {
                    return self.reply(nth, life, ask, Reply::NotDone, 8);
                }
                *count += 1;
                alive.next += 1;
                let id = alive.next;
                let answers = vec![None; report.requests.len()];
                let serving = Serving { nth, life, ask, answers, fetch: report.fetch };
                alive.reports.insert(id, serving);
                for (place, request) in report.requests.into_iter().enumerate() {
                    self.request(id, place, request);
                }
                return self.finish_report(id);
            }
        };
        let bytes = match &reply {
            Reply::Fetch(fetched) => size(fetched),
            Reply::Sync(pages) => pages.iter().map(size).sum(),
            Reply::Report(_) | Reply::NotDone | Reply::NotUnderstood => 8,
        };
        self.reply(nth, life, ask, reply, bytes);
    }

    fn request(&mut self, report: u64, place: usize, request: CellRequest) {
        let answer = match Valid::new(request) {
            Ok(request) => {
                if self.submit(Command::Cell(request), Ticket::Report(report, place)) {
                    return;
                }
                CellAnswer::Later(Later::Busy)
            }
            Err(invalid) => CellAnswer::Rejected(Rejection::Invalid(invalid.to_string())),
        };
        if let Some(alive) = &mut self.center.alive
            && let Some(serving) = alive.reports.get_mut(&report)
        {
            serving.answers[place] = Some(answer);
        }
    }

    pub(super) fn request_answered(
        &mut self,
        report: u64,
        place: usize,
        result: Result<BoardReply, CallError>,
    ) {
        let Some(alive) = &mut self.center.alive else { return };
        let Some(serving) = alive.reports.get_mut(&report) else { return };
        serving.answers[place] = Some(match result {
            Ok(BoardReply::Done | BoardReply::Converged(_)) => CellAnswer::Done,
            Ok(BoardReply::ShouldStart(should)) => CellAnswer::ShouldStart(should),
            Ok(BoardReply::KeepContainer(keep)) => CellAnswer::KeepContainer(keep),
            Err(CallError::Rejected(rejection)) => CellAnswer::Rejected(rejection),
            Err(CallError::Store(_)) => CellAnswer::Later(Later::NotSaved),
            Err(CallError::Busy | CallError::Closed) => CellAnswer::Later(Later::Busy),
        });
        self.finish_report(report);
    }

    fn finish_report(&mut self, id: u64) {
        let Some(alive) = &mut self.center.alive else { return };
        let Some(serving) = alive.reports.get(&id) else { return };
        if serving.answers.iter().any(Option::is_none) {
            return;
        }
        let Some(Serving { nth, life, ask, answers, fetch }) = alive.reports.remove(&id) else {
            return;
        };
        let cell = &self.cells[nth].id;
        if let Some(count) = alive.serving.get_mut(cell) {
            *count -= 1;
            if *count == 0 {
                alive.serving.remove(cell);
            }
        }
        let fetched = if fetch.is_empty() {
            FetchedDefinitions::default()
        } else {
            records::fetch(&alive.view.snapshot(), cell, fetch)
        };
        let answers = answers.into_iter().flatten().collect();
        let reply = CellReportReply { answers, fetched };
        let bytes = size(&reply);
        self.reply(nth, life, ask, Reply::Report(reply), bytes);
    }

    /// Answers the agent of that life: a later one asked something else.
    fn reply(&mut self, nth: usize, life: u32, ask: u64, reply: Reply, bytes: usize) {
        let place = self.cells[nth].place;
        if let Some(delay) = self.mesh.carry(CENTER, place, bytes) {
            let reply = self.by_wire(reply);
            let at = self.now() + delay;
            self.plan(at, For::Cell(nth, life), Event::Replied(ask, reply));
        }
    }
}

/// All pages of a sync, as the rep's driver asks for them.
fn all_pages(asked: &SyncCell, answer: impl Fn(&SyncCell) -> SyncedCell) -> Vec<SyncedCell> {
    let most = volvox_protocol::limits::SYNC_ITEMS;
    let SyncCell { lrps, tasks, own } = asked;
    let (mut next_lrp, mut next_task, mut own) = (0, 0, *own);
    let mut pages = Vec::new();
    while next_lrp < lrps.len() || next_task < tasks.len() || own != OwnRecords::None {
        let page = |from: usize, all: usize| from..all.min(from + most);
        let asked = SyncCell {
            lrps: lrps[page(next_lrp, lrps.len())].to_vec(),
            tasks: tasks[page(next_task, tasks.len())].to_vec(),
            own,
        };
        let reply = answer(&asked);
        next_lrp += reply.answered_lrps as usize;
        next_task += reply.answered_tasks as usize;
        own = reply.more;
        pages.push(reply);
    }
    pages
}
