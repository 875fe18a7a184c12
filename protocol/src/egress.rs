//! What a container may reach: the egress rules, Diego's security groups.

mod rules;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::record::record;

record! {
    /// Allows traffic that leaves a container.
    #[derive(Default)]
    pub struct SecurityGroupRule {
        /// `tcp`, `udp`, `icmp`, `icmpv6` or `all`.
        protocol: String = "protocol" required,
        /// Addresses, networks and ranges; each entry may be a list with commas.
        destinations: Vec<String> = "destinations" required,
        /// Ports, for tcp and udp, when there is no range.
        ports: Vec<u32> = "ports" omit,
        /// A range of ports, for tcp and udp, when there are no ports.
        port_range: Option<PortRange> = "port_range" omit,
        /// Which messages, for icmp and icmpv6.
        icmp_info: Option<IcmpInfo> = "icmp_info" omit,
        /// Whether allowed connections are logged.
        log: bool = "log" always,
        /// The consumer's notes.
        annotations: Vec<String> = "annotations" omit,
    }
}

record! {
    /// The ports from `start` to `end`, both counted in.
    #[derive(Default, Copy)]
    pub struct PortRange {
        /// The first.
        start: u32 = "start" always,
        /// The last.
        end: u32 = "end" always,
    }
}

record! {
    /// A kind of ICMP message; -1 stands for any.
    #[derive(Default, Copy)]
    pub struct IcmpInfo {
        /// The type number.
        kind: i32 = "type" always,
        /// The code number.
        code: i32 = "code" always,
    }
}

/// One destination of a rule, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// One address.
    Address(IpAddr),
    /// All addresses that agree with this one in so many leading bits.
    Network(IpAddr, u8),
    /// The addresses from the first to the second, both counted in, of one family.
    Range(IpAddr, IpAddr),
}

impl SecurityGroupRule {
    /// The destinations with lists taken apart; an error for each that cannot be understood, of
    /// which a validated rule has none.
    pub fn parsed_destinations(&self) -> impl Iterator<Item = Result<Destination, String>> {
        self.destinations.iter().flat_map(|list| list.split(',')).map(str::parse)
    }
}
