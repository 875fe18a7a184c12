//! What members say to each other on a link, and its bytes.
//!
//! No message names its sender: that is whom the link's certificate names, and nobody else. A
//! packet is one byte, the version of this page, and the message. Packets of up to
//! [`DATAGRAM_BYTES`] travel as QUIC datagrams, longer ones as a stream each.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

#[cfg(test)]
mod tests;
mod versions;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use self::versions::Versions;
use crate::codec::{self, CodecError};
use crate::identity::MemberId;
use crate::record::{Item, varint};

/// The version of the packets. A reader accepts its own and the one before.
pub const PACKET_VERSION: u8 = 1;

/// What fits into a datagram on every path that carries QUIC: its smallest packet is 1,200 bytes.
pub const DATAGRAM_BYTES: usize = 1_150;

/// The longest packet.
pub const PACKET_BYTES: usize = 1 << 20;

/// Parts into which the tables are divided for comparison.
pub const BUCKETS: usize = 64;

/// Digests of all that a member knows. Two members with the same know the same.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roots {
    /// Of certificates, alive records, infos, revocations, and who is missing.
    pub membership: u64,
    /// Of loads.
    pub load: u64,
}

/// What a comparison is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Scope {
    /// All but loads.
    Membership,
    /// Loads.
    Load,
    /// What a leaf needs: the coordinators, and the cells that it has links to.
    Coordinators,
}

/// What a member has of one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldVersions {
    /// Of whom.
    pub subject: MemberId,
    /// The versions that it has.
    pub versions: Versions,
    /// Whether it takes the subject for missing.
    pub missing: bool,
}

/// A message. New kinds are added at the end; a reader that does not know one drops the packet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// Are you there?
    Ping {
        /// Comes back in the answer.
        seq: u32,
        /// What we know.
        roots: Roots,
        /// News; also what we were told about the one we ask.
        items: Vec<Item>,
    },
    /// I am.
    Ack {
        /// The question's.
        seq: u32,
        /// What we know.
        roots: Roots,
        /// News.
        items: Vec<Item>,
    },
    /// Ask that one for me.
    PingReq {
        /// Comes back in the answer.
        seq: u32,
        /// MemberSelector to ask.
        target: MemberId,
    },
    /// It answered me.
    Reached {
        /// The question's.
        seq: u32,
        /// Who did.
        target: MemberId,
    },
    /// It did not answer me yet; I at least am there.
    Missed {
        /// The question's.
        seq: u32,
        /// Who did not.
        target: MemberId,
    },
    /// News.
    Gossip {
        /// What is new.
        items: Vec<Item>,
    },
    /// What you asked for, or lack. It may be no news to others.
    Records {
        /// The records, in the order in which they can be checked.
        items: Vec<Item>,
    },
    /// Compare what you have with what I have.
    Compare {
        /// Of what.
        scope: Scope,
        /// Digests of our parts; empty: we have nothing.
        buckets: Vec<u64>,
    },
    /// The parts that differ, and what we have in them.
    Differ {
        /// Of what.
        scope: Scope,
        /// The parts, a bit each.
        buckets: u64,
        /// What we have.
        holdings: Vec<HeldVersions>,
        /// More parts differ: compare again.
        more: bool,
    },
    /// Send these.
    Want {
        /// Whose, and the bits of the topics. All bits: suspicions too.
        wanted: Vec<(MemberId, u8)>,
    },
    /// This is where you seem to be.
    Observed {
        /// The address that your packets come from.
        address: SocketAddr,
    },
}

impl Message {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut packet = vec![PACKET_VERSION];
        packet.extend_from_slice(&codec::encode(self));
        packet
    }

    /// Reads a packet. Nothing is kept of one that is not understood.
    pub fn decode(packet: &[u8]) -> Result<Message, CodecError> {
        if packet.len() > PACKET_BYTES {
            return Err(CodecError::TooLarge { given: packet.len(), limit: PACKET_BYTES });
        }
        match packet.split_first() {
            None => Err(CodecError::Malformed("it is empty")),
            Some((&PACKET_VERSION, bytes)) => codec::decode(bytes, PACKET_BYTES),
            Some(_) => Err(CodecError::Malformed("it is of another version of the mesh")),
        }
    }

    /// Bytes of the packet, without making it.
    pub fn size(&self) -> usize {
        let list = |items: &[Item]| {
            varint(items.len() as u64) + items.iter().map(Item::size).sum::<usize>()
        };
        let seq_size = |seq: u32| varint(seq.into());
        let roots_size = |roots: &Roots| varint(roots.membership) + varint(roots.load);
        2 + match self {
            Message::Ping { seq, roots, items } | Message::Ack { seq, roots, items } => {
                seq_size(*seq) + roots_size(roots) + list(items)
            }
            Message::PingReq { seq, .. }
            | Message::Reached { seq, .. }
            | Message::Missed { seq, .. } => seq_size(*seq) + 16,
            Message::Gossip { items } | Message::Records { items } => list(items),
            Message::Compare { buckets, .. } => {
                let digests: usize = buckets.iter().map(|digest| varint(*digest)).sum();
                1 + varint(buckets.len() as u64) + digests
            }
            Message::Differ { buckets, holdings, .. } => {
                let all: usize = holdings.iter().map(HeldVersions::size).sum();
                1 + varint(*buckets) + varint(holdings.len() as u64) + all + 1
            }
            Message::Want { wanted } => varint(wanted.len() as u64) + 17 * wanted.len(),
            Message::Observed { address } => {
                let host = if address.is_ipv4() { 4 } else { 16 };
                1 + host + varint(address.port().into())
            }
        }
    }
}

impl HeldVersions {
    fn size(&self) -> usize {
        16 + self.versions.size() + 1
    }
}
