//! A cell without a coordinator, on a clock that is set by hand.

use super::machine::{Deletes, ROOM};
use super::*;

const ALONE_AFTER: Duration = Duration::from_secs(2);

/// An instance that runs on a cell that knows that it is alone.
fn alone() -> (Stage, ContainerGuid) {
    let (mut stage, guid) = Stage::running();
    stage.lose();
    stage.wait(ALONE_AFTER);
    (stage, guid)
}

/// It crashes. Gives how long it takes until it is run again.
fn crash(stage: &mut Stage, guid: &ContainerGuid) -> Option<Duration> {
    let (runs, at) = (stage.machine.runs[guid], stage.now);
    stage.machine.crash(stage.now, guid);
    stage.settle();
    while stage.machine.runs[guid] == runs {
        let next = stage.rep.next_wake();
        if next.since(at) > Duration::from_secs(3_600) {
            return None;
        }
        stage.now = next;
        stage.settle();
    }
    stage.machine.come_up(stage.now, guid);
    stage.settle();
    Some(stage.now.since(at))
}

#[test]
fn crashes_are_answered_within_the_policy() {
    let (mut stage, guid) = alone();
    let waits: Vec<u64> = (0..10).map(|_| crash(&mut stage, &guid).unwrap().as_secs()).collect();
    assert_eq!(waits, [0, 0, 0, 60, 120, 240, 480, 960, 960, 960]);
    assert_eq!(stage.machine.containers.len(), 1);
    assert!(stage.assigned.contains_key(guid.as_str()), "it is still ours after a power cut");
}

#[test]
fn it_gives_up_when_the_policy_does() {
    let (mut stage, guid) = alone();
    stage.rep.settings.crash_policy.give_up_after = 5;
    let waits: Vec<_> = (0..6).map(|_| crash(&mut stage, &guid)).collect();
    assert!(waits[..5].iter().all(Option::is_some) && waits[5].is_none(), "{waits:?}");
    assert_eq!(stage.state(&guid), Some(ContainerState::Completed));
}

#[test]
fn one_that_ran_five_minutes_had_recovered() {
    let (mut stage, guid) = alone();
    for _ in 0..4 {
        crash(&mut stage, &guid).unwrap();
    }
    stage.wait(Duration::from_secs(300));
    let waits: Vec<u64> = (0..4).map(|_| crash(&mut stage, &guid).unwrap().as_secs()).collect();
    assert_eq!(waits, [0, 0, 0, 60]);
}

#[test]
fn a_crash_just_after_the_loss_waits_until_it_is_sure() {
    let (mut stage, guid) = Stage::running();
    stage.lose();
    assert_eq!(crash(&mut stage, &guid), Some(ALONE_AFTER));
}

#[test]
fn what_was_told_to_stop_is_not_restarted() {
    let (mut stage, guid) = Stage::running();
    let on = stage.rep.on(&InstanceGuid::new(guid.as_str()).unwrap());
    stage.holds = true;
    stage.order(vec![CellOrder::StopInstance(key(0), on)]);
    stage.asks.clear();
    stage.lose();
    stage.wait(Duration::from_secs(600));
    assert_eq!(stage.machine.runs[&guid], 1);
    assert!(stage.assigned.is_empty(), "nor after a power cut");
    stage.holds = false;
    stage.meet();
    assert_eq!(stage.said(), ["remove"]);
    stage.knows_nothing();
}

#[test]
fn told_to_stop_between_two_containers_it_stops() {
    for late in [false, true] {
        let (mut stage, guid) = alone();
        stage.board.desired.clear();
        stage.machine.deletes = Deletes::Slow;
        stage.machine.crash(stage.now, &guid);
        stage.settle();
        let on = stage.rep.on(&InstanceGuid::new(guid.as_str()).unwrap());
        let stop = RepInput::Orders(
            50,
            CellOrders { orders: vec![CellOrder::StopInstance(key(0), on)] },
            1,
        );
        if late {
            // It is gone, and room is being set aside for the next.
            stage.machine.finish_deletes(stage.now);
            stage.look();
            stage.rep.apply(stage.now, stop);
        } else {
            stage.rep.apply(stage.now, stop);
            stage.machine.finish_deletes(stage.now);
        }
        stage.machine.deletes = Deletes::AtOnce;
        stage.meet();
        assert_eq!(stage.machine.runs[&guid], 1, "late: {late}");
        assert_eq!(stage.said(), ["remove"], "late: {late}");
        stage.knows_nothing();
    }
}

/// An agent that starts with this on its disk and no containers, as after a power cut.
fn cold_boot(instances: u32) -> Stage {
    let mut stage = Stage::new();
    for index in 0..instances {
        stage.board.desire(index);
        let name = format!("i-{index}");
        stage.board.put(index, RecordState::Running(on(cell(), &name)));
        stage.assign(index, &name);
    }
    stage
}

#[test]
fn after_a_power_cut_all_is_made_again_under_the_same_names() {
    let mut stage = cold_boot(3);
    stage.wait(ALONE_AFTER - Duration::from_millis(1));
    assert!(stage.machine.containers.is_empty(), "there may be a coordinator");
    stage.wait(Duration::from_millis(1));
    for index in 0..3 {
        let guid = guid(&format!("i-{index}"));
        assert_eq!(stage.machine.runs[&guid], 1);
        stage.machine.come_up(stage.now, &guid);
    }
    stage.wait(PASS * 4);
    assert!(stage.machine.runs.values().all(|runs| *runs == 1));
    // Their records are right again; only how they are reached is new.
    stage.meet();
    assert!(stage.agrees() && stage.deletes() == 0);
    assert_eq!(stage.machine.containers.len(), 3);
    assert!(stage.said().iter().all(|it| *it == "start"));
}

#[test]
fn after_a_power_cut_a_coordinator_that_is_there_decides() {
    let mut stage = cold_boot(3);
    stage.meet();
    assert_eq!(stage.said(), ["remove"; 3]);
    stage.wait(PASS * 2);
    assert!(stage.machine.runs.is_empty());
    assert_eq!(stage.board.state(0), Some(&RecordState::Unclaimed));
    stage.knows_nothing();
}

#[test]
fn an_agent_that_is_started_again_touches_nothing() {
    let (before, guid) = Stage::running();
    let mut stage = Stage::new();
    stage.assigned = before.assigned.clone();
    stage.rep.apply(stage.now, RepInput::Assigned(before.assigned.into_values().collect()));
    (stage.board, stage.machine) = (before.board, before.machine);
    let all = stage.machine.show_all();
    stage.rep.apply(stage.now, RepInput::Containers(all, stage.machine.free()));
    stage.wait(PASS);
    stage.meet();
    stage.wait(PASS);
    assert!(stage.said().is_empty() && stage.agrees());
    assert_eq!((stage.machine.runs[&guid], stage.deletes()), (1, 0));
}

#[test]
fn what_finds_no_room_is_tried_again_at_passes() {
    let mut stage = cold_boot(ROOM.containers + 2);
    stage.wait(ALONE_AFTER);
    assert_eq!(stage.machine.containers.len(), ROOM.containers as usize);
    let tries =
        |stage: &Stage| stage.done.iter().filter(|it| matches!(it, RepOutput::Reserve(..))).count();
    let before = tries(&stage);
    stage.wait(PASS * 3);
    assert!((4..=8).contains(&(tries(&stage) - before)), "{}", tries(&stage) - before);
    // One goes, and there is room.
    let gone = stage.machine.containers.keys().next().cloned().unwrap();
    stage.machine.vanish(&gone);
    stage.wait(PASS);
    assert_eq!(stage.machine.containers.len(), ROOM.containers as usize);
    // The rest is the coordinator's.
    stage.meet();
    stage.wait(PASS);
    assert!(stage.agrees());
    assert_eq!(stage.rep.entries.len(), ROOM.containers as usize);
}

#[test]
fn when_another_runs_meanwhile_ours_goes() {
    let (mut stage, guid) = alone();
    crash(&mut stage, &guid).unwrap();
    stage.board.put(0, RecordState::Running(theirs()));
    stage.meet();
    assert!(stage.said().is_empty());
    stage.knows_nothing();
}

#[test]
fn ours_under_another_address_is_reported_again() {
    let (mut stage, guid) = alone();
    stage.machine.address = 77;
    crash(&mut stage, &guid).unwrap();
    stage.meet();
    assert_eq!(stage.said(), ["start"]);
    let record = stage.board.ordinary.values().next().unwrap();
    assert_eq!(record.reported.as_ref().unwrap().net_info.instance_address, "10.255.0.77");
    assert!(stage.agrees());
}

#[test]
fn a_restart_that_is_another_cells_now_does_not_keep_the_cell_awake() {
    let (mut stage, guid) = alone();
    for _ in 0..3 {
        crash(&mut stage, &guid).unwrap();
    }
    stage.machine.crash(stage.now, &guid);
    stage.settle();
    stage.machine.deletes = Deletes::Busy;
    stage.board.put(0, RecordState::Running(theirs()));
    stage.meet();
    stage.lose();
    let runs = stage.machine.runs[&guid];
    // Each step sees that the next wake is later than now.
    stage.wait(Duration::from_secs(600));
    assert_eq!(stage.machine.runs[&guid], runs);
}

#[test]
fn tasks_are_not_restarted_and_their_end_is_kept_for_the_coordinator() {
    let (mut stage, guid) = Stage::running_task();
    stage.lose();
    stage.machine.crash(stage.now, &guid);
    stage.wait(Duration::from_secs(600));
    assert_eq!(stage.machine.runs[&guid], 1);
    stage.meet();
    assert_eq!(stage.said(), ["complete task"]);
    stage.knows_nothing();
}

#[test]
fn what_the_executor_will_not_run_alone_is_left_to_the_coordinator() {
    let (mut stage, guid) = alone();
    stage.machine.refuses_to_run = true;
    stage.machine.crash(stage.now, &guid);
    stage.wait(PASS * 3);
    assert!(stage.machine.containers.is_empty());
    stage.machine.refuses_to_run = false;
    stage.meet();
    assert_eq!(stage.said(), ["remove"]);
    assert_eq!(stage.board.state(0), Some(&RecordState::Unclaimed));
    stage.knows_nothing();
}

#[test]
fn a_restart_whose_old_container_cannot_be_taken_away_is_put_off() {
    for deletes in [Deletes::Busy, Deletes::Fail] {
        let (mut stage, guid) = alone();
        stage.machine.deletes = deletes;
        stage.machine.crash(stage.now, &guid);
        stage.wait(PASS * 3);
        assert_eq!(stage.machine.runs[&guid], 1);
        stage.machine.deletes = Deletes::AtOnce;
        stage.wait(PASS);
        assert_eq!(stage.machine.runs[&guid], 2, "{deletes:?}");
        stage.machine.come_up(stage.now, &guid);
        // It was one crash, however often it was tried.
        let waits: Vec<u64> = (0..3).map(|_| crash(&mut stage, &guid).unwrap().as_secs()).collect();
        assert_eq!(waits, [0, 0, 60], "{deletes:?}");

        // With a coordinator it is reported.
        let (mut stage, guid) = alone();
        stage.machine.deletes = deletes;
        stage.machine.crash(stage.now, &guid);
        stage.wait(PASS);
        stage.machine.deletes = Deletes::AtOnce;
        stage.meet();
        stage.wait(PASS);
        assert_eq!(stage.said(), ["crash"], "{deletes:?}");
        stage.knows_nothing();
    }
}
