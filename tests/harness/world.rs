//! The queue of events and the clock. Everybody is in it; whatever takes time is an event.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use volvox_coordinator::callback::logic::{CallResult, Key};
use volvox_coordinator::core::DispatchId;
use volvox_mesh::identity::MemberKind;
use volvox_mesh::member::MemberEvent;
use volvox_mesh::profile::Profile;
use volvox_mesh::request::AskError;
use volvox_mesh::simulation::Simulation;
use volvox_protocol::cell_rpc::{
    CellOrders, CellOrdersReply, CellReport, CellReportReply, FetchDefinitions, FetchedDefinitions,
    SyncCell, SyncedCell,
};
use volvox_protocol::id::TaskGuid;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;
use volvox_protocol::wire::{decode_frame, encode_frame};

use super::cell::Cell;
use super::center::Center;
use super::checks::{Checks, Failure};
use super::consumer::Consumer;
use super::plan::{Kind, Plan};
use super::trouble::Trouble;

/// Where the coordinator stands in the mesh.
pub(super) const CENTER: usize = 0;
/// How often what must always hold is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// How often it is asked whether the fleet is as it is wanted, in the end.
const SETTLED_EVERY: Duration = Duration::from_secs(2);
/// How often it is looked again whether it is still as it is wanted.
const MOMENTS: usize = 24;
/// How long a process has that was told to end, and a little.
const GRACE: Duration = Duration::from_secs(11);
/// Lines of the story that a failure shows.
const STORY: usize = 400;

/// What a cell asks of the coordinator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Question {
    Report(CellReport),
    Fetch(FetchDefinitions),
    Sync(SyncCell),
}

/// What the coordinator says to that.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Reply {
    Report(CellReportReply),
    Fetch(FetchedDefinitions),
    Sync(SyncedCell),
}

/// Which letter: the life of the coordinator that sent it, which alone hears of it again, and its number
/// there.
pub(super) type LetterId = (u32, DispatchId);

/// Something that happens.
#[derive(Debug, Clone)]
pub(super) enum Event {
    // To a cell, by its place.
    AgentStarts,
    AgentWakes,
    MachineDue,
    Ordered(LetterId, CellOrders),
    Replied(u64, Reply),
    /// No answer comes to a question.
    NotReplied(u64, AskError),
    // To the coordinator.
    CenterStarts,
    /// What waits for the core is taken, and what is due is done.
    Turn,
    CommitEnds,
    /// The place of the cell, its life, the number of the question there.
    Asked(usize, u32, u64, Question),
    OrdersAnswered(DispatchId, CellOrdersReply),
    LetterRefused(DispatchId),
    LetterOver(DispatchId),
    CalledBack(Key, CallResult),
    // To all.
    /// A consumer hears of the end of a task that was made then.
    ConsumerTold(TaskGuid, Timestamp),
    Trouble,
    TroubleEnds(u64),
    Wish,
    Freshen,
    Check,
}

/// For whom an event is. It is of no interest in another life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    Cell(usize, u32),
    Center(u32),
    World,
}

struct Planned {
    at: Timestamp,
    order: u64,
    to: For,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    /// What did not hold, if anything did not.
    pub failure: Option<Failure>,
    /// How long after the end of all trouble the fleet was as it was wanted.
    pub settled_after: Duration,
    /// How often what happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The story, if it was kept.
    pub story: Vec<String>,
}

/// Runs a plan to its end.
pub fn run(plan: &Plan) -> Outcome {
    let mut world = World::new(plan.clone());
    let played = catch_unwind(AssertUnwindSafe(|| world.play()));
    let failure = match played {
        Ok(played) => played.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|it| (*it).to_owned()));
            Some(Failure::Broken(format!("panicked: {}", text.unwrap_or_default())))
        }
    };
    let settled_after = world.settled_after;
    if let Some(failure) = &failure {
        let line = format!("FAILED: {failure}");
        world.tell(|| line);
    }
    let skip = world.story.len().saturating_sub(STORY);
    let story = world.story.split_off(skip);
    Outcome { failure, settled_after, counts: world.counts, story }
}

/// Everybody.
pub struct World {
    pub(super) plan: Plan,
    pub(super) mesh: Simulation,
    queue: BinaryHeap<Reverse<Planned>>,
    order: u64,
    pub(super) random: SplitMix,
    pub(super) cells: Vec<Cell>,
    pub(super) center: Center,
    pub(super) consumer: Consumer,
    pub(super) trouble: Trouble,
    pub(super) checks: Checks,
    pub(super) counts: BTreeMap<&'static str, u64>,
    pub(super) calm: bool,
    began: Timestamp,
    settled_after: Duration,
    story: Vec<String>,
}

impl World {
    /// Everybody is there, and nothing has happened yet.
    pub fn new(plan: Plan) -> World {
        let mut kinds = vec![MemberKind::Coordinator];
        kinds.resize(plan.cells + 1, MemberKind::Cell);
        let mut mesh = Simulation::new(plan.seed, &kinds);
        mesh.has_owners = true;
        let mut random = SplitMix(plan.seed ^ 0x776f_726c);
        let mortal = |random: &mut SplitMix| {
            let dies = [
                Kind::AgentCrash,
                Kind::MachineCrash,
                Kind::MachineLost,
                Kind::Evacuation,
                Kind::Skew,
            ];
            dies.iter().any(|kind| plan.kinds.contains(kind)) && random.once_in(3)
        };
        let cells = (1..=plan.cells)
            .map(|place| {
                let mortal = mortal(&mut random);
                Cell::new(place, mesh.identity(place).name.clone(), mortal, &mut random, &plan)
            })
            .collect();
        let began = mesh.now();
        World {
            mesh,
            queue: BinaryHeap::new(),
            order: 0,
            cells,
            center: Center::new(&plan),
            consumer: Consumer::new(&plan),
            trouble: Trouble::new(&plan),
            checks: Checks::default(),
            counts: BTreeMap::new(),
            calm: false,
            began,
            settled_after: Duration::ZERO,
            story: Vec::new(),
            random,
            plan,
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.mesh.now()
    }

    /// Trouble, then none; then all must be well, and stay so.
    fn play(&mut self) -> Result<(), Failure> {
        self.begin()?;
        let end = self.now() + self.plan.troubled;
        self.run_until(end)?;
        self.calm_down();
        let quiet = self.now();
        let limit = quiet + self.plan.settles_within;
        if self.plan.kinds.contains(&Kind::Hang) {
            // What was found to hang runs on until it has had its time to end.
            self.run_until(quiet + GRACE)?;
        }
        loop {
            let step = self.now() + SETTLED_EVERY;
            self.run_until(step)?;
            self.keep_calm();
            match self.unsettled() {
                None => break,
                Some(why) if self.now() >= limit => return Err(Failure::NotSettled(why)),
                Some(_) => {}
            }
        }
        self.settled_after = self.now().since(quiet);
        let line = format!("settled {} s after the trouble", self.settled_after.as_secs());
        self.tell(|| line);
        let before = self.running();
        let step = self.now() + self.plan.stays_for;
        self.run_until(step)?;
        // Something regular may be on its way at this very moment; an answer may take ten seconds.
        for _ in 0..MOMENTS {
            if self.unsettled().is_none() {
                break;
            }
            let step = self.now() + Duration::from_millis(500);
            self.run_until(step)?;
        }
        if let Some(why) = self.unsettled() {
            return Err(Failure::NotStable(why));
        }
        if before != self.running() {
            return Err(Failure::NotStable("instances were replaced without a reason".to_owned()));
        }
        self.check_end()
    }

    /// Starts the coordinator and the cells, one after the other, and lets the mesh form.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.start_center();
        let step = Duration::from_millis(3);
        for nth in 0..self.cells.len() {
            let now = self.now();
            self.run_until(now + step)?;
            self.start_agent(nth);
        }
        let now = self.now();
        if self.plan.checks {
            self.plan(now + CHECK_EVERY, For::World, Event::Check);
        }
        self.plan(now, For::World, Event::Wish);
        self.plan(now, For::World, Event::Freshen);
        if !self.plan.kinds.is_empty() {
            self.plan(now + self.plan.trouble_every * 4, For::World, Event::Trouble);
        }
        Ok(())
    }

    /// Lets everything happen that happens by then.
    pub fn run_until(&mut self, end: Timestamp) -> Result<(), Failure> {
        loop {
            let next = self.queue.peek().map_or(end, |Reverse(next)| next.at.min(end));
            while self.mesh.step_until(next) {
                self.hear_mesh();
            }
            self.hear_mesh();
            if self.queue.peek().is_none_or(|Reverse(next)| next.at > end) {
                return self.checks.take();
            }
            let Some(Reverse(Planned { to, event, .. })) = self.queue.pop() else { return Ok(()) };
            self.happens(to, event);
            self.hear_mesh();
            self.checks.take()?;
        }
    }

    pub(super) fn plan(&mut self, at: Timestamp, to: For, event: Event) {
        self.order += 1;
        let at = at.max(self.now());
        self.queue.push(Reverse(Planned { at, order: self.order, to, event }));
    }

    fn happens(&mut self, to: For, event: Event) {
        let place = match to {
            For::Cell(nth, life) if self.cells[nth].life == life => Some(nth + 1),
            For::Center(life) if self.center.life == life => Some(CENTER),
            For::World => None,
            For::Cell(..) | For::Center(_) => return,
        };
        if let Some(place) = place
            && place < self.mesh.places()
            && self.mesh.paused_until(place) > self.now()
        {
            let until = self.mesh.paused_until(place);
            return self.plan(until, to, event);
        }
        match (to, event) {
            (For::Cell(nth, _), event) => self.happens_to_cell(nth, event),
            (For::Center(_), event) => self.happens_to_center(event),
            (For::World, Event::Trouble) => self.trouble(),
            (For::World, Event::TroubleEnds(id)) => self.end_trouble(id),
            (For::World, Event::Wish) => self.wish(),
            (For::World, Event::Freshen) => self.freshen(),
            (For::World, Event::ConsumerTold(task, made)) => self.checks.called_back(task, made),
            (For::World, Event::Check) => {
                self.check_always();
                let at = self.now() + CHECK_EVERY;
                self.plan(at, For::World, Event::Check);
            }
            (For::World, _) => {}
        }
    }

    /// What members have told their owners.
    fn hear_mesh(&mut self) {
        while let Some((place, effect)) = self.mesh.told.pop_front() {
            if place == CENTER {
                self.center_hears(effect);
            } else {
                self.cell_hears(place - 1, &effect);
            }
        }
    }

    fn cell_hears(&mut self, nth: usize, effect: &MemberEvent) {
        match effect {
            MemberEvent::Present { .. } => self.coordinator_is_there(nth, true),
            MemberEvent::Missing { .. } => self.coordinator_is_there(nth, false),
            _ => {}
        }
    }

    /// A message as it arrives: by its bytes, with all limits. What cannot be read there is a bug.
    pub(super) fn by_wire<T: Serialize + DeserializeOwned>(&mut self, message: T) -> T {
        if !self.plan.checks {
            return message;
        }
        let read = encode_frame(&message)
            .map_err(|it| it.to_string())
            .and_then(|bytes| decode_frame(&bytes).map_err(|it| it.to_string()));
        read.unwrap_or_else(|why| {
            self.checks.fail(format!("a message does not arrive: {why}"));
            message
        })
    }

    /// A short time, such as threads and queues take.
    pub(super) fn moment(&mut self) -> Duration {
        Duration::from_micros(20 + self.random.next() % 300)
    }

    /// Notes how often something happened.
    pub(super) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// A line of the story.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String) {
        if self.plan.tells {
            let at = self.now().since(self.began);
            self.story.push(format!("{:>9.3} s  {}", at.as_secs_f64(), line()));
        }
    }

    /// The pace of the members.
    pub(super) fn profile() -> Profile {
        Profile::lan()
    }
}
