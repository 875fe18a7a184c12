//! One machine with its disk, and the agent on it while there is one: the cell as one value
//! (`agent/src/core.rs`). What it has written down is kept, or torn, or not; what it has done is done later,
//! half, or not at all.

mod acts;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::container::runtime::RecoveredState;
use volvox_agent::core::{Cell as Core, CellInput, Joining, ReplyId, WriteResult, Writes};
use volvox_agent::executor::logic::{ExecutorSettings, RecoveredContainer, SavedContainer};
use volvox_agent::executor::workload::Workload;
use volvox_agent::rep::assignments::{AssignmentText, AssignmentWrite};
use volvox_agent::rep::logic::RepSettings;
use volvox_agent::runtime::fake::FakeMachine;
use volvox_mesh::member::MemberInput;
use volvox_mesh::simulation::sample_info;
use volvox_protocol::cell::{CellCapacity, CellInfo, RootfsProvider};
use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use super::plan::{Kind, Plan};
use super::world::{CENTER, Event, For, LetterId, World};

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
    fn tear(&mut self, write: AssignmentWrite, random: &mut SplitMix) {
        match write {
            AssignmentWrite::Append(bytes) => {
                let part = random.below(bytes.len() + 1);
                self.assignments.extend_from_slice(&bytes[..part]);
                // What was given to the file may be there before what is in it.
                if random.once_in(3) {
                    self.assignments.resize(self.assignments.len() + bytes.len() - part, 0);
                }
            }
            AssignmentWrite::Replace(bytes) => {
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
    due: Timestamp,
}

/// An agent at work.
#[derive(Debug)]
pub(super) struct Agent {
    pub(super) cell: Core,
    wake: Timestamp,
    /// Letters of the coordinator, by the name of the reply that is waited for.
    letters: BTreeMap<ReplyId, LetterId>,
    last_reply: u64,
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

impl Agent {
    /// Whether it hands its work over.
    pub(super) fn evacuates(&self) -> bool {
        self.cell.rep().is_some_and(|rep| rep.evacuation().is_some())
    }
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
        if agent.cell.is_waiting() || !agent.letters.is_empty() {
            return Some("the agent waits for something".to_owned());
        }
        let records = self.disk.progress.keys().chain(self.disk.work.keys());
        if let Some(guid) = records.into_iter().find(|it| !containers.contains(*it)) {
            return Some(format!("a record of {guid} is left"));
        }
        let (on_disk, _) = AssignmentText::open(&self.disk.assignments);
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
            let nothing = RecoveredState::Dead { exited: BTreeMap::new() };
            let standing = cell.machine.standing(&guid).unwrap_or(nothing);
            RecoveredContainer { saved, work, standing }
        });
        let settings = ExecutorSettings::new(cell.id.clone(), Cell::room());
        let (core, writes) = Core::recover(local, settings, found.collect());
        let zone = format!("z{}", nth % 3);
        let (assignments, _torn) = AssignmentText::open(&cell.disk.assignments);
        let joining = Joining {
            settings: RepSettings::new(cell.id.clone(), &zone),
            self_test: None,
            assignments,
            load_version: wall.as_nanos() / 1_000,
            page_items: self.plan.page.items,
        };
        cell.life += 1;
        cell.due = Timestamp::NEVER;
        cell.agent = Some(Agent {
            cell: core,
            wake: Timestamp::NEVER,
            letters: BTreeMap::new(),
            last_reply: 0,
            fuse: None,
        });
        let info = CellInfo {
            zone,
            capacity: Cell::room(),
            rootfs_providers: vec![RootfsProvider { name: "host".to_owned(), properties: vec![] }],
            version: wall.as_nanos() / 1_000,
            ..sample_info(cell.id.clone(), place)
        };
        self.write_then_act(nth, writes);
        let others = [1 + self.random.below(self.cells.len()), CENTER];
        let seeds: Vec<usize> =
            others.into_iter().filter(|it| *it != place && *it < self.mesh.places()).collect();
        self.mesh.start(place, World::profile(), &seeds);
        self.mesh.tell(place, MemberInput::PublishInfo(info));
        self.tell_cell(nth, CellInput::Joined(Box::new(joining)));
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
                self.cell_turn(nth, VecDeque::new());
            }
            Event::MachineDue => self.machine_due(nth),
            Event::Ordered(letter, orders) => self.ordered(nth, letter, orders),
            Event::Replied(ask, reply) => self.answered(nth, ask, Ok(reply)),
            Event::NotReplied(ask, error) => self.answered(nth, ask, Err(error)),
            _ => {}
        }
    }

    pub(super) fn coordinator_is_there(&mut self, nth: usize, is_there: bool) {
        let coordinator = is_there.then(|| self.mesh.identity(CENTER).member);
        self.tell_cell(nth, CellInput::Coordinator(coordinator));
    }

    /// The cell hears something, if it has an agent.
    pub(super) fn tell_cell(&mut self, nth: usize, input: CellInput) {
        self.cell_turn(nth, VecDeque::from([input]));
    }

    /// As the agent's driver does: decide, write, do.
    fn cell_turn(&mut self, nth: usize, mut inputs: VecDeque<CellInput>) {
        let local = self.cells[nth].local(self.now());
        let Some(agent) = &mut self.cells[nth].agent else { return };
        let writes = agent.cell.step(local, &mut self.random, &mut inputs);
        self.write_then_act(nth, writes);
        self.plan_due(nth);
        self.plan_wake(nth);
    }

    fn write_then_act(&mut self, nth: usize, writes: Writes) {
        let Some(result) = self.cell_writes(nth, &writes) else { return };
        let Some(agent) = &mut self.cells[nth].agent else { return };
        for output in agent.cell.written(writes, &result) {
            if self.burns(nth) {
                return;
            }
            self.cell_does(nth, output);
        }
        let agent = self.cells[nth].agent.as_ref();
        if agent.is_some_and(|it| it.cell.next_wake() == Timestamp::ZERO) {
            self.count("task not started");
        }
    }

    fn plan_wake(&mut self, nth: usize) {
        let now = self.now();
        let cell = &mut self.cells[nth];
        let Some(agent) = &cell.agent else { return };
        let at = cell.global(agent.cell.next_wake()).max(now);
        if at < agent.wake {
            let life = cell.life;
            if let Some(agent) = &mut cell.agent {
                agent.wake = at;
            }
            self.plan(at, For::Cell(nth, life), Event::AgentWakes);
        }
    }

    // The machine and the disk.

    fn machine_due(&mut self, nth: usize) {
        let now = self.now();
        self.cells[nth].due = Timestamp::NEVER;
        let told = self.cells[nth].machine.advance(now);
        let told = told.into_iter().map(|(guid, outcome)| CellInput::Outcome(guid, outcome));
        self.cell_turn(nth, told.collect());
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

    /// Writes down what was decided, as far as the disk takes it. None: the agent died over it.
    fn cell_writes(&mut self, nth: usize, writes: &Writes) -> Option<WriteResult> {
        let mut result = WriteResult::default();
        for guid in &writes.forget {
            if self.burns(nth) {
                return None;
            }
            let disk = &mut self.cells[nth].disk;
            disk.progress.remove(guid);
            disk.work.remove(guid);
        }
        for (guid, work) in &writes.work {
            if self.burns(nth) {
                return None;
            }
            let cell = &mut self.cells[nth];
            if cell.mortal && !cell.disk.refuses(&mut self.random) {
                let bytes = serde_json::to_vec(work).expect("it can be written");
                cell.disk.work.insert(guid.clone(), bytes);
            }
        }
        for guid in &writes.progress {
            if self.burns(nth) {
                return None;
            }
            let cell = &mut self.cells[nth];
            let refused = cell.disk.refuses(&mut self.random);
            let progress = cell.agent.as_ref().and_then(|agent| agent.cell.progress(guid));
            if let Some(progress) = progress.filter(|_| cell.mortal && !refused) {
                let bytes = serde_json::to_vec(&progress).expect("it can be written");
                cell.disk.progress.insert(guid.clone(), bytes);
            }
            if refused {
                result.progress_failed.insert(guid.clone());
                self.count("record not kept");
            }
        }
        if let Some(write) = &writes.assignments {
            if self.burns(nth) {
                self.count("assignments torn");
                self.cells[nth].disk.tear(write.clone(), &mut self.random);
                return None;
            }
            let disk = &mut self.cells[nth].disk;
            result.assignments_failed = disk.refuses(&mut self.random);
            match write.clone() {
                torn if result.assignments_failed => {
                    disk.tear(torn, &mut self.random);
                    self.count("assignments not written");
                }
                AssignmentWrite::Append(bytes) => disk.assignments.extend_from_slice(&bytes),
                AssignmentWrite::Replace(bytes) => disk.assignments = bytes,
            }
        }
        Some(result)
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
fn read_records(disk: &mut Disk) -> BTreeMap<ContainerGuid, (SavedContainer, Option<Workload>)> {
    disk.work.retain(|guid, _| disk.progress.contains_key(guid));
    let read = |(guid, bytes): (&ContainerGuid, &Vec<u8>)| {
        let saved: SavedContainer = serde_json::from_slice(bytes).ok()?;
        let work = disk.work.get(guid).and_then(|bytes| serde_json::from_slice(bytes).ok());
        Some((guid.clone(), (saved, work)))
    };
    disk.progress.iter().filter_map(read).collect()
}
