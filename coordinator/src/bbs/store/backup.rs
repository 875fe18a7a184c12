//! Copies of the database: made while it is in use, checked, put back.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};

use super::{BACKUPS, DATABASE, Store, StoreError};

/// Copies the database `from`, which may be in use, to the new file `to`. The copy is complete
/// and on the disk when this returns, or there is none.
pub fn backup(from: &Path, to: &Path) -> Result<(), StoreError> {
    let failed = |reason: String| StoreError::Backup { path: to.to_owned(), reason };
    let io = |error: std::io::Error| failed(error.to_string());
    let sql = |error: rusqlite::Error| failed(error.to_string());
    if to.exists() {
        return Err(failed("the file exists already".to_owned()));
    }
    let folder = match to.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    std::fs::create_dir_all(folder).map_err(io)?;
    let partial = partial_name(to);
    // Left by a backup that was cut short: never a complete one, so it may go.
    let _ = std::fs::remove_file(&partial);
    let source = open_read_only(from).map_err(sql)?;
    let name = partial.to_str().ok_or_else(|| failed("its name is not UTF-8".to_owned()))?;
    let copied = source.execute("VACUUM INTO ?1", [name]).map_err(sql).and_then(|_| {
        std::fs::File::open(&partial).and_then(|file| file.sync_all()).map_err(io)?;
        std::fs::rename(&partial, to).map_err(io)?;
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)
    });
    if copied.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    copied
}

/// Reads the whole file and says what is wrong with it; nothing when it is sound.
pub fn integrity(path: &Path) -> Result<Vec<String>, StoreError> {
    let failed = |error| super::open_error("check", path, error);
    let connection = open_read_only(path).map_err(failed)?;
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(failed)?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
    let lines: Result<Vec<String>, _> = lines.collect();
    Ok(lines.map_err(failed)?.into_iter().filter(|line| line != "ok").collect())
}

/// Puts the backup `from` in the place of the database in `folder`. The database that was there
/// is kept beside it under another name, which is returned.
pub fn restore(folder: &Path, from: &Path) -> Result<Option<PathBuf>, StoreError> {
    let faults = integrity(from)?;
    if let Some(fault) = faults.first() {
        let way_out = "Choose another backup.".to_owned();
        return Err(StoreError::Damaged { path: from.to_owned(), reason: fault.clone(), way_out });
    }
    let _lock = Store::lock(folder)?;
    let path = folder.join(DATABASE);
    let failed = |error: std::io::Error| StoreError::Open {
        doing: "restore",
        path: path.clone(),
        reason: error.to_string(),
    };
    let fresh = partial_name(&path);
    std::fs::copy(from, &fresh).map_err(failed)?;
    std::fs::File::open(&fresh).and_then(|file| file.sync_all()).map_err(failed)?;
    let kept = if path.exists() { Some(keep_aside(folder).map_err(failed)?) } else { None };
    std::fs::rename(&fresh, &path).map_err(failed)?;
    std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    Ok(kept)
}

/// Renames the database with its log, so that neither is ever mixed with another's.
fn keep_aside(folder: &Path) -> std::io::Result<PathBuf> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let name = |suffix: &str| format!("{DATABASE}{suffix}");
    let kept = folder.join(format!("replaced-{}-{DATABASE}", since.as_millis()));
    for suffix in ["-wal", "-shm", ""] {
        let from = folder.join(name(suffix));
        if from.exists() {
            let mut to = kept.clone().into_os_string();
            to.push(suffix);
            std::fs::rename(from, to)?;
        }
    }
    Ok(kept)
}

/// What an operator can do about a damaged database.
pub(super) fn way_out(path: &Path) -> String {
    let folder = path.parent().unwrap_or(Path::new("."));
    let check = format!("`volvox-coordinator check --data-dir {}`", folder.display());
    match newest_backup(folder) {
        Some(backup) => format!(
            "Nothing was changed. {check} tells how badly; the newest backup is {}, and \
             `volvox-coordinator restore --data-dir {} --from {}` puts it back, keeping the \
             damaged file.",
            backup.display(),
            folder.display(),
            backup.display(),
        ),
        None => format!(
            "Nothing was changed. {check} tells how badly; there is no backup in {}. Move the \
             file away to start with an empty board: running instances are learnt from their \
             cells again and none is stopped, and consumers have to desire theirs again.",
            folder.join(BACKUPS).display(),
        ),
    }
}

/// The newest finished backup in the data folder.
pub fn newest_backup(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder.join(BACKUPS)).ok()?;
    let backups = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "db"));
    let newest = backups.max_by_key(|entry| entry.metadata().and_then(|it| it.modified()).ok());
    newest.map(|entry| entry.path())
}

pub(super) fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".partial");
    PathBuf::from(name)
}
