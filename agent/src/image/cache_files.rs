//! The files of the download cache: records, half-written files, the lock, and the sweep at the
//! start. `cache.rs` is the only caller; `layers.rs` borrows the lock and the fsync.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::cache::CacheError;
use super::cache_index::BlobId;
use super::fetch::Validators;

/// The version of the record; others are not read.
pub(super) const VERSION: u32 = 1;
/// A record is a few hundred bytes; what is longer is none of ours.
const MAX_RECORD_BYTES: u64 = 16 << 10;

/// What stands in `KEY.json`.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct CacheRecord {
    pub(super) version: u32,
    pub(super) blob: BlobId,
    pub(super) bytes: u64,
    pub(super) sha256: String,
    /// SHA-256 of the URL without its secrets.
    pub(super) origin: String,
    #[serde(flatten)]
    pub(super) validators: Validators,
}

/// A file being written; gone with the value, unless it was renamed.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) is_renamed: bool,
}

impl Partial {
    pub(super) fn make(path: PathBuf) -> Result<Partial, CacheError> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(failed("make", &path))?;
        Ok(Partial { path, file, is_renamed: false })
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_renamed {
            remove_file(&self.path);
        }
    }
}

/// For `map_err`: what was tried, and with which file.
pub(super) fn failed(
    what: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> CacheError + use<> {
    let path = path.to_owned();
    move |source| CacheError::Io { what, path, source }
}

/// Makes a folder ours for as long as the file lives.
pub(super) fn lock_folder(folder: &Path) -> Result<File, CacheError> {
    let path = folder.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(CacheError::Locked { path: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed("lock", &path)(source)),
    }
}

/// Names are durable only after their folder is.
pub(super) fn sync_folder(folder: &Path) -> Result<(), CacheError> {
    File::open(folder).and_then(|it| it.sync_all()).map_err(failed("sync", folder))
}

/// Puts a record in place, whole or not at all.
pub(super) fn write_record(path: &Path, record: &CacheRecord) -> Result<(), CacheError> {
    let new = path.with_extension("json.partial");
    let write = || -> io::Result<()> {
        let mut file = File::create(&new)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(failed("write", &new))
}

pub(super) fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove a file"),
    }
}

/// What is whole in the folder, the least recently used first. All else of ours is removed.
pub(super) fn sweep(folder: &Path) -> Result<Vec<(String, CacheRecord)>, CacheError> {
    let mut blobs = BTreeMap::new();
    let mut records = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed("list", folder))? {
        let entry = entry.map_err(failed("list", folder))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".partial") {
            remove_file(&entry.path());
        } else if name.ends_with(".blob") {
            let stat = entry.metadata().map_err(failed("look at", &entry.path()))?;
            blobs.insert(name, stat.is_file().then_some(stat.len()));
        } else if let Some(key) = name.strip_suffix(".json") {
            let used = entry.metadata().and_then(|it| it.modified());
            records.push((used.unwrap_or(SystemTime::UNIX_EPOCH), key.to_owned()));
        }
    }
    records.sort();
    let mut found = Vec::new();
    let mut ids = BTreeSet::new();
    for (_, key) in records {
        let path = folder.join(format!("{key}.json"));
        let whole = read_record(&path).filter(|record| {
            let blob = format!("{key}.{}.blob", record.blob);
            let is_whole = blobs.get(&blob) == Some(&Some(record.bytes));
            is_whole && ids.insert(record.blob) && blobs.remove(&blob).is_some()
        });
        match whole {
            Some(record) => found.push((key, record)),
            None => {
                tracing::warn!(path = %path.display(), "removed a damaged record of the cache");
                remove_file(&path);
            }
        }
    }
    for blob in blobs.keys() {
        remove_file(&folder.join(blob));
    }
    Ok(found)
}

fn read_record(path: &Path) -> Option<CacheRecord> {
    let mut text = Vec::new();
    File::open(path).ok()?.take(MAX_RECORD_BYTES).read_to_end(&mut text).ok()?;
    let record: CacheRecord = serde_json::from_slice(&text).ok()?;
    (record.version == VERSION).then_some(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_its_golden_text() {
        let record = CacheRecord {
            version: VERSION,
            blob: 7,
            bytes: 8,
            sha256: "ab".to_owned(),
            origin: "cd".to_owned(),
            validators: Validators { etag: "e".to_owned(), last_modified: "f".to_owned() },
        };
        let mut golden = volvox_golden::Golden::open(env!("CARGO_MANIFEST_DIR"), "downloads");
        golden.json("Record", &record);
        golden.close();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.json");
        write_record(&path, &record).unwrap();
        assert_eq!(read_record(&path), Some(record));
    }
}
