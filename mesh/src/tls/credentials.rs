//! A member's own key and certificate, and the folder that holds them.
//!
//! `member.pem` (0600) holds the key, the certificate and the authority's certificate, in one file
//! that is replaced as a whole: a crash cannot leave a key with another key's certificate.
//! `joining.pem` holds the key of a member that asked to join and has no reply yet.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use volvox_protocol::time::Timestamp;

use super::authenticator::ClusterAuthenticator;
use super::certificate::{CaCertificate, renew_at};
use super::durable::{self, FileError};
use super::encoding;
use super::key::{KeyError, MemberKey};
use crate::identity::{CertificateError, MemberIdentity};

const PEM_BYTES: u64 = 64 << 10;

/// Why a key and a certificate are no credentials.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// They do not belong together.
    #[error("the key does not belong to the certificate")]
    Key,
    /// The certificate is none of this authority's.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// A member's key, its certificate, and its authority's. They belong together; whether the
/// certificate ended is another question, for an ended one can be renewed.
#[derive(Debug, Clone)]
pub struct Credentials {
    key: Arc<MemberKey>,
    certificate: Vec<u8>,
    ca: CaCertificate,
    identity: MemberIdentity,
}

impl Credentials {
    /// Checks that the three belong together.
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

    /// The private key.
    pub fn key(&self) -> &Arc<MemberKey> {
        &self.key
    }

    /// The member's certificate (DER).
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The authority's certificate.
    pub fn ca(&self) -> &CaCertificate {
        &self.ca
    }

    /// Who we are.
    pub fn identity(&self) -> &MemberIdentity {
        &self.identity
    }

    /// Signs for us, checks for us.
    pub fn authenticator(&self) -> ClusterAuthenticator {
        ClusterAuthenticator::new(Arc::clone(&self.key), self.ca.clone())
    }

    /// Whether others will take the certificate at this time.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.ca.read_at(now, &self.certificate).is_ok()
    }

    /// When to renew. See [`renew_at`].
    pub fn renew_at(&self, jitter: u16) -> Timestamp {
        renew_at(self.identity.not_before, self.identity.not_after, jitter)
    }
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// This machine did not join yet.
    #[error("{} is missing: this machine is no member yet, join with a token", .0.display())]
    Missing(PathBuf),
    /// The disk.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file is not what it was.
    #[error("{} is damaged: {what}; restore it, or join again with a new token", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What a person should hear of, though it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Others than the owner may read or write the file with the key.
    OpenToOthers {
        /// Which file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The certificate ended, or does not begin yet: renew it before all else.
    NotValidNow {
        /// When it began.
        not_before: Timestamp,
        /// When it ended.
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

/// What the folder holds.
#[derive(Debug)]
pub struct Loaded {
    /// The member's credentials.
    pub credentials: Credentials,
    /// What to log.
    pub warnings: Vec<Warning>,
}

/// The folder of one member. One process at a time.
#[derive(Debug, Clone)]
pub struct MemberFolder {
    path: PathBuf,
}

impl MemberFolder {
    /// The folder at `path`, which is made (0700) if there is none.
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

    /// What was stored.
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

    /// Stores credentials, in place of those before. When this returns they are on the disk.
    pub fn store(&self, credentials: &Credentials) -> Result<(), FolderError> {
        let pem = encoding::pem("PRIVATE KEY", credentials.key().pkcs8())
            + &encoding::pem("CERTIFICATE", credentials.certificate())
            + &encoding::pem("CERTIFICATE", credentials.ca().der());
        durable::replace(&self.member_pem(), pem.as_bytes())?;
        durable::remove(&self.joining_pem())?;
        Ok(())
    }

    /// The key to join with: the same until [`MemberFolder::store`], also after a crash. So a cell
    /// whose reply was lost is, when it asks again, the same member.
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
