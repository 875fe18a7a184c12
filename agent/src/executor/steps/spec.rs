//! What a step tree is built from, and how the tree looks.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::{Action, SerialAction};
use volvox_protocol::definition::{CheckDefinition, LrpDefinition, Sidecar, exclusive_downloads};
use volvox_protocol::task::TaskDefinition;

use super::group::OnEnd;
use super::health::{Liveness, Readiness};
use super::monitor::Monitor;
use super::step::{Step, StepScope, group, own_source, serial};
use crate::executor::lifecycle_log::log_source;

/// A cell's spans. The same for all of its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepSettings {
    /// Between SIGTERM and SIGKILL.
    pub graceful_shutdown_interval: Duration,
    /// Between two checks of what is not healthy yet.
    pub unhealthy_interval: Duration,
    /// Between two checks of what is healthy, unless the check says otherwise.
    pub healthy_interval: Duration,
    /// How long a check may take, unless it says otherwise.
    pub check_timeout: Duration,
}

impl Default for StepSettings {
    fn default() -> Self {
        StepSettings {
            graceful_shutdown_interval: Duration::from_secs(10),
            unhealthy_interval: Duration::from_millis(500),
            healthy_interval: Duration::from_secs(30),
            check_timeout: Duration::from_secs(1),
        }
    }
}

/// What is to run in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepSpec {
    /// Runs first, and must succeed.
    pub setup: Option<Action>,
    /// What it is all about. Without one there is nothing to do, and that succeeds.
    pub action: Option<Action>,
    /// Run again and again: while it succeeds the container is healthy.
    pub monitor: Option<Action>,
    /// Checks from outside, which replace the monitor, even when there are none in it.
    pub check_definition: Option<CheckDefinition>,
    /// Processes beside the action.
    pub sidecars: Vec<Sidecar>,
    /// How long it may take to become healthy. Zero: as long as it wants.
    pub start_timeout: Duration,
    /// The source of log lines that name none.
    pub log_source: String,
}

impl StepSpec {
    /// The steps of an instance. Exclusive layers are fetched before its own setup.
    pub fn of_lrp(definition: &LrpDefinition) -> Self {
        let layers =
            exclusive_downloads(&definition.image_layers, &definition.legacy_download_user);
        let setup = match (layers, definition.setup.clone()) {
            (Some(layers), Some(setup)) => {
                let actions = vec![layers, setup];
                Some(Action::Serial(Box::new(SerialAction { actions, log_source: String::new() })))
            }
            (layers, setup) => layers.or(setup),
        };
        let old_timeout_ms = u64::from(definition.deprecated_start_timeout_s) * 1_000;
        let start_timeout_ms = match definition.start_timeout_ms {
            0 => old_timeout_ms,
            given => given,
        };
        StepSpec {
            setup,
            action: definition.action.clone(),
            monitor: definition.monitor.clone(),
            check_definition: definition.check_definition.clone(),
            sidecars: definition.sidecars.clone(),
            start_timeout: Duration::from_millis(start_timeout_ms),
            log_source: definition.log_source.clone(),
        }
    }

    /// The steps of a task. Exclusive layers are all of its setup.
    pub fn of_task(definition: &TaskDefinition) -> Self {
        StepSpec {
            setup: exclusive_downloads(&definition.image_layers, &definition.legacy_download_user),
            action: definition.action.clone(),
            log_source: definition.log_source.clone(),
            ..StepSpec::default()
        }
    }

    pub(super) fn root(&self) -> Step {
        let place = StepScope { source: log_source(&self.log_source), captured: false };
        let setup = self.setup.iter().map(|setup| place.step(setup));
        serial(setup.chain([self.long_lived(place)]).collect())
    }

    pub(super) fn readiness(&self) -> Option<Readiness> {
        let checks = self.check_definition.as_ref().filter(|it| !it.readiness_checks.is_empty())?;
        Some(Readiness::new(&checks.readiness_checks, self.check_source(checks)))
    }

    /// The action, with all that lives as long as it does.
    fn long_lived<'a>(&'a self, place: StepScope<'a>) -> Step {
        let action = self.action.as_ref().map_or_else(|| serial(Vec::new()), |it| place.step(it));
        let health = self.health();
        let sidecars: Vec<_> = self.sidecars.iter().filter_map(|it| it.action.as_ref()).collect();
        if health.is_none() && sidecars.is_empty() {
            return action;
        }
        // Only with somebody to look after a daemon can there be one.
        let on_end = if health.is_some() { OnEnd::MayBecomeDaemon } else { OnEnd::CancelsOthers };
        let sidecars = sidecars.into_iter().map(|it| (place.step(it), OnEnd::CancelsOthers));
        let health = health.map(|it| (it, OnEnd::CancelsOthers));
        group([(action, on_end)].into_iter().chain(sidecars).chain(health).collect())
    }

    fn health(&self) -> Option<Step> {
        match (&self.check_definition, &self.monitor) {
            (Some(checks), _) if checks.checks.is_empty() => None,
            (Some(checks), _) => {
                let source = self.check_source(checks);
                let liveness = Liveness::new(&checks.checks, source, self.start_timeout);
                Some(Step::Liveness(Box::new(liveness)))
            }
            (None, Some(monitor)) => {
                let source = self.source(own_source(monitor));
                let monitor = Monitor::new(monitor.clone(), source, self.start_timeout);
                Some(Step::Monitor(Box::new(monitor)))
            }
            (None, None) => None,
        }
    }

    fn check_source(&self, checks: &CheckDefinition) -> String {
        self.source(&checks.log_source)
    }

    fn source(&self, own: &str) -> String {
        if own.is_empty() { log_source(&self.log_source) } else { own }.to_owned()
    }
}
