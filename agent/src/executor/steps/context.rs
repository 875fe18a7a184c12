//! What a step may do while it decides: the one way to start something, and to know it was started.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::{DownloadAction, RunAction, UploadAction};
use volvox_protocol::definition::Check;
use volvox_protocol::time::Timestamp;

use super::message::{
    LogStream, OutputTarget, StepEvent, StepId, StepInput, StepOutput, StepSignal, TimerId,
};
use super::spec::StepSettings;

/// All that was started and has not ended. Empty once the tree has finished.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Outstanding {
    last: u32,
    started: BTreeMap<StepId, Started>,
    timers: BTreeMap<TimerId, Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Started {
    Process,
    /// The driver may do this again after a restart.
    Transfer(Box<StepOutput>),
    /// So it may this.
    Check(Box<StepOutput>),
}

impl Outstanding {
    /// Takes note of what an input ends. False when it speaks of nothing that is outstanding.
    pub(super) fn settle(&mut self, input: &StepInput) -> bool {
        match input {
            StepInput::Begin | StepInput::Cancel => true,
            StepInput::Event(StepEvent::ProcessStarted(step)) => {
                self.started.get(step) == Some(&Started::Process)
            }
            StepInput::Event(StepEvent::SpawnFailed { step, .. }) => {
                self.end(*step, |it| matches!(it, Started::Process))
            }
            StepInput::Event(StepEvent::ProcessExited(exit)) => {
                self.end(exit.step(), |it| matches!(it, Started::Process))
            }
            StepInput::Event(StepEvent::TransferDone { step, .. }) => {
                self.end(*step, |it| matches!(it, Started::Transfer(_)))
            }
            StepInput::Event(StepEvent::CheckResult { step, .. }) => {
                self.end(*step, |it| matches!(it, Started::Check(_)))
            }
            StepInput::TimerFired(timer) => self.timers.remove(timer).is_some(),
        }
    }

    fn end(&mut self, step: StepId, fits: fn(&Started) -> bool) -> bool {
        let known = self.started.get(&step).is_some_and(fits);
        if known {
            self.started.remove(&step);
        }
        known
    }

    pub(super) fn is_empty(&self) -> bool {
        self.started.is_empty() && self.timers.is_empty()
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = StepId> {
        self.started.iter().filter(|(_, it)| **it == Started::Process).map(|(step, _)| *step)
    }

    pub(super) fn again(&self, now: Timestamp) -> Vec<StepOutput> {
        let started = self.started.values().filter_map(|it| match it {
            Started::Process => None,
            Started::Transfer(effect) | Started::Check(effect) => Some(StepOutput::clone(effect)),
        });
        let timers = self
            .timers
            .iter()
            .map(|(timer, due)| StepOutput::StartTimer { timer: *timer, after: due.since(now) });
        started.chain(timers).collect()
    }

    /// A number that nothing outstanding has. They last for 22 years at six a second, which is what
    /// a monitor takes that never succeeds; and then begin again.
    fn fresh(&mut self) -> u32 {
        loop {
            self.last = self.last.wrapping_add(1).max(1);
            let (step, timer) = (StepId(self.last), TimerId(self.last));
            if !self.started.contains_key(&step) && !self.timers.contains_key(&timer) {
                return self.last;
            }
        }
    }
}

/// One call of `apply`: the time, the settings, and the effects so far.
pub(super) struct StepContext<'a> {
    pub(super) now: Timestamp,
    pub(super) settings: StepSettings,
    outstanding: &'a mut Outstanding,
    effects: Vec<StepOutput>,
}

impl<'a> StepContext<'a> {
    pub(super) fn new(
        now: Timestamp,
        settings: StepSettings,
        outstanding: &'a mut Outstanding,
    ) -> Self {
        StepContext { now, settings, outstanding, effects: Vec::new() }
    }

    pub(super) fn into_effects(self) -> Vec<StepOutput> {
        self.effects
    }

    /// Does what needs no answer.
    pub(super) fn push(&mut self, effect: StepOutput) {
        self.effects.push(effect);
    }

    pub(super) fn log(&mut self, source: &str, stream: LogStream, text: impl Into<String>) {
        self.push(StepOutput::Log { source: source.to_owned(), stream, text: text.into() });
    }

    pub(super) fn spawn(&mut self, run: &RunAction, output: OutputTarget, source: &str) -> StepId {
        let step = StepId(self.outstanding.fresh());
        self.outstanding.started.insert(step, Started::Process);
        let (run, source) = (Box::new(run.clone()), source.to_owned());
        self.push(StepOutput::Spawn { step, run, output, source });
        step
    }

    pub(super) fn signal(&mut self, step: StepId, signal: StepSignal) {
        self.push(StepOutput::Signal { step, signal });
    }

    /// Waits no longer for a process that nothing can end. Its exit, if it comes, has no effect.
    pub(super) fn abandon(&mut self, step: StepId) {
        self.outstanding.started.remove(&step);
    }

    pub(super) fn download(&mut self, download: &DownloadAction, source: &str) -> StepId {
        let step = StepId(self.outstanding.fresh());
        let (download, source) = (Box::new(download.clone()), source.to_owned());
        self.transfer(step, StepOutput::StartDownload { step, download, source })
    }

    pub(super) fn upload(&mut self, upload: &UploadAction, source: &str) -> StepId {
        let step = StepId(self.outstanding.fresh());
        let (upload, source) = (Box::new(upload.clone()), source.to_owned());
        self.transfer(step, StepOutput::StartUpload { step, upload, source })
    }

    pub(super) fn cancel_transfer(&mut self, step: StepId) {
        self.transfer(step, StepOutput::CancelTransfer { step });
    }

    fn transfer(&mut self, step: StepId, effect: StepOutput) -> StepId {
        self.outstanding.started.insert(step, Started::Transfer(Box::new(effect.clone())));
        self.push(effect);
        step
    }

    pub(super) fn check(&mut self, check: &Check, timeout: Duration) -> StepId {
        let step = StepId(self.outstanding.fresh());
        let effect = StepOutput::RunCheck { step, check: check.clone(), timeout };
        self.outstanding.started.insert(step, Started::Check(Box::new(effect.clone())));
        self.push(effect);
        step
    }

    pub(super) fn cancel_check(&mut self, step: StepId) {
        if self.outstanding.started.remove(&step).is_some() {
            self.push(StepOutput::CancelCheck { step });
        }
    }

    pub(super) fn start_timer(&mut self, after: Duration) -> TimerId {
        let timer = TimerId(self.outstanding.fresh());
        self.outstanding.timers.insert(timer, self.now + after);
        self.push(StepOutput::StartTimer { timer, after });
        timer
    }

    pub(super) fn cancel_timer(&mut self, timer: TimerId) {
        if self.outstanding.timers.remove(&timer).is_some() {
            self.push(StepOutput::CancelTimer { timer });
        }
    }
}
