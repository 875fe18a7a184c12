//! The rep at work: a thread that hears of containers, of the coordinator, of orders and of time, has
//! [`logic`](super::logic) decide, and has the executor and the mesh do it. It waits for nothing but
//! the next input; a question to the coordinator is a task of the mesh, and its answer an input.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tracing::{debug, error, info, warn};
use volvox_host::clock::{Clock, wall};
use volvox_mesh::driver::Mesh;
use volvox_mesh::identity::MemberId;
use volvox_mesh::request::AskError;
use volvox_protocol::cell::{CellCapacity, CellLoad};
use volvox_protocol::cell_rpc::{CellOrders, CellOrdersReply, SyncCell, SyncedCell};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::limits::SYNC_ITEMS;
use volvox_protocol::time::Timestamp;

use super::logic::{AskFailure, Rep, RepInput, RepOutput, RepSettings, SessionId};
use super::paging::Paging;
use super::self_test::{self, SelfTest, test_definition};
use super::status::{LoadStatus, RepStatus};
use super::store::Assignments;
use crate::container::guid::ContainerGuid;
use crate::executor::driver::{CallError, ContainerWatch, ExecutorHandle};
use crate::executor::logic::{ContainerView, ReservationRequest};
use crate::executor::workload::{Owner, Workload};

/// Inputs that may wait. Orders beyond it are refused, answers wait at their source.
const QUEUE: usize = 1_024;
/// How long the coordinator has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// The longest sleep.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What the thread hears.
enum RepMessage {
    Input(RepInput),
    /// A coordinator is there, or none is.
    Coordinator(Option<MemberId>),
    Orders(CellOrders, oneshot::Sender<CellOrdersReply>),
    /// Containers have changed: see [`Changes`].
    Look,
    Status(SyncSender<RepStatus>),
    Close,
}

/// What a rep is started with.
pub struct Parts {
    /// Its numbers.
    pub settings: RepSettings,
    /// The self-test's, and the root file system that it uses; none: it is off.
    pub self_test: Option<(self_test::SelfTestSettings, String)>,
    /// The containers.
    pub executor: ExecutorHandle,
    /// What was assigned, on the disk.
    pub assignments: (Assignments, Vec<super::logic::Assigned>),
    /// Called once, when an evacuation is over.
    pub evacuated: Box<dyn FnOnce() + Send>,
}

/// A rep at work. Clones are handles on the same one.
#[derive(Clone)]
pub struct RepHandle {
    queue: SyncSender<RepMessage>,
}

/// The rep has ended, or has too much to do.
#[derive(Debug, thiserror::Error)]
#[error("the rep is busy or has ended")]
pub struct NotNow;

impl RepHandle {
    /// Has orders carried out. The answer comes when they are taken or refused.
    pub fn order(&self, orders: CellOrders) -> Result<oneshot::Receiver<CellOrdersReply>, NotNow> {
        let (reply, answer) = oneshot::channel();
        self.queue.try_send(RepMessage::Orders(orders, reply)).map_err(|_| NotNow)?;
        Ok(answer)
    }

    /// A coordinator is there (again), or none is.
    pub fn coordinator(&self, member: Option<MemberId>) {
        let _ended = self.queue.send(RepMessage::Coordinator(member));
    }

    /// Hands all work over, then ends.
    pub fn evacuate(&self) {
        let _ended = self.queue.send(RepMessage::Input(RepInput::Evacuate));
    }

    /// How it is doing.
    pub fn status(&self) -> Result<RepStatus, NotNow> {
        let (reply, status) = sync_channel(1);
        self.queue.try_send(RepMessage::Status(reply)).map_err(|_| NotNow)?;
        status.recv_timeout(Duration::from_secs(10)).map_err(|_| NotNow)
    }

    /// Ends the rep. Containers go on.
    pub fn close(&self) {
        let _ended = self.queue.send(RepMessage::Close);
    }
}

/// What has changed since the rep last looked: the last view of each, so its size is bounded by the
/// number of containers, and the executor never waits.
struct Changes {
    changed: Mutex<(BTreeMap<ContainerGuid, Option<ContainerView>>, CellCapacity)>,
    queue: SyncSender<RepMessage>,
}

impl ContainerWatch for Changes {
    fn changed(&self, guid: &ContainerGuid, view: Option<ContainerView>, free: CellCapacity) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = changed.0.is_empty();
        changed.0.insert(guid.clone(), view);
        changed.1 = free;
        drop(changed);
        // One call is enough for all until the rep looks: orders need the room in the queue. A full
        // queue is worked off, and the rep looks here after each batch of inputs.
        if is_first {
            match self.queue.try_send(RepMessage::Look) {
                Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
            }
        }
    }
}

/// The way to a rep that is not started yet: the mesh is served by it, and the rep needs the mesh.
pub struct Entrance {
    queue: SyncSender<RepMessage>,
    inbox: Receiver<RepMessage>,
}

impl Entrance {
    /// A new one.
    pub fn new() -> Self {
        let (queue, inbox) = sync_channel(QUEUE);
        Entrance { queue, inbox }
    }

    /// The handle that the rep will have.
    pub fn handle(&self) -> RepHandle {
        RepHandle { queue: self.queue.clone() }
    }

    /// Starts the rep.
    pub fn start(self, parts: Parts, mesh: Mesh, runtime: Handle) -> anyhow::Result<()> {
        let Parts { settings, self_test, executor, assignments, evacuated } = parts;
        let clock = executor.clock();
        let now = clock.now();
        let changes = Arc::new(Changes {
            changed: Mutex::new((BTreeMap::new(), CellCapacity::default())),
            queue: self.queue.clone(),
        });
        executor.watch(Arc::<Changes>::clone(&changes) as Arc<dyn ContainerWatch>)?;
        // Answered after all that is there was shown. A rep that did not know its containers would
        // have the board strike them out.
        let free = executor.remaining()?;
        let shown = {
            let mut changed = changes.changed.lock().unwrap_or_else(PoisonError::into_inner);
            changed.1 = free;
            std::mem::take(&mut changed.0)
        };
        let (assignments, assigned) = assignments;
        let seed = random();
        // A later life's loads are newer: microseconds since 1970 grow faster than loads are told.
        let mut rep = Rep::new(now, settings, wall().as_nanos() / 1_000);
        rep.apply(now, RepInput::Assigned(assigned));
        rep.apply(now, RepInput::Containers(shown.clone().into_iter().collect(), free));
        let (test, rootfs) = match self_test {
            Some((settings, rootfs)) => {
                let mut test = SelfTest::new(now, settings, seed);
                show_tests(&mut test, now, &shown);
                (Some(test), rootfs)
            }
            None => (None, String::new()),
        };
        let driver = RepDriver {
            rep,
            test,
            rootfs,
            clock,
            executor,
            assignments,
            changes,
            loads: publish_loads(mesh.clone(), &runtime),
            mesh,
            runtime,
            queue: self.queue,
            coordinator: None,
            replies: BTreeMap::new(),
            next_message: 0,
            evacuated: Some(evacuated),
        };
        let inbox = self.inbox;
        std::thread::Builder::new().name("rep".to_owned()).spawn(move || driver.work(&inbox))?;
        Ok(())
    }
}

impl Default for Entrance {
    fn default() -> Self {
        Self::new()
    }
}

/// Shows the self-test what is of it.
fn show_tests(
    test: &mut SelfTest,
    now: Timestamp,
    all: &BTreeMap<ContainerGuid, Option<ContainerView>>,
) {
    for (guid, view) in all {
        if guid.as_str().starts_with(self_test::PREFIX) {
            test.saw(now, guid, view.as_ref());
        }
    }
}

/// One task tells loads, so that an older one never follows a newer one. Those in between are left out.
fn publish_loads(mesh: Mesh, runtime: &Handle) -> watch::Sender<Option<CellLoad>> {
    let (loads, mut next) = watch::channel(None);
    runtime.spawn(async move {
        while next.changed().await.is_ok() {
            let load: Option<CellLoad> = next.borrow_and_update().clone();
            if let Some(load) = load
                && let Err(error) = mesh.publish_load(load).await
            {
                debug!(%error, "a load was not told");
            }
        }
    });
    loads
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        // The kernel's generator cannot fail on a machine that runs containers; the clock is as good
        // for names.
        return wall().as_nanos();
    }
    u64::from_le_bytes(bytes)
}

struct RepDriver {
    rep: Rep,
    test: Option<SelfTest>,
    rootfs: String,
    clock: Clock,
    executor: ExecutorHandle,
    assignments: Assignments,
    changes: Arc<Changes>,
    loads: watch::Sender<Option<CellLoad>>,
    mesh: Mesh,
    runtime: Handle,
    queue: SyncSender<RepMessage>,
    coordinator: Option<MemberId>,
    replies: BTreeMap<u64, oneshot::Sender<CellOrdersReply>>,
    next_message: u64,
    evacuated: Option<Box<dyn FnOnce() + Send>>,
}

impl RepDriver {
    fn work(mut self, inbox: &Receiver<RepMessage>) {
        self.look();
        self.go_on();
        loop {
            let now = self.clock.now();
            let tests = self.test.as_ref().map_or(Timestamp::NEVER, SelfTest::next_wake);
            let wait = self.rep.next_wake().min(tests).since(now).min(LONGEST_WAIT);
            let mut next = match inbox.recv_timeout(wait) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let mut heard = 0;
            while let Some(message) = next {
                match message {
                    RepMessage::Close => return info!("rep closed"),
                    message => self.hear(message),
                }
                heard += 1;
                next = if heard < QUEUE { inbox.try_recv().ok() } else { None };
            }
            self.look();
            self.go_on();
        }
    }

    fn hear(&mut self, message: RepMessage) {
        let now = self.clock.now();
        match message {
            RepMessage::Input(input) => self.rep.apply(now, input),
            RepMessage::Coordinator(coordinator) => {
                self.coordinator = coordinator;
                self.rep.apply(
                    now,
                    match coordinator {
                        Some(_) => RepInput::CoordinatorPresent,
                        None => RepInput::CoordinatorMissing,
                    },
                );
            }
            RepMessage::Orders(orders, reply) => {
                self.next_message += 1;
                self.replies.insert(self.next_message, reply);
                self.rep.apply(now, RepInput::Orders(self.next_message, orders, random()));
            }
            RepMessage::Status(reply) => {
                let status = RepStatus {
                    coordinator: self.rep.has_coordinator(),
                    load: self.rep.load().map(LoadStatus::from),
                    evacuation: self.rep.evacuation(),
                    self_test_failures: self.test.as_ref().map_or(0, SelfTest::failures),
                    inconceivable: self.rep.inconceivable(),
                };
                let _nobody_waits = reply.try_send(status);
            }
            RepMessage::Look | RepMessage::Close => {}
        }
    }

    /// Takes in what the executor has shown.
    fn look(&mut self) {
        let mut changed = self.changes.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let (all, free) = (std::mem::take(&mut changed.0), changed.1);
        drop(changed);
        if all.is_empty() {
            return;
        }
        let now = self.clock.now();
        if let Some(test) = &mut self.test {
            show_tests(test, now, &all);
        }
        self.rep.apply(now, RepInput::Containers(all.into_iter().collect(), free));
    }

    fn go_on(&mut self) {
        loop {
            let now = self.clock.now();
            self.go_on_testing(now);
            let effects = self.rep.poll_outputs(now);
            if effects.is_empty() {
                return self.write_again(now);
            }
            self.write_down(&effects);
            for effect in effects {
                self.perform(effect);
            }
        }
    }

    /// First of all, with one sync for all of it.
    fn write_down(&mut self, effects: &[RepOutput]) {
        for effect in effects {
            if let RepOutput::Assign(assigned) = effect {
                self.assignments.assign(assigned);
            } else if let RepOutput::Unassign(instance) = effect {
                self.assignments.unassign(instance);
            }
        }
        self.commit_assignments();
    }

    /// A disk that was full may have room by now. The regular pass comes by here.
    fn write_again(&mut self, now: Timestamp) {
        if self.assignments.tries_again(now) {
            self.commit_assignments();
        }
    }

    /// Says once that it fails, and once that it does not any more.
    fn commit_assignments(&mut self) {
        let was_behind = self.assignments.is_behind();
        match self.assignments.commit() {
            Ok(()) if was_behind => info!("what this cell was assigned is written down again"),
            Ok(()) => {}
            Err(error) if was_behind => debug!(%error, "the assignments are still not written"),
            Err(error) => {
                error!(%error, "what this cell was assigned cannot be written down: after a power cut it may be missing");
            }
        }
    }

    fn perform(&mut self, effect: RepOutput) {
        match effect {
            RepOutput::Assign(_) | RepOutput::Unassign(_) => {}
            RepOutput::Reserve(batch, wanted) => self.reserve(batch, wanted),
            RepOutput::Run(guid, work) => {
                if let Err(error) = self.executor.run(guid.clone(), work) {
                    let now = self.clock.now();
                    self.rep.apply(now, RepInput::NotRun(guid, error.to_string()));
                }
            }
            RepOutput::Stop(guid) => match self.executor.stop(guid.clone()) {
                Ok(()) => {}
                Err(error @ CallError::Busy) => {
                    warn!(container = %guid, %error, "cannot be stopped now");
                    self.rep.apply(self.clock.now(), RepInput::NotStopped(guid));
                }
                Err(error) => debug!(container = %guid, %error, "nothing to stop"),
            },
            RepOutput::Delete(guid) => self.delete(guid),
            RepOutput::Answer(message, answer) => {
                if let Some(reply) = self.replies.remove(&message) {
                    let _nobody_waits = reply.send(answer);
                }
            }
            RepOutput::Report(contact, report) => self.ask(contact, &report, RepInput::Reported),
            RepOutput::Fetch(contact, asked) => self.ask(contact, &asked, RepInput::Fetched),
            RepOutput::Sync(contact, asked) => self.sync(contact, asked),
            RepOutput::PublishLoad(load) => {
                let _before = self.loads.send_replace(Some(load));
            }
            RepOutput::Inconceivable(guid, what) => {
                warn!(container = %guid, what, "a row of the table that should not be met");
            }
            RepOutput::Note(guid, what) => info!(container = %guid, what, "rep"),
            RepOutput::Evacuated => {
                info!("the cell is evacuated");
                if let Some(evacuated) = self.evacuated.take() {
                    evacuated();
                }
            }
        }
    }

    fn reserve(&mut self, batch: u64, wanted: Vec<ReservationRequest>) {
        let guids: Vec<ContainerGuid> = wanted.iter().map(|it| it.owner.container()).collect();
        let refused = match self.executor.reserve(wanted) {
            Ok(refused) => refused.into_iter().map(|(guid, why)| (guid, why.to_string())).collect(),
            Err(error) => guids.into_iter().map(|guid| (guid, error.to_string())).collect(),
        };
        // What was reserved is shown by now: the load that names the batch counts it too.
        self.look();
        self.rep.apply(self.clock.now(), RepInput::Reserved(batch, refused));
    }

    fn delete(&mut self, guid: ContainerGuid) {
        if let Err(error) = self.executor.begin_delete(guid.clone()) {
            warn!(container = %guid, %error, "cannot be deleted now");
            self.rep.apply(self.clock.now(), RepInput::NotDeleted(guid));
        }
    }

    fn ask<R>(
        &self,
        contact: SessionId,
        request: &R,
        outcome: fn(SessionId, Result<R::Reply, AskFailure>) -> RepInput,
    ) where
        R: volvox_mesh::request::Request + 'static,
        R::Reply: Send + 'static,
    {
        let queue = self.queue.clone();
        let Some(coordinator) = self.coordinator else {
            let _ended =
                queue.try_send(RepMessage::Input(outcome(contact, Err(AskFailure::NotDone))));
            return;
        };
        let asked = self.mesh.ask(coordinator, request, ANSWER_WITHIN);
        self.runtime.spawn(async move {
            let answer = asked.await.map_err(|error| unanswered(R::NAME, &error));
            let _ended = queue.send(RepMessage::Input(outcome(contact, answer)));
        });
    }

    fn sync(&self, contact: SessionId, asked: SyncCell) {
        let queue = self.queue.clone();
        let Some(coordinator) = self.coordinator else {
            let outcome = RepInput::Synced(contact, Err(AskFailure::NotDone));
            let _ended = queue.try_send(RepMessage::Input(outcome));
            return;
        };
        let mesh = self.mesh.clone();
        self.runtime.spawn(async move {
            let pages = all_pages(&mesh, coordinator, asked).await;
            let pages = pages.map_err(|error| unanswered("sync-cell", &error));
            let _ended = queue.send(RepMessage::Input(RepInput::Synced(contact, pages)));
        });
    }

    // The self-test.

    fn go_on_testing(&mut self, now: Timestamp) {
        let Some(test) = &mut self.test else { return };
        for effect in test.poll_outputs(now) {
            match effect {
                self_test::SelfTestOutput::Begin(guid) => self.begin_test(&guid),
                self_test::SelfTestOutput::Delete(guid) => {
                    if let Err(error) = self.executor.begin_delete(guid.clone()) {
                        debug!(container = %guid, %error, "cannot be deleted now");
                    }
                }
                self_test::SelfTestOutput::Healthy(healthy) => {
                    if healthy {
                        info!("the self-test passes again: the cell is healthy");
                    } else {
                        error!("the self-test fails again and again: the cell gets no more work");
                    }
                    self.rep.apply(now, RepInput::Healthy(healthy));
                }
                self_test::SelfTestOutput::Failed(reason) => warn!(reason, "the self-test failed"),
            }
        }
    }

    fn begin_test(&mut self, guid: &ContainerGuid) {
        let now = self.clock.now();
        let name = InstanceGuid::new(guid.as_str()).expect("it was made from one");
        let work = Workload::Task(Arc::new(test_definition(&self.rootfs)));
        let wanted = ReservationRequest { owner: Owner::Local(name), resources: work.resources() };
        let outcome = self.executor.reserve(vec![wanted]);
        let Some(test) = &mut self.test else { return };
        match outcome {
            Ok(refused) if !refused.is_empty() => return test.no_room(now),
            Ok(_) => {}
            Err(error) => return test.not_begun(now, error.to_string()),
        }
        if let Err(error) = self.executor.run(guid.clone(), work) {
            test.not_begun(now, error.to_string());
        }
    }
}

/// Whether the question may have been answered.
fn unanswered(what: &str, error: &AskError) -> AskFailure {
    debug!(what, %error, "the coordinator did not answer");
    AskFailure::from(error)
}

/// All pages, one after the other.
async fn all_pages(
    mesh: &Mesh,
    coordinator: MemberId,
    asked: SyncCell,
) -> Result<Vec<SyncedCell>, AskError> {
    let mut paging = Paging::new(asked, SYNC_ITEMS);
    while let Some(next) = paging.next() {
        let page = mesh.ask(coordinator, &next, ANSWER_WITHIN).await?;
        paging.answered(page).map_err(|bad| AskError::BadReply(bad.to_string()))?;
    }
    Ok(paging.into_pages())
}
