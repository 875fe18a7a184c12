//! What may happen in the middle of an update: scaling, lost cells, evacuations, restarts of the
//! coordinator, domains that nobody vouches for.

use super::*;

#[test]
fn scaling_up_in_the_middle_starts_what_is_known_to_run() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    assert_eq!(rolling.does(scale(3)), ["start id1/2"]);
    rolling.starts("id1", 2);
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    assert_eq!(rolling.does(scale(4)), ["start id2/3"]);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING", "id2 UNCLAIMED"]);
    rolling.starts("id2", 3);
    let told = rolling.starts("id2", 1);
    rolling.obeys(told);
    rolling.shows(["id2 RUNNING"; 4]);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn scaling_down_in_the_middle_takes_what_is_in_flight_along() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING"]);
    let mut told = rolling.does(scale(1));
    told.sort();
    assert_eq!(told, ["stop id1/1", "stop id1/2"]);
    rolling.tells("id1 id2: id2 active, id2 healthy");
    rolling.stops("id1", 1);
    rolling.stops("id1", 2);
    rolling.shows(["id2 RUNNING"]);
    rolling.tells("id2: id2 active, id2 healthy");
    // Nothing is left to do at none, either.
    rolling.does(to("id3"));
    rolling.does(scale(0));
    assert!(rolling.stage.deployment().roll.is_none());
}

#[test]
fn an_update_of_no_instances_is_over_at_once() {
    let mut rolling = Rolling::deployed(1);
    rolling.does(scale(0));
    rolling.stops("id1", 0);
    assert_eq!(rolling.does(to("id2")), [""; 0]);
    // The one that is known to run stays until another is.
    rolling.tells("id1 id2: id2 active, id1 healthy");
    assert_eq!(rolling.does(scale(1)), ["start id2/0"]);
    rolling.starts("id2", 0);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn a_lost_cell_ahead_of_the_update_gets_the_healthy_definition() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    assert_eq!(rolling.does(missing("cell-3")), ["start id1/2"]);
    rolling.shows([
        "id1 RUNNING, id2 UNCLAIMED",
        "id1 RUNNING",
        "id1 UNCLAIMED, id1 RUNNING SUSPECT",
    ]);
    assert_eq!(rolling.does(present("cell-3")), [""; 0]);
    rolling.shows(["id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING", "id1 RUNNING"]);
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    // Now its replacement is of the new definition, and the suspect stands in for it.
    assert_eq!(rolling.does(missing("cell-3")), ["start id2/2"]);
    rolling.shows([
        "id2 RUNNING",
        "id1 RUNNING, id2 UNCLAIMED",
        "id1 RUNNING SUSPECT, id2 UNCLAIMED",
    ]);
    let mut back = rolling.clone();
    // The cell comes back: its instance is ordinary again, the replacement goes.
    back.does(present("cell-3"));
    back.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING"]);
    // Or the replacement runs: the suspect goes.
    rolling.does(cell_says(CellRequest::StartLrp(key_of("id2", 2), i1(), running())));
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id2 RUNNING"]);
}

#[test]
fn a_lost_cell_in_flight_keeps_the_suspect_until_the_new_one_runs() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    rolling.does(missing("cell-1"));
    rolling.shows(["id1 UNCLAIMED, id1 RUNNING SUSPECT, id2 UNCLAIMED", "id1 RUNNING"]);
    rolling.does(cell_says(CellRequest::StartLrp(key_of("id2", 0), i2(), running())));
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED"]);
}

#[test]
fn a_lost_cell_with_the_new_instance_is_as_any_other() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    assert_eq!(rolling.does(missing("cell-1")), ["start id2/0"]);
    rolling.shows(["id2 UNCLAIMED, id2 RUNNING SUSPECT", "id1 RUNNING, id2 UNCLAIMED"]);
    rolling.tells("id1 id2: id2 active, id2 healthy, from id1");
}

#[test]
fn an_evacuation_in_flight_keeps_the_old_one_serving() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    assert_eq!(rolling.evacuates("id1", 0), ["start id1/0"]);
    rolling.shows(["id1 UNCLAIMED, id1 RUNNING EVACUATING, id2 UNCLAIMED", "id1 RUNNING"]);
    assert_eq!(rolling.starts("id2", 0), ["start id2/1"]);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED"]);
}

#[test]
fn an_evacuation_of_what_is_done_restarts_it_as_any_other() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    assert_eq!(rolling.evacuates("id2", 0), ["start id2/0"]);
    rolling.starts("id2", 0);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED"]);
}

#[test]
fn a_restart_of_the_coordinator_in_the_middle_loses_nothing() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    let (told, shown) = (rolling.told(), rolling.shown());
    rolling.stage = rolling.stage.restarted();
    assert_eq!((rolling.told(), rolling.shown()), (told, shown));
    assert_eq!(rolling.waits(30), ["start id2/1"], "what was asked may be lost: asked again");
    let told = rolling.starts("id2", 1);
    rolling.obeys(told);
    rolling.shows(["id2 RUNNING"; 3]);
}

#[test]
fn deadlines_survive_a_restart() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    rolling.waits(400);
    rolling.stage = rolling.stage.restarted();
    rolling.waits(199);
    assert_eq!(rolling.stage.deployment().roll.as_ref().unwrap().stuck, [0; 0]);
    rolling.waits(1);
    assert_eq!(rolling.stage.deployment().roll.as_ref().unwrap().stuck, [1]);
}

#[test]
fn a_clock_that_was_set_back_does_not_make_an_update_wait() {
    let mut rolling = Rolling::deployed(3);
    let told = rolling.does(to("id2"));
    rolling.obeys(told);
    rolling.does(to("id3"));
    rolling.stage.now = rolling.stage.now - Duration::from_secs(500);
    rolling.stage = rolling.stage.restarted();
    let deployment = rolling.stage.deployment();
    let roll = deployment.roll.as_ref().unwrap();
    let times = [roll.began_at, roll.progressed_at, roll.in_flight[0].since];
    assert_eq!(times, [rolling.stage.now; 3]);
    assert_eq!(deployment.history.iter().next().unwrap().retired_at, rolling.stage.now);
}

#[test]
fn an_update_in_a_domain_that_is_not_fresh_replaces_and_stops_nothing_else() {
    let mut stage = Stage::new();
    stage.does(create(2));
    let mut rolling = Rolling { stage, containers: 0 };
    rolling.starts("id1", 0);
    rolling.starts("id1", 1);
    rolling.does(to("id2"));
    // Where the new one runs, the old one may go: somebody serves instead.
    assert_eq!(rolling.starts("id2", 0), ["stop id1/0", "start id2/1"]);
    rolling.stops("id1", 0);
    // An index that is superseded and that nobody serves keeps what it has.
    rolling.crashes("id1", 1);
    rolling.claims("id2", 1);
    rolling.does(to("id3"));
    rolling.shows(["id2 RUNNING, id3 UNCLAIMED", "id1 UNCLAIMED, id2 CLAIMED"]);
    rolling.does(fresh("d", 0));
    rolling.shows(["id2 RUNNING, id3 UNCLAIMED", "id2 CLAIMED"]);
}

#[test]
fn with_recreate_the_old_one_stops_before_the_new_one_starts() {
    let desired = DesiredLrp { update_strategy: UpdateStrategy::Recreate, ..desired("p", "d", 2) };
    let mut rolling = Rolling::created(desire_this(desired));
    rolling.starts("p", 0);
    rolling.starts("p", 1);
    assert_eq!(rolling.does(to("id2")), ["stop p/0"]);
    rolling.shows(["p RUNNING stops", "p RUNNING"]);
    assert_eq!(rolling.stops("p", 0), ["start id2/0"]);
    rolling.shows(["id2 UNCLAIMED", "p RUNNING"]);
    // Not before the new one runs is the next one stopped.
    rolling.claims("id2", 0);
    rolling.shows(["id2 CLAIMED", "p RUNNING"]);
    assert_eq!(rolling.starts("id2", 0), ["stop p/1"]);
    rolling.stops("p", 1);
    rolling.starts("id2", 1);
    rolling.shows(["id2 RUNNING"; 2]);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn a_new_instance_that_is_retired_is_tried_again() {
    let mut rolling = Rolling::deployed(1);
    rolling.does(to("id2"));
    rolling.claims("id2", 0);
    assert_eq!(rolling.does(Command::RetireLrp(key_of("id2", 0))), ["stop id2/0"]);
    assert_eq!(rolling.stops("id2", 0), ["start id2/0"]);
    rolling.shows(["id1 RUNNING, id2 UNCLAIMED"]);
}

#[test]
fn definitions_in_use_have_a_limit() {
    let mut rolling = Rolling::deployed(40);
    let mut refused = String::new();
    for nth in 2..40_u32 {
        let command = to(&format!("id{nth}"));
        let verdict = rolling.stage.tries(command);
        if let Err(rejection) = verdict {
            refused = rejection.to_string();
            break;
        }
        rolling.stage.converge();
        // Each definition comes to run at its own indices and stays there.
        for index in 0..40 - nth {
            rolling.starts(&format!("id{nth}"), index);
        }
    }
    assert_eq!(refused, "definitions: has 33 entries in use, the limit is 32");
}

#[test]
fn the_old_one_stays_until_traffic_may_be_sent_to_the_new_one() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    let holder = rolling.holder("id2", 0);
    let ready = |routable| {
        let running = Running { routable, ..(*running()).clone() };
        cell_says(CellRequest::StartLrp(key_of("id2", 0), holder.clone(), Arc::new(running)))
    };
    assert_eq!(rolling.does(ready(false)), [""; 0]);
    rolling.tells("id1 id2: id2 active, id2 healthy, from id1");
    rolling.shows(["id1 RUNNING, id2 RUNNING", "id1 RUNNING"]);
    let process = rolling.stage.board.records.process(&process()).unwrap();
    assert_eq!(process.resolved()[0].definition_id, id("id1"), "the one that serves is shown");
    assert_eq!(rolling.does(ready(true)), ["stop id1/0", "start id2/1"]);
}
