//! `/openapi.json`, made from the table of routes.

use serde_json::{Map, Value, json};
use volvox_protocol::api::LifecycleResponse;
use volvox_protocol::limits::JSON_BYTES;
use volvox_protocol::schema::{Components, Schema as _};

use super::Api;
use super::access::Role;
use super::operating::info;
use super::route::{ResponseKind, Route};

/// The document.
pub(crate) fn document(api: &Api) -> Value {
    let mut components = Components::default();
    let mut paths = Map::new();
    for route in api.routes.values() {
        let mut path = Map::new();
        for verb in route.verbs.split(", ") {
            path.insert(verb.to_ascii_lowercase(), operation(&mut components, route, verb));
        }
        paths.insert(route.path.to_owned(), Value::Object(path));
    }
    json!({
        "openapi": "3.1.0",
        "info": info(),
        "paths": paths,
        "components": {
            "schemas": components.into_value(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "certificate": { "type": "mutualTLS" },
            },
        },
        "security": [{ "bearer": [] }, { "certificate": [] }],
    })
}

fn operation(components: &mut Components, route: &Route, verb: &str) -> Value {
    let id = if route.verbs == verb || verb == "POST" {
        route.name.to_owned()
    } else {
        format!("{}_{}", route.name, verb.to_ascii_lowercase())
    };
    let mut operation = json!({
        "operationId": id,
        "summary": route.about,
        "responses": responses(components, route),
        "tags": [route.path.split('/').nth(2).unwrap_or("operating")],
    });
    match route.role {
        // Its bearers speak for one cell; an admin may too.
        Some(Role::Cell) => operation["description"] = json!("Needs the role cell or admin."),
        Some(role) => operation["description"] = json!(format!("Needs the role {}.", role.name())),
        None => operation["security"] = json!([]),
    }
    let mut parameters: Vec<Value> = route
        .parameters
        .iter()
        .map(|(name, about)| {
            let schema = match *name {
                "snapshot" | "verbose" => json!({ "type": "boolean" }),
                _ => json!({ "type": "string" }),
            };
            json!({ "name": name, "in": "query", "description": about, "schema": schema })
        })
        .collect();
    if let Some(describe) = route.request {
        let schema = describe(components);
        if verb == "GET" {
            parameters.extend(in_query(components, &schema));
        } else {
            let required = resolved(components, &schema).get("required").is_some();
            operation["requestBody"] = json!({
                "required": required,
                "description": format!("At most {JSON_BYTES} bytes."),
                "content": { "application/json": { "schema": schema } },
            });
        }
    }
    if !parameters.is_empty() {
        operation["parameters"] = Value::Array(parameters);
    }
    operation
}

/// The description that a reference leads to.
fn resolved(components: &Components, schema: &Value) -> Value {
    let named = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
    named.and_then(|name| components.get(name)).unwrap_or(schema).clone()
}

/// The keys of a request as parameters of a query. Lists have commas between their entries.
fn in_query(components: &Components, schema: &Value) -> Vec<Value> {
    let schema = resolved(components, schema);
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameters = properties.into_iter().map(|(name, property)| {
        let property = without_null(property);
        let mut parameter = json!({
            "name": name, "in": "query", "schema": property,
            "required": required.contains(&json!(name)),
        });
        if parameter["schema"]["type"] == "array" {
            parameter["style"] = json!("form");
            parameter["explode"] = json!(false);
        }
        parameter
    });
    parameters.collect()
}

/// A query cannot say `null`: what is not there is left out.
fn without_null(mut property: Value) -> Value {
    if let Some(kinds) = property["type"].as_array() {
        let kind = kinds.iter().find(|kind| *kind != "null").cloned();
        property["type"] = kind.unwrap_or_default();
    }
    if let Some(choices) = property.get("anyOf").and_then(Value::as_array) {
        let choice = choices.iter().find(|choice| choice["type"] != "null").cloned();
        return choice.unwrap_or_default();
    }
    property
}

fn responses(components: &mut Components, route: &Route) -> Value {
    let mut responses = Map::new();
    let (kind, schema) = match route.answer {
        ResponseKind::Record(describe) => ("application/json", describe(components)),
        ResponseKind::List(describe) => {
            let list = describe(components);
            ("application/json", with_fewer_keys(components, &list))
        }
        ResponseKind::Events => ("text/event-stream", json!({ "type": "string" })),
        ResponseKind::Lines(describe) => ("application/x-ndjson", describe(components)),
        ResponseKind::Upgrade(_) => ("application/json", json!({})),
        ResponseKind::Text(kind) => (kind, json!({ "type": "string" })),
        ResponseKind::Json => ("application/json", json!({ "type": "object" })),
    };
    let mut ok = json!({
        "description": "Done, or here it is.",
        "content": { kind: { "schema": schema } },
    });
    if matches!(route.answer, ResponseKind::List(_)) {
        ok["headers"] = json!({ "ETag": { "schema": { "type": "string" } } });
    }
    match route.answer {
        ResponseKind::Upgrade(to) => {
            let about = format!("The connection goes on as {to}; see docs/api.md.");
            responses.insert("101".to_owned(), json!({ "description": about }));
        }
        ResponseKind::Record(_)
        | ResponseKind::List(_)
        | ResponseKind::Events
        | ResponseKind::Lines(_)
        | ResponseKind::Text(_)
        | ResponseKind::Json => {
            responses.insert("200".to_owned(), ok);
        }
    }
    let error = LifecycleResponse::schema(components);
    let common: &[u16] = if route.role.is_some() {
        &[400, 401, 403, 408, 413, 415, 429, 503]
    } else {
        &[400, 408, 413, 415]
    };
    for status in route.statuses.iter().chain(common) {
        let content = match (status, route.answer) {
            (304, _) => json!({}),
            // What is not ready says so in plain text; a broken rule is told as everywhere.
            (503, ResponseKind::Text(kind)) => json!({
                kind: { "schema": { "type": "string" } },
                "application/json": { "schema": error },
            }),
            _ => json!({ "application/json": { "schema": error } }),
        };
        let mut response = json!({ "description": meaning(*status) });
        if content != json!({}) {
            response["content"] = content;
        }
        responses.insert(status.to_string(), response);
    }
    Value::Object(responses)
}

/// A list whose entries need not have all of their keys: the reader may have asked for some only.
fn with_fewer_keys(components: &mut Components, list: &Value) -> Value {
    let mut list = resolved(components, list);
    let keys: Vec<String> =
        list["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect();
    for key in keys {
        let items = list["properties"][&key]["items"].clone();
        let Some(name) = items["$ref"].as_str().and_then(|name| name.rsplit('/').next()) else {
            continue;
        };
        let mut entry = resolved(components, &items);
        if let Some(entry) = entry.as_object_mut() {
            entry.remove("required");
        }
        let fewer = components.named(&format!("{name}Fields"), |_| entry);
        list["properties"][&key]["items"] = fewer;
    }
    list
}

const fn meaning(status: u16) -> &'static str {
    match status {
        304 => "The reader has this already.",
        400 => "The request breaks a rule: `details` says where.",
        401 => "No token, or none that may be used.",
        403 => "The role does not suffice.",
        404 => "There is no such record.",
        408 => "The body did not come in time.",
        409 => "The record is in a state that does not allow it.",
        413 => "The body is too large.",
        415 => "Not a content type that is spoken here.",
        426 => "Ask for the upgrade of the connection.",
        429 => "Too many calls.",
        503 => "Not now: try again.",
        _ => "See the message.",
    }
}
