//! What apply decides, from values.

use std::sync::Arc;

use serde_json::json;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::deployment::Definition;
use volvox_protocol::modification_tag::ModificationTag;

use super::*;

fn app(more: Value) -> App {
    let mut given = json!({"name": "web", "rootfs": "host:", "command": ["/a"]});
    if let (Value::Object(given), Value::Object(more)) = (&mut given, more) {
        given.extend(more);
    }
    let Value::Object(given) = given else { panic!("no object") };
    appfile::app(given).unwrap()
}

fn deployed(app: &App) -> Arc<LrpDeployment> {
    Arc::new(LrpDeployment::create(app.asked.clone(), ModificationTag::default()))
}

#[test]
fn the_same_again_changes_nothing() {
    let mut again = app(json!({"instances": 2}));
    let found = deployed(&again);
    assert_eq!(plan(&mut again, Some(&found)).unwrap(), Plan::Nothing);
    assert!(changes(&again, Some(&found)).is_empty());
    assert_eq!(plan(&mut again, None).unwrap(), Plan::Create);
    // Whoever made it may have called its definition otherwise.
    let named = deployed(&app(json!({"instances": 2, "definition_id": "v1"})));
    assert_eq!(plan(&mut again, Some(&named)).unwrap(), Plan::Nothing);
    assert_eq!(again.asked.definition_id.as_str(), "v1");
}

#[test]
fn only_what_differs_is_sent() {
    let found = deployed(&app(json!({"instances": 2, "memory": 64})));
    let mut scaled = app(json!({"instances": 5, "memory": 64}));
    let Plan::Update { update, activate } = plan(&mut scaled, Some(&found)).unwrap() else {
        panic!("no update");
    };
    let expected = LrpDeploymentUpdate { instances: Some(5), ..LrpDeploymentUpdate::default() };
    assert_eq!((*update, activate), (expected, None));
    let mut larger = app(json!({"memory": 128, "rollout": {"max_in_flight": 2}}));
    let Plan::Update { update, .. } = plan(&mut larger, Some(&found)).unwrap() else {
        panic!("no update");
    };
    assert_eq!(update.definition_id.as_ref(), Some(&larger.asked.definition_id));
    assert_eq!(update.instances, None, "a file that does not say how many leaves them be");
    assert_eq!(update.rollout.unwrap().max_in_flight, 2);
    let told: Vec<String> =
        diff::lines(&changes(&larger, Some(&found))).into_iter().map(|(_, line)| line).collect();
    assert_eq!(told, ["  ~ memory_mb: 64 → 128", "  + rollout.max_in_flight: 2"]);
}

#[test]
fn a_definition_that_is_in_use_is_activated() {
    let old = app(json!({"memory": 64}));
    let mut found = LrpDeployment::create(old.asked.clone(), ModificationTag::default());
    let new = app(json!({"memory": 128}));
    let definition = Definition::new(&new.asked.definition);
    found.definitions.insert(new.asked.definition_id.clone(), definition);
    let mut wanted = new.clone();
    let Plan::Update { update, activate } = plan(&mut wanted, Some(&found)).unwrap() else {
        panic!("no update");
    };
    assert_eq!(activate.as_ref(), Some(&new.asked.definition_id));
    assert_eq!(*update, LrpDeploymentUpdate::default());
}

#[test]
fn what_cannot_be_changed_is_refused() {
    let found = deployed(&app(json!({"definition_id": "v1"})));
    for (more, expected) in [
        (json!({"domain": "other"}), "web is of domain \"default\", not \"other\""),
        (json!({"strategy": "recreate"}), "web: the strategy of an app cannot be changed"),
        (
            json!({"definition_id": "v1", "memory": 1}),
            "web has another definition that is called v1",
        ),
    ] {
        let failure = plan(&mut app(more), Some(&found)).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (Code::Refused, expected));
        assert!(!failure.hint.is_empty());
    }
    assert_ne!(LrpDefinition::default(), app(json!({})).asked.definition);
}
