//! The program itself: what it prints and how it ends, on good and bad input.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use volvox_coordinator::bbs::command::Command as BoardCommand;
use volvox_coordinator::bbs::driver::{Bbs, Converge};
use volvox_coordinator::bbs::settings::Settings;
use volvox_protocol::id::Domain;

/// Runs the program: exit code, stdout, stderr.
fn run(arguments: &[&str]) -> (i32, String, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_volvox-coordinator")).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn board(folder: &Path) -> Bbs {
    let bbs = Bbs::open(folder, Settings::default(), Converge::WhenTold, ()).unwrap();
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
    let (code, out, err) = run(&["restore", "--data-dir", data_dir, "--from", from]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("is kept as"), "{out}");
    assert_eq!(board(folder.path()).view().snapshot().domains().count(), 1);
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
