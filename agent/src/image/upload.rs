//! Uploads of one file by POST or PUT, with its digests in the headers. Three attempts at once, as
//! Diego does. A redirect is a refusal: the file has not arrived, and we do not send it elsewhere.

use std::fs::File;
use std::io::{self, Read as _};

use ureq::http::Method;
use ureq::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use ureq::{Body, SendBody, http};

use super::cancel::Cancel;
use super::checksum::UploadDigest;
use super::fetch::{FetchError, Fetcher};
use super::limits::OverLimit;
use super::retry::shown_url;
use super::unpack::{CHUNK_BYTES, FileAt};

/// How often an upload is tried.
const TRIES: u32 = 3;

/// How the server wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// As Diego does.
    Post,
    /// For stores that take nothing else.
    Put,
}

impl Fetcher {
    /// Sends a file, and tells how many bytes it had. Success is any 2xx, or 303: the server took it
    /// and shows another page.
    pub fn upload(
        &self,
        verb: Verb,
        url: &str,
        file: &File,
        max_bytes: u64,
        cancel: &Cancel,
    ) -> Result<u64, FetchError> {
        let scheme = url.split_once(':').map(|(scheme, _)| scheme.to_ascii_lowercase());
        if !matches!(scheme.as_deref(), Some("http" | "https")) {
            return Err(FetchError::Scheme { url: shown_url(url) });
        }
        let mut digest = UploadDigest::default();
        let mut input = FileAt { file, offset: 0 };
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let read = match input.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(url, &error)),
            };
            digest.update(&buffer[..read]);
            OverLimit::check("max_bytes", max_bytes, input.offset)
                .map_err(|over| FetchError::OverLimit { url: shown_url(url), over })?;
            if cancel.is_cancelled() {
                return Err(FetchError::Cancelled);
            }
        }
        let sized = Sized { file, bytes: input.offset, digests: digest.headers() };
        let mut tried = 0;
        loop {
            let error = match self.send_once(verb, url, &sized, cancel) {
                Ok(()) => return Ok(sized.bytes),
                Err(error) => error,
            };
            tried += 1;
            if tried == TRIES || !error.is_passing() {
                return Err(error);
            }
            tracing::debug!(%error, tried, "an upload will be tried again");
        }
    }

    fn send_once(
        &self,
        verb: Verb,
        url: &str,
        sized: &Sized<'_>,
        cancel: &Cancel,
    ) -> Result<(), FetchError> {
        if cancel.is_cancelled() {
            return Err(FetchError::Cancelled);
        }
        let agent = self.http().for_upload(url);
        let torn = agent.clone();
        cancel.on_cancel(move || torn.shutdown());
        let method = match verb {
            Verb::Post => Method::POST,
            Verb::Put => Method::PUT,
        };
        // Exactly as many bytes as were hashed, even if the file grew since.
        let mut data = FileAt { file: sized.file, offset: 0 }.take(sized.bytes);
        let request = http::Request::builder()
            .method(method)
            .uri(url)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, sized.bytes)
            .header("content-md5", &sized.digests.0)
            .header("content-digest", &sized.digests.1)
            .body(SendBody::from_reader(&mut data));
        let request = request.map_err(|_| FetchError::Scheme { url: shown_url(url) })?;
        let answer: http::Response<Body> =
            agent.run(request).map_err(|error| FetchError::of(url, error, cancel))?;
        match answer.status().as_u16() {
            200..=299 | 303 => Ok(()),
            status => Err(FetchError::Status { url: shown_url(url), status }),
        }
    }
}

struct Sized<'a> {
    file: &'a File,
    bytes: u64,
    /// `Content-MD5` and `Content-Digest`.
    digests: (String, String),
}

fn failed(url: &str, error: &io::Error) -> FetchError {
    FetchError::Transfer { url: shown_url(url), reason: error.to_string() }
}
