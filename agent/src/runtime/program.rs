//! The shim's program as containers may get to see it: through a mount that cannot be written to.
//!
//! A process in a container can reach the program that it was before it became its own, through
//! `/proc/<pid>/exe`, and a privileged one could write to it as the host's root, later, when nobody
//! runs it (CVE-2019-5736). Run from a read-only copy of its mount, there is no way to the writable
//! one. Unlike a copy in memory it costs two system calls and no page.

//!
//! Whoever runs it waits for no longer than it means to.

use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ExitStatus};
use std::time::{Duration, Instant};

use crate::kernel::sys;
use crate::shim::{CopyDepth, NO_DEVICES, NO_SUID, READ_ONLY, Tree};

/// What is read at a time, and so often: as much as a pipe holds.
const PIECE: usize = 4 << 10;
const PIECES: usize = 16;
/// What is kept of what a program says.
const KEPT_BYTES: usize = PIECE * PIECES;
/// How long one that is killed may take to be gone.
const DEATH_WITHIN: Duration = Duration::from_secs(10);

/// A program to be run from a mount that hangs nowhere and is read-only.
#[derive(Debug)]
pub(crate) struct Program {
    tree: Tree,
}

impl Program {
    /// The program at `path`, as it is now. The mount lives as long as this value or any process
    /// that runs it.
    pub(crate) fn sealed(path: &Path) -> io::Result<Self> {
        let tree = Tree::copy(path, CopyDepth::Alone)?;
        tree.restrict(READ_ONLY | NO_SUID | NO_DEVICES)?;
        Ok(Program { tree })
    }

    /// Where this process, or a child before it becomes another program, can run it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.tree.as_fd().as_raw_fd()))
    }
}

/// Waits for a child to end: how it ended, and what it said on stderr until then. One that has not ended
/// within so long is killed. Who has its stderr from it is not waited for: reading that to its end would
/// take as long as the longest of them lives.
pub(crate) fn ends_within(
    mut child: Child,
    patience: Duration,
) -> io::Result<(ExitStatus, String)> {
    let ended = hear_out(&mut child, patience);
    if ended.is_err() {
        let _ = child.kill();
        // A disk may keep it. Then its number is lost until the agent ends, and no more than that.
        if let Ok(handle) = sys::hold_of(child.id().cast_signed()) {
            let _ = sys::poll(&[(handle.as_raw_fd(), libc::POLLIN)], Some(DEATH_WITHIN));
        }
        let _ = child.try_wait();
    }
    ended
}

fn hear_out(child: &mut Child, patience: Duration) -> io::Result<(ExitStatus, String)> {
    // It is our child and nobody has waited for it: the number is its own.
    let handle = sys::hold_of(child.id().cast_signed())?;
    let mut stderr = child.stderr.take();
    if let Some(stderr) = &stderr {
        sys::set_nonblocking(stderr.as_fd())?;
    }
    let mut said = Vec::new();
    // None is later than the clock counts.
    let deadline = Instant::now().checked_add(patience);
    loop {
        let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
        let mut waiting = vec![(handle.as_raw_fd(), libc::POLLIN)];
        waiting.extend(stderr.as_ref().map(|it| (it.as_raw_fd(), libc::POLLIN)));
        let has_ended = sys::poll(&waiting, left)?.contains(&handle.as_raw_fd());
        // After that look, so that the last that it said is not missed.
        if stderr.as_mut().is_some_and(|it| hear(it, &mut said) == OutputMode::ItsEnd) {
            stderr = None;
        }
        if has_ended {
            return Ok((child.wait()?, String::from_utf8_lossy(&said).into_owned()));
        }
        if left.is_some_and(|it| it.is_zero()) {
            let late = format!("it has not ended after {} s", patience.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, late));
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputMode {
    /// There may be more, later.
    All,
    /// Nobody can say more.
    ItsEnd,
}

/// Takes what there is, and waits for nothing.
fn hear(stderr: &mut ChildStderr, said: &mut Vec<u8>) -> OutputMode {
    let mut piece = [0; PIECE];
    for _ in 0..PIECES {
        match stderr.read(&mut piece) {
            Ok(0) => return OutputMode::ItsEnd,
            Ok(read) if said.len() < KEPT_BYTES => said.extend_from_slice(&piece[..read]),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return OutputMode::All,
            Err(_) => return OutputMode::ItsEnd,
        }
    }
    OutputMode::All
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sh(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    #[test]
    fn what_a_program_leaves_behind_is_not_waited_for() {
        let mut child = sh("exec 3<&0; cat <&3 >/dev/null & echo no >&2; exit 3");
        // What is behind has its stderr, and reads here for as long as this is open.
        let input = child.stdin.take();
        let (status, said) = ends_within(child, Duration::MAX).unwrap();
        assert_eq!((status.code(), said.as_str()), (Some(3), "no\n"));
        drop(input);
    }

    #[test]
    fn a_program_that_says_much_is_not_kept_from_ending() {
        let child = sh("head -c 1000000 /dev/zero >&2");
        let (status, said) = ends_within(child, Duration::MAX).unwrap();
        assert!(status.success());
        assert!((1..=KEPT_BYTES + PIECE).contains(&said.len()), "{}", said.len());
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let child = sh("exec sleep 600");
        let place = format!("/proc/{}", child.id());
        let error = ends_within(child, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(!Path::new(&place).exists(), "it is there still");
    }
}
