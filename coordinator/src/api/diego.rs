//! Which routes Diego's own clients know, and how they are told of a failure.

use hyper::Response;
use hyper::header::CONTENT_TYPE;
use volvox_protocol::api::{ApiError, EvacuationResponse};
use volvox_protocol::diego::DiegoReply as _;

use super::encoding::Encoding;
use super::reply::{ApiFailure, Body, full};
use super::route::{ResponseKind, Route};

/// The routes of the BBS. All others are ours, and speak JSON.
const SPOKEN: [&str; 50] = [
    "/v1/ping",
    "/v1/domains/list",
    "/v1/domains/upsert",
    "/v1/cells/list.r1",
    "/v1/actual_lrps/list",
    "/v1/actual_lrps/list_by_process_guids",
    "/v1/actual_lrp_groups/list",
    "/v1/actual_lrp_groups/list_by_process_guid",
    "/v1/actual_lrp_groups/get_by_process_guid_and_index",
    "/v1/actual_lrps/claim",
    "/v1/actual_lrps/start.r1",
    "/v1/actual_lrps/start",
    "/v1/actual_lrps/crash",
    "/v1/actual_lrps/fail",
    "/v1/actual_lrps/remove",
    "/v1/actual_lrps/retire",
    "/v1/actual_lrps/remove_evacuating",
    "/v1/actual_lrps/evacuate_claimed",
    "/v1/actual_lrps/evacuate_crashed",
    "/v1/actual_lrps/evacuate_stopped",
    "/v1/actual_lrps/evacuate_running.r1",
    "/v1/actual_lrps/evacuate_running",
    "/v1/desired_lrps/list.r3",
    "/v1/desired_lrps/get_by_process_guid.r3",
    "/v1/desired_lrps/list.r2",
    "/v1/desired_lrps/get_by_process_guid.r2",
    "/v1/desired_lrp_scheduling_infos/list",
    "/v1/desired_lrp_scheduling_infos/get_by_process_guid",
    "/v1/desired_lrp_routing_infos/list",
    "/v1/desired_lrp/desire.r2",
    "/v1/desired_lrp/update",
    "/v1/desired_lrp/remove",
    "/v1/tasks/list.r3",
    "/v1/tasks/get_by_task_guid.r3",
    "/v1/tasks/list.r2",
    "/v1/tasks/get_by_task_guid.r2",
    "/v1/tasks/desire.r2",
    "/v1/tasks/start",
    "/v1/tasks/cancel",
    "/v1/tasks/fail",
    "/v1/tasks/reject",
    "/v1/tasks/complete",
    "/v1/tasks/resolving",
    "/v1/tasks/delete",
    "/v1/events.r1",
    "/v1/events/tasks.r1",
    "/v1/events/lrp_instances.r1",
    "/v1/events",
    "/v1/events/tasks",
    "/v1/events/lrp_instances",
];

/// Whether this path is one of the BBS's.
pub(crate) fn is_spoken(path: &str) -> bool {
    SPOKEN.contains(&path)
}

/// The calls whose answer says whether a container is to go on running. A cell that reads no "keep" there
/// ends what runs, so a call that was refused says it.
const KEEPING: [&str; 3] =
    ["EvacuateClaimedActualLRP", "EvacuateRunningActualLRP", "EvacuateRunningActualLRP_r0"];

/// The answer that tells of a failure. That to a ping has no place for an error: it says that the board
/// is not there. A stream has none either, and 200 would mean that it is open.
pub(crate) fn told(route: &Route, failure: &ApiFailure, encoding: Encoding) -> Response<Body> {
    if encoding != Encoding::Protobuf {
        return failure.respond(encoding);
    }
    if matches!(route.answer, ResponseKind::Events) {
        let mut response = failure.respond(encoding);
        *response.body_mut() = full("");
        if response.status().is_success() {
            *response.status_mut() = failure.status;
        }
        response.headers_mut().remove(CONTENT_TYPE);
        return response;
    }
    let route = route.name;
    if route == "Ping" {
        let mut response = Response::new(full(""));
        response.headers_mut().insert(CONTENT_TYPE, encoding.content_type());
        return response;
    }
    let mut error = failure.error().clone();
    in_the_bbs_s_words(route, &mut error);
    // Of what the board does not know nothing is to be kept.
    let keep_container = KEEPING.contains(&route) && error.kind != "ResourceNotFound";
    // Where nothing is to be kept these are the bytes of every other answer.
    let told = EvacuationResponse { error: Some(error), keep_container };
    failure.respond_with(encoding, told.into_diego().into())
}

/// Where the BBS calls the same failure something else.
fn in_the_bbs_s_words(route: &str, error: &mut ApiError) {
    match (route, error.kind.as_str()) {
        ("RejectTask", "InvalidStateTransition") => "InvalidRequest".clone_into(&mut error.kind),
        ("DeleteTask", "InvalidStateTransition") => {
            error.message = error.message.replace("to Deleted", "to Resolving");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::routes;
    use super::*;

    #[test]
    fn every_route_of_the_bbs_is_served_and_tried_by_a_client() {
        const CLIENTS: [&str; 4] = [
            include_str!("../../tests/diego/access.rs"),
            include_str!("../../tests/diego/events.rs"),
            include_str!("../../tests/diego/rep.rs"),
            include_str!("../../tests/diego/routes.rs"),
        ];
        let table = routes::table();
        for path in SPOKEN {
            assert!(table.iter().any(|route| route.path == path), "{path} is not served");
            // In quotes, after a verb or alone.
            let tried = [format!("\"{path}\""), format!(" {path}\"")];
            let is_tried = |text: &&str| tried.iter().any(|tried| text.contains(tried.as_str()));
            assert!(CLIENTS.iter().any(is_tried), "no client calls {path}");
        }
    }
}
