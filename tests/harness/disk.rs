//! The coordinator's disk: the real store and SQLite, on files in memory that fail ([`platter`]). Beside
//! it stands what was promised: whatever is read back must be that, or that and the one commit of which
//! nobody knows what became of it.

pub(super) mod platter;
mod vfs;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use volvox_coordinator::bbs::command::{Change, DomainRecord, RowId};
use volvox_coordinator::bbs::logic::Board;
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::bbs::state::Records;
use volvox_coordinator::bbs::store::codec::{self, FIRST_VERSION, RECORD_VERSION};
use volvox_coordinator::bbs::store::files::Files;
use volvox_coordinator::bbs::store::{self, LoadReport, Store, StoreError};
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::deployment::{LrpDeployment, LrpDeploymentV1};
use volvox_protocol::task::Task;
use volvox_protocol::time::Timestamp;

use super::plan::{Kind, Plan};
use platter::{Blow, Platter};

const DATABASE: &str = "board.db";
/// How much of the log is written again at once: smaller than the machine's, so that it is interrupted.
const BLOCK: usize = 8_192;

/// How a coordinator has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Died {
    /// Its disk failed it before it could tell anybody of its last commit.
    Silent,
    /// Its last commit is there; some may have been told of it.
    After,
}

/// What ends a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its process is killed.
    Killed,
    /// Its machine loses its power.
    Dark,
}

#[derive(Debug, Clone, PartialEq)]
enum Row {
    Domain(DomainRecord),
    Deployment(Arc<LrpDeployment>),
    Actual(Arc<ActualLrp>),
    Task(Arc<Task>),
}

type Rows = BTreeMap<(u8, RowId), Row>;

/// The disk. It outlives coordinators.
#[derive(Debug)]
pub(super) struct Disk {
    name: String,
    platter: Rc<RefCell<Platter>>,
    /// What is promised to be there.
    promised: Rows,
    /// The commit of which nobody knows whether it is there too.
    doubt: Option<Vec<Change>>,
    /// The coordinator dies when its next commit is done.
    pub(super) dies_after: bool,
    died: Option<Died>,
    /// What was read back and should not have been.
    broken: Option<String>,
    /// In some runs it is a bad disk, once a coordinator has started on it: see [`Platter::bad`].
    goes_bad: Option<usize>,
    log_pages: u32,
    fresh: u64,
}

impl Disk {
    pub(super) fn new(plan: &Plan) -> Disk {
        let seed = plan.seed;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("disk-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let is_bad = plan.kinds.contains(&Kind::CommitFailure) && seed % 4 == 1;
        let platter = Rc::new(RefCell::new(Platter::new(seed)));
        vfs::mount(&name, Rc::clone(&platter));
        Disk {
            name,
            platter,
            promised: Rows::new(),
            doubt: None,
            dies_after: false,
            died: None,
            broken: None,
            goes_bad: is_bad.then_some(30),
            // Folded back often in some runs, never in others.
            log_pages: [4, 40, 400, 8_192][usize::try_from(seed / 4 % 4).unwrap_or_default()],
            fresh: 0,
        }
    }

    /// A write or sync soon to come goes wrong.
    pub(super) fn light(&mut self, after: usize, blow: Blow) {
        self.platter.borrow_mut().fuse = Some((after, blow));
    }

    /// A read soon to come goes wrong.
    pub(super) fn misread(&mut self, after: usize) {
        self.platter.borrow_mut().read_fuse = Some(after);
    }

    pub(super) fn fill(&mut self, is_full: bool) {
        self.platter.borrow_mut().full = is_full;
    }

    /// Nothing is going to go wrong.
    pub(super) fn mend(&mut self) {
        self.platter.borrow_mut().mend();
        self.goes_bad = None;
        self.dies_after = false;
    }

    /// Everything is lost.
    pub(super) fn wipe(&mut self) {
        self.platter.borrow_mut().wipe();
        self.promised.clear();
        self.doubt = None;
    }

    /// The coordinator is dead.
    pub(super) fn orphan(&mut self, end: End) {
        let mut platter = self.platter.borrow_mut();
        match end {
            End::Killed => platter.orphan(),
            End::Dark => platter.lose_power(),
        }
    }

    /// How the coordinator has died, if it has.
    pub(super) fn died(&self) -> Option<Died> {
        self.died
    }

    /// What failed, in words.
    pub(super) fn take_story(&mut self) -> Vec<String> {
        std::mem::take(&mut self.platter.borrow_mut().story)
    }

    pub(super) fn take_broken(&mut self) -> Option<String> {
        self.broken.take()
    }

    /// An error without the disk's name, which is another in each run.
    pub(super) fn nameless(&self, error: &StoreError) -> String {
        error.to_string().replace(&self.name, "disk")
    }

    /// Whether nobody knows what the last commit came to. The next coordinator reads it.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Writes, syncs and reads that failed.
    pub(super) fn failed(&self) -> u64 {
        self.platter.borrow().failed
    }

    /// Makes it what the first release would have written: its schema, and its form of deployments as
    /// far as it could express them. While no coordinator has it. Gives how many records are older now.
    pub(super) fn age(&mut self) -> Result<u64, String> {
        // What goes wrong goes wrong for coordinators, not here.
        let troubled = self.platter.borrow().trouble();
        self.platter.borrow_mut().mend();
        let aged =
            if self.platter.borrow().size(DATABASE).is_some() { self.rewrite() } else { Ok(0) };
        self.platter.borrow_mut().trouble_again(troubled);
        aged
    }

    fn rewrite(&self) -> Result<u64, String> {
        let text = |error: rusqlite::Error| error.to_string();
        let mut connection = self.connect().map_err(text)?;
        let transaction = connection.transaction().map_err(text)?;
        let mut statement =
            transaction.prepare("SELECT id, record FROM deployments").map_err(text)?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).map_err(text)?;
        let rows: Vec<(i64, Vec<u8>)> = rows.collect::<Result<_, _>>().map_err(text)?;
        drop(statement);
        let mut aged = 0;
        for (id, bytes) in rows {
            let (version, body) = codec::open(&bytes).map_err(|error| error.to_string())?;
            if version != RECORD_VERSION {
                continue;
            }
            let record: LrpDeployment = codec::decode(body).map_err(|error| error.to_string())?;
            let older = LrpDeploymentV1::from(record.clone());
            if LrpDeployment::from(older.clone()) != record {
                continue;
            }
            let bytes = codec::encode(FIRST_VERSION, &older, Vec::new());
            let bytes = bytes.map_err(|error| error.to_string())?;
            let put = "UPDATE deployments SET record = ?2 WHERE id = ?1";
            transaction.execute(put, (id, bytes)).map_err(text)?;
            aged += 1;
        }
        transaction.execute_batch("PRAGMA user_version = 1").map_err(text)?;
        transaction.commit().map_err(text)?;
        Ok(aged)
    }

    fn connect(&self) -> rusqlite::Result<rusqlite::Connection> {
        let (path, flags) = (self.path(), rusqlite::OpenFlags::default());
        rusqlite::Connection::open_with_flags_and_vfs(path, flags, vfs::NAME)
    }

    /// What SQLite itself finds wrong with the database, as it is read now.
    pub(super) fn faults(&self) -> Result<Vec<String>, String> {
        let lines = self.connect().and_then(|connection| {
            let mut statement = connection.prepare("PRAGMA integrity_check")?;
            let lines = statement.query_map([], |row| row.get::<_, String>(0))?;
            lines.collect::<Result<Vec<String>, _>>()
        });
        let lines = lines.map_err(|error| error.to_string())?;
        Ok(lines.into_iter().filter(|line| line != "ok").collect())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/{}/{DATABASE}", self.name))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        vfs::unmount(&self.name);
    }
}

fn keep(rows: &mut Rows, changes: &[Change]) {
    for change in changes {
        let (table, row, after) = match change {
            Change::Domain(row, _, after) => (0, row, after.clone().map(Row::Domain)),
            Change::Deployment(row, _, after) => (1, row, after.clone().map(Row::Deployment)),
            Change::Actual(row, _, after) => (2, row, after.clone().map(Row::Actual)),
            Change::Task(row, _, after) => (3, row, after.clone().map(Row::Task)),
            Change::Presence(..) | Change::Settled(..) | Change::Asked(..) => continue,
        };
        match after {
            Some(after) => drop(rows.insert((table, *row), after)),
            None => drop(rows.remove(&(table, *row))),
        }
    }
}

/// A board with these rows, as a coordinator reads it at that time.
fn board_of(rows: &Rows, settings: BoardSettings, now: Timestamp) -> Result<Board, String> {
    let mut board = Board::new(settings);
    for ((_, row), record) in rows {
        board.load(match record.clone() {
            Row::Domain(record) => Change::Domain(*row, None, Some(record)),
            Row::Deployment(record) => Change::Deployment(*row, None, Some(record)),
            Row::Actual(record) => Change::Actual(*row, None, Some(record)),
            Row::Task(record) => Change::Task(*row, None, Some(record)),
        })?;
    }
    board.loaded(now);
    Ok(board)
}

fn rows_of(records: &Records) -> Rows {
    let mut rows = Rows::new();
    for domain in records.domains() {
        if let Some((row, record)) = records.domain(&domain.domain) {
            rows.insert((0, *row), Row::Domain(record.clone()));
        }
    }
    for deployment in records.deployments() {
        if let Some((row, record)) = records.deployment(&deployment.process_guid) {
            rows.insert((1, *row), Row::Deployment(Arc::clone(record)));
        }
    }
    for (_, process) in records.processes() {
        for slot in process.instances() {
            rows.insert((2, slot.row), Row::Actual(Arc::clone(&slot.lrp)));
        }
    }
    for task in records.tasks() {
        if let Some((row, record)) = records.task(&task.task_guid) {
            rows.insert((3, *row), Row::Task(Arc::clone(record)));
        }
    }
    rows
}

/// The first row that is other than it was promised, from where it is.
fn difference(promised: &Rows, found: &Rows) -> Option<String> {
    const SHOWN: usize = 160;
    let differs = |key: &&(u8, RowId)| match (promised.get(key), found.get(key)) {
        // A time that was still to come for one who read it is not what it was for another. If only
        // the presence changes after that, only the presence is written.
        (Some(Row::Actual(one)), Some(Row::Actual(other))) => {
            *one != *other && ActualLrp { since: other.since, ..(**one).clone() } != **other
        }
        (one, other) => one != other,
    };
    let key = promised.keys().chain(found.keys()).find(differs)?;
    let text = |rows: &Rows| rows.get(key).map_or("nothing".to_owned(), |row| format!("{row:?}"));
    let (one, other) = (text(promised), text(found));
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let from = |text: &str| text.chars().skip(same.saturating_sub(20)).take(SHOWN).collect();
    let (one, other): (String, String) = (from(&one), from(&other));
    Some(format!("row {} of table {} should be {one}, is {other}", key.1.0, key.0))
}

/// What the store knows of the disk.
#[derive(Debug)]
struct Place {
    disk: Rc<RefCell<Disk>>,
    path: PathBuf,
}

impl Files for Place {
    fn database(&self) -> &Path {
        &self.path
    }

    fn vfs(&self) -> Option<&str> {
        Some(vfs::NAME)
    }

    fn log_pages(&self) -> u32 {
        self.disk.borrow().log_pages
    }

    fn size(&self) -> Option<u64> {
        let size = self.disk.borrow().platter.borrow().size(DATABASE)?;
        u64::try_from(size).ok()
    }

    fn has_traces(&self) -> bool {
        self.disk.borrow().platter.borrow().size(&format!("{DATABASE}-wal")).is_some()
    }

    fn fresh(&self) -> PathBuf {
        let mut disk = self.disk.borrow_mut();
        disk.fresh += 1;
        PathBuf::from(format!("/{}/{DATABASE}.{}.partial", disk.name, disk.fresh))
    }

    fn put(&self, fresh: &Path) -> std::io::Result<()> {
        let fresh = fresh.file_name().and_then(|it| it.to_str()).unwrap_or_default();
        let disk = self.disk.borrow();
        let mut platter = disk.platter.borrow_mut();
        let life = platter.life();
        let put = platter.sync(life, fresh).and_then(|()| platter.rename(fresh, DATABASE));
        put.map_err(|fault| std::io::Error::other(format!("{fault:?}")))
    }

    fn settle_log(&self) -> std::io::Result<()> {
        let log = format!("{DATABASE}-wal");
        let disk = self.disk.borrow();
        let mut platter = disk.platter.borrow_mut();
        let Some(size) = platter.size(&log) else { return Ok(()) };
        let life = platter.life();
        let mut bytes = vec![0; size];
        let settled = platter.read(life, &log, 0, &mut bytes).and_then(|_| {
            for (nth, block) in bytes.chunks(BLOCK).enumerate() {
                platter.write(life, &log, nth * BLOCK, block)?;
            }
            platter.sync(life, &log)
        });
        settled.map_err(|fault| std::io::Error::other(format!("{fault:?}")))
    }

    fn keep_copy(&self, schema: i32) -> Result<PathBuf, StoreError> {
        let disk = self.disk.borrow();
        let copy = format!("before-schema-{schema}.db");
        disk.platter.borrow_mut().copy(DATABASE, &copy);
        Ok(PathBuf::from(format!("/{}/{copy}", disk.name)))
    }
}

/// A coordinator's hold on the disk.
#[derive(Debug)]
pub(super) struct VirtualStore {
    inner: store::SqliteStore<Place>,
    disk: Rc<RefCell<Disk>>,
}

impl VirtualStore {
    pub(super) fn open(disk: &Rc<RefCell<Disk>>) -> Result<VirtualStore, StoreError> {
        disk.borrow_mut().died = None;
        disk.borrow_mut().platter.borrow_mut().blown = None;
        let path = disk.borrow().path();
        let inner = store::SqliteStore::over(Place { disk: Rc::clone(disk), path })?;
        Ok(VirtualStore { inner, disk: Rc::clone(disk) })
    }
}

impl Disk {
    /// The dead do nothing.
    fn is_alive(&self) -> Result<(), StoreError> {
        match self.died {
            None => Ok(()),
            Some(_) => Err(StoreError::Commit { reason: "the coordinator is dead".to_owned() }),
        }
    }

    /// Takes note of what came of something. Gives whether the disk has killed the coordinator in it.
    fn look(&mut self, error: Option<&StoreError>) -> bool {
        if let Some(error) = error {
            self.platter.borrow_mut().story.push(self.nameless(error));
        }
        let has_killed = matches!(self.platter.borrow().blown, Some(Blow::Dies | Blow::PowerGoes));
        if has_killed {
            self.died.get_or_insert(Died::Silent);
        }
        has_killed
    }
}

impl Store for VirtualStore {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.disk.borrow().is_alive()?;
        let outcome = self.inner.commit(changes);
        let mut disk = self.disk.borrow_mut();
        let has_killed = disk.look(outcome.as_ref().err());
        match &outcome {
            Ok(()) => keep(&mut disk.promised, changes),
            Err(StoreError::Doubtful { .. }) => disk.doubt = Some(changes.to_vec()),
            Err(_) if has_killed => disk.doubt = Some(changes.to_vec()),
            Err(_) => {}
        }
        let is_kept = outcome.is_ok() && changes.iter().any(Change::is_kept);
        if is_kept && (has_killed || std::mem::take(&mut disk.dies_after)) {
            disk.died = Some(Died::After);
            disk.orphan(End::Killed);
        }
        outcome
    }

    fn is_usable(&self) -> bool {
        self.inner.is_usable()
    }

    fn reopen(&mut self) -> Result<(), StoreError> {
        self.disk.borrow().is_alive()?;
        let opened = self.inner.reopen();
        self.disk.borrow_mut().look(opened.as_ref().err());
        opened
    }

    fn load(
        &mut self,
        settings: BoardSettings,
        now: Timestamp,
    ) -> Result<(Board, LoadReport), StoreError> {
        self.disk.borrow().is_alive()?;
        let loaded = self.inner.load(settings.clone(), now);
        let mut disk = self.disk.borrow_mut();
        disk.look(loaded.as_ref().err());
        let (board, report) = loaded?;
        if let Some(bad) = disk.goes_bad.take() {
            disk.platter.borrow_mut().bad = Some(bad);
        }
        if let Some(aside) = report.set_aside.first() {
            disk.broken = Some(format!("a record was set aside: {aside:?}"));
        }
        let found = rows_of(board.records());
        let expected = |rows: &Rows| {
            board_of(rows, settings.clone(), now).map(|board| rows_of(board.records()))
        };
        let mut more = disk.promised.clone();
        keep(&mut more, disk.doubt.take().as_deref().unwrap_or_default());
        match (expected(&disk.promised), expected(&more)) {
            (Ok(promised), Ok(with_doubt)) => {
                match (difference(&promised, &found), difference(&with_doubt, &found)) {
                    (None, _) => {}
                    (Some(_), None) => disk.promised = more,
                    (Some(what), Some(_)) => {
                        let what = format!("what is read back was not promised: {what}");
                        disk.broken = Some(what);
                    }
                }
            }
            (Err(why), _) | (_, Err(why)) => disk.broken = Some(why),
        }
        Ok((board, report))
    }
}
