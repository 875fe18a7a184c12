//! Tests of the board. This file has the stage they play on; each file below has the claims about
//! one family of commands.

mod actual;
mod converge;
mod desired;
mod domain;
mod evacuate;
mod properties;
mod rolling;
mod suspect;
mod task;
mod transition;

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::actual_lrp::{
    ActualLrp, InstanceKey, LrpGroup, LrpKey, LrpState, NetInfo, Presence, Running, Tags,
};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::definition::{LrpDefinition, UpdateStrategy};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::modification_tag::ModificationTag;
use volvox_protocol::request::{CellRequest, Rejection};
use volvox_protocol::task::{Task, TaskDefinition};
use volvox_protocol::time::Timestamp;
use volvox_protocol::validate::Valid;

use super::Board;
use super::check::check;
use crate::bbs::command::{ApplyResult, BoardEffect, Change, Command, Reply, TaskRef, Verdict};
use crate::bbs::settings::BoardSettings;

/// A board with a clock: what a test plays on. Every step is followed by a look at the whole board.
#[derive(Clone)]
struct Stage {
    board: Board,
    now: Timestamp,
    seed: u64,
}

impl Stage {
    /// An empty board at some time, on which the mesh has mentioned nobody.
    fn new() -> Self {
        Stage {
            board: Board::new(BoardSettings::default()),
            now: Timestamp::from_secs(1_000_000),
            seed: 0,
        }
    }

    /// A board that has heard of cell-1, cell-2 and cell-3, with a fresh domain `d` in which `p`
    /// is desired so many times.
    fn with_desired(instances: u32) -> Self {
        let mut stage = Stage::new();
        for cell in ["cell-1", "cell-2", "cell-3"] {
            stage.does(present(cell));
        }
        stage.does(Command::UpsertDomain(domain("d"), Duration::ZERO));
        stage.does(desire(instances));
        stage
    }

    /// Carries out a command and lets it say what it wants.
    fn tries(&mut self, command: Command) -> Verdict {
        self.seed += 1;
        let told = format!("{command:?}");
        let verdict = self.board.apply(self.now, self.seed, command);
        let broken = check(&self.board, self.now);
        assert!(broken.is_empty(), "after {told}: {broken:#?}");
        verdict
    }

    /// Carries out a command that the board accepts.
    fn does(&mut self, command: Command) -> ApplyResult {
        let told = format!("{command:?}");
        match self.tries(command) {
            Ok(outcome) => outcome,
            Err(rejection) => panic!("{told} was refused: {rejection}"),
        }
    }

    /// Carries out a command that the board refuses.
    fn refuses(&mut self, command: Command) -> Rejection {
        let told = format!("{command:?}");
        match self.tries(command) {
            Ok(outcome) => panic!("{told} was accepted: {outcome:#?}"),
            Err(rejection) => rejection,
        }
    }

    fn wait(&mut self, seconds: u64) -> &mut Self {
        self.now = self.now + Duration::from_secs(seconds);
        self
    }

    fn converge(&mut self) -> ApplyResult {
        self.does(Command::ConvergeDue)
    }

    /// Claims and starts index 0 of `p` as `instance`.
    fn runs(&mut self, instance: &InstanceKey) {
        self.does(claim(0, instance));
        self.does(start(0, instance));
    }

    fn lrp(&self, index: u32, presence: Presence) -> Option<&Arc<ActualLrp>> {
        let found = self.board.records.process(&process())?;
        found.find(&(&process()).into(), index, presence).map(|slot| &slot.lrp)
    }

    /// What is desired of `p`.
    fn deployment(&self) -> Arc<LrpDeployment> {
        let known = self.board.records.deployment(&process());
        known.map(|(_, deployment)| Arc::clone(deployment)).expect("p is desired")
    }

    /// The ordinary record of index 0.
    fn ordinary(&self) -> &Arc<ActualLrp> {
        self.lrp(0, Presence::Ordinary).expect("there is an ordinary record at index 0")
    }

    /// All records of `p`, such as `0 RUNNING ORDINARY i1`.
    fn shown(&self) -> Vec<String> {
        let process = self.board.records.process(&process());
        let slots = process.into_iter().flat_map(|process| process.instances());
        slots.map(|slot| format!("{} {}", slot.lrp.index, shape(&slot.lrp))).collect()
    }

    fn task(&self, guid: &str) -> Option<Arc<Task>> {
        self.board.records.task(&task_guid(guid)).map(|(_, task)| Arc::clone(task))
    }

    /// The same records on a board that has just been started.
    fn restarted(&self) -> Stage {
        let mut stage = Stage { board: reload(&self.board, self.now), ..self.clone() };
        stage.seed += 1_000;
        stage
    }
}

/// A board that reads the records of another back from the store.
fn reload(board: &Board, now: Timestamp) -> Board {
    reload_with(board, now, |_| {})
}

/// A board that finds the instance records of another in its store, after an edit.
fn reload_with(board: &Board, now: Timestamp, edit: impl Fn(&mut ActualLrp)) -> Board {
    let mut new = Board::new(board.settings.clone());
    for mut change in stored(board) {
        if let Change::Actual(_, None, Some(lrp)) = &mut change {
            edit(Arc::make_mut(lrp));
        }
        new.load(change).expect("it is a record of ours");
    }
    new.loaded(now);
    new
}

/// What the store holds of a board.
fn stored(board: &Board) -> Vec<Change> {
    let records = &board.records;
    let mut all = Vec::new();
    for record in records.domains() {
        let (row, record) = records.domain(&record.domain).expect("it was listed").clone();
        all.push(Change::Domain(row, None, Some(record)));
    }
    for (_, process) in records.processes() {
        if let Some((row, deployment)) = &process.deployment {
            all.push(Change::Deployment(*row, None, Some(Arc::clone(deployment))));
        }
        for slot in process.instances() {
            all.push(Change::Actual(slot.row, None, Some(Arc::clone(&slot.lrp))));
        }
    }
    for task in records.tasks() {
        let (row, task) = records.task(&task.task_guid).expect("it was listed").clone();
        all.push(Change::Task(row, None, Some(task)));
    }
    all
}

// Names.

fn process() -> ProcessGuid {
    ProcessGuid::new("p").unwrap()
}

fn domain(name: &str) -> Domain {
    Domain::new(name).unwrap()
}

fn cell(name: &str) -> CellId {
    CellId::new(name).unwrap()
}

fn task_guid(name: &str) -> TaskGuid {
    TaskGuid::new(name).unwrap()
}

fn instance(guid: &str, on: &str) -> InstanceKey {
    InstanceKey { instance_guid: InstanceGuid::new(guid).unwrap(), cell_id: cell(on) }
}

/// The instance `i1` on cell-1.
fn i1() -> InstanceKey {
    instance("i1", "cell-1")
}

/// The instance `i2` on cell-2.
fn i2() -> InstanceKey {
    instance("i2", "cell-2")
}

/// The instance `i3` on cell-3.
fn i3() -> InstanceKey {
    instance("i3", "cell-3")
}

fn key(index: u32) -> LrpKey {
    LrpKey { process_guid: process(), index, domain: domain("d"), definition_id: None }
}

// Commands.

fn running_at(address: &str) -> Arc<Running> {
    Arc::new(Running {
        net_info: NetInfo { address: address.into(), ..NetInfo::default() },
        internal_routes: Box::default(),
        metric_tags: Tags::default(),
        routable: true,
        availability_zone: "z1".into(),
    })
}

fn running() -> Arc<Running> {
    running_at("10.0.0.1")
}

fn action() -> Option<Action> {
    let run = RunAction { path: "/bin/true".into(), user: "vcap".into(), ..Default::default() };
    Some(Action::Run(Box::new(run)))
}

fn desired(guid: &str, in_domain: &str, instances: u32) -> DesiredLrp {
    DesiredLrp {
        process_guid: ProcessGuid::new(guid).unwrap(),
        domain: domain(in_domain),
        instances,
        routes: Default::default(),
        annotation: String::new(),
        metric_tags: Default::default(),
        update_strategy: UpdateStrategy::Rolling,
        modification_tag: ModificationTag::default(),
        definition_id: None,
        previous_definition_id: None,
        definition: LrpDefinition {
            rootfs: "preloaded:linux".into(),
            action: action(),
            memory_mb: 64,
            ..Default::default()
        },
    }
}

fn desire_this(desired: DesiredLrp) -> Command {
    Command::DesireLrp(Box::new(Valid::new(desired).unwrap()))
}

fn desire(instances: u32) -> Command {
    desire_this(desired("p", "d", instances))
}

fn update(update: DesiredLrpUpdate) -> Command {
    Command::UpdateDesiredLrp(process(), Box::new(Valid::new(update).unwrap()))
}

fn scale(instances: u32) -> Command {
    update(DesiredLrpUpdate { instances: Some(instances), ..Default::default() })
}

fn cell_says(request: CellRequest) -> Command {
    Command::Cell(Valid::new(request).unwrap())
}

fn claim(index: u32, instance: &InstanceKey) -> Command {
    cell_says(CellRequest::ClaimLrp(key(index), instance.clone()))
}

fn start(index: u32, instance: &InstanceKey) -> Command {
    cell_says(CellRequest::StartLrp(key(index), instance.clone(), running()))
}

fn crash(index: u32, instance: &InstanceKey) -> Command {
    cell_says(CellRequest::CrashLrp(key(index), instance.clone(), "exit 1".into()))
}

fn remove(index: u32, instance: &InstanceKey) -> Command {
    cell_says(CellRequest::RemoveLrp(key(index), instance.clone()))
}

fn fail(index: u32) -> Command {
    Command::FailLrp(key(index), "insufficient resources".into())
}

fn present(name: &str) -> Command {
    Command::CellPresence(cell(name), CellPresence::Present)
}

fn missing(name: &str) -> Command {
    Command::CellPresence(cell(name), CellPresence::Missing)
}

fn fresh(name: &str, seconds: u64) -> Command {
    Command::UpsertDomain(domain(name), Duration::from_secs(seconds))
}

fn desire_task(guid: &str, callback_url: &str) -> Command {
    let definition = TaskDefinition {
        rootfs: "preloaded:linux".into(),
        action: action(),
        completion_callback_url: callback_url.into(),
        ..Default::default()
    };
    let definition = Box::new(Valid::new(definition).unwrap());
    Command::DesireTask(task_guid(guid), domain("d"), definition)
}

fn start_task(guid: &str, on: &str) -> Command {
    cell_says(CellRequest::StartTask(task_guid(guid), cell(on)))
}

// Words for what came out.

/// Such as `RUNNING ORDINARY i1`; a record on no cell has no last word.
fn shape(lrp: &ActualLrp) -> String {
    let presence = match lrp.presence {
        Presence::Ordinary => "ORDINARY",
        Presence::Evacuating => "EVACUATING",
        Presence::Suspect => "SUSPECT",
    };
    let holder = lrp.instance().map(|instance| format!(" {}", instance.instance_guid));
    format!("{} {presence}{}", lrp.state.name(), holder.unwrap_or_default())
}

/// Such as `p: 0 1 3` for each request for an auction, tasks by their guid.
fn auctions(outcome: &ApplyResult) -> Vec<String> {
    let mut told = Vec::new();
    for effect in &outcome.effects {
        if let BoardEffect::RequestAuction(lrps, tasks) = effect {
            for start in lrps {
                let indices: Vec<_> = start.indices.iter().map(u32::to_string).collect();
                told.push(format!("{}: {}", start.process_guid, indices.join(" ")));
            }
            told.extend(tasks.iter().map(|task| task.task_guid.to_string()));
        }
    }
    told
}

/// Such as `stop 0 i1`, `update 0 i1`, `cancel t on cell-1`, `call back t`, `auction p: 0`.
fn effects(outcome: &ApplyResult) -> Vec<String> {
    let mut told = Vec::new();
    for effect in &outcome.effects {
        told.push(match effect {
            BoardEffect::RequestAuction(..) => format!("auction {}", auctions(outcome).join(", ")),
            BoardEffect::StopInstance(key, of) => {
                format!("stop {} {}", key.index, of.instance_guid)
            }
            BoardEffect::UpdateInstance(key, of) => {
                format!("update {} {}", key.index, of.instance_guid)
            }
            BoardEffect::CancelTask(cell, task) => format!("cancel {task} on {cell}"),
            BoardEffect::CallBack(task) => format!("call back {}", task.task_guid),
        });
    }
    told
}

/// The names of the events, in order.
fn events(outcome: &ApplyResult) -> Vec<&'static str> {
    outcome.events.iter().map(Event::name).collect()
}

/// The one record that a group of one shows.
fn only(group: &LrpGroup) -> &Arc<ActualLrp> {
    match (&group.instance, &group.evacuating) {
        (Some(lrp), None) | (None, Some(lrp)) => lrp,
        (Some(_), Some(_)) | (None, None) => panic!("{group:?} shows one record"),
    }
}
