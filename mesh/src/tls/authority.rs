//! The cluster's authority: its key, its register, and the folder that holds both.
//!
//! The folder (0700) holds `authority.pem`, key and certificate in one, and `register`, which is
//! written anew, whole, before anything that it says is told to anybody. Nothing damaged is ever
//! replaced: without the register one would not know who was expelled, so a person must decide.
//! Lives on the coordinator; only one process at a time has the folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::certificate::{CaCertificate, Fingerprint, issue, issue_ca};
use super::durable;
use super::encoding;
use super::enrol::{Join, Renew};
use super::key::{KeyError, MemberKey};
use super::registry::{
    CaRegistry, EnrolmentRequest, MemberSelector, NameConflict, Refusal, TokenOrder,
};
use super::token::{JoinToken, TokenError, TokenId, TokenSecret};
use crate::identity::{Kind, MemberId};

pub use super::durable::FileError;

/// For how long a member's certificate is valid if nothing else is said: thirty days.
pub const VALIDITY: Duration = Duration::from_secs(30 * 86_400);

/// No certificate may be valid for less.
pub const SHORTEST_VALIDITY: Duration = Duration::from_secs(60);
/// Nor for longer: an expelled member must be remembered until its certificate ends.
pub const LONGEST_VALIDITY: Duration = Duration::from_secs(365 * 86_400);

/// What the register begins with. The number is its version.
const MAGIC: &[u8] = b"volvox register 1\n";

/// The longest register that is read: 50,000 members with the longest names, and the tokens.
const REGISTER_BYTES: u64 = 64 << 20;
const PEM_BYTES: u64 = 64 << 10;

/// Why the authority did not do it. Nothing was issued.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// It may not be.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The token that was asked for cannot be written as a line.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The disk. What was asked for may be asked for again.
    #[error(transparent)]
    File(#[from] FileError),
    /// No key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A file is not what it was. A person must look.
    #[error("{} is damaged: {what}; restore the folder from a backup", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// Another process is at it.
    #[error("{} is in use by another process", .0.display())]
    InUse(PathBuf),
    /// The setting is out of bounds.
    #[error("certificates are valid for a minute to a year, not for {0:?}")]
    Validity(Duration),
}

/// A certificate, as the authority hands it out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// MemberSelector it is for.
    pub member: MemberId,
    /// The certificate (DER).
    pub certificate: Vec<u8>,
}

/// What the register's file holds, behind its head.
#[derive(Serialize, Deserialize)]
struct Stored {
    ca: Fingerprint,
    register: CaRegistry,
}

/// The authority. All its methods block on the disk.
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
    /// Opens the authority in `folder`, or makes a new one if there never was one. Certificates
    /// will be valid for `validity`.
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
            // The register is written first, so an empty one alone is a first start that was cut.
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

    /// The authority's certificate.
    pub fn ca(&self) -> &CaCertificate {
        &self.ca
    }

    /// Who is in, who is out, which tokens there are.
    pub fn register(&self) -> &CaRegistry {
        &self.register
    }

    /// Makes a token that leads to `addresses` (`host:port` each).
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

    /// Takes a token back.
    pub fn revoke_token(&mut self, id: TokenId) -> Result<(), AuthorityError> {
        self.change(|register| register.revoke_token(id))
    }

    /// Enrols without a token: the coordinator itself, or whom a person on this machine names. The
    /// same key and name again are the same member.
    pub fn appoint(
        &mut self,
        now: Timestamp,
        kind: Kind,
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

    /// Enrols the bearer of a token.
    pub fn join(&mut self, now: Timestamp, request: &Join) -> Result<Issued, AuthorityError> {
        let applicant = request.applicant(self.ca.fingerprint())?;
        let (fresh, validity) = (MemberId(random()?), self.validity_at(now));
        let token = (request.token, &request.secret);
        let terms =
            self.change(|register| register.enrol(now, validity, fresh, token, applicant))?;
        Ok(self.issued(&terms))
    }

    /// Renews a member's certificate, be it ended or not.
    pub fn renew(&mut self, now: Timestamp, request: &Renew) -> Result<Issued, AuthorityError> {
        let old = request.identity(&self.ca)?;
        let validity = self.validity_at(now);
        let terms =
            self.change(|register| register.renew(now, validity, &old, request.public_key))?;
        Ok(self.issued(&terms))
    }

    /// Expels a member. Telling the mesh, by [`CaRegistry::revoked`], is the caller's.
    pub fn revoke(
        &mut self,
        now: Timestamp,
        whom: &MemberSelector,
    ) -> Result<MemberId, AuthorityError> {
        self.change(|register| register.revoke(now, whom))
    }

    /// Forgets what ended. See [`CaRegistry::prune`].
    pub fn prune(&mut self, now: Timestamp) -> Result<usize, AuthorityError> {
        self.change(|register| Ok(register.prune(now)))
    }

    /// No member's certificate outlives the authority's.
    fn validity_at(&self, now: Timestamp) -> Duration {
        self.validity.min(self.ca.not_after().since(now))
    }

    fn issued(&self, terms: &super::certificate::CertificateContent) -> Issued {
        Issued { member: terms.member, certificate: issue(&self.key, terms) }
    }

    /// Changes a copy, writes that down, and only then takes it: a refusal or a full disk leaves
    /// memory and disk as they were.
    fn change<T>(
        &mut self,
        change: impl FnOnce(&mut CaRegistry) -> Result<T, Refusal>,
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
