//! The certificate that the API shows, read anew when its files change.
//!
//! Whether they have is looked at before each handshake: two looks at a folder cost nothing beside one, and
//! a certificate that nobody asks for need not be new. Connections that are there keep what they began
//! with.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use volvox_host::sync::lock;
use x509_parser::prelude::FromDer as _;

use super::{TlsError, certificates, read};

/// From when on the log says that the certificate ends, and how often.
const ENDS_SOON: Duration = Duration::from_secs(30 * 86_400);
const SAY_AGAIN: Duration = Duration::from_secs(86_400);

/// The certificate that is shown.
#[derive(Debug)]
pub(super) struct ReloadingCertificate {
    chain: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    state: Mutex<LoadedCertificate>,
}

#[derive(Debug)]
struct LoadedCertificate {
    now: Arc<CertifiedKey>,
    /// When it ends, in seconds since 1970.
    until: u64,
    /// The files that were read last, whether or not they were of use.
    seen: FileIdentity,
    /// When the log said last that it ends.
    said: u64,
}

/// What tells a file from the one that was there before, for both: where on the disk, when, how long.
type FileIdentity = [Option<(u64, i64, i64, u64)>; 2];

impl ReloadingCertificate {
    /// Reads the files.
    pub(super) fn open(
        chain: PathBuf,
        key: PathBuf,
        provider: Arc<CryptoProvider>,
    ) -> Result<Self, TlsError> {
        let seen = stamp(&chain, &key);
        let (now, until) = load(&chain, &key, &provider)?;
        let state = Mutex::new(LoadedCertificate { now: Arc::new(now), until, seen, said: 0 });
        let shown = ReloadingCertificate { chain, key, provider, state };
        shown.say_if_it_ends(&mut shown.state(), UnixTime::now().as_secs());
        Ok(shown)
    }

    /// Reads the files again if they have changed. What is of no use is logged, once, and the certificate
    /// stays what it was: a new one may be half written, or its key not there yet.
    pub(super) fn look_again(&self) {
        let seen = stamp(&self.chain, &self.key);
        let mut state = self.state();
        let now = UnixTime::now().as_secs();
        if seen != state.seen {
            state.seen = seen;
            match load(&self.chain, &self.key, &self.provider) {
                Ok((certificate, until)) => {
                    tracing::info!(path = %self.chain.display(), until, "a new certificate is shown");
                    (state.now, state.until, state.said) = (Arc::new(certificate), until, 0);
                }
                Err(error) => tracing::warn!(%error, "the certificate stays what it was"),
            }
        }
        self.say_if_it_ends(&mut state, now);
    }

    /// When the certificate ends, in seconds since 1970.
    pub(super) fn until(&self) -> u64 {
        self.state().until
    }

    fn say_if_it_ends(&self, state: &mut LoadedCertificate, now: u64) {
        let left_s = state.until.saturating_sub(now);
        if left_s < ENDS_SOON.as_secs() && now.saturating_sub(state.said) >= SAY_AGAIN.as_secs() {
            state.said = now;
            let (path, days) = (self.chain.display(), left_s / 86_400);
            tracing::warn!(%path, days, "the API's certificate ends soon: put a new one there");
        }
    }

    fn state(&self) -> MutexGuard<'_, LoadedCertificate> {
        lock(&self.state)
    }
}

impl ResolvesServerCert for ReloadingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.state().now))
    }
}

fn stamp(chain: &Path, key: &Path) -> FileIdentity {
    [chain, key].map(|path| {
        let file = std::fs::metadata(path).ok()?;
        Some((file.ino(), file.mtime(), file.mtime_nsec(), file.len()))
    })
}

/// Reads a certificate with its key, and when it ends.
fn load(
    chain: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<(CertifiedKey, u64), TlsError> {
    let bad = |path: &Path, what: String| TlsError::Content { path: path.to_owned(), what };
    let private =
        PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| bad(key, error.to_string()))?;
    let all = certificates(chain)?;
    let (_, first) = x509_parser::certificate::X509Certificate::from_der(&all[0])
        .map_err(|error| bad(chain, error.to_string()))?;
    let until = u64::try_from(first.validity().not_after.timestamp()).unwrap_or_default();
    Ok((CertifiedKey::from_der(all, private, provider)?, until))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn put(folder: &Path, year: i32) -> (PathBuf, PathBuf) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["bbs.example".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let made = params.self_signed(&key).unwrap();
        let (chain, key_path) = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&key_path, key.serialize_pem()).unwrap();
        std::fs::write(&chain, made.pem()).unwrap();
        (chain, key_path)
    }

    #[test]
    fn a_certificate_is_read_again_when_its_files_change_and_only_if_they_fit() {
        let folder = tempfile::tempdir().unwrap();
        let (chain, key) = put(folder.path(), 2090);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let shown = ReloadingCertificate::open(chain.clone(), key.clone(), provider).unwrap();
        let first = shown.until();
        assert_eq!(first, 3_786_912_000, "1 January 2090");
        // Another certificate without its key: the first stays.
        let old_key = std::fs::read(&key).unwrap();
        put(folder.path(), 2091);
        let new_key = std::fs::read(&key).unwrap();
        std::fs::write(&key, old_key).unwrap();
        shown.look_again();
        assert_eq!(shown.until(), first);
        // With its key it is shown, and what is no certificate is not.
        std::fs::remove_file(&key).unwrap();
        std::fs::write(&key, new_key).unwrap();
        shown.look_again();
        assert_eq!(shown.until(), first + 365 * 86_400);
        std::fs::write(&chain, "nothing").unwrap();
        shown.look_again();
        std::fs::remove_file(&chain).unwrap();
        shown.look_again();
        assert_eq!(shown.until(), first + 365 * 86_400);
    }
}
