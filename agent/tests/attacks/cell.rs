//! What the attacks stand on: a cell in a temporary folder, hostile root file systems, and a look
//! at what is left afterwards.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use volvox_agent::container::exit::Exit;
use volvox_agent::container::spec::Hierarchy;
use volvox_agent::container::spec::{Access, Bind, ContainerSpec, Limits, LogLimits, ProcessSpec};
use volvox_agent::runtime::shim::{Shim, ShimError, Shims};

use crate::stage::{can_run, pause, small_root, texts};
pub(crate) use crate::stage::{shell as process, skip};

/// How long anything may take that has to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The first id on the host of the containers here. No user of a real machine has it.
pub(crate) const FIRST_ID: u32 = 100_000;
/// Where a container finds this very test program.
pub(crate) const PROBE: &str = "/probe";

/// A cell's containers in a temporary folder. Whatever a test leaves is cleared and complained of.
pub(crate) struct Cell {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) shims: Shims,
    prefix: String,
}

impl Cell {
    pub(crate) fn new(name: &str) -> Option<Self> {
        if !can_run(name) {
            return None;
        }
        let folder = tempfile::Builder::new().prefix("volvox-attacks-").tempdir().unwrap();
        let layer = folder.path().join("layer");
        small_root(&layer);
        let shim = Path::new(env!("CARGO_BIN_EXE_volvox-shim"));
        let shims = Shims::new(&folder.path().join("containers"), shim);
        let unique = folder.path().file_name().unwrap().to_str().unwrap();
        let prefix = unique.to_owned();
        Some(Cell { folder, shims, prefix })
    }

    pub(crate) fn spec(&self, name: &str) -> ContainerSpec {
        let bind = |source: PathBuf, target: &str| Bind {
            source,
            target: PathBuf::from(target),
            access: Access::ReadOnly,
        };
        ContainerSpec {
            id: format!("{}-{name}", self.prefix),
            layers: vec![self.folder.path().join("layer")],
            binds: vec![
                bind(PathBuf::from("/usr"), "/usr"),
                bind(std::env::current_exe().unwrap(), PROBE),
            ],
            first_id: FIRST_ID,
            ids: 65_536,
            privileged: false,
            cgroup: Hierarchy::detect().unwrap(),
            limits: Limits::default(),
            log: LogLimits::default(),
        }
    }

    /// A spec whose root file system is the good one, changed by `spoil`.
    pub(crate) fn hostile(&self, name: &str, spoil: impl FnOnce(&Path)) -> ContainerSpec {
        let layer = self.folder.path().join(format!("hostile-{name}"));
        let good = self.folder.path().join("layer");
        let copied = std::process::Command::new("cp").arg("-a").arg(&good).arg(&layer).status();
        assert!(copied.unwrap().success());
        spoil(&layer);
        ContainerSpec { layers: vec![layer], ..self.spec(name) }
    }

    /// An empty folder of the host beside the containers, which nothing should ever reach.
    pub(crate) fn outside(&self) -> PathBuf {
        let outside = self.folder.path().join("outside");
        std::fs::create_dir_all(&outside).unwrap();
        outside
    }

    /// Runs a process in a new container: how it ended, and the text of its log.
    pub(crate) fn run(&self, spec: &ContainerSpec, process: ProcessSpec) -> (Exit, String) {
        let id = process.id;
        let mut shim = self.shims.create(spec).unwrap();
        shim.run(process).unwrap();
        let exit = shim.wait(id, PATIENCE).unwrap().expect("the process ended");
        let log = self.lines(&spec.id);
        self.end(shim);
        (exit, log)
    }

    /// Runs a script in a new container.
    pub(crate) fn script(&self, spec: &ContainerSpec, user: &str, script: &str) -> (Exit, String) {
        self.run(spec, process(1, user, script))
    }

    /// Ends a container and everything of it.
    pub(crate) fn end(&self, shim: Shim) {
        let id = shim.id().to_owned();
        shim.destroy().unwrap();
        self.shims.clear(&id).unwrap();
    }

    /// The texts in a container's log, without times and sources.
    pub(crate) fn lines(&self, id: &str) -> String {
        texts(&self.shims.log(id))
    }

    pub(crate) fn attach(&self, id: &str) -> Result<Shim, ShimError> {
        self.shims.attach(id)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        for id in self.shims.list().unwrap() {
            if let Ok(shim) = self.shims.attach(&id) {
                let _ = shim.destroy();
            }
            let _ = self.shims.clear(&id);
        }
        self.shims.close();
        if std::thread::panicking() {
            return;
        }
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.prefix), "a mount is left behind");
        for folder in cgroups() {
            assert!(!folder.to_string_lossy().contains(&self.prefix), "left: {folder:?}");
        }
    }
}

/// The cgroup folders of all containers on this machine, on whichever kind of tree.
pub(crate) fn cgroups() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut found = Vec::new();
    let mut look = |tree: &Path| {
        let Ok(ours) = std::fs::read_dir(tree.join("volvox")) else { return };
        found.extend(ours.flatten().map(|it| it.path()).filter(|it| it.is_dir()));
    };
    look(root);
    for tree in std::fs::read_dir(root).unwrap().flatten() {
        look(&tree.path());
    }
    found
}

/// The processes in a container's cgroup, as the host numbers them.
pub(crate) fn members(id: &str) -> Vec<i32> {
    let folder = cgroups().into_iter().find(|it| it.ends_with(id)).expect("it has a cgroup");
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// This test program in a container, doing one thing; see `probe.rs`.
pub(crate) fn probe(id: u32, user: &str, what: &str) -> ProcessSpec {
    ProcessSpec {
        path: PROBE.to_owned(),
        args: ["--exact", "probe::the_probe_is_free_outside", "--nocapture"]
            .map(str::to_owned)
            .to_vec(),
        env: vec![format!("{}={what}", super::probe::WHAT)],
        ..process(id, user, "")
    }
}

/// Waits for something to become true, not for ever.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        pause();
    }
}
