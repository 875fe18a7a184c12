//! Why the certificate authority (CA) refuses a request, with texts that name the action to take.

use volvox_protocol::id::CellId;

use super::{MEMBERS, TOKENS};
use crate::identity::{CertificateError, MemberId, MemberKind};
use crate::tls::token::TokenId;

/// Why the CA refused. The registry is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnrolmentRefusal {
    /// The token is unknown, or its secret is wrong. The reply does not show which.
    #[error("the join token is not valid here; make a new one on the coordinator")]
    TokenUnknown,
    /// The token has expired.
    #[error("join token {0} has expired; make a new one on the coordinator")]
    TokenExpired(TokenId),
    /// The token has no uses left.
    #[error("join token {0} is used up; make a new one on the coordinator")]
    TokenUsedUp(TokenId),
    /// The token is for the other kind of member.
    #[error("join token {token} is for a {wants:?}, not for a {given:?}")]
    WrongKind {
        /// Id of the token.
        token: TokenId,
        /// Kind that the token is for.
        wants: MemberKind,
        /// Kind that was requested.
        given: MemberKind,
    },
    /// The token is for another name.
    #[error("join token {token} is for {wants:?} only, not for {given:?}")]
    WrongName {
        /// Id of the token.
        token: TokenId,
        /// Name that the token is for.
        wants: CellId,
        /// Name that was requested.
        given: CellId,
    },
    /// Another member has the name.
    #[error("{name} belongs to member {member}: revoke it first")]
    NameTaken {
        /// The requested name.
        name: CellId,
        /// The member that has it.
        member: MemberId,
    },
    /// The member was revoked. This is permanent: the machine must join as a new member.
    #[error("member {0} was revoked; join again with a new token")]
    MemberRevoked(MemberId),
    /// The member id or name is not in the registry.
    #[error("there is no member {0}; list the members, or join with a token")]
    MemberUnknown(String),
    /// The request is signed with a key that the member no longer uses.
    #[error("member {0} has another key by now; join again with a new token")]
    OutdatedKey(MemberId),
    /// Too many certificates for one member in a short time: each must start in another second.
    #[error("member {0} renews too often; wait a minute")]
    TooOften(MemberId),
    /// The request does not prove that the machine has the private key.
    #[error("the request is not signed with the key that it names")]
    BadProof,
    /// The certificate to renew was not issued by this CA, or is malformed.
    #[error("{0}")]
    BadCertificate(#[from] CertificateError),
    /// The registry has [`MEMBERS`] members.
    #[error("the register holds {MEMBERS} members and takes no more")]
    TooManyMembers,
    /// The registry has [`TOKENS`] tokens.
    #[error("there are {TOKENS} join tokens; revoke some, or wait until some expire")]
    TooManyTokens,
    /// The parameters of a new token are out of range; the text names the range.
    #[error("no such token can be made: {0}")]
    BadOrder(&'static str),
    /// The token to revoke is unknown.
    #[error("there is no join token {0}")]
    NoSuchToken(TokenId),
    /// The new id is already in use: the caller's randomness is not random.
    #[error("the id {0} is in use")]
    IdInUse(String),
}

impl EnrolmentRefusal {
    /// Whether the same request may succeed later.
    pub fn is_passing(&self) -> bool {
        matches!(self, EnrolmentRefusal::TooOften(_) | EnrolmentRefusal::IdInUse(_))
    }
}
