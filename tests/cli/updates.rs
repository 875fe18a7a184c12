//! Rolling updates: watched, taken back, promoted.

use serde_json::{Value, json};
use volvox_tests::fleet::CellPlan;
use volvox_tests::wait::until;

use crate::stage::Stage;

/// The definitions that instances are made from, in the order of their indices.
fn definitions(stage: &Stage) -> Vec<String> {
    let mut found: Vec<(u64, String)> = stage
        .instances("web")
        .iter()
        .map(|it| (it["index"].as_u64().unwrap(), it["definition_id"].as_str().unwrap().to_owned()))
        .collect();
    found.sort();
    found.into_iter().map(|(_, definition)| definition).collect()
}

fn ids(stage: &Stage) -> Vec<(String, String)> {
    let told = stage.done(&["history", "web", "--json"]).json();
    let all = told["definitions"].as_array().unwrap().iter();
    let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    all.map(|it| (text(it, "role"), text(it, "definition_id"))).collect()
}

fn active(stage: &Stage) -> String {
    stage.done(&["apps", "--json"]).json()["apps"][0]["definition_id"].as_str().unwrap().to_owned()
}

#[test]
fn an_update_rolls_index_by_index_and_can_be_gone_back_from() {
    let stage = Stage::of_cells(&["a", "b"]);
    stage.done(&["apply", "-f", &stage.app(3, 64, ""), "--wait"]);
    let old = active(&stage);
    let lines = stage.done(&["apply", "-f", &stage.app(3, 128, ""), "--wait", "--json"]).lines();
    let new = active(&stage);
    assert_ne!(old, new);
    let change = json!([{"path": "memory_mb", "before": 64, "after": 128}]);
    assert_eq!((&lines[0]["action"], &lines[0]["changes"]), (&json!("updated"), &change));
    // One index after the other comes to run from the new definition.
    let up =
        lines.iter().filter(|it| it["state"] == "RUNNING" && it["definition_id"] == new.as_str());
    let up: Vec<u64> = up.map(|it| it["index"].as_u64().unwrap()).collect();
    assert_eq!(up, [0, 1, 2], "{lines:#?}");
    assert_eq!(definitions(&stage), [new.clone(), new.clone(), new.clone()]);
    until(
        || ids(&stage).contains(&("past".to_owned(), old.clone())),
        || format!("{:?}", ids(&stage)),
    );
    let said = stage.done(&["diff", "web"]);
    assert_eq!(said.out, format!("web: {old} → {new}\n  ~ memory_mb: 64 → 128\n"));
    let said = stage.done(&["rollback", "web", "--wait"]);
    assert!(said.out.starts_with(&format!("web goes back from {new} to {old}\n")), "{said:?}");
    assert_eq!(definitions(&stage), [old.clone(), old.clone(), old.clone()]);
    // And forward again, by its name.
    until(|| ids(&stage).iter().any(|(_, id)| *id == new), || format!("{:?}", ids(&stage)));
    stage.done(&["rollback", "web", &new, "--wait"]);
    assert_eq!(active(&stage), new);
    assert_eq!(stage.volvox(&["rollback", "web", &new]).code, 4);
    let said = stage.volvox(&["rollback", "web", "nope"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert_eq!(stage.volvox(&["cancel", "web"]).code, 4, "no update is under way");
}

#[test]
fn canaries_wait_for_promotion_and_an_update_is_taken_back() {
    let stage = Stage::of_cells(&["a", "b"]);
    let canary = "[rollout]\ncanaries = 1\n";
    stage.done(&["apply", "-f", &stage.app(3, 64, canary), "--wait"]);
    let old = active(&stage);
    let said =
        stage.volvox(&["apply", "-f", &stage.app(3, 128, canary), "--wait", "--timeout", "5s"]);
    assert_eq!(said.code, 6, "nobody promotes it: {said:?}");
    assert!(said.err.contains("`volvox promote web` lets the update go on"), "{said:?}");
    let new = active(&stage);
    let apps = stage.done(&["apps"]).out;
    assert!(apps.contains("rolling 1/3, waits for promotion"), "{apps}");
    let said = stage.volvox(&["rollback", "web"]);
    assert!(said.code == 4 && said.err.contains("volvox cancel web"), "{said:?}");
    let table = stage.done(&["ps", "web"]).out;
    assert!(table.contains("DEFINITION"), "while it rolls: {table}");
    stage.done(&["promote", "web", "--wait"]);
    assert_eq!(definitions(&stage), [new.clone(), new.clone(), new.clone()]);
    // Another one, paused at its canary, superseded, and then taken back.
    stage.volvox(&["apply", "-f", &stage.app(3, 256, canary), "--wait", "--timeout", "1s"]);
    let said = stage.done(&["apply", "-f", &stage.app(3, 512, canary)]);
    assert!(said.err.contains("supersedes the update"), "{said:?}");
    stage.done(&["pause", "web"]);
    stage.done(&["resume", "web"]);
    let said = stage.done(&["cancel", "web", "--wait"]);
    assert!(said.out.starts_with("the update of web goes back\n"), "{said:?}");
    assert_eq!(definitions(&stage), [new.clone(), new.clone(), new]);
    assert_ne!(active(&stage), old);
}

#[test]
fn an_update_that_goes_back_by_itself_ends_the_wait() {
    // A new coordinator lets so much time pass before it says that an update has stalled.
    let mut stage = Stage::with("convergence.stale_after_s = 1\n");
    stage.join(CellPlan::named("a"));
    stage.done(&["apply", "-f", &stage.app(2, 64, ""), "--wait"]);
    let old = active(&stage);
    // No cell has this tag: it can never start.
    let more = "tags = [\"unheard-of\"]\n[rollout]\nprogress_deadline = \"1s\"\n\
                rollback_on_failure = true\n";
    let file = stage.app(2, 64, more);
    let said = stage.volvox(&["apply", "-f", &file, "--wait", "--timeout", "1m"]);
    assert_eq!(said.code, 6, "{said:?}");
    assert!(said.out.contains("no compatible cell with placement tag"), "{said:?}");
    assert!(said.err.contains("the update of web was taken back"), "{said:?}");
    until(|| definitions(&stage) == [old.clone(), old.clone()], || "it did not go back".to_owned());
}
