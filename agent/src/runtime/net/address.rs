//! IPv4 networks, and the names and hardware addresses that we derive.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// All IPv4 addresses that agree in their leading bits. The bits after those are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ipv4Network {
    first: Ipv4Addr,
    prefix: u8,
}

/// A text, or an address with a prefix, that is no IPv4 network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} is no IPv4 network: an address, a slash, 0 to 32 bits, and zeros after those")]
pub struct NotANetwork {
    given: String,
}

impl Ipv4Network {
    /// Refuses a prefix above 32 and an address with bits set after the prefix.
    pub fn new(first: Ipv4Addr, prefix: u8) -> Result<Ipv4Network, NotANetwork> {
        let network = Ipv4Network { first, prefix };
        let valid = prefix <= 32 && first.to_bits() & !mask(prefix) == 0;
        valid.then_some(network).ok_or_else(|| NotANetwork { given: network.to_string() })
    }

    /// The lowest address.
    pub fn first(&self) -> Ipv4Addr {
        self.first
    }

    /// The highest address.
    pub fn last(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.first.to_bits() | !mask(self.prefix))
    }

    /// How many leading bits agree.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Do the two share an address? The other is given by any address of it and its prefix.
    pub(super) fn meets(&self, address: Ipv4Addr, prefix: u8) -> bool {
        let common = mask(self.prefix.min(prefix));
        address.to_bits() & common == self.first.to_bits() & common
    }

    /// Is the address of this network?
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.prefix) == self.first.to_bits()
    }
}

impl fmt::Display for Ipv4Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

impl FromStr for Ipv4Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Ipv4Network, NotANetwork> {
        let complaint = || NotANetwork { given: text.into() };
        let (address, bits) = text.split_once('/').ok_or_else(complaint)?;
        // Parsing alone would let "+8" pass.
        let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = bits.parse().ok().filter(|_| digits).ok_or_else(complaint)?;
        Ipv4Network::new(address.parse().map_err(|_| complaint())?, prefix)
    }
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(prefix))).unwrap_or(0)
}

/// What a container's interface and chain are called: `vx` and the hash of bridge and container.
/// Two containers with one hash cannot both be attached; the second is refused.
pub(super) fn interface_name(bridge: &str, container: &str) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let hash = hash(&[bridge.as_bytes(), &[0], container.as_bytes()]);
    let digits = (0..13).map(|at| char::from(DIGITS[usize::from(((hash >> (at * 5)) & 31) as u8)]));
    "vx".chars().chain(digits).collect()
}

/// The hardware address of the container with this address: locally administered, and the same
/// again when the address is.
pub(super) fn container_mac(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x02, 0x58, a, b, c, d]
}

/// The hardware address of a bridge.
pub(super) fn bridge_mac(bridge: &str) -> [u8; 6] {
    let [a, b, c, d, ..] = hash(&[bridge.as_bytes()]).to_be_bytes();
    [0x02, 0x59, a, b, c, d]
}

/// FNV-1a: the same in every build of ours, which std's hashers do not promise.
fn hash(parts: &[&[u8]]) -> u64 {
    parts.iter().copied().flatten().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_and_know_their_ends() {
        for (text, first, last) in [
            ("10.200.0.0/13", [10, 200, 0, 0], [10, 207, 255, 255]),
            ("0.0.0.0/0", [0, 0, 0, 0], [255, 255, 255, 255]),
            ("169.254.169.254/32", [169, 254, 169, 254], [169, 254, 169, 254]),
        ] {
            let network: Ipv4Network = text.parse().unwrap();
            assert_eq!((network.first(), network.last()), (first.into(), last.into()));
            assert!(network.contains(network.first()) && network.contains(network.last()));
            assert_eq!(network.to_string(), text);
        }
        let small: Ipv4Network = "10.0.0.4/30".parse().unwrap();
        assert!(!small.contains([10, 0, 0, 3].into()) && !small.contains([10, 0, 0, 8].into()));
        assert!(small.meets([10, 0, 0, 99].into(), 24) && small.meets([10, 0, 0, 5].into(), 32));
        assert!(!small.meets([10, 0, 1, 4].into(), 24) && !small.meets([10, 0, 0, 8].into(), 30));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["10.0.0.0", "10.0.0.1/24", "10.0.0.0/33", "10.0.0.0/+8", "::/0", "/", ""] {
            assert!(text.parse::<Ipv4Network>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn interface_names_fit_the_kernel_and_stay_the_same() {
        assert_eq!(interface_name("volvox0", "a"), interface_name("volvox0", "a"));
        assert_eq!(interface_name("volvox0", "a").len(), 15);
        assert_ne!(interface_name("volvox0", "a"), interface_name("volvox1", "a"));
        assert_ne!(interface_name("a", "bc"), interface_name("ab", "c"));
        // A restarted agent of a later build must find these again.
        assert_eq!(interface_name("volvox0", "instance"), "vxg3ffjdjo4m0kd");
    }
}
