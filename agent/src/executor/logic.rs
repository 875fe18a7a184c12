//! The depot: the whole executor as one value. The registry, a step tree for each container, their
//! timers.
//!
//! `apply(now, input)` decides everything and does nothing. The rep's calls, the outcomes of what
//! the machine did and the passing of time are inputs; what the machine has to do and what the rep
//! is told are effects, to be performed in order. What holds:
//! - [`Effect::Keep`] comes first: what is decided is written down before it is done. After a
//!   restart [`Depot::restore`] goes on from there, and nothing is done twice that must not be:
//!   a process whose start was not seen has failed to start.
//! - The machine is asked to destroy a container when nothing else is under way in it.
//! - Every guid that was reserved leaves by [`Effect::Forget`], once.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod restore;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::{EnvironmentVariable, RunAction};
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::container::RunResult;
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::environment::{LimitSettings, network_environment, process_environment};
use super::narration::Narration;
use super::registry::{
    self, Container, ContainerEvent, Deletion, Forgotten, RESERVATION_EXPIRY, Refusal, Registry,
};
use super::resources::Resources;
use super::steps::{self, StepSettings, StepTree};
use super::timers::Timers;
use super::work::{Owner, Work};
use crate::container::exit::{End, Exit};
use crate::container::guid::ContainerGuid;
use crate::container::network::NetworkFacts;
use crate::container::op::{Deed, Outcome};
use crate::container::spec::{LogLine, LogStream, Output, ProcessSpec};
use crate::container::step::{StepEvent, StepId};

pub use restore::{Restored, Saved};

/// Lines that may wait for a container to be made.
const WAITING_LINES: usize = 64;

/// What ends a process that nothing else has ended.
const SIGKILL: i32 = 9;

/// A cell's own numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which cell this is, for the lines in applications' logs.
    pub cell_id: CellId,
    /// All of its room.
    pub capacity: CellCapacity,
    /// How long a reservation stands when nobody runs it.
    pub reservation_expiry: Duration,
    /// The spans of steps.
    pub steps: StepSettings,
    /// The limits of containers.
    pub limits: LimitSettings,
    /// The machine's address now; none: as it was told when a container was made.
    pub host_address: Option<IpAddr>,
}

impl Settings {
    /// The usual numbers for a cell with this much room.
    pub fn new(cell_id: CellId, capacity: CellCapacity) -> Self {
        Settings {
            cell_id,
            capacity,
            reservation_expiry: RESERVATION_EXPIRY,
            steps: StepSettings::default(),
            limits: LimitSettings::default(),
            host_address: None,
        }
    }
}

/// What somebody wants of the depot, or tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// The rep wants room for these. Each is taken or refused for itself, in this order.
    Reserve(Vec<Wanted>),
    /// The rep wants a reservation to become a container with this work.
    Run(ContainerGuid, Work),
    /// The rep wants it to stop, gracefully.
    Stop(ContainerGuid),
    /// The rep wants it gone.
    Delete(ContainerGuid),
    /// The machine tells what came of a deed, or that something has happened to it.
    Outcome(ContainerGuid, Outcome),
    /// Time has passed.
    Wake,
}

/// Room that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// For whom.
    pub owner: Owner,
    /// How much.
    pub resources: super::resources::ContainerResources,
}

/// What the driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write down how far this one is: [`Depot::progress`].
    Keep(ContainerGuid),
    /// Write down what this one is to do: it will be needed after a restart.
    KeepWork(ContainerGuid, Work),
    /// Tell the rep.
    Emit(ContainerEvent),
    /// Tell whoever asked that this one got no room.
    RefuseReservation(ContainerGuid, Refusal),
    /// Have the machine do something for this container.
    Do(ContainerGuid, Deed),
    /// It is not there any more: strike out what was written down, and tell who waits for it.
    Forget(ContainerGuid, Forgotten),
    /// It could not be taken away: tell who waits for it.
    DeleteFailed(ContainerGuid, String),
}

/// What is known of one container beside its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Held {
    owner: Owner,
    #[serde(skip)]
    work: Option<Work>,
    network: Option<NetworkFacts>,
    tree: Option<StepTree>,
    making: Making,
    /// How the steps ended, while the result file is read.
    finished: Option<RunResult>,
    /// The contents of the result file.
    result: String,
    /// It died as a whole.
    gone: bool,
    /// The machine was asked to take it away. Asked again after a restart.
    #[serde(skip)]
    destroying: bool,
    /// Log lines from before there was a log.
    #[serde(skip)]
    lines: Vec<LogLine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Making {
    NotBegun,
    Underway,
    Abandoned,
    Made,
    Failed,
}

impl Held {
    fn new(owner: Owner) -> Self {
        Held {
            owner,
            work: None,
            network: None,
            tree: None,
            making: Making::NotBegun,
            finished: None,
            result: String::new(),
            gone: false,
            destroying: false,
            lines: Vec::new(),
        }
    }
}

/// One container, as the rep and people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerView {
    /// Its state.
    #[serde(flatten)]
    pub container: Container,
    /// Whose it is.
    pub owner: Owner,
    /// How it is reached, once it is made.
    pub network: Option<NetworkFacts>,
    /// The contents of its result file, once it has completed.
    pub task_result: String,
}

/// How far a container is, to be written down.
#[derive(Debug, Serialize)]
pub struct Progress<'a> {
    container: &'a Container,
    held: &'a Held,
}

/// All containers of a cell, and what is under way in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Depot {
    settings: Settings,
    registry: Registry,
    held: BTreeMap<ContainerGuid, Held>,
    timers: Timers,
}

/// One call of `apply`: the time, and the effects so far.
struct Turn {
    now: Timestamp,
    effects: Vec<Effect>,
    touched: BTreeSet<ContainerGuid>,
}

impl Turn {
    fn new(now: Timestamp) -> Self {
        Turn { now, effects: Vec::new(), touched: BTreeSet::new() }
    }

    fn perform(&mut self, guid: &ContainerGuid, deed: Deed) {
        self.effects.push(Effect::Do(guid.clone(), deed));
    }
}

impl Depot {
    /// The depot of an empty cell.
    pub fn new(settings: Settings) -> Self {
        let registry = Registry::new(settings.capacity, settings.reservation_expiry);
        Depot { settings, registry, held: BTreeMap::new(), timers: Timers::default() }
    }

    /// The cell's room, and what is left of it.
    pub fn resources(&self) -> &Resources {
        self.registry.resources()
    }

    /// The container of this name.
    pub fn container(&self, guid: &ContainerGuid) -> Option<ContainerView> {
        let container = self.registry.container(guid)?.clone();
        let held = self.held.get(guid)?;
        Some(ContainerView {
            container,
            owner: held.owner.clone(),
            network: held.network.clone(),
            task_result: held.result.clone(),
        })
    }

    /// All containers, by name.
    pub fn containers(&self) -> impl Iterator<Item = ContainerView> {
        self.held.keys().filter_map(|guid| self.container(guid))
    }

    /// How far a container is, to be written down.
    pub fn progress(&self, guid: &ContainerGuid) -> Option<Progress<'_>> {
        Some(Progress { container: self.registry.container(guid)?, held: self.held.get(guid)? })
    }

    /// Whether what it runs must not be started a second time. Then a start that is not written down is
    /// none: an agent after this one would think that nothing had begun.
    pub fn runs_once(&self, guid: &ContainerGuid) -> bool {
        matches!(self.held.get(guid).map(|it| &it.owner), Some(Owner::Task { .. }))
    }

    /// When to say [`Input::Wake`] next, if ever.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.timers.next().into_iter().chain(self.registry.next_expiry()).min()
    }

    /// Decides about one input. A refusal changes nothing.
    pub fn apply(&mut self, now: Timestamp, input: Input) -> Result<Vec<Effect>, Refusal> {
        let mut turn = Turn::new(now);
        match input {
            Input::Reserve(wanted) => self.reserve(&mut turn, wanted),
            Input::Run(guid, work) => self.run(&mut turn, guid, work)?,
            Input::Stop(guid) => self.tell(&mut turn, registry::Input::Stop(guid))?,
            Input::Delete(guid) => self.tell(&mut turn, registry::Input::Delete(guid))?,
            Input::Outcome(guid, outcome) => self.outcome(&mut turn, guid, outcome)?,
            Input::Wake => self.wake(&mut turn),
        }
        Ok(self.close(turn))
    }

    /// Puts first what must be first.
    fn close(&mut self, turn: Turn) -> Vec<Effect> {
        let kept = turn.touched.into_iter().filter(|guid| self.held.contains_key(guid));
        kept.map(Effect::Keep).chain(turn.effects).collect()
    }

    fn outcome(
        &mut self,
        turn: &mut Turn,
        guid: ContainerGuid,
        outcome: Outcome,
    ) -> Result<(), Refusal> {
        match outcome {
            Outcome::Made(network) => self.made(turn, guid, network),
            Outcome::NotMade(reason) => self.not_made(turn, guid, &reason),
            Outcome::Step(event) => self.step(turn, &guid, steps::Input::Event(event)),
            Outcome::ResultRead(read) => self.result_read(turn, guid, read),
            Outcome::Gone => self.gone(turn, &guid),
            Outcome::Destroyed => self.tell(turn, registry::Input::Destroyed(guid))?,
            Outcome::DestroyFailed(reason) => self.not_destroyed(turn, guid, reason)?,
        }
        Ok(())
    }

    fn reserve(&mut self, turn: &mut Turn, wanted: Vec<Wanted>) {
        for Wanted { owner, resources } in wanted {
            let guid = owner.container();
            let is_new = !self.held.contains_key(&guid);
            let reservation = registry::Reservation { guid: guid.clone(), resources };
            // Reserving is never refused as a whole; each answer is an effect.
            let _ = self.tell(turn, registry::Input::Reserve(vec![reservation]));
            if is_new && self.registry.container(&guid).is_some() {
                turn.touched.insert(guid.clone());
                self.held.insert(guid, Held::new(owner));
            }
        }
    }

    fn run(&mut self, turn: &mut Turn, guid: ContainerGuid, work: Work) -> Result<(), Refusal> {
        let before = turn.effects.len();
        self.tell(turn, registry::Input::Run(guid.clone()))?;
        turn.effects.insert(before, Effect::KeepWork(guid.clone(), work.clone()));
        let plan = work.plan(self.settings.limits);
        if let Some(held) = self.held.get_mut(&guid) {
            held.work = Some(work);
            held.making = Making::Underway;
        }
        self.narrate(turn, &guid, Narration::Creating);
        turn.perform(&guid, Deed::Make(Box::new(plan)));
        Ok(())
    }

    /// Has the registry decide, and does what it says.
    fn tell(&mut self, turn: &mut Turn, input: registry::Input) -> Result<(), Refusal> {
        for effect in self.registry.apply(turn.now, input)? {
            self.follow(turn, effect);
        }
        Ok(())
    }

    fn follow(&mut self, turn: &mut Turn, effect: registry::Effect) {
        match effect {
            registry::Effect::Emit(event) => {
                turn.touched.insert(event.guid().clone());
                turn.effects.push(Effect::Emit(event));
            }
            registry::Effect::RefuseReservation(guid, refusal) => {
                turn.effects.push(Effect::RefuseReservation(guid, refusal));
            }
            // `run` has the plan, and has it made.
            registry::Effect::Create(guid) => drop(turn.touched.insert(guid)),
            registry::Effect::AbandonCreate(guid) => self.abandon(turn, &guid),
            registry::Effect::BeginSteps(guid) => self.begin_steps(turn, &guid),
            registry::Effect::CancelSteps(guid) => {
                self.narrate(turn, &guid, Narration::Stopping);
                self.step(turn, &guid, steps::Input::Cancel);
            }
            registry::Effect::Destroy(guid) => {
                self.narrate(turn, &guid, Narration::Destroying);
                turn.touched.insert(guid.clone());
                self.destroy_when_quiet(turn, &guid);
            }
            registry::Effect::Forget(guid, why) => {
                self.held.remove(&guid);
                self.timers.forget(&guid);
                turn.effects.push(Effect::Forget(guid, why));
            }
        }
    }

    // Making.

    fn abandon(&mut self, turn: &mut Turn, guid: &ContainerGuid) {
        let Some(held) = self.held.get_mut(guid) else { return };
        if held.making == Making::Underway {
            held.making = Making::Abandoned;
            turn.touched.insert(guid.clone());
            turn.perform(guid, Deed::Abandon);
        }
    }

    fn made(&mut self, turn: &mut Turn, guid: ContainerGuid, network: NetworkFacts) {
        let Some(held) = self.held.get_mut(&guid) else { return };
        held.making = Making::Made;
        held.network = Some(network);
        turn.touched.insert(guid.clone());
        for line in std::mem::take(&mut held.lines) {
            turn.perform(&guid, Deed::Log(line));
        }
        self.narrate(turn, &guid, Narration::Created);
        // Refused when somebody has stopped or deleted it in the meantime: it is not begun then.
        let _ = self.tell(turn, registry::Input::Created(guid.clone()));
        if self.held.get(&guid).is_some_and(|it| it.gone) {
            // It died before anybody knew that it was made.
            self.gone(turn, &guid);
        }
        self.destroy_when_quiet(turn, &guid);
    }

    fn not_made(&mut self, turn: &mut Turn, guid: ContainerGuid, reason: &str) {
        let Some(held) = self.held.get_mut(&guid) else { return };
        held.making = Making::Failed;
        turn.touched.insert(guid.clone());
        self.narrate(turn, &guid, Narration::FailedToCreate(reason));
        let result = RunResult {
            failed: true,
            failure_reason: reason.to_owned(),
            retryable: true,
            stopped: false,
        };
        let _ = self.tell(turn, registry::Input::Completed(guid.clone(), result));
        self.destroy_when_quiet(turn, &guid);
    }

    // Steps.

    fn begin_steps(&mut self, turn: &mut Turn, guid: &ContainerGuid) {
        let Some(held) = self.held.get_mut(guid) else { return };
        let Some(work) = &held.work else { return };
        held.tree = Some(StepTree::new(&work.steps(), self.settings.steps));
        self.step(turn, guid, steps::Input::Begin);
    }

    fn step(&mut self, turn: &mut Turn, guid: &ContainerGuid, input: steps::Input) {
        let Some(held) = self.held.get_mut(guid) else { return };
        let ended = match &input {
            steps::Input::Event(StepEvent::ProcessExited(exit)) => Some(exit.id),
            steps::Input::Event(_)
            | steps::Input::Begin
            | steps::Input::TimerFired(_)
            | steps::Input::Cancel => None,
        };
        let Some(tree) = &mut held.tree else { return };
        let effects = tree.apply(turn.now, input);
        turn.touched.insert(guid.clone());
        self.apply_steps(turn, guid, effects);
        if let Some(process) = ended {
            // What it makes is written down by now: the record of the exit is not needed again.
            turn.perform(guid, Deed::ForgetExit(process));
        }
    }

    fn apply_steps(&mut self, turn: &mut Turn, guid: &ContainerGuid, effects: Vec<steps::Effect>) {
        for effect in effects {
            match effect {
                steps::Effect::StartTimer { timer, after } => {
                    self.timers.start(turn.now + after, guid, timer);
                }
                steps::Effect::CancelTimer { timer } => self.timers.cancel(guid, timer),
                steps::Effect::Ready => {
                    let _ = self.tell(turn, registry::Input::Running(guid.clone()));
                }
                steps::Effect::Routable(routable) => {
                    let _ = self.tell(turn, registry::Input::Routable(guid.clone(), routable));
                }
                steps::Effect::Finished(result) => self.finish(turn, guid, result),
                steps::Effect::Spawn { step, run, output, source } => {
                    let env = self.environment(guid, &run.env);
                    let process = process(step, *run, env, output, source);
                    turn.perform(guid, Deed::Spawn(Box::new(process)));
                }
                steps::Effect::Signal { step, signal } => {
                    turn.perform(guid, Deed::Signal(step, signal));
                }
                steps::Effect::StartDownload { step, download, .. } => {
                    turn.perform(guid, Deed::Download(step, download));
                }
                steps::Effect::StartUpload { step, upload, .. } => {
                    turn.perform(guid, Deed::Upload(step, upload));
                }
                steps::Effect::CancelTransfer { step } => {
                    turn.perform(guid, Deed::CancelTransfer(step));
                }
                steps::Effect::RunCheck { step, check, timeout } => {
                    turn.perform(guid, Deed::Check { step, check, timeout });
                }
                steps::Effect::CancelCheck { step } => {
                    turn.perform(guid, Deed::CancelCheck(step));
                }
                steps::Effect::Log { source, stream, text } => {
                    turn.perform(guid, Deed::Log(LogLine { source, stream, text }));
                }
            }
        }
    }

    fn environment(
        &self,
        guid: &ContainerGuid,
        action: &[EnvironmentVariable],
    ) -> Vec<EnvironmentVariable> {
        let Some(held) = self.held.get(guid) else { return Vec::new() };
        let container = held.work.as_ref().map(|it| it.environment(&held.owner));
        let network = held.network.as_ref().map(network_environment);
        process_environment(&container.unwrap_or_default(), action, &network.unwrap_or_default())
    }

    /// The steps are over. A task that succeeded may have left a result to be read first.
    fn finish(&mut self, turn: &mut Turn, guid: &ContainerGuid, result: RunResult) {
        self.timers.forget(guid);
        let Some(held) = self.held.get_mut(guid) else { return };
        // The tree calls stopped whatever was cancelled. What died as a whole was cancelled by us.
        let was_told_to = self.registry.container(guid).is_some_and(|it| it.stopped);
        let result = if held.gone && !was_told_to {
            RunResult {
                failed: true,
                failure_reason: "missing container: what held it has died".to_owned(),
                ..RunResult::default()
            }
        } else {
            result
        };
        let path = held.work.as_ref().map_or("", Work::result_file);
        if path.is_empty() || result.failed || result.stopped {
            return self.complete(turn, guid, result);
        }
        held.finished = Some(result);
        turn.perform(guid, Deed::ReadResult(path.to_owned()));
    }

    fn result_read(&mut self, turn: &mut Turn, guid: ContainerGuid, read: Result<String, String>) {
        let Some(held) = self.held.get_mut(&guid) else { return };
        let Some(mut result) = held.finished.take() else { return };
        turn.touched.insert(guid.clone());
        match read {
            Ok(text) => held.result = text,
            Err(reason) => {
                result.failed = true;
                result.failure_reason = reason;
            }
        }
        self.complete(turn, &guid, result);
    }

    fn complete(&mut self, turn: &mut Turn, guid: &ContainerGuid, result: RunResult) {
        let _ = self.tell(turn, registry::Input::Completed(guid.clone(), result));
        self.destroy_when_quiet(turn, guid);
    }

    /// All that ran is dead, and nothing can be started any more. The tree hears of each end.
    fn gone(&mut self, turn: &mut Turn, guid: &ContainerGuid) {
        let Some(held) = self.held.get_mut(guid) else { return };
        held.gone = true;
        turn.touched.insert(guid.clone());
        self.step(turn, guid, steps::Input::Cancel);
        // An end may begin a further process, which ends as soon as it is known.
        while let Some(step) = self.first_process(guid) {
            let killed = Exit::new(step.0, End::Signal(SIGKILL));
            self.step(turn, guid, steps::Input::Event(StepEvent::ProcessExited(killed)));
        }
        turn.effects.retain(|effect| !is_for_processes(guid, effect));
    }

    fn first_process(&self, guid: &ContainerGuid) -> Option<StepId> {
        let tree = self.held.get(guid)?.tree.as_ref()?;
        tree.processes().next().filter(|_| !tree.is_finished())
    }

    // The end.

    /// Asks the machine to take a container away, as soon as nothing is under way in it.
    fn destroy_when_quiet(&mut self, turn: &mut Turn, guid: &ContainerGuid) {
        let deletion = self.registry.container(guid).map(|it| it.deletion);
        let Some(held) = self.held.get_mut(guid) else { return };
        if deletion != Some(Deletion::Underway) || held.destroying {
            return;
        }
        match held.making {
            Making::Underway => return self.abandon(turn, guid),
            Making::Abandoned => return,
            Making::NotBegun | Making::Made | Making::Failed => {}
        }
        match &held.tree {
            // It comes back here when the tree has finished.
            Some(tree) if !tree.is_finished() => {
                return self.step(turn, guid, steps::Input::Cancel);
            }
            Some(_) | None => {}
        }
        if held.finished.is_none() {
            held.destroying = true;
            turn.perform(guid, Deed::Destroy);
        }
    }

    fn not_destroyed(
        &mut self,
        turn: &mut Turn,
        guid: ContainerGuid,
        reason: String,
    ) -> Result<(), Refusal> {
        self.tell(turn, registry::Input::DestroyFailed(guid.clone()))?;
        if let Some(held) = self.held.get_mut(&guid) {
            held.destroying = false;
        }
        turn.touched.insert(guid.clone());
        self.narrate(turn, &guid, Narration::FailedToDestroy);
        turn.effects.push(Effect::DeleteFailed(guid, reason));
        Ok(())
    }

    // Time.

    fn wake(&mut self, turn: &mut Turn) {
        while let Some((guid, timer)) = self.timers.fire(turn.now) {
            self.step(turn, &guid, steps::Input::TimerFired(timer));
        }
        let _ = self.tell(turn, registry::Input::ExpireReservations);
    }

    // Telling.

    /// A line about the container in its own log; kept back while there is none.
    fn narrate(&mut self, turn: &mut Turn, guid: &ContainerGuid, what: Narration<'_>) {
        let Some(held) = self.held.get_mut(guid) else { return };
        let source =
            held.work.as_ref().map_or(super::narration::DEFAULT_LOG_SOURCE, Work::log_source);
        let line = LogLine {
            source: source.to_owned(),
            stream: LogStream::Out,
            text: what.line(&self.settings.cell_id, guid.as_str()),
        };
        match held.making {
            Making::Made => turn.perform(guid, Deed::Log(line)),
            Making::NotBegun | Making::Underway | Making::Abandoned | Making::Failed => {
                if held.lines.len() < WAITING_LINES {
                    held.lines.push(line);
                }
            }
        }
    }
}

/// A process as a machine starts it.
fn process(
    step: StepId,
    run: RunAction,
    env: Vec<EnvironmentVariable>,
    output: Output,
    source: String,
) -> ProcessSpec {
    ProcessSpec {
        id: step.0,
        path: run.path,
        args: run.args,
        env: env.into_iter().map(|it| format!("{}={}", it.name, it.value)).collect(),
        dir: run.dir,
        user: run.user,
        nofile: run.resource_limits.as_ref().and_then(|it| it.nofile),
        source,
        output,
        terminal: None,
    }
}

/// Whether an effect is about a process of this container.
fn is_for_processes(guid: &ContainerGuid, effect: &Effect) -> bool {
    let Effect::Do(of, deed) = effect else { return false };
    of == guid && deed.is_for_processes()
}
