//! `volvox stop`: removes an app, or stops one instance so that another takes its place.

use serde_json::json;
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::api::{LifecycleResponse, ProcessGuidRequest, RetireActualLrpRequest};

use crate::Context;
use crate::args::StopArgs;
use crate::client::Client;
use crate::error::Failure;
use crate::wait;

pub(super) fn run(context: &mut Context, args: &StopArgs) -> Result<(), Failure> {
    let client = context.client()?;
    match args.index {
        Some(index) => retire(context, &client, args, index),
        None => remove(context, &client, args),
    }
}

fn remove(context: &mut Context, client: &Client, args: &StopArgs) -> Result<(), Failure> {
    let app = &args.app;
    let request = ProcessGuidRequest { process_guid: app.clone() };
    let _: LifecycleResponse = client
        .call("/v1/desired_lrp/remove", &request)
        .map_err(|failure| failure.of_app(&args.app))?;
    let out = &mut context.out;
    if out.is_json() {
        out.entry(&json!({"app": app, "action": "removed"}))?;
    } else {
        out.line(&format!("{app} removed"))?;
    }
    if args.waiting.wait {
        wait::for_end(client, out, app, args.waiting.limit)?;
    }
    Ok(())
}

fn retire(
    context: &mut Context,
    client: &Client,
    args: &StopArgs,
    index: u32,
) -> Result<(), Failure> {
    let app = &args.app;
    let deployment = client.deployment(app)?;
    if index >= deployment.instances {
        let count = deployment.instances;
        return Err(Failure::not_found(format!("{app} has no instance {index}: it has {count}"))
            .hint("they are counted from 0"));
    }
    let actual_lrp_key = LrpKey {
        process_guid: app.clone(),
        index,
        domain: deployment.domain.clone(),
        definition_id: None,
    };
    let request = RetireActualLrpRequest { actual_lrp_key };
    let _: LifecycleResponse = client.call("/v1/actual_lrps/retire", &request)?;
    let out = &mut context.out;
    if out.is_json() {
        out.entry(&json!({"app": app, "index": index, "action": "retired"}))?;
    } else {
        out.line(&format!("{app}/{index} is stopped; another takes its place"))?;
    }
    if args.waiting.wait {
        wait::for_app(client, out, app, None, args.waiting.limit)?;
    }
    Ok(())
}
