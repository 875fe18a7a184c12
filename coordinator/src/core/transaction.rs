//! What one step of the coordinator wants on the disk, and what follows once it is there.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::ops::Range;
use std::sync::Arc;

use volvox_protocol::cell_rpc::{CellAnswer, RetryLater};
use volvox_protocol::event::Event;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::time::Timestamp;

use super::message::{CoreOutput, ReplyId};
use crate::bbs::command::{BoardEffect, CallError, Change, Reply};
use crate::bbs::store::StoreError;
use crate::callback::logic::Key;

/// Changes after which a transaction takes no further input: one may bring a hundred thousand.
const CHANGES: usize = 20_000;

/// Which events of a commit, by their place, followed from a call that its caller gave a number.
pub type Traces = Vec<(Range<usize>, Arc<str>)>;

/// All of it happens, or none of it. Given by [`Core::step`](super::Core::step); whoever keeps it brings
/// it back by [`Core::committed`](super::Core::committed).
#[derive(Debug)]
#[must_use = "the board is ahead of the disk until this was committed"]
pub struct Transaction {
    /// When the step was taken, by the board's clock.
    pub(super) at: Timestamp,
    /// When nobody waits any longer, by [`Now::ran`](super::Now::ran).
    pub(super) deadline: Timestamp,
    pub(super) changes: Vec<Change>,
    pub(super) events: Vec<Event>,
    pub(super) traces: Traces,
    pub(super) effects: Vec<BoardEffect>,
    pub(super) answers: Vec<Answer>,
    /// Whether everything was looked at.
    pub(super) is_full_pass: bool,
}

/// The answer to whoever asked, if the commit succeeds.
#[derive(Debug)]
pub(super) enum Answer {
    Command(ReplyId, Result<Reply, CallError>),
    Report(ReplyId, Vec<CellAnswer>),
    Callback(Key, Result<(), String>),
}

impl Transaction {
    pub(super) fn new(at: Timestamp, deadline: Timestamp) -> Self {
        Transaction {
            at,
            deadline,
            changes: Vec::new(),
            events: Vec::new(),
            traces: Vec::new(),
            effects: Vec::new(),
            answers: Vec::new(),
            is_full_pass: false,
        }
    }

    /// What is to be saved: all of it or nothing.
    pub fn changes(&self) -> &[Change] {
        let micros = self.at.as_nanos() / 1_000;
        let lost = usize::from(mutated(Bug::LostChange) && micros.is_multiple_of(50));
        &self.changes[lost.min(self.changes.len())..]
    }

    /// When nobody waits for the commit any longer, by [`Now::ran`](super::Now::ran). What became of it
    /// is not known then: the board is to be read again.
    pub fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// The time of the step by the board's clock: what the records are stamped with.
    pub fn at(&self) -> Timestamp {
        self.at
    }

    /// What subscribers will be told.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What the board asks of the outside.
    pub fn effects(&self) -> &[BoardEffect] {
        &self.effects
    }

    pub(super) fn has_room(&self) -> bool {
        self.changes.len() <= CHANGES
    }
}

impl Answer {
    /// The same when the commit has failed. What was refused was refused whatever became of the rest.
    pub(super) fn not_saved(self, error: &Arc<StoreError>) -> Self {
        if mutated(Bug::AnswersRegardless) {
            return self;
        }
        match self {
            Answer::Command(who, Ok(_)) => {
                Answer::Command(who, Err(CallError::Store(Arc::clone(error))))
            }
            Answer::Command(who, refused @ Err(_)) => Answer::Command(who, refused),
            Answer::Callback(key, Ok(())) => Answer::Callback(key, Err(error.to_string())),
            Answer::Callback(key, refused @ Err(_)) => Answer::Callback(key, refused),
            Answer::Report(who, answers) => {
                let later = |answer| match answer {
                    CellAnswer::Done
                    | CellAnswer::ShouldStart(_)
                    | CellAnswer::KeepContainer(_) => CellAnswer::Later(RetryLater::NotSaved),
                    refused @ (CellAnswer::Rejected(_) | CellAnswer::Later(_)) => refused,
                };
                Answer::Report(who, answers.into_iter().map(later).collect())
            }
        }
    }

    /// As it leaves; none: it is for the callbacks.
    pub(super) fn output(self) -> Result<CoreOutput, (Key, Result<(), String>)> {
        match self {
            Answer::Command(who, result) => Ok(CoreOutput::Reply(who, result)),
            Answer::Report(who, answers) => Ok(CoreOutput::Answers(who, answers)),
            Answer::Callback(key, result) => Err((key, result)),
        }
    }
}
