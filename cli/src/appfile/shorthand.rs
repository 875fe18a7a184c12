//! The pleasant forms of an app file, turned into the keys of `protocol`. Pure: a map in, a map out.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use serde_json::{Map, Value, json};
use volvox_protocol::time::span;

use super::keys::unknown;
use crate::error::Failure;

/// Who runs a command when nobody says who.
pub(super) const USER: &str = "root";
/// How long something with a check may take to become healthy, when nobody says how long.
const START_TIMEOUT_MS: u64 = 60_000;

/// Keys that apps and tasks know beside those of `protocol`.
pub(super) const COMMON: [&str; 7] = ["name", "command", "user", "dir", "memory", "disk", "tags"];
/// Keys that only apps know.
pub(super) const OF_APPS: [&str; 5] = ["port", "check", "ready", "start_timeout", "strategy"];

type Object = Map<String, Value>;

fn wrong(key: &str, given: &Value, wanted: &str) -> Failure {
    let given: String = given.to_string().chars().take(80).collect();
    Failure::usage(format!("`{key}` is {given}: {wanted}"))
}

/// Puts the value of a shorthand under its real key, which must not be given as well.
fn put(map: &mut Object, short: &str, key: &str, value: Value) -> Result<(), Failure> {
    if map.contains_key(key) {
        return Err(Failure::usage(format!(
            "`{short}` and `{key}` say the same: give one of them"
        )));
    }
    map.insert(key.to_owned(), value);
    Ok(())
}

/// What apps and tasks have in common.
pub(super) fn common(map: &mut Object) -> Result<(), Failure> {
    command(map)?;
    for (short, key) in [("memory", "memory_mb"), ("disk", "disk_mb")] {
        if let Some(given) = map.remove(short) {
            put(map, short, key, json!(megabytes(short, &given)?))?;
        }
    }
    if let Some(given) = map.remove("tags") {
        put(map, "tags", "placement_tags", given)?;
    }
    if let Some(Value::Object(given)) = map.get("env") {
        let variables = given.iter().map(|(name, value)| {
            let value = plain(value).ok_or_else(|| {
                wrong(&format!("env.{name}"), value, "a text or a number is wanted")
            })?;
            Ok(json!({"name": name, "value": value}))
        });
        let variables: Result<Value, Failure> = variables.collect();
        map.insert("env".to_owned(), variables?);
    }
    if let Some(Value::Object(tags)) = map.get_mut("metric_tags") {
        for value in tags.values_mut() {
            if let Some(text) = plain(value) {
                *value = json!({"static": text});
            }
        }
    }
    Ok(())
}

/// A text, a number or a switch as the text that a variable has.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// `command`, `user` and `dir` become a run action. One text is for the shell.
fn command(map: &mut Object) -> Result<(), Failure> {
    let (command, user, dir) = (map.remove("command"), map.remove("user"), map.remove("dir"));
    let Some(command) = command else {
        let stray = [("user", user), ("dir", dir)].into_iter().find(|(_, value)| value.is_some());
        return match stray {
            None => Ok(()),
            Some((key, _)) => Err(Failure::usage(format!(
                "`{key}` goes with `command`: in an action it stands inside of `run`"
            ))),
        };
    };
    let wanted = "a list such as [\"/bin/app\", \"--flag\"] or a line for /bin/sh is wanted";
    let words = match &command {
        Value::String(line) if !line.trim().is_empty() => {
            vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()]
        }
        Value::Array(list) => {
            let words: Option<Vec<String>> =
                list.iter().map(|word| word.as_str().map(str::to_owned)).collect();
            words.ok_or_else(|| wrong("command", &command, wanted))?
        }
        _ => return Err(wrong("command", &command, wanted)),
    };
    let Some((path, args)) = words.split_first().filter(|(path, _)| !path.is_empty()) else {
        return Err(wrong("command", &command, wanted));
    };
    if user.is_none() && map.get("privileged") == Some(&Value::Bool(true)) {
        return Err(Failure::usage(
            "`privileged` without `user` would be root on the cell: say who",
        ));
    }
    let user = user.unwrap_or_else(|| json!(USER));
    let mut run = json!({"path": path, "args": args, "user": user});
    if let Some(dir) = dir {
        run["dir"] = dir;
    }
    put(map, "command", "action", json!({ "run": run }))
}

/// What only apps have.
pub(super) fn app(map: &mut Object) -> Result<(), Failure> {
    if let Some(port) = map.remove("port") {
        put(map, "port", "ports", json!([port]))?;
    }
    let main_port = map.get("ports").and_then(|ports| ports.get(0)).cloned();
    let checks = map.remove("check").map(|given| checks_of("check", &given, main_port.as_ref()));
    let ready = map.remove("ready").map(|given| checks_of("ready", &given, main_port.as_ref()));
    let (checks, ready) = (checks.transpose()?, ready.transpose()?);
    if checks.is_some() || ready.is_some() {
        let checks = json!({
            "checks": checks.clone().unwrap_or_default(),
            "readiness_checks": ready.unwrap_or_default(),
        });
        put(map, "check", "check_definition", checks)?;
    }
    match map.remove("start_timeout") {
        Some(given) => {
            put(map, "start_timeout", "start_timeout_ms", json!(millis("start_timeout", &given)?))?;
        }
        None if checks.is_some() && !map.contains_key("start_timeout_ms") => {
            map.insert("start_timeout_ms".to_owned(), json!(START_TIMEOUT_MS));
        }
        None => {}
    }
    if let Some(given) = map.remove("strategy") {
        put(map, "strategy", "update_strategy", given)?;
    }
    if let Some(given) = map.get_mut("update_strategy") {
        *given = match &*given {
            Value::String(word) if word == "rolling" => json!(0),
            Value::String(word) if word == "recreate" => json!(1),
            Value::Number(_) => given.clone(),
            _ => return Err(wrong("strategy", given, "\"rolling\" or \"recreate\" is wanted")),
        };
    }
    match map.get_mut("rollout") {
        Some(Value::Object(policy)) => rollout(policy),
        Some(_) | None => Ok(()),
    }
}

/// The policy of updates: spans as texts, and canaries by their short name.
fn rollout(policy: &mut Object) -> Result<(), Failure> {
    const PLAIN: [&str; 4] =
        ["canaries", "canary_instances", "max_in_flight", "rollback_on_failure"];
    const SPANS: [(&str, &str); 3] = [
        ("min_healthy_time", "min_healthy_time_ms"),
        ("stuck_after", "stuck_after_ms"),
        ("progress_deadline", "progress_deadline_ms"),
    ];
    let known = || PLAIN.into_iter().chain(SPANS.into_iter().flat_map(|(short, key)| [short, key]));
    if let Some(odd) = policy.keys().find(|key| !known().any(|known| known == *key)) {
        return Err(unknown(&format!("rollout.{odd}"), odd, known()));
    }
    if let Some(canaries) = policy.remove("canaries") {
        put(policy, "canaries", "canary_instances", canaries)?;
    }
    for (short, key) in SPANS {
        if let Some(given) = policy.remove(short) {
            let ms = millis(&format!("rollout.{short}"), &given)?;
            put(policy, short, key, json!(ms))?;
        }
    }
    Ok(())
}

/// One check or several: `{http = "/healthz"}`, `{tcp = 8080}`.
fn checks_of(key: &str, given: &Value, main_port: Option<&Value>) -> Result<Value, Failure> {
    match given {
        Value::Array(list) => {
            let all = list.iter().enumerate();
            all.map(|(nth, one)| check(&format!("{key}[{nth}]"), one, main_port)).collect()
        }
        one => Ok(json!([check(key, one, main_port)?])),
    }
}

fn check(key: &str, given: &Value, main_port: Option<&Value>) -> Result<Value, Failure> {
    let wanted = "{http = \"/path\"} or {tcp = 8080} is wanted";
    let Value::Object(given) = given else { return Err(wrong(key, given, wanted)) };
    const KEYS: [&str; 5] = ["http", "tcp", "port", "interval", "timeout"];
    if let Some(odd) = given.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(unknown(&format!("{key}.{odd}"), odd, KEYS));
    }
    let span = |name: &str| {
        let given = given.get(name).map(|given| millis(&format!("{key}.{name}"), given));
        given.transpose().map(|given| given.unwrap_or(0))
    };
    let (interval, timeout) = (span("interval")?, span("timeout")?);
    let no_port =
        || Failure::usage(format!("`{key}` has no port: give it `port`, or the app `ports`"));
    let port = || given.get("port").or(main_port).cloned().ok_or_else(no_port);
    match (given.get("http"), given.get("tcp")) {
        (Some(path), None) => Ok(json!({"http_check": {
            "path": path, "port": port()?, "interval_ms": interval, "request_timeout_ms": timeout,
        }})),
        (None, Some(Value::Bool(true))) => Ok(json!({"tcp_check": {
            "port": port()?, "interval_ms": interval, "connect_timeout_ms": timeout,
        }})),
        (None, Some(port)) => Ok(json!({"tcp_check": {
            "port": port, "interval_ms": interval, "connect_timeout_ms": timeout,
        }})),
        (Some(_), Some(_)) | (None, None) => Err(wrong(key, &Value::Object(given.clone()), wanted)),
    }
}

/// A span: milliseconds as a number are too easily taken for seconds, so a unit is wanted.
fn millis(key: &str, given: &Value) -> Result<u64, Failure> {
    let wanted = "a text such as \"30s\" or \"500ms\" is wanted";
    let text = given.as_str().ok_or_else(|| wrong(key, given, wanted))?;
    let span = span::parse(text).map_err(|_| wrong(key, given, wanted))?;
    Ok(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

/// A size: megabytes, or with a unit.
pub(super) fn megabytes(key: &str, given: &Value) -> Result<u32, Failure> {
    let wanted = "megabytes such as 64, or a text such as \"512M\" or \"2G\" are wanted";
    let size = match given {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            let (number, unit) = text.split_at(digits);
            let scale = match unit.trim().to_ascii_uppercase().trim_end_matches('B') {
                "" | "M" | "MI" => Some(1),
                "G" | "GI" => Some(1 << 10),
                "T" | "TI" => Some(1 << 20),
                _ => None,
            };
            number.parse::<u64>().ok().zip(scale).and_then(|(size, scale)| size.checked_mul(scale))
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    size.and_then(|size| u32::try_from(size).ok()).ok_or_else(|| wrong(key, given, wanted))
}
