//! Presences noted beside the records. When a cell goes missing, each of its records changes in
//! nothing but its presence. Rewriting them would touch a page of the database for each; here
//! they stand side by side. The next full write of a record takes its note away.

use std::collections::BTreeMap;

use rusqlite::Connection;
use volvox_protocol::actual_lrp::{ActualLrp, Presence};

use super::{StoreError, run};
use crate::bbs::command::RowId;

/// The notes that there are, as of the last commit.
#[derive(Debug, Default)]
pub(super) struct Presences(BTreeMap<RowId, Presence>);

impl Presences {
    pub(super) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        let mut statement = connection.prepare("SELECT id, presence FROM presences")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let mut noted = BTreeMap::new();
        for row in rows {
            let (id, number): (i64, i64) = row?;
            // A number that is none of ours was not written by us: the record speaks for itself.
            if let Some(presence) = ALL.get(usize::try_from(number).unwrap_or(usize::MAX)) {
                noted.insert(RowId(id.cast_unsigned()), *presence);
            }
        }
        Ok(Presences(noted))
    }

    pub(super) fn get(&self, row: RowId) -> Option<Presence> {
        self.0.get(&row).copied()
    }

    pub(super) fn holds(&self, row: RowId) -> bool {
        self.0.contains_key(&row)
    }

    /// Remembers what a commit has written.
    pub(super) fn note(&mut self, changes: Vec<(RowId, Option<Presence>)>) {
        for (row, presence) in changes {
            match presence {
                Some(presence) => self.0.insert(row, presence),
                None => self.0.remove(&row),
            };
        }
    }
}

/// In the order of the numbers that Diego's API gives them.
const ALL: [Presence; 3] = [Presence::Ordinary, Presence::Evacuating, Presence::Suspect];

/// The new presence, when nothing else has changed.
pub(super) fn only(before: &ActualLrp, after: &ActualLrp) -> Option<Presence> {
    // The times and tags tell most changes apart at a glance; the rest makes sure.
    let same = before.presence != after.presence
        && before.since == after.since
        && before.modification_tag == after.modification_tag
        && ActualLrp { presence: after.presence, ..before.clone() } == *after;
    same.then_some(after.presence)
}

pub(super) fn put(
    connection: &Connection,
    row: RowId,
    presence: Presence,
) -> Result<(), StoreError> {
    let number: i64 = match presence {
        Presence::Ordinary => 0,
        Presence::Evacuating => 1,
        Presence::Suspect => 2,
    };
    let sql = "INSERT OR REPLACE INTO presences (id, presence) VALUES (?1, ?2)";
    run(connection, sql, (row.0.cast_signed(), number))
}

pub(super) fn forget(connection: &Connection, row: RowId) -> Result<(), StoreError> {
    run(connection, "DELETE FROM presences WHERE id = ?1", [row.0.cast_signed()])
}
