//! `volvox run`: one app from flags, by the same way as an app from a file.

use serde_json::{Map, Value, json};

use super::apply;
use crate::Context;
use crate::appfile;
use crate::args::{RunArgs, What};
use crate::error::Failure;

pub(super) fn run(context: &mut Context, args: RunArgs) -> Result<(), Failure> {
    let mut given = Map::new();
    given.insert("name".to_owned(), json!(args.name));
    put(&mut given, &args.what, &args.command)?;
    let mut add = |key: &str, value: Option<Value>| {
        given.extend(value.map(|value| (key.to_owned(), value)));
    };
    add("instances", args.instances.map(Value::from));
    add("ports", (!args.ports.is_empty()).then(|| json!(args.ports)));
    let http = args.check_http.map(|path| json!({ "http": path }));
    add("check", http.or(args.check_tcp.map(|port| json!({ "tcp": port }))));
    let app = appfile::app(given)?;
    apply::all(context, vec![app], args.dry_run, args.waiting)
}

/// Puts what flags say into an app or a task as a file would have it.
pub(super) fn put(
    given: &mut Map<String, Value>,
    what: &What,
    command: &[String],
) -> Result<(), Failure> {
    let text = |value: &Option<String>| value.as_ref().map(|value| json!(value));
    let mut add = |key: &str, value: Option<Value>| {
        given.extend(value.map(|value| (key.to_owned(), value)));
    };
    add("command", (!command.is_empty()).then(|| json!(command)));
    add("rootfs", text(&what.rootfs));
    add("memory", text(&what.memory));
    add("disk", text(&what.disk));
    add("user", text(&what.user));
    add("dir", text(&what.dir));
    add("domain", what.domain.as_ref().map(|domain| json!(domain)));
    add("tags", (!what.tags.is_empty()).then(|| json!(what.tags)));
    if !what.env.is_empty() {
        let mut env = Map::new();
        for variable in &what.env {
            let Some((name, value)) = variable.split_once('=').filter(|(name, _)| !name.is_empty())
            else {
                return Err(Failure::usage(format!("--env {variable:?}: NAME=VALUE is wanted")));
            };
            env.insert(name.to_owned(), json!(value));
        }
        add("env", Some(Value::Object(env)));
    }
    Ok(())
}
