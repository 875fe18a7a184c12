//! One container as the registry knows it, and the one place where its state changes.

use serde::{Deserialize, Serialize};
use volvox_protocol::container::{ContainerState, RunResult};
use volvox_protocol::time::Timestamp;

use super::ExecutorRefusal;
use crate::container::guid::ContainerGuid;
use crate::executor::resources::ContainerResources;

/// One container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its name.
    pub guid: ContainerGuid,
    /// How far it has come.
    pub state: ContainerState,
    /// Since when it is in this state.
    pub since: Timestamp,
    /// What it takes of the cell.
    pub resources: ContainerResources,
    /// Whether traffic may go there, once it runs.
    pub routable: bool,
    /// Whether it was told to stop, or taken away before it had ended.
    pub stopped: bool,
    /// Whether it is on its way out.
    pub deletion: Deletion,
    /// How it ended, once it has.
    pub result: RunResult,
}

/// Whether a container is on its way out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Deletion {
    /// Nobody wants it gone.
    #[default]
    NotAsked,
    /// The driver takes it away.
    Underway,
}

impl Container {
    pub(super) fn reserved(
        now: Timestamp,
        guid: ContainerGuid,
        resources: ContainerResources,
    ) -> Self {
        Container {
            guid,
            state: ContainerState::Reserved,
            since: now,
            resources,
            routable: false,
            stopped: false,
            deletion: Deletion::NotAsked,
            result: RunResult::default(),
        }
    }

    /// The next state, if the table allows it.
    pub(super) fn advance(
        &mut self,
        now: Timestamp,
        to: ContainerState,
    ) -> Result<(), ExecutorRefusal> {
        if !self.state.may_become(to) {
            let guid = self.guid.clone();
            return Err(ExecutorRefusal::InvalidTransition { guid, from: self.state, to });
        }
        self.state = to;
        self.since = now;
        Ok(())
    }

    /// The end. A container that was told to stop has not failed, whatever its processes say; and
    /// only one that was never made can be tried again without doing something twice.
    pub(super) fn complete(
        &mut self,
        now: Timestamp,
        given: RunResult,
    ) -> Result<(), ExecutorRefusal> {
        let was_made = self.state != ContainerState::Initializing;
        self.advance(now, ContainerState::Completed)?;
        self.routable = false;
        self.stopped |= given.stopped;
        self.result = if self.stopped {
            RunResult { stopped: true, ..RunResult::default() }
        } else if given.failed {
            RunResult { retryable: given.retryable && !was_made, ..given }
        } else {
            RunResult::default()
        };
        Ok(())
    }
}
