//! Tests of the store on real files: damaged, foreign, full, from the future.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, Running, Tags};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::request::CellRequest;
use volvox_protocol::validate::Valid;

use super::backup::{backup, newest_backup, restore};
use super::inspect::Inspection;
use super::*;
use crate::bbs::command::Command;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);

/// A folder with a board on it, and everything that a board can hold.
struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Desk { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn database(&self) -> PathBuf {
        self.path().join(DATABASE)
    }

    fn open(&self) -> (SqliteStore, Board, LoadReport) {
        let mut store = SqliteStore::open(self.path()).unwrap();
        let (board, report) = store.load(BoardSettings::default(), NOW).unwrap();
        (store, board, report)
    }

    /// Applies and commits.
    fn write(&self, commands: Vec<Command>) {
        let (mut store, mut board, _) = self.open();
        for (seed, command) in commands.into_iter().enumerate() {
            let outcome = board.apply(NOW, seed as u64, command).unwrap();
            store.commit(&outcome.changes).unwrap();
        }
    }

    fn filled() -> Self {
        let desk = Desk::new();
        desk.write(everything());
        desk
    }

    /// Runs SQL behind the store's back.
    fn sql(&self, sql: &str) {
        Connection::open(self.database()).unwrap().execute_batch(sql).unwrap();
    }
}

fn desire(process: &str) -> Command {
    let json = serde_json::json!({
        "process_guid": process, "domain": "d", "instances": 2, "rootfs": "host:",
        "routes": {"cf-router": [{"hostnames": ["a.example.com"]}]},
        "metric_tags": {"source_id": {"static": "s"}},
        "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    });
    Command::DesireLrp(Box::new(serde_json::from_value(json).unwrap()))
}

fn started(process: &str, index: u32) -> Command {
    let key = LrpKey {
        process_guid: ProcessGuid::new(process).unwrap(),
        index,
        domain: Domain::new("d").unwrap(),
        definition_id: None,
    };
    let instance = InstanceKey {
        instance_guid: InstanceGuid::new(&format!("i-{process}-{index}")).unwrap(),
        cell_id: CellId::new("cell-1").unwrap(),
    };
    let running = Running {
        net_info: NetInfo { address: "192.0.2.1".into(), ..NetInfo::default() },
        internal_routes: Box::default(),
        metric_tags: Tags::default(),
        routable: true,
        availability_zone: "z".into(),
    };
    Command::Cell(Valid::new(CellRequest::StartLrp(key, instance, Arc::new(running))).unwrap())
}

fn task(guid: &str) -> Command {
    let json = serde_json::json!({
        "rootfs": "host:", "action": {"run": {"path": "/bin/true", "user": "nobody"}},
    });
    let definition = Box::new(serde_json::from_value(json).unwrap());
    Command::DesireTask(TaskGuid::new(guid).unwrap(), Domain::new("d").unwrap(), definition)
}

fn everything() -> Vec<Command> {
    let fresh = Command::UpsertDomain(Domain::new("d").unwrap(), Duration::ZERO);
    vec![fresh, desire("p1"), desire("p2"), started("p1", 0), task("t1")]
}

/// All records of a board, to compare.
fn shown(board: &Board) -> String {
    let records = board.records();
    let processes: Vec<_> = records.processes().collect();
    let tasks: Vec<_> = records.tasks().collect();
    let domains: Vec<_> = records.domains().collect();
    format!("{processes:#?}{tasks:#?}{domains:#?}")
}

#[test]
fn what_was_committed_is_read_back_to_the_letter() {
    let desk = Desk::new();
    let (mut store, mut board, _) = desk.open();
    for (seed, command) in everything().into_iter().enumerate() {
        store.commit(&board.apply(NOW, seed as u64, command).unwrap().changes).unwrap();
    }
    let before = shown(&board);
    drop(store);
    let (_, board, report) = desk.open();
    assert_eq!(shown(&board), before);
    assert_eq!(report, LoadReport { records: 8, set_aside: vec![] });
    assert_eq!(crate::bbs::logic::check::check(&board, NOW), [""; 0]);
}

#[test]
fn a_row_that_changed_twice_in_a_batch_is_kept_as_it_was_last() {
    let desk = Desk::new();
    let (mut store, mut board, _) = desk.open();
    let mut changes = Vec::new();
    let gone = Command::RemoveDesiredLrp(ProcessGuid::new("p2").unwrap());
    for (seed, command) in everything().into_iter().chain([gone]).enumerate() {
        changes.extend(board.apply(NOW, seed as u64, command).unwrap().changes);
    }
    store.commit(&changes).unwrap();
    let before = shown(&board);
    drop(store);
    assert_eq!(shown(&desk.open().1), before);
}

#[test]
fn a_full_database_takes_nothing_of_a_batch_and_takes_it_later() {
    let desk = Desk::filled();
    let (mut store, mut board, _) = desk.open();
    let before = shown(&board);
    store.connection.execute_batch("PRAGMA max_page_count = 1").unwrap();
    let mut changes = Vec::new();
    for nth in 0..50 {
        let command = desire(&format!("more-{nth}"));
        changes.extend(board.apply(NOW, nth, command).unwrap().changes);
    }
    let text = store.commit(&changes).unwrap_err().to_string();
    assert!(text.contains("not saved") && text.contains("free some space"), "{text}");
    board.undo(NOW, changes.clone().into_iter());
    assert_eq!(shown(&board), before, "the board has stepped back");
    assert!(store.is_usable());
    store.connection.execute_batch("PRAGMA max_page_count = 100000").unwrap();
    let (_, on_disk) = (store.is_usable(), store.load(BoardSettings::default(), NOW).unwrap().0);
    assert_eq!(shown(&on_disk), before, "nothing of the batch is on the disk");
    store.commit(&changes).unwrap();
}

#[test]
fn a_read_only_database_refuses_and_says_so() {
    let desk = Desk::filled();
    let (mut store, mut board, _) = desk.open();
    store.connection.execute_batch("PRAGMA query_only = ON").unwrap();
    let changes = board.apply(NOW, 9, desire("p9")).unwrap().changes;
    let text = store.commit(&changes).unwrap_err().to_string();
    assert!(text.contains("not writable"), "{text}");
    store.connection.execute_batch("PRAGMA query_only = OFF").unwrap();
    store.commit(&changes).unwrap();
}

#[test]
fn a_flipped_record_is_set_aside_and_the_rest_is_kept() {
    let desk = Desk::filled();
    desk.sql("UPDATE tasks SET record = x'01000000007f'");
    let (store, board, report) = desk.open();
    assert_eq!(report.set_aside.len(), 1);
    assert_eq!(report.set_aside[0].origin, "tasks");
    assert!(report.set_aside[0].reason.contains("checksum"), "{report:?}");
    assert_eq!((board.records().task_count(), board.records().instance_count()), (0, 4));
    let fresh = board.is_fresh(NOW, &Domain::new("d").unwrap());
    assert!(fresh, "a lost task says nothing about what is desired");
    drop(store);
    let kept: i64 = Connection::open(desk.database())
        .unwrap()
        .query_row("SELECT count(*) FROM set_aside WHERE record = x'01000000007f'", [], |r| {
            r.get(0)
        })
        .unwrap();
    assert_eq!(kept, 1, "its bytes are kept for whoever wants to look");
    assert_eq!(desk.open().2.set_aside, [], "it is set aside once");
}

#[test]
fn a_lost_deployment_stops_nothing_because_no_domain_stays_fresh() {
    let desk = Desk::filled();
    desk.sql("UPDATE deployments SET record = x'00' WHERE id = (SELECT min(id) FROM deployments)");
    let (_, mut board, report) = desk.open();
    assert_eq!(report.set_aside.len(), 1);
    assert_eq!(board.records().domains().count(), 0);
    let outcome = board.apply(NOW, 1, Command::ConvergeAll).unwrap();
    assert_eq!(outcome.changes, [], "its instances look undesired and are left alone");
    assert_eq!(outcome.effects, []);
    let (_, again, _) = desk.open();
    assert_eq!(again.records().domains().count(), 0, "also after another start");
}

#[test]
fn records_that_break_a_rule_are_set_aside() {
    let desk = Desk::filled();
    desk.sql("INSERT INTO actual_lrps SELECT id + 1000, record FROM actual_lrps LIMIT 1");
    desk.sql("INSERT INTO deployments SELECT id + 1000, record FROM deployments LIMIT 1");
    desk.sql("INSERT INTO tasks SELECT id + 1000, record FROM tasks LIMIT 1");
    let (_, board, report) = desk.open();
    let reasons: Vec<&str> = report.set_aside.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "desired LRP p1 is there twice",
            "p1/0 is there twice as Ordinary",
            "task t1 is there twice"
        ]
    );
    assert_eq!(board.records().instance_count(), 4);
}

#[test]
fn a_damaged_file_gives_a_clear_error_names_the_backup_and_is_not_touched() {
    type Damage = fn(&mut Vec<u8>);
    let pages: [(&str, Damage); 3] = [
        ("no header", |bytes| bytes[..64].fill(0x5a)),
        ("cut short", |bytes| bytes.truncate(bytes.len() / 2)),
        ("broken pages", |bytes| bytes[4096..].fill(0xff)),
    ];
    for (name, damage) in pages {
        let desk = Desk::filled();
        // Folded back into one file, so that the damage is to what is read.
        desk.sql("PRAGMA wal_checkpoint(TRUNCATE)");
        let copy = desk.path().join(BACKUPS).join("monday.db");
        backup(&desk.database(), &copy).unwrap();
        let mut bytes = std::fs::read(desk.database()).unwrap();
        damage(&mut bytes);
        std::fs::write(desk.database(), &bytes).unwrap();

        let opened = SqliteStore::open(desk.path())
            .and_then(|mut it| it.load(BoardSettings::default(), NOW));
        let text = opened.unwrap_err().to_string();
        assert!(text.contains("is damaged"), "{name}: {text}");
        assert!(text.contains("volvox-coordinator check"), "{name}: {text}");
        assert!(text.contains("monday.db") && text.contains("restore"), "{name}: {text}");
        assert_eq!(std::fs::read(desk.database()).unwrap(), bytes, "{name}: was touched");

        let kept = restore(desk.path(), &copy).unwrap().unwrap();
        assert_eq!(std::fs::read(kept).unwrap(), bytes, "{name}: the damaged file is kept");
        assert_eq!(desk.open().2.records, 8, "{name}");
    }
}

#[test]
fn a_backup_from_the_future_is_not_the_newest() {
    let folder = tempfile::tempdir().unwrap();
    let backups = folder.path().join(BACKUPS);
    std::fs::create_dir(&backups).unwrap();
    let (now, hour) = (std::time::SystemTime::now(), Duration::from_hours(1));
    let times = [("old.db", now - 2 * hour), ("new.db", now - hour), ("ahead.db", now + hour)];
    for (name, made) in times {
        std::fs::File::create(backups.join(name)).unwrap().set_modified(made).unwrap();
    }
    assert_eq!(newest_backup(folder.path()), Some(backups.join("new.db")));
    std::fs::remove_file(backups.join("new.db")).unwrap();
    std::fs::remove_file(backups.join("old.db")).unwrap();
    assert_eq!(newest_backup(folder.path()), Some(backups.join("ahead.db")), "there is no other");
}

#[test]
fn without_a_backup_the_way_out_is_told_too() {
    let desk = Desk::filled();
    std::fs::write(desk.database(), vec![0x5a; 8192]).unwrap();
    let text = SqliteStore::open(desk.path()).unwrap_err().to_string();
    assert!(text.contains("there is no backup") && text.contains("none is stopped"), "{text}");
}

#[test]
fn a_database_that_should_be_there_and_is_not_is_a_loss_and_not_a_new_beginning() {
    let desk = Desk::filled();
    backup(&desk.database(), &desk.path().join(BACKUPS).join("b.db")).unwrap();
    std::fs::write(desk.database(), "").unwrap();
    let text = SqliteStore::open(desk.path()).unwrap_err().to_string();
    assert!(text.contains("it is empty") && text.contains("b.db"), "{text}");
    std::fs::remove_file(desk.database()).unwrap();
    let text = SqliteStore::open(desk.path()).unwrap_err().to_string();
    assert!(text.contains("it is missing") && text.contains("b.db"), "{text}");
    let desk = Desk::new();
    std::fs::write(desk.path().join("board.db-wal"), "a log").unwrap();
    let text = SqliteStore::open(desk.path()).unwrap_err().to_string();
    assert!(text.contains("it is missing"), "{text}");
}

#[test]
fn only_the_owner_may_read_what_is_kept() {
    let desk = Desk::new();
    let folder = desk.path().join("private");
    let store = SqliteStore::open(&folder).unwrap();
    let copy = folder.join(BACKUPS).join("b.db");
    backup(&folder.join(DATABASE), &copy).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in [folder.join(DATABASE), folder.join("board.db-wal"), copy] {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    drop(store);
}

#[test]
fn a_restored_database_has_all_of_the_backup_and_nothing_of_what_was_there() {
    let desk = Desk::filled();
    let copy = desk.path().join(BACKUPS).join("b.db");
    backup(&desk.database(), &copy).unwrap();
    desk.write(vec![desire("later")]);
    // The file was moved away by hand, and its log was forgotten.
    let (store, _, _) = desk.open();
    let log = std::fs::read(desk.path().join("board.db-wal")).unwrap();
    drop(store);
    std::fs::remove_file(desk.database()).unwrap();
    std::fs::write(desk.path().join("board.db-wal"), log).unwrap();
    restore(desk.path(), &copy).unwrap();
    let (store, board, _) = desk.open();
    assert_eq!(board.records().process_count(), 2, "the old log was not read into it");

    // A database with a log of its own is restored with what is in the log.
    let killed = Desk::new();
    for suffix in ["", "-wal"] {
        let name = format!("{DATABASE}{suffix}");
        let from = desk.path().join(&name);
        if from.exists() {
            std::fs::copy(from, killed.path().join(name)).unwrap();
        }
    }
    drop(store);
    let target = Desk::new();
    restore(target.path(), &killed.database()).unwrap();
    assert_eq!(target.open().1.records().process_count(), 2);
}

#[test]
fn a_restore_that_was_cut_short_must_be_done_again() {
    let desk = Desk::filled();
    let copy = desk.path().join(BACKUPS).join("b.db");
    backup(&desk.database(), &copy).unwrap();
    std::fs::write(desk.path().join(backup::RESTORING), copy.as_os_str().as_encoded_bytes())
        .unwrap();
    std::fs::remove_file(desk.database()).unwrap();
    let text = SqliteStore::open(desk.path()).unwrap_err().to_string();
    assert!(text.contains("was cut short") && text.contains("b.db"), "{text}");
    restore(desk.path(), &copy).unwrap();
    assert_eq!(desk.open().2.records, 8);
}

#[test]
fn what_is_no_backup_of_ours_is_not_put_back() {
    let desk = Desk::filled();
    let other = desk.path().join("other.db");
    std::fs::write(&other, "").unwrap();
    assert!(restore(desk.path(), &other).is_err(), "an empty file");
    Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(restore(desk.path(), &other).is_err(), "somebody else's database");
    let newer = desk.path().join("newer.db");
    backup(&desk.database(), &newer).unwrap();
    Connection::open(&newer).unwrap().execute_batch("PRAGMA user_version = 99").unwrap();
    assert!(restore(desk.path(), &newer).is_err(), "a database of the future");
    assert_eq!(desk.open().2.records, 8, "the database is as it was");
}

#[test]
fn a_record_of_the_future_stops_the_start_instead_of_being_set_aside() {
    let desk = Desk::filled();
    desk.sql("UPDATE tasks SET record = x'ff0000000000'");
    let mut store = SqliteStore::open(desk.path()).unwrap();
    let text = store.load(BoardSettings::default(), NOW).unwrap_err().to_string();
    assert!(text.contains("record version 255") && text.contains("newer version"), "{text}");
}

#[test]
fn migrations_lead_from_any_version_to_the_last_and_keep_what_was_there() {
    let steps =
        ["CREATE TABLE a (x)", "INSERT INTO a VALUES (1)", "CREATE TABLE b AS SELECT * FROM a"];
    let desk = Desk::new();
    for upto in [1, 2, 2, 3] {
        let mut connection = Connection::open(desk.database()).unwrap();
        migrate(&mut connection, &desk.database(), &steps[..upto]).unwrap();
        let found: i32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(usize::try_from(found).unwrap(), upto);
    }
    let connection = Connection::open(desk.database()).unwrap();
    let rows: i64 = connection.query_row("SELECT count(*) FROM b", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
    // A step that fails takes the others with it.
    let mut connection = Connection::open(desk.path().join("other.db")).unwrap();
    let bad = ["CREATE TABLE a (x)", "nonsense"];
    assert!(migrate(&mut connection, &desk.path().join("other.db"), &bad).is_err());
    let tables: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 0);
}

#[test]
fn every_commit_is_synced() {
    let desk = Desk::filled();
    let (store, _, _) = desk.open();
    let pragma = |name: &str| -> String {
        let read = |row: &rusqlite::Row<'_>| row.get::<_, rusqlite::types::Value>(0);
        let value = store.connection.query_row(&format!("PRAGMA {name}"), [], read).unwrap();
        format!("{value:?}")
    };
    assert_eq!(pragma("journal_mode"), r#"Text("wal")"#);
    assert_eq!(pragma("synchronous"), "Integer(2)");
}

#[test]
fn a_foreign_database_and_one_from_the_future_are_left_alone() {
    let desk = Desk::new();
    desk.sql("CREATE TABLE other (x)");
    let text = SqliteStore::open(desk.path()).unwrap_err().to_string();
    assert!(text.contains("is not a Volvox database"), "{text}");
    let desk = Desk::filled();
    desk.sql("PRAGMA user_version = 99");
    let text = SqliteStore::open(desk.path()).unwrap_err().to_string();
    assert!(text.contains("schema version 99") && text.contains("newer version"), "{text}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let desk = Desk::new();
    std::fs::write(desk.path().join("file"), "").unwrap();
    let text = SqliteStore::open(&desk.path().join("file/data")).unwrap_err().to_string();
    assert!(text.contains("cannot create the data folder") && text.contains("file/data"), "{text}");
}

#[test]
fn a_damaged_backup_is_not_put_back() {
    let desk = Desk::filled();
    let bad = desk.path().join("bad.db");
    std::fs::write(&bad, vec![0x5a; 8192]).unwrap();
    assert!(restore(desk.path(), &bad).is_err());
    assert_eq!(desk.open().2.records, 8, "the database is as it was");
}

#[test]
fn an_inspection_finds_what_a_board_would_set_aside_and_changes_nothing() {
    let desk = Desk::filled();
    assert!(Inspection::of(&desk.database()).unwrap().is_sound());
    desk.sql("UPDATE tasks SET record = x'00'");
    for _ in 0..2 {
        let found = Inspection::of(&desk.database()).unwrap();
        assert_eq!(found.unreadable.len(), 1);
        assert_eq!(found.records["actual_lrps"], 4);
        assert!(!found.is_sound());
    }
}

#[test]
fn a_presence_alone_is_noted_beside_the_record_and_goes_with_its_next_write() {
    let desk = Desk::filled();
    let count = |store: &SqliteStore| -> i64 {
        let query = "SELECT count(*) FROM presences";
        store.connection.query_row(query, [], |row| row.get(0)).unwrap()
    };
    let cell = |presence| Command::CellPresence(CellId::new("cell-1").unwrap(), presence);
    // The steps of a suspect's life, and how many notes there are after each.
    let remove = Command::RemoveDesiredLrp(ProcessGuid::new("p1").unwrap());
    let steps = [
        (cell(CellPresence::Missing), 1),
        (cell(CellPresence::Present), 1),
        (cell(CellPresence::Missing), 1),
        (remove, 0),
    ];
    for (nth, (command, notes)) in steps.into_iter().enumerate() {
        let (mut store, mut board, _) = desk.open();
        let outcome = board.apply(NOW, nth as u64, command).unwrap();
        assert!(!outcome.changes.is_empty(), "step {nth} did nothing");
        store.commit(&outcome.changes).unwrap();
        assert_eq!(count(&store), notes, "step {nth}");
        let shown_before = shown(&board);
        drop(store);
        let (_, board, report) = desk.open();
        assert_eq!(report.set_aside, [], "step {nth}");
        assert_eq!(shown(&board), shown_before, "step {nth}");
        assert!(Inspection::of(&desk.database()).unwrap().is_sound(), "step {nth}");
    }
}

#[test]
fn a_presence_and_another_change_in_one_batch_are_both_kept() {
    let desk = Desk::filled();
    let (mut store, mut board, _) = desk.open();
    let mut changes = Vec::new();
    let cell = CellId::new("cell-1").unwrap();
    for (nth, command) in [
        started("p1", 1),
        Command::CellPresence(cell.clone(), CellPresence::Missing),
        Command::CellPresence(cell, CellPresence::Present),
        started("p2", 0),
    ]
    .into_iter()
    .enumerate()
    {
        changes.extend(board.apply(NOW, nth as u64, command).unwrap().changes);
    }
    store.commit(&changes).unwrap();
    let before = shown(&board);
    drop(store);
    assert_eq!(shown(&desk.open().1), before);
}

/// A database that the program before rolling updates has written.
const SCHEMA_1: &[u8] = include_bytes!("../../../tests/fixtures/board-schema-1.db");

#[test]
fn a_database_of_schema_1_is_led_forward_and_keeps_everything() {
    let desk = Desk::new();
    std::fs::write(desk.database(), SCHEMA_1).unwrap();
    let (mut store, mut board, report) = desk.open();
    assert_eq!(report, LoadReport { records: 17, set_aside: vec![] });
    assert_eq!(crate::bbs::logic::check::check(&board, NOW), [""; 0]);
    let process = ProcessGuid::new("p3").unwrap();
    let (_, named) = board.records().deployment(&process).unwrap().clone();
    assert_eq!(named.active_definition_id.as_str(), "version-1");
    assert_eq!((&*named.annotation, named.instances), ("a note", 3));
    assert_eq!((&named.roll, &named.rollout, named.history.len()), (&None, &None, 0));
    let definition = named.active_definition().unwrap();
    assert_eq!((definition.memory_mb, &*definition.image_password), (64, "secret"));
    // What runs makes a definition healthy: one that stops, one that evacuates, one suspect.
    let healthy = |guid: &str| {
        let guid = ProcessGuid::new(guid).unwrap();
        let (_, deployment) = board.records().deployment(&guid).unwrap();
        deployment.healthy_definition_id.clone()
    };
    assert_eq!(["p1", "p2", "p3"].map(|it| healthy(it).is_some()), [true, true, true]);
    // The copy from before is there, of the old schema.
    let copies: Vec<_> = std::fs::read_dir(desk.path().join(BACKUPS)).unwrap().flatten().collect();
    assert_eq!(copies.len(), 1);
    let copy = Connection::open(copies[0].path()).unwrap();
    let version: i32 = copy.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 1);
    // A deployment that changes is written anew, the others are left as they are.
    let update = serde_json::from_value(serde_json::json!({"annotation": "another"})).unwrap();
    let outcome = board.apply(NOW, 99, Command::UpdateDesiredLrp(process, Box::new(update)));
    store.commit(&outcome.unwrap().changes).unwrap();
    let before = shown(&board);
    drop(store);
    let (_, board, report) = desk.open();
    assert_eq!(report.set_aside, []);
    assert_eq!(shown(&board), before);
    let versions = Connection::open(desk.database()).unwrap();
    let mut versions =
        versions.prepare("SELECT hex(substr(record, 1, 1)) FROM deployments").unwrap();
    let versions: Vec<String> =
        versions.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    assert_eq!(versions, ["01", "01", "02"]);
}

#[test]
fn a_deployment_in_the_middle_of_an_update_is_read_back_to_the_letter() {
    let desk = Desk::new();
    let (mut store, mut board, _) = desk.open();
    let process = ProcessGuid::new("p1").unwrap();
    let update = |name: &str| {
        let json = serde_json::json!({
            "definition_id": name, "rollout": {"max_in_flight": 2, "canary_instances": 1},
            "definition": {
                "rootfs": "host:", "action": {"run": {"path": "/bin/false", "user": "nobody"}},
            },
        });
        let update = Box::new(serde_json::from_value(json).unwrap());
        Command::UpdateDeployment(process.clone(), update)
    };
    let started = |name: &str, index| {
        let Command::Cell(request) = started("p1", index) else { panic!("a cell says it") };
        let CellRequest::StartLrp(key, instance, running) = request.into_inner() else {
            panic!("it says that it runs")
        };
        let definition_id = Some(volvox_protocol::id::DefinitionId::new(name).unwrap());
        let key = LrpKey { definition_id, ..key };
        Command::Cell(Valid::new(CellRequest::StartLrp(key, instance, running)).unwrap())
    };
    let fresh = Command::UpsertDomain(Domain::new("d").unwrap(), Duration::ZERO);
    let commands = [fresh, desire("p1"), started("p1", 0), update("v2"), Command::ConvergeDue]
        .into_iter()
        .chain([update("v3"), Command::ConvergeDue, started("v3", 0), Command::ConvergeDue]);
    for (seed, command) in commands.enumerate() {
        store.commit(&board.apply(NOW, seed as u64, command).unwrap().changes).unwrap();
    }
    let (_, deployment) = board.records().deployment(&process).unwrap();
    let roll = deployment.roll.as_ref().expect("it is under way");
    assert!(roll.pause.is_some() && deployment.rollout.is_some(), "{deployment:#?}");
    assert_eq!(deployment.history.len(), 1);
    let before = shown(&board);
    drop(store);
    let (_, board, report) = desk.open();
    assert_eq!((shown(&board), report.set_aside), (before, vec![]));
    assert_eq!(crate::bbs::logic::check::check(&board, NOW), [""; 0]);
    let found = Inspection::of(&desk.database()).unwrap();
    assert!(found.is_sound(), "{found:?}");
}

/// The log is written again where it stands, and stays what it was; without one there is nothing to do.
#[test]
fn what_a_killed_coordinator_left_in_the_log_is_made_to_last() {
    let desk = Desk::new();
    let log = desk.path().join(format!("{DATABASE}-wal"));
    let (store, _, _) = desk.open();
    store.connection.execute_batch("INSERT INTO tasks VALUES (1, x'00')").unwrap();
    let before = std::fs::read(&log).unwrap();
    assert!(before.len() > 2_048);
    store.files.settle_log().unwrap();
    assert_eq!(std::fs::read(&log).unwrap(), before);
    drop(store);
    assert!(!log.exists(), "closed in peace, it has no log");
    desk.open().0.files.settle_log().unwrap();
}

/// A connection whose last commit is in doubt leaves the log as it is when it is closed.
#[test]
fn a_log_in_doubt_is_not_folded_back() {
    let desk = Desk::new();
    let log = desk.path().join(format!("{DATABASE}-wal"));
    let (mut store, _, _) = desk.open();
    store.connection.execute_batch("INSERT INTO tasks VALUES (1, x'00')").unwrap();
    store.doubt();
    assert!(!store.is_usable());
    let before = std::fs::read(&log).unwrap();
    drop(store);
    assert_eq!(std::fs::read(&log).unwrap(), before);
    let (mut store, _, report) = desk.open();
    assert_eq!(report.set_aside.len(), 1, "it is no task, and it was there");
    store.doubt();
    store.reopen().unwrap();
    assert!(!store.is_usable(), "it has not been read back");
    store.load(BoardSettings::default(), NOW).unwrap();
    assert!(store.is_usable());
}
