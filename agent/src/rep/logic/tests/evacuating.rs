//! The story of an evacuation, as the seeds tell it.

use volvox_protocol::container::RunResult;
use volvox_protocol::tables::Whose::{Ours, Theirs};
use volvox_protocol::tables::bbs_evacuate::{EvacuatingView as E, OrdinaryView as O, bbs_evacuate};

use super::board::{Record, place};
use super::machine::Deletes;
use super::*;

const POLL: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(600);

fn is_over(stage: &Stage) -> bool {
    let ends = stage.done.iter().filter(|it| **it == RepOutput::Evacuated).count();
    assert!(ends <= 1, "told twice");
    assert_eq!(ends == 1, stage.rep.evacuation().is_some_and(|it| it.over));
    ends == 1
}

fn evacuate(stage: &mut Stage) {
    stage.rep.apply(stage.now, RepInput::Evacuate);
    stage.settle();
}

#[test]
fn an_empty_cell_ends_at_once() {
    for with_coordinator in [true, false] {
        let mut stage = if with_coordinator { Stage::connected() } else { Stage::new() };
        evacuate(&mut stage);
        assert!(is_over(&stage));
    }
}

#[test]
fn a_running_instance_is_kept_until_another_runs() {
    let (mut stage, guid) = Stage::running();
    evacuate(&mut stage);
    assert_eq!(stage.said(), ["evacuate running"]);
    assert_eq!(stage.board.state(0), Some(&RecordState::Unclaimed));
    assert_eq!(stage.board.evacuating.len(), 1);
    for theirs in [RecordState::Unclaimed, RecordState::Claimed(theirs())] {
        stage.board.put(0, theirs);
        stage.wait(POLL * 3);
        assert_eq!(stage.said(), ["evacuate running"; 3]);
        assert_eq!(stage.state(&guid), Some(ContainerState::Running));
        assert!(stage.agrees() && !is_over(&stage));
    }
    let status = stage.rep.evacuation().unwrap();
    assert_eq!((status.instances_left, status.tasks_left), (1, 0));
    stage.board.put(0, RecordState::Running(theirs()));
    stage.wait(POLL);
    assert_eq!(stage.said(), ["evacuate running"]);
    assert!(stage.machine.containers.is_empty() && stage.board.evacuating.is_empty());
    assert!(is_over(&stage));
    stage.knows_nothing();
}

#[test]
fn every_row_keeps_the_container_or_not() {
    let record = |state| Record { state, reported: None, stopping: false, error: false };
    for ordinary in O::ALL {
        for evacuating in E::ALL {
            let mut stage = Stage::new();
            stage.machine.put(stage.now, owner(0, "ours"), ContainerState::Running);
            stage.assign(0, "ours");
            let state = match ordinary {
                O::Missing => None,
                O::Unclaimed | O::UnclaimedWithError => Some(RecordState::Unclaimed),
                O::Claimed(Ours) => Some(RecordState::Claimed(ours())),
                O::Claimed(Theirs) => Some(RecordState::Claimed(theirs())),
                O::Running(Ours) => Some(RecordState::Running(ours())),
                O::Running(Theirs) => Some(RecordState::Running(theirs())),
                O::Crashed => Some(RecordState::Crashed),
            };
            if let Some(state) = state {
                let error = ordinary == O::UnclaimedWithError;
                let it = Record { error, ..record(state) };
                stage.board.ordinary.insert(place(&key(0)), it);
            }
            let on = match evacuating {
                E::Missing => None,
                E::Running(Ours) => Some(ours()),
                E::Running(Theirs) => Some(on(theirs().cell_id, "beta")),
            };
            if let Some(on) = on {
                let it = record(RecordState::Running(on));
                stage.board.evacuating.insert(place(&key(0)), it);
            }
            stage.rep.apply(stage.now, RepInput::Evacuate);
            stage.meet();
            let (action, _) = bbs_evacuate(ordinary, evacuating);
            let row = format!("{ordinary:?} × {evacuating:?}: {action:?}");
            assert_eq!(stage.said()[0], "evacuate running", "{row}");
            let kept = stage.state(&guid("ours")).is_some();
            assert_eq!(kept, action.keeps_container(), "{row}");
            assert_eq!(is_over(&stage), !kept, "{row}");
        }
    }
}

#[test]
fn what_does_not_run_goes_at_once() {
    type Change = fn(&mut Stage, &ContainerGuid);
    let cases: [(Change, &str, RecordState); 3] = [
        (|_, _| {}, "evacuate claimed", RecordState::Unclaimed),
        (
            |stage, guid| {
                stage.machine.come_up(stage.now, guid);
                stage.machine.crash(stage.now, guid);
            },
            "evacuate crashed",
            RecordState::Crashed,
        ),
        (
            |stage, guid| stage.machine.stop(stage.now, guid),
            "evacuate stopped",
            RecordState::Unclaimed,
        ),
    ];
    for (change, said, becomes) in cases {
        let mut stage = Stage::connected();
        stage.board.desire(0);
        stage.work(&[0]);
        let guid = stage.only();
        stage.said();
        stage.rep.apply(stage.now, RepInput::Evacuate);
        change(&mut stage, &guid);
        stage.settle();
        stage.wait(POLL);
        assert_eq!(stage.said(), [said]);
        assert_eq!(stage.board.state(0), Some(&becomes));
        assert!(stage.machine.containers.is_empty() && is_over(&stage));
        stage.knows_nothing();
    }
}

#[test]
fn a_reservation_that_is_not_claimed_goes_too() {
    let mut stage = Stage::connected();
    stage.board.desire(0);
    stage.holds = true;
    stage.work(&[0]);
    assert!(matches!(stage.asks.front(), Some(Ask::Report(..))), "the claim is on its way");
    stage.rep.apply(stage.now, RepInput::Evacuate);
    stage.holds = false;
    stage.settle();
    stage.wait(POLL);
    assert_eq!(stage.said(), ["claim", "evacuate claimed"]);
    assert_eq!(stage.board.state(0), Some(&RecordState::Unclaimed));
    assert!(is_over(&stage));
}

#[test]
fn one_that_crashes_on_the_way_is_seen_at_the_next_poll() {
    let (mut stage, guid) = Stage::running();
    evacuate(&mut stage);
    stage.machine.crash(stage.now, &guid);
    stage.wait(POLL);
    assert_eq!(stage.said(), ["evacuate running", "evacuate crashed"]);
    assert!(stage.board.evacuating.is_empty() && is_over(&stage));
}

#[test]
fn tasks_may_finish() {
    let (mut stage, guid) = Stage::running_task();
    evacuate(&mut stage);
    stage.wait(TIMEOUT / 2);
    assert!(stage.said().is_empty() && !is_over(&stage));
    assert_eq!(stage.rep.evacuation().unwrap().tasks_left, 1);
    stage.machine.complete(stage.now, &guid, RunResult::default());
    stage.settle();
    assert_eq!(stage.said(), ["complete task"]);
    assert!(!stage.board.tasks[&task()].outcome.as_ref().unwrap().failed);
    assert!(is_over(&stage));
}

fn busy_cell() -> Stage {
    let (mut stage, _) = Stage::running();
    stage.board.put_task(&task(), TaskState::Pending, None);
    stage.work_task(&task());
    let guid = ContainerGuid::from(&task());
    stage.machine.come_up(stage.now, &guid);
    stage.settle();
    stage.said();
    stage
}

#[test]
fn at_the_timeout_tasks_fail_with_the_reason_of_the_seeds() {
    let mut stage = busy_cell();
    evacuate(&mut stage);
    stage.wait(TIMEOUT - POLL);
    assert!(!is_over(&stage) && stage.machine.containers.len() == 2);
    stage.wait(POLL);
    let outcome = stage.board.tasks[&task()].outcome.clone().unwrap();
    assert!(outcome.failed);
    assert_eq!(outcome.failure_reason, "timed out during cell evacuation");
    assert!(stage.board.evacuating.is_empty() && stage.machine.containers.is_empty());
    assert!(is_over(&stage) && stage.agrees());
    stage.knows_nothing();
}

#[test]
fn the_reason_stays_when_the_first_word_of_it_is_lost() {
    for how in [How::Lost, How::DoneAndLost] {
        let mut stage = busy_cell();
        evacuate(&mut stage);
        stage.wait(TIMEOUT - POLL / 2);
        stage.holds = true;
        stage.now = stage.now + POLL;
        stage.settle();
        stage.answer_next(how);
        stage.holds = false;
        stage.wait(POLL);
        let outcome = stage.board.tasks[&task()].outcome.clone().unwrap();
        assert_eq!(outcome.failure_reason, "timed out during cell evacuation");
        assert!(stage.board.evacuating.is_empty() && is_over(&stage), "{how:?}");
    }
}

#[test]
fn without_a_coordinator_it_waits_for_the_timeout_and_ends() {
    let mut stage = busy_cell();
    stage.lose();
    evacuate(&mut stage);
    stage.wait(TIMEOUT - POLL);
    assert!(!is_over(&stage) && stage.machine.containers.len() == 2);
    stage.wait(POLL);
    assert!(is_over(&stage) && stage.machine.containers.is_empty());
}

#[test]
fn a_coordinator_that_comes_back_is_asked() {
    let (mut stage, _) = Stage::running();
    stage.lose();
    evacuate(&mut stage);
    stage.wait(POLL * 5);
    assert!(stage.said().is_empty());
    stage.meet();
    stage.wait(POLL);
    assert_eq!(stage.said()[0], "evacuate running");
    stage.board.put(0, RecordState::Running(theirs()));
    stage.wait(POLL);
    assert!(is_over(&stage));
}

#[test]
fn what_cannot_be_taken_away_does_not_hold_it_for_ever() {
    let mut stage = busy_cell();
    stage.machine.deletes = Deletes::Fail;
    evacuate(&mut stage);
    stage.wait(TIMEOUT + Duration::from_secs(29));
    assert!(!is_over(&stage));
    stage.wait(Duration::from_secs(1));
    assert!(is_over(&stage));
}

#[test]
fn a_second_order_changes_nothing() {
    let (mut stage, _) = Stage::running();
    evacuate(&mut stage);
    let status = stage.rep.evacuation();
    stage.wait(POLL);
    stage.order(vec![CellOrder::Evacuate]);
    assert_eq!(stage.rep.evacuation(), status);
}
