//! When the board is looked at without being asked, and when it is left alone because the disk does not
//! take what it decides.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

use tracing::{error, warn};
use volvox_protocol::time::Timestamp;

use crate::bbs::command::Command;
use crate::bbs::store::StoreError;

/// How long the board's own work is left alone when the disk does not take it; doubled each time.
pub(super) const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The longest sleep.
const AT_MOST: Duration = Duration::from_secs(60);

/// Who makes convergence run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Converge {
    /// The coordinator: what is due when it is due, and everything at this interval.
    Itself(Duration),
    /// Whoever sends the commands.
    WhenTold,
}

impl Default for Converge {
    fn default() -> Self {
        Converge::Itself(Duration::from_secs(300))
    }
}

/// The board's own work. All times are those of the board's clock.
#[derive(Debug)]
pub(super) struct Schedule {
    converge: Converge,
    /// When everything is looked at; none: the first turn says.
    next_full_pass: Option<Timestamp>,
    trouble: Option<DiskBackoff>,
}

/// The disk did not take what was decided.
#[derive(Debug, Clone, Copy)]
struct DiskBackoff {
    until: Timestamp,
    pause: Duration,
}

impl Schedule {
    pub(super) fn new(converge: Converge) -> Self {
        Schedule { converge, next_full_pass: None, trouble: None }
    }

    /// How long there is nothing to do, if this is the board's next deadline.
    pub(super) fn patience(&mut self, at: Timestamp, deadline: Option<Timestamp>) -> Duration {
        let Converge::Itself(interval) = self.converge else { return AT_MOST };
        let full_pass = *self.next_full_pass.get_or_insert(at + interval);
        let due = deadline.map_or(full_pass, |due| due.min(full_pass));
        let due = self.trouble.map_or(due, |trouble| due.max(trouble.until));
        due.since(at).min(AT_MOST)
    }

    /// What is due.
    pub(super) fn due(&mut self, at: Timestamp, deadline: Option<Timestamp>) -> Option<Command> {
        let Converge::Itself(interval) = self.converge else { return None };
        if self.is_waiting(at) {
            return None;
        }
        if self.next_full_pass.is_some_and(|pass| pass <= at) {
            self.next_full_pass = Some(at + interval);
            return Some(Command::ConvergeAll);
        }
        deadline.filter(|due| *due <= at).map(|_| Command::ConvergeDue)
    }

    /// Something was saved.
    pub(super) fn saved(&mut self) {
        if self.trouble.take().is_some() {
            warn!("the disk takes changes again");
        }
    }

    /// The disk did not do its part. Said once: the log is likely to be on the same disk.
    pub(super) fn failed(&mut self, at: Timestamp, error: &StoreError) {
        let pause = match self.trouble {
            None => {
                error!(%error, "a batch was not saved; saying so once until the disk takes changes");
                FIRST_PAUSE
            }
            Some(trouble) => (trouble.pause * 2).min(LONGEST_PAUSE),
        };
        if !self.is_waiting(at) {
            self.trouble = Some(DiskBackoff { until: at + pause, pause });
        }
    }

    /// A full pass has ended. If there is a pause now, it came to nothing.
    pub(super) fn passed(&mut self, at: Timestamp) {
        if self.is_waiting(at) {
            self.next_full_pass = Some(at);
        }
    }

    fn is_waiting(&self, at: Timestamp) -> bool {
        self.trouble.is_some_and(|trouble| trouble.until > at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(hours: u32) -> Timestamp {
        Timestamp::from_secs(1_000) + HOUR * hours
    }

    fn name(command: Option<Command>) -> String {
        command.map_or_else(String::new, |it| format!("{it:?}"))
    }

    fn failure() -> StoreError {
        StoreError::Commit { reason: "the disk is full".to_owned() }
    }

    #[test]
    fn a_full_pass_comes_on_its_schedule_and_what_is_due_between() {
        let mut schedule = Schedule::new(Converge::Itself(HOUR));
        assert_eq!(schedule.patience(at(0), None), AT_MOST);
        assert_eq!(name(schedule.due(at(0), None)), "");
        assert_eq!(name(schedule.due(at(0), Some(at(0)))), "ConvergeDue");
        assert_eq!(schedule.patience(at(0), Some(at(0))), Duration::ZERO);
        assert_eq!(name(schedule.due(at(1), None)), "ConvergeAll");
        assert_eq!(name(schedule.due(at(1), None)), "");
        assert_eq!(name(schedule.due(at(2), None)), "ConvergeAll");
    }

    #[test]
    fn work_that_cannot_be_saved_is_tried_again_with_longer_and_longer_pauses() {
        let mut schedule = Schedule::new(Converge::Itself(HOUR));
        let (mut now, mut pauses) = (at(0), Vec::new());
        for _ in 0..7 {
            schedule.failed(now, &failure());
            schedule.failed(now, &failure());
            assert_eq!(name(schedule.due(now, Some(at(0)))), "", "it does not spin");
            let pause = schedule.patience(now, Some(at(0)));
            pauses.push(pause.as_secs());
            now = now + pause;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
        schedule.saved();
        assert_eq!(name(schedule.due(now, Some(at(0)))), "ConvergeDue");
    }

    #[test]
    fn a_full_pass_that_was_not_saved_is_due_after_the_pause() {
        let mut schedule = Schedule::new(Converge::Itself(HOUR));
        schedule.patience(at(0), None);
        assert_eq!(name(schedule.due(at(1), None)), "ConvergeAll");
        schedule.failed(at(1), &failure());
        schedule.passed(at(1));
        assert_eq!(name(schedule.due(at(1), None)), "");
        assert_eq!(name(schedule.due(at(1) + FIRST_PAUSE, None)), "ConvergeAll");
        schedule.passed(at(1) + FIRST_PAUSE);
        assert_eq!(name(schedule.due(at(1) + FIRST_PAUSE, None)), "", "it does not spin");
    }
}
