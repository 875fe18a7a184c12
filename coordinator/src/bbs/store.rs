//! The database: SQLite in WAL, one transaction for each batch, synced before it returns.
//!
//! Rows are keyed by the integers that the board gives out, so a write is a step in a B-tree of
//! integers and new records go to its end. Records are opaque to SQLite ([`codec`]): all finding
//! is done in memory. A change of presence alone is noted in a small table beside the record
//! ([`presence`]): when a hundred cells vanish, a page for each instance need not be rewritten. Only the coordinator's thread uses a [`SqliteStore`]; backups read beside it through a
//! connection of their own ([`backup`]).

pub mod backup;
pub mod codec;
pub mod files;
pub mod inspect;
mod presence;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::{error, info, warn};
use volvox_protocol::actual_lrp::{ActualLrp, Presence};
use volvox_protocol::deployment::{LrpDeployment, LrpDeploymentV1};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::task::Task;
use volvox_protocol::time::Timestamp;

use super::command::{Change, DomainRecord, RowId};
use super::logic::Board;
use super::settings::BoardSettings;
use codec::{FIRST_VERSION, RECORD_VERSION, Unreadable};
use files::{Files, OsFiles};
use presence::Presences;

/// The database's file name in the data folder.
pub const DATABASE: &str = "board.db";
/// The folder for backups in the data folder.
pub const BACKUPS: &str = "backups";
/// "VLVX": tells our databases from others.
const APPLICATION_ID: i32 = 0x564c_5658;
/// The shape of the tables. Migrations lead from each version to the next.
pub const SCHEMA_VERSION: i32 = 2;

/// What leads from version `n` to `n + 1`, as the `n`th entry. The first makes a new database.
const MIGRATIONS: [&str; SCHEMA_VERSION as usize] = [
    "
    CREATE TABLE domains     (id INTEGER PRIMARY KEY, record BLOB NOT NULL);
    CREATE TABLE deployments (id INTEGER PRIMARY KEY, record BLOB NOT NULL);
    CREATE TABLE actual_lrps (id INTEGER PRIMARY KEY, record BLOB NOT NULL);
    CREATE TABLE tasks       (id INTEGER PRIMARY KEY, record BLOB NOT NULL);
    CREATE TABLE presences   (id INTEGER PRIMARY KEY, presence INTEGER NOT NULL);
    CREATE TABLE set_aside   (
        id INTEGER PRIMARY KEY,
        origin TEXT NOT NULL,
        row INTEGER NOT NULL,
        record BLOB NOT NULL,
        reason TEXT NOT NULL,
        set_aside_at INTEGER NOT NULL
    );
",
    // The tables stay as they are. Deployments are written as record version 2 from here on, which
    // older programs must not open; those of version 1 are read, and rewritten when they change.
    "",
];

/// What went wrong with the database, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The data folder or the database could not be opened. Nothing was changed.
    #[error("cannot {doing} {}: {reason}", path.display())]
    Open {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        reason: String,
    },
    /// Another coordinator works on this folder. Stop it first, or use another folder.
    #[error(
        "{} is in use by another coordinator: stop that one first, or choose another --data-dir",
        .0.display()
    )]
    InUse(PathBuf),
    /// The file is not a database of ours. Nothing was changed.
    #[error("{} is not a Volvox database: move it away, or choose another --data-dir", .0.display())]
    NotOurs(PathBuf),
    /// The file was written by a newer program. Nothing was changed.
    #[error(
        "{} has {what} version {found}, which this program does not know: \
         install the newer version again, or restore an older backup",
        path.display()
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// What has the version: the schema, or a record.
        what: &'static str,
        /// The version it has.
        found: i32,
    },
    /// The file is damaged. Nothing was changed, nothing was thrown away.
    #[error("{} is damaged ({reason}). {way_out}", path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What SQLite said.
        reason: String,
        /// What to do about it.
        way_out: String,
    },
    /// A restore was cut short. Nothing was changed; the restore must be done again.
    #[error(
        "a restore into {} was cut short: run `volvox-coordinator restore --data-dir {} --from {from}` again",
        folder.display(), folder.display()
    )]
    Restoring {
        /// The data folder.
        folder: PathBuf,
        /// The backup that was being restored.
        from: String,
    },
    /// The disk failed while a batch was being committed: whether it happened is not known. The
    /// board is read again before the next one; look whether the change is there.
    #[error("whether the change was saved is not known: {reason}; read again before trying again")]
    Doubtful {
        /// Why.
        reason: String,
    },
    /// A batch could not be committed: none of it has happened. It may be tried again; if the
    /// disk is full or broken it will fail again until that is mended.
    #[error("the change was not saved and did not happen: {reason}")]
    Commit {
        /// Why.
        reason: String,
    },
    /// A backup could not be made. The database itself is as it was.
    #[error("cannot back up to {}: {reason}", path.display())]
    Backup {
        /// The file that was to be written.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
}

/// What was read back at the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Records that are on the board now.
    pub records: usize,
    /// Records that could not be used and were set aside, with the reason for each.
    pub set_aside: Vec<QuarantinedRow>,
}

/// A record that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuarantinedRow {
    /// The table it was in.
    pub origin: &'static str,
    /// Its row there.
    pub row: u64,
    /// Why it could not be used.
    pub reason: String,
}

/// The database of one data folder, open and locked.
#[derive(Debug)]
pub struct SqliteStore<F = OsFiles> {
    connection: Connection,
    buffer: Vec<u8>,
    presences: Presences,
    /// What the connection last did is not known: it has to be opened again.
    doubtful: bool,
    /// After the connection: the lock outlives it.
    files: F,
}

impl SqliteStore {
    /// Opens the database in `folder`, making both when they are not there.
    pub fn open(folder: &Path) -> Result<Self, StoreError> {
        let files = OsFiles::lock(folder)?;
        if let Ok(from) = std::fs::read(folder.join(backup::RESTORING)) {
            let from = String::from_utf8_lossy(&from).into_owned();
            return Err(StoreError::Restoring { folder: folder.to_owned(), from });
        }
        SqliteStore::over(files)
    }
}

impl<F: Files> SqliteStore<F> {
    /// Opens the database in these files, making it when it is not there.
    pub fn over(files: F) -> Result<Self, StoreError> {
        make_if_new(&files)?;
        let connection = connect_settled(&files)?;
        let (buffer, presences) = (Vec::new(), Presences::default());
        Ok(SqliteStore { connection, buffer, presences, doubtful: false, files })
    }

    /// Closes and opens the database, for when a connection has become unusable. It is of use again when
    /// everything has been read back.
    pub fn reopen(&mut self) -> Result<(), StoreError> {
        self.doubt();
        self.connection = connect_settled(&self.files)?;
        self.doubtful = !mutated(Bug::UsableUnread);
        Ok(())
    }

    /// Nobody knows what is in the log for good. It is left as it is, also when the connection is closed:
    /// a log that is folded back and then turns out to have a hole would leave half a transaction.
    fn doubt(&mut self) {
        self.doubtful = true;
        let leave = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        if let Err(error) = self.connection.set_db_config(leave, true) {
            warn!(%error, "the log may be folded back when the database is closed");
        }
    }

    /// Reads everything back onto a new board. What cannot be read or breaks a rule is set aside
    /// in a table of its own, with a loud line in the log, and the rest goes on.
    pub fn load(
        &mut self,
        settings: BoardSettings,
        now: Timestamp,
    ) -> Result<(Board, LoadReport), StoreError> {
        let mut board = Board::new(settings);
        let mut report = LoadReport::default();
        let presences =
            Presences::read(&self.connection).map_err(|error| self.read_error(error))?;
        self.presences = presences;
        self.load_table::<DomainRecord>(&mut board, &mut report)?;
        self.load_table::<Arc<LrpDeployment>>(&mut board, &mut report)?;
        self.load_table::<Arc<ActualLrp>>(&mut board, &mut report)?;
        self.load_table::<Arc<Task>>(&mut board, &mut report)?;
        if report.set_aside.iter().any(|it| it.origin == <Arc<LrpDeployment>>::TABLE) {
            warn!("a desired LRP was lost: no domain is fresh until its consumer says so again");
            board.forget_domains();
        }
        if !report.set_aside.is_empty()
            && let Err(error) = self.set_aside(&report, now)
        {
            // They are where they were, and are passed over again at the next start.
            error!(%error, "the records could not be moved out of the way");
        }
        self.end_log()?;
        board.loaded(now);
        self.doubtful = false;
        info!(records = report.records, set_aside = report.set_aside.len(), "read the board back");
        Ok((board, report))
    }

    /// Writes a transaction that changes nothing, after what was read. A commit that failed at its end may
    /// stand whole in the log without those who have it open seeing it: only the next who opens it would.
    /// Now another stands in its place.
    fn end_log(&self) -> Result<(), StoreError> {
        if mutated(Bug::LogIsNotEnded) {
            return Ok(());
        }
        let sql = format!("PRAGMA user_version = {SCHEMA_VERSION}");
        match self.connection.execute_batch(&sql) {
            Err(error)
                if !self.doubtful && error.sqlite_error_code() == Some(ErrorCode::DiskFull) =>
            {
                warn!(%error, "the disk of the data folder is full");
                Ok(())
            }
            ended => ended.map_err(|error| self.read_error(error)),
        }
    }

    fn load_table<T: StoredRecord>(
        &self,
        board: &mut Board,
        report: &mut LoadReport,
    ) -> Result<(), StoreError> {
        let failed = |error| self.read_error(error);
        let query = format!("SELECT id, record FROM {} ORDER BY id", T::TABLE);
        let mut statement = self.connection.prepare(&query).map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            let id: i64 = row.get(0).map_err(failed)?;
            let bytes = row.get_ref(1).map_err(failed)?;
            let id = id.cast_unsigned();
            let put = match bytes.as_bytes() {
                Ok(bytes) => match T::read(bytes) {
                    // Not damage: a newer program wrote it. Setting it aside would lose it.
                    Err(Unreadable::Version(version)) if version > RECORD_VERSION => {
                        let path = self.files.database().to_owned();
                        let found = i32::from(version);
                        return Err(StoreError::Newer { path, what: "record", found });
                    }
                    decoded => decoded.map_err(|error| error.to_string()),
                },
                Err(error) => Err(error.to_string()),
            };
            let put = put.map(|record| record.amended(RowId(id), &self.presences));
            match put.and_then(|record| board.load(record.change(RowId(id)))) {
                Ok(()) => report.records += 1,
                Err(reason) => {
                    error!(table = T::TABLE, row = id, reason, "a record is set aside");
                    report.set_aside.push(QuarantinedRow { origin: T::TABLE, row: id, reason });
                }
            }
        }
        Ok(())
    }

    /// Moves what could not be used out of the way. A lost deployment makes its instances look
    /// undesired, so no domain counts as fresh before its consumer has vouched for it again.
    fn set_aside(&mut self, report: &LoadReport, now: Timestamp) -> Result<(), StoreError> {
        let at = now.as_nanos().cast_signed();
        let transaction = self.connection.transaction().map_err(commit_error)?;
        for QuarantinedRow { origin, row, reason } in &report.set_aside {
            let row = row.cast_signed();
            let copy = format!(
                "INSERT INTO set_aside (origin, row, record, reason, set_aside_at)
                 SELECT '{origin}', id, record, ?2, ?3 FROM {origin} WHERE id = ?1"
            );
            transaction.execute(&copy, (row, reason, at)).map_err(commit_error)?;
            let delete = format!("DELETE FROM {origin} WHERE id = ?1");
            transaction.execute(&delete, [row]).map_err(commit_error)?;
        }
        if report.set_aside.iter().any(|it| it.origin == <Arc<LrpDeployment>>::TABLE) {
            transaction.execute("DELETE FROM domains", []).map_err(commit_error)?;
        }
        transaction.commit().map_err(commit_error)
    }

    /// Makes the changes last: all of them, or none. Returns when they are on the disk.
    pub fn commit<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> Result<(), StoreError> {
        let mut writes: Vec<RowWrite<'_>> = changes.into_iter().filter_map(RowWrite::of).collect();
        if writes.is_empty() {
            return Ok(());
        }
        // A row that changed twice is written once, as it was last; rows go in their order.
        writes.sort_by_key(|write| (write.table, write.row));
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut presences = Vec::new();
        let result = self.write_all(&writes, &mut buffer, &mut presences);
        self.buffer = buffer;
        if result.is_ok() {
            self.presences.note(presences);
        }
        if matches!(result, Err(StoreError::Doubtful { .. })) {
            self.doubt();
        }
        if result.is_err() && !self.connection.is_autocommit() {
            // The error that began it is the one to report; a connection that cannot even roll
            // back is found out by `is_usable`.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        result
    }

    /// Whether the connection can take another transaction.
    pub fn is_usable(&self) -> bool {
        self.connection.is_autocommit() && !self.doubtful
    }

    /// Leaves the connection as a failed rollback would.
    #[cfg(test)]
    pub(crate) fn break_connection(&self) {
        self.connection.execute_batch("BEGIN").expect("a fresh connection can begin");
    }

    /// Has the database refuse changes, or take them again.
    #[cfg(test)]
    pub(crate) fn refuse_writes(&self, on_or_off: &str) {
        let sql = format!("PRAGMA query_only = {on_or_off}");
        self.connection.execute_batch(&sql).expect("the pragma is known");
    }

    fn write_all(
        &self,
        writes: &[RowWrite<'_>],
        buffer: &mut Vec<u8>,
        presences: &mut Vec<(RowId, Option<Presence>)>,
    ) -> Result<(), StoreError> {
        let connection = &self.connection;
        run(connection, "BEGIN IMMEDIATE", [])?;
        let mut rest = writes;
        while let Some(first) = rest.first() {
            let same = |write: &&RowWrite<'_>| (write.table, write.row) == (first.table, first.row);
            let times = rest.iter().take_while(same).count();
            let last = &rest[times - 1];
            match last.presence {
                Some(presence) if times == 1 => {
                    presence::put(connection, last.row, presence)?;
                    presences.push((last.row, Some(presence)));
                }
                Some(_) | None => {
                    last.execute(connection, buffer)?;
                    if last.table == ACTUAL_LRPS && self.presences.holds(last.row) {
                        presence::forget(connection, last.row)?;
                        presences.push((last.row, None));
                    }
                }
            }
            rest = &rest[times..];
        }
        let committed = connection.prepare_cached("COMMIT").and_then(|mut it| it.execute([]));
        committed.map(drop).map_err(|error| match error.sqlite_error_code() {
            // Before anything was written, or with no room for all of it.
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::ReadOnly) => {
                commit_error(error)
            }
            // The end of it may have been written and not synced: the next start could find it.
            Some(_) | None => StoreError::Doubtful { reason: commit_reason(error) },
        })
    }

    fn read_error(&self, error: rusqlite::Error) -> StoreError {
        open_error("read", self.files.database(), error)
    }
}

impl<F: Files> Store for SqliteStore<F> {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        SqliteStore::commit(self, changes)
    }

    fn is_usable(&self) -> bool {
        SqliteStore::is_usable(self)
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        SqliteStore::reopen(self)
    }

    fn load(
        &mut self,
        settings: BoardSettings,
        now: Timestamp,
    ) -> Result<(Board, LoadReport), StoreError> {
        SqliteStore::load(self, settings, now)
    }
}

/// What makes a board's changes last.
pub trait Store {
    /// All of these, or none. Returns when they are on the disk.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;
    /// Whether it can take another transaction.
    fn is_usable(&self) -> bool;
    /// Begins anew, when it cannot.
    fn reopen(&mut self) -> Result<(), StoreError>;
    /// Reads everything back onto a new board.
    fn load(
        &mut self,
        settings: BoardSettings,
        now: Timestamp,
    ) -> Result<(Board, LoadReport), StoreError>;
}

/// A kind of record and the table it lies in.
trait StoredRecord: Serialize + DeserializeOwned {
    const TABLE: &'static str;

    /// The step that puts this record on an empty row.
    fn change(self, row: RowId) -> Change;

    /// Reads the record in whichever form it was written.
    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        match codec::open(bytes)? {
            (FIRST_VERSION, body) => codec::decode(body),
            (version, _) => Err(Unreadable::Version(version)),
        }
    }

    /// The record with what was noted beside it.
    fn amended(self, _row: RowId, _presences: &Presences) -> Self {
        self
    }
}

impl StoredRecord for DomainRecord {
    const TABLE: &'static str = "domains";

    fn change(self, row: RowId) -> Change {
        Change::Domain(row, None, Some(self))
    }
}

impl StoredRecord for Arc<LrpDeployment> {
    const TABLE: &'static str = "deployments";

    fn change(self, row: RowId) -> Change {
        Change::Deployment(row, None, Some(self))
    }

    fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        match codec::open(bytes)? {
            (FIRST_VERSION, body) => {
                codec::decode::<LrpDeploymentV1>(body).map(|old| Arc::new(old.into()))
            }
            (_, body) => codec::decode(body),
        }
    }
}

impl StoredRecord for Arc<ActualLrp> {
    const TABLE: &'static str = "actual_lrps";

    fn change(self, row: RowId) -> Change {
        Change::Actual(row, None, Some(self))
    }

    fn amended(mut self, row: RowId, presences: &Presences) -> Self {
        if let Some(presence) = presences.get(row) {
            Arc::make_mut(&mut self).presence = presence;
        }
        self
    }
}

impl StoredRecord for Arc<Task> {
    const TABLE: &'static str = "tasks";

    fn change(self, row: RowId) -> Change {
        Change::Task(row, None, Some(self))
    }
}

/// The statements of one table, and its place in the order of writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SqlTable {
    nth: usize,
    put: &'static str,
    delete: &'static str,
}

const DOMAINS: SqlTable = SqlTable {
    nth: 0,
    put: "INSERT OR REPLACE INTO domains (id, record) VALUES (?1, ?2)",
    delete: "DELETE FROM domains WHERE id = ?1",
};
const DEPLOYMENTS: SqlTable = SqlTable {
    nth: 1,
    put: "INSERT OR REPLACE INTO deployments (id, record) VALUES (?1, ?2)",
    delete: "DELETE FROM deployments WHERE id = ?1",
};
const ACTUAL_LRPS: SqlTable = SqlTable {
    nth: 2,
    put: "INSERT OR REPLACE INTO actual_lrps (id, record) VALUES (?1, ?2)",
    delete: "DELETE FROM actual_lrps WHERE id = ?1",
};
const TASKS: SqlTable = SqlTable {
    nth: 3,
    put: "INSERT OR REPLACE INTO tasks (id, record) VALUES (?1, ?2)",
    delete: "DELETE FROM tasks WHERE id = ?1",
};

/// One row to be written or deleted.
struct RowWrite<'a> {
    table: SqlTable,
    row: RowId,
    record: After<'a>,
    /// The new presence, where nothing else of an instance record changed.
    presence: Option<Presence>,
}

enum After<'a> {
    Nothing,
    Domain(&'a DomainRecord),
    Deployment(&'a LrpDeployment),
    Actual(&'a ActualLrp),
    Task(&'a Task),
}

impl<'a> RowWrite<'a> {
    fn of(change: &'a Change) -> Option<Self> {
        let (table, row, record) = match change {
            Change::Domain(row, _, after) => (DOMAINS, row, after.as_ref().map(After::Domain)),
            Change::Deployment(row, _, after) => {
                (DEPLOYMENTS, row, after.as_deref().map(After::Deployment))
            }
            Change::Actual(row, _, after) => {
                (ACTUAL_LRPS, row, after.as_deref().map(After::Actual))
            }
            Change::Task(row, _, after) => (TASKS, row, after.as_deref().map(After::Task)),
            Change::Presence(..) | Change::Settled(..) | Change::Asked(..) => return None,
        };
        let presence = match change {
            Change::Actual(_, Some(before), Some(after)) => presence::only(before, after),
            Change::Domain(..)
            | Change::Deployment(..)
            | Change::Actual(..)
            | Change::Task(..)
            | Change::Presence(..)
            | Change::Settled(..)
            | Change::Asked(..) => None,
        };
        Some(RowWrite { table, row: *row, record: record.unwrap_or(After::Nothing), presence })
    }

    fn execute(&self, connection: &Connection, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        let row = self.row.0.cast_signed();
        let scratch = std::mem::take(buffer);
        let encoded = match self.record {
            After::Nothing => return run(connection, self.table.delete, [row]),
            After::Domain(record) => codec::encode(FIRST_VERSION, record, scratch),
            After::Deployment(record) => codec::encode(RECORD_VERSION, record, scratch),
            After::Actual(record) => codec::encode(FIRST_VERSION, record, scratch),
            After::Task(record) => codec::encode(FIRST_VERSION, record, scratch),
        };
        let bytes = encoded.map_err(|error| StoreError::Commit { reason: error.to_string() })?;
        run(connection, self.table.put, (row, &bytes))?;
        *buffer = bytes;
        Ok(())
    }
}

/// Runs one statement of a transaction.
fn run(
    connection: &Connection,
    sql: &str,
    parameters: impl rusqlite::Params,
) -> Result<(), StoreError> {
    let mut statement = connection.prepare_cached(sql).map_err(commit_error)?;
    statement.execute(parameters).map_err(commit_error)?;
    Ok(())
}

/// Makes the database of a new folder, whole or not at all. A database that should be there and is
/// not, or is empty, is a loss that must be seen.
fn make_if_new(files: &impl Files) -> Result<(), StoreError> {
    let path = files.database();
    let lost = |reason: &str| StoreError::Damaged {
        path: path.to_owned(),
        reason: reason.to_owned(),
        way_out: backup::way_out(path),
    };
    match files.size() {
        Some(0) => Err(lost("it is empty")),
        None if files.has_traces() => Err(lost("it is missing, though there are traces of it")),
        Some(_) => Ok(()),
        None => {
            let fresh = files.fresh();
            let failed = |error| open_error("create", path, error);
            let mut connection = open_in(files, &fresh, OpenFlags::default()).map_err(failed)?;
            migrate(&mut connection, &fresh, &MIGRATIONS)?;
            connection.close().map_err(|(_, error)| failed(error))?;
            files.put(&fresh).map_err(|error| StoreError::Open {
                doing: "create",
                path: path.to_owned(),
                reason: error.to_string(),
            })
        }
    }
}

fn open_in(files: &impl Files, path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    match files.vfs() {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs),
        None => Connection::open_with_flags(path, flags),
    }
}

/// Makes sure that a database is one of ours, and none of the future.
fn identify(connection: &Connection, path: &Path) -> Result<i32, StoreError> {
    let failed = |error| open_error("open", path, error);
    let number = |name: &str| -> rusqlite::Result<i32> {
        connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get(0))
    };
    if number("application_id").map_err(failed)? != APPLICATION_ID {
        return Err(StoreError::NotOurs(path.to_owned()));
    }
    let found = number("user_version").map_err(failed)?;
    if !(1..=SCHEMA_VERSION).contains(&found) {
        return Err(StoreError::Newer { path: path.to_owned(), what: "schema", found });
    }
    Ok(found)
}

/// A connection that shows nothing which a power cut could take back.
fn connect_settled(files: &impl Files) -> Result<Connection, StoreError> {
    if mutated(Bug::LogIsNotSettled) {
        return connect(files);
    }
    files.settle_log().map_err(|error| StoreError::Open {
        doing: "sync the log of",
        path: files.database().to_owned(),
        reason: error.to_string(),
    })?;
    connect(files)
}

fn connect(files: &impl Files) -> Result<Connection, StoreError> {
    let path = files.database();
    let failed = |error| open_error("open", path, error);
    // If the file is gone, none is made in its place: SQLite would take the log for that one's.
    let flags = OpenFlags::default().difference(OpenFlags::SQLITE_OPEN_CREATE);
    let mut connection = open_in(files, path, flags).map_err(failed)?;
    connection.busy_timeout(Duration::from_secs(5)).map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(32);
    let found = identify(&connection, path)?;
    // FULL syncs the log at every commit: in WAL nothing less survives a power cut. The log is
    // folded back at 16 MiB, and its file does not stay larger than 64.
    let pragmas = format!(
        "PRAGMA journal_mode = WAL;
         PRAGMA synchronous = FULL;
         PRAGMA wal_autocheckpoint = {};
         PRAGMA journal_size_limit = 67108864;
         PRAGMA cache_size = -8192;
         PRAGMA temp_store = MEMORY;",
        files.log_pages()
    );
    connection.execute_batch(&pragmas).map_err(failed)?;
    // Some file systems say no to either without an error.
    let mode: String =
        connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).map_err(failed)?;
    let synchronous: i64 =
        connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" || synchronous != 2 {
        return Err(StoreError::Open {
            doing: "open",
            path: path.to_owned(),
            reason: format!(
                "its file system cannot keep a write-ahead log (mode {mode}, synchronous \
                 {synchronous}): put the data folder on a local disk"
            ),
        });
    }
    if found < SCHEMA_VERSION {
        let copy = files.keep_copy(SCHEMA_VERSION)?;
        info!(backup = %copy.display(), found, to = SCHEMA_VERSION, "migrating the database");
        migrate(&mut connection, path, &MIGRATIONS)?;
    }
    Ok(connection)
}

/// Leads a database from the version that it has to the last of `steps`, in one transaction.
fn migrate(connection: &mut Connection, path: &Path, steps: &[&str]) -> Result<(), StoreError> {
    let failed = |error| open_error("migrate", path, error);
    let found: i32 =
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
    if found == 0 {
        // Before the first table. Instance records are small: smaller pages are less to write.
        connection.execute_batch("PRAGMA page_size = 2048").map_err(failed)?;
    }
    let transaction = connection.transaction().map_err(failed)?;
    for step in steps.iter().skip(usize::try_from(found).unwrap_or_default()) {
        transaction.execute_batch(step).map_err(failed)?;
    }
    let versions =
        format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};", steps.len());
    transaction.execute_batch(&versions).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn commit_error(error: rusqlite::Error) -> StoreError {
    StoreError::Commit { reason: commit_reason(error) }
}

fn commit_reason(error: rusqlite::Error) -> String {
    let hint = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => "; free some space on the disk of the data folder",
        Some(ErrorCode::ReadOnly) => "; the data folder is not writable",
        Some(ErrorCode::SystemIoFailure) => "; the disk of the data folder reports an error",
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "; stop the coordinator and run `volvox-coordinator check`"
        }
        Some(_) | None => "",
    };
    format!("{error}{hint}")
}

/// Tells damage from other trouble, and where the newest backup is.
fn open_error(doing: &'static str, path: &Path, error: rusqlite::Error) -> StoreError {
    let damaged = matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
    );
    if !damaged {
        return StoreError::Open { doing, path: path.to_owned(), reason: error.to_string() };
    }
    let way_out = backup::way_out(path);
    StoreError::Damaged { path: path.to_owned(), reason: error.to_string(), way_out }
}
