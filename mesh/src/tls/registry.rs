//! The registry of the certificate authority (CA): issued certificates, revoked members, and valid
//! join tokens.
//!
//! Pure: the caller passes ids, secrets and the time. An `Err` leaves the registry unchanged. The
//! CA writes the registry to disk before it answers, so a decision made here is durable.
//!
//! Of two certificates of one member, the one that starts later counts, in whole seconds. So no two
//! of them start in the same second, and none starts before its predecessor.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::certificate::{CertificateContent, SKEW};
use super::token::{SecretHash, TokenId, TokenSecret};
use crate::identity::{MemberId, MemberIdentity, MemberKind};

mod refusal;

pub use refusal::EnrolmentRefusal;

/// Maximum number of members in the registry, the revoked ones included.
pub const MEMBERS: usize = 50_000;
/// Maximum number of join tokens.
pub const TOKENS: usize = 1_000;
/// Maximum number of uses of one join token.
pub const TOKEN_USES: u32 = 10_000;
/// Maximum lifetime of a join token.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// Maximum length of a token's label, in bytes.
pub const LABEL_BYTES: usize = 100;

/// How long an expired token stays in the registry: a cell whose reply was lost may ask again. Also
/// how long a revoked member stays after its last certificate expired, for clocks that are behind.
const GRACE: Duration = Duration::from_secs(86_400);

/// A member that asks again with the same key gets the same certificate during this fraction (1/4)
/// of its validity.
const YOUNG: u32 = 4;

/// Certificates contain whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// What to do when another member already has the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameConflict {
    /// Refuse the new machine.
    Refuse,
    /// Revoke the member that has the name. For a machine that was installed again.
    Replace,
}

/// Parameters of a new join token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOrder {
    /// Kind of the members that join with it.
    pub kind: MemberKind,
    /// The only name that may join. `None`: any name.
    pub cell: Option<CellId>,
    /// What to do on a name conflict. `Replace` requires `cell`.
    pub clash: NameConflict,
    /// Number of machines that may join with it, 1 to [`TOKEN_USES`].
    pub uses: u32,
    /// Lifetime, one second to [`TOKEN_LIFETIME`].
    pub lifetime: Duration,
    /// Label for operators, at most [`LABEL_BYTES`] bytes. May be empty.
    pub label: String,
}

/// A join token, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Token {
    hash: SecretHash,
    /// Kind of the members that join with it.
    pub kind: MemberKind,
    /// The only name that may join. `None`: any name.
    pub cell: Option<CellId>,
    /// What to do on a name conflict.
    pub clash: NameConflict,
    /// Number of machines that may still join with it. 0: the token is used up.
    pub uses_left: u32,
    /// Time when the token was created.
    pub created: Timestamp,
    /// Time until which the token may be used.
    pub expires: Timestamp,
    /// Label for operators. May be empty.
    pub label: String,
}

/// A member and its newest certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegisteredMember {
    /// Kind of the member: cell or coordinator.
    pub kind: MemberKind,
    /// Cell id, or the name of a coordinator.
    pub name: CellId,
    /// Public key of its newest certificate.
    pub public_key: [u8; 32],
    /// Its previous public key. Still accepted for renewal, because the reply with the newest
    /// certificate may have been lost. `None`: the key never changed, or the member has renewed
    /// with the newest key.
    pub previous_key: Option<[u8; 32]>,
    /// Serial number of its newest certificate.
    pub serial: u64,
    /// Start of validity of its newest certificate.
    pub not_before: Timestamp,
    /// End of validity of its newest certificate.
    pub not_after: Timestamp,
    /// End of validity of its longest valid certificate.
    pub last_ends: Timestamp,
    /// Time when the member joined.
    pub joined: Timestamp,
    /// Id of its join token. `None`: appointed on the machine of the CA, without a token.
    pub token: Option<TokenId>,
    /// Time when the member was revoked. `None`: it is not revoked.
    pub revoked: Option<Timestamp>,
}

/// A revoked member. The mesh needs this entry for as long as a certificate of the member is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Id of the revoked member.
    pub member: MemberId,
    /// Time of the revocation.
    pub at: Timestamp,
    /// End of validity of the member's last certificate. After that the entry may be deleted.
    pub until: Timestamp,
}

/// Selects the member to revoke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberSelector {
    /// By member id.
    Member(MemberId),
    /// By kind and name: the member that is not revoked.
    Name(MemberKind, CellId),
}

/// A request to become a member. The caller has verified that the machine has the private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentRequest {
    /// Requested kind: cell or coordinator.
    pub kind: MemberKind,
    /// Requested cell id or coordinator name.
    pub name: CellId,
    /// Public key of the machine.
    pub public_key: [u8; 32],
}

/// The registry of the CA: members, join tokens and the last serial number.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CaRegistry {
    members: BTreeMap<MemberId, RegisteredMember>,
    tokens: BTreeMap<TokenId, Token>,
    last_serial: u64,
}

impl CaRegistry {
    /// All members by id, the revoked ones included.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &RegisteredMember)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// One member. `None`: the id is unknown.
    pub fn member(&self, id: MemberId) -> Option<&RegisteredMember> {
        self.members.get(&id)
    }

    /// All join tokens by id, expired ones included until [`CaRegistry::prune`].
    pub fn tokens(&self) -> impl Iterator<Item = (TokenId, &Token)> {
        self.tokens.iter().map(|(id, token)| (*id, token))
    }

    /// Whether nothing was ever recorded.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.tokens.is_empty() && self.last_serial == 0
    }

    /// The revoked members that may still have a valid certificate.
    pub fn revoked(&self) -> Vec<Revoked> {
        let entry = |(member, record): (&MemberId, &RegisteredMember)| {
            let until = record.last_ends;
            record.revoked.map(|at| Revoked { member: *member, at, until })
        };
        self.members.iter().filter_map(entry).collect()
    }

    /// Creates a join token.
    pub fn create_token(
        &mut self,
        now: Timestamp,
        id: TokenId,
        secret: &TokenSecret,
        order: TokenOrder,
    ) -> Result<(), EnrolmentRefusal> {
        let TokenOrder { kind, cell, clash, uses, lifetime, label } = order;
        if clash == NameConflict::Replace && cell.is_none() {
            return Err(EnrolmentRefusal::BadOrder(
                "one that replaces a member must be for one name",
            ));
        }
        if uses == 0 || uses > TOKEN_USES {
            return Err(EnrolmentRefusal::BadOrder("it is used 1 to 10000 times"));
        }
        if lifetime < SECOND || lifetime > TOKEN_LIFETIME {
            return Err(EnrolmentRefusal::BadOrder("it is valid for a second to a year"));
        }
        if label.len() > LABEL_BYTES || label.chars().any(char::is_control) {
            return Err(EnrolmentRefusal::BadOrder("its label has up to 100 printable bytes"));
        }
        if self.tokens.len() >= TOKENS {
            return Err(EnrolmentRefusal::TooManyTokens);
        }
        if self.tokens.contains_key(&id) {
            return Err(EnrolmentRefusal::IdInUse(id.to_string()));
        }
        let (hash, expires) = (secret.hash(), now + lifetime);
        let created = now;
        let token = Token { hash, kind, cell, clash, uses_left: uses, created, expires, label };
        self.tokens.insert(id, token);
        Ok(())
    }

    /// Revokes a join token. Members that joined with it stay.
    pub fn revoke_token(&mut self, id: TokenId) -> Result<(), EnrolmentRefusal> {
        self.tokens.remove(&id).map(|_| ()).ok_or(EnrolmentRefusal::NoSuchToken(id))
    }

    /// Enrols a machine with a join token. `fresh` is the member id, if it becomes a new member.
    ///
    /// A machine that asks again with the same token, key and name is the same member, because the
    /// first reply may have been lost. It does not use up the token further.
    pub fn enrol(
        &mut self,
        now: Timestamp,
        validity: Duration,
        fresh: MemberId,
        (id, secret): (TokenId, &TokenSecret),
        applicant: EnrolmentRequest,
    ) -> Result<CertificateContent, EnrolmentRefusal> {
        let token = match self.tokens.get(&id) {
            Some(token) if token.hash.is_of(secret) => token,
            Some(_) => return Err(EnrolmentRefusal::TokenUnknown),
            None => {
                // Takes the same time as a wrong secret.
                let _ = secret.hash().is_of(secret);
                return Err(EnrolmentRefusal::TokenUnknown);
            }
        };
        let again = self.members.iter().find(|(_, member)| {
            member.token == Some(id)
                && member.public_key == applicant.public_key
                && member.name == applicant.name
                && member.kind == applicant.kind
        });
        if let Some((member, _)) = again {
            return self.reissue(now, validity, *member, applicant.public_key);
        }
        if now > token.expires {
            return Err(EnrolmentRefusal::TokenExpired(id));
        }
        if token.uses_left == 0 {
            return Err(EnrolmentRefusal::TokenUsedUp(id));
        }
        if token.kind != applicant.kind {
            let (wants, given) = (token.kind, applicant.kind);
            return Err(EnrolmentRefusal::WrongKind { token: id, wants, given });
        }
        if let Some(wants) = token.cell.as_ref().filter(|wants| **wants != applicant.name) {
            let (wants, given) = (wants.clone(), applicant.name);
            return Err(EnrolmentRefusal::WrongName { token: id, wants, given });
        }
        let clash = token.clash;
        let terms = self.admit(now, validity, fresh, applicant, clash, Some(id))?;
        let token = self.tokens.get_mut(&id).expect("it was there above");
        token.uses_left -= 1;
        Ok(terms)
    }

    /// Enrols without a token, for the machine of the CA. The same key and name again give the same
    /// member.
    pub fn appoint(
        &mut self,
        now: Timestamp,
        validity: Duration,
        fresh: MemberId,
        applicant: EnrolmentRequest,
        clash: NameConflict,
    ) -> Result<CertificateContent, EnrolmentRefusal> {
        if let Some((id, member)) = self.live(applicant.kind, &applicant.name)
            && member.public_key == applicant.public_key
        {
            return self.reissue(now, validity, id, applicant.public_key);
        }
        self.admit(now, validity, fresh, applicant, clash, None)
    }

    /// Renews the certificate of `old` for `public_key`. The caller has verified the certificate
    /// `old` (it may be expired) and that its key signed the request.
    pub fn renew(
        &mut self,
        now: Timestamp,
        validity: Duration,
        old: &MemberIdentity,
        public_key: [u8; 32],
    ) -> Result<CertificateContent, EnrolmentRefusal> {
        let member = self
            .members
            .get(&old.member)
            .ok_or_else(|| EnrolmentRefusal::MemberUnknown(old.member.to_string()))?;
        if member.revoked.is_some() {
            return Err(EnrolmentRefusal::MemberRevoked(old.member));
        }
        // An older key may have been stolen. And a replayed old request must not restore an old
        // key.
        let is_its_key =
            member.public_key == old.public_key || member.previous_key == Some(old.public_key);
        if !is_its_key {
            return Err(EnrolmentRefusal::OutdatedKey(old.member));
        }
        let terms = self.reissue(now, validity, old.member, public_key)?;
        let member = self.members.get_mut(&old.member).expect("it was there above");
        member.previous_key = (terms.public_key != old.public_key).then_some(old.public_key);
        Ok(terms)
    }

    /// Revokes a member permanently. Revoking it again is not an error.
    pub fn revoke(
        &mut self,
        now: Timestamp,
        whom: &MemberSelector,
    ) -> Result<MemberId, EnrolmentRefusal> {
        let id = match whom {
            MemberSelector::Member(id) => *id,
            MemberSelector::Name(kind, name) => match self.live(*kind, name) {
                Some((id, _)) => id,
                None => return Err(EnrolmentRefusal::MemberUnknown(name.to_string())),
            },
        };
        let member = self
            .members
            .get_mut(&id)
            .ok_or_else(|| EnrolmentRefusal::MemberUnknown(id.to_string()))?;
        member.revoked.get_or_insert(now);
        Ok(id)
    }

    /// Deletes expired tokens, and revoked members whose certificates are expired. Members that are
    /// not revoked stay, however long ago their certificates expired: they may return. Returns the
    /// number of deleted entries.
    pub fn prune(&mut self, now: Timestamp) -> usize {
        let before = self.members.len() + self.tokens.len();
        self.tokens.retain(|_, token| now <= token.expires + GRACE);
        self.members
            .retain(|_, member| member.revoked.is_none() || now <= member.last_ends + GRACE);
        before - self.members.len() - self.tokens.len()
    }

    fn live(&self, kind: MemberKind, name: &CellId) -> Option<(MemberId, &RegisteredMember)> {
        let is_it = |member: &RegisteredMember| {
            member.revoked.is_none() && member.kind == kind && member.name == *name
        };
        self.members().find(|(_, member)| is_it(member))
    }

    /// Adds a new member, if the name conflict rule allows it.
    fn admit(
        &mut self,
        now: Timestamp,
        validity: Duration,
        fresh: MemberId,
        applicant: EnrolmentRequest,
        clash: NameConflict,
        token: Option<TokenId>,
    ) -> Result<CertificateContent, EnrolmentRefusal> {
        let EnrolmentRequest { kind, name, public_key } = applicant;
        if self.members.len() >= MEMBERS {
            return Err(EnrolmentRefusal::TooManyMembers);
        }
        if self.members.contains_key(&fresh) {
            return Err(EnrolmentRefusal::IdInUse(fresh.to_string()));
        }
        match (self.live(kind, &name).map(|(id, _)| id), clash) {
            (Some(member), NameConflict::Refuse) => {
                return Err(EnrolmentRefusal::NameTaken { name, member });
            }
            (Some(member), NameConflict::Replace) => {
                self.revoke(now, &MemberSelector::Member(member))?;
            }
            (None, NameConflict::Refuse | NameConflict::Replace) => {}
        }
        let (not_before, not_after) = (whole(now - SKEW), whole(now + validity));
        self.last_serial += 1;
        let member = RegisteredMember {
            kind,
            name,
            public_key,
            previous_key: None,
            serial: self.last_serial,
            not_before,
            not_after,
            last_ends: not_after,
            joined: now,
            token,
            revoked: None,
        };
        let terms = terms(fresh, &member);
        self.members.insert(fresh, member);
        Ok(terms)
    }

    /// Issues another certificate for a member. Returns the same one if it is young and for the
    /// same key.
    fn reissue(
        &mut self,
        now: Timestamp,
        validity: Duration,
        id: MemberId,
        public_key: [u8; 32],
    ) -> Result<CertificateContent, EnrolmentRefusal> {
        let member = self
            .members
            .get_mut(&id)
            .ok_or_else(|| EnrolmentRefusal::MemberUnknown(id.to_string()))?;
        if member.revoked.is_some() {
            return Err(EnrolmentRefusal::MemberRevoked(id));
        }
        let life = member.not_after.since(member.not_before);
        let young = now >= member.not_before && now < member.not_before + life / YOUNG;
        if young && member.public_key == public_key {
            return Ok(terms(id, member));
        }
        let not_before = if member.not_before > now {
            // The clock of the CA was set back, and the newest certificate is not valid yet. A
            // certificate that starts after it would be unusable until then.
            whole(now - SKEW)
        } else {
            whole(now - SKEW).max(member.not_before + SECOND)
        };
        if not_before > now {
            return Err(EnrolmentRefusal::TooOften(id));
        }
        self.last_serial += 1;
        member.serial = self.last_serial;
        member.public_key = public_key;
        member.not_before = not_before;
        member.not_after = whole(now + validity);
        member.last_ends = member.last_ends.max(member.not_after);
        Ok(terms(id, member))
    }
}

/// Rounds down: certificates contain whole seconds.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_secs(at.as_nanos() / 1_000_000_000)
}

fn terms(id: MemberId, member: &RegisteredMember) -> CertificateContent {
    CertificateContent {
        member: id,
        kind: member.kind,
        name: member.name.clone(),
        public_key: member.public_key,
        serial: member.serial,
        not_before: member.not_before,
        not_after: member.not_after,
    }
}

#[cfg(test)]
mod tests;
