//! The cell as one value: executor, rep and self-test.
//!
//! Driven in two phases, as the coordinator's `Core` is. [`Cell::step`] takes in what was heard and
//! decides; it returns what must be written down first. [`Cell::written`] is told what came of the
//! writing and returns what is to be done. The agent's driver does both for a
//! real machine, the simulator for a machine in memory.
//!
//! What holds:
//! - Nothing is done before it was written down. What cannot be written down (a full disk) is done all
//!   the same, because what runs is worth more than its record, but for one thing: a process that must
//!   not run twice is not started. After a restart nobody would know that it had begun.
//! - Whoever waits for a reply gets one, once, after what it says was written down.
//! - A question to the coordinator that was asked before another contact began has no effect.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod input;
mod member;
mod output;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use volvox_protocol::cell::CellCapacity;
use volvox_protocol::random::SplitMix;
use volvox_protocol::time::Timestamp;

use self::member::Member;
use crate::container::guid::ContainerGuid;
use crate::container::op::{ContainerOp, OpOutcome};
use crate::container::step::{StepEvent, StepId};
use crate::executor::container_store::ExecutorRefusal;
use crate::executor::logic::{
    ContainerView, Executor, ExecutorInput, ExecutorOutput, ExecutorSettings, Progress,
    RecoveredContainer, ReservationRequest,
};
use crate::executor::workload::Workload;
use crate::executor::write_ahead::NOT_KEPT;
use crate::rep::assignments::AssignmentWrite;
use crate::rep::logic::Rep;
use crate::rep::status::RepStatus;

pub use self::input::{AskId, CellInput, CoordinatorReply, Joining, LocalCall, ReplyId};
pub use self::output::{CellOutput, CoordinatorRequest, Ends, LocalError, Notice, Reserved};

/// A cell.
#[derive(Debug)]
pub struct Cell {
    executor: Executor,
    /// What represents it to a coordinator, once this machine is a member of a mesh.
    member: Option<Member>,
    /// Who waits until nothing is left of these containers.
    deleting: BTreeMap<ContainerGuid, Vec<ReplyId>>,
    /// Processes that were not started, because that could not be written down.
    not_started: Vec<(ContainerGuid, StepId)>,
    /// What the executor refused in the call that is under way.
    refused: Reserved,
    writes: Writes,
    outputs: Vec<CellOutput>,
}

/// What is to be written down, in this order, before anything is done.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "what was decided is not done before Cell::written"]
pub struct Writes {
    /// Containers that are gone: nothing of them stays.
    pub forget: BTreeSet<ContainerGuid>,
    /// What these are to do.
    pub work: BTreeMap<ContainerGuid, Workload>,
    /// How far these are: [`Cell::progress`].
    pub progress: BTreeSet<ContainerGuid>,
    /// What this cell was assigned.
    pub assignments: Option<AssignmentWrite>,
}

/// What came of the writing. Whatever is not named here was written.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct WriteResult {
    /// How far these are could not be written down.
    pub progress_failed: BTreeSet<ContainerGuid>,
    /// The assignments could not.
    pub assignments_failed: bool,
}

impl Cell {
    /// The cell after a restart of the agent, from what was written down and what the machine has. Of an
    /// empty machine it is an empty cell. What is in the writes is to be written, as after a step.
    pub fn recover(
        now: Timestamp,
        settings: ExecutorSettings,
        found: Vec<RecoveredContainer>,
    ) -> (Self, Writes) {
        let (executor, effects) = Executor::restore(now, settings, found);
        let mut cell = Cell {
            executor,
            member: None,
            deleting: BTreeMap::new(),
            not_started: Vec::new(),
            refused: Vec::new(),
            writes: Writes::default(),
            outputs: Vec::new(),
        };
        cell.follow_executor(now, effects);
        let writes = std::mem::take(&mut cell.writes);
        (cell, writes)
    }

    /// Takes in what was heard, and time, and decides. `random` makes names that nobody else has.
    pub fn step(
        &mut self,
        now: Timestamp,
        random: &mut SplitMix,
        inputs: &mut VecDeque<CellInput>,
    ) -> Writes {
        for (guid, step) in std::mem::take(&mut self.not_started) {
            let event = StepEvent::SpawnFailed { step, error: NOT_KEPT.to_owned() };
            self.outcome(now, guid, OpOutcome::Step(event));
        }
        if self.executor.next_wake().is_some_and(|at| at <= now) {
            // Time is never refused.
            let _ = self.tell_executor(now, ExecutorInput::Wake);
        }
        while let Some(input) = inputs.pop_front() {
            self.hear(now, random, input);
        }
        self.go_on(now);
        self.writes.assignments = self.member.as_mut().and_then(|it| it.take_write(now));
        std::mem::take(&mut self.writes)
    }

    /// What is to be done, in this order, now that it is written down.
    pub fn written(&mut self, writes: Writes, result: &WriteResult) -> Vec<CellOutput> {
        if let Some(member) = &mut self.member
            && writes.assignments.is_some()
            && result.assignments_failed
        {
            member.not_written();
        }
        let (executor, not_started) = (&self.executor, &mut self.not_started);
        let may_begin = |output: &CellOutput| {
            let CellOutput::Op(guid, ContainerOp::Spawn(process)) = output else { return true };
            let not_kept = result.progress_failed.contains(guid) && executor.runs_once(guid);
            if not_kept {
                not_started.push((guid.clone(), StepId(process.id)));
            }
            !not_kept
        };
        let mut outputs = std::mem::take(&mut self.outputs);
        outputs.retain(may_begin);
        outputs
    }

    /// When to call [`Cell::step`] next, if nothing is heard.
    pub fn next_wake(&self) -> Timestamp {
        if !self.not_started.is_empty() {
            return Timestamp::ZERO;
        }
        let executor = self.executor.next_wake().unwrap_or(Timestamp::NEVER);
        self.member.as_ref().map_or(executor, |member| executor.min(member.next_wake()))
    }

    /// How far a container is, to be written down.
    pub fn progress(&self, guid: &ContainerGuid) -> Option<Progress<'_>> {
        self.executor.progress(guid)
    }

    /// All containers, by name.
    pub fn containers(&self) -> impl Iterator<Item = ContainerView> {
        self.executor.containers()
    }

    /// The container of this name.
    pub fn container(&self, guid: &ContainerGuid) -> Option<ContainerView> {
        self.executor.container(guid)
    }

    /// The room that is left.
    pub fn remaining(&self) -> CellCapacity {
        self.executor.resources().remaining()
    }

    /// What represents it, once this machine is a member of a mesh.
    pub fn rep(&self) -> Option<&Rep> {
        self.member.as_ref().map(|member| &member.rep)
    }

    /// How the rep is doing, for people; none: this machine is no member of a mesh.
    pub fn status(&self) -> Option<RepStatus> {
        self.member.as_ref().map(Member::status)
    }

    /// Whether the answer to this question is waited for. A late one has no effect.
    pub fn awaits(&self, ask: AskId) -> bool {
        self.member.as_ref().is_some_and(|member| member.awaits(ask))
    }

    /// Whether a coordinator's answer or a person's deletion is waited for.
    pub fn is_waiting(&self) -> bool {
        !self.deleting.is_empty() || self.member.as_ref().is_some_and(Member::is_waiting)
    }

    fn hear(&mut self, now: Timestamp, random: &mut SplitMix, input: CellInput) {
        match input {
            CellInput::Outcome(guid, outcome) => self.outcome(now, guid, outcome),
            CellInput::Local { reply, call } => self.local(now, reply, call),
            CellInput::Joined(joining) => self.join(now, random, *joining),
            CellInput::Orders { reply, orders } => self.ordered(now, random, reply, orders),
            CellInput::Coordinator(coordinator) => self.met(now, coordinator),
            CellInput::Answered(ask, answer) => self.answered(now, ask, answer),
            CellInput::Evacuate => self.evacuate(now),
            CellInput::Healthy(healthy) => self.healthy(now, healthy),
        }
    }

    fn local(&mut self, now: Timestamp, reply: ReplyId, call: LocalCall) {
        let done = match call {
            LocalCall::Reserve(wanted) => Ok(self.reserve(now, wanted)),
            LocalCall::Run(guid, work) => {
                self.tell_executor(now, ExecutorInput::Run(guid, work)).map(|()| Vec::new())
            }
            LocalCall::Stop(guid) => {
                self.tell_executor(now, ExecutorInput::Stop(guid)).map(|()| Vec::new())
            }
            LocalCall::Delete(guid) => {
                // Answered when nothing is left of it, which may be at once.
                self.deleting.entry(guid.clone()).or_default().push(reply);
                if let Err(refusal) = self.tell_executor(now, ExecutorInput::Delete(guid.clone())) {
                    self.reply_deletes(&guid, &Err(LocalError::Refused(refusal)));
                }
                return;
            }
        };
        let answer = done.map_err(LocalError::Refused);
        self.outputs.push(CellOutput::LocalReply(reply, answer));
    }

    fn reply_deletes(&mut self, guid: &ContainerGuid, answer: &Result<Reserved, LocalError>) {
        for reply in self.deleting.remove(guid).unwrap_or_default() {
            self.outputs.push(CellOutput::LocalReply(reply, answer.clone()));
        }
    }

    // The executor.

    /// Sets room aside. Gives those that got none, and why.
    fn reserve(&mut self, now: Timestamp, wanted: Vec<ReservationRequest>) -> Reserved {
        // Reserving is never refused as a whole.
        let _ = self.tell_executor(now, ExecutorInput::Reserve(wanted));
        std::mem::take(&mut self.refused)
    }

    fn outcome(&mut self, now: Timestamp, guid: ContainerGuid, outcome: OpOutcome) {
        if let Err(refusal) = self.tell_executor(now, ExecutorInput::Outcome(guid.clone(), outcome))
        {
            self.outputs.push(CellOutput::Notice(Notice::TooLate(guid, refusal)));
        }
    }

    fn tell_executor(
        &mut self,
        now: Timestamp,
        input: ExecutorInput,
    ) -> Result<(), ExecutorRefusal> {
        let effects = self.executor.apply(now, input)?;
        self.follow_executor(now, effects);
        Ok(())
    }

    fn follow_executor(&mut self, now: Timestamp, effects: Vec<ExecutorOutput>) {
        let mut touched = BTreeSet::new();
        for effect in effects {
            match effect {
                ExecutorOutput::Keep(guid) => {
                    self.writes.progress.insert(guid.clone());
                    touched.insert(guid);
                }
                ExecutorOutput::KeepWork(guid, work) => drop(self.writes.work.insert(guid, work)),
                ExecutorOutput::Emit(event) => self.outputs.push(CellOutput::Event(event)),
                ExecutorOutput::RefuseReservation(guid, refusal) => {
                    self.refused.push((guid, refusal))
                }
                ExecutorOutput::Do(guid, deed) => self.outputs.push(CellOutput::Op(guid, deed)),
                ExecutorOutput::Forget(guid, why) => {
                    self.writes.progress.remove(&guid);
                    self.writes.work.remove(&guid);
                    self.writes.forget.insert(guid.clone());
                    self.outputs.push(CellOutput::Notice(Notice::Forgotten(guid.clone(), why)));
                    self.reply_deletes(&guid, &Ok(Vec::new()));
                    touched.insert(guid);
                }
                ExecutorOutput::DeleteFailed(guid, reason) => {
                    let failed = LocalError::NotDeleted(guid.clone(), reason.clone());
                    self.outputs.push(CellOutput::Notice(Notice::NotDeleted(guid.clone(), reason)));
                    self.reply_deletes(&guid, &Err(failed));
                }
            }
        }
        self.show(now, &touched);
    }
}
