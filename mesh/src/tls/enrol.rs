//! Joining and renewing: the request, the reply, and how the asking side checks the reply.
//!
//! Plain data and functions. The transport carries the bytes on a connection with the ALPN
//! [`super::config::ALPN_ENROL`]: one request and one reply on one stream. The asking side first
//! verifies the coordinator's certificate against the token's fingerprint, so no other machine
//! receives the secret.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::authority::{Authority, AuthorityError};
use super::certificate::{CERTIFICATE_BYTES, CaCertificate, Fingerprint};
use super::credentials::{Credentials, CredentialsError};
use super::key::{MemberKey, verify_raw};
use super::registry::{EnrolmentRefusal, EnrolmentRequest};
use super::token::{JoinToken, TokenId, TokenSecret};
use crate::codec::{self, CodecError};
use crate::identity::{CertificateError, MemberId, MemberIdentity, MemberKind, Signature};

/// Maximum length of a request or reply, in bytes.
pub const MESSAGE_BYTES: usize = 16 << 10;

/// Maximum length of the reason in a refusal, in bytes.
pub const REASON_BYTES: usize = 1024;

/// Prefixes of the signed statements, so that a signature is valid for this purpose only.
const JOIN: &[u8] = b"volvox join v1\0";
const RENEW: &[u8] = b"volvox renew v1\0";

/// A signature on the wire: two halves, because serde supports arrays up to 32 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WireSignature([u8; 32], [u8; 32]);

impl From<Signature> for WireSignature {
    fn from(signature: Signature) -> Self {
        let (mut first, mut second) = ([0; 32], [0; 32]);
        first.copy_from_slice(&signature.0[..32]);
        second.copy_from_slice(&signature.0[32..]);
        WireSignature(first, second)
    }
}

impl From<WireSignature> for Signature {
    fn from(proof: WireSignature) -> Self {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&proof.0);
        bytes[32..].copy_from_slice(&proof.1);
        Signature(bytes)
    }
}

/// Request to become a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Join {
    /// Id of the join token.
    pub token: TokenId,
    /// Secret of the join token.
    pub secret: TokenSecret,
    /// Requested kind: cell or coordinator.
    pub kind: MemberKind,
    /// Requested cell id or coordinator name.
    pub name: CellId,
    /// Public key of the machine.
    pub public_key: [u8; 32],
    /// Signature that proves that the machine has the private key.
    pub proof: WireSignature,
}

impl Join {
    /// The enrolment request, if its signature proves the private key to this certificate authority
    /// (CA).
    pub(super) fn applicant(&self, ca: Fingerprint) -> Result<EnrolmentRequest, EnrolmentRefusal> {
        let statement = join_statement(ca, self.token, self.kind, &self.name, &self.public_key);
        if !verify_raw(&self.public_key, &statement, &self.proof.into()) {
            return Err(EnrolmentRefusal::BadProof);
        }
        let name = self.name.clone();
        Ok(EnrolmentRequest { kind: self.kind, name, public_key: self.public_key })
    }
}

/// Request for another certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renew {
    /// The current certificate (DER). It may be expired.
    pub certificate: Vec<u8>,
    /// Public key for the new certificate. It may be the current key.
    pub public_key: [u8; 32],
    /// Signature by the key of the current certificate.
    pub proof: WireSignature,
    /// Signature by the key for the new certificate: proves that the member has it.
    pub new_proof: WireSignature,
}

impl Renew {
    /// The identity in the certificate, if this CA issued it and both signatures are valid.
    pub(super) fn identity(&self, ca: &CaCertificate) -> Result<MemberIdentity, EnrolmentRefusal> {
        let identity = ca.read(&self.certificate)?;
        let statement = renew_statement(&self.certificate, &self.public_key);
        let proven = verify_raw(&identity.public_key, &statement, &self.proof.into())
            && verify_raw(&self.public_key, &statement, &self.new_proof.into());
        if proven { Ok(identity) } else { Err(EnrolmentRefusal::BadProof) }
    }
}

/// Request to the CA. The order of the variants is part of the wire format.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum EnrolRequest {
    /// Become a member.
    Join(Join),
    /// Renew the certificate of a member.
    Renew(Renew),
}

/// Reply of the CA. The order of the variants is part of the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnrolReply {
    /// The CA issued a certificate.
    Issued {
        /// Certificate of the member (DER).
        certificate: Vec<u8>,
        /// Certificate of the CA (DER).
        ca: Vec<u8>,
        /// Member id of the machine.
        member: MemberId,
    },
    /// The CA refused.
    Refused {
        /// Reason, as text for operators.
        reason: String,
        /// Whether the same request may succeed later, for example after the disk of the CA was
        /// full.
        again: bool,
    },
}

impl EnrolRequest {
    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes a request. Its content is not verified yet.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let request: EnrolRequest = codec::decode(bytes, MESSAGE_BYTES)?;
        match &request {
            EnrolRequest::Renew(renew) => short(&renew.certificate)?,
            EnrolRequest::Join(_) => {}
        }
        Ok(request)
    }
}

impl EnrolReply {
    /// Encodes the reply.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Decodes a reply. [`accept_join`] and [`accept_renewal`] verify it.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reply: EnrolReply = codec::decode(bytes, MESSAGE_BYTES)?;
        match &mut reply {
            EnrolReply::Issued { certificate, ca, .. } => {
                short(certificate)?;
                short(ca)?;
            }
            EnrolReply::Refused { reason, .. } => *reason = printable(reason),
        }
        Ok(reply)
    }
}

fn short(certificate: &[u8]) -> Result<(), CodecError> {
    let (given, limit) = (certificate.len(), CERTIFICATE_BYTES);
    if given > limit { Err(CodecError::TooLarge { given, limit }) } else { Ok(()) }
}

/// Removes control characters and truncates to [`REASON_BYTES`], for logs and terminals.
fn printable(reason: &str) -> String {
    let mut text = String::new();
    for character in reason.chars().filter(|character| !character.is_control()) {
        if text.len() + character.len_utf8() > REASON_BYTES {
            break;
        }
        text.push(character);
    }
    text
}

/// Answers a request for the CA. When this returns `Issued`, the registry is on disk. Blocks until
/// then.
pub fn answer(authority: &mut Authority, now: Timestamp, request: &EnrolRequest) -> EnrolReply {
    let issued = match request {
        EnrolRequest::Join(join) => authority.join(now, join),
        EnrolRequest::Renew(renew) => authority.renew(now, renew),
    };
    match issued {
        Ok(issued) => EnrolReply::Issued {
            certificate: issued.certificate,
            ca: authority.ca().der().to_vec(),
            member: issued.member,
        },
        Err(AuthorityError::Refused(refusal)) => {
            tracing::info!(%refusal, "refused an enrolment");
            let (reason, again) = (printable(&refusal.to_string()), refusal.is_passing());
            EnrolReply::Refused { reason, again }
        }
        // The asking machine does not need the paths on the coordinator.
        Err(error) => {
            tracing::error!(%error, "could not answer an enrolment");
            EnrolReply::Refused { reason: "the authority cannot answer now".into(), again: true }
        }
    }
}

fn join_statement(
    ca: Fingerprint,
    token: TokenId,
    kind: MemberKind,
    name: &CellId,
    public_key: &[u8; 32],
) -> Vec<u8> {
    // All parts have a fixed length, except the name, which is the last.
    let kind = match kind {
        MemberKind::Cell => [0],
        MemberKind::Coordinator => [1],
    };
    [JOIN, &ca.0, &token.0, &kind, public_key, name.as_str().as_bytes()].concat()
}

fn renew_statement(certificate: &[u8], public_key: &[u8; 32]) -> Vec<u8> {
    [RENEW, &Sha256::digest(certificate), public_key].concat()
}

/// The request to join with a token as `name` with this key. Keep the key until the reply is
/// received ([`super::credentials::MemberFolder::joining_key`]): a machine that asks again with it
/// is the same member.
pub fn request_join(
    token: &JoinToken,
    kind: MemberKind,
    name: &CellId,
    key: &MemberKey,
) -> EnrolRequest {
    let public_key = key.public();
    let statement = join_statement(token.ca(), token.id(), kind, name, &public_key);
    EnrolRequest::Join(Join {
        token: token.id(),
        secret: token.secret().clone(),
        kind,
        name: name.clone(),
        public_key,
        proof: key.sign_raw(&statement).into(),
    })
}

/// The request for another certificate for `key`, which is the current key or a new one.
pub fn request_renewal(old: &Credentials, key: &MemberKey) -> EnrolRequest {
    let certificate = old.certificate().to_vec();
    let statement = renew_statement(&certificate, &key.public());
    EnrolRequest::Renew(Renew {
        certificate,
        public_key: key.public(),
        proof: old.key().sign_raw(&statement).into(),
        new_proof: key.sign_raw(&statement).into(),
    })
}

/// Why the asking machine did not get a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnrolError {
    /// The CA refused.
    #[error("the coordinator refused: {reason}")]
    Refused {
        /// Reason, as the CA sent it.
        reason: String,
        /// Whether the same request may succeed later.
        again: bool,
    },
    /// The reply is from another CA than the expected one.
    #[error("the reply is from another authority ({given}) than the token's ({wanted})")]
    WrongAuthority {
        /// Fingerprint of the expected CA: the token's, or the current certificate's for a renewal.
        wanted: Fingerprint,
        /// Fingerprint of the CA in the reply.
        given: Fingerprint,
    },
    /// The certificate is for another key, name, kind or member than requested; the text says
    /// which.
    #[error("the certificate in the reply is not the one asked for: {0}")]
    NotOurs(&'static str),
    /// The certificate is valid by the clock of the CA, but not by the clock of this machine.
    #[error("the certificate in the reply is not valid at this time: set this machine's clock")]
    Clock,
    /// The certificate in the reply is not valid.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// Verifies the reply to a join, and returns the new member's credentials.
pub fn accept_join(
    now: Timestamp,
    token: &JoinToken,
    kind: MemberKind,
    name: &CellId,
    key: Arc<MemberKey>,
    reply: EnrolReply,
) -> Result<Credentials, EnrolError> {
    accept(now, token.ca(), kind, name, key, reply)
}

/// Verifies the reply to a renewal, and returns the new credentials of the same member.
pub fn accept_renewal(
    now: Timestamp,
    old: &Credentials,
    key: Arc<MemberKey>,
    reply: EnrolReply,
) -> Result<Credentials, EnrolError> {
    let identity = old.identity();
    let fresh = accept(now, old.ca().fingerprint(), identity.kind, &identity.name, key, reply)?;
    if fresh.identity().member != identity.member {
        return Err(EnrolError::NotOurs("it is for another member"));
    }
    Ok(fresh)
}

fn accept(
    now: Timestamp,
    wanted: Fingerprint,
    kind: MemberKind,
    name: &CellId,
    key: Arc<MemberKey>,
    reply: EnrolReply,
) -> Result<Credentials, EnrolError> {
    let (certificate, ca, member) = match reply {
        EnrolReply::Issued { certificate, ca, member } => (certificate, ca, member),
        EnrolReply::Refused { reason, again } => return Err(EnrolError::Refused { reason, again }),
    };
    let given = Fingerprint::of(&ca);
    if given != wanted {
        return Err(EnrolError::WrongAuthority { wanted, given });
    }
    let credentials = Credentials::new(key, certificate, CaCertificate::parse(&ca)?);
    let credentials = credentials.map_err(|error| match error {
        CredentialsError::Key => EnrolError::NotOurs("it is for another key"),
        CredentialsError::Certificate(error) => EnrolError::Certificate(error),
    })?;
    let identity = credentials.identity();
    if identity.member != member {
        return Err(EnrolError::NotOurs("it is for another member than the reply says"));
    }
    if identity.name != *name {
        return Err(EnrolError::NotOurs("it is for another name"));
    }
    if identity.kind != kind {
        return Err(EnrolError::NotOurs("it is for another kind of member"));
    }
    if !credentials.is_valid_at(now) {
        return Err(EnrolError::Clock);
    }
    Ok(credentials)
}
