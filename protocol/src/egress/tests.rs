//! Tests of egress rules: names, rules and both encodings, as data.

use super::*;
use crate::definition::tests::{check, complaints};

/// A rule that allows tcp to port 80, when the destination passes.
const TCP: &str = r#"{"protocol":"tcp","ports":[80],"destinations":["1.2.3.4"]}"#;
const ICMP: &str = r#"{"protocol":"icmp","icmp_info":{"type":8},"destinations":["1.2.3.4"]}"#;
const ALL: &str = r#"{"protocol":"all","destinations":["1.2.3.4"]}"#;

#[test]
fn tcp_and_udp_have_either_ports_or_a_range() {
    check::<SecurityGroupRule>(
        TCP,
        &[
            ("{}", ""),
            (r#"{"protocol":"udp"}"#, ""),
            (r#"{"ports":[]}"#, "ports: ports or a port_range are needed for tcp"),
            (r#"{"ports":null,"port_range":{"start":1,"end":65535}}"#, ""),
            (r#"{"port_range":{"start":1,"end":2}}"#, "port_range: must not be given beside ports"),
            (r#"{"ports":[0]}"#, "ports[0]: is 0, a port is 1 to 65535"),
            (r#"{"ports":[65536]}"#, "ports[0]: is 65536, a port is 1 to 65535"),
            (
                r#"{"ports":[],"port_range":{"end":65536}}"#,
                "port_range.start: is 0, a port is 1 to 65535, \
                 port_range.end: is 65536, a port is 1 to 65535",
            ),
            (
                r#"{"ports":[],"port_range":{"start":2,"end":1}}"#,
                "port_range: starts at 2, after its end 1",
            ),
            (r#"{"icmp_info":{"type":1}}"#, "icmp_info: must not be given for tcp"),
            (r#"{"protocol":"udp","icmp_info":{}}"#, "icmp_info: must not be given for udp"),
        ],
    );
}

#[test]
fn icmp_has_a_message_and_no_ports() {
    check::<SecurityGroupRule>(
        ICMP,
        &[
            ("{}", ""),
            (r#"{"protocol":"icmpv6"}"#, ""),
            (r#"{"icmp_info":null}"#, "icmp_info: must be given for icmp"),
            (r#"{"protocol":"icmpv6","icmp_info":null}"#, "icmp_info: must be given for icmpv6"),
            (r#"{"icmp_info":{"type":-1,"code":-1}}"#, ""),
            (
                r#"{"icmp_info":{"type":-2,"code":256}}"#,
                "icmp_info.type: is -2, must be -1 (any) to 255, \
                 icmp_info.code: is 256, must be -1 (any) to 255",
            ),
            (
                r#"{"ports":[1],"port_range":{"start":1,"end":1}}"#,
                "ports: must not be given for icmp, port_range: must not be given for icmp",
            ),
        ],
    );
}

#[test]
fn all_has_neither_and_nothing_else_is_a_protocol() {
    check::<SecurityGroupRule>(
        ALL,
        &[
            ("{}", ""),
            (
                r#"{"ports":[1],"port_range":{"start":1,"end":1},"icmp_info":{}}"#,
                "ports: must not be given for all, port_range: must not be given for all, \
                 icmp_info: must not be given for all",
            ),
            (
                r#"{"protocol":"TCP"}"#,
                r#"protocol: must be tcp, udp, icmp, icmpv6 or all, not "TCP""#,
            ),
            (r#"{"protocol":""}"#, r#"protocol: must be tcp, udp, icmp, icmpv6 or all, not """#),
            (r#"{"protocol":null}"#, "protocol: invalid type: null, expected a string"),
            (r#"{"destinations":[]}"#, "destinations: must not be empty"),
        ],
    );
}

#[test]
fn destinations_are_addresses_networks_or_ranges() {
    for good in [
        "0.0.0.0",
        "10.0.0.0/8",
        "10.1.2.3/0",
        "1.1.1.1-1.1.1.1",
        "1.1.1.1-2.0.0.0,10.0.0.0/32,::1",
        "2001:db8::/128",
        "::1-::2",
    ] {
        let patch = format!(r#"{{"destinations":["{good}"]}}"#);
        assert_eq!(complaints::<SecurityGroupRule>(ALL, &patch), "", "for {good}");
    }
    let kinds = "is no IP address, CIDR network or IP-IP range";
    for (bad, part, rule) in [
        ("", "", kinds),
        ("a", "a", kinds),
        ("1.2.3", "1.2.3", kinds),
        ("1.2.3.4,", "", kinds),
        ("1.2.3.4, 1.2.3.5", " 1.2.3.5", kinds),
        ("1.2.3.4/33", "1.2.3.4/33", kinds),
        ("::/129", "::/129", kinds),
        ("1.2.3.4/+8", "1.2.3.4/+8", kinds),
        ("1.2.3.4/", "1.2.3.4/", kinds),
        ("1.2.3.4/8/8", "1.2.3.4/8/8", kinds),
        ("1.2.3.4-", "1.2.3.4-", kinds),
        ("1.1.1.1-2.2.2.2-3.3.3.3", "1.1.1.1-2.2.2.2-3.3.3.3", kinds),
        ("1.1.1.2-1.1.1.1", "1.1.1.2-1.1.1.1", "starts after its end"),
        ("1.1.1.1-::1", "1.1.1.1-::1", "mixes IPv4 and IPv6"),
    ] {
        let patch = format!(r#"{{"destinations":["1.1.1.1","{bad}"]}}"#);
        let expected = format!("destinations[1]: {part:?} {rule}");
        assert_eq!(complaints::<SecurityGroupRule>(ALL, &patch), expected, "for {bad}");
    }
}

#[test]
fn destinations_are_counted_with_their_lists_taken_apart() {
    let list = vec!["1.1.1.1"; 4097].join(",");
    let patch = format!(r#"{{"destinations":["{list}"]}}"#);
    let text = complaints::<SecurityGroupRule>(ALL, &patch);
    assert_eq!(text, "destinations: has 4097 entries, the limit is 4096");
}

#[test]
fn a_valid_rule_gives_its_destinations_understood() {
    let destinations = vec!["1.1.1.1,10.0.0.0/8".to_owned(), "::1-::2".to_owned()];
    let rule = SecurityGroupRule { destinations, ..SecurityGroupRule::default() };
    let parsed: Result<Vec<_>, _> = rule.parsed_destinations().collect();
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    assert_eq!(
        parsed.unwrap(),
        [
            Destination::Address(ip("1.1.1.1")),
            Destination::Network(ip("10.0.0.0"), 8),
            Destination::Range(ip("::1"), ip("::2")),
        ]
    );
}
