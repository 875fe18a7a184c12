//! One container as the registry knows it, and the one place where its state changes.

use std::fmt;

use serde::{Deserialize, Serialize};
use volvox_protocol::container::{ContainerState, RunResult};
use volvox_protocol::id::{InstanceGuid, TaskGuid};
use volvox_protocol::time::Timestamp;

use super::Refusal;
use crate::executor::resources::ContainerResources;

/// The name of a container: the guid of its instance, or of its task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContainerGuid(InstanceGuid);

impl ContainerGuid {
    /// The name's text: letters, digits, `_` and `-`, so it is safe as the name of a file.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl From<InstanceGuid> for ContainerGuid {
    fn from(guid: InstanceGuid) -> Self {
        ContainerGuid(guid)
    }
}

impl From<&TaskGuid> for ContainerGuid {
    fn from(guid: &TaskGuid) -> Self {
        ContainerGuid(InstanceGuid::new(guid.as_str()).expect("both admit the same texts"))
    }
}

impl fmt::Display for ContainerGuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
    pub(super) fn advance(&mut self, now: Timestamp, to: ContainerState) -> Result<(), Refusal> {
        if !self.state.may_become(to) {
            let guid = self.guid.clone();
            return Err(Refusal::InvalidTransition { guid, from: self.state, to });
        }
        self.state = to;
        self.since = now;
        Ok(())
    }

    /// The end. A container that was told to stop has not failed, whatever its processes say; and
    /// only one that was never made can be tried again without doing something twice.
    pub(super) fn complete(&mut self, now: Timestamp, given: RunResult) -> Result<(), Refusal> {
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
