//! Orders: what is taken, what is refused and why, and what is ordered twice.

use volvox_protocol::cell::RootfsProvider;
use volvox_protocol::cell_rpc::OrderAnswer;

use super::machine::{Deletes, ROOM};
use super::*;

fn refused(stage: &Stage, message: u64) -> volvox_protocol::cell_rpc::RefusedWork {
    match &stage.answers[&message].answers[..] {
        [OrderAnswer::Refused(work)] => work.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_does_not_fit_is_named_at_once_and_the_rest_is_taken() {
    let mut stage = Stage::connected();
    let all: Vec<u32> = (0..ROOM.containers + 2).collect();
    all.iter().for_each(|index| stage.board.desire(*index));
    let message = stage.work(&all);
    let work = refused(&stage, message);
    assert_eq!(work.lrps.len(), 1);
    assert_eq!(work.lrps[0].indices.len(), 2);
    assert!(work.lrps[0].reason.contains("insufficient"), "{}", work.lrps[0].reason);
    assert_eq!(stage.machine.containers.len(), ROOM.containers as usize);
    assert_eq!(stage.rep.entries.len(), ROOM.containers as usize);
    let large = LrpStart {
        process_guid: process(),
        definition_id: (&process()).into(),
        domain: domain(),
        indices: vec![90],
        requirements: needs(ROOM.memory_mb + 1),
    };
    let batch = WorkBatch { number: 99, lrps: vec![large], tasks: vec![] };
    let message = stage.order(vec![CellOrder::Work(batch)]);
    assert_eq!(refused(&stage, message).lrps[0].indices, [90]);
}

#[test]
fn the_definition_of_what_was_refused_is_not_kept() {
    let (mut stage, first) = Stage::running();
    // The second is being reserved when the first, which knew the definition, goes.
    stage.rep.apply(stage.now, {
        let start = LrpStart {
            process_guid: process(),
            definition_id: (&process()).into(),
            domain: domain(),
            indices: vec![1],
            requirements: needs(ROOM.memory_mb + 1),
        };
        let batch = WorkBatch { number: 9, lrps: vec![start], tasks: vec![] };
        RepInput::Orders(77, CellOrders { orders: vec![CellOrder::Work(batch)] }, 7)
    });
    stage.board.ordinary.clear();
    stage.board.desired.clear();
    stage.machine.vanish(&first);
    stage.settle();
    stage.wait(PASS * 2);
    stage.knows_nothing();
}

#[test]
fn work_that_the_cell_cannot_do_is_refused_with_the_reason() {
    let mut offers = settings();
    let properties = vec!["linux".to_owned()];
    offers.offer.rootfs_providers =
        vec![RootfsProvider { name: "preloaded".to_owned(), properties }];
    let mut stage = Stage::with(offers);
    stage.meet();
    let needs = |rootfs: &str, drivers: &[&str]| {
        let rootfs = rootfs.to_owned();
        let volume_drivers = drivers.iter().map(|it| (*it).to_owned()).collect();
        Arc::new(Requirements { rootfs, volume_drivers, ..Requirements::default() })
    };
    let cases = [
        (needs("preloaded:other", &[]), "root file system"),
        (needs("docker:///x", &[]), "root file system"),
        (needs("preloaded:linux", &["nfs"]), "volume driver"),
    ];
    for (requirements, why) in cases {
        let task = TaskStart { task_guid: task(), domain: domain(), requirements };
        let batch = WorkBatch { number: 1, lrps: vec![], tasks: vec![task] };
        let message = stage.order(vec![CellOrder::Work(batch)]);
        let work = refused(&stage, message);
        assert!(work.tasks[0].reason.contains(why), "{}", work.tasks[0].reason);
    }
    let long = TaskGuid::new("x".repeat(64).as_str()).unwrap();
    let message = stage.work_task(&long);
    assert!(refused(&stage, message).tasks[0].reason.contains("63 letters"));
    stage.knows_nothing();
}

#[test]
fn an_evacuated_cell_takes_nothing() {
    let (mut stage, _) = Stage::running();
    stage.order(vec![CellOrder::Evacuate]);
    let message = stage.work(&[5]);
    assert!(refused(&stage, message).lrps[0].reason.contains("evacuated"));
    let message = stage.work_task(&task());
    assert!(refused(&stage, message).tasks[0].reason.contains("evacuated"));
    assert!(stage.rep.load().unwrap().evacuating);
}

#[test]
fn work_that_is_ordered_twice_is_done_once() {
    let mut stage = Stage::connected();
    stage.board.desire(0);
    stage.board.put_task(&task(), TaskState::Pending, None);
    for _ in 0..2 {
        let message = stage.work(&[0]);
        assert_eq!(stage.answers[&message].answers, [OrderAnswer::Taken]);
        let message = stage.work_task(&task());
        assert_eq!(stage.answers[&message].answers, [OrderAnswer::Taken]);
    }
    assert_eq!(stage.machine.containers.len(), 2);
    assert!(stage.machine.runs.values().all(|runs| *runs == 1));
    assert_eq!(stage.said().len(), 2);
}

#[test]
fn a_task_is_not_taken_while_its_last_container_is_taken_away() {
    let (mut stage, guid) = Stage::running_task();
    stage.machine.deletes = Deletes::Slow;
    let result = volvox_protocol::container::RunResult {
        failed: true,
        retryable: true,
        failure_reason: "no such image".to_owned(),
        stopped: false,
    };
    stage.machine.complete(stage.now, &guid, result);
    stage.settle();
    assert_eq!(stage.board.tasks[&task()].state, TaskState::Pending);
    let message = stage.work_task(&task());
    assert!(refused(&stage, message).tasks[0].reason.contains("taken away"));
    stage.machine.finish_deletes(stage.now);
    stage.settle();
    stage.said();
    stage.work_task(&task());
    assert_eq!(stage.said(), ["start task"]);
    assert_eq!(stage.machine.runs[&guid], 2);
}

#[test]
fn an_empty_order_is_answered() {
    let mut stage = Stage::connected();
    let message = stage.order(vec![]);
    assert!(stage.answers[&message].answers.is_empty());
    let batch = WorkBatch { number: 7, lrps: vec![], tasks: vec![] };
    let message = stage.order(vec![CellOrder::Work(batch), CellOrder::Sync]);
    assert_eq!(stage.answers[&message].answers, [OrderAnswer::Taken, OrderAnswer::Taken]);
    assert_eq!(stage.rep.load().unwrap().last_batch, 7);
}
