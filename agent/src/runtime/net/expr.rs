//! The expressions of nftables rules that we use, as values and as bytes. A [`Rule`] is a list of
//! them: each loads, compares or ends; the first comparison that fails ends the rule.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use super::wire::NetlinkMessage;

/// Where a value is loaded to: 16 registers of four bytes, counted from here by the kernel.
const REGISTER: u32 = 8;
/// The register that holds a verdict.
const VERDICT: u32 = 0;

const LIST_ELEM: u16 = 1;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
pub(super) const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const VERDICT_CHAIN: u16 = 2;

/// What is read from a packet or its circumstances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// The interface it came in by.
    IifName,
    /// The interface it leaves by.
    OifName,
    /// IPv4 or IPv6, one byte.
    Family,
    /// The ethertype.
    EtherType,
    /// TCP, UDP, ICMP…
    L4Protocol,
    /// Connection tracking's opinion, bits.
    CtState,
    /// 0 for the direction of the first packet, 1 for the other.
    CtDirection,
    /// Connection tracking's marks, bits.
    CtStatus,
    EtherSource,
    /// The sender's hardware address within ARP.
    ArpMac,
    /// The sender's IPv4 address within ARP.
    ArpSource,
    IpSource,
    IpDestination,
    /// The destination port of TCP and UDP.
    Port,
    IcmpType,
    IcmpCode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    Equal,
    Differ,
}

/// What becomes of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NftVerdict {
    Drop,
    Accept,
    /// On to another chain; without a verdict there, back to here.
    Jump(String),
    /// On to another chain, and not back.
    Goto(String),
}

/// One expression. `at` counts four-byte registers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expr {
    Load {
        field: Field,
        at: u32,
    },
    Cmp {
        compare: Compare,
        value: Vec<u8>,
    },
    Range {
        from: Vec<u8>,
        to: Vec<u8>,
    },
    /// Keeps the bits of a 32-bit value.
    Mask(u32),
    /// Is the value from register 0 on a member?
    Member {
        set: &'static str,
        of: Compare,
    },
    /// What the value from register 0 on stands for becomes the verdict.
    VerdictOf(&'static str),
    /// What the value in register 0 stands for is loaded into the registers from 1 on.
    ValueOf(&'static str),
    /// To the address in register 1 and the port in register 2.
    Dnat,
    Masquerade,
    /// Passes so many per second.
    Limit(u32),
    Log(String),
    Verdict(NftVerdict),
}

/// The expressions of a rule, in order.
pub(super) type Rule = Vec<Expr>;

/// Bits of [`Field::CtState`].
pub(super) const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
/// A bit of [`Field::CtStatus`]: the destination was translated.
pub(super) const DNATTED: u32 = 1 << 5;

/// The field equals the value.
pub(super) fn is(field: Field, value: &[u8]) -> [Expr; 2] {
    [Expr::Load { field, at: 0 }, Expr::Cmp { compare: Compare::Equal, value: value.to_vec() }]
}

/// The field differs from the value.
pub(super) fn is_not(field: Field, value: &[u8]) -> [Expr; 2] {
    [Expr::Load { field, at: 0 }, Expr::Cmp { compare: Compare::Differ, value: value.to_vec() }]
}

/// The field is one of those from the first to the second; big-endian, as the network is.
pub(super) fn within(field: Field, from: &[u8], to: &[u8]) -> [Expr; 2] {
    if from == to {
        return is(field, from);
    }
    [Expr::Load { field, at: 0 }, Expr::Range { from: from.to_vec(), to: to.to_vec() }]
}

/// Some of the bits are set.
pub(super) fn has(field: Field, bits: u32) -> [Expr; 3] {
    let none = 0_u32.to_ne_bytes().to_vec();
    [
        Expr::Load { field, at: 0 },
        Expr::Mask(bits),
        Expr::Cmp { compare: Compare::Differ, value: none },
    ]
}

/// The name of an interface, as the kernel compares it.
pub(super) fn interface(name: &str) -> [u8; 16] {
    let mut padded = [0; 16];
    let length = name.len().min(15);
    padded[..length].copy_from_slice(&name.as_bytes()[..length]);
    padded
}

/// The bytes of a list of expressions, within the attribute that holds it.
pub(super) fn write_all(message: NetlinkMessage, rule: &[Expr]) -> NetlinkMessage {
    rule.iter().fold(message, |message, expr| {
        message.nest(LIST_ELEM, |element| {
            element.text(EXPR_NAME, name(expr)).nest(EXPR_DATA, |data| write(data, expr))
        })
    })
}

fn name(expr: &Expr) -> &'static str {
    match expr {
        Expr::Load { field, .. } => match source(*field) {
            Source::Meta(_) => "meta",
            Source::Ct(_) => "ct",
            Source::Payload(..) => "payload",
        },
        Expr::Cmp { .. } => "cmp",
        Expr::Range { .. } => "range",
        Expr::Mask(_) => "bitwise",
        Expr::Member { .. } | Expr::VerdictOf(_) | Expr::ValueOf(_) => "lookup",
        Expr::Dnat => "nat",
        Expr::Masquerade => "masq",
        Expr::Limit(_) => "limit",
        Expr::Log(_) => "log",
        Expr::Verdict(_) => "immediate",
    }
}

/// Where a field is found: a key, or a header with offset and length.
enum Source {
    Meta(u32),
    Ct(u32),
    Payload(u32, u32, u32),
}

fn source(field: Field) -> Source {
    const LINK: u32 = 0;
    const NETWORK: u32 = 1;
    const TRANSPORT: u32 = 2;
    match field {
        Field::IifName => Source::Meta(6),
        Field::OifName => Source::Meta(7),
        Field::Family => Source::Meta(15),
        Field::EtherType => Source::Meta(1),
        Field::L4Protocol => Source::Meta(16),
        Field::CtState => Source::Ct(0),
        Field::CtDirection => Source::Ct(1),
        Field::CtStatus => Source::Ct(2),
        Field::EtherSource => Source::Payload(LINK, 6, 6),
        Field::ArpMac => Source::Payload(NETWORK, 8, 6),
        Field::ArpSource => Source::Payload(NETWORK, 14, 4),
        Field::IpSource => Source::Payload(NETWORK, 12, 4),
        Field::IpDestination => Source::Payload(NETWORK, 16, 4),
        Field::Port => Source::Payload(TRANSPORT, 2, 2),
        Field::IcmpType => Source::Payload(TRANSPORT, 0, 1),
        Field::IcmpCode => Source::Payload(TRANSPORT, 1, 1),
    }
}

fn write(data: NetlinkMessage, expr: &Expr) -> NetlinkMessage {
    match expr {
        Expr::Load { field, at } => match source(*field) {
            Source::Meta(key) => data.be32(1, REGISTER + at).be32(2, key),
            Source::Ct(key) => data.be32(1, REGISTER + at).be32(2, key),
            Source::Payload(base, offset, length) => {
                data.be32(1, REGISTER + at).be32(2, base).be32(3, offset).be32(4, length)
            }
        },
        Expr::Cmp { compare, value } => {
            let operation = match compare {
                Compare::Equal => 0,
                Compare::Differ => 1,
            };
            data.be32(1, REGISTER).be32(2, operation).nest(3, |d| d.attr(DATA_VALUE, value))
        }
        Expr::Range { from, to } => data
            .be32(1, REGISTER)
            .be32(2, 0)
            .nest(3, |d| d.attr(DATA_VALUE, from))
            .nest(4, |d| d.attr(DATA_VALUE, to)),
        Expr::Mask(bits) => data
            .be32(1, REGISTER)
            .be32(2, REGISTER)
            .be32(3, 4)
            .nest(4, |d| d.attr(DATA_VALUE, &bits.to_ne_bytes()))
            .nest(5, |d| d.attr(DATA_VALUE, &[0; 4])),
        Expr::Member { set, of } => {
            let inverted = match of {
                Compare::Equal => 0,
                Compare::Differ => 1,
            };
            data.text(1, set).be32(2, REGISTER).be32(5, inverted)
        }
        Expr::VerdictOf(set) => data.text(1, set).be32(2, REGISTER).be32(3, VERDICT),
        Expr::ValueOf(set) => data.text(1, set).be32(2, REGISTER).be32(3, REGISTER + 1),
        // Type 1 is the destination; family 2 is IPv4.
        Expr::Dnat => data.be32(1, 1).be32(2, 2).be32(3, REGISTER + 1).be32(5, REGISTER + 2),
        Expr::Masquerade => data,
        // Per second, with a burst as large as the rate.
        Expr::Limit(rate) => data.be64(1, u64::from(*rate)).be64(2, 1).be32(3, *rate),
        Expr::Log(prefix) => data.text(2, prefix),
        Expr::Verdict(verdict) => data.be32(1, VERDICT).nest(2, |d| write_verdict(d, verdict)),
    }
}

/// A verdict as data, of a rule or of an element of a map.
pub(super) fn write_verdict(data: NetlinkMessage, verdict: &NftVerdict) -> NetlinkMessage {
    data.nest(DATA_VERDICT, |data| match verdict {
        NftVerdict::Drop => data.be32(VERDICT_CODE, 0),
        NftVerdict::Accept => data.be32(VERDICT_CODE, 1),
        NftVerdict::Jump(chain) => {
            data.be32(VERDICT_CODE, 0_u32.wrapping_sub(3)).text(VERDICT_CHAIN, chain)
        }
        NftVerdict::Goto(chain) => {
            data.be32(VERDICT_CODE, 0_u32.wrapping_sub(4)).text(VERDICT_CHAIN, chain)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expr: &Expr, expected: &[u8]) {
        let bytes = write_all(NetlinkMessage::new(0, 0, &[]), std::slice::from_ref(expr));
        assert_eq!(&bytes.finish(0).unwrap()[16..], expected, "of {expr:?}");
    }

    #[test]
    fn expressions_are_the_bytes_that_the_nft_tool_sends() {
        check(
            &Expr::Verdict(NftVerdict::Accept),
            &[
                48, 0, 1, 0x80, 14, 0, 1, 0, b'i', b'm', b'm', b'e', b'd', b'i', b'a', b't', b'e',
                0, 0, 0, 28, 0, 2, 0x80, 8, 0, 1, 0, 0, 0, 0, 0, 16, 0, 2, 0x80, 12, 0, 2, 0x80, 8,
                0, 1, 0, 0, 0, 0, 1,
            ],
        );
        check(
            &Expr::Load { field: Field::OifName, at: 0 },
            &[
                36, 0, 1, 0x80, 9, 0, 1, 0, b'm', b'e', b't', b'a', 0, 0, 0, 0, 20, 0, 2, 0x80, 8,
                0, 1, 0, 0, 0, 0, 8, 8, 0, 2, 0, 0, 0, 0, 7,
            ],
        );
        check(
            &Expr::Cmp { compare: Compare::Differ, value: vec![0, 80] },
            &[
                44, 0, 1, 0x80, 8, 0, 1, 0, b'c', b'm', b'p', 0, 32, 0, 2, 0x80, 8, 0, 1, 0, 0, 0,
                0, 8, 8, 0, 2, 0, 0, 0, 0, 1, 12, 0, 3, 0x80, 6, 0, 1, 0, 0, 80, 0, 0,
            ],
        );
    }

    #[test]
    fn a_range_of_one_is_a_comparison() {
        assert_eq!(within(Field::Port, &[0, 80], &[0, 80]), is(Field::Port, &[0, 80]));
        let [_, range] = within(Field::Port, &[0, 80], &[0, 90]);
        assert_eq!(range, Expr::Range { from: vec![0, 80], to: vec![0, 90] });
    }

    #[test]
    fn the_longest_interface_name_keeps_its_zero() {
        assert_eq!(interface("eth0"), *b"eth0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(interface("abcdefghijklmnopq"), *b"abcdefghijklmno\0");
    }
}
