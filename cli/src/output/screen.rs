//! A picture that is drawn again and again, until `q` or Ctrl-C. The terminal is put back as it was.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use super::table::Table;
use super::{Style, clean};
use crate::error::Failure;

/// Letters in a line where the terminal does not say.
const USUAL_WIDTH: usize = 120;

/// The terminal, for as long as it is ours.
pub(crate) struct Screen {
    color: bool,
    /// How it was before; none: nobody types there.
    before: Option<Termios>,
}

impl Screen {
    pub(super) fn open(color: bool) -> Result<Self, Failure> {
        let stdin = io::stdin();
        let before = tcgetattr(stdin.as_fd()).ok();
        if let Some(before) = &before {
            let mut keys = before.clone();
            // Keys come one by one, and Ctrl-C as one of them: so that we can tidy up.
            keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG);
            tcsetattr(stdin.as_fd(), SetArg::TCSANOW, &keys)
                .map_err(|error| Failure::failed(format!("prepare the terminal: {error}")))?;
        }
        Ok(Screen { color, before })
    }

    /// Draws lines and tables, one below the other, from the top.
    pub(crate) fn draw(&mut self, head: &str, tables: &[Table]) -> Result<(), Failure> {
        let (width, height) = size();
        let head: String = clean(head).chars().take(width).collect();
        let mut text = Style::Head.paint(&head, self.color) + "\n";
        for table in tables {
            text.push('\n');
            text += &table.render(self.color, width);
        }
        let lines: Vec<&str> = text.lines().take(height.saturating_sub(1)).collect();
        // From the top, each line to its end, then all below: no flicker as with a cleared screen.
        let picture = format!("\x1b[H{}\x1b[K\n\x1b[J", lines.join("\x1b[K\n"));
        let mut out = io::stdout().lock();
        out.write_all(picture.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// Waits for so long; false: the person wants to go.
    pub(crate) fn wait(&mut self, span: Duration) -> Result<bool, Failure> {
        let end = Instant::now() + span;
        if self.before.is_none() {
            std::thread::sleep(span);
            return Ok(true);
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let stdin = io::stdin();
            let mut asked = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
            let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut asked, limit) {
                Ok(0) => return Ok(true),
                Ok(_) => {
                    let mut keys = [0; 64];
                    let read = stdin.lock().read(&mut keys)?;
                    // q, Ctrl-C, Ctrl-D, and a terminal that has gone.
                    let ends = |key: &u8| matches!(key, b'q' | b'Q' | 3 | 4);
                    if read == 0 || keys[..read].iter().any(ends) {
                        return Ok(false);
                    }
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(Failure::failed(format!("wait for a key: {error}"))),
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // There is nobody left to tell.
            let _ = tcsetattr(io::stdin().as_fd(), SetArg::TCSANOW, before);
        }
    }
}

/// Columns and lines, as the shell or the terminal says.
fn size() -> (usize, usize) {
    let said = terminal_size::terminal_size();
    said.map_or((USUAL_WIDTH, 50), |(columns, lines)| (columns.0.into(), lines.0.into()))
}
