//! What a cell has its driver do.

use volvox_mesh::identity::MemberId;
use volvox_protocol::cell::CellLoad;
use volvox_protocol::cell_rpc::{CellOrdersReply, CellReport, FetchDefinitions, SyncCell};
use volvox_protocol::container::ContainerState;

use super::input::{AskId, ReplyId};
use crate::container::guid::ContainerGuid;
use crate::container::op::ContainerOp;
use crate::executor::container_store::{ContainerEvent, ExecutorRefusal, RemovalReason};
use crate::rep::paging::BadPage;

/// Reservations that got no room, and why.
pub type Reserved = Vec<(ContainerGuid, ExecutorRefusal)>;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellOutput {
    /// Have the machine do this.
    Op(ContainerGuid, ContainerOp),
    /// Ask this coordinator; then say `Answered`.
    Ask(AskId, MemberId, CoordinatorRequest),
    /// Answer orders.
    OrdersReply(ReplyId, CellOrdersReply),
    /// Answer somebody on this machine. Only reserving says more than that it was done.
    LocalReply(ReplyId, Result<Reserved, LocalError>),
    /// Tell everybody in the mesh.
    PublishLoad(CellLoad),
    /// Tell whoever hears of containers.
    Event(ContainerEvent),
    /// Tell the operator, by the log.
    Notice(Notice),
    /// The cell is empty, or its time is over: the agent may end.
    Evacuated,
}

/// What the coordinator is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorRequest {
    /// To take a report.
    Report(CellReport),
    /// For definitions.
    Fetch(FetchDefinitions),
    /// For a page of a sync.
    Sync(SyncCell),
}

/// Why a call of somebody on this machine did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    /// The executor said no. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] ExecutorRefusal),
    /// The container could not be taken away. It has completed; try again.
    #[error("container {0} cannot be deleted: {1}")]
    NotDeleted(ContainerGuid, String),
}

/// Something that a person may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A container is not there any more.
    Forgotten(ContainerGuid, RemovalReason),
    /// It could not be taken away, for this reason.
    NotDeleted(ContainerGuid, String),
    /// What the machine told of it came too late.
    TooLate(ContainerGuid, ExecutorRefusal),
    /// The rep ends it.
    Ends {
        /// Which one.
        guid: ContainerGuid,
        /// How.
        how: Ends,
        /// What it was until now.
        was: ContainerState,
    },
    /// The tables met a row that nothing we know of leads to.
    Inconceivable(ContainerGuid, String),
    /// What the rep has to say: a request that the board refused, work that cannot run.
    Rep(ContainerGuid, String),
    /// The coordinator answered a sync with what none says: the sync has failed.
    BadPage(BadPage),
    /// The self-test failed for this reason.
    TestFailed(String),
    /// The self-test passes again, or it does not: the cell gets no more work then.
    Healthy(bool),
}

/// How the rep ends a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// It stops, gracefully.
    Stop,
    /// It goes, whatever runs in it.
    Delete,
}
