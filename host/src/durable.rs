//! Crash-safe files: after an interrupted write, a file has its old or its new content, complete.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} {}: {source}", path.display())]
pub struct FileError {
    /// The operation that failed, as a verb for the error text.
    pub verb: &'static str,
    /// The file or directory.
    pub path: PathBuf,
    /// Error of the operating system.
    pub source: std::io::Error,
}

fn failed<'a>(verb: &'static str, path: &'a Path) -> impl Fn(std::io::Error) -> FileError + 'a {
    move |source| FileError { verb, path: path.to_owned(), source }
}

/// Creates a directory with mode 0700, and its missing parents, and syncs them to disk so that they
/// exist after a power loss. An existing directory is unchanged.
pub fn private_folder(path: &Path) -> Result<(), FileError> {
    let missing: Vec<_> =
        path.ancestors().take_while(|it| !it.as_os_str().is_empty() && !it.exists()).collect();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(failed("create", path))?;
    missing.into_iter().try_for_each(sync_folder)
}

/// Reads a file of at most `limit` bytes. `None`: the file does not exist.
pub fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("open", path)(error)),
    };
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed("read", path))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > limit) {
        let error = std::io::Error::new(ErrorKind::FileTooLarge, "it is longer than it can be");
        return Err(failed("read", path)(error));
    }
    Ok(Some(bytes))
}

/// Writes `bytes` to `path`, with mode 0600. When this returns, they are on disk. When it is
/// interrupted, the old content is still there. Only one writer at a time is allowed.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(failed("create", &fresh))?;
    // A file left by an interrupted write keeps its mode when it is opened.
    file.set_permissions(Permissions::from_mode(0o600)).map_err(failed("protect", &fresh))?;
    file.write_all(bytes).map_err(failed("write", &fresh))?;
    file.sync_all().map_err(failed("sync", &fresh))?;
    std::fs::rename(&fresh, path).map_err(failed("put in place", path))?;
    sync_folder(path)
}

/// Removes a file and syncs its directory. A missing file is not an error.
pub fn remove(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_folder(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("remove", path)(error)),
    }
}

/// Syncs the directory that contains `path`.
fn sync_folder(path: &Path) -> Result<(), FileError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    File::open(folder).and_then(|it| it.sync_all()).map_err(failed("sync", folder))
}

/// The mode of a file, if the group or others have any access to it. `None`: only the owner has.
pub fn open_to_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Locks a file until it is dropped or the process exits. `None`: another process has the lock.
pub fn lock(path: &Path) -> Result<Option<File>, FileError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map_err(failed("open", path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(failed("lock", path)(error)),
    }
}
