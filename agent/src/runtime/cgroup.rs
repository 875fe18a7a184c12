//! One container's cgroup: its limits, and whether it ran out of memory. On the unified tree
//! (v2) one folder, on the older one (v1) a folder for each controller; which it is, is read off
//! the mounts.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::spec::Limits;

/// The folder below which all of ours are.
const PARENT: &str = "volvox";

/// Where the host keeps its cgroups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hierarchy {
    /// One tree for everything.
    Unified(PathBuf),
    /// A tree for each controller: its name and where it is mounted.
    Older(Vec<(String, PathBuf)>),
}

/// The controllers that we use on the older trees. The freezer holds every container, so that
/// its processes can be found and killed together.
const CONTROLLERS: [&str; 5] = ["memory", "cpu", "pids", "freezer", "devices"];

impl Hierarchy {
    /// Reads the mounts of this machine.
    pub fn detect() -> io::Result<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo")?)
            .ok_or_else(|| io::Error::other("no cgroup file system is mounted"))
    }

    /// Understands the text of `/proc/self/mountinfo`. A unified tree counts when it has
    /// controllers; beside older trees it is an empty one.
    fn parse(mounts: &str) -> Option<Self> {
        let mut unified = None;
        let mut older = Vec::new();
        for line in mounts.lines() {
            let (left, right) = line.split_once(" - ")?;
            let target = PathBuf::from(left.split(' ').nth(4)?);
            let mut right = right.split(' ');
            match right.next()? {
                "cgroup2" => unified = Some(target),
                "cgroup" => {
                    let options = right.nth(1).unwrap_or_default();
                    let named = options.split(',').filter(|it| CONTROLLERS.contains(it));
                    older.extend(named.map(|it| (it.to_owned(), target.clone())));
                }
                _ => {}
            }
        }
        match (older.is_empty(), unified) {
            (false, _) => Some(Hierarchy::Older(older)),
            (true, Some(unified)) => Some(Hierarchy::Unified(unified)),
            (true, None) => None,
        }
    }
}

/// One container's cgroup.
#[derive(Debug, Clone)]
pub struct Cgroup {
    hierarchy: Hierarchy,
    id: String,
}

impl Cgroup {
    /// The cgroup of the container `id`, there or not.
    pub fn new(hierarchy: Hierarchy, id: &str) -> Self {
        Cgroup { hierarchy, id: id.to_owned() }
    }

    /// Its folders: one, or one for each controller.
    pub fn folders(&self) -> Vec<PathBuf> {
        match &self.hierarchy {
            Hierarchy::Unified(root) => vec![root.join(PARENT).join(&self.id)],
            Hierarchy::Older(trees) => {
                trees.iter().map(|(_, root)| root.join(PARENT).join(&self.id)).collect()
            }
        }
    }

    fn folder(&self, controller: &str) -> Option<PathBuf> {
        let root = match &self.hierarchy {
            Hierarchy::Unified(root) => root,
            Hierarchy::Older(trees) => &trees.iter().find(|(name, _)| name == controller)?.1,
        };
        Some(root.join(PARENT).join(&self.id))
    }

    /// Makes it and sets its limits.
    pub fn create(&self, limits: &Limits) -> io::Result<()> {
        if let Hierarchy::Unified(root) = &self.hierarchy {
            let parent = root.join(PARENT);
            std::fs::create_dir_all(&parent)?;
            for folder in [root.as_path(), &parent] {
                // Refused where a controller is missing or taken; the limits below then say so.
                let _ = std::fs::write(folder.join("cgroup.subtree_control"), "+memory +cpu +pids");
            }
        }
        for folder in self.folders() {
            make(&folder)?;
        }
        self.limit(limits)
    }

    fn limit(&self, limits: &Limits) -> io::Result<()> {
        let unified = matches!(self.hierarchy, Hierarchy::Unified(_));
        let set = |controller: &str, file: &str, value: String| -> io::Result<()> {
            let folder = self.folder(controller).ok_or_else(|| {
                io::Error::other(format!("this machine has no cgroup controller {controller}"))
            })?;
            std::fs::write(folder.join(file), value)
                .map_err(|error| io::Error::new(error.kind(), format!("set {file}: {error}")))
        };
        if limits.memory_bytes > 0 {
            let bytes = limits.memory_bytes.to_string();
            if unified {
                set("memory", "memory.max", bytes)?;
                set("memory", "memory.swap.max", "0".to_owned()).or_else(missing_is_fine)?;
                set("memory", "memory.oom.group", "1".to_owned()).or_else(missing_is_fine)?;
            } else {
                set("memory", "memory.limit_in_bytes", bytes.clone())?;
                set("memory", "memory.memsw.limit_in_bytes", bytes).or_else(missing_is_fine)?;
            }
        }
        if limits.pids > 0 {
            set("pids", "pids.max", limits.pids.to_string())?;
        }
        if limits.cpu_shares > 0 {
            if unified {
                // The kernel's own translation of 2..262144 shares into a weight of 1..10000.
                let shares = limits.cpu_shares.clamp(2, 262_144);
                let weight = 1 + ((shares - 2) * 9_999) / 262_142;
                set("cpu", "cpu.weight", weight.to_string())?;
            } else {
                set("cpu", "cpu.shares", limits.cpu_shares.clamp(2, 262_144).to_string())?;
            }
        }
        Ok(())
    }

    /// The files into which a process of one thread writes `0` to join. On the older trees a thread
    /// that moves itself takes none of the locks that stop every fork on the machine, and need
    /// milliseconds to be had; moving a process, or another one, does.
    pub fn join_files(&self) -> Vec<PathBuf> {
        let file = match self.hierarchy {
            Hierarchy::Unified(_) => "cgroup.procs",
            Hierarchy::Older(_) => "tasks",
        };
        self.folders().into_iter().map(|folder| folder.join(file)).collect()
    }

    /// Joins it. Only a process of one thread may call this.
    pub(crate) fn join(&self) -> io::Result<()> {
        for file in self.join_files() {
            // Not created where it is missing: a cgroup that has gone must not be a plain folder.
            std::fs::OpenOptions::new().write(true).open(file)?.write_all(b"0")?;
        }
        Ok(())
    }

    /// Whether the kernel has killed something here for want of memory.
    pub fn is_out_of_memory(&self) -> bool {
        let Some(folder) = self.folder("memory") else { return false };
        let counted = |file: &str, name: &str| {
            let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
            text.lines().any(|line| match line.split_once(' ') {
                Some((key, count)) => key == name && count.trim() != "0",
                None => false,
            })
        };
        counted("memory.events", "oom_kill") || counted("memory.oom_control", "oom_kill")
    }

    /// Kills everything in it and removes it. Nothing is left, or an error says what is.
    pub fn destroy(&self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(10);
        let deadline = Instant::now() + PATIENCE;
        for folder in self.folders() {
            loop {
                match std::fs::remove_dir(&folder) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                    Err(error) if Instant::now() > deadline => {
                        let text = format!("remove {}: {error}", folder.display());
                        return Err(io::Error::new(error.kind(), text));
                    }
                    Err(_) => {
                        kill_all(&folder);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
            }
            // The last one takes the folder of all with it; while others are there it stays.
            if let Some(parent) = folder.parent() {
                let _ = std::fs::remove_dir(parent);
            }
        }
        Ok(())
    }
}

/// Makes a folder with those above it, also while somebody else removes an empty one above.
fn make(folder: &Path) -> io::Result<()> {
    const TRIES: usize = 100;
    let mut last = Ok(());
    for _ in 0..TRIES {
        last = std::fs::create_dir_all(folder);
        match &last {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(()) | Err(_) => break,
        }
    }
    last
}

/// Kills what is in a folder: at once where the kernel can, else process by process.
fn kill_all(folder: &Path) {
    if std::fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    for pid in members.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|pid| *pid > 1) {
        let _ = nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(pid),
            nix::sys::signal::Signal::SIGKILL,
        );
    }
}

/// A kernel without swap accounting has no file for it.
fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_tell_which_kind_of_tree_there_is() {
        let hybrid = "\
            31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
            35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let expected = vec![
            ("memory".to_owned(), PathBuf::from("/sys/fs/cgroup/memory")),
            ("cpu".to_owned(), PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")),
        ];
        assert_eq!(Hierarchy::parse(hybrid), Some(Hierarchy::Older(expected)));
        let unified = "41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let expected = Hierarchy::Unified(PathBuf::from("/sys/fs/cgroup"));
        assert_eq!(Hierarchy::parse(unified), Some(expected));
        assert_eq!(Hierarchy::parse("1 1 0:1 / / rw - ext4 disk rw\n"), None);
    }
}
