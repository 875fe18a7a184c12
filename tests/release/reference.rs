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
            let _ = writeln!(page, "| `{name}`{marked} | `{}` | {} |", cell(value), cell(&meaning));
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

#[test]
fn the_reference_of_limits_is_what_the_protocol_has() {
    let source = include_str!("../../protocol/src/limits.rs");
    let mut page =
        "# Limits\nWhat may be said at most; each refusal names its limit and what was given. \
                    Limits of the API's connections are keys of \
                    [`[api.limits]`](coordinator-config.md).\n\n| | at most |\n|---|---|\n"
            .to_owned();
    let (mut meaning, mut count) = (String::new(), 0);
    for line in source.lines() {
        if let Some(text) = line.strip_prefix("/// ") {
            let _ = write!(meaning, "{text} ");
        } else if let Some((_, value_text)) =
            line.strip_prefix("pub const ").and_then(|it| it.split_once(" = "))
        {
            let number = readable(value(value_text.trim_end_matches(';')));
            let _ = writeln!(page, "| {} | {number} |", cell(&meaning));
            meaning.clear();
            count += 1;
        } else {
            meaning.clear();
        }
    }
    assert!(count > 30, "only {count} limits were found: the file is not read rightly");
    hold("limits.md", &page);
}

#[test]
fn the_reference_of_events_is_what_the_protocol_tells() {
    let source = include_str!("../../protocol/src/event.rs");
    let mut meanings = std::collections::BTreeMap::new();
    let (mut of, mut meaning) = ("", String::new());
    let mut page = "# Events\nNames on the streams of [the API](../api.md#events), in `event:`; the payload is \
                    JSON in `data:`, with what was before and what is after.\n\n| event | means |\n|---|---|\n"
        .to_owned();
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
            let _ = writeln!(page, "| `{name}` | {} |", cell(said));
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
