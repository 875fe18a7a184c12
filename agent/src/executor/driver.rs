//! The executor at work: one thread that takes calls and outcomes, has the depot decide, writes down
//! what it decided, and has the runtime do it. It never waits for anything but the next input.

#[cfg(test)]
mod tests;

use crate::container::op::OpOutcome;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use tracing::{debug, error, info, warn};
use volvox_host::clock::Clock;
use volvox_host::thread::JoinOnDrop;
use volvox_protocol::cell::CellCapacity;

use super::container_store::{ContainerEvent, ExecutorRefusal, RemovalReason};
use super::logic::{
    ContainerView, Executor, ExecutorInput, ExecutorOutput, ExecutorSettings, RecoveredContainer,
    ReservationRequest,
};
use super::store::{ContainerRecords, RecordsError};
use super::workload::Workload;
use super::write_ahead::WriteAheadGuard;
use crate::container::guid::ContainerGuid;
use crate::container::runtime::RecoveredState;
use crate::container::runtime::{OutcomeSender, Runtime, RuntimeError};

/// Calls and outcomes that may wait. More calls are refused; more outcomes wait at their source.
const QUEUE: usize = 4_096;
/// Events that may wait for a subscriber. One that falls behind further is dropped and must list.
const EVENTS: usize = 1_024;
/// The longest sleep.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Why a call did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The depot said no. Nothing has changed.
    #[error(transparent)]
    Refused(#[from] ExecutorRefusal),
    /// The container could not be taken away. It has completed; try again.
    #[error("container {0} cannot be deleted: {1}")]
    NotDeleted(ContainerGuid, String),
    /// Too many calls are waiting. Nothing has happened; try again in a moment.
    #[error("the executor is busy: {QUEUE} calls are waiting already")]
    Busy,
    /// The executor has been closed.
    #[error("the executor has been closed")]
    Closed,
}

/// An executor that could not start. Containers that run go on running.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The records of what runs here.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// The machine.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

type Answer<T> = SyncSender<Result<T, CallError>>;

enum ExecutorCall {
    Outcome(ContainerGuid, OpOutcome),
    Wake,
    Reserve(Vec<ReservationRequest>, Answer<Vec<(ContainerGuid, ExecutorRefusal)>>),
    Tell(ExecutorInput, Answer<()>),
    Delete(ContainerGuid, Answer<()>),
    List(Answer<Vec<ContainerView>>),
    Show(ContainerGuid, Answer<Option<ContainerView>>),
    Remaining(Answer<CellCapacity>),
    Subscribe(SyncSender<ContainerEvent>),
    Watch(Arc<dyn ContainerWatch>),
    Close,
}

/// Hears of every change of every container. Called by the executor's thread: it must not wait, and
/// must not call the executor.
pub trait ContainerWatch: Send + Sync {
    /// This container is so now, or gone; so much room is left.
    fn changed(&self, guid: &ContainerGuid, view: Option<ContainerView>, free: CellCapacity);
}

/// An executor at work. Clones are handles on the same one. When the last is dropped it ends, and
/// the containers go on without it.
#[derive(Debug, Clone)]
pub struct ExecutorHandle {
    queue: SyncSender<ExecutorCall>,
    clock: Clock,
    _thread: Arc<ExecutorThread>,
}

/// Ends the thread when dropped: outcomes hold the queue open, so it must be told.
#[derive(Debug)]
struct ExecutorThread {
    queue: SyncSender<ExecutorCall>,
    _joined: JoinOnDrop,
}

impl Drop for ExecutorThread {
    fn drop(&mut self) {
        let _ = self.queue.send(ExecutorCall::Close);
    }
}

impl ExecutorHandle {
    /// Takes over what runs on this machine, and goes on from there.
    pub fn open(
        settings: ExecutorSettings,
        records: ContainerRecords,
        mut runtime: impl Runtime,
    ) -> Result<Self, StartError> {
        let (queue, inbox) = sync_channel(QUEUE);
        let outcomes = {
            let queue = queue.clone();
            // An executor that has ended needs no outcomes: the next one finds them.
            OutcomeSender::new(move |guid, outcome| {
                drop(queue.send(ExecutorCall::Outcome(guid, outcome)))
            })
        };
        let clock = Clock::of_boot(records.folder());
        let known = records.load()?;
        let made = known.iter().filter(|(_, (saved, _))| saved.may_exist());
        let guids: BTreeSet<ContainerGuid> = made.map(|(guid, _)| guid.clone()).collect();
        let mut standings = runtime.find(&guids, &outcomes)?;
        let found = known.into_iter().map(|(guid, (saved, work))| {
            let nothing = RecoveredState::Dead { exited: BTreeMap::new() };
            let standing = standings.remove(&guid).unwrap_or(nothing);
            RecoveredContainer { saved, work, standing }
        });
        let (depot, effects) = Executor::restore(clock.now(), settings, found.collect());
        let mut driver = ExecutorDriver {
            depot,
            records,
            runtime,
            clock,
            subscribers: Vec::new(),
            deleting: BTreeMap::new(),
            refused: Vec::new(),
            watchers: Vec::new(),
            shown: BTreeMap::new(),
        };
        info!(containers = driver.depot.containers().count(), "executor open");
        driver.perform(effects);
        let thread = std::thread::Builder::new()
            .name("executor".to_owned())
            .spawn(move || driver.work(&inbox))
            .map_err(RuntimeError::doing("start the executor's thread"))?;
        let _joined = JoinOnDrop::new("the executor", thread);
        let thread = ExecutorThread { queue: queue.clone(), _joined };
        Ok(ExecutorHandle { queue, clock, _thread: Arc::new(thread) })
    }

    /// Sets room aside. Gives those that got none, and why.
    pub fn reserve(
        &self,
        wanted: Vec<ReservationRequest>,
    ) -> Result<Vec<(ContainerGuid, ExecutorRefusal)>, CallError> {
        self.ask(|answer| ExecutorCall::Reserve(wanted, answer))
    }

    /// Makes a container of a reservation and begins its work. How that goes, events tell.
    pub fn run(&self, guid: ContainerGuid, work: Workload) -> Result<(), CallError> {
        self.ask(|answer| ExecutorCall::Tell(ExecutorInput::Run(guid, work), answer))
    }

    /// Stops a container, gracefully. Returns at once; an event tells when it has completed.
    pub fn stop(&self, guid: ContainerGuid) -> Result<(), CallError> {
        self.ask(|answer| ExecutorCall::Tell(ExecutorInput::Stop(guid), answer))
    }

    /// Deletes a container in whatever state it is. Returns when nothing is left of it.
    pub fn delete(&self, guid: ContainerGuid) -> Result<(), CallError> {
        self.ask(|answer| ExecutorCall::Delete(guid, answer))
    }

    /// As [`ExecutorHandle::delete`], and does not wait: a watcher sees that it is gone, or still there.
    pub fn begin_delete(&self, guid: ContainerGuid) -> Result<(), CallError> {
        let (nobody, _) = sync_channel(1);
        self.queue.try_send(ExecutorCall::Delete(guid, nobody)).map_err(refused)
    }

    /// What its containers' times are told by.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Hears of all that there is, and then of every change.
    pub fn watch(&self, watch: Arc<dyn ContainerWatch>) -> Result<(), CallError> {
        self.queue.try_send(ExecutorCall::Watch(watch)).map_err(refused)
    }

    /// All containers, by name.
    pub fn containers(&self) -> Result<Vec<ContainerView>, CallError> {
        self.ask(ExecutorCall::List)
    }

    /// The container of this name, if there is one.
    pub fn container(&self, guid: ContainerGuid) -> Result<Option<ContainerView>, CallError> {
        self.ask(|answer| ExecutorCall::Show(guid, answer))
    }

    /// The room that is left.
    pub fn remaining(&self) -> Result<CellCapacity, CallError> {
        self.ask(ExecutorCall::Remaining)
    }

    /// Hears of every event from now on. One that falls behind is cut off: it must list again.
    pub fn subscribe(&self) -> Result<Receiver<ContainerEvent>, CallError> {
        let (sender, events) = sync_channel(EVENTS);
        self.queue.try_send(ExecutorCall::Subscribe(sender)).map_err(refused)?;
        Ok(events)
    }

    fn ask<T>(&self, message: impl FnOnce(Answer<T>) -> ExecutorCall) -> Result<T, CallError> {
        let (answer, hear) = sync_channel(1);
        self.queue.try_send(message(answer)).map_err(refused)?;
        hear.recv().unwrap_or(Err(CallError::Closed))
    }
}

fn refused(error: TrySendError<ExecutorCall>) -> CallError {
    match error {
        TrySendError::Full(_) => CallError::Busy,
        TrySendError::Disconnected(_) => CallError::Closed,
    }
}

struct ExecutorDriver<R> {
    depot: Executor,
    records: ContainerRecords,
    runtime: R,
    clock: Clock,
    subscribers: Vec<SyncSender<ContainerEvent>>,
    deleting: BTreeMap<ContainerGuid, Vec<Answer<()>>>,
    /// Reservations that the last call did not get.
    refused: Vec<(ContainerGuid, ExecutorRefusal)>,
    watchers: Vec<Arc<dyn ContainerWatch>>,
    /// What watchers were last shown.
    shown: BTreeMap<ContainerGuid, ContainerView>,
}

impl<R: Runtime> ExecutorDriver<R> {
    fn work(mut self, inbox: &Receiver<ExecutorCall>) {
        loop {
            match self.next(inbox) {
                ExecutorCall::Close => return info!("executor closed"),
                message => self.step(message),
            }
        }
    }

    fn next(&self, inbox: &Receiver<ExecutorCall>) -> ExecutorCall {
        let wait = self.depot.next_wake().map_or(LONGEST_WAIT, |at| at.since(self.clock.now()));
        match inbox.recv_timeout(wait.min(LONGEST_WAIT)) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => ExecutorCall::Wake,
            Err(RecvTimeoutError::Disconnected) => ExecutorCall::Close,
        }
    }

    fn step(&mut self, message: ExecutorCall) {
        match message {
            ExecutorCall::Wake => drop(self.decide(ExecutorInput::Wake)),
            ExecutorCall::Outcome(guid, outcome) => {
                if let Err(refusal) = self.decide(ExecutorInput::Outcome(guid, outcome)) {
                    debug!(%refusal, "an outcome came too late");
                }
            }
            ExecutorCall::Reserve(wanted, answer) => {
                let decided = self.decide(ExecutorInput::Reserve(wanted));
                let refused = std::mem::take(&mut self.refused);
                let _ = answer.send(decided.map(|()| refused));
            }
            ExecutorCall::Tell(input, answer) => drop(answer.send(self.decide(input))),
            ExecutorCall::Delete(guid, answer) => self.delete(guid, answer),
            ExecutorCall::List(answer) => {
                let _ = answer.send(Ok(self.depot.containers().collect()));
            }
            ExecutorCall::Show(guid, answer) => drop(answer.send(Ok(self.depot.container(&guid)))),
            ExecutorCall::Remaining(answer) => {
                let _ = answer.send(Ok(self.depot.resources().remaining()));
            }
            ExecutorCall::Subscribe(subscriber) => self.subscribers.push(subscriber),
            ExecutorCall::Watch(watch) => self.watch(watch),
            ExecutorCall::Close => {}
        }
    }

    fn decide(&mut self, input: ExecutorInput) -> Result<(), CallError> {
        let effects = self.depot.apply(self.clock.now(), input)?;
        self.perform(effects);
        Ok(())
    }

    /// Whoever asks is answered when nothing is left of the container, which may be at once.
    fn delete(&mut self, guid: ContainerGuid, answer: Answer<()>) {
        self.deleting.entry(guid.clone()).or_default().push(answer);
        if let Err(error) = self.decide(ExecutorInput::Delete(guid.clone())) {
            self.answer_deletes(&guid, &Err(error));
        }
    }

    fn answer_deletes(&mut self, guid: &ContainerGuid, answer: &Result<(), CallError>) {
        for asker in self.deleting.remove(guid).unwrap_or_default() {
            let _ = asker.send(answer.clone());
        }
    }

    fn watch(&mut self, watch: Arc<dyn ContainerWatch>) {
        let free = self.depot.resources().remaining();
        for view in self.depot.containers() {
            let guid = view.container.guid.clone();
            watch.changed(&guid, Some(view.clone()), free);
            self.shown.insert(guid, view);
        }
        self.watchers.push(watch);
    }

    /// Shows watchers what is otherwise than they were shown.
    fn show(&mut self, touched: &BTreeSet<ContainerGuid>) {
        if self.watchers.is_empty() {
            return;
        }
        let free = self.depot.resources().remaining();
        for guid in touched {
            let view = self.depot.container(guid);
            if self.shown.get(guid) == view.as_ref() {
                continue;
            }
            match &view {
                Some(view) => drop(self.shown.insert(guid.clone(), view.clone())),
                None => drop(self.shown.remove(guid)),
            }
            for watch in &self.watchers {
                watch.changed(guid, view.clone(), free);
            }
        }
    }

    fn perform(&mut self, effects: Vec<ExecutorOutput>) {
        let touched = effects.iter().filter_map(|effect| match effect {
            ExecutorOutput::Keep(guid) | ExecutorOutput::Forget(guid, _) => Some(guid.clone()),
            ExecutorOutput::KeepWork(..)
            | ExecutorOutput::Emit(_)
            | ExecutorOutput::RefuseReservation(..)
            | ExecutorOutput::Do(..)
            | ExecutorOutput::DeleteFailed(..) => None,
        });
        let touched: BTreeSet<ContainerGuid> = touched.collect();
        self.carry_out(effects);
        self.show(&touched);
    }

    fn carry_out(&mut self, effects: Vec<ExecutorOutput>) {
        let mut keeping = WriteAheadGuard::default();
        for effect in effects {
            match effect {
                ExecutorOutput::Keep(guid) => {
                    if !self.keep(&guid) {
                        keeping.not_kept(guid);
                    }
                }
                ExecutorOutput::KeepWork(guid, work) => {
                    let kept = self.records.keep_work(&guid, &work);
                    self.complain("keep the work of", &guid, kept);
                }
                ExecutorOutput::Emit(event) => self.emit(&event),
                ExecutorOutput::RefuseReservation(guid, refusal) => {
                    self.refused.push((guid, refusal))
                }
                ExecutorOutput::Do(guid, deed) => {
                    if let Some(deed) = keeping.allow(&self.depot, &guid, deed) {
                        debug!(container = %guid, ?deed, "perform");
                        self.runtime.perform(&guid, deed);
                    }
                }
                ExecutorOutput::Forget(guid, why) => {
                    let forgotten = self.records.forget(&guid);
                    self.complain("strike out", &guid, forgotten);
                    match why {
                        RemovalReason::Deleted => info!(container = %guid, "container deleted"),
                        RemovalReason::Expired => warn!(container = %guid, "reservation expired"),
                        RemovalReason::StoppedBeforeRunning => {
                            info!(container = %guid, "reservation stopped");
                        }
                    }
                    self.answer_deletes(&guid, &Ok(()));
                }
                ExecutorOutput::DeleteFailed(guid, reason) => {
                    error!(container = %guid, reason, "container cannot be deleted");
                    let error = CallError::NotDeleted(guid.clone(), reason);
                    self.answer_deletes(&guid, &Err(error));
                }
            }
        }
        for not_begun in keeping.into_inputs() {
            // A refusal means that it is gone by now.
            let _refused = self.decide(not_begun);
        }
    }

    /// Whether it is written down now.
    fn keep(&self, guid: &ContainerGuid) -> bool {
        let Some(progress) = self.depot.progress(guid) else { return true };
        let kept = self.records.keep(guid, &progress);
        let is_kept = kept.is_ok();
        self.complain("keep the progress of", guid, kept);
        is_kept
    }

    /// A record that cannot be written costs a restart its memory of one container, no more: what
    /// runs goes on, and a person is told. Only what may not run twice does not begin.
    fn complain(&self, doing: &str, guid: &ContainerGuid, done: Result<(), RecordsError>) {
        if let Err(error) = done {
            error!(container = %guid, %error, "cannot {doing} a container");
        }
    }

    fn emit(&mut self, event: &ContainerEvent) {
        if let Some(container) = self.depot.container(event.guid()) {
            let state = container.container.state;
            let result = &container.container.result;
            info!(container = %event.guid(), ?state, reason = result.failure_reason, "container");
        }
        self.subscribers.retain(|subscriber| match subscriber.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                warn!("a subscriber to container events fell behind and was cut off");
                false
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}
