//! `volvox apps`: what is desired, and how much of it runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use volvox_protocol::actual_lrp::{ActualLrp, Presence};
use volvox_protocol::api::{ActualLrpsRequest, LrpDeploymentsResponse};
use volvox_protocol::deployment::{
    LrpDeployment, LrpDeploymentsRequest, RolloutDirection, RolloutPause,
};

use crate::Context;
use crate::client::Client;
use crate::error::Failure;
use crate::output::{Cell, Style, Table};

/// An app in one line.
pub(super) struct AppRow {
    deployment: Arc<LrpDeployment>,
    running: u32,
    crashes: u32,
}

pub(super) fn run(context: &mut Context) -> Result<(), Failure> {
    let lines = lines(&context.client()?)?;
    let document: Vec<Value> = lines.iter().map(document).collect();
    context.out.show(&json!({ "apps": document }), |out| out.table(&table(&lines)))
}

pub(super) fn lines(client: &Client) -> Result<Vec<AppRow>, Failure> {
    let request = LrpDeploymentsRequest::default();
    let all: LrpDeploymentsResponse = client.call("/v1/lrp_deployments/list", &request)?;
    let instances = client.instances(&ActualLrpsRequest::default())?;
    Ok(counted(all.deployments, &instances))
}

/// An index counts once, however many records it has while an update rolls.
fn counted(deployments: Vec<Arc<LrpDeployment>>, instances: &[Arc<ActualLrp>]) -> Vec<AppRow> {
    let mut by_app: BTreeMap<&str, BTreeMap<u32, (bool, u32)>> = BTreeMap::new();
    for lrp in instances {
        let its = by_app.entry(lrp.process_guid.as_str()).or_default();
        let (runs, crashes) = its.entry(lrp.index).or_default();
        *runs |= lrp.state.is_running() && lrp.presence != Presence::Suspect;
        *crashes = (*crashes).max(lrp.crash_count);
    }
    let none = BTreeMap::new();
    let lines = deployments.into_iter().map(|deployment| {
        let its = by_app.get(deployment.process_guid.as_str()).unwrap_or(&none);
        let wanted = its.range(..deployment.instances);
        let running = wanted.filter(|(_, (runs, _))| *runs).count();
        let crashes = its.values().map(|(_, crashes)| *crashes).sum();
        AppRow { running: u32::try_from(running).unwrap_or(u32::MAX), crashes, deployment }
    });
    lines.collect()
}

/// How far an update has come.
pub(super) fn update(deployment: &LrpDeployment) -> String {
    let Some(roll) = &deployment.roll else { return String::new() };
    let (done, of) = (roll.done(deployment.instances), deployment.instances);
    let way = match roll.order {
        RolloutDirection::Rising => "rolling",
        RolloutDirection::Falling => "going back",
    };
    let pause = match roll.pause {
        None => "",
        Some(RolloutPause::Canary) => ", waits for promotion",
        Some(RolloutPause::Asked) => ", paused",
        Some(RolloutPause::Stalled) => ", stalled",
    };
    format!("{way} {done}/{of}{pause}")
}

pub(super) fn document(line: &AppRow) -> Value {
    let it = &line.deployment;
    json!({
        "name": it.process_guid, "domain": it.domain, "instances": it.instances,
        "running": line.running, "crashes": line.crashes,
        "definition_id": it.active_definition_id,
        "previous_definition_id": it.previous_definition_id(), "update": update(it),
    })
}

pub(super) fn table(lines: &[AppRow]) -> Table {
    let mut table = Table::new(&["APP", "DOMAIN", "RUNNING", "CRASHES", "DEFINITION", "UPDATE"]);
    for line in lines {
        let it = &line.deployment;
        let style = if line.running == it.instances { Style::Good } else { Style::Waiting };
        table.row([
            it.process_guid.as_str().into(),
            it.domain.as_str().into(),
            Cell::new(style, format!("{}/{}", line.running, it.instances)),
            line.crashes.to_string().into(),
            it.active_definition_id.as_str().into(),
            update(it).into(),
        ]);
    }
    table.without_empty("UPDATE")
}
