//! What the coordinator's store keeps. Commits are whole or nothing, as SQLite's are; what was read
//! back went through the real encoding of records. It can refuse, leave in doubt, and die.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use volvox_coordinator::bbs::command::{Change, DomainRecord, RowId};
use volvox_coordinator::bbs::logic::Board;
use volvox_coordinator::bbs::settings::Settings;
use volvox_coordinator::bbs::store::codec::{self, FIRST_VERSION, RECORD_VERSION};
use volvox_coordinator::bbs::store::{LoadReport, StoreError};
use volvox_coordinator::bbs::writer::Keeper;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::task::Task;
use volvox_protocol::time::Timestamp;

/// What happens at the next commit that has something to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mishap {
    /// It fails, and nothing is kept.
    Fails,
    /// It fails, and whether it is kept nobody knows: it is.
    DoubtfulKept,
    /// It fails, and whether it is kept nobody knows: it is not.
    DoubtfulLost,
    /// The coordinator dies before it.
    DiesBefore,
    /// The coordinator dies after it.
    DiesAfter,
}

/// When in a commit the coordinator has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Died {
    /// Nothing of it is kept.
    Before,
    /// All of it is.
    After,
}

#[derive(Debug, Clone)]
enum Row {
    Domain(DomainRecord),
    Deployment(Arc<LrpDeployment>),
    Actual(Arc<ActualLrp>),
    Task(Arc<Task>),
}

/// The disk. It outlives coordinators.
#[derive(Debug, Default)]
pub(super) struct Disk {
    rows: BTreeMap<(u8, RowId), Row>,
    pub(super) full: bool,
    pub(super) mishap: Option<Mishap>,
    /// The coordinator has died in a commit.
    pub(super) died: Option<Died>,
    doubtful: bool,
}

impl Disk {
    /// Everything is lost.
    pub(super) fn wipe(&mut self) {
        self.rows.clear();
    }

    /// Whether nobody knows what the last commit came to. The next coordinator reads it.
    pub(super) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.doubtful)
    }

    fn keep(&mut self, changes: &[Change]) {
        let stored = changes.iter().filter(|change| change.is_stored());
        for change in stored {
            let (table, row, after) = match change {
                Change::Domain(row, _, after) => (0, row, after.clone().map(Row::Domain)),
                Change::Deployment(row, _, after) => (1, row, after.clone().map(Row::Deployment)),
                Change::Actual(row, _, after) => (2, row, after.clone().map(Row::Actual)),
                Change::Task(row, _, after) => (3, row, after.clone().map(Row::Task)),
                Change::Presence(..) | Change::Settled(..) | Change::Asked(..) => continue,
            };
            match after {
                Some(after) => drop(self.rows.insert((table, *row), after)),
                None => drop(self.rows.remove(&(table, *row))),
            }
        }
    }
}

/// A coordinator's hold on the disk.
#[derive(Debug, Clone)]
pub(super) struct Store(pub(super) Rc<RefCell<Disk>>);

impl Keeper for Store {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut disk = self.0.borrow_mut();
        if !changes.iter().any(Change::is_stored) {
            return Ok(());
        }
        if disk.died.is_some() {
            return Err(StoreError::Commit { reason: "the coordinator is dead".to_owned() });
        }
        let mishap = disk.mishap.take();
        let fails = |reason: &str| Err(StoreError::Commit { reason: reason.to_owned() });
        let doubtful = || Err(StoreError::Doubtful { reason: "the disk failed".to_owned() });
        match mishap {
            None if disk.full => fails("the disk is full"),
            None => {
                disk.keep(changes);
                Ok(())
            }
            Some(Mishap::Fails) => fails("the disk refused"),
            Some(Mishap::DoubtfulKept) => {
                disk.keep(changes);
                disk.doubtful = true;
                doubtful()
            }
            Some(Mishap::DoubtfulLost) => {
                disk.doubtful = true;
                doubtful()
            }
            Some(Mishap::DiesBefore) => {
                disk.died = Some(Died::Before);
                fails("the coordinator died")
            }
            Some(Mishap::DiesAfter) => {
                disk.keep(changes);
                disk.died = Some(Died::After);
                Ok(())
            }
        }
    }

    fn is_usable(&self) -> bool {
        !self.0.borrow().doubtful
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.0.borrow_mut().doubtful = false;
        Ok(())
    }

    fn load(
        &mut self,
        settings: Settings,
        now: Timestamp,
    ) -> Result<(Board, LoadReport), StoreError> {
        let disk = self.0.borrow();
        let mut board = Board::new(settings);
        for ((_, row), record) in &disk.rows {
            let change = reread(*row, record);
            let loaded = change.and_then(|change| board.load(change));
            loaded.map_err(|reason| StoreError::Commit { reason })?;
        }
        board.loaded(now);
        let report = LoadReport { records: disk.rows.len(), ..LoadReport::default() };
        Ok((board, report))
    }
}

/// A record through its bytes.
fn reread(row: RowId, record: &Row) -> Result<Change, String> {
    fn through<T: serde::Serialize + serde::de::DeserializeOwned>(
        version: u8,
        record: &T,
    ) -> Result<T, String> {
        let bytes = codec::encode(version, record, Vec::new()).map_err(|it| it.to_string())?;
        let (_, body) = codec::open(&bytes).map_err(|it| it.to_string())?;
        codec::decode(body).map_err(|it| it.to_string())
    }
    Ok(match record {
        Row::Domain(record) => Change::Domain(row, None, Some(through(FIRST_VERSION, record)?)),
        Row::Deployment(record) => {
            Change::Deployment(row, None, Some(through(RECORD_VERSION, record)?))
        }
        Row::Actual(record) => Change::Actual(row, None, Some(through(FIRST_VERSION, record)?)),
        Row::Task(record) => Change::Task(row, None, Some(through(FIRST_VERSION, record)?)),
    })
}
