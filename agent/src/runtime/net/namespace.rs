//! Doing something inside another network namespace, on a thread that exists for nothing else: the
//! namespace of the caller's thread never changes, not even when the work fails or panics.

use std::io;
use std::os::fd::BorrowedFd;
use std::thread;

use nix::sched::{CloneFlags, setns};

/// Runs `work` in the namespace and returns what it returns; an error if the thread or the
/// namespace cannot be had, or if the work panicked.
pub(super) fn inside<T: Send>(
    namespace: BorrowedFd<'_>,
    work: impl FnOnce() -> T + Send,
) -> io::Result<T> {
    thread::scope(|scope| {
        let builder = thread::Builder::new().name("netns".into());
        let entered = builder.spawn_scoped(scope, || -> io::Result<T> {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        })?;
        entered.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}
