//! Copies of the database: made while it is in use, checked, put back.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags};
use volvox_host::clock::wall;

use super::files::OsFiles;
use super::inspect::Inspection;
use super::{BACKUPS, DATABASE, StoreError};

/// While this file is there a restore is under way, or was cut short.
pub(super) const RESTORING: &str = "restoring";

/// Copies the database `from`, which may be in use, to the new file `to`. The copy is complete
/// and on the disk when this returns, or there is none. Only its owner may read it: definitions
/// hold passwords.
pub fn backup(from: &Path, to: &Path) -> Result<(), StoreError> {
    is_free(to)?;
    place(to, |partial| copy(from, partial))
}

/// Copies a whole backup that is open to the new file `to`, as [`backup`] does with a database.
pub fn carry(mut from: File, to: &Path) -> Result<(), StoreError> {
    is_free(to)?;
    place(to, |partial| {
        let io = |error: std::io::Error| error.to_string();
        std::fs::create_dir_all(parent(to)).map_err(io)?;
        let mut file = new_file(partial).map_err(io)?;
        std::io::copy(&mut from, &mut file).map_err(io)?;
        file.sync_all().map_err(io)
    })
}

/// Whether a backup may have this name: none takes the place of a file.
pub fn is_free(to: &Path) -> Result<(), StoreError> {
    if to.exists() {
        let reason = "the file exists already".to_owned();
        return Err(StoreError::Backup { path: to.to_owned(), reason });
    }
    Ok(())
}

/// Gives a file its name when it is whole.
fn place(to: &Path, fill: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), StoreError> {
    let partial = partial_name(to);
    let filled = fill(&partial).and_then(|()| {
        // A link, unlike a rename, never takes the place of a file that came in between.
        std::fs::hard_link(&partial, to).map_err(|error| error.to_string())?;
        sync_folder(parent(to)).map_err(|error| error.to_string())
    });
    let _ = std::fs::remove_file(&partial);
    filled.map_err(|reason| StoreError::Backup { path: to.to_owned(), reason })
}

/// A file made by us, empty and private.
fn new_file(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)
}

/// Writes a whole copy to the new file `to` and syncs it.
fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let io = |error: std::io::Error| error.to_string();
    let sql = |error: rusqlite::Error| error.to_string();
    std::fs::create_dir_all(parent(to)).map_err(io)?;
    // Before SQLite fills it.
    let file = new_file(to).map_err(io)?;
    let source = open_read_only(from).map_err(sql)?;
    let name = to.to_str().ok_or("its name is not UTF-8")?;
    source.execute("VACUUM INTO ?1", [name]).map_err(sql)?;
    file.sync_all().map_err(io)
}

/// Reads the whole file and says what is wrong with it; nothing when it is sound.
pub fn integrity(path: &Path) -> Result<Vec<String>, StoreError> {
    let failed = |error| super::open_error("check", path, error);
    let connection = open_read_only(path).map_err(failed)?;
    super::identify(&connection, path)?;
    let mut statement = connection.prepare("PRAGMA integrity_check").map_err(failed)?;
    let lines = statement.query_map([], |row| row.get::<_, String>(0)).map_err(failed)?;
    let lines: Result<Vec<String>, _> = lines.collect();
    Ok(lines.map_err(failed)?.into_iter().filter(|line| line != "ok").collect())
}

/// Puts the backup `from` in the place of the database in `folder`. The database that was there
/// is kept beside it under another name, which is returned. A restore that is cut short leaves a
/// mark, and no coordinator starts before it has been done again.
pub fn restore(folder: &Path, from: &Path) -> Result<Option<PathBuf>, StoreError> {
    let found = Inspection::of(from)?;
    if let Some(fault) = found.faults.first() {
        let way_out = "Choose another backup.".to_owned();
        return Err(StoreError::Damaged { path: from.to_owned(), reason: fault.clone(), way_out });
    }
    let _lock = OsFiles::lock(folder)?;
    let path = folder.join(DATABASE);
    let failed = |reason: String| StoreError::Open { doing: "restore", path: path.clone(), reason };
    let io = |error: std::io::Error| failed(error.to_string());
    let fresh = partial_name(&path);
    copy(from, &fresh).map_err(failed)?;
    let mark = folder.join(RESTORING);
    std::fs::write(&mark, from.as_os_str().as_encoded_bytes()).map_err(io)?;
    sync_folder(folder).map_err(io)?;
    let kept = keep_aside(folder).map_err(io)?;
    std::fs::rename(&fresh, &path).map_err(io)?;
    sync_folder(folder).map_err(io)?;
    std::fs::remove_file(&mark).map_err(io)?;
    sync_folder(folder).map_err(io)?;
    Ok(kept)
}

/// Renames the database with its log, so that neither is ever mixed with another's. A log without
/// a database is moved too: it must not be read into the one that comes.
fn keep_aside(folder: &Path) -> std::io::Result<Option<PathBuf>> {
    let milliseconds = wall().as_nanos() / 1_000_000;
    let kept = folder.join(format!("replaced-{milliseconds}-{DATABASE}"));
    let mut any = None;
    for suffix in ["", "-wal", "-shm"] {
        let from = folder.join(format!("{DATABASE}{suffix}"));
        if from.exists() {
            let mut to = kept.clone().into_os_string();
            to.push(suffix);
            std::fs::rename(from, to)?;
            any = Some(kept.clone());
        }
    }
    Ok(any)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

pub(super) fn sync_folder(folder: &Path) -> std::io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
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

/// Whether there has been a database in this folder: its log, or a backup.
pub fn has_traces(folder: &Path) -> bool {
    folder.join(format!("{DATABASE}-wal")).exists() || newest_backup(folder).is_some()
}

/// The newest finished backup in the data folder. One from the future is so only if there is no other:
/// the clock was ahead once, and how old it is nobody knows.
pub fn newest_backup(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder.join(BACKUPS)).ok()?;
    let backups = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "db"));
    let now = SystemTime::now();
    let newest = backups.max_by_key(|entry| {
        let made = entry.metadata().and_then(|it| it.modified()).ok();
        (made.is_some_and(|made| made <= now), made)
    });
    newest.map(|entry| entry.path())
}

pub(super) fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

/// A name that nobody else writes to: not another backup of this process, not another process.
pub(crate) fn partial_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.to_owned().into_os_string();
    name.push(format!(".{}-{nth}.partial", std::process::id()));
    PathBuf::from(name)
}
