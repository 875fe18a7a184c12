//! The single writer: queue → logic → store → view → events and effects → replies.
//!
//! It owns the board and what keeps it. It takes whatever has queued up, applies it command by
//! command, commits all changes in one transaction, and only then shows, tells and answers. When a
//! commit fails, none of the batch has happened: the board steps back, every caller of the batch is
//! told, and the next batch is tried as if nothing had been. The time and the randomness are given;
//! the disk is behind [`Keeper`]: so the simulator runs this very writer.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, warn};
use volvox_protocol::event::Event;
use volvox_protocol::mutation::{Bug, mutated};
use volvox_protocol::time::{Backoff, Timestamp};

use super::command::{Change, Command, Effect, Reply};
use super::driver::CallError;
use super::logic::Board;
use super::settings::Settings;
use super::store::{LoadReport, StoreError};
use super::view::View;

/// Changes after which a transaction takes no further command: one may bring a hundred thousand.
const CHANGES: usize = 20_000;
/// How long the writer leaves its own work alone when the disk does not take it.
pub(super) const PAUSE: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// What makes a board's changes last.
pub trait Keeper {
    /// All of these, or none. Returns when they are on the disk.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;
    /// Whether it can take another transaction.
    fn is_usable(&self) -> bool;
    /// Begins anew, when it cannot.
    fn reopen(&mut self) -> Result<(), StoreError>;
    /// Reads everything back onto a new board.
    fn load(
        &mut self,
        settings: Settings,
        now: Timestamp,
    ) -> Result<(Board, LoadReport), StoreError>;
}

/// A command that somebody asks for.
#[derive(Debug, Clone)]
pub struct Job<T> {
    /// What.
    pub command: Command,
    /// What its caller called it; in the events it is named so.
    pub trace: Option<Arc<str>>,
    /// Who asks, and is answered.
    pub who: T,
}

/// Which events of a commit, by their place, followed from a call that its caller gave a number.
pub type Traces = Vec<(Range<usize>, Arc<str>)>;

/// Where events and effects go after their commit. Called by the writer: it must not wait.
pub trait Outlet: Send + 'static {
    /// Subscribers are to be told what this commit brought, in this order; perhaps nothing.
    fn tell(&mut self, commit: u64, events: Vec<Event>);
    /// As [`Outlet::tell`], with what callers called the commands that brought some of them.
    fn tell_traced(&mut self, commit: u64, events: Vec<Event>, _: Traces) {
        self.tell(commit, events);
    }
    /// The outside is asked to do this, in this order.
    fn ask(&mut self, effects: Vec<Effect>);
    /// The board was read again after the disk had failed, which counts as this commit: events and
    /// effects may be missing. Subscribers have to list anew, and cells to sync.
    fn resync(&mut self, _commit: u64) {}
}

/// For those who want to hear nothing.
impl Outlet for () {
    fn tell(&mut self, _: u64, _: Vec<Event>) {}
    fn ask(&mut self, _: Vec<Effect>) {}
}

/// Who makes convergence run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Converge {
    /// The writer: what is due when it is due, and everything at this interval.
    Itself(Duration),
    /// Whoever sends the commands.
    WhenTold,
}

impl Default for Converge {
    fn default() -> Self {
        Converge::Itself(Duration::from_secs(300))
    }
}

/// The writer.
#[derive(Debug)]
pub struct Writer<K> {
    pub(super) board: Board,
    pub(super) store: K,
    pub(super) view: View,
    converge: Converge,
    next_full_pass: Option<Timestamp>,
    pub(super) trouble: Option<Trouble>,
    /// When the next try is to open the database again.
    pub(super) recovers_at: Timestamp,
}

/// The disk did not take what the writer wanted to do by itself.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trouble {
    pub(super) until: Timestamp,
    /// Failures in a row, each after the pause of the one before.
    pub(super) failures: u32,
}

/// Whoever asked for a command, with the answer.
pub type Answered<T> = (T, Result<Reply, CallError>);

/// What came of some commands, until it is committed.
struct Done<T> {
    changes: Vec<Change>,
    events: Vec<Event>,
    traces: Traces,
    effects: Vec<Effect>,
    answers: Vec<Answered<Option<T>>>,
}

impl<K: Keeper> Writer<K> {
    /// The writer of a board that was read from this store. The view shows the same records.
    pub fn new(board: Board, store: K, view: View, converge: Converge) -> Self {
        Writer {
            board,
            store,
            view,
            converge,
            next_full_pass: None,
            trouble: None,
            recovers_at: Timestamp::from_secs(0),
        }
    }

    /// The board, to look at.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// What keeps it.
    pub fn keeper(&mut self) -> &mut K {
        &mut self.store
    }

    /// How long there is nothing to do of our own accord.
    pub fn patience(&mut self, now: Timestamp) -> Duration {
        const AT_MOST: Duration = Duration::from_secs(60);
        let Converge::Itself(interval) = self.converge else { return AT_MOST };
        let full_pass = *self.next_full_pass.get_or_insert(now + interval);
        let due = self.board.next_deadline().map_or(full_pass, |due| due.min(full_pass));
        let due = self.trouble.map_or(due, |trouble| due.max(trouble.until));
        due.since(now).min(AT_MOST)
    }

    /// What is due of our own accord.
    pub(super) fn own_command(&mut self, now: Timestamp) -> Option<Command> {
        let Converge::Itself(interval) = self.converge else { return None };
        if self.trouble.is_some_and(|trouble| trouble.until > now) {
            return None;
        }
        if self.next_full_pass.is_some_and(|at| at <= now) {
            self.next_full_pass = Some(now + interval);
            return Some(Command::ConvergeAll);
        }
        self.board.next_deadline().filter(|at| *at <= now).map(|_| Command::ConvergeDue)
    }

    /// One transaction's worth of the batch: all of it or nothing of it. `random` is for new ids.
    pub fn step<T>(
        &mut self,
        now: Timestamp,
        random: &mut impl FnMut() -> u64,
        batch: &mut VecDeque<Job<T>>,
        outlet: &mut (impl Outlet + ?Sized),
    ) -> Vec<Answered<T>> {
        if !self.store.is_usable() {
            // Reading everything back is much work: not for each batch, on a disk that is not well.
            if self.recovers_at > now {
                let reason = "the database could not be opened again; it is tried again soon";
                let error = StoreError::Commit { reason: reason.to_owned() };
                return self.refuse_all(now, random, batch, error);
            }
            if let Err(error) = self.recover(now, outlet) {
                self.failed(now, &error);
                self.recovers_at = now + PAUSE.first;
                return self.refuse_all(now, random, batch, error);
            }
        }
        let (changes, events, effects) = (Vec::new(), Vec::new(), Vec::new());
        let (traces, answers) = (Vec::new(), Vec::new());
        let mut done = Done { changes, events, traces, effects, answers };
        let own = self.own_command(now);
        let is_full_pass = matches!(own, Some(Command::ConvergeAll));
        if let Some(command) = own {
            self.apply(now, random(), command, None, &mut done);
        }
        while done.changes.len() <= CHANGES
            && let Some(Job { command, trace, who }) = batch.pop_front()
        {
            let begin = done.events.len();
            self.apply(now, random(), command, Some(who), &mut done);
            if let Some(trace) = trace
                && begin < done.events.len()
            {
                done.traces.push((begin..done.events.len(), trace));
            }
        }
        let answers = self.commit(now, done, outlet);
        // Our own work waits for the end of a pause: if there is one now, this pass came to nothing.
        if is_full_pass && self.trouble.is_some_and(|trouble| trouble.until > now) {
            self.next_full_pass = Some(now);
        }
        answers
    }

    /// Carries nothing out. What was said of the mesh stands, as when a commit fails: it is so, and
    /// nobody will say it again.
    fn refuse_all<T>(
        &mut self,
        now: Timestamp,
        random: &mut impl FnMut() -> u64,
        batch: &mut VecDeque<Job<T>>,
        error: StoreError,
    ) -> Vec<Answered<T>> {
        let error = Arc::new(error);
        let mut answers = Vec::with_capacity(batch.len());
        let mut changes = Vec::new();
        for Job { command, who, .. } in batch.drain(..) {
            let is_heard = matches!(command, Command::CellPresence(..) | Command::CellsSettled)
                && !mutated(Bug::NewsIsRefused);
            if is_heard && let Ok(outcome) = self.board.apply(now, random(), command) {
                changes.extend(outcome.changes);
            }
            answers.push((who, Err(CallError::Store(Arc::clone(&error)))));
        }
        self.board.take_back(now, changes.into_iter());
        answers
    }

    fn apply<T>(
        &mut self,
        now: Timestamp,
        random: u64,
        command: Command,
        who: Option<T>,
        done: &mut Done<T>,
    ) {
        let result = match self.board.apply(now, random, command) {
            Ok(outcome) => {
                done.changes.extend(outcome.changes);
                done.events.extend(outcome.events);
                done.effects.extend(outcome.effects);
                if let Reply::Converged(found) = &outcome.reply
                    && found.healed > 0
                {
                    warn!(healed = found.healed, "the agenda did not agree with the records");
                }
                Ok(outcome.reply)
            }
            Err(rejection) => Err(CallError::Rejected(rejection)),
        };
        done.answers.push((who, result));
    }

    /// Makes it last, then shows, tells and asks; or takes it back. Gives the answers.
    fn commit<T>(
        &mut self,
        now: Timestamp,
        mut done: Done<T>,
        outlet: &mut (impl Outlet + ?Sized),
    ) -> Vec<Answered<T>> {
        let lost =
            usize::from(mutated(Bug::LostChange) && (now.as_nanos() / 1_000).is_multiple_of(50));
        match self.store.commit(&done.changes[lost.min(done.changes.len())..]) {
            Ok(()) => {
                // Where nothing was written the disk was not asked.
                if self.trouble.is_some() && done.changes.iter().any(Change::is_kept) {
                    self.trouble = None;
                    warn!("the disk takes changes again");
                }
                if !done.changes.is_empty() || !done.events.is_empty() {
                    let commit = self.view.publish(&done.changes);
                    outlet.tell_traced(commit, done.events, done.traces);
                }
                if !done.effects.is_empty() {
                    outlet.ask(done.effects);
                }
            }
            Err(error) => {
                self.failed(now, &error);
                if !mutated(Bug::NotTakenBack) {
                    self.board.take_back(now, done.changes.into_iter());
                }
                let error = Arc::new(error);
                // What was refused was refused whatever became of the rest.
                for (_, result) in &mut done.answers {
                    if result.is_ok() && !mutated(Bug::AnswersRegardless) {
                        *result = Err(CallError::Store(Arc::clone(&error)));
                    }
                }
            }
        }
        done.answers.into_iter().filter_map(|(who, result)| Some((who?, result))).collect()
    }

    /// Notes that the disk did not do its part, and leaves our own work alone for a while. Said
    /// once: the log is likely to be on the same disk.
    pub(super) fn failed(&mut self, now: Timestamp, error: &StoreError) {
        if self.trouble.is_none() {
            error!(%error, "a batch was not saved; saying so once until the disk takes changes");
        }
        let waiting = self.trouble.is_some_and(|trouble| trouble.until > now);
        if !waiting {
            let failures = self.trouble.map_or(1, |trouble| trouble.failures.saturating_add(1));
            self.trouble = Some(Trouble { until: now + PAUSE.after(failures), failures });
        }
    }

    /// Opens the database again and reads everything back: what the connection last did is not
    /// known.
    fn recover(
        &mut self,
        now: Timestamp,
        outlet: &mut (impl Outlet + ?Sized),
    ) -> Result<(), StoreError> {
        self.store.reopen()?;
        let settings = self.board.settings().clone();
        let (mut board, _) = self.store.load(settings, now)?;
        std::mem::swap(&mut self.board, &mut board);
        self.board.listen_on(now, board);
        let commit = self.view.replace(self.board.records().clone());
        outlet.resync(commit);
        warn!("the database was opened again");
        Ok(())
    }
}
