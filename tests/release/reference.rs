//! The pages of `docs/reference` that are lists: each is written from the program's own words, and a
//! test says when it is out of date. `make reference` writes them anew.

use std::fmt::Write as _;

use crate::markdown::root;

/// What every such page begins with.
const HEAD: &str = "<!-- Written by `make reference`; do not edit. -->\n\n";

/// Compares a page with what it should be; with VOLVOX_WRITE set, writes it.
#[track_caller]
pub(crate) fn hold(name: &str, body: &str) {
    let path = root().join("docs/reference").join(name);
    let (title, rest) = body.split_once('\n').unwrap();
    let wanted = format!("{title}\n\n{HEAD}{}\n", rest.trim());
    if std::env::var_os("VOLVOX_WRITE").is_some() {
        std::fs::write(path, wanted).unwrap();
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(wanted.lines()).find(|(found, wanted)| found != wanted);
    assert!(
        found == wanted,
        "docs/reference/{name} is out of date: `make reference` writes it anew. First: {differs:?}"
    );
}

/// Text as it may stand in a cell of a table.
pub(crate) fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "&lt;")
}

/// A command with all below it. Flags that every command has are told once, at the program.
fn describe(page: &mut String, name: &str, command: &clap::Command, depth: usize) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let _ = write!(page, "\n{} {name}\n\n{}\n", "#".repeat(depth.min(4)), about.trim());
    let mut command = command.clone();
    if !command.has_subcommands() {
        let usage = command.render_usage().to_string();
        let usage = usage.trim_start_matches("Usage:").split_whitespace().collect::<Vec<_>>();
        let words = name.split(' ').count();
        let _ = write!(page, "\n`{name} {}`\n", usage[words.min(usage.len())..].join(" "));
    }
    let rows: Vec<String> = command
        .get_arguments()
        .filter(|it| !["help", "version"].contains(&it.get_id().as_str()) && !it.is_hide_set())
        .filter(|it| depth == 2 || !it.is_global_set())
        .map(argument)
        .collect();
    if !rows.is_empty() {
        let _ = write!(page, "\n| | |\n|---|---|\n{}", rows.concat());
    }
    for child in command.get_subcommands().filter(|it| it.get_name() != "help") {
        describe(page, &format!("{name} {}", child.get_name()), child, depth + 1);
    }
}

fn argument(argument: &clap::Arg) -> String {
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let mut help = cell(&help.map(ToString::to_string).unwrap_or_default());
    if !help.ends_with(['.', ']']) {
        help.push('.');
    }
    let default: Vec<_> =
        argument.get_default_values().iter().map(|it| it.to_string_lossy()).collect();
    if !default.is_empty() && argument.get_action().takes_values() {
        help += &format!(" By default `{}`.", default.join(" "));
    }
    if let Some(variable) = argument.get_env() {
        help += &format!(" Environment: `{}`.", variable.to_string_lossy());
    }
    let mut names: Vec<String> =
        argument.get_short().map(|it| format!("-{it}")).into_iter().collect();
    names.extend(argument.get_long().map(|it| format!("--{it}")));
    let value = argument.get_value_names().map(|it| it.join(" ")).unwrap_or_default();
    let takes = argument.get_action().takes_values();
    let shown = match (names.is_empty(), takes) {
        (true, _) => value.to_string(),
        (false, true) => format!("{} {value}", names.join(", ")),
        (false, false) => names.join(", "),
    };
    format!("| `{}` | {help} |\n", shown.trim())
}

#[test]
fn the_reference_of_commands_is_what_the_programs_take() {
    let mut page = "# Commands and flags\n".to_owned();
    page += "Every command of the three programs. How to use `volvox`: [cli.md](../cli.md).\n";
    for (name, _, command) in volvox_tests::programs() {
        let mut command = command.term_width(0);
        command.build();
        describe(&mut page, name, &command, 2);
    }
    hold("commands.md", &page);
}

/// A configuration as a table for each section.
fn keys(title: &str, sample: &str) -> String {
    let mut page = format!("# {title}\n");
    let mut meaning = String::new();
    let mut is_table = false;
    let (head, rest) = sample.split_once("\n\n").unwrap();
    let _ = writeln!(
        page,
        "{}",
        head.replace("# ", "").replace(" Keys behind \"#=\"", " Keys marked *")
    );
    for line in rest.lines() {
        let (key, marked) = match line.strip_prefix("#= ") {
            Some(key) => (key, "*"),
            None => (line, ""),
        };
        if let Some(text) = key.strip_prefix("# ") {
            let _ = write!(meaning, "{text} ");
        } else if let Some(section) = key.strip_prefix('[') {
            let _ = write!(page, "\n## [{section}\n");
            if !meaning.is_empty() {
                let _ = writeln!(page, "\n{}", meaning.trim());
            }
            meaning.clear();
            is_table = false;
        } else if let Some((name, value)) = key.split_once(" = ") {
            if !is_table {
                page += "\n| key | default | what it is |\n|---|---|---|\n";
                is_table = true;
            }
            let (value, example) = match value.strip_suffix(" # an example") {
                Some(value) => (value, " (an example)"),
                None => (value, ""),
            };
            let value = cell(value);
            let _ =
                writeln!(page, "| `{name}`{marked} | `{value}`{example} | {} |", cell(&meaning));
            meaning.clear();
        }
    }
    page
}

#[test]
fn the_reference_of_configuration_is_what_the_programs_read() {
    hold("agent-config.md", &keys("Configuration of the agent", volvox_agent::config::SAMPLE));
    let sample = volvox_coordinator::config::SAMPLE;
    hold("coordinator-config.md", &keys("Configuration of the coordinator", sample));
}

/// `2 << 20`, `366 * 24`, `1_024`.
fn value(expression: &str) -> u64 {
    let number = |text: &str| text.trim().replace('_', "").parse::<u64>().unwrap();
    if let Some((left, right)) = expression.split_once("<<") {
        return number(left) << number(right);
    }
    expression.split('*').map(number).product()
}

/// Thousands apart.
fn readable(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Rows of a table of limits: the constants of a source that are public, or those of these names.
fn limits(page: &mut String, source: &str, names: Option<&[&str]>) -> usize {
    let (mut meaning, mut count) = (String::new(), 0);
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            let _ = write!(meaning, "{text} ");
            continue;
        }
        let found = line.trim_start_matches("pub ").strip_prefix("const ");
        if let Some((left, right)) = found.and_then(|it| it.split_once(" = ")) {
            let name = left.split(':').next().unwrap_or_default();
            if names.map_or(line.starts_with("pub "), |names| names.contains(&name)) {
                let number = readable(value(right.trim_end_matches(';')));
                let _ = writeln!(page, "| {} | {number} |", cell(&meaning));
                count += 1;
            }
        }
        meaning.clear();
    }
    count
}

#[test]
fn the_reference_of_limits_is_what_the_protocol_has() {
    let mut page =
        "# Limits\nWhat may be said at most; each refusal names its limit and what was given. \
                    Limits of the API's connections are keys of \
                    [`[api.limits]`](coordinator-config.md).\n\n| | at most |\n|---|---|\n"
            .to_owned();
    let count = limits(&mut page, include_str!("../../protocol/src/limits.rs"), None);
    assert!(count > 30, "only {count} limits were found: the file is not read rightly");
    page += "\n## Of the mesh\n\n| | at most |\n|---|---|\n";
    let mut others = 0;
    for (source, names) in [
        (include_str!("../../mesh/src/member.rs"), &["MEMBERS"][..]),
        (include_str!("../../mesh/src/record.rs"), &["BODY_BYTES", "REVOCATIONS"]),
        (include_str!("../../mesh/src/message.rs"), &["DATAGRAM_BYTES", "PACKET_BYTES"]),
        (include_str!("../../mesh/src/transport.rs"), &["DIALS"]),
    ] {
        others += limits(&mut page, source, Some(names));
    }
    assert_eq!(others, 6, "a limit of the mesh has another name now");
    page += "\n## Of a container\n\n| | at most |\n|---|---|\n";
    let names = ["RUNNING", "PROCESSES", "CAPTURE_BYTES"];
    let found = limits(&mut page, include_str!("../../agent/src/shim/wire.rs"), Some(&names));
    assert_eq!(found, names.len(), "a limit of containers has another name now");
    page += "\nLimits that are settings: [the agent's](agent-config.md), [the coordinator's](coordinator-config.md).\n";
    hold("limits.md", &page);
}

/// The fields of each event's payload, by variant, as its `Serialize` has them.
fn payloads(source: &str) -> std::collections::BTreeMap<String, String> {
    let keys = fields_of(source, "fn keys<");
    let mut found = std::collections::BTreeMap::new();
    for part in source.split("impl Serialize for ").skip(1) {
        let body = part.split("\n}\n").next().unwrap_or_default();
        let mut waiting: Vec<String> = Vec::new();
        // Arms, one after the other: their variants, then the one call that they make.
        for word in body.split([' ', '(', '\n']).filter(|it| !it.is_empty()) {
            if word.contains("Event::") {
                waiting.push(word.to_owned());
                continue;
            }
            let fields = match word {
                "one" => body_of_one(body, waiting.first().map(String::as_str)),
                "both" => fields_of(source, "fn both<"),
                "changed" => [keys.clone(), fields_of(source, "fn changed<")].concat(),
                "crashed" => [keys.clone(), fields_of(source, "fn crashed<")].concat(),
                _ => continue,
            };
            let shown: Vec<String> = fields.iter().map(|it| format!("`{it}`")).collect();
            for variant in waiting.drain(..) {
                found.insert(variant, shown.join(", "));
            }
        }
    }
    found
}

/// The names that a function of that file writes.
fn fields_of(source: &str, head: &str) -> Vec<String> {
    let body = source.split(head).nth(1).and_then(|it| it.split("\n}").next()).unwrap_or_default();
    let calls = body.split("serialize_field(\"").skip(1);
    calls.map(|it| it.split('"').next().unwrap_or_default().to_owned()).collect()
}

/// The name of the one record of an event.
fn body_of_one(body: &str, variant: Option<&str>) -> Vec<String> {
    let after = variant.and_then(|it| body.split(&format!("{it}(")).nth(1)).unwrap_or_default();
    after.split('"').nth(1).map(str::to_owned).into_iter().collect()
}

#[test]
fn the_reference_of_events_is_what_the_protocol_tells() {
    let source = include_str!("../../protocol/src/event.rs");
    let mut meanings = std::collections::BTreeMap::new();
    let (mut of, mut meaning) = ("", String::new());
    let mut page = "# Events\nNames on the streams of [the API](../api.md#events), in `event:`; the payload is \
                    JSON in `data:`, with what was before and what is after. What the records hold: the schemas in \
                    [openapi.json](openapi.json). `trace_id` is there when the caller gave one.\n\n\
                    | event | means | fields |\n|---|---|---|\n"
        .to_owned();
    let fields = payloads(source);
    let mut count = 0;
    for line in source.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("pub enum ") {
            of = rest.split(['<', ' ']).next().unwrap_or_default();
        } else if let Some(text) = line.strip_prefix("/// ") {
            let _ = write!(meaning, "{text} ");
        } else if let Some((variant, name)) = line.split_once(" => \"") {
            let variant = variant.split('(').next().unwrap_or_default();
            let name = name.trim_end_matches(['"', ',']);
            let said: &String = meanings.get(variant).unwrap_or_else(|| panic!("{variant}"));
            let fields = fields.get(variant).unwrap_or_else(|| panic!("{variant} has no payload"));
            let _ = writeln!(page, "| `{name}` | {} | {fields} |", cell(said));
            count += 1;
        } else {
            let variant = line.split('(').next().unwrap_or_default();
            meanings.insert(format!("{of}::{variant}"), std::mem::take(&mut meaning));
        }
    }
    assert_eq!(count, 16, "the file is not read rightly");
    page += "\nAlso: `snapshot_begin` and `snapshot_end` around what there is, `resync` when what was missed is \
             forgotten, `lagged` to a reader that was too slow, `closing` before the end.\n";
    hold("events.md", &page);
}
