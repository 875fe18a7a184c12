//! A cell's containers in a temporary folder, for tests: made, looked into, and gone afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use volvox_agent::container::exit::Exit;
use volvox_agent::container::spec::Hierarchy;
use volvox_agent::container::spec::{Access, Bind, ContainerSpec, Limits, LogLimits};
use volvox_agent::runtime::shim::Shims;

use crate::stage::{can_run, pause, small_root, texts};
pub(crate) use crate::stage::{shell as process, skip};

/// How long anything may take before a test has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Ids that a container has.
const IDS: u32 = 65_536;

/// Runs a program of the host. False when it failed or is not there.
pub fn host(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Waits for something to become true, not for ever.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        pause();
    }
}

/// A mount of the host's that goes with this value.
pub struct Mounted(pub PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        host("umount", &[self.0.to_str().unwrap()]);
    }
}

/// The cell. Whatever a test leaves is cleared and complained of.
pub struct Cell {
    pub folder: tempfile::TempDir,
    pub shims: Shims,
    pub prefix: String,
    /// What the test has mounted for it.
    pub mounts: Vec<Mounted>,
}

impl Cell {
    /// A cell, or nothing where there can be none.
    pub fn new(name: &str) -> Option<Self> {
        if !can_run(name) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer");
        small_root(&layer);
        let shims = shims_at(folder.path());
        let unique = folder.path().file_name().unwrap().to_str().unwrap();
        let prefix = unique.trim_start_matches('.').to_owned();
        Some(Cell { folder, shims, prefix, mounts: Vec::new() })
    }

    /// A container with the layer of this cell and the programs of the host.
    pub fn spec(&self, name: &str) -> ContainerSpec {
        ContainerSpec {
            id: format!("{}-{name}", self.prefix),
            layers: vec![self.layer()],
            binds: vec![bind("/usr", "/usr", Access::ReadOnly)],
            first_id: first_id(),
            ids: IDS,
            privileged: false,
            cgroup: Hierarchy::detect().unwrap(),
            limits: Limits::default(),
            log: LogLimits::default(),
        }
    }

    /// The layer that all containers of this cell have.
    pub fn layer(&self) -> PathBuf {
        self.folder.path().join("layer")
    }

    /// Runs a script in a new container: how it ended, and the text of its log.
    pub fn script(&self, spec: &ContainerSpec, user: &str, script: &str) -> (Exit, String) {
        let mut shim = self.shims.create(spec).unwrap();
        shim.run(process(1, user, script)).unwrap();
        let exit = shim.wait(1, PATIENCE).unwrap().expect("the script ended");
        let log = self.lines(&spec.id);
        shim.destroy().unwrap();
        self.shims.clear(&spec.id).unwrap();
        (exit, log)
    }

    /// The texts in a container's log, without times and sources.
    pub fn lines(&self, id: &str) -> String {
        texts(&self.shims.log(id))
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        for id in self.shims.list().unwrap() {
            if let Ok(shim) = self.shims.attach(&id) {
                let _ = shim.destroy();
            }
            self.shims.clear(&id).unwrap();
        }
        self.shims.close();
        self.mounts.clear();
        if std::thread::panicking() {
            return;
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.prefix), "a mount is left behind");
        for tree in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            let Ok(ours) = std::fs::read_dir(tree.path().join("volvox")) else { continue };
            let left =
                ours.flatten().find(|it| it.file_name().to_string_lossy().contains(&self.prefix));
            assert!(left.is_none(), "a cgroup is left behind: {left:?}");
        }
    }
}

/// The containers of a cell that keeps them below this folder.
pub fn shims_at(folder: &Path) -> Shims {
    Shims::new(&folder.join("containers"), Path::new(env!("CARGO_BIN_EXE_volvox-shim")))
}

/// The first of the ids of a new container. No two have the same, since a disk quota goes by it,
/// nor have those of a second copy of this program.
fn first_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nth = std::process::id() * 64 + NEXT.fetch_add(1, Ordering::Relaxed);
    (16 + nth % 60_000) * IDS
}

/// A host folder or file in a container.
pub fn bind(source: impl Into<PathBuf>, target: &str, access: Access) -> Bind {
    Bind { source: source.into(), target: PathBuf::from(target), access }
}
