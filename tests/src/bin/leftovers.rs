//! What tests leave behind on a machine: `leftovers take FILE` before them, `leftovers compare FILE`
//! after them. `make test` calls both. Nothing is removed here, only named.
//!
//! Looked at: mounts, cgroups and temporary folders of ours, network interfaces, nftables tables, and
//! processes that hold or drive containers. What is new at the second look must go within
//! [`PATIENCE`]. A second copy of the suite may run meanwhile: what it makes later is not looked at,
//! and what it has at that moment goes in time, unless one of its tests takes longer than that.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;

const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);
/// The names of our processes, as the kernel keeps them.
const PROGRAMS: [&str; 2] = ["volvox-shim", "volvox-agent"];

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["take", file] => {
            let text: String = look().iter().map(|it| format!("{it}\n")).collect();
            std::fs::write(file, text).with_context(|| format!("write {file}"))?;
            Ok(ExitCode::SUCCESS)
        }
        ["compare", file] => {
            let text = std::fs::read_to_string(file).with_context(|| format!("read {file}"))?;
            let before: BTreeSet<String> = text.lines().map(str::to_owned).collect();
            Ok(tell(&still_there(&before)))
        }
        _ => anyhow::bail!("usage: leftovers take FILE | leftovers compare FILE"),
    }
}

/// What is there, was not there before, and does not go.
fn still_there(before: &BTreeSet<String>) -> BTreeSet<String> {
    let deadline = Instant::now() + PATIENCE;
    let mut left: BTreeSet<String> = look().difference(before).cloned().collect();
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::park_timeout(PAUSE);
        let now = look();
        left.retain(|it| now.contains(it));
    }
    left
}

#[expect(clippy::print_stdout, reason = "a program for people and for make")]
fn tell(left: &BTreeSet<String>) -> ExitCode {
    if left.is_empty() {
        println!("--- nothing is left behind");
        return ExitCode::SUCCESS;
    }
    println!("--- left behind");
    for it in left {
        println!("{it}");
    }
    ExitCode::FAILURE
}

fn look() -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    mounts(&mut seen);
    cgroups(Path::new("/sys/fs/cgroup"), 3, &mut seen);
    for name in names(Path::new("/sys/class/net")) {
        seen.insert(format!("interface {name}"));
    }
    // Only root may list them; without, no test of ours can have made one either.
    for name in volvox_agent::runtime::net::tables().unwrap_or_default() {
        seen.insert(format!("nft table {name}"));
    }
    processes(&mut seen);
    let temporary = std::env::temp_dir();
    for name in names(&temporary).filter(|name| name.starts_with(".tmp") || is_ours(name)) {
        seen.insert(format!("folder {}", temporary.join(name).display()));
    }
    seen
}

fn is_ours(name: &str) -> bool {
    name.starts_with("volvox")
}

/// What is mounted in a temporary folder or below a name of ours.
fn mounts(seen: &mut BTreeSet<String>) {
    let temporary = std::env::temp_dir();
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for target in text.lines().filter_map(|line| line.split(' ').nth(4)) {
        if Path::new(target).starts_with(&temporary) || target.split('/').any(is_ours) {
            seen.insert(format!("mount {target}"));
        }
    }
}

/// Cgroups of ours, on either kind of tree: those below a folder of our name, and that itself.
fn cgroups(folder: &Path, depth: u8, seen: &mut BTreeSet<String>) {
    for name in names(folder) {
        let path = folder.join(&name);
        if !path.is_dir() || path.is_symlink() {
            continue;
        }
        // The folder of all belongs to whoever came first, and goes with the last container.
        if path.iter().any(|part| part.to_str().is_some_and(is_ours)) && name != "volvox" {
            seen.insert(format!("cgroup {}", path.display()));
        }
        if depth > 1 {
            cgroups(&path, depth - 1, seen);
        }
    }
}

fn processes(seen: &mut BTreeSet<String>) {
    for pid in names(Path::new("/proc")).filter(|name| name.bytes().all(|it| it.is_ascii_digit())) {
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((name, rest)) = stat.rsplit_once(')') else { continue };
        let Some((_, name)) = name.split_once('(') else { continue };
        // The time of its start tells it from a later process with the same number.
        let start = rest.split_whitespace().nth(19).unwrap_or_default();
        if PROGRAMS.contains(&name) {
            seen.insert(format!("process {pid} {name} started at {start}"));
        }
    }
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}
