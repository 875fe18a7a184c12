//! The systemd units: they say what they must, systemd understands them, and they are as hardened as
//! they were.

use std::path::Path;
use std::process::Command;

use volvox_tests::skip;

use crate::markdown::root;

const UNITS: [&str; 2] = ["volvox-agent.service", "volvox-coordinator.service"];

/// `systemd-analyze security`, in tenths: 0 is closed, 100 is open. The agent makes containers as root;
/// what may be taken from it is told in its unit.
const EXPOSURE: [(&str, u32); 3] = [
    ("volvox-agent.service", 70),
    ("volvox-coordinator.service", 12),
    ("volvox-coordinator-backup.service", 2),
];

fn unit(name: &str) -> String {
    std::fs::read_to_string(root().join("packaging/systemd").join(name)).unwrap()
}

#[test]
fn units_say_what_they_must() {
    for name in UNITS {
        let text = unit(name);
        for line in ["Type=notify", "KillMode=process", "RestartSec=", "NoNewPrivileges=yes"] {
            let is_it = |it: &str| it == line || line.ends_with('=') && it.starts_with(line);
            assert!(text.lines().any(is_it), "{name}: {line}");
        }
        assert!(text.contains("\nWatchdogSec="), "{name}: no watchdog");
        let ordered = text.lines().filter(|it| !it.starts_with('#'));
        let waits = ordered.filter(|it| it.contains("network-online")).count();
        assert_eq!(waits, 0, "{name} waits for the network");
    }
    assert!(unit("volvox-agent.service").contains("\nDelegate=yes\n"));
    // A restart must not evacuate.
    assert!(unit("volvox-agent.service").contains("\nRestartKillSignal=SIGINT\n"));
    assert!(unit("volvox-coordinator.service").contains("\nUser=volvox-coordinator\n"));
    // An agent that was evacuated ends well, and stays away; a coordinator has no reason to.
    assert!(unit("volvox-agent.service").contains("\nRestart=on-failure\n"));
    assert!(unit("volvox-coordinator.service").contains("\nRestart=always\n"));
    // Cores would have keys in them. What is in containers inherits the hard limit, and may have its own.
    assert!(unit("volvox-agent.service").contains("\nLimitCORE=0:infinity\n"));
    assert!(unit("volvox-coordinator.service").contains("\nLimitCORE=0\n"));
}

/// A program that is told of a file which is not there does not start; the operator may delete it.
#[test]
fn units_name_no_configuration_so_that_there_need_be_none() {
    for name in UNITS {
        assert!(!unit(name).contains("--config"), "{name}");
    }
}

/// A crash is over within a second; an agent that ends with what is wrong is not started every second.
#[test]
fn an_agent_that_said_what_is_wrong_waits() {
    let text = unit("volvox-agent.service");
    let line = text.lines().find_map(|it| it.strip_prefix("ExecStopPost=-/bin/sh -c '")).unwrap();
    let script =
        line.strip_suffix('\'').unwrap().replace("$$", "$").replace("sleep 10", "echo waits");
    for (code, status, waits) in [
        ("exited", "2", true),
        ("exited", "0", false),
        ("exited", "101", false),
        ("killed", "2", false),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env("EXIT_CODE", code).env("EXIT_STATUS", status);
        let said = shell.output().unwrap();
        assert_eq!(said.stdout == b"waits\n", waits, "{code} {status}: {said:?}");
    }
}

/// Every day, as the coordinator's user, beside it; and never more files than a number.
#[test]
fn backups_are_made_every_day_and_bounded() {
    let (service, timer) =
        (unit("volvox-coordinator-backup.service"), unit("volvox-coordinator-backup.timer"));
    let has = |text: &str, line: &str| assert!(text.lines().any(|it| it == line), "{line}");
    for line in ["Type=oneshot", "User=volvox-coordinator", "PrivateNetwork=yes", "UMask=0077"] {
        has(&service, line);
    }
    for line in ["OnCalendar=daily", "Persistent=yes", "WantedBy=timers.target"] {
        has(&timer, line);
    }
    // Only the timer starts it: with the machine there would be one at each boot.
    assert!(!service.contains("[Install]"));
    // What systemd will make of the line is what the program understands.
    let keep = service.lines().find_map(|it| it.strip_prefix("Environment=KEEP=")).unwrap();
    let line = service.lines().find_map(|it| it.strip_prefix("ExecStart=/usr/bin/")).unwrap();
    let line = line.replace("${KEEP}", keep);
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(words[..2], ["volvox-coordinator", "backup"]);
    let matches = volvox_coordinator::cli::command().try_get_matches_from(words).unwrap();
    let kept = matches.subcommand().unwrap().1.get_one::<u32>("keep").copied();
    assert_eq!(kept, Some(7), "as docs/howto/backup.md says");
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
    let timed = ["volvox-coordinator-backup.service", "volvox-coordinator-backup.timer"];
    for name in timed.into_iter().chain(UNITS) {
        let text = unit(name).replace("/usr/bin/", &format!("{}/", place.display()));
        std::fs::write(place.join(name), text).unwrap();
        // Of other units of this machine, which it loads too, nothing is wanted.
        let said = Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=no"])
            .arg(place.join(name))
            .output()
            .unwrap();
        let complaints = String::from_utf8_lossy(&said.stderr);
        let about: Vec<&str> = complaints.lines().filter(|it| it.contains("volvox")).collect();
        assert!(about.is_empty(), "{about:?}");
        assert!(said.status.success(), "{complaints}");
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
    volvox_coordinator::config::CoordinatorConfig::parse(&coordinator, None).unwrap();
    // With every key switched on it is still one.
    let on = switched_on(&coordinator);
    volvox_coordinator::config::CoordinatorConfig::parse(&on, Some(Path::new("/x"))).unwrap();

    let agent = volvox_tests::installed_configuration(samples[0]);
    let of = |text: &str| toml::from_str::<volvox_agent::config::ConfigFile>(text).unwrap();
    assert_eq!(of(&agent), volvox_agent::config::ConfigFile::default());
    assert_ne!(of(&switched_on(&agent)), volvox_agent::config::ConfigFile::default());
    for key in ["memory_mb", "disk_mb", "host_address", "certificates"] {
        let line = agent.lines().find(|it| it.starts_with(&format!("#{key} = "))).unwrap();
        assert!(line.ends_with("# an example"), "{line}");
    }
}

/// A configuration with all that is commented out put in.
fn switched_on(text: &str) -> String {
    text.lines()
        .map(|line| match line.strip_prefix('#').filter(|it| it.starts_with(char::is_alphabetic)) {
            Some(key) if key.contains(" = ") => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect()
}

/// What packages are made of is in the tree, or is made by what `make package` runs.
#[test]
fn every_file_of_a_package_exists_or_is_made() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).unwrap();
    let recipe =
        makefile.split("\npackage:").nth(1).and_then(|it| it.split("\n\n").next()).unwrap();
    let made = ["man", "completions", "etc"];
    let mut count = 0;
    for part in ["agent", "coordinator", "cli"] {
        let manifest = std::fs::read_to_string(root().join(part).join("Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&manifest).unwrap();
        let package = &manifest["package"]["metadata"]["deb"];
        if let Some(scripts) = package.get("maintainer-scripts") {
            let scripts = root().join(part).join(scripts.as_str().unwrap());
            for script in ["postinst", "prerm", "postrm"] {
                assert!(scripts.join(script).is_file(), "{part}: no {script}");
            }
        }
        for asset in package["assets"].as_array().unwrap() {
            let source = asset[0].as_str().unwrap();
            // dpkg would take it for a conffile, and ask about it at upgrades.
            assert!(!asset[1].as_str().unwrap().starts_with("etc"), "{part}: {source}");
            count += 1;
            let is_there = if let Some(program) = source.strip_prefix("target/release/") {
                recipe.contains(&format!("--bin {program}"))
            } else if let Some(file) = source.strip_prefix("../target/package/") {
                made.contains(&file.split('/').next().unwrap())
                    && recipe.contains("manuals target/package")
                    && (file.contains("volvox") || file.starts_with("etc/"))
            } else {
                let path = root().join(part).join(source.trim_end_matches('*'));
                path.exists()
            };
            assert!(is_there, "{part}: {source} is neither in the tree nor made");
        }
    }
    assert!(count > 20, "only {count} files of packages were found");
}
