//! `volvox-shim`: one small process that holds one container. It makes it, runs processes in it,
//! reaps them, keeps their output and records their ends, and outlives the agent. One thread, no
//! async: it sleeps in `poll` until something happens.

pub mod connection;
mod container;
mod disk;
pub(crate) mod exits;
mod lines;
pub(crate) mod logs;
mod mounts;
mod output;
mod process;
mod quota;
mod seccomp;
mod serve;
mod terminal;
mod tree;
pub(crate) mod user;
pub mod wire;

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::kernel::sys;
pub(crate) use disk::written_bytes as disk_bytes;
pub use serve::run;
pub(crate) use tree::{CopyDepth, NO_DEVICES, NO_SUID, READ_ONLY, Tree};
use wire::MADE_WITHIN_S;

/// How long a container may take to be there, if nobody says.
const MADE_WITHIN: Duration = Duration::from_secs(300);

/// The program: `volvox-shim FOLDER`, started by an agent that has put a spec into the folder. A container
/// that is not there after [`MADE_WITHIN_S`] is given up. That is no argument, so that the shim of a
/// version that does not know it starts all the same: a package may be exchanged below an agent.
pub fn main() -> ExitCode {
    // Whatever the agent had open and let us inherit would be a way out of the container.
    sys::close_from(3);
    // The kernel named the process after the descriptor that it was run from.
    let _ = sys::set_name(c"volvox-shim");
    let mut arguments = std::env::args_os().skip(1);
    let (folder, rest) = (arguments.next(), arguments.next());
    let patience = match std::env::var_os(MADE_WITHIN_S) {
        Some(seconds) => seconds.to_str().and_then(|it| it.parse().ok()).map(Duration::from_secs),
        None => Some(MADE_WITHIN),
    };
    let (Some(folder), Some(patience), None) = (folder, patience, rest) else {
        complain("usage: volvox-shim FOLDER (volvox-agent starts it, nobody by hand)");
        return ExitCode::from(2);
    };
    match run(Path::new(&folder), patience) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("volvox-shim: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stderr, reason = "the agent reads it when the shim could not start")]
fn complain(text: &str) {
    eprintln!("{text}");
}

/// A pipe that no program inherits: what comes in at the second end comes out at the first.
fn pipe() -> io::Result<(File, File)> {
    let (out, into) = io::pipe()?;
    let (out, into): (std::os::fd::OwnedFd, std::os::fd::OwnedFd) = (out.into(), into.into());
    Ok((File::from(out), File::from(into)))
}

/// What a descriptor is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wants {
    /// That something can be read.
    Read,
    /// That something can be read or written.
    Both,
}

/// Waits until something can be read here, or written, for so long.
pub(crate) fn wait_ready(
    fd: std::os::fd::RawFd,
    wants: Wants,
    patience: Duration,
) -> io::Result<()> {
    let events = match wants {
        Wants::Read => libc::POLLIN,
        Wants::Both => libc::POLLIN | libc::POLLOUT,
    };
    sys::poll(&[(fd, events)], Some(patience.max(Duration::from_millis(1)))).map(drop)
}
