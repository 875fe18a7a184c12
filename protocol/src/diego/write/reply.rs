//! What clients are answered. Every answer but that to a ping has its error in field 1.

use prost::Message as _;

use super::super::message as m;
use super::{
    DiegoReply, ListEntry, Writer, cell_presence, desired_lrp, error, group, scheduling_info, task,
};
use crate::api::{
    ActualLrpGroupResponse, ActualLrpGroupsResponse, ActualLrpsResponse, CellsResponse,
    DesiredLrpResponse, DesiredLrpSchedulingInfoResponse, DesiredLrpSchedulingInfosResponse,
    DesiredLrpsResponse, DomainsResponse, EvacuationResponse, LifecycleResponse, PingResponse,
    StartTaskResponse, TaskResponse, TasksResponse,
};
use crate::desired_lrp::DesiredLrp;
use crate::task::Task;

/// The BBS's number for a kind of error. Kinds of our own are unknown to it.
pub fn error_type(kind: &str) -> m::ErrorType {
    let (_, _, known) = m::ENUMERATIONS[0];
    let number = known.iter().find(|(name, _)| *name == kind).map_or(0, |(_, number)| *number);
    m::ErrorType::try_from(number).unwrap_or(m::ErrorType::UnknownError)
}

/// Declares how an answer is written.
macro_rules! replies {
    ($( $reply:ty |$given:ident| $message:expr ; )*) => {
        $( impl DiegoReply for $reply {
            fn into_diego(self) -> Vec<u8> {
                let $given = self;
                $message.encode_to_vec()
            }
        } )*
    };
}

replies! {
    PingResponse |given| m::PingResponse { available: given.available };
    LifecycleResponse |given| m::ActualLrpLifecycleResponse {
        error: given.error.as_ref().map(error),
    };
    DomainsResponse |given| m::DomainsResponse {
        error: given.error.as_ref().map(error),
        domains: given.domains.into_iter().map(String::from).collect(),
    };
    CellsResponse |given| m::CellsResponse {
        error: given.error.as_ref().map(error),
        cells: given.cells.into_iter().map(cell_presence).collect(),
    };
    ActualLrpGroupResponse |given| m::ActualLrpGroupResponse {
        error: given.error.as_ref().map(error),
        actual_lrp_group: given.actual_lrp_group.as_ref().map(group),
    };
    EvacuationResponse |given| m::EvacuationResponse {
        error: given.error.as_ref().map(error),
        keep_container: given.keep_container,
    };
    DesiredLrpResponse |given| m::DesiredLrpResponse {
        error: given.error.as_ref().map(error),
        desired_lrp: given.desired_lrp.map(desired_lrp),
    };
    DesiredLrpSchedulingInfoResponse |given| m::DesiredLrpSchedulingInfoByProcessGuidResponse {
        error: given.error.as_ref().map(error),
        desired_lrp_scheduling_info: given.info.map(scheduling_info),
    };
    StartTaskResponse |given| m::StartTaskResponse {
        error: given.error.as_ref().map(error),
        should_start: given.should_start,
    };
    TaskResponse |given| m::TaskResponse {
        error: given.error.as_ref().map(error),
        task: given.task.as_deref().map(task),
    };
}

/// Declares answers that are lists: they are written entry by entry, and only their error is written whole.
macro_rules! lists {
    ($($reply:ty),* $(,)?) => {
        $( impl DiegoReply for $reply {
            fn into_diego(self) -> Vec<u8> {
                LifecycleResponse { error: self.error }.into_diego()
            }
        } )*
    };
}

lists! {
    ActualLrpsResponse, ActualLrpGroupsResponse, DesiredLrpsResponse,
    DesiredLrpSchedulingInfosResponse, TasksResponse,
}

impl ListEntry for &DesiredLrp {
    fn put_diego(self, out: &mut Vec<u8>) {
        Writer(out).desired_lrp(self);
    }
}

impl ListEntry for &Task {
    fn put_diego(self, out: &mut Vec<u8>) {
        Writer(out).task(self);
    }
}
