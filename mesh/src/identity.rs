//! Identity of a member, and what proves it.
//!
//! The certificate authority (CA) of the cluster assigns a [`MemberId`] to each member and writes
//! it into the member's certificate. A member signs its records with the key of the certificate, so
//! that a copy from another member can be verified. An [`Authenticator`] signs and verifies: the
//! real one is in `tls`, simulations use one without cryptography.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

/// Id of a member in the mesh: random, assigned by the CA when the member joins, and valid for as
/// long as it is a member. A machine that is installed again and joins again gets another id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub [u8; 16]);

impl MemberId {
    /// Parses an id as [`Display`](fmt::Display) writes it: 32 hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Option<MemberId> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u128::from_str_radix(text, 16).ok().filter(|_| is_hex)?;
        Some(MemberId(id.to_be_bytes()))
    }

    /// The id as two numbers, for hashes.
    pub(crate) const fn halves(self) -> (u64, u64) {
        let whole = u128::from_le_bytes(self.0);
        #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
        (whole as u64, (whole >> 64) as u64)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..4].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Kind of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum MemberKind {
    /// A machine that runs containers.
    Cell,
    /// The member that stores the board. Its suspicion alone is enough evidence for every member;
    /// that of one cell is not.
    Coordinator,
}

/// Identity of a member, read from its certificate after the certificate was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberIdentity {
    /// Id of the member.
    pub member: MemberId,
    /// Kind of the member: cell or coordinator.
    pub kind: MemberKind,
    /// Cell id, or the name of a coordinator.
    pub name: CellId,
    /// Ed25519 public key that verifies the member's signatures.
    pub public_key: [u8; 32],
    /// Start of the certificate's validity. Of two certificates of one member, the later one
    /// counts.
    pub not_before: Timestamp,
    /// End of the certificate's validity.
    pub not_after: Timestamp,
}

/// An Ed25519 signature: 64 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl Signature {
    /// All zeros: for a record that contains its own proof, which is a certificate.
    pub const NONE: Signature = Signature([0; 64]);
}

impl Serialize for Signature {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (head, tail) = self.0.split_at(32);
        let half = |bytes: &[u8]| <[u8; 32]>::try_from(bytes).expect("a half of 64 bytes");
        (half(head), half(tail)).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Signature {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let (head, tail) = <([u8; 32], [u8; 32])>::deserialize(from)?;
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&head);
        bytes[32..].copy_from_slice(&tail);
        Ok(Signature(bytes))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

/// Why a certificate was rejected. Nothing of it is used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Not a certificate, or not one of Volvox: wrong structure, key or extensions.
    #[error("the certificate is malformed: {0}")]
    Malformed(String),
    /// Signed by the CA of another cluster.
    #[error("the certificate is not from this cluster's authority")]
    Foreign,
    /// The time is before or after the certificate's validity.
    #[error("the certificate is not valid at this time")]
    Expired,
    /// The member was revoked.
    #[error("member {0} was revoked")]
    Revoked(MemberId),
}

/// Signs for this member, and verifies certificates and signatures of others. Pure.
pub trait Authenticator {
    /// Signs `statement` with the key of this member.
    fn sign(&self, statement: &[u8]) -> Signature;

    /// Verifies a certificate (X.509, DER) against the CA and the time. Does not check revocations;
    /// the caller does.
    fn identity(
        &self,
        now: Timestamp,
        certificate: &[u8],
    ) -> Result<Arc<MemberIdentity>, CertificateError>;

    /// Whether `signature` over `statement` was made by the member with this `identity`.
    fn verify(&self, identity: &MemberIdentity, statement: &[u8], signature: &Signature) -> bool;
}
