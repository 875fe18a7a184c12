//! The monitor: an action that is run again and again. While it succeeds the instance is healthy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::Action;
use volvox_protocol::time::Timestamp;

use super::context::StepContext;
use super::error::{StepError, StepResult};
use super::health;
use super::message::{StepInput, TimerId};
use super::step::{Step, StepScope};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Monitor {
    action: Action,
    source: String,
    /// How long it may take to become healthy. Zero: as long as it wants.
    start_timeout: Duration,
    began: Timestamp,
    healthy: bool,
    state: MonitorState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum MonitorState {
    New,
    Waiting(TimerId),
    Checking(Box<Step>),
    /// Told to end; the check that runs is waited for.
    Cancelled(Box<Step>),
    Ended(StepResult),
}

impl Monitor {
    pub(super) fn new(action: Action, source: String, start_timeout: Duration) -> Self {
        let (began, healthy) = (Timestamp::ZERO, false);
        Monitor { action, source, start_timeout, began, healthy, state: MonitorState::New }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        self.began = turn.now;
        health::log_start(turn, &self.source);
        self.state = MonitorState::Waiting(turn.start_timer(turn.settings.unhealthy_interval));
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        match &mut self.state {
            MonitorState::Waiting(own) => {
                if *input == StepInput::TimerFired(*own) {
                    // A new step for each check: what is left of the last one cannot disturb it.
                    let place = StepScope { source: &self.source, captured: true };
                    let mut step = Box::new(place.step(&self.action));
                    step.begin(turn);
                    self.state = MonitorState::Checking(step);
                }
            }
            MonitorState::Checking(step) | MonitorState::Cancelled(step) => {
                step.handle(turn, input)
            }
            MonitorState::New | MonitorState::Ended(_) => {}
        }
        self.look(turn);
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        self.state = match std::mem::replace(&mut self.state, MonitorState::New) {
            MonitorState::New => MonitorState::Ended(Err(StepError::Cancelled)),
            MonitorState::Waiting(timer) => {
                turn.cancel_timer(timer);
                MonitorState::Ended(Err(StepError::Cancelled))
            }
            MonitorState::Checking(mut step) => {
                step.cancel(turn);
                MonitorState::Cancelled(step)
            }
            same @ (MonitorState::Cancelled(_) | MonitorState::Ended(_)) => same,
        };
        self.look(turn);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.healthy
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        if let MonitorState::Ended(outcome) = &self.state { Some(outcome) } else { None }
    }

    fn look(&mut self, turn: &mut StepContext<'_>) {
        match &self.state {
            MonitorState::Checking(step) => {
                if let Some(outcome) = step.outcome().cloned() {
                    self.state = self.checked(turn, &outcome);
                }
            }
            MonitorState::Cancelled(step) => {
                if step.outcome().is_some() {
                    self.state = MonitorState::Ended(Err(StepError::Cancelled));
                }
            }
            MonitorState::New | MonitorState::Waiting(_) | MonitorState::Ended(_) => {}
        }
    }

    fn checked(&mut self, turn: &mut StepContext<'_>, outcome: &StepResult) -> MonitorState {
        let elapsed = turn.now.since(self.began);
        let late = !self.start_timeout.is_zero() && elapsed >= self.start_timeout;
        match outcome {
            Ok(()) => {
                if !self.healthy {
                    self.healthy = true;
                    health::log_healthy(turn, &self.source);
                }
                MonitorState::Waiting(turn.start_timer(turn.settings.healthy_interval))
            }
            Err(error) if self.healthy => {
                MonitorState::Ended(Err(health::became_unhealthy(turn, &self.source, error.text())))
            }
            Err(error) if late => {
                let text = error.text();
                MonitorState::Ended(Err(health::never_healthy(turn, &self.source, elapsed, text)))
            }
            Err(_) => MonitorState::Waiting(turn.start_timer(turn.settings.unhealthy_interval)),
        }
    }
}
