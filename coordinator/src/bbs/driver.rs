//! The single writer: queue → logic → store → view → events and effects → replies.
//!
//! One thread owns the board and the database. It takes whatever has queued up, applies it
//! command by command, commits all changes in one transaction, and only then shows, tells and
//! answers. When a commit fails, none of the batch has happened: the board steps back, every
//! caller of the batch is told, and the next batch is tried as if nothing had been.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::oneshot;
use tracing::{error, info, warn};
use volvox_protocol::event::Event;
use volvox_protocol::request::Rejection;
use volvox_protocol::time::Timestamp;

use super::command::{Change, Command, Effect, Reply};
use super::logic::Board;
use super::settings::Settings;
use super::store::{DATABASE, LoadReport, Store, StoreError, backup};
use super::view::View;

/// Commands that may wait. More are refused: a caller that hears "busy" can tell its own caller.
const QUEUE: usize = 8_192;
/// Commands in one transaction. More only make the first of them wait longer.
const BATCH: usize = 1_024;
/// Changes after which a transaction takes no further command: one may bring a hundred thousand.
const CHANGES: usize = 20_000;
/// How long the writer leaves its own work alone when the disk does not take it; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why a call to the board did not succeed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The board said no. Nothing has changed.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The change could not be saved, so it did not happen. It may be tried again.
    #[error(transparent)]
    Store(#[from] Arc<StoreError>),
    /// Too many calls are waiting. Nothing has happened; try again in a moment.
    #[error("the board is busy: {QUEUE} calls are waiting already")]
    Busy,
    /// The board has been closed. Whether the change happened before that is not known.
    #[error("the board has been closed")]
    Closed,
}

/// Where events and effects go after their commit. Called by the writer: it must not wait.
pub trait Outlet: Send + 'static {
    /// Subscribers are to be told what this commit brought, in this order; perhaps nothing.
    fn tell(&mut self, commit: u64, events: Vec<Event>);
    /// The outside is asked to do this, in this order.
    fn ask(&mut self, effects: Vec<Effect>);
    /// The board was read again after the disk had failed, which counts as this commit: events may be
    /// missing. Subscribers have to list anew.
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

/// A board at work. Clones are handles on the same one; it closes when the last is dropped.
#[derive(Debug, Clone)]
pub struct Bbs {
    queue: SyncSender<Job>,
    view: View,
    database: PathBuf,
    report: Arc<LoadReport>,
    // Declared after the queue: dropping the last handle closes the queue, then waits here until
    // the writer has finished what was in it.
    _writer: Arc<Writer>,
}

#[derive(Debug)]
struct Job {
    command: Command,
    reply: Answer,
}

/// Joins the writer's thread when dropped.
#[derive(Debug)]
struct Writer(Option<JoinHandle<()>>);

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            error!("the board's writer has panicked");
        }
    }
}

impl Bbs {
    /// Opens the board in a data folder, makes it if there is none, and sets it to work.
    pub fn open(
        folder: &Path,
        settings: Settings,
        converge: Converge,
        outlet: impl Outlet,
    ) -> Result<Self, StoreError> {
        let mut store = Store::open(folder)?;
        let mut clock = Clock::default();
        let (board, report) = store.load(settings, clock.now())?;
        let view = View::new(board.records().clone());
        let (queue, jobs) = sync_channel(QUEUE);
        let writer = Loop {
            board,
            store,
            view: view.clone(),
            outlet: Box::new(outlet),
            clock,
            converge,
            next_full_pass: None,
            trouble: None,
        };
        let thread = std::thread::Builder::new()
            .name("board".to_owned())
            .spawn(move || run_or_abort(writer, &jobs))
            .map_err(|error| StoreError::Open {
                doing: "start the writer for",
                path: folder.to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Bbs {
            queue,
            view,
            database: folder.join(DATABASE),
            report: Arc::new(report),
            _writer: Arc::new(Writer(Some(thread))),
        })
    }

    /// Queues a command. The answer comes when its changes are on the disk.
    pub fn send(
        &self,
        command: Command,
    ) -> Result<oneshot::Receiver<Result<Reply, CallError>>, CallError> {
        let (reply, answer) = oneshot::channel();
        match self.queue.try_send(Job { command, reply }) {
            Ok(()) => Ok(answer),
            Err(TrySendError::Full(_)) => Err(CallError::Busy),
            Err(TrySendError::Disconnected(_)) => Err(CallError::Closed),
        }
    }

    /// Has a command carried out and waits for the answer, on a thread that may wait.
    pub fn call(&self, command: Command) -> Result<Reply, CallError> {
        self.send(command)?.blocking_recv().unwrap_or(Err(CallError::Closed))
    }

    /// Has a command carried out and waits for the answer, in a task.
    pub async fn ask(&self, command: Command) -> Result<Reply, CallError> {
        self.send(command)?.await.unwrap_or(Err(CallError::Closed))
    }

    /// What readers read.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// What was found when the board was opened.
    pub fn load_report(&self) -> &LoadReport {
        &self.report
    }

    /// Copies the database to a new file while the board goes on working. Takes as long as the
    /// copying takes.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        backup::backup(&self.database, to)
    }
}

/// The writer's thread.
struct Loop {
    board: Board,
    store: Store,
    view: View,
    outlet: Box<dyn Outlet>,
    clock: Clock,
    converge: Converge,
    next_full_pass: Option<Timestamp>,
    trouble: Option<Trouble>,
}

/// The disk did not take what the writer wanted to do by itself.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    until: Timestamp,
    pause: Duration,
}

/// A writer that has panicked may hold half a thought. Nothing on the disk is lost by ending the
/// process here, and a new one starts from what is on the disk.
fn run_or_abort(writer: Loop, jobs: &Receiver<Job>) {
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.run(jobs)));
    if ran.is_err() {
        error!("the board's writer has panicked: the process ends, and may be started again");
        std::process::abort();
    }
}

type Answer = oneshot::Sender<Result<Reply, CallError>>;

/// What came of some commands, until it is committed.
#[derive(Default)]
struct Done {
    changes: Vec<Change>,
    events: Vec<Event>,
    effects: Vec<Effect>,
    answers: Vec<(Option<Answer>, Result<Reply, CallError>)>,
}

impl Loop {
    fn run(mut self, jobs: &Receiver<Job>) {
        loop {
            let first = match jobs.recv_timeout(self.patience()) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut batch: VecDeque<Job> =
                first.into_iter().chain(jobs.try_iter()).take(BATCH).collect();
            self.step(&mut batch);
            while !batch.is_empty() {
                self.step(&mut batch);
            }
        }
        info!("the board is closed");
    }

    /// How long there is nothing to do of our own accord.
    fn patience(&mut self) -> Duration {
        const AT_MOST: Duration = Duration::from_secs(60);
        let Converge::Itself(interval) = self.converge else { return AT_MOST };
        let now = self.clock.now();
        let full_pass = *self.next_full_pass.get_or_insert(now + interval);
        let due = self.board.next_deadline().map_or(full_pass, |due| due.min(full_pass));
        let due = self.trouble.map_or(due, |trouble| due.max(trouble.until));
        due.since(now).min(AT_MOST)
    }

    /// What is due of our own accord.
    fn own_command(&mut self, now: Timestamp) -> Option<Command> {
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

    /// One transaction's worth of the batch: all of it or nothing of it.
    fn step(&mut self, batch: &mut VecDeque<Job>) {
        let now = self.clock.now();
        if !self.store.is_usable()
            && let Err(error) = self.recover(now)
        {
            self.failed(now, &error);
            let error = Arc::new(error);
            for job in batch.drain(..) {
                let _ = job.reply.send(Err(CallError::Store(Arc::clone(&error))));
            }
            return;
        }
        let mut done = Done::default();
        if let Some(command) = self.own_command(now) {
            self.apply(now, command, None, &mut done);
        }
        while done.changes.len() <= CHANGES
            && let Some(job) = batch.pop_front()
        {
            self.apply(now, job.command, Some(job.reply), &mut done);
        }
        self.commit(now, done);
    }

    fn apply(&mut self, now: Timestamp, command: Command, reply: Option<Answer>, done: &mut Done) {
        let result = match self.board.apply(now, self.clock.random(), command) {
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
        done.answers.push((reply, result));
    }

    /// Makes it last, then shows, tells and asks; or takes it back. Then answers.
    fn commit(&mut self, now: Timestamp, mut done: Done) {
        match self.store.commit(&done.changes) {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    warn!("the disk takes changes again");
                }
                if !done.changes.is_empty() || !done.events.is_empty() {
                    let commit = self.view.publish(&done.changes);
                    self.outlet.tell(commit, done.events);
                }
                if !done.effects.is_empty() {
                    self.outlet.ask(done.effects);
                }
            }
            Err(error) => {
                self.failed(now, &error);
                self.board.take_back(now, done.changes.into_iter());
                let error = Arc::new(error);
                // What was refused was refused whatever became of the rest.
                for (_, result) in &mut done.answers {
                    if result.is_ok() {
                        *result = Err(CallError::Store(Arc::clone(&error)));
                    }
                }
            }
        }
        for (reply, result) in done.answers {
            // A caller that no longer waits is no reason to stop.
            if let Some(reply) = reply {
                let _ = reply.send(result);
            }
        }
    }

    /// Notes that the disk did not do its part, and leaves our own work alone for a while. Said
    /// once: the log is likely to be on the same disk.
    fn failed(&mut self, now: Timestamp, error: &StoreError) {
        let pause = match self.trouble {
            None => {
                error!(%error, "a batch was not saved; saying so once until the disk takes changes");
                FIRST_PAUSE
            }
            Some(trouble) => (trouble.pause * 2).min(LONGEST_PAUSE),
        };
        let waiting = self.trouble.is_some_and(|trouble| trouble.until > now);
        if !waiting {
            self.trouble = Some(Trouble { until: now + pause, pause });
        }
    }

    /// Opens the database again and reads everything back: what the connection last did is not
    /// known.
    fn recover(&mut self, now: Timestamp) -> Result<(), StoreError> {
        self.store.reopen()?;
        let settings = self.board.settings().clone();
        let (mut board, _) = self.store.load(settings, now)?;
        std::mem::swap(&mut self.board, &mut board);
        self.board.listen_on(now, board);
        let commit = self.view.replace(self.board.records().clone());
        self.outlet.resync(commit);
        warn!("the database was opened again");
        Ok(())
    }
}

/// Tells the time and gives out randomness: what pure code is told.
///
/// The time never goes backwards and never stands still: it follows the system's clock, and goes
/// on by itself for as long as that is behind (somebody may have set it back).
#[derive(Debug)]
struct Clock {
    last: Timestamp,
    read_at: Instant,
    random: u64,
}

impl Default for Clock {
    fn default() -> Self {
        // Without the system's randomness ids are still distinct by time, only guessable.
        let random = getrandom::u64().unwrap_or_else(|_| system_time().as_nanos());
        Clock { last: system_time(), read_at: Instant::now(), random }
    }
}

impl Clock {
    fn now(&mut self) -> Timestamp {
        let read_at = Instant::now();
        let went_on = self.last + read_at.duration_since(self.read_at);
        self.last = went_on.max(system_time());
        self.read_at = read_at;
        self.last
    }

    fn random(&mut self) -> u64 {
        // An odd step visits every value once; the board stirs it.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15 ^ 0x55aa_0000_0000_0000);
        self.random
    }
}

fn system_time() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
