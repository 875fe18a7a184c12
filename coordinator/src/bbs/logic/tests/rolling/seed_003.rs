//! Seed 003, sentence by sentence. On the left what it says, shortened; on the right the test.
//!
//! | sentence | test |
//! |---|---|
//! | every existing DesiredLRP is promoted and admits rolling updates | `a_plain_desired_lrp_admits_a_rolling_update` |
//! | ActiveDefinitionID is always a key of the map | `check.rs`, after every command of every test |
//! | HealthyDefinitionID is a key, or empty if no instance ever became healthy | `check.rs`; `a_definition_is_healthy_once_an_instance_of_it_runs` |
//! | get one by guid; list with a filter | `deployments_are_found_by_guid_and_by_domain` |
//! | create behaves like desire: the definition is there and active, nothing healthy | `what_is_created_has_one_definition_which_is_active` |
//! | the BBS submits all instances for placement | `what_is_created_has_one_definition_which_is_active` |
//! | once one is RUNNING, HealthyDefinitionID is set | `a_definition_is_healthy_once_an_instance_of_it_runs` |
//! | update of instances, routes, annotation is as for a desired LRP | `an_update_of_instances_routes_and_annotation_rolls_nothing` |
//! | definition and identifier must both be supplied | `protocol`: `updates_of_deployments_read_as_they_write_and_keep_their_rules` |
//! | the identifier must be distinct from existing ones | `a_definition_id_that_is_there_is_refused` |
//! | after the update: both definitions, the new one active, the old one healthy | `a_new_definition_is_active_at_once_and_the_old_one_healthy` |
//! | three instances: index 0 starts, then healthy, stop, index 1, index 2, finished | `three_instances_are_replaced_one_after_the_other` |
//! | the old definition is removed within the next convergence tick | `a_definition_without_instances_goes_with_the_next_convergence` |
//! | restarts outside of the sequence use the healthy definition (crash) | `a_crash_outside_of_the_sequence_restarts_with_the_healthy_definition` |
//! | … (evacuation) | `an_evacuation_outside_of_the_sequence_restarts_with_the_healthy_definition` |
//! | activate goes to an existing definition | `activation_goes_to_a_definition_that_is_there` |
//! | delete stops all, deletes the record and the ActualLRP records | `deletion_stops_everything_and_forgets_it` |
//! | promotion with a RUNNING instance: guid as id, healthy | `a_promotion_with_a_running_instance_is_healthy` |
//! | promotion without: healthy unset | `a_promotion_without_a_running_instance_is_not_healthy` |
//! | projection by the active definition; P_D I_D is the identity | `protocol`: `a_projection_shows_…`, `the_projection_of_a_promotion_is_what_was_desired` |
//! | DefinitionID in the key, optional in requests and responses | `requests_may_leave_the_definition_out` |
//! | one group per (process, definition, index) | `readers.rs`: `groups_are_one_for_each_definition_and_index` |
//! | the group of an index is that of the active definition | `readers.rs`: `an_index_without_a_definition_means_the_active_one` |
//! | retire selects the active definition if ambiguous | `readers.rs`: `retire_takes_the_active_definition_when_there_are_two` |
//! | functional: sequentially, new J before old J stops | `three_instances_are_replaced_one_after_the_other`; `calm.rs`, random |
//! | functional: a crash out of order restarts with def2 | `a_crash_outside_of_the_sequence_restarts_with_the_healthy_definition` |
//! | failing: index 0 is attempted indefinitely, N old ones run, crashes restart with def1 | `a_failing_definition_is_tried_on_and_harms_nobody` |
//! | flaky: attempted until it starts, then healthy; a stuck index is given up | `a_flaky_definition_goes_on_past_a_stuck_index` |
//! | superseding: the unstarted one is stopped, the old one kept | `a_new_definition_in_the_middle_supersedes` |
//! | superseding: a new sequence from index 0 | `a_new_definition_in_the_middle_supersedes` |
//! | superseding: the definition between is pruned once replaced | `a_new_definition_in_the_middle_supersedes` |

use super::*;
use volvox_protocol::definition::Routes;

#[test]
fn a_plain_desired_lrp_admits_a_rolling_update() {
    let mut rolling = Rolling::created(desire(1));
    rolling.starts("p", 0);
    rolling.tells("p: p active, p healthy");
    assert_eq!(rolling.does(to("id2")), ["start id2/0"]);
    assert_eq!(rolling.starts("id2", 0), ["stop p/0"]);
    rolling.stops("p", 0);
    rolling.shows(["id2 RUNNING"]);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn deployments_are_found_by_guid_and_by_domain() {
    let mut stage = Stage::new();
    for (guid, in_domain) in [("a", "d"), ("b", "e"), ("c", "d")] {
        stage.does(desire_this(desired(guid, in_domain, 0)));
    }
    let records = &stage.board.records;
    let guids = |of: Vec<&Arc<LrpDeployment>>| {
        let mut guids: Vec<String> = of.iter().map(|it| it.process_guid.to_string()).collect();
        guids.sort();
        guids
    };
    assert_eq!(guids(records.deployments().collect()), ["a", "b", "c"]);
    let of_d = records.deployments().filter(|it| it.domain == domain("d"));
    assert_eq!(guids(of_d.collect()), ["a", "c"]);
    let b = ProcessGuid::new("b").unwrap();
    assert_eq!(records.deployment(&b).map(|(_, it)| it.domain.clone()), Some(domain("e")));
    assert!(records.deployment(&ProcessGuid::new("x").unwrap()).is_none());
}

#[test]
fn what_is_created_has_one_definition_which_is_active() {
    let mut stage = Stage::new();
    let outcome = stage.does(create(3));
    assert_eq!(effects_of(&outcome), ["start id1/0", "start id1/1", "start id1/2"]);
    assert_eq!(events(&outcome)[0], "desired_lrp_created");
    let rolling = Rolling { stage, containers: 0 };
    rolling.tells("id1: id1 active, none healthy");
    rolling.shows(["id1 UNCLAIMED", "id1 UNCLAIMED", "id1 UNCLAIMED"]);
    let mut rolling = rolling;
    assert_eq!(rolling.refuses(create(1)), "ResourceExists: desired LRP p already exists");
    assert_eq!(rolling.refuses(desire(1)), "ResourceExists: desired LRP p already exists");
}

#[test]
fn a_definition_is_healthy_once_an_instance_of_it_runs() {
    let mut rolling = Rolling::created(create(2));
    rolling.claims("id1", 0);
    rolling.claims("id1", 1);
    rolling.tells("id1: id1 active, none healthy");
    rolling.starts("id1", 1);
    rolling.tells("id1: id1 active, id1 healthy");
    // It has been healthy, whatever becomes of the instance.
    rolling.crashes("id1", 1);
    rolling.tells("id1: id1 active, id1 healthy");
}

#[test]
fn an_update_of_instances_routes_and_annotation_rolls_nothing() {
    let mut rolling = Rolling::deployed(2);
    let routes: Routes = serde_json::from_str(r#"{"r":1}"#).unwrap();
    let told = rolling.does(edit(LrpDeploymentUpdate {
        instances: Some(3),
        routes: Some(routes.clone()),
        annotation: Some("note".into()),
        ..Default::default()
    }));
    assert_eq!(told, ["start id1/2"]);
    let deployment = rolling.stage.deployment();
    assert_eq!((&*deployment.annotation, deployment.routes.get()), ("note", routes));
    assert_eq!(rolling.does(scale(1)), ["stop id1/1"], "the one that never started just went");
    rolling.tells("id1: id1 active, id1 healthy");
}

#[test]
fn a_definition_id_that_is_there_is_refused() {
    let mut rolling = Rolling::deployed(1);
    let exists =
        |name: &str| format!("ResourceExists: definition {name} of desired LRP p already exists");
    assert_eq!(rolling.refuses(to("id1")), exists("id1"));
    rolling.does(to("id2"));
    assert_eq!(rolling.refuses(to("id2")), exists("id2"));
    assert_eq!(rolling.refuses(to("id1")), exists("id1"));
    let unknown = Command::UpdateDeployment(
        ProcessGuid::new("x").unwrap(),
        Box::new(Valid::new(LrpDeploymentUpdate::default()).unwrap()),
    );
    assert_eq!(rolling.refuses(unknown), "ResourceNotFound: desired LRP x could not be found");
}

#[test]
fn a_new_definition_is_active_at_once_and_the_old_one_healthy() {
    let mut rolling = Rolling::deployed(3);
    let before = rolling.stage.deployment();
    let outcome = rolling.stage.does(to("id2"));
    rolling.tells("id1 id2: id2 active, id1 healthy, from id1");
    assert_eq!(events(&outcome), ["desired_lrp_changed"]);
    let after = rolling.stage.deployment();
    let memory = |name: &str| after.definitions.get(&id(name)).unwrap().unpack().memory_mb;
    assert_eq!((memory("id1"), memory("id2")), (1, 2));
    assert_eq!(after.modification_tag, before.modification_tag.next());
}

#[test]
fn three_instances_are_replaced_one_after_the_other() {
    let mut rolling = Rolling::deployed(3);
    assert_eq!(rolling.does(to("id2")), ["start id2/0"]);
    rolling.shows(["id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING", "id1 RUNNING"]);
    assert_eq!(rolling.claims("id2", 0), [""; 0]);
    rolling.tells("id1 id2: id2 active, id1 healthy, from id1");
    // It runs: healthy, the old one stops, the next one starts.
    assert_eq!(rolling.starts("id2", 0), ["stop id1/0", "start id2/1"]);
    rolling.tells("id1 id2: id2 active, id2 healthy, from id1");
    rolling.shows(["id1 RUNNING stops, id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING"]);
    rolling.stops("id1", 0);
    assert_eq!(rolling.starts("id2", 1), ["stop id1/1", "start id2/2"]);
    rolling.stops("id1", 1);
    rolling.shows(["id2 RUNNING", "id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED"]);
    assert_eq!(rolling.starts("id2", 2), ["stop id1/2"]);
    rolling.tells("id1 id2: id2 active, id2 healthy");
    rolling.stops("id1", 2);
    rolling.shows(["id2 RUNNING"; 3]);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn a_definition_without_instances_goes_with_the_next_convergence() {
    let mut rolling = Rolling::deployed(1);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    let holder = rolling.holder("id1", 0);
    let stage = &mut rolling.stage;
    stage.does(cell_says(CellRequest::RemoveLrp(key_of("id1", 0), holder)));
    rolling.tells("id1 id2: id2 active, id2 healthy");
    let outcome = rolling.stage.converge();
    assert_eq!(events(&outcome), ["desired_lrp_changed"]);
    rolling.tells("id2: id2 active, id2 healthy");
    // Its text stays.
    let deployment = rolling.stage.deployment();
    let past = deployment.history.get(&id("id1")).expect("it is in the history");
    assert_eq!((past.definition.get().memory_mb, past.retired_at), (1, rolling.stage.now));
}

#[test]
fn a_crash_outside_of_the_sequence_restarts_with_the_healthy_definition() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    // Before the new definition has run anywhere, the old one is what is known to run.
    assert_eq!(rolling.crashes("id1", 2), ["start id1/2"]);
    rolling.starts("id1", 2);
    rolling.shows(["id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING", "id1 RUNNING"]);
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    // Afterwards the new one is.
    assert_eq!(rolling.crashes("id1", 2), ["start id2/2"]);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id2 UNCLAIMED"]);
    rolling.starts("id2", 2);
    assert_eq!(rolling.starts("id2", 1), ["stop id1/1"]);
    rolling.tells("id1 id2: id2 active, id2 healthy");
}

#[test]
fn an_evacuation_outside_of_the_sequence_restarts_with_the_healthy_definition() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    assert_eq!(rolling.evacuates("id1", 2), ["start id1/2"]);
    rolling.shows([
        "id1 RUNNING, id2 UNCLAIMED",
        "id1 RUNNING",
        "id1 UNCLAIMED, id1 RUNNING EVACUATING",
    ]);
    rolling.starts("id1", 2);
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    assert_eq!(rolling.evacuates("id1", 2), ["start id2/2"]);
    rolling.shows([
        "id2 RUNNING",
        "id1 RUNNING, id2 UNCLAIMED",
        "id1 RUNNING EVACUATING, id2 UNCLAIMED",
    ]);
    // The old one stands in until its replacement runs.
    rolling.claims("id2", 2);
    rolling.starts("id2", 2);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id2 RUNNING"]);
}

#[test]
fn activation_goes_to_a_definition_that_is_there() {
    let mut rolling = Rolling::deployed(2);
    let none = "ResourceNotFound: definition id9 of desired LRP p could not be found";
    assert_eq!(rolling.refuses(activate("id9")), none);
    assert_eq!(rolling.does(activate("id1")), [""; 0], "it is active: nothing to do");
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    rolling.stops("id1", 0);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED"]);
    // Back again: the attempt at index 1 goes, index 0 is replaced.
    let told = rolling.does(activate("id1"));
    assert_eq!(told, ["start id1/0"]);
    rolling.tells("id1 id2: id1 active, id1 healthy, from id2");
    rolling.shows(["id1 UNCLAIMED, id2 RUNNING", "id1 RUNNING"]);
    assert_eq!(rolling.starts("id1", 0), ["stop id2/0"]);
    rolling.stops("id2", 0);
    rolling.tells("id1: id1 active, id1 healthy");
    rolling.shows(["id1 RUNNING"; 2]);
}

#[test]
fn deletion_stops_everything_and_forgets_it() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    let outcome = rolling.stage.does(Command::DeleteDeployment(process()));
    assert!(events(&outcome).contains(&"desired_lrp_removed"));
    let mut told = effects_of(&outcome);
    told.sort();
    assert_eq!(told, ["stop id1/0", "stop id1/1", "stop id2/0"]);
    for (name, index) in [("id1", 0), ("id1", 1), ("id2", 0)] {
        rolling.stops(name, index);
    }
    assert!(rolling.stage.board.records.process(&process()).is_none());
    let none = rolling.stage.refuses(Command::DeleteDeployment(process()));
    assert_eq!(none.to_string(), "desired LRP p could not be found");
}

#[test]
fn a_promotion_with_a_running_instance_is_healthy() {
    // A cell tells of an instance before anybody desires it.
    let mut stage = Stage::new();
    stage.does(start(0, &i1()));
    stage.does(desire(1));
    Rolling { stage, containers: 0 }.tells("p: p active, p healthy");
}

#[test]
fn a_promotion_without_a_running_instance_is_not_healthy() {
    let rolling = Rolling::created(desire(1));
    rolling.tells("p: p active, none healthy");
}

#[test]
fn requests_may_leave_the_definition_out() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(to("id2"));
    // At index 1 there is only the old definition, at index 0 the active one is meant.
    let holder = rolling.holder("id1", 1);
    rolling.does(cell_says(CellRequest::CrashLrp(key(1), holder, "exit 1".into())));
    rolling.shows(["id1 RUNNING, id2 UNCLAIMED", "id1 UNCLAIMED"]);
    let holder = rolling.holder("id2", 0);
    rolling.does(cell_says(CellRequest::ClaimLrp(key(0), holder)));
    rolling.shows(["id1 RUNNING, id2 CLAIMED", "id1 UNCLAIMED"]);
}

#[test]
fn a_failing_definition_is_tried_on_and_harms_nobody() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    // Three restarts at once, then waits that grow: index 0 is tried on and on.
    for _ in 0..30 {
        rolling.claims("id2", 0);
        rolling.crashes("id2", 0);
        rolling.waits(960);
        rolling.shows(["id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING", "id1 RUNNING"]);
        rolling.tells("id1 id2: id2 active, id1 healthy, from id1");
    }
    for index in 0..3 {
        assert_eq!(rolling.crashes("id1", index), [format!("start id1/{index}")]);
        rolling.starts("id1", index);
    }
    rolling.shows(["id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING", "id1 RUNNING"]);
}

#[test]
fn a_flaky_definition_goes_on_past_a_stuck_index() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    for _ in 0..3 {
        rolling.claims("id2", 0);
        rolling.crashes("id2", 0);
        rolling.shows(["id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING", "id1 RUNNING"]);
    }
    rolling.tells("id1 id2: id2 active, id1 healthy, from id1");
    rolling.starts("id2", 0);
    rolling.tells("id1 id2: id2 active, id2 healthy, from id1");
    rolling.stops("id1", 0);
    for _ in 0..3 {
        rolling.claims("id2", 1);
        rolling.crashes("id2", 1);
        rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING"]);
    }
    // It is given up in so far as the others no longer wait for it.
    assert!(rolling.waits(599).iter().all(|it| it == "start id2/1"));
    assert!(rolling.waits(1).contains(&"start id2/2".to_owned()));
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id1 RUNNING, id2 UNCLAIMED"]);
    rolling.starts("id2", 2);
    rolling.stops("id1", 2);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED", "id2 RUNNING"]);
    rolling.tells("id1 id2: id2 active, id2 healthy, from id1");
    // When it comes to run after all, the update is over.
    rolling.starts("id2", 1);
    rolling.stops("id1", 1);
    rolling.shows(["id2 RUNNING"; 3]);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn a_new_definition_in_the_middle_supersedes() {
    let mut rolling = Rolling::deployed(4);
    rolling.does(to("id2"));
    for index in 0..2 {
        rolling.starts("id2", index);
        rolling.stops("id1", index);
    }
    rolling.claims("id2", 2);
    rolling.shows(["id2 RUNNING", "id2 RUNNING", "id1 RUNNING, id2 CLAIMED", "id1 RUNNING"]);
    assert_eq!(rolling.does(to("id3")), ["stop id2/2", "start id3/0"]);
    rolling.shows([
        "id2 RUNNING, id3 UNCLAIMED",
        "id2 RUNNING",
        "id1 RUNNING, id2 CLAIMED stops",
        "id1 RUNNING",
    ]);
    // Cancelled now, it would go back to what was last complete.
    rolling.tells("id1 id2 id3: id3 active, id2 healthy, from id1");
    rolling.stops("id2", 2);
    assert_eq!(rolling.starts("id3", 0), ["stop id2/0", "start id3/1"]);
    rolling.stops("id2", 0);
    rolling.starts("id3", 1);
    rolling.tells("id1 id2 id3: id3 active, id3 healthy, from id1");
    rolling.stops("id2", 1);
    rolling.shows(["id3 RUNNING", "id3 RUNNING", "id1 RUNNING, id3 UNCLAIMED", "id1 RUNNING"]);
    rolling.tells("id1 id3: id3 active, id3 healthy, from id1");
    for index in 2..4 {
        rolling.starts("id3", index);
        rolling.stops("id1", index);
    }
    rolling.shows(["id3 RUNNING"; 4]);
    rolling.tells("id3: id3 active, id3 healthy");
    let deployment = rolling.stage.deployment();
    let past: Vec<&str> = deployment.history.iter().map(|it| it.definition_id.as_str()).collect();
    assert_eq!(past, ["id2", "id1"]);
}
