//! The JSON form of records, described: what the API's OpenAPI document is made from.
//!
//! `record!`, `one_of!` and `id!` write these descriptions from the same declaration as the encodings,
//! so a field cannot be in one and not in the other. The few types with encodings of their own have
//! theirs at the end of this file.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use smol_str::SmolStr;

use crate::actual_lrp::{
    ActualLrp, InstanceKey, InternalRoute, LrpGroup, LrpKey, NetInfo, PortMapping,
    PreferredAddress, Presence, Tags,
};
use crate::definition::{
    DigestAlgorithm, DynamicValue, LayerType, LrpDefinition, MediaType, MetricTags, RouteValue,
    Routes, UpdateStrategy,
};
use crate::deployment::{
    Definitions, History, NamedDefinition, PastDefinition, RolloutDirection, RolloutPause,
};
use crate::desired_lrp::DesiredLrp;
use crate::id::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use crate::modification_tag::{Epoch, ModificationTag};
use crate::packed::Packed;
use crate::secret::Secret;
use crate::task::{Task, TaskDefinition, TaskState};
use crate::time::Timestamp;

/// A type whose JSON form can be described.
pub trait Schema {
    /// Its description, in the JSON Schema of OpenAPI 3.1. Named types put theirs among the
    /// `components` and give back a reference.
    fn schema(components: &mut Components) -> Value;
}

/// The descriptions that have a name.
#[derive(Debug, Default)]
pub struct Components(BTreeMap<String, Value>);

impl Components {
    /// A reference to the description called `name`, which is made if nobody has yet.
    pub fn named(&mut self, name: &str, make: impl FnOnce(&mut Components) -> Value) -> Value {
        if !self.0.contains_key(name) {
            // Present while it is being made: a type may hold itself.
            self.0.insert(name.to_owned(), Value::Null);
            let made = make(self);
            self.0.insert(name.to_owned(), made);
        }
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }

    /// The one with this name, if it is there.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn into_value(self) -> Value {
        Value::Object(self.0.into_iter().collect())
    }
}

/// The same, or `null`.
pub fn or_null(schema: Value) -> Value {
    let is_null = |kind: &Value| kind == "null" || kind["type"] == "null";
    let choices = schema.get("anyOf").or(schema.get("type")).and_then(Value::as_array);
    if choices.is_some_and(|choices| choices.iter().any(is_null)) {
        return schema;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some(kind) if schema.get("enum").is_none() => {
            let kinds = json!([kind, "null"]);
            let mut schema = schema;
            schema["type"] = kinds;
            schema
        }
        Some(_) | None => json!({ "anyOf": [schema, { "type": "null" }] }),
    }
}

/// Names that are all written the same way, for an enum.
fn names(names: &[&str]) -> Value {
    json!({ "type": "string", "enum": names })
}

macro_rules! plain {
    ($($ty:ty => $schema:expr),* $(,)?) => {
        $( impl Schema for $ty {
            fn schema(_: &mut Components) -> Value {
                $schema
            }
        } )*
    };
}

plain! {
    bool => json!({ "type": "boolean" }),
    String => json!({ "type": "string" }),
    Box<str> => json!({ "type": "string" }),
    SmolStr => json!({ "type": "string" }),
    Secret => json!({ "type": "string", "format": "password" }),
    u8 => json!({ "type": "integer", "minimum": 0, "maximum": u8::MAX }),
    u32 => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
    u64 => json!({ "type": "integer", "minimum": 0, "maximum": u64::MAX }),
    i32 => json!({ "type": "integer", "minimum": i32::MIN, "maximum": i32::MAX }),
    i64 => json!({ "type": "integer", "minimum": i64::MIN, "maximum": i64::MAX }),
    Timestamp => json!({
        "type": "integer", "minimum": 0, "maximum": u64::MAX,
        "description": "nanoseconds since 1970",
    }),
    Value => json!({}),
    RouteValue => json!({ "description": "any JSON value" }),
    Epoch => json!({ "type": "string", "pattern": "^([0-9a-fA-F-]{32,36})?$" }),
    UpdateStrategy => json!({ "type": "integer", "enum": [0, 1] }),
    DynamicValue => names(&["INDEX", "INSTANCE_GUID"]),
    Presence => names(&["ORDINARY", "EVACUATING", "SUSPECT"]),
    PreferredAddress => names(&["UNKNOWN", "INSTANCE", "HOST"]),
    TaskState => names(&["Pending", "Running", "Completed", "Resolving"]),
    RolloutDirection => names(&["RISING", "FALLING"]),
    RolloutPause => names(&["CANARY", "ASKED", "STALLED"]),
    LayerType => names(&["LayerTypeInvalid", "SHARED", "EXCLUSIVE"]),
    MediaType => names(&["MediaTypeInvalid", "TGZ", "TAR", "ZIP"]),
    DigestAlgorithm => names(&["DigestAlgorithmInvalid", "SHA256", "SHA512"]),
}

impl<T: Schema> Schema for Option<T> {
    fn schema(components: &mut Components) -> Value {
        or_null(T::schema(components))
    }
}

impl<T: Schema> Schema for Vec<T> {
    fn schema(components: &mut Components) -> Value {
        json!({ "type": "array", "items": T::schema(components) })
    }
}

impl<T: Schema> Schema for BTreeMap<String, T> {
    fn schema(components: &mut Components) -> Value {
        json!({ "type": "object", "additionalProperties": T::schema(components) })
    }
}

impl<T: Schema> Schema for Box<T> {
    fn schema(components: &mut Components) -> Value {
        T::schema(components)
    }
}

impl<T: Schema> Schema for Arc<T> {
    fn schema(components: &mut Components) -> Value {
        T::schema(components)
    }
}

impl<T: Schema> Schema for Packed<T> {
    fn schema(components: &mut Components) -> Value {
        T::schema(components)
    }
}

impl Schema for Definitions {
    fn schema(components: &mut Components) -> Value {
        BTreeMap::<String, LrpDefinition>::schema(components)
    }
}

impl Schema for History {
    fn schema(components: &mut Components) -> Value {
        Vec::<PastDefinition>::schema(components)
    }
}

impl Schema for NamedDefinition {
    fn schema(components: &mut Components) -> Value {
        components.named("NamedDefinition", |components| {
            LrpDefinition::schema(components);
            let definition = components.0.get("LrpDefinition").cloned().unwrap_or_default();
            let id = vec![("definition_id", DefinitionId::schema(components))];
            flat(object(id, &["definition_id"]), definition)
        })
    }
}

/// An object: its keys, and which of them are always there.
pub(crate) fn object(properties: Vec<(&str, Value)>, required: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> =
        properties.into_iter().map(|(key, schema)| (key.to_owned(), schema)).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

/// The keys of both, in one object.
fn flat(head: Value, tail: Value) -> Value {
    let mut all = head;
    let tail = tail.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
    if let Some(properties) = all.get_mut("properties").and_then(Value::as_object_mut) {
        properties.extend(tail);
    }
    all
}

impl Schema for ModificationTag {
    fn schema(components: &mut Components) -> Value {
        components.named("ModificationTag", |components| {
            let index = u32::schema(components);
            let properties = vec![("epoch", Epoch::schema(components)), ("index", index)];
            object(properties, &["epoch", "index"])
        })
    }
}

impl Schema for LrpKey {
    fn schema(components: &mut Components) -> Value {
        components.named("ActualLRPKey", |components| {
            let properties = vec![
                ("process_guid", ProcessGuid::schema(components)),
                ("index", u32::schema(components)),
                ("domain", Domain::schema(components)),
                ("definition_id", Option::<DefinitionId>::schema(components)),
            ];
            object(properties, &["process_guid", "index", "domain"])
        })
    }
}

impl Schema for InstanceKey {
    fn schema(components: &mut Components) -> Value {
        components.named("ActualLRPInstanceKey", |components| {
            let properties = vec![
                ("instance_guid", InstanceGuid::schema(components)),
                ("cell_id", CellId::schema(components)),
            ];
            object(properties, &["instance_guid", "cell_id"])
        })
    }
}

impl Schema for NetInfo {
    fn schema(components: &mut Components) -> Value {
        components.named("ActualLRPNetInfo", |components| {
            let text = String::schema(components);
            let properties = vec![
                ("address", text.clone()),
                ("ports", Vec::<PortMapping>::schema(components)),
                ("instance_address", text.clone()),
                ("preferred_address", PreferredAddress::schema(components)),
                ("instance_ipv6_address", text),
            ];
            object(properties, &["address"])
        })
    }
}

impl Schema for PortMapping {
    fn schema(components: &mut Components) -> Value {
        components.named("PortMapping", |components| {
            let keys =
                ["container_port", "host_port", "container_tls_proxy_port", "host_tls_proxy_port"];
            object(keys.iter().map(|key| (*key, u32::schema(components))).collect(), &keys)
        })
    }
}

impl Schema for InternalRoute {
    fn schema(components: &mut Components) -> Value {
        object(vec![("hostname", String::schema(components))], &["hostname"])
    }
}

impl Schema for Tags {
    fn schema(components: &mut Components) -> Value {
        BTreeMap::<String, String>::schema(components)
    }
}

impl Schema for DesiredLrp {
    fn schema(components: &mut Components) -> Value {
        components.named("DesiredLRP", |components| {
            LrpDefinition::schema(components);
            let definition = components.0.get("LrpDefinition").cloned().unwrap_or_default();
            let head = vec![
                ("process_guid", ProcessGuid::schema(components)),
                ("domain", Domain::schema(components)),
                ("instances", or_null(u32::schema(components))),
                ("routes", or_null(Routes::schema(components))),
                ("annotation", or_null(String::schema(components))),
                ("metric_tags", or_null(MetricTags::schema(components))),
                ("update_strategy", or_null(UpdateStrategy::schema(components))),
                ("modification_tag", or_null(ModificationTag::schema(components))),
                ("definition_id", Option::<DefinitionId>::schema(components)),
                ("previous_definition_id", Option::<DefinitionId>::schema(components)),
            ];
            flat(object(head, &["process_guid", "domain"]), definition)
        })
    }
}

impl Schema for Task {
    fn schema(components: &mut Components) -> Value {
        components.named("Task", |components| {
            TaskDefinition::schema(components);
            let definition = components.0.get("TaskDefinition").cloned().unwrap_or_default();
            let head = vec![
                ("task_guid", TaskGuid::schema(components)),
                ("domain", Domain::schema(components)),
                ("created_at", Timestamp::schema(components)),
                ("updated_at", Timestamp::schema(components)),
                ("first_completed_at", Timestamp::schema(components)),
                ("state", TaskState::schema(components)),
                ("cell_id", String::schema(components)),
                ("result", String::schema(components)),
                ("failed", bool::schema(components)),
                ("failure_reason", String::schema(components)),
                ("rejection_count", u32::schema(components)),
                ("rejection_reason", String::schema(components)),
            ];
            flat(object(head, &["task_guid", "domain", "state"]), definition)
        })
    }
}

impl Schema for ActualLrp {
    fn schema(components: &mut Components) -> Value {
        components.named("ActualLRP", |components| {
            let text = String::schema(components);
            let properties = vec![
                ("process_guid", ProcessGuid::schema(components)),
                ("index", u32::schema(components)),
                ("domain", Domain::schema(components)),
                ("definition_id", DefinitionId::schema(components)),
                ("instance_guid", text.clone()),
                ("cell_id", text.clone()),
                ("address", text.clone()),
                ("ports", Vec::<PortMapping>::schema(components)),
                ("instance_address", text.clone()),
                ("preferred_address", PreferredAddress::schema(components)),
                ("instance_ipv6_address", text.clone()),
                ("crash_count", u32::schema(components)),
                ("crash_reason", text.clone()),
                ("state", names(&["UNCLAIMED", "CLAIMED", "RUNNING", "CRASHED"])),
                ("placement_error", text.clone()),
                ("stopping", bool::schema(components)),
                ("since", Timestamp::schema(components)),
                ("modification_tag", ModificationTag::schema(components)),
                ("presence", Presence::schema(components)),
                ("actual_lrp_internal_routes", Vec::<InternalRoute>::schema(components)),
                ("metric_tags", Tags::schema(components)),
                ("routable", bool::schema(components)),
                ("availability_zone", text),
            ];
            object(properties, &["process_guid", "index", "domain", "state", "since", "presence"])
        })
    }
}

impl Schema for LrpGroup {
    fn schema(components: &mut Components) -> Value {
        components.named("ActualLRPGroup", |components| {
            let lrp = ActualLrp::schema(components);
            object(vec![("instance", lrp.clone()), ("evacuating", lrp)], &[])
        })
    }
}

/// An identifier: a text of these letters, not too long.
pub(crate) fn identifier(pattern: &str) -> Value {
    json!({
        "type": "string", "pattern": pattern,
        "minLength": 1, "maxLength": crate::limits::ID_BYTES,
    })
}

macro_rules! identifiers {
    ($($ty:ty => $pattern:literal),* $(,)?) => {
        $( impl Schema for $ty {
            fn schema(_: &mut Components) -> Value {
                identifier($pattern)
            }
        } )*
    };
}

identifiers! {
    ProcessGuid => "^[a-zA-Z0-9_-]+$",
    InstanceGuid => "^[a-zA-Z0-9_-]+$",
    TaskGuid => "^[a-zA-Z0-9_-]+$",
    CellId => "^[a-zA-Z0-9_-][a-zA-Z0-9_.-]*$",
    DefinitionId => "^[a-zA-Z0-9_-][a-zA-Z0-9_.-]*$",
    Domain => r"^[^\x00-\x1f\x7f-\x9f]+$",
}
