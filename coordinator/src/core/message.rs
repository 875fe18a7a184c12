//! What goes into the coordinator's [`Core`](super::Core) and what comes out of it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeSet;
use std::sync::Arc;

use volvox_mesh::identity::MemberId;
use volvox_mesh::member::MemberEvent;
use volvox_mesh::request::AskError;
use volvox_protocol::api::CallbackFailure;
use volvox_protocol::cell_rpc::{CellAnswer, CellOrders, OrderAnswer};
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, TaskGuid};
use volvox_protocol::request::CellRequest;
use volvox_protocol::task::Task;
use volvox_protocol::time::Timestamp;

use super::transaction::Traces;
use crate::auction::explain::{ExplainTarget, Explanation};
use crate::bbs::command::{CallError, Command, Reply};
use crate::callback::logic::{CallResult, Key};
use crate::cells::logic::{CellNotice, CellStatus, Listed};

/// What two clocks of the machine say. Records are stamped by the second; what only measures how long
/// something takes (a hold, a pause, a deadline) goes by the first, so a clock that is set moves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// A clock that is never set and never stands still.
    pub ran: Timestamp,
    /// The time of day, as the machine has it. May jump, also back.
    pub machine: Timestamp,
}

/// Who waits for an answer. The driver gives the numbers; one that it does not know is nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyId(pub u64);

/// One message to a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DispatchId(pub u64);

/// What only the board can answer. It waits while a commit is outstanding.
#[derive(Debug, Clone)]
pub enum CoreInput {
    /// A call of the API.
    Command {
        /// Who waits.
        reply: ReplyId,
        /// What is asked for.
        command: Command,
        /// What the caller called it; in the events it is named so.
        trace: Option<Arc<str>>,
    },
    /// The report of a cell that was admitted. Applied as a whole and in its order: a cell relies on the
    /// order of what it says.
    Report {
        /// Who waits.
        reply: ReplyId,
        /// What the cell reports.
        requests: Vec<CellRequest>,
        /// By [`Now::ran`]. A report that has waited for longer is put off as a whole.
        deadline: Timestamp,
    },
}

/// What can be taken at any time, also while a commit is outstanding: it changes no record.
#[derive(Debug)]
pub enum Signal {
    /// What the mesh says.
    Member(MemberEvent),
    /// All members that are cells, after a start or when some of what the mesh said was missed.
    Members(Vec<Listed>),
    /// The names of all members that the mesh knows. Cells that are not among them are forgotten.
    Known(BTreeSet<CellId>),
    /// The mesh has heard what others knew.
    MeshSynced,
    /// What became of a message to a cell: an answer to each order, or none at all.
    Delivered(DispatchId, Result<Vec<OrderAnswer>, AskError>),
    /// What became of the call of a task's consumer.
    Called(Key, CallResult),
    /// An operator has losses that are held acted on now.
    ReleaseHold,
    /// Why is this where it is?
    Explain(ReplyId, ExplainTarget),
}

/// What is to be done outside. None of it is said before the commit that it follows from.
#[derive(Debug)]
pub enum CoreOutput {
    /// The answer to a command.
    Reply(ReplyId, Result<Reply, CallError>),
    /// An answer to each request of a report.
    Answers(ReplyId, Vec<CellAnswer>),
    /// Why something is where it is; none: no remembered round was about it.
    Explained(ReplyId, Option<Explanation>),
    /// A message to a cell, one at a time to each. Its end comes back as [`Signal::Delivered`].
    Send(Dispatch),
    /// What subscribers are to be told of this commit, in this order.
    Events {
        /// Its number in the view.
        commit: u64,
        /// The events; perhaps none.
        events: Vec<Event>,
        /// Which of them followed from calls that have a number of their own.
        traces: Traces,
    },
    /// The board was read again, which counts as this commit: events may be missing, subscribers list
    /// anew.
    Resync {
        /// Its number in the view.
        commit: u64,
    },
    /// Call the consumer of a task that has ended. Its end comes back as [`Signal::Called`].
    Call(Arc<Task>),
    /// What readers of cells see of this one now; none: nothing.
    PublishCell(CellId, Option<CellStatus>),
    /// For the log and for counters.
    Notice(Notice),
}

/// A message to a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// Which.
    pub id: DispatchId,
    /// To which cell.
    pub cell: CellId,
    /// Who that is in the mesh.
    pub to: MemberId,
    /// What it says.
    pub orders: CellOrders,
}

/// Something that people want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// Of a cell, or of many.
    Cell(CellNotice),
    /// All cells have been heard: so many are there.
    Settled(usize),
    /// So many orders to a cell are lost: it is gone, or more than one: too many waited, it is to sync.
    OrdersLost(CellId, usize),
    /// All cells are to sync: what the board asked of them may be lost.
    AllSync,
    /// Work for a cell was too long for one message, and was cut.
    WorkCut(CellId),
    /// So many pieces of work found no cell in a round of the auction.
    Unplaced(usize),
    /// The try to call a consumer failed.
    CallbackFailed(CallbackFailure),
    /// A task is not ours to tell of, for this reason.
    CallbackNotOurs(TaskGuid, String),
    /// The consumer knows, and the board has not forgotten the task, for this reason.
    CallbackNotDeleted(TaskGuid, String),
}
