//! Alert rules and the dashboard: every name in them is exported, and Prometheus understands them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
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
        "volvox_agent_self_test_failures",
        "volvox_agent_inconceivable_total",
    ] {
        assert!(alerted.contains(name), "{name}");
    }
}

/// Prometheus's own tool, from PATH or from where `make tools` unpacks it.
fn promtool() -> Option<PathBuf> {
    let ours = root().join("target/tools/promtool");
    let places = ["promtool".into(), ours];
    places.into_iter().find(|it| Command::new(it).arg("--version").output().is_ok())
}

#[track_caller]
fn ask(promtool: &Path, words: [&str; 3], folder: &Path) {
    let said = Command::new(promtool).args(words).current_dir(folder).output().unwrap();
    let told = [said.stdout, said.stderr].concat();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&told));
}

const NO_PROMTOOL: &str = "no promtool here (`make tools` unpacks it; Debian: prometheus)";

#[test]
fn prometheus_understands_the_rules_and_they_fire_when_they_should() {
    let name = "prometheus_understands_the_rules_and_they_fire_when_they_should";
    let Some(promtool) = promtool() else {
        skip(name, NO_PROMTOOL);
        return;
    };
    let folder = root().join("packaging/monitoring");
    for words in [["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]] {
        ask(&promtool, words, &folder);
    }
}

/// A rule that was never seen to fire may be one that cannot: what fires in `alerts_test.yml` is written
/// as `alertname:` on a line of its own, and is followed by what is expected.
#[test]
fn every_alert_is_seen_to_fire() {
    let read = |file: &str| {
        std::fs::read_to_string(root().join("packaging/monitoring").join(file)).unwrap()
    };
    let (rules, tries) = (read("alerts.yml"), read("alerts_test.yml"));
    let after = |text: &str, word: &str| -> BTreeSet<String> {
        let names = text.lines().filter_map(|line| line.trim_start().strip_prefix(word));
        names.map(|it| it.trim().to_owned()).collect()
    };
    let fired = after(&tries, "alertname:");
    let alerts = after(&rules, "- alert:");
    assert!(alerts.len() > 20, "{alerts:?}");
    assert_eq!(fired, alerts);
}

/// The expressions of the dashboard as rules that record, which is what promtool can check. A variable of
/// Grafana's own is a duration or a number; ours are texts in quotes, where any word will do.
fn recorded(dashboard: &Value) -> String {
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let inside = |panel: &Value| panel["targets"].as_array().cloned().unwrap_or_default();
    for (nth, target) in panels.flat_map(inside).enumerate() {
        let mut expression = target["expr"].as_str().unwrap().to_owned();
        for (variable, value) in [
            ("$__rate_interval", "5m"),
            ("$__interval", "1m"),
            ("$__range", "6h"),
            ("$cell", "any"),
            ("$app", "any"),
        ] {
            expression = expression.replace(variable, value);
        }
        assert!(!expression.contains('$'), "{expression}: what is this variable?");
        // A text of JSON is one of YAML too.
        let expression = Value::from(expression);
        let _ = writeln!(rules, "      - record: dashboard:{nth}\n        expr: {expression}");
    }
    rules
}

#[test]
fn prometheus_understands_every_expression_of_the_dashboard() {
    let name = "prometheus_understands_every_expression_of_the_dashboard";
    let Some(promtool) = promtool() else {
        skip(name, NO_PROMTOOL);
        return;
    };
    let text = std::fs::read_to_string(root().join("packaging/monitoring/dashboard.json")).unwrap();
    let rules = recorded(&serde_json::from_str(&text).unwrap());
    assert!(rules.matches("- record:").count() > 30, "{rules}");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("dashboard.yml"), rules).unwrap();
    ask(&promtool, ["check", "rules", "dashboard.yml"], folder.path());
}
