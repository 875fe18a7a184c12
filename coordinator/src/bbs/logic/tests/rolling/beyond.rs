//! What goes beyond the seeds, and is off unless a policy asks for it.

use super::*;

fn policy() -> RolloutPolicy {
    RolloutPolicy::default()
}

fn promote() -> Command {
    Command::PromoteUpdate(process())
}

fn pause() -> Command {
    Command::PauseUpdate(process())
}

fn resume() -> Command {
    Command::ResumeUpdate(process())
}

#[test]
fn several_indices_may_be_in_flight() {
    let mut rolling = Rolling::deployed_with(4, RolloutPolicy { max_in_flight: 2, ..policy() });
    assert_eq!(rolling.does(to("id2")), ["start id2/0", "start id2/1"]);
    assert_eq!(rolling.starts("id2", 1), ["stop id1/1", "start id2/2"]);
    assert_eq!(rolling.starts("id2", 2), ["stop id1/2", "start id2/3"]);
    assert_eq!(rolling.starts("id2", 0), ["stop id1/0"]);
    assert_eq!(rolling.starts("id2", 3), ["stop id1/3"]);
    rolling.tells("id1 id2: id2 active, id2 healthy");
}

#[test]
fn more_in_flight_than_there_are_is_all_at_once() {
    let mut rolling = Rolling::deployed_with(3, RolloutPolicy { max_in_flight: 100, ..policy() });
    assert_eq!(rolling.does(to("id2")), ["start id2/0", "start id2/1", "start id2/2"]);
}

#[test]
fn canaries_wait_until_somebody_promotes_them() {
    let rollout = RolloutPolicy { canary_instances: 2, max_in_flight: 3, ..policy() };
    let mut rolling = Rolling::deployed_with(4, rollout);
    assert_eq!(rolling.does(to("id2")), ["start id2/0", "start id2/1"], "canaries and no more");
    rolling.starts("id2", 0);
    assert_eq!((rolling.pause(), rolling.starts("id2", 1)), (None, vec!["stop id1/1".to_owned()]));
    assert_eq!(rolling.pause(), Some(RolloutPause::Canary));
    rolling.stops("id1", 0);
    rolling.stops("id1", 1);
    rolling.waits(100_000);
    rolling.shows(["id2 RUNNING", "id2 RUNNING", "id1 RUNNING", "id1 RUNNING"]);
    // To resume is not to promote.
    assert_eq!(rolling.does(resume()), [""; 0]);
    assert_eq!(rolling.pause(), Some(RolloutPause::Canary));
    assert_eq!(rolling.does(promote()), ["start id2/2", "start id2/3"]);
    let told = rolling.starts("id2", 2);
    rolling.obeys(told);
    rolling.starts("id2", 3);
    rolling.stops("id1", 3);
    rolling.tells("id2: id2 active, id2 healthy");
    // The next update has canaries of its own.
    assert_eq!(rolling.does(to("id3")), ["start id3/0", "start id3/1"]);
}

#[test]
fn canaries_may_be_promoted_before_they_are_there_and_be_taken_back() {
    let rollout = RolloutPolicy { canary_instances: 1, ..policy() };
    let mut rolling = Rolling::deployed_with(2, rollout);
    rolling.does(to("id2"));
    let mut early = rolling.clone();
    early.does(promote());
    assert_eq!(early.starts("id2", 0), ["stop id1/0", "start id2/1"]);
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    assert_eq!(rolling.pause(), Some(RolloutPause::Canary));
    assert_eq!(rolling.does(cancel()), ["start id1/0"]);
    assert_eq!(rolling.pause(), None, "the way back has no canaries");
    let told = rolling.starts("id1", 0);
    rolling.obeys(told);
    rolling.shows(["id1 RUNNING"; 2]);
}

#[test]
fn as_many_canaries_as_instances_need_no_promotion() {
    let rollout = RolloutPolicy { canary_instances: 5, ..policy() };
    let mut rolling = Rolling::deployed_with(2, rollout);
    let told = rolling.does(to("id2"));
    rolling.obeys(told);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn an_update_may_be_paused_and_resumed() {
    let mut rolling = Rolling::deployed(3);
    let none = "NoUpdateInProgress: no update of desired LRP p is in progress";
    for command in [pause(), resume(), promote()] {
        assert_eq!(rolling.refuses(command), none);
    }
    rolling.does(to("id2"));
    rolling.does(pause());
    assert_eq!(rolling.pause(), Some(RolloutPause::Asked));
    // What is in flight lands, but nothing more is taken up.
    assert_eq!(rolling.starts("id2", 0), ["stop id1/0"]);
    rolling.stops("id1", 0);
    rolling.waits(100_000);
    rolling.shows(["id2 RUNNING", "id1 RUNNING", "id1 RUNNING"]);
    let before = rolling.stage.deployment();
    rolling.does(pause());
    assert_eq!(rolling.stage.deployment(), before, "once is enough");
    rolling.stage = rolling.stage.restarted();
    assert_eq!(rolling.does(resume()), ["start id2/1"]);
    let told = rolling.starts("id2", 1);
    rolling.obeys(told);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn a_new_instance_has_to_run_for_a_while() {
    let rollout = RolloutPolicy { min_healthy_time_ms: 60_000, ..policy() };
    let mut rolling = Rolling::deployed_with(2, rollout);
    rolling.does(to("id2"));
    assert_eq!(rolling.starts("id2", 0), [""; 0]);
    rolling.tells("id1 id2: id2 active, id1 healthy, from id1");
    rolling.shows(["id1 RUNNING, id2 RUNNING", "id1 RUNNING"]);
    assert_eq!(rolling.waits(59), [""; 0]);
    // It crashes after all: the old one is still there, and the time begins anew.
    assert_eq!(rolling.crashes("id2", 0), ["start id2/0"]);
    rolling.starts("id2", 0);
    rolling.stage = rolling.stage.restarted();
    assert_eq!(rolling.waits(59), [""; 0]);
    assert_eq!(rolling.waits(1), ["stop id1/0", "start id2/1"]);
    rolling.tells("id1 id2: id2 active, id2 healthy, from id1");
}

#[test]
fn a_policy_says_when_an_index_is_stuck() {
    let rollout = RolloutPolicy { stuck_after_ms: 5_000, ..policy() };
    let mut rolling = Rolling::deployed_with(3, rollout);
    rolling.does(to("id2"));
    rolling.waits(100);
    assert_eq!(rolling.stage.deployment().roll.as_ref().unwrap().stuck, [0; 0], "none runs yet");
    rolling.starts("id2", 0);
    rolling.waits(4);
    assert_eq!(rolling.stage.deployment().roll.as_ref().unwrap().stuck, [0; 0]);
    assert_eq!(rolling.waits(1), ["start id2/2"]);
    assert_eq!(rolling.stage.deployment().roll.as_ref().unwrap().stuck, [1]);
}

#[test]
fn a_failing_definition_is_rolled_back_in_reverse_order() {
    let rollout = RolloutPolicy { rollback_on_failure: true, ..policy() };
    let mut rolling = Rolling::deployed_with(4, rollout);
    rolling.does(to("id2"));
    for index in 0..2 {
        rolling.starts("id2", index);
        rolling.stops("id1", index);
    }
    // Restarts at once are not a failure yet, the wait after them is.
    for _ in 0..3 {
        rolling.claims("id2", 2);
        assert_eq!(rolling.crashes("id2", 2), ["start id2/2"]);
    }
    rolling.claims("id2", 2);
    assert_eq!(rolling.crashes("id2", 2), ["start id1/1"]);
    rolling.tells("id1 id2: id1 active, id1 healthy, from id2");
    let roll = rolling.stage.deployment().roll.clone().unwrap();
    assert_eq!(roll.order, RolloutDirection::Falling);
    assert_eq!(&*roll.reason, "a new instance crashes again and again");
    rolling.shows(["id2 RUNNING", "id1 UNCLAIMED, id2 RUNNING", "id1 RUNNING", "id1 RUNNING"]);
    assert_eq!(rolling.starts("id1", 1), ["stop id2/1", "start id1/0"]);
    let told = rolling.starts("id1", 0);
    rolling.obeys(told);
    rolling.stops("id2", 1);
    rolling.shows(["id1 RUNNING"; 4]);
    rolling.tells("id1: id1 active, id1 healthy");
    assert!(rolling.stage.deployment().history.get(&id("id2")).is_some(), "to look at it");
}

#[test]
fn an_update_without_progress_stalls_and_goes_on_when_told() {
    let rollout = RolloutPolicy { progress_deadline_ms: 60_000, ..policy() };
    let mut rolling = Rolling::deployed_with(3, rollout);
    rolling.does(to("id2"));
    rolling.waits(50);
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    // The landing was progress: a minute from there, also over a restart.
    rolling.waits(20);
    rolling.stage = rolling.stage.restarted();
    rolling.waits(39);
    assert_eq!(rolling.pause(), None);
    rolling.waits(1);
    assert_eq!(rolling.pause(), Some(RolloutPause::Stalled));
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING"]);
    // A coordinator that was away past the deadline listens to the cells first.
    let mut away = rolling.clone();
    away.does(resume());
    away.stage.now = away.stage.now + Duration::from_secs(1_000);
    away.stage = away.stage.restarted();
    away.waits(29);
    assert_eq!(away.pause(), None);
    away.waits(1);
    assert_eq!(away.pause(), Some(RolloutPause::Stalled));
    let mut told = rolling.clone();
    told.does(resume());
    assert_eq!(told.pause(), None);
    told.waits(60);
    assert_eq!(told.pause(), Some(RolloutPause::Stalled), "a minute more");
    // What is in flight is tried on; if it lands, that is progress.
    assert_eq!(rolling.starts("id2", 1), ["stop id1/1", "start id2/2"]);
    assert_eq!(rolling.pause(), None);
}

#[test]
fn an_update_without_progress_is_rolled_back_if_the_policy_says_so() {
    let rollout =
        RolloutPolicy { progress_deadline_ms: 60_000, rollback_on_failure: true, ..policy() };
    let mut rolling = Rolling::deployed_with(2, rollout);
    rolling.does(to("id2"));
    rolling.claims("id2", 0);
    let told = rolling.waits(60);
    assert_eq!(told, ["stop id2/0"]);
    rolling.tells("id1 id2: id1 active, id1 healthy");
    rolling.stops("id2", 0);
    rolling.shows(["id1 RUNNING"; 2]);
}

#[test]
fn an_update_may_bring_its_policy() {
    let mut rolling = Rolling::deployed(3);
    let rollout = Some(RolloutPolicy { max_in_flight: 3, ..policy() });
    let definition_id = Some(id("id2"));
    let definition = Some(Box::new(definition("id2")));
    let told = rolling.does(edit(LrpDeploymentUpdate {
        rollout,
        definition_id,
        definition,
        ..Default::default()
    }));
    assert_eq!(told, ["start id2/0", "start id2/1", "start id2/2"]);
    // The default is no policy at all.
    rolling.does(edit(LrpDeploymentUpdate { rollout: Some(policy()), ..Default::default() }));
    assert_eq!(rolling.stage.deployment().rollout, None);
}

#[test]
fn the_way_back_has_neither_canaries_nor_a_way_back() {
    let rollout = RolloutPolicy {
        canary_instances: 1,
        progress_deadline_ms: 60_000,
        rollback_on_failure: true,
        ..policy()
    };
    let mut rolling = Rolling::deployed_with(3, rollout);
    rolling.does(to("id2"));
    rolling.does(promote());
    for index in 0..2 {
        rolling.starts("id2", index);
        rolling.stops("id1", index);
    }
    rolling.does(cancel());
    for _ in 0..5 {
        rolling.claims("id1", 1);
        rolling.crashes("id1", 1);
        rolling.waits(960);
    }
    rolling.tells("id1 id2: id1 active, id1 healthy, from id2");
    assert_eq!(rolling.pause(), None);
    assert_eq!(rolling.stage.deployment().roll.as_ref().unwrap().order, RolloutDirection::Falling);
}
