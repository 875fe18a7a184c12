//! What a restart of the agent needs to know of each container, as files in a folder: what it is to
//! do (`GUID.work`, written once) and how far it is (`GUID.progress`, written at every step).
//!
//! The folder belongs on a file system that a reboot empties (`/run`): containers do not survive a
//! reboot either, and a monitor's steps must not wear out a disk. So nothing is synced; a file is
//! whole or not there because it is renamed into place.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::error;

use super::logic::{Progress, SavedContainer};
use super::workload::Workload;
use crate::container::guid::ContainerGuid;

const PROGRESS: &str = "progress";
const WORK: &str = "work";
const PARTIAL: &str = "partial";
/// How long to wait for somebody who has the records open.
const PATIENCE: Duration = Duration::from_secs(2);

/// The records of one cell. Only one at a time may have them open.
#[derive(Debug)]
pub struct ContainerRecords {
    folder: PathBuf,
    _lock: File,
}

/// Records that cannot be read or written. The executor does not start, or says so and goes on.
#[derive(Debug, thiserror::Error)]
pub enum RecordsError {
    /// Somebody else has them open: another agent runs on this folder.
    #[error("{0}: another agent is using it")]
    InUse(PathBuf),
    /// The file system did not do what it was asked.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// What became of it.
        source: io::Error,
    },
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RecordsError + use<> {
    let path = path.to_owned();
    move |source| RecordsError::Io { doing, path, source }
}

impl ContainerRecords {
    /// Opens the folder, or makes it.
    pub fn open(folder: &Path) -> Result<Self, RecordsError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder).map_err(failed("make", folder))?;
        let path = folder.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open", &path))?;
        // A predecessor that was killed is gone in a moment.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(ContainerRecords { folder: folder.to_owned(), _lock: lock }),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(fs::TryLockError::WouldBlock) => {
                    return Err(RecordsError::InUse(folder.to_owned()));
                }
                Err(fs::TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
            }
        }
    }

    /// Where they are.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes down how far a container is.
    pub fn keep(&self, guid: &ContainerGuid, progress: &Progress<'_>) -> Result<(), RecordsError> {
        self.write(guid, PROGRESS, progress)
    }

    /// Writes down what a container is to do.
    pub fn keep_work(&self, guid: &ContainerGuid, work: &Workload) -> Result<(), RecordsError> {
        self.write(guid, WORK, work)
    }

    fn write(
        &self,
        guid: &ContainerGuid,
        kind: &str,
        value: &impl Serialize,
    ) -> Result<(), RecordsError> {
        let path = self.folder.join(format!("{guid}.{kind}"));
        let partial = self.folder.join(format!("{guid}.{kind}.{PARTIAL}"));
        let bytes = serde_json::to_vec(value).map_err(io::Error::from);
        let bytes = bytes.map_err(failed("write", &path))?;
        let written = File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&partial)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&partial, &path));
        written.map_err(failed("write", &path))
    }

    /// Strikes out all of a container.
    pub fn forget(&self, guid: &ContainerGuid) -> Result<(), RecordsError> {
        for kind in [PROGRESS, WORK] {
            remove(&self.folder.join(format!("{guid}.{kind}")))?;
        }
        Ok(())
    }

    /// Reads all that is written down. What cannot be understood is set aside, loudly: a container
    /// that nobody knows is removed from the machine. What a container was to do of which nothing else was
    /// written is of no use, and removed too.
    pub fn load(
        &self,
    ) -> Result<BTreeMap<ContainerGuid, (SavedContainer, Option<Workload>)>, RecordsError> {
        let (mut all, mut works) = (BTreeMap::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).map_err(failed("list", &self.folder))? {
            let path = entry.map_err(failed("list", &self.folder))?.path();
            match path.extension().and_then(|it| it.to_str()) {
                Some(PARTIAL) => remove(&path)?,
                Some(PROGRESS) => {
                    if let Some(saved) = read::<SavedContainer>(&path)? {
                        let work = read(&path.with_extension(WORK))?;
                        all.insert(saved.guid().clone(), (saved, work));
                    }
                }
                Some(WORK) => works.push(path),
                Some(_) | None => {}
            }
        }
        for path in works {
            if !path.with_extension(PROGRESS).exists() {
                remove(&path)?;
            }
        }
        Ok(all)
    }
}

fn remove(path: &Path) -> Result<(), RecordsError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, RecordsError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed("read", path)(source)),
    };
    match serde_json::from_slice(&bytes) {
        Ok(value) => Ok(Some(value)),
        Err(problem) => {
            let aside = path.with_extension("unreadable");
            error!(path = %path.display(), aside = %aside.display(), error = %problem, "record cannot be understood, set aside");
            fs::rename(path, &aside).map_err(failed("set aside", path))?;
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use volvox_protocol::id::InstanceGuid;
    use volvox_protocol::task::TaskDefinition;

    use super::*;

    #[test]
    fn work_of_which_nothing_else_is_written_does_not_stay() {
        let folder = tempfile::tempdir().unwrap();
        let records = ContainerRecords::open(folder.path()).unwrap();
        let guid = ContainerGuid::from(InstanceGuid::new("one").unwrap());
        records.keep_work(&guid, &Workload::Task(Arc::new(TaskDefinition::default()))).unwrap();
        assert!(folder.path().join("one.work").exists());
        assert!(records.load().unwrap().is_empty());
        assert!(!folder.path().join("one.work").exists());
    }
}
