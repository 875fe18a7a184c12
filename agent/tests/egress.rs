//! What a definition's egress rules let a real container reach: that and nothing else. Needs root.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "executor/cell.rs"]
#[allow(dead_code, reason = "the other tests of the executor use the rest")]
mod cell;
#[path = "net/machine.rs"]
#[allow(dead_code, reason = "the tests of the network use the rest")]
mod machine;
mod stage;

use std::os::fd::AsFd as _;

use volvox_agent::runtime::net::link::{self, Veth};
use volvox_agent::runtime::net::netlink::Socket;
use volvox_protocol::task::TaskDefinition;

use cell::{Cell, sh, task};
use machine::{HOST, Namespace, OUTSIDE, allow};

#[test]
fn a_container_reaches_what_its_definition_allows() {
    let Some(cell) = Cell::new("a_container_reaches_what_its_definition_allows") else { return };
    // The world outside of the cell's own network namespace, which is this thread's.
    let outside = Namespace::new();
    let mut route = Socket::route().unwrap();
    let veth = Veth {
        name: "up0",
        peer: "up0",
        peer_mac: [2, 0, 0, 0, 0, 9],
        namespace: outside.0.as_fd(),
        mtu: 1_500,
    };
    link::add_veth(&mut route, &veth).unwrap();
    let index = link::named(&mut route, "up0").unwrap().unwrap().index;
    link::add_address(&mut route, index, HOST, 24).unwrap();
    link::set_up(&mut route, index).unwrap();
    outside.address("up0", OUTSIDE, 24);
    for port in [80, 81] {
        outside.serve(OUTSIDE, port, "outside\n");
    }
    let ask = format!(
        "for port in 80 81; do perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(PeerAddr => \
         \"{OUTSIDE}:'$port'\", Timeout => 2); print \"'$port' \", $s ? <$s> : \"nothing\\n\"'; done"
    );
    let with = |egress_rules| TaskDefinition { egress_rules, ..task(sh(&ask)) };
    for (name, rules, eighty, other) in [
        ("none", vec![], "nothing", "nothing"),
        ("one", vec![allow("tcp", &["198.51.100.2"], &[80])], "outside", "nothing"),
        ("all", vec![allow("tcp", &["198.51.100.0/24"], &[80, 81])], "outside", "outside"),
    ] {
        let (result, _, log) = cell.task(name, with(rules));
        assert!(!result.failed, "{name}: {result:?}\n{log}");
        assert!(log.contains(&format!("APP 80 {eighty}")), "{name}: {log}");
        assert!(log.contains(&format!("APP 81 {other}")), "{name}: {log}");
    }
}
