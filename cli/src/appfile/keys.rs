//! Keys that nobody knows, found by the descriptions that `protocol` makes of its records: a key
//! that is refused here is one that the coordinator would silently ignore.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use serde_json::{Map, Value};
use volvox_protocol::schema::{Components, Schema};

use crate::error::Failure;
use crate::nearest::nearest;

/// What a record may hold.
pub(super) struct SchemaKeys {
    schema: Value,
    components: Components,
}

impl SchemaKeys {
    pub(super) fn of<T: Schema>() -> Self {
        let mut components = Components::default();
        let schema = T::schema(&mut components);
        SchemaKeys { schema, components }
    }

    /// The keys of the record itself.
    pub(super) fn names(&self) -> Vec<&str> {
        let properties = self.find(&self.schema).and_then(|it| it["properties"].as_object());
        properties.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// Refuses the first key, however deep, that a record like this does not have.
    pub(super) fn check(&self, given: &Map<String, Value>) -> Result<(), Failure> {
        for (key, value) in given {
            let schemas = self.below(&[&self.schema], key);
            self.walk(&schemas, value, key)?;
        }
        Ok(())
    }

    /// What a reference points at; anything else is itself.
    fn find<'a>(&'a self, schema: &'a Value) -> Option<&'a Value> {
        match schema["$ref"].as_str() {
            Some(path) => self.components.get(path.rsplit('/').next()?),
            None => Some(schema),
        }
    }

    /// All that this may be: the choices of a choice, without `null`.
    fn choices<'a>(&'a self, schema: &'a Value) -> Vec<&'a Value> {
        let Some(schema) = self.find(schema) else { return Vec::new() };
        let choices = ["anyOf", "oneOf", "allOf"].iter().find_map(|key| schema[*key].as_array());
        match choices {
            Some(choices) => choices.iter().flat_map(|one| self.choices(one)).collect(),
            None => vec![schema],
        }
    }

    fn below<'a>(&'a self, schemas: &[&'a Value], key: &str) -> Vec<&'a Value> {
        let all = schemas.iter().flat_map(|schema| self.choices(schema));
        all.filter_map(|schema| {
            schema["properties"].get(key).or_else(|| schema.get("additionalProperties"))
        })
        .collect()
    }

    fn walk(&self, schemas: &[&Value], value: &Value, path: &str) -> Result<(), Failure> {
        let choices: Vec<&Value> = schemas.iter().flat_map(|it| self.choices(it)).collect();
        match value {
            Value::Object(map) => {
                let records = || choices.iter().filter_map(|it| it["properties"].as_object());
                let is_open = choices.iter().all(|it| it["properties"].is_null());
                for (key, value) in map {
                    let path = format!("{path}.{key}");
                    let schemas = self.below(&choices, key);
                    if schemas.is_empty() && !is_open {
                        let known = records().flatten().map(|(name, _)| name.as_str());
                        return Err(unknown(&path, key, known));
                    }
                    self.walk(&schemas, value, &path)?;
                }
                Ok(())
            }
            Value::Array(list) => {
                let items: Vec<&Value> = choices.iter().filter_map(|it| it.get("items")).collect();
                for (nth, value) in list.iter().enumerate() {
                    self.walk(&items, value, &format!("{path}[{nth}]"))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The complaint about a key that is not known.
pub(super) fn unknown<'a>(
    path: &str,
    key: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Failure {
    let meant = nearest(key, known).map(|known| format!(": did you mean `{known}`?"));
    Failure::usage(format!("unknown key `{path}`{}", meant.unwrap_or_default()))
        .hint("docs/cli.md lists the keys of an app file")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use volvox_protocol::definition::LrpDefinition;

    use super::*;

    fn check(given: Value) -> Result<(), String> {
        let Value::Object(given) = given else { panic!("no object") };
        SchemaKeys::of::<LrpDefinition>().check(&given).map_err(|failure| failure.message)
    }

    #[test]
    fn keys_are_known_however_deep() {
        check(json!({
            "action": {"serial": {"actions": [{"run": {"path": "/a", "user": "u"}}]}},
            "network": {"properties": {"anything": "goes"}},
            "egress_rules": [{"protocol": "tcp", "destinations": [], "port_range": {"start": 1, "end": 2}}],
            "check_definition": {"checks": [{"http_check": {"port": 1, "path": "/"}}]},
            "sidecars": [{"action": {"run": {"path": "/a"}}, "memory_mb": 1}],
            "log_rate_limit": null,
        }))
        .unwrap();
        for (given, expected) in [
            (
                json!({"action": {"serial": {"actions": [{"run": {"pth": "/a"}}]}}}),
                "unknown key `action.serial.actions[0].run.pth`: did you mean `path`?",
            ),
            (
                json!({"egress_rules": [{"port_range": {"star": 1}}]}),
                "unknown key `egress_rules[0].port_range.star`: did you mean `start`?",
            ),
            (json!({"network": {"zzzz": 1}}), "unknown key `network.zzzz`"),
        ] {
            assert_eq!(check(given), Err(expected.to_owned()));
        }
    }

    #[test]
    fn the_names_are_those_of_the_record() {
        let known = SchemaKeys::of::<LrpDefinition>();
        assert!(known.names().contains(&"rootfs") && known.names().contains(&"sidecars"));
    }
}
