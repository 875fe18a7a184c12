//! The configuration of the network with its limits, and the settings of the kernel that go with it:
//! a few files under /proc/sys, and the inside of a container's namespace.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::path::Path;

use super::address::Ipv4Network;
use super::link;
use super::namespace;
use super::netlink::{NetlinkError, Socket};
use super::{INSIDE, NetError};

/// The longest name of a bridge: with what we put before it, it must fit wherever the kernel keeps
/// names.
const BRIDGE_NAME_BYTES: usize = 11;
/// The largest subnet has room for 65,533 containers, the smallest for five.
const PREFIXES: RangeInclusive<u8> = 16..=29;
/// What IPv4 asks for at least, and what a bridge takes at most.
const MTUS: RangeInclusive<u32> = 576..=65_535;
/// Networks that may be denied: each packet of a new connection is held against all of them.
const DENIED_NETWORKS: usize = 256;

/// How the network is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkConfig {
    /// The name of the bridge, which names all else: 1 to 11 of `a-z`, `0-9`, `-` and `_`.
    pub bridge: String,
    /// The containers' addresses: a prefix of 16 to 29 bits. The first address is the bridge's.
    pub subnet: Ipv4Network,
    /// The machine's own address (IPv4) whose ports are mapped.
    pub host_address: IpAddr,
    /// The host ports to map. They should be none that the machine uses or gives to outgoing
    /// connections (`net.ipv4.ip_local_port_range`).
    pub port_range: RangeInclusive<u16>,
    /// How long a packet may be.
    pub mtu: u32,
    /// What no container may reach, whatever its rules say.
    pub deny: Vec<Ipv4Network>,
}

/// A configuration that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The bridge's name.
    #[error("bridge {given:?}: 1 to {BRIDGE_NAME_BYTES} of a-z, 0-9, - and _ are wanted")]
    Bridge {
        /// What was given.
        given: String,
    },
    /// The subnet is too large or too small.
    #[error("subnet {given}: a prefix of {} to {} is wanted", PREFIXES.start(), PREFIXES.end())]
    Subnet {
        /// What was given.
        given: Ipv4Network,
    },
    /// The machine's address.
    #[error("host address {given}: an IPv4 address outside of the subnet is wanted")]
    HostAddress {
        /// What was given.
        given: IpAddr,
    },
    /// The ports.
    #[error("port range {given:?}: a range from 1 on is wanted")]
    PortRange {
        /// What was given.
        given: RangeInclusive<u16>,
    },
    /// The packets' length.
    #[error("mtu {given}: {} to {} is wanted", MTUS.start(), MTUS.end())]
    Mtu {
        /// What was given.
        given: u32,
    },
    /// The denied networks.
    #[error("{given} denied networks: at most {DENIED_NETWORKS} are wanted")]
    Deny {
        /// How many were given.
        given: usize,
    },
}

impl NetworkConfig {
    /// The machine's address, if all else is usable too.
    pub(super) fn check(&self) -> Result<Ipv4Addr, Unusable> {
        let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let name = (1..=BRIDGE_NAME_BYTES).contains(&self.bridge.len())
            && self.bridge.bytes().all(|byte| letter(byte) || byte == b'-');
        if !name || matches!(self.bridge.as_str(), "all" | "default" | "lo") {
            return Err(Unusable::Bridge { given: self.bridge.clone() });
        }
        if !PREFIXES.contains(&self.subnet.prefix()) {
            return Err(Unusable::Subnet { given: self.subnet });
        }
        if self.port_range.is_empty() || *self.port_range.start() == 0 {
            return Err(Unusable::PortRange { given: self.port_range.clone() });
        }
        if !MTUS.contains(&self.mtu) {
            return Err(Unusable::Mtu { given: self.mtu });
        }
        if self.deny.len() > DENIED_NETWORKS {
            return Err(Unusable::Deny { given: self.deny.len() });
        }
        match self.host_address {
            IpAddr::V4(host) if !self.subnet.contains(host) && !host.is_unspecified() => Ok(host),
            given => Err(Unusable::HostAddress { given }),
        }
    }

    /// The bridge's address.
    pub(super) fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.subnet.first().to_bits().saturating_add(1))
    }

    /// Without the network's own, the bridge's and the broadcast address.
    pub(super) fn container_addresses(&self) -> RangeInclusive<u32> {
        let (first, last) = (self.subnet.first().to_bits(), self.subnet.last().to_bits());
        first.saturating_add(2)..=last.saturating_sub(1)
    }

    pub(super) fn host_ports(&self) -> RangeInclusive<u32> {
        u32::from(*self.port_range.start())..=u32::from(*self.port_range.end())
    }
}

/// Lets the machine forward, and sets what is particular to our bridge. Acts in the namespace of
/// the calling thread, as /proc/sys/net does.
pub(super) fn write_for_bridge(bridge: &str) -> Result<(), NetError> {
    // Not per interface: packets for mapped ports may come in by any, and replies must too.
    write("/proc/sys/net/ipv4/ip_forward", "1")?;
    // For connections from the machine to 127.0.0.1; see `net.rs`.
    write(&format!("/proc/sys/net/ipv4/conf/{bridge}/route_localnet"), "1")?;
    // The bridge answers for its own address only, not for all that the machine has.
    write(&format!("/proc/sys/net/ipv4/conf/{bridge}/arp_ignore"), "1")?;
    without_ipv6(bridge)
}

/// Addresses, routes and switches of the container's end, and of its loopback.
pub(super) fn configure_inside(
    netns: BorrowedFd<'_>,
    address: Ipv4Addr,
    gateway: Ipv4Addr,
) -> Result<(), NetError> {
    let configure = || -> Result<(), NetError> {
        without_ipv6(INSIDE)?;
        let addressed = || -> Result<(), NetlinkError> {
            let mut socket = Socket::route()?;
            let loopback = link::named(&mut socket, "lo")?.map(|link| link.index);
            link::set_up(&mut socket, loopback.unwrap_or_default())?;
            let outer = link::named(&mut socket, INSIDE)?.map(|link| link.index);
            let index = outer.unwrap_or_default();
            // Alone in its network: even a neighbour is reached by way of the gateway.
            link::add_address(&mut socket, index, address, 32)?;
            link::set_up(&mut socket, index)?;
            link::add_default_route(&mut socket, index, gateway)
        };
        let failed = |source| NetError::Kernel { doing: "configure the container's end", source };
        addressed().map_err(failed)
    };
    namespace::inside(netns, configure).map_err(NetError::Namespace)?
}

/// A machine without IPv6 has nothing to switch off.
fn without_ipv6(interface: &str) -> Result<(), NetError> {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
    if Path::new(&path).exists() { write(&path, "1") } else { Ok(()) }
}

/// Writes only what differs: /proc/sys may be read-only and already right.
fn write(path: &str, value: &str) -> Result<(), NetError> {
    let written = fs::read_to_string(path)
        .and_then(|found| if found.trim() == value { Ok(()) } else { fs::write(path, value) });
    written.map_err(|source: io::Error| NetError::Sysctl { path: path.into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> NetworkConfig {
        NetworkConfig {
            bridge: "volvox0".into(),
            subnet: "10.200.4.0/24".parse().unwrap(),
            host_address: [192, 0, 2, 2].into(),
            port_range: 61_001..=65_000,
            mtu: 1_500,
            deny: vec!["169.254.169.254/32".parse().unwrap()],
        }
    }

    #[test]
    fn the_first_address_is_the_bridges_and_the_last_nobodys() {
        assert_eq!(config().check(), Ok([192, 0, 2, 2].into()));
        assert_eq!(config().gateway(), Ipv4Addr::new(10, 200, 4, 1));
        let (first, last) = config().container_addresses().into_inner();
        assert_eq!(Ipv4Addr::from_bits(first), Ipv4Addr::new(10, 200, 4, 2));
        assert_eq!(Ipv4Addr::from_bits(last), Ipv4Addr::new(10, 200, 4, 254));
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        type Change = fn(&mut NetworkConfig);
        let cases: [(Change, &str); 9] = [
            (|c| c.bridge = String::new(), "bridge"),
            (|c| c.bridge = "twelve-chars".into(), "bridge"),
            (|c| c.bridge = "../x".into(), "bridge"),
            (|c| c.bridge = "all".into(), "bridge"),
            (|c| c.subnet = "10.0.0.0/8".parse().unwrap(), "subnet"),
            (|c| c.host_address = [10, 200, 4, 9].into(), "host address"),
            (|c| c.port_range = 0..=9, "port range"),
            (|c| c.mtu = 100, "mtu"),
            (|c| c.deny = vec![c.subnet; 257], "257 denied"),
        ];
        for (change, named) in cases {
            let mut config = config();
            change(&mut config);
            let refusal = config.check().unwrap_err().to_string();
            assert!(refusal.starts_with(named), "{refusal}");
        }
    }
}
