//! `volvox rollback`: back to an earlier definition, as a rolling update of its own.

use serde_json::json;
use volvox_protocol::api::LifecycleResponse;
use volvox_protocol::deployment::RollbackDesiredLrpRequest;

use super::history::before;
use crate::Context;
use crate::args::RollbackArgs;
use crate::error::{Code, Failure};
use crate::wait;

pub(super) fn run(context: &mut Context, args: &RollbackArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let app = &args.app;
    let deployment = client.deployment(app)?;
    if deployment.roll.is_some() {
        return Err(Failure::refused(format!("an update of {app} is under way"))
            .hint(format!("`volvox cancel {app}` takes it back; or wait for its end")));
    }
    let to = match &args.definition {
        Some(definition) => definition.clone(),
        None => before(&deployment).ok_or_else(|| {
            Failure::not_found(format!("{app} has no definition to go back to"))
                .hint(format!("`volvox history {app}` lists what there was"))
        })?,
    };
    let from = &deployment.active_definition_id;
    if to == *from {
        return Err(Failure::refused(format!("{app} is to run {to} already"))
            .hint(format!("`volvox history {app}` lists the others")));
    }
    let request =
        RollbackDesiredLrpRequest { process_guid: app.clone(), definition_id: to.clone() };
    let done: Result<LifecycleResponse, Failure> =
        client.call("/v1/desired_lrp/rollback", &request);
    done.map_err(|failure| {
        failure.hint_for(Code::NotFound, &format!("`volvox history {app}` lists what there is"))
    })?;
    let out = &mut context.out;
    if out.is_json() {
        out.entry(&json!({
            "app": app, "action": "rolled_back", "definition_id": to, "previous_definition_id": from,
        }))?;
    } else {
        out.line(&format!("{app} goes back from {from} to {to}"))?;
    }
    if args.waiting.wait {
        wait::for_app(&client, out, app, Some(&to), args.waiting.limit)?;
    }
    Ok(())
}
