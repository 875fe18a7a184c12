//! `volvox-agent container exec`: the person's terminal, connected to one in a container.
#![expect(unsafe_code, reason = "the size of a terminal has no safe call")]

use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

use crate::container::exit::End;
use crate::container::spec::{Output, ProcessSpec, TerminalSize};
use crate::runtime::shim::{Shims, Shown, Terminal};

/// Between two looks at the size of the person's terminal.
const LOOK_MS: u16 = 250;
/// The size where there is none.
const NO_TERMINAL: TerminalSize = TerminalSize { rows: 24, columns: 80 };
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
    let mut size = size_of(stdin.as_fd());
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let term = std::env::var("TERM").unwrap_or_else(|_| "xterm".to_owned());
    let spec = ProcessSpec {
        id: FIRST_ID | (since.subsec_nanos() ^ std::process::id()),
        path: program.first().cloned().unwrap_or_default(),
        args: program.iter().skip(1).cloned().collect(),
        env: vec![format!("TERM={term}")],
        dir: "/".to_owned(),
        user: user.to_owned(),
        nofile: None,
        source: "EXEC".to_owned(),
        output: Output::Discard,
        terminal: Some(size),
    };
    let mut terminal = shims
        .terminal(container, spec)
        .with_context(|| format!("run {program:?} in {container}"))?;
    let _raw = if is_terminal { Some(Raw::enter()?) } else { None };
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
        let now = size_of(stdin.as_fd());
        if now != size {
            size = now;
            terminal.resize(size);
        }
        while let Some(shown) = terminal.next(Duration::from_millis(1))? {
            match shown {
                Shown::Output(bytes) => show(&bytes)?,
                Shown::Exited(exit) => {
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

fn size_of(terminal: BorrowedFd<'_>) -> TerminalSize {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the size lives through the call, which writes no more than that.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    if result == 0 && size.ws_row > 0 && size.ws_col > 0 {
        TerminalSize { rows: size.ws_row, columns: size.ws_col }
    } else {
        NO_TERMINAL
    }
}

/// The person's terminal passes every key on, until this is dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> anyhow::Result<Raw> {
        let before = tcgetattr(io::stdin()).context("look at the terminal")?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &raw).context("set the terminal")?;
        Ok(Raw(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.0);
    }
}
