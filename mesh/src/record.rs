//! What members say: of themselves in [`Record`]s, of each other in [`Suspicion`]s.
//!
//! A record belongs to its subject, who alone can make it: it carries the subject's signature, so
//! whoever passes it on can neither change it nor make a newer one. For each subject and topic the
//! highest [`Version`] wins, and the older one is forgotten. The bytes that were signed are kept, so
//! that a release which does not know a field passes it on all the same.
//!
//! A suspicion says "I cannot reach this member, as of this alive record". Its author signs it, so no
//! member can suspect in another's name. A newer alive record of the suspected member refutes it.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use volvox_protocol::cell::{CellInfo, CellLoad};
use volvox_protocol::time::Timestamp;

use crate::codec::{self, CodecError};
use crate::identity::{Authenticator, MemberId, Signature};

/// Bytes of a record's body. The largest is a list of revoked members.
pub const BODY_BYTES: usize = 384 << 10;

/// Bytes that a record of this topic may have. Everybody passes them on, within small budgets.
pub const fn body_limit(topic: Topic) -> usize {
    match topic {
        Topic::Certificate => 2 << 10,
        Topic::Alive => 256,
        Topic::Info => 8 << 10,
        Topic::Load => 512,
        Topic::Revocations => BODY_BYTES,
    }
}

/// Members that one list of revocations can name. Each is named until its last certificate has ended.
pub const REVOCATIONS: usize = 16_000;

/// A member that is expelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// Who.
    pub member: MemberId,
    /// When the last of its certificates ends, in seconds: after that nobody need know.
    pub until_s: u64,
}

impl Revocation {
    /// Of this member, whose last certificate ends then.
    pub fn new(member: MemberId, until: Timestamp) -> Revocation {
        Revocation { member, until_s: until.as_nanos().div_ceil(1_000_000_000) }
    }

    /// When the last of its certificates ends.
    pub fn until(&self) -> Timestamp {
        Timestamp::from_nanos(self.until_s.saturating_mul(1_000_000_000))
    }
}

/// Which of two records is newer: first the life of the member, then the count within it.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Version {
    /// When the member's present life began, in milliseconds: higher after every restart.
    pub generation: u64,
    /// Counts up within a life.
    pub count: u32,
}

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Topic {
    /// The subject's certificate. It is signed by the authority, not by the subject.
    Certificate,
    /// That the subject is there, and where.
    Alive,
    /// A cell's [`CellInfo`].
    Info,
    /// A cell's [`CellLoad`].
    Load,
    /// The members that a coordinator knows to be revoked.
    Revocations,
}

impl Topic {
    /// All of them, in the order in which they must be told: a certificate proves the rest.
    pub const ALL: [Topic; 5] =
        [Topic::Certificate, Topic::Alive, Topic::Info, Topic::Load, Topic::Revocations];

    /// The topic's bit in a set of topics.
    pub const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// That a member is there: the body of a record with [`Topic::Alive`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AliveRecord {
    /// Where it can be dialled.
    pub address: SocketAddr,
    /// It cannot be dialled, or should not be: it is watched by those that it dials.
    pub leaf: bool,
    /// It says goodbye. The last record of a life.
    pub left: bool,
    /// The version of the mesh that it speaks: [`crate::member::PROTOCOL`]. 0: before foca.
    pub protocol: u8,
}

/// What a record says, as far as this release understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// See [`Topic::Certificate`]; the bytes are the body.
    Certificate,
    /// See [`Topic::Alive`].
    Alive(AliveRecord),
    /// See [`Topic::Info`].
    Info(CellInfo),
    /// See [`Topic::Load`].
    Load(CellLoad),
    /// See [`Topic::Revocations`].
    Revocations(Vec<Revocation>),
}

impl Content {
    /// What it is about.
    pub const fn topic(&self) -> Topic {
        match self {
            Content::Certificate => Topic::Certificate,
            Content::Alive(_) => Topic::Alive,
            Content::Info(_) => Topic::Info,
            Content::Load(_) => Topic::Load,
            Content::Revocations(_) => Topic::Revocations,
        }
    }
}

/// What a member says of itself. A value that exists has a readable body; whether the signature is
/// good is for [`Record::is_signed_by`] to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who says it.
    pub subject: MemberId,
    /// What about.
    pub topic: Topic,
    /// How new.
    pub version: Version,
    /// The bytes that were signed.
    pub body: Box<[u8]>,
    /// The body, read.
    pub content: Content,
    /// The subject's.
    pub signature: Signature,
}

/// A record as it travels.
#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    subject: MemberId,
    topic: Topic,
    version: Version,
    #[serde(borrow)]
    body: &'a [u8],
    signature: Signature,
}

impl Record {
    /// Makes and signs one of ours.
    pub fn signed(
        authenticator: &impl Authenticator,
        subject: MemberId,
        version: Version,
        content: Content,
    ) -> Record {
        let (topic, body) = match &content {
            Content::Certificate => unreachable!("certificates are issued, not said"),
            Content::Alive(alive) => (Topic::Alive, codec::encode(alive)),
            Content::Info(info) => (Topic::Info, codec::encode(info)),
            Content::Load(load) => (Topic::Load, codec::encode(load)),
            Content::Revocations(list) => (Topic::Revocations, codec::encode(list)),
        };
        let signature = authenticator.sign(&statement(subject, topic, version, &body));
        Record { subject, topic, version, body: body.into(), content, signature }
    }

    /// The record that hands a certificate on. `issued_ms`: from when it counts.
    pub fn certificate(subject: MemberId, issued_ms: u64, certificate: &[u8]) -> Record {
        Record {
            subject,
            topic: Topic::Certificate,
            version: Version { generation: issued_ms, count: 0 },
            body: certificate.into(),
            content: Content::Certificate,
            signature: Signature::NONE,
        }
    }

    fn from_wire(wire: &Wire<'_>) -> Result<Record, CodecError> {
        let Wire { subject, topic, version, body, signature } = *wire;
        let limit = body_limit(topic);
        if body.len() > limit {
            return Err(CodecError::TooLarge { given: body.len(), limit });
        }
        let content = match topic {
            Topic::Certificate => Content::Certificate,
            Topic::Alive => Content::Alive(codec::decode(body, BODY_BYTES)?),
            Topic::Info => Content::Info(codec::decode(body, BODY_BYTES)?),
            Topic::Load => Content::Load(codec::decode(body, BODY_BYTES)?),
            Topic::Revocations => {
                let list: Vec<Revocation> = codec::decode(body, BODY_BYTES)?;
                if list.len() > REVOCATIONS {
                    return Err(CodecError::TooLarge { given: list.len(), limit: REVOCATIONS });
                }
                Content::Revocations(list)
            }
        };
        Ok(Record { subject, topic, version, body: body.into(), content, signature })
    }

    /// Whether the subject signed it, `holder` being whom the subject's certificate names.
    pub fn is_signed_by(
        &self,
        authenticator: &impl Authenticator,
        identity: &crate::identity::MemberIdentity,
    ) -> bool {
        let statement = statement(self.subject, self.topic, self.version, &self.body);
        authenticator.verify(identity, &statement, &self.signature)
    }

    /// The alive, if it is one.
    pub fn alive(&self) -> Option<&AliveRecord> {
        match &self.content {
            Content::Alive(alive) => Some(alive),
            Content::Certificate
            | Content::Info(_)
            | Content::Load(_)
            | Content::Revocations(_) => None,
        }
    }

    /// Bytes that it takes on the way.
    pub fn size(&self) -> usize {
        let version = varint(self.version.generation) + varint(self.version.count.into());
        16 + 1 + version + varint(self.body.len() as u64) + self.body.len() + 64
    }
}

impl Serialize for Record {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Record { subject, topic, version, ref body, signature, .. } = *self;
        Wire { subject, topic, version, body, signature }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Record::from_wire(&Wire::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// "I cannot reach this member."
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// Who says so.
    pub by: MemberId,
    /// Who cannot be reached.
    pub subject: MemberId,
    /// The subject's alive that this is about. Void against a newer one.
    pub alive: Version,
    /// The by's.
    pub signature: Signature,
}

impl Suspicion {
    /// Makes and signs one of ours.
    pub fn signed(
        authenticator: &impl Authenticator,
        by: MemberId,
        subject: MemberId,
        alive: Version,
    ) -> Suspicion {
        let signature = authenticator.sign(&suspicion_statement(by, subject, alive));
        Suspicion { by, subject, alive, signature }
    }

    /// Whether the by signed it.
    pub fn is_signed_by(
        &self,
        authenticator: &impl Authenticator,
        identity: &crate::identity::MemberIdentity,
    ) -> bool {
        authenticator.verify(
            identity,
            &suspicion_statement(self.by, self.subject, self.alive),
            &self.signature,
        )
    }

    /// Bytes that it takes on the way.
    pub fn size(&self) -> usize {
        16 + 16 + varint(self.alive.generation) + varint(self.alive.count.into()) + 64
    }
}

/// One piece of news.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Item {
    /// What a member says of itself.
    Record(Arc<Record>),
    /// What a member says of another.
    Suspicion(Arc<Suspicion>),
}

impl Item {
    /// Bytes that it takes on the way.
    pub fn size(&self) -> usize {
        match self {
            Item::Record(record) => 1 + record.size(),
            Item::Suspicion(suspicion) => 1 + suspicion.size(),
        }
    }
}

/// What a record's signature is under. The first text keeps it apart from suspicions.
fn statement(subject: MemberId, topic: Topic, version: Version, body: &[u8]) -> Vec<u8> {
    codec::encode(&("record", subject, topic, version, body))
}

fn suspicion_statement(by: MemberId, subject: MemberId, alive: Version) -> Vec<u8> {
    codec::encode(&("accusation", by, subject, alive))
}

/// Bytes that postcard takes for a number.
pub(crate) const fn varint(number: u64) -> usize {
    let bits = 64 - number.leading_zeros() as usize;
    if bits == 0 { 1 } else { bits.div_ceil(7) }
}
