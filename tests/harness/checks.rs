//! What must always hold, and what must hold in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::executor::workload::Owner;
use volvox_coordinator::bbs::command::{Change, Command};
use volvox_coordinator::bbs::logic::{Board, check};
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::bbs::state::Records;
use volvox_coordinator::core::CoreInput;
use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpKey, LrpState, Presence};
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::MetricTagValue;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::instance_info::internal_routes;
use volvox_protocol::request::CellRequest;
use volvox_protocol::task::{Task, TaskState};
use volvox_protocol::time::Timestamp;

use super::consumer::{FRESH, Known};
use super::plan::Kind;
use super::world::{CENTER, World};

/// What the mesh says of a cell is taken within this time, however long a commit takes.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(1);

/// What did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// Something that must always hold did not.
    Broken(String),
    /// The trouble was over, and the fleet was not as it is wanted in time.
    NotSettled(String),
    /// It was, and did not stay so.
    NotStable(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Broken(what) => write!(f, "{what}"),
            Failure::NotSettled(why) => write!(f, "not settled in time: {why}"),
            Failure::NotStable(why) => write!(f, "settled, and not for long: {why}"),
        }
    }
}

impl Failure {
    /// Whether another failure is of the same kind: what shrinking must keep.
    pub fn is_like(&self, other: &Failure) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
            && self.words() == other.words()
    }

    /// What it says without names and numbers, which differ from run to run.
    fn words(&self) -> Vec<String> {
        const FIRST: usize = 8;
        let (Failure::Broken(text) | Failure::NotSettled(text) | Failure::NotStable(text)) = self;
        let is_word =
            |it: &&str| it.chars().all(|c| c.is_ascii_lowercase() || matches!(c, ',' | ':'));
        text.split_whitespace().filter(is_word).take(FIRST).map(str::to_owned).collect()
    }
}

type Key = (ProcessGuid, DefinitionId, u32, Presence);

/// A subscriber: a snapshot and the events since.
#[derive(Debug, Default)]
struct Follower {
    instances: BTreeMap<Key, Arc<ActualLrp>>,
    desired: BTreeMap<ProcessGuid, Arc<LrpDeployment>>,
    tasks: BTreeMap<TaskGuid, Arc<Task>>,
}

/// What was asked for in one batch.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Domains that the consumer vouches for.
    vouched: BTreeSet<Domain>,
    /// Processes that the consumer asked something about.
    touched: BTreeSet<ProcessGuid>,
    /// Tasks that the consumer itself took away.
    deleted: BTreeSet<TaskGuid>,
    /// Instances that cells reported about.
    reported: BTreeSet<InstanceGuid>,
}

impl Asked {
    /// Takes note of one command that the consumer sent.
    pub(super) fn note(&mut self, command: &Command) {
        match command {
            Command::UpsertDomain(domain, _) => drop(self.vouched.insert(domain.clone())),
            Command::UpdateDesiredLrp(process, _)
            | Command::RemoveDesiredLrp(process)
            | Command::UpdateDeployment(process, _)
            | Command::DeleteDeployment(process) => drop(self.touched.insert(process.clone())),
            Command::RetireLrp(key) => drop(self.touched.insert(key.process_guid.clone())),
            Command::DeleteTask(task, _) => drop(self.deleted.insert(task.clone())),
            _ => {}
        }
    }

    /// Takes note of what a cell reports.
    pub(super) fn note_request(&mut self, request: &CellRequest) {
        let instance = match request {
            CellRequest::ClaimLrp(_, it)
            | CellRequest::StartLrp(_, it, _)
            | CellRequest::CrashLrp(_, it, _)
            | CellRequest::RemoveLrp(_, it)
            | CellRequest::EvacuateClaimed(_, it)
            | CellRequest::EvacuateRunning(_, it, _)
            | CellRequest::EvacuateCrashed(_, it, _)
            | CellRequest::EvacuateStopped(_, it)
            | CellRequest::RemoveEvacuating(_, it) => Some(it),
            CellRequest::StartTask(..)
            | CellRequest::CompleteTask(..)
            | CellRequest::RejectTask(..) => None,
        };
        self.reported.extend(instance.map(|it| it.instance_guid.clone()));
    }
}

/// What is remembered to check by.
#[derive(Debug, Default)]
pub(super) struct Checks {
    failure: Option<Failure>,
    follower: Follower,
    /// By name, and by what tells two tasks of one name apart: the last argument.
    tasks_run: BTreeMap<(TaskGuid, String), u32>,
    /// By name, and by when they were made.
    called_back: BTreeSet<(TaskGuid, Timestamp)>,
    /// What the board ever wanted to be stopped.
    to_stop: BTreeSet<ContainerGuid>,
    /// Until when each domain is fresh, by the coordinator's clock.
    fresh_until: BTreeMap<Domain, Timestamp>,
    /// What the board was when the coordinator died.
    last: Option<Arc<Records>>,
    /// The coordinator died in a commit: there may be more on the disk.
    in_doubt: bool,
    /// Containers that nothing may end before the consumer vouches for their domain, unless another
    /// runs in their place.
    protected: BTreeSet<Located>,
}

/// A container, and the cell that it is on.
type Located = (CellId, ContainerGuid);

impl Follower {
    fn of(records: &Records) -> Follower {
        Follower {
            instances: records.instances().map(|lrp| (key(lrp), Arc::clone(lrp))).collect(),
            desired: records
                .deployments()
                .map(|it| (it.process_guid.clone(), Arc::clone(it)))
                .collect(),
            tasks: records.tasks().map(|it| (it.task_guid.clone(), Arc::clone(it))).collect(),
        }
    }

    fn apply(&mut self, event: &Event) -> Result<(), String> {
        match event {
            Event::InstanceCreated(new) => put(&mut self.instances, None, Some((key(new), new))),
            Event::InstanceChanged(old, new) => {
                put(&mut self.instances, Some((key(old), old)), Some((key(new), new)))
            }
            Event::InstanceRemoved(old) => put(&mut self.instances, Some((key(old), old)), None),
            Event::DesiredLrpCreated(new) => {
                put(&mut self.desired, None, Some((new.process_guid.clone(), new)))
            }
            Event::DesiredLrpChanged(old, new) => {
                let (before, after) = (old.process_guid.clone(), new.process_guid.clone());
                put(&mut self.desired, Some((before, old)), Some((after, new)))
            }
            Event::DesiredLrpRemoved(old) => {
                put(&mut self.desired, Some((old.process_guid.clone(), old)), None)
            }
            Event::TaskCreated(new) => {
                put(&mut self.tasks, None, Some((new.task_guid.clone(), new)))
            }
            Event::TaskChanged(old, new) => {
                let (before, after) = (old.task_guid.clone(), new.task_guid.clone());
                put(&mut self.tasks, Some((before, old)), Some((after, new)))
            }
            Event::TaskRemoved(old) => {
                put(&mut self.tasks, Some((old.task_guid.clone(), old)), None)
            }
            Event::Crashed(_)
            | Event::GroupCreated(_)
            | Event::GroupChanged(..)
            | Event::GroupRemoved(_) => Ok(()),
        }
    }

    fn differs(&self, records: &Records) -> Option<String> {
        let now = Follower::of(records);
        let what = differs("instance", &self.instances, &now.instances);
        let what = what.or_else(|| differs("desired LRP", &self.desired, &now.desired));
        what.or_else(|| differs("task", &self.tasks, &now.tasks))
    }
}

fn key(lrp: &ActualLrp) -> Key {
    (lrp.process_guid.clone(), lrp.definition_id.clone(), lrp.index, lrp.presence)
}

fn put<K: Ord + fmt::Debug, V: PartialEq>(
    all: &mut BTreeMap<K, Arc<V>>,
    before: Option<(K, &Arc<V>)>,
    after: Option<(K, &Arc<V>)>,
) -> Result<(), String> {
    if let Some((key, before)) = before
        && all.remove(&key).as_ref() != Some(before)
    {
        return Err(format!("an event says that {key:?} was what it was not"));
    }
    if let Some((key, after)) = after {
        all.insert(key, Arc::clone(after));
    }
    Ok(())
}

fn differs<K: Ord + fmt::Debug, V: PartialEq + fmt::Debug>(
    what: &str,
    told: &BTreeMap<K, V>,
    is: &BTreeMap<K, V>,
) -> Option<String> {
    if told == is {
        return None;
    }
    let keys: BTreeSet<&K> = told.keys().chain(is.keys()).collect();
    let other = keys.into_iter().find(|key| told.get(key) != is.get(key))?;
    Some(format!("{what} {other:?}: told {:?}, is {:?}", told.get(other), is.get(other)))
}

impl Checks {
    pub(super) fn fail(&mut self, what: String) {
        self.failure.get_or_insert(Failure::Broken(what));
    }

    pub(super) fn take(&mut self) -> Result<(), Failure> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// A process of a task was started: one in all.
    pub(super) fn task_runs(&mut self, task: &TaskGuid, which: &str) {
        let times = self.tasks_run.entry((task.clone(), which.to_owned())).or_default();
        *times += 1;
        if *times > 1 {
            let what = format!("the action of task {task} was started {times} times");
            self.fail(what);
        }
    }

    pub(super) fn called_back(&mut self, task: TaskGuid, made: Timestamp) {
        self.called_back.insert((task, made));
    }

    /// A container ends that runs. A protected one may end only when `other` runs in its place and
    /// the board has that one: then the other is protected instead.
    pub(super) fn live_container_ends(&mut self, ends: &Located, other: Option<Located>) {
        if !self.protected.remove(ends) {
            return;
        }
        match other {
            Some(other) if self.to_stop.contains(&other.1) => {}
            Some(other) => drop(self.protected.insert(other)),
            None => self.fail(format!(
                "{} ends {}, which runs, though the board was lost, nobody vouched for its domain \
                 and nothing else runs in its place",
                ends.0, ends.1
            )),
        }
    }

    /// The board has this instance as one that is to stop, or asks its cell to stop it.
    pub(super) fn is_to_stop(&mut self, instance: &InstanceKey) {
        self.to_stop.insert(ContainerGuid::from(instance.instance_guid.clone()));
    }

    pub(super) fn stops(&mut self, cell: &CellId, guid: &ContainerGuid) {
        if !self.to_stop.contains(guid) {
            self.fail(format!("{cell} stops {guid}, which runs, and nobody asked for it"));
        }
    }

    pub(super) fn vouched(&mut self) {
        self.protected.clear();
    }

    pub(super) fn board_goes(&mut self, records: &Arc<Records>) {
        self.last = Some(Arc::clone(records));
    }

    pub(super) fn commit_in_doubt(&mut self) {
        self.in_doubt = true;
    }

    pub(super) fn board_is_lost(&mut self) {
        self.last = None;
        self.fresh_until.clear();
    }

    /// Nothing that was shown to anybody is lost, and nothing is there that nobody was shown.
    pub(super) fn board_came_back(&mut self, records: &Records) {
        let doubt = std::mem::take(&mut self.in_doubt);
        let Some(last) = self.last.take().filter(|_| !doubt) else { return };
        let what = match (long_ago(&last), long_ago(records)) {
            (Ok(last), Ok(now)) => Follower::of(last.records()).differs(now.records()),
            (Err(why), _) | (_, Err(why)) => Some(why),
        };
        if let Some(what) = what {
            self.fail(format!("after a restart of the coordinator: {what}"));
        }
    }

    pub(super) fn list_anew(&mut self, records: &Records) {
        for lrp in records.instances().filter(|it| it.stopping) {
            lrp.instance().into_iter().for_each(|it| self.is_to_stop(it));
        }
        self.follower = Follower::of(records);
    }

    /// A batch is written at this time of the coordinator's clock. Whether it is kept may be in doubt:
    /// the consumer has vouched in any case.
    pub(super) fn writes(&mut self, clock: Timestamp, asked: &Asked) {
        for domain in &asked.vouched {
            self.fresh_until.insert(domain.clone(), clock + FRESH);
        }
    }

    /// A batch was committed at this time of the coordinator's clock, and this is what is told of it.
    pub(super) fn commit(&mut self, clock: Timestamp, asked: &Asked, events: &[Event]) {
        for event in events {
            if let Event::InstanceChanged(_, lrp) | Event::InstanceCreated(lrp) = event
                && let Some(instance) = lrp.instance().filter(|_| lrp.stopping)
            {
                self.is_to_stop(instance);
            }
            let what = match event {
                Event::InstanceChanged(before, after) => is_taken_away(before, after)
                    .or_else(|| self.stops_what_may_be_wanted(clock, asked, before, after)),
                Event::InstanceRemoved(lrp) => self.removes_what_runs(clock, asked, lrp),
                Event::TaskRemoved(task) => self.is_forgotten(clock, asked, task),
                Event::DesiredLrpChanged(before, after) => takes_too_many(before, after),
                _ => None,
            };
            if let Some(what) = what.or_else(|| self.follower.apply(event).err()) {
                return self.fail(what);
            }
        }
    }

    /// An instance that nobody desires is stopped only if its consumer vouches for its domain, or asks
    /// for it.
    fn stops_what_may_be_wanted(
        &self,
        clock: Timestamp,
        asked: &Asked,
        before: &ActualLrp,
        after: &ActualLrp,
    ) -> Option<String> {
        let begins = !before.stopping && after.stopping;
        (begins && self.may_be_wanted(clock, asked, after)).then(|| {
            let (process, index, domain) = (&after.process_guid, after.index, &after.domain);
            format!("{process}/{index} is stopped, though nobody vouches for {domain}")
        })
    }

    /// Nobody is known to desire it, nobody has asked for its end, and nobody vouches for its domain.
    fn may_be_wanted(&self, clock: Timestamp, asked: &Asked, lrp: &ActualLrp) -> bool {
        let process = &lrp.process_guid;
        let is_fresh = self.fresh_until.get(&lrp.domain).is_some_and(|until| *until >= clock);
        !is_fresh
            && !asked.touched.contains(process)
            && !self.follower.desired.contains_key(process)
    }

    /// The record of such an instance that runs and is not to stop goes only when its cell has said
    /// something of it.
    fn removes_what_runs(
        &self,
        clock: Timestamp,
        asked: &Asked,
        lrp: &ActualLrp,
    ) -> Option<String> {
        let LrpState::Running(instance, _) = &lrp.state else { return None };
        let runs = lrp.presence == Presence::Ordinary && !lrp.stopping;
        let reported = asked.reported.contains(&instance.instance_guid);
        (runs && !reported && self.may_be_wanted(clock, asked, lrp)).then(|| {
            let (process, index, domain) = (&lrp.process_guid, lrp.index, &lrp.domain);
            format!("{process}/{index} is removed, though it runs and nobody vouches for {domain}")
        })
    }

    /// A task is forgotten when it has ended and its consumer was told, or was waited for long enough.
    fn is_forgotten(&self, clock: Timestamp, asked: &Asked, task: &Task) -> Option<String> {
        let guid = &task.task_guid;
        if matches!(task.state, TaskState::Pending | TaskState::Running) {
            return Some(format!("task {guid} is forgotten while it is {:?}", task.state));
        }
        let wants_call = !task.definition.completion_callback_url.is_empty();
        let told = (guid.clone(), task.created_at);
        let was_called = self.called_back.contains(&told) || asked.deleted.contains(guid);
        let waited = clock.since(task.first_completed_at);
        let patience = BoardSettings::default().expire_completed_task_after;
        (wants_call && !was_called && waited < patience)
            .then(|| format!("task {guid} is forgotten, and its consumer was not told"))
    }
}

/// These records as a coordinator reads them whose clock is far behind: without times. Those that are
/// still to come for a reader are not what they were for the last one.
fn long_ago(records: &Records) -> Result<Board, String> {
    let mut board = Board::new(BoardSettings::default());
    for deployment in records.deployments() {
        if let Some((row, it)) = records.deployment(&deployment.process_guid) {
            board.load(Change::Deployment(*row, None, Some(Arc::clone(it))))?;
        }
    }
    for (_, process) in records.processes() {
        for slot in process.instances() {
            board.load(Change::Actual(slot.row, None, Some(Arc::clone(&slot.lrp))))?;
        }
    }
    for task in records.tasks() {
        if let Some((row, it)) = records.task(&task.task_guid) {
            board.load(Change::Task(*row, None, Some(Arc::clone(it))))?;
        }
    }
    board.loaded(Timestamp::from_secs(1));
    Ok(board)
}

/// An instance that runs, or was claimed, is never another cell's or container's by a claim; and one
/// that runs is never another's by a start.
fn is_taken_away(before: &ActualLrp, after: &ActualLrp) -> Option<String> {
    let held = match (&before.state, &after.state) {
        (LrpState::Running(one, _), LrpState::Claimed(other)) => (one, other),
        (LrpState::Running(one, _), LrpState::Running(other, _)) => (one, other),
        (LrpState::Claimed(one), LrpState::Claimed(other)) => (one, other),
        _ => return None,
    };
    let (one, other) = held;
    (one != other).then(|| {
        let (process, index) = (&before.process_guid, before.index);
        format!("{process}/{index} was taken from {one:?} by {other:?}")
    })
}

/// An update takes up no more indices at once than its policy says.
fn takes_too_many(before: &LrpDeployment, after: &LrpDeployment) -> Option<String> {
    let (Some(was), Some(is)) = (&before.roll, &after.roll) else { return None };
    let same = before.active_definition_id == after.active_definition_id && was.order == is.order;
    let most = before.policy().in_flight().max(after.policy().in_flight()) as usize;
    let grew = is.in_flight.len() > was.in_flight.len();
    (same && grew && is.in_flight.len() > most).then(|| {
        let (guid, count) = (&after.process_guid, is.in_flight.len());
        format!("the update of {guid} has {count} indices in flight, of {most}")
    })
}

impl World {
    /// A live container is deleted: then the board has it no longer, or only until it is replaced.
    pub(super) fn deletes_live(&mut self, cell: &CellId, guid: &ContainerGuid) {
        let Some(alive) = &self.center.alive else { return };
        let records = alive.view.snapshot();
        let has = |lrp: &ActualLrp| {
            lrp.presence == Presence::Ordinary
                && !lrp.stopping
                && matches!(&lrp.state, LrpState::Running(it, _)
                    if it.instance_guid.as_str() == guid.as_str())
        };
        if records.instances_on(cell).any(|lrp| has(lrp)) {
            let what = format!("{cell} deletes {guid}, which runs and is on the board");
            self.checks.fail(what);
        }
    }

    /// The container that runs in the place of this one: the board has it as the ordinary one of this
    /// process and index, and it is on its machine.
    pub(super) fn runs_instead(&self, key: &LrpKey, guid: &ContainerGuid) -> Option<Located> {
        let records = self.center.alive.as_ref()?.view.snapshot();
        let here = records.process(&key.process_guid)?.instances().iter().map(|slot| &slot.lrp);
        let mut here = here.filter(|lrp| {
            lrp.index == key.index && lrp.presence == Presence::Ordinary && lrp.state.is_running()
        });
        here.find_map(|lrp| {
            let other = lrp.instance()?;
            let cell = self.cells.iter().find(|cell| cell.id == other.cell_id)?;
            let other = ContainerGuid::from(other.instance_guid.clone());
            let runs = other != *guid && cell.machine.containers().any(|it| *it == other);
            runs.then(|| (cell.id.clone(), other))
        })
    }

    /// Looked at now and then.
    pub(super) fn check_always(&mut self) {
        let clocks = self.center.clocks(self.now());
        let Some(alive) = &self.center.alive else { return };
        let clock = alive.core.board_time(clocks);
        if let Some(fault) = check::check(alive.core.board(), clock).into_iter().next() {
            return self.checks.fail(format!("the board: {fault}"));
        }
        if let Some(what) = self.checks.follower.differs(&alive.view.snapshot()) {
            return self.checks.fail(format!("snapshot and events are not the snapshot: {what}"));
        }
        let ago = |at: Timestamp| clocks.ran.since(at) >= FOLLOWED_WITHIN;
        let unheard = alive
            .told
            .iter()
            .find(|(cell, (is_there, at))| ago(*at) && alive.core.is_there(cell) != *is_there);
        if let Some((cell, (is_there, _))) = unheard
            && ago(self.mesh.paused_until(CENTER))
        {
            let commit = if alive.is_committing() { "during a commit" } else { "without a commit" };
            let what =
                format!("the mesh said {is_there} of {cell}, and it is not followed {commit}");
            self.checks.fail(what);
        }
    }

    /// What runs, alone at its place and wanted, must not be ended for the loss of the board.
    pub(super) fn protect_containers(&mut self) {
        self.hold_back();
        if self.plan.kinds.contains(&Kind::Evacuation) {
            return;
        }
        let Some(alive) = &self.center.alive else { return };
        let records = alive.view.snapshot();
        let mut live: BTreeMap<(ProcessGuid, u32), Vec<Located>> = BTreeMap::new();
        for cell in &self.cells {
            let Some(agent) = &cell.agent else {
                // What the board has forgotten may run beside what it has: one of them has to go.
                let on_board = |guid: &ContainerGuid| {
                    let mut here = records.instances_on(&cell.id).filter_map(|it| it.instance());
                    here.any(|it| it.instance_guid.as_str() == guid.as_str())
                };
                if !cell.machine.containers().all(on_board) {
                    return;
                }
                continue;
            };
            for view in agent.cell.containers() {
                if let Owner::Lrp { key, .. } = &view.owner {
                    let place = (key.process_guid.clone(), key.index);
                    let at = (cell.id.clone(), view.container.guid.clone());
                    live.entry(place).or_default().push(at);
                }
            }
        }
        for ((process, index), at) in live {
            let Some(of) = records.process(&process) else { continue };
            let mut here = of.instances().iter().filter(|slot| slot.lrp.index == index);
            let (Some(slot), None, [at]) = (here.next(), here.next(), &at[..]) else { continue };
            let LrpState::Running(instance, _) = &slot.lrp.state else { continue };
            let same = instance.instance_guid.as_str() == at.1.as_str();
            let rolls = records.deployment(&process).is_none_or(|(_, it)| it.roll.is_some());
            let stays = same && !self.checks.to_stop.contains(&at.1);
            if stays && !rolls && !slot.lrp.stopping && slot.lrp.presence == Presence::Ordinary {
                self.checks.protected.insert(at.clone());
            }
        }
    }

    /// What runs where, by name.
    pub(super) fn running(&self) -> BTreeMap<(String, u32), String> {
        let Some(alive) = &self.center.alive else { return BTreeMap::new() };
        let records = alive.view.snapshot();
        let running = records.instances().filter_map(|lrp| match &lrp.state {
            LrpState::Running(instance, _) => {
                let key = (format!("{} {}", lrp.process_guid, lrp.definition_id), lrp.index);
                Some((key, format!("{} on {}", instance.instance_guid, instance.cell_id)))
            }
            _ => None,
        });
        running.collect()
    }

    /// Why the fleet is not as it is wanted, if it is not.
    pub(super) fn unsettled(&self) -> Option<String> {
        let Some(alive) = &self.center.alive else { return Some("no coordinator".to_owned()) };
        if !alive.core.is_settled() {
            return Some("the coordinator has not heard all cells".to_owned());
        }
        // Domains are vouched for all the time.
        let vouches = |it: &&CoreInput| {
            matches!(it, CoreInput::Command { command: Command::UpsertDomain(..), .. })
        };
        if let Some(input) = alive.commands.iter().find(|it| !vouches(it)) {
            return Some(format!("a command waits: {input:?}"));
        }
        if !alive.desk.is_idle() || alive.is_busy() {
            return Some("a report waits".to_owned());
        }
        if let Some(place) =
            (0..self.mesh.places()).find(|it| self.mesh.paused_until(*it) > self.now())
        {
            return Some(format!("member {place} stands still"));
        }
        if !alive.core.orders_are_idle() {
            return Some(format!("{} orders wait", alive.core.orders_waiting()));
        }
        if alive.core.work_waiting() > 0 {
            return Some(format!("{} pieces of work wait for a cell", alive.core.work_waiting()));
        }
        let records = alive.view.snapshot();
        if let Some(task) = records.tasks().next() {
            return Some(format!("task {} is {:?}", task.task_guid, task.state));
        }
        if alive.core.callbacks().counts().pending > 0 {
            return Some("callbacks wait".to_owned());
        }
        self.not_as_desired(&records).or_else(|| self.cells_differ(&records))
    }

    fn not_as_desired(&self, records: &Records) -> Option<String> {
        let mut wanted = 0;
        for deployment in records.deployments() {
            let guid = &deployment.process_guid;
            if let Some(roll) = &deployment.roll {
                return Some(format!("{guid} is being updated: {roll:?}"));
            }
            wanted += deployment.instances as usize;
            if deployment.instances == 0 {
                continue;
            }
            let Some(process) = records.process(guid) else {
                return Some(format!("{guid} has no records"));
            };
            for index in 0..deployment.instances {
                let slots = process.at(&deployment.active_definition_id, index);
                let [slot] = slots else {
                    return Some(format!("{guid}/{index} has {} records", slots.len()));
                };
                let LrpState::Running(_, running) = &slot.lrp.state else {
                    return Some(format!("{guid}/{index} is {}", slot.lrp.state.name()));
                };
                if slot.lrp.stopping {
                    return Some(format!("{guid}/{index} is to stop"));
                }
                if slot.lrp.presence != Presence::Ordinary {
                    return Some(format!("{guid}/{index} is {:?}", slot.lrp.presence));
                }
                let tags = deployment.metric_tags.get();
                let is = |name: &str, value: &MetricTagValue| {
                    let mut told = running.metric_tags.iter();
                    told.any(
                        |told| matches!(value, MetricTagValue::Static(it) if told == (name, it)),
                    )
                };
                if !tags.iter().all(|(name, value)| is(name, value)) {
                    return Some(format!("{guid}/{index} has other tags than it should"));
                }
                if running.internal_routes != internal_routes(&deployment.routes.get()) {
                    return Some(format!(
                        "{guid}/{index} has other internal routes than it should"
                    ));
                }
            }
        }
        let count = records.instance_count();
        (count != wanted).then(|| format!("{count} records for {wanted} instances"))
    }

    /// Every record has its container, every container its record.
    fn cells_differ(&self, records: &Records) -> Option<String> {
        let Some(alive) = &self.center.alive else { return Some("no coordinator".to_owned()) };
        for cell in &self.cells {
            let id = &cell.id;
            if cell.is_lost {
                if records.instances_on(id).next().is_some() {
                    return Some(format!("{id} is lost, and the board has instances there"));
                }
                continue;
            }
            let Some(agent) = &cell.agent else { return Some(format!("{id} has no agent")) };
            if agent.evacuates() {
                return Some(format!("{id} is being evacuated"));
            }
            if alive.core.cell(id).is_none() {
                return Some(format!("{id} is not there"));
            }
            let mut containers = BTreeSet::new();
            for view in agent.cell.containers() {
                if view.container.state != ContainerState::Running {
                    return Some(format!(
                        "{id} has a container that is {:?}",
                        view.container.state
                    ));
                }
                containers.insert(view.container.guid.clone());
            }
            if cell.machine.any_hangs() {
                return Some(format!("{id}: a shim hangs"));
            }
            if cell.machine.next_due().is_some_and(|at| at <= self.now()) {
                return Some(format!("{id}: something has happened that nobody has heard of"));
            }
            let on_machine: BTreeSet<ContainerGuid> = cell.machine.containers().cloned().collect();
            if on_machine != containers {
                let extra: Vec<_> = on_machine.symmetric_difference(&containers).collect();
                return Some(format!("{id}: machine and executor differ: {extra:?}"));
            }
            if let Some(guid) = containers.iter().find(|it| cell.machine.processes(it).is_empty()) {
                return Some(format!("{id}: nothing runs in {guid}"));
            }
            let recorded = records.instances_on(id).filter_map(|lrp| match &lrp.state {
                LrpState::Claimed(instance) | LrpState::Running(instance, _) => Some(instance),
                LrpState::Unclaimed { .. } | LrpState::Crashed => None,
            });
            let recorded: BTreeSet<String> =
                recorded.map(|it| it.instance_guid.to_string()).collect();
            let held: BTreeSet<String> = containers.iter().map(ToString::to_string).collect();
            if recorded != held {
                let other: Vec<_> = recorded.symmetric_difference(&held).collect();
                return Some(format!("{id}: records and containers differ: {other:?}"));
            }
            let said = agent.cell.rep().and_then(|rep| rep.load());
            if said.map(|load| load.digest) != Some(records.digest_on(id).number()) {
                return Some(format!("{id}: the digests differ"));
            }
            let free = agent.cell.remaining();
            let heard = alive.core.cell(id).and_then(|it| it.load);
            if said.map(|it| it.free) != Some(free) || heard.map(|it| it.free) != Some(free) {
                return Some(format!("{id}: the coordinator has not heard how much room is left"));
            }
            if let Some(what) = cell.left_over(&containers) {
                return Some(format!("{id}: {what}"));
            }
        }
        None
    }

    /// What was acknowledged is so.
    pub(super) fn check_end(&mut self) -> Result<(), super::Failure> {
        self.check_always();
        match self.center.disk.borrow().faults() {
            Ok(faults) if faults.is_empty() => {}
            faults => self.checks.fail(format!("the database is damaged: {faults:?}")),
        }
        self.checks.take()?;
        let Some(alive) = &self.center.alive else { return Ok(()) };
        let records = alive.view.snapshot();
        for (process, known) in &self.consumer.known {
            let is = records.deployment(process).map(|(_, deployment)| deployment.instances);
            let should = match known {
                Known::Has(instances) => Some(*instances),
                Known::Gone => None,
                Known::Unsure => continue,
            };
            if is != should {
                let what = format!("{process}: acknowledged {should:?} instances, is {is:?}");
                return Err(Failure::Broken(what));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(cell: &str, guid: &str) -> Located {
        let guid = InstanceGuid::new(guid).expect("a name of plain letters");
        (CellId::new(cell).expect("a name of plain letters"), ContainerGuid::from(guid))
    }

    /// Seed 7026909 with 50 cells.
    #[test]
    fn after_a_loss_of_the_board_one_of_two_may_end_and_the_last_one_may_not() {
        let (first, second) = (at("a", "one"), at("b", "two"));
        let mut checks = Checks::default();
        checks.protected.insert(first.clone());
        checks.live_container_ends(&second, None);
        checks.live_container_ends(&first, Some(second.clone()));
        assert!(checks.take().is_ok(), "the other one serves");
        checks.live_container_ends(&second, None);
        assert!(checks.take().is_err(), "nothing serves any more");
    }

    #[test]
    fn after_a_loss_of_the_board_nothing_ends_that_is_alone() {
        let mut checks = Checks::default();
        checks.protected.insert(at("a", "one"));
        checks.live_container_ends(&at("a", "one"), None);
        assert!(checks.take().is_err());
    }
}
