//! `volvox ps`: instances.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use volvox_host::clock::wall;
use volvox_protocol::actual_lrp::{ActualLrp, LrpState, NetInfo, PreferredAddress, Presence};
use volvox_protocol::api::ActualLrpsRequest;
use volvox_protocol::time::Timestamp;

use crate::Context;
use crate::args::PsArgs;
use crate::client::Client;
use crate::error::Failure;
use crate::output::{Cell, Style, Table, age};
use crate::wait::{FOR_EVER, Patience};

type Instances = Vec<Arc<ActualLrp>>;

pub(super) fn run(context: &mut Context, args: &PsArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let found = find(&client, args)?;
    if !args.watch {
        return context.out.show(&document(&found), |out| out.table(&table(wall(), &found)));
    }
    if context.out.is_terminal() {
        return on_screen(context, &client, args);
    }
    let mut patience = Patience::new(FOR_EVER);
    let mut last = None;
    loop {
        if let Some(found) = patience.look(find(&client, args))? {
            let shown = document(&found);
            if last.as_ref() != Some(&shown) {
                if context.out.is_json() {
                    context.out.entry(&shown)?;
                } else {
                    context.out.table(&table(wall(), &found))?;
                    context.out.line("")?;
                }
                context.out.finish()?;
                last = Some(shown);
            }
        }
        context.out.pause(args.interval)?;
    }
}

fn on_screen(context: &mut Context, client: &Client, args: &PsArgs) -> Result<(), Failure> {
    let mut screen = context.out.screen()?;
    let mut patience = Patience::new(FOR_EVER);
    loop {
        match patience.look(find(client, args))? {
            Some(found) => {
                let head = format!("{} instances at {} · q ends", found.len(), client.place());
                screen.draw(&head, &[table(wall(), &found)])?;
            }
            None => screen.draw(&format!("{} does not answer · q ends", client.place()), &[])?,
        }
        if !screen.wait(args.interval)? {
            return Ok(());
        }
    }
}

fn find(client: &Client, args: &PsArgs) -> Result<Instances, Failure> {
    let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
    let request = ActualLrpsRequest {
        domain: text(args.domain.as_ref().map(AsRef::as_ref)),
        cell_id: text(args.cell.as_ref().map(AsRef::as_ref)),
        ..ActualLrpsRequest::default()
    };
    if args.apps.is_empty() {
        return client.instances(&request);
    }
    let mut found = Vec::new();
    for app in &args.apps {
        let process_guid = app.to_string();
        let its = client.instances(&ActualLrpsRequest { process_guid, ..request.clone() })?;
        if its.is_empty() {
            // One that is scaled to none is there all the same.
            client.deployment(app)?;
        }
        found.extend(its);
    }
    Ok(found)
}

/// What programs read.
pub(super) fn document(found: &Instances) -> Value {
    json!({ "instances": found })
}

/// What people read.
pub(super) fn table(now: Timestamp, found: &Instances) -> Table {
    let mut definitions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for lrp in found {
        let its = definitions.entry(lrp.process_guid.as_str()).or_default();
        if !its.contains(&lrp.definition_id.as_str()) {
            its.push(lrp.definition_id.as_str());
        }
    }
    let several = |lrp: &ActualLrp| definitions[lrp.process_guid.as_str()].len() > 1;
    let mut rows: Vec<&Arc<ActualLrp>> = found.iter().collect();
    rows.sort_by_key(|lrp| (&lrp.process_guid, lrp.index, lrp.since));
    let mut table = Table::new(&[
        "APP",
        "INDEX",
        "STATE",
        "CELL",
        "ADDRESS",
        "SINCE",
        "CRASHES",
        "DEFINITION",
        "NOTE",
    ]);
    for lrp in rows {
        // While an update rolls, a person wants to see which is which.
        let definition = if several(lrp) { lrp.definition_id.as_str() } else { "" };
        table.row([
            lrp.process_guid.as_str().into(),
            lrp.index.to_string().into(),
            state(lrp),
            lrp.cell_id().map_or("-", AsRef::as_ref).into(),
            lrp.running().map_or_else(|| "-".to_owned(), |it| address(&it.net_info)).into(),
            age(now, lrp.since).into(),
            crashes(lrp),
            Cell::new(Style::Dim, definition),
            note(lrp).into(),
        ]);
    }
    table.without_empty("DEFINITION").without_empty("NOTE")
}

fn state(lrp: &ActualLrp) -> Cell {
    Cell::state(lrp.state.name())
}

fn crashes(lrp: &ActualLrp) -> Cell {
    let style = if lrp.crash_count > 0 { Style::Bad } else { Style::Plain };
    Cell::new(style, lrp.crash_count.to_string())
}

/// Where it is reached: the preferred address with its ports.
fn address(net: &NetInfo) -> String {
    let by_instance =
        net.preferred_address == PreferredAddress::Instance && !net.instance_address.is_empty();
    let host = if by_instance { &net.instance_address } else { &net.address };
    let ports: Vec<String> = net
        .ports
        .iter()
        .map(|port| if by_instance { port.container_port } else { port.host_port })
        .map(|port| port.to_string())
        .collect();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
    if ports.is_empty() { host } else { format!("{host}:{}", ports.join(",")) }
}

/// What is not as usual.
fn note(lrp: &ActualLrp) -> String {
    let mut notes = Vec::new();
    match lrp.presence {
        Presence::Ordinary => {}
        Presence::Evacuating => notes.push("evacuating".to_owned()),
        Presence::Suspect => notes.push("its cell is missing".to_owned()),
    }
    if lrp.stopping {
        notes.push("stopping".to_owned());
    }
    match &lrp.state {
        LrpState::Unclaimed { placement_error } if !placement_error.is_empty() => {
            notes.push(placement_error.to_string());
        }
        LrpState::Running(_, running) if !running.routable => notes.push("not ready".to_owned()),
        LrpState::Running(..) | LrpState::Unclaimed { .. } | LrpState::Claimed(_) => {}
        LrpState::Crashed => notes.push(lrp.crash_reason.to_string()),
    }
    notes.join(", ")
}

#[cfg(test)]
mod tests;
