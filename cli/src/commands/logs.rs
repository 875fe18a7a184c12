//! `volvox logs`: what instances and tasks have written, and what they write.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::time::{Duration, Instant};

use volvox_host::clock::wall;
use volvox_protocol::api::LogEntry;
use volvox_protocol::time::Timestamp;

use crate::Context;
use crate::args::LogsArgs;
use crate::error::{Code, Failure};
use crate::output::{Output, Style};
use crate::wait::Reconnect;

pub(super) fn run(context: &mut Context, args: &LogsArgs) -> Result<(), Failure> {
    let client = context.client()?;
    let mut reader = Reader {
        since: args.since.map_or(Timestamp::ZERO, |span| wall() - span),
        tail: args.tail,
        ..Reader::default()
    };
    let (mut reconnect, mut has_worked) = (Reconnect::default(), false);
    loop {
        let begun = Instant::now();
        let ended = match client.events(&reader.path(args), None) {
            Ok(stream) => {
                has_worked = true;
                reader.follow(&mut context.out, args, stream)?
            }
            // The app was removed: that was all.
            Err(failure) if has_worked && failure.code == Code::NotFound => break,
            // Who never got through wants to know why.
            Err(failure) if !has_worked || failure.code != Code::Unreachable => {
                return Err(failure.hint_for(Code::NotFound, "`volvox ps` lists what there is"));
            }
            Err(failure) => Some(failure.message),
        };
        let Some(why) = ended else { break };
        reader.resume();
        reconnect.wait(&mut context.out, begun, &why)?;
    }
    if reader.failed {
        return Err(Failure::failed("not every log could be read to its end"));
    }
    Ok(())
}

#[derive(Default)]
struct Reader {
    /// Only lines from then on.
    since: Timestamp,
    /// How many lines of what there is are wanted; none: all.
    tail: Option<u32>,
    /// The last line of each instance.
    seen: BTreeMap<String, Timestamp>,
    /// The same, when the log was opened again: what is not later was told before.
    told: BTreeMap<String, Timestamp>,
    /// A log broke off.
    failed: bool,
}

impl Reader {
    fn path(&self, args: &LogsArgs) -> String {
        let mut query = Vec::new();
        let mut say = |name: &str, value: Option<String>| {
            query.extend(value.map(|value| format!("{name}={value}")));
        };
        say("process_guid", args.app.as_ref().map(ToString::to_string));
        say("index", args.index.map(|index| index.to_string()));
        say("instance_guid", args.instance.as_ref().map(ToString::to_string));
        say("task_guid", args.task.as_ref().map(ToString::to_string));
        say("follow", args.follow.then(|| "true".to_owned()));
        say("tail", self.tail.map(|tail| tail.to_string()));
        say("since", (self.since > Timestamp::ZERO).then(|| self.since.as_nanos().to_string()));
        format!("/v1/actual_lrps/logs?{}", query.join("&"))
    }

    /// Goes on from what was told, wherever that was in each log.
    fn resume(&mut self) {
        self.told.clone_from(&self.seen);
        if let Some(first) = self.seen.values().min() {
            (self.since, self.tail) = (*first, None);
        }
    }

    /// Tells what comes; why it is to be opened again. None: that was all.
    fn follow(
        &mut self,
        out: &mut Output,
        args: &LogsArgs,
        mut stream: crate::client::Stream,
    ) -> Result<Option<String>, Failure> {
        loop {
            let mut line = String::new();
            match stream.read_line(&mut line) {
                // Of an app there is more for as long as it is there.
                Ok(0) => {
                    let goes_on = args.follow && args.app.is_some() && args.instance.is_none();
                    return Ok(goes_on.then(|| "the log has ended".to_owned()));
                }
                Ok(_) => {}
                Err(error) if args.follow => {
                    return Ok(Some(format!("the log broke off: {error}")));
                }
                Err(error) => {
                    return Err(Failure::unreachable(format!("the log broke off: {error}")));
                }
            }
            if line.trim().is_empty() {
                // Somebody is there; is somebody here?
                out.pause(Duration::ZERO)?;
                continue;
            }
            let entry: LogEntry = serde_json::from_str(&line).map_err(|error| {
                Failure::failed(format!("the coordinator's answer is not understood: {error}"))
            })?;
            match &entry.error {
                Some(error) if args.follow && error.kind == "Unavailable" => {
                    return Ok(Some(error.message.clone()));
                }
                Some(_) | None => self.tell(out, args, &entry)?,
            }
        }
    }

    fn tell(&mut self, out: &mut Output, args: &LogsArgs, entry: &LogEntry) -> Result<(), Failure> {
        let guid = &entry.instance_guid;
        if let Some(error) = &entry.error {
            // Who follows an app hears its next instance.
            self.failed = !args.follow || args.app.is_none() || args.instance.is_some();
            if !out.is_json() {
                return out.note(&error.message);
            }
        } else if self.told.get(guid).is_some_and(|told| entry.time <= *told) {
            return Ok(());
        } else {
            self.seen.insert(guid.clone(), entry.time);
        }
        if out.is_json() {
            return out.entry(entry);
        }
        let of = match &args.app {
            Some(app) => format!("{app}/{}", entry.index),
            None => guid.clone(),
        };
        let text = format!("{} {of} {} {}", clock(entry.time), entry.source, entry.message);
        let style = if entry.stream == "err" { Style::Bad } else { Style::Plain };
        out.styled(style, &text)?;
        out.finish()
    }
}

/// Hours, minutes, seconds and milliseconds, in UTC.
fn clock(time: Timestamp) -> String {
    let ms = time.as_nanos() / 1_000_000;
    let (seconds, ms) = (ms / 1_000 % 86_400, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}
