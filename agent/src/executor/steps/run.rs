//! A process: spawned, waited for, and on cancel asked, then forced, to end.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::RunAction;

use super::context::StepContext;
use super::error::{StepError, StepResult};
use super::message::{LogStream, OutputTarget, StepEvent, StepId, StepInput, StepSignal, TimerId};
use crate::container::exit::Exit;
use crate::container::text;

/// How long the end of a killed process may take to be told. A shim writes it to the disk first, and a
/// disk may stall for seconds. Longer than a shim may take to answer (20 s), so that one that hangs is
/// noticed before.
const EXIT_AFTER_KILL: Duration = Duration::from_secs(30);
/// How one ends that was killed.
const KILLED: i32 = 137;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    run: RunAction,
    output: OutputTarget,
    source: String,
    /// Its process was made, and nobody had changed their mind by then.
    ready: bool,
    state: ProcessState,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum ProcessState {
    New,
    /// There is no process to signal yet, so a cancel waits here for it.
    Starting(StepId, Cancel),
    Running(StepId),
    /// Asked to end; killed when this timer fires.
    Terminating(StepId, TimerId),
    /// Killed; given up when this timer fires.
    Killed(StepId, TimerId),
    Ended(StepResult),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Cancel {
    NotAsked,
    Asked,
}

impl Run {
    pub(super) fn new(run: RunAction, output: OutputTarget, source: String) -> Self {
        Run { run, output, source, ready: false, state: ProcessState::New }
    }

    pub(super) fn begin(&mut self, turn: &mut StepContext<'_>) {
        let step = turn.spawn(&self.run, self.output, &self.source);
        self.state = ProcessState::Starting(step, Cancel::NotAsked);
    }

    pub(super) fn handle(&mut self, turn: &mut StepContext<'_>, input: &StepInput) {
        match input {
            StepInput::Event(StepEvent::ProcessStarted(step)) if self.step() == Some(*step) => {
                self.started(turn)
            }
            StepInput::Event(StepEvent::SpawnFailed { step, error })
                if self.step() == Some(*step) =>
            {
                self.failed_to_start(turn, error);
            }
            StepInput::Event(StepEvent::ProcessExited(exit))
                if self.step() == Some(exit.step()) =>
            {
                self.exited(turn, exit);
            }
            StepInput::TimerFired(timer) => self.fired(turn, *timer),
            StepInput::Event(_) | StepInput::Begin | StepInput::Cancel => {}
        }
    }

    pub(super) fn cancel(&mut self, turn: &mut StepContext<'_>) {
        match &mut self.state {
            ProcessState::New => self.state = ProcessState::Ended(Err(StepError::Cancelled)),
            ProcessState::Starting(_, cancel) => *cancel = Cancel::Asked,
            ProcessState::Running(step) => self.state = terminate(turn, *step),
            ProcessState::Terminating(..) | ProcessState::Killed(..) | ProcessState::Ended(_) => {}
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.ready
    }

    pub(super) fn outcome(&self) -> Option<&StepResult> {
        if let ProcessState::Ended(outcome) = &self.state { Some(outcome) } else { None }
    }

    fn step(&self) -> Option<StepId> {
        match &self.state {
            ProcessState::Starting(step, _)
            | ProcessState::Running(step)
            | ProcessState::Terminating(step, _)
            | ProcessState::Killed(step, _) => Some(*step),
            ProcessState::New | ProcessState::Ended(_) => None,
        }
    }

    fn started(&mut self, turn: &mut StepContext<'_>) {
        if let ProcessState::Starting(step, cancel) = self.state {
            self.ready = cancel == Cancel::NotAsked;
            self.state = match cancel {
                Cancel::NotAsked => ProcessState::Running(step),
                Cancel::Asked => terminate(turn, step),
            };
        }
    }

    fn failed_to_start(&mut self, turn: &mut StepContext<'_>, error: &str) {
        if self.output == OutputTarget::Log {
            let line = format!("failed-creating-process: {error}");
            turn.log(&self.source, LogStream::Out, line);
        }
        self.drop_timer(turn);
        let error = if self.was_cancelled() {
            StepError::Cancelled
        } else {
            StepError::Internal(error.to_owned())
        };
        self.state = ProcessState::Ended(Err(error));
    }

    fn exited(&mut self, turn: &mut StepContext<'_>, exit: &Exit) {
        let status = exit.end.status();
        // One that has another status ended before it was killed: its end was only told late.
        let killed = matches!(self.state, ProcessState::Killed(..)) && status == KILLED;
        let short_of = match status {
            0 => "",
            _ if exit.out_of_memory => " (out of memory)",
            _ if exit.out_of_disk => " (out of disk)",
            _ => "",
        };
        if self.output == OutputTarget::Log {
            let interval = text::duration(turn.settings.graceful_shutdown_interval);
            let late = format!(" (exceeded {interval} graceful shutdown interval)");
            let late = if killed { late.as_str() } else { "" };
            let line = format!("Exit status {status}{late}{short_of}");
            turn.log(&self.source, LogStream::Out, line);
        }
        self.drop_timer(turn);
        self.state = ProcessState::Ended(if killed {
            Err(StepError::ExceededGracefulShutdown)
        } else if self.was_cancelled() {
            Err(StepError::Cancelled)
        } else if status == 0 {
            Ok(())
        } else {
            Err(StepError::Visible(match exit.output.trim() {
                "" => format!("{}: Exited with status {status}{short_of}", self.source),
                printed => printed.to_owned(),
            }))
        });
    }

    fn fired(&mut self, turn: &mut StepContext<'_>, timer: TimerId) {
        match self.state {
            ProcessState::Terminating(step, grace) if grace == timer => {
                turn.signal(step, StepSignal::Kill);
                self.state = ProcessState::Killed(step, turn.start_timer(EXIT_AFTER_KILL));
            }
            ProcessState::Killed(step, last) if last == timer => {
                if self.output == OutputTarget::Log {
                    let within = text::duration(EXIT_AFTER_KILL);
                    let line = format!(
                        "Exit status unknown (did not exit within {within} of being killed)"
                    );
                    turn.log(&self.source, LogStream::Out, line);
                }
                turn.abandon(step);
                let error = StepError::Internal("process did not exit".into());
                self.state = ProcessState::Ended(Err(error));
            }
            ProcessState::New
            | ProcessState::Starting(..)
            | ProcessState::Running(_)
            | ProcessState::Terminating(..)
            | ProcessState::Killed(..)
            | ProcessState::Ended(_) => {}
        }
    }

    fn was_cancelled(&self) -> bool {
        match &self.state {
            ProcessState::Starting(_, cancel) => *cancel == Cancel::Asked,
            ProcessState::Terminating(..) | ProcessState::Killed(..) => true,
            ProcessState::New | ProcessState::Running(_) | ProcessState::Ended(_) => false,
        }
    }

    fn drop_timer(&self, turn: &mut StepContext<'_>) {
        if let ProcessState::Terminating(_, timer) | ProcessState::Killed(_, timer) = self.state {
            turn.cancel_timer(timer);
        }
    }
}

fn terminate(turn: &mut StepContext<'_>, step: StepId) -> ProcessState {
    turn.signal(step, StepSignal::Term);
    ProcessState::Terminating(step, turn.start_timer(turn.settings.graceful_shutdown_interval))
}
