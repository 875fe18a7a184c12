//! Takes away what a `volvox dev` had: containers with their networks and mounts, then the folder.
//! Also for one that was killed, when the next one comes.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use super::Programs;
use super::child::Child;
use super::layout;
use super::processes::Processes;
use crate::error::Failure;

/// What the cells have to remove their containers.
const PATIENCE: Duration = Duration::from_secs(120);
/// An agent that was just killed may still be there: then it is tried again.
const TRIES: u32 = 3;

/// Removes the containers of all cells, each by its agent's program. Their agents have ended.
pub(super) fn containers(
    crew: &Processes,
    programs: &Programs,
    folder: &Path,
    cells: u8,
) -> Result<(), Failure> {
    // A cell that has no state has never had a container.
    let mut left: Vec<u8> =
        (1..=cells).filter(|it| folder.join(layout::name(*it)).is_dir()).collect();
    let mut told = Vec::new();
    for _ in 0..TRIES {
        let mut children = Vec::new();
        for cell in &left {
            let name = layout::name(*cell);
            let config = folder.join(format!("{name}.toml"));
            let log = folder.join(format!("{name}.log"));
            let words = [OsStr::new("--config"), config.as_os_str(), OsStr::new("clean")];
            let what = format!("the cleaning of {name}");
            children.push(Child::start(&what, &programs.agent, &words, Some(&log))?);
        }
        let ended = crew.wait_for(&mut children, PATIENCE);
        told.clear();
        let mut failed = Vec::new();
        for ((cell, child), status) in left.iter().zip(&children).zip(ended) {
            if let Some(status) = status.filter(|it| !it.success()) {
                told.push(child.died(status).message);
                failed.push(*cell);
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        left = failed;
        crew.breathe();
    }
    Err(Failure::failed(told.join("\n"))
        .hint("its containers may still be there: `volvox dev --clean` tries it again"))
}

/// Removes a folder, unless something is still mounted in it: that would be emptied too.
pub(super) fn folder(path: &Path) -> Result<(), Failure> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut targets = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    if let Some(mount) = targets.find(|it| Path::new(it).starts_with(path)) {
        return Err(Failure::failed(format!("{mount} is still mounted"))
            .hint(format!("umount it, then remove {}", path.display())));
    }
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::failed(format!("remove {}: {error}", path.display())))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}
