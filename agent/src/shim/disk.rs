//! What a container may have on disk. Where the file system has project quotas it is told the
//! limit, and writes beyond it fail. Elsewhere the container is measured from time to time, and the
//! one that has more than it may is ended.
//!
//! What is measured lags behind, and a file that is deleted but still open is not seen. A cell
//! whose disk is dear has a file system with project quotas.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;

use super::quota;
use crate::container::spec::Limits;
use crate::kernel::sys;

/// Between two measurements at least so long, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Measuring takes no more than this part of one processor.
const PART: u32 = 20;

/// How a container's disk is kept within its limits.
#[derive(Debug)]
pub(crate) enum Disk {
    /// There are none, or the container has been ended for them.
    Unwatched,
    /// The file system refuses what is too much for this project.
    Quota {
        /// A folder of that file system.
        folder: File,
        /// The container's project.
        project: u32,
    },
    /// We look.
    Measured {
        /// What the container has written.
        upper: File,
        /// What it may have.
        limits: Limits,
        /// When we look again.
        next: Instant,
    },
}

/// What a look at the disk told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskState {
    /// All is well.
    Within,
    /// The container has more than it may.
    Over,
}

impl Disk {
    /// Begins to limit what is written to these two folders, both empty yet. The project is the
    /// first of the container's ids on the host, which no other container of the cell has.
    pub(crate) fn limit(
        limits: &Limits,
        upper: &File,
        work: &File,
        project: u32,
    ) -> io::Result<Self> {
        if project > 0 && quota::is_enforced(upper.as_fd()) {
            // Also when there is no limit: a container that died before may have left one.
            quota::limit(upper.as_fd(), project, limits.disk_bytes, limits.inodes)?;
            for folder in [upper, work] {
                quota::enlist(folder.as_fd(), project)?;
            }
            return Ok(Disk::Quota { folder: upper.try_clone()?, project });
        }
        if limits.disk_bytes == 0 && limits.inodes == 0 {
            return Ok(Disk::Unwatched);
        }
        let next = Instant::now() + PAUSES.0;
        Ok(Disk::Measured { upper: upper.try_clone()?, limits: *limits, next })
    }

    /// When [`Disk::check`] wants to be called.
    pub(crate) fn next_check(&self) -> Option<Instant> {
        match self {
            Disk::Measured { next, .. } => Some(*next),
            Disk::Unwatched | Disk::Quota { .. } => None,
        }
    }

    /// Looks whether the container has more than it may. When it has, this was the last look.
    pub(crate) fn check(&mut self) -> DiskState {
        let Disk::Measured { upper, limits, next } = self else { return DiskState::Within };
        let begun = Instant::now();
        // What cannot be measured is not let off: whoever nests folders without end must not
        // escape by that.
        let is_over = measure(upper.as_fd(), limits).map_or(true, |used| used.is_over(limits));
        if is_over {
            *self = Disk::Unwatched;
            return DiskState::Over;
        }
        *next = begun + (begun.elapsed() * PART).clamp(PAUSES.0, PAUSES.1);
        DiskState::Within
    }

    /// Lifts the limit of a container that is gone.
    pub(crate) fn clear(&self) -> io::Result<()> {
        match self {
            Disk::Quota { folder, project } => quota::limit(folder.as_fd(), *project, 0, 0),
            Disk::Unwatched | Disk::Measured { .. } => Ok(()),
        }
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Used {
    bytes: u64,
    inodes: u64,
}

impl Used {
    fn is_over(self, limits: &Limits) -> bool {
        let beyond = |used: u64, limit: u64| limit > 0 && used > limit;
        beyond(self.bytes, limits.disk_bytes) || beyond(self.inodes, limits.inodes)
    }
}

/// A folder still to be looked into: the way to it from one that is open.
struct PendingDir {
    from: Rc<OwnedFd>,
    way: PathBuf,
}

/// Counts what is below a folder, and stops when it is too much. Nothing of it is trusted: no link
/// is followed, and a way never grows too long for the kernel, however deep the folders lie.
fn measure(folder: BorrowedFd<'_>, limits: &Limits) -> io::Result<Used> {
    const WAY_BYTES: usize = 2048;
    let mut used = Used::default();
    let mut linked = BTreeSet::new();
    let from = Rc::new(folder.try_clone_to_owned()?);
    let mut pending = vec![PendingDir { from, way: PathBuf::from(".") }];
    while let Some(PendingDir { mut from, mut way }) = pending.pop() {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let Some(open) = unless_gone(sys::open_in_root(from.as_fd(), &way, flags))? else {
            continue;
        };
        if way.as_os_str().len() > WAY_BYTES {
            (from, way) = (Rc::new(open.try_clone()?), PathBuf::from("."));
        }
        let mut entries = Dir::from_fd(open.try_clone()?)?;
        for entry in entries.iter() {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let found = fstatat(&open, name, AtFlags::AT_SYMLINK_NOFOLLOW);
            let Some(found) = unless_gone(found.map_err(io::Error::from))? else { continue };
            let is_folder = found.st_mode & libc::S_IFMT == libc::S_IFDIR;
            // One file under two names is one file.
            if is_folder || found.st_nlink < 2 || linked.insert(found.st_ino) {
                used.bytes += found.st_blocks.cast_unsigned() * 512;
                used.inodes += 1;
            }
            if used.is_over(limits) {
                return Ok(used);
            }
            if is_folder {
                let name = Path::new(std::ffi::OsStr::from_bytes(name.to_bytes()));
                pending.push(PendingDir { from: from.clone(), way: way.join(name) });
            }
        }
    }
    Ok(used)
}

/// What a container has written, by its folder.
pub(crate) fn written_bytes(container: &Path) -> io::Result<u64> {
    let upper = File::open(container.join(super::mounts::UPPER))?;
    Ok(measure(upper.as_fd(), &Limits::default())?.bytes)
}

/// The container lives on while we look: what is gone by now is not counted.
fn unless_gone<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    let gone = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP].map(|it| it as i32);
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.raw_os_error().is_some_and(|it| gone.contains(&it)) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn count(folder: &Path) -> Used {
        measure(File::open(folder).unwrap().as_fd(), &Limits::default()).unwrap()
    }

    #[test]
    fn files_count_once_and_links_lead_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(count(folder.path()), Used::default());
        std::fs::create_dir(at("inner")).unwrap();
        std::fs::write(at("inner/file"), vec![1; 100_000]).unwrap();
        let before = count(folder.path());
        assert!(before.inodes == 2 && before.bytes >= 100_000, "{before:?}");
        std::fs::hard_link(at("inner/file"), at("same")).unwrap();
        assert_eq!(count(folder.path()), before, "a second name");
        symlink("/usr", at("usr")).unwrap();
        symlink("..", at("inner/up")).unwrap();
        symlink(".", at("here")).unwrap();
        assert_eq!(count(folder.path()).inodes, before.inodes + 3);
        // A file of holes takes no room, whatever it says of its length.
        File::create(at("holes")).unwrap().set_len(1 << 40).unwrap();
        assert!(count(folder.path()).bytes < 1 << 20);
    }

    #[test]
    fn folders_that_lie_deeper_than_any_path_can_tell_are_counted() {
        const DEPTH: u64 = 200;
        let folder = tempfile::tempdir().unwrap();
        let name = "d".repeat(200);
        let mut at: OwnedFd = File::open(folder.path()).unwrap().into();
        for _ in 0..DEPTH {
            sys::make_folder_at(at.as_fd(), Path::new(&name)).unwrap();
            at = sys::open_in_root(at.as_fd(), Path::new(&name), libc::O_PATH).unwrap();
        }
        assert_eq!(count(folder.path()).inodes, DEPTH);
    }

    #[test]
    fn who_has_too_much_is_told_so_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(folder.path()).unwrap();
        let limits = Limits { inodes: 2, ..Limits::default() };
        let mut disk = Disk::Measured { upper: file, limits, next: Instant::now() };
        for (name, expected) in
            [("a", DiskState::Within), ("b", DiskState::Within), ("c", DiskState::Over)]
        {
            std::fs::write(folder.path().join(name), "").unwrap();
            assert_eq!(disk.check(), expected, "{name}");
        }
        assert_eq!((disk.next_check(), disk.check()), (None, DiskState::Within));
    }
}
