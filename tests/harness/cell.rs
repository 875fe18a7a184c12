//! One machine with its disk, and the agent on it while there is one. Does what the executor's driver does
//! (`agent/src/executor/driver.rs`); [`rep`] does what the rep's does.

mod rep;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::container::op::Deed;
use volvox_agent::container::runtime::Standing;
use volvox_agent::executor::keeping::Keeping;
use volvox_agent::executor::logic::{
    ContainerView, Depot, Effect as DepotEffect, Input as DepotInput, Restored, Saved,
    Settings as DepotSettings,
};
use volvox_agent::executor::work::{Owner, Work};
use volvox_agent::rep::assignments::{Text, Write};
use volvox_agent::rep::logic::{Input, Rep, Settings};
use volvox_agent::rep::paging::Paging;
use volvox_agent::runtime::fake::FakeMachine;
use volvox_mesh::member::MemberInput;
use volvox_mesh::simulation::sample_info;
use volvox_protocol::cell::{CellCapacity, CellInfo, RootfsProvider};
use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use super::plan::{Kind, Plan};
use super::world::{CENTER, Event, For, LetterId, World};

/// What an executor says that has no time.
const BUSY: &str = "the executor is busy";
/// How long the coordinator has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What is on a cell's disks: the executor's records, which a reboot empties, and the assignments.
#[derive(Debug, Default)]
pub(super) struct Disk {
    progress: BTreeMap<ContainerGuid, Vec<u8>>,
    work: BTreeMap<ContainerGuid, Vec<u8>>,
    assignments: Vec<u8>,
    /// Nothing can be written.
    pub(super) full: bool,
    /// Some of what is written fails.
    pub(super) bad: bool,
}

impl Disk {
    /// Whether a write fails. A part of it may be there all the same.
    fn refuses(&self, random: &mut SplitMix) -> bool {
        self.full || (self.bad && random.once_in(2))
    }

    /// A write that was not finished, or not acknowledged: any part of it may be there.
    fn tear(&mut self, write: Write, random: &mut SplitMix) {
        match write {
            Write::Append(bytes) => {
                let part = random.below(bytes.len() + 1);
                self.assignments.extend_from_slice(&bytes[..part]);
                // What was given to the file may be there before what is in it.
                if random.once_in(3) {
                    self.assignments.resize(self.assignments.len() + bytes.len() - part, 0);
                }
            }
            Write::Replace(bytes) => {
                // It was put in its place, or was not.
                if random.once_in(2) {
                    self.assignments = bytes;
                }
            }
        }
    }
}

/// How far a clock is ahead, or behind.
#[derive(Debug, Clone, Copy, Default)]
struct Off {
    ahead: Duration,
    behind: Duration,
}

impl Off {
    fn random(random: &mut SplitMix) -> Off {
        let off = Duration::from_secs(random.next() % 7_200);
        match random.once_in(2) {
            true => Off { ahead: off, behind: Duration::ZERO },
            false => Off { ahead: Duration::ZERO, behind: off },
        }
    }

    fn local(self, now: Timestamp) -> Timestamp {
        now + self.ahead - self.behind
    }

    /// When that is, by everybody's time.
    fn global(self, at: Timestamp) -> Timestamp {
        if at == Timestamp::NEVER { at } else { at + self.behind - self.ahead }
    }
}

/// A machine.
#[derive(Debug)]
pub(super) struct Cell {
    pub(super) id: CellId,
    pub(super) place: usize,
    pub(super) machine: FakeMachine,
    pub(super) disk: Disk,
    pub(super) agent: Option<Agent>,
    pub(super) life: u32,
    /// Whether its agent may die: only then its records are written.
    pub(super) mortal: bool,
    /// How far its machine's clock is off.
    wall: Off,
    /// How far its agents' line of time is off: as its machine's clock was at the first start of one
    /// since the boot (`host/src/clock.rs`).
    line: Option<Off>,
    /// Whether somebody sets its clock now and then.
    is_set: bool,
    /// Whether its agent is of an older release.
    pub(super) is_old: bool,
    /// Whether it never comes back.
    pub(super) is_lost: bool,
    /// Whether its executor has no time for another call.
    pub(super) is_busy: bool,
    due: Timestamp,
}

/// An agent at work.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) depot: Depot,
    pub(super) rep: Rep,
    text: Text,
    shown: BTreeMap<ContainerGuid, ContainerView>,
    changed: BTreeMap<ContainerGuid, Option<ContainerView>>,
    looks: bool,
    wake: Timestamp,
    asks: BTreeMap<u64, Asked>,
    next_ask: u64,
    /// Letters of the coordinator, by the number that the rep knows them by.
    letters: BTreeMap<u64, LetterId>,
    next_message: u64,
    refused: Vec<(ContainerGuid, String)>,
    /// What becomes of it after so many writes and effects.
    pub(super) fuse: Option<(u32, Last)>,
}

/// What ends an agent in the middle of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Last {
    /// Its process is killed.
    Killed,
    /// Its machine loses its power.
    Dark,
}

/// What an answer is for.
#[derive(Debug)]
enum Asked {
    Report(u64),
    Fetch(u64),
    /// A page of a sync, and those before it.
    Sync(u64, Box<Paging>),
}

impl Cell {
    pub(super) fn new(
        place: usize,
        id: CellId,
        mortal: bool,
        random: &mut SplitMix,
        plan: &Plan,
    ) -> Cell {
        let is_set = plan.kinds.contains(&Kind::Clock) && random.once_in(4);
        let wall = if is_set { Off::random(random) } else { Off::default() };
        Cell {
            id,
            place,
            machine: FakeMachine::default(),
            disk: Disk::default(),
            agent: None,
            life: 0,
            mortal,
            wall,
            line: None,
            is_set,
            is_old: plan.kinds.contains(&Kind::Skew) && mortal && random.once_in(2),
            is_lost: false,
            is_busy: false,
            due: Timestamp::NEVER,
        }
    }

    fn local(&self, now: Timestamp) -> Timestamp {
        self.line.unwrap_or(self.wall).local(now)
    }

    fn global(&self, at: Timestamp) -> Timestamp {
        self.line.unwrap_or(self.wall).global(at)
    }

    /// What is still waited for, and what the disk has beside these containers.
    pub(super) fn left_over(&self, containers: &BTreeSet<ContainerGuid>) -> Option<String> {
        let agent = self.agent.as_ref()?;
        if !agent.asks.is_empty() || !agent.letters.is_empty() || !agent.changed.is_empty() {
            return Some("the agent waits for something".to_owned());
        }
        let records = self.disk.progress.keys().chain(self.disk.work.keys());
        if let Some(guid) = records.into_iter().find(|it| !containers.contains(*it)) {
            return Some(format!("a record of {guid} is left"));
        }
        let (on_disk, _) = Text::open(&self.disk.assignments);
        let assigned = on_disk.list().into_iter().map(|it| ContainerGuid::from(it.instance));
        let assigned: BTreeSet<ContainerGuid> = assigned.collect();
        (assigned != *containers).then(|| format!("the disk has {assigned:?} as assigned"))
    }

    pub(super) fn room() -> CellCapacity {
        CellCapacity { memory_mb: 4_096, disk_mb: 16_384, containers: 40 }
    }
}

impl World {
    pub(super) fn start_agent(&mut self, nth: usize) {
        let (now, place) = (self.now(), self.cells[nth].place);
        let cell = &mut self.cells[nth];
        if cell.agent.is_some() || cell.is_lost {
            return;
        }
        if cell.is_set && self.random.once_in(3) {
            cell.wall = Off::random(&mut self.random);
        }
        cell.line.get_or_insert(cell.wall);
        let (local, wall) = (cell.local(now), cell.wall.local(now));
        let known = read_records(&mut cell.disk);
        let made = known.iter().filter(|(_, (saved, _))| saved.may_exist());
        let guids: BTreeSet<ContainerGuid> = made.map(|(guid, _)| guid.clone()).collect();
        // As a runtime finds them: what was to be told to the last agent is not, exits are there.
        cell.machine.forget_agent();
        drop(cell.machine.advance(now));
        cell.machine.retain(&guids);
        let found = known.into_iter().map(|(guid, (saved, work))| {
            let nothing = Standing::Dead { exited: BTreeMap::new() };
            let standing = cell.machine.standing(&guid).unwrap_or(nothing);
            Restored { saved, work, standing }
        });
        let settings = DepotSettings::new(cell.id.clone(), Cell::room());
        let (depot, effects) = Depot::restore(local, settings, found.collect());
        let zone = format!("z{}", nth % 3);
        let mut rep =
            Rep::new(local, Settings::new(cell.id.clone(), &zone), wall.as_nanos() / 1_000);
        let (text, _torn) = Text::open(&cell.disk.assignments);
        rep.apply(local, Input::Assigned(text.list()));
        cell.life += 1;
        cell.due = Timestamp::NEVER;
        cell.agent = Some(Agent {
            depot,
            rep,
            text,
            shown: BTreeMap::new(),
            changed: BTreeMap::new(),
            looks: false,
            wake: Timestamp::NEVER,
            asks: BTreeMap::new(),
            next_ask: 0,
            letters: BTreeMap::new(),
            next_message: 0,
            refused: Vec::new(),
            fuse: None,
        });
        let info = CellInfo {
            zone,
            capacity: Cell::room(),
            rootfs_providers: vec![RootfsProvider { name: "host".to_owned(), properties: vec![] }],
            version: wall.as_nanos() / 1_000,
            ..sample_info(cell.id.clone(), place)
        };
        self.perform(nth, effects);
        let Some(agent) = &mut self.cells[nth].agent else { return };
        let views: Vec<ContainerView> = agent.depot.containers().collect();
        let views = views.into_iter().map(|view| (view.container.guid.clone(), view));
        agent.shown = views.collect();
        agent.changed.clear();
        let all = agent.shown.iter().map(|(guid, view)| (guid.clone(), Some(view.clone())));
        let (all, free) = (all.collect(), agent.depot.resources().remaining());
        agent.rep.apply(local, Input::Containers(all, free));
        let others = [1 + self.random.below(self.cells.len()), CENTER];
        let seeds: Vec<usize> =
            others.into_iter().filter(|it| *it != place && *it < self.mesh.places()).collect();
        self.mesh.start(place, World::profile(), &seeds);
        self.mesh.tell(place, MemberInput::PublishInfo(info));
        self.go_on(nth);
        self.plan_due(nth);
    }

    /// The agent is gone without a word. Its containers go on.
    pub(super) fn kill_agent(&mut self, nth: usize) {
        let cell = &mut self.cells[nth];
        if cell.agent.take().is_some() {
            cell.life += 1;
            let place = cell.place;
            self.mesh.kill(place);
        }
    }

    /// The machine loses its power. What it was writing may be torn.
    pub(super) fn kill_machine(&mut self, nth: usize) {
        self.kill_agent(nth);
        let cell = &mut self.cells[nth];
        let with_containers = cell.machine.containers().next().is_some();
        cell.machine = FakeMachine::default();
        cell.disk.progress.clear();
        cell.disk.work.clear();
        cell.line = None;
        cell.is_old = false;
        if with_containers {
            self.count("power lost with containers");
        }
    }

    pub(super) fn happens_to_cell(&mut self, nth: usize, event: Event) {
        match event {
            Event::AgentStarts => self.start_agent(nth),
            Event::AgentWakes => {
                if let Some(agent) = &mut self.cells[nth].agent {
                    agent.wake = Timestamp::NEVER;
                }
                let now = self.cells[nth].local(self.now());
                self.decide(nth, now, DepotInput::Wake);
                self.go_on(nth);
            }
            Event::AgentLooks => {
                self.look(nth);
                self.go_on(nth);
            }
            Event::MachineDue => self.machine_due(nth),
            Event::Ordered(letter, orders) => self.ordered(nth, letter, orders),
            Event::Replied(ask, reply) => self.answered(nth, ask, reply),
            Event::NotReplied(ask, error) => self.unanswered(nth, ask, &error),
            _ => {}
        }
    }

    pub(super) fn coordinator_is_there(&mut self, nth: usize, is_there: bool) {
        let now = self.cells[nth].local(self.now());
        if let Some(agent) = &mut self.cells[nth].agent {
            let input =
                if is_there { Input::CoordinatorPresent } else { Input::CoordinatorMissing };
            agent.rep.apply(now, input);
            self.go_on(nth);
        }
    }

    pub(super) fn rep_hears(&mut self, nth: usize, input: Input) {
        let now = self.cells[nth].local(self.now());
        if let Some(agent) = &mut self.cells[nth].agent {
            agent.rep.apply(now, input);
            self.go_on(nth);
        }
    }

    // The machine and the executor.

    fn machine_due(&mut self, nth: usize) {
        let now = self.now();
        self.cells[nth].due = Timestamp::NEVER;
        let told = self.cells[nth].machine.advance(now);
        let local = self.cells[nth].local(now);
        for (guid, outcome) in told {
            self.decide(nth, local, DepotInput::Outcome(guid, outcome));
        }
        self.plan_due(nth);
        self.plan_wake(nth);
    }

    /// When the machine does something next. Not at once: its outcomes come from threads.
    pub(super) fn plan_due(&mut self, nth: usize) {
        for what in std::mem::take(&mut self.cells[nth].machine.met) {
            self.count(what);
        }
        let Some(at) = self.cells[nth].machine.next_due() else { return };
        if self.cells[nth].agent.is_none() {
            return;
        }
        let at = at.max(self.now() + self.moment());
        if at < self.cells[nth].due {
            self.cells[nth].due = at;
            let life = self.cells[nth].life;
            self.plan(at, For::Cell(nth, life), Event::MachineDue);
        }
    }

    /// Has the depot decide. A refusal is of no interest: it came too late.
    fn decide(&mut self, nth: usize, local: Timestamp, input: DepotInput) -> bool {
        let Some(agent) = &mut self.cells[nth].agent else { return false };
        match agent.depot.apply(local, input) {
            Ok(effects) => {
                self.perform(nth, effects);
                true
            }
            Err(_) => false,
        }
    }

    /// As the executor's driver does. Whether the agent is still there.
    fn perform(&mut self, nth: usize, effects: Vec<DepotEffect>) -> bool {
        let (mut touched, mut keeping) = (BTreeSet::new(), Keeping::default());
        for effect in effects {
            if self.burns(nth) {
                return false;
            }
            let cell = &mut self.cells[nth];
            let Some(agent) = &mut cell.agent else { return false };
            match effect {
                DepotEffect::Keep(guid) => {
                    let refused = cell.disk.refuses(&mut self.random);
                    if cell.mortal
                        && !refused
                        && let Some(progress) = agent.depot.progress(&guid)
                    {
                        let bytes = serde_json::to_vec(&progress).expect("it can be written");
                        cell.disk.progress.insert(guid.clone(), bytes);
                    }
                    if refused {
                        keeping.not_kept(guid.clone());
                        *self.counts.entry("record not kept").or_default() += 1;
                    }
                    touched.insert(guid);
                }
                DepotEffect::KeepWork(guid, work) => {
                    if cell.mortal && !cell.disk.refuses(&mut self.random) {
                        let bytes = serde_json::to_vec(&work).expect("it can be written");
                        cell.disk.work.insert(guid, bytes);
                    }
                }
                DepotEffect::Emit(_) | DepotEffect::DeleteFailed(..) => {}
                DepotEffect::RefuseReservation(guid, refusal) => {
                    agent.refused.push((guid, refusal.to_string()));
                }
                DepotEffect::Do(guid, deed) => {
                    let Some(deed) = keeping.allow(&agent.depot, &guid, deed) else { continue };
                    if let Deed::Spawn(order) = &deed
                        && let Some(view) = agent.depot.container(&guid)
                        && let Owner::Task { guid, .. } = &view.owner
                    {
                        let which = order.args.last().map_or("", String::as_str);
                        self.checks.task_runs(guid, which);
                    }
                    cell.machine.perform(&guid, deed);
                }
                DepotEffect::Forget(guid, _) => {
                    cell.disk.progress.remove(&guid);
                    cell.disk.work.remove(&guid);
                    touched.insert(guid);
                }
            }
        }
        self.show(nth, touched);
        for not_begun in keeping.into_inputs() {
            self.count("task not started");
            let local = self.cells[nth].local(self.now());
            self.decide(nth, local, not_begun);
        }
        self.plan_due(nth);
        self.cells[nth].agent.is_some()
    }

    fn show(&mut self, nth: usize, touched: BTreeSet<ContainerGuid>) {
        let soon = self.now() + self.moment();
        let life = self.cells[nth].life;
        let Some(agent) = &mut self.cells[nth].agent else { return };
        for guid in touched {
            let view = agent.depot.container(&guid);
            if agent.shown.get(&guid) == view.as_ref() {
                continue;
            }
            match &view {
                Some(view) => drop(agent.shown.insert(guid.clone(), view.clone())),
                None => drop(agent.shown.remove(&guid)),
            }
            agent.changed.insert(guid, view);
        }
        if !agent.changed.is_empty() && !agent.looks {
            agent.looks = true;
            self.plan(soon, For::Cell(nth, life), Event::AgentLooks);
        }
    }

    /// One more write or effect. Whether it is the agent's last moment.
    fn burns(&mut self, nth: usize) -> bool {
        let Some(agent) = &mut self.cells[nth].agent else { return true };
        match &mut agent.fuse {
            None => false,
            Some((0, last)) => {
                let last = *last;
                let id = self.cells[nth].id.clone();
                self.tell(|| format!("{id}: the agent dies in the middle of something: {last:?}"));
                match last {
                    Last::Killed => {
                        self.count("agent died in the middle");
                        self.kill_agent(nth);
                    }
                    Last::Dark => {
                        self.count("power lost in the middle");
                        self.kill_machine(nth);
                    }
                }
                true
            }
            Some((left, _)) => {
                *left -= 1;
                false
            }
        }
    }
}

/// What the executor's records say. What cannot be read is passed over, and what is of no use removed.
fn read_records(disk: &mut Disk) -> BTreeMap<ContainerGuid, (Saved, Option<Work>)> {
    disk.work.retain(|guid, _| disk.progress.contains_key(guid));
    let read = |(guid, bytes): (&ContainerGuid, &Vec<u8>)| {
        let saved: Saved = serde_json::from_slice(bytes).ok()?;
        let work = disk.work.get(guid).and_then(|bytes| serde_json::from_slice(bytes).ok());
        Some((guid.clone(), (saved, work)))
    };
    disk.progress.iter().filter_map(read).collect()
}
