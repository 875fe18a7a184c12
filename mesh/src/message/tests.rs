//! Packets: their sizes, their bytes, and what is refused.

use std::net::SocketAddr;
use std::sync::Arc;

use volvox_protocol::id::CellId;
use volvox_protocol::random::SplitMix;

use super::*;
use crate::identity::Signature;
use crate::record::{
    AliveRecord, BODY_BYTES, Content, REVOCATIONS, Record, Revocation, Suspicion, Topic, Version,
};
use crate::simulation::{Simulation, sample_info, sample_load};

/// An authenticator whose signatures consist of one given byte.
struct Fixed(u8);

impl crate::identity::Authenticator for Fixed {
    fn sign(&self, _: &[u8]) -> Signature {
        Signature([self.0; 64])
    }

    fn identity(
        &self,
        _: volvox_protocol::time::Timestamp,
        _: &[u8],
    ) -> Result<Arc<crate::identity::MemberIdentity>, crate::identity::CertificateError> {
        Err(crate::identity::CertificateError::Foreign)
    }

    fn verify(&self, _: &crate::identity::MemberIdentity, _: &[u8], _: &Signature) -> bool {
        false
    }
}

/// Numbers of every length, since that is what a size depends on.
fn number(random: &mut SplitMix) -> u64 {
    let shift = random.below(65);
    if shift == 64 { 0 } else { random.next() >> shift }
}

fn short(random: &mut SplitMix) -> u32 {
    u32::try_from(number(random) & u64::from(u32::MAX)).unwrap()
}

fn byte(random: &mut SplitMix) -> u8 {
    random.next().to_le_bytes()[0]
}

fn member(random: &mut SplitMix) -> MemberId {
    MemberId((u128::from(random.next()) << 64 | u128::from(random.next())).to_le_bytes())
}

fn version(random: &mut SplitMix) -> Version {
    Version { generation: number(random), count: short(random) }
}

fn address(random: &mut SplitMix) -> SocketAddr {
    let port = u16::try_from(number(random) & 0xffff).unwrap();
    if random.once_in(2) {
        let bits = u32::try_from(random.next() >> 32).unwrap();
        SocketAddr::new(std::net::Ipv4Addr::from_bits(bits).into(), port)
    } else {
        let bits = u128::from(random.next()) << 64 | u128::from(random.next());
        SocketAddr::new(std::net::Ipv6Addr::from_bits(bits).into(), port)
    }
}

fn item(random: &mut SplitMix) -> Item {
    let (subject, version) = (member(random), version(random));
    let authenticator = Fixed(7);
    let cell = CellId::new(&format!("cell-{}", random.below(100_000))).unwrap();
    let content = match random.below(6) {
        0 => Content::Alive(AliveRecord {
            address: address(random),
            leaf: random.once_in(2),
            left: random.once_in(2),
            protocol: 2,
        }),
        1 => Content::Info(sample_info(cell, random.below(9))),
        2 => Content::Load(sample_load(cell, short(random))),
        3 => Content::Revocations((0..random.below(200)).map(|_| revocation(random)).collect()),
        4 => {
            let bytes = vec![9; random.below(700)];
            return Item::Record(Arc::new(Record::certificate(subject, number(random), &bytes)));
        }
        _ => {
            let suspicion = Suspicion::signed(&authenticator, member(random), subject, version);
            return Item::Suspicion(Arc::new(suspicion));
        }
    };
    Item::Record(Arc::new(Record::signed(&authenticator, subject, version, content)))
}

fn items(random: &mut SplitMix) -> Vec<Item> {
    (0..random.below(6)).map(|_| item(random)).collect()
}

fn revocation(random: &mut SplitMix) -> Revocation {
    Revocation { member: member(random), until_s: number(random) }
}

fn holding(random: &mut SplitMix) -> HeldVersions {
    let topics = Topic::ALL.into_iter().filter(|_| random.once_in(2)).collect::<Vec<_>>();
    HeldVersions {
        subject: member(random),
        versions: topics.into_iter().map(|topic| (topic, version(random))).collect(),
        missing: random.once_in(2),
    }
}

const KINDS: usize = 11;

fn message(kind: usize, random: &mut SplitMix) -> Message {
    let seq = short(random);
    let roots = Roots { membership: number(random), load: number(random) };
    let scope = *random.one_of(&[Scope::Membership, Scope::Load, Scope::Coordinators]);
    match kind {
        0 => Message::Ping { seq, roots, items: items(random) },
        1 => Message::Ack { seq, roots, items: items(random) },
        2 => Message::PingReq { seq, target: member(random) },
        3 => Message::Reached { seq, target: member(random) },
        4 => Message::Missed { seq, target: member(random) },
        5 => Message::Gossip { items: items(random) },
        6 => Message::Records { items: items(random) },
        7 => {
            let count = random.below(130);
            Message::Compare { scope, buckets: (0..count).map(|_| number(random)).collect() }
        }
        8 => Message::Differ {
            scope,
            buckets: number(random),
            holdings: (0..random.below(200)).map(|_| holding(random)).collect(),
            more: random.once_in(2),
        },
        9 => {
            let wanted = (0..random.below(200)).map(|_| (member(random), seq.to_le_bytes()[0]));
            Message::Want { wanted: wanted.collect() }
        }
        _ => Message::Observed { address: address(random) },
    }
}

#[test]
fn the_size_of_every_message_is_that_of_its_packet_and_what_is_read_is_what_was_written() {
    let mut random = SplitMix(11);
    for round in 0..4_400 {
        let message = message(round % KINDS, &mut random);
        let packet = message.encode();
        assert_eq!(message.size(), packet.len(), "{message:?}");
        assert_eq!(Message::decode(&packet).unwrap(), message);
    }
}

#[test]
fn no_bytes_make_the_reader_panic_and_what_it_reads_can_be_written() {
    let mut random = SplitMix(12);
    let mut understood = 0;
    for round in 0..40_000 {
        let mut packet = if round % 4 == 0 {
            let mut packet: Vec<u8> = (0..random.below(200)).map(|_| byte(&mut random)).collect();
            packet.insert(0, PACKET_VERSION);
            packet
        } else {
            message(round % KINDS, &mut random).encode()
        };
        for _ in 0..1 + random.below(4) {
            let at = random.below(packet.len().max(1));
            match random.below(4) {
                0 => packet.truncate(at),
                1 if at < packet.len() => packet[at] = byte(&mut random),
                2 if at < packet.len() => packet[at] ^= 1 << random.below(8),
                _ => packet.insert(at.min(packet.len()), byte(&mut random)),
            }
        }
        if let Ok(message) = Message::decode(&packet) {
            understood += 1;
            let again = message.encode();
            assert_eq!(again.len(), message.size());
            assert_eq!(Message::decode(&again).unwrap(), message);
        }
    }
    assert!(understood > 1_000, "the mutations spoil everything: {understood}");
}

#[test]
fn what_is_too_long_is_not_looked_into() {
    let mut packet = Message::Want { wanted: vec![(MemberId([1; 16]), 255); 10] }.encode();
    packet.resize(PACKET_BYTES + 1, 0);
    let refused = CodecError::TooLarge { given: PACKET_BYTES + 1, limit: PACKET_BYTES };
    assert_eq!(Message::decode(&packet), Err(refused));
    packet.truncate(PACKET_BYTES);
    assert!(Message::decode(&packet).is_ok(), "what follows a message is a later release's");
}

#[test]
fn a_body_or_a_list_beyond_its_limit_is_refused() {
    let subject = MemberId([1; 16]);
    let bytes = vec![0; BODY_BYTES + 1];
    let long = Record::certificate(subject, 1, &bytes);
    let packet = Message::Gossip { items: vec![Item::Record(Arc::new(long))] }.encode();
    assert!(Message::decode(&packet).is_err());
    let revocation = Revocation { member: subject, until_s: u64::from(u32::MAX) };
    for (count, is_read) in [(REVOCATIONS, true), (REVOCATIONS + 1, false)] {
        let list = Content::Revocations(vec![revocation; count]);
        let record = Record::signed(&Fixed(1), subject, Version::default(), list);
        let packet = Message::Gossip { items: vec![Item::Record(Arc::new(record))] }.encode();
        assert_eq!(Message::decode(&packet).is_ok(), is_read, "{count} members");
    }
}

#[test]
fn another_version_an_unknown_kind_and_nothing_at_all_are_refused() {
    assert!(Message::decode(&[]).is_err());
    let known = Message::Observed { address: "10.0.0.1:7000".parse().unwrap() }.encode();
    for version in (0..=u8::MAX).filter(|version| *version != PACKET_VERSION) {
        let mut packet = known.clone();
        packet[0] = version;
        assert!(Message::decode(&packet).is_err(), "version {version}");
    }
    for kind in u8::try_from(KINDS).unwrap()..=0x7f {
        let mut packet = known.clone();
        packet[1] = kind;
        assert!(Message::decode(&packet).is_err(), "kind {kind}");
    }
}

/// A count that is merely claimed must not be believed: this would be gigabytes.
#[test]
fn a_claimed_length_allocates_nothing() {
    for kind in [5, 6, 9] {
        let packet = [PACKET_VERSION, kind, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert!(Message::decode(&packet).is_err());
    }
}

/// The bytes of one message of each kind. If this fails, the wire has changed: another release
/// does not understand it, unless [`PACKET_VERSION`] says so.
#[test]
fn the_bytes_of_every_kind_are_what_they_were() {
    let authenticator = Fixed(0xab);
    let (one, two) = (MemberId([1; 16]), MemberId([2; 16]));
    let version = Version { generation: 300, count: 2 };
    let alive = AliveRecord {
        address: "10.0.0.1:7000".parse().unwrap(),
        leaf: false,
        left: true,
        protocol: 2,
    };
    let record = Record::signed(&authenticator, one, version, Content::Alive(alive));
    let suspicion = Suspicion::signed(&authenticator, one, two, version);
    let roots = Roots { membership: 1, load: 128 };
    let holding = HeldVersions {
        subject: one,
        versions: [(Topic::Load, version)].into_iter().collect(),
        missing: true,
    };
    let all = [
        Message::Ping { seq: 5, roots, items: Vec::new() },
        Message::Ack { seq: 300, roots, items: vec![Item::Suspicion(Arc::new(suspicion))] },
        Message::PingReq { seq: 5, target: two },
        Message::Reached { seq: 5, target: two },
        Message::Missed { seq: 5, target: two },
        Message::Gossip { items: vec![Item::Record(Arc::new(record))] },
        Message::Records { items: vec![Item::Record(Arc::new(Record::certificate(two, 9, b"x")))] },
        Message::Compare { scope: Scope::Load, buckets: vec![0, 300] },
        Message::Differ {
            scope: Scope::Coordinators,
            buckets: 3,
            holdings: vec![holding],
            more: true,
        },
        Message::Want { wanted: vec![(one, 255)] },
        Message::Observed { address: "[::1]:7000".parse().unwrap() },
    ];
    let hex = |message: &Message| {
        message.encode().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let read: Vec<String> = all.iter().map(hex).collect();
    let (ones, twos) = ("01".repeat(16), "02".repeat(16));
    let (signature, none) = ("ab".repeat(64), "00".repeat(64));
    let golden = [
        "01000501800100".to_owned(),
        format!("0101ac020180010101{ones}{twos}ac0202{signature}"),
        format!("010205{twos}"),
        format!("010305{twos}"),
        format!("010405{twos}"),
        format!("01050100{ones}01ac02020a000a000001d836000102{signature}"),
        format!("01060100{twos}0009000178{none}"),
        "0107010200ac02".to_owned(),
        format!("0108020301{ones}0103ac02020101"),
        format!("010901{ones}ff"),
        "010a0100000000000000000000000000000001d836".to_owned(),
    ];
    assert_eq!(read, golden);
    for message in all {
        assert_eq!(Message::decode(&message.encode()).unwrap(), message);
    }
}

/// Packets as members wrote them before foca was the failure detector. They are read, and passed on
/// byte by byte; and what this release writes can be read by such a member.
#[test]
fn packets_of_the_version_before_foca_are_read_and_passed_on_as_they_were() {
    let (ones, twos) = ("01".repeat(16), "02".repeat(16));
    let (signature, none) = ("ab".repeat(64), "00".repeat(64));
    let packets = [
        "01000501800100".to_owned(),
        format!("0101ac020180010101{ones}{twos}ac0202{signature}"),
        format!("010205{twos}"),
        format!("010305{twos}"),
        format!("010405{twos}"),
        format!("01050100{ones}01ac020209000a000001d8360001{signature}"),
        format!("01060100{twos}0009000178{none}"),
        "0107010200ac02".to_owned(),
        format!("0108020301{ones}0103ac02020101"),
        format!("010901{ones}ff"),
        "010a0100000000000000000000000000000001d836".to_owned(),
    ];
    for packet in packets {
        let bytes = (0..packet.len()).step_by(2);
        let bytes: Vec<u8> =
            bytes.map(|at| u8::from_str_radix(&packet[at..at + 2], 16).unwrap()).collect();
        let message = Message::decode(&bytes).unwrap();
        assert_eq!(message.encode(), bytes, "{message:?}");
        assert_eq!(message.size(), bytes.len());
        if let Message::Gossip { items } = message {
            let Item::Record(record) = &items[0] else { panic!("{items:?}") };
            let alive = record.alive().unwrap();
            assert_eq!((alive.leaf, alive.left, alive.protocol), (false, true, 0));
        }
    }
    let alive = AliveRecord {
        address: "10.0.0.1:7000".parse().unwrap(),
        leaf: true,
        left: false,
        protocol: 2,
    };
    let older: (SocketAddr, bool, bool) = codec::decode(&codec::encode(&alive), 256).unwrap();
    assert_eq!(older, (alive.address, alive.leaf, alive.left));
}

/// The name in a sample is what a cell may say of itself.
#[test]
fn what_travels_is_what_was_signed() {
    let mesh = Simulation::new(1, &[crate::identity::MemberKind::Cell]);
    let identity = mesh.identity(0).clone();
    let stamp = crate::simulation::SimulatedAuthenticator::new(mesh.ca().clone(), identity.member);
    let load = Content::Load(sample_load(identity.name.clone(), 7));
    let version = Version { generation: 1, count: 1 };
    let record = Record::signed(&stamp, identity.member, version, load);
    let packet = Message::Gossip { items: vec![Item::Record(Arc::new(record))] }.encode();
    let mut kept = 0;
    for at in 2..packet.len() {
        let mut changed = packet.clone();
        changed[at] ^= 1;
        let Ok(Message::Gossip { items }) = Message::decode(&changed) else { continue };
        for item in items {
            let Item::Record(record) = item else { continue };
            kept += 1;
            let is_same = record.topic == Topic::Certificate;
            assert!(is_same || !record.is_signed_by(&stamp, &identity), "byte {at}");
        }
    }
    assert!(kept > 50, "most changes can be read: {kept}");
}
