//! Alert rules and the dashboard: every name in them is exported, and Prometheus understands them.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use volvox_tests::skip;

use crate::markdown::root;

/// The names that `docs/reference/metrics.md` has; `cluster.rs` holds that page against what is served.
fn exported() -> BTreeSet<String> {
    let page = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut names = BTreeSet::new();
    for row in rows {
        let name = row.split('`').next().unwrap();
        names.insert(name.to_owned());
        if row.contains("| histogram |") {
            names.extend(["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")));
        }
    }
    names
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The words in a text that begin as our metrics do.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !is_word(c));
    words.filter(|it| it.starts_with("volvox_")).map(str::to_owned).collect()
}

#[track_caller]
fn check(what: &str, text: &str) {
    let (used, exported) = (names(text), exported());
    assert!(used.len() > 15, "{what}: only {used:?}");
    let unknown: Vec<_> = used.difference(&exported).collect();
    assert!(unknown.is_empty(), "{what} names what nobody exports: {unknown:?}");
}

#[test]
fn alerts_and_dashboard_name_only_what_is_exported() {
    for file in ["alerts.yml", "alerts_test.yml"] {
        let text = std::fs::read_to_string(root().join("packaging/monitoring").join(file)).unwrap();
        let used = names(&text);
        let unknown: Vec<_> = used.difference(&exported()).cloned().collect();
        assert!(unknown.is_empty(), "{file} names what nobody exports: {unknown:?}");
    }
    let text = std::fs::read_to_string(root().join("packaging/monitoring/dashboard.json")).unwrap();
    check("dashboard.json", &text);
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    for panel in panels.iter().filter(|it| it["type"] != "row") {
        assert!(!panel["targets"].as_array().unwrap().is_empty(), "{} is empty", panel["title"]);
    }
}

/// Every number that is a trouble by itself has an alert, so that one does not forget a new one.
#[test]
fn what_must_never_rise_has_an_alert() {
    let text = std::fs::read_to_string(root().join("packaging/monitoring/alerts.yml")).unwrap();
    let alerted = names(&text);
    for name in [
        "volvox_cells_held",
        "volvox_cell_impostors_total",
        "volvox_cell_orders_lost_total",
        "volvox_board_effects_lost_total",
        "volvox_agent_self_test_failures",
        "volvox_agent_inconceivable_total",
    ] {
        assert!(alerted.contains(name), "{name}");
    }
}

#[test]
fn prometheus_understands_the_rules_and_they_fire_when_they_should() {
    let name = "prometheus_understands_the_rules_and_they_fire_when_they_should";
    if Command::new("promtool").arg("--version").output().is_err() {
        skip(name, "no promtool here (Debian: prometheus)");
        return;
    }
    let folder = root().join("packaging/monitoring");
    for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        let said = Command::new("promtool").args(words).current_dir(&folder).output().unwrap();
        let told = [said.stdout, said.stderr].concat();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&told));
    }
}
