//! The coordinator at work: one thread owns the [`Core`] and its database. It takes whatever has queued
//! up, has the core decide, commits, and does what comes out. It waits for nothing but its disk: messages
//! to cells and calls of consumers are tasks of their own, and their ends come back as signals.
//!
//! | file | what it does |
//! |---|---|
//! | [`inbox`] | what waits for the thread: calls, reports of cells, signals |
//! | [`outputs`] | does what the core says, and shows what readers see |
//! | [`cells`] | the member of the mesh, and the handle on cells |
//! | [`rpc`] | answers what cells ask |
//! | [`tally`] | what is counted |

pub mod cells;
mod inbox;
mod outputs;
mod rpc;
pub mod tally;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Instant, SystemTime};

use tokio::sync::oneshot;
use tracing::{error, info, warn};
use volvox_protocol::api::CallbackFailure;
use volvox_protocol::event::Event;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use self::inbox::{Inbox, Taken};
use self::outputs::{MeshLink, Outputs, Shared};
pub use crate::bbs::command::{CallError, QUEUE};
use crate::bbs::command::{Command, Reply};
use crate::bbs::hub::Hub;
use crate::bbs::settings::BoardSettings;
use crate::bbs::store::{DATABASE, LoadReport, SqliteStore, StoreError, backup};
use crate::bbs::view::View;
use crate::callback::http::CallbackClient;
use crate::callback::logic::Counts;
use crate::core::{Core, CoreInput, CoreSettings, Now, Traces};

/// Where events go after their commit. Called by the coordinator's thread: it must not wait.
pub trait Subscribers: Send + 'static {
    /// What this commit brought, in this order; perhaps nothing. Some of it followed from calls that have
    /// a number of their own.
    fn tell(&mut self, commit: u64, events: Vec<Event>, traces: Traces);
    /// The board was read again, which counts as this commit: events may be missing.
    fn resync(&mut self, commit: u64);
}

/// Nobody.
impl Subscribers for () {
    fn tell(&mut self, _: u64, _: Vec<Event>, _: Traces) {}
    fn resync(&mut self, _: u64) {}
}

impl Subscribers for Hub {
    fn tell(&mut self, commit: u64, events: Vec<Event>, traces: Traces) {
        self.tell_traced(commit, events, traces);
    }

    fn resync(&mut self, commit: u64) {
        Hub::resync(self, some_number(), commit);
    }
}

/// A coordinator at work. Clones are handles on the same one; it ends when the last is dropped.
#[derive(Clone)]
pub struct Bbs {
    inbox: Arc<Inbox>,
    view: View,
    shared: Arc<Shared>,
    link: Arc<OnceLock<MeshLink>>,
    database: PathBuf,
    report: Arc<LoadReport>,
    // Declared last: dropping the last handle closes the inbox, then waits here until what was in it
    // has been done.
    _thread: Arc<Thread>,
}

/// Closes the inbox and joins the thread when dropped.
struct Thread(Arc<Inbox>, Option<JoinHandle<()>>);

impl Drop for Thread {
    fn drop(&mut self) {
        self.0.close();
        if let Some(thread) = self.1.take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            error!("the coordinator's thread has panicked");
        }
    }
}

impl std::fmt::Debug for Bbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bbs").field("database", &self.database).finish_non_exhaustive()
    }
}

impl Bbs {
    /// Opens the board in a data folder, makes it if there is none, and sets the coordinator to work.
    /// Without a client no consumer is called when a task has ended.
    pub fn open(
        folder: &Path,
        board: BoardSettings,
        settings: CoreSettings,
        subscribers: impl Subscribers,
        client: Option<CallbackClient>,
    ) -> Result<Self, StoreError> {
        let mut store = SqliteStore::open(folder)?;
        let clock = Clock::new();
        let (board, report) = store.load(board, clock.now().machine)?;
        let core = Core::new(clock.now(), settings, board);
        let (view, shared, link) = (core.view().clone(), Arc::default(), Arc::default());
        let inbox = Arc::new(Inbox::new(clock));
        let outputs = Outputs::new(
            Box::new(subscribers),
            client,
            Arc::clone(&inbox),
            Arc::clone(&shared),
            Arc::clone(&link),
        );
        let (random, inputs) = (SplitMix(some_number()), VecDeque::new());
        let driver =
            Driver { core, store, inbox: Arc::clone(&inbox), outputs, random, inputs, clock };
        let thread = std::thread::Builder::new()
            .name("core".to_owned())
            .spawn(move || run_or_abort(driver))
            .map_err(|error| StoreError::Open {
                doing: "start the coordinator's thread for",
                path: folder.to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Bbs {
            view,
            shared,
            link,
            database: folder.join(DATABASE),
            report: Arc::new(report),
            _thread: Arc::new(Thread(Arc::clone(&inbox), Some(thread))),
            inbox,
        })
    }

    /// Queues a command. The answer comes when its changes are on the disk.
    pub fn send(
        &self,
        command: Command,
    ) -> Result<oneshot::Receiver<Result<Reply, CallError>>, CallError> {
        self.inbox.command(command, None)
    }

    /// Has a command carried out and waits for the answer, on a thread that may wait.
    pub fn call(&self, command: Command) -> Result<Reply, CallError> {
        self.send(command)?.blocking_recv().unwrap_or(Err(CallError::Closed))
    }

    /// Has a command carried out and waits for the answer, in a task.
    pub async fn ask(&self, command: Command) -> Result<Reply, CallError> {
        self.ask_traced(command, None).await
    }

    /// As [`Bbs::ask`], for a caller that has a number of its own for the call.
    pub async fn ask_traced(
        &self,
        command: Command,
        trace: Option<Arc<str>>,
    ) -> Result<Reply, CallError> {
        self.inbox.command(command, trace)?.await.unwrap_or(Err(CallError::Closed))
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

    /// The last callbacks that failed, the latest first.
    pub fn callback_failures(&self) -> Vec<CallbackFailure> {
        self.shared.callback_failures()
    }

    /// How many callbacks there were, and are.
    pub fn callback_counts(&self) -> Counts {
        self.shared.callback_counts()
    }

    /// No consumer is called any more. Those under way are left to the next coordinator, which asks again.
    pub fn stop_callbacks(&self) {
        self.shared.stop_callbacks();
    }
}

/// A thread that has panicked may hold half a thought. Nothing on the disk is lost by ending the
/// process here, and a new one starts from what is on the disk.
fn run_or_abort(driver: Driver) {
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run()));
    if ran.is_err() {
        error!("the coordinator has panicked: the process ends, and may be started again");
        std::process::abort();
    }
}

/// The thread.
struct Driver {
    core: Core,
    store: SqliteStore,
    inbox: Arc<Inbox>,
    outputs: Outputs,
    random: SplitMix,
    /// What was too much for the last transaction.
    inputs: VecDeque<CoreInput>,
    clock: Clock,
}

impl Driver {
    fn run(mut self) {
        loop {
            let now = self.clock.now();
            let taken = match self.inputs.is_empty() {
                true => self.inbox.take(self.core.next_wake(now).since(now.ran)),
                false => Taken::default(),
            };
            let is_end = taken.is_end;
            self.turn(taken);
            if is_end {
                break;
            }
        }
        info!("the board is closed");
    }

    fn turn(&mut self, taken: Taken) {
        let Taken { inputs, signals, waiters, idle, .. } = taken;
        self.outputs.expect(waiters, idle);
        self.inputs.extend(inputs);
        let outputs = self.core.hear(self.clock.now(), signals);
        self.outputs.perform(outputs);
        self.reload();
        let transaction = self.core.step(self.clock.now(), &mut self.random, &mut self.inputs);
        let saved = self.store.commit(transaction.changes());
        let now = self.clock.now();
        if now.ran > transaction.deadline() {
            warn!("a commit took very long: look at the disk of the data folder");
        }
        let outputs = self.core.committed(now, transaction, saved);
        self.outputs.perform(outputs);
        self.outputs.show(&self.core);
    }

    /// Opens the database again and reads it back, when what it last did is not known.
    fn reload(&mut self) {
        let now = self.clock.now();
        if self.store.is_usable() || !self.core.is_reload_due(now) {
            return;
        }
        let (settings, at) = (self.core.board().settings().clone(), self.core.board_time(now));
        let loaded = self.store.reopen().and_then(|()| self.store.load(settings, at));
        match loaded {
            Ok((board, _)) => {
                let outputs = self.core.reloaded(now, board);
                self.outputs.perform(outputs);
            }
            Err(error) => self.core.reload_failed(now, &error),
        }
    }
}

/// The machine's clocks.
#[derive(Debug, Clone, Copy)]
struct Clock {
    began: Instant,
    /// What the time of day was then.
    at: Timestamp,
}

impl Clock {
    fn new() -> Self {
        Clock { began: Instant::now(), at: time_of_day() }
    }

    fn now(&self) -> Now {
        Now { ran: self.at + self.began.elapsed(), machine: time_of_day() }
    }
}

fn time_of_day() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// A number that no other life of this program has. Without the system's randomness it is still distinct
/// by time, only guessable.
pub(crate) fn some_number() -> u64 {
    getrandom::u64().unwrap_or_else(|_| time_of_day().as_nanos())
}
