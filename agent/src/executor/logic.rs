//! The depot: the whole executor as one value. The registry, a step tree for each container, their
//! timers.
//!
//! `apply(now, input)` decides everything and does nothing. The rep's calls, the outcomes of what
//! the machine did and the passing of time are inputs; what the machine has to do and what the rep
//! is told are effects, to be performed in order. What holds:
//! - [`ExecutorOutput::Keep`] comes first: what is decided is written down before it is done. After a
//!   restart [`Executor::restore`] goes on from there, and nothing is done twice that must not be:
//!   a process whose start was not seen has failed to start.
//! - The machine is asked to destroy a container when nothing else is under way in it.
//! - Every guid that was reserved leaves by [`ExecutorOutput::Forget`], once.
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

use super::container_store::{
    self, Container, ContainerEvent, ContainerStore, Deletion, ExecutorRefusal, RESERVATION_EXPIRY,
    RemovalReason,
};
use super::environment::{LimitSettings, network_environment, process_environment};
use super::lifecycle_log::LifecycleLine;
use super::resources::Resources;
use super::steps::{self, StepSettings, StepTree};
use super::timers::Timers;
use super::workload::{Owner, Workload};
use crate::container::exit::{End, Exit};
use crate::container::guid::ContainerGuid;
use crate::container::network::ContainerNetwork;
use crate::container::op::{ContainerOp, OpOutcome};
use crate::container::spec::{LogLine, LogStream, OutputTarget, ProcessSpec};
use crate::container::step::{StepEvent, StepId};

pub use restore::{RecoveredContainer, SavedContainer};

/// Lines that may wait for a container to be made.
const WAITING_LINES: usize = 64;

/// What ends a process that nothing else has ended.
const SIGKILL: i32 = 9;

/// A cell's own numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutorSettings {
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

impl ExecutorSettings {
    /// The usual numbers for a cell with this much room.
    pub fn new(cell_id: CellId, capacity: CellCapacity) -> Self {
        ExecutorSettings {
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
pub enum ExecutorInput {
    /// The rep wants room for these. Each is taken or refused for itself, in this order.
    Reserve(Vec<ReservationRequest>),
    /// The rep wants a reservation to become a container with this work.
    Run(ContainerGuid, Workload),
    /// The rep wants it to stop, gracefully.
    Stop(ContainerGuid),
    /// The rep wants it gone.
    Delete(ContainerGuid),
    /// The machine tells what came of a deed, or that something has happened to it.
    Outcome(ContainerGuid, OpOutcome),
    /// Time has passed.
    Wake,
}

/// Room that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservationRequest {
    /// For whom.
    pub owner: Owner,
    /// How much.
    pub resources: super::resources::ContainerResources,
}

/// What the driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutorOutput {
    /// Write down how far this one is: [`Executor::progress`].
    Keep(ContainerGuid),
    /// Write down what this one is to do: it will be needed after a restart.
    KeepWork(ContainerGuid, Workload),
    /// Tell the rep.
    Emit(ContainerEvent),
    /// Tell whoever asked that this one got no room.
    RefuseReservation(ContainerGuid, ExecutorRefusal),
    /// Have the machine do something for this container.
    Do(ContainerGuid, ContainerOp),
    /// It is not there any more: strike out what was written down, and tell who waits for it.
    Forget(ContainerGuid, RemovalReason),
    /// It could not be taken away: tell who waits for it.
    DeleteFailed(ContainerGuid, String),
}

/// What is known of one container beside its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ContainerRun {
    owner: Owner,
    #[serde(skip)]
    work: Option<Workload>,
    network: Option<ContainerNetwork>,
    tree: Option<StepTree>,
    making: CreateState,
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
enum CreateState {
    NotBegun,
    Underway,
    Abandoned,
    Made,
    Failed,
}

impl ContainerRun {
    fn new(owner: Owner) -> Self {
        ContainerRun {
            owner,
            work: None,
            network: None,
            tree: None,
            making: CreateState::NotBegun,
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
    pub network: Option<ContainerNetwork>,
    /// The contents of its result file, once it has completed.
    pub task_result: String,
}

/// How far a container is, to be written down.
#[derive(Debug, Serialize)]
pub struct Progress<'a> {
    container: &'a Container,
    held: &'a ContainerRun,
}

/// All containers of a cell, and what is under way in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Executor {
    settings: ExecutorSettings,
    registry: ContainerStore,
    held: BTreeMap<ContainerGuid, ContainerRun>,
    timers: Timers,
}

/// One call of `apply`: the time, and the effects so far.
struct Txn {
    now: Timestamp,
    effects: Vec<ExecutorOutput>,
    touched: BTreeSet<ContainerGuid>,
}

impl Txn {
    fn new(now: Timestamp) -> Self {
        Txn { now, effects: Vec::new(), touched: BTreeSet::new() }
    }

    fn perform(&mut self, guid: &ContainerGuid, deed: ContainerOp) {
        self.effects.push(ExecutorOutput::Do(guid.clone(), deed));
    }
}

impl Executor {
    /// The depot of an empty cell.
    pub fn new(settings: ExecutorSettings) -> Self {
        let registry = ContainerStore::new(settings.capacity, settings.reservation_expiry);
        Executor { settings, registry, held: BTreeMap::new(), timers: Timers::default() }
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

    /// When to say [`ExecutorInput::Wake`] next, if ever.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.timers.next().into_iter().chain(self.registry.next_expiry()).min()
    }

    /// Decides about one input. A refusal changes nothing.
    pub fn apply(
        &mut self,
        now: Timestamp,
        input: ExecutorInput,
    ) -> Result<Vec<ExecutorOutput>, ExecutorRefusal> {
        let mut turn = Txn::new(now);
        match input {
            ExecutorInput::Reserve(wanted) => self.reserve(&mut turn, wanted),
            ExecutorInput::Run(guid, work) => self.run(&mut turn, guid, work)?,
            ExecutorInput::Stop(guid) => {
                self.tell(&mut turn, container_store::StoreInput::Stop(guid))?
            }
            ExecutorInput::Delete(guid) => {
                self.tell(&mut turn, container_store::StoreInput::Delete(guid))?
            }
            ExecutorInput::Outcome(guid, outcome) => self.outcome(&mut turn, guid, outcome)?,
            ExecutorInput::Wake => self.wake(&mut turn),
        }
        Ok(self.close(turn))
    }

    /// Puts first what must be first.
    fn close(&mut self, turn: Txn) -> Vec<ExecutorOutput> {
        let kept = turn.touched.into_iter().filter(|guid| self.held.contains_key(guid));
        kept.map(ExecutorOutput::Keep).chain(turn.effects).collect()
    }

    fn outcome(
        &mut self,
        turn: &mut Txn,
        guid: ContainerGuid,
        outcome: OpOutcome,
    ) -> Result<(), ExecutorRefusal> {
        match outcome {
            OpOutcome::Made(network) => self.made(turn, guid, network),
            OpOutcome::NotMade(reason) => self.not_made(turn, guid, &reason),
            OpOutcome::Step(event) => self.step(turn, &guid, steps::StepInput::Event(event)),
            OpOutcome::ResultRead(read) => self.result_read(turn, guid, read),
            OpOutcome::Gone => self.gone(turn, &guid),
            OpOutcome::Destroyed => {
                self.tell(turn, container_store::StoreInput::Destroyed(guid))?
            }
            OpOutcome::DestroyFailed(reason) => self.not_destroyed(turn, guid, reason)?,
        }
        Ok(())
    }

    fn reserve(&mut self, turn: &mut Txn, wanted: Vec<ReservationRequest>) {
        for ReservationRequest { owner, resources } in wanted {
            let guid = owner.container();
            let is_new = !self.held.contains_key(&guid);
            let reservation = container_store::Reservation { guid: guid.clone(), resources };
            // Reserving is never refused as a whole; each answer is an effect.
            let _ = self.tell(turn, container_store::StoreInput::Reserve(vec![reservation]));
            if is_new && self.registry.container(&guid).is_some() {
                turn.touched.insert(guid.clone());
                self.held.insert(guid, ContainerRun::new(owner));
            }
        }
    }

    fn run(
        &mut self,
        turn: &mut Txn,
        guid: ContainerGuid,
        work: Workload,
    ) -> Result<(), ExecutorRefusal> {
        let before = turn.effects.len();
        self.tell(turn, container_store::StoreInput::Run(guid.clone()))?;
        turn.effects.insert(before, ExecutorOutput::KeepWork(guid.clone(), work.clone()));
        let plan = work.plan(self.settings.limits);
        if let Some(held) = self.held.get_mut(&guid) {
            held.work = Some(work);
            held.making = CreateState::Underway;
        }
        self.narrate(turn, &guid, LifecycleLine::Creating);
        turn.perform(&guid, ContainerOp::Make(Box::new(plan)));
        Ok(())
    }

    /// Has the registry decide, and does what it says.
    fn tell(
        &mut self,
        turn: &mut Txn,
        input: container_store::StoreInput,
    ) -> Result<(), ExecutorRefusal> {
        for effect in self.registry.apply(turn.now, input)? {
            self.follow(turn, effect);
        }
        Ok(())
    }

    fn follow(&mut self, turn: &mut Txn, effect: container_store::StoreOutput) {
        match effect {
            container_store::StoreOutput::Emit(event) => {
                turn.touched.insert(event.guid().clone());
                turn.effects.push(ExecutorOutput::Emit(event));
            }
            container_store::StoreOutput::RefuseReservation(guid, refusal) => {
                turn.effects.push(ExecutorOutput::RefuseReservation(guid, refusal));
            }
            // `run` has the plan, and has it made.
            container_store::StoreOutput::Create(guid) => drop(turn.touched.insert(guid)),
            container_store::StoreOutput::AbandonCreate(guid) => self.abandon(turn, &guid),
            container_store::StoreOutput::BeginSteps(guid) => self.begin_steps(turn, &guid),
            container_store::StoreOutput::CancelSteps(guid) => {
                self.narrate(turn, &guid, LifecycleLine::Stopping);
                self.step(turn, &guid, steps::StepInput::Cancel);
            }
            container_store::StoreOutput::Destroy(guid) => {
                self.narrate(turn, &guid, LifecycleLine::Destroying);
                turn.touched.insert(guid.clone());
                self.destroy_when_quiet(turn, &guid);
            }
            container_store::StoreOutput::Forget(guid, why) => {
                self.held.remove(&guid);
                self.timers.forget(&guid);
                turn.effects.push(ExecutorOutput::Forget(guid, why));
            }
        }
    }

    // Making.

    fn abandon(&mut self, turn: &mut Txn, guid: &ContainerGuid) {
        let Some(held) = self.held.get_mut(guid) else { return };
        if held.making == CreateState::Underway {
            held.making = CreateState::Abandoned;
            turn.touched.insert(guid.clone());
            turn.perform(guid, ContainerOp::Abandon);
        }
    }

    fn made(&mut self, turn: &mut Txn, guid: ContainerGuid, network: ContainerNetwork) {
        let Some(held) = self.held.get_mut(&guid) else { return };
        held.making = CreateState::Made;
        held.network = Some(network);
        turn.touched.insert(guid.clone());
        for line in std::mem::take(&mut held.lines) {
            turn.perform(&guid, ContainerOp::Log(line));
        }
        self.narrate(turn, &guid, LifecycleLine::Created);
        // Refused when somebody has stopped or deleted it in the meantime: it is not begun then.
        let _ = self.tell(turn, container_store::StoreInput::Created(guid.clone()));
        if self.held.get(&guid).is_some_and(|it| it.gone) {
            // It died before anybody knew that it was made.
            self.gone(turn, &guid);
        }
        self.destroy_when_quiet(turn, &guid);
    }

    fn not_made(&mut self, turn: &mut Txn, guid: ContainerGuid, reason: &str) {
        let Some(held) = self.held.get_mut(&guid) else { return };
        held.making = CreateState::Failed;
        turn.touched.insert(guid.clone());
        self.narrate(turn, &guid, LifecycleLine::FailedToCreate(reason));
        let result = RunResult {
            failed: true,
            failure_reason: reason.to_owned(),
            retryable: true,
            stopped: false,
        };
        let _ = self.tell(turn, container_store::StoreInput::Completed(guid.clone(), result));
        self.destroy_when_quiet(turn, &guid);
    }

    // Steps.

    fn begin_steps(&mut self, turn: &mut Txn, guid: &ContainerGuid) {
        let Some(held) = self.held.get_mut(guid) else { return };
        let Some(work) = &held.work else { return };
        held.tree = Some(StepTree::new(&work.steps(), self.settings.steps));
        self.step(turn, guid, steps::StepInput::Begin);
    }

    fn step(&mut self, turn: &mut Txn, guid: &ContainerGuid, input: steps::StepInput) {
        let Some(held) = self.held.get_mut(guid) else { return };
        let ended = match &input {
            steps::StepInput::Event(StepEvent::ProcessExited(exit)) => Some(exit.id),
            steps::StepInput::Event(_)
            | steps::StepInput::Begin
            | steps::StepInput::TimerFired(_)
            | steps::StepInput::Cancel => None,
        };
        let Some(tree) = &mut held.tree else { return };
        let effects = tree.apply(turn.now, input);
        turn.touched.insert(guid.clone());
        self.apply_steps(turn, guid, effects);
        if let Some(process) = ended {
            // What it makes is written down by now: the record of the exit is not needed again.
            turn.perform(guid, ContainerOp::ForgetExit(process));
        }
    }

    fn apply_steps(
        &mut self,
        turn: &mut Txn,
        guid: &ContainerGuid,
        effects: Vec<steps::StepOutput>,
    ) {
        for effect in effects {
            match effect {
                steps::StepOutput::StartTimer { timer, after } => {
                    self.timers.start(turn.now + after, guid, timer);
                }
                steps::StepOutput::CancelTimer { timer } => self.timers.cancel(guid, timer),
                steps::StepOutput::Ready => {
                    let _ = self.tell(turn, container_store::StoreInput::Running(guid.clone()));
                }
                steps::StepOutput::Routable(routable) => {
                    let _ = self
                        .tell(turn, container_store::StoreInput::Routable(guid.clone(), routable));
                }
                steps::StepOutput::Finished(result) => self.finish(turn, guid, result),
                steps::StepOutput::Spawn { step, run, output, source } => {
                    let env = self.environment(guid, &run.env);
                    let process = process(step, *run, env, output, source);
                    turn.perform(guid, ContainerOp::Spawn(Box::new(process)));
                }
                steps::StepOutput::Signal { step, signal } => {
                    turn.perform(guid, ContainerOp::Signal(step, signal));
                }
                steps::StepOutput::StartDownload { step, download, .. } => {
                    turn.perform(guid, ContainerOp::Download(step, download));
                }
                steps::StepOutput::StartUpload { step, upload, .. } => {
                    turn.perform(guid, ContainerOp::Upload(step, upload));
                }
                steps::StepOutput::CancelTransfer { step } => {
                    turn.perform(guid, ContainerOp::CancelTransfer(step));
                }
                steps::StepOutput::RunCheck { step, check, timeout } => {
                    turn.perform(guid, ContainerOp::Check { step, check, timeout });
                }
                steps::StepOutput::CancelCheck { step } => {
                    turn.perform(guid, ContainerOp::CancelCheck(step));
                }
                steps::StepOutput::Log { source, stream, text } => {
                    turn.perform(guid, ContainerOp::Log(LogLine { source, stream, text }));
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
    fn finish(&mut self, turn: &mut Txn, guid: &ContainerGuid, result: RunResult) {
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
        let path = held.work.as_ref().map_or("", Workload::result_file);
        if path.is_empty() || result.failed || result.stopped {
            return self.complete(turn, guid, result);
        }
        held.finished = Some(result);
        turn.perform(guid, ContainerOp::ReadResult(path.to_owned()));
    }

    fn result_read(&mut self, turn: &mut Txn, guid: ContainerGuid, read: Result<String, String>) {
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

    fn complete(&mut self, turn: &mut Txn, guid: &ContainerGuid, result: RunResult) {
        let _ = self.tell(turn, container_store::StoreInput::Completed(guid.clone(), result));
        self.destroy_when_quiet(turn, guid);
    }

    /// All that ran is dead, and nothing can be started any more. The tree hears of each end.
    fn gone(&mut self, turn: &mut Txn, guid: &ContainerGuid) {
        let Some(held) = self.held.get_mut(guid) else { return };
        held.gone = true;
        turn.touched.insert(guid.clone());
        self.step(turn, guid, steps::StepInput::Cancel);
        // An end may begin a further process, which ends as soon as it is known.
        while let Some(step) = self.first_process(guid) {
            let killed = Exit::new(step.0, End::Signal(SIGKILL));
            self.step(turn, guid, steps::StepInput::Event(StepEvent::ProcessExited(killed)));
        }
        turn.effects.retain(|effect| !is_for_processes(guid, effect));
    }

    fn first_process(&self, guid: &ContainerGuid) -> Option<StepId> {
        let tree = self.held.get(guid)?.tree.as_ref()?;
        tree.processes().next().filter(|_| !tree.is_finished())
    }

    // The end.

    /// Asks the machine to take a container away, as soon as nothing is under way in it.
    fn destroy_when_quiet(&mut self, turn: &mut Txn, guid: &ContainerGuid) {
        let deletion = self.registry.container(guid).map(|it| it.deletion);
        let Some(held) = self.held.get_mut(guid) else { return };
        if deletion != Some(Deletion::Underway) || held.destroying {
            return;
        }
        match held.making {
            CreateState::Underway => return self.abandon(turn, guid),
            CreateState::Abandoned => return,
            CreateState::NotBegun | CreateState::Made | CreateState::Failed => {}
        }
        match &held.tree {
            // It comes back here when the tree has finished.
            Some(tree) if !tree.is_finished() => {
                return self.step(turn, guid, steps::StepInput::Cancel);
            }
            Some(_) | None => {}
        }
        if held.finished.is_none() {
            held.destroying = true;
            turn.perform(guid, ContainerOp::Destroy);
        }
    }

    fn not_destroyed(
        &mut self,
        turn: &mut Txn,
        guid: ContainerGuid,
        reason: String,
    ) -> Result<(), ExecutorRefusal> {
        self.tell(turn, container_store::StoreInput::DestroyFailed(guid.clone()))?;
        if let Some(held) = self.held.get_mut(&guid) {
            held.destroying = false;
        }
        turn.touched.insert(guid.clone());
        self.narrate(turn, &guid, LifecycleLine::FailedToDestroy);
        turn.effects.push(ExecutorOutput::DeleteFailed(guid, reason));
        Ok(())
    }

    // Time.

    fn wake(&mut self, turn: &mut Txn) {
        while let Some((guid, timer)) = self.timers.fire(turn.now) {
            self.step(turn, &guid, steps::StepInput::TimerFired(timer));
        }
        let _ = self.tell(turn, container_store::StoreInput::ExpireReservations);
    }

    // Telling.

    /// A line about the container in its own log; kept back while there is none.
    fn narrate(&mut self, turn: &mut Txn, guid: &ContainerGuid, what: LifecycleLine<'_>) {
        let Some(held) = self.held.get_mut(guid) else { return };
        let source = held
            .work
            .as_ref()
            .map_or(super::lifecycle_log::DEFAULT_LOG_SOURCE, Workload::log_source);
        let line = LogLine {
            source: source.to_owned(),
            stream: LogStream::Out,
            text: what.line(&self.settings.cell_id, guid.as_str()),
        };
        match held.making {
            CreateState::Made => turn.perform(guid, ContainerOp::Log(line)),
            CreateState::NotBegun
            | CreateState::Underway
            | CreateState::Abandoned
            | CreateState::Failed => {
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
    output: OutputTarget,
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
fn is_for_processes(guid: &ContainerGuid, effect: &ExecutorOutput) -> bool {
    let ExecutorOutput::Do(of, deed) = effect else { return false };
    of == guid && deed.is_for_processes()
}
