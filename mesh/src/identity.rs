//! Who a member of the mesh is, and what proves it.
//!
//! A member is known by a [`MemberId`] that the cluster's authority gave it and wrote into its
//! certificate. What a member says of itself it signs with the certificate's key, so that a copy
//! which came through others can be checked. How that is done is a [`Authenticator`]'s: the real one is in
//! `tls`, simulations have one that costs nothing.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

/// A member's name in the mesh: random, given by the authority when the member joined, and its own
/// for as long as it is a member. A machine that is set up anew gets another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberId(pub [u8; 16]);

impl MemberId {
    /// The id that [`Display`](fmt::Display) wrote.
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

/// What a member is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Runs containers.
    Cell,
    /// Holds the board. Its word about who is missing counts for all.
    Coordinator,
}

/// MemberSelector a certificate is for, as read from it after it was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberIdentity {
    /// The member.
    pub member: MemberId,
    /// What it is for.
    pub kind: Kind,
    /// A cell's id, or the name of a coordinator.
    pub name: CellId,
    /// The key with which it signs: Ed25519.
    pub public_key: [u8; 32],
    /// When the certificate was issued: of two for one member, the later one counts.
    pub not_before: Timestamp,
    /// When the certificate ends.
    pub not_after: Timestamp,
}

/// A signature: Ed25519.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

impl Signature {
    /// For what carries its proof inside: a certificate.
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

/// Why a certificate was not accepted. Nothing was kept of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// Not a certificate, or not one of ours: the wrong shape, key or extensions.
    #[error("the certificate is malformed: {0}")]
    Malformed(String),
    /// Signed by somebody else: another cluster's authority.
    #[error("the certificate is not from this cluster's authority")]
    Foreign,
    /// Too late, or too early.
    #[error("the certificate is not valid at this time")]
    Expired,
    /// The member was expelled.
    #[error("member {0} was revoked")]
    Revoked(MemberId),
}

/// Signs for this member and checks what others signed. Computes, and does nothing else.
pub trait Authenticator {
    /// Our signature under `statement`.
    fn sign(&self, statement: &[u8]) -> Signature;

    /// Checks a certificate (X.509, DER) against the authority and the time. Knows nothing of
    /// revocations: those are the caller's.
    fn identity(
        &self,
        now: Timestamp,
        certificate: &[u8],
    ) -> Result<Arc<MemberIdentity>, CertificateError>;

    /// Whether `signature` is `holder`'s, under `statement`.
    fn verify(&self, identity: &MemberIdentity, statement: &[u8], signature: &Signature) -> bool;
}
