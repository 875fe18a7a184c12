//! What all tests with real containers stand on: how a test says that it cannot run, a small root
//! file system, and a shell in it. Each kind of test has its own cell on top of this.
#![allow(dead_code, reason = "not every test needs all of it")]

use std::io::Write as _;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::time::Duration;

use volvox_agent::container::spec::{OutputTarget, ProcessSpec};

/// Between two looks at something that another process, or the kernel, is about: to look without a
/// pause would take the processor from what is waited for.
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}

/// Says that a test, or a part of it, could not run here, and why, where people look for it.
pub(crate) fn skip(name: &str, why: &str) {
    let line = format!("SKIPPED {name}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Whether containers can be made. If not, that is said.
pub(crate) fn can_run(name: &str) -> bool {
    if !is_root() {
        skip(name, "containers need root");
    }
    is_root()
}

/// Makes a root file system of next to nothing, which wants the host's `/usr` bound into it.
pub(crate) fn small_root(layer: &Path) {
    for made in ["usr", "etc", "home/vcap", "proc", "sys", "dev", "tmp"] {
        std::fs::create_dir_all(layer.join(made)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        symlink(format!("usr/{link}"), layer.join(link)).unwrap();
    }
    let passwd = "root:x:0:0::/root:/bin/sh\nvcap:x:2000:2000::/home/vcap:/bin/sh\n";
    std::fs::write(layer.join("etc/passwd"), passwd).unwrap();
    let group = "root:x:0:\nvcap:x:2000:\nmore:x:77:vcap\n";
    std::fs::write(layer.join("etc/group"), group).unwrap();
    chown(layer.join("home/vcap"), Some(2_000), Some(2_000)).unwrap();
}

/// A shell that runs a script.
pub(crate) fn shell(id: u32, user: &str, script: &str) -> ProcessSpec {
    ProcessSpec {
        id,
        path: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![],
        dir: String::new(),
        user: user.to_owned(),
        nofile: None,
        source: "APP".to_owned(),
        output: OutputTarget::Log,
        terminal: None,
    }
}

/// The texts in a log file, without times and sources. It is made with the first line.
pub(crate) fn texts(log: &Path) -> String {
    let log = std::fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let texts = log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default());
    texts.collect::<Vec<_>>().join("\n")
}
