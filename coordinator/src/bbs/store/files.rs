//! The files that a database lies in: those of the machine, or in the simulator a disk in memory that
//! fails. What is decided about them is decided above, in [`super::SqliteStore`]; here it is done.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use volvox_host::clock::wall;

use super::{BACKUPS, DATABASE, StoreError, backup};

/// The file whose lock tells that a coordinator is at work in the data folder.
const LOCK: &str = "coordinator.lock";
/// How much of the log is copied at once.
const BLOCK: usize = 1 << 20;

/// Where a database lies, and how SQLite gets there.
pub trait Files: fmt::Debug {
    /// The database.
    fn database(&self) -> &Path;

    /// The name under which SQLite knows these files; none: they are the machine's.
    fn vfs(&self) -> Option<&str> {
        None
    }

    /// The pages of the log at which it is folded back into the database.
    fn log_pages(&self) -> u32 {
        8_192
    }

    /// The bytes of the database, if it is there.
    fn size(&self) -> Option<u64>;

    /// Whether something tells that there was a database.
    fn has_traces(&self) -> bool;

    /// A name for a database that is being made.
    fn fresh(&self) -> PathBuf;

    /// Gives the database that was made under a fresh name its own. It is on the disk when this returns.
    fn put(&self, fresh: &Path) -> std::io::Result<()>;

    /// Makes all that is in the log last: writes it again where it stands, and syncs it.
    ///
    /// What is read from the log is not yet on the disk if whoever wrote it was killed before the sync.
    /// If the sync failed, the system may have given up what it could not write, and shows it all the
    /// same; no later sync would try it again. Written once more, it is tried once more.
    fn settle_log(&self) -> std::io::Result<()>;

    /// Keeps a copy of the database before its schema becomes this one. Gives the copy's name.
    fn keep_copy(&self, schema: i32) -> Result<PathBuf, StoreError>;
}

/// A data folder of this machine, locked.
#[derive(Debug)]
pub struct OsFiles {
    folder: PathBuf,
    database: PathBuf,
    /// Held open: the lock on it goes with the process, however that ends.
    _lock: File,
}

impl OsFiles {
    /// Makes the data folder if need be and takes its lock.
    pub(super) fn lock(folder: &Path) -> Result<Self, StoreError> {
        let open_error = |doing| {
            move |error: std::io::Error| StoreError::Open {
                doing,
                path: folder.to_owned(),
                reason: error.to_string(),
            }
        };
        // Definitions hold passwords: the folder is its owner's.
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(open_error("create the data folder"))?;
        let lock = File::create(folder.join(LOCK)).map_err(open_error("lock the data folder"))?;
        match lock.try_lock() {
            Ok(()) => Ok(OsFiles {
                folder: folder.to_owned(),
                database: folder.join(DATABASE),
                _lock: lock,
            }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(folder.to_owned())),
            Err(TryLockError::Error(error)) => Err(open_error("lock the data folder")(error)),
        }
    }
}

impl Files for OsFiles {
    fn database(&self) -> &Path {
        &self.database
    }

    fn size(&self) -> Option<u64> {
        std::fs::metadata(&self.database).ok().map(|found| found.len())
    }

    fn has_traces(&self) -> bool {
        backup::has_traces(&self.folder)
    }

    fn fresh(&self) -> PathBuf {
        backup::partial_name(&self.database)
    }

    fn put(&self, fresh: &Path) -> std::io::Result<()> {
        std::fs::set_permissions(fresh, PermissionsExt::from_mode(0o600))?;
        File::open(fresh)?.sync_all()?;
        std::fs::rename(fresh, &self.database)?;
        backup::sync_folder(&self.folder)
    }

    fn settle_log(&self) -> std::io::Result<()> {
        let path = self.folder.join(format!("{DATABASE}-wal"));
        let log = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        let mut block = vec![0; BLOCK];
        let mut at = 0;
        loop {
            let count = log.read_at(&mut block, at)?;
            if count == 0 {
                return log.sync_all();
            }
            log.write_all_at(&block[..count], at)?;
            at += count as u64;
        }
    }

    fn keep_copy(&self, schema: i32) -> Result<PathBuf, StoreError> {
        let seconds = wall().as_nanos() / 1_000_000_000;
        let copy = self.folder.join(BACKUPS).join(format!("before-schema-{schema}-{seconds}.db"));
        backup::backup(&self.database, &copy)?;
        Ok(copy)
    }
}
