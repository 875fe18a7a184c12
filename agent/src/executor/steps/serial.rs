//! One step after the other, up to the first that fails.

use serde::{Deserialize, Serialize};

use super::context::StepContext;
use super::error::{StepError, StepResult};
use super::message::StepInput;
use super::step::Step;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Serial {
    steps: Vec<Step>,
    /// The one that runs; the number of steps when all are done.
    at: usize,
    cancelled: bool,
    outcome: Option<StepResult>,
}

impl Serial {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        Serial { steps, at: 0, cancelled: false, outcome: None }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        if let Some(first) = self.steps.first_mut() {
            first.begin(turn);
        }
        self.look(turn);
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        if let Some(current) = self.steps.get_mut(self.at) {
            current.handle(turn, input);
        }
        self.look(turn);
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        self.cancelled = true;
        if let Some(current) = self.steps.get_mut(self.at) {
            current.cancel(turn);
        }
        self.look(turn);
    }

    /// The last one is what the others prepare for.
    pub(super) fn is_ready(&self) -> bool {
        self.steps.last().is_some_and(Step::is_ready)
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        self.outcome.as_ref()
    }

    /// Goes on while steps end at once.
    fn look(&mut self, turn: &mut StepContext<'_>) {
        while self.outcome.is_none() {
            let Some(current) = self.steps.get(self.at) else {
                self.outcome = Some(Ok(()));
                return;
            };
            match current.outcome() {
                None => return,
                Some(Err(error)) => self.outcome = Some(Err(error.clone())),
                Some(Ok(())) => self.next(turn),
            }
        }
    }

    fn next(&mut self, turn: &mut StepContext<'_>) {
        self.at += 1;
        let Some(next) = self.steps.get_mut(self.at) else { return };
        if self.cancelled {
            self.outcome = Some(Err(StepError::Cancelled));
        } else {
            next.begin(turn);
        }
    }
}
