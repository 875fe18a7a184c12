//! The download cache on disk: performs what the ledger decides, and survives being killed.
//!
//! An entry is named by the SHA-256 of its cache key (Diego takes the MD5; keys are chosen by
//! whoever writes definitions, and two with the same MD5 are easily made). `KEY.N.blob` holds the
//! bytes, `KEY.json` says which blob is current, with its size, SHA-256, ETag and Last-Modified. The
//! record is renamed into place last, after everything was fsynced: an entry counts when its record
//! is there. At the start `*.partial` and blobs without a record are removed.
//!
//! A key's entry is only offered for the URL it came from (without query and user): a definition
//! cannot plant bytes under a key that another one downloads from elsewhere.
//!
//! The executor's threads call [`Cache::get`]; one process owns the folder, by a lock on it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use volvox_host::sync::lock;

use super::cache_files::{
    CacheRecord, Partial, VERSION, failed, lock_folder, remove_file, sweep, sync_folder,
    write_record,
};
use super::cache_index::{BlobId, CacheIndex, Evicted};
use super::cancel::Cancel;
use super::checksum::{Checksum, Hashing, hex, sha256_hex};
use super::fetch::{FetchError, Fetched, Validators};
use super::keyed_lock::KeyedLock;
use super::retry::shown_url;
use super::unpack::{CHUNK_BYTES, FileAt};

/// The cache of a cell.
#[derive(Debug)]
pub struct Cache {
    folder: PathBuf,
    /// Locked for as long as the process lives.
    _lock: File,
    turns: KeyedLock,
    state: Mutex<CacheState>,
}

#[derive(Debug)]
struct CacheState {
    ledger: CacheIndex,
    records: BTreeMap<BlobId, CacheRecord>,
    next_partial: u64,
}

/// What to get.
#[derive(Debug, Clone, Copy)]
pub struct CacheRequest<'a> {
    /// From where.
    pub url: &'a str,
    /// The key to keep it by; empty: it is not kept.
    pub cache_key: &'a str,
    /// What it must be.
    pub checksum: Option<&'a Checksum>,
    /// Ends the wait for another download of the same key.
    pub cancel: &'a Cancel,
}

/// A downloaded file, and the promise that it is not evicted before this is dropped.
#[derive(Debug)]
pub struct CachedFile {
    /// The bytes, opened for reading.
    pub file: File,
    /// How many.
    pub bytes: u64,
    /// Their SHA-256, in hexadecimal.
    pub sha256: String,
    /// Whether it was here before.
    pub was_cached: bool,
    lease: Option<(Arc<Cache>, BlobId)>,
}

impl CachedFile {
    /// Whether the cache keeps it.
    pub fn is_kept(&self) -> bool {
        self.lease.is_some()
    }
}

impl Drop for CachedFile {
    fn drop(&mut self) {
        if let Some((cache, id)) = self.lease.take() {
            let mut state = lock(&cache.state);
            let evicted = state.ledger.release(id);
            cache.remove(&mut state, evicted);
        }
    }
}

/// The cache failed. Entries that were there before are still good.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// Another process has the folder. The operator must find it.
    #[error("the cache {path} belongs to another process")]
    Locked {
        /// Which.
        path: PathBuf,
    },
    /// The disk failed.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The download failed.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl Cache {
    /// Opens the folder, finds what is whole and removes what is not.
    pub fn open(folder: &Path, limit_bytes: u64) -> Result<Arc<Cache>, CacheError> {
        fs::create_dir_all(folder).map_err(failed("make", folder))?;
        let _lock = lock_folder(folder)?;
        let mut ledger = CacheIndex::new(limit_bytes, 1);
        let mut records = BTreeMap::new();
        for (key, record) in sweep(folder)? {
            ledger.found(&key, record.blob, record.bytes);
            records.insert(record.blob, record);
        }
        let state = CacheState { ledger, records, next_partial: 0 };
        let (folder, turns) = (folder.to_owned(), KeyedLock::default());
        let cache = Cache { folder, _lock, turns, state: Mutex::new(state) };
        let mut state = lock(&cache.state);
        let evicted = state.ledger.trim();
        cache.remove(&mut state, evicted);
        drop(state);
        Ok(Arc::new(cache))
    }

    /// What the entries take.
    pub fn used_bytes(&self) -> u64 {
        lock(&self.state).ledger.used_bytes()
    }

    /// Gets a file by the cache. `download` is called at most twice: with what we have, and without
    /// if what we have turns out to be wrong. Of several calls for one key the first downloads; the
    /// others wait, and take what it kept.
    pub fn get(
        self: &Arc<Self>,
        ask: CacheRequest<'_>,
        download: &mut dyn FnMut(&Validators, &mut File) -> Result<Fetched, FetchError>,
    ) -> Result<CachedFile, CacheError> {
        if ask.cache_key.is_empty() {
            let mut partial = self.partial()?;
            let fetched = download(&Validators::default(), &mut partial.file)?;
            return self.once(partial, &fetched);
        }
        let key = sha256_hex(ask.cache_key.as_bytes());
        let origin = sha256_hex(shown_url(ask.url).as_bytes());
        let asked_at = lock(&self.state).ledger.next_id();
        let _turn = self.turns.take(&key, ask.cancel).ok_or(FetchError::Cancelled)?;
        if let Some(held) = self.hold(&key, &origin)? {
            // Made while we waited for our turn: as new as what the server would say.
            let is_fresh = held.lease.as_ref().is_some_and(|(_, id)| *id >= asked_at);
            if !is_fresh {
                let mut partial = self.partial()?;
                let fetched = download(&self.validators(&held), &mut partial.file)?;
                if fetched != Fetched::Unchanged {
                    drop(held);
                    return self.keep(&key, &origin, partial, fetched);
                }
            }
            if verify(&held, ask.checksum)? {
                return Ok(held);
            }
            tracing::warn!(key, "a cached file has another checksum than asked for: fetched again");
        }
        let mut partial = self.partial()?;
        let fetched = download(&Validators::default(), &mut partial.file)?;
        self.keep(&key, &origin, partial, fetched)
    }

    /// The current entry of a key, if it came from there.
    fn hold(self: &Arc<Self>, key: &str, origin: &str) -> Result<Option<CachedFile>, CacheError> {
        let mut state = lock(&self.state);
        let current = state.ledger.current(key).and_then(|id| state.records.get(&id));
        let Some(record) = current.filter(|it| it.origin == origin).cloned() else {
            return Ok(None);
        };
        let path = self.blob(key, record.blob);
        match File::open(&path) {
            Ok(file) => {
                state.ledger.hold(key);
                // The order of use must outlive us; that it is lost is no reason to fail.
                let touched =
                    File::open(self.record(key)).and_then(|it| it.set_modified(SystemTime::now()));
                if let Err(error) = touched {
                    tracing::debug!(key, %error, "cannot note the use of a cached file");
                }
                Ok(Some(CachedFile {
                    file,
                    bytes: record.bytes,
                    sha256: record.sha256,
                    was_cached: true,
                    lease: Some((Arc::clone(self), record.blob)),
                }))
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a cached file is gone");
                self.forget(&mut state, key);
                Ok(None)
            }
        }
    }

    fn validators(&self, held: &CachedFile) -> Validators {
        let state = lock(&self.state);
        let record = held.lease.as_ref().and_then(|(_, id)| state.records.get(id));
        record.map(|it| it.validators.clone()).unwrap_or_default()
    }

    /// Keeps a download, if the server can tell later whether it is still good and it fits.
    fn keep(
        self: &Arc<Self>,
        key: &str,
        origin: &str,
        mut partial: Partial,
        fetched: Fetched,
    ) -> Result<CachedFile, CacheError> {
        let Fetched::Body { bytes, sha256, validators } = fetched else {
            return self.once(partial, &fetched);
        };
        let mut state = lock(&self.state);
        if validators.is_empty() {
            self.forget(&mut state, key);
            drop(state);
            return self.once(partial, &Fetched::Body { bytes, sha256, validators });
        }
        partial.file.sync_all().map_err(failed("sync", &partial.path))?;
        let (id, evicted) = match state.ledger.admit(key, bytes) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                tracing::warn!(key, %refusal, "a download is used, but not kept");
                drop(state);
                return self.once(partial, &Fetched::Body { bytes, sha256, validators });
            }
        };
        self.remove(&mut state, evicted);
        let sha256 = hex(&sha256);
        let record = CacheRecord {
            version: VERSION,
            blob: id,
            bytes,
            sha256,
            origin: origin.into(),
            validators,
        };
        if let Err(error) = self.commit(key, &record, &mut partial) {
            self.forget(&mut state, key);
            return Err(error);
        }
        state.records.insert(id, record);
        drop(state);
        match self.hold(key, origin)? {
            Some(mut held) => {
                held.was_cached = false;
                Ok(held)
            }
            None => Err(failed("open", &self.blob(key, id))(io::ErrorKind::NotFound.into())),
        }
    }

    /// The bytes are on disk. Names them, then the record that makes them count.
    fn commit(
        &self,
        key: &str,
        record: &CacheRecord,
        partial: &mut Partial,
    ) -> Result<(), CacheError> {
        let blob = self.blob(key, record.blob);
        fs::rename(&partial.path, &blob).map_err(failed("rename", &partial.path))?;
        partial.is_renamed = true;
        sync_folder(&self.folder)?;
        write_record(&self.record(key), record)?;
        sync_folder(&self.folder)
    }

    /// A download that is not kept: it lives as long as its descriptor.
    fn once(&self, partial: Partial, fetched: &Fetched) -> Result<CachedFile, CacheError> {
        let (bytes, sha256) = match fetched {
            Fetched::Body { bytes, sha256, .. } => (*bytes, hex(sha256)),
            Fetched::Unchanged => {
                // Nothing was asked about, so nothing can be unchanged.
                let url = self.folder.display().to_string();
                return Err(FetchError::Status { url, status: 304 }.into());
            }
        };
        let file = File::open(&partial.path).map_err(failed("open", &partial.path))?;
        Ok(CachedFile { file, bytes, sha256, was_cached: false, lease: None })
    }

    fn forget(&self, state: &mut CacheState, key: &str) {
        let evicted = state.ledger.forget(key);
        remove_file(&self.record(key));
        self.remove(state, evicted);
    }

    /// The record goes first: a blob without one is swept away at the next start.
    fn remove(&self, state: &mut CacheState, evicted: impl IntoIterator<Item = Evicted>) {
        for gone in evicted {
            if gone.was_current {
                remove_file(&self.record(&gone.key));
            }
            remove_file(&self.blob(&gone.key, gone.id));
            state.records.remove(&gone.id);
        }
    }

    fn partial(&self) -> Result<Partial, CacheError> {
        let mut state = lock(&self.state);
        state.next_partial += 1;
        let path = self.folder.join(format!("{}.partial", state.next_partial));
        Partial::make(path)
    }

    fn blob(&self, key: &str, id: BlobId) -> PathBuf {
        self.folder.join(format!("{key}.{id}.blob"))
    }

    fn record(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.json"))
    }
}

/// Whether a cached file is what is asked for; the server does not know our checksums.
fn verify(held: &CachedFile, checksum: Option<&Checksum>) -> Result<bool, CacheError> {
    if checksum.is_none() {
        return Ok(true);
    }
    let mut hashing = Hashing::new(checksum);
    let mut input = FileAt { file: &held.file, offset: 0 };
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        match input.read(&mut buffer) {
            Ok(0) => return Ok(hashing.finish().is_ok()),
            Ok(read) => hashing.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read", Path::new("a cached file"))(error)),
        }
    }
}
