//! Hears Ctrl-C and the ends of children, without handlers: both are held back and read one by one.

use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::error::Failure;

pub(super) struct Signals(SignalFd);

impl Signals {
    /// From now on they are heard here and end nothing.
    pub(super) fn hold() -> Result<Signals, Failure> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
            set.add(signal);
        }
        set.thread_block().map_err(failed)?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        SignalFd::with_flags(&set, flags).map(Signals).map_err(failed)
    }

    /// Waits for so long, or until there is something to hear; whether we were told to end.
    pub(super) fn wait(&self, span: Duration) -> Result<bool, Failure> {
        let limit = PollTimeout::try_from(span).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)], limit) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(failed(error)),
        }
        let mut end = false;
        while let Some(heard) = self.0.read_signal().map_err(failed)? {
            let child = i32::try_from(heard.ssi_signo).is_ok_and(|it| it == Signal::SIGCHLD as i32);
            end |= !child;
        }
        Ok(end)
    }
}

fn failed(error: Errno) -> Failure {
    Failure::failed(format!("hear signals: {error}"))
}
