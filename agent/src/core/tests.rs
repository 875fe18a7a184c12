//! The cell on a machine in memory: what is written comes before what is done, and whoever waits hears.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use volvox_mesh::identity::MemberId;
use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::cell_rpc::CellOrders;
use volvox_protocol::container::ContainerState;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, TaskGuid};
use volvox_protocol::random::SplitMix;
use volvox_protocol::request::{Requirements, TaskStart, WorkBatch};
use volvox_protocol::task::TaskDefinition;
use volvox_protocol::time::Timestamp;

use super::*;
use crate::executor::workload::Owner;
use crate::rep::assignments::AssignmentText;
use crate::rep::logic;
use crate::runtime::fake::FakeMachine;

/// A cell on a machine, and all that it has done.
struct Stage {
    now: Timestamp,
    random: SplitMix,
    cell: Cell,
    machine: FakeMachine,
    /// Nothing can be written.
    full: bool,
    done: Vec<CellOutput>,
}

impl Stage {
    fn new() -> Self {
        let capacity = CellCapacity { memory_mb: 1_024, disk_mb: 1_024, containers: 4 };
        let settings = ExecutorSettings::new(CellId::new("cell-1").unwrap(), capacity);
        let (cell, writes) = Cell::recover(Timestamp::ZERO, settings, Vec::new());
        assert_eq!(writes, Writes::default(), "an empty cell has nothing to write");
        Stage {
            now: Timestamp::ZERO,
            random: SplitMix(1),
            cell,
            machine: FakeMachine::default(),
            full: false,
            done: Vec::new(),
        }
    }

    fn join(&mut self) {
        self.hear(CellInput::Joined(Box::new(Joining {
            settings: logic::RepSettings::new(CellId::new("cell-1").unwrap(), "z1"),
            self_test: None,
            assignments: AssignmentText::open(&[]).0,
            load_version: 0,
            page_items: 10,
        })));
    }

    fn hear(&mut self, input: CellInput) {
        self.turn(VecDeque::from([input]));
    }

    fn turn(&mut self, mut inputs: VecDeque<CellInput>) {
        let writes = self.cell.step(self.now, &mut self.random, &mut inputs);
        assert!(inputs.is_empty(), "all of it is heard");
        let mut result = WriteResult::default();
        if self.full {
            result.progress_failed = writes.progress.clone();
            result.assignments_failed = writes.assignments.is_some();
        }
        for output in self.cell.written(writes, &result) {
            if let CellOutput::Op(guid, deed) = &output {
                self.machine.perform(guid, deed.clone());
            }
            self.done.push(output);
        }
    }

    /// Lets happen what happens by itself.
    fn advance(&mut self, by: Duration) {
        let end = self.now + by;
        loop {
            let due = self.machine.next_due().unwrap_or(Timestamp::NEVER);
            let next = due.min(self.cell.next_wake()).max(self.now);
            self.now = next.min(end);
            let told = self.machine.advance(self.now);
            self.turn(told.into_iter().map(|(guid, it)| CellInput::Outcome(guid, it)).collect());
            if next >= end {
                return;
            }
        }
    }

    /// A container of this name that runs this path.
    fn run(&mut self, owner: Owner, path: &str) -> ContainerGuid {
        let work = work(path);
        let (guid, resources) = (owner.container(), work.resources());
        let wanted = vec![ReservationRequest { owner, resources }];
        self.hear(CellInput::Local { reply: ReplyId(1), call: LocalCall::Reserve(wanted) });
        self.hear(CellInput::Local { reply: ReplyId(2), call: LocalCall::Run(guid.clone(), work) });
        guid
    }

    fn replies(&self, to: ReplyId) -> Vec<&Result<Reserved, LocalError>> {
        let of = self.done.iter().filter_map(|it| {
            let CellOutput::LocalReply(reply, answer) = it else { return None };
            (*reply == to).then_some(answer)
        });
        of.collect()
    }

    fn state(&self, guid: &ContainerGuid) -> Option<ContainerState> {
        self.cell.container(guid).map(|it| it.container.state)
    }
}

fn work(path: &str) -> Workload {
    let run = RunAction { path: path.to_owned(), user: "u".to_owned(), ..RunAction::default() };
    Workload::Task(Arc::new(TaskDefinition {
        memory_mb: 64,
        disk_mb: 64,
        action: Some(Action::Run(Box::new(run))),
        ..TaskDefinition::default()
    }))
}

fn task(name: &str) -> Owner {
    Owner::Task { guid: TaskGuid::new(name).unwrap(), domain: Domain::new("d").unwrap() }
}

fn local(name: &str) -> Owner {
    Owner::Local(InstanceGuid::new(name).unwrap())
}

#[test]
fn a_task_whose_start_is_not_written_down_is_not_started_and_fails() {
    let mut stage = Stage::new();
    stage.full = true;
    let guid = stage.run(task("once"), "sleep");
    stage.advance(Duration::from_secs(1));
    assert_eq!(stage.machine.ever_started(&guid), 0);
    let view = stage.cell.container(&guid).unwrap();
    assert_eq!(view.container.state, ContainerState::Completed);
    let reason = &view.container.result.failure_reason;
    assert!(reason.contains(NOT_KEPT), "{reason}");
}

#[test]
fn what_may_run_twice_is_started_though_the_disk_is_full() {
    let mut stage = Stage::new();
    stage.full = true;
    let guid = stage.run(local("again"), "server");
    stage.advance(Duration::from_secs(1));
    assert_eq!(stage.machine.ever_started(&guid), 1);
    assert_eq!(stage.state(&guid), Some(ContainerState::Running));
}

#[test]
fn nothing_is_done_before_it_was_written() {
    let mut stage = Stage::new();
    let owner = local("first");
    let (guid, wanted) =
        (owner.container(), ReservationRequest { owner, resources: work("a").resources() });
    let calls = [LocalCall::Reserve(vec![wanted]), LocalCall::Run(guid.clone(), work("a"))];
    let mut inputs: VecDeque<CellInput> =
        calls.into_iter().map(|call| CellInput::Local { reply: ReplyId(1), call }).collect();
    let writes = stage.cell.step(stage.now, &mut stage.random, &mut inputs);
    assert!(writes.progress.contains(&guid) && writes.work.contains_key(&guid), "{writes:?}");
    let done = stage.cell.written(writes, &WriteResult::default());
    let is_made = |it: &CellOutput| matches!(it, CellOutput::Op(_, ContainerOp::Make(_)));
    assert!(done.iter().any(is_made), "{done:?}");
}

#[test]
fn a_deletion_is_answered_once_when_nothing_is_left() {
    let mut stage = Stage::new();
    let guid = stage.run(local("gone"), "server");
    stage.advance(Duration::from_secs(1));
    let call = LocalCall::Delete(guid.clone());
    stage.hear(CellInput::Local { reply: ReplyId(3), call });
    assert!(stage.replies(ReplyId(3)).is_empty(), "it is still there");
    stage.advance(Duration::from_secs(20));
    let done: Result<Reserved, LocalError> = Ok(Vec::new());
    assert_eq!(stage.replies(ReplyId(3)), [&done]);
    assert_eq!(stage.state(&guid), None);
    assert_eq!(stage.machine.containers().count(), 0);
    let call = LocalCall::Delete(guid);
    stage.hear(CellInput::Local { reply: ReplyId(4), call });
    let refused = stage.replies(ReplyId(4));
    assert!(matches!(refused[..], [Err(LocalError::Refused(_))]), "{refused:?}");
    assert!(!stage.cell.is_waiting());
}

#[test]
fn one_that_cannot_be_taken_away_is_told_of_to_who_waits() {
    let mut stage = Stage::new();
    let guid = stage.run(local("stays"), "true");
    stage.advance(Duration::from_secs(1));
    stage.machine.faults.not_destroyed = Some("a mount is busy".to_owned());
    let call = LocalCall::Delete(guid.clone());
    stage.hear(CellInput::Local { reply: ReplyId(3), call });
    stage.advance(Duration::from_secs(1));
    let failed = LocalError::NotDeleted(guid.clone(), "a mount is busy".to_owned());
    let failed: Result<Reserved, LocalError> = Err(failed);
    assert_eq!(stage.replies(ReplyId(3)), [&failed]);
    assert_eq!(stage.state(&guid), Some(ContainerState::Completed));
}

#[test]
fn a_record_of_what_is_gone_is_struck_out_and_not_written_again() {
    let mut stage = Stage::new();
    let owner = local("brief");
    let (guid, wanted) =
        (owner.container(), ReservationRequest { owner, resources: work("a").resources() });
    let calls = [LocalCall::Reserve(vec![wanted]), LocalCall::Delete(guid.clone())];
    let mut inputs: VecDeque<CellInput> =
        calls.into_iter().map(|call| CellInput::Local { reply: ReplyId(1), call }).collect();
    let writes = stage.cell.step(stage.now, &mut stage.random, &mut inputs);
    assert!(writes.forget.contains(&guid) && writes.progress.is_empty(), "{writes:?}");
}

fn orders(task: &str) -> CellOrders {
    let start = TaskStart {
        task_guid: TaskGuid::new(task).unwrap(),
        domain: Domain::new("d").unwrap(),
        requirements: Arc::new(Requirements {
            memory_mb: 64,
            disk_mb: 64,
            ..Requirements::default()
        }),
    };
    let batch = WorkBatch { number: 7, lrps: Vec::new(), tasks: vec![start] };
    CellOrders { orders: vec![volvox_protocol::request::CellOrder::Work(batch)] }
}

#[test]
fn ordered_work_is_reserved_and_answered_in_one_step_and_the_load_counts_it() {
    let mut stage = Stage::new();
    stage.join();
    stage.done.clear();
    stage.hear(CellInput::Orders { reply: ReplyId(9), orders: orders("t-1") });
    let answered = |it: &&CellOutput| matches!(it, CellOutput::OrdersReply(ReplyId(9), _));
    assert_eq!(stage.done.iter().filter(answered).count(), 1, "{:?}", stage.done);
    let load = stage.cell.rep().unwrap().load().unwrap();
    assert_eq!((load.last_batch, load.free.memory_mb), (7, 1_024 - 64));
}

#[test]
fn an_answer_of_an_earlier_contact_has_no_effect() {
    let mut stage = Stage::new();
    stage.join();
    stage.hear(CellInput::Coordinator(Some(MemberId([1; 16]))));
    let asked = |stage: &Stage| {
        let mut of = stage.done.iter().filter_map(|it| {
            let CellOutput::Ask(ask, to, _) = it else { return None };
            Some((*ask, *to))
        });
        of.next_back()
    };
    let (first, to) = asked(&stage).expect("a sync is asked for");
    assert_eq!(to, MemberId([1; 16]));
    assert!(stage.cell.awaits(first));
    stage.hear(CellInput::Coordinator(Some(MemberId([2; 16]))));
    let (second, to) = asked(&stage).expect("and again of the other");
    assert_eq!(to, MemberId([2; 16]));
    assert!(!stage.cell.awaits(first) && stage.cell.awaits(second));
    stage.hear(CellInput::Coordinator(None));
    assert!(!stage.cell.is_waiting(), "nobody is left to answer");
}
