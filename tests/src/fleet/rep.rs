//! A rep in small: takes work against its room, claims, starts, stops, reports, syncs and evacuates
//! by the real tables. Its containers are entries in a map.
//!
//! One task owns the state and has one deed after the other. Whatever waits for the coordinator is a
//! task of its own, and its outcome a later deed. One report is under way at a time, with all that
//! has come together since the last.

mod board;
mod syncing;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot};
use volvox_host::sync::lock;
use volvox_mesh::driver::Mesh;
use volvox_mesh::identity::{MemberId, MemberKind};
use volvox_mesh::member::MemberEvent;
use volvox_mesh::request::methods::open;
use volvox_mesh::request::{AskError, Router, RpcRefusal};
use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, PortMapping, Running};
use volvox_protocol::cell::{CellCapacity, CellInfo, CellLoad, RootfsProvider};
use volvox_protocol::cell_rpc::{
    CellOrders, CellOrdersReply, CellReportReply, DefinitionKey, FetchedDefinitions, FetchedLrp,
    OrderAnswer, RefusedLrps, RefusedTask, RefusedWork,
};
use volvox_protocol::container::ContainerState;
use volvox_protocol::digest::{Digest, DigestItem};
use volvox_protocol::id::{CellId, InstanceGuid, TaskGuid};
use volvox_protocol::instance_info;
use volvox_protocol::request::{CellOrder, CellRequest, Requirements, TaskOutcome, WorkBatch};

use self::syncing::Synced;
use super::CellPlan;

/// Deeds that may wait. Who brings more waits.
const DEEDS: usize = 4_096;
/// How long the coordinator has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How long to wait before what failed is tried again.
const AGAIN: Duration = Duration::from_millis(100);
/// How often an evacuating cell looks at its containers.
const EVACUATE_EVERY: Duration = Duration::from_millis(200);
/// Orders that are remembered.
const MOST_ORDERS: usize = 10_000;

/// What a rep hears, and what tests tell it.
pub enum Deed {
    /// The coordinator orders.
    Orders(CellOrders, oneshot::Sender<CellOrdersReply>),
    /// A container has come to run.
    Up(InstanceGuid),
    /// A task has come to its end.
    Over(TaskGuid),
    /// A report was answered, or not.
    Reported(Vec<(Instant, CellRequest)>, Result<CellReportReply, AskError>),
    /// Definitions have come, or not.
    Fetched(Vec<DefinitionKey>, Result<FetchedDefinitions, AskError>),
    /// A sync has ended.
    Synced(Box<Result<Synced, AskError>>),
    /// What is there? For tests.
    Look(oneshot::Sender<Look>),
    /// This container ends by itself. For tests.
    Crash(InstanceGuid),
    /// This container is gone, and the rep has not noticed. For tests.
    Lose(InstanceGuid),
    /// Hand everything over.
    Evacuate,
    /// Something that was put off may be due.
    Again,
}

/// What a cell has.
#[derive(Debug, Clone, Default)]
pub struct Look {
    /// Its instances: what they are of, and how far they have come.
    pub instances: BTreeMap<InstanceGuid, (LrpKey, ContainerState)>,
    /// Its tasks.
    pub tasks: BTreeMap<TaskGuid, ContainerState>,
    /// The room that is left.
    pub free: CellCapacity,
    /// Whether it hands its work over.
    pub evacuating: bool,
    /// Its digest.
    pub digest: u128,
}

/// What cells count.
#[derive(Debug, Default)]
pub struct Stats {
    /// Milliseconds from the wish to claim until the answer.
    pub claims_ms: Mutex<Vec<f64>>,
    /// Milliseconds from the wish to start until the answer.
    pub starts_ms: Mutex<Vec<f64>>,
    /// Orders, work left out, in the order in which they came.
    pub orders: Mutex<Vec<CellOrder>>,
    /// Batches of work.
    pub batches: AtomicU64,
    /// Tasks that were run.
    pub tasks_run: AtomicU64,
    /// Syncs that were begun.
    pub syncs: AtomicU64,
    /// Definitions that were fetched.
    pub fetched: AtomicU64,
    /// Reports that were answered `later`, in whole or in part.
    pub later: AtomicU64,
}

impl Stats {
    fn note(list: &Mutex<Vec<f64>>, since: Instant) {
        let ms = since.elapsed().as_secs_f64() * 1e3;
        lock(list).push(ms);
    }

    /// Orders that were had, work left out.
    pub fn orders(&self) -> Vec<CellOrder> {
        lock(&self.orders).clone()
    }
}

/// The way to a rep.
pub(super) fn channel() -> (mpsc::Sender<Deed>, mpsc::Receiver<Deed>) {
    mpsc::channel(DEEDS)
}

/// What the mesh is served by.
pub(super) fn router(deeds: mpsc::Sender<Deed>) -> Router {
    Router::new().on::<CellOrders, _, _>(move |from, orders, _| {
        let deeds = deeds.clone();
        async move {
            if from.kind != MemberKind::Coordinator {
                return Err(RpcRefusal::NotAllowed("only a coordinator orders".to_owned()));
            }
            let (reply, answer) = oneshot::channel();
            let gone = || RpcRefusal::Failed("the rep has ended".to_owned());
            deeds.send(Deed::Orders(orders, reply)).await.map_err(|_| gone())?;
            answer.await.map_err(|_| gone())
        }
    })
}

struct Instance {
    key: LrpKey,
    state: ContainerState,
    needs: Arc<Requirements>,
    stopped: bool,
}

struct TaskContainer {
    state: ContainerState,
    needs: Arc<Requirements>,
}

/// The state of a cell.
pub(super) struct Rep {
    id: CellId,
    plan: CellPlan,
    mesh: Mesh,
    deeds: mpsc::Sender<Deed>,
    stats: Arc<Stats>,
    coordinator: Option<MemberId>,
    instances: BTreeMap<InstanceGuid, Instance>,
    tasks: BTreeMap<TaskGuid, TaskContainer>,
    definitions: BTreeMap<DefinitionKey, FetchedLrp>,
    /// Claimed, and their definitions have not come yet.
    waiting_for_definition: BTreeSet<InstanceGuid>,
    /// What is to be reported, with the time of the wish.
    wishes: VecDeque<(Instant, CellRequest)>,
    report_is_under_way: bool,
    not_before: Instant,
    sync: SyncWish,
    free: CellCapacity,
    digest: Digest,
    last_batch: u64,
    version: u64,
    load_is_new: bool,
    evacuating: bool,
    evacuate_at: Instant,
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyncWish {
    None,
    Wanted,
    UnderWay,
}

impl Rep {
    pub(super) fn new(
        id: CellId,
        plan: CellPlan,
        mesh: Mesh,
        deeds: mpsc::Sender<Deed>,
        stats: Arc<Stats>,
    ) -> Rep {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        let now = Instant::now();
        Rep {
            free: plan.capacity,
            id,
            plan,
            mesh,
            deeds,
            stats,
            coordinator: None,
            instances: BTreeMap::new(),
            tasks: BTreeMap::new(),
            definitions: BTreeMap::new(),
            waiting_for_definition: BTreeSet::new(),
            wishes: VecDeque::new(),
            report_is_under_way: false,
            not_before: now,
            sync: SyncWish::None,
            digest: Digest::default(),
            last_batch: 0,
            // A new life's loads are newer than the last one's.
            version: u64::try_from(micros).unwrap_or(0),
            load_is_new: true,
            evacuating: false,
            evacuate_at: now,
            count: 0,
        }
    }

    pub(super) async fn run(
        mut self,
        mut deeds: mpsc::Receiver<Deed>,
        mut events: broadcast::Receiver<MemberEvent>,
    ) {
        let _ended = self.mesh.publish_info(self.info()).await;
        self.find_coordinator().await;
        loop {
            self.go_on().await;
            tokio::select! {
                deed = deeds.recv() => match deed {
                    Some(deed) => self.does(deed),
                    None => return,
                },
                event = events.recv() => match event {
                    Ok(event) => self.hears(event),
                    Err(RecvError::Lagged(_)) => self.find_coordinator().await,
                    Err(RecvError::Closed) => return,
                },
            }
            // What has come meanwhile goes into the same report.
            while let Ok(deed) = deeds.try_recv() {
                self.does(deed);
            }
        }
    }

    fn info(&self) -> CellInfo {
        let provider = |name: &str| RootfsProvider { name: name.to_owned(), properties: vec![] };
        CellInfo {
            cell_id: self.id.clone(),
            zone: self.plan.zone.clone(),
            capacity: self.plan.capacity,
            rootfs_providers: vec![provider("preloaded"), provider("host"), provider("docker")],
            placement_tags: Vec::new(),
            optional_placement_tags: Vec::new(),
            volume_drivers: Vec::new(),
            rep_address: self.mesh.listens_at().to_string(),
            annotations: BTreeMap::new(),
            version: self.version,
        }
    }

    async fn find_coordinator(&mut self) {
        let Ok(members) = self.mesh.members().await else { return };
        let coordinator = members.iter().find(|member| {
            member.identity.kind == MemberKind::Coordinator
                && member.state == volvox_mesh::member::MemberState::Present
        });
        if let Some(member) = coordinator {
            self.meet(member.identity.member);
        }
    }

    /// A coordinator is there, for the first time or again: sync.
    fn meet(&mut self, coordinator: MemberId) {
        self.coordinator = Some(coordinator);
        self.want_sync();
    }

    fn hears(&mut self, event: MemberEvent) {
        match event {
            MemberEvent::Present { identity, .. } if identity.kind == MemberKind::Coordinator => {
                self.meet(identity.member);
            }
            MemberEvent::Missing { identity, .. } if self.coordinator == Some(identity.member) => {
                self.coordinator = None;
            }
            _ => {}
        }
    }

    fn does(&mut self, deed: Deed) {
        match deed {
            Deed::Orders(message, reply) => {
                let answers = message.orders.into_iter().map(|order| self.ordered(order));
                let answers = answers.collect();
                let _nobody_waits = reply.send(CellOrdersReply { answers });
            }
            Deed::Up(guid) => self.up(&guid),
            Deed::Over(task) => self.over(task),
            Deed::Reported(wishes, outcome) => self.reported(wishes, outcome),
            Deed::Fetched(asked, outcome) => self.fetched(asked, outcome),
            Deed::Synced(outcome) => self.synced(*outcome),
            Deed::Look(reply) => {
                let _nobody_waits = reply.send(self.look());
            }
            Deed::Crash(guid) => {
                if let Some(instance) = self.instances.get(&guid) {
                    let key = instance.key.clone();
                    self.set(&guid, ContainerState::Completed);
                    let on = self.on(&guid);
                    self.wish(CellRequest::CrashLrp(key, on, "exit status 1".into()));
                }
            }
            Deed::Lose(guid) => self.delete(&guid),
            Deed::Evacuate => self.evacuate(),
            Deed::Again => {}
        }
    }

    fn look(&self) -> Look {
        let instances = self.instances.iter();
        Look {
            instances: instances
                .map(|(guid, it)| (guid.clone(), (it.key.clone(), it.state)))
                .collect(),
            tasks: self.tasks.iter().map(|(guid, it)| (guid.clone(), it.state)).collect(),
            free: self.free,
            evacuating: self.evacuating,
            digest: self.digest.number(),
        }
    }

    fn on(&self, guid: &InstanceGuid) -> InstanceKey {
        InstanceKey { instance_guid: guid.clone(), cell_id: self.id.clone() }
    }

    fn wish(&mut self, request: CellRequest) {
        self.wishes.push_back((Instant::now(), request));
    }

    fn want_sync(&mut self) {
        if self.sync == SyncWish::None {
            self.sync = SyncWish::Wanted;
        }
    }

    fn ordered(&mut self, order: CellOrder) -> OrderAnswer {
        if let CellOrder::Work(batch) = order {
            self.stats.batches.fetch_add(1, Ordering::Relaxed);
            let refused = self.admit(batch);
            let all = refused.lrps.is_empty() && refused.tasks.is_empty();
            return if all { OrderAnswer::Taken } else { OrderAnswer::Refused(refused) };
        }
        let mut orders = lock(&self.stats.orders);
        if orders.len() < MOST_ORDERS {
            orders.push(order.clone());
        }
        drop(orders);
        match order {
            CellOrder::Work(_) => {}
            CellOrder::StopInstance(_, on) => self.stop(&on.instance_guid),
            CellOrder::CancelTask(task) => self.delete_task(&task),
            CellOrder::UpdateInstance(key, _) => self.fetch_anew(&key),
            CellOrder::Sync => self.want_sync(),
            CellOrder::Evacuate => self.evacuate(),
        }
        OrderAnswer::Taken
    }

    /// Takes what fits, and names the rest.
    fn admit(&mut self, batch: WorkBatch) -> RefusedWork {
        let mut refused = RefusedWork::default();
        for start in batch.lrps {
            let mut no = Vec::new();
            for index in start.indices {
                if !self.reserve(&start.requirements) {
                    no.push(index);
                    continue;
                }
                self.count += 1;
                let name = format!("{}-{:x}-{}", self.id, self.version, self.count);
                let guid = InstanceGuid::new(&name).expect("made of an id and numbers");
                let key = LrpKey {
                    process_guid: start.process_guid.clone(),
                    index,
                    domain: start.domain.clone(),
                    definition_id: Some(start.definition_id.clone()),
                };
                let needs = Arc::clone(&start.requirements);
                let state = ContainerState::Reserved;
                self.wish(CellRequest::ClaimLrp(key.clone(), self.on(&guid)));
                self.instances.insert(guid, Instance { key, state, needs, stopped: false });
            }
            if !no.is_empty() {
                let key = DefinitionKey {
                    process_guid: start.process_guid,
                    definition_id: start.definition_id,
                };
                refused.lrps.push(RefusedLrps { key, indices: no, reason: self.why_not() });
            }
        }
        for task in batch.tasks {
            if self.tasks.contains_key(&task.task_guid) {
                continue;
            }
            if !self.reserve(&task.requirements) {
                let reason = self.why_not();
                refused.tasks.push(RefusedTask { task_guid: task.task_guid, reason });
                continue;
            }
            self.wish(CellRequest::StartTask(task.task_guid.clone(), self.id.clone()));
            let entry = TaskContainer { state: ContainerState::Reserved, needs: task.requirements };
            self.tasks.insert(task.task_guid, entry);
        }
        self.last_batch = batch.number;
        self.load_is_new = true;
        refused
    }

    fn why_not(&self) -> Box<str> {
        if self.evacuating { "evacuating".into() } else { "insufficient resources".into() }
    }

    fn reserve(&mut self, needs: &Requirements) -> bool {
        let free = self.free;
        let fits = free.memory_mb >= needs.memory_mb
            && free.disk_mb >= needs.disk_mb
            && free.containers > 0;
        if !fits || self.evacuating || self.plan.refuses_work {
            return false;
        }
        self.free = CellCapacity {
            memory_mb: free.memory_mb - needs.memory_mb,
            disk_mb: free.disk_mb - needs.disk_mb,
            containers: free.containers - 1,
        };
        true
    }

    fn give_back(&mut self, needs: &Requirements) {
        self.free.memory_mb += needs.memory_mb;
        self.free.disk_mb += needs.disk_mb;
        self.free.containers += 1;
        self.load_is_new = true;
    }

    fn set(&mut self, guid: &InstanceGuid, state: ContainerState) {
        let Some(instance) = self.instances.get_mut(guid) else { return };
        self.digest.take(DigestItem::of_container(guid, instance.state));
        self.digest.put(DigestItem::of_container(guid, state));
        instance.state = state;
        self.load_is_new = true;
    }

    fn set_task(&mut self, guid: &TaskGuid, state: ContainerState) {
        let Some(task) = self.tasks.get_mut(guid) else { return };
        self.digest.take(DigestItem::of_task_container(guid, task.state));
        self.digest.put(DigestItem::of_task_container(guid, state));
        task.state = state;
        self.load_is_new = true;
    }

    fn delete(&mut self, guid: &InstanceGuid) {
        let Some(instance) = self.instances.remove(guid) else { return };
        self.digest.take(DigestItem::of_container(guid, instance.state));
        self.waiting_for_definition.remove(guid);
        self.give_back(&instance.needs);
    }

    fn delete_task(&mut self, guid: &TaskGuid) {
        let Some(task) = self.tasks.remove(guid) else { return };
        self.digest.take(DigestItem::of_task_container(guid, task.state));
        self.give_back(&task.needs);
    }

    /// After a while, this.
    fn later(&self, span: Duration, deed: Deed) {
        let deeds = self.deeds.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until((Instant::now() + span).into()).await;
            let _ended = deeds.send(deed).await;
        });
    }

    /// Makes the container of an instance that we have claimed.
    fn make(&mut self, guid: &InstanceGuid) {
        let Some(instance) = self.instances.get(guid) else { return };
        if instance.stopped {
            return;
        }
        let key = definition_of(&instance.key);
        if !self.definitions.contains_key(&key) {
            self.waiting_for_definition.insert(guid.clone());
            self.fetch(vec![key]);
            return;
        }
        self.waiting_for_definition.remove(guid);
        self.set(guid, ContainerState::Initializing);
        if self.plan.start_takes.is_zero() {
            self.up(guid);
        } else {
            self.later(self.plan.start_takes, Deed::Up(guid.clone()));
        }
    }

    fn up(&mut self, guid: &InstanceGuid) {
        let state = self.instances.get(guid).map(|it| it.state);
        if state == Some(ContainerState::Initializing) {
            self.set(guid, ContainerState::Created);
            self.set(guid, ContainerState::Running);
            self.wish_start(guid);
        }
    }

    fn wish_start(&mut self, guid: &InstanceGuid) {
        let Some(instance) = self.instances.get(guid) else { return };
        let (key, running) = (instance.key.clone(), self.running(guid, &instance.key));
        self.wish(CellRequest::StartLrp(key, self.on(guid), running));
    }

    fn running(&self, guid: &InstanceGuid, key: &LrpKey) -> Arc<Running> {
        let host_port = 61_000 + key.index % 4_000;
        let ports = [PortMapping { container_port: 8080, host_port, ..PortMapping::default() }];
        let known = self.definitions.get(&definition_of(key));
        let tags = known.and_then(|it| open(&it.metric_tags).ok()).unwrap_or_default();
        let routes = known.and_then(|it| open(&it.routes).ok()).unwrap_or_default();
        Arc::new(Running {
            net_info: NetInfo {
                address: "192.0.2.1".into(),
                ports: Box::new(ports),
                instance_address: "10.255.0.7".into(),
                ..NetInfo::default()
            },
            internal_routes: instance_info::internal_routes(&routes),
            metric_tags: instance_info::metric_tags(&tags, key, guid),
            routable: true,
            availability_zone: self.plan.zone.as_str().into(),
        })
    }

    /// Stops an instance: told to, so it is a shutdown and no crash.
    fn stop(&mut self, guid: &InstanceGuid) {
        let Some(instance) = self.instances.get_mut(guid) else { return };
        instance.stopped = true;
        let key = instance.key.clone();
        self.set(guid, ContainerState::Completed);
        self.wish(CellRequest::RemoveLrp(key, self.on(guid)));
    }

    fn run_task(&mut self, guid: &TaskGuid) {
        if self.tasks.get(guid).is_none_or(|it| it.state != ContainerState::Reserved) {
            return;
        }
        self.stats.tasks_run.fetch_add(1, Ordering::Relaxed);
        for state in [ContainerState::Initializing, ContainerState::Running] {
            self.set_task(guid, state);
        }
        self.later(self.plan.task_takes, Deed::Over(guid.clone()));
    }

    fn over(&mut self, guid: TaskGuid) {
        if self.tasks.contains_key(&guid) {
            self.set_task(&guid, ContainerState::Completed);
            let outcome = TaskOutcome { result: "done".to_owned(), ..TaskOutcome::default() };
            self.wish(CellRequest::CompleteTask(guid, self.id.clone(), outcome));
        }
    }

    fn evacuate(&mut self) {
        self.evacuating = true;
        self.load_is_new = true;
        self.evacuate_at = Instant::now();
    }

    /// What every container of an evacuating cell asks, again and again.
    fn look_at_evacuees(&mut self) {
        if !self.evacuating || self.instances.is_empty() || Instant::now() < self.evacuate_at {
            return;
        }
        self.evacuate_at = Instant::now() + EVACUATE_EVERY;
        let asks: Vec<CellRequest> = self
            .instances
            .iter()
            .filter_map(|(guid, it)| {
                let (key, on) = (it.key.clone(), self.on(guid));
                match it.state {
                    ContainerState::Running => {
                        Some(CellRequest::EvacuateRunning(key, on, self.running(guid, &it.key)))
                    }
                    ContainerState::Completed => None,
                    ContainerState::Reserved
                    | ContainerState::Initializing
                    | ContainerState::Created => Some(CellRequest::EvacuateClaimed(key, on)),
                }
            })
            .collect();
        asks.into_iter().for_each(|ask| self.wish(ask));
        self.later(EVACUATE_EVERY, Deed::Again);
    }

    /// What follows from everything that was heard.
    async fn go_on(&mut self) {
        if self.wishes.is_empty() && !self.report_is_under_way {
            self.look_at_evacuees();
        }
        self.report();
        self.begin_sync();
        if std::mem::take(&mut self.load_is_new) {
            self.version += 1;
            let starting = self.instances.values().filter(|it| {
                matches!(it.state, ContainerState::Reserved | ContainerState::Initializing)
            });
            let load = CellLoad {
                cell_id: self.id.clone(),
                version: self.version,
                free: self.free,
                starting_containers: u32::try_from(starting.count()).unwrap_or(u32::MAX),
                evacuating: self.evacuating,
                healthy: true,
                last_batch: self.last_batch,
                digest: self.digest.number(),
            };
            let _ended = self.mesh.publish_load(load).await;
        }
    }
}

fn definition_of(key: &LrpKey) -> DefinitionKey {
    DefinitionKey {
        process_guid: key.process_guid.clone(),
        definition_id: key.definition_id.clone().unwrap_or_else(|| (&key.process_guid).into()),
    }
}
