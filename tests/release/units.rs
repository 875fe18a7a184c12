//! The systemd units: they say what they must, systemd understands them, and they are as hardened as
//! they were.

use std::path::Path;
use std::process::Command;

use volvox_tests::skip;

use crate::markdown::root;

const UNITS: [&str; 2] = ["volvox-agent.service", "volvox-coordinator.service"];

/// `systemd-analyze security`, in tenths: 0 is closed, 100 is open. The agent makes containers as root;
/// what may be taken from it is told in its unit.
const EXPOSURE: [(&str, u32); 2] =
    [("volvox-agent.service", 70), ("volvox-coordinator.service", 12)];

fn unit(name: &str) -> String {
    std::fs::read_to_string(root().join("packaging/systemd").join(name)).unwrap()
}

#[test]
fn units_say_what_they_must() {
    for name in UNITS {
        let text = unit(name);
        let has = |line: &str| text.lines().any(|it| it == line);
        for line in ["Type=notify", "KillMode=process", "Restart=on-failure", "NoNewPrivileges=yes"]
        {
            assert!(has(line), "{name}: {line}");
        }
        assert!(text.contains("\nWatchdogSec="), "{name}: no watchdog");
        let ordered = text.lines().filter(|it| !it.starts_with('#'));
        let waits = ordered.filter(|it| it.contains("network-online")).count();
        assert_eq!(waits, 0, "{name} waits for the network");
    }
    assert!(unit("volvox-agent.service").contains("\nDelegate=yes\n"));
    assert!(unit("volvox-coordinator.service").contains("\nUser=volvox-coordinator\n"));
}

/// The agent's mounts and what it starts must outlive it: nothing may give it a mount namespace.
#[test]
fn the_agent_has_no_mount_namespace_of_its_own() {
    let text = unit("volvox-agent.service");
    for option in [
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "PrivateMounts",
        "ProtectProc",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectControlGroups",
        "ReadOnlyPaths",
        "ReadWritePaths",
        "InaccessiblePaths",
        "TemporaryFileSystem",
        "BindPaths",
        "RootDirectory",
        "PrivateUsers",
        "PrivateNetwork",
        "ProtectHostname",
        "RestrictNamespaces",
    ] {
        assert!(!text.contains(&format!("\n{option}=")), "{option}");
    }
}

/// systemd's own words about the units, with the programs where they will be.
#[test]
fn systemd_understands_the_units() {
    if !has_analyze("systemd_understands_the_units") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    for program in ["volvox-agent", "volvox-coordinator"] {
        std::fs::copy("/bin/true", place.join(program)).unwrap();
    }
    for name in UNITS {
        let text = unit(name).replace("/usr/bin/", &format!("{}/", place.display()));
        let text = text.lines().filter(|it| !it.starts_with("Documentation=")).collect::<Vec<_>>();
        std::fs::write(place.join(name), text.join("\n")).unwrap();
        let said = Command::new("systemd-analyze").arg("verify").arg(place.join(name)).output();
        let said = said.unwrap();
        let complaints = String::from_utf8_lossy(&said.stderr);
        let about: Vec<&str> = complaints.lines().filter(|it| it.contains("volvox")).collect();
        assert!(about.is_empty(), "{about:?}");
        assert!(said.status.success() || about.is_empty(), "{complaints}");
    }
}

#[test]
fn units_are_as_hardened_as_they_were() {
    if !has_analyze("units_are_as_hardened_as_they_were") {
        return;
    }
    for (name, most) in EXPOSURE {
        let path = root().join("packaging/systemd").join(name);
        let said = Command::new("systemd-analyze")
            .args(["security", "--offline=yes", &format!("--threshold={most}")])
            .arg(path)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&said.stdout);
        let last = told.lines().rev().find(|it| it.contains("exposure")).unwrap_or_default();
        assert!(said.status.success(), "{last}, and {most} tenths at most are allowed");
    }
}

/// Whether systemd-analyze is here and new enough to look at a file.
fn has_analyze(name: &str) -> bool {
    let said = Command::new("systemd-analyze").arg("--version").output();
    let text = said.map(|it| String::from_utf8_lossy(&it.stdout).into_owned()).unwrap_or_default();
    let version: u32 = text.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    if version < 250 {
        skip(name, "systemd-analyze 250 or later is wanted (Debian: systemd)");
    }
    version >= 250
}

/// What a package installs is what the program has, all of it commented out.
#[test]
fn installed_configurations_are_the_defaults() {
    let samples = [volvox_agent::config::SAMPLE, volvox_coordinator::config::SAMPLE];
    for sample in samples {
        let text = volvox_tests::installed_configuration(sample);
        assert!(!text.contains("#="), "{text}");
        for line in text.lines() {
            assert!(line.is_empty() || line.starts_with(['#', '[']), "{line}");
        }
    }
    let coordinator = volvox_tests::installed_configuration(samples[1]);
    volvox_coordinator::config::Config::parse(&coordinator, None).unwrap();
    // With every key switched on it is still one.
    let on: String = coordinator
        .lines()
        .map(|line| match line.strip_prefix('#').filter(|it| it.starts_with(char::is_alphabetic)) {
            Some(key) if key.contains(" = ") => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    volvox_coordinator::config::Config::parse(&on, Some(Path::new("/x"))).unwrap();
}
