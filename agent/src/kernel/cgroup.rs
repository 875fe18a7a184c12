//! One container's cgroup: its limits, and how often the kernel killed in it for want of memory.
//! On the unified tree (v2) one folder, on the older one (v1) a folder for each controller; which it
//! is, is read off the mounts, once for all containers.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{devices, sys};
use crate::container::spec::{Hierarchy, Limits, is_container_id};

/// The folder below which all of ours are.
const PARENT: &str = "volvox";

/// The controllers that we use on the older trees.
const CONTROLLERS: [&str; 4] = ["memory", "cpu", "pids", "devices"];

impl Hierarchy {
    /// Reads the mounts of this machine.
    pub fn detect() -> io::Result<Self> {
        Self::parse(&std::fs::read_to_string("/proc/self/mountinfo")?)
            .ok_or_else(|| io::Error::other("no cgroup file system is mounted"))
    }

    /// Removes the folder of all containers, where it is empty. It stays while a cell is in use, so
    /// that not every container has to make it anew.
    pub fn remove_parent(&self) {
        let roots: Vec<&PathBuf> = match self {
            Hierarchy::Unified(root) => vec![root],
            Hierarchy::Older(trees) => trees.iter().map(|(_, root)| root).collect(),
        };
        for root in roots {
            // One that is in use refuses, and one that is missing is fine.
            let _ = std::fs::remove_dir(root.join(PARENT));
        }
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

/// What these processes, and those that they have reaped, have used of the processor.
fn processor_nanos(pids: &str) -> u64 {
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK);
    let per_second = per_second.ok().flatten().and_then(|it| u64::try_from(it).ok()).unwrap_or(100);
    let ticks = pids.lines().filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).ok()?;
        let words = stat.rsplit(')').next()?.split_whitespace().skip(11).take(4);
        Some(words.filter_map(|it| it.parse::<u64>().ok()).sum::<u64>())
    });
    ticks.sum::<u64>().saturating_mul(1_000_000_000 / per_second.max(1))
}

/// What a container uses, as far as the kernel tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time.
    pub cpu_nanos: Option<u64>,
    /// Memory.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
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

    /// Makes it, sets its limits, and keeps it from all devices but those that programs expect.
    pub fn create(&self, limits: &Limits) -> io::Result<()> {
        self.check_name()?;
        again_while_missing(|| {
            if let Hierarchy::Unified(root) = &self.hierarchy {
                let parent = root.join(PARENT);
                std::fs::create_dir_all(&parent)?;
                for folder in [root.as_path(), &parent] {
                    share_out(folder, limits)?;
                }
            }
            self.folders().iter().try_for_each(std::fs::create_dir_all)
        })?;
        self.limit(limits)?;
        match &self.hierarchy {
            Hierarchy::Unified(root) => {
                devices::allow_by_program(&root.join(PARENT).join(&self.id))
            }
            Hierarchy::Older(_) => {
                self.folder("devices").map_or(Ok(()), |it| devices::allow_in_list(&it))
            }
        }
    }

    /// A name that led elsewhere would make us limit or kill what is not ours.
    fn check_name(&self) -> io::Result<()> {
        if is_container_id(&self.id) {
            return Ok(());
        }
        Err(io::Error::other(format!("{:?} is no name for a container", self.id)))
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

    /// What it uses now.
    pub fn usage(&self) -> Usage {
        let read = |controller: &str, file: &str| {
            let path = self.folder(controller)?.join(file);
            std::fs::read_to_string(path).ok()
        };
        let number = |text: Option<String>| text?.trim().parse::<u64>().ok();
        match &self.hierarchy {
            Hierarchy::Unified(_) => {
                let stat = read("cpu", "cpu.stat").unwrap_or_default();
                let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
                let micros: Option<u64> = micros.and_then(|it| it.trim().parse().ok());
                Usage {
                    cpu_nanos: micros.map(|it| it.saturating_mul(1_000)),
                    memory_bytes: number(read("memory", "memory.current")),
                    pids: number(read("pids", "pids.current")),
                }
            }
            // The processor's time is counted by a controller that is mounted with its shares; where it
            // is not, the processes tell.
            Hierarchy::Older(_) => Usage {
                cpu_nanos: number(read("cpu", "cpuacct.usage"))
                    .or_else(|| Some(processor_nanos(&read("pids", "cgroup.procs")?))),
                memory_bytes: number(read("memory", "memory.usage_in_bytes")),
                pids: number(read("pids", "pids.current")),
            },
        }
    }

    /// How often the kernel has killed here for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let Some(folder) = self.folder("memory") else { return 0 };
        let file = match &self.hierarchy {
            Hierarchy::Unified(_) => "memory.events",
            Hierarchy::Older(_) => "memory.oom_control",
        };
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|it| it.trim().parse().ok()).unwrap_or_default()
    }

    /// Kills everything in it and removes it. Nothing is left, or an error says what is.
    pub fn destroy(&self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(10);
        self.check_name()?;
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
        }
        Ok(())
    }
}

/// Somebody else may remove the folder of all, when it is empty, just before we make one in it.
fn again_while_missing(mut make: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const TRIES: usize = 100;
    let mut last = Ok(());
    for _ in 0..TRIES {
        last = make();
        match &last {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok(()) | Err(_) => break,
        }
    }
    last
}

/// On the unified tree: lets the folders below this one have the controllers that limits need.
fn share_out(folder: &Path, limits: &Limits) -> io::Result<()> {
    let has = |file: &str| -> io::Result<Vec<String>> {
        let text = std::fs::read_to_string(folder.join(file))?;
        Ok(text.split_whitespace().map(str::to_owned).collect())
    };
    let shared = has("cgroup.subtree_control")?;
    let needed =
        [("memory", limits.memory_bytes), ("cpu", limits.cpu_shares), ("pids", limits.pids)];
    for (name, _) in
        needed.iter().filter(|(name, limit)| *limit > 0 && !shared.iter().any(|it| it == name))
    {
        let place = folder.display();
        if !has("cgroup.controllers")?.iter().any(|it| it == name) {
            return Err(io::Error::other(format!(
                "{place} has no cgroup controller {name}: an older tree holds it, or the folder above \
                 does not share it out"
            )));
        }
        std::fs::write(folder.join("cgroup.subtree_control"), format!("+{name}")).map_err(
            |error| {
                let why = match error.raw_os_error() {
                    Some(libc::EBUSY) => "it has processes of its own, and may not have both",
                    Some(_) | None => "the kernel refused",
                };
                io::Error::new(error.kind(), format!("share out {name} in {place}: {why}: {error}"))
            },
        )?;
    }
    Ok(())
}

/// Kills what is in a folder: at once where the kernel can, else process by process.
fn kill_all(folder: &Path) {
    if std::fs::write(folder.join("cgroup.kill"), "1").is_ok() {
        return;
    }
    let members = || -> Vec<i32> {
        let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 1).collect()
    };
    // A number may become another process's before it is used. Who is still a member when we have
    // hold of it is the one that we mean.
    let held: BTreeMap<i32, OwnedFd> =
        members().into_iter().filter_map(|pid| Some((pid, sys::hold_of(pid).ok()?))).collect();
    for handle in members().iter().filter_map(|pid| held.get(pid)) {
        let _ = sys::signal(handle.as_fd(), libc::SIGKILL);
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

    #[test]
    fn controllers_are_shared_out_where_they_are_needed_and_missing_ones_are_named() {
        let limits = Limits { memory_bytes: 1, pids: 1, ..Limits::default() };
        let check = |available: &str, shared: &str| {
            let folder = tempfile::tempdir().unwrap();
            let file = |name: &str| folder.path().join(name);
            std::fs::write(file("cgroup.controllers"), available).unwrap();
            std::fs::write(file("cgroup.subtree_control"), shared).unwrap();
            let done = share_out(folder.path(), &limits).map_err(|error| error.to_string());
            (done, std::fs::read_to_string(file("cgroup.subtree_control")).unwrap())
        };
        // The kernel's file adds what is written to it; a plain one keeps the last.
        assert_eq!(check("cpu memory pids\n", "memory\n"), (Ok(()), "+pids".to_owned()));
        assert_eq!(check("memory pids\n", "memory pids\n"), (Ok(()), "memory pids\n".to_owned()));
        let (refused, _) = check("cpu io\n", "");
        assert!(refused.unwrap_err().contains("no cgroup controller memory"));
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_neither_made_nor_destroyed() {
        let root = tempfile::tempdir().unwrap();
        let victim = root.path().join("victim");
        std::fs::create_dir(&victim).unwrap();
        for id in ["", ".", "..", "../victim", "-x", "a/b"] {
            let cgroup = Cgroup::new(Hierarchy::Unified(root.path().to_owned()), id);
            assert!(cgroup.create(&Limits::default()).is_err(), "{id:?}");
            assert!(cgroup.destroy().is_err(), "{id:?}");
        }
        assert!(victim.exists());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
    }
}
