//! The program itself: what it prints and how it ends, on good and bad input.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use volvox_coordinator::bbs::command::Command as BoardCommand;
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::core::{Converge, CoreSettings};
use volvox_coordinator::driver::Bbs;
use volvox_protocol::id::Domain;

/// Runs the program: exit code, stdout, stderr.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_volvox-coordinator")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn board(folder: &Path) -> Bbs {
    let settings = CoreSettings { converge: Converge::WhenTold, ..CoreSettings::default() };
    let bbs = Bbs::open(folder, BoardSettings::default(), settings, (), None).unwrap();
    bbs.call(BoardCommand::UpsertDomain(Domain::new("d").unwrap(), Duration::ZERO)).unwrap();
    bbs
}

#[test]
fn check_backup_and_restore_tell_what_they_did() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let bbs = board(folder.path());

    let (code, out, _) = run(&["check", "--data-dir", data_dir]);
    assert_eq!((code, out.as_str()), (0, "readable: 1 domains\nthe database is sound\n"));
    let copy = folder.path().join("copy.db");
    let (code, out, _) =
        run(&["backup", "--data-dir", data_dir, "--to", copy.to_str().unwrap(), "--json"]);
    assert_eq!(code, 0);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["backup"], copy.to_str().unwrap());
    assert!(json["bytes"].as_u64().unwrap() > 0);

    let from = copy.to_str().unwrap();
    let (code, _, err) = run(&["restore", "--data-dir", data_dir, "--from", from]);
    assert_eq!(code, 2, "the coordinator is still at work");
    assert!(err.contains("in use by another coordinator"), "{err}");
    drop(bbs);
    // A program that another test of this process is just starting has the lock until it has begun.
    let deadline = Instant::now() + Duration::from_secs(30);
    let (code, out, err) = loop {
        let (code, out, err) = run(&["restore", "--data-dir", data_dir, "--from", from]);
        if !err.contains("in use") || Instant::now() > deadline {
            break (code, out, err);
        }
    };
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("is kept as"), "{out}");
    assert_eq!(board(folder.path()).view().snapshot().domains().count(), 1);
}

/// The names of the files in a folder, in order.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|it| it.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn older_backups_go_only_when_asked_and_only_those_named_by_us() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let _bbs = board(folder.path());
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    // The order is that of the numbers, not of the letters.
    let old = ["board-9.db", "board-100.db", "board-1000.db"];
    // One backup may be under way: its file is young.
    let others = ["before-schema-3.db", "board-monday.db", "board-7.db.1-0.partial", "board-8"];
    for name in old.iter().chain(&others) {
        std::fs::write(backups.join(name), "").unwrap();
    }
    let names = || names_in(&backups);
    let named = |new: &str, old: &[&str]| {
        let all = [&[new][..], old, &others].concat();
        let mut all: Vec<String> = all.into_iter().map(str::to_owned).collect();
        all.sort();
        all
    };
    let (code, out, err) = run(&["backup", "--data-dir", data_dir, "--keep", "3", "--json"]);
    assert_eq!(code, 0, "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    let new = Path::new(json["backup"].as_str().unwrap());
    assert_eq!(json["deleted"], serde_json::json!([backups.join("board-9.db")]));
    let new = new.file_name().unwrap().to_str().unwrap();
    assert_eq!(names(), named(new, &["board-100.db", "board-1000.db"]));

    // A backup that could not be made costs none of the others.
    std::fs::rename(folder.path().join("board.db"), folder.path().join("away")).unwrap();
    assert_eq!(run(&["backup", "--data-dir", data_dir, "--keep", "1"]).0, 2);
    assert_eq!(names(), named(new, &["board-100.db", "board-1000.db"]));
    for words in [&["--keep", "0"][..], &["--keep", "2", "--to", "x.db"]] {
        let (code, _, err) = run(&[&["backup", "--data-dir", data_dir], words].concat());
        assert_eq!(code, 2, "{words:?}: {err}");
    }
}

#[test]
fn backups_from_the_future_go_before_those_whose_age_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let _bbs = board(folder.path());
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    for name in ["board-99999999999.db", "board-99999999998.db", "board-1.db"] {
        std::fs::write(backups.join(name), "").unwrap();
    }
    let keep = |number: &str| {
        let (code, out, err) = run(&["backup", "--data-dir", data_dir, "--keep", number, "--json"]);
        assert_eq!(code, 0, "{err}");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        let new = Path::new(json["backup"].as_str().unwrap()).to_owned();
        new.file_name().unwrap().to_str().unwrap().to_owned()
    };
    let new = keep("2");
    assert_eq!(names_in(&backups), ["board-1.db".to_owned(), new.clone()]);
    std::fs::remove_file(backups.join(new)).unwrap();
    let new = keep("1");
    assert_eq!(names_in(&backups), [new]);
}

#[test]
fn what_backups_left_that_were_cut_short_goes_after_a_day() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let _bbs = board(folder.path());
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let left = ["board-7.db.1-0.partial", "leaving.1-0.partial", "leaving.1-0.partial.1-1.partial"];
    let young = ["board-7.db.2-0.partial", "leaving.2-0.partial"];
    let theirs = ["mine.partial", "board.partial"];
    let long_ago = std::time::SystemTime::now() - Duration::from_hours(25);
    for name in left.iter().chain(&young).chain(&theirs) {
        let file = std::fs::File::create(backups.join(name)).unwrap();
        if !young.contains(name) {
            file.set_modified(long_ago).unwrap();
        }
    }
    let (code, _, err) = run(&["backup", "--data-dir", data_dir, "--keep", "1"]);
    assert_eq!(code, 0, "{err}");
    let mut names = names_in(&backups);
    names.retain(|it| it.ends_with(".partial"));
    assert_eq!(names, [young[0], theirs[1], young[1], theirs[0]]);
}

#[test]
fn a_bad_backup_costs_no_good_one() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    drop(board(folder.path()));
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    std::fs::write(backups.join("board-1.db"), "").unwrap();
    let database = rusqlite::Connection::open(folder.path().join("board.db")).unwrap();
    let record = "SELECT record FROM domains";
    let mut record: Vec<u8> = database.query_row(record, [], |row| row.get(0)).unwrap();
    *record.last_mut().unwrap() ^= 1;
    database.execute("UPDATE domains SET record = ?1", [record]).unwrap();
    drop(database);
    let (code, out, err) = run(&["backup", "--data-dir", data_dir, "--keep", "1"]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("NOT sound") && err.contains("no older backup was deleted"), "{err}");
    let names = names_in(&backups);
    assert!(names.len() == 2 && names[0] == "board-1.db", "{names:?}");
}

#[test]
fn the_daily_backup_does_not_fail_before_there_is_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    let daily = || run(&["backup", "--data-dir", data_dir, "--keep", "7"]);
    let (code, out, err) = daily();
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    assert!(err.contains("no database yet"), "{err}");
    assert_eq!(names_in(folder.path()), [""; 0]);
    assert_eq!(run(&["backup", "--data-dir", data_dir]).0, 2, "somebody asked for it");
    // What is lost is not the same as what never was.
    std::fs::write(folder.path().join("board.db-wal"), "").unwrap();
    assert_eq!(daily().0, 2);
    std::fs::remove_file(folder.path().join("board.db-wal")).unwrap();
    std::fs::create_dir(folder.path().join("board.db")).unwrap();
    assert_eq!(daily().0, 2);
    let nowhere = folder.path().join("nowhere");
    assert_eq!(run(&["backup", "--data-dir", nowhere.to_str().unwrap(), "--keep", "7"]).0, 2);
}

#[test]
fn a_folder_that_may_not_be_looked_into_is_not_taken_for_an_empty_one() {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt as _;
    const STRANGER: u32 = 64_124;
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    drop(board(folder.path()));
    let mode = |mode| {
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(0o000);
    for words in [&["check"][..], &["dump"], &["backup"], &["backup", "--keep", "7"], &["restore"]]
    {
        let mut command = Command::new(env!("CARGO_BIN_EXE_volvox-coordinator"));
        command.args(words).args(["--data-dir", data_dir]);
        if nix::unistd::geteuid().is_root() {
            command.uid(STRANGER).gid(STRANGER);
        }
        let output = command.output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {err}");
        assert!(err.contains("permission denied: run it as root"), "{words:?}: {err}");
    }
    mode(0o700);
}

#[test]
fn a_damaged_database_is_reported_with_exit_1_or_2_and_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().to_str().unwrap();
    drop(board(folder.path()));
    assert_eq!(run(&["backup", "--data-dir", data_dir]).0, 0);
    std::fs::write(folder.path().join("board.db"), "not a database at all, by no means").unwrap();
    let (code, _, err) = run(&["check", "--data-dir", data_dir]);
    assert_eq!(code, 2);
    assert!(err.contains("is damaged") && err.contains("restore --data-dir"), "{err}");
    let (code, _, err) = run(&["restore", "--data-dir", data_dir]);
    assert_eq!(code, 0, "the newest backup is found by itself: {err}");
    assert_eq!(run(&["check", "--data-dir", data_dir]).0, 0);
}

#[test]
fn dump_prints_a_line_of_json_for_each_record() {
    let folder = tempfile::tempdir().unwrap();
    let bbs = board(folder.path());
    let (code, out, _) = run(&["dump", "--data-dir", folder.path().to_str().unwrap()]);
    assert_eq!(code, 0);
    let line: serde_json::Value = serde_json::from_str(out.trim()).unwrap();
    assert_eq!(line["table"], "domains");
    assert_eq!(line["record"]["domain"], "d");
    drop(bbs);
}

#[test]
fn bad_input_is_refused_with_a_reason_and_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    let cases: [(&[&str], &str); 6] = [
        (&["check", "--data-dir", nowhere], "is --data-dir right?"),
        (&["dump", "--data-dir", nowhere], "there is no database"),
        (&["backup", "--data-dir", nowhere], "there is no database"),
        (&["restore", "--data-dir", nowhere], "name one with --from"),
        (&["restore", "--data-dir", nowhere, "--from", "no-such-file"], "there is no file"),
        (&["chekc"], "check"),
    ];
    for (arguments, expected) in cases {
        let (code, _, err) = run(arguments);
        assert_eq!(code, 2, "{arguments:?}");
        assert!(err.contains(expected), "{arguments:?}: {err}");
    }
    assert!(!Path::new(nowhere).exists(), "nothing was made where nothing was");
    let (code, out, _) = run(&["--help"]);
    assert!(code == 0 && out.contains("Examples:"), "{out}");
}

/// The user of a data folder may have planted links in it; root follows none, and leaves nothing of its own.
#[test]
fn root_works_in_a_foreign_data_folder_as_its_owner() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt, chown, symlink};
    const OWNER: u32 = 64_123;
    if !nix::unistd::geteuid().is_root() {
        let line =
            "SKIPPED root_works_in_a_foreign_data_folder_as_its_owner: only root can be another";
        eprintln!("{line}");
        if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
            use std::io::Write as _;
            let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
            writeln!(file.unwrap(), "{line}").unwrap();
        }
        return;
    }
    let around = tempfile::tempdir().unwrap();
    std::fs::set_permissions(around.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let data = around.path().join("data");
    let secret = around.path().join("secret");
    for folder in [&data, &secret] {
        std::fs::create_dir(folder).unwrap();
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o700)).unwrap();
    }
    std::fs::write(secret.join("key"), "of root").unwrap();
    drop(board(&data));
    // What an owner that was taken over may have prepared.
    symlink(&secret, data.join("backups")).unwrap();
    symlink(secret.join("key"), data.join("a-link")).unwrap();
    for entry in std::fs::read_dir(&data).unwrap().flatten() {
        std::os::unix::fs::lchown(entry.path(), Some(OWNER), Some(OWNER)).unwrap();
    }
    chown(&data, Some(OWNER), Some(OWNER)).unwrap();
    let data_dir = data.to_str().unwrap();
    let of_root = |path: &Path| path.symlink_metadata().unwrap().uid() == 0;
    let all_are_the_owners = || {
        let files = std::fs::read_dir(&data).unwrap().flatten();
        let left: Vec<_> = files.map(|it| it.path()).filter(|it| of_root(it)).collect();
        assert!(left.is_empty(), "{left:?}");
    };

    let (code, _, err) = run(&["backup", "--data-dir", data_dir]);
    assert_eq!(code, 2, "a backup through the link");
    assert!(err.contains("ermission denied"), "{err}");
    assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 1, "root wrote through the link");
    assert!(of_root(&secret) && of_root(&secret.join("key")), "root gave its own away");
    all_are_the_owners();

    std::fs::remove_file(data.join("backups")).unwrap();
    let inside = run(&["backup", "--data-dir", data_dir]);
    assert_eq!(inside.0, 0, "{}", inside.2);
    let copy = secret.join("copy.db");
    let (code, _, err) = run(&["backup", "--data-dir", data_dir, "--to", copy.to_str().unwrap()]);
    assert_eq!(code, 0, "to where only root may write: {err}");
    assert!(of_root(&copy));
    assert_eq!(copy.metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(data.join("backups")).unwrap().count(), 1, "only the first");
    let (code, _, err) =
        run(&["restore", "--data-dir", data_dir, "--from", copy.to_str().unwrap()]);
    assert_eq!(code, 0, "from where only root may read: {err}");
    assert_eq!(run(&["restore", "--data-dir", data_dir]).0, 0, "the newest in the folder");
    assert_eq!(run(&["check", "--data-dir", data_dir]).0, 0);
    assert_eq!(run(&["dump", "--data-dir", data_dir]).0, 0);
    let out = secret.join("certificate");
    let (code, _, err) = run(&[
        "cert",
        "issue",
        "--data-dir",
        data_dir,
        "--role",
        "read",
        "--name",
        "me",
        "--out",
        out.to_str().unwrap(),
    ]);
    assert_eq!(code, 0, "{err}");
    all_are_the_owners();
    let names = std::fs::read_dir(&data).unwrap().flatten().map(|it| it.file_name());
    assert_eq!(names.filter(|it| it.to_string_lossy().contains("partial")).count(), 0);
}
