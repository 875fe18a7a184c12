//! Lives of instances and tasks when all goes well: each step asks the board once.

use volvox_protocol::cell_rpc::OrderAnswer;
use volvox_protocol::container::RunResult;

use super::*;

#[test]
fn an_instance_is_claimed_run_and_started() {
    let mut stage = Stage::connected();
    stage.board.desire(0);
    let message = stage.work(&[0]);
    assert_eq!(stage.answers[&message].answers, [OrderAnswer::Taken]);
    let guid = stage.only();
    assert_eq!(stage.said(), ["claim"]);
    assert_eq!(stage.state(&guid), Some(ContainerState::Initializing));
    assert_eq!(stage.assigned.len(), 1);
    stage.machine.advance(stage.now, &guid);
    stage.settle();
    assert!(stage.said().is_empty() && stage.agrees());
    stage.machine.advance(stage.now, &guid);
    stage.settle();
    assert_eq!(stage.said(), ["start"]);
    assert!(stage.agrees() && stage.machine.runs[&guid] == 1);
    let RecordState::Running(on) = stage.board.state(0).unwrap() else { panic!("it runs") };
    assert_eq!(on.instance_guid.as_str(), guid.as_str());
    stage.wait(PASS * 3);
    assert!(stage.said().is_empty() && stage.rep.inconceivable() == 0);
}

#[test]
fn the_load_that_names_a_batch_counts_its_reservations() {
    let mut stage = Stage::connected();
    (0..3).for_each(|index| stage.board.desire(index));
    let number = stage.work(&[0, 1, 2]);
    let loads = stage
        .done
        .iter()
        .filter_map(|it| if let RepOutput::PublishLoad(load) = it { Some(load) } else { None });
    let of_batch: Vec<_> = loads.filter(|load| load.last_batch == number).collect();
    assert!(!of_batch.is_empty());
    assert!(of_batch.iter().all(|load| load.free.containers == machine::ROOM.containers - 3));
    let versions: Vec<u64> = of_batch.iter().map(|load| load.version).collect();
    assert!(versions.is_sorted_by(|one, next| one < next));
}

#[test]
fn an_instance_that_is_told_to_stop_is_removed_and_leaves_nothing() {
    let (mut stage, guid) = Stage::running();
    stage.board.desired.clear();
    let on = stage.rep.on(&InstanceGuid::new(guid.as_str()).unwrap());
    let stop = CellOrder::StopInstance(key(0), on);
    stage.order(vec![stop.clone(), stop.clone()]);
    assert_eq!(stage.said(), ["remove"]);
    assert!(stage.machine.containers.is_empty() && stage.board.ordinary.is_empty());
    stage.knows_nothing();
    // Once more, when it is long gone.
    let message = stage.order(vec![stop]);
    assert_eq!(stage.answers[&message].answers, [OrderAnswer::Taken]);
    stage.knows_nothing();
}

#[test]
fn what_serves_tells_routers_before_it_stops() {
    let mut stage = Stage::connected();
    stage.machine.ports = vec![Default::default()];
    stage.board.desire(0);
    stage.work(&[0]);
    let guid = stage.only();
    stage.machine.come_up(stage.now, &guid);
    stage.settle();
    stage.said();
    let on = stage.rep.on(&InstanceGuid::new(guid.as_str()).unwrap());
    let stop = CellOrder::StopInstance(key(0), on);
    stage.order(vec![stop.clone()]);
    assert_eq!(stage.said(), ["start"], "no more traffic may go there");
    assert_eq!(stage.state(&guid), Some(ContainerState::Running));
    let half = settings().drain / 2;
    stage.wait(half);
    stage.order(vec![stop]);
    assert_eq!(
        stage.state(&guid),
        Some(ContainerState::Running),
        "asked twice, it waits no longer"
    );
    stage.wait(half);
    assert_eq!(stage.said(), ["remove"]);
    assert_eq!(stage.state(&guid), None);
    stage.knows_nothing();
    // Without a coordinator nobody can be told, so nobody waits.
    let mut alone = Stage::connected();
    alone.machine.ports = vec![Default::default()];
    alone.board.desire(0);
    alone.work(&[0]);
    let guid = alone.only();
    alone.machine.come_up(alone.now, &guid);
    alone.settle();
    alone.lose();
    let on = alone.rep.on(&InstanceGuid::new(guid.as_str()).unwrap());
    alone.order(vec![CellOrder::StopInstance(key(0), on)]);
    assert_eq!(alone.state(&guid), Some(ContainerState::Completed));
}

#[test]
fn an_executor_that_had_no_time_to_stop_it_is_told_again() {
    let mut stage = Stage::connected();
    stage.machine.ports = vec![Default::default()];
    stage.board.desire(0);
    stage.work(&[0]);
    let guid = stage.only();
    stage.machine.come_up(stage.now, &guid);
    stage.settle();
    let on = stage.rep.on(&InstanceGuid::new(guid.as_str()).unwrap());
    let stop = CellOrder::StopInstance(key(0), on);
    stage.machine.has_no_time = true;
    stage.order(vec![stop.clone()]);
    stage.wait(settings().drain * 2);
    assert_eq!(stage.state(&guid), Some(ContainerState::Running), "nobody stopped it");
    let stops = |stage: &Stage| {
        let stops = stage.done.iter().filter(|it| matches!(it, RepOutput::Stop(_)));
        stops.count()
    };
    let before = stops(&stage);
    stage.order(vec![stop]);
    stage.wait(settings().drain * 2);
    assert!(stops(&stage) > before, "a second order is no less than the first");
    stage.machine.has_no_time = false;
    stage.wait(settings().pass_every);
    assert_eq!(stage.state(&guid), None);
    stage.knows_nothing();
}

#[test]
fn what_runs_and_is_not_written_down_is_written_down_again() {
    let (mut stage, guid) = Stage::running();
    // The disk was full, and the agent that knew of it is gone.
    stage.assigned.clear();
    stage.restart();
    assert!(stage.assigned.is_empty(), "there is nobody to ask for its definition");
    stage.meet();
    let written: Vec<&str> = stage.assigned.keys().map(|it| it.as_str()).collect();
    assert_eq!(written, [guid.as_str()]);
    assert_eq!(stage.state(&guid), Some(ContainerState::Running));
}

#[test]
fn an_order_to_stop_that_was_lost_is_found_in_the_record() {
    let (mut stage, guid) = Stage::running();
    stage.board.desired.clear();
    stage.board.ordinary.values_mut().for_each(|it| it.stopping = true);
    stage.order(vec![CellOrder::Sync]);
    assert_eq!(stage.said(), ["remove"]);
    assert_eq!(stage.state(&guid), None);
    stage.knows_nothing();
}

#[test]
fn a_crash_is_reported_with_its_reason_and_left_to_the_board() {
    let (mut stage, guid) = Stage::running();
    stage.machine.crash(stage.now, &guid);
    stage.settle();
    assert_eq!(stage.crash_reason().as_deref(), Some("exit 1"));
    assert_eq!(stage.said(), ["crash"]);
    assert_eq!(stage.board.state(0), Some(&RecordState::Crashed));
    stage.knows_nothing();
}

#[test]
fn a_container_whose_routes_come_and_go_is_reported_each_time() {
    let (mut stage, guid) = Stage::running();
    for routable in [false, true] {
        stage.machine.set_routable(&guid, routable);
        stage.settle();
        assert_eq!(stage.said(), ["start"]);
        let record = stage.board.ordinary.values().next().unwrap();
        assert_eq!(record.reported.as_ref().unwrap().routable, routable);
    }
}

#[test]
fn a_task_is_started_once_and_its_result_reported() {
    let mut stage = Stage::connected();
    stage.board.put_task(&task(), TaskState::Pending, None);
    stage.work_task(&task());
    assert_eq!(stage.said(), ["start task"]);
    let guid = stage.only();
    stage.machine.come_up(stage.now, &guid);
    stage.settle();
    assert!(stage.said().is_empty() && stage.agrees());
    stage.machine.containers.get_mut(&guid).unwrap().task_result = "42".to_owned();
    stage.machine.complete(stage.now, &guid, RunResult::default());
    stage.settle();
    assert_eq!(stage.said(), ["complete task"]);
    let outcome = stage.board.tasks[&task()].outcome.clone().unwrap();
    assert!(!outcome.failed && outcome.result == "42");
    stage.knows_nothing();
}

#[test]
fn a_task_that_fails_or_is_stopped_says_why() {
    let (mut stage, guid) = Stage::running_task();
    stage.machine.crash(stage.now, &guid);
    stage.settle();
    let outcome = stage.board.tasks[&task()].outcome.clone().unwrap();
    assert!(outcome.failed && outcome.failure_reason == "exit 1");

    let (mut stage, guid) = Stage::running_task();
    stage.machine.stop(stage.now, &guid);
    stage.settle();
    let outcome = stage.board.tasks[&task()].outcome.clone().unwrap();
    assert!(outcome.failed && outcome.failure_reason == "stopped");
    stage.knows_nothing();
}

#[test]
fn a_task_whose_container_cannot_be_made_may_be_tried_elsewhere() {
    for reason in ["no such image", ""] {
        let mut stage = Stage::connected();
        stage.board.put_task(&task(), TaskState::Pending, None);
        stage.work_task(&task());
        let (failed, retryable, stopped) = (true, true, false);
        let result = RunResult { failed, retryable, stopped, failure_reason: reason.to_owned() };
        stage.machine.complete(stage.now, &stage.only(), result);
        stage.settle();
        assert_eq!(stage.said(), ["start task", "reject task"]);
        let record = &stage.board.tasks[&task()];
        assert_eq!((record.state, record.rejected.len()), (TaskState::Pending, 1));
        stage.knows_nothing();
    }
}

#[test]
fn a_cancelled_task_is_deleted_and_nobody_is_asked() {
    let (mut stage, _) = Stage::running_task();
    stage.board.put_task(&task(), TaskState::Completed, Some(cell()));
    stage.order(vec![CellOrder::CancelTask(task()), CellOrder::CancelTask(task())]);
    assert!(stage.said().is_empty() && stage.machine.containers.is_empty());
    stage.knows_nothing();
    // Before its container is there: the board says no to its start.
    let mut stage = Stage::connected();
    stage.board.put_task(&task(), TaskState::Completed, None);
    stage.work_task(&task());
    assert_eq!(stage.said(), ["start task"]);
    stage.knows_nothing();
}

#[test]
fn a_container_of_the_machine_itself_is_nobodys_business() {
    let mut stage = Stage::connected();
    let own = Owner::Local(InstanceGuid::new("self-test-1").unwrap());
    stage.machine.put(stage.now, own.clone(), ContainerState::Running);
    stage.wait(PASS * 2);
    assert!(stage.said().is_empty() && stage.agrees() && stage.deletes() == 0);
    stage.machine.vanish(&own.container());
    stage.settle();
    stage.knows_nothing();
}

#[test]
fn what_was_told_to_run_is_not_told_again_before_the_executor_shows_it() {
    let mut stage = Stage::connected();
    stage.board.desire(0);
    stage.holds = true;
    stage.work(&[0]);
    stage.answer_next(How::Properly);
    let runs =
        |stage: &Stage| stage.done.iter().filter(|it| matches!(it, RepOutput::Run(..))).count();
    assert_eq!(runs(&stage), 1);
    // Everything is judged again, and the rep has not looked.
    stage.rep.judge_all(stage.now);
    stage.rep.pass(stage.now);
    stage.settle();
    assert_eq!((runs(&stage), stage.deletes()), (1, 0));
    assert_eq!(stage.state(&stage.only()), Some(ContainerState::Initializing));
}
