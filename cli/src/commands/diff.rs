//! `volvox diff`: what differs between two definitions of an app.

use serde_json::json;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::id::DefinitionId;

use super::apply::show_changes;
use super::history::{before, find};
use crate::Context;
use crate::args::DiffArgs;
use crate::diff;
use crate::error::{Code, Failure};

pub(super) fn run(context: &mut Context, args: &DiffArgs) -> Result<(), Failure> {
    let app = &args.app;
    let deployment = context.client()?.deployment(app)?;
    let from = match &args.from {
        Some(id) => id.clone(),
        None => before(&deployment).ok_or_else(|| {
            Failure::not_found(format!("{app} has one definition only: nothing to compare it with"))
                .hint("`volvox apply --dry-run -f FILE` compares it with a file")
        })?,
    };
    let to = args.to.clone().unwrap_or_else(|| deployment.active_definition_id.clone());
    let definition = |id: &DefinitionId| known(&deployment, id);
    let changes = diff::diff(&json!(definition(&from)?), &json!(definition(&to)?));
    let document = json!({"app": app, "from": from, "to": to, "changes": changes});
    context.out.show(&document, |out| {
        out.line(&format!("{app}: {from} → {to}"))?;
        show_changes(out, &changes)
    })?;
    if args.exit_code && !changes.is_empty() {
        let count = changes.len();
        return Err(Failure::new(Code::Failed, format!("{count} keys differ")));
    }
    Ok(())
}

fn known(deployment: &LrpDeployment, id: &DefinitionId) -> Result<LrpDefinition, Failure> {
    let app = &deployment.process_guid;
    find(deployment, id).ok_or_else(|| {
        Failure::not_found(format!("{app} has no definition {id}"))
            .hint(format!("`volvox history {app}` lists them"))
    })
}
