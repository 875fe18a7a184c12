//! Steps around one other step: timeout, emit_progress, try.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::context::StepContext;
use super::error::{StepError, StepResult, cut};
use super::message::{LogStream, StepInput, TimerId};
use super::step::Step;
use crate::container::text;

/// Fails when the inner step takes too long, which is then cancelled and waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Timeout {
    inner: Step,
    after: Duration,
    clock: TimerState,
    outcome: Option<StepResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum TimerState {
    Stopped,
    Ticking(TimerId),
    Fired,
}

impl Timeout {
    pub(super) fn new(inner: Step, after: Duration) -> Self {
        Timeout { inner, after, clock: TimerState::Stopped, outcome: None }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        self.clock = TimerState::Ticking(turn.start_timer(self.after));
        self.inner.begin(turn);
        self.look(turn);
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        match (input, self.clock) {
            (StepInput::TimerFired(timer), TimerState::Ticking(own)) if own == *timer => {
                self.clock = TimerState::Fired;
                self.inner.cancel(turn);
            }
            (_, TimerState::Stopped | TimerState::Ticking(_) | TimerState::Fired) => {
                self.inner.handle(turn, input);
            }
        }
        self.look(turn);
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        self.stop_clock(turn);
        self.inner.cancel(turn);
        self.look(turn);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.clock != TimerState::Fired && self.inner.is_ready()
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        self.outcome.as_ref()
    }

    fn look(&mut self, turn: &mut StepContext<'_>) {
        let Some(inner) = self.inner.outcome().cloned() else { return };
        self.stop_clock(turn);
        self.outcome = Some(if self.clock == TimerState::Fired {
            let seen = inner.as_ref().err().and_then(StepError::visible);
            let seen = seen.map(|text| format!("; {text}")).unwrap_or_default();
            let limit = text::duration(self.after);
            Err(StepError::Visible(format!("exceeded {limit} timeout{seen}")))
        } else {
            inner
        });
    }

    fn stop_clock(&mut self, turn: &mut StepContext<'_>) {
        if let TimerState::Ticking(timer) = self.clock {
            turn.cancel_timer(timer);
            self.clock = TimerState::Stopped;
        }
    }
}

/// Says in the log how the inner step goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct EmitProgress {
    inner: Step,
    start: String,
    success: String,
    failure_prefix: String,
    source: String,
    outcome: Option<StepResult>,
}

impl EmitProgress {
    pub(super) fn new(inner: Step, messages: [String; 3], source: String) -> Self {
        let [start, success, failure_prefix] = messages;
        EmitProgress { inner, start, success, failure_prefix, source, outcome: None }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        if !self.start.is_empty() {
            turn.log(&self.source, LogStream::Out, self.start.as_str());
        }
        self.inner.begin(turn);
        self.look(turn);
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        self.inner.handle(turn, input);
        self.look(turn);
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        self.inner.cancel(turn);
        self.look(turn);
    }

    pub(super) fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        self.outcome.as_ref()
    }

    fn look(&mut self, turn: &mut StepContext<'_>) {
        let Some(inner) = self.inner.outcome().cloned() else { return };
        match &inner {
            Ok(()) if !self.success.is_empty() => {
                turn.log(&self.source, LogStream::Out, self.success.as_str());
            }
            Err(error) if !self.failure_prefix.is_empty() => {
                let reason = error.visible().map(|text| format!(": {text}")).unwrap_or_default();
                let line = cut(&format!("{}{reason}", self.failure_prefix));
                turn.log(&self.source, LogStream::Err, line);
            }
            Ok(()) | Err(_) => {}
        }
        self.outcome = Some(inner);
    }
}

/// Succeeds whatever the inner step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Try {
    inner: Step,
    outcome: Option<StepResult>,
}

impl Try {
    pub(super) fn new(inner: Step) -> Self {
        Try { inner, outcome: None }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        self.inner.begin(turn);
        self.look();
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        self.inner.handle(turn, input);
        self.look();
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        self.inner.cancel(turn);
        self.look();
    }

    pub(super) fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        self.outcome.as_ref()
    }

    fn look(&mut self) {
        if self.inner.outcome().is_some() {
            self.outcome = Some(Ok(()));
        }
    }
}
