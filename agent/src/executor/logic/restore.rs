//! The depot after a restart of the agent: what was written down, held against what is there.

use crate::container::runtime::RecoveredState;
use crate::container::step::StepEvent;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use volvox_protocol::container::{ContainerState, RunResult};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::time::Timestamp;

use super::{ContainerRun, CreateState, Executor, ExecutorOutput, ExecutorSettings, Txn};
use crate::container::guid::ContainerGuid;
use crate::container::op::ContainerOp;
use crate::executor::container_store::{self, Container, ContainerStore, Deletion};
use crate::executor::steps;
use crate::executor::timers::Timers;
use crate::executor::workload::Workload;

/// What was written down of one container, read back.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct SavedContainer {
    container: Container,
    held: ContainerRun,
}

impl SavedContainer {
    #[cfg(test)]
    pub(super) fn of(container: Container, held: ContainerRun) -> Self {
        SavedContainer { container, held }
    }

    /// Which container it is about.
    pub fn guid(&self) -> &ContainerGuid {
        &self.container.guid
    }

    /// Whether the machine may have something of it. If not, whatever it has is of nobody: the disk
    /// was full when more was to be written down.
    pub fn may_exist(&self) -> bool {
        self.container.state != ContainerState::Reserved
    }
}

/// What there is of one container after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecoveredContainer {
    /// What was written down.
    pub saved: SavedContainer,
    /// What it was to do, if it had been told.
    pub work: Option<Workload>,
    /// What the machine has of it.
    pub standing: RecoveredState,
}

impl Executor {
    /// The depot after a restart, and what is to be done now. Containers that the machine has
    /// and nobody wrote down are the runtime's to remove.
    pub fn restore(
        now: Timestamp,
        settings: ExecutorSettings,
        found: Vec<RecoveredContainer>,
    ) -> (Self, Vec<ExecutorOutput>) {
        let containers = found.iter().map(|it| it.saved.container.clone());
        let registry =
            ContainerStore::restore(settings.capacity, settings.reservation_expiry, containers);
        let mut standings = Vec::new();
        let mut held = BTreeMap::new();
        for RecoveredContainer { saved, work, standing } in found {
            let guid = saved.container.guid;
            let mut kept = ContainerRun { work, ..saved.held };
            // The machine may have moved since: its ports lead to the same containers.
            if let (Some(address), Some(network)) = (settings.host_address, &mut kept.network) {
                network.external_address = address;
            }
            held.insert(guid.clone(), kept);
            standings.push((guid, standing));
        }
        let mut depot = Executor { settings, registry, held, timers: Timers::default() };
        let mut turn = Txn::new(now);
        for (guid, standing) in standings {
            depot.recover(&mut turn, &guid, standing);
        }
        let effects = depot.close(turn);
        (depot, effects)
    }

    fn recover(&mut self, turn: &mut Txn, guid: &ContainerGuid, standing: RecoveredState) {
        let Some((state, deletion)) =
            self.registry.container(guid).map(|it| (it.state, it.deletion))
        else {
            return;
        };
        if let Some(held) = self.held.get_mut(guid)
            && matches!(held.making, CreateState::Underway | CreateState::Abandoned)
        {
            // Whoever was making it is gone with the old agent.
            held.making = CreateState::Failed;
        }
        match state {
            ContainerState::Reserved | ContainerState::Completed => {}
            ContainerState::Initializing => self.create_interrupted(turn, guid),
            ContainerState::Created | ContainerState::Running => {
                self.reattach(turn, guid, standing);
            }
        }
        if deletion == Deletion::Underway {
            self.destroy_when_quiet(turn, guid);
        }
    }

    /// Nothing of its work has begun, so it can be tried again.
    fn create_interrupted(&mut self, turn: &mut Txn, guid: &ContainerGuid) {
        let reason = "failed to create container: the agent was restarted";
        let result = RunResult {
            failed: true,
            failure_reason: reason.to_owned(),
            retryable: true,
            stopped: false,
        };
        let _ = self.tell(turn, container_store::StoreInput::Completed(guid.clone(), result));
    }

    fn reattach(&mut self, turn: &mut Txn, guid: &ContainerGuid, standing: RecoveredState) {
        let Some(held) = self.held.get(guid) else { return };
        let Some(tree) = &held.tree else { return };
        if held.finished.is_some() {
            let path = held.work.as_ref().map_or("", Workload::result_file).to_owned();
            return turn.perform(guid, ContainerOp::ReadResult(path));
        }
        let again = tree.resume(turn.now);
        let processes: Vec<_> = tree.processes().collect();
        self.apply_steps(turn, guid, again);
        let (running, exited, is_alive) = match standing {
            RecoveredState::Alive { running, exited } => (running, exited, true),
            RecoveredState::Dead { exited } => (BTreeSet::new(), exited, false),
        };
        if is_alive {
            // Written down as taken in, or a person's, who has gone.
            let is_known = |id: &&u32| processes.iter().any(|step| step.0 == **id);
            for id in exited.keys().filter(|id| !is_known(id)) {
                turn.perform(guid, ContainerOp::ForgetExit(*id));
            }
        }
        for step in processes {
            let exit = exited.get(&step.0).cloned();
            if exit.is_some() || running.contains(&step.0) {
                self.step(turn, guid, steps::StepInput::Event(StepEvent::ProcessStarted(step)));
            }
            match exit {
                Some(_) if mutated(Bug::ForgetsExits) => {}
                Some(exit) => {
                    self.step(turn, guid, steps::StepInput::Event(StepEvent::ProcessExited(exit)))
                }
                // Whether it was about to be started cannot be known: it must not start twice.
                None if is_alive && !running.contains(&step.0) => {
                    let error = "the agent was restarted before the process was".to_owned();
                    self.step(
                        turn,
                        guid,
                        steps::StepInput::Event(StepEvent::SpawnFailed { step, error }),
                    );
                }
                None => {}
            }
        }
        if !is_alive {
            self.gone(turn, guid);
        }
    }
}
