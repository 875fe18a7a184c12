//! The programs that `volvox dev` starts. None of them outlives it: the kernel kills them when it
//! dies, in whatever way. They must ask the kernel for that themselves, and do so as this program,
//! before they become what they are ([`begin`]).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{self, SigSet, Signal};
use nix::unistd::{Pid, getppid};

use crate::error::Failure;
use crate::output::{Color, Output};

/// The first word of the command line of a child that is to become a program. Not for people.
const WORD: &str = "dev-child";
/// This program, even when its file was replaced meanwhile.
pub(super) const OURSELVES: &str = "/proc/self/exe";
/// How many lines of a log are shown when its program has died.
const LAST_LINES: usize = 15;
/// How much of a log is looked at for them.
const LAST_BYTES: u64 = 16 << 10;

/// One of the programs.
pub(super) struct Child {
    /// What people call it.
    pub(super) name: String,
    log: Option<PathBuf>,
    process: std::process::Child,
}

impl Child {
    /// Starts a program that says what it has to say in a log; without one, here.
    pub(super) fn start(
        name: &str,
        program: &Path,
        words: &[&OsStr],
        log: Option<&Path>,
    ) -> Result<Child, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::failed(format!("cannot start {}: {error}", program.display()))
        };
        let mut command = Command::new(OURSELVES);
        command.arg(WORD).arg(std::process::id().to_string()).arg(program).args(words);
        command.stdin(Stdio::null());
        if let Some(path) = log {
            let file = File::options().create(true).append(true).open(path);
            let file = file.map_err(|error| failed(&error))?;
            command.stdout(file.try_clone().map_err(|error| failed(&error))?).stderr(file);
        }
        // Ctrl-C is for us: what ends when, and what is cleaned up after it, is decided here.
        let process = command.process_group(0).spawn().map_err(|error| failed(&error))?;
        Ok(Child { name: name.to_owned(), log: log.map(Path::to_owned), process })
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        self.process
            .try_wait()
            .map_err(|error| Failure::failed(format!("look after {}: {error}", self.name)))
    }

    /// Sends it a signal; it may have ended.
    pub(super) fn signal(&self, signal: Signal) {
        if let Ok(pid) = i32::try_from(self.process.id()) {
            let _ended = signal::kill(Pid::from_raw(pid), signal);
        }
    }

    /// What to say when it has ended and should not have.
    pub(super) fn died(&self, status: ExitStatus) -> Failure {
        let mut message = format!("{} has ended by itself ({status})", self.name);
        let Some(log) = &self.log else { return Failure::failed(message) };
        for line in last_lines(log) {
            message += &format!("\n{line}");
        }
        Failure::failed(message)
    }
}

/// The end of a log.
pub(super) fn last_lines(log: &Path) -> Vec<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LAST_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LAST_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().map(|it| (*it).to_owned()).collect()
}

/// When this process was started to become one of the programs: becomes it. Else none.
pub(crate) fn begin() -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next().as_deref() != Some(OsStr::new(WORD)) {
        return None;
    }
    let failure = match become_program(words) {
        Ok(never) => match never {},
        Err(failure) => failure,
    };
    Some(Output::new(false, Color::Never).complain(&failure))
}

fn become_program(
    mut words: impl Iterator<Item = OsString>,
) -> Result<std::convert::Infallible, Failure> {
    let failed = |error: nix::errno::Errno| Failure::failed(format!("be a child: {error}"));
    let parent = words.next().and_then(|it| it.to_str()?.parse().ok()).map(Pid::from_raw);
    let (Some(parent), Some(program)) = (parent, words.next()) else {
        return Err(Failure::usage(format!("{WORD} is for `volvox dev` alone")));
    };
    set_pdeathsig(Signal::SIGKILL).map_err(failed)?;
    // It may have died before we asked.
    if getppid() != parent {
        return Err(Failure::failed("`volvox dev` has gone"));
    }
    // Children inherit which signals are held back.
    SigSet::all().thread_unblock().map_err(failed)?;
    let error = Command::new(&program).args(words).exec();
    Err(Failure::failed(format!("cannot start {}: {error}", Path::new(&program).display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_a_log_are_few() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(last_lines(&log), Vec::<String>::new());
        let text: String = (0..2_000).map(|nth| format!("line {nth} of the log\n")).collect();
        std::fs::write(&log, text).unwrap();
        let lines = last_lines(&log);
        assert_eq!(lines.len(), LAST_LINES);
        assert_eq!(lines.last().map(String::as_str), Some("line 1999 of the log"));
    }
}
