//! What may not be done because it could not be written down. Whoever performs the depot's effects asks
//! here before each deed: the driver, and the simulator.
//!
//! What runs goes on when the disk is full, and what may run again begins. Only a process that may not run
//! twice does not: after a restart of the agent nobody would know that it had begun.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use crate::container::op::OpOutcome;
use crate::container::step::StepEvent;
use std::collections::BTreeSet;

use super::logic::{Executor, ExecutorInput};
use crate::container::guid::ContainerGuid;
use crate::container::op::ContainerOp;
use crate::container::step::StepId;

/// Why a task's process does not begin.
pub const NOT_KEPT: &str = "that it begins cannot be written down: is the disk full?";

/// What was not written down while one list of effects is performed.
#[derive(Debug, Default)]
pub struct WriteAheadGuard {
    not_kept: BTreeSet<ContainerGuid>,
    not_begun: Vec<(ContainerGuid, StepId)>,
}

impl WriteAheadGuard {
    /// How far this container is could not be written down.
    pub fn not_kept(&mut self, guid: ContainerGuid) {
        self.not_kept.insert(guid);
    }

    /// Gives the deed back if it may be done.
    pub fn allow(
        &mut self,
        depot: &Executor,
        guid: &ContainerGuid,
        deed: ContainerOp,
    ) -> Option<ContainerOp> {
        if let ContainerOp::Spawn(order) = &deed
            && self.not_kept.contains(guid)
            && depot.runs_once(guid)
        {
            self.not_begun.push((guid.clone(), StepId(order.id)));
            return None;
        }
        Some(deed)
    }

    /// What the depot is told when all else is performed: these have not begun.
    pub fn into_inputs(self) -> impl Iterator<Item = ExecutorInput> {
        self.not_begun.into_iter().map(|(guid, step)| {
            let failed = StepEvent::SpawnFailed { step, error: NOT_KEPT.to_owned() };
            ExecutorInput::Outcome(guid, OpOutcome::Step(failed))
        })
    }
}
