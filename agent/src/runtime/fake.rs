//! A machine in memory, for tests and simulations: containers without a kernel, time as it is given.
//!
//! What a process does, its path says: `true`, `false`, `exit N`, `sleep MS` (then ends with 0),
//! `crash MS N` (then ends with N), `missing` (cannot be started), `stubborn` (ignores TERM); all
//! others run until they are signalled. Rules that hold for the real machine hold here: outcomes come
//! later, a dead container takes nothing, exits are remembered until they are forgotten. What is left of
//! a container that died is there until it is taken away.
//!
//! What holds a container may hang ([`FakeMachine::hang`]), or be slow ([`FakeMachine::stall`]). Its
//! processes go on, nobody hears of their ends, and what is asked of it waits. As on the real machine
//! ([`PATIENCE`], [`QUIET_FOR`]) it is noticed when it does not answer, and asked again; when it is ended,
//! `shim_timeouts.rs` says here and there.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use volvox_protocol::actual_lrp::PortMapping;
use volvox_protocol::time::Timestamp;

use super::machine::QUIET_FOR;
use super::shim::{MADE_WITHIN, PATIENCE};
use super::shim_timeouts::{RetryDecision, ShimActivity, Waiting};
use crate::container::exit::{End, Exit};
use crate::container::guid::ContainerGuid;
use crate::container::network::ContainerNetwork;
use crate::container::op::{ContainerOp, OpOutcome};
use crate::container::plan::ContainerPlan;
use crate::container::runtime::{OutcomeSender, RecoveredState, Runtime, RuntimeError};
use crate::container::spec::{LogLine, ProcessSpec};
use crate::container::step::{
    CheckOutcome, StepEvent, StepId, StepSignal, TransferFailure, Transferred,
};

/// What can be made to go wrong, or to take long.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Faults {
    /// How long it takes to make a container.
    pub making: Duration,
    /// Why containers cannot be made, if they cannot.
    pub not_made: Option<String>,
    /// Why containers cannot be taken away, if they cannot.
    pub not_destroyed: Option<String>,
    /// How long a transfer takes.
    pub transfer: Duration,
    /// How transfers fail, if they do.
    pub transfer_failure: Option<TransferFailure>,
    /// What checks find, if not that all is well.
    pub check_failure: Option<String>,
    /// What is in result files, or why nothing is.
    pub result: Option<Result<String, String>>,
}

/// The machine itself. It outlives the executors that use it.
#[derive(Debug, Default)]
pub struct FakeMachine {
    /// What goes wrong from now on.
    pub faults: Faults,
    /// What has gone wrong, until somebody takes it.
    pub met: Vec<&'static str>,
    now: Timestamp,
    containers: BTreeMap<ContainerGuid, FakeContainer>,
    due: BTreeMap<(Timestamp, u64), Due>,
    last: u64,
}

#[derive(Debug, Default)]
struct FakeContainer {
    /// It died; only its records are left.
    dead: bool,
    /// Its shim hangs.
    hangs: Option<Hangs>,
    running: BTreeMap<u32, ProcessSpec>,
    exited: BTreeMap<u32, Exit>,
    log: Vec<LogLine>,
    ever_started: BTreeSet<u32>,
}

/// A shim that hangs.
#[derive(Debug)]
struct Hangs {
    /// Which of all that ever did: what is due for another is of no interest.
    nth: u64,
    until: Timestamp,
    /// What one sees who looks at it.
    seen: ShimActivity,
    /// What it was asked since.
    asked: Vec<ContainerOp>,
    /// What has ended since: the process and its status.
    ended: Vec<(u32, i32)>,
    /// The agent has begun the conversation anew, and hears all exits again, if so.
    anew: Option<Waiting>,
}

#[derive(Debug, Clone)]
enum Due {
    Tell(ContainerGuid, OpOutcome),
    Make(ContainerGuid, Box<ContainerPlan>),
    End(ContainerGuid, u32, i32),
    Transfer(ContainerGuid, StepId),
    /// The shim that hung goes on.
    GoesOn(ContainerGuid, u64),
    /// It has not answered in time: the agent begins the conversation anew.
    Silent(ContainerGuid, u64),
    /// It has not answered then either: the agent asks again, or ends it.
    Unanswered(ContainerGuid, u64),
    /// It is to be taken away, and ended if it does not answer.
    TakeAway(ContainerGuid),
}

impl FakeMachine {
    /// The containers that are there.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerGuid> {
        self.containers.keys()
    }

    /// What runs in a container: the paths, in the order of their start.
    pub fn processes(&self, guid: &ContainerGuid) -> Vec<&str> {
        let container = self.containers.get(guid);
        container.iter().flat_map(|it| it.running.values()).map(|it| it.path.as_str()).collect()
    }

    /// How many processes were started in a container, ended ones too.
    pub fn ever_started(&self, guid: &ContainerGuid) -> usize {
        self.containers.get(guid).map_or(0, |it| it.ever_started.len())
    }

    /// The lines of a container's log that the cell has written.
    pub fn log(&self, guid: &ContainerGuid) -> Vec<&str> {
        let container = self.containers.get(guid);
        container.iter().flat_map(|it| &it.log).map(|it| it.text.as_str()).collect()
    }

    /// When something happens next, if ever.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Lets time pass and gives what has happened by then, in order.
    pub fn advance(&mut self, now: Timestamp) -> Vec<(ContainerGuid, OpOutcome)> {
        self.now = self.now.max(now);
        let mut told = Vec::new();
        while let Some(next) = self.due.first_entry() {
            if next.key().0 > self.now {
                break;
            }
            match next.remove() {
                Due::Tell(guid, outcome) => told.push((guid, outcome)),
                Due::Make(guid, plan) => {
                    let made = self.make(&guid, &plan);
                    told.push((guid, made));
                }
                Due::End(guid, process, status) => told.extend(self.end(guid, process, status)),
                Due::Transfer(guid, step) => {
                    let result = match self.faults.transfer_failure.clone() {
                        Some(failure) => Err(failure),
                        None => Ok(Transferred::Bytes(1)),
                    };
                    told.push((guid, OpOutcome::Step(StepEvent::TransferDone { step, result })));
                }
                Due::GoesOn(guid, nth) => {
                    if self.hangs(&guid, nth) {
                        told.extend(self.resume(&guid));
                    }
                }
                Due::Silent(guid, nth) => {
                    if self.hangs(&guid, nth) {
                        self.begin_anew(guid);
                    }
                }
                Due::Unanswered(guid, nth) => {
                    if self.hangs(&guid, nth) {
                        self.unanswered(guid);
                    }
                }
                Due::TakeAway(guid) => {
                    let outcome = self.destroy(&guid);
                    told.push((guid, outcome));
                }
            }
        }
        told
    }

    /// Everything in a container dies at once, as when its shim is killed. What it was asked and has not
    /// done is not done.
    pub fn kill(&mut self, guid: &ContainerGuid) {
        let Some(container) = self.containers.get_mut(guid).filter(|it| !it.dead) else { return };
        container.dead = true;
        container.running.clear();
        let asked = container.hangs.take().map(|it| it.asked).unwrap_or_default();
        for deed in asked {
            if let ContainerOp::Spawn(process) = deed {
                let error = "the container's shim was lost".to_owned();
                let failed = StepEvent::SpawnFailed { step: StepId(process.id), error };
                self.later(Duration::ZERO, Due::Tell(guid.clone(), OpOutcome::Step(failed)));
            }
        }
        self.later(Duration::ZERO, Due::Tell(guid.clone(), OpOutcome::Gone));
    }

    /// One process ends, the first that runs this path; its shim writes that down and dies before it has
    /// told anybody.
    pub fn kill_untold(&mut self, guid: &ContainerGuid, path: &str, status: i32) {
        if let Some(process) = self.first_of(guid, path)
            && let Some(container) = self.containers.get_mut(guid)
        {
            container.running.remove(&process);
            let exit = Exit::new(process, End::Status(status));
            container.exited.insert(process, exit.clone());
            // Whoever loses a shim reads what it has written.
            let told = StepEvent::ProcessExited(exit);
            self.later(Duration::ZERO, Due::Tell(guid.clone(), OpOutcome::Step(told)));
        }
        self.kill(guid);
    }

    /// What holds a container hangs, for so long.
    pub fn hang(&mut self, guid: &ContainerGuid, span: Duration) {
        self.fall_silent(guid, span, ShimActivity::StandsStill);
    }

    /// What holds a container is slow, for so long: it waits for its disk.
    pub fn stall(&mut self, guid: &ContainerGuid, span: Duration) {
        self.fall_silent(guid, span, ShimActivity::AtWork);
    }

    fn fall_silent(&mut self, guid: &ContainerGuid, span: Duration, seen: ShimActivity) {
        let is_well = |it: &&mut FakeContainer| !it.dead && it.hangs.is_none();
        let Some(container) = self.containers.get_mut(guid).filter(is_well) else { return };
        let (nth, until) = (self.last, self.now + span);
        let (asked, ended) = (Vec::new(), Vec::new());
        container.hangs = Some(Hangs { nth, until, seen, asked, ended, anew: None });
        self.later(span, Due::GoesOn(guid.clone(), nth));
        self.later(QUIET_FOR + PATIENCE, Due::Silent(guid.clone(), nth));
    }

    /// Whether the shim of some container hangs, or is slow.
    pub fn any_hangs(&self) -> bool {
        self.containers.values().any(|it| it.hangs.is_some())
    }

    /// Ends one process of a container, the first that runs this path.
    pub fn end_process(&mut self, guid: &ContainerGuid, path: &str, status: i32) {
        if let Some(process) = self.first_of(guid, path) {
            self.later(Duration::ZERO, Due::End(guid.clone(), process, status));
        }
    }

    fn first_of(&self, guid: &ContainerGuid, path: &str) -> Option<u32> {
        let running = self.containers.get(guid).into_iter().flat_map(|it| &it.running);
        running.filter(|(_, it)| it.path == path).map(|(id, _)| *id).next()
    }

    /// What an agent that starts finds of a container. One whose shim is silent for longer than the agent
    /// waits is ended.
    pub fn standing(&mut self, guid: &ContainerGuid) -> Option<RecoveredState> {
        let (now, container) = (self.now, self.containers.get_mut(guid)?);
        if let Some(hangs) = &container.hangs {
            let (mut waiting, mut asked_until) = (Waiting::at_start(), now + PATIENCE);
            while hangs.until > asked_until
                && waiting.unanswered(hangs.seen) == RetryDecision::AskAgain
            {
                asked_until = asked_until + PATIENCE;
            }
            if hangs.until > asked_until {
                container.hangs = None;
                container.dead = true;
                container.running.clear();
            } else {
                // It hears all of it from what it finds, and nothing that was for the one before.
                drop(self.resume(guid));
                self.due.retain(
                    |_, due| !matches!(due, Due::Tell(of, OpOutcome::Step(_)) if of == guid),
                );
            }
        }
        let container = self.containers.get(guid)?;
        let exited = container.exited.clone();
        if container.dead {
            return Some(RecoveredState::Dead { exited });
        }
        let running = container.running.keys().copied().collect();
        Some(RecoveredState::Alive { running, exited })
    }

    /// Whoever was to be told is gone. What happens to containers still happens, and those that are being
    /// made get done.
    pub fn forget_agent(&mut self) {
        let goes_on = |due: &Due| matches!(due, Due::End(..) | Due::GoesOn(..) | Due::Make(..));
        self.due.retain(|_, due| goes_on(due));
    }

    /// Removes what is not in this set, and what is not there yet: nobody answers for it.
    pub fn retain(&mut self, known: &BTreeSet<ContainerGuid>) {
        self.containers.retain(|guid, _| known.contains(guid));
        self.due.retain(|_, due| !matches!(due, Due::Make(..)));
    }

    /// Begins a deed.
    pub fn perform(&mut self, guid: &ContainerGuid, deed: ContainerOp) {
        let tell = |event| Due::Tell(guid.clone(), OpOutcome::Step(event));
        if deed.is_for_processes()
            && let Some(hangs) = self.containers.get_mut(guid).and_then(|it| it.hangs.as_mut())
        {
            let nth = hangs.nth;
            hangs.asked.push(deed);
            return self.later(PATIENCE, Due::Silent(guid.clone(), nth));
        }
        match deed {
            ContainerOp::Make(plan) => {
                if self.faults.making > MADE_WITHIN {
                    let late = format!("not there after {} s", MADE_WITHIN.as_secs());
                    let late = Due::Tell(guid.clone(), OpOutcome::NotMade(late));
                    self.met.push("container never made");
                    return self.later(MADE_WITHIN, late);
                }
                self.later(self.faults.making, Due::Make(guid.clone(), plan));
            }
            ContainerOp::Abandon => {}
            ContainerOp::Spawn(process) => self.spawn(guid, *process),
            ContainerOp::Signal(step, signal) => self.signal(guid, step, signal),
            ContainerOp::ForgetExit(process) => {
                if let Some(container) = self.containers.get_mut(guid) {
                    container.exited.remove(&process);
                }
            }
            ContainerOp::Log(line) => {
                if let Some(container) = self.containers.get_mut(guid) {
                    container.log.push(line);
                }
            }
            ContainerOp::Download(step, _) | ContainerOp::Upload(step, _) => {
                self.later(self.faults.transfer, Due::Transfer(guid.clone(), step));
            }
            ContainerOp::CancelTransfer(step) => {
                self.due.retain(
                    |_, due| !matches!(due, Due::Transfer(of, it) if of == guid && *it == step),
                );
                let result = Err(TransferFailure::Fetch);
                self.later(Duration::ZERO, tell(StepEvent::TransferDone { step, result }));
            }
            ContainerOp::Check { step, .. } => {
                let outcome = match self.faults.check_failure.clone() {
                    Some(reason) => {
                        self.met.push("check failed");
                        CheckOutcome::Failed(reason)
                    }
                    None => CheckOutcome::Passed,
                };
                self.later(Duration::ZERO, tell(StepEvent::CheckResult { step, outcome }));
            }
            ContainerOp::CancelCheck(_) => {}
            ContainerOp::ReadResult(_) => {
                let read = self.faults.result.clone().unwrap_or(Ok("result".to_owned()));
                self.later(Duration::ZERO, Due::Tell(guid.clone(), OpOutcome::ResultRead(read)));
            }
            ContainerOp::Destroy => {
                let hangs = self.containers.get(guid).and_then(|it| it.hangs.as_ref());
                if let Some(hangs) = hangs {
                    let wait = hangs.until.since(self.now).min(PATIENCE);
                    return self.later(wait, Due::TakeAway(guid.clone()));
                }
                let outcome = self.destroy(guid);
                self.later(Duration::ZERO, Due::Tell(guid.clone(), outcome));
            }
        }
    }

    fn destroy(&mut self, guid: &ContainerGuid) -> OpOutcome {
        match self.faults.not_destroyed.clone() {
            Some(reason) => {
                self.met.push("container not destroyed");
                OpOutcome::DestroyFailed(reason)
            }
            None => {
                self.containers.remove(guid);
                OpOutcome::Destroyed
            }
        }
    }

    /// Whether this shim hangs, and it is that time that is meant.
    fn hangs(&self, guid: &ContainerGuid, nth: u64) -> bool {
        let hangs = self.containers.get(guid).and_then(|it| it.hangs.as_ref());
        hangs.is_some_and(|it| it.nth == nth)
    }

    /// The conversation is begun anew, with a question.
    fn begin_anew(&mut self, guid: ContainerGuid) {
        let hangs = self.containers.get_mut(&guid).and_then(|it| it.hangs.as_mut());
        let Some(hangs) = hangs.filter(|it| it.anew.is_none()) else { return };
        hangs.anew = Some(Waiting::at_work());
        let nth = hangs.nth;
        self.later(PATIENCE, Due::Unanswered(guid, nth));
    }

    fn unanswered(&mut self, guid: ContainerGuid) {
        let hangs = self.containers.get_mut(&guid).and_then(|it| it.hangs.as_mut());
        let Some(Hangs { nth, seen, anew: Some(waiting), .. }) = hangs else { return };
        let nth = *nth;
        match waiting.unanswered(*seen) {
            RetryDecision::AskAgain => self.later(PATIENCE, Due::Unanswered(guid, nth)),
            RetryDecision::GiveUp => self.kill(&guid),
        }
    }

    /// It goes on: reaps what has ended, then does what it was asked.
    fn resume(&mut self, guid: &ContainerGuid) -> Vec<(ContainerGuid, OpOutcome)> {
        let container = self.containers.get_mut(guid);
        let Some(hangs) = container.and_then(|it| it.hangs.take()) else { return Vec::new() };
        let mut told = Vec::new();
        for (process, status) in hangs.ended {
            told.extend(self.end(guid.clone(), process, status));
        }
        for deed in hangs.asked {
            self.perform(guid, deed);
        }
        if let Some(container) = self.containers.get(guid).filter(|_| hangs.anew.is_some()) {
            // Whoever comes back is told all that was not acknowledged.
            let exits = container.exited.values().map(|exit| {
                (guid.clone(), OpOutcome::Step(StepEvent::ProcessExited(exit.clone())))
            });
            told = exits.collect();
        }
        told
    }

    fn later(&mut self, after: Duration, due: Due) {
        self.last += 1;
        self.due.insert((self.now + after, self.last), due);
    }

    fn make(&mut self, guid: &ContainerGuid, plan: &ContainerPlan) -> OpOutcome {
        if let Some(reason) = self.faults.not_made.clone() {
            self.met.push("container not made");
            return OpOutcome::NotMade(reason);
        }
        self.containers.insert(guid.clone(), FakeContainer::default());
        let mapping = |(nth, port): (usize, &u16)| PortMapping {
            container_port: u32::from(*port),
            host_port: 60_000 + u32::try_from(nth).unwrap_or_default(),
            container_tls_proxy_port: 0,
            host_tls_proxy_port: 0,
        };
        let network = ContainerNetwork {
            external_address: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            internal_address: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)),
            internal_ipv6: None,
            ports: plan.ports.iter().enumerate().map(mapping).collect(),
        };
        OpOutcome::Made(network)
    }

    fn spawn(&mut self, guid: &ContainerGuid, process: ProcessSpec) {
        let step = StepId(process.id);
        let failed = |error: &str| StepEvent::SpawnFailed { step, error: error.to_owned() };
        let number = |nth: usize| {
            process.args.get(nth).and_then(|it| it.parse::<u32>().ok()).unwrap_or_default()
        };
        let ends = match process.path.as_str() {
            "true" => Some((0, 0)),
            "false" => Some((0, 1)),
            "exit" => Some((0, number(0))),
            "sleep" => Some((number(0), 0)),
            "crash" => Some((number(0), number(1))),
            _ => None,
        };
        let started = match self.containers.get_mut(guid).filter(|it| !it.dead) {
            None => failed("the container is gone"),
            Some(_) if process.path == "missing" => failed("no such file"),
            Some(container) => {
                container.ever_started.insert(step.0);
                container.running.insert(step.0, process);
                StepEvent::ProcessStarted(step)
            }
        };
        let has_started = matches!(started, StepEvent::ProcessStarted(_));
        self.later(Duration::ZERO, Due::Tell(guid.clone(), OpOutcome::Step(started)));
        if let (true, Some((after, status))) = (has_started, ends) {
            let status = i32::try_from(status).unwrap_or(1);
            let after = Duration::from_millis(after.into());
            self.later(after, Due::End(guid.clone(), step.0, status));
        }
    }

    fn signal(&mut self, guid: &ContainerGuid, step: StepId, signal: StepSignal) {
        let process = self.containers.get(guid).and_then(|it| it.running.get(&step.0));
        let Some(process) = process else { return };
        let status = match signal {
            StepSignal::Term if process.path == "stubborn" => return,
            StepSignal::Term => 143,
            StepSignal::Kill => 137,
        };
        self.later(Duration::ZERO, Due::End(guid.clone(), step.0, status));
    }

    fn end(
        &mut self,
        guid: ContainerGuid,
        process: u32,
        status: i32,
    ) -> Option<(ContainerGuid, OpOutcome)> {
        let container = self.containers.get_mut(&guid)?;
        if let Some(hangs) = &mut container.hangs {
            // Nobody reaps it.
            hangs.ended.push((process, status));
            return None;
        }
        container.running.remove(&process)?;
        let exit = Exit::new(process, End::Status(status));
        container.exited.insert(process, exit.clone());
        Some((guid, OpOutcome::Step(StepEvent::ProcessExited(exit))))
    }
}

/// A [`FakeMachine`] that executors share, one after the other. What is due at once is told at once;
/// the rest when somebody calls [`Fake::advance`].
#[derive(Debug, Clone, Default)]
pub struct Fake {
    machine: Arc<Mutex<FakeMachine>>,
    outcomes: Arc<Mutex<Option<OutcomeSender>>>,
}

impl Fake {
    /// The machine.
    pub fn machine(&self) -> MutexGuard<'_, FakeMachine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets time pass and tells what happens.
    pub fn advance(&self, by: Duration) {
        let now = {
            let mut machine = self.machine();
            machine.now = machine.now + by;
            machine.now
        };
        let told = self.machine().advance(now);
        let outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (guid, outcome) in told {
            if let Some(outcomes) = &outcomes {
                outcomes.tell(guid, outcome);
            }
        }
    }
}

impl Runtime for Fake {
    fn find(
        &mut self,
        known: &BTreeSet<ContainerGuid>,
        outcomes: &OutcomeSender,
    ) -> Result<BTreeMap<ContainerGuid, RecoveredState>, RuntimeError> {
        *self.outcomes.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcomes.clone());
        let mut machine = self.machine();
        machine.forget_agent();
        let now = machine.now;
        // What ended while nobody listened has left its exit.
        drop(machine.advance(now));
        machine.retain(known);
        Ok(known.iter().filter_map(|guid| Some((guid.clone(), machine.standing(guid)?))).collect())
    }

    fn perform(&mut self, container: &ContainerGuid, deed: ContainerOp) {
        self.machine().perform(container, deed);
        self.advance(Duration::ZERO);
    }
}
