//! `packaging/install.sh` and the tar, in a file system of their own: what is placed, what an upgrade
//! keeps, what is left. No program is built or started.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::markdown::root;

/// An unpacked tar with programs that do nothing.
fn unpacked(folder: &Path) -> PathBuf {
    let place = folder.join("volvox-0-test");
    for part in ["bin", "lib/volvox", "etc", "systemd", "share/man", "share/completions"] {
        std::fs::create_dir_all(place.join(part)).unwrap();
    }
    let programs =
        ["bin/volvox", "bin/volvox-agent", "bin/volvox-coordinator", "lib/volvox/volvox-shim"];
    for program in programs {
        std::fs::write(place.join(program), "#!/bin/sh\necho one\n").unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(place.join(program), mode).unwrap();
    }
    for (file, sample) in [
        ("etc/agent.toml", volvox_agent::config::SAMPLE),
        ("etc/coordinator.toml", volvox_coordinator::config::SAMPLE),
    ] {
        let text = volvox_tests::installed_configuration(sample);
        std::fs::write(place.join(file), text).unwrap();
    }
    for unit in
        ["volvox-agent.service", "volvox-coordinator.service", "volvox-coordinator.sysusers"]
    {
        std::fs::copy(
            root().join("packaging/systemd").join(unit),
            place.join("systemd").join(unit),
        )
        .unwrap();
    }
    for (program, section) in [("volvox", 1), ("volvox-agent", 8), ("volvox-coordinator", 8)] {
        let pages = place.join("share/man").join(program);
        std::fs::create_dir(&pages).unwrap();
        for page in [program.to_owned(), format!("{program}-run")] {
            std::fs::write(pages.join(format!("{page}.{section}")), "").unwrap();
        }
        for file in
            [format!("bash/{program}"), format!("zsh/_{program}"), format!("fish/{program}.fish")]
        {
            let path = place.join("share/completions").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
    }
    std::fs::copy(root().join("packaging/install.sh"), place.join("install.sh")).unwrap();
    place
}

fn install(script: &Path, root: &Path, words: &[&str]) -> Output {
    Command::new("sh").arg(script).arg("--root").arg(root).args(words).output().unwrap()
}

#[track_caller]
fn done(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// All files below, without the folder's own name.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else {
                let path = entry.path();
                found.push(format!("/{}", path.strip_prefix(folder).unwrap().display()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn what_is_installed_is_upgraded_and_taken_away_again() {
    let folder = tempfile::tempdir().unwrap();
    let tar = unpacked(folder.path());
    let (script, system) = (tar.join("install.sh"), folder.path().join("system"));
    done(&install(&script, &system, &["agent", "coordinator", "cli"]));
    let placed = files(&system);
    for file in [
        "/usr/local/bin/volvox",
        "/usr/local/bin/volvox-agent",
        "/usr/local/bin/volvox-coordinator",
        "/usr/local/lib/volvox/volvox-shim",
        "/usr/local/share/man/man1/volvox-run.1",
        "/usr/local/share/man/man8/volvox-agent.8",
        "/usr/local/share/bash-completion/completions/volvox",
        "/etc/volvox/agent.toml",
        "/etc/volvox/coordinator.toml",
        "/etc/systemd/system/volvox-agent.service",
        "/etc/systemd/system/volvox-coordinator.service",
        "/etc/sysusers.d/volvox-coordinator.conf",
    ] {
        assert!(placed.contains(&file.to_owned()), "{file} is not in {placed:?}");
    }
    assert!(!placed.iter().any(|it| it.ends_with(".new")), "{placed:?}");
    let unit = std::fs::read_to_string(system.join("etc/systemd/system/volvox-agent.service"));
    assert!(unit.unwrap().contains("ExecStart=/usr/local/bin/volvox-agent "));
    let data = std::fs::metadata(system.join("var/lib/volvox/coordinator")).unwrap();
    assert_eq!(data.permissions().mode() & 0o777, 0o700);

    // An upgrade: new programs, and what the operator wrote stays.
    std::fs::write(tar.join("bin/volvox-agent"), "#!/bin/sh\necho two\n").unwrap();
    std::fs::write(system.join("etc/volvox/agent.toml"), "zone = \"z1\"\n").unwrap();
    let told = done(&install(&script, &system, &["agent"]));
    assert!(told.contains("/etc/volvox/agent.toml stays"), "{told}");
    let agent = std::fs::read_to_string(system.join("usr/local/bin/volvox-agent")).unwrap();
    assert!(agent.contains("two"), "{agent}");
    assert_eq!(std::fs::read(system.join("etc/volvox/agent.toml")).unwrap(), b"zone = \"z1\"\n");

    std::fs::create_dir_all(system.join("var/lib/volvox/agent/mesh")).unwrap();
    let told = done(&install(&script, &system, &["--remove", "agent"]));
    assert!(told.contains("/etc/volvox/agent.toml and /var/lib/volvox/agent"), "{told}");
    assert!(system.join("var/lib/volvox/agent/mesh").exists());
    assert!(!files(&system).iter().any(|it| it.contains("bin/volvox-agent")));
    done(&install(&script, &system, &["--purge", "agent", "coordinator", "cli"]));
    assert_eq!(files(&system), Vec::<String>::new());
    assert!(!system.join("var/lib/volvox").exists());
}

#[test]
fn the_tar_itself_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let tar = unpacked(folder.path());
    let packed = folder.path().join("volvox.tar.gz");
    let name = tar.file_name().unwrap();
    let mut pack = Command::new("tar");
    pack.arg("-czf").arg(&packed).arg("-C").arg(folder.path()).arg(name);
    let made = pack.status().unwrap();
    assert!(made.success());
    let system = folder.path().join("system");
    let script = root().join("packaging/install.sh");
    let words = ["--from", packed.to_str().unwrap(), "--prefix", "/opt/volvox", "agent"];
    // Another tar than the one that was meant.
    let sum = folder.path().join("volvox.tar.gz.sha256");
    std::fs::write(&sum, format!("{:064}  volvox.tar.gz\n", 0)).unwrap();
    let said = install(&script, &system, &words);
    assert_eq!(said.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&said.stderr).contains("fetch it again"));
    assert!(!system.exists());
    let sha256 =
        Command::new("sha256sum").arg("volvox.tar.gz").current_dir(folder.path()).output().unwrap();
    std::fs::write(&sum, sha256.stdout).unwrap();
    done(&install(&script, &system, &words));
    assert!(system.join("opt/volvox/bin/volvox-agent").exists());
    let unit = std::fs::read_to_string(system.join("etc/systemd/system/volvox-agent.service"));
    let unit = unit.unwrap();
    assert!(unit.contains("ExecStart=/opt/volvox/bin/volvox-agent "));
    assert!(unit.contains("ExecStopPost=-/opt/volvox/bin/volvox-agent "));
    // Where it was put is found again.
    done(&install(&script, &system, &["--purge", "agent"]));
    assert_eq!(files(&system), Vec::<String>::new());
}

#[test]
fn mistakes_are_told_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let script = root().join("packaging/install.sh");
    for words in
        [&["agnt"][..], &["--prefix", "here", "agent"], &["--from", "/nowhere", "agent"], &[]]
    {
        let said = install(&script, folder.path(), words);
        assert_eq!(said.status.code(), Some(2), "{words:?}");
        assert_eq!(files(folder.path()), Vec::<String>::new(), "{words:?}");
    }
}

/// Maintainer scripts and the rest are understood by the shells that will read them.
#[test]
fn scripts_are_understood_by_their_shells() {
    for (shell, file) in [
        ("sh", "packaging/install.sh"),
        ("bash", "packaging/tar"),
        ("sh", "packaging/deb/agent/postinst"),
        ("sh", "packaging/deb/agent/prerm"),
        ("sh", "packaging/deb/agent/postrm"),
        ("sh", "packaging/deb/coordinator/postinst"),
        ("sh", "packaging/deb/coordinator/prerm"),
        ("sh", "packaging/deb/coordinator/postrm"),
        ("bash", "packaging/vm/common"),
        ("bash", "packaging/vm/install"),
        ("bash", "packaging/vm/run"),
        ("bash", "packaging/vm/guest-install"),
        ("sh", "packaging/vm/boot"),
    ] {
        let said = Command::new(shell).arg("-n").arg(root().join(file)).output().unwrap();
        assert!(said.status.success(), "{file}: {}", String::from_utf8_lossy(&said.stderr));
    }
}
