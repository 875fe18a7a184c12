//! `volvox history`: the definitions of an app, those in use and those that were.

use serde_json::{Value, json};
use volvox_host::clock::wall;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::id::DefinitionId;
use volvox_protocol::time::Timestamp;

use crate::Context;
use crate::args::HistoryArgs;
use crate::error::Failure;
use crate::output::{Cell, Style, Table, age};

/// One definition, and what it is to its app.
struct HistoryRow {
    id: DefinitionId,
    role: &'static str,
    retired_at: Timestamp,
    definition: LrpDefinition,
}

pub(super) fn run(context: &mut Context, args: &HistoryArgs) -> Result<(), Failure> {
    let deployment = context.client()?.deployment(&args.app)?;
    let entries = entries(&deployment);
    let document: Vec<Value> = entries
        .iter()
        .map(|entry| {
            let mut shown = json!({
                "definition_id": entry.id, "role": entry.role, "definition": entry.definition,
            });
            if entry.retired_at != Timestamp::ZERO {
                shown["retired_at"] = json!(entry.retired_at);
            }
            shown
        })
        .collect();
    let document = json!({"app": args.app, "definitions": document});
    context.out.show(&document, |out| {
        let mut table = Table::new(&["DEFINITION", "ROLE", "RETIRED", "ROOTFS", "MEMORY"]);
        for entry in &entries {
            let style = if entry.role == "active" { Style::Good } else { Style::Plain };
            let retired = age(wall(), entry.retired_at);
            table.row([
                entry.id.as_str().into(),
                Cell::new(style, entry.role),
                if retired == "-" { retired } else { format!("{retired} ago") }.into(),
                entry.definition.rootfs.clone().into(),
                format!("{} MB", entry.definition.memory_mb).into(),
            ]);
        }
        out.table(&table)
    })
}

/// The active one, others that instances are made from, then those of the past, the latest first.
fn entries(deployment: &LrpDeployment) -> Vec<HistoryRow> {
    let mut all: Vec<HistoryRow> = deployment
        .definitions
        .iter()
        .map(|(id, definition)| HistoryRow {
            id: id.clone(),
            role: if *id == deployment.active_definition_id {
                "active"
            } else if deployment.previous_definition_id() == Some(id) {
                "previous"
            } else {
                "in use"
            },
            retired_at: Timestamp::ZERO,
            definition: definition.unpack(),
        })
        .collect();
    all.sort_by_key(|entry| entry.role);
    let mut past: Vec<HistoryRow> = deployment
        .history
        .iter()
        .map(|past| HistoryRow {
            id: past.definition_id.clone(),
            role: "past",
            retired_at: past.retired_at,
            definition: past.definition.get(),
        })
        .collect();
    past.sort_by_key(|entry| std::cmp::Reverse(entry.retired_at));
    all.extend(past);
    all
}

/// The definition before the active one: what an update comes from, or what was last retired.
pub(super) fn before(deployment: &LrpDeployment) -> Option<DefinitionId> {
    if let Some(previous) = deployment.previous_definition_id() {
        return Some(previous.clone());
    }
    let in_use = deployment.definitions.iter().map(|(id, _)| id);
    let mut others = in_use.filter(|id| **id != deployment.active_definition_id);
    let past = || deployment.history.iter().max_by_key(|past| past.retired_at);
    others.next().cloned().or_else(|| past().map(|past| past.definition_id.clone()))
}

/// The definition with this id, in use or past.
pub(super) fn find(deployment: &LrpDeployment, id: &DefinitionId) -> Option<LrpDefinition> {
    let in_use = deployment.definitions.get(id).map(|known| known.unpack());
    in_use.or_else(|| deployment.history.get(id).map(|past| past.definition.get()))
}
