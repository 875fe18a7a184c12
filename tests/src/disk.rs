//! A small disk that can be filled: a tmpfs of its own. Needs root.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// A mounted disk, gone with the value.
#[derive(Debug)]
pub struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts a disk of so many KiB.
    pub fn mount(kib: u32) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "volvox-test"])
            .arg(folder.path())
            .status()
            .context("run mount")?;
        ensure!(status.success(), "mount ended with {status}");
        Ok(SmallDisk { folder })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Fills the disk to the last byte. It stays full until the returned file is removed.
    pub fn fill(&self) -> anyhow::Result<PathBuf> {
        let path = self.path().join("filler");
        let file = std::fs::File::create(&path)?;
        let mut at = 0;
        for size in [65_536, 4_096, 1] {
            let block = vec![0_u8; size];
            while std::os::unix::fs::FileExt::write_all_at(&file, &block, at).is_ok() {
                at += size as u64;
            }
        }
        Ok(path)
    }
}

impl Drop for SmallDisk {
    #[expect(clippy::print_stderr, reason = "a mount that stays behind must be seen")]
    fn drop(&mut self) {
        let status = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            eprintln!("cannot unmount {}: {status:?}", self.folder.path().display());
        }
    }
}

/// Whether this process may mount.
pub fn is_root() -> bool {
    // The owner of our own entry in /proc is our effective user.
    std::fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0)
}
