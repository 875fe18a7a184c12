//! Downloads: a URL in, a file with checked bytes out. http, https, and `file:` below folders that
//! the cell's configuration names.
//!
//! Every call blocks on its own thread and ends by itself: each try has its time-outs, the tries
//! their number. `cache.rs` decides what to keep; who may fetch what is decided before.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use ureq::http::header::{
    ACCEPT_ENCODING, ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
};
use volvox_host::trust::CaBundleError;

use super::cancel::Cancel;
use super::checksum::{Checksum, ChecksumMismatch, Hashing};
use super::dir_handle::DirHandle;
use super::entry_path::EntryPath;
use super::http::{DeniedAddress, Http, HttpConfig};
use super::limits::{OverLimit, UnpackLimits};
use super::retry::{Retries, file_path, shown_url};
use super::unpack::CHUNK_BYTES;

/// The longest `ETag` or `Last-Modified` that we keep; with a longer one an answer has none.
const MAX_VALIDATOR_BYTES: usize = 1024;

/// How downloads behave.
#[derive(Debug, Clone)]
pub struct FetchConfig {
    /// The client.
    pub http: HttpConfig,
    /// The largest file.
    pub max_bytes: u64,
    /// When to try again.
    pub retries: Retries,
    /// Folders below which `file:` may read; none: never.
    pub file_folders: Vec<PathBuf>,
}

impl Default for FetchConfig {
    fn default() -> Self {
        FetchConfig {
            http: HttpConfig::default(),
            max_bytes: 8 << 30,
            retries: Retries::default(),
            file_folders: Vec::new(),
        }
    }
}

/// By what a server knows its answer again.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub struct Validators {
    /// Sent back as `If-None-Match`; empty: none.
    pub etag: String,
    /// Sent back as `If-Modified-Since`; empty: none.
    pub last_modified: String,
}

impl Validators {
    /// Whether there is nothing to ask with.
    pub fn is_empty(&self) -> bool {
        self.etag.is_empty() && self.last_modified.is_empty()
    }
}

/// What to download.
#[derive(Debug, Clone, Copy)]
pub struct DownloadRequest<'a> {
    /// From where.
    pub url: &'a str,
    /// What it must be.
    pub checksum: Option<&'a Checksum>,
    /// What we have of it; empty: nothing.
    pub known: &'a Validators,
    /// Ends it at once.
    pub cancel: &'a Cancel,
}

/// What came of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fetched {
    /// The server says that what we have is what it has. The file was not touched.
    Unchanged,
    /// The file holds the answer, from its beginning on.
    Body {
        /// How long it is.
        bytes: u64,
        /// Its SHA-256.
        sha256: [u8; 32],
        /// By what to ask for it again.
        validators: Validators,
    },
}

/// A download that failed. The file may hold a part of it; nothing was kept.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// Not a URL of ours. Whoever wrote the definition must mend it.
    #[error("cannot fetch {url}: only http, https and file URLs")]
    Scheme {
        /// Without its secrets.
        url: String,
    },
    /// `file:` outside of the folders that the configuration names.
    #[error("{path}: not below a folder that this cell serves files from")]
    FileNotAllowed {
        /// What was asked for, escaped.
        path: String,
    },
    /// The server's answer is none that we take.
    #[error("{url}: status {status}")]
    Status {
        /// Without its secrets.
        url: String,
        /// What it said.
        status: u16,
    },
    /// The name leads to addresses that downloads may not reach.
    #[error(transparent)]
    Denied(#[from] DeniedAddress),
    /// Longer than allowed.
    #[error("{url}: {over}")]
    OverLimit {
        /// Without its secrets.
        url: String,
        /// Which limit.
        over: OverLimit,
    },
    /// Other bytes than expected.
    #[error("{url}: {mismatch}")]
    Mismatch {
        /// Without its secrets.
        url: String,
        /// What was expected, and what came.
        mismatch: ChecksumMismatch,
    },
    /// Fewer bytes than announced.
    #[error("{url}: {announced} bytes announced, {given} came")]
    CutShort {
        /// Without its secrets.
        url: String,
        /// The length in the header.
        announced: u64,
        /// What came.
        given: u64,
    },
    /// Redirected too often, or from https to http.
    #[error("{url}: {reason}")]
    Redirects {
        /// Without its secrets.
        url: String,
        /// What the client said.
        reason: String,
    },
    /// The network or the server failed.
    #[error("{url}: {reason}")]
    Transfer {
        /// Without its secrets.
        url: String,
        /// What the client said.
        reason: String,
    },
    /// Our own disk failed. The operator must act if it is full.
    #[error("cannot write download: {0}")]
    Write(#[source] io::Error),
    /// Somebody wanted it stopped.
    #[error("cancelled")]
    Cancelled,
}

impl FetchError {
    /// Whether another try may end better.
    pub fn is_passing(&self) -> bool {
        match self {
            FetchError::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            FetchError::CutShort { .. } | FetchError::Transfer { .. } => true,
            FetchError::Scheme { .. }
            | FetchError::FileNotAllowed { .. }
            | FetchError::Denied(_)
            | FetchError::OverLimit { .. }
            | FetchError::Mismatch { .. }
            | FetchError::Redirects { .. }
            | FetchError::Write(_)
            | FetchError::Cancelled => false,
        }
    }

    /// What the client's error means.
    pub(super) fn of(url: &str, error: ureq::Error, cancel: &Cancel) -> FetchError {
        let (url, reason) = (shown_url(url), error.to_string());
        match error {
            _ if cancel.is_cancelled() => FetchError::Cancelled,
            ureq::Error::TooManyRedirects
            | ureq::Error::RedirectFailed
            | ureq::Error::RequireHttpsOnly(_) => FetchError::Redirects { url, reason },
            ureq::Error::BadUri(_) | ureq::Error::Http(_) => FetchError::Scheme { url },
            ureq::Error::Other(inner) => match inner.downcast::<DeniedAddress>() {
                Ok(denied) => FetchError::Denied(*denied),
                Err(_) => FetchError::Transfer { url, reason },
            },
            _ => FetchError::Transfer { url, reason },
        }
    }
}

/// Downloads files.
#[derive(Debug)]
pub struct Fetcher {
    http: Http,
    max_bytes: u64,
    retries: Retries,
    file_folders: Vec<PathBuf>,
}

impl Fetcher {
    /// Reads the trusted certificates.
    pub fn new(config: FetchConfig) -> Result<Fetcher, CaBundleError> {
        let FetchConfig { http, max_bytes, retries, file_folders } = config;
        Ok(Fetcher { http: Http::new(http)?, max_bytes, retries, file_folders })
    }

    /// The client, for uploads.
    pub(super) fn http(&self) -> &Http {
        &self.http
    }

    /// Downloads into a file that is opened for writing; what was in it is gone, unless the answer
    /// is [`Fetched::Unchanged`]. `jitter` is asked before each further try, `progress` is told the
    /// bytes of this try.
    pub fn fetch(
        &self,
        want: DownloadRequest<'_>,
        sink: &mut File,
        jitter: &mut dyn FnMut() -> Duration,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Fetched, FetchError> {
        let mut failed = 0;
        loop {
            let error = match self.try_once(want, sink, progress) {
                Ok(fetched) => return Ok(fetched),
                Err(error) => error,
            };
            failed += 1;
            let pause = self.retries.pause(failed, jitter()).filter(|_| error.is_passing());
            let Some(pause) = pause else { return Err(error) };
            tracing::debug!(%error, failed, ?pause, "a download will be tried again");
            want.cancel.wait(pause);
        }
    }

    fn try_once(
        &self,
        want: DownloadRequest<'_>,
        sink: &mut File,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Fetched, FetchError> {
        if want.cancel.is_cancelled() {
            return Err(FetchError::Cancelled);
        }
        match want.url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase()) {
            Some(scheme) if scheme == "http" || scheme == "https" => {
                self.try_http(want, sink, progress)
            }
            Some(scheme) if scheme == "file" => self.read_file(want, sink, progress),
            Some(_) | None => Err(FetchError::Scheme { url: shown_url(want.url) }),
        }
    }

    fn try_http(
        &self,
        want: DownloadRequest<'_>,
        sink: &mut File,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Fetched, FetchError> {
        let agent = self.http.for_download(want.url);
        let torn = agent.clone();
        want.cancel.on_cancel(move || torn.shutdown());
        // A transfer that was compressed on the way would not have the checksum of the file.
        let mut request = agent.get(want.url).header(ACCEPT_ENCODING, "identity");
        if !want.known.etag.is_empty() {
            request = request.header(IF_NONE_MATCH, &want.known.etag);
        }
        if !want.known.last_modified.is_empty() {
            request = request.header(IF_MODIFIED_SINCE, &want.known.last_modified);
        }
        let answer = request.call();
        let answer = answer.map_err(|error| FetchError::of(want.url, error, want.cancel))?;
        match answer.status().as_u16() {
            200 => {}
            304 if !want.known.is_empty() => return Ok(Fetched::Unchanged),
            status => return Err(FetchError::Status { url: shown_url(want.url), status }),
        }
        let validators = Validators {
            etag: header(answer.headers(), ETAG),
            last_modified: header(answer.headers(), LAST_MODIFIED),
        };
        let announced = answer.body().content_length();
        let mut body = answer.into_body().into_reader();
        self.copy(want, &mut body, announced, validators, sink, progress)
    }

    /// Resolves from the allowed folder's own descriptor and through no link, so what is checked is
    /// what is read.
    fn read_file(
        &self,
        want: DownloadRequest<'_>,
        sink: &mut File,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Fetched, FetchError> {
        let refused =
            |path: &[u8]| FetchError::FileNotAllowed { path: super::entry_path::printable(path) };
        let path = file_path(want.url).ok_or_else(|| refused(want.url.as_bytes()))?;
        let shown = || refused(path.as_os_str().as_encoded_bytes());
        let failed = |error: io::Error| FetchError::Transfer {
            url: shown_url(want.url),
            reason: error.to_string(),
        };
        let below = self.file_folders.iter().find_map(|it| Some((it, path.strip_prefix(it).ok()?)));
        let (folder, below) = below.ok_or_else(shown)?;
        let below = below.as_os_str().as_encoded_bytes();
        let below = EntryPath::parse(below, &UnpackLimits::default()).map_err(|_| shown())?;
        let folder = DirHandle::open(folder).map_err(|error| failed(error.into()))?;
        let mut file = folder.read(&below).map_err(|error| match error {
            nix::errno::Errno::ELOOP | nix::errno::Errno::ENOTDIR => shown(),
            error => failed(error.into()),
        })?;
        let stat = file.metadata().map_err(failed)?;
        if !stat.is_file() {
            return Err(shown());
        }
        let (size, seconds, part) = (stat.len(), stat.mtime(), stat.mtime_nsec());
        let etag = format!("\"{size}-{seconds}-{part}-{}\"", stat.ino());
        if etag == want.known.etag {
            return Ok(Fetched::Unchanged);
        }
        let validators = Validators { etag, last_modified: String::new() };
        self.copy(want, &mut file, Some(size), validators, sink, progress)
    }

    fn copy(
        &self,
        want: DownloadRequest<'_>,
        body: &mut dyn Read,
        announced: Option<u64>,
        validators: Validators,
        sink: &mut File,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Fetched, FetchError> {
        let url = || shown_url(want.url);
        let fits = |given| {
            OverLimit::check("max_bytes", self.max_bytes, given)
                .map_err(|over| FetchError::OverLimit { url: url(), over })
        };
        fits(announced.unwrap_or(0))?;
        sink.set_len(0).and_then(|()| sink.rewind()).map_err(FetchError::Write)?;
        let mut hashing = Hashing::new(want.checksum);
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut bytes = 0;
        loop {
            let read = match body.read(&mut buffer) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    let error = ureq::Error::from(error);
                    return Err(FetchError::of(want.url, error, want.cancel));
                }
            };
            if want.cancel.is_cancelled() {
                return Err(FetchError::Cancelled);
            }
            if read == 0 {
                break;
            }
            bytes += read as u64;
            fits(bytes)?;
            hashing.update(&buffer[..read]);
            sink.write_all(&buffer[..read]).map_err(FetchError::Write)?;
            progress(bytes);
        }
        if let Some(announced) = announced.filter(|it| *it != bytes) {
            return Err(FetchError::CutShort { url: url(), announced, given: bytes });
        }
        let sha256 = hashing.finish();
        let sha256 = sha256.map_err(|mismatch| FetchError::Mismatch { url: url(), mismatch })?;
        sink.rewind().map_err(FetchError::Write)?;
        Ok(Fetched::Body { bytes, sha256, validators })
    }
}

fn header(headers: &HeaderMap, name: HeaderName) -> String {
    let value = headers.get(name).and_then(|it| it.to_str().ok());
    value.filter(|it| it.len() <= MAX_VALIDATOR_BYTES).unwrap_or_default().to_owned()
}
