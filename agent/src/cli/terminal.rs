//! `volvox-agent container exec`: the person's terminal, connected to one in a container.

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use volvox_host::clock::wall;
use volvox_host::terminal::{self, RawMode};

use crate::container::exit::End;
use crate::container::spec::{OutputTarget, ProcessSpec, TerminalSize};
use crate::runtime::shim::{Shims, Terminal, TerminalEvent};

/// Between two looks at the size of the person's terminal.
const LOOK_MS: u16 = 250;
/// Processes of people have ids from here on, those of the executor below.
const FIRST_ID: u32 = 1 << 31;

/// Runs a program in a container until it ends, and gives its status.
pub(super) fn exec(
    shims: &Shims,
    container: &str,
    user: &str,
    program: &[String],
) -> anyhow::Result<ExitCode> {
    let stdin = io::stdin();
    let is_terminal = stdin.is_terminal();
    let mut size = terminal_size();
    let nanos = u32::try_from(wall().as_nanos() % 1_000_000_000).unwrap_or(0);
    let term = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
    let spec = ProcessSpec {
        id: FIRST_ID | (nanos ^ std::process::id()),
        path: program.first().cloned().unwrap_or_default(),
        args: program.iter().skip(1).cloned().collect(),
        env: vec![format!("TERM={term}")],
        dir: "/".to_owned(),
        user: user.to_owned(),
        nofile: None,
        source: "EXEC".to_owned(),
        output: OutputTarget::Discard,
        terminal: Some(size),
    };
    let mut terminal = shims
        .terminal(container, spec)
        .with_context(|| format!("run {program:?} in {container}"))?;
    let _raw =
        if is_terminal { Some(RawMode::enter().context("prepare the terminal")?) } else { None };
    let mut ended = false;
    loop {
        ready(stdin.as_fd(), &terminal, !ended && !terminal.is_behind())
            .and_then(|typed| if typed { forward(&mut terminal) } else { Ok(true) })
            .map(|more| {
                if !more && !ended {
                    terminal.end_input();
                    ended = true;
                }
            })?;
        let now = terminal_size();
        if now != size {
            size = now;
            terminal.resize(size);
        }
        while let Some(shown) = terminal.next(Duration::from_millis(1))? {
            match shown {
                TerminalEvent::Output(bytes) => show(&bytes)?,
                TerminalEvent::Exited(exit) => {
                    let status = match exit.end {
                        End::Status(status) => status,
                        End::Signal(signal) => 128 + signal,
                    };
                    return Ok(ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX)));
                }
            }
        }
    }
}

/// Waits until there is something to do. True when something was typed.
fn ready(stdin: BorrowedFd<'_>, terminal: &Terminal, wants: bool) -> anyhow::Result<bool> {
    let shown = terminal.as_fd();
    let mut waiting = vec![PollFd::new(shown, PollFlags::POLLIN)];
    if wants {
        waiting.push(PollFd::new(stdin, PollFlags::POLLIN));
    }
    match poll(&mut waiting, PollTimeout::from(LOOK_MS)) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => {}
        Err(error) => return Err(error).context("wait for the terminal"),
    }
    Ok(waiting.get(1).is_some_and(|it| it.any() == Some(true)))
}

/// Types what the person has typed. False when nothing follows.
fn forward(terminal: &mut Terminal) -> anyhow::Result<bool> {
    let mut buffer = [0; 4_096];
    let read = io::stdin().lock().read(&mut buffer).context("read the terminal")?;
    terminal.input(&buffer[..read]);
    Ok(read > 0)
}

/// A terminal ends lines with two characters; a file or a pipe wants one.
fn show(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if out.is_terminal() {
        out.write_all(bytes)?;
    } else {
        let plain: Vec<u8> = bytes.iter().copied().filter(|byte| *byte != b'\r').collect();
        out.write_all(&plain)?;
    }
    out.flush()
}

fn terminal_size() -> TerminalSize {
    let volvox_protocol::stream::TerminalSize { rows, columns } = terminal::size();
    TerminalSize { rows, columns }
}
