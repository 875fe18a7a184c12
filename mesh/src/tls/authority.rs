//! The certificate authority (CA) of the cluster: its key, its registry, and their directory.
//!
//! The directory (0700) contains `authority.pem`, with key and certificate, and the file
//! `register`, the registry. The registry is written as a whole before the CA publishes anything
//! that depends on it. The CA never replaces a damaged file: without the registry it would not be
//! known which members are revoked, so an operator must decide. The CA runs on the coordinator, and
//! only one process at a time uses the directory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use volvox_host::durable::{self, FileError};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::certificate::{CaCertificate, Fingerprint, issue, issue_ca};
use super::encoding;
use super::enrol::{Join, Renew};
use super::key::{KeyError, MemberKey};
use super::registry::{
    CaRegistry, EnrolmentRefusal, EnrolmentRequest, MemberSelector, NameConflict, TokenOrder,
};
use super::token::{JoinToken, TokenError, TokenId, TokenSecret};
use crate::identity::{MemberId, MemberKind};

/// Default validity of a member's certificate: 30 days.
pub const VALIDITY: Duration = Duration::from_secs(30 * 86_400);

/// Minimum validity of a member's certificate.
pub const SHORTEST_VALIDITY: Duration = Duration::from_secs(60);
/// Maximum validity of a member's certificate. There is one because a revoked member must be stored
/// until its certificate expires.
pub const LONGEST_VALIDITY: Duration = Duration::from_secs(365 * 86_400);

/// First bytes of the registry file. The number is the version of the format.
const MAGIC: &[u8] = b"volvox register 1\n";

/// Maximum size of the registry file, in bytes: 50,000 members with the longest names, and the
/// tokens.
const REGISTER_BYTES: u64 = 64 << 20;
const PEM_BYTES: u64 = 64 << 10;

/// Why the CA did not do what was requested. Nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The registry refused the request.
    #[error(transparent)]
    Refused(#[from] EnrolmentRefusal),
    /// The requested join token cannot be written as a line.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A file could not be read or written. The same request may be sent again.
    #[error(transparent)]
    File(#[from] FileError),
    /// A key or random bytes could not be generated.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The content of a file is not valid. An operator must look at it.
    #[error("{} is damaged: {what}; restore the folder from a backup", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another process uses the directory.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The configured validity is out of range.
    #[error("certificates are valid for a minute to a year, not for {0:?}")]
    Validity(Duration),
}

/// A certificate that the CA issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The member that it is for.
    pub member: MemberId,
    /// The certificate (DER).
    pub certificate: Vec<u8>,
}

/// Content of the registry file after its head.
#[derive(Serialize, Deserialize)]
struct Stored {
    ca: Fingerprint,
    register: CaRegistry,
}

/// The CA of the cluster. All its methods that change something block on the disk.
pub struct Authority {
    folder: PathBuf,
    key: MemberKey,
    ca: CaCertificate,
    register: CaRegistry,
    validity: Duration,
    _lock: File,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").field("folder", &self.folder).field("ca", &self.ca).finish()
    }
}

impl Authority {
    /// Opens the CA in `folder`, or creates a new one if there never was one. New certificates are
    /// valid for `validity`.
    pub fn open(now: Timestamp, folder: &Path, validity: Duration) -> Result<Self, AuthorityError> {
        if validity < SHORTEST_VALIDITY || validity > LONGEST_VALIDITY {
            return Err(AuthorityError::Validity(validity));
        }
        durable::private_folder(folder)?;
        let lock = durable::lock(&folder.join("lock"))?
            .ok_or_else(|| AuthorityError::InUse(folder.to_owned()))?;
        let (pem_path, register_path) = (folder.join("authority.pem"), folder.join("register"));
        let pem = durable::read(&pem_path, PEM_BYTES)?;
        let stored = match durable::read(&register_path, REGISTER_BYTES)? {
            Some(bytes) => Some(read_register(&register_path, &bytes)?),
            None => None,
        };
        let damaged =
            |path: &Path, what: String| AuthorityError::Damaged { path: path.to_owned(), what };
        let (key, ca, register) = match (pem, stored) {
            (Some(pem), Some(stored)) => {
                let (key, ca) = read_pem(&pem).map_err(|what| damaged(&pem_path, what))?;
                if stored.ca != ca.fingerprint() {
                    let what = "it is another authority's register".to_owned();
                    return Err(damaged(&register_path, what));
                }
                (key, ca, stored.register)
            }
            (Some(_), None) => return Err(damaged(&register_path, "it is missing".into())),
            (None, Some(stored)) if !stored.register.is_empty() => {
                return Err(damaged(&pem_path, "it is missing, but the register is not".into()));
            }
            // The registry is written first, so an empty one alone means an interrupted first
            // start.
            (None, Some(_) | None) => {
                let key = MemberKey::generate()?;
                let der = issue_ca(now, &key);
                let ca = CaCertificate::parse(&der)
                    .map_err(|error| damaged(&pem_path, error.to_string()))?;
                let register = CaRegistry::default();
                durable::replace(&register_path, &register_bytes(&ca, &register))?;
                durable::replace(&pem_path, pem_text(&key, &ca).as_bytes())?;
                tracing::info!(fingerprint = %ca.fingerprint(), "made the cluster's authority");
                (key, ca, register)
            }
        };
        Ok(Authority { folder: folder.to_owned(), key, ca, register, validity, _lock: lock })
    }

    /// The certificate of the CA.
    pub fn ca(&self) -> &CaCertificate {
        &self.ca
    }

    /// The registry: members, revoked members and join tokens.
    pub fn register(&self) -> &CaRegistry {
        &self.register
    }

    /// Creates a join token that names `addresses` (`host:port` each).
    pub fn create_token(
        &mut self,
        now: Timestamp,
        addresses: Vec<String>,
        order: TokenOrder,
    ) -> Result<JoinToken, AuthorityError> {
        let (id, secret) = (TokenId(random()?), TokenSecret(random()?));
        let token = JoinToken::new(addresses, self.ca.fingerprint(), id, secret)?;
        self.change(|register| {
            register.prune(now);
            register.create_token(now, id, token.secret(), order)
        })?;
        Ok(token)
    }

    /// Revokes a join token.
    pub fn revoke_token(&mut self, id: TokenId) -> Result<(), AuthorityError> {
        self.change(|register| register.revoke_token(id))
    }

    /// Enrols without a token: the coordinator itself, or a member that an operator on this machine
    /// names. The same key and name again give the same member.
    pub fn appoint(
        &mut self,
        now: Timestamp,
        kind: MemberKind,
        name: CellId,
        public_key: [u8; 32],
        clash: NameConflict,
    ) -> Result<Issued, AuthorityError> {
        let (fresh, validity) = (MemberId(random()?), self.validity_at(now));
        let applicant = EnrolmentRequest { kind, name, public_key };
        let terms =
            self.change(|register| register.appoint(now, validity, fresh, applicant, clash))?;
        Ok(self.issued(&terms))
    }

    /// Enrols a machine with a join token.
    pub fn join(&mut self, now: Timestamp, request: &Join) -> Result<Issued, AuthorityError> {
        let applicant = request.applicant(self.ca.fingerprint())?;
        let (fresh, validity) = (MemberId(random()?), self.validity_at(now));
        let token = (request.token, &request.secret);
        let terms =
            self.change(|register| register.enrol(now, validity, fresh, token, applicant))?;
        Ok(self.issued(&terms))
    }

    /// Renews a member's certificate, expired or not.
    pub fn renew(&mut self, now: Timestamp, request: &Renew) -> Result<Issued, AuthorityError> {
        let old = request.identity(&self.ca)?;
        let validity = self.validity_at(now);
        let terms =
            self.change(|register| register.renew(now, validity, &old, request.public_key))?;
        Ok(self.issued(&terms))
    }

    /// Revokes a member. The caller must publish [`CaRegistry::revoked`] to the mesh.
    pub fn revoke(
        &mut self,
        now: Timestamp,
        whom: &MemberSelector,
    ) -> Result<MemberId, AuthorityError> {
        self.change(|register| register.revoke(now, whom))
    }

    /// Deletes expired entries and returns their number. See [`CaRegistry::prune`].
    pub fn prune(&mut self, now: Timestamp) -> Result<usize, AuthorityError> {
        self.change(|register| Ok(register.prune(now)))
    }

    /// Validity of a new certificate: it does not exceed the validity of the CA's certificate.
    fn validity_at(&self, now: Timestamp) -> Duration {
        self.validity.min(self.ca.not_after().since(now))
    }

    fn issued(&self, terms: &super::certificate::CertificateContent) -> Issued {
        Issued { member: terms.member, certificate: issue(&self.key, terms) }
    }

    /// Changes a copy of the registry, writes it to disk, and only then uses it. A refusal or a
    /// full disk leaves memory and disk unchanged.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut CaRegistry) -> Result<T, EnrolmentRefusal>,
    ) -> Result<T, AuthorityError> {
        let mut next = self.register.clone();
        let result = change(&mut next)?;
        let (before, after) = (encoded(&self.ca, &self.register), encoded(&self.ca, &next));
        if before != after {
            durable::replace(&self.folder.join("register"), &with_head(after))?;
            self.register = next;
        }
        Ok(result)
    }
}

fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| KeyError::NoRandomness)?;
    Ok(bytes)
}

fn encoded(ca: &CaCertificate, register: &CaRegistry) -> Vec<u8> {
    #[derive(Serialize)]
    struct Borrowed<'a> {
        ca: Fingerprint,
        register: &'a CaRegistry,
    }
    crate::codec::encode(&Borrowed { ca: ca.fingerprint(), register })
}

fn with_head(payload: Vec<u8>) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(&Sha256::digest(&payload));
    bytes.extend_from_slice(&payload);
    bytes
}

fn register_bytes(ca: &CaCertificate, register: &CaRegistry) -> Vec<u8> {
    with_head(encoded(ca, register))
}

fn read_register(path: &Path, bytes: &[u8]) -> Result<Stored, AuthorityError> {
    let damaged =
        |what: &str| AuthorityError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let rest = bytes
        .strip_prefix(MAGIC)
        .ok_or_else(|| damaged("it is no register of this release's version"))?;
    let (sum, payload) = rest.split_first_chunk::<32>().ok_or_else(|| damaged("it is cut"))?;
    if Sha256::digest(payload)[..] != sum[..] {
        return Err(damaged("its checksum does not agree"));
    }
    postcard::from_bytes(payload).map_err(|_| damaged("its content makes no sense"))
}

fn pem_text(key: &MemberKey, ca: &CaCertificate) -> String {
    encoding::pem("PRIVATE KEY", key.pkcs8()) + &encoding::pem("CERTIFICATE", ca.der())
}

fn read_pem(pem: &[u8]) -> Result<(MemberKey, CaCertificate), String> {
    let key = PrivatePkcs8KeyDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
    let key = MemberKey::from_pkcs8(key.secret_pkcs8_der()).map_err(|error| error.to_string())?;
    let ca = CertificateDer::from_pem_slice(pem).map_err(|error| error.to_string())?;
    let ca = CaCertificate::parse(&ca).map_err(|error| error.to_string())?;
    if ca.public_key() != key.public() {
        return Err("its key and its certificate do not belong together".into());
    }
    Ok((key, ca))
}
