//! `volvox cancel`, `promote`, `pause`, `resume`: an update that is under way.

use serde_json::json;
use volvox_protocol::api::{LifecycleResponse, ProcessGuidRequest};
use volvox_protocol::id::ProcessGuid;

use crate::Context;
use crate::args::{AppArgs, PauseArgs, Waiting};
use crate::client::Client;
use crate::error::Failure;
use crate::wait;

pub(super) fn cancel(context: &mut Context, args: &AppArgs) -> Result<(), Failure> {
    order(
        context,
        &args.app,
        Some(args.waiting),
        "/v1/desired_lrp/cancel_update",
        "cancelled",
        "goes back",
    )
}

pub(super) fn promote(context: &mut Context, args: &AppArgs) -> Result<(), Failure> {
    order(
        context,
        &args.app,
        Some(args.waiting),
        "/v1/lrp_deployment/promote",
        "promoted",
        "goes on",
    )
}

pub(super) fn pause(context: &mut Context, args: &PauseArgs) -> Result<(), Failure> {
    order(
        context,
        &args.app,
        None,
        "/v1/lrp_deployment/pause",
        "paused",
        "takes up no more instances",
    )
}

pub(super) fn resume(context: &mut Context, args: &AppArgs) -> Result<(), Failure> {
    order(context, &args.app, Some(args.waiting), "/v1/lrp_deployment/resume", "resumed", "goes on")
}

fn order(
    context: &mut Context,
    app: &ProcessGuid,
    waiting: Option<Waiting>,
    route: &str,
    action: &str,
    words: &str,
) -> Result<(), Failure> {
    let client: Client = context.client()?;
    let request = ProcessGuidRequest { process_guid: app.clone() };
    let done: Result<LifecycleResponse, Failure> = client.call(route, &request);
    done.map_err(|failure| failure.of_app(app))?;
    let out = &mut context.out;
    if out.is_json() {
        out.entry(&json!({"app": app, "action": action}))?;
    } else {
        out.line(&format!("the update of {app} {words}"))?;
    }
    match waiting.filter(|waiting| waiting.wait) {
        Some(waiting) => wait::for_app(&client, out, app, None, waiting.limit),
        None => Ok(()),
    }
}
