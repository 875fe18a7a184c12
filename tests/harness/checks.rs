//! What must always hold, and what must hold in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use volvox_agent::executor::registry::ContainerGuid;
use volvox_agent::executor::work::Owner;
use volvox_coordinator::bbs::command::Command;
use volvox_coordinator::bbs::logic::check;
use volvox_coordinator::bbs::state::Records;
use volvox_protocol::actual_lrp::{ActualLrp, LrpState, Presence};
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::MetricTagValue;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, DefinitionId, ProcessGuid, TaskGuid};
use volvox_protocol::task::Task;

use super::consumer::Known;
use super::plan::Kind;
use super::world::World;

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

/// What is remembered to check by.
#[derive(Debug, Default)]
pub(super) struct Checks {
    failure: Option<Failure>,
    follower: Follower,
    tasks_run: BTreeMap<TaskGuid, u32>,
    called_back: BTreeSet<TaskGuid>,
    /// What the board was when the coordinator died.
    last: Option<Arc<Records>>,
    /// The coordinator died in a commit: there may be more on the disk.
    in_doubt: bool,
    /// Containers that nothing may end before the consumer vouches for their domain.
    protected: BTreeSet<(CellId, ContainerGuid)>,
}

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
    pub(super) fn task_runs(&mut self, task: &TaskGuid) {
        let times = self.tasks_run.entry(task.clone()).or_default();
        *times += 1;
        if *times > 1 {
            let what = format!("the action of task {task} was started {times} times");
            self.fail(what);
        }
    }

    pub(super) fn called_back(&mut self, task: &TaskGuid) {
        self.called_back.insert(task.clone());
    }

    pub(super) fn live_container_ends(&mut self, cell: &CellId, guid: &ContainerGuid) {
        if self.protected.contains(&(cell.clone(), guid.clone())) {
            let what = format!(
                "{cell} ends {guid}, which runs, though the board was lost and nobody vouched for \
                 its domain"
            );
            self.fail(what);
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
    }

    /// Nothing that was shown to anybody is lost.
    pub(super) fn board_came_back(&mut self, records: &Records) {
        let doubt = std::mem::take(&mut self.in_doubt);
        if let Some(last) = self.last.take()
            && !doubt
            && let Some(what) = Follower::of(&last).differs(records)
        {
            self.fail(format!("after a restart of the coordinator: {what}"));
        }
    }

    pub(super) fn list_anew(&mut self, records: &Records) {
        self.follower = Follower::of(records);
    }

    pub(super) fn commit(&mut self, events: &[Event]) {
        for event in events {
            if let Event::InstanceChanged(before, after) = event
                && let Some(what) = is_taken_away(before, after)
            {
                return self.fail(what);
            }
            if let Err(what) = self.follower.apply(event) {
                return self.fail(what);
            }
        }
    }
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

    /// Looked at now and then.
    pub(super) fn check_always(&mut self) {
        let clock = self.now() + self.center.ahead;
        let Some(alive) = &self.center.alive else { return };
        if let Some(fault) = check::check(alive.writer.board(), clock).into_iter().next() {
            return self.checks.fail(format!("the board: {fault}"));
        }
        if let Some(what) = self.checks.follower.differs(&alive.view.snapshot()) {
            self.checks.fail(format!("snapshot and events are not the snapshot: {what}"));
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
        let mut live: BTreeMap<(ProcessGuid, u32), Vec<(CellId, ContainerGuid)>> = BTreeMap::new();
        for cell in &self.cells {
            let Some(agent) = &cell.agent else { continue };
            for view in agent.depot.containers() {
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
            if same && !rolls && !slot.lrp.stopping && slot.lrp.presence == Presence::Ordinary {
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
        if !alive.floor.is_settled() {
            return Some("the coordinator has not heard all cells".to_owned());
        }
        // Domains are vouched for all the time.
        let command = alive.queue.iter().map(|job| &job.command);
        let mut waits = command.filter(|it| !matches!(it, Command::UpsertDomain(..)));
        if let Some(command) = waits.next() {
            return Some(format!("a command waits: {command:?}"));
        }
        if !alive.reports.is_empty() {
            return Some("a report waits".to_owned());
        }
        if let Some(place) =
            (0..self.mesh.places()).find(|it| self.mesh.paused_until(*it) > self.now())
        {
            return Some(format!("member {place} stands still"));
        }
        if !alive.addresses.is_all_idle() || !alive.letters.is_empty() {
            return Some(format!("{} orders wait", alive.addresses.waiting()));
        }
        if alive.rounds.waiting() > 0 {
            return Some(format!("{} pieces of work wait for a cell", alive.rounds.waiting()));
        }
        let records = alive.view.snapshot();
        if let Some(task) = records.tasks().next() {
            return Some(format!("task {} is {:?}", task.task_guid, task.state));
        }
        if !alive.callbacks.is_empty() {
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
            let process = records.process(guid)?;
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
            }
        }
        let count = records.instance_count();
        (count != wanted).then(|| format!("{count} records for {wanted} instances"))
    }

    /// Every record has its container, every container its record.
    fn cells_differ(&self, records: &Records) -> Option<String> {
        let Some(alive) = &self.center.alive else { return Some("no coordinator".to_owned()) };
        for cell in self.cells.iter().filter(|cell| !cell.is_lost) {
            let id = &cell.id;
            let Some(agent) = &cell.agent else { return Some(format!("{id} has no agent")) };
            if agent.rep.evacuation().is_some() {
                return Some(format!("{id} is being evacuated"));
            }
            if alive.floor.cell(id).is_none() {
                return Some(format!("{id} is not there"));
            }
            let mut containers = BTreeSet::new();
            for view in agent.depot.containers() {
                if view.container.state != ContainerState::Running {
                    return Some(format!(
                        "{id} has a container that is {:?}",
                        view.container.state
                    ));
                }
                containers.insert(view.container.guid.clone());
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
            let said = agent.rep.load().map(|load| load.digest);
            if said != Some(records.digest_on(id).number()) {
                return Some(format!("{id}: the digests differ"));
            }
        }
        None
    }

    /// What was acknowledged is so.
    pub(super) fn check_end(&mut self) -> Result<(), super::Failure> {
        self.check_always();
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
