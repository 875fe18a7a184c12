//! The self-test: on a schedule a real container is made, runs a small program that looks at its
//! network, and is taken away again, each within its time. Failing again and again makes the cell
//! unhealthy, so that it gets no work; the first success makes it healthy again.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

#[cfg(test)]
mod tests;

use std::time::Duration;

use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::container::ContainerState;
use volvox_protocol::task::TaskDefinition;
use volvox_protocol::time::Timestamp;

use crate::container::guid::ContainerGuid;
use crate::executor::logic::ContainerView;

/// What the names of its containers begin with.
pub const PREFIX: &str = "self-test-";

/// Its times and counts.
#[derive(Debug, Clone)]
pub struct SelfTestSettings {
    /// How long after one test the next begins.
    pub every: Duration,
    /// ... and after one that failed.
    pub again: Duration,
    /// How long a container may take to be made, to run and to end.
    pub run_within: Duration,
    /// How long it may take to be taken away.
    pub remove_within: Duration,
    /// So many failures in a row make the cell unhealthy.
    pub failures: u32,
}

impl Default for SelfTestSettings {
    fn default() -> Self {
        SelfTestSettings {
            every: Duration::from_secs(600),
            again: Duration::from_secs(10),
            run_within: Duration::from_secs(30),
            remove_within: Duration::from_secs(30),
            failures: 3,
        }
    }
}

/// What is to be done about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelfTestOutput {
    /// Reserve and run a container of that name; if there is no room for it, say [`SelfTest::no_room`].
    Begin(ContainerGuid),
    /// Delete it.
    Delete(ContainerGuid),
    /// The cell is healthy, or is not, from now on.
    Healthy(bool),
    /// A test failed for this reason.
    Failed(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum SelfTestPhase {
    Idle {
        next: Timestamp,
    },
    Running {
        guid: ContainerGuid,
        until: Timestamp,
    },
    Removing {
        guid: ContainerGuid,
        until: Timestamp,
        failed: Option<String>,
    },
    /// It was not taken away in time, which is counted already.
    Stuck {
        guid: ContainerGuid,
        until: Timestamp,
    },
}

/// The self-test of a cell.
#[derive(Debug)]
pub struct SelfTest {
    settings: SelfTestSettings,
    phase: SelfTestPhase,
    failures: u32,
    count: u64,
    seed: u64,
    effects: Vec<SelfTestOutput>,
}

impl SelfTest {
    /// The first test begins at once. `seed` makes the names of this life's containers its own.
    pub fn new(now: Timestamp, settings: SelfTestSettings, seed: u64) -> Self {
        let phase = SelfTestPhase::Idle { next: now };
        SelfTest { settings, phase, failures: 0, count: 0, seed, effects: Vec::new() }
    }

    /// When to call [`SelfTest::poll_outputs`] next.
    pub fn next_wake(&self) -> Timestamp {
        match &self.phase {
            SelfTestPhase::Idle { next } => *next,
            SelfTestPhase::Running { until, .. }
            | SelfTestPhase::Removing { until, .. }
            | SelfTestPhase::Stuck { until, .. } => *until,
        }
    }

    /// How many failed in a row.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A container of this name is so, or gone.
    pub fn saw(&mut self, now: Timestamp, guid: &ContainerGuid, view: Option<&ContainerView>) {
        match (&self.phase, view) {
            (SelfTestPhase::Running { guid: own, .. }, Some(view)) if own == guid => {
                if view.container.state == ContainerState::Completed {
                    let result = &view.container.result;
                    let failed = result.failed.then(|| result.failure_reason.clone());
                    self.remove(now, failed);
                }
            }
            (SelfTestPhase::Running { guid: own, .. }, None) if own == guid => {
                self.ended(now, Some("its container vanished".to_owned()));
            }
            (SelfTestPhase::Removing { guid: own, failed, .. }, None) if own == guid => {
                let failed = failed.clone();
                self.ended(now, failed);
            }
            (SelfTestPhase::Stuck { guid: own, .. }, None) if own == guid => {
                self.phase = SelfTestPhase::Idle { next: now + self.settings.again };
            }
            (
                SelfTestPhase::Idle { .. }
                | SelfTestPhase::Running { .. }
                | SelfTestPhase::Removing { .. }
                | SelfTestPhase::Stuck { .. },
                Some(_),
            ) => self.remove_leftover(guid),
            (
                SelfTestPhase::Idle { .. }
                | SelfTestPhase::Running { .. }
                | SelfTestPhase::Removing { .. }
                | SelfTestPhase::Stuck { .. },
                None,
            ) => {}
        }
    }

    /// An earlier agent was killed in the middle of a test, or a container took too long to go.
    fn remove_leftover(&mut self, guid: &ContainerGuid) {
        let own = match &self.phase {
            SelfTestPhase::Idle { .. } => None,
            SelfTestPhase::Running { guid, .. }
            | SelfTestPhase::Removing { guid, .. }
            | SelfTestPhase::Stuck { guid, .. } => Some(guid),
        };
        let delete = SelfTestOutput::Delete(guid.clone());
        if own != Some(guid) && guid.as_str().starts_with(PREFIX) && !self.effects.contains(&delete)
        {
            self.effects.push(delete);
        }
    }

    /// The cell is full: nothing is tested, and nothing is known.
    pub fn no_room(&mut self, now: Timestamp) {
        self.phase = SelfTestPhase::Idle { next: now + self.settings.every };
    }

    /// It could not even be begun.
    pub fn not_begun(&mut self, now: Timestamp, reason: String) {
        self.ended(now, Some(reason));
    }

    /// What follows.
    pub fn poll_outputs(&mut self, now: Timestamp) -> Vec<SelfTestOutput> {
        match &self.phase {
            SelfTestPhase::Idle { next } if *next <= now => {
                self.count += 1;
                let name = format!("{PREFIX}{:x}-{:x}", self.seed, self.count);
                let guid = volvox_protocol::id::InstanceGuid::new(&name);
                let guid = ContainerGuid::from(guid.expect("letters, digits and dashes"));
                let until = now + self.settings.run_within;
                self.phase = SelfTestPhase::Running { guid: guid.clone(), until };
                self.effects.push(SelfTestOutput::Begin(guid));
            }
            SelfTestPhase::Running { until, .. } if *until <= now => {
                let span = self.settings.run_within;
                self.remove(now, Some(format!("a container did not run and end within {span:?}")));
            }
            // No other is made as long as it is there: they would fill the cell.
            SelfTestPhase::Removing { guid, until, failed } if *until <= now => {
                let span = self.settings.remove_within;
                let told = format!("a container was not taken away within {span:?}");
                let (guid, failed) = (guid.clone(), failed.clone().unwrap_or(told));
                self.count_failure(failed);
                self.effects.push(SelfTestOutput::Delete(guid.clone()));
                let until = now + span.max(self.settings.again);
                self.phase = SelfTestPhase::Stuck { guid, until };
            }
            SelfTestPhase::Stuck { guid, until } if *until <= now => {
                let guid = guid.clone();
                self.count_failure("a container cannot be taken away".to_owned());
                self.effects.push(SelfTestOutput::Delete(guid.clone()));
                let until = now + self.settings.remove_within.max(self.settings.again);
                self.phase = SelfTestPhase::Stuck { guid, until };
            }
            SelfTestPhase::Idle { .. }
            | SelfTestPhase::Running { .. }
            | SelfTestPhase::Removing { .. }
            | SelfTestPhase::Stuck { .. } => {}
        }
        std::mem::take(&mut self.effects)
    }

    fn remove(&mut self, now: Timestamp, failed: Option<String>) {
        let SelfTestPhase::Running { guid, .. } = &self.phase else { return };
        let guid = guid.clone();
        self.effects.push(SelfTestOutput::Delete(guid.clone()));
        let until = now + self.settings.remove_within;
        self.phase = SelfTestPhase::Removing { guid, until, failed };
    }

    fn ended(&mut self, now: Timestamp, failed: Option<String>) {
        let next = match failed {
            None => {
                if !self.is_healthy() {
                    self.effects.push(SelfTestOutput::Healthy(true));
                }
                self.failures = 0;
                self.settings.every
            }
            Some(reason) => {
                self.count_failure(reason);
                self.settings.again
            }
        };
        self.phase = SelfTestPhase::Idle { next: now + next };
    }

    fn is_healthy(&self) -> bool {
        self.failures < self.settings.failures
    }

    fn count_failure(&mut self, reason: String) {
        let was_healthy = self.is_healthy();
        self.failures = self.failures.saturating_add(1);
        self.effects.push(SelfTestOutput::Failed(reason));
        if was_healthy && !self.is_healthy() {
            self.effects.push(SelfTestOutput::Healthy(false));
        }
    }
}

/// A small program that looks at its own network.
pub(crate) fn test_definition(rootfs: &str) -> TaskDefinition {
    let script = "while read -r name rest; do case $name in eth*) exit 0;; esac; done \
                  </proc/net/route; echo no route >&2; exit 1";
    TaskDefinition {
        rootfs: rootfs.to_owned(),
        memory_mb: 32,
        disk_mb: 16,
        action: Some(Action::Run(Box::new(RunAction {
            path: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            user: "root".to_owned(),
            ..RunAction::default()
        }))),
        ..TaskDefinition::default()
    }
}
