//! Puts the entries of an archive into a folder, remembers what it made, and undoes it if the
//! archive turns out bad. Both unpackers use it; neither touches the disk by another way.
//!
//! What holds: everything happens by one name in a folder that is held open and was reached through
//! real folders only ([`DirHandle`]); files are new ones (`O_EXCL`), nothing is written through a name
//! that was there; only folders that we made get the archive's mode, owner and time. A file that
//! stood there before and was replaced does not come back with the undo.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, fchmod, fstat, futimens, mkdirat, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, fchown, fchownat, linkat, symlinkat};

use super::dir_handle::{DirHandle, EntryKind, is_kind, remove, standing};
use super::entry_path::EntryPath;
use super::limits::OverLimit;
use super::tar::ModifiedAt;
use super::unpack::{UnpackError, UnpackRefusal};

/// What an archive is unpacked for, and so how much it may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A root file system: setuid and setgid bits are kept, devices, pipes and sockets are left out
    /// (the shim makes `/dev`), whiteouts are refused, as one flat archive has nothing to hide.
    RootFileSystem,
    /// A download into a container: only permission bits, devices and the like are refused, a name
    /// with `.wh.` is a name like any other.
    Download,
}

/// Who owns what is unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// Whoever runs this process.
    Process,
    /// One user and group for everything.
    Fixed {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
    },
    /// The archive's ids, moved into a range of the machine's. Ids beyond the range are refused.
    Shifted {
        /// Added to the user.
        uid_offset: u32,
        /// Added to the group.
        gid_offset: u32,
        /// How many ids there are, from 0 on.
        ids: u32,
    },
}

impl Ownership {
    /// The owner on the machine; `None`: leave it.
    pub(super) fn of(self, uid: u64, gid: u64) -> Result<Option<(Uid, Gid)>, OverLimit> {
        let (uid, gid) = match self {
            Ownership::Process => return Ok(None),
            Ownership::Fixed { uid, gid } => (uid, gid),
            Ownership::Shifted { uid_offset, gid_offset, ids } => {
                (shift(uid, uid_offset, ids)?, shift(gid, gid_offset, ids)?)
            }
        };
        Ok(Some((Uid::from_raw(uid), Gid::from_raw(gid))))
    }
}

/// `u32::MAX` means "leave it" to chown, so it is never a result.
fn shift(id: u64, offset: u32, ids: u32) -> Result<u32, OverLimit> {
    let allowed = u64::from(ids.min(u32::MAX - offset)).saturating_sub(1);
    let over = OverLimit { limit: "ids", allowed, given: id };
    if id >= u64::from(ids) {
        return Err(over);
    }
    let shifted = u32::try_from(id).ok().and_then(|it| it.checked_add(offset));
    shifted.filter(|it| *it != u32::MAX).ok_or(over)
}

/// Mode, owner and time of an entry, as the archive says.
#[derive(Debug, Clone, Copy)]
pub struct EntryAttributes {
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// The owner in the archive.
    pub uid: u64,
    /// The group in the archive.
    pub gid: u64,
    /// When it was last changed.
    pub modified: ModifiedAt,
}

/// Folders that an archive uses and does not list.
const UNLISTED: EntryAttributes = EntryAttributes {
    mode: 0o755,
    uid: 0,
    gid: 0,
    modified: ModifiedAt { seconds: 0, nanoseconds: 0 },
};

/// Where an archive's entries go.
#[derive(Debug)]
pub struct Extractor<'a> {
    folder: &'a DirHandle,
    purpose: Purpose,
    ownership: Ownership,
    /// In the order of paths, a folder before what is in it.
    made: BTreeMap<EntryPath, Made>,
    /// The folder we were in last: archives list folder by folder.
    last: Option<(EntryPath, OwnedFd)>,
    /// Attributes for the folder itself, if the archive lists it.
    root: Option<EntryAttributes>,
    is_done: bool,
}

#[derive(Debug, Clone, Copy)]
enum Made {
    File,
    Symlink,
    Folder(EntryAttributes),
}

impl<'a> Extractor<'a> {
    /// Nothing is made yet.
    pub fn new(folder: &'a DirHandle, purpose: Purpose, ownership: Ownership) -> Self {
        let made = BTreeMap::new();
        Extractor { folder, purpose, ownership, made, last: None, root: None, is_done: false }
    }

    /// What the archive is for.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Whether this archive has made something of this path before.
    pub fn has_made(&self, path: &EntryPath) -> bool {
        self.made.contains_key(path)
    }

    /// Whether this archive has made a folder of this path before.
    pub fn has_made_folder(&self, path: &EntryPath) -> bool {
        matches!(self.made.get(path), Some(Made::Folder(_)))
    }

    /// Makes a folder, or goes on with the one that is there.
    pub fn folder(
        &mut self,
        path: &EntryPath,
        attributes: EntryAttributes,
    ) -> Result<(), UnpackError> {
        if path.is_root() {
            self.root = Some(attributes);
            return Ok(());
        }
        let parent = self.parent(path)?;
        if standing(&parent, path.name()).map_err(|e| failed(path, e))? != EntryKind::Folder {
            self.clear(&parent, path)?;
            self.make_folder(&parent, path)?;
            self.made.insert(path.clone(), Made::Folder(attributes));
        } else if let Some(made) = self.made.get_mut(path) {
            *made = Made::Folder(attributes);
        }
        self.last = Some((path.parent(), parent));
        Ok(())
    }

    /// Makes a new file, whatever was there before. Write it, then [`Extractor::finish_file`].
    pub fn file(&mut self, path: &EntryPath) -> Result<File, UnpackError> {
        let parent = self.parent_of_leaf(path)?;
        self.clear(&parent, path)?;
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let file = openat(&parent, path.name(), flags, Mode::from_bits_truncate(0o600));
        let file = file.map_err(|error| failed(path, error))?;
        self.made.insert(path.clone(), Made::File);
        self.last = Some((path.parent(), parent));
        Ok(File::from(file))
    }

    /// Gives a written file its owner, mode and time, in this order: a change of owner takes setuid.
    pub fn finish_file(
        &self,
        path: &EntryPath,
        file: &File,
        attributes: EntryAttributes,
    ) -> Result<(), UnpackError> {
        self.dress(path, file, attributes)
    }

    /// Makes a symbolic link. Its text is kept as it is: we never follow it.
    pub fn symlink(
        &mut self,
        path: &EntryPath,
        target: &OsStr,
        attributes: EntryAttributes,
    ) -> Result<(), UnpackError> {
        let owner = self.owner(path, attributes)?;
        let parent = self.parent_of_leaf(path)?;
        self.clear(&parent, path)?;
        symlinkat(target, &parent, path.name()).map_err(|error| failed(path, error))?;
        self.made.insert(path.clone(), Made::Symlink);
        let dress = || -> Result<(), Errno> {
            // By a descriptor of the link itself: the name may already be somebody else's.
            let flags = OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
            let link = openat(&parent, path.name(), flags, Mode::empty())?;
            if let Some((uid, gid)) = owner
                && is_kind(&fstat(&link)?, SFlag::S_IFLNK)
            {
                fchownat(&link, "", Some(uid), Some(gid), AtFlags::AT_EMPTY_PATH)?;
            }
            let time = time_spec(attributes.modified);
            utimensat(&parent, path.name(), &time, &time, UtimensatFlags::NoFollowSymlink)
        };
        dress().map_err(|error| failed(path, error))?;
        self.last = Some((path.parent(), parent));
        Ok(())
    }

    /// Makes another name for a file that this archive made. Nothing else may be linked to: not
    /// what was in the folder before, no folder, no symbolic link.
    pub fn hard_link(&mut self, path: &EntryPath, target: &EntryPath) -> Result<(), UnpackError> {
        if !matches!(self.made.get(target), Some(Made::File)) || path == target {
            return Err(UnpackRefusal::LinkTarget { target: target.to_string() }.at(path));
        }
        let from = self.enter(&target.parent()).map_err(|error| through_link(path, error))?;
        let parent = self.parent_of_leaf(path)?;
        self.clear(&parent, path)?;
        // Without AT_SYMLINK_FOLLOW: should the target be swapped for a link, we link the link.
        linkat(&from, target.name(), &parent, path.name(), AtFlags::empty())
            .map_err(|error| failed(path, error))?;
        self.made.insert(path.clone(), Made::File);
        self.last = Some((path.parent(), parent));
        Ok(())
    }

    /// All entries are in: gives the folders their attributes, the innermost first, and keeps all.
    pub fn finish(mut self) -> Result<(), UnpackError> {
        for (path, made) in self.made.iter().rev() {
            if let Made::Folder(attributes) = made {
                let folder = self.enter(path).map_err(|error| through_link(path, error))?;
                self.dress(path, &folder, *attributes)?;
            }
        }
        if let (Purpose::RootFileSystem, Some(attributes)) = (self.purpose, self.root) {
            self.dress(&EntryPath::default(), self.folder, attributes)?;
        }
        self.is_done = true;
        Ok(())
    }

    fn parent_of_leaf(&mut self, path: &EntryPath) -> Result<OwnedFd, UnpackError> {
        if path.is_root() { Err(UnpackRefusal::ReplacesFolder.at(path)) } else { self.parent(path) }
    }

    /// The folder around an entry; what is missing of it is made.
    fn parent(&mut self, path: &EntryPath) -> Result<OwnedFd, UnpackError> {
        let wanted = path.parent();
        if let Some((last, folder)) = self.last.take()
            && last == wanted
        {
            return Ok(folder);
        }
        match self.enter(&wanted) {
            Err(Errno::ENOENT) => {
                let outer = self.parent(&wanted)?;
                self.make_folder(&outer, &wanted)?;
                self.made.insert(wanted.clone(), Made::Folder(UNLISTED));
                self.enter(&wanted).map_err(|error| through_link(path, error))
            }
            other => other.map_err(|error| through_link(path, error)),
        }
    }

    fn enter(&self, path: &EntryPath) -> Result<OwnedFd, Errno> {
        self.folder.enter(path)
    }

    /// Nobody else may look in until [`Extractor::finish`] has given it its owner and mode.
    fn make_folder(&self, parent: &OwnedFd, path: &EntryPath) -> Result<(), UnpackError> {
        let mode = Mode::from_bits_truncate(0o700);
        mkdirat(parent, path.name(), mode).map_err(|error| failed(path, error))
    }

    /// Takes away what stands in the way; a folder only when it is empty.
    fn clear(&mut self, parent: &OwnedFd, path: &EntryPath) -> Result<(), UnpackError> {
        match remove(parent, path.name()) {
            Ok(()) => {
                self.made.remove(path);
                Ok(())
            }
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EBUSY) => {
                Err(UnpackRefusal::ReplacesFolder.at(path))
            }
            Err(error) => Err(failed(path, error)),
        }
    }

    fn owner(
        &self,
        path: &EntryPath,
        attributes: EntryAttributes,
    ) -> Result<Option<(Uid, Gid)>, UnpackError> {
        let owner = self.ownership.of(attributes.uid, attributes.gid);
        owner.map_err(|over| UnpackError::OverLimit { entry: path.to_string(), over })
    }

    fn dress(
        &self,
        path: &EntryPath,
        fd: impl AsFd,
        attributes: EntryAttributes,
    ) -> Result<(), UnpackError> {
        let bits = match self.purpose {
            Purpose::RootFileSystem => attributes.mode & 0o7777,
            Purpose::Download => attributes.mode & 0o777,
        };
        let owner = self.owner(path, attributes)?;
        let fd = fd.as_fd();
        let dress = || -> Result<(), Errno> {
            if let Some((uid, gid)) = owner {
                fchown(fd, Some(uid), Some(gid))?;
            }
            fchmod(fd, Mode::from_bits_truncate(bits))?;
            let time = time_spec(attributes.modified);
            futimens(fd, &time, &time)
        };
        dress().map_err(|error| failed(path, error))
    }
}

impl Drop for Extractor<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        for path in self.made.keys().rev() {
            let removed = self.enter(&path.parent()).and_then(|it| remove(it, path.name()));
            if let Err(error) = removed {
                tracing::warn!(%path, %error, "cannot remove what a failed unpack made");
            }
        }
    }
}

fn time_spec(at: ModifiedAt) -> TimeSpec {
    TimeSpec::new(at.seconds, i64::from(at.nanoseconds))
}

fn failed(path: &EntryPath, error: Errno) -> UnpackError {
    UnpackError::Write { entry: path.to_string(), source: error.into() }
}

/// A link on the way reads as `ELOOP` or `ENOTDIR`, a file as the latter.
fn through_link(path: &EntryPath, error: Errno) -> UnpackError {
    match error {
        Errno::ELOOP | Errno::ENOTDIR | Errno::EXDEV => UnpackRefusal::ThroughLink.at(path),
        error => failed(path, error),
    }
}
