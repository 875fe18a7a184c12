//! How far an app has come, from values.

use serde_json::{Value, json};
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::deployment::{Definition, Rollout};
use volvox_protocol::time::Timestamp;

use super::*;

fn id(text: &str) -> DefinitionId {
    DefinitionId::new(text).unwrap()
}

fn app(instances: u32) -> LrpDeployment {
    let mut deployment: LrpDeployment = serde_json::from_value(json!({
        "process_guid": "web", "domain": "d", "instances": instances, "definitions": {"new": {}},
        "active_definition_id": "new",
    }))
    .unwrap();
    deployment.definitions.insert(id("old"), Definition::new(&LrpDefinition::default()));
    deployment
}

fn lrp(index: u32, definition: &str, state: &str, more: Value) -> Arc<ActualLrp> {
    let mut value = json!({
        "process_guid": "web", "index": index, "domain": "d", "definition_id": definition,
        "state": state, "instance_guid": format!("{definition}-{index}"), "cell_id": "a",
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    Arc::new(serde_json::from_value(value).unwrap())
}

fn states(look: &Snapshot) -> Vec<String> {
    look.steps.iter().map(IndexProgress::line).collect()
}

fn rolling(border: u32, in_flight: &[u32]) -> LrpDeployment {
    let mut deployment = app(3);
    let mut roll = Rollout::rising(Timestamp::ZERO, id("old"));
    for index in 0..border {
        roll.take_up(Timestamp::ZERO, index);
        if !in_flight.contains(&index) {
            roll.land(index);
        }
    }
    deployment.roll = Some(Box::new(roll));
    deployment
}

#[test]
fn a_new_app_is_done_when_all_of_it_runs() {
    let running = |index| lrp(index, "new", "RUNNING", json!({}));
    let claimed = lrp(1, "new", "CLAIMED", json!({}));
    let half = look(&app(2), &[running(0), claimed], None);
    assert_eq!((&half.verdict, half.done), (&WaitState::Going, (1, 2)));
    assert_eq!(states(&half), ["web/0 running on a (new)", "web/1 claimed on a (new)"]);
    assert_eq!(look(&app(2), &[running(0), running(1)], None).verdict, WaitState::Done);
    assert_eq!(look(&app(0), &[], None).verdict, WaitState::Done, "none are wanted");
    let unready = lrp(1, "new", "RUNNING", json!({"routable": false}));
    assert_eq!(look(&app(2), &[running(0), unready], None).verdict, WaitState::Going);
    let beyond = look(&app(1), &[running(0), running(1)], None);
    assert_eq!(beyond.verdict, WaitState::Going, "what is too much has to go");
    assert_eq!(states(&beyond)[1], "web/1 stopping on a (new)");
}

#[test]
fn what_holds_it_up_is_told() {
    let nowhere = lrp(0, "new", "UNCLAIMED", json!({"placement_error": "no room", "cell_id": ""}));
    let seen = look(&app(1), &[nowhere], None);
    assert_eq!(states(&seen), ["web/0 unclaimed (new): no room"]);
    assert_eq!(seen.verdict, WaitState::Going);
    let crashed = lrp(0, "new", "CRASHED", json!({"crash_count": 4, "crash_reason": "exit 1"}));
    let failed = look(&app(1), &[crashed], None).verdict;
    assert_eq!(failed, WaitState::Failed("web/0 has crashed 4 times in a row: exit 1".to_owned()));
}

#[test]
fn an_update_is_told_index_by_index() {
    let old = |index| lrp(index, "old", "RUNNING", json!({}));
    let there =
        [lrp(0, "new", "RUNNING", json!({})), lrp(1, "new", "CLAIMED", json!({})), old(1), old(2)];
    let seen = look(&rolling(2, &[1]), &there, Some(&id("new")));
    assert_eq!((&seen.verdict, seen.done), (&WaitState::Going, (1, 3)));
    let expected =
        ["web/0 running on a (new)", "web/1 claimed on a (new)", "web/2 waiting on a (old)"];
    assert_eq!(states(&seen), expected);
}

#[test]
fn an_update_that_waits_or_fails_says_so() {
    let mut paused = rolling(1, &[]);
    let set = |deployment: &mut LrpDeployment, pause| {
        deployment.roll.as_mut().unwrap().pause = Some(pause);
    };
    set(&mut paused, RolloutPause::Canary);
    let WaitState::Waits(what) = look(&paused, &[], None).verdict else { panic!("does not wait") };
    assert!(what.contains("volvox promote web"), "{what}");
    set(&mut paused, RolloutPause::Asked);
    assert!(matches!(look(&paused, &[], None).verdict, WaitState::Waits(_)));
    set(&mut paused, RolloutPause::Stalled);
    assert!(matches!(look(&paused, &[], None).verdict, WaitState::Failed(_)));
    let mut back = app(3);
    back.active_definition_id = id("old");
    back.roll = Some(Box::new(Rollout::falling(Timestamp::ZERO, id("new"), 3, "no progress")));
    let overtaken = |deployment: &LrpDeployment| {
        let seen = look(deployment, &[], Some(&id("new")));
        assert!(seen.steps.is_empty(), "what is not wanted is not told of");
        let WaitState::Overtaken(why) = seen.verdict else { panic!("goes on") };
        why
    };
    assert_eq!(overtaken(&back), "the update of web was taken back to old: no progress");
    back.roll = None;
    assert_eq!(overtaken(&back), "the update of web was taken back: it runs old");
    back.roll = Some(Box::new(Rollout::rising(Timestamp::ZERO, id("new"))));
    assert_eq!(overtaken(&back), "web is to run old now, not new");
}
