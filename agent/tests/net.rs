//! The containers' network against the real kernel; needs root. Each test is a machine of its own: a
//! network namespace with a second one as the world outside, and containers are namespaces too. They
//! have no name and live by descriptors only, so they vanish with all that is in them when the
//! process ends, however it ends, and any number of tests can run at once. One test works in the
//! machine's own namespace, with a bridge and a subnet chosen at random.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;

use volvox_agent::container::step::CheckOutcome;
use volvox_agent::image::cancel::Cancel;
use volvox_agent::runtime::check::check;
use volvox_agent::runtime::net::link::{self, Veth};
use volvox_agent::runtime::net::netlink::Socket;
use volvox_agent::runtime::net::{
    COMPILED_RULES, CellNetwork, EgressError, Ipv4Network, NetError, NetworkConfig, tables,
};
use volvox_protocol::definition::{Check, HttpCheck, TcpCheck};
use volvox_protocol::egress::{PortRange, SecurityGroupRule};

#[path = "net/machine.rs"]
mod machine;
mod stage;

use machine::{
    ELSEWHERE, ELSEWHERE_GATEWAY, HOST, METADATA, Machine, NEVER, Namespace, OUTSIDE, SURELY,
    allow, answer, attach, cannot_run, config, everything, icmp, until,
};

#[test]
fn a_mapped_port_is_reached_from_outside_and_from_the_machine_itself() {
    if cannot_run("a_mapped_port_is_reached_from_outside_and_from_the_machine_itself") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let (container, attached) = attach(&mut network, "web", &[]);
    let &[(8080, host_port)] = &attached.ports[..] else { panic!("{attached:?}") };
    assert_eq!(host_port, 61_001);
    container.serve(Ipv4Addr::UNSPECIFIED, 8080, "web");
    machine.here.reaches(attached.address, 8080, "web");
    machine.outside.reaches(HOST, host_port, "web");
    machine.here.reaches(HOST, host_port, "web");
    machine.here.reaches(Ipv4Addr::LOCALHOST, host_port, "web");
    // Only the mapped port leads in, and only by the machine's address.
    container.serve(Ipv4Addr::UNSPECIFIED, 8081, "secret");
    machine.outside.misses(attached.address, 8080);
    machine.outside.misses(attached.address, 8081);
    machine.outside.misses(HOST, host_port + 1);
    network.detach("web").unwrap();
    machine.outside.misses(HOST, host_port);
}

#[test]
fn a_check_from_the_machine_reaches_a_container_that_reaches_nothing() {
    if cannot_run("a_check_from_the_machine_reaches_a_container_that_reaches_nothing") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let (container, attached) = attach(&mut network, "c", &[]);
    container.serve(attached.address, 8080, "HTTP/1.1 200 OK\r\n\r\n");
    // No mapped port is needed, and no rule.
    container.serve(Ipv4Addr::UNSPECIFIED, 9090, "HTTP/1.1 503 Busy\r\n\r\n");
    container.serve(Ipv4Addr::LOCALHOST, 7070, "HTTP/1.1 200 OK\r\n\r\n");
    let made =
        |it: Check| machine.here.run(|| check(&it, attached.address, SURELY, &Cancel::new()));
    let http = |port| made(Check::Http(HttpCheck { port, ..HttpCheck::default() }));
    let tcp = |port| made(Check::Tcp(TcpCheck { port, ..TcpCheck::default() }));
    assert_eq!(http(8080), CheckOutcome::Passed);
    assert_eq!(tcp(9090), CheckOutcome::Passed);
    let busy = http(9090);
    assert!(matches!(&busy, CheckOutcome::Failed(text) if text.contains("code 503")), "{busy:?}");
    // What listens on the container's loopback only is not there for others.
    for outcome in [http(7070), tcp(7070)] {
        let CheckOutcome::Failed(text) = outcome else { panic!("{outcome:?}") };
        assert!(text.ends_with("connection refused"), "{text}");
    }
    container.misses(attached.gateway, 22);
}

#[test]
fn nothing_is_reached_without_a_rule() {
    if cannot_run("nothing_is_reached_without_a_rule") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    machine.outside.serve(OUTSIDE, 80, "outside");
    machine.outside.echo(OUTSIDE, 53);
    let (closed, at) = attach(&mut network, "closed", &[]);
    closed.misses(OUTSIDE, 80);
    assert_eq!(closed.ask(at.address, OUTSIDE, 53, NEVER), None);
    assert!(!closed.pings(OUTSIDE, 8, NEVER));
    // The same with a rule, so that the silence above means something.
    let (open, at) = attach(&mut network, "open", &everything());
    open.reaches(OUTSIDE, 80, "outside");
    let seen = open.ask(at.address, OUTSIDE, 53, SURELY);
    assert_eq!(seen, Some(HOST.to_string()), "masqueraded");
    assert!(open.pings(OUTSIDE, 8, SURELY));
}

#[test]
fn rules_allow_their_ports_and_destinations_and_no_others() {
    if cannot_run("rules_allow_their_ports_and_destinations_and_no_others") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    for port in [80, 81, 90, 91, 99, 100] {
        machine.outside.serve(OUTSIDE, port, "outside");
        machine.outside.serve(ELSEWHERE, port, "elsewhere");
        machine.outside.echo(OUTSIDE, port);
    }
    let range = |start, end| Some(PortRange { start, end });
    let tcp_range = SecurityGroupRule {
        port_range: range(90, 99),
        log: true,
        ..allow("tcp", &["198.51.100.0/30"], &[])
    };
    let udp_range = SecurityGroupRule {
        port_range: range(80, 90),
        ..allow("udp", &["198.51.100.0-198.51.100.2"], &[])
    };
    let rules = [
        allow("tcp", &["198.51.100.2"], &[80]),
        tcp_range,
        udp_range,
        allow("tcp", &["203.0.113.64/28,203.0.113.1"], &[100]),
        allow("tcp", &["203.0.113.70-203.0.113.76"], &[80]),
    ];
    let (container, at) = attach(&mut network, "c", &rules);
    for port in [80, 90, 91, 99] {
        container.reaches(OUTSIDE, port, "outside");
    }
    container.reaches(ELSEWHERE, 100, "elsewhere");
    for (address, port) in [(OUTSIDE, 81), (OUTSIDE, 100), (ELSEWHERE, 80), (ELSEWHERE, 90)] {
        container.misses(address, port);
    }
    for (port, allowed) in [(80, true), (81, true), (90, true), (91, false)] {
        let patience = if allowed { SURELY } else { NEVER };
        let answer = container.ask(at.address, OUTSIDE, port, patience);
        assert_eq!(answer.is_some(), allowed, "udp {port}");
    }
    assert!(!container.pings(OUTSIDE, 8, NEVER));
}

#[test]
fn icmp_rules_name_type_and_code() {
    const ECHO: u8 = 8;
    const TIMESTAMP: u8 = 13;
    if cannot_run("icmp_rules_name_type_and_code") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    for (name, rule, echo, timestamp) in [
        ("any", icmp(-1, -1), true, true),
        ("echo", icmp(8, 0), true, false),
        ("echo of any code", icmp(8, -1), true, false),
        ("timestamp", icmp(13, 0), false, true),
        ("other code", icmp(8, 1), false, false),
    ] {
        let (container, _) = attach(&mut network, name, &[rule]);
        for (kind, allowed) in [(ECHO, echo), (TIMESTAMP, timestamp)] {
            let patience = if allowed { SURELY } else { NEVER };
            assert_eq!(container.pings(OUTSIDE, kind, patience), allowed, "{name}: {kind}");
        }
    }
}

#[test]
fn deny_wins_over_every_rule() {
    if cannot_run("deny_wins_over_every_rule") {
        return;
    }
    let mut machine = Machine::new();
    machine.config.deny.push("203.0.113.0/25".parse().unwrap());
    let mut network = machine.open();
    for address in [METADATA, ELSEWHERE, OUTSIDE] {
        machine.outside.serve(address, 80, "outside");
    }
    let mut rules = everything().to_vec();
    rules.push(allow("tcp", &["169.254.169.254", "203.0.113.77"], &[80]));
    let (container, _) = attach(&mut network, "c", &rules);
    container.reaches(OUTSIDE, 80, "outside");
    container.misses(METADATA, 80);
    container.misses(ELSEWHERE, 80);
    assert!(!container.pings(METADATA, 8, NEVER));
    machine.here.reaches(METADATA, 80, "outside");
    // A change of the configuration takes hold at the next start, also for those who run, and for
    // connections that were allowed before.
    let denied = machine.config.deny.pop();
    drop(network);
    let network = machine.open();
    container.reaches(ELSEWHERE, 80, "outside");
    container.misses(METADATA, 80);
    machine.outside.echo(ELSEWHERE, 53);
    let socket = container.run(|| UdpSocket::bind("0.0.0.0:0").unwrap());
    let answered = |patience| answer(&socket, ELSEWHERE, 53, patience).is_some();
    assert!(answered(SURELY) && answered(SURELY));
    machine.config.deny.extend(denied);
    drop(network);
    let _network = machine.open();
    assert!(!answered(NEVER));
}

#[test]
fn a_denied_client_of_a_mapped_port_gets_its_answer() {
    if cannot_run("a_denied_client_of_a_mapped_port_gets_its_answer") {
        return;
    }
    let mut machine = Machine::new();
    machine.config.deny.push("198.51.100.0/24".parse().unwrap());
    let mut network = machine.open();
    machine.outside.serve(OUTSIDE, 80, "outside");
    let (container, at) = attach(&mut network, "c", &everything());
    container.serve(Ipv4Addr::UNSPECIFIED, 8080, "web");
    container.misses(OUTSIDE, 80);
    machine.outside.reaches(HOST, at.ports[0].1, "web");
}

#[test]
fn the_machines_own_services_are_out_of_reach() {
    if cannot_run("the_machines_own_services_are_out_of_reach") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let port = machine.here.serve(Ipv4Addr::UNSPECIFIED, 0, "host");
    machine.here.serve(Ipv4Addr::LOCALHOST, 7777, "loopback");
    let (container, at) = attach(&mut network, "c", &everything());
    for address in [HOST, at.gateway] {
        container.misses(address, port);
        assert!(!container.pings(address, 8, NEVER));
        machine.here.reaches(address, port, "host");
    }
    machine.outside.reaches(HOST, port, "host");
    // 127.0.0.1 is the container's own; by way of the gateway it must not be the machine's.
    container.run(|| fs::write("/proc/sys/net/ipv4/conf/eth0/route_localnet", "1").unwrap());
    let (mut route, lo) = (container.route(), container.index("lo"));
    link::delete_address(&mut route, lo, Ipv4Addr::LOCALHOST, 8).unwrap();
    container.misses(Ipv4Addr::LOCALHOST, 7777);
    container.misses(Ipv4Addr::new(127, 9, 9, 9), port);
    // A mapped port is for those outside, not for containers, whether or not bridges call the IP
    // layer's hooks.
    let (other, other_at) = attach(&mut network, "other", &[]);
    other.serve(Ipv4Addr::UNSPECIFIED, 8080, "web");
    let port = other_at.ports[0].1;
    machine.outside.reaches(HOST, port, "web");
    let (third, _) = attach(&mut network, "third", &everything());
    for setting in ["0", "1"] {
        let path = "/proc/sys/net/bridge/bridge-nf-call-iptables";
        machine.here.run(|| fs::exists(path).unwrap().then(|| fs::write(path, setting).unwrap()));
        third.reaches(other_at.address, 8080, "web");
        third.misses(HOST, port);
    }
}

#[test]
fn containers_meet_only_where_a_rule_covers_the_other() {
    if cannot_run("containers_meet_only_where_a_rule_covers_the_other") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let (server, server_at) = attach(&mut network, "server", &[]);
    server.serve(Ipv4Addr::UNSPECIFIED, 8080, "server");
    let address = server_at.address;
    let rule = allow("tcp", &[&address.to_string()], &[8080]);
    let (friend, _) = attach(&mut network, "friend", &[rule]);
    let (stranger, at) = attach(&mut network, "stranger", &[icmp(-1, -1)]);
    // Again and again: the machine says that there is a shorter way, which there must not be.
    for _ in 0..5 {
        friend.reaches(address, 8080, "server");
    }
    assert!(!friend.pings(address, 8, NEVER));
    stranger.misses(address, 8080);
    assert!(stranger.pings(address, 8, SURELY));
    // Nor when the stranger pretends that all of the subnet is on its own wire.
    let (mut route, eth0) = (stranger.route(), stranger.index("eth0"));
    link::delete_address(&mut route, eth0, at.address, 32).unwrap();
    link::add_address(&mut route, eth0, at.address, 24).unwrap();
    stranger.misses(address, 8080);
    assert!(!stranger.pings(address, 8, NEVER), "there is no wire between them");
}

#[test]
fn a_container_sends_with_its_own_addresses_only() {
    if cannot_run("a_container_sends_with_its_own_addresses_only") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    // What arrives is looked at where it arrives: an answer would not find its way back.
    let arrivals = machine.outside.run(|| UdpSocket::bind((OUTSIDE, 53)).unwrap());
    arrivals.set_read_timeout(Some(NEVER)).unwrap();
    let sent = AtomicU8::new(0);
    let arrives = |space: &Namespace, from: Ipv4Addr| {
        let socket = space.run(|| UdpSocket::bind((from, 0)).unwrap());
        let (mark, mut buffer) = (sent.fetch_add(1, Ordering::Relaxed), [0]);
        socket.send_to(&[mark], (OUTSIDE, 53)).unwrap();
        // A late one of before may come first.
        while arrivals.recv(&mut buffer).is_ok() {
            if buffer == [mark] {
                return true;
            }
        }
        false
    };
    let (victim, victim_at) = attach(&mut network, "victim", &everything());
    victim.serve(Ipv4Addr::UNSPECIFIED, 8080, "victim");
    let (thief, thief_at) = attach(&mut network, "thief", &everything());
    thief.serve(Ipv4Addr::UNSPECIFIED, 8080, "thief");
    until(|| arrives(&thief, thief_at.address));
    // Another's IPv4 address, in packets and in ARP.
    let (mut route, eth0) = (thief.route(), thief.index("eth0"));
    link::add_address(&mut route, eth0, victim_at.address, 32).unwrap();
    assert!(!arrives(&thief, victim_at.address));
    machine.here.reaches(victim_at.address, 8080, "victim");
    until(|| arrives(&victim, victim_at.address));
    // Another hardware address: its own with a bit changed, and the victim's. The gateway's is
    // written down, so that no question, which would not pass, comes first.
    let bridge = link::named(&mut machine.here.route(), &machine.config.bridge).unwrap().unwrap();
    let gateway = bridge.mac.try_into().unwrap();
    let [a, b, c, d] = thief_at.address.octets();
    let [e, f, g, h] = victim_at.address.octets();
    let mut become_mac = |mac| {
        link::set_mac(&mut route, eth0, mac).unwrap();
        link::add_neighbour(&mut route, eth0, thief_at.gateway, gateway).unwrap();
    };
    for mac in [[2, 0x5a, a, b, c, d], [2, 0x58, e, f, g, h]] {
        become_mac(mac);
        assert!(!arrives(&thief, thief_at.address), "{mac:?}");
        machine.here.reaches(victim_at.address, 8080, "victim");
    }
    become_mac([2, 0x58, a, b, c, d]);
    until(|| arrives(&thief, thief_at.address));
}

#[test]
fn a_container_has_no_ipv6() {
    if cannot_run("a_container_has_no_ipv6") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let (container, _) = attach(&mut network, "c", &[allow("all", &["::/0", "0.0.0.0/0"], &[])]);
    let addresses = container.run(|| fs::read_to_string("/proc/thread-self/net/if_inet6"));
    let addresses = addresses.unwrap_or_default();
    assert!(addresses.lines().all(|line| line.ends_with(" lo")), "{addresses}");
    if !container.run(|| fs::exists("/proc/sys/net/ipv6").unwrap()) {
        return;
    }
    // Nor does it help when both the machine and the container switch it on.
    let server = machine.here.run(|| TcpListener::bind("[::]:6666").unwrap());
    thread::spawn(move || server.incoming().for_each(drop));
    let bridge = machine.config.bridge.as_str();
    for (space, name) in [(&machine.here, bridge), (&container, "eth0")] {
        space.run(|| {
            // Without waiting for others who might have the address.
            for (setting, value) in [("accept_dad", "0"), ("disable_ipv6", "0")] {
                let path = format!("/proc/sys/net/ipv6/conf/{name}/{setting}");
                fs::write(path, value).unwrap();
            }
        });
    }
    let has_address = || {
        let addresses = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
        addresses.lines().any(|line| line.starts_with("fe80") && !line.ends_with(" up0"))
    };
    until(|| machine.here.run(has_address) && container.run(has_address));
    let mac = link::named(&mut machine.here.route(), bridge).unwrap().unwrap().mac;
    let [a, b, c, d, e, f] = mac[..] else { panic!("{mac:?}") };
    let half = [[a ^ 2, b], [c, 0xff], [0xfe, d], [e, f]].map(u16::from_be_bytes);
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, half[0], half[1], half[2], half[3]);
    let reached = |space: &Namespace, name, patience| {
        let address = SocketAddrV6::new(local, 6666, 0, space.index(name));
        space.run(|| TcpStream::connect_timeout(&address.into(), patience).is_ok())
    };
    // The bridge's own address may be the last to come.
    until(|| reached(&machine.here, bridge, SURELY));
    assert!(!reached(&container, "eth0", NEVER));
}

#[test]
fn a_restarted_agent_finds_its_containers_and_removes_the_others() {
    if cannot_run("a_restarted_agent_finds_its_containers_and_removes_the_others") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let mut spaces = Vec::new();
    let mut all = Vec::new();
    for name in ["keep", "stale", "lost", "also keep: \u{fc}"] {
        let space = Namespace::new();
        let ports = [8080, 22, 8080];
        let attached = network.attach(name, space.0.as_fd(), &ports[..spaces.len()], &[]);
        all.push((name.to_owned(), attached.unwrap()));
        spaces.push(space);
    }
    spaces[3].serve(Ipv4Addr::UNSPECIFIED, 8080, "kept");
    let (_torn, _) = attach(&mut network, "torn", &[]);
    drop(network);
    // The namespace of one died meanwhile, and its interface with it.
    let lost = spaces.remove(2);
    link::delete(&mut lost.route(), lost.index("eth0")).unwrap();
    // Two attaches were killed half-way: one before its rules, one before it joined the bridge.
    let mut route = machine.here.route();
    let ghost = Namespace::new();
    let veth = Veth {
        name: "vxghost",
        peer: "eth0",
        peer_mac: [2, 0, 0, 0, 0, 7],
        namespace: ghost.0.as_fd(),
        mtu: 1_400,
    };
    link::add_veth(&mut route, &veth).unwrap();
    let alias = format!("volvox:{}:ghost", machine.config.bridge);
    link::set_alias(&mut route, machine.here.index("vxghost"), &alias).unwrap();
    let links = link::list(&mut route).unwrap();
    let torn = links.iter().find(|link| link.alias.ends_with(":torn")).unwrap();
    link::set_master(&mut route, torn.index, 0).unwrap();
    let mut network = machine.open();
    let known = ["keep", "lost", "also keep: \u{fc}", "ghost", "torn"];
    let recovered = network.recover(&known.map(str::to_owned).into()).unwrap();
    let kept = [all[0].clone(), all[3].clone()];
    assert_eq!(recovered.attached, kept.into());
    let gone = ["ghost", "lost", "stale", "torn"].map(str::to_owned);
    assert_eq!(recovered.removed, gone.into());
    assert_eq!(machine.links().len(), 3, "{:?}", machine.links());
    let (_, mapped) = all[3].1.ports[2];
    machine.outside.reaches(HOST, mapped, "kept");
    // What is kept is not given out again; again recovered, nothing changes.
    let (_new, attached) = attach(&mut network, "new", &[]);
    let taken: Vec<_> = all.iter().map(|(_, attached)| attached.address).collect();
    assert!(!taken[3..].contains(&attached.address) && attached.address != taken[0]);
    let known: BTreeSet<_> = ["keep", "also keep: \u{fc}", "new"].map(str::to_owned).into();
    let again = network.recover(&known).unwrap();
    assert_eq!((again.attached.len(), again.removed.len()), (3, 0));
    network.destroy().unwrap();
    machine.is_clean();
}

#[test]
fn an_attach_that_fails_leaves_nothing() {
    if cannot_run("an_attach_that_fails_leaves_nothing") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let before = machine.links();
    // Fails at the interface: its name is taken inside. Fails inside: not a network namespace.
    let crowded = Namespace::new();
    let other = Namespace::new();
    let taken = Veth {
        name: "eth0",
        peer: "x",
        peer_mac: [2, 0, 0, 0, 0, 1],
        namespace: other.0.as_fd(),
        mtu: 1_400,
    };
    link::add_veth(&mut crowded.route(), &taken).unwrap();
    let failure = network.attach("c", crowded.0.as_fd(), &[1], &[]).unwrap_err();
    assert!(matches!(failure, NetError::Kernel { .. }), "{failure:?}");
    let file = File::open("/dev/null").unwrap();
    assert!(network.attach("c", file.as_fd(), &[1], &[]).is_err());
    assert_eq!(machine.links(), before);
    // Fails inside, when the interface is there: a default route is there already.
    let routed = Namespace::new();
    link::add_veth(&mut routed.route(), &Veth { name: "y", peer: "y", ..taken }).unwrap();
    routed.address("y", ELSEWHERE, 24);
    link::add_default_route(&mut routed.route(), routed.index("y"), ELSEWHERE_GATEWAY).unwrap();
    let failure = network.attach("c", routed.0.as_fd(), &[1], &[]).unwrap_err();
    assert!(failure.to_string().contains("the container's end"), "{failure:?}");
    assert_eq!(machine.links(), before);
    // Refused before anything is done.
    let space = Namespace::new();
    assert!(network.attach("", space.0.as_fd(), &[], &[]).is_err());
    assert!(network.attach(&"x".repeat(201), space.0.as_fd(), &[], &[]).is_err());
    let many = network.attach("c", space.0.as_fd(), &[7; 11], &[]).unwrap_err();
    assert!(matches!(many, NetError::NoPorts { wanted: 11, free: 10 }), "{many:?}");
    let (_first, _) = attach(&mut network, "first", &[]);
    let twice = network.attach("first", space.0.as_fd(), &[], &[]).unwrap_err();
    assert!(matches!(twice, NetError::AlreadyAttached { .. }), "{twice:?}");
    // Fails at the rules: another agent of the same bridge was quicker with the address.
    let mut rival = machine.open();
    rival.detach("first").unwrap();
    let (_second, at) = attach(&mut rival, "second", &[]);
    assert_eq!(at.ports[0].1, 61_002);
    let failure = network.attach("third", space.0.as_fd(), &[1], &[]).unwrap_err();
    assert!(matches!(failure, NetError::Kernel { .. }), "{failure:?}");
    let left = link::list(&mut space.route()).unwrap();
    assert_eq!(left.iter().filter(|link| link.name != "lo").count(), 0, "{left:?}");
    rival.detach("second").unwrap();
    // To detach what another has removed is no error.
    network.detach("first").unwrap();
    assert_eq!(machine.links(), before);
    // Fails at the bridge, when the rules are there.
    link::delete(&mut machine.here.route(), machine.here.index(&machine.config.bridge)).unwrap();
    let failure = network.attach("third", space.0.as_fd(), &[1], &[]).unwrap_err();
    assert!(failure.to_string().contains("to the bridge"), "{failure:?}");
    assert_eq!(machine.links(), Vec::<String>::new());
    let mut network = machine.open();
    let found = network.recover(&BTreeSet::new()).unwrap();
    assert_eq!(found.removed, BTreeSet::new());
    // And what failed can be attached.
    network.attach("third", space.0.as_fd(), &[1], &[]).unwrap();
    network.destroy().unwrap();
    machine.is_clean();
}

#[test]
fn an_old_address_brings_no_old_connections() {
    if cannot_run("an_old_address_brings_no_old_connections") {
        return;
    }
    let mut machine = Machine::new();
    // Five addresses for containers, so that the first comes again soon.
    machine.config.subnet = Ipv4Network::new(machine.config.subnet.first(), 29).unwrap();
    let mut network = machine.open();
    machine.outside.echo(OUTSIDE, 53);
    let ask = |space: &Namespace, patience| {
        let socket = space.run(|| UdpSocket::bind("0.0.0.0:5353").unwrap());
        answer(&socket, OUTSIDE, 53, patience).is_some()
    };
    let (old, at) = attach(&mut network, "old", &everything());
    assert!(ask(&old, SURELY));
    network.detach("old").unwrap();
    for other in ["a", "b", "c", "d"] {
        attach(&mut network, other, &[]);
        network.detach(other).unwrap();
    }
    let (new, new_at) = attach(&mut network, "new", &[]);
    assert_eq!(new_at.address, at.address);
    assert!(!ask(&new, NEVER));
}

#[test]
fn a_hundred_containers_come_and_go_without_trace() {
    if cannot_run("a_hundred_containers_come_and_go_without_trace") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    let mut addresses = BTreeSet::new();
    for at in 0..100 {
        let (_space, attached) = attach(&mut network, &format!("c{at}"), &everything());
        addresses.insert(attached.address);
        network.detach(&format!("c{at}")).unwrap();
        network.detach(&format!("c{at}")).unwrap();
    }
    assert_eq!(addresses.len(), 100, "an address just given back is not the next");
    assert_eq!(machine.links().len(), 1, "the bridge only");
    let nothing = network.recover(&BTreeSet::new()).unwrap();
    assert_eq!((nothing.attached.len(), nothing.removed.len()), (0, 0));
    network.destroy().unwrap();
    machine.is_clean();
    // Nothing of ours is left to be found by a bridge of that name.
    let again = machine.open();
    again.destroy().unwrap();
}

#[test]
fn egress_rules_have_a_limit_and_the_kernel_takes_as_many() {
    if cannot_run("egress_rules_have_a_limit_and_the_kernel_takes_as_many") {
        return;
    }
    let machine = Machine::new();
    let mut network = machine.open();
    machine.outside.serve(OUTSIDE, 80, "outside");
    let texts: Vec<_> =
        (1..COMPILED_RULES).map(|at| format!("10.{}.{}.1", at / 256, at % 256)).collect();
    let mut texts: Vec<_> = texts.iter().map(String::as_str).collect();
    texts.push("198.51.100.2");
    let (container, _) = attach(&mut network, "c", &[allow("tcp", &texts, &[80])]);
    container.reaches(OUTSIDE, 80, "outside");
    network.detach("c").unwrap();
    container.misses(OUTSIDE, 80);
    texts.push("198.51.100.4");
    let refused =
        network.attach("c", container.0.as_fd(), &[], &[allow("tcp", &texts, &[80])]).unwrap_err();
    assert!(matches!(refused, NetError::Egress(EgressError::TooMany)), "{refused:?}");
}

#[test]
fn two_agents_on_one_machine_do_not_meet() {
    if cannot_run("two_agents_on_one_machine_do_not_meet") {
        return;
    }
    let machine = Machine::new();
    let mut one = machine.open();
    let mut config = config(HOST);
    while config.subnet == machine.config.subnet {
        config = self::config(HOST);
    }
    config.port_range = 62_000..=62_001;
    let overlapping = NetworkConfig { subnet: machine.config.subnet, ..config.clone() };
    let refused = machine.here.run(|| CellNetwork::open(overlapping).unwrap_err());
    assert!(matches!(refused, NetError::SubnetTaken { .. }), "{refused:?}");
    let mut two = machine.here.run(|| CellNetwork::open(config).unwrap());
    let (first, first_at) = attach(&mut one, "same name", &everything());
    let (second, second_at) = attach(&mut two, "same name", &everything());
    first.serve(Ipv4Addr::UNSPECIFIED, 8080, "first");
    second.serve(Ipv4Addr::UNSPECIFIED, 8080, "second");
    machine.outside.reaches(HOST, first_at.ports[0].1, "first");
    machine.outside.reaches(HOST, second_at.ports[0].1, "second");
    first.misses(second_at.address, 8080);
    two.destroy().unwrap();
    machine.outside.reaches(HOST, first_at.ports[0].1, "first");
    one.destroy().unwrap();
    machine.is_clean();
}

#[test]
fn a_foreign_link_of_the_bridges_name_is_left_alone() {
    if cannot_run("a_foreign_link_of_the_bridges_name_is_left_alone") {
        return;
    }
    let machine = Machine::new();
    let name = &machine.config.bridge;
    link::add_bridge(&mut machine.here.route(), name, [2, 0, 0, 0, 0, 1], 1_500).unwrap();
    let refused = machine.here.run(|| CellNetwork::open(machine.config.clone()).unwrap_err());
    assert!(matches!(refused, NetError::Foreign { .. }), "{refused:?}");
    assert_eq!(machine.links(), std::slice::from_ref(name));
}

/// Removes a network of the machine's own namespace, also when the test panics.
struct Guard(Option<CellNetwork>);

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(network) = self.0.take() {
            let destroyed = network.destroy();
            assert!(destroyed.is_ok() || thread::panicking(), "{destroyed:?}");
        }
    }
}

#[test]
fn it_works_in_the_machines_own_namespace() {
    if cannot_run("it_works_in_the_machines_own_namespace") {
        return;
    }
    // Others may have the subnet, or the bridge: try another.
    let opened = (0..20).find_map(|_| {
        let config = config(Ipv4Addr::new(192, 0, 2, 99));
        Some((config.bridge.clone(), CellNetwork::open(config).ok()?))
    });
    let (bridge, network) = opened.expect("a free subnet");
    let mut guard = Guard(Some(network));
    let network = guard.0.as_mut().unwrap();
    let (container, attached) = attach(network, "c", &[]);
    container.serve(Ipv4Addr::UNSPECIFIED, 8080, "web");
    let address = SocketAddr::from((attached.address, 8080));
    let mut text = String::new();
    let mut stream = TcpStream::connect_timeout(&address, SURELY).unwrap();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text, "web");
    container.misses(attached.gateway, 22);
    drop(guard);
    let left = link::list(&mut Socket::route().unwrap()).unwrap();
    let ours = left.iter().any(|link| link.name == bridge || link.alias.contains(&bridge));
    assert!(!ours, "{left:?}");
    assert!(!tables().unwrap().iter().any(|table| table.ends_with(&bridge)));
}
