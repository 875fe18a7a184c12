//! Which container is meant by who asks for a log or a terminal, and the way to it.

use std::time::Duration;

use hyper::StatusCode;
use volvox_mesh::request::{AskError, RpcRefusal, StreamingRequest};
use volvox_mesh::transport::stream::{FrameReader, FrameWriter};
use volvox_protocol::actual_lrp::{ActualLrp, Presence};
use volvox_protocol::id::{CellId, ProcessGuid, TaskGuid};

use super::Api;
use super::reply::ApiFailure;
use crate::bbs::state::Records;

/// How long a cell has to open a stream.
const OPEN_WITHIN: Duration = Duration::from_secs(10);

/// How often it is looked whether a cell is still there.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What the caller has said of it.
#[derive(Debug, Clone, Default)]
pub(super) struct TargetQuery {
    pub(super) process_guid: String,
    pub(super) index: Option<u32>,
    pub(super) instance_guid: String,
    pub(super) task_guid: String,
}

/// A container on a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) cell: CellId,
    /// The guid of the instance or the task.
    pub(super) container: String,
    pub(super) index: u32,
}

/// The containers that are meant, the one that serves first. At least one.
pub(super) fn find(records: &Records, wanted: &TargetQuery) -> Result<Vec<Target>, ApiFailure> {
    match (wanted.process_guid.as_str(), wanted.task_guid.as_str()) {
        ("", "") => Err(ApiFailure::field("process_guid", "name a process, or a task_guid")),
        (process, "") => {
            let guid = ProcessGuid::new(process)
                .map_err(|error| ApiFailure::field("process_guid", error.to_string()))?;
            instances(records, &guid, wanted)
        }
        ("", task) => {
            let guid = TaskGuid::new(task)
                .map_err(|error| ApiFailure::field("task_guid", error.to_string()))?;
            let (_, task) = records
                .task(&guid)
                .ok_or_else(|| ApiFailure::not_found(&format!("task {guid}")))?;
            let cell = task.cell_id.clone().ok_or_else(|| {
                not_on_a_cell(&format!("task {guid} is on no cell: it waits, or has ended"))
            })?;
            Ok(vec![Target { cell, container: guid.to_string(), index: 0 }])
        }
        _ => Err(ApiFailure::field("task_guid", "name a process or a task, not both")),
    }
}

fn instances(
    records: &Records,
    guid: &ProcessGuid,
    wanted: &TargetQuery,
) -> Result<Vec<Target>, ApiFailure> {
    let all = records.process(guid).map(|process| process.instances()).unwrap_or_default();
    let is_there = |lrp: &ActualLrp| {
        let guid = lrp.instance().map(|it| it.instance_guid.as_str());
        wanted.index.is_none_or(|index| lrp.index == index)
            && (wanted.instance_guid.is_empty() || guid == Some(wanted.instance_guid.as_str()))
    };
    let mut meant: Vec<&ActualLrp> =
        all.iter().map(|slot| &*slot.lrp).filter(|lrp| is_there(lrp)).collect();
    if meant.is_empty() {
        let of = match (wanted.instance_guid.as_str(), wanted.index) {
            ("", None) => format!("an instance of {guid}"),
            ("", Some(index)) => format!("instance {index} of {guid}"),
            (instance, _) => format!("instance {instance} of {guid}"),
        };
        return Err(ApiFailure::not_found(&of));
    }
    // Of two at an index, the one that runs and is not on its way out.
    meant.sort_by_key(|lrp| {
        (lrp.index, !lrp.state.is_running(), lrp.presence != Presence::Ordinary)
    });
    let on_cells: Vec<Target> = meant.iter().filter_map(|lrp| target(lrp)).collect();
    if on_cells.is_empty() {
        let state = meant[0].state.name();
        let index = meant[0].index;
        return Err(not_on_a_cell(&format!(
            "instance {index} of {guid} is {state}: on no cell now"
        )));
    }
    Ok(on_cells)
}

fn target(lrp: &ActualLrp) -> Option<Target> {
    let instance = lrp.instance()?;
    let container = instance.instance_guid.to_string();
    Some(Target { cell: instance.cell_id.clone(), container, index: lrp.index })
}

fn not_on_a_cell(message: &str) -> ApiFailure {
    ApiFailure::new(StatusCode::CONFLICT, "NotOnCell", message)
}

/// Opens a stream to a cell.
pub(super) async fn open<R: StreamingRequest + 'static>(
    api: &Api,
    cell: &CellId,
    request: &R,
) -> Result<(FrameReader, FrameWriter), ApiFailure>
where
    R::Reply: Send + 'static,
{
    let unreachable = |why: &str| {
        ApiFailure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "CellUnreachable",
            format!("cell {cell} cannot be reached: {why}"),
        )
    };
    let cells = api.cells.as_ref().ok_or_else(|| unreachable("there is no mesh"))?;
    let member = cells.member(cell).ok_or_else(|| unreachable("it is not there"))?;
    match cells.mesh().converse(member, request, OPEN_WITHIN).await {
        Ok((_, reader, writer)) => Ok((reader, writer)),
        Err(AskError::Refused(RpcRefusal::Busy)) => {
            Err(ApiFailure::busy(format!("too many streams of cell {cell} are open: try again")))
        }
        Err(AskError::Refused(RpcRefusal::Unsupported)) => {
            Err(unreachable("its release does not know this"))
        }
        Err(AskError::Refused(RpcRefusal::Malformed(rule))) => Err(ApiFailure::invalid(rule)),
        Err(AskError::Refused(RpcRefusal::Failed(why))) => Err(not_on_a_cell(&why)),
        Err(error) => Err(unreachable(&error.to_string())),
    }
}

/// Returns when a cell is not there any more, which the mesh finds sooner than a connection ends.
pub(super) async fn until_missing(api: &Api, cell: &CellId) {
    let mut look = tokio::time::interval(LOOK_AGAIN);
    let is_there = || api.cells.as_ref().is_some_and(|cells| cells.member(cell).is_some());
    while is_there() {
        look.tick().await;
    }
}
