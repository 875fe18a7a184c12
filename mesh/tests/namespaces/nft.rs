//! The few nftables rules that tests need, in the kernel's own words: the `nft` program is not
//! everywhere. Of the namespace of the calling thread, and IPv4 only.

use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
const NEWTABLE: u16 = 10 << 8;
const DELTABLE: u16 = NEWTABLE | 2;
const NEWCHAIN: u16 = NEWTABLE | 3;
const NEWRULE: u16 = NEWTABLE | 6;

const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const CREATE: u16 = 0x400;
const APPEND: u16 = 0x800;

const IPV4: u8 = 2;
const NESTED: u16 = 0x8000;
/// The register that values are loaded into.
const REGISTER: u32 = 8;

/// The hook for packets to this machine, and the one for packets that leave it.
const INPUT: u32 = 1;
const POSTROUTING: u32 = 4;

/// One expression of a rule, as bytes.
type Expression = Vec<u8>;

fn attr(kind: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 4).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn number(kind: u16, value: u32) -> Vec<u8> {
    attr(kind, &value.to_be_bytes())
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attr(kind, format!("{text}\0").as_bytes())
}

fn nest(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attr(kind | NESTED, &parts.concat())
}

fn message(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
    let attributes = attributes.concat();
    let length = u32::try_from(20 + attributes.len()).unwrap();
    let mut bytes = length.to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((flags | REQUEST).to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(attributes);
    bytes
}

fn expression(name: &str, data: &[Vec<u8>]) -> Expression {
    nest(1, &[text(1, name), nest(2, data)])
}

fn equals(value: &[u8]) -> Expression {
    expression("cmp", &[number(1, REGISTER), number(2, 0), nest(3, &[attr(1, value)])])
}

fn drop_it() -> Expression {
    expression("immediate", &[number(1, 0), nest(2, &[nest(2, &[number(1, 0)])])])
}

/// Sends a batch; the kernel does all of it or nothing.
fn batch(messages: &[Vec<u8>]) -> Result<(), Errno> {
    let mut bytes = message(BATCH_BEGIN, 0, 0, 10, &[]);
    bytes.extend(messages.concat());
    bytes.extend(message(BATCH_END, 0, 0, 10, &[]));
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    sendto(fd.as_raw_fd(), &bytes, &NetlinkAddr::new(0, 0), MsgFlags::empty())?;
    // Only the last message asks for an answer, so the first answer is a refusal or the end.
    let mut answer = [0; 4096];
    let count = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    let errno = answer[..count].get(16..20).ok_or(Errno::EPROTO)?;
    match i32::from_ne_bytes(errno.try_into().unwrap()) {
        0 => Ok(()),
        errno => Err(Errno::from_raw(-errno)),
    }
}

/// A table with one chain and its rules, in place of the one of that name.
fn table(name: &str, hook: u32, kind: &str, rules: &[Vec<Expression>]) {
    let family = |what, flags, attributes: &[Vec<u8>]| message(what, flags, IPV4, 0, attributes);
    let mut messages = vec![
        family(NEWTABLE, CREATE, &[text(1, name)]),
        family(DELTABLE, 0, &[text(1, name)]),
        family(NEWTABLE, CREATE, &[text(1, name)]),
    ];
    let hook = nest(4, &[number(1, hook), number(2, 100)]);
    let last = if rules.is_empty() { ACK } else { 0 };
    let chain = [text(1, name), text(3, "chain"), hook, text(7, kind)];
    messages.push(family(NEWCHAIN, CREATE | last, &chain));
    for (place, rule) in rules.iter().enumerate() {
        let last = if place + 1 == rules.len() { ACK } else { 0 };
        let rule = [text(1, name), text(2, "chain"), nest(4, rule)];
        messages.push(family(NEWRULE, CREATE | APPEND | last, &rule));
    }
    batch(&messages).unwrap();
}

/// Nothing that comes from these arrives here. Replaces what was cut before; nobody: all is well.
pub(crate) fn deafen(to: &[Ipv4Addr]) {
    let source = || {
        let (base, offset, length) = (number(2, 1), number(3, 12), number(4, 4));
        expression("payload", &[number(1, REGISTER), base, offset, length])
    };
    let rule = |from: &Ipv4Addr| vec![source(), equals(&from.octets()), drop_it()];
    table("cut", INPUT, "filter", &to.iter().map(rule).collect::<Vec<_>>());
}

/// One packet in five, at random, does not arrive here.
pub(crate) fn lose_a_fifth() {
    let random = expression("numgen", &[number(1, REGISTER), number(2, 5), number(3, 1)]);
    table("loss", INPUT, "filter", &[vec![random, equals(&[0; 4]), drop_it()]]);
}

/// What is passed on from here leaves with our address.
pub(crate) fn masquerade() {
    table("nat", POSTROUTING, "nat", &[vec![expression("masq", &[])]]);
}
