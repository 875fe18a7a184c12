//! One step of any kind: the five doors, and how an action becomes a step.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::Action;

use super::context::StepContext;
use super::error::StepResult;
use super::group::{Group, OnEnd};
use super::health::Liveness;
use super::message::{OutputTarget, StepInput};
use super::monitor::Monitor;
use super::run::Run;
use super::serial::Serial;
use super::transfer::{Transfer, What};
use super::wrap::{EmitProgress, Timeout, Try};

/// One step, and all below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Step {
    Transfer(Box<Transfer>),
    Run(Box<Run>),
    Timeout(Box<Timeout>),
    EmitProgress(Box<EmitProgress>),
    Try(Box<Try>),
    /// Parallel and codependent: they differ in what the end of one means to the others.
    Group(Box<Group>),
    Serial(Box<Serial>),
    Monitor(Box<Monitor>),
    Liveness(Box<Liveness>),
}

/// Does the same for each kind. One list of kinds instead of five.
macro_rules! each {
    ($step:expr, $it:ident => $what:expr) => {
        match $step {
            Step::Transfer($it) => $what,
            Step::Run($it) => $what,
            Step::Timeout($it) => $what,
            Step::EmitProgress($it) => $what,
            Step::Try($it) => $what,
            Step::Group($it) => $what,
            Step::Serial($it) => $what,
            Step::Monitor($it) => $what,
            Step::Liveness($it) => $what,
        }
    };
}

impl Step {
    /// Starts it. Called once, and not after a cancel.
    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        each!(self, it => it.begin(turn));
    }

    /// Takes an outcome or a timer, its own or another's, which it ignores.
    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        if self.outcome().is_none() {
            each!(self, it => it.handle(turn, input));
        }
    }

    /// Ends it: at once, or when all that it started has ended. A second cancel changes nothing,
    /// and one before the beginning ends it with nothing done.
    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        if self.outcome().is_none() {
            each!(self, it => it.cancel(turn));
        }
    }

    /// Whether what it is there for is under way. A success is ready in any case.
    pub(super) fn is_ready(&self) -> bool {
        match self.outcome() {
            Some(Ok(())) => true,
            Some(Err(_)) | None => each!(self, it => it.is_ready()),
        }
    }

    /// How it ended, once it has, with all that it started.
    pub(super) fn outcome(&self) -> Option<&StepResult> {
        each!(self, it => it.outcome())
    }
}

/// Where the steps of an action belong.
#[derive(Debug, Clone, Copy)]
pub(super) struct StepScope<'a> {
    /// The log source of those that name none.
    pub(super) source: &'a str,
    /// What their processes print is captured, as a monitor's is.
    pub(super) captured: bool,
}

impl<'a> StepScope<'a> {
    fn source(&self, own: &'a str) -> String {
        if own.is_empty() { self.source.to_owned() } else { own.to_owned() }
    }

    /// The step of this action.
    pub(super) fn step(&self, action: &'a Action) -> Step {
        match action {
            Action::Download(it) => {
                let what = What::Download(it.as_ref().clone());
                Step::Transfer(Box::new(Transfer::new(what, self.source(&it.log_source))))
            }
            Action::Upload(it) => {
                let what = What::Upload(it.as_ref().clone());
                Step::Transfer(Box::new(Transfer::new(what, self.source(&it.log_source))))
            }
            Action::Run(it) => {
                let output = match (self.captured, it.suppress_log_output) {
                    (true, true | false) => OutputTarget::Capture,
                    (false, true) => OutputTarget::Discard,
                    (false, false) => OutputTarget::Log,
                };
                let source = self.source(&it.log_source);
                Step::Run(Box::new(Run::new(it.as_ref().clone(), output, source)))
            }
            Action::Timeout(it) => {
                let after = Duration::from_millis(it.timeout_ms);
                Step::Timeout(Box::new(Timeout::new(self.inner(it.action.as_ref()), after)))
            }
            Action::EmitProgress(it) => Step::EmitProgress(Box::new(EmitProgress::new(
                self.inner(it.action.as_ref()),
                [&it.start_message, &it.success_message, &it.failure_message_prefix]
                    .map(String::clone),
                self.source(&it.log_source),
            ))),
            Action::Try(it) => Step::Try(Box::new(Try::new(self.inner(it.action.as_ref())))),
            Action::Parallel(it) => self.group(&it.actions, OnEnd::LeavesOthers),
            Action::Serial(it) => serial(it.actions.iter().map(|it| self.step(it)).collect()),
            Action::Codependent(it) => self.group(&it.actions, OnEnd::MustNotEnd),
        }
    }

    /// A definition without what it wraps is refused at the edge. Here it is nothing to do.
    fn inner(&self, action: Option<&'a Action>) -> Step {
        action.map_or_else(|| serial(Vec::new()), |it| self.step(it))
    }

    fn group(&self, actions: &'a [Action], on_end: OnEnd) -> Step {
        group(actions.iter().map(|it| (self.step(it), on_end)).collect())
    }
}

/// One after the other.
pub(super) fn serial(steps: Vec<Step>) -> Step {
    Step::Serial(Box::new(Serial::new(steps)))
}

/// All at once.
pub(super) fn group(members: Vec<(Step, OnEnd)>) -> Step {
    Step::Group(Box::new(Group::new(members)))
}

/// The log source that an action names itself; empty when it names none.
pub(super) fn own_source(action: &Action) -> &str {
    match action {
        Action::Download(it) => &it.log_source,
        Action::Upload(it) => &it.log_source,
        Action::Run(it) => &it.log_source,
        Action::Timeout(it) => &it.log_source,
        Action::EmitProgress(it) => &it.log_source,
        Action::Try(it) => &it.log_source,
        Action::Parallel(it) => &it.log_source,
        Action::Serial(it) => &it.log_source,
        Action::Codependent(it) => &it.log_source,
    }
}
