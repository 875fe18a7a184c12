//! The rep as one value: what it hears goes into [`Rep::apply`], what follows comes out of
//! [`Rep::poll_outputs`], and nothing is done here.
//!
//! For each container it keeps what the executor last said of it and what the board is believed to
//! have. A belief comes from a sync or from the board's own answers. Container events and the regular
//! pass both end in `judge`, which asks the tables about the two. What holds:
//! - At most one request is on its way for each container, so operations on one are in order.
//! - A container that is starting or running is deleted only right after its record was read anew.
//! - A request that failed is not repeated blindly: the record is read, and the table asked again.
//! - An instance is written down ([`RepOutput::Assign`]) before it runs, and struck out when it is gone.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod definitions;
mod draining;
mod evacuation;
mod instances;
mod offline_restart;
mod orders;
mod reports;
mod sync;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use volvox_mesh::request::{AskError, RpcRefusal};
use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, Running};
use volvox_protocol::cell::{CellCapacity, CellLoad};
use volvox_protocol::cell_rpc::{
    CellOrders, CellOrdersReply, CellReport, CellReportReply, DefinitionKey, FetchDefinitions,
    FetchedDefinitions, OrderAnswer, SyncCell, SyncedCell,
};
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::{LrpDefinition, MetricTags, Routes};
use volvox_protocol::digest::{Digest, DigestItem};
use volvox_protocol::id::{CellId, InstanceGuid, TaskGuid};
use volvox_protocol::modification_tag::ModificationTag;
use volvox_protocol::request::CellRequest;
use volvox_protocol::tables::Likelihood;
use volvox_protocol::tables::crash::CrashPolicy;
use volvox_protocol::tables::rep_lrp::LrpView;
use volvox_protocol::tables::rep_task::TaskView;
use volvox_protocol::task::TaskDefinition;
use volvox_protocol::time::Timestamp;

use self::definitions::Fetching;
use self::evacuation::Evacuation;
use self::reports::Reports;
use self::sync::Syncing;
use crate::container::guid::ContainerGuid;
use crate::executor::container_store::Deletion;
use crate::executor::logic::{ContainerView, ReservationRequest};
use crate::executor::workload::{Owner, Workload};

pub use self::evacuation::EvacuationStatus;
pub use self::orders::CellCapabilities;

/// A rep's own numbers.
#[derive(Debug, Clone)]
pub struct RepSettings {
    /// Which cell this is.
    pub cell_id: CellId,
    /// Its zone.
    pub zone: String,
    /// What work may ask of it.
    pub offer: CellCapabilities,
    /// How often everything is looked at again.
    pub pass_every: Duration,
    /// How often, while the cell is evacuated.
    pub evacuate_every: Duration,
    /// How long an evacuation may take.
    pub evacuation_timeout: Duration,
    /// How long an instance that is to stop goes on after the board was told that no more traffic may go
    /// there.
    pub drain: Duration,
    /// How long there must be no coordinator before the cell restarts by itself what crashed.
    pub alone_after: Duration,
    /// How patient it is then.
    pub crash_policy: CrashPolicy,
}

impl RepSettings {
    /// The usual numbers.
    pub fn new(cell_id: CellId, zone: &str) -> Self {
        RepSettings {
            cell_id,
            zone: zone.to_owned(),
            offer: CellCapabilities::default(),
            pass_every: Duration::from_secs(30),
            evacuate_every: Duration::from_secs(1),
            evacuation_timeout: Duration::from_secs(600),
            drain: Duration::from_millis(500),
            alone_after: Duration::from_secs(2),
            crash_policy: CrashPolicy::default(),
        }
    }
}

/// What is heard.
#[derive(Debug, Clone)]
pub enum RepInput {
    /// These containers are otherwise than they were, or gone; so much room is left.
    Containers(Vec<(ContainerGuid, Option<ContainerView>)>, CellCapacity),
    /// What the cell was assigned before it started, and may have to start again.
    Assigned(Vec<Assigned>),
    /// A coordinator orders. The number names the message in the answer; the seed makes new names.
    Orders(u64, CellOrders, u64),
    /// Room was set aside for all of a batch but these.
    Reserved(u64, Vec<(ContainerGuid, String)>),
    /// The executor would not run it, for this reason.
    NotRun(ContainerGuid, String),
    /// The executor had no time to delete it.
    NotDeleted(ContainerGuid),
    /// The executor had no time to stop it.
    NotStopped(ContainerGuid),
    /// A coordinator can be asked: the first, another one, or the same in a new life.
    CoordinatorPresent,
    /// None can.
    CoordinatorMissing,
    /// The answer to a report of that contact; none: it is not known what became of it.
    Reported(SessionId, Result<CellReportReply, AskFailure>),
    /// The answer to a fetch.
    Fetched(SessionId, Result<FetchedDefinitions, AskFailure>),
    /// All pages of a sync.
    Synced(SessionId, Result<Vec<SyncedCell>, AskFailure>),
    /// Hand the work over to others.
    Evacuate,
    /// Whether the self-test passes.
    Healthy(bool),
    /// Time has passed.
    Wake,
}

/// Which contact with a coordinator a question belongs to. When another one begins, the answers of the
/// last are of no interest: what it has become of is read anew.
pub type SessionId = u64;

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskFailure {
    /// Nothing was done: the coordinator is busy, or there is no link.
    NotDone,
    /// It may have been done.
    Unknown,
}

impl From<&AskError> for AskFailure {
    fn from(error: &AskError) -> Self {
        match error {
            AskError::NoLink | AskError::TooLarge { .. } => AskFailure::NotDone,
            AskError::Refused(
                RpcRefusal::Busy | RpcRefusal::Unsupported | RpcRefusal::NotAllowed(_),
            ) => AskFailure::NotDone,
            AskError::Refused(
                RpcRefusal::TooLarge
                | RpcRefusal::Malformed(_)
                | RpcRefusal::DeadlineExceeded
                | RpcRefusal::Failed(_),
            )
            | AskError::Deadline
            | AskError::Lost(_)
            | AskError::BadReply(_) => AskFailure::Unknown,
        }
    }
}

/// What the driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepOutput {
    /// Write this down, before anything that follows is done.
    Assign(Assigned),
    /// Strike it out.
    Unassign(InstanceGuid),
    /// Set room aside; then say [`RepInput::Reserved`] with this number.
    Reserve(u64, Vec<ReservationRequest>),
    /// Make a container of a reservation.
    Run(ContainerGuid, Workload),
    /// Stop it, gracefully.
    Stop(ContainerGuid),
    /// Delete it, in whatever state it is. That it is gone is said as [`RepInput::Containers`].
    Delete(ContainerGuid),
    /// Answer these orders.
    Answer(u64, CellOrdersReply),
    /// Report to the coordinator; then say [`RepInput::Reported`].
    Report(SessionId, CellReport),
    /// Fetch definitions; then say [`RepInput::Fetched`].
    Fetch(SessionId, FetchDefinitions),
    /// Ask for records, page by page; then say [`RepInput::Synced`].
    Sync(SessionId, SyncCell),
    /// Tell everybody.
    PublishLoad(CellLoad),
    /// The tables met a row that nothing we know of leads to.
    Inconceivable(ContainerGuid, String),
    /// Something that a person should know: a request that the board refused, work that cannot run.
    Note(ContainerGuid, String),
    /// The cell is empty, or its time is over: the agent may end.
    Evacuated,
}

/// An instance that this cell was given, with all that it takes to start it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// Which.
    pub key: LrpKey,
    /// Its container.
    pub instance: InstanceGuid,
    /// How to run it.
    pub definition: Arc<KnownDefinition>,
}

/// A definition, and what is around it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownDefinition {
    /// The version of the record that this is from.
    pub modification_tag: ModificationTag,
    /// How to run it.
    pub definition: Arc<LrpDefinition>,
    /// The tags of its metrics.
    pub metric_tags: MetricTags,
    /// Its routes.
    pub routes: Routes,
}

/// What the board is believed to have.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BoardRecord {
    /// Nothing is known: a sync will tell.
    Unknown,
    /// Of an instance; and what it has of it, if it runs here.
    Lrp(LrpView, Option<Arc<Running>>),
    /// Of a task.
    Task(TaskView),
}

/// What is under way for a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingOp {
    /// Nothing.
    No,
    /// The executor is setting room aside.
    Reserving,
    /// A request is queued or on its way.
    Asking,
    /// Its record is to be read, or is being read.
    Reading,
    /// Its definition is being fetched.
    Fetching,
    /// The executor was told to run it, and has not shown that it does.
    Beginning,
    /// The executor is deleting it.
    Deleting,
}

/// One container, and what the board has of it.
#[derive(Debug, Clone)]
struct TrackedContainer {
    owner: Owner,
    /// None: it is gone, or it was assigned and is not made again.
    container: Option<ContainerView>,
    belief: BoardRecord,
    busy: PendingOp,
    /// Raised whenever the board has answered: a sync that began before tells less than that.
    version: u64,
    /// Refusals in a row. After the second, only the regular pass tries again.
    refusals: u32,
    not_before: Timestamp,
    /// It was told to stop before there was anything to stop.
    stop: bool,
    /// What is kept of it is on the disk.
    assigned: bool,
    /// Its definition was asked for in this pass, to be kept.
    fetched: bool,
    /// The board said that this cell shall run the task, and it has not been run.
    granted: bool,
    alone: offline_restart::OfflineRestart,
}

impl TrackedContainer {
    fn new(owner: Owner, belief: BoardRecord) -> Self {
        TrackedContainer {
            owner,
            container: None,
            belief,
            busy: PendingOp::No,
            version: 0,
            refusals: 0,
            not_before: Timestamp::ZERO,
            stop: false,
            assigned: false,
            fetched: false,
            granted: false,
            alone: offline_restart::OfflineRestart::default(),
        }
    }

    fn is_local(&self) -> bool {
        matches!(self.owner, Owner::Local(_))
    }

    fn state(&self) -> Option<ContainerState> {
        self.container.as_ref().map(|it| it.container.state)
    }

    fn item(&self) -> Option<DigestItem> {
        let state = self.state()?;
        match &self.owner {
            Owner::Lrp { instance, .. } => DigestItem::of_container(instance, state),
            Owner::Task { guid, .. } => DigestItem::of_task_container(guid, state),
            Owner::Local(_) => None,
        }
    }
}

/// Whether the record was read just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Freshness {
    /// Yes, so that a live container may be deleted.
    Fresh,
    /// No: it is what we believe.
    Believed,
}

/// All of a rep.
#[derive(Debug)]
pub struct Rep {
    settings: RepSettings,
    entries: BTreeMap<ContainerGuid, TrackedContainer>,
    definitions: BTreeMap<DefinitionKey, Arc<KnownDefinition>>,
    /// Those that were fetched and cannot be read.
    unreadable: BTreeSet<DefinitionKey>,
    /// Of tasks that are to be run; none: it cannot be read.
    tasks: BTreeMap<TaskGuid, Option<Arc<TaskDefinition>>>,
    free: CellCapacity,
    digest: Digest,
    last_batch: u64,
    healthy: bool,
    published: Option<CellLoad>,
    load_version: u64,
    /// Whether a coordinator can be asked, and since when that is so.
    coordinator: Option<()>,
    since: Timestamp,
    contact: SessionId,
    /// Whether the cell has noticed that it must look after itself.
    knows_alone: bool,
    reports: Reports,
    syncing: Syncing,
    fetching: Fetching,
    orders: BTreeMap<u64, Vec<Option<OrderAnswer>>>,
    reserving: BTreeMap<u64, orders::Batch>,
    next_batch: u64,
    evacuation: Option<Evacuation>,
    /// Instances that are to stop, and when.
    draining: BTreeMap<ContainerGuid, draining::Drain>,
    next_pass: Timestamp,
    effects: Vec<RepOutput>,
    inconceivable: u64,
}

impl Rep {
    /// A rep that has heard of nothing. Its loads are numbered from `load_version` on: a later life
    /// must begin with a higher one.
    pub fn new(now: Timestamp, settings: RepSettings, load_version: u64) -> Self {
        Rep {
            next_pass: now + settings.pass_every,
            settings,
            entries: BTreeMap::new(),
            definitions: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            tasks: BTreeMap::new(),
            free: CellCapacity::default(),
            digest: Digest::default(),
            last_batch: 0,
            healthy: true,
            published: None,
            load_version,
            coordinator: None,
            since: now,
            contact: 0,
            knows_alone: false,
            reports: Reports::default(),
            syncing: Syncing::default(),
            fetching: Fetching::default(),
            orders: BTreeMap::new(),
            reserving: BTreeMap::new(),
            next_batch: 0,
            evacuation: None,
            draining: BTreeMap::new(),
            effects: Vec::new(),
            inconceivable: 0,
        }
    }

    /// Takes one input in. What follows from it comes out of [`Rep::poll_outputs`].
    pub fn apply(&mut self, now: Timestamp, input: RepInput) {
        match input {
            RepInput::Containers(changed, free) => self.saw(now, changed, free),
            RepInput::Assigned(all) => self.assigned(all),
            RepInput::Orders(message, orders, seed) => self.ordered(now, message, orders, seed),
            RepInput::Reserved(batch, refused) => self.reserved(now, batch, &refused),
            RepInput::NotRun(guid, reason) => self.not_run(guid, &reason),
            RepInput::NotDeleted(guid) => self.not_deleted(now, &guid),
            RepInput::NotStopped(guid) => self.not_stopped(now, guid),
            RepInput::CoordinatorPresent => self.coordinator_present(now),
            RepInput::CoordinatorMissing => self.coordinator_missing(now),
            RepInput::Reported(of, outcome) if of == self.contact => self.reported(now, outcome),
            RepInput::Fetched(of, outcome) if of == self.contact => self.fetched(now, outcome),
            RepInput::Synced(of, outcome) if of == self.contact => self.synced(now, outcome),
            RepInput::Reported(..) | RepInput::Fetched(..) | RepInput::Synced(..) => {}
            RepInput::Evacuate => self.evacuate(now),
            RepInput::Healthy(healthy) => self.healthy = healthy,
            RepInput::Wake => {}
        }
    }

    /// What follows from all that was taken in: to be called after each batch of inputs.
    pub fn poll_outputs(&mut self, now: Timestamp) -> Vec<RepOutput> {
        if now >= self.next_pass {
            self.pass(now);
        }
        self.end_drains(now);
        self.poll_evacuees(now);
        self.look_after_the_lone(now);
        self.report(now);
        self.begin_sync(now);
        self.begin_fetch(now);
        self.publish();
        self.end_evacuation(now);
        std::mem::take(&mut self.effects)
    }

    /// When to call [`Rep::poll_outputs`] next, if nothing is heard.
    pub fn next_wake(&self) -> Timestamp {
        let asks = [self.reports.due(), self.syncing.due(), self.fetching.due()];
        let asks = asks.into_iter().flatten().filter(|_| self.coordinator.is_some());
        let own = [self.evacuation_due(), self.alone_due(), self.drain_due()].into_iter().flatten();
        asks.chain(own).fold(self.next_pass, Timestamp::min)
    }

    /// How an evacuation is getting on, if there is one.
    pub fn evacuation(&self) -> Option<EvacuationStatus> {
        self.evacuation_status()
    }

    /// Whether a coordinator can be asked.
    pub fn has_coordinator(&self) -> bool {
        self.coordinator.is_some()
    }

    /// How the executor last showed this container; none: it did not, or it is gone.
    pub fn container(&self, guid: &ContainerGuid) -> Option<&ContainerView> {
        self.entries.get(guid)?.container.as_ref()
    }

    /// How often the tables met a row that should not be.
    pub fn inconceivable(&self) -> u64 {
        self.inconceivable
    }

    /// What it last told everybody.
    pub fn load(&self) -> Option<&CellLoad> {
        self.published.as_ref()
    }

    /// Looks at everything again: what failed is tried once more.
    fn pass(&mut self, now: Timestamp) {
        self.next_pass = now + self.settings.pass_every;
        let all: Vec<ContainerGuid> = self.entries.keys().cloned().collect();
        for guid in all {
            if let Some(entry) = self.entries.get_mut(&guid) {
                entry.refusals = 0;
                entry.fetched = false;
                entry.not_before = Timestamp::ZERO;
            }
            self.evaluate(now, &guid, Freshness::Believed);
        }
    }

    fn judge_all(&mut self, now: Timestamp) {
        let all: Vec<ContainerGuid> = self.entries.keys().cloned().collect();
        for guid in all {
            self.evaluate(now, &guid, Freshness::Believed);
        }
    }

    /// The one place from which the tables are asked.
    fn evaluate(&mut self, now: Timestamp, guid: &ContainerGuid, look: Freshness) {
        let Some(entry) = self.entries.get(guid) else { return };
        if entry.busy != PendingOp::No || now < entry.not_before {
            return;
        }
        let gone = entry.container.is_none();
        match entry.owner {
            Owner::Lrp { .. } if self.evacuation.is_some() && !gone => {
                self.judge_evacuee(now, guid)
            }
            Owner::Lrp { .. } => self.judge_lrp(guid, look),
            Owner::Task { .. } => self.judge_task(guid, look),
            Owner::Local(_) => {}
        }
    }

    /// What the executor says.
    fn saw(
        &mut self,
        now: Timestamp,
        changed: Vec<(ContainerGuid, Option<ContainerView>)>,
        free: CellCapacity,
    ) {
        self.free = free;
        for (guid, view) in changed {
            match view {
                Some(view) => self.container_changed(now, guid, view),
                None => self.container_gone(now, &guid),
            }
        }
    }

    fn container_changed(&mut self, now: Timestamp, guid: ContainerGuid, view: ContainerView) {
        let owner = view.owner.clone();
        let entry = self
            .entries
            .entry(guid.clone())
            .or_insert_with(|| TrackedContainer::new(owner, BoardRecord::Unknown));
        self.digest.take(entry.item());
        let state = view.container.state;
        match entry.busy {
            // It could not be taken away, for a deletion leaves nothing that lives: the next pass asks
            // again. That it was under way is not always seen, since only the last view is shown.
            PendingOp::Deleting
                if state == ContainerState::Completed
                    && view.container.deletion == Deletion::NotAsked =>
            {
                entry.busy = PendingOp::No;
                entry.not_before = now + self.settings.pass_every;
                entry.alone.put_off(Some(view.container.since), entry.not_before);
            }
            PendingOp::Reserving => entry.busy = PendingOp::No,
            PendingOp::Beginning if state != ContainerState::Reserved => entry.busy = PendingOp::No,
            PendingOp::No
            | PendingOp::Asking
            | PendingOp::Reading
            | PendingOp::Fetching
            | PendingOp::Beginning
            | PendingOp::Deleting => {}
        }
        if self.evacuation.is_some() && entry.state() != Some(view.container.state) {
            // What has ended is not left to the next poll.
            entry.not_before = Timestamp::ZERO;
        }
        entry.note_running(&view);
        entry.container = Some(view);
        self.digest.put(entry.item());
        if entry.alone.is_restarting() && entry.state() == Some(ContainerState::Reserved) {
            return self.run_again(&guid);
        }
        if entry.belief == BoardRecord::Unknown && !matches!(entry.owner, Owner::Local(_)) {
            self.syncing.want_full();
        }
        self.evaluate(now, &guid, Freshness::Believed);
    }

    fn container_gone(&mut self, now: Timestamp, guid: &ContainerGuid) {
        self.draining.remove(guid);
        let Some(entry) = self.entries.get_mut(guid) else { return };
        self.digest.take(entry.item());
        entry.container = None;
        match entry.busy {
            PendingOp::Deleting
            | PendingOp::Fetching
            | PendingOp::Reserving
            | PendingOp::Beginning => {
                entry.busy = PendingOp::No;
            }
            PendingOp::No | PendingOp::Asking | PendingOp::Reading => {}
        }
        entry.granted = false;
        entry.not_before = Timestamp::ZERO;
        if entry.alone.is_restarting() {
            if !entry.stop {
                return self.make_again(guid);
            }
            entry.alone.give_up();
        }
        self.evaluate(now, guid, Freshness::Believed);
        self.forget_if_over(guid);
    }

    /// An entry without a container goes when the board has nothing of it either.
    fn forget_if_over(&mut self, guid: &ContainerGuid) {
        let Some(entry) = self.entries.get(guid) else { return };
        if entry.container.is_some() || entry.busy != PendingOp::No {
            return;
        }
        if let Some(entry) = self.entries.remove(guid) {
            self.reports.forget(guid);
            match entry.owner {
                Owner::Lrp { instance, key } => {
                    if entry.assigned {
                        self.effects.push(RepOutput::Unassign(instance));
                    }
                    self.forget_definition(&definition_of(&key));
                }
                Owner::Task { guid, .. } => drop(self.tasks.remove(&guid)),
                Owner::Local(_) => {}
            }
        }
    }

    fn forget_definition(&mut self, key: &DefinitionKey) {
        let used = self.entries.values().any(|entry| match &entry.owner {
            Owner::Lrp { key: of, .. } => definition_of(of) == *key,
            Owner::Task { .. } | Owner::Local(_) => false,
        });
        if !used {
            self.definitions.remove(key);
            self.unreadable.remove(key);
        }
    }

    fn delete(&mut self, guid: &ContainerGuid) {
        if let Some(entry) = self.entries.get_mut(guid) {
            entry.busy = PendingOp::Deleting;
            self.reports.drop_waiting(guid);
            self.effects.push(RepOutput::Delete(guid.clone()));
        }
    }

    fn not_deleted(&mut self, now: Timestamp, guid: &ContainerGuid) {
        if let Some(entry) = self.entries.get_mut(guid)
            && entry.busy == PendingOp::Deleting
        {
            entry.busy = PendingOp::No;
            entry.not_before = now + self.settings.pass_every;
            let ended = entry.container.as_ref().map(|it| it.container.since);
            entry.alone.put_off(ended, entry.not_before);
        }
    }

    fn on(&self, instance: &InstanceGuid) -> InstanceKey {
        InstanceKey { instance_guid: instance.clone(), cell_id: self.settings.cell_id.clone() }
    }

    fn note_unexpected_row(&mut self, guid: &ContainerGuid, likelihood: Likelihood, what: String) {
        if likelihood == Likelihood::Inconceivable {
            self.inconceivable += 1;
            self.effects.push(RepOutput::Inconceivable(guid.clone(), what));
        }
    }

    fn ask(&mut self, guid: &ContainerGuid, request: CellRequest) {
        if let Some(entry) = self.entries.get_mut(guid) {
            entry.busy = PendingOp::Asking;
            self.reports.queue(guid, request);
        }
    }

    /// Reads the record anew, and judges again.
    fn read(&mut self, guid: &ContainerGuid) {
        if let Some(entry) = self.entries.get_mut(guid) {
            entry.busy = PendingOp::Reading;
            self.syncing.want(guid.clone());
        }
    }

    fn coordinator_present(&mut self, now: Timestamp) {
        self.begin_contact(now);
        self.coordinator = Some(());
        self.syncing.want_full();
    }

    fn coordinator_missing(&mut self, now: Timestamp) {
        self.begin_contact(now);
        self.coordinator = None;
    }

    /// Whatever was asked or was to be asked is decided anew, after a sync with the next coordinator.
    fn begin_contact(&mut self, now: Timestamp) {
        self.contact += 1;
        self.since = now;
        self.knows_alone = false;
        self.reports.clear();
        self.syncing.clear();
        self.fetching.clear();
        let mut idle = Vec::new();
        for (guid, entry) in &mut self.entries {
            if matches!(entry.busy, PendingOp::Asking | PendingOp::Reading | PendingOp::Fetching) {
                entry.busy = PendingOp::No;
                entry.version += 1;
                idle.push(guid.clone());
            }
        }
        for guid in idle {
            self.forget_if_over_and_unknown(&guid);
        }
    }

    /// What had no container any more and was only to be struck out on the board: the next sync finds
    /// the record, if there still is one.
    fn forget_if_over_and_unknown(&mut self, guid: &ContainerGuid) {
        let waits = self.entries.get(guid).is_some_and(|it| it.assigned && !it.stop);
        if !waits {
            self.forget_if_over(guid);
        }
    }

    fn publish(&mut self) {
        let starting = self.entries.values().filter(|entry| {
            matches!(
                entry.state(),
                Some(
                    ContainerState::Reserved
                        | ContainerState::Initializing
                        | ContainerState::Created
                )
            )
        });
        let load = CellLoad {
            cell_id: self.settings.cell_id.clone(),
            version: self.load_version,
            free: self.free,
            starting_containers: u32::try_from(starting.count()).unwrap_or(u32::MAX),
            evacuating: self.evacuation.is_some(),
            healthy: self.healthy,
            last_batch: self.last_batch,
            digest: self.digest.number(),
        };
        if self.published.as_ref() != Some(&load) {
            self.load_version += 1;
            let load = CellLoad { version: self.load_version, ..load };
            self.published = Some(load.clone());
            self.effects.push(RepOutput::PublishLoad(load));
        }
    }
}

/// The definition that an instance is of.
pub fn definition_of(key: &LrpKey) -> DefinitionKey {
    DefinitionKey {
        process_guid: key.process_guid.clone(),
        definition_id: key.definition_id.clone().unwrap_or_else(|| (&key.process_guid).into()),
    }
}
