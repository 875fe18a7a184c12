//! The authority's register: who was issued what, who was expelled, which tokens may still be used.
//!
//! Pure: ids, secrets and the time come from outside, an `Err` leaves everything as it was. The
//! authority writes the register down before it answers, so what is decided here holds.
//!
//! Of two certificates of one member the later one counts, by the second in which it begins. So no
//! two begin in the same second, and none begins before the one that went before it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::certificate::{CertificateContent, SKEW};
use super::token::{SecretHash, TokenId, TokenSecret};
use crate::identity::{Kind, MemberId, MemberIdentity};

mod refusal;

pub use refusal::Refusal;

/// How many members the register holds, the expelled ones with it.
pub const MEMBERS: usize = 50_000;
/// How many tokens there may be at a time.
pub const TOKENS: usize = 1_000;
/// How often one token may be used.
pub const TOKEN_USES: u32 = 10_000;
/// How long a token may be valid.
pub const TOKEN_LIFETIME: Duration = Duration::from_secs(365 * 86_400);
/// How long a token's label may be.
pub const LABEL_BYTES: usize = 100;

/// How long after its end a token is still known: a cell whose reply was lost may ask again. And
/// how long after its last certificate an expelled member is, for clocks that are behind.
const GRACE: Duration = Duration::from_secs(86_400);

/// Who asks again with the same key gets the same certificate for this share of its life.
const YOUNG: u32 = 4;

/// Certificates name whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// What to do when the name is a live member's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameConflict {
    /// Refuse.
    Refuse,
    /// Expel the one that has it. For a machine that was set up anew.
    Replace,
}

/// What a new token shall be worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOrder {
    /// What its members will be.
    pub kind: Kind,
    /// For exactly this name, or for any.
    pub cell: Option<CellId>,
    /// What to do when the name is taken. To replace, the token must be for one name.
    pub clash: NameConflict,
    /// How often it may be used.
    pub uses: u32,
    /// For how long.
    pub lifetime: Duration,
    /// For people.
    pub label: String,
}

/// A token, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Token {
    hash: SecretHash,
    /// What its members will be.
    pub kind: Kind,
    /// For exactly this name, or for any.
    pub cell: Option<CellId>,
    /// What to do when the name is taken.
    pub clash: NameConflict,
    /// How often it may still be used.
    pub uses_left: u32,
    /// When it was made.
    pub created: Timestamp,
    /// Until when it may be used.
    pub expires: Timestamp,
    /// For people.
    pub label: String,
}

/// A member, and its newest certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// What it is for.
    pub kind: Kind,
    /// A cell's id, or the name of a coordinator.
    pub name: CellId,
    /// The key of its newest certificate.
    pub public_key: [u8; 32],
    /// The key before that: it may still ask, as long as the reply with the newest may be lost.
    pub previous_key: Option<[u8; 32]>,
    /// The serial number of its newest certificate.
    pub serial: u64,
    /// When its newest certificate begins.
    pub not_before: Timestamp,
    /// When its newest certificate ends.
    pub not_after: Timestamp,
    /// When the last of all its certificates ends.
    pub last_ends: Timestamp,
    /// When it joined.
    pub joined: Timestamp,
    /// With which token; none for those whom the authority's own machine appointed.
    pub token: Option<TokenId>,
    /// When it was expelled.
    pub revoked: Option<Timestamp>,
}

/// A member that was expelled: what the mesh must know for as long as a certificate of it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// Who.
    pub member: MemberId,
    /// Since when.
    pub at: Timestamp,
    /// When the last of its certificates ends, and the entry may be forgotten.
    pub until: Timestamp,
}

/// MemberSelector to expel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberSelector {
    /// This member.
    Member(MemberId),
    /// The live member with this name.
    Name(Kind, CellId),
}

/// Who asks to be enrolled, and as what. That it has the key is checked before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolmentRequest {
    /// What it wants to be.
    pub kind: Kind,
    /// The name that it wants.
    pub name: CellId,
    /// Its key.
    pub public_key: [u8; 32],
}

/// The register. See the module's words.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CaRegistry {
    members: BTreeMap<MemberId, Member>,
    tokens: BTreeMap<TokenId, Token>,
    last_serial: u64,
}

impl CaRegistry {
    /// All members, the expelled ones too, by id.
    pub fn members(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.members.iter().map(|(id, member)| (*id, member))
    }

    /// One member.
    pub fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.get(&id)
    }

    /// All tokens, by id.
    pub fn tokens(&self) -> impl Iterator<Item = (TokenId, &Token)> {
        self.tokens.iter().map(|(id, token)| (*id, token))
    }

    /// Whether nothing was ever entered.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.tokens.is_empty() && self.last_serial == 0
    }

    /// The expelled members that may still show a certificate.
    pub fn revoked(&self) -> Vec<Revoked> {
        let entry = |(member, record): (&MemberId, &Member)| {
            let until = record.last_ends;
            record.revoked.map(|at| Revoked { member: *member, at, until })
        };
        self.members.iter().filter_map(entry).collect()
    }

    /// Makes a token.
    pub fn create_token(
        &mut self,
        now: Timestamp,
        id: TokenId,
        secret: &TokenSecret,
        order: TokenOrder,
    ) -> Result<(), Refusal> {
        let TokenOrder { kind, cell, clash, uses, lifetime, label } = order;
        if clash == NameConflict::Replace && cell.is_none() {
            return Err(Refusal::BadOrder("one that replaces a member must be for one name"));
        }
        if uses == 0 || uses > TOKEN_USES {
            return Err(Refusal::BadOrder("it is used 1 to 10000 times"));
        }
        if lifetime < SECOND || lifetime > TOKEN_LIFETIME {
            return Err(Refusal::BadOrder("it is valid for a second to a year"));
        }
        if label.len() > LABEL_BYTES || label.chars().any(char::is_control) {
            return Err(Refusal::BadOrder("its label has up to 100 printable bytes"));
        }
        if self.tokens.len() >= TOKENS {
            return Err(Refusal::TooManyTokens);
        }
        if self.tokens.contains_key(&id) {
            return Err(Refusal::IdInUse(id.to_string()));
        }
        let (hash, expires) = (secret.hash(), now + lifetime);
        let created = now;
        let token = Token { hash, kind, cell, clash, uses_left: uses, created, expires, label };
        self.tokens.insert(id, token);
        Ok(())
    }

    /// Takes a token back. Who joined with it stays.
    pub fn revoke_token(&mut self, id: TokenId) -> Result<(), Refusal> {
        self.tokens.remove(&id).map(|_| ()).ok_or(Refusal::NoSuchToken(id))
    }

    /// Enrols the bearer of a token. `fresh` is the id of the member, should it be a new one.
    ///
    /// Who asks again with the same token, key and name is the same member, and the token is not
    /// used up further: the first reply may have been lost.
    pub fn enrol(
        &mut self,
        now: Timestamp,
        validity: Duration,
        fresh: MemberId,
        (id, secret): (TokenId, &TokenSecret),
        applicant: EnrolmentRequest,
    ) -> Result<CertificateContent, Refusal> {
        let token = match self.tokens.get(&id) {
            Some(token) if token.hash.is_of(secret) => token,
            Some(_) => return Err(Refusal::TokenUnknown),
            None => {
                // As much work as for a wrong secret.
                let _ = secret.hash().is_of(secret);
                return Err(Refusal::TokenUnknown);
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
            return Err(Refusal::TokenExpired(id));
        }
        if token.uses_left == 0 {
            return Err(Refusal::TokenUsedUp(id));
        }
        if token.kind != applicant.kind {
            let (wants, given) = (token.kind, applicant.kind);
            return Err(Refusal::WrongKind { token: id, wants, given });
        }
        if let Some(wants) = token.cell.as_ref().filter(|wants| **wants != applicant.name) {
            let (wants, given) = (wants.clone(), applicant.name);
            return Err(Refusal::WrongName { token: id, wants, given });
        }
        let clash = token.clash;
        let terms = self.admit(now, validity, fresh, applicant, clash, Some(id))?;
        let token = self.tokens.get_mut(&id).expect("it was there above");
        token.uses_left -= 1;
        Ok(terms)
    }

    /// Enrols without a token: for the authority's own machine. The same key and name again are the
    /// same member.
    pub fn appoint(
        &mut self,
        now: Timestamp,
        validity: Duration,
        fresh: MemberId,
        applicant: EnrolmentRequest,
        clash: NameConflict,
    ) -> Result<CertificateContent, Refusal> {
        if let Some((id, member)) = self.live(applicant.kind, &applicant.name)
            && member.public_key == applicant.public_key
        {
            return self.reissue(now, validity, id, applicant.public_key);
        }
        self.admit(now, validity, fresh, applicant, clash, None)
    }

    /// Renews the certificate of `old`, which was checked (its end does not matter), for
    /// `public_key`. `old`'s key signed the request.
    pub fn renew(
        &mut self,
        now: Timestamp,
        validity: Duration,
        old: &MemberIdentity,
        public_key: [u8; 32],
    ) -> Result<CertificateContent, Refusal> {
        let member = self
            .members
            .get(&old.member)
            .ok_or_else(|| Refusal::MemberUnknown(old.member.to_string()))?;
        if member.revoked.is_some() {
            return Err(Refusal::MemberRevoked(old.member));
        }
        // An older key may have been lost to somebody. And an old request that is played again must
        // not bring an old key back.
        let is_its_key =
            member.public_key == old.public_key || member.previous_key == Some(old.public_key);
        if !is_its_key {
            return Err(Refusal::OutdatedKey(old.member));
        }
        let terms = self.reissue(now, validity, old.member, public_key)?;
        let member = self.members.get_mut(&old.member).expect("it was there above");
        member.previous_key = (terms.public_key != old.public_key).then_some(old.public_key);
        Ok(terms)
    }

    /// Expels a member, for good. Again is no error.
    pub fn revoke(&mut self, now: Timestamp, whom: &MemberSelector) -> Result<MemberId, Refusal> {
        let id = match whom {
            MemberSelector::Member(id) => *id,
            MemberSelector::Name(kind, name) => match self.live(*kind, name) {
                Some((id, _)) => id,
                None => return Err(Refusal::MemberUnknown(name.to_string())),
            },
        };
        let member =
            self.members.get_mut(&id).ok_or_else(|| Refusal::MemberUnknown(id.to_string()))?;
        member.revoked.get_or_insert(now);
        Ok(id)
    }

    /// Forgets tokens that ended, and expelled members whose certificates did. Live members stay,
    /// however long their certificates ended ago: they may come back. Says how many it forgot.
    pub fn prune(&mut self, now: Timestamp) -> usize {
        let before = self.members.len() + self.tokens.len();
        self.tokens.retain(|_, token| now <= token.expires + GRACE);
        self.members
            .retain(|_, member| member.revoked.is_none() || now <= member.last_ends + GRACE);
        before - self.members.len() - self.tokens.len()
    }

    fn live(&self, kind: Kind, name: &CellId) -> Option<(MemberId, &Member)> {
        let is_it = |member: &Member| {
            member.revoked.is_none() && member.kind == kind && member.name == *name
        };
        self.members().find(|(_, member)| is_it(member))
    }

    /// A new member, when the name allows it.
    fn admit(
        &mut self,
        now: Timestamp,
        validity: Duration,
        fresh: MemberId,
        applicant: EnrolmentRequest,
        clash: NameConflict,
        token: Option<TokenId>,
    ) -> Result<CertificateContent, Refusal> {
        let EnrolmentRequest { kind, name, public_key } = applicant;
        if self.members.len() >= MEMBERS {
            return Err(Refusal::TooManyMembers);
        }
        if self.members.contains_key(&fresh) {
            return Err(Refusal::IdInUse(fresh.to_string()));
        }
        match (self.live(kind, &name).map(|(id, _)| id), clash) {
            (Some(member), NameConflict::Refuse) => {
                return Err(Refusal::NameTaken { name, member });
            }
            (Some(member), NameConflict::Replace) => {
                self.revoke(now, &MemberSelector::Member(member))?;
            }
            (None, NameConflict::Refuse | NameConflict::Replace) => {}
        }
        let (not_before, not_after) = (whole(now - SKEW), whole(now + validity));
        self.last_serial += 1;
        let member = Member {
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

    /// Another certificate for a member, or the same while that is young and for the same key.
    fn reissue(
        &mut self,
        now: Timestamp,
        validity: Duration,
        id: MemberId,
        public_key: [u8; 32],
    ) -> Result<CertificateContent, Refusal> {
        let member =
            self.members.get_mut(&id).ok_or_else(|| Refusal::MemberUnknown(id.to_string()))?;
        if member.revoked.is_some() {
            return Err(Refusal::MemberRevoked(id));
        }
        let life = member.not_after.since(member.not_before);
        let young = now >= member.not_before && now < member.not_before + life / YOUNG;
        if young && member.public_key == public_key {
            return Ok(terms(id, member));
        }
        let not_before = if member.not_before > now {
            // The authority's clock was set back. The newest certificate is not valid yet: to
            // follow it would strand the member until then.
            whole(now - SKEW)
        } else {
            whole(now - SKEW).max(member.not_before + SECOND)
        };
        if not_before > now {
            return Err(Refusal::TooOften(id));
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

/// Certificates name whole seconds.
fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_secs(at.as_nanos() / 1_000_000_000)
}

fn terms(id: MemberId, member: &Member) -> CertificateContent {
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
