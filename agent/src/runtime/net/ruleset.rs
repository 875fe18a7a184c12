//! What our two tables of nftables hold, as messages: the frame that stands for the whole time, and
//! a container's part of it. Pure; `net.rs` sends them, each list as one batch.
//!
//! Both tables are called `volvox_<bridge>`.
//!
//! - `bridge`, before IP: a frame from a container's interface passes only if it has the container's
//!   own hardware and IPv4 address, in ARP too. All else (IPv6, other protocols) ends here.
//! - `inet`: `leave` decides what containers may reach, `enter` who may reach them, `input` keeps
//!   them from the machine itself, and the chains of nat map host ports to containers.
//!
//! A container is: a chain of its own with its egress rules, one element in [`CONTAINERS`] that
//! leads to it, one in [`PORTS`] for each mapped port, one each in [`INTERFACES`] and [`SOURCES`].
//! The elements carry the container's name, so that the kernel's own state tells it to an agent that
//! starts again; and a packet's way is as short with 250 containers as with one.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use super::address::{Ipv4Network, container_mac};
use super::expr::{Compare, DNATTED, ESTABLISHED_OR_RELATED, Expr, Field, NftVerdict, Rule};
use super::expr::{has, interface, is, is_not, within};
use super::nft::{Element, Family, Hook, MapsTo, NftTable, NftType};
use super::wire::{Malformed, NetlinkMessage, array_at};

/// What the names of our tables begin with.
pub(super) const PREFIX: &str = "volvox_";
/// `inet`: a container's address leads to its chain.
pub(super) const CONTAINERS: &str = "containers";
/// `inet`: a host port leads to a container's address and port.
pub(super) const PORTS: &str = "ports";
/// `bridge`: the interfaces of our containers.
const INTERFACES: &str = "interfaces";
/// `bridge`: interface, hardware address and IPv4 address that belong together.
const SOURCES: &str = "sources";

const LOOPBACK: [[u8; 4]; 2] = [[127, 0, 0, 0], [127, 255, 255, 255]];
const IPV4: [u8; 1] = [2];
const TCP: [u8; 1] = [6];

/// A container's place in the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkSlot {
    pub(super) container: String,
    /// The interface, and the chain.
    pub(super) interface: String,
    pub(super) address: Ipv4Addr,
    /// Container port and host port, in the order they were asked for.
    pub(super) ports: Vec<(u16, u16)>,
}

/// The tables of one bridge.
#[derive(Debug)]
pub(super) struct Ruleset {
    name: String,
    bridge: String,
    subnet: Ipv4Network,
    host: Ipv4Addr,
    deny: Vec<Ipv4Network>,
}

impl Ruleset {
    pub(super) fn new(
        bridge: &str,
        subnet: Ipv4Network,
        host: Ipv4Addr,
        deny: Vec<Ipv4Network>,
    ) -> Ruleset {
        Ruleset { name: format!("{PREFIX}{bridge}"), bridge: bridge.into(), subnet, host, deny }
    }

    pub(super) fn inet(&self) -> NftTable<'_> {
        NftTable { family: Family::Inet, name: &self.name }
    }

    pub(super) fn bridge(&self) -> NftTable<'_> {
        NftTable { family: Family::Bridge, name: &self.name }
    }

    /// Makes the frame, or makes it again: the containers' parts stay as they are, and no packet
    /// meets a half of it.
    pub(super) fn frame(&self) -> Vec<NetlinkMessage> {
        let (inet, bridge) = (self.inet(), self.bridge());
        let address = NftType { number: 7, bytes: 4 };
        let port = NftType { number: 13, bytes: 2 };
        let both = NftType { number: 7 << 6 | 13, bytes: 8 };
        let interface = NftType { number: 41, bytes: 16 };
        let source = NftType { number: 41 << 12 | 9 << 6 | 7, bytes: 16 + 8 + 4 };
        let mut messages = vec![
            inet.add(),
            bridge.add(),
            inet.add_set(1, CONTAINERS, address, MapsTo::Verdict),
            inet.add_set(2, PORTS, port, MapsTo::Value(both)),
            bridge.add_set(3, INTERFACES, interface, MapsTo::Nothing),
            bridge.add_set(4, SOURCES, source, MapsTo::Nothing),
        ];
        let chains = self.inet_chains();
        // All chains before any rule: rules name chains.
        for (table, chains) in [(inet, &chains), (bridge, &bridge_chains())] {
            for (chain, hook, _) in chains {
                messages.push(match hook {
                    Some(hook) => table.add_base_chain(chain, *hook),
                    None => table.add_chain(chain),
                });
            }
            for (chain, _, rules) in chains {
                messages.push(table.flush(chain));
                messages.extend(rules.iter().map(|rule| table.add_rule(chain, rule)));
            }
        }
        messages
    }

    /// Puts a container's part in; it must not be there.
    pub(super) fn attach(&self, held: &NetworkSlot, egress: &[Rule]) -> Vec<NetlinkMessage> {
        let (inet, bridge) = (self.inet(), self.bridge());
        let (name, chain) = (held.container.as_str(), held.interface.as_str());
        let mut messages = vec![
            bridge.add_member(SOURCES, &source_of(held), name),
            bridge.add_member(INTERFACES, &interface(chain), name),
            inet.add_new_chain(chain),
        ];
        messages.extend(egress.iter().map(|rule| inet.add_rule(chain, rule)));
        let jump = NftVerdict::Jump(chain.into());
        messages.push(inet.add_verdict(CONTAINERS, &held.address.octets(), &jump, name));
        let ports = port_elements(held);
        messages.extend(ports.iter().map(|element| inet.add_value(PORTS, element)));
        messages
    }

    /// Takes a container's part out; it must be there.
    pub(super) fn detach(&self, held: &NetworkSlot) -> Vec<NetlinkMessage> {
        let (inet, bridge) = (self.inet(), self.bridge());
        let chain = held.interface.as_str();
        let ports = held.ports.iter().map(|(_, host)| host.to_be_bytes());
        let mut messages: Vec<_> = ports.map(|key| inet.delete_element(PORTS, &key)).collect();
        messages.extend([
            inet.delete_element(CONTAINERS, &held.address.octets()),
            inet.flush(chain),
            inet.delete_chain(chain),
            bridge.delete_element(SOURCES, &source_of(held)),
            bridge.delete_element(INTERFACES, &interface(chain)),
        ]);
        messages
    }

    /// The chains of the `inet` table: name, where it hangs, rules.
    fn inet_chains(&self) -> Vec<(&'static str, Option<Hook>, Vec<Rule>)> {
        let bridge = interface(&self.bridge);
        let from_bridge = || is(Field::IifName, &bridge).to_vec();
        let to_bridge = || is(Field::OifName, &bridge).to_vec();
        let not_from_bridge = || is_not(Field::IifName, &bridge).to_vec();
        let not_to_bridge = || is_not(Field::OifName, &bridge).to_vec();
        let ipv4 = || is(Field::Family, &IPV4).to_vec();
        let loopback = |field| within(field, &LOOPBACK[0], &LOOPBACK[1]).to_vec();
        let to_host = || is(Field::IpDestination, &self.host.octets()).to_vec();
        let subnet = [self.subnet.first().octets(), self.subnet.last().octets()];
        let from_container = within(Field::IpSource, &subnet[0], &subnet[1]).to_vec();

        let hook = |number, priority, kind| Some(Hook { number, priority, kind });
        vec![
            // The kernel lets 127.0.0.0/8 through the bridge, for the sake of mapped ports (see
            // `net.rs`). No container ever has a reason to send there.
            (
                "loopback",
                hook(0, -300, "filter"),
                vec![rule([from_bridge(), ipv4(), loopback(Field::IpDestination), drop()])],
            ),
            (
                "prerouting",
                hook(0, -100, "nat"),
                vec![rule([not_from_bridge(), ipv4(), to_host(), mapped()])],
            ),
            (
                "output",
                hook(3, -100, "nat"),
                vec![
                    rule([ipv4(), to_host(), mapped()]),
                    rule([ipv4(), loopback(Field::IpDestination), mapped()]),
                ],
            ),
            (
                "postrouting",
                hook(4, 100, "nat"),
                vec![
                    // A container could not answer to 127.0.0.1.
                    rule([to_bridge(), ipv4(), loopback(Field::IpSource), masquerade()]),
                    rule([not_to_bridge(), ipv4(), from_container, masquerade()]),
                ],
            ),
            (
                "input",
                hook(1, 0, "filter"),
                vec![rule([from_bridge(), known(), accept()]), rule([from_bridge(), drop()])],
            ),
            (
                "forward",
                hook(2, 0, "filter"),
                vec![rule([from_bridge(), goto("leave")]), rule([to_bridge(), goto("enter")])],
            ),
            ("leave", None, self.leave()),
            (
                "enter",
                None,
                vec![
                    rule([is_not(Field::Family, &IPV4).to_vec(), drop()]),
                    rule([known(), accept()]),
                    rule([has(Field::CtStatus, DNATTED).to_vec(), accept()]),
                    drop(),
                ],
            ),
        ]
    }

    /// Replies go first: whoever was let in by a mapped port gets his answer, even from a network
    /// that is denied. Then `deny`, which no rule and no connection of before overrules.
    fn leave(&self) -> Vec<Rule> {
        let mut rules = vec![
            rule([is_not(Field::Family, &IPV4).to_vec(), drop()]),
            rule([known(), is(Field::CtDirection, &[1]).to_vec(), accept()]),
        ];
        for network in &self.deny {
            let (first, last) = (network.first().octets(), network.last().octets());
            rules.push(rule([within(Field::IpDestination, &first, &last).to_vec(), drop()]));
        }
        rules.push(rule([known(), accept()]));
        let source = Expr::Load { field: Field::IpSource, at: 0 };
        rules.push(vec![source, Expr::VerdictOf(CONTAINERS)]);
        rules.push(drop());
        rules
    }
}

/// The chain of the `bridge` table. Other bridges' frames pass here too and are left alone.
fn bridge_chains() -> Vec<(&'static str, Option<Hook>, Vec<Rule>)> {
    const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
    const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
    let load = |field, at| Expr::Load { field, at };
    // Interface, hardware address and address fill the registers one after the other, as the
    // elements of the set do: 16, 6 padded to 8, and 4 bytes.
    let belongs = |mac, address| {
        let member = Expr::Member { set: SOURCES, of: Compare::Equal };
        vec![load(Field::IifName, 0), load(mac, 4), load(address, 6), member]
    };
    let stranger = Expr::Member { set: INTERFACES, of: Compare::Differ };
    let hook = Hook { number: 0, priority: -300, kind: "filter" };
    let rules = vec![
        rule([vec![load(Field::IifName, 0), stranger], accept()]),
        rule([
            is(Field::EtherType, &ETHERTYPE_IPV4).to_vec(),
            belongs(Field::EtherSource, Field::IpSource),
            accept(),
        ]),
        rule([
            is(Field::EtherType, &ETHERTYPE_ARP).to_vec(),
            belongs(Field::EtherSource, Field::ArpSource),
            belongs(Field::ArpMac, Field::ArpSource),
            accept(),
        ]),
        drop(),
    ];
    vec![("prerouting", Some(hook), rules)]
}

/// The containers that these elements of [`CONTAINERS`] and [`PORTS`] tell of, by name.
pub(super) fn read(
    containers: &[Element],
    ports: &[Element],
    interface_of: impl Fn(&str) -> String,
) -> Result<BTreeMap<String, NetworkSlot>, Malformed> {
    let mut found = BTreeMap::new();
    for element in containers {
        let container = String::from_utf8(element.note.clone()).map_err(|_| Malformed)?;
        let held = NetworkSlot {
            interface: interface_of(&container),
            address: Ipv4Addr::from(array_at::<4>(&element.key, 0)?),
            ports: Vec::new(),
            container: container.clone(),
        };
        found.insert(container, held);
    }
    let mut in_order = Vec::new();
    for element in ports {
        let name = element.note.get(2..).ok_or(Malformed)?.to_vec();
        let order = u16::from_be_bytes(array_at(&element.note, 0)?);
        let inside = u16::from_be_bytes(array_at(&element.value, 4)?);
        let host = u16::from_be_bytes(array_at(&element.key, 0)?);
        in_order.push((String::from_utf8(name).map_err(|_| Malformed)?, order, inside, host));
    }
    in_order.sort();
    for (name, _, inside, host) in in_order {
        if let Some(held) = found.get_mut(&name) {
            held.ports.push((inside, host));
        }
    }
    Ok(found)
}

fn port_elements(held: &NetworkSlot) -> Vec<Element> {
    let elements = held.ports.iter().zip(0_u16..).map(|((inside, host), order)| {
        let [a, b] = inside.to_be_bytes();
        Element {
            key: host.to_be_bytes().to_vec(),
            value: [held.address.octets(), [a, b, 0, 0]].concat(),
            note: [&order.to_be_bytes()[..], held.container.as_bytes()].concat(),
        }
    });
    elements.collect()
}

fn source_of(held: &NetworkSlot) -> Vec<u8> {
    let mac = container_mac(held.address);
    [&interface(&held.interface)[..], &mac, &[0, 0], &held.address.octets()].concat()
}

fn rule<const N: usize>(parts: [Rule; N]) -> Rule {
    parts.concat()
}

fn mapped() -> Rule {
    let port = Expr::Load { field: Field::Port, at: 0 };
    let tcp = is(Field::L4Protocol, &TCP);
    tcp.into_iter().chain([port, Expr::ValueOf(PORTS), Expr::Dnat]).collect()
}

fn known() -> Rule {
    has(Field::CtState, ESTABLISHED_OR_RELATED).to_vec()
}

fn masquerade() -> Rule {
    vec![Expr::Masquerade]
}

fn accept() -> Rule {
    vec![Expr::Verdict(NftVerdict::Accept)]
}

fn drop() -> Rule {
    vec![Expr::Verdict(NftVerdict::Drop)]
}

fn goto(chain: &str) -> Rule {
    vec![Expr::Verdict(NftVerdict::Goto(chain.into()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(container: &str, last: u8, ports: &[(u16, u16)]) -> NetworkSlot {
        NetworkSlot {
            container: container.into(),
            interface: format!("vx{container}"),
            address: [10, 200, 0, last].into(),
            ports: ports.to_vec(),
        }
    }

    fn element(key: &[u8], note: &str) -> Element {
        Element { key: key.to_vec(), value: Vec::new(), note: note.into() }
    }

    #[test]
    fn containers_are_read_back_from_their_elements_in_the_order_of_their_ports() {
        let (a, b) = (held("a", 2, &[(80, 9_001), (81, 9_000)]), held("b", 3, &[]));
        let containers = [element(&[10, 200, 0, 3], "b"), element(&[10, 200, 0, 2], "a")];
        let mut ports = port_elements(&a);
        ports.reverse();
        let read = read(&containers, &ports, |name| format!("vx{name}")).unwrap();
        assert_eq!(read.into_values().collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn elements_of_others_are_malformed_and_not_a_panic() {
        let name = |name: &str| name.to_owned();
        assert!(read(&[element(&[1], "a")], &[], name).is_err());
        assert!(read(&[], &[element(&[1, 2], "a")], name).is_err());
        assert!(read(&[], &[element(&[1, 2], "aaaa")], name).is_err());
    }

    #[test]
    fn a_source_is_interface_and_both_addresses() {
        let mut expected = interface("vxa").to_vec();
        expected.extend([2, 0x58, 10, 200, 0, 2, 0, 0, 10, 200, 0, 2]);
        assert_eq!(source_of(&held("a", 2, &[])), expected);
    }

    #[test]
    fn deny_stands_before_everything_that_a_container_began() {
        let network: Ipv4Network = "169.254.169.254/32".parse().unwrap();
        let subnet = "10.200.0.0/24".parse().unwrap();
        let ruleset = Ruleset::new("b", subnet, [192, 0, 2, 2].into(), vec![network]);
        let rules = ruleset.leave();
        let denied = rule([is(Field::IpDestination, &network.first().octets()).to_vec(), drop()]);
        let at = |wanted: &Rule| rules.iter().position(|rule| rule == wanted).unwrap();
        assert!(at(&denied) < at(&rule([known(), accept()])));
        assert_eq!(rules.last(), Some(&drop()));
    }
}
