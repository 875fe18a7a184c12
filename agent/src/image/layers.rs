//! The shared, read-only folders on a cell: root file systems and the like, each unpacked once.
//!
//! A layer's folder is named by the digest of what it was made from and by how it was unpacked. It
//! is made as `NAME.partial` and renamed when it is whole and on disk, so a folder that has its name
//! is whole. Partial ones are removed at the start. One process owns the store, by a lock on it.
//!
//! Layers of downloads are many and come and go: whoever uses one holds it ([`LayerHold`]), and
//! [`LayerStore::remove_unused`] removes those that nobody holds.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use volvox_host::sync::lock;

use super::cache::CacheError;
use super::cache_files::{lock_folder, sync_folder};
use super::cancel::Cancel;
use super::checksum::{Hashing, hex};
use super::dir_handle::DirHandle;
use super::extract::{Ownership, Purpose};
use super::keyed_lock::KeyedLock;
use super::limits::UnpackLimits;
use super::unpack::{CHUNK_BYTES, FileAt, Format, Order, UnpackError, unpack};

/// What the name of an archive's layer begins with.
const PREFIX: &str = "sha256-";
/// What stands in the name of a download's layer.
const OF_DOWNLOADS: &str = "-files-";
/// How a name ends while its layer is not whole.
const PARTIAL: &str = ".partial";

/// Where a cell keeps its layers.
#[derive(Debug)]
pub struct LayerStore {
    folder: PathBuf,
    _lock: File,
    turns: KeyedLock,
    /// Digests by what the file system says of a file, so that an archive is read once.
    digests: Mutex<BTreeMap<Identity, String>>,
    /// How often each layer is held.
    held: Mutex<BTreeMap<String, usize>>,
}

/// The promise that a layer is not removed before this is dropped.
#[derive(Debug)]
pub struct LayerHold {
    store: Arc<LayerStore>,
    name: String,
}

impl LayerHold {
    /// The layer's folder.
    pub fn path(&self) -> PathBuf {
        self.store.folder.join(&self.name)
    }
}

impl Drop for LayerHold {
    fn drop(&mut self) {
        let mut held = lock(&self.store.held);
        if let Some(count) = held.get_mut(&self.name) {
            *count -= 1;
        }
        held.retain(|_, count| *count > 0);
    }
}

/// An archive that changes changes one of these; whoever can forge them owns the cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// How an archive becomes a layer.
#[derive(Debug, Clone, Copy)]
pub struct UnpackSpec {
    /// Its format.
    pub format: Format,
    /// What for.
    pub purpose: Purpose,
    /// Who owns the files.
    pub ownership: Ownership,
    /// What it may cost.
    pub limits: UnpackLimits,
}

/// A layer that is not there. No folder has its name.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The store's folder cannot be had.
    #[error(transparent)]
    Store(#[from] CacheError),
    /// The archive is refused or damaged, or the disk is full.
    #[error("cannot unpack {path}: {source}")]
    Unpack {
        /// Which archive.
        path: PathBuf,
        /// Why.
        source: UnpackError,
    },
    /// The disk failed.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Somebody wanted it stopped.
    #[error("cancelled")]
    Cancelled,
}

/// For `map_err`: what was tried, and with what.
pub(super) fn failed(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> LayerError + use<> {
    let path = path.to_owned();
    move |source| LayerError::Io { what, path, source }
}

impl LayerStore {
    /// Opens the store and removes what was never finished.
    pub fn open(folder: &Path) -> Result<LayerStore, LayerError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let lock = lock_folder(folder)?;
        for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
            let path = entry.map_err(failed("list", folder))?.path();
            if path.extension().is_some_and(|it| it == "partial") {
                fs::remove_dir_all(&path).map_err(failed("remove", &path))?;
            }
        }
        let (digests, held) = (Mutex::default(), Mutex::default());
        let (folder, turns) = (folder.to_owned(), KeyedLock::default());
        Ok(LayerStore { folder, _lock: lock, turns, digests, held })
    }

    /// Where images are mounted, one folder each. The shim mounts; this is only the place.
    pub fn mount_point(&self, name: &str) -> PathBuf {
        self.folder.join("mounts").join(name)
    }

    /// The layer of an archive, unpacked now if it is not there yet.
    pub fn unpacked(
        &self,
        archive: &Path,
        recipe: UnpackSpec,
        cancel: &Cancel,
    ) -> Result<PathBuf, LayerError> {
        let file = File::open(archive).map_err(failed("open", archive))?;
        let digest = self.digest(&file, archive, cancel)?;
        self.filled(&layer_name(&digest, &recipe), &file, archive, recipe, cancel)
    }

    /// The layer of a download with this SHA-256, unpacked now if it is not there yet, and held.
    pub fn downloaded(
        self: &Arc<Self>,
        archive: &File,
        sha256: &str,
        recipe: UnpackSpec,
        cancel: &Cancel,
    ) -> Result<LayerHold, LayerError> {
        // Held first: who removes looks at this while it has the turn, so it either leaves the
        // layer, or has removed it before we get our turn and make it again.
        let hold = self.hold_name(layer_name(sha256, &recipe));
        self.filled(&hold.name, archive, Path::new("download"), recipe, cancel)?;
        Ok(hold)
    }

    /// Holds a layer that is there, by its folder: for containers that outlived the agent. `None`:
    /// there is no such layer.
    pub fn hold(self: &Arc<Self>, path: &Path) -> Option<LayerHold> {
        let name = path.strip_prefix(&self.folder).ok()?.to_str()?;
        let is_layer = name.starts_with(PREFIX) && !name.contains('/') && path.is_dir();
        is_layer.then(|| self.hold_name(name.to_owned()))
    }

    fn hold_name(self: &Arc<Self>, name: String) -> LayerHold {
        let mut held = lock(&self.held);
        *held.entry(name.clone()).or_default() += 1;
        drop(held);
        LayerHold { store: Arc::clone(self), name }
    }

    /// Removes the layers of downloads that nobody holds, and tells how many they were. After a start
    /// all that run must have been given their holds again. Root file systems stay.
    pub fn remove_unused(&self) -> Result<usize, LayerError> {
        let at_once = Cancel::new();
        at_once.cancel();
        let mut removed = 0;
        for entry in fs::read_dir(&self.folder).map_err(failed("list", &self.folder))? {
            let path = entry.map_err(failed("list", &self.folder))?.path();
            let name = path.file_name().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
            let is_download = name.starts_with(PREFIX) && name.contains(OF_DOWNLOADS);
            if !is_download || name.ends_with(PARTIAL) {
                continue;
            }
            // Who has the turn is making it, and holds it.
            let Some(_turn) = self.turns.take(&name, &at_once) else { continue };
            if lock(&self.held).contains_key(&name) {
                continue;
            }
            // First the name: half a layer must not have it.
            let partial = self.folder.join(format!("{name}{PARTIAL}"));
            fs::rename(&path, &partial).map_err(failed("rename", &path))?;
            remove_tree(&partial).map_err(failed("remove", &partial))?;
            removed += 1;
        }
        Ok(removed)
    }

    fn filled(
        &self,
        name: &str,
        file: &File,
        shown: &Path,
        recipe: UnpackSpec,
        cancel: &Cancel,
    ) -> Result<PathBuf, LayerError> {
        self.built(name, cancel, |folder| {
            let into =
                DirHandle::open(folder).map_err(|error| failed("open", folder)(error.into()))?;
            let UnpackSpec { format, purpose, ownership, limits } = recipe;
            let progress = &mut |_| {};
            let order = Order { format, purpose, ownership, limits, cancel, progress };
            match unpack(file, &into, order) {
                Ok(done) => {
                    tracing::info!(layer = name, ?done, "unpacked a layer");
                    Ok(())
                }
                Err(UnpackError::Cancelled) => Err(LayerError::Cancelled),
                Err(source) => Err(LayerError::Unpack { path: shown.to_owned(), source }),
            }
        })
    }

    /// The layer of this name; `make` fills an empty folder if it is not there yet.
    pub fn built(
        &self,
        name: &str,
        cancel: &Cancel,
        make: impl FnOnce(&Path) -> Result<(), LayerError>,
    ) -> Result<PathBuf, LayerError> {
        let done = self.folder.join(name);
        let _turn = self.turns.take(name, cancel).ok_or(LayerError::Cancelled)?;
        if done.is_dir() {
            return Ok(done);
        }
        let partial = self.folder.join(format!("{name}{PARTIAL}"));
        remove_tree(&partial).map_err(failed("remove", &partial))?;
        fs::create_dir(&partial).map_err(failed("make", &partial))?;
        let made = fs::set_permissions(&partial, Permissions::from_mode(0o755))
            .map_err(failed("set the mode of", &partial))
            .and_then(|()| make(&partial))
            .and_then(|()| self.publish(&partial, &done));
        if made.is_err()
            && let Err(error) = remove_tree(&partial)
        {
            tracing::warn!(path = %partial.display(), %error, "cannot remove a partial layer");
        }
        made.map(|()| done)
    }

    /// All of it is on disk before the name is.
    fn publish(&self, partial: &Path, done: &Path) -> Result<(), LayerError> {
        let folder = File::open(partial).map_err(failed("open", partial))?;
        nix::unistd::syncfs(&folder).map_err(|error| failed("sync", partial)(error.into()))?;
        fs::rename(partial, done).map_err(failed("rename", partial))?;
        Ok(sync_folder(&self.folder)?)
    }

    fn digest(&self, file: &File, path: &Path, cancel: &Cancel) -> Result<String, LayerError> {
        let stat = file.metadata().map_err(failed("look at", path))?;
        let identity = Identity {
            device: stat.dev(),
            inode: stat.ino(),
            bytes: stat.len(),
            modified: (stat.mtime(), stat.mtime_nsec()),
            changed: (stat.ctime(), stat.ctime_nsec()),
        };
        let known = lock(&self.digests);
        if let Some(digest) = known.get(&identity) {
            return Ok(digest.clone());
        }
        drop(known);
        let mut hashing = Hashing::new(None);
        let mut input = FileAt { file, offset: 0 };
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => hashing.update(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed("read", path)(error)),
            }
            if cancel.is_cancelled() {
                return Err(LayerError::Cancelled);
            }
        }
        let digest = hashing.finish().map_err(|it| failed("hash", path)(io::Error::other(it)))?;
        let digest = hex(&digest);
        let mut known = lock(&self.digests);
        // One entry for each archive of the configuration; a cell has a handful.
        known.insert(identity, digest.clone());
        Ok(digest)
    }
}

/// The same archive with other owners or rules is another layer.
fn layer_name(digest: &str, recipe: &UnpackSpec) -> String {
    let purpose = match recipe.purpose {
        Purpose::RootFileSystem => "-root-",
        Purpose::Download => OF_DOWNLOADS,
    };
    format!("{PREFIX}{digest}{purpose}{}", owner_tag(recipe.ownership))
}

/// Who owns a layer, as a part of its name.
pub(super) fn owner_tag(ownership: Ownership) -> String {
    match ownership {
        Ownership::Process => "process".to_owned(),
        Ownership::Fixed { uid, gid } => format!("owner-{uid}-{gid}"),
        Ownership::Shifted { uid_offset, gid_offset, ids } => {
            format!("shift-{uid_offset}-{gid_offset}-{ids}")
        }
    }
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
