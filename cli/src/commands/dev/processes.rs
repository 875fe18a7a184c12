//! The children at work, and the ear for Ctrl-C: waiting here ends when one of them dies or when we
//! are told to end.

use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::child::Child;
use super::signals::Signals;
use crate::error::Failure;

/// Between two looks, at most. The end of a child is heard at once.
const LOOK: Duration = Duration::from_millis(50);
/// What a child has to end when it was told to.
const GRACE: Duration = Duration::from_secs(10);

/// Why it goes no further.
#[derive(Debug)]
pub(super) enum Stop {
    /// Somebody wants it to end.
    Asked,
    /// This went wrong.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

pub(super) struct Processes {
    signals: Signals,
    children: Vec<Child>,
}

impl Processes {
    pub(super) fn new() -> Result<Processes, Failure> {
        Ok(Processes { signals: Signals::hold()?, children: Vec::new() })
    }

    /// A child that is to live for as long as we do.
    pub(super) fn add(&mut self, child: Child) {
        self.children.push(child);
    }

    /// Waits for a moment.
    pub(super) fn pause(&mut self) -> Result<(), Stop> {
        if self.signals.wait(LOOK)? {
            return Err(Stop::Asked);
        }
        for child in &mut self.children {
            if let Some(status) = child.ended()? {
                return Err(Stop::Failed(child.died(status)));
            }
        }
        Ok(())
    }

    /// Waits until something is so, which is to come within `limit`.
    pub(super) fn until(
        &mut self,
        limit: Duration,
        mut look: impl FnMut() -> bool,
        late: impl FnOnce() -> Failure,
    ) -> Result<(), Stop> {
        let end = Instant::now() + limit;
        while !look() {
            if Instant::now() > end {
                return Err(Stop::Failed(late()));
            }
            self.pause()?;
        }
        Ok(())
    }

    /// Waits for the end of a child that is to end by itself. When we are told to end, so is it.
    pub(super) fn until_ended(&mut self, child: &mut Child) -> Result<ExitStatus, Stop> {
        loop {
            if let Some(status) = child.ended()? {
                return Ok(status);
            }
            if let Err(stop) = self.pause() {
                child.signal(Signal::SIGTERM);
                self.wait_for(std::slice::from_mut(child), GRACE);
                return Err(stop);
            }
        }
    }

    /// Ends those whose name is meant, and waits for it.
    pub(super) fn end(&mut self, is_meant: impl Fn(&str) -> bool) {
        let all = std::mem::take(&mut self.children);
        let (mut ending, rest) = all.into_iter().partition(|it| is_meant(&it.name));
        self.children = rest;
        for child in &ending {
            let child: &Child = child;
            child.signal(Signal::SIGTERM);
        }
        self.wait_for(&mut ending, GRACE);
    }

    /// Waits until all of them have ended; kills what has not within the limit. How they ended.
    pub(super) fn wait_for(
        &self,
        children: &mut [Child],
        limit: Duration,
    ) -> Vec<Option<ExitStatus>> {
        let mut end = Instant::now() + limit;
        let mut killed = false;
        loop {
            let found: Vec<Option<ExitStatus>> =
                children.iter_mut().map(|it| it.ended().ok().flatten()).collect();
            let is_late = Instant::now() > end;
            // Killed and not gone: the kernel is still busy with it, and we can do no more.
            if found.iter().all(Option::is_some) || (is_late && killed) {
                return found;
            }
            if is_late {
                for child in &*children {
                    child.signal(Signal::SIGKILL);
                }
                killed = true;
                end = Instant::now() + GRACE;
            }
            self.breathe();
        }
    }

    /// Waits for a moment. Being told again to end changes nothing: we are at it.
    pub(super) fn breathe(&self) {
        let _again = self.signals.wait(LOOK);
    }
}
