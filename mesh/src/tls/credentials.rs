//! A member's own key and certificate, and the directory that contains them.
//!
//! `member.pem` (0600) contains the key, the certificate and the certificate of the certificate
//! authority (CA). It is one file that is replaced as a whole: a crash cannot leave a key with the
//! certificate of another key. `joining.pem` contains the key of a machine that has asked to join
//! and has no reply yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use volvox_host::durable::{self, FileError};
use volvox_protocol::time::Timestamp;

use super::authenticator::ClusterAuthenticator;
use super::certificate::{CaCertificate, renew_at};
use super::encoding;
use super::key::{KeyError, MemberKey};
use crate::identity::{CertificateError, MemberIdentity};

const PEM_BYTES: u64 = 64 << 10;

/// Why a key and a certificate do not form credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The key does not match the certificate.
    #[error("the key does not belong to the certificate")]
    Key,
    /// The certificate was not issued by this CA, or is malformed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// A member's key, its certificate, and the certificate of its CA. They match. The certificate may
/// be expired, because an expired one can be renewed.
#[derive(Debug, Clone)]
pub struct Credentials {
    key: Arc<MemberKey>,
    certificate: Vec<u8>,
    ca: CaCertificate,
    identity: MemberIdentity,
}

impl Credentials {
    /// Checks that the three match.
    pub fn new(
        key: Arc<MemberKey>,
        certificate: Vec<u8>,
        ca: CaCertificate,
    ) -> Result<Self, CredentialsError> {
        let identity = ca.read(&certificate)?;
        if identity.public_key != key.public() {
            return Err(CredentialsError::Key);
        }
        Ok(Credentials { key, certificate, ca, identity })
    }

    /// The private key of the member.
    pub fn key(&self) -> &Arc<MemberKey> {
        &self.key
    }

    /// The member's certificate (DER).
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The certificate of the CA.
    pub fn ca(&self) -> &CaCertificate {
        &self.ca
    }

    /// Identity of this member.
    pub fn identity(&self) -> &MemberIdentity {
        &self.identity
    }

    /// Authenticator that signs with this key and verifies against this CA.
    pub fn authenticator(&self) -> ClusterAuthenticator {
        ClusterAuthenticator::new(Arc::clone(&self.key), self.ca.clone())
    }

    /// Whether other members accept the certificate at this time.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.ca.read_at(now, &self.certificate).is_ok()
    }

    /// When to renew. See [`renew_at`].
    pub fn renew_at(&self, jitter: u16) -> Timestamp {
        renew_at(self.identity.not_before, self.identity.not_after, jitter)
    }
}

/// Why credentials could not be loaded or stored.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The file does not exist: this machine has not joined yet.
    #[error("{} is missing: this machine is no member yet, join with a token", .0.display())]
    Missing(PathBuf),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content of a file is not valid.
    #[error("{} is damaged: {what}; restore it, or join again with a new token", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A key could not be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// A problem that an operator should see, although the credentials can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The group or others have access to the file with the key.
    OpenToOthers {
        /// The file with the key.
        path: PathBuf,
        /// Its mode: the permission bits.
        mode: u32,
    },
    /// The certificate is expired or not valid yet: renew it before anything else.
    NotValidNow {
        /// Start of its validity.
        not_before: Timestamp,
        /// End of its validity.
        not_after: Timestamp,
    },
}

impl std::fmt::Display for Warning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Warning::OpenToOthers { path, mode } => {
                let path = path.display();
                write!(f, "{path} has mode {mode:o}: others may get the key; chmod 600 {path}")
            }
            Warning::NotValidNow { .. } => f.write_str("the certificate is not valid at this time"),
        }
    }
}

/// Result of [`MemberFolder::load`].
#[derive(Debug)]
pub struct Loaded {
    /// The member's credentials.
    pub credentials: Credentials,
    /// Problems to log. Empty: none.
    pub warnings: Vec<Warning>,
}

/// The directory of one member. Only one process at a time may use it.
#[derive(Debug, Clone)]
pub struct MemberFolder {
    path: PathBuf,
}

impl MemberFolder {
    /// Opens the directory at `path`, and creates it (0700) if it does not exist.
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        durable::private_folder(path)?;
        Ok(MemberFolder { path: path.to_owned() })
    }

    fn member_pem(&self) -> PathBuf {
        self.path.join("member.pem")
    }

    fn joining_pem(&self) -> PathBuf {
        self.path.join("joining.pem")
    }

    /// Reads the stored credentials.
    pub fn load(&self, now: Timestamp) -> Result<Loaded, FolderError> {
        let path = self.member_pem();
        let pem =
            durable::read(&path, PEM_BYTES)?.ok_or_else(|| FolderError::Missing(path.clone()))?;
        let credentials =
            read_member(&pem).map_err(|what| FolderError::Damaged { path: path.clone(), what })?;
        let mut warnings = Vec::new();
        if let Some(mode) = durable::open_to_others(&path) {
            warnings.push(Warning::OpenToOthers { path, mode });
        }
        if !credentials.is_valid_at(now) {
            let MemberIdentity { not_before, not_after, .. } = *credentials.identity();
            warnings.push(Warning::NotValidNow { not_before, not_after });
        }
        Ok(Loaded { credentials, warnings })
    }

    /// Stores credentials and replaces the old ones. When this returns, they are on disk.
    pub fn store(&self, credentials: &Credentials) -> Result<(), FolderError> {
        let pem = encoding::pem("PRIVATE KEY", credentials.key().pkcs8())
            + &encoding::pem("CERTIFICATE", credentials.certificate())
            + &encoding::pem("CERTIFICATE", credentials.ca().der());
        durable::replace(&self.member_pem(), pem.as_bytes())?;
        durable::remove(&self.joining_pem())?;
        Ok(())
    }

    /// The key to join with. It stays the same until [`MemberFolder::store`], also after a crash.
    /// So a cell whose reply was lost asks again as the same member.
    pub fn joining_key(&self) -> Result<Arc<MemberKey>, FolderError> {
        let path = self.joining_pem();
        if let Some(pem) = durable::read(&path, PEM_BYTES)? {
            let key = read_key(&pem);
            return key.map(Arc::new).map_err(|what| FolderError::Damaged { path, what });
        }
        let key = MemberKey::generate()?;
        durable::replace(&path, encoding::pem("PRIVATE KEY", key.pkcs8()).as_bytes())?;
        Ok(Arc::new(key))
    }
}

fn read_key(pem: &[u8]) -> Result<MemberKey, String> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
    MemberKey::from_pkcs8(key.secret_pkcs8_der()).map_err(|error| error.to_string())
}

fn read_member(pem: &[u8]) -> Result<Credentials, String> {
    let key = read_key(pem)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| error.to_string())?;
    let [certificate, ca] = &certificates[..] else {
        return Err(format!("it holds {} certificates instead of two", certificates.len()));
    };
    let ca = CaCertificate::parse(ca).map_err(|error| format!("the authority's: {error}"))?;
    Credentials::new(Arc::new(key), certificate.to_vec(), ca).map_err(|error| error.to_string())
}
