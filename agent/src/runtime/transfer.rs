//! Downloads into a container, uploads out of it, and a task's result file. Each call is the whole
//! of one action, blocks, and belongs on a thread of its own; the cancel ends it soon.
//!
//! What consumers see of a failure is in the value that comes back; what only the operator may see
//! (URLs, paths, what the disk said) is logged here, once. An upload is read where it lies, without a
//! copy: if the container changes the file meanwhile, the digests no longer fit and the server
//! refuses it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{self, Read as _};
use std::sync::Arc;
use std::time::Duration;

use ureq::http::Uri;
use volvox_protocol::action::{DownloadAction, UploadAction};

use super::files::{ContainerFiles, FilesError, free_bytes};
use crate::container::step::{TransferFailure, Transferred};
use crate::image::cache::{Cache, CacheError, CacheRequest, CachedFile};
use crate::image::cancel::Cancel;
use crate::image::checksum::{BadChecksum, Checksum};
use crate::image::extract::{Ownership, Purpose};
use crate::image::fetch::{DownloadRequest, FetchError, Fetcher};
use crate::image::keyed_lock::{Semaphore, SemaphorePermit};
use crate::image::layers::LayerStore;
use crate::image::limits::UnpackLimits;
use crate::image::retry::shown_url;
use crate::image::unpack::{Format, Order, unpack};
use crate::image::upload::Verb;

/// Bytes of a task's result, as Diego has it.
pub const RESULT_BYTES: usize = 51_200;

/// How a cell moves files.
#[derive(Debug, Clone, Copy)]
pub struct TransferConfig {
    /// Downloads at a time, dependencies included.
    pub downloads: usize,
    /// Uploads at a time.
    pub uploads: usize,
    /// What one archive may cost. In a container what is free there is the limit too.
    pub limits: UnpackLimits,
    /// The largest upload.
    pub max_upload_bytes: u64,
}

impl Default for TransferConfig {
    fn default() -> Self {
        TransferConfig {
            downloads: 5,
            uploads: 5,
            limits: UnpackLimits::default(),
            max_upload_bytes: 8 << 30,
        }
    }
}

/// What the transfers of a cell share.
#[derive(Debug)]
pub struct Transfers {
    fetcher: Fetcher,
    cache: Arc<Cache>,
    layers: Arc<LayerStore>,
    config: TransferConfig,
    downloads: Semaphore,
    uploads: Semaphore,
}

impl Transfers {
    /// Downloads with this, keeps archives there and unpacked dependencies there.
    pub fn new(
        fetcher: Fetcher,
        cache: Arc<Cache>,
        layers: Arc<LayerStore>,
        config: TransferConfig,
    ) -> Transfers {
        let (downloads, uploads) =
            (Semaphore::new(config.downloads), Semaphore::new(config.uploads));
        Transfers { fetcher, cache, layers, config, downloads, uploads }
    }

    /// Where unpacked dependencies are.
    pub fn layers(&self) -> &Arc<LayerStore> {
        &self.layers
    }

    pub(super) fn config(&self) -> &TransferConfig {
        &self.config
    }

    /// The right to download and to unpack. Who waits for somebody else's download of the same key
    /// has a slot, and so does that somebody: nobody waits for ever.
    pub(super) fn download_slot(
        &self,
        cancel: &Cancel,
    ) -> Result<SemaphorePermit<'_>, FetchFailed> {
        self.downloads.take(cancel).ok_or(FetchFailed::Cancelled)
    }

    /// Gets an archive, from the cache if the server says that it is still good.
    pub(super) fn fetch(
        &self,
        wanted: ArchiveRequest<'_>,
        cancel: &Cancel,
    ) -> Result<CachedFile, FetchFailed> {
        let ArchiveRequest { url, cache_key, algorithm, value } = wanted;
        let checksum = match (algorithm, value) {
            ("", "") => None,
            (algorithm, value) => Some(Checksum::parse(algorithm, value)?),
        };
        let checksum = checksum.as_ref();
        let ask = CacheRequest { url, cache_key, checksum, cancel };
        let held = self.cache.get(ask, &mut |known, sink| {
            let want = DownloadRequest { url, checksum, known, cancel };
            self.fetcher.fetch(want, sink, &mut jitter, &mut |_| {})
        })?;
        Ok(held)
    }
}

/// An archive that somebody asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct ArchiveRequest<'a> {
    pub(super) url: &'a str,
    pub(super) cache_key: &'a str,
    pub(super) algorithm: &'a str,
    pub(super) value: &'a str,
}

/// Why there is no archive. Consumers see only that there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum FetchFailed {
    #[error(transparent)]
    Checksum(#[from] BadChecksum),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("cancelled")]
    Cancelled,
}

/// Fetches an archive and unpacks it into a container.
pub fn download(
    action: &DownloadAction,
    transfers: &Transfers,
    files: &ContainerFiles,
    cancel: &Cancel,
) -> Result<Transferred, TransferFailure> {
    let wanted = ArchiveRequest {
        url: &action.from,
        cache_key: &action.cache_key,
        algorithm: &action.checksum_algorithm,
        value: &action.checksum_value,
    };
    let fetched = transfers
        .download_slot(cancel)
        .and_then(|slot| transfers.fetch(wanted, cancel).map(|held| (slot, held)));
    let (_slot, held) = fetched.map_err(|error| {
        tracing::warn!(url = shown_url(&action.from), %error, "a download failed");
        TransferFailure::Fetch
    })?;
    place(action, &held, transfers.config.limits, files, cancel).map_err(|reason| {
        tracing::warn!(url = shown_url(&action.from), reason, "a download was not unpacked");
        TransferFailure::Copy(reason)
    })?;
    Ok(if held.was_cached { Transferred::FromCache } else { Transferred::Bytes(held.bytes) })
}

/// Unpacks what was fetched. The reason is for the consumer: it speaks of the container only.
fn place(
    action: &DownloadAction,
    held: &CachedFile,
    limits: UnpackLimits,
    files: &ContainerFiles,
    cancel: &Cancel,
) -> Result<(), String> {
    let user = files.user(&action.user).map_err(|error| error.to_string())?;
    let folder = files.folder(&action.to, &user).map_err(|error| error.to_string())?;
    let free = free_bytes(&folder).map_err(|error| error.to_string())?;
    let format = detected(held)?;
    let order = Order {
        format,
        purpose: Purpose::Download,
        ownership: Ownership::Fixed { uid: user.uid, gid: user.gid },
        limits: UnpackLimits { total_bytes: limits.total_bytes.min(free), ..limits },
        cancel,
        progress: &mut |_| {},
    };
    unpack(&held.file, &folder, order).map(drop).map_err(|error| error.to_string())
}

/// What an archive is, whatever its name says.
pub(super) fn detected(held: &CachedFile) -> Result<Format, String> {
    let format = Format::detect(&held.file).map_err(|error| error.to_string())?;
    format.ok_or_else(|| "it is no tar, tgz or zip archive".to_owned())
}

/// Sends one file of a container.
pub fn upload(
    action: &UploadAction,
    transfers: &Transfers,
    files: &ContainerFiles,
    cancel: &Cancel,
) -> Result<Transferred, TransferFailure> {
    let failed = |failure: TransferFailure, error: &dyn std::fmt::Display| {
        tracing::warn!(url = shown_url(&action.to), ?failure, %error, "an upload failed");
        failure
    };
    if action.to.parse::<Uri>().ok().and_then(|it| it.host().map(drop)).is_none() {
        return Err(failed(TransferFailure::ParseUrl, &"it is no URL"));
    }
    let Some(_slot) = transfers.uploads.take(cancel) else {
        return Err(TransferFailure::UploadPayload);
    };
    let opened = files.user(&action.user).and_then(|user| files.file(&action.from, &user));
    let file = opened.map_err(|error| {
        let failure = match error {
            FilesError::Missing { .. } | FilesError::NotAFile { .. } => {
                TransferFailure::FindFirstItem
            }
            FilesError::OfTheKernel { .. }
            | FilesError::User(_)
            | FilesError::NotAContainer(_)
            | FilesError::Io { .. } => TransferFailure::EstablishStream,
        };
        failed(failure, &error)
    })?;
    let most = transfers.config.max_upload_bytes;
    let sent = transfers.fetcher.upload(Verb::Post, &action.to, &file, most, cancel);
    sent.map(Transferred::Bytes).map_err(|error| {
        let is_no_url = matches!(error, FetchError::Scheme { .. });
        let failure =
            if is_no_url { TransferFailure::ParseUrl } else { TransferFailure::UploadPayload };
        failed(failure, &error)
    })
}

/// Why a task has no result. The task fails with "failed to fetch result"; this is for the log.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// It is not there, or no file.
    #[error(transparent)]
    Files(#[from] FilesError),
    /// It is too long.
    #[error("the result file has more than {limit} bytes")]
    TooLarge {
        /// What is allowed.
        limit: usize,
    },
    /// It is no text.
    #[error("the result file is not UTF-8")]
    NotText,
    /// It cannot be read.
    #[error("cannot read the result file: {0}")]
    Read(#[source] io::Error),
}

/// Reads the result of a task, as the container's root. See [`RESULT_BYTES`].
pub fn result_file(
    files: &ContainerFiles,
    path: &str,
    limit: usize,
) -> Result<String, ResultError> {
    // A container without a passwd file has a root all the same.
    let root = files.user("root").or_else(|_| files.user("0"))?;
    let file = files.file(path, &root)?;
    let mut bytes = Vec::new();
    let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
    read.map_err(ResultError::Read)?;
    if bytes.len() > limit {
        return Err(ResultError::TooLarge { limit });
    }
    String::from_utf8(bytes).map_err(|_| ResultError::NotText)
}

/// Up to 0.2 s, so that cells that failed together do not come back together.
fn jitter() -> Duration {
    Duration::from_millis(RandomState::new().build_hasher().finish() % 201)
}

#[cfg(test)]
pub(super) mod tests;
