//! Answers that are no, later, or lost; coordinators that go and come.

use volvox_protocol::container::RunResult;

use super::machine::Deletes;
use super::*;

#[test]
fn a_claim_that_comes_second_is_given_up_after_a_look() {
    let mut stage = Stage::connected();
    stage.board.put(0, RecordState::Claimed(theirs()));
    stage.work(&[0]);
    assert_eq!(stage.said(), ["claim"]);
    assert_eq!(stage.board.state(0), Some(&RecordState::Claimed(theirs())));
    stage.knows_nothing();
}

#[test]
fn a_start_that_comes_second_deletes_ours_after_a_look() {
    let mut stage = Stage::connected();
    stage.board.desire(0);
    stage.work(&[0]);
    let guid = stage.only();
    stage.board.put(0, RecordState::Running(theirs()));
    stage.machine.come_up(stage.now, &guid);
    stage.settle();
    assert_eq!(stage.said(), ["claim", "start"]);
    stage.knows_nothing();
}

#[test]
fn a_refusal_is_followed_by_a_look_and_after_the_second_by_a_pass() {
    let (mut stage, guid) = Stage::running();
    stage.board.refuses = true;
    stage.machine.set_routable(&guid, false);
    let asked_at = stage.now;
    stage.settle();
    assert_eq!(stage.said(), ["start", "start"], "once, and once more after a look");
    let wait = stage.rep.next_pass.since(asked_at);
    stage.wait(wait - Duration::from_millis(1));
    assert!(stage.said().is_empty(), "then the pass is waited for");
    stage.wait(Duration::from_millis(2));
    assert_eq!(stage.said(), ["start", "start"]);
    stage.board.refuses = false;
    stage.wait(PASS);
    assert_eq!(stage.said(), ["start"]);
    assert!(stage.agrees() && stage.deletes() == 0);
}

#[test]
fn what_has_no_container_and_no_record_is_forgotten_at_once() {
    let (mut stage, guid) = Stage::running();
    stage.board.desired.clear();
    stage.board.ordinary.clear();
    stage.machine.vanish(&guid);
    stage.settle();
    assert_eq!(stage.said(), ["remove"]);
    stage.knows_nothing();
}

#[test]
fn what_is_put_off_is_asked_again_later_and_later() {
    for how in [How::Later, How::NotDone] {
        let (mut stage, guid) = Stage::running();
        stage.holds = true;
        stage.machine.crash(stage.now, &guid);
        stage.settle();
        let mut waits = Vec::new();
        for _ in 0..9 {
            let ask = stage.answer_next(how);
            assert!(matches!(ask, Ask::Report(_, report) if report.requests.len() == 1));
            assert!(stage.asks.is_empty());
            let due = stage.rep.next_wake();
            waits.push(due.since(stage.now).as_millis());
            stage.now = due;
            stage.step();
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000], "{how:?}");
        stage.holds = false;
        stage.settle();
        assert_eq!(stage.said(), ["crash"]);
        stage.knows_nothing();
    }
}

#[test]
fn a_record_that_goes_with_its_container_while_it_is_read_leaves_nothing() {
    let (mut stage, guid) = Stage::running();
    stage.holds = true;
    stage.board.put(0, RecordState::Running(theirs()));
    stage.machine.set_routable(&guid, false);
    stage.settle();
    stage.answer_next(How::Properly);
    assert!(matches!(stage.asks.front(), Some(Ask::Sync(..))), "the start was refused");
    stage.machine.vanish(&guid);
    stage.settle();
    stage.holds = false;
    stage.settle();
    stage.knows_nothing();
}

#[test]
fn a_deletion_that_fails_unseen_is_tried_again_at_the_next_pass() {
    let (mut stage, guid) = Stage::running();
    stage.machine.deletes = Deletes::Fail;
    stage.machine.crash(stage.now, &guid);
    stage.settle();
    assert_eq!((stage.said(), stage.deletes()), (vec!["crash"], 1));
    stage.wait(PASS * 2);
    assert!(stage.said().is_empty());
    assert!((2..4).contains(&stage.deletes()), "{}", stage.deletes());
    stage.machine.deletes = Deletes::AtOnce;
    stage.wait(PASS * 2);
    stage.knows_nothing();
}

#[test]
fn what_the_executor_will_not_run_is_given_back() {
    let mut stage = Stage::connected();
    stage.machine.refuses_to_run = true;
    stage.board.desire(0);
    stage.board.put_task(&task(), TaskState::Pending, None);
    stage.work(&[0]);
    stage.work_task(&task());
    assert_eq!(stage.said(), ["claim", "remove", "start task", "complete task"]);
    assert_eq!(stage.board.state(0), Some(&RecordState::Unclaimed));
    assert!(stage.board.tasks[&task()].outcome.as_ref().unwrap().failed);
    stage.knows_nothing();
}

/// How a life ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Crash,
    Stop,
    Vanish,
}

/// A whole life, in which one question goes wrong, and perhaps the coordinator with it. Gives how many
/// questions there were.
fn life(is_task: bool, end: End, nth: usize, how: How, leaves: bool) -> usize {
    let mut stage = Stage::connected();
    stage.holds = true;
    let mut asked = 0;
    let mut answer = |stage: &mut Stage| {
        stage.settle();
        while !stage.asks.is_empty() {
            let wrong = asked == nth;
            asked += 1;
            if wrong && leaves {
                let ask = stage.asks.front().cloned().unwrap();
                stage.rep.apply(stage.now, RepInput::CoordinatorMissing);
                stage.step();
                // An answer from before: it changes the board, and is not heard.
                stage.answer(&ask, how);
                stage.step();
                stage.rep.apply(stage.now, RepInput::CoordinatorPresent);
                stage.step();
            } else {
                stage.answer_next(if wrong { how } else { How::Properly });
            }
            stage.settle();
        }
    };
    stage.board.put_task(&task(), TaskState::Pending, None);
    stage.board.desire(0);
    if is_task {
        stage.work_task(&task())
    } else {
        stage.work(&[0])
    };
    answer(&mut stage);
    for _ in 0..4 {
        stage.now = stage.rep.next_wake();
        answer(&mut stage);
    }
    let guid = stage.machine.containers.keys().next().cloned();
    if let Some(guid) = &guid {
        // A start whose answer was lost is not repeated: its reservation expires.
        if stage.state(guid) == Some(ContainerState::Reserved) {
            stage.machine.vanish(guid);
        } else {
            stage.machine.come_up(stage.now, guid);
        }
        answer(&mut stage);
        match end {
            End::Crash => stage.machine.complete(
                stage.now,
                guid,
                RunResult { failed: true, failure_reason: "x".to_owned(), ..RunResult::default() },
            ),
            End::Stop => stage.machine.stop(stage.now, guid),
            End::Vanish => stage.machine.vanish(guid),
        }
        answer(&mut stage);
    }
    for _ in 0..8 {
        stage.now = stage.rep.next_wake();
        answer(&mut stage);
    }
    let told = format!("task: {is_task}, {end:?}, question {nth} {how:?}, leaves: {leaves}");
    assert!(stage.machine.runs.values().all(|runs| *runs <= 1), "{told}");
    assert!(stage.agrees(), "{told}");
    assert!(stage.machine.containers.is_empty(), "{told}: {:?}", stage.machine.containers);
    stage.knows_nothing();
    asked
}

#[test]
fn a_life_survives_any_answer_that_goes_wrong() {
    for is_task in [false, true] {
        for end in [End::Crash, End::Stop, End::Vanish] {
            for how in [How::Properly, How::DoneAndLost, How::Lost, How::NotDone, How::Later] {
                for leaves in [false, true] {
                    let mut nth = 0;
                    while nth < life(is_task, end, nth, how, leaves) {
                        nth += 1;
                    }
                    assert!(nth > 1, "there were questions");
                }
            }
        }
    }
}

#[test]
fn an_answer_of_the_last_coordinator_is_not_heard() {
    let (mut stage, guid) = Stage::running();
    stage.holds = true;
    stage.machine.crash(stage.now, &guid);
    stage.settle();
    let old = stage.asks.front().cloned().unwrap();
    stage.meet();
    stage.answer(&old, How::Properly);
    stage.step();
    assert_eq!(stage.deletes(), 0, "what the next one says counts");
    stage.holds = false;
    stage.settle();
    assert_eq!(stage.board.state(0), Some(&RecordState::Crashed));
    stage.knows_nothing();
}

#[test]
fn requests_that_syncs_find_again_and_again_do_not_pile_up() {
    let mut stage = Stage::connected();
    stage.holds = true;
    for index in 0..3 {
        stage.board.put(index, RecordState::Running(on(cell(), &format!("lost-{index}"))));
    }
    for _ in 0..5 {
        stage.order(vec![CellOrder::Sync]);
        let syncs: Vec<Ask> =
            stage.asks.iter().filter(|it| matches!(it, Ask::Sync(..))).cloned().collect();
        syncs.iter().for_each(|ask| stage.answer(ask, How::Properly));
        stage.settle();
    }
    stage.holds = false;
    stage.settle();
    assert_eq!(stage.said(), ["remove"; 3]);
    assert!(stage.agrees());
}

#[test]
fn a_request_about_a_task_that_was_cancelled_does_not_meet_the_next_of_its_name() {
    for how in [How::Later, How::Properly] {
        let (mut stage, guid) = Stage::running_task();
        stage.holds = true;
        stage.machine.complete(stage.now, &guid, RunResult::default());
        stage.settle();
        // The result is on its way; the consumer cancels, deletes, and asks anew.
        stage.board.tasks.remove(&task());
        let old = stage.asks.front().cloned().unwrap();
        if how == How::Later {
            stage.answer_next(how);
        }
        stage.order(vec![CellOrder::CancelTask(task())]);
        stage.knows_nothing();
        if how == How::Properly {
            stage.answer(&old, how);
            stage.step();
        }
        stage.holds = false;
        stage.said();
        stage.board.put_task(&task(), TaskState::Pending, None);
        stage.work_task(&task());
        stage.wait(PASS);
        assert_eq!(stage.said(), ["start task"], "{how:?}");
        assert!(stage.agrees() && stage.machine.runs[&guid] == 2);
    }
}

#[test]
fn a_task_that_was_lost_does_not_end_the_next_of_its_name() {
    let mut stage = Stage::connected();
    stage.board.put_task(&task(), TaskState::Running, Some(cell()));
    stage.holds = true;
    stage.order(vec![CellOrder::Sync]);
    stage.answer_next(How::Properly);
    // That it is not here is put off; meanwhile it is gone and desired again.
    stage.answer_next(How::Later);
    stage.board.put_task(&task(), TaskState::Pending, None);
    stage.holds = false;
    stage.work_task(&task());
    stage.wait(PASS);
    assert_eq!(stage.said(), ["start task"]);
    assert_eq!(stage.board.tasks[&task()].state, TaskState::Running);
}
