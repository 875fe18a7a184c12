//! The rules of the desk: who may ask, and how many questions of one cell are served at once.
//! Definitions and pages of a sync are answered at once; reports wait for the coordinator's thread in a
//! queue of their own, and one that waits too long ([`TURN_WITHIN`]) is put off as a whole.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::time::Duration;

use volvox_mesh::identity::{MemberIdentity, MemberKind};
use volvox_mesh::request::RpcRefusal;
use volvox_protocol::cell_rpc::{
    CellAnswer, CellReportReply, FetchDefinitions, FetchedDefinitions, RetryLater,
};
use volvox_protocol::id::CellId;
use volvox_protocol::request::CellRequest;

use super::sync;
use crate::bbs::command::{CallError, Reply};
use crate::bbs::state::Records;

/// How long a report waits for its turn.
pub const TURN_WITHIN: Duration = Duration::from_secs(5);

/// What a cell hears about a request that it is to bring again later.
pub const PUT_OFF: CellAnswer = CellAnswer::Later(RetryLater::Busy);

/// A question being answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(u64);

/// Why a question is not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionError {
    /// Too many of this cell are being answered.
    Busy,
    /// Who asks is no cell.
    NoCell,
    /// Who asks speaks for this cell, and is another.
    SpeaksFor(CellId),
}

impl AdmissionError {
    /// As the mesh is told.
    pub fn refusal(&self, from: &MemberIdentity) -> RpcRefusal {
        match self {
            AdmissionError::Busy => RpcRefusal::Busy,
            AdmissionError::NoCell => RpcRefusal::NotAllowed(format!("{} is no cell", from.name)),
            AdmissionError::SpeaksFor(other) => {
                RpcRefusal::NotAllowed(format!("{} may not speak for {other}", from.name))
            }
        }
    }
}

/// Who is at the desk.
#[derive(Debug)]
pub struct Admission {
    per_cell: usize,
    last: u64,
    visits: BTreeMap<RequestId, CellId>,
    serving: BTreeMap<CellId, usize>,
}

impl Admission {
    /// Nobody yet. So many questions of one cell are answered at once.
    pub fn new(per_cell: usize) -> Self {
        Admission { per_cell, last: 0, visits: BTreeMap::new(), serving: BTreeMap::new() }
    }

    /// Takes a question on, or not. Each cell is allowed only what its certificate says.
    pub fn admit(
        &mut self,
        from: &MemberIdentity,
        requests: &[CellRequest],
    ) -> Result<RequestId, AdmissionError> {
        if from.kind != MemberKind::Cell {
            return Err(AdmissionError::NoCell);
        }
        let mut cells = requests.iter().map(CellRequest::cell_id);
        if let Some(other) = cells.find(|cell| **cell != from.name) {
            return Err(AdmissionError::SpeaksFor(other.clone()));
        }
        let count = self.serving.get(&from.name).copied().unwrap_or_default();
        if count >= self.per_cell {
            return Err(AdmissionError::Busy);
        }
        self.serving.insert(from.name.clone(), count + 1);
        self.last += 1;
        let visit = RequestId(self.last);
        self.visits.insert(visit, from.name.clone());
        Ok(visit)
    }

    /// It is answered, or nobody wants the answer any more.
    pub fn leave(&mut self, visit: RequestId) {
        let Some(cell) = self.visits.remove(&visit) else { return };
        if let Some(count) = self.serving.get_mut(&cell) {
            *count -= 1;
            if *count == 0 {
                self.serving.remove(&cell);
            }
        }
    }

    /// Whether nobody is there.
    pub fn is_idle(&self) -> bool {
        self.visits.is_empty()
    }
}

/// The board's answer as a cell hears it.
pub fn answer(outcome: Result<Reply, CallError>) -> CellAnswer {
    match outcome {
        Ok(Reply::Done | Reply::Converged(_)) => CellAnswer::Done,
        Ok(Reply::ShouldStart(should)) => CellAnswer::ShouldStart(should),
        Ok(Reply::KeepContainer(keep)) => CellAnswer::KeepContainer(keep),
        Err(CallError::Rejected(rejection)) => CellAnswer::Rejected(rejection),
        Err(CallError::Store(_)) => CellAnswer::Later(RetryLater::NotSaved),
        Err(CallError::Busy | CallError::Closed) => CellAnswer::Later(RetryLater::Busy),
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
        false => sync::fetch(records, cell, fetch),
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

    fn identity(name: &str, kind: MemberKind) -> MemberIdentity {
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
        let mut desk = Admission::new(8);
        let a = identity("a", MemberKind::Cell);
        let other = desk.admit(&a, &[start("t", "a"), start("u", "b")]);
        assert_eq!(other, Err(AdmissionError::SpeaksFor(cell("b"))));
        let refused = AdmissionError::SpeaksFor(cell("b")).refusal(&a);
        assert_eq!(refused, RpcRefusal::NotAllowed("a may not speak for b".to_owned()));
        assert_eq!(
            desk.admit(&identity("a", MemberKind::Coordinator), &[]),
            Err(AdmissionError::NoCell)
        );
        assert!(desk.is_idle(), "nobody was let in");
        let visit = desk.admit(&a, &[start("t", "a")]).unwrap();
        assert!(!desk.is_idle());
        desk.leave(visit);
        assert!(desk.is_idle());
    }

    #[test]
    fn only_so_many_questions_of_one_cell_are_served_at_once() {
        let mut desk = Admission::new(2);
        let (a, b) = (identity("a", MemberKind::Cell), identity("b", MemberKind::Cell));
        let first = desk.admit(&a, &[]).unwrap();
        desk.admit(&a, &[]).unwrap();
        assert_eq!(desk.admit(&a, &[]), Err(AdmissionError::Busy));
        desk.admit(&b, &[]).unwrap();
        desk.leave(first);
        desk.admit(&a, &[]).unwrap();
    }
}
