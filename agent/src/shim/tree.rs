//! A copy of a mount that hangs nowhere yet: what it may do and whose ids it shows are set before
//! anybody can reach it, and it is put in place by descriptor, so that no link leads it astray.
#![expect(unsafe_code, reason = "system calls; each block says why it is sound")]

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::path::Path;

use crate::kernel::sys;

/// No write through it.
pub(crate) const READ_ONLY: u64 = 0x01;
/// No program gains rights by its file.
pub(crate) const NO_SUID: u64 = 0x02;
/// No device is opened through it.
pub(crate) const NO_DEVICES: u64 = 0x04;
const ID_MAPPED: u64 = 0x0010_0000;

const OPEN_TREE_CLONE: libc::c_uint = 1;
const AT_RECURSIVE: libc::c_uint = 0x8000;
const MOVE_FROM_AND_TO_DESCRIPTORS: libc::c_uint = 0x04 | 0x40;

/// How much of a mount is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyDepth {
    /// The mount alone.
    Alone,
    /// With everything that is mounted below it.
    WithAllBelow,
}

/// The copy. When it was never attached it goes with this value.
#[derive(Debug)]
pub(crate) struct Tree {
    fd: OwnedFd,
    extent: CopyDepth,
}

/// The kernel's `struct mount_attr`.
#[repr(C)]
struct Attributes {
    set: u64,
    clear: u64,
    propagation: u64,
    users: u64,
}

impl Tree {
    /// Copies what is seen at `source`.
    pub(crate) fn copy(source: &Path, extent: CopyDepth) -> io::Result<Self> {
        let recursive = if extent == CopyDepth::WithAllBelow { AT_RECURSIVE } else { 0 };
        let flags = OPEN_TREE_CLONE | recursive | libc::O_CLOEXEC.cast_unsigned();
        let path = sys::c_path(source)?;
        // SAFETY: the path ends with a zero and lives through the call.
        let fd = sys::check(unsafe {
            libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags)
        })?;
        // SAFETY: the kernel has just opened it for us.
        let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).unwrap_or(-1)) };
        Ok(Tree { fd, extent })
    }

    /// Takes rights away from all of it, and cuts it off from what is mounted at its source later.
    pub(crate) fn restrict(&self, taken: u64) -> io::Result<()> {
        self.set(&Attributes { set: taken, clear: 0, propagation: libc::MS_PRIVATE, users: 0 })
    }

    /// Has it show the ids on disk as the same ids of this user namespace. False where a file
    /// system cannot do that: it then shows them as the host sees them.
    pub(crate) fn map_ids(&self, users: BorrowedFd<'_>) -> io::Result<bool> {
        let users = u64::from(users.as_raw_fd().cast_unsigned());
        match self.set(&Attributes { set: ID_MAPPED, clear: 0, propagation: 0, users }) {
            Ok(()) => Ok(true),
            // EPERM: it is mapped to somebody's ids already.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPERM)) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn set(&self, attributes: &Attributes) -> io::Result<()> {
        let recursive = if self.extent == CopyDepth::WithAllBelow { AT_RECURSIVE } else { 0 };
        // SAFETY: the attributes have the size that is named and live through the call.
        sys::check(unsafe {
            libc::syscall(
                libc::SYS_mount_setattr,
                self.fd.as_raw_fd(),
                c"".as_ptr(),
                libc::AT_EMPTY_PATH.cast_unsigned() | recursive,
                &raw const *attributes,
                size_of::<Attributes>(),
            )
        })
        .map(drop)
    }

    /// Puts it in place. The descriptor then leads to it, whatever is mounted over it later.
    pub(crate) fn attach(&self, place: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: constant texts.
        sys::check(unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                self.fd.as_raw_fd(),
                c"".as_ptr(),
                place.as_raw_fd(),
                c"".as_ptr(),
                MOVE_FROM_AND_TO_DESCRIPTORS,
            )
        })
        .map(drop)
    }
}

impl AsFd for Tree {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
