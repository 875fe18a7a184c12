//! A cell's containers in a temporary folder, for tests: made, looked into, and gone afterwards.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use volvox_agent::runtime::cgroup::Hierarchy;
use volvox_agent::runtime::shim::Shims;
use volvox_agent::runtime::spec::{
    Access, Bind, ContainerSpec, Exit, Limits, LogLimits, Output, ProcessSpec,
};

/// How long anything may take before a test has failed.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Ids that a container has.
const IDS: u32 = 65_536;

/// Says that a test could not run here, and why.
pub fn skip(name: &str, why: &str) {
    let line = format!("SKIPPED {name}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

/// Runs a program of the host. False when it failed or is not there.
pub fn host(program: &str, arguments: &[&str]) -> bool {
    Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
}

/// Waits for something to become true, not for ever.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
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
        let of_root = std::fs::metadata("/proc/self")
            .is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
        if !of_root {
            skip(name, "containers need root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer");
        for made in ["usr", "etc", "home/vcap", "proc", "sys", "dev", "tmp"] {
            std::fs::create_dir_all(layer.join(made)).unwrap();
        }
        for link in ["bin", "sbin", "lib", "lib64"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), layer.join(link)).unwrap();
        }
        let passwd = "root:x:0:0::/:/bin/sh\nvcap:x:2000:2000::/home/vcap:/bin/sh\n";
        std::fs::write(layer.join("etc/passwd"), passwd).unwrap();
        std::fs::write(layer.join("etc/group"), "root:x:0:\nvcap:x:2000:\n").unwrap();
        std::os::unix::fs::chown(layer.join("home/vcap"), Some(2_000), Some(2_000)).unwrap();
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
        // Made with the first line.
        let log = std::fs::read_to_string(self.shims.log(id)).unwrap_or_default();
        let texts = log.lines().map(|line| line.splitn(4, ' ').nth(3).unwrap_or_default());
        texts.collect::<Vec<_>>().join("\n")
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

/// A shell that runs this script.
pub fn process(id: u32, user: &str, script: &str) -> ProcessSpec {
    ProcessSpec {
        id,
        path: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: vec![],
        dir: String::new(),
        user: user.to_owned(),
        nofile: None,
        source: "APP".to_owned(),
        output: Output::Log,
        terminal: None,
    }
}
