//! `volvox events`: what happens, as it happens. A stream that breaks is opened again where it was.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Context;
use crate::args::EventsArgs;
use crate::client::sse::{self, SseEvent};
use crate::error::{Code, Failure};
use crate::output::{Output, Style};
use crate::wait::Reconnect;

pub(super) fn run(context: &mut Context, args: &EventsArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let mut reader = Reader { last: args.after.clone(), left: args.count, snapshot: args.snapshot };
    let mut reconnect = Reconnect::default();
    let mut has_worked = false;
    while reader.left != Some(0) {
        let begun = Instant::now();
        let opened = client.events(&reader.path(args), reader.last.as_deref());
        let ended = match opened {
            Ok(stream) => {
                has_worked = true;
                reader.follow(&mut context.out, stream)?
            }
            // Who never got through wants to know why.
            Err(failure) if !has_worked || failure.code != Code::Unreachable => {
                return Err(failure);
            }
            Err(failure) => failure.message,
        };
        if reader.left == Some(0) {
            break;
        }
        reconnect.wait(&mut context.out, begun, &ended)?;
    }
    Ok(())
}

struct Reader {
    /// The place to go on from.
    last: Option<String>,
    /// Events that are still wanted; none: all.
    left: Option<u64>,
    /// What there is has still to be told.
    snapshot: bool,
}

impl Reader {
    fn path(&self, args: &EventsArgs) -> String {
        let route = if args.tasks { "/v1/events/tasks.r1" } else { "/v1/events/lrp_instances.r1" };
        let mut query = Vec::new();
        if let Some(cell) = &args.cell {
            query.push(format!("cell_id={cell}"));
        }
        if self.snapshot {
            query.push("snapshot=true".to_owned());
        }
        if query.is_empty() { route.to_owned() } else { format!("{route}?{}", query.join("&")) }
    }

    /// Tells what the stream says, until it ends; why it did.
    fn follow(
        &mut self,
        out: &mut Output,
        mut stream: impl std::io::BufRead,
    ) -> Result<String, Failure> {
        loop {
            let event = match sse::next(&mut stream) {
                Ok(Some(event)) => event,
                Ok(None) => return Ok("the stream has ended".to_owned()),
                Err(error) => return Ok(format!("the stream broke: {error}")),
            };
            if !event.id.is_empty() {
                self.last = Some(event.id.clone());
            }
            if event.name.is_empty() {
                out.pause(Duration::ZERO)?;
                continue;
            }
            match event.name.as_str() {
                // Before its end the place is not known, so a break means to begin it again.
                "snapshot_begin" => self.last = None,
                "snapshot_end" => self.snapshot = false,
                _ => {}
            }
            tell(out, &event)?;
            if matches!(event.name.as_str(), "closing" | "lagged") {
                return Ok(format!("the coordinator ended the stream ({})", event.name));
            }
            if let Some(left) = &mut self.left {
                *left -= 1;
                if *left == 0 {
                    return Ok(String::new());
                }
            }
        }
    }
}

fn tell(out: &mut Output, event: &SseEvent) -> Result<(), Failure> {
    let data: Value = serde_json::from_str(&event.data)
        .unwrap_or_else(|_| json!({ "message": event.data.clone() }));
    if out.is_json() {
        return out.entry(&json!({"id": event.id, "event": event.name, "data": data}));
    }
    let (style, line) = line(&event.name, &data);
    out.styled(style, &line)?;
    out.finish()
}

/// An event in one line.
fn line(name: &str, data: &Value) -> (Style, String) {
    let (before, after) = (&data["before"], &data["after"]);
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let instance = |it: &Value| format!("{}/{}", text(&it["process_guid"]), text(&it["index"]));
    let at = |it: &Value| match it["cell_id"].as_str() {
        None | Some("") => String::new(),
        Some(cell) => format!(" on {cell}"),
    };
    let state = |it: &Value| text(&it["state"]);
    let story = match name {
        "desired_lrp_created" | "desired_lrp_removed" => {
            let it = &data["desired_lrp"];
            format!("{} {} instances", text(&it["process_guid"]), text(&it["instances"]))
        }
        "desired_lrp_changed" => {
            let keys = ["instances", "definition_id", "previous_definition_id"];
            let changed = keys.iter().filter(|key| before[**key] != after[**key]);
            let changed: Vec<String> = changed
                .map(|key| format!("{key} {} → {}", text(&before[*key]), text(&after[*key])))
                .collect();
            format!("{} {}", text(&after["process_guid"]), changed.join(", "))
        }
        "actual_lrp_instance_created" | "actual_lrp_instance_removed" => {
            let it = &data["actual_lrp"];
            format!("{} {}{}", instance(it), state(it), at(it))
        }
        "actual_lrp_instance_changed" => {
            let why = ["placement_error", "crash_reason"].map(|key| text(&after[key])).concat();
            let why = if why.is_empty() { why } else { format!(": {why}") };
            format!("{} {} → {}{}{why}", instance(after), state(before), state(after), at(data))
        }
        "actual_lrp_crashed" => {
            let (count, why) = (text(&data["crash_count"]), text(&data["crash_reason"]));
            format!("{}{} for the {count}. time: {why}", instance(data), at(data))
        }
        "task_created" | "task_removed" => {
            let it = &data["task"];
            format!("{} {}{}", text(&it["task_guid"]), state(it), at(it))
        }
        "task_changed" => {
            let failed = after["failed"].as_bool().unwrap_or(false);
            let why = if failed {
                format!(": failed: {}", text(&after["failure_reason"]))
            } else {
                String::new()
            };
            format!(
                "{} {} → {}{}{why}",
                text(&after["task_guid"]),
                state(before),
                state(after),
                at(after)
            )
        }
        _ => text(&data["message"]),
    };
    let style = match name {
        "actual_lrp_crashed" | "lagged" => Style::Bad,
        "resync" | "closing" => Style::Waiting,
        _ => Style::of_state(after["state"].as_str().unwrap_or_default()),
    };
    (style, format!("{name:<28} {story}").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_told_in_a_line() {
        let lrp = |state: &str, cell: &str| json!({"process_guid": "web", "index": 1, "state": state, "cell_id": cell});
        for (name, data, expected) in [
            (
                "actual_lrp_instance_changed",
                json!({"cell_id": "a", "before": lrp("CLAIMED", "a"), "after": lrp("RUNNING", "a")}),
                "actual_lrp_instance_changed  web/1 CLAIMED → RUNNING on a",
            ),
            (
                "actual_lrp_crashed",
                json!({"process_guid": "web", "index": 1, "cell_id": "a", "crash_count": 2, "crash_reason": "exit 1"}),
                "actual_lrp_crashed           web/1 on a for the 2. time: exit 1",
            ),
            (
                "desired_lrp_changed",
                json!({"before": {"process_guid": "web", "instances": 1}, "after": {"process_guid": "web", "instances": 3}}),
                "desired_lrp_changed          web instances 1 → 3",
            ),
            (
                "task_created",
                json!({"task": {"task_guid": "t", "state": "Pending"}}),
                "task_created                 t Pending",
            ),
            ("resync", json!({"message": "list again"}), "resync                       list again"),
            ("unheard_of", json!({}), "unheard_of"),
        ] {
            assert_eq!(line(name, &data).1, expected);
        }
    }

    #[test]
    fn a_stream_is_followed_and_its_place_kept() {
        let text = "id: 1-0\n\nid: 1-1\nevent: a\ndata: {}\n\nid: 1-2\nevent: b\ndata: {}\n\n";
        let mut out = Output::new(true, crate::output::Color::Never);
        let mut reader = Reader { last: None, left: Some(1), snapshot: false };
        reader.follow(&mut out, text.as_bytes()).unwrap();
        assert_eq!((reader.last.as_deref(), reader.left), (Some("1-1"), Some(0)));
        let mut reader = Reader { last: None, left: None, snapshot: false };
        assert_eq!(reader.follow(&mut out, text.as_bytes()).unwrap(), "the stream has ended");
        assert_eq!(reader.last.as_deref(), Some("1-2"));
    }
}
