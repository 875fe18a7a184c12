//! The step tree: what runs in a container, in which order, when it is healthy and how it ends.
//!
//! A [`StepTree`] is built from a [`StepSpec`] and then fed: outcomes, fired timers and at most one
//! cancel go in, [`StepOutput`]s come out. It starts nothing itself and knows no clock but the `now` it
//! is given, so the same inputs make the same effects, to the byte.
//!
//! ```text
//! serial ─┬─ setup, if any
//!         └─ codependent ─┬─ action
//!                         ├─ each sidecar
//!                         └─ monitor, or the checks that replace it
//! ```
//!
//! Each kind of step is a small machine with the same five doors: begin, handle, cancel, ready,
//! outcome. A parent hands an input to the children that run and then looks at their outcomes;
//! nobody calls upwards. What holds: a step waits for all that it started, so when the tree has
//! finished no process of it runs, unless it outlived SIGKILL; after `Finished` there is no effect;
//! `Ready` comes at most once, and before `Finished`.
//!
//! A tree can be written down after any input and read back: see [`StepTree::resume`].
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod checks;
mod context;
mod error;
mod group;
mod health;
mod message;
mod monitor;
mod run;
mod serial;
mod spec;
mod step;
#[cfg(test)]
mod tests;
mod transfer;
mod wrap;

use crate::container::step::StepId;
use serde::{Deserialize, Serialize};
use volvox_protocol::container::RunResult;
use volvox_protocol::time::Timestamp;

use context::{Outstanding, StepContext};
use error::{cut, text_of};
use health::Readiness;
use step::Step;

pub use message::{StepInput, StepOutput, TimerId};
pub use spec::{StepSettings, StepSpec};

/// All the steps of one container, and how far they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTree {
    settings: StepSettings,
    root: Step,
    readiness: Option<Readiness>,
    phase: TreePhase,
    cancelled: bool,
    outstanding: Outstanding,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum TreePhase {
    New,
    Begun,
    Ready,
    Finished,
}

impl StepTree {
    /// The tree of this container. Nothing happens before [`StepInput::Begin`].
    pub fn new(spec: &StepSpec, settings: StepSettings) -> Self {
        StepTree {
            root: spec.root(),
            readiness: spec.readiness(),
            settings,
            phase: TreePhase::New,
            cancelled: false,
            outstanding: Outstanding::default(),
        }
    }

    /// Whether [`StepOutput::Finished`] was returned.
    pub fn is_finished(&self) -> bool {
        self.phase == TreePhase::Finished
    }

    /// The processes that were spawned and whose exit was not told yet.
    pub fn processes(&self) -> impl Iterator<Item = StepId> {
        self.outstanding.processes()
    }

    /// Decides about one input.
    ///
    /// What comes too late (a timer that was cancelled in the meantime, a second cancel) or names
    /// something unknown is no error: it has no effect.
    pub fn apply(&mut self, now: Timestamp, input: StepInput) -> Vec<StepOutput> {
        if self.is_finished() || !self.outstanding.settle(&input) {
            return Vec::new();
        }
        let mut turn = StepContext::new(now, self.settings, &mut self.outstanding);
        match input {
            StepInput::Begin => {
                if self.phase == TreePhase::New {
                    self.phase = TreePhase::Begun;
                    self.root.begin(&mut turn);
                }
            }
            StepInput::Cancel => {
                self.cancelled = true;
                self.root.cancel(&mut turn);
                self.readiness.iter_mut().for_each(|it| it.stop(&mut turn));
            }
            StepInput::Event(_) | StepInput::TimerFired(_) => {
                self.root.handle(&mut turn, &input);
                self.readiness.iter_mut().for_each(|it| it.handle(&mut turn, &input));
            }
        }
        let mut effects = turn.into_effects();
        self.look(now, &mut effects);
        effects
    }

    /// What to do again after the agent was restarted, with the tree as it was last written down.
    ///
    /// Timers get what is left of their time. Checks and transfers lived in the agent and begin
    /// again under their old ids. Processes do not: each of [`StepTree::processes`] is still there,
    /// or has left its exit status, or was never started, which is a [`StepEvent::SpawnFailed`].
    pub fn resume(&self, now: Timestamp) -> Vec<StepOutput> {
        self.outstanding.again(now)
    }

    /// Sees whether the whole has become ready, or has ended.
    fn look(&mut self, now: Timestamp, effects: &mut Vec<StepOutput>) {
        let mut turn = StepContext::new(now, self.settings, &mut self.outstanding);
        if let Some(outcome) = self.root.outcome() {
            let result = match outcome {
                // Told to stop: whatever its processes made of it is no failure.
                _ if self.cancelled => RunResult { stopped: true, ..RunResult::default() },
                Ok(()) => RunResult::default(),
                Err(_) => RunResult {
                    failed: true,
                    failure_reason: cut(text_of(outcome)),
                    ..RunResult::default()
                },
            };
            self.readiness.iter_mut().for_each(|it| it.stop(&mut turn));
            effects.append(&mut turn.into_effects());
            effects.push(StepOutput::Finished(result));
            self.phase = TreePhase::Finished;
            debug_assert!(self.outstanding.is_empty(), "left behind: {:?}", self.outstanding);
        } else if self.phase == TreePhase::Begun && !self.cancelled && self.root.is_ready() {
            self.phase = TreePhase::Ready;
            // First where traffic may go, then that it runs: one event tells both.
            effects.push(StepOutput::Routable(self.readiness.is_none()));
            effects.push(StepOutput::Ready);
            self.readiness.iter_mut().for_each(|it| it.begin(&mut turn));
            effects.append(&mut turn.into_effects());
        }
    }
}
