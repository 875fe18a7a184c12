//! The monitor: an action that is run again and again. While it succeeds the instance is healthy.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::Action;
use volvox_protocol::time::Timestamp;

use super::error::{Outcome, StepError};
use super::health;
use super::message::{Input, TimerId};
use super::step::{Place, Step};
use super::turn::Turn;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Monitor {
    action: Action,
    source: String,
    /// How long it may take to become healthy. Zero: as long as it wants.
    start_timeout: Duration,
    began: Timestamp,
    healthy: bool,
    state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    New,
    Waiting(TimerId),
    Checking(Box<Step>),
    /// Told to end; the check that runs is waited for.
    Cancelled(Box<Step>),
    Ended(Outcome),
}

impl Monitor {
    pub(super) fn new(action: Action, source: String, start_timeout: Duration) -> Self {
        let (began, healthy) = (Timestamp::ZERO, false);
        Monitor { action, source, start_timeout, began, healthy, state: State::New }
    }

    pub(super) fn begin(&mut self, turn: &mut Turn<'_>) {
        self.began = turn.now;
        health::log_start(turn, &self.source);
        self.state = State::Waiting(turn.start_timer(turn.settings.unhealthy_interval));
    }

    pub(super) fn handle(&mut self, turn: &mut Turn<'_>, input: &Input) {
        match &mut self.state {
            State::Waiting(own) => {
                if *input == Input::TimerFired(*own) {
                    // A new step for each check: what is left of the last one cannot disturb it.
                    let place = Place { source: &self.source, captured: true };
                    let mut step = Box::new(place.step(&self.action));
                    step.begin(turn);
                    self.state = State::Checking(step);
                }
            }
            State::Checking(step) | State::Cancelled(step) => step.handle(turn, input),
            State::New | State::Ended(_) => {}
        }
        self.look(turn);
    }

    pub(super) fn cancel(&mut self, turn: &mut Turn<'_>) {
        self.state = match std::mem::replace(&mut self.state, State::New) {
            State::New => State::Ended(Err(StepError::Cancelled)),
            State::Waiting(timer) => {
                turn.cancel_timer(timer);
                State::Ended(Err(StepError::Cancelled))
            }
            State::Checking(mut step) => {
                step.cancel(turn);
                State::Cancelled(step)
            }
            same @ (State::Cancelled(_) | State::Ended(_)) => same,
        };
        self.look(turn);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.healthy
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        if let State::Ended(outcome) = &self.state { Some(outcome) } else { None }
    }

    fn look(&mut self, turn: &mut Turn<'_>) {
        match &self.state {
            State::Checking(step) => {
                if let Some(outcome) = step.outcome().cloned() {
                    self.state = self.checked(turn, &outcome);
                }
            }
            State::Cancelled(step) => {
                if step.outcome().is_some() {
                    self.state = State::Ended(Err(StepError::Cancelled));
                }
            }
            State::New | State::Waiting(_) | State::Ended(_) => {}
        }
    }

    fn checked(&mut self, turn: &mut Turn<'_>, outcome: &Outcome) -> State {
        let elapsed = turn.now.since(self.began);
        let late = !self.start_timeout.is_zero() && elapsed >= self.start_timeout;
        match outcome {
            Ok(()) => {
                if !self.healthy {
                    self.healthy = true;
                    health::log_healthy(turn, &self.source);
                }
                State::Waiting(turn.start_timer(turn.settings.healthy_interval))
            }
            Err(error) if self.healthy => {
                State::Ended(Err(health::became_unhealthy(turn, &self.source, error.text())))
            }
            Err(error) if late => {
                let text = error.text();
                State::Ended(Err(health::never_healthy(turn, &self.source, elapsed, text)))
            }
            Err(_) => State::Waiting(turn.start_timer(turn.settings.unhealthy_interval)),
        }
    }
}
