//! The rules of egress rules.

use std::net::IpAddr;
use std::str::FromStr;

use crate::definition::rules::{port, quote, texts};
use crate::limits::{DESTINATIONS, PORTS};
use crate::validate::{Checker, Validate};

use super::{Destination, IcmpInfo, PortRange, SecurityGroupRule};

impl Validate for SecurityGroupRule {
    fn check(&self, at: &mut Checker) {
        match self.protocol.as_str() {
            "tcp" | "udp" => {
                self.check_ports(at);
                self.refuse_icmp(at);
            }
            "icmp" | "icmpv6" => {
                self.refuse_ports(at);
                at.field("icmp_info", |at| match self.icmp_info {
                    Some(info) => info.check(at),
                    None => at.require(false, || format!("must be given for {}", self.protocol)),
                });
            }
            "all" => {
                self.refuse_ports(at);
                self.refuse_icmp(at);
            }
            other => at.field("protocol", |at| {
                at.require(false, || {
                    format!("must be tcp, udp, icmp, icmpv6 or all, not {}", quote(other))
                });
            }),
        }
        self.check_destinations(at);
        texts(at, "annotations", &self.annotations);
    }
}

impl SecurityGroupRule {
    fn check_ports(&self, at: &mut Checker) {
        at.at_most("ports", self.ports.len(), PORTS, "entries");
        at.each("ports", &self.ports, |at, given| port(at, *given));
        at.field("ports", |at| {
            let given = !self.ports.is_empty() || self.port_range.is_some();
            at.require(given, || format!("ports or a port_range are needed for {}", self.protocol));
        });
        at.field("port_range", |at| {
            if let Some(range) = self.port_range {
                at.require(self.ports.is_empty(), || "must not be given beside ports".into());
                range.check(at);
            }
        });
    }

    fn refuse_ports(&self, at: &mut Checker) {
        at.field("ports", |at| {
            at.require(self.ports.is_empty(), || {
                format!("must not be given for {}", self.protocol)
            });
        });
        at.field("port_range", |at| {
            at.require(self.port_range.is_none(), || {
                format!("must not be given for {}", self.protocol)
            });
        });
    }

    fn refuse_icmp(&self, at: &mut Checker) {
        at.field("icmp_info", |at| {
            at.require(self.icmp_info.is_none(), || {
                format!("must not be given for {}", self.protocol)
            });
        });
    }

    fn check_destinations(&self, at: &mut Checker) {
        let count = self.destinations.iter().map(|list| list.split(',').count()).sum();
        at.at_most("destinations", count, DESTINATIONS, "entries");
        at.field("destinations", |at| {
            at.require(!self.destinations.is_empty(), || "must not be empty".into());
        });
        at.each("destinations", &self.destinations, |at, list| {
            for destination in list.split(',') {
                let parsed = destination.parse::<Destination>();
                at.require(parsed.is_ok(), || parsed.err().unwrap_or_default());
            }
        });
    }
}

impl Validate for PortRange {
    fn check(&self, at: &mut Checker) {
        at.field("start", |at| port(at, self.start));
        at.field("end", |at| port(at, self.end));
        at.require(self.start <= self.end, || {
            format!("starts at {}, after its end {}", self.start, self.end)
        });
    }
}

impl Validate for IcmpInfo {
    fn check(&self, at: &mut Checker) {
        for (name, given) in [("type", self.kind), ("code", self.code)] {
            at.field(name, |at| {
                at.require((-1..=255).contains(&given), || {
                    format!("is {given}, must be -1 (any) to 255")
                });
            });
        }
    }
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let complaint = || format!("{} is no IP address, CIDR network or IP-IP range", quote(text));
        let ip = |part: &str| part.parse::<IpAddr>().map_err(|_| complaint());
        if let Some((first, last)) = text.split_once('-') {
            let (first, last) = (ip(first)?, ip(last)?);
            if first.is_ipv4() != last.is_ipv4() {
                return Err(format!("{} mixes IPv4 and IPv6", quote(text)));
            }
            if first > last {
                return Err(format!("{} starts after its end", quote(text)));
            }
            return Ok(Destination::Range(first, last));
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address = ip(address)?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            // Parsing alone would let "+8" pass.
            let digits = bits.bytes().all(|b| b.is_ascii_digit());
            return match bits.parse::<u8>() {
                Ok(bits) if digits && bits <= most => Ok(Destination::Network(address, bits)),
                _ => Err(complaint()),
            };
        }
        Ok(Destination::Address(ip(text)?))
    }
}
