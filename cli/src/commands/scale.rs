//! `volvox scale`: more instances or fewer.

use serde_json::json;
use volvox_protocol::api::LifecycleResponse;
use volvox_protocol::deployment::{LrpDeploymentUpdate, UpdateLrpDeploymentRequest};

use crate::Context;
use crate::args::ScaleArgs;
use crate::error::Failure;
use crate::output::count;
use crate::wait;

pub(super) fn run(context: &mut Context, args: &ScaleArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let instances = Some(args.instances);
    let request = UpdateLrpDeploymentRequest {
        process_guid: args.app.clone(),
        update: LrpDeploymentUpdate { instances, ..LrpDeploymentUpdate::default() },
    };
    let _: LifecycleResponse = client
        .call("/v1/lrp_deployment/update", &request)
        .map_err(|failure| failure.of_app(&args.app))?;
    let out = &mut context.out;
    if out.is_json() {
        out.entry(&json!({"app": args.app, "action": "scaled", "instances": args.instances}))?;
    } else {
        out.line(&format!("{} scaled to {}", args.app, count(args.instances, "instance")))?;
    }
    if args.waiting.wait {
        wait::for_app(&client, out, &args.app, None, args.waiting.limit)?;
    }
    Ok(())
}
