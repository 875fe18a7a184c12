//! `volvox evacuate`: a cell hands its work over, as before it is taken down.

use serde_json::json;
use volvox_protocol::api::{CellRequestBody, LifecycleResponse};
use volvox_protocol::time::span;

use super::cells;
use crate::Context;
use crate::args::EvacuateArgs;
use crate::error::{Code, Failure};
use crate::wait::Patience;

pub(super) fn run(context: &mut Context, args: &EvacuateArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let cell = &args.cell;
    let request = CellRequestBody { cell_id: cell.clone() };
    let done: Result<LifecycleResponse, Failure> = client.call("/v1/cells/evacuate", &request);
    done.map_err(|failure| {
        failure.hint_for(Code::NotFound, "`volvox cells` lists those that are there")
    })?;
    let out = &mut context.out;
    if out.is_json() {
        out.entry(&json!({"cell": cell, "action": "evacuating"}))?;
    } else {
        out.line(&format!("{cell} hands its work over"))?;
    }
    if !args.waiting.wait {
        return Ok(());
    }
    let mut patience = Patience::new(args.waiting.limit);
    let mut last = None;
    loop {
        let looked = patience.look(cells::states(&client))?;
        // A cell that has gone has nothing left.
        let left = looked.map(|states| {
            let state = states.cells.into_iter().find(|state| state.cell_id == *cell);
            state.map_or((0, 0), |state| (state.instances, state.tasks))
        });
        if let Some(left) = left.filter(|left| last != Some(*left)) {
            last = Some(left);
            let (instances, tasks) = left;
            if out.is_json() {
                out.entry(&json!({"cell": cell, "instances": instances, "tasks": tasks}))?;
            } else {
                out.line(&format!("{cell}: {instances} instances and {tasks} tasks are left"))?;
                out.finish()?;
            }
            if left == (0, 0) {
                return Ok(());
            }
            patience.soon();
        }
        if !patience.pause() {
            let span = span::show(args.waiting.limit.timeout);
            return Err(Failure::waited(format!("{cell} is not empty after {span}")).hint(
                format!("it goes on without us: `volvox ps --cell {cell}` shows what is left"),
            ));
        }
    }
}
