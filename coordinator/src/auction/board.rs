//! What the auction asks the BBS: where instances are, and whether work is still wanted.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::actual_lrp::{LrpState, Presence};
use volvox_protocol::id::{CellId, DefinitionId, ProcessGuid, TaskGuid};
use volvox_protocol::task::TaskState;

use crate::bbs::state::Records;

/// The records, as far as the auction looks at them.
pub trait Board {
    /// Names every instance of the process that is on a cell: its definition, index and cell.
    fn each_instance(
        &self,
        process: &ProcessGuid,
        tell: &mut dyn FnMut(&DefinitionId, u32, &CellId),
    );

    /// Whether this instance waits for a cell.
    fn wants_lrp(&self, process: &ProcessGuid, definition: &DefinitionId, index: u32) -> bool;

    /// Whether this task waits for a cell.
    fn wants_task(&self, task: &TaskGuid) -> bool;
}

impl Board for Records {
    fn each_instance(
        &self,
        process: &ProcessGuid,
        tell: &mut dyn FnMut(&DefinitionId, u32, &CellId),
    ) {
        for slot in self.process(process).map_or(&[][..], |it| it.instances()) {
            if let Some(cell) = slot.lrp.cell_id() {
                tell(&slot.lrp.definition_id, slot.lrp.index, cell);
            }
        }
    }

    fn wants_lrp(&self, process: &ProcessGuid, definition: &DefinitionId, index: u32) -> bool {
        let slot =
            self.process(process).and_then(|it| it.find(definition, index, Presence::Ordinary));
        slot.is_some_and(|slot| matches!(slot.lrp.state, LrpState::Unclaimed { .. }))
    }

    fn wants_task(&self, task: &TaskGuid) -> bool {
        self.task(task).is_some_and(|(_, task)| task.state == TaskState::Pending)
    }
}
