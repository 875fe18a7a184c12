//! What people write to say what is to run: TOML or JSON, with the names of `protocol` and pleasant
//! short forms (`docs/cli.md` has the reference). A key that nobody knows is refused.

mod keys;
mod shorthand;
#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::path::Path;

use data_encoding::HEXLOWER;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::deployment::LrpDeploymentDefinition;
use volvox_protocol::id::{DefinitionId, Domain, TaskGuid};
use volvox_protocol::limits::JSON_BYTES;
use volvox_protocol::task::TaskDefinition;
use volvox_protocol::validate::{Valid, Validate};
use volvox_protocol::wire::{DecodeError, decode_json};

use self::keys::{SchemaKeys, unknown};
use crate::error::Failure;

/// Whose an app or a task is when nobody says whose.
pub(crate) const DOMAIN: &str = "default";
/// Bytes of one file: a thousand apps of the largest kind would not fit, and nobody has those.
const MOST_BYTES: u64 = 256 << 20;

/// An app as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct App {
    /// What is asked for.
    pub(crate) asked: LrpDeploymentDefinition,
    /// Whether the number of instances was said: otherwise an app that is there keeps its own.
    pub(crate) says_instances: bool,
    /// Whether the definition's id was said: otherwise it follows from what is in it.
    pub(crate) says_definition_id: bool,
}

/// A task as somebody wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) name: Option<TaskGuid>,
    pub(crate) domain: Domain,
    pub(crate) definition: TaskDefinition,
}

/// What a file is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Toml,
    Json,
}

/// What to call a document when there are several, and what is in it.
type Document = (String, Map<String, Value>);

/// The apps of a file; `-` is stdin. At least one.
pub(crate) fn read_apps(path: &Path) -> Result<Vec<App>, Failure> {
    let (text, form, name) = read(path)?;
    apps(&text, form).map_err(|failure| failure.about(&name))
}

/// The one task of a file, before it is understood, so that flags can be put over it.
pub(crate) fn read_task(path: &Path) -> Result<Map<String, Value>, Failure> {
    let (text, form, name) = read(path)?;
    let mut all = documents(&text, form, "task").map_err(|failure| failure.about(&name))?;
    match (all.pop(), all.is_empty()) {
        (Some((_, task)), true) => Ok(task),
        (one, _) => {
            let count = all.len() + usize::from(one.is_some());
            Err(Failure::usage(format!("{name}: one task is wanted, there are {count} in it")))
        }
    }
}

fn apps(text: &str, form: Option<Form>) -> Result<Vec<App>, Failure> {
    let documents = documents(text, form, "app")?;
    if documents.is_empty() {
        return Err(Failure::usage("no app is in it").hint("an app needs at least name and rootfs"));
    }
    let mut apps: Vec<App> = Vec::with_capacity(documents.len());
    for (label, document) in documents {
        let app = app(document)
            .map_err(|failure| if label.is_empty() { failure } else { failure.about(&label) })?;
        if apps.iter().any(|known| known.asked.process_guid == app.asked.process_guid) {
            let name = &app.asked.process_guid;
            return Err(Failure::usage(format!("app {name} is in it twice: give it another name")));
        }
        apps.push(app);
    }
    Ok(apps)
}

/// The text, its form as far as its name tells, and what to call it.
fn read(path: &Path) -> Result<(String, Option<Form>, String), Failure> {
    let is_stdin = path.as_os_str() == "-";
    let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
    let failed = |error: std::io::Error| {
        Failure::usage(format!("{name}: cannot read it: {error}"))
            .hint("name a file with -f, or - for stdin")
    };
    let mut text = String::new();
    let read = if is_stdin {
        std::io::stdin().take(MOST_BYTES).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MOST_BYTES).read_to_string(&mut text)
    };
    read.map_err(failed)?;
    if text.len() as u64 >= MOST_BYTES {
        return Err(Failure::usage(format!("{name}: has more than {MOST_BYTES} bytes")));
    }
    let form = match path.extension().and_then(|end| end.to_str()) {
        Some("json") => Some(Form::Json),
        Some("toml") => Some(Form::Toml),
        _ => None,
    };
    Ok((text, form, name))
}

/// The documents of a text, each with where it stands when there are several.
fn documents(text: &str, form: Option<Form>, list: &str) -> Result<Vec<Document>, Failure> {
    let form = form.unwrap_or_else(|| guess(text));
    let values = match form {
        Form::Json => from_json(text)?,
        Form::Toml => {
            let table: toml::Table =
                text.parse().map_err(|error: toml::de::Error| Failure::usage(error.to_string()))?;
            vec![from_toml(toml::Value::Table(table))?]
        }
    };
    let mut found = Vec::new();
    for value in values {
        let inner = match value {
            Value::Object(mut map) if map.get(list).is_some_and(Value::is_array) => {
                let inner = map.remove(list).unwrap_or_default();
                if let Some(key) = map.keys().next() {
                    return Err(Failure::usage(format!(
                        "`{key}` stands beside [[{list}]]: put it into each {list}"
                    )));
                }
                inner
            }
            other => other,
        };
        match inner {
            Value::Array(all) => found.extend(all),
            one => found.push(one),
        }
    }
    let several = found.len() > 1;
    let labelled = found.into_iter().enumerate().map(|(nth, value)| match value {
        Value::Object(map) => {
            let name = map.get("name").or(map.get("process_guid")).and_then(Value::as_str);
            let label = name.map_or_else(|| format!("{list} {}", nth + 1), str::to_owned);
            Ok((if several { label } else { String::new() }, map))
        }
        other => {
            let given: String = other.to_string().chars().take(40).collect();
            Err(Failure::usage(format!("{given} is no {list}: a table with its keys is wanted")))
        }
    });
    labelled.collect()
}

/// JSON begins with a brace, or is a list; a bracket may also begin a TOML table.
fn guess(text: &str) -> Form {
    let text = text.trim_start();
    let is_list = || text.starts_with('[') && serde_json::from_str::<Value>(text).is_ok();
    if text.starts_with('{') || is_list() { Form::Json } else { Form::Toml }
}

/// One document after the other.
fn from_json(text: &str) -> Result<Vec<Value>, Failure> {
    let all = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    all.collect::<Result<_, _>>().map_err(|error| Failure::usage(format!("no JSON: {error}")))
}

fn from_toml(value: toml::Value) -> Result<Value, Failure> {
    Ok(match value {
        toml::Value::String(text) => json!(text),
        toml::Value::Integer(number) => json!(number),
        toml::Value::Float(number) => json!(number),
        toml::Value::Boolean(switch) => json!(switch),
        toml::Value::Datetime(time) => {
            return Err(Failure::usage(format!("{time}: no key takes a date: put it in quotes")));
        }
        toml::Value::Array(list) => list.into_iter().map(from_toml).collect::<Result<_, _>>()?,
        toml::Value::Table(table) => {
            let all = table.into_iter().map(|(key, value)| Ok((key, from_toml(value)?)));
            Value::Object(all.collect::<Result<_, Failure>>()?)
        }
    })
}

/// Understands one app.
pub(crate) fn app(mut given: Map<String, Value>) -> Result<App, Failure> {
    const HEAD: [&str; 9] = [
        "process_guid",
        "domain",
        "instances",
        "routes",
        "annotation",
        "metric_tags",
        "update_strategy",
        "rollout",
        "definition_id",
    ];
    let known = SchemaKeys::of::<LrpDefinition>();
    let definition_keys = known.names();
    let all = || {
        let short = shorthand::COMMON.into_iter().chain(shorthand::OF_APPS);
        HEAD.into_iter().chain(short).chain(definition_keys.iter().copied())
    };
    if let Some(key) = given.keys().find(|key| !all().any(|known| known == *key)) {
        return Err(unknown(key, key, all()));
    }
    name(&mut given, "process_guid")?;
    let process = given.get("process_guid").cloned().ok_or_else(no_name)?;
    if !process.is_string() {
        return Err(Failure::usage(format!("`name` is {process}: a text is wanted")));
    }
    shorthand::common(&mut given)?;
    shorthand::app(&mut given)?;
    let says_instances = given.contains_key("instances");
    given.entry("instances").or_insert(json!(1));
    given.entry("domain").or_insert(json!(DOMAIN));
    given.entry("log_guid").or_insert(process);
    let says_definition_id = given.contains_key("definition_id");
    let mut head: Map<String, Value> = Map::new();
    for key in HEAD {
        head.extend(given.remove(key).map(|value| (key.to_owned(), value)));
    }
    known.check(&given)?;
    head.insert("definition".to_owned(), Value::Object(given));
    SchemaKeys::of::<LrpDeploymentDefinition>().check(&head)?;
    // What it is called follows from what is in it: the same file applied twice changes nothing.
    head.entry("definition_id").or_insert(json!("d"));
    let mut asked: LrpDeploymentDefinition = understood(&Value::Object(head))?;
    if !says_definition_id {
        asked.definition_id = id_of(&asked.definition)?;
    }
    let asked = Valid::new(asked).map_err(|invalid| rules(&invalid.to_string()))?.into_inner();
    Ok(App { asked, says_instances, says_definition_id })
}

/// Understands one task.
pub(crate) fn task(mut given: Map<String, Value>) -> Result<Task, Failure> {
    let known = SchemaKeys::of::<TaskDefinition>();
    let definition_keys = known.names();
    let all = || {
        let head = ["task_guid", "domain"];
        head.into_iter().chain(shorthand::COMMON).chain(definition_keys.iter().copied())
    };
    if let Some(key) = given.keys().find(|key| !all().any(|known| known == *key)) {
        return Err(unknown(key, key, all()));
    }
    name(&mut given, "task_guid")?;
    shorthand::common(&mut given)?;
    let id = |key: &str, value: Value| {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| Failure::usage(format!("`{key}` is {value}: a text is wanted")))
    };
    let name = given.remove("task_guid").map(|value| id("name", value)).transpose()?;
    let name = name.map(|name| TaskGuid::new(&name)).transpose();
    let domain = given.remove("domain").map(|value| id("domain", value)).transpose()?;
    let domain = Domain::new(domain.as_deref().unwrap_or(DOMAIN));
    let wrong = |error: volvox_protocol::id::IdError| Failure::usage(error.to_string());
    let (name, domain) = (name.map_err(wrong)?, domain.map_err(wrong)?);
    if let Some(name) = &name {
        given.entry("log_guid").or_insert(json!(name));
    }
    known.check(&given)?;
    let definition = checked(understood::<TaskDefinition>(&Value::Object(given))?)?;
    Ok(Task { name, domain, definition })
}

fn checked<T: Validate>(value: T) -> Result<T, Failure> {
    Valid::new(value).map(Valid::into_inner).map_err(|invalid| rules(&invalid.to_string()))
}

/// `name` is what people call it; `protocol` has another word.
fn name(given: &mut Map<String, Value>, key: &str) -> Result<(), Failure> {
    match (given.remove("name"), given.contains_key(key)) {
        (Some(_), true) => {
            Err(Failure::usage(format!("`name` and `{key}` say the same: give one of them")))
        }
        (Some(name), false) => {
            given.insert(key.to_owned(), name);
            Ok(())
        }
        (None, _) => Ok(()),
    }
}

fn no_name() -> Failure {
    Failure::usage("`name` is missing: every app needs one")
}

/// The paths that people know: without the part of the tree that they did not write.
fn rules(said: &str) -> Failure {
    let said: Vec<&str> =
        said.split(", ").map(|one| one.strip_prefix("definition.").unwrap_or(one)).collect();
    let said = said.join(", ").replace("process_guid", "name");
    let hint = if said.contains("rootfs") {
        "rootfs is a URL, such as host: or preloaded:NAME"
    } else if said.contains("action: must be given") {
        "say what to run: command = [\"/bin/app\"]"
    } else {
        ""
    };
    Failure::usage(said).hint(hint)
}

fn understood<T: DeserializeOwned>(given: &Value) -> Result<T, Failure> {
    let text = given.to_string();
    decode_json(text.as_bytes()).map_err(|error| match error {
        DecodeError::Json { path, message } => {
            // Where in our own line it stands helps nobody.
            let message = message.rsplit_once(" at line ").map_or(&*message, |(said, _)| said);
            rules(&if path == "." { message.to_owned() } else { format!("{path}: {message}") })
        }
        DecodeError::TooLarge { given, .. } => {
            Failure::usage(format!("it has {given} bytes as JSON, the limit is {JSON_BYTES}"))
        }
        other => Failure::usage(other.to_string()),
    })
}

/// An id that only this definition has.
pub(crate) fn id_of(definition: &LrpDefinition) -> Result<DefinitionId, Failure> {
    let digest = Sha256::digest(serde_json::to_vec(definition)?);
    let letters = HEXLOWER.encode(&digest[..6]);
    DefinitionId::new(&format!("d-{letters}")).map_err(|error| Failure::failed(error.to_string()))
}
