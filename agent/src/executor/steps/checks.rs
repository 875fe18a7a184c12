//! A set of checks that are made side by side, until all pass or until one fails.
//!
//! Liveness and readiness are both made of these two phases; see `health.rs`.

use crate::container::step::StepEvent;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::definition::{Check, HttpCheck};

use super::context::StepContext;
use super::message::{CheckOutcome, StepId, StepInput, TimerId};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CheckSet {
    checks: Vec<Watched>,
    phase: CheckMode,
    /// In this phase a check could not be made, and that was told.
    told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum CheckMode {
    Stopped,
    UntilAllPass,
    UntilOneFails,
}

/// One check, and what it found in this phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Watched {
    check: Check,
    state: CheckState,
    attempts: u64,
    last_failure: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum CheckState {
    Idle,
    Waiting(TimerId),
    Checking(StepId),
}

/// What a phase came to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CheckSetResult {
    /// All have passed; the set has stopped.
    AllPassed,
    /// One has failed, for this reason; the set has stopped.
    OneFailed(String),
    /// One could not be made, for the first time in this phase; the set goes on.
    CouldNotRun,
}

/// A check that has not passed yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Pending<'a> {
    pub(super) attempts: u64,
    pub(super) last_failure: &'a str,
}

impl CheckSet {
    pub(super) fn new(checks: &[Check]) -> Self {
        let watched = |check: &Check| Watched {
            check: with_path(check),
            state: CheckState::Idle,
            attempts: 0,
            last_failure: String::new(),
        };
        let checks = checks.iter().map(watched).collect();
        CheckSet { checks, phase: CheckMode::Stopped, told: false }
    }

    /// Makes each check at once, and again until it has passed.
    pub(super) fn until_all_pass(&mut self, turn: &mut StepContext<'_>) {
        self.start(turn, CheckMode::UntilAllPass);
    }

    /// Makes each check at once, and again at its interval until one fails.
    pub(super) fn until_one_fails(&mut self, turn: &mut StepContext<'_>) {
        self.start(turn, CheckMode::UntilOneFails);
    }

    pub(super) fn stop(&mut self, turn: &mut StepContext<'_>) {
        self.phase = CheckMode::Stopped;
        for it in &mut self.checks {
            match std::mem::replace(&mut it.state, CheckState::Idle) {
                CheckState::Idle => {}
                CheckState::Waiting(timer) => turn.cancel_timer(timer),
                CheckState::Checking(step) => turn.cancel_check(step),
            }
        }
    }

    pub(super) fn handle(
        &mut self,
        turn: &mut StepContext<'_>,
        input: &StepInput,
    ) -> Option<CheckSetResult> {
        match input {
            StepInput::TimerFired(timer) => {
                let due =
                    self.checks.iter_mut().find(|it| it.state == CheckState::Waiting(*timer))?;
                due.begin(turn);
                None
            }
            StepInput::Event(StepEvent::CheckResult { step, outcome }) => {
                let at =
                    self.checks.iter().position(|it| it.state == CheckState::Checking(*step))?;
                self.checked(turn, at, outcome)
            }
            StepInput::Begin | StepInput::Event(_) | StepInput::Cancel => None,
        }
    }

    /// Those that have not passed in this phase.
    pub(super) fn pending(&self) -> impl Iterator<Item = Pending<'_>> {
        self.checks
            .iter()
            .filter(|it| it.state != CheckState::Idle)
            .map(|it| Pending { attempts: it.attempts, last_failure: &it.last_failure })
    }

    fn start(&mut self, turn: &mut StepContext<'_>, phase: CheckMode) {
        self.phase = phase;
        self.told = false;
        for it in &mut self.checks {
            it.attempts = 0;
            it.last_failure.clear();
            it.begin(turn);
        }
    }

    fn checked(
        &mut self,
        turn: &mut StepContext<'_>,
        at: usize,
        outcome: &CheckOutcome,
    ) -> Option<CheckSetResult> {
        let it = &mut self.checks[at];
        let failure = match outcome {
            CheckOutcome::Passed => None,
            CheckOutcome::Failed(text) | CheckOutcome::CouldNotRun(text) => Some(text),
        };
        match (self.phase, failure) {
            (CheckMode::UntilAllPass, None) => {
                it.state = CheckState::Idle;
                let all = self.checks.iter().all(|it| it.state == CheckState::Idle);
                all.then_some(CheckSetResult::AllPassed)
            }
            (CheckMode::UntilAllPass, Some(text)) => {
                it.last_failure.clone_from(text);
                it.state = CheckState::Waiting(turn.start_timer(turn.settings.unhealthy_interval));
                let news = matches!(outcome, CheckOutcome::CouldNotRun(_)) && !self.told;
                self.told |= news;
                news.then_some(CheckSetResult::CouldNotRun)
            }
            (CheckMode::UntilOneFails, None) => {
                let after = or_default(interval_ms(&it.check), turn.settings.healthy_interval);
                it.state = CheckState::Waiting(turn.start_timer(after));
                None
            }
            (CheckMode::UntilOneFails, Some(text)) => {
                it.state = CheckState::Idle;
                self.stop(turn);
                Some(CheckSetResult::OneFailed(text.clone()))
            }
            (CheckMode::Stopped, _) => None,
        }
    }
}

impl Watched {
    fn begin(&mut self, turn: &mut StepContext<'_>) {
        self.attempts += 1;
        let timeout = or_default(timeout_ms(&self.check), turn.settings.check_timeout);
        self.state = CheckState::Checking(turn.check(&self.check, timeout));
    }
}

/// The check with the path that it means when it names none.
fn with_path(check: &Check) -> Check {
    match check {
        Check::Tcp(it) => Check::Tcp(it.clone()),
        Check::Http(it) if it.path.is_empty() => {
            Check::Http(HttpCheck { path: "/".to_owned(), ..it.clone() })
        }
        Check::Http(it) => Check::Http(it.clone()),
    }
}

fn or_default(given_ms: u64, default: Duration) -> Duration {
    if given_ms == 0 { default } else { Duration::from_millis(given_ms) }
}

fn interval_ms(check: &Check) -> u64 {
    match check {
        Check::Tcp(it) => it.interval_ms,
        Check::Http(it) => it.interval_ms,
    }
}

fn timeout_ms(check: &Check) -> u64 {
    match check {
        Check::Tcp(it) => it.connect_timeout_ms,
        Check::Http(it) => it.request_timeout_ms,
    }
}
