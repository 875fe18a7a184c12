//! The shim's program as containers may get to see it: through a mount that cannot be written to.
//!
//! A process in a container can reach the program that it was before it became its own, through
//! `/proc/<pid>/exe`, and a privileged one could write to it as the host's root, later, when nobody
//! runs it (CVE-2019-5736). Run from a read-only copy of its mount, there is no way to the writable
//! one. Unlike a copy in memory it costs two system calls and no page.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};

use crate::shim::{Extent, NO_DEVICES, NO_SUID, READ_ONLY, Tree};

/// A program to be run from a mount that hangs nowhere and is read-only.
#[derive(Debug)]
pub(crate) struct Program {
    tree: Tree,
}

impl Program {
    /// The program at `path`, as it is now. The mount lives as long as this value or any process
    /// that runs it.
    pub(crate) fn sealed(path: &Path) -> io::Result<Self> {
        let tree = Tree::copy(path, Extent::Alone)?;
        tree.restrict(READ_ONLY | NO_SUID | NO_DEVICES)?;
        Ok(Program { tree })
    }

    /// Where this process, or a child before it becomes another program, can run it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.tree.as_fd().as_raw_fd()))
    }
}
