//! Looks a database over without opening it for work: for `check` and `dump`.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use rusqlite::Connection;
use serde::Serialize;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::task::Task;

use super::backup::{integrity, open_read_only};
use super::presence::Presences;
use super::{StoreError, StoredRecord, open_error};
use crate::bbs::command::{DomainRecord, RowId};
use crate::bbs::logic::Board;
use crate::bbs::settings::BoardSettings;

/// What a look at the whole database found.
#[derive(Debug, Default, Serialize)]
pub struct Inspection {
    /// What SQLite says of the file's structure; empty when it is sound.
    pub faults: Vec<String>,
    /// Records that a board would set aside.
    pub unreadable: Vec<UnusableRecord>,
    /// Usable records, by table.
    pub records: BTreeMap<&'static str, usize>,
    /// Records that a board has set aside before.
    pub set_aside: usize,
}

/// A record that a board could not use.
#[derive(Debug, Serialize)]
pub struct UnusableRecord {
    /// Its table.
    pub table: &'static str,
    /// Its row.
    pub row: u64,
    /// Why it cannot be used.
    pub reason: String,
}

type RowVisitor<'a> = &'a mut dyn FnMut(&'static str, u64, serde_json::Value) -> Result<(), String>;

impl Inspection {
    /// Reads everything.
    pub fn of(database: &Path) -> Result<Self, StoreError> {
        Inspection::each(database, |_, _, _| Ok(()))
    }

    /// Whether a board would take the database as it is.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty() && self.unreadable.is_empty()
    }

    /// Reads everything and shows each usable record. Goes on past damage where it can.
    pub fn each(
        database: &Path,
        mut visit: impl FnMut(&'static str, u64, serde_json::Value) -> Result<(), String>,
    ) -> Result<Self, StoreError> {
        let mut found = Inspection { faults: integrity(database)?, ..Inspection::default() };
        let mut board = Board::new(BoardSettings::default());
        found.table::<DomainRecord>(database, &mut board, &mut visit)?;
        found.table::<Arc<LrpDeployment>>(database, &mut board, &mut visit)?;
        found.table::<Arc<ActualLrp>>(database, &mut board, &mut visit)?;
        found.table::<Arc<Task>>(database, &mut board, &mut visit)?;
        let connection = open_read_only(database).map_err(|e| open_error("read", database, e))?;
        if let Err(error) = found.set_aside(&connection, &mut visit) {
            found.faults.push(format!("set_aside: {error}"));
        }
        Ok(found)
    }

    /// Shows what was set aside, its bytes in hexadecimal: nobody could read them.
    fn set_aside(
        &mut self,
        connection: &Connection,
        visit: RowVisitor<'_>,
    ) -> rusqlite::Result<()> {
        let query = "SELECT id, origin, row, reason, hex(record) FROM set_aside ORDER BY id";
        let mut statement = connection.prepare(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            let shown = serde_json::json!({
                "origin": row.get::<_, String>(1)?,
                "row": row.get::<_, i64>(2)?,
                "reason": row.get::<_, String>(3)?,
                "bytes": row.get::<_, String>(4)?,
            });
            self.set_aside += 1;
            if let Err(error) = visit("set_aside", id.cast_unsigned(), shown) {
                self.faults.push(error);
            }
        }
        Ok(())
    }

    fn table<T: StoredRecord>(
        &mut self,
        database: &Path,
        board: &mut Board,
        visit: RowVisitor<'_>,
    ) -> Result<(), StoreError> {
        let failed = |error| open_error("read", database, error);
        let connection = open_read_only(database).map_err(failed)?;
        let presences = Presences::read(&connection).unwrap_or_default();
        let query = format!("SELECT id, record FROM {} ORDER BY id", T::TABLE);
        let mut statement = match connection.prepare(&query) {
            Ok(statement) => statement,
            Err(error) => {
                self.faults.push(format!("{}: {error}", T::TABLE));
                return Ok(());
            }
        };
        let mut rows = statement.query([]).map_err(failed)?;
        loop {
            let row = match rows.next() {
                Ok(Some(row)) => row,
                Ok(None) => break,
                Err(error) => {
                    self.faults.push(format!("{}: {error}", T::TABLE));
                    break;
                }
            };
            let id: i64 = row.get(0).map_err(failed)?;
            let id = id.cast_unsigned();
            let read = match row.get_ref(1).map(|value| value.as_bytes().map(T::read)) {
                Ok(Ok(Ok(record))) => {
                    let record = record.amended(RowId(id), &presences);
                    let shown = serde_json::to_value(&record).map_err(|error| error.to_string());
                    let put = shown.and_then(|shown| {
                        board.load(record.change(RowId(id)))?;
                        Ok(shown)
                    });
                    put.and_then(|shown| visit(T::TABLE, id, shown))
                }
                Ok(Ok(Err(error))) => Err(error.to_string()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match read {
                Ok(()) => *self.records.entry(T::TABLE).or_default() += 1,
                Err(reason) => {
                    self.unreadable.push(UnusableRecord { table: T::TABLE, row: id, reason });
                }
            }
        }
        Ok(())
    }
}
