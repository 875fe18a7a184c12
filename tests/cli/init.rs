//! First contact: `volvox-coordinator init` before and beside a coordinator, and machines that join with
//! what it printed.

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::Command;

use volvox_tests::fleet::CellPlan;
use volvox_tests::skip;

use crate::stage::{Said, Stage, coordinator_program, said};

/// An address that was free a moment ago.
fn free_address() -> SocketAddr {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn init(program: &Path, folder: &Path, words: &[&str]) -> Said {
    let config = folder.join("coordinator.toml");
    std::fs::write(&config, "").unwrap();
    let mut command = Command::new(program);
    command.arg("init").arg("--config").arg(config).arg("--data-dir").arg(folder.join("data"));
    command.args(words);
    said(command)
}

#[test]
fn machines_join_with_lines_of_init_made_before_and_beside_a_coordinator() {
    let name = "machines_join_with_lines_of_init_made_before_and_beside_a_coordinator";
    let Some(program) = coordinator_program() else {
        return skip(name, "volvox-coordinator was not built: cargo build -p volvox-coordinator");
    };
    let folder = tempfile::tempdir().unwrap();
    let mesh = free_address();
    let before = init(&program, folder.path(), &["--address", &mesh.to_string()]);
    assert_eq!(before.code, 0, "{before:?}");
    assert!(before.err.contains("A new cluster"), "{before:?}");
    assert!(before.err.contains("systemctl start volvox-coordinator"), "{before:?}");
    assert_eq!(before.out.lines().count(), 1, "the line alone is on stdout: {before:?}");
    let first = before.out.trim().strip_prefix("volvox-agent join ").unwrap();

    let mut stage = Stage::listening(folder, "", mesh);
    stage.join_with(first, CellPlan::named("first"));
    let beside = init(&program, stage.folder.path(), &["--json", "--uses", "2"]);
    assert_eq!(beside.code, 0, "{beside:?}");
    let made = beside.json();
    assert_eq!((&made["running"], &made["new_cluster"]), (&true.into(), &false.into()));
    assert_eq!(made["uses"], 2);
    let line = made["join_token"].as_str().unwrap();
    assert_eq!(made["command"], format!("volvox-agent join {line}"));
    stage.join_with(line, CellPlan::named("second"));
    let cells = stage.done(&["cells", "--json"]).json();
    assert_eq!(cells["cells"].as_array().unwrap().len(), 2);
}

/// All below a folder that are not this user's.
fn others(folder: &Path, user: u32) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let about = entry.metadata().unwrap();
            found.extend((about.uid() != user).then(|| entry.path().display().to_string()));
            folders.extend(about.is_dir().then(|| entry.path()));
        }
    }
    found
}

#[test]
fn what_root_does_in_the_data_folder_is_the_coordinators() {
    let name = "what_root_does_in_the_data_folder_is_the_coordinators";
    let Some(program) = coordinator_program() else {
        return skip(name, "volvox-coordinator was not built: cargo build -p volvox-coordinator");
    };
    if !nix::unistd::geteuid().is_root() {
        return skip(name, "only root can be another user");
    }
    const NOBODY: u32 = 65_534;
    let stage = Stage::new();
    let data = stage.data();
    let place = data.to_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    // The coordinator's folder is its user's from here on, as a package has it.
    let made = Command::new("chown").args(["-R", "65534:65534", &place]).status().unwrap();
    assert!(made.success());
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(stage.folder.path(), open).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(&program);
        command.args(words).args(["--data-dir", &place]);
        let said = said(command);
        assert_eq!(said.code, 0, "{words:?}: {said:?}");
        assert_eq!(others(&data, NOBODY), Vec::<String>::new(), "{words:?}");
    };
    let copy = folder.path().join("copy.db");
    let copy = copy.to_str().unwrap();
    run(&["token", "create", "--name", "it", "--role", "read"]);
    run(&["token", "list"]);
    run(&["backup"]);
    run(&["backup", "--to", copy]);
    run(&["check"]);
    let folder = stage.folder.path().to_owned();
    let mut stage = stage;
    stage.stop();
    run(&["restore", "--from", copy]);
    let said = init(&program, &folder, &["--address", "127.0.0.1:8890"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(others(&data, NOBODY), Vec::<String>::new(), "after init");
}

#[test]
fn mistakes_of_init_are_told_with_the_way_out() {
    let Some(program) = coordinator_program() else {
        return skip("mistakes_of_init_are_told_with_the_way_out", "no volvox-coordinator here");
    };
    let folder = tempfile::tempdir().unwrap();
    for (words, told) in [
        (&["--uses", "0"][..], "a line that nobody may use"),
        (&["--address", "nowhere"], "nowhere"),
        (&["--expires", "soon"], "such as 90s or 30d"),
    ] {
        let said = init(&program, folder.path(), words);
        assert_eq!(said.code, 2, "{said:?}");
        assert!(said.err.contains(told), "{said:?}");
        assert_eq!(said.out, "");
    }
    let here = init(&program, folder.path(), &["--address", "127.0.0.1:8890"]);
    assert!(here.err.contains("Other machines cannot reach this address"), "{here:?}");
}
