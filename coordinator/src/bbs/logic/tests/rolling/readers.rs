//! What readers see while an update rolls: those that know definitions, and those that do not.

use super::*;
use volvox_protocol::actual_lrp::LrpGroup;

/// The middle of an update: index 0 done, index 1 in flight, index 2 ahead.
fn middle() -> Rolling {
    let mut rolling = Rolling::deployed(3);
    rolling.does(to("id2"));
    rolling.starts("id2", 0);
    rolling.claims("id2", 1);
    rolling.shows(["id1 RUNNING stops, id2 RUNNING", "id1 RUNNING, id2 CLAIMED", "id1 RUNNING"]);
    rolling
}

fn word(group: &LrpGroup) -> String {
    let lrp = group.resolve().expect("a group shows something");
    format!("{}/{} {}", lrp.definition_id, lrp.index, lrp.state.name())
}

#[test]
fn groups_are_one_for_each_definition_and_index() {
    let rolling = middle();
    let process = rolling.stage.board.records.process(&process()).unwrap();
    let groups: Vec<String> = process.groups().iter().map(|(_, group)| word(group)).collect();
    assert_eq!(
        groups,
        ["id1/0 RUNNING", "id1/1 RUNNING", "id1/2 RUNNING", "id2/0 RUNNING", "id2/1 CLAIMED"]
    );
}

#[test]
fn an_index_without_a_definition_means_the_active_one() {
    let rolling = middle();
    let process = rolling.stage.board.records.process(&process()).unwrap();
    let at = |index| process.definition_at(index).map(|of| word(&process.group(of, index)));
    assert_eq!(at(0).as_deref(), Some("id2/0 RUNNING"));
    assert_eq!(at(1).as_deref(), Some("id2/1 CLAIMED"), "active, though the other one serves");
    assert_eq!(at(2).as_deref(), Some("id1/2 RUNNING"), "the only one there is");
    assert_eq!(at(3), None);
}

#[test]
fn retire_takes_the_active_definition_when_there_are_two() {
    let mut rolling = middle();
    assert_eq!(rolling.does(Command::RetireLrp(key(1))), ["stop id2/1"]);
    assert_eq!(rolling.does(Command::RetireLrp(key(2))), ["stop id1/2", "start id2/2"]);
    assert_eq!(rolling.does(Command::RetireLrp(key_of("id1", 1))), ["stop id1/1"]);
    let none = rolling.stage.refuses(Command::RetireLrp(key(3)));
    assert_eq!(none.to_string(), "actual LRP p/3 could not be found");
}

#[test]
fn who_knows_nothing_of_definitions_sees_what_serves() {
    let mut rolling = middle();
    let seen = |rolling: &Rolling| {
        let process = rolling.stage.board.records.process(&process()).unwrap();
        let resolved = process.resolved();
        resolved.iter().map(|it| format!("{} {}", it.definition_id, it.state.name())).collect()
    };
    let words: Vec<String> = seen(&rolling);
    assert_eq!(words, ["id2 RUNNING", "id1 RUNNING", "id1 RUNNING"]);
    rolling.starts("id2", 1);
    let words: Vec<String> = seen(&rolling);
    assert_eq!(words, ["id2 RUNNING", "id2 RUNNING", "id1 RUNNING"]);
}

#[test]
fn every_instance_leads_to_its_own_definition() {
    let rolling = middle();
    let deployment = rolling.stage.deployment();
    for lrp in rolling.stage.board.records.instances() {
        let own = deployment.definitions.get(&lrp.definition_id).expect("it is known");
        assert_eq!(own.unpack(), definition(lrp.definition_id.as_str()));
    }
}

/// The older stream, as a reader follows it that keeps one record for each index.
#[test]
fn the_older_stream_tells_one_instance_for_each_index() {
    let mut rolling = Rolling::deployed(2);
    let told = |outcome: &ApplyResult| -> Vec<String> {
        let group = |event: &Event| match event {
            Event::GroupCreated(new) => Some(format!("created {}", word(new))),
            Event::GroupChanged(old, new) => Some(format!("{} -> {}", word(old), word(new))),
            Event::GroupRemoved(old) => Some(format!("removed {}", word(old))),
            Event::DesiredLrpCreated(_)
            | Event::DesiredLrpChanged(..)
            | Event::DesiredLrpRemoved(_)
            | Event::InstanceCreated(_)
            | Event::InstanceChanged(..)
            | Event::InstanceRemoved(_)
            | Event::Crashed(_)
            | Event::TaskCreated(_)
            | Event::TaskChanged(..)
            | Event::TaskRemoved(_) => None,
        };
        outcome.events.iter().filter_map(group).collect()
    };
    let none: [&str; 0] = [];
    assert_eq!(told(&rolling.stage.does(to("id2"))), none);
    assert_eq!(told(&rolling.stage.converge()), none, "the new one waits behind what serves");
    let holder = rolling.holder("id2", 0);
    let claim = CellRequest::ClaimLrp(key_of("id2", 0), holder.clone());
    assert_eq!(told(&rolling.stage.does(cell_says(claim))), none);
    let start = CellRequest::StartLrp(key_of("id2", 0), holder, running());
    let outcome = rolling.stage.does(cell_says(start));
    assert_eq!(told(&outcome), ["id1/0 RUNNING -> id2/0 RUNNING"]);
    assert_eq!(told(&rolling.stage.converge()), none, "the old one stops unseen");
    let holder = rolling.holder("id1", 0);
    let stop = CellRequest::RemoveLrp(key_of("id1", 0), holder);
    assert_eq!(told(&rolling.stage.does(cell_says(stop))), none);
    rolling.shows(["id2 RUNNING", "id1 RUNNING, id2 UNCLAIMED"]);
    // An index with one definition is told as ever.
    let holder = rolling.holder("id2", 0);
    let crash = CellRequest::CrashLrp(key_of("id2", 0), holder, "exit 1".into());
    let outcome = rolling.stage.does(cell_says(crash));
    assert_eq!(told(&outcome), ["id2/0 RUNNING -> id2/0 UNCLAIMED"]);
}

#[test]
fn every_step_of_an_update_is_told_as_a_change_of_what_is_desired() {
    let mut rolling = Rolling::deployed(1);
    let names = |outcome: &ApplyResult| {
        let is_desired = |event: &&Event| event.name().starts_with("desired");
        outcome.events.iter().filter(is_desired).count()
    };
    assert_eq!(names(&rolling.stage.does(to("id2"))), 1, "begun");
    assert_eq!(names(&rolling.stage.converge()), 1, "index 0 taken up");
    let holder = rolling.holder("id2", 0);
    let start = CellRequest::StartLrp(key_of("id2", 0), holder, running());
    assert_eq!(names(&rolling.stage.does(cell_says(start))), 1, "healthy");
    assert_eq!(names(&rolling.stage.converge()), 2, "landed, finished");
}
