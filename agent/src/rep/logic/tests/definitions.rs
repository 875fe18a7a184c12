//! Definitions that come in parts, late, or not at all; and tags that change.

use super::board::Tells;
use super::*;

fn fetches(stage: &Stage) -> usize {
    stage.done.iter().filter(|it| matches!(it, RepOutput::Fetch(..))).count()
}

/// A claim whose definition did not come with its answer.
fn claimed_without_definition() -> (Stage, ContainerGuid) {
    let mut stage = Stage::connected();
    stage.board.desire(0);
    stage.holds = true;
    stage.work(&[0]);
    stage.board.tells = Tells::Nothing;
    stage.answer_next(How::Properly);
    assert!(matches!(stage.asks.front(), Some(Ask::Fetch(..))));
    stage.board.tells = Tells::All;
    let guid = stage.only();
    (stage, guid)
}

#[test]
fn a_fetch_that_fails_is_asked_again_after_a_while() {
    for how in [How::Lost, How::NotDone] {
        let (mut stage, guid) = claimed_without_definition();
        let mut waits = Vec::new();
        for _ in 0..8 {
            stage.answer_next(how);
            assert!(stage.asks.is_empty());
            waits.push(stage.rep.next_wake().since(stage.now).as_millis());
            stage.now = stage.rep.next_wake();
            stage.step();
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1_600, 3_200, 5_000]);
        stage.holds = false;
        stage.settle();
        assert_eq!(stage.state(&guid), Some(ContainerState::Initializing));
    }
}

#[test]
fn what_the_board_does_not_know_is_asked_twice_and_then_at_passes() {
    let (mut stage, guid) = claimed_without_definition();
    stage.board.tells = Tells::Nothing;
    stage.holds = false;
    stage.settle();
    let first = fetches(&stage);
    assert!(first <= 4, "{first}");
    assert_eq!(stage.state(&guid), Some(ContainerState::Reserved));
    stage.wait(PASS * 2);
    assert!(fetches(&stage) <= first * 3, "{}", fetches(&stage));
    stage.board.tells = Tells::All;
    stage.wait(PASS);
    assert_eq!(stage.state(&guid), Some(ContainerState::Initializing));
}

#[test]
fn what_did_not_fit_comes_with_the_next_question() {
    let mut stage = Stage::connected();
    stage.board.tells = Tells::OneAtATime;
    let names: Vec<TaskGuid> =
        (0..4).map(|nth| TaskGuid::new(format!("t-{nth}").as_str()).unwrap()).collect();
    let tasks = names.iter().map(|it| TaskStart {
        task_guid: it.clone(),
        domain: domain(),
        requirements: needs(1),
    });
    let batch = WorkBatch { number: 1, lrps: vec![], tasks: tasks.collect() };
    names.iter().for_each(|it| stage.board.put_task(it, TaskState::Pending, None));
    stage.order(vec![CellOrder::Work(batch)]);
    assert_eq!(stage.machine.runs.len(), 4);
    assert!(stage.machine.runs.values().all(|runs| *runs == 1));
    assert!(fetches(&stage) >= 3 && stage.rep.tasks.is_empty());
}

#[test]
fn a_definition_that_cannot_be_read_or_run_is_a_crash() {
    for tells in [Tells::Rubbish, Tells::Invalid] {
        let mut stage = Stage::connected();
        stage.board.tells = tells;
        stage.board.desire(0);
        stage.work(&[0]);
        assert!(stage.crash_reason().unwrap().contains("cannot run its definition"));
        assert_eq!(stage.said(), ["claim", "crash"], "{tells:?}");
        stage.knows_nothing();

        let mut stage = Stage::connected();
        stage.board.tells = tells;
        stage.board.put_task(&task(), TaskState::Pending, None);
        stage.work_task(&task());
        assert_eq!(stage.said(), ["start task", "complete task"], "{tells:?}");
        let outcome = stage.board.tasks[&task()].outcome.clone().unwrap();
        assert!(outcome.failed && outcome.failure_reason.contains("cannot run its definition"));
        stage.knows_nothing();
    }
}

#[test]
fn a_task_that_waits_for_its_definition_runs_with_the_next_coordinator() {
    let mut stage = Stage::connected();
    stage.board.put_task(&task(), TaskState::Pending, None);
    stage.holds = true;
    stage.work_task(&task());
    stage.board.tells = Tells::Nothing;
    stage.answer_next(How::Properly);
    stage.board.tells = Tells::All;
    let lost = stage.asks.pop_front();
    assert!(matches!(lost, Some(Ask::Fetch(..))));
    stage.holds = false;
    stage.lose();
    stage.meet();
    assert_eq!(stage.said(), ["start task"]);
    assert_eq!(stage.state(&stage.only()), Some(ContainerState::Initializing));
}

#[test]
fn other_tags_are_reported_and_written_down() {
    let color = |stage: &Stage| {
        let record = stage.board.ordinary.values().next().unwrap();
        let tags = &record.reported.as_ref().unwrap().metric_tags;
        tags.iter().find(|(name, _)| *name == "color").map(|(_, color)| color.to_owned())
    };
    let (mut stage, guid) = Stage::running();
    assert_eq!(color(&stage).as_deref(), Some("red"));
    let on = stage.rep.on(&InstanceGuid::new(guid.as_str()).unwrap());
    stage.board.paint("green");
    stage.order(vec![CellOrder::UpdateInstance(key(0), on)]);
    assert_eq!((stage.said(), color(&stage).as_deref()), (vec!["start"], Some("green")));
    let tag = stage.board.tag;
    assert!(stage.assigned.values().all(|it| it.definition.modification_tag == tag));
    // The order was lost, and a sync tells.
    stage.board.paint("blue");
    stage.order(vec![CellOrder::Sync]);
    assert_eq!((stage.said(), color(&stage).as_deref()), (vec!["start"], Some("blue")));
    // Nothing new is nothing to report.
    stage.order(vec![CellOrder::Sync]);
    assert!(stage.said().is_empty());
}

#[test]
fn tags_on_the_board_stay_until_the_definition_is_known() {
    let (before, guid) = Stage::running();
    // The agent is started again, and its own disk has nothing.
    let mut stage = Stage::new();
    (stage.board, stage.machine) = (before.board, before.machine);
    let all = stage.machine.show_all();
    stage.rep.apply(stage.now, RepInput::Containers(all, stage.machine.free()));
    stage.board.tells = Tells::Nothing;
    stage.meet();
    assert!(stage.said().is_empty() && stage.agrees());
    stage.board.tells = Tells::All;
    stage.order(vec![CellOrder::Sync]);
    assert!(stage.said().is_empty(), "it is as it was");
    assert_eq!((stage.machine.runs[&guid], stage.deletes()), (1, 0));
}

#[test]
fn an_update_of_what_is_not_here_is_not_kept() {
    let mut stage = Stage::connected();
    // The record says so, and the container is gone.
    stage.board.put(0, RecordState::Running(ours()));
    stage.holds = true;
    stage.order(vec![CellOrder::UpdateInstance(key(0), ours())]);
    stage.holds = false;
    stage.settle();
    assert_eq!(fetches(&stage), 1);
    stage.knows_nothing();
}
