//! `volvox hold`: what is not replaced because many cells vanished together.

use serde_json::json;
use volvox_protocol::api::{LifecycleResponse, NoRequest};

use super::cells;
use crate::Context;
use crate::args::HoldCommand;
use crate::error::Failure;

pub(super) fn run(context: &mut Context, command: &HoldCommand) -> Result<(), Failure> {
    let client = context.client()?;
    match command {
        HoldCommand::Show => {
            let states = cells::states(&client)?;
            let told = cells::hold(&states).unwrap_or_else(|| "nothing is held".to_owned());
            let document =
                json!({"held_until": states.held_until, "held_cells": states.held_cells});
            context.out.show(&document, |out| out.line(&told))
        }
        HoldCommand::Release => {
            let held = cells::states(&client)?;
            let _: LifecycleResponse = client.call("/v1/cells/release_hold", &NoRequest {})?;
            let document = json!({"action": "released", "held_cells": held.held_cells});
            context.out.show(&document, |out| match held.held_until {
                None => out.line("nothing was held"),
                Some(_) => out.line(&format!("released: {} cells are replaced", held.held_cells)),
            })
        }
    }
}
