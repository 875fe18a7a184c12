//! Holds answers against the OpenAPI document: as much of JSON Schema as our document uses.

use serde_json::Value;

/// Every way in which `value` is not what `schema` says.
pub(crate) fn faults(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    walk(document, schema, value, "", &mut faults);
    faults
}

fn walk(document: &Value, schema: &Value, value: &Value, at: &str, faults: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.strip_prefix("#/components/schemas/").expect("our references");
        let target = &document["components"]["schemas"][name];
        assert!(target.is_object(), "{name} is referred to and not there");
        return walk(document, target, value, at, faults);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        if !choices.iter().any(|choice| self::faults(document, choice, value).is_empty()) {
            faults.push(format!("{at}: {value} is none of {choices:?}"));
        }
        return;
    }
    let is = |kind: &Value| match kind.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        other => panic!("{other:?} is no type of ours"),
    };
    let fits = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(is),
        kind => is(kind),
    };
    if !fits {
        faults.push(format!("{at}: {value} is no {}", schema["type"]));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        faults.push(format!("{at}: {value} is none of {allowed:?}"));
    }
    if let (Some(least), Some(given)) = (schema["minimum"].as_i64(), value.as_i64())
        && given < least
    {
        faults.push(format!("{at}: {given} is below {least}"));
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.is_object() && value.get(key).is_none() {
            faults.push(format!("{at}: there is no {key}"));
        }
    }
    for (key, inner) in value.as_object().into_iter().flatten() {
        let at = format!("{at}.{key}");
        match (schema["properties"].get(key), &schema["additionalProperties"]) {
            (Some(schema), _) => walk(document, schema, inner, &at, faults),
            (None, Value::Bool(false)) => faults.push(format!("{at}: is not described")),
            (None, Value::Object(_)) => {
                walk(document, &schema["additionalProperties"], inner, &at, faults);
            }
            // Records have only keys that are described; what is any JSON has none.
            (None, _) if schema["properties"].is_object() => {
                faults.push(format!("{at}: is not described"));
            }
            (None, _) => {}
        }
    }
    if let (Some(schema), Some(entries)) = (schema.get("items"), value.as_array()) {
        for (nth, entry) in entries.iter().enumerate() {
            walk(document, schema, entry, &format!("{at}[{nth}]"), faults);
        }
    }
}

#[test]
fn the_check_finds_what_is_wrong() {
    let document = serde_json::json!({"components": {"schemas": {"A": {
        "type": "object", "required": ["a"],
        "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"type": ["string", "null"]}},
    }}}});
    let schema = serde_json::json!({"$ref": "#/components/schemas/A"});
    let count = |value| faults(&document, &schema, &value).len();
    assert_eq!(count(serde_json::json!({"a": 1, "b": null})), 0);
    assert_eq!(count(serde_json::json!({"a": -1})), 1);
    assert_eq!(count(serde_json::json!({"b": 3, "c": 1})), 3);
    assert_eq!(count(serde_json::json!([])), 1);
}
