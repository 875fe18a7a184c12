//! The only place that prints. Results go to stdout, as text for people or as JSON for programs;
//! notes and complaints go to stderr. What came from elsewhere is shown without control characters.

mod screen;
mod table;

use std::io::{self, IsTerminal as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use volvox_protocol::time::{Timestamp, span};

use crate::error::{Code, Failure};

pub(crate) use self::screen::Screen;
pub(crate) use self::table::{Cell, Style, Table};

/// When to colour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Where results go.
pub(crate) struct Output {
    json: bool,
    color: bool,
    out: io::BufWriter<io::Stdout>,
}

impl Output {
    pub(crate) fn new(json: bool, color: Color) -> Self {
        let wanted = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                let dumb = std::env::var_os("TERM").is_some_and(|value| value == "dumb");
                io::stdout().is_terminal() && !refused && !dumb
            }
        };
        Output { json, color: wanted && !json, out: io::BufWriter::new(io::stdout()) }
    }

    /// Whether a program reads.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Whether a person looks at a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        !self.json && io::stdout().is_terminal()
    }

    /// One document: a program's whole answer.
    pub(crate) fn document(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(value)?;
        self.write(&text)
    }

    /// One line of a stream of JSON.
    pub(crate) fn entry(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)?;
        self.write(&text)?;
        self.finish()
    }

    /// One line for people.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.write(&clean(text))
    }

    /// A text of several lines, as it is: what a task has written, a man page.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        Ok(())
    }

    /// What a command in a container shows, as it is. A terminal ends lines with two characters; a file or
    /// a pipe wants one.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if io::stdout().is_terminal() {
            self.out.write_all(bytes)?;
        } else {
            let plain: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b'\r').collect();
            self.out.write_all(&plain)?;
        }
        Ok(())
    }

    /// A table for people.
    pub(crate) fn table(&mut self, table: &Table) -> Result<(), Failure> {
        let text = table.render(self.color, usize::MAX);
        self.text(&text)
    }

    /// A document for programs, else what `people` says.
    pub(crate) fn show(
        &mut self,
        value: &impl Serialize,
        people: impl FnOnce(&mut Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.json { self.document(value) } else { people(self) }
    }

    /// One line for people, with a colour.
    pub(crate) fn styled(&mut self, style: Style, text: &str) -> Result<(), Failure> {
        let text = style.paint(&clean(text), self.color);
        self.write(&text)
    }

    /// A remark beside the result.
    pub(crate) fn note(&mut self, text: &str) -> Result<(), Failure> {
        self.finish()?;
        // Who closed stderr does not want to know.
        let _ = writeln!(io::stderr(), "{}", clean(text));
        Ok(())
    }

    /// A picture that is drawn again and again.
    pub(crate) fn screen(&mut self) -> Result<Screen, Failure> {
        self.finish()?;
        Screen::open(self.color)
    }

    /// Waits for so long, or until whoever reads has gone: who has nothing to write would not notice.
    pub(crate) fn pause(&mut self, span: Duration) -> Result<(), Failure> {
        let end = Instant::now() + span;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let stdout = io::stdout();
            let mut asked = [PollFd::new(stdout.as_fd(), PollFlags::empty())];
            match poll(&mut asked, limit) {
                Ok(0) if left <= Duration::from_millis(1) => return Ok(()),
                Ok(0) | Err(Errno::EINTR) => {}
                Ok(_) => return Err(io::Error::from(io::ErrorKind::BrokenPipe).into()),
                Err(error) => return Err(Failure::failed(format!("watch the output: {error}"))),
            }
        }
    }

    /// Sees to it that everything has been said.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        self.out.flush()?;
        Ok(())
    }

    fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.out.write_all(text.as_bytes())?;
        self.out.write_all(b"\n")?;
        Ok(())
    }

    /// Says why it did not work, and how the program ends.
    pub(crate) fn complain(&mut self, failure: &Failure) -> ExitCode {
        // What was said before must stand before it; that a pipe is closed is no news here.
        let _ = self.out.flush();
        if failure.code == Code::Closed {
            return ExitCode::SUCCESS;
        }
        let text = if self.json {
            let error = serde_json::json!({"error": {
                "kind": failure.code.name(), "code": failure.code as u8,
                "message": failure.message, "hint": failure.hint,
            }});
            error.to_string()
        } else {
            told(failure)
        };
        let _ = writeln!(io::stderr(), "{text}");
        ExitCode::from(failure.code as u8)
    }
}

fn told(failure: &Failure) -> String {
    let lines: Vec<String> = failure.message.lines().map(clean).collect();
    let mut text = format!("volvox: {}", lines.join("\n  "));
    if !failure.hint.is_empty() {
        text += &format!("\n  {}", clean(&failure.hint));
    }
    text
}

/// What clap has to say: help and version are results, the rest is a complaint.
pub(crate) fn usage(error: &clap::Error) -> ExitCode {
    // The flags are not understood, so a program can only be told by its word.
    if error.use_stderr() && std::env::args_os().any(|word| word == "--json") {
        let text = error.to_string();
        let message = text.trim_start_matches("error: ").trim_end();
        let failure = Failure::usage(message).hint("`volvox COMMAND --help` has every flag");
        return Output::new(true, Color::Never).complain(&failure);
    }
    // As above: a closed pipe is nobody's fault.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { Code::Usage as u8 } else { 0 })
}

/// What is safe to show: a container's words must not move the cursor.
pub(crate) fn clean(text: &str) -> String {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().map(|c| if odd(c) { ' ' } else { c }).collect()
}

/// `1 instance`, `2 instances`.
pub(crate) fn count(many: u32, what: &str) -> String {
    if many == 1 { format!("1 {what}") } else { format!("{many} {what}s") }
}

/// How long ago that was; a dash for never.
pub(crate) fn age(now: Timestamp, then: Timestamp) -> String {
    if then == Timestamp::ZERO { "-".to_owned() } else { span::show(now.since(then)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_container_says_cannot_move_the_cursor() {
        assert_eq!(clean("a\x1b[2Jb\nc\u{202e}d"), "a [2Jb c d");
    }

    #[test]
    fn a_complaint_has_its_way_out_below_it() {
        let failure = Failure::usage("one\ntwo").hint("do this");
        assert_eq!(told(&failure), "volvox: one\n  two\n  do this");
    }

    #[test]
    fn ages_are_of_now() {
        let now = Timestamp::from_secs(1_000);
        assert_eq!(age(now, Timestamp::from_secs(900)), "1m40s");
        assert_eq!(age(now, Timestamp::from_secs(2_000)), "0s");
        assert_eq!(age(now, Timestamp::ZERO), "-");
    }
}
