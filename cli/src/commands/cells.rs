//! `volvox cells`: the machines of the fleet.

use volvox_host::clock::wall;
use volvox_protocol::api::{CellState, CellStatesResponse, NoRequest};
use volvox_protocol::time::span;

use crate::Context;
use crate::client::Client;
use crate::error::Failure;
use crate::output::{Cell, Table};

pub(super) fn run(context: &mut Context) -> Result<(), Failure> {
    let states = states(&context.client()?)?;
    context.out.show(&states, |out| out.table(&table(&states.cells)))?;
    match hold(&states) {
        Some(held) if !context.out.is_json() => context.out.note(&held),
        _ => Ok(()),
    }
}

pub(super) fn states(client: &Client) -> Result<CellStatesResponse, Failure> {
    client.call("/v1/cells/states", &NoRequest {})
}

/// What is said of a hold.
pub(super) fn hold(states: &CellStatesResponse) -> Option<String> {
    let until = states.held_until?;
    let left = span::show(until.since(wall()));
    let cells = states.held_cells;
    Some(format!(
        "{cells} cells vanished together: what was on them is not replaced for {left} \
         (`volvox hold release` replaces it now)"
    ))
}

pub(super) fn table(cells: &[CellState]) -> Table {
    let mut table = Table::new(&[
        "CELL",
        "ZONE",
        "STATE",
        "INSTANCES",
        "TASKS",
        "STARTING",
        "MEMORY FREE",
        "DISK FREE",
        "CONTAINERS FREE",
    ]);
    for cell in cells {
        let state = match (cell.evacuating, cell.healthy) {
            (true, _) => "evacuating",
            (false, true) => "ready",
            (false, false) => "unhealthy",
        };
        let of = |free: u32, total: u32| format!("{} of {}", size(free), size(total));
        table.row([
            cell.cell_id.as_str().into(),
            cell.zone.clone().into(),
            Cell::state(state),
            cell.instances.to_string().into(),
            cell.tasks.to_string().into(),
            cell.starting.to_string().into(),
            of(cell.free.memory_mb, cell.total.memory_mb).into(),
            of(cell.free.disk_mb, cell.total.disk_mb).into(),
            format!("{} of {}", cell.free.containers, cell.total.containers).into(),
        ]);
    }
    table
}

/// Megabytes as people say them.
fn size(megabytes: u32) -> String {
    let tenths = |unit: u32, name: &str| {
        let (whole, tenth) = (megabytes / unit, megabytes % unit * 10 / unit);
        if tenth == 0 { format!("{whole}{name}") } else { format!("{whole}.{tenth}{name}") }
    };
    match megabytes {
        0..1_024 => format!("{megabytes}M"),
        1_024..1_048_576 => tenths(1_024, "G"),
        _ => tenths(1_048_576, "T"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_shown_with_their_room() {
        let room = |memory_mb: u32| json!({"memory_mb": memory_mb, "disk_mb": 2_621_440, "containers": 250});
        let cell = |id: &str, evacuating: bool, healthy: bool| -> CellState {
            serde_json::from_value(json!({
                "cell_id": id, "zone": "z1", "total": room(65_536), "free": room(1_536), "starting": 1,
                "evacuating": evacuating, "healthy": healthy, "instances": 12, "tasks": 0,
            }))
            .unwrap()
        };
        let cells = [cell("a", false, true), cell("bb", true, true), cell("c", false, false)];
        let expected = "\
CELL  ZONE  STATE       INSTANCES  TASKS  STARTING  MEMORY FREE  DISK FREE     CONTAINERS FREE
a     z1    ready       12         0      1         1.5G of 64G  2.5T of 2.5T  250 of 250
bb    z1    evacuating  12         0      1         1.5G of 64G  2.5T of 2.5T  250 of 250
c     z1    unhealthy   12         0      1         1.5G of 64G  2.5T of 2.5T  250 of 250
";
        assert_eq!(table(&cells).render(false, usize::MAX), expected);
    }
}
