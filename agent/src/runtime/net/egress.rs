//! Egress rules, compiled: which rules of nftables stand for what a container may reach.
//!
//! All of them accept; what none accepts, the chain that calls them drops (`ruleset.rs`). IPv6
//! destinations and `icmpv6` give no rule: a container has no IPv6, so there is nothing to allow.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::net::{IpAddr, Ipv4Addr};

use volvox_protocol::egress::{Destination, SecurityGroupRule};

use super::expr::{Expr, Field, NftVerdict, Rule, is, within};

/// Rules of nftables that one container may have. Each allowed destination takes one per range of
/// ports, and one more if it is logged.
pub const COMPILED_RULES: usize = 16_384;
/// Lines per second that one logged rule may write: a container must not flood the machine's log.
const LOG_LINES: u32 = 10;
/// The kernel cuts a log line's prefix at 127 bytes.
const LOG_PREFIX: usize = 120;

/// Egress rules that cannot be enforced. Nothing was changed; whoever desired the container mends
/// them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The rule is not valid, which whoever took it in has not checked.
    #[error("egress rule {index}: {complaint}")]
    Invalid {
        /// Which rule, counted from 0.
        index: usize,
        /// What is wrong with it.
        complaint: String,
    },
    /// Destinations times ports are too many.
    #[error(
        "the egress rules are more than {COMPILED_RULES} when destinations and ports are counted out"
    )]
    TooMany,
}

/// The rules for a container's chain, in order.
pub(super) fn compile(
    container: &str,
    rules: &[SecurityGroupRule],
) -> Result<Vec<Rule>, EgressError> {
    let mut compiled = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        let invalid = |complaint| EgressError::Invalid { index, complaint };
        let destinations = merged(destinations(rule).map_err(invalid)?);
        let contents = contents(rule).map_err(invalid)?;
        let each = if rule.log { 2 } else { 1 };
        let count = destinations.len().saturating_mul(contents.len()).saturating_mul(each);
        if compiled.len().saturating_add(count) > COMPILED_RULES {
            return Err(EgressError::TooMany);
        }
        for destination in &destinations {
            for content in &contents {
                let mut matches = matching(*destination);
                matches.extend_from_slice(content);
                if rule.log {
                    compiled.push([&matches[..], &log(container)].concat());
                }
                matches.push(Expr::Verdict(NftVerdict::Accept));
                compiled.push(matches);
            }
        }
    }
    Ok(compiled)
}

/// The destination's part of a rule; nothing for all of IPv4.
fn matching((from, to): (u32, u32)) -> Rule {
    match (from, to) {
        (0, u32::MAX) => Vec::new(),
        _ => within(Field::IpDestination, &from.to_be_bytes(), &to.to_be_bytes()).to_vec(),
    }
}

/// Protocol and ports, or kind of message: an alternative each.
fn contents(rule: &SecurityGroupRule) -> Result<Vec<Rule>, String> {
    const ICMP: u8 = 1;
    const TCP: u8 = 6;
    const UDP: u8 = 17;
    let with_ports = |protocol: u8| -> Result<Vec<Rule>, String> {
        let ranges = merged(ports(rule)?).into_iter();
        Ok(ranges
            .map(|(from, to)| {
                // A port has two bytes, those at the end.
                let (from, to) = (from.to_be_bytes(), to.to_be_bytes());
                let ports = within(Field::Port, &from[2..], &to[2..]);
                is(Field::L4Protocol, &[protocol]).into_iter().chain(ports).collect()
            })
            .collect())
    };
    match rule.protocol.as_str() {
        "all" => Ok(vec![Vec::new()]),
        "tcp" => with_ports(TCP),
        "udp" => with_ports(UDP),
        "icmpv6" => Ok(Vec::new()),
        "icmp" => {
            let info = rule.icmp_info.ok_or("icmp_info is missing")?;
            let mut matches = is(Field::L4Protocol, &[ICMP]).to_vec();
            for (field, wanted) in [(Field::IcmpType, info.kind), (Field::IcmpCode, info.code)] {
                if wanted != -1 {
                    let value = u8::try_from(wanted).map_err(|_| "icmp_info is out of range")?;
                    matches.extend(is(field, &[value]));
                }
            }
            Ok(vec![matches])
        }
        other => Err(format!("protocol {other:?} is unknown")),
    }
}

fn ports(rule: &SecurityGroupRule) -> Result<Vec<(u32, u32)>, String> {
    let mut ranges: Vec<_> = rule.ports.iter().map(|port| (*port, *port)).collect();
    ranges.extend(rule.port_range.map(|range| (range.start, range.end)));
    if ranges.is_empty() {
        return Err("ports are missing".into());
    }
    match ranges.iter().find(|(from, to)| from > to || *to > u32::from(u16::MAX)) {
        Some((from, to)) => Err(format!("ports {from} to {to} are no range of ports")),
        None => Ok(ranges),
    }
}

fn destinations(rule: &SecurityGroupRule) -> Result<Vec<(u32, u32)>, String> {
    let mut ranges = Vec::new();
    for destination in rule.parsed_destinations() {
        match destination? {
            Destination::Address(IpAddr::V4(address)) => {
                ranges.push((address.to_bits(), address.to_bits()));
            }
            Destination::Network(IpAddr::V4(address), prefix) => {
                let rest = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                ranges.push((address.to_bits() & !rest, address.to_bits() | rest));
            }
            Destination::Range(IpAddr::V4(from), IpAddr::V4(to)) => {
                ranges.push((Ipv4Addr::to_bits(from), to.to_bits()));
            }
            Destination::Address(IpAddr::V6(_))
            | Destination::Network(IpAddr::V6(_), _)
            | Destination::Range(IpAddr::V6(_), _)
            | Destination::Range(_, IpAddr::V6(_)) => {}
        }
    }
    Ok(ranges)
}

/// The same numbers in as few ranges as can be, in order.
fn merged(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut merged: Vec<(u32, u32)> = Vec::new();
    for (from, to) in ranges {
        match merged.last_mut() {
            Some((_, end)) if from <= end.saturating_add(1) => *end = to.max(*end),
            _ => merged.push((from, to)),
        }
    }
    merged
}

fn log(container: &str) -> [Expr; 2] {
    let container: String = container.chars().filter(|c| c.is_ascii_graphic()).collect();
    let mut prefix = format!("volvox egress {container}");
    prefix.truncate(LOG_PREFIX);
    [Expr::Limit(LOG_LINES), Expr::Log(prefix + " ")]
}

#[cfg(test)]
mod tests {
    use volvox_protocol::egress::{IcmpInfo, PortRange};

    use super::*;

    fn rule(protocol: &str, destinations: &[&str]) -> SecurityGroupRule {
        SecurityGroupRule {
            protocol: protocol.into(),
            destinations: destinations.iter().map(|text| (*text).to_owned()).collect(),
            ..SecurityGroupRule::default()
        }
    }

    fn tcp(destinations: &[&str], ports: &[u32]) -> SecurityGroupRule {
        SecurityGroupRule { ports: ports.to_vec(), ..rule("tcp", destinations) }
    }

    /// What the rules say, in a short form: `dst from-to`, `proto n`, `port from-to`…
    fn told(rules: &[SecurityGroupRule]) -> Vec<String> {
        let compiled = compile("c", rules).unwrap();
        compiled.iter().map(|rule| rule.iter().map(tell).collect()).collect()
    }

    fn tell(expr: &Expr) -> String {
        #[expect(clippy::wildcard_enum_match_arm, reason = "the others do not occur here")]
        match expr {
            Expr::Load { field, .. } => format!("{field:?}"),
            Expr::Cmp { value, .. } => format!("={value:?} "),
            Expr::Range { from, to } => format!("={from:?}-{to:?} "),
            Expr::Limit(_) => "limit ".into(),
            Expr::Log(prefix) => format!("log {prefix:?}"),
            Expr::Verdict(NftVerdict::Accept) => "accept".into(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_rule_is_counted_out_by_destination_and_port() {
        let rules = [tcp(&["10.0.0.1", "10.1.0.0/16,192.168.0.5-192.168.0.9"], &[80, 443, 81])];
        let (a, b) = ("=[10, 0, 0, 1]", "=[10, 1, 0, 0]-[10, 1, 255, 255]");
        let c = "=[192, 168, 0, 5]-[192, 168, 0, 9]";
        let (low, high) = ("=[0, 80]-[0, 81]", "=[1, 187]");
        let mut expected = Vec::new();
        for destination in [a, b, c] {
            for port in [low, high] {
                expected
                    .push(format!("IpDestination{destination} L4Protocol=[6] Port{port} accept"));
            }
        }
        assert_eq!(told(&rules), expected);
    }

    #[test]
    fn any_is_no_comparison() {
        assert_eq!(told(&[rule("all", &["0.0.0.0/0"])]), ["accept"]);
        let info = |kind, code| Some(IcmpInfo { kind, code });
        let icmp = |icmp_info| SecurityGroupRule { icmp_info, ..rule("icmp", &["0.0.0.0/0"]) };
        assert_eq!(told(&[icmp(info(-1, -1))]), ["L4Protocol=[1] accept"]);
        assert_eq!(told(&[icmp(info(8, -1))]), ["L4Protocol=[1] IcmpType=[8] accept"]);
        let both = "L4Protocol=[1] IcmpType=[3] IcmpCode=[4] accept";
        assert_eq!(told(&[icmp(info(3, 4))]), [both]);
    }

    #[test]
    fn what_is_of_ipv6_allows_nothing() {
        let icmp_info = Some(IcmpInfo { kind: -1, code: -1 });
        let icmpv6 = SecurityGroupRule { icmp_info, ..rule("icmpv6", &["::/0", "0.0.0.0/0"]) };
        assert!(told(&[rule("all", &["::1", "fe80::/10", "::1-::2"]), icmpv6]).is_empty());
    }

    #[test]
    fn a_logged_rule_logs_within_a_limit_and_then_accepts() {
        let rules = [SecurityGroupRule { log: true, ..rule("all", &["1.2.3.4"]) }];
        let destination = "IpDestination=[1, 2, 3, 4] ";
        let logged = format!("{destination}limit log \"volvox egress c \"");
        assert_eq!(told(&rules), [logged, format!("{destination}accept")]);
    }

    #[test]
    fn a_prefix_ignores_the_bits_after_it() {
        assert_eq!(told(&[rule("all", &["10.1.2.3/0"])]), ["accept"]);
        let expected = "IpDestination=[10, 1, 2, 0]-[10, 1, 2, 255] accept";
        assert_eq!(told(&[rule("all", &["10.1.2.3/24"])]), [expected]);
        assert_eq!(told(&[rule("all", &["1.2.3.4/32"])]), ["IpDestination=[1, 2, 3, 4] accept"]);
    }

    #[test]
    fn rules_that_cannot_be_are_refused() {
        let range = |start, end| SecurityGroupRule {
            port_range: Some(PortRange { start, end }),
            ..rule("udp", &["1.2.3.4"])
        };
        for bad in [
            rule("sctp", &["1.2.3.4"]),
            rule("tcp", &["1.2.3.4"]),
            rule("all", &["nowhere"]),
            rule("icmp", &["1.2.3.4"]),
            tcp(&["1.2.3.4"], &[65_536]),
            range(9, 8),
        ] {
            let refusal = compile("c", &[rule("all", &["1.1.1.1"]), bad.clone()]).unwrap_err();
            assert!(matches!(refusal, EgressError::Invalid { index: 1, .. }), "{bad:?}");
        }
    }

    #[test]
    fn too_many_rules_are_refused_at_the_limit() {
        let destinations: Vec<String> =
            (0..=COMPILED_RULES).map(|at| format!("10.{}.{}.1", at / 256, at % 256)).collect();
        let rules = |count: usize| {
            let texts: Vec<_> = destinations[..count].iter().map(String::as_str).collect();
            [rule("all", &texts)]
        };
        assert_eq!(compile("c", &rules(COMPILED_RULES)).unwrap().len(), COMPILED_RULES);
        assert_eq!(compile("c", &rules(COMPILED_RULES + 1)), Err(EgressError::TooMany));
    }
}
