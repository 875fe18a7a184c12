//! The processor time of this process and of all that comes of it, also of what left its care, as
//! the older cgroups count it: on a busy machine it tells more than the clock does. The unified tree
//! cannot, since the containers are in cgroups of their own there.

use std::path::{Path, PathBuf};

/// Counts from when it is made; lets go when it is dropped.
pub(super) struct Meter {
    folder: Option<PathBuf>,
}

impl Meter {
    /// Puts this process into a cgroup of its own, where there are such.
    pub(super) fn new() -> Meter {
        let all = Path::new("/sys/fs/cgroup/cpuacct");
        let folder = all.join(format!("volvox-bench-{}", std::process::id()));
        // A machine without them would be given a plain folder otherwise.
        let is_there = all.join("cpuacct.usage").exists() && std::fs::create_dir(&folder).is_ok();
        let meter = Meter { folder: is_there.then_some(folder) };
        meter.join(meter.folder.as_deref());
        meter
    }

    /// Milliseconds so far, if they can be told.
    pub(super) fn used_ms(&self) -> Option<f64> {
        let text = std::fs::read_to_string(self.folder.as_ref()?.join("cpuacct.usage")).ok()?;
        let nanoseconds: f64 = text.trim().parse().ok()?;
        Some(nanoseconds / 1e6)
    }

    fn join(&self, folder: Option<&Path>) {
        if let Some(folder) = folder {
            let _ = std::fs::write(folder.join("cgroup.procs"), std::process::id().to_string());
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            self.join(folder.parent());
            let _ = std::fs::remove_dir(folder);
        }
    }
}
