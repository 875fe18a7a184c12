//! The terminal of the person who called a program: every key as it is typed, and its size.

use std::io;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use volvox_protocol::stream::TerminalSize;

/// Size where there is no terminal.
const NO_TERMINAL: TerminalSize = TerminalSize { rows: 24, columns: 80 };

/// The terminal on standard input passes every key on, until this is dropped.
#[derive(Debug)]
pub struct RawMode(Termios);

impl RawMode {
    /// Fails where standard input is no terminal.
    pub fn enter() -> nix::Result<RawMode> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(io::stdin(), SetArg::TCSANOW, &raw)?;
        Ok(RawMode(before))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, &self.0);
    }
}

/// Size of the terminal on standard input. 24 by 80 where there is none, or it does not know.
pub fn size() -> TerminalSize {
    match terminal_size::terminal_size_of(io::stdin()) {
        Some((columns, rows)) => TerminalSize { rows: rows.0, columns: columns.0 },
        None => NO_TERMINAL,
    }
}
