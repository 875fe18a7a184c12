//! `volvox top`: cells and apps, live.

use serde_json::json;
use volvox_protocol::api::CellStatesResponse;

use super::apps::{self, AppRow};
use super::cells;
use crate::Context;
use crate::args::TopArgs;
use crate::client::Client;
use crate::error::Failure;
use crate::wait::{FOR_EVER, Patience};

pub(super) fn run(context: &mut Context, args: &TopArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let (states, lines) = look(&client)?;
    if !context.out.is_terminal() {
        let document = json!({
            "cells": states.cells, "held_until": states.held_until, "held_cells": states.held_cells,
            "apps": lines.iter().map(apps::document).collect::<Vec<_>>(),
        });
        return context.out.show(&document, |out| {
            out.table(&cells::table(&states.cells))?;
            out.line("")?;
            out.table(&apps::table(&lines))
        });
    }
    let mut screen = context.out.screen()?;
    let mut patience = Patience::new(FOR_EVER);
    let mut seen = Some((states, lines));
    loop {
        match &seen {
            Some((states, lines)) => {
                let tables = [cells::table(&states.cells), apps::table(lines)];
                screen.draw(&head(&client, states, lines), &tables)?;
            }
            None => screen.draw(&format!("{} does not answer · q ends", client.place()), &[])?,
        }
        if !screen.wait(args.interval)? {
            return Ok(());
        }
        seen = patience.look(look(&client))?;
    }
}

fn look(client: &Client) -> Result<(CellStatesResponse, Vec<AppRow>), Failure> {
    Ok((cells::states(client)?, apps::lines(client)?))
}

fn head(client: &Client, states: &CellStatesResponse, lines: &[AppRow]) -> String {
    let held = cells::hold(states).map(|held| format!(" · {held}")).unwrap_or_default();
    let (cells, apps) = (states.cells.len(), lines.len());
    format!("{} · {cells} cells · {apps} apps · q ends{held}", client.place())
}
