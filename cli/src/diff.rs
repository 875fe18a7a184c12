//! What differs between two records, key by key, for people and for programs. Pure.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use serde::Serialize;
use serde_json::{Map, Value};

use crate::output::Style;

/// One key that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Change {
    /// Where, such as `env.PORT` or `action.run.args[1]`.
    pub(crate) path: String,
    /// What was there; left out: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) before: Option<Value>,
    /// What is there now; left out: nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Value>,
}

/// Keys whose values are nobody's business.
const SECRET: [&str; 1] = ["image_password"];
/// Letters of a value that are shown to people.
const MOST_LETTERS: usize = 120;

/// What differs. An empty text, list or map, zero and `false` are as good as nothing: records leave
/// some of them out.
pub(crate) fn diff(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    walk("", Some(before), Some(after), &mut found);
    found
}

fn walk(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Change>) {
    let (before, after) = (before.filter(|it| !is_nothing(it)), after.filter(|it| !is_nothing(it)));
    let empty = Map::new();
    let object = |value: Option<&Value>| match value {
        None => Some(Map::new()),
        Some(Value::Object(map)) => Some(map.clone()),
        Some(Value::Array(list)) => named(list),
        Some(_) => None,
    };
    let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (before, after) {
        (None, None) => {}
        (before, after) if before == after => {}
        (Some(Value::Array(old)), Some(Value::Array(new)))
            if named(old).is_none() || named(new).is_none() =>
        {
            for nth in 0..old.len().max(new.len()) {
                walk(&format!("{path}[{nth}]"), old.get(nth), new.get(nth), found);
            }
        }
        (before, after) => match (object(before), object(after)) {
            (Some(old), Some(new)) if !(old == empty && new == empty) => {
                let keys: std::collections::BTreeSet<&String> =
                    old.keys().chain(new.keys()).collect();
                for key in keys {
                    walk(&below(key), old.get(key), new.get(key), found);
                }
            }
            _ => {
                let shown = |value: Option<&Value>| {
                    let secret = SECRET.iter().any(|key| path.ends_with(key));
                    value.map(|it| if secret { Value::from("…") } else { it.clone() })
                };
                found.push(Change {
                    path: path.to_owned(),
                    before: shown(before),
                    after: shown(after),
                });
            }
        },
    }
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(switch) => !switch,
        Value::Number(number) => number.as_u64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// A list of names with values, such as an environment, as a map: its order makes no difference.
fn named(list: &[Value]) -> Option<Map<String, Value>> {
    let mut map = Map::new();
    for entry in list {
        let entry =
            entry.as_object().filter(|it| it.keys().all(|key| key == "name" || key == "value"))?;
        let value = entry.get("value").cloned().unwrap_or_else(|| Value::from(""));
        if map.insert(entry.get("name")?.as_str()?.to_owned(), value).is_some() {
            return None;
        }
    }
    Some(map)
}

/// The lines that tell people.
pub(crate) fn lines(changes: &[Change]) -> Vec<(Style, String)> {
    let show = |value: &Value| {
        let text = value.to_string();
        if text.chars().count() <= MOST_LETTERS {
            return text;
        }
        format!("{}…", text.chars().take(MOST_LETTERS).collect::<String>())
    };
    let line = |change: &Change| match (&change.before, &change.after) {
        (None, Some(new)) => (Style::Good, format!("  + {}: {}", change.path, show(new))),
        (Some(old), None) => (Style::Bad, format!("  - {}: {}", change.path, show(old))),
        (Some(old), Some(new)) => {
            (Style::Waiting, format!("  ~ {}: {} → {}", change.path, show(old), show(new)))
        }
        (None, None) => (Style::Plain, format!("    {}", change.path)),
    };
    changes.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(before: Value, after: Value, expected: &[&str]) {
        let found: Vec<String> =
            lines(&diff(&before, &after)).into_iter().map(|(_, line)| line).collect();
        assert_eq!(found, expected);
        assert!(diff(&before, &before).is_empty() && diff(&after, &after).is_empty());
    }

    #[test]
    fn each_key_that_differs_is_named() {
        check(
            json!({"memory_mb": 64, "rootfs": "host:", "ports": [1, 2], "gone": "x"}),
            json!({"memory_mb": 128, "rootfs": "host:", "ports": [1, 3, 4], "new": {"a": 1}}),
            &[
                "  - gone: \"x\"",
                "  ~ memory_mb: 64 → 128",
                "  + new.a: 1",
                "  ~ ports[1]: 2 → 3",
                "  + ports[2]: 4",
            ],
        );
    }

    #[test]
    fn an_environment_is_compared_by_name() {
        check(
            json!({"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}),
            json!({"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "3"}, {"name": "C", "value": "4"}]}),
            &["  ~ env.A: \"1\" → \"3\"", "  + env.C: \"4\""],
        );
        check(json!({}), json!({"env": [{"name": "A", "value": "1"}]}), &["  + env.A: \"1\""]);
    }

    #[test]
    fn what_is_empty_is_nothing_and_secrets_stay_secret() {
        check(json!({"a": 0, "b": "", "c": [], "d": false}), json!({"e": null}), &[]);
        check(
            json!({"image_password": "old"}),
            json!({"image_password": "new"}),
            &["  ~ image_password: \"…\" → \"…\""],
        );
        check(json!({"a": "x"}), json!({"a": {"b": 1}}), &["  ~ a: \"x\" → {\"b\":1}"]);
    }

    #[test]
    fn long_values_are_cut_for_people() {
        let found = lines(&diff(&json!({}), &json!({"a": "x".repeat(1_000)})));
        assert!(found[0].1.chars().count() < 140 && found[0].1.ends_with('…'));
    }
}
