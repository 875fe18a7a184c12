//! What a cell hears.

use volvox_mesh::identity::MemberId;
use volvox_protocol::cell_rpc::{CellOrders, CellReportReply, FetchedDefinitions, SyncedCell};

use crate::container::guid::ContainerGuid;
use crate::container::op::OpOutcome;
use crate::executor::logic::ReservationRequest;
use crate::executor::workload::Workload;
use crate::rep::assignments::AssignmentText;
use crate::rep::logic::{AskFailure, RepSettings};
use crate::rep::self_test;

/// Names somebody who waits for a reply. Whoever asks makes it; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplyId(pub u64);

/// Names a question to the coordinator. The cell makes it; none is used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct AskId(pub u64);

/// What is heard.
#[derive(Debug)]
pub enum CellInput {
    /// The machine tells what came of a deed, or what has happened to a container.
    Outcome(ContainerGuid, OpOutcome),
    /// Somebody on this machine wants something of its containers.
    Local {
        /// Who waits.
        reply: ReplyId,
        /// What is wanted.
        call: LocalCall,
    },
    /// This machine is a member of a mesh now. Said once.
    Joined(Box<Joining>),
    /// A coordinator orders.
    Orders {
        /// Who waits.
        reply: ReplyId,
        /// What is ordered.
        orders: CellOrders,
    },
    /// This coordinator can be asked: the first, another one, or the same in a new life. Or none can.
    Coordinator(Option<MemberId>),
    /// What the coordinator says to a question, or why nothing is known of its answer.
    Answered(AskId, Result<CoordinatorReply, AskFailure>),
    /// Hand the work over to others.
    Evacuate,
    /// Whether the cell is well, as somebody else than the self-test has found.
    Healthy(bool),
}

/// What somebody on this machine wants.
#[derive(Debug)]
pub enum LocalCall {
    /// Room, for each of these. The reply names those that got none.
    Reserve(Vec<ReservationRequest>),
    /// A container of a reservation, with this work. How it goes, events tell.
    Run(ContainerGuid, Workload),
    /// That it stops, gracefully. The reply comes at once; an event tells when it has completed.
    Stop(ContainerGuid),
    /// That it goes, whatever state it is in. The reply comes when nothing is left of it.
    Delete(ContainerGuid),
}

/// With what a cell becomes a member of a mesh.
#[derive(Debug)]
pub struct Joining {
    /// The rep's numbers.
    pub settings: RepSettings,
    /// The self-test's, and the root file system that it uses; none: it is off.
    pub self_test: Option<(self_test::SelfTestSettings, String)>,
    /// What the cell was assigned before, and may have to start again.
    pub assignments: AssignmentText,
    /// Its loads are numbered from here on: higher than those of every life before.
    pub load_version: u64,
    /// Items that a page of a sync asks for.
    pub page_items: usize,
}

/// What the coordinator says to a question.
#[derive(Debug)]
pub enum CoordinatorReply {
    /// To a report.
    Report(CellReportReply),
    /// To a fetch.
    Fetch(FetchedDefinitions),
    /// To a page of a sync.
    Sync(SyncedCell),
}
