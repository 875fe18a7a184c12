//! Joining and renewing: what is asked, what is answered, and how the asking side checks it.
//!
//! Plain data and functions of it. The transport carries the bytes on a connection of the ALPN
//! [`super::config::ALPN_ENROL`], one request and one reply on one stream. The request goes to a
//! coordinator whose certificate was checked against the token's fingerprint, so the secret is
//! shown to nobody else.
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
use super::registry::{EnrolmentRequest, Refusal};
use super::token::{JoinToken, TokenId, TokenSecret};
use crate::codec::{self, CodecError};
use crate::identity::{CertificateError, Kind, MemberId, MemberIdentity, Signature};

/// The longest request or reply, as bytes.
pub const MESSAGE_BYTES: usize = 16 << 10;

/// The longest reason that a refusal gives.
pub const REASON_BYTES: usize = 1024;

/// What the signatures of requests begin with, so that they can be taken for nothing else.
const JOIN: &[u8] = b"volvox join v1\0";
const RENEW: &[u8] = b"volvox renew v1\0";

/// A signature on the wire: two halves, since serde stops at 32.
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

/// Asks to become a member.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Join {
    /// With which token.
    pub token: TokenId,
    /// Its secret.
    pub secret: TokenSecret,
    /// What the applicant wants to be.
    pub kind: Kind,
    /// The name that it wants.
    pub name: CellId,
    /// Its key.
    pub public_key: [u8; 32],
    /// That it has the key.
    pub proof: WireSignature,
}

impl Join {
    /// Who asks, if it proved to have the key that it names, to this authority.
    pub(super) fn applicant(&self, ca: Fingerprint) -> Result<EnrolmentRequest, Refusal> {
        let statement = join_statement(ca, self.token, self.kind, &self.name, &self.public_key);
        if !verify_raw(&self.public_key, &statement, &self.proof.into()) {
            return Err(Refusal::BadProof);
        }
        let name = self.name.clone();
        Ok(EnrolmentRequest { kind: self.kind, name, public_key: self.public_key })
    }
}

/// Asks for another certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Renew {
    /// The one there is, which may have ended.
    pub certificate: Vec<u8>,
    /// The key for the new one, which may be the old one.
    pub public_key: [u8; 32],
    /// That the certificate's key asks.
    pub proof: WireSignature,
    /// That the new key is the member's too.
    pub new_proof: WireSignature,
}

impl Renew {
    /// Whose certificate it is, if it is one of this authority and its key signed the request.
    pub(super) fn identity(&self, ca: &CaCertificate) -> Result<MemberIdentity, Refusal> {
        let identity = ca.read(&self.certificate)?;
        let statement = renew_statement(&self.certificate, &self.public_key);
        let proven = verify_raw(&identity.public_key, &statement, &self.proof.into())
            && verify_raw(&self.public_key, &statement, &self.new_proof.into());
        if proven { Ok(identity) } else { Err(Refusal::BadProof) }
    }
}

/// What a cell asks of the authority. The order of the variants is the wire's.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum EnrolRequest {
    /// To become a member.
    Join(Join),
    /// To stay one.
    Renew(Renew),
}

/// What the authority answers. The order of the variants is the wire's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EnrolReply {
    /// Yes.
    Issued {
        /// The certificate (DER).
        certificate: Vec<u8>,
        /// The authority's (DER).
        ca: Vec<u8>,
        /// Who the asker is now.
        member: MemberId,
    },
    /// No.
    Refused {
        /// For people.
        reason: String,
        /// Whether the same request may be granted later: when the authority's disk is full, say.
        again: bool,
    },
}

impl EnrolRequest {
    /// The request's bytes.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads a request. Nothing in it is believed yet.
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
    /// The reply's bytes.
    pub fn encode(&self) -> Vec<u8> {
        codec::encode(self)
    }

    /// Reads a reply. [`accept_join`] and [`accept_renewal`] say whether to believe it.
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

/// What may go into a log and onto a terminal.
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

/// What the authority answers. When this returns an `Issued`, the register is on the disk.
/// Blocks on that.
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
        // The asker need not know our paths.
        Err(error) => {
            tracing::error!(%error, "could not answer an enrolment");
            EnrolReply::Refused { reason: "the authority cannot answer now".into(), again: true }
        }
    }
}

fn join_statement(
    ca: Fingerprint,
    token: TokenId,
    kind: Kind,
    name: &CellId,
    public_key: &[u8; 32],
) -> Vec<u8> {
    // Of fixed lengths but for the name, which comes last.
    let kind = match kind {
        Kind::Cell => [0],
        Kind::Coordinator => [1],
    };
    [JOIN, &ca.0, &token.0, &kind, public_key, name.as_str().as_bytes()].concat()
}

fn renew_statement(certificate: &[u8], public_key: &[u8; 32]) -> Vec<u8> {
    [RENEW, &Sha256::digest(certificate), public_key].concat()
}

/// What to ask with a token, to be `name` with this key. Keep the key until the reply is there
/// ([`super::credentials::MemberFolder::joining_key`]): who asks again with it is the same member.
pub fn request_join(token: &JoinToken, kind: Kind, name: &CellId, key: &MemberKey) -> EnrolRequest {
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

/// What to ask for another certificate, for `key`: the same as before, or a new one.
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

/// Why the asker is not a member now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnrolError {
    /// The authority said no.
    #[error("the coordinator refused: {reason}")]
    Refused {
        /// Its words.
        reason: String,
        /// Whether the same request may be granted later.
        again: bool,
    },
    /// The reply is of another authority than the token's.
    #[error("the reply is from another authority ({given}) than the token's ({wanted})")]
    WrongAuthority {
        /// Whose the token is.
        wanted: Fingerprint,
        /// Whose the reply is.
        given: Fingerprint,
    },
    /// The certificate is for another key, name or kind than asked for.
    #[error("the certificate in the reply is not the one asked for: {0}")]
    NotOurs(&'static str),
    /// The certificate is valid by the authority's clock, and not by ours.
    #[error("the certificate in the reply is not valid at this time: set this machine's clock")]
    Clock,
    /// The certificate is none.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}

/// What became of joining: the member's credentials, when the reply is right in all.
pub fn accept_join(
    now: Timestamp,
    token: &JoinToken,
    kind: Kind,
    name: &CellId,
    key: Arc<MemberKey>,
    reply: EnrolReply,
) -> Result<Credentials, EnrolError> {
    accept(now, token.ca(), kind, name, key, reply)
}

/// What became of renewing: new credentials of the same member.
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
    kind: Kind,
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
