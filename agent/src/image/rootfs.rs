//! Which folders and images a container's root is made of. `host:` is the machine's own `/usr` with
//! a small `/etc` of ours, `preloaded:NAME` is what the operator put on the cell.
//!
//! [`Rootfs::resolve`] decides and touches nothing; [`prepare`] makes the folders. Mounting is the
//! shim's. OCI images will be another [`RootfsUrl`], with more lowers than one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::cancel::Cancel;
use super::extract::{Ownership, Purpose};
use super::host_root;
use super::layers::{LayerError, LayerStore, UnpackSpec};
use super::limits::UnpackLimits;
use super::unpack::Format;

/// The longest name of a preloaded root file system.
const MAX_NAME_BYTES: usize = 64;

/// What the cell's configuration says about root file systems.
#[derive(Debug, Clone)]
pub struct RootfsConfig {
    /// What is preloaded, by name.
    pub preloaded: BTreeMap<String, Preloaded>,
    /// Whether `host:` may be used, and with which machine's root: `/`, or another in tests.
    pub host: HostRoot,
    /// Who owns the files of unpacked layers.
    pub ownership: Ownership,
    /// What an archive may cost.
    pub limits: UnpackLimits,
}

/// Whether containers may use the machine's own programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostRoot {
    /// `host:` is refused.
    Forbidden,
    /// `host:` takes `/usr` and friends from here.
    At(PathBuf),
}

/// A root file system that the operator put on the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preloaded {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub kind: PreloadedKind,
}

/// What a preloaded root file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreloadedKind {
    /// A folder, used as it is.
    Folder,
    /// An archive, unpacked once.
    Archive(Format),
    /// An image, mounted read-only by a loop device.
    Image(FileSystem),
}

/// The file systems of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// squashfs.
    Squashfs,
    /// erofs.
    Erofs,
}

impl FileSystem {
    /// As `mount` calls it.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Squashfs => "squashfs",
            FileSystem::Erofs => "erofs",
        }
    }
}

impl Preloaded {
    /// Looks at what the configuration names. Its first bytes decide, not its suffix.
    pub fn detect(path: &Path) -> io::Result<Preloaded> {
        let file = File::open(path)?;
        let kind = if file.metadata()?.is_dir() {
            PreloadedKind::Folder
        } else if let Some(file_system) = image_kind(&file)? {
            PreloadedKind::Image(file_system)
        } else if let Some(format) = Format::detect(&file)? {
            PreloadedKind::Archive(format)
        } else {
            let what = "neither a folder, a tar, tar.gz or zip archive, nor squashfs or erofs";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        Ok(Preloaded { path: path.to_owned(), kind })
    }
}

fn image_kind(file: &File) -> io::Result<Option<FileSystem>> {
    let magic = |offset| -> io::Result<[u8; 4]> {
        let mut bytes = [0; 4];
        match file.read_exact_at(&mut bytes, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok([0; 4]),
            other => other.map(|()| bytes),
        }
    };
    Ok(if magic(0)? == *b"hsqs" {
        Some(FileSystem::Squashfs)
    } else if magic(1024)? == 0xE0F5_E1E2_u32.to_le_bytes() {
        Some(FileSystem::Erofs)
    } else {
        None
    })
}

/// What a definition may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootfsUrl {
    /// The machine's own.
    Host,
    /// A preloaded one.
    Preloaded(String),
}

/// A root file system that cannot be had. Nothing was made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RootfsError {
    /// Not a URL of ours. Whoever wrote the definition must mend it.
    #[error("root file system {0:?}: only `host:` and `preloaded:NAME`")]
    Unsupported(String),
    /// This cell does not lend its own programs.
    #[error("this cell does not offer `host:`")]
    HostForbidden,
    /// The operator did not preload it on this cell.
    #[error("no root file system {0:?} is preloaded on this cell")]
    Unknown(String),
}

/// What to do for a root file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerPlan {
    /// A skeleton of ours, with the machine's folders bound into it.
    Host {
        /// The root of the machine.
        root: PathBuf,
    },
    /// A folder as it is.
    Folder(PathBuf),
    /// An archive to unpack.
    Archive {
        /// Where it is.
        path: PathBuf,
        /// Its format.
        format: Format,
    },
    /// An image to mount.
    Image {
        /// Where it is.
        path: PathBuf,
        /// Its file system.
        file_system: FileSystem,
        /// The name of its mount point.
        name: String,
    },
}

/// The namespace of [`Rootfs::resolve`].
#[derive(Debug, Clone, Copy)]
pub struct Rootfs;

impl Rootfs {
    /// Reads a URL.
    pub fn parse(url: &str) -> Result<RootfsUrl, RootfsError> {
        let unsupported = || RootfsError::Unsupported(url.chars().take(200).collect());
        if url == "host:" {
            return Ok(RootfsUrl::Host);
        }
        let name = url.strip_prefix("preloaded:").ok_or_else(unsupported)?;
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_good = !name.is_empty()
            && name.len() <= MAX_NAME_BYTES
            && !name.starts_with('.')
            && name.bytes().all(is_plain);
        if is_good { Ok(RootfsUrl::Preloaded(name.to_owned())) } else { Err(unsupported()) }
    }

    /// Decides what a container's root is made of.
    pub fn resolve(url: &str, config: &RootfsConfig) -> Result<LayerPlan, RootfsError> {
        match Rootfs::parse(url)? {
            RootfsUrl::Host => match &config.host {
                HostRoot::At(root) => Ok(LayerPlan::Host { root: root.clone() }),
                HostRoot::Forbidden => Err(RootfsError::HostForbidden),
            },
            RootfsUrl::Preloaded(name) => {
                let Some(preloaded) = config.preloaded.get(&name) else {
                    return Err(RootfsError::Unknown(name));
                };
                let path = preloaded.path.clone();
                Ok(match preloaded.kind {
                    PreloadedKind::Folder => LayerPlan::Folder(path),
                    PreloadedKind::Archive(format) => LayerPlan::Archive { path, format },
                    PreloadedKind::Image(file_system) => {
                        LayerPlan::Image { path, file_system, name }
                    }
                })
            }
        }
    }
}

/// What the shim mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedRootfs {
    /// For overlayfs, the uppermost first. All read-only, shared with other containers.
    pub lowers: Vec<Lower>,
    /// Bound over the root when it is mounted: read-only, nosuid, nodev, recursively.
    pub binds: Vec<Bind>,
}

/// One lower layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lower {
    /// A folder.
    Folder(PathBuf),
    /// An image: mount it by a loop device, read-only, once for all containers.
    Image {
        /// The file.
        image: PathBuf,
        /// Its file system.
        file_system: FileSystem,
        /// Where; the folder may not exist yet.
        mount_at: PathBuf,
    },
}

/// A folder of the machine in the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bind {
    /// On the machine.
    pub source: PathBuf,
    /// Below the container's root, relative.
    pub target: PathBuf,
}

/// Makes the folders that a plan needs. Blocks while another container's thread makes the same.
pub fn prepare(
    plan: &LayerPlan,
    config: &RootfsConfig,
    store: &LayerStore,
    cancel: &Cancel,
) -> Result<PreparedRootfs, LayerError> {
    let lower = match plan {
        LayerPlan::Host { root } => {
            return host_root::prepare(root, config.ownership, store, cancel);
        }
        LayerPlan::Folder(path) => Lower::Folder(path.clone()),
        LayerPlan::Archive { path, format } => {
            let recipe = UnpackSpec {
                format: *format,
                purpose: Purpose::RootFileSystem,
                ownership: config.ownership,
                limits: config.limits,
            };
            Lower::Folder(store.unpacked(path, recipe, cancel)?)
        }
        LayerPlan::Image { path, file_system, name } => Lower::Image {
            image: path.clone(),
            file_system: *file_system,
            mount_at: store.mount_point(name),
        },
    };
    Ok(PreparedRootfs { lowers: vec![lower], binds: Vec::new() })
}

#[cfg(test)]
mod tests;
