//! A folder held open, and doors to what is below it: the only way by which archives reach a disk.
//!
//! Every path is resolved by the kernel from this descriptor on (`openat2`), and not through any
//! symbolic link; where the kernel has no `openat2`, name by name with `O_NOFOLLOW`. Files are made
//! with `O_EXCL` by one name in a folder that is held open. So a link that an archive planted, or
//! that a process in the container swaps in while we work, leads nowhere.
//!
//! Called by `extract.rs`, `layers.rs` and `fetch.rs`. Knows nothing of archives.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::entry_path::EntryPath;

/// How paths are resolved. [`ResolveMode::Kernel`] falls back to [`ResolveMode::Steps`] by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveMode {
    /// `openat2`, since Linux 5.6.
    Kernel,
    /// One `openat` with `O_NOFOLLOW` for each name.
    Steps,
}

/// A folder, held open.
#[derive(Debug)]
pub struct DirHandle {
    fd: OwnedFd,
    walk: ResolveMode,
}

/// What stands under a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Nothing.
    Nothing,
    /// A folder, a real one.
    Folder,
    /// Anything else, a symbolic link too.
    Other,
}

const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// As [`FOLDER`], where links may lead to it.
const FOLLOWED: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_CLOEXEC);

impl DirHandle {
    /// Opens a folder that the operator named: links on the way to it are followed.
    pub fn open(path: &Path) -> Result<DirHandle, Errno> {
        DirHandle::open_with(path, ResolveMode::Kernel)
    }

    /// As [`DirHandle::open`], with a choice for tests and old kernels.
    pub fn open_with(path: &Path, walk: ResolveMode) -> Result<DirHandle, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = nix::fcntl::open(path, flags, Mode::empty())?;
        Ok(DirHandle { fd, walk })
    }

    /// Opens a folder of a container by the path that its processes would use: links are followed,
    /// but this folder is `/` for them and for `..`. What is missing is made, and `made` is told the
    /// folder, for its owner. Without `openat2` a link on the way is refused.
    pub fn open_in_root(
        &self,
        path: &Path,
        mut made: impl FnMut(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<DirHandle, Errno> {
        let mut at = DirHandle { fd: self.fd.try_clone().map_err(errno)?, walk: self.walk };
        let mut so_far = std::path::PathBuf::new();
        for part in path.components() {
            let name = match part {
                std::path::Component::Normal(name) => name,
                std::path::Component::RootDir | std::path::Component::CurDir => continue,
                std::path::Component::ParentDir | std::path::Component::Prefix(_) => {
                    return Err(Errno::EINVAL);
                }
            };
            so_far.push(name);
            let opened = match self.open_following(&so_far, FOLLOWED) {
                Err(Errno::ENOENT) => {
                    // The last folder is held open, so this cannot be led elsewhere. A dangling link
                    // of that name makes mkdirat fail.
                    mkdirat(&at.fd, name, Mode::from_bits_truncate(0o755))?;
                    let new = openat(&at.fd, name, FOLDER, Mode::empty())?;
                    made(new.as_fd())?;
                    new
                }
                other => other?,
            };
            at = DirHandle { fd: opened, walk: self.walk };
        }
        Ok(at)
    }

    /// Finds what is at a path of a container, as [`DirHandle::open_in_root`] does, and looks at it only:
    /// a descriptor to ask about, which no pipe and no device notices.
    pub fn look_in_root(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let mut plain = std::path::PathBuf::new();
        for part in path.components() {
            match part {
                std::path::Component::Normal(name) => plain.push(name),
                std::path::Component::RootDir | std::path::Component::CurDir => {}
                std::path::Component::ParentDir | std::path::Component::Prefix(_) => {
                    return Err(Errno::EINVAL);
                }
            }
        }
        self.open_following(&plain, OFlag::O_PATH | OFlag::O_CLOEXEC)
    }

    fn open_following(&self, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        if self.walk == ResolveMode::Kernel
            && let Some(answer) = self.ask_kernel(path.as_os_str(), flags, resolve)
        {
            return answer;
        }
        let mut names = path.iter().peekable();
        self.step_through(&mut names, flags | OFlag::O_NOFOLLOW)
    }

    /// Opens the folder of this path: all of it must be real folders.
    pub fn enter(&self, path: &EntryPath) -> Result<OwnedFd, Errno> {
        if path.is_root() {
            return self.fd.try_clone().map_err(errno);
        }
        self.open_below(path, FOLDER)
    }

    /// Opens a file for reading: no links, no waiting for the other end of a pipe.
    pub fn read(&self, path: &EntryPath) -> Result<File, Errno> {
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(File::from(self.open_below(path, flags)?))
    }

    fn open_below(&self, path: &EntryPath, flags: OFlag) -> Result<OwnedFd, Errno> {
        let resolve = ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        if self.walk == ResolveMode::Kernel
            && let Some(answer) = self.ask_kernel(path.as_os_str(), flags, resolve)
        {
            return answer;
        }
        self.step_through(&mut path.names().peekable(), flags)
    }

    /// `None` where this kernel (or a filter around us) does not know the call.
    fn ask_kernel(
        &self,
        path: &OsStr,
        flags: OFlag,
        resolve: ResolveFlag,
    ) -> Option<Result<OwnedFd, Errno>> {
        let path = if path.is_empty() { OsStr::new(".") } else { path };
        loop {
            match openat2(&self.fd, path, OpenHow::new().flags(flags).resolve(resolve)) {
                // Somebody renamed a folder on the way: look again.
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(Errno::ENOSYS | Errno::EPERM) => return None,
                answer => return Some(answer),
            }
        }
    }

    fn step_through<'a>(
        &self,
        names: &mut std::iter::Peekable<impl Iterator<Item = &'a OsStr>>,
        last: OFlag,
    ) -> Result<OwnedFd, Errno> {
        let mut at = self.fd.try_clone().map_err(errno)?;
        while let Some(name) = names.next() {
            let flags = if names.peek().is_some() { FOLDER } else { last };
            at = openat(&at, name, flags, Mode::empty())?;
        }
        Ok(at)
    }
}

impl AsFd for DirHandle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// What stands under one name of an open folder.
pub fn standing(folder: impl AsFd, name: &OsStr) -> Result<EntryKind, Errno> {
    match fstatat(folder, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) if is_kind(&stat, SFlag::S_IFDIR) => Ok(EntryKind::Folder),
        Ok(_) => Ok(EntryKind::Other),
        Err(Errno::ENOENT) => Ok(EntryKind::Nothing),
        Err(error) => Err(error),
    }
}

/// Whether a file is of this kind.
pub fn is_kind(stat: &FileStat, kind: SFlag) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

/// Removes one name of an open folder; a folder only when it is empty.
pub fn remove(folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    match unlinkat(&folder, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) => unlinkat(&folder, name, UnlinkatFlags::RemoveDir),
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(Errno::EIO as i32))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_of_the_container_stays_in_its_root() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        std::fs::create_dir_all(at("root/data")).unwrap();
        std::fs::create_dir_all(at("data")).unwrap();
        for (to, link) in [("/data", "abs"), ("../../data", "up"), ("/gone", "dangling")] {
            symlink(to, at("root").join(link)).unwrap();
        }
        let root = DirHandle::open(&at("root")).unwrap();
        let mut made = 0;
        for path in ["/abs/x/y", "up/z", "data/x/y"] {
            let opened = root.open_in_root(Path::new(path), |_| {
                made += 1;
                Ok(())
            });
            opened.unwrap();
        }
        assert_eq!(made, 3);
        assert!(at("root/data/x/y").is_dir() && at("root/data/z").is_dir());
        assert_eq!(std::fs::read_dir(at("data")).unwrap().count(), 0, "outside");
        for path in ["dangling/x", "../x", "data/../.."] {
            assert!(root.open_in_root(Path::new(path), |_| Ok(())).is_err(), "{path}");
        }
        // Without openat2 links are refused, not followed.
        let steps = DirHandle::open_with(&at("root"), ResolveMode::Steps).unwrap();
        assert!(steps.open_in_root(Path::new("abs/x"), |_| Ok(())).is_err());
        assert!(steps.open_in_root(Path::new("/data/x/new"), |_| Ok(())).is_ok());
    }
}
