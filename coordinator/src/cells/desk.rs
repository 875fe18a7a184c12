//! The rules of the desk: who may ask, how many questions of one cell are served at once, whose turn it
//! is with the board, and in which order the requests of a report go there. [`driver`](super::driver)
//! serves by them; so does the simulator.
//!
//! Cells together may have only so many requests with the board ([`REQUESTS_AT_ONCE`]). When all report
//! at once they stand in line, first come first served: a large report is not passed by smaller ones. One
//! whose turn does not come in time ([`TURN_WITHIN`]) is told to ask again later.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use volvox_mesh::identity::{Kind, MemberIdentity};
use volvox_mesh::request::Refusal;
use volvox_protocol::exchange::{
    CellAnswer, CellReportReply, FetchDefinitions, FetchedDefinitions, Later,
};
use volvox_protocol::id::CellId;
use volvox_protocol::mutation::{Bug, mutated};
use volvox_protocol::request::{CellRequest, Rejection};
use volvox_protocol::validate::Valid;

use super::records;
use crate::bbs::command::{Command, Reply};
use crate::bbs::driver::CallError;
use crate::bbs::state::Records;

/// Requests of cells that may be with the board at once: half of what it lets wait.
pub const REQUESTS_AT_ONCE: usize = 4_096;
/// How long a report waits for its turn.
pub const TURN_WITHIN: Duration = Duration::from_secs(5);

/// What a cell hears about a request that it is to bring again later.
pub const PUT_OFF: CellAnswer = CellAnswer::Later(Later::Busy);

/// A question being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visit(u64);

/// Whether a report may go to the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It may.
    Came,
    /// Not yet, or not in time.
    NotYet,
}

/// Why a question is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotAdmitted {
    /// Too many of this cell are being answered.
    Busy,
    /// Who asks is no cell.
    NoCell,
    /// Who asks speaks for this cell, and is another.
    SpeaksFor(CellId),
}

impl NotAdmitted {
    /// As the mesh is told.
    pub fn refusal(&self, from: &MemberIdentity) -> Refusal {
        match self {
            NotAdmitted::Busy => Refusal::Busy,
            NotAdmitted::NoCell => Refusal::NotAllowed(format!("{} is no cell", from.name)),
            NotAdmitted::SpeaksFor(other) => {
                Refusal::NotAllowed(format!("{} may not speak for {other}", from.name))
            }
        }
    }
}

/// Who is at the desk.
#[derive(Debug)]
pub struct Desk {
    per_cell: usize,
    room: usize,
    taken: usize,
    last: u64,
    visits: BTreeMap<Visit, Visitor>,
    serving: BTreeMap<CellId, usize>,
    line: VecDeque<Visit>,
}

#[derive(Debug)]
struct Visitor {
    cell: CellId,
    /// The room that it needs, or has.
    requests: usize,
    turn: Turn,
}

impl Desk {
    /// Nobody yet. So many questions of one cell are answered at once, and so many requests of all are
    /// with the board.
    pub fn new(per_cell: usize, room: usize) -> Self {
        Desk {
            per_cell,
            room,
            taken: 0,
            last: 0,
            visits: BTreeMap::new(),
            serving: BTreeMap::new(),
            line: VecDeque::new(),
        }
    }

    /// Takes a question on, or not. Each cell is allowed only what its certificate says.
    pub fn admit(
        &mut self,
        from: &MemberIdentity,
        requests: &[CellRequest],
    ) -> Result<Visit, NotAdmitted> {
        if from.kind != Kind::Cell {
            return Err(NotAdmitted::NoCell);
        }
        let mut cells = requests.iter().map(CellRequest::cell_id);
        if let Some(other) = cells.find(|cell| **cell != from.name) {
            return Err(NotAdmitted::SpeaksFor(other.clone()));
        }
        let count = self.serving.get(&from.name).copied().unwrap_or_default();
        if count >= self.per_cell {
            return Err(NotAdmitted::Busy);
        }
        self.serving.insert(from.name.clone(), count + 1);
        self.last += 1;
        let visit = Visit(self.last);
        let visitor = Visitor { cell: from.name.clone(), requests: 0, turn: Turn::NotYet };
        self.visits.insert(visit, visitor);
        Ok(visit)
    }

    /// A report with so many requests would go to the board.
    pub fn line_up(&mut self, visit: Visit, requests: usize) -> Turn {
        let Some(visitor) = self.visits.get_mut(&visit) else { return Turn::NotYet };
        // It asks the board for nothing.
        if requests == 0 {
            visitor.turn = Turn::Came;
            return Turn::Came;
        }
        // One that is larger than all the room has it for itself.
        visitor.requests = requests.min(self.room);
        self.line.push_back(visit);
        self.go_on();
        self.turn(visit)
    }

    /// Whether its turn has come.
    pub fn turn(&self, visit: Visit) -> Turn {
        self.visits.get(&visit).map_or(Turn::NotYet, |it| it.turn)
    }

    /// It waits no longer. Gives those whose turn it is now: perhaps they waited for this one.
    pub fn give_up(&mut self, visit: Visit) -> Vec<Visit> {
        self.line.retain(|it| *it != visit);
        self.go_on()
    }

    /// It is answered, or nobody wants the answer any more. Gives those whose turn it is now.
    pub fn leave(&mut self, visit: Visit) -> Vec<Visit> {
        let Some(visitor) = self.visits.remove(&visit) else { return Vec::new() };
        if let Some(count) = self.serving.get_mut(&visitor.cell) {
            *count -= 1;
            if *count == 0 {
                self.serving.remove(&visitor.cell);
            }
        }
        match visitor.turn {
            Turn::Came => self.taken -= visitor.requests,
            Turn::NotYet => self.line.retain(|it| *it != visit),
        }
        self.go_on()
    }

    /// Whether something that this cell asked is being answered.
    pub fn is_serving(&self, cell: &CellId) -> bool {
        self.serving.contains_key(cell)
    }

    /// Whether nobody is there.
    pub fn is_idle(&self) -> bool {
        self.visits.is_empty()
    }

    fn go_on(&mut self) -> Vec<Visit> {
        let mut came = Vec::new();
        while let Some(next) = self.line.front()
            && let Some(visitor) = self.visits.get_mut(next)
            && self.taken + visitor.requests <= self.room
        {
            self.taken += visitor.requests;
            visitor.turn = Turn::Came;
            came.push(*next);
            self.line.pop_front();
        }
        came
    }
}

/// What becomes of a request.
#[derive(Debug)]
pub enum Pending<T> {
    /// The board will say.
    Sent(T),
    /// It is known already.
    Answered(CellAnswer),
}

/// Has the requests of a report queued with the board, in order. If one cannot be, neither may what
/// follows it: a cell relies on the order of what it says.
pub fn queue<T>(
    requests: Vec<CellRequest>,
    turn: Turn,
    mut send: impl FnMut(Command) -> Result<T, CallError>,
) -> Vec<Pending<T>> {
    let mut later = match turn {
        Turn::Came => None,
        Turn::NotYet => Some(Later::Busy),
    };
    let mut pending = Vec::with_capacity(requests.len());
    for request in requests {
        pending.push(match (later, Valid::new(request)) {
            (Some(later), _) => Pending::Answered(CellAnswer::Later(later)),
            (None, Ok(request)) => match send(Command::Cell(request)) {
                Ok(sent) => Pending::Sent(sent),
                Err(error) => {
                    later = (!mutated(Bug::RequestsOvertake)).then_some(Later::Busy);
                    Pending::Answered(answer(Err(error)))
                }
            },
            (None, Err(invalid)) => {
                let rejection = Rejection::Invalid(invalid.to_string());
                Pending::Answered(CellAnswer::Rejected(rejection))
            }
        });
    }
    pending
}

/// The board's answer as a cell hears it.
pub fn answer(outcome: Result<Reply, CallError>) -> CellAnswer {
    match outcome {
        Ok(Reply::Done | Reply::Converged(_)) => CellAnswer::Done,
        Ok(Reply::ShouldStart(should)) => CellAnswer::ShouldStart(should),
        Ok(Reply::KeepContainer(keep)) => CellAnswer::KeepContainer(keep),
        Err(CallError::Rejected(rejection)) => CellAnswer::Rejected(rejection),
        Err(CallError::Store(_)) => CellAnswer::Later(Later::NotSaved),
        Err(CallError::Busy | CallError::Closed) => CellAnswer::Later(Later::Busy),
    }
}

/// The reply to a report, when all of it is answered: what was claimed just now is in these records.
pub fn reply(
    records: &Records,
    cell: &CellId,
    answers: Vec<CellAnswer>,
    fetch: FetchDefinitions,
) -> CellReportReply {
    let fetched = match fetch.is_empty() {
        true => FetchedDefinitions::default(),
        false => records::fetch(records, cell, fetch),
    };
    CellReportReply { answers, fetched }
}

#[cfg(test)]
mod tests {
    use volvox_mesh::identity::MemberId;
    use volvox_protocol::id::TaskGuid;
    use volvox_protocol::time::Timestamp;

    use super::*;

    fn cell(name: &str) -> CellId {
        CellId::new(name).unwrap()
    }

    fn identity(name: &str, kind: Kind) -> MemberIdentity {
        MemberIdentity {
            member: MemberId([0; 16]),
            kind,
            name: cell(name),
            public_key: [0; 32],
            not_before: Timestamp::ZERO,
            not_after: Timestamp::NEVER,
        }
    }

    fn start(task: &str, on: &str) -> CellRequest {
        CellRequest::StartTask(TaskGuid::new(task).unwrap(), cell(on))
    }

    #[test]
    fn a_cell_speaks_only_for_itself_and_only_a_cell_speaks() {
        let mut desk = Desk::new(8, 10);
        let a = identity("a", Kind::Cell);
        let other = desk.admit(&a, &[start("t", "a"), start("u", "b")]);
        assert_eq!(other, Err(NotAdmitted::SpeaksFor(cell("b"))));
        let refused = NotAdmitted::SpeaksFor(cell("b")).refusal(&a);
        assert_eq!(refused, Refusal::NotAllowed("a may not speak for b".to_owned()));
        assert_eq!(desk.admit(&identity("a", Kind::Coordinator), &[]), Err(NotAdmitted::NoCell));
        assert!(desk.is_idle(), "nobody was let in");
        desk.admit(&a, &[start("t", "a")]).unwrap();
        assert!(desk.is_serving(&cell("a")));
    }

    #[test]
    fn only_so_many_questions_of_one_cell_are_served_at_once() {
        let mut desk = Desk::new(2, 10);
        let (a, b) = (identity("a", Kind::Cell), identity("b", Kind::Cell));
        let first = desk.admit(&a, &[]).unwrap();
        desk.admit(&a, &[]).unwrap();
        assert_eq!(desk.admit(&a, &[]), Err(NotAdmitted::Busy));
        desk.admit(&b, &[]).unwrap();
        desk.leave(first);
        assert!(desk.is_serving(&cell("a")));
        desk.admit(&a, &[]).unwrap();
    }

    #[test]
    fn a_large_report_is_not_passed_by_a_small_one() {
        let mut desk = Desk::new(8, 10);
        let a = identity("a", Kind::Cell);
        let mut visit = || desk.admit(&a, &[]).unwrap();
        let (first, large, small, empty) = (visit(), visit(), visit(), visit());
        assert_eq!(desk.line_up(first, 6), Turn::Came);
        assert_eq!(desk.line_up(large, 10), Turn::NotYet);
        assert_eq!(desk.line_up(small, 1), Turn::NotYet, "there is room, and somebody before it");
        assert_eq!(desk.line_up(empty, 0), Turn::Came, "it needs no room");
        assert_eq!(desk.leave(first), [large]);
        assert_eq!(desk.turn(small), Turn::NotYet);
        assert_eq!(desk.leave(large), [small]);
    }

    #[test]
    fn who_gives_up_lets_the_next_one_through() {
        let mut desk = Desk::new(8, 10);
        let a = identity("a", Kind::Cell);
        let mut visit = || desk.admit(&a, &[]).unwrap();
        let (first, large, small) = (visit(), visit(), visit());
        desk.line_up(first, 6);
        desk.line_up(large, 10);
        desk.line_up(small, 1);
        assert_eq!(desk.give_up(large), [small]);
        assert_eq!(desk.turn(large), Turn::NotYet, "and it does not get a turn later");
        assert_eq!(desk.leave(large), []);
        assert_eq!(desk.leave(first), []);
        desk.leave(small);
        assert!(desk.is_idle());
        assert_eq!(desk.taken, 0);
    }

    #[test]
    fn one_that_is_larger_than_the_room_has_its_turn_too() {
        let mut desk = Desk::new(8, 10);
        let visit = desk.admit(&identity("a", Kind::Cell), &[]).unwrap();
        assert_eq!(desk.line_up(visit, 11), Turn::Came);
    }

    #[test]
    fn what_follows_a_request_that_was_put_off_is_put_off_too() {
        let requests = || vec![start("t", "a"), start("u", "a"), start("v", "a")];
        let mut sent = 0;
        let pending = queue(requests(), Turn::Came, |_| {
            sent += 1;
            if sent == 2 { Err(CallError::Busy) } else { Ok(sent) }
        });
        let [Pending::Sent(1), Pending::Answered(second), Pending::Answered(third)] = &pending[..]
        else {
            panic!("{pending:?}");
        };
        assert_eq!((second, third), (&CellAnswer::Later(Later::Busy), second));
        assert_eq!(sent, 2, "the third was not even tried");
        let none = queue(requests(), Turn::NotYet, |_| Ok(()));
        let later =
            |it: &Pending<()>| matches!(it, Pending::Answered(CellAnswer::Later(Later::Busy)));
        assert!(none.iter().all(later), "{none:?}");
    }
}
