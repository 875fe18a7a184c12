//! Why the authority says no, in words that say what to do instead.

use volvox_protocol::id::CellId;

use super::{MEMBERS, TOKENS};
use crate::identity::{CertificateError, Kind, MemberId};
use crate::tls::token::TokenId;

/// Why the authority said no. Nothing changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Unknown, or the secret is wrong: one does not learn which.
    #[error("the join token is not valid here; make a new one on the coordinator")]
    TokenUnknown,
    /// Too late.
    #[error("join token {0} has expired; make a new one on the coordinator")]
    TokenExpired(TokenId),
    /// As many joined with it as may.
    #[error("join token {0} is used up; make a new one on the coordinator")]
    TokenUsedUp(TokenId),
    /// The token is for the other kind.
    #[error("join token {token} is for a {wants:?}, not for a {given:?}")]
    WrongKind {
        /// Which token.
        token: TokenId,
        /// What it is for.
        wants: Kind,
        /// What the applicant is.
        given: Kind,
    },
    /// The token is for another name.
    #[error("join token {token} is for {wants:?} only, not for {given:?}")]
    WrongName {
        /// Which token.
        token: TokenId,
        /// MemberSelector it is for.
        wants: CellId,
        /// Who came.
        given: CellId,
    },
    /// The name is somebody's.
    #[error("{name} belongs to member {member}: revoke it first")]
    NameTaken {
        /// The name.
        name: CellId,
        /// Whose it is.
        member: MemberId,
    },
    /// Expelled. For good: such a machine joins as a new member.
    #[error("member {0} was revoked; join again with a new token")]
    MemberRevoked(MemberId),
    /// Not in the register.
    #[error("there is no member {0}; list the members, or join with a token")]
    MemberUnknown(String),
    /// The request is signed with a key that is no longer the member's.
    #[error("member {0} has another key by now; join again with a new token")]
    OutdatedKey(MemberId),
    /// Several certificates in a second.
    #[error("member {0} renews too often; wait a minute")]
    TooOften(MemberId),
    /// The applicant did not prove that it has the key.
    #[error("the request is not signed with the key that it names")]
    BadProof,
    /// The certificate that shall be renewed is none of ours.
    #[error("{0}")]
    BadCertificate(#[from] CertificateError),
    /// [`MEMBERS`].
    #[error("the register holds {MEMBERS} members and takes no more")]
    TooManyMembers,
    /// [`TOKENS`].
    #[error("there are {TOKENS} join tokens; revoke some, or wait until some expire")]
    TooManyTokens,
    /// An order that makes no sense.
    #[error("no such token can be made: {0}")]
    BadOrder(&'static str),
    /// No such token.
    #[error("there is no join token {0}")]
    NoSuchToken(TokenId),
    /// An id that is in use: the caller's randomness is not random.
    #[error("the id {0} is in use")]
    IdInUse(String),
}

impl Refusal {
    /// Whether asking the same again may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Refusal::TooOften(_) | Refusal::IdInUse(_))
    }
}
