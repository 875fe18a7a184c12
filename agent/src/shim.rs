//! `volvox-shim`: one small process that holds one container. It makes it, runs processes in it,
//! reaps them, keeps their output and records their ends, and outlives the agent. One thread, no
//! async: it sleeps in `poll` until something happens.

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
pub(crate) mod sys;
mod terminal;
mod tree;
pub(crate) mod user;

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::runtime::shim::Wants;
pub(crate) use disk::written_bytes as disk_bytes;
pub use serve::run;
pub(crate) use sys::{hold_of, mount, signal, unmount};
pub(crate) use tree::{Extent, NO_DEVICES, NO_SUID, READ_ONLY, Tree};

/// The program: `volvox-shim FOLDER`, started by an agent that has put a spec into the folder.
pub fn main() -> ExitCode {
    // Whatever the agent had open and let us inherit would be a way out of the container.
    sys::close_from(3);
    // The kernel named the process after the descriptor that it was run from.
    let _ = sys::set_name(c"volvox-shim");
    let mut arguments = std::env::args_os().skip(1);
    let (Some(folder), None) = (arguments.next(), arguments.next()) else {
        complain("usage: volvox-shim FOLDER (it is started by volvox-agent, not by hand)");
        return ExitCode::from(2);
    };
    match run(Path::new(&folder)) {
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

/// Waits until something can be read here, or written, for so long.
pub(crate) fn wait_ready(
    fd: std::os::fd::RawFd,
    wants: Wants,
    patience: std::time::Duration,
) -> io::Result<()> {
    let events = match wants {
        Wants::Read => libc::POLLIN,
        Wants::Both => libc::POLLIN | libc::POLLOUT,
    };
    sys::poll(&[(fd, events)], Some(patience.max(std::time::Duration::from_millis(1)))).map(drop)
}
