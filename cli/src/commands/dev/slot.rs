//! The number of a `volvox dev`, which nobody else on the machine has, and the folders that it works
//! in. Locks say who is at work: they go with the process, however that ends.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::layout::{self, BASES, Layout, NUMBERS};
use crate::client::dev::{DevInstance, ENTRY, FOLDER};
use crate::error::Failure;
use crate::random;

/// The file whose lock says that somebody is at work in a folder.
const LOCK: &str = "dev.lock";
/// Containers' users must be able to walk through.
const OPEN_TO_ALL: u32 = 0o711;
/// How long `volvox dev --clean` may take, and how often we look whether it has ended.
const CLEANING: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// Where everything of a cluster is kept.
pub(super) struct ClusterDir {
    pub(super) path: PathBuf,
    pub(super) temporary: bool,
    _lock: Flock<File>,
}

impl ClusterDir {
    /// The given folder, or a new temporary one.
    pub(super) fn open(given: Option<&Path>) -> Result<ClusterDir, Failure> {
        let path = match given {
            Some(path) => path.to_owned(),
            None => std::env::temp_dir().join(random::name("volvox-dev")?),
        };
        // A temporary one must be new: in a folder for all, somebody else's may lie in wait.
        let mut builder = DirBuilder::new();
        let made = builder.recursive(given.is_some()).mode(OPEN_TO_ALL).create(&path);
        made.map_err(|error| failed(&path, &error))?;
        let path = path.canonicalize().map_err(|error| failed(&path, &error))?;
        let mut found = std::fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
        if found.next().is_some() && !path.join(LOCK).exists() {
            let shown = path.display();
            return Err(Failure::usage(format!(
                "{shown} is not empty, and no folder of `volvox dev`"
            ))
            .hint("choose a new folder, or an empty one"));
        }
        match lock(&path)? {
            Some(lock) => Ok(ClusterDir { path, temporary: given.is_none(), _lock: lock }),
            None => {
                let by = entries().into_iter().find(|(_, entry)| entry.folder == path);
                let by = by.map_or(String::new(), |(_, entry)| format!(" (process {})", entry.pid));
                let shown = path.display();
                Err(Failure::refused(format!("another `volvox dev`{by} is at work in {shown}"))
                    .hint("end it with Ctrl-C, or choose another folder"))
            }
        }
    }
}

/// A number that is ours until this is dropped.
pub(super) struct DevSlot {
    /// Its folder below [`FOLDER`]: sockets, and what a reboot may forget.
    pub(super) path: PathBuf,
    /// What somebody who was killed has left.
    pub(super) left: Option<DevInstance>,
    _lock: Flock<File>,
}

impl DevSlot {
    /// Takes the number that this folder had when it was left behind, else one that is free, with a
    /// place for the containers.
    pub(super) fn take(folder: &Path, cells: u8) -> Result<(DevSlot, Layout), Failure> {
        let left = || entries().into_iter().find(|(_, entry)| entry.folder == folder);
        if let Some((number, _)) = left() {
            // Nobody else is at work in this folder. But somebody may be looking, or cleaning up.
            let end = Instant::now() + CLEANING;
            while left().is_some() && Instant::now() < end {
                if let Some(slot) = DevSlot::lock(number)?
                    && let Some(base) = slot.left.as_ref().map(|it| it.base)
                {
                    return Ok((slot, Layout { number, cells, base }));
                }
                std::thread::sleep(LOOK);
            }
        }
        for number in 0..NUMBERS {
            let Some(slot) = DevSlot::lock(number)? else { continue };
            // Else somebody's containers may still be there.
            if slot.left.is_none() {
                match free_base(number) {
                    Some(base) => return Ok((slot, Layout { number, cells, base })),
                    None => slot.remove(),
                }
            }
        }
        Err(Failure::refused(format!(
            "{NUMBERS} `volvox dev` run here, or were killed and not cleaned up, or others use \
             their addresses"
        ))
        .hint("`volvox dev --clean` removes what was left by those that were killed"))
    }

    /// The next one that was left behind, that nobody is at work in, and that is meant.
    pub(super) fn left_behind(
        is_meant: impl Fn(&Path) -> bool,
    ) -> Result<Option<DevSlot>, Failure> {
        for (number, entry) in entries() {
            if is_meant(&entry.folder)
                && let Some(slot) = DevSlot::lock(number)?
                && slot.left.is_some()
            {
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    fn lock(number: u8) -> Result<Option<DevSlot>, Failure> {
        let all = Path::new(FOLDER);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(all);
        made.map_err(|error| failed(all, &error))?;
        let path = path(number);
        make(&path)?;
        let Some(lock) = lock(&path)? else { return Ok(None) };
        let left = DevInstance::read(&path);
        Ok(Some(DevSlot { path, left, _lock: lock }))
    }

    /// Removes its folder. The lock goes last, so that nobody finds a half of it; the next one copes
    /// with what cannot be removed.
    pub(super) fn remove(self) {
        for found in std::fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let path = found.path();
            let _left = match found.file_type() {
                Ok(kind) if kind.is_dir() => std::fs::remove_dir_all(&path),
                _ if found.file_name() == LOCK => Ok(()),
                _ => std::fs::remove_file(&path),
            };
        }
        let _left = std::fs::remove_file(self.path.join(LOCK));
        let _left = std::fs::remove_dir(&self.path);
    }
}

fn path(number: u8) -> PathBuf {
    Path::new(FOLDER).join(number.to_string())
}

/// What is said by those that run and those that were killed.
fn entries() -> Vec<(u8, DevInstance)> {
    let read = |number| Some((number, DevInstance::read(&path(number))?));
    (0..NUMBERS).filter_map(read).collect()
}

/// Those whose process is no more: not for sure, but without disturbing anybody.
pub(super) fn killed() -> Vec<DevInstance> {
    let is_gone = |entry: &DevInstance| !Path::new("/proc").join(entry.pid.to_string()).exists();
    entries().into_iter().map(|(_, entry)| entry).filter(is_gone).collect()
}

/// Writes what this one says of itself.
pub(super) fn tell(slot: &DevSlot, entry: &DevInstance) -> Result<(), Failure> {
    let file = slot.path.join(ENTRY);
    let text = toml::to_string(entry).map_err(|error| failed(&file, &error))?;
    std::fs::write(&file, text).map_err(|error| failed(&file, &error))
}

/// Where the containers of this number may be; none: others have all of these places.
fn free_base(number: u8) -> Option<[u8; 2]> {
    let prefix = layout::bridges(number);
    let interfaces = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut names = interfaces.filter_map(|it| it.file_name().into_string().ok());
    if names.any(|name| name.starts_with(&prefix)) {
        return None;
    }
    let routes = std::fs::read_to_string("/proc/net/route").unwrap_or_default();
    let is_free = |base: &[u8; 2]| !routes.lines().any(|it| layout::is_routed(it, number, *base));
    BASES.into_iter().find(is_free)
}

fn make(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(OPEN_TO_ALL).create(path);
    made.map_err(|error| failed(path, &error))
}

/// Locks a folder; none: somebody else has.
fn lock(folder: &Path) -> Result<Option<Flock<File>>, Failure> {
    let path = folder.join(LOCK);
    loop {
        let file = File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(|error| failed(&path, &error))?;
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(None),
            Err((_, error)) => return Err(failed(&path, &error)),
        };
        // Whoever had it may have removed the file after we opened it: then it is nobody's lock.
        let ours = lock.metadata().map(|it| it.ino()).ok();
        if ours.is_some() && ours == path.metadata().map(|it| it.ino()).ok() {
            return Ok(Some(lock));
        }
        make(folder)?;
    }
}

fn failed(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    #[test]
    fn a_folder_is_one_s_at_a_time_and_nobody_else_s_data() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("new/one");
        let first = ClusterDir::open(Some(&path)).unwrap();
        assert!(!first.temporary);
        let refused = ClusterDir::open(Some(&path)).err().unwrap();
        assert_eq!(refused.code, Code::Refused, "{refused:?}");
        std::fs::write(path.join("more"), "").unwrap();
        drop(first);
        drop(ClusterDir::open(Some(&path)).unwrap());
        let refused = ClusterDir::open(Some(all.path())).err().unwrap();
        assert_eq!(refused.code, Code::Usage, "{refused:?}");
        assert!(!all.path().join(LOCK).exists());
    }

    #[test]
    fn a_lock_whose_file_was_removed_is_no_lock() {
        let all = tempfile::tempdir().unwrap();
        let first = lock(all.path()).unwrap().unwrap();
        assert!(lock(all.path()).unwrap().is_none());
        std::fs::remove_file(all.path().join(LOCK)).unwrap();
        let second = lock(all.path()).unwrap().unwrap();
        drop(first);
        assert!(lock(all.path()).unwrap().is_none());
        drop(second);
    }
}
