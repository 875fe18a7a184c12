//! Cells, as the mesh was last heard to tell of them; and why work is on which of them.

use std::sync::Arc;

use prometheus_client::registry::Registry;
use volvox_protocol::api::{
    CellRequestBody, CellState, CellStatesResponse, CellsResponse, ExplainRequest, ExplainResponse,
    LifecycleResponse, NoRequest,
};
use volvox_protocol::cell::{CellCapacity, CellPresenceJson};
use volvox_protocol::id::{ProcessGuid, TaskGuid};

use super::Api;
use super::access::Role;
use super::metrics::{counter, counters, gauge, whole};
use super::reply::ApiFailure;
use super::route::{self, Route};
use crate::auction::explain::ExplainTarget;
use crate::cells::logic::CellStatus;
use crate::driver::cells::{Cells, OrderError};

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    vec![
        route::read::<NoRequest, CellsResponse>(
            "/v1/cells/list.r1",
            "Cells",
            "The cells that are there.",
            |api, _| {
                let present = present(api);
                let cells = present.iter().map(|cell| CellPresenceJson::from(&*cell.info));
                Ok(CellsResponse { error: None, cells: cells.collect() })
            },
        ),
        route::read::<NoRequest, CellStatesResponse>(
            "/v1/cells/states",
            "CellStates",
            "How each cell is doing, as it last said, and what the board has there.",
            |api, _| Ok(states(api)),
        ),
        route::change::<CellRequestBody, LifecycleResponse, _>(
            "/v1/cells/evacuate",
            "EvacuateCell",
            "Tells a cell to hand its work over to others.",
            |request| request.cell_id.to_string(),
            |api, request| async move {
                let not_there =
                    || ApiFailure::not_found(&format!("cell {}", request.cell_id));
                let cells = api.cells.as_ref().ok_or_else(not_there)?;
                match cells.evacuate(&request.cell_id).await {
                    Ok(()) => Ok(LifecycleResponse { error: None }),
                    Err(OrderError::NotThere(_)) => Err(not_there()),
                    Err(error) => Err(ApiFailure::busy(error.to_string())),
                }
            },
        )
        .with_role(Role::Admin),
        route::change::<NoRequest, LifecycleResponse, _>(
            "/v1/cells/release_hold",
            "ReleaseHold",
            "Has the instances of cells that vanished together replaced now, not when the grace ends.",
            |_| String::new(),
            |api, _| async move {
                if let Some(cells) = &api.cells {
                    cells.release_hold();
                }
                Ok(LifecycleResponse { error: None })
            },
        )
        .with_role(Role::Admin),
        explain(),
    ]
}

/// Asks the auction.
fn explain() -> Route {
    route::ask::<ExplainRequest, ExplainResponse, _>(
        "/v1/auction/explain",
        "Explain",
        "Why an instance or a task is where it is, or nowhere.",
        |api, request| async move {
            let subject = subject(&request)?;
            let forgotten = || ApiFailure::not_found("a round of the auction that was about it");
            let cells = api.cells.as_ref().ok_or_else(forgotten)?;
            let explained = cells.explain(subject).await?.ok_or_else(forgotten)?;
            let explanation = serde_json::to_value(explained)
                .map_err(|error| ApiFailure::busy(error.to_string()))?;
            Ok(ExplainResponse { error: None, explanation })
        },
    )
}

fn subject(request: &ExplainRequest) -> Result<ExplainTarget, ApiFailure> {
    match (request.process_guid.as_str(), request.task_guid.as_str()) {
        ("", "") => Err(ApiFailure::field("process_guid", "name an instance, or a task_guid")),
        (process, "") => ProcessGuid::new(process)
            .map(|process| ExplainTarget::Lrp(process, request.index))
            .map_err(|error| ApiFailure::field("process_guid", error.to_string())),
        ("", task) => TaskGuid::new(task)
            .map(ExplainTarget::Task)
            .map_err(|error| ApiFailure::field("task_guid", error.to_string())),
        _ => Err(ApiFailure::field("task_guid", "name an instance or a task, not both")),
    }
}

fn present(api: &Api) -> Vec<CellStatus> {
    api.cells.as_ref().map(Cells::list).unwrap_or_default()
}

fn states(api: &Api) -> CellStatesResponse {
    let records = api.bbs.view().snapshot();
    let cells = present(api).into_iter().map(|cell| {
        let id = &cell.info.cell_id;
        let load = cell.load.as_ref();
        CellState {
            cell_id: id.clone(),
            zone: cell.info.zone.clone(),
            total: cell.info.capacity,
            free: load.map_or_else(CellCapacity::default, |load| load.free),
            starting: load.map_or(0, |load| load.starting_containers),
            evacuating: load.is_some_and(|load| load.evacuating),
            healthy: load.is_some_and(|load| load.healthy),
            instances: count(records.instances_on(id).count()),
            tasks: count(records.tasks_on(id).count()),
        }
    });
    let holding = api.cells.as_ref().and_then(Cells::holding);
    CellStatesResponse {
        error: None,
        cells: cells.collect(),
        held_until: holding.as_ref().map(|holding| holding.until),
        held_cells: holding.map_or(0, |holding| count(holding.cells)),
    }
}

fn count(many: usize) -> u32 {
    u32::try_from(many).unwrap_or(u32::MAX)
}

/// What is counted of cells.
pub(super) fn metrics(registry: &mut Registry, cells: &Cells) {
    gauge(registry, "cells_present", "Cells that are there", whole(cells.list().len()));
    let held = cells.holding().map_or(0, |holding| holding.cells);
    gauge(registry, "cells_held", "Cells that vanished and are not replaced yet", whole(held));
    let settled = i64::from(cells.is_settled());
    gauge(registry, "cells_settled", "Whether all cells that are there were heard", settled);
    let waiting = whole(cells.orders_waiting());
    gauge(registry, "cell_orders_waiting", "Orders to cells that wait to be sent", waiting);
    let counts = cells.counters();
    let requests =
        counts.requests.iter().map(|((kind, result), n)| (format!("{kind}_{result}"), *n));
    counters(registry, "cell_requests", "Requests of cells, by kind and result", requests);
    let orders = counts.orders.iter().map(|(kind, n)| ((*kind).to_owned(), *n));
    counters(registry, "cell_orders", "Orders that cells have answered, by kind", orders);
    for (name, help, value) in [
        ("cell_reports", "Reports of cells that were served", counts.reports),
        ("cell_syncs_ordered", "Syncs because of a lasting difference", counts.mismatches),
        ("cell_requests_busy", "Questions of cells refused as too many", counts.refused_busy),
        (
            "cell_impostors",
            "Questions in the name of another cell, all refused",
            counts.refused_impostors,
        ),
        ("cell_messages_failed", "Messages that cells did not answer", counts.messages_failed),
        ("cell_orders_lost", "Orders that were lost; they are repeated", counts.orders_lost),
        ("cell_work_refused", "Pieces of work that cells refused", counts.work_refused),
        ("cells_came", "Cells that came", counts.cells_came),
        ("cells_went", "Cells that went", counts.cells_went),
        ("cell_holds", "Times that the loss of many cells was held", counts.holds),
    ] {
        counter(registry, name, help, value);
    }
}

/// The parts of the cells' side that must be there for calls to be served. Whether cells are there is
/// the fleet's state, not ours: it is told, and does not count.
pub(super) fn parts(cells: &Cells) -> Vec<(&'static str, Result<String, String>)> {
    let present = cells.list().len();
    let settled = if cells.is_settled() { "all heard" } else { "still listening" };
    let mut parts = vec![("cells", Ok(format!("{present} present, {settled}")))];
    if let Some(holding) = cells.holding() {
        let (held, of) = (holding.cells, holding.of);
        parts.push((
            "hold",
            Ok(format!("{held} of {of} cells vanished together: replacement is held")),
        ));
    }
    parts
}

/// The coordinator's own health in the mesh, for who asks in detail.
pub(super) async fn mesh_part(api: &Arc<Api>) -> Option<(&'static str, Result<String, String>)> {
    let status = api.cells.as_ref()?.mesh().status().await;
    Some((
        "mesh",
        match status {
            Ok(status) => Ok(format!("{} members, at {}", status.present, status.address)),
            Err(error) => Err(error.to_string()),
        },
    ))
}
