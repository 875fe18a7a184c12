//! The single writer at work: a thread that takes whatever has queued up, has the [`Writer`] carry it
//! out, and answers.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};

use tokio::sync::oneshot;
use tracing::{error, info};
use volvox_host::clock::{monotonic, wall};
use volvox_host::thread::JoinOnDrop;
use volvox_protocol::time::Timestamp;

use super::clock::Steady;
pub use super::command::{CallError, QUEUE};
use super::command::{Command, Reply};
use super::settings::Settings;
use super::store::{DATABASE, LoadReport, Store, StoreError, backup};
use super::view::View;
use super::writer::{Job, Writer};

pub use super::writer::{Converge, Outlet, Traces};

/// Commands in one transaction. More only make the first of them wait longer.
pub const BATCH: usize = 1_024;

/// A board at work. Clones are handles on the same one; it closes when the last is dropped.
#[derive(Debug, Clone)]
pub struct Bbs {
    queue: SyncSender<Job<Answer>>,
    view: View,
    database: PathBuf,
    report: Arc<LoadReport>,
    // Declared after the queue: dropping the last handle closes the queue, then waits here until
    // the writer has finished what was in it.
    _writer: Arc<JoinOnDrop>,
}

type Answer = oneshot::Sender<Result<Reply, CallError>>;

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
        let writer = Writer::new(board, store, view.clone(), converge);
        let writer = Loop { writer, outlet: Box::new(outlet), clock };
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
            _writer: Arc::new(JoinOnDrop::new("the board's writer", thread)),
        })
    }

    /// Queues a command. The answer comes when its changes are on the disk.
    pub fn send(
        &self,
        command: Command,
    ) -> Result<oneshot::Receiver<Result<Reply, CallError>>, CallError> {
        self.send_traced(command, None)
    }

    fn send_traced(
        &self,
        command: Command,
        trace: Option<Arc<str>>,
    ) -> Result<oneshot::Receiver<Result<Reply, CallError>>, CallError> {
        let (who, answer) = oneshot::channel();
        match self.queue.try_send(Job { command, trace, who }) {
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

    /// As [`Bbs::ask`], for a caller that has a number of its own for the call.
    pub async fn ask_traced(
        &self,
        command: Command,
        trace: Option<Arc<str>>,
    ) -> Result<Reply, CallError> {
        self.send_traced(command, trace)?.await.unwrap_or(Err(CallError::Closed))
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

/// A writer that has panicked may hold half a thought. Nothing on the disk is lost by ending the
/// process here, and a new one starts from what is on the disk.
fn run_or_abort(writer: Loop, jobs: &Receiver<Job<Answer>>) {
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| writer.run(jobs)));
    if ran.is_err() {
        error!("the board's writer has panicked: the process ends, and may be started again");
        std::process::abort();
    }
}

/// The writer's thread.
struct Loop {
    writer: Writer<Store>,
    outlet: Box<dyn Outlet>,
    clock: Clock,
}

impl Loop {
    fn run(mut self, jobs: &Receiver<Job<Answer>>) {
        loop {
            let now = self.clock.now();
            let first = match jobs.recv_timeout(self.writer.patience(now)) {
                Ok(job) => Some(job),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut batch: VecDeque<Job<Answer>> =
                first.into_iter().chain(jobs.try_iter()).take(BATCH).collect();
            self.step(&mut batch);
            while !batch.is_empty() {
                self.step(&mut batch);
            }
        }
        info!("the board is closed");
    }

    fn step(&mut self, batch: &mut VecDeque<Job<Answer>>) {
        let now = self.clock.now();
        let mut random = || self.clock.random();
        let answers = self.writer.step(now, &mut random, batch, &mut *self.outlet);
        for (reply, result) in answers {
            // A caller that no longer waits is no reason to stop.
            let _ = reply.send(result);
        }
    }
}

/// Tells the time and gives out randomness: what pure code is told.
#[derive(Debug)]
struct Clock {
    steady: Steady,
    random: u64,
}

impl Default for Clock {
    fn default() -> Self {
        // Without the system's randomness ids are still distinct by time, only guessable.
        let random = getrandom::u64().unwrap_or_else(|_| wall().as_nanos());
        Clock { steady: Steady::new(monotonic(), wall()), random }
    }
}

impl Clock {
    fn now(&mut self) -> Timestamp {
        self.steady.now(monotonic(), wall())
    }

    fn random(&mut self) -> u64 {
        // An odd step visits every value once; the board stirs it.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15 ^ 0x55aa_0000_0000_0000);
        self.random
    }
}
