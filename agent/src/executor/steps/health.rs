//! Liveness and readiness: the checks of a definition, and the words of both and of the monitor.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::definition::Check;
use volvox_protocol::time::Timestamp;

use super::checks::{CheckSet, CheckSetResult, Pending};
use super::context::StepContext;
use super::error::{StepError, StepResult, cut};
use super::message::{LogStream, StepInput, StepOutput, TimerId};
use crate::container::text;

/// Checks that all must pass once, and then none may fail. Replaces the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Liveness {
    checks: CheckSet,
    source: String,
    /// How long it may take to become healthy. Zero: as long as it wants.
    start_timeout: Duration,
    began: Timestamp,
    start_timer: Option<TimerId>,
    healthy: bool,
    outcome: Option<StepResult>,
}

impl Liveness {
    pub(super) fn new(checks: &[Check], source: String, start_timeout: Duration) -> Self {
        Liveness {
            checks: CheckSet::new(checks),
            source,
            start_timeout,
            began: Timestamp::ZERO,
            start_timer: None,
            healthy: false,
            outcome: None,
        }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        self.began = turn.now;
        log_start(turn, &self.source);
        if !self.start_timeout.is_zero() {
            self.start_timer = Some(turn.start_timer(self.start_timeout));
        }
        self.checks.until_all_pass(turn);
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        if let (StepInput::TimerFired(timer), Some(own)) = (input, self.start_timer)
            && *timer == own
        {
            self.start_timer = None;
            return self.never_passed(turn);
        }
        match self.checks.handle(turn, input) {
            Some(CheckSetResult::AllPassed) => {
                self.stop_start_timer(turn);
                self.healthy = true;
                log_healthy(turn, &self.source);
                self.checks.until_one_fails(turn);
            }
            Some(CheckSetResult::OneFailed(text)) => {
                let text = format!("Liveness check unsuccessful: {text}");
                self.outcome = Some(Err(became_unhealthy(turn, &self.source, &text)));
            }
            Some(CheckSetResult::CouldNotRun) | None => {}
        }
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        self.stop_start_timer(turn);
        self.checks.stop(turn);
        self.outcome = Some(Err(StepError::Cancelled));
    }

    pub(super) fn is_ready(&self) -> bool {
        self.healthy
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        self.outcome.as_ref()
    }

    fn never_passed(&mut self, turn: &mut StepContext<'_>) {
        let limit = text::duration(self.start_timeout);
        let sentence = |it: Pending<'_>| {
            let attempts = it.attempts;
            let last = if it.last_failure.is_empty() { "no answer yet" } else { it.last_failure };
            format!(
                "Timed out after {limit} ({attempts} attempts) \
                 waiting for startup check to succeed: {last}"
            )
        };
        let text = self.checks.pending().map(sentence).collect::<Vec<_>>().join("; ");
        self.checks.stop(turn);
        let elapsed = turn.now.since(self.began);
        self.outcome = Some(Err(never_healthy(turn, &self.source, elapsed, &text)));
    }

    fn stop_start_timer(&mut self, turn: &mut StepContext<'_>) {
        if let Some(timer) = self.start_timer.take() {
            turn.cancel_timer(timer);
        }
    }
}

/// Checks that decide about traffic. They never end the container, and run until it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Readiness {
    checks: CheckSet,
    source: String,
}

impl Readiness {
    pub(super) fn new(checks: &[Check], source: String) -> Self {
        Readiness { checks: CheckSet::new(checks), source }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        self.log(turn, "Starting readiness health monitoring of container");
        self.checks.until_all_pass(turn);
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        match self.checks.handle(turn, input) {
            Some(CheckSetResult::AllPassed) => {
                self.log(
                    turn,
                    "Container passed the readiness health check. \
                     Container marked ready and added to route pool.",
                );
                turn.push(StepOutput::Routable(true));
                self.checks.until_one_fails(turn);
            }
            Some(CheckSetResult::OneFailed(text)) => {
                let text = format!("Readiness check unsuccessful: {text}");
                turn.log(&self.source, LogStream::Err, cut(&text));
                self.log(
                    turn,
                    "Container failed the readiness health check. \
                     Container marked not ready and removed from route pool.",
                );
                turn.push(StepOutput::Routable(false));
                self.checks.until_all_pass(turn);
            }
            Some(CheckSetResult::CouldNotRun) => {
                self.log(turn, "Failed to run the readiness check")
            }
            None => {}
        }
    }

    pub(super) fn stop(&mut self, turn: &mut StepContext<'_>) {
        self.checks.stop(turn);
    }

    fn log(&self, turn: &mut StepContext<'_>, line: &str) {
        turn.log(&self.source, LogStream::Out, line);
    }
}

pub(super) fn log_start(turn: &mut StepContext<'_>, source: &str) {
    turn.log(source, LogStream::Out, "Starting health monitoring of container");
}

pub(super) fn log_healthy(turn: &mut StepContext<'_>, source: &str) {
    turn.log(source, LogStream::Out, "Container became healthy");
}

/// A healthy instance failed a check: the lines for the log, and the reason of the crash.
pub(super) fn became_unhealthy(turn: &mut StepContext<'_>, source: &str, text: &str) -> StepError {
    turn.log(source, LogStream::Err, cut(text));
    turn.log(source, LogStream::Err, "Container became unhealthy");
    StepError::Visible(format!("Instance became unhealthy: {text}"))
}

/// An instance took too long: the lines for the log, and the reason of the crash.
pub(super) fn never_healthy(
    turn: &mut StepContext<'_>,
    source: &str,
    elapsed: Duration,
    text: &str,
) -> StepError {
    let elapsed = text::rounded(elapsed);
    turn.log(source, LogStream::Err, cut(text));
    let line = format!("Failed after {elapsed}: startup health check never passed.");
    turn.log(source, LogStream::Err, line);
    StepError::Visible(format!("Instance never healthy after {elapsed}: {text}"))
}
