//! Seed 004, sentence by sentence. On the left what it says, shortened; on the right the test.
//!
//! | sentence | test |
//! |---|---|
//! | the API supports updating a DesiredLRP with a new definition, preserving its identity | `an_update_with_a_definition_keeps_the_identity` |
//! | while in progress, cancel rolls all instances back to the previous state | `cancel_takes_every_instance_back` |
//! | if no update is in progress, cancel returns an error and does nothing | `without_an_update_there_is_nothing_to_cancel` |
//! | after a cancel, version-3; after that completed, rollback to version-2 | `the_example_of_the_seed` |
//! | instances, routes, annotation are optional; older clients do not provide the new field | `an_update_without_a_definition_is_what_it_was` |
//! | a definition replaces the existing one completely; what is undefined is deleted | `a_definition_replaces_the_whole_of_the_old_one` |
//! | ErrUpdateInProgress if an update is in progress | `a_second_update_is_refused_while_one_is_in_progress` |
//! | cancel: instances already updated are reverted to the previous definition | `cancel_takes_every_instance_back` |
//! | rollback to a previous definition, provided it still exists | `rollback_finds_definitions_in_the_history` |
//! | stale definitions are periodically pruned from the database | `the_history_is_bounded_in_count`, `the_history_is_bounded_in_age` |
//! | rollback may error if the definition is no longer stored | `rollback_finds_definitions_in_the_history` |
//! | the ID was created by the user when the update was called | `rollback_finds_definitions_in_the_history` |
//! | DefinitionID and PreviousDefinitionID are both set only during an update | `the_previous_definition_is_shown_while_an_update_is_in_progress` |
//! | other definitions may exist, the DesiredLRP has no reference to them | `the_previous_definition_is_shown_while_an_update_is_in_progress` |
//! | an ActualLRP's definition id is always one of the two | `every_instance_is_of_one_of_the_two_definitions` |
//! | queries: the active definition; previous set means in progress | `the_previous_definition_is_shown_while_an_update_is_in_progress` |
//! | TPS: crash reports are not affected | `a_crash_is_reported_as_ever` |
//! | TPS: status shows which definition; old clients see one | `readers.rs`: `who_knows_nothing_of_definitions_sees_what_serves` |
//! | route emitter, SSH proxy: an instance is mapped to its own definition | `readers.rs`: `every_instance_leads_to_its_own_definition` |

use super::*;

#[test]
fn an_update_with_a_definition_keeps_the_identity() {
    let mut rolling = Rolling::deployed(1);
    let before = rolling.stage.deployment();
    let told = rolling.does(desire_definition("id2"));
    rolling.obeys(told);
    let after = rolling.stage.deployment();
    assert_eq!(after.process_guid, before.process_guid);
    assert_eq!(after.modification_tag.epoch, before.modification_tag.epoch);
    rolling.shows(["id2 RUNNING"]);
    rolling.tells("id2: id2 active, id2 healthy");
}

#[test]
fn cancel_takes_every_instance_back() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(desire_definition("id2"));
    for index in 0..2 {
        rolling.starts("id2", index);
        rolling.stops("id1", index);
    }
    rolling.claims("id2", 2);
    rolling.shows(["id2 RUNNING", "id2 RUNNING", "id1 RUNNING, id2 CLAIMED"]);
    // The last index first, and each as the update itself: the new one runs before the old stops.
    assert_eq!(rolling.does(cancel()), ["stop id2/2", "start id1/1"]);
    rolling.tells("id1 id2: id1 active, id1 healthy, from id2");
    assert_eq!(rolling.stage.deployment().roll.as_ref().map(|it| &*it.reason), Some("cancelled"));
    rolling.stops("id2", 2);
    rolling.shows(["id2 RUNNING", "id1 UNCLAIMED, id2 RUNNING", "id1 RUNNING"]);
    assert_eq!(rolling.starts("id1", 1), ["stop id2/1", "start id1/0"]);
    rolling.stops("id2", 1);
    assert_eq!(rolling.starts("id1", 0), ["stop id2/0"]);
    rolling.stops("id2", 0);
    rolling.shows(["id1 RUNNING"; 3]);
    rolling.tells("id1: id1 active, id1 healthy");
}

#[test]
fn a_cancel_that_is_said_twice_is_one() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(desire_definition("id2"));
    rolling.starts("id2", 0);
    rolling.does(cancel());
    let before = rolling.stage.deployment();
    assert_eq!(rolling.does(cancel()), [""; 0]);
    assert_eq!(rolling.stage.deployment(), before);
}

#[test]
fn a_failing_update_is_cancelled_without_touching_what_runs() {
    let mut rolling = Rolling::deployed(3);
    rolling.does(desire_definition("id2"));
    rolling.claims("id2", 0);
    rolling.crashes("id2", 0);
    assert_eq!(rolling.does(cancel()), [""; 0]);
    rolling.shows(["id1 RUNNING"; 3]);
    rolling.tells("id1: id1 active, id1 healthy");
}

#[test]
fn without_an_update_there_is_nothing_to_cancel() {
    let mut rolling = Rolling::deployed(1);
    let none = "NoUpdateInProgress: no update of desired LRP p is in progress";
    assert_eq!(rolling.refuses(cancel()), none);
    let told = rolling.does(desire_definition("id2"));
    rolling.obeys(told);
    assert_eq!(rolling.refuses(cancel()), none, "it has completed");
    let unknown = Command::CancelUpdate(ProcessGuid::new("x").unwrap());
    assert_eq!(rolling.refuses(unknown), "ResourceNotFound: desired LRP x could not be found");
}

#[test]
fn the_example_of_the_seed() {
    let mut rolling = Rolling::created(desire(3));
    for index in 0..3 {
        rolling.starts("p", index);
    }
    rolling.does(desire_definition("version-2"));
    rolling.starts("version-2", 0);
    rolling.stops("p", 0);
    let told = rolling.does(cancel());
    rolling.obeys(told);
    rolling.shows(["p RUNNING"; 3]);
    let told = rolling.does(desire_definition("version-3"));
    rolling.obeys(told);
    rolling.shows(["version-3 RUNNING"; 3]);
    let told = rolling.does(roll_back("version-2"));
    assert_eq!(told, ["start version-2/0"]);
    rolling.obeys(told);
    rolling.shows(["version-2 RUNNING"; 3]);
    rolling.tells("version-2: version-2 active, version-2 healthy");
    let definition = rolling.stage.deployment().active_definition().unwrap();
    assert_eq!(definition, super::definition("version-2"));
}

#[test]
fn an_update_without_a_definition_is_what_it_was() {
    let mut rolling = Rolling::deployed(1);
    let annotation = Some("My annotation".to_owned());
    let told = rolling.does(update(DesiredLrpUpdate {
        instances: Some(2),
        annotation,
        ..Default::default()
    }));
    assert_eq!(told, ["start id1/1"]);
    rolling.tells("id1: id1 active, id1 healthy");
    assert_eq!(rolling.does(update(DesiredLrpUpdate::default())), [""; 0]);
}

#[test]
fn a_definition_replaces_the_whole_of_the_old_one() {
    let mut rolling = Rolling::created(desire_this(DesiredLrp {
        definition: LrpDefinition {
            image_username: "user".into(),
            image_password: "password".into(),
            ports: vec![8080],
            ..desired("p", "d", 1).definition
        },
        ..desired("p", "d", 1)
    }));
    rolling.starts("p", 0);
    rolling.does(desire_definition("id2"));
    let shown = rolling.stage.deployment().project();
    assert_eq!(shown.definition, definition("id2"));
    assert_eq!((shown.definition.ports.len(), &*shown.definition.image_username), (0, ""));
}

#[test]
fn a_second_update_is_refused_while_one_is_in_progress() {
    let mut rolling = Rolling::deployed(2);
    rolling.does(desire_definition("id2"));
    let busy = "UpdateInProgress: an update of desired LRP p is in progress";
    assert_eq!(rolling.refuses(desire_definition("id3")), busy);
    assert_eq!(rolling.refuses(roll_back("id1")), busy);
    rolling.starts("id2", 0);
    rolling.sweep();
    assert_eq!(rolling.refuses(desire_definition("id3")), busy);
    // The way back is one too.
    rolling.does(cancel());
    assert_eq!(rolling.refuses(desire_definition("id3")), busy);
    // What does not touch the definition goes on.
    rolling.does(scale(3));
    let told = vec!["start id1/0".to_owned(), "start id1/2".to_owned()];
    rolling.obeys(told);
    rolling.shows(["id1 RUNNING"; 3]);
    rolling.does(desire_definition("id3"));
    rolling.tells("id1 id3: id3 active, id1 healthy, from id1");
}

#[test]
fn rollback_finds_definitions_in_the_history() {
    let mut rolling = Rolling::deployed(2);
    for name in ["id2", "id3"] {
        let told = rolling.does(desire_definition(name));
        rolling.obeys(told);
    }
    rolling.tells("id3: id3 active, id3 healthy");
    assert_eq!(rolling.does(roll_back("id3")), [""; 0], "it runs: nothing to do");
    let none = "ResourceNotFound: definition id9 of desired LRP p could not be found";
    assert_eq!(rolling.refuses(roll_back("id9")), none);
    let told = rolling.does(roll_back("id1"));
    rolling.tells("id3 id1: id1 active, id3 healthy, from id3");
    rolling.obeys(told);
    rolling.shows(["id1 RUNNING"; 2]);
    let deployment = rolling.stage.deployment();
    assert_eq!(deployment.active_definition(), Some(definition("id1")));
    let past: Vec<&str> = deployment.history.iter().map(|it| it.definition_id.as_str()).collect();
    assert_eq!(past, ["id2", "id3"], "each definition is in one place");
}

#[test]
fn an_id_of_the_history_may_be_used_anew() {
    let mut rolling = Rolling::deployed(1);
    let told = rolling.does(desire_definition("id2"));
    rolling.obeys(told);
    let other = NamedDefinition { definition_id: id("id1"), definition: definition("id7") };
    let lrp_definition = Some(Box::new(other));
    rolling.does(update(DesiredLrpUpdate { lrp_definition, ..Default::default() }));
    let deployment = rolling.stage.deployment();
    assert_eq!(deployment.active_definition(), Some(definition("id7")));
    assert!(deployment.history.is_empty(), "what it was before is gone");
}

#[test]
fn the_history_is_bounded_in_count() {
    let mut rolling = Rolling::deployed(1);
    for nth in 2..20 {
        let told = rolling.does(desire_definition(&format!("id{nth}")));
        rolling.obeys(told);
    }
    let deployment = rolling.stage.deployment();
    let past: Vec<&str> = deployment.history.iter().map(|it| it.definition_id.as_str()).collect();
    let most = rolling.stage.board.settings.definition_history;
    assert_eq!((past.len(), past[0], past[most - 1]), (most, "id9", "id18"));
    assert!(rolling.refuses(roll_back("id8")).starts_with("ResourceNotFound"));
}

#[test]
fn the_history_is_bounded_in_age() {
    const DAY: u64 = 24 * 60 * 60;
    let mut rolling = Rolling::deployed(1);
    for name in ["id2", "id3"] {
        let told = rolling.does(desire_definition(name));
        rolling.obeys(told);
        rolling.waits(DAY);
    }
    let past = |rolling: &Rolling| {
        let deployment = rolling.stage.deployment();
        deployment.history.iter().map(|it| it.definition_id.to_string()).collect::<Vec<_>>()
    };
    // A restart in between changes nothing.
    rolling.stage = rolling.stage.restarted();
    rolling.waits(28 * DAY - 1);
    assert_eq!(past(&rolling), ["id1", "id2"]);
    rolling.waits(1);
    assert_eq!(past(&rolling), ["id2"]);
    rolling.waits(DAY);
    assert_eq!(past(&rolling), [""; 0]);
    assert!(rolling.refuses(roll_back("id2")).starts_with("ResourceNotFound"));
}

#[test]
fn the_previous_definition_is_shown_while_an_update_is_in_progress() {
    let mut rolling = Rolling::deployed(2);
    let ids = |rolling: &Rolling| {
        let shown = rolling.stage.deployment().project();
        (shown.definition_id.map(String::from), shown.previous_definition_id.map(String::from))
    };
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(ids(&rolling), (some("id1"), None));
    let told = rolling.does(desire_definition("id2"));
    assert_eq!(ids(&rolling), (some("id2"), some("id1")));
    assert_eq!(rolling.stage.deployment().project().definition.memory_mb, 2);
    rolling.obeys(told);
    assert_eq!(ids(&rolling), (some("id2"), None));
    let shown = serde_json::to_value(rolling.stage.deployment().project()).unwrap();
    assert!(shown.get("history").is_none() && shown.get("definitions").is_none());
    // Going back is an update: the previous definition is the one that is left.
    rolling.does(roll_back("id1"));
    assert_eq!(ids(&rolling), (some("id1"), some("id2")));
    rolling.does(cancel());
    assert_eq!(ids(&rolling), (some("id2"), None), "nothing had come of it");
}

#[test]
fn every_instance_is_of_one_of_the_two_definitions() {
    let mut rolling = Rolling::deployed(3);
    let all_known = |rolling: &Rolling| {
        let shown = rolling.stage.deployment().project();
        let two = [shown.definition_id, shown.previous_definition_id];
        let mut all = rolling.stage.board.records.instances();
        assert!(all.all(|lrp| lrp.stopping || two.contains(&Some(lrp.definition_id.clone()))));
    };
    for name in ["id2", "id3"] {
        rolling.does(desire_definition(name));
        let from = if name == "id2" { "id1" } else { "id2" };
        for index in 0..3 {
            all_known(&rolling);
            rolling.claims(name, index);
            rolling.crashes(from, (index + 1) % 3);
            all_known(&rolling);
            rolling.starts(name, index);
            all_known(&rolling);
        }
        rolling.sweep();
        all_known(&rolling);
    }
}

#[test]
fn a_crash_is_reported_as_ever() {
    let mut rolling = Rolling::deployed(1);
    rolling.does(desire_definition("id2"));
    rolling.claims("id2", 0);
    let holder = rolling.holder("id2", 0);
    let crash = CellRequest::CrashLrp(key_of("id2", 0), holder.clone(), "exit 1".into());
    let outcome = rolling.stage.does(cell_says(crash));
    let mut told = outcome.events.iter();
    let told =
        told.find_map(|it| if let Event::Crashed(it) = it { Some(it.clone()) } else { None });
    let told = told.expect("the crash is told");
    assert_eq!((told.key, told.instance, told.crash_count), (key_of("id2", 0), holder, 1));
}
