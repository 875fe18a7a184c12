//! Project quota: the file system itself refuses what a container writes beyond its limit. A
//! project is a number that files carry and that new ones take from their folder.
#![expect(unsafe_code, reason = "system calls; each block says why it is sound")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use crate::kernel::sys;

/// The kind of quota that commands name: not of users, not of groups.
const PROJECTS: u32 = 2;

/// Whether the file system of this folder holds projects to their limits.
pub(crate) fn is_enforced(folder: BorrowedFd<'_>) -> bool {
    const Q_XGETQSTATV: u32 = 0x5808;
    const PROJECTS_ENFORCED: u16 = 1 << 5;
    /// The kernel's `struct fs_quota_statv`, of which the flags are of interest.
    #[repr(C)]
    struct QuotaStat {
        version: i8,
        nothing: u8,
        flags: u16,
        cached: u32,
        rest: [u64; 19],
    }
    let mut state = QuotaStat { version: 1, nothing: 0, flags: 0, cached: 0, rest: [0; 19] };
    // SAFETY: this command fills a structure of this size.
    let asked = unsafe { command(folder, Q_XGETQSTATV, 0, (&raw mut state).cast()) };
    asked.is_ok() && state.flags & PROJECTS_ENFORCED != 0
}

/// Has a project hold no more than this. Zero means no limit.
pub(crate) fn limit(
    folder: BorrowedFd<'_>,
    project: u32,
    bytes: u64,
    inodes: u64,
) -> io::Result<()> {
    const Q_SETQUOTA: u32 = 0x80_0008;
    const BLOCKS_AND_INODES: u32 = 1 | 4;
    /// The kernel's `struct if_dqblk`.
    #[repr(C)]
    struct Quota {
        blocks_hard: u64,
        blocks_soft: u64,
        space: u64,
        inodes_hard: u64,
        inodes_soft: u64,
        inodes: u64,
        times: [u64; 2],
        valid: u32,
    }
    let mut quota = Quota {
        // In blocks of a KiB; less than one would otherwise be no limit at all.
        blocks_hard: bytes.div_ceil(1024),
        blocks_soft: 0,
        space: 0,
        inodes_hard: inodes,
        inodes_soft: 0,
        inodes: 0,
        times: [0; 2],
        valid: BLOCKS_AND_INODES,
    };
    // SAFETY: this command reads a structure of this size.
    unsafe { command(folder, Q_SETQUOTA, project, (&raw mut quota).cast()) }
}

/// # Safety
/// `argument` must point to what the command reads or fills.
unsafe fn command(
    folder: BorrowedFd<'_>,
    command: u32,
    project: u32,
    argument: *mut libc::c_void,
) -> io::Result<()> {
    let command = command << 8 | PROJECTS;
    // SAFETY: as the caller promises.
    let result = unsafe {
        libc::syscall(libc::SYS_quotactl_fd, folder.as_raw_fd(), command, project, argument)
    };
    sys::check(result).map(drop)
}

/// Makes a folder, and everything that will be made in it, part of a project.
pub(crate) fn enlist(folder: BorrowedFd<'_>, project: u32) -> io::Result<()> {
    // A signed number with musl: the same bits.
    const GET: libc::Ioctl = 0x801c_581f_u32 as libc::Ioctl;
    const SET: libc::Ioctl = 0x401c_5820;
    const INHERIT: u32 = 0x200;
    /// The kernel's `struct fsxattr`.
    #[repr(C)]
    struct Attributes {
        flags: u32,
        sizes: [u32; 2],
        project: u32,
        rest: [u32; 3],
    }
    let mut attributes = Attributes { flags: 0, sizes: [0; 2], project: 0, rest: [0; 3] };
    // SAFETY: both calls take a structure of this size, which the numbers name too.
    unsafe {
        sys::check(libc::ioctl(folder.as_raw_fd(), GET, &raw mut attributes).into())?;
        attributes.flags |= INHERIT;
        attributes.project = project;
        sys::check(libc::ioctl(folder.as_raw_fd(), SET, &raw const attributes).into())?;
    }
    Ok(())
}
