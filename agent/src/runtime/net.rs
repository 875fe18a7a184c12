//! The network of a cell's containers: a bridge, a veth pair for each container, host ports mapped
//! to container ports, and egress rules, all by netlink. The executor's driver calls [`CellNetwork`];
//! it is synchronous, and a call takes milliseconds.
//!
//! What holds:
//! - A container reaches what its egress rules allow, and nothing else: not the machine's own
//!   services, not what `deny` names, not other containers. Replies to allowed connections pass.
//! - It can send with its own hardware and IPv4 address only. It has no IPv6.
//! - Everything is named by the bridge, and containers' names stand in the kernel (a link's alias,
//!   the notes of nftables' elements). So an agent that starts again finds all by asking the
//!   kernel, and agents with different bridges do not meet.
//!
//! How frames go: a container has a /32 address and sends all to the gateway; the ports of the bridge
//! are isolated. So there is no way between two containers but through the machine's IP layer, where
//! the rules are, whether or not `br_netfilter` is loaded.
//!
//! Mapped ports and 127.0.0.1: for a connection from the machine to 127.0.0.1 the destination is
//! translated on the way out, and the source too (masquerade), since a container could not answer to
//! 127.0.0.1. The kernel lets such packets use the bridge only with `route_localnet`, which is set
//! for the bridge alone; the rules then drop what a container itself sends to 127.0.0.0/8. The other
//! way, a proxy process per port, would cost a process and hide the clients' addresses everywhere.
//!
//! Not here: the containers' namespaces themselves, and name resolution.

mod address;
mod bridge;
mod conntrack;
mod egress;
mod error;
mod expr;
pub mod link;
mod namespace;
pub mod netlink;
mod nft;
mod pool;
mod ruleset;
mod settings;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use tracing::{debug, error, info};
use volvox_protocol::egress::SecurityGroupRule;

pub use address::{Ipv4Network, NotANetwork};
pub use egress::{COMPILED_RULES, EgressError};
pub use error::NetError;
pub use netlink::NetlinkError;
pub use settings::{NetworkConfig, Unusable};
pub use wire::Malformed;

use error::{doing, unless};
use expr::Rule;
use netlink::Socket;
use pool::NumberPool;
use ruleset::{NetworkSlot, Ruleset};
use wire::NetlinkMessage;

/// What the interface is called inside a container.
const INSIDE: &str = "eth0";
/// How long a container's name may be, in bytes: it must fit a link's alias and an element's note.
pub const CONTAINER_NAME_BYTES: usize = 200;

/// How a container is attached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attached {
    /// The container's address.
    pub address: Ipv4Addr,
    /// Where the container sends all it sends.
    pub gateway: Ipv4Addr,
    /// Container port and host port, in the order they were asked for.
    pub ports: Vec<(u16, u16)>,
}

/// What was found by [`CellNetwork::recover`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Known and whole: they go on as they were.
    pub attached: BTreeMap<String, Attached>,
    /// Not known, or known but broken (its namespace is gone): nothing is left of them.
    pub removed: BTreeSet<String>,
}

/// The network of one bridge. Dropping it changes nothing in the kernel.
#[derive(Debug)]
pub struct CellNetwork {
    config: NetworkConfig,
    ruleset: Ruleset,
    route: Socket,
    netfilter: Socket,
    bridge: u32,
    addresses: NumberPool,
    ports: NumberPool,
    held: BTreeMap<String, NetworkSlot>,
}

impl CellNetwork {
    /// Makes the bridge and the tables in the network namespace of the calling thread, or finds
    /// them, with the containers that are attached. A machine that did not forward IPv4 does from
    /// now on, also after [`CellNetwork::destroy`]: others may have come to rely on it.
    pub fn open(config: NetworkConfig) -> Result<CellNetwork, NetError> {
        let host = config.check()?;
        let deny = config.deny.clone();
        let ruleset = Ruleset::new(&config.bridge, config.subnet, host, deny);
        let mut network = CellNetwork {
            ruleset,
            route: Socket::route().map_err(doing("open a socket"))?,
            netfilter: Socket::netfilter().map_err(doing("open a socket"))?,
            bridge: 0,
            addresses: NumberPool::new(config.container_addresses()),
            ports: NumberPool::new(config.host_ports()),
            held: BTreeMap::new(),
            config,
        };
        let (index, age) = bridge::make_or_find(&mut network.route, &network.config)?;
        network.bridge = index;
        if let Err(failure) = network.prepare() {
            // A bridge that was there may have containers; a new one is of no use to anybody.
            if age == bridge::Age::New
                && let Err(left) = network.destroy()
            {
                error!(error = %left, "bridge left behind");
            }
            return Err(failure);
        }
        let (bridge, containers) = (&network.config.bridge, network.held.len());
        info!(bridge, subnet = %network.config.subnet, containers, "network open");
        Ok(network)
    }

    /// Attaches a container by its network namespace: an interface with an address, host ports for
    /// its ports (TCP), its egress rules. All of it or nothing.
    pub fn attach(
        &mut self,
        container: &str,
        netns: BorrowedFd<'_>,
        ports: &[u16],
        egress: &[SecurityGroupRule],
    ) -> Result<Attached, NetError> {
        let named = (1..=CONTAINER_NAME_BYTES).contains(&container.len());
        if !named || container.chars().any(char::is_control) {
            return Err(NetError::BadName);
        }
        if self.held.contains_key(container) {
            return Err(NetError::AlreadyAttached { container: container.into() });
        }
        let rules = egress::compile(container, egress)?;
        let held = self.choose(container, ports)?;
        self.remove_stale_link(&held)?;
        let connected = self.connect(&held, netns, &rules);
        if let Err(failure) = connected {
            if let Err(left) = self.remove_link(&held.interface) {
                error!(container, interface = held.interface, error = %left, "link left behind");
            }
            return Err(failure);
        }
        let attached = self.attached(&held);
        debug!(container, address = %held.address, ports = ?held.ports, "container attached");
        self.hold(held);
        Ok(attached)
    }

    /// Removes all that [`CellNetwork::attach`] made. A container that is not attached is no error.
    pub fn detach(&mut self, container: &str) -> Result<(), NetError> {
        let Some(held) = self.held.get(container).cloned() else { return Ok(()) };
        self.remove(&held)?;
        self.held.remove(container);
        self.addresses.give_back(held.address.to_bits());
        for (_, host) in held.ports {
            self.ports.give_back(host.into());
        }
        debug!(container, address = %held.address, "container detached");
        Ok(())
    }

    /// How a container is attached, if it is.
    pub fn attached_of(&self, container: &str) -> Option<Attached> {
        self.held.get(container).map(|held| self.attached(held))
    }

    /// After a restart: which of the known containers are attached, as the kernel tells it. What is
    /// attached and not known is removed, as is what is known but lost its interface.
    pub fn recover(&mut self, known: &BTreeSet<String>) -> Result<Recovered, NetError> {
        let prefix = self.alias("");
        let links = link::list(&mut self.route).map_err(doing("list links"))?;
        let ours = links.iter().filter_map(|link| Some((link.alias.strip_prefix(&prefix)?, link)));
        let linked: BTreeMap<&str, &link::Link> = ours.collect();
        // An attach that was killed half-way did not come to the last of its steps.
        let whole = |container: &str| {
            linked.get(container).is_some_and(|link| link.is_up && link.master == self.bridge)
        };
        let whole: BTreeSet<&str> = linked.keys().copied().filter(|name| whole(name)).collect();
        for held in self.scan()?.into_values() {
            self.hold(held);
        }
        let mut recovered = Recovered::default();
        for (container, held) in self.held.clone() {
            if known.contains(&container) && whole.contains(container.as_str()) {
                recovered.attached.insert(container, self.attached(&held));
            } else {
                self.detach(&container)?;
                recovered.removed.insert(container);
            }
        }
        for (container, link) in linked {
            if !self.held.contains_key(container) && !recovered.removed.contains(container) {
                self.remove_link(&link.name)?;
                recovered.removed.insert(container.into());
            }
        }
        let (attached, removed) = (recovered.attached.len(), recovered.removed.len());
        info!(bridge = self.config.bridge, attached, removed, "network recovered");
        Ok(recovered)
    }

    /// Removes the bridge, the tables and every container's interface.
    pub fn destroy(mut self) -> Result<(), NetError> {
        let prefix = self.alias("");
        for found in link::list(&mut self.route).map_err(doing("list links"))? {
            if found.alias.starts_with(&prefix) {
                self.remove_link(&found.name)?;
            }
        }
        self.remove_link(&self.config.bridge.clone())?;
        // The rules go last: until then they guard what is left.
        for delete in [self.ruleset.inet().delete(), self.ruleset.bridge().delete()] {
            self.apply("delete a table", vec![delete]).or_else(unless(Errno::ENOENT))?;
        }
        info!(bridge = self.config.bridge, "network destroyed");
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), NetError> {
        bridge::give_address(&mut self.route, self.bridge, &self.config)?;
        self.apply("make the tables", self.ruleset.frame())?;
        settings::write_for_bridge(&self.config.bridge)?;
        link::set_up(&mut self.route, self.bridge).map_err(doing("switch the bridge on"))?;
        for held in self.scan()?.into_values() {
            self.hold(held);
        }
        Ok(())
    }

    fn choose(&self, container: &str, ports: &[u16]) -> Result<NetworkSlot, NetError> {
        let subnet = self.config.subnet;
        let address = self.addresses.pick(1).and_then(|picked| picked.first().copied());
        let host_ports = self.ports.pick(ports.len());
        let host_ports =
            host_ports.ok_or(NetError::NoPorts { wanted: ports.len(), free: self.ports.free() })?;
        let host_ports = host_ports.into_iter().filter_map(|port| u16::try_from(port).ok());
        Ok(NetworkSlot {
            container: container.into(),
            interface: address::interface_name(&self.config.bridge, container),
            address: Ipv4Addr::from_bits(address.ok_or(NetError::NoAddress { subnet })?),
            ports: ports.iter().copied().zip(host_ports).collect(),
        })
    }

    fn connect(
        &mut self,
        held: &NetworkSlot,
        netns: BorrowedFd<'_>,
        rules: &[Rule],
    ) -> Result<(), NetError> {
        let mac = address::container_mac(held.address);
        let (name, peer, mtu) = (held.interface.as_str(), INSIDE, self.config.mtu);
        let veth = link::Veth { name, peer, peer_mac: mac, namespace: netns, mtu };
        link::add_veth(&mut self.route, &veth).map_err(doing("make the container's interface"))?;
        let found = link::named(&mut self.route, name).map_err(doing("find the interface"))?;
        let index = found.map(|link| link.index).unwrap_or_default();
        let alias = self.alias(&held.container);
        link::set_alias(&mut self.route, index, &alias).map_err(doing("name the interface"))?;
        settings::configure_inside(netns, held.address, self.config.gateway())?;
        // The rules stand before the interface is a port of the bridge.
        self.apply("add the container's rules", self.ruleset.attach(held, rules))?;
        let mut join = || {
            link::set_master(&mut self.route, index, self.bridge)?;
            link::isolate(&mut self.route, index, mac)?;
            link::set_up(&mut self.route, index)
        };
        let joined = join().map_err(doing("join the interface to the bridge"));
        joined.inspect_err(|_| {
            if let Err(left) = self.remove_rules(held) {
                error!(container = held.container, error = %left, "rules left behind");
            }
        })
    }

    /// The link goes first: an interface without its rules could pretend to be another.
    fn remove(&mut self, held: &NetworkSlot) -> Result<(), NetError> {
        self.remove_link(&held.interface)?;
        self.remove_rules(held)?;
        if let Err(failure) = conntrack::forget(&mut self.netfilter, held.address) {
            debug!(address = %held.address, error = %failure, "connections not forgotten");
        }
        Ok(())
    }

    fn remove_rules(&mut self, held: &NetworkSlot) -> Result<(), NetError> {
        let messages = self.ruleset.detach(held);
        match self.apply("remove the container's rules", messages.clone()) {
            // Somebody else took a part of them away: take away the rest, one by one.
            Err(NetError::Kernel { source, .. }) if source.is(Errno::ENOENT) => {
                for message in messages {
                    let removed = self.apply("remove a container's rule", vec![message]);
                    removed.or_else(unless(Errno::ENOENT))?;
                }
                Ok(())
            }
            removed => removed,
        }
    }

    /// An attach that was killed half-way left an interface, of this container or nameless.
    fn remove_stale_link(&mut self, held: &NetworkSlot) -> Result<(), NetError> {
        let interface = held.interface.clone();
        let found = link::named(&mut self.route, &interface).map_err(doing("look for a link"))?;
        let Some(found) = found else { return Ok(()) };
        if !found.alias.is_empty() && found.alias != self.alias(&held.container) {
            return Err(NetError::NameTaken { interface });
        }
        self.remove_link(&interface)
    }

    fn remove_link(&mut self, name: &str) -> Result<(), NetError> {
        let found = link::named(&mut self.route, name).map_err(doing("look for a link"))?;
        let Some(found) = found else { return Ok(()) };
        match link::delete(&mut self.route, found.index) {
            // With its namespace the other end goes, and this one with it.
            Err(failure) if failure.is(Errno::ENODEV) => Ok(()),
            deleted => deleted.map_err(doing("delete a link")),
        }
    }

    /// The containers that the kernel's tables tell of.
    fn scan(&mut self) -> Result<BTreeMap<String, NetworkSlot>, NetError> {
        let table = self.ruleset.inet();
        let mut elements = |set| -> Result<Vec<nft::Element>, NetlinkError> {
            let mut found = Vec::new();
            for bytes in self.netfilter.dump(&table.dump_elements(set))? {
                found.extend(nft::read_elements(&bytes)?);
            }
            Ok(found)
        };
        let containers = elements(ruleset::CONTAINERS).map_err(doing("list containers"))?;
        let ports = elements(ruleset::PORTS).map_err(doing("list mapped ports"))?;
        let interface = |container: &str| address::interface_name(&self.config.bridge, container);
        let found = ruleset::read(&containers, &ports, interface).map_err(NetlinkError::from);
        found.map_err(doing("understand the tables"))
    }

    fn hold(&mut self, held: NetworkSlot) {
        self.addresses.take(held.address.to_bits());
        for (_, host) in &held.ports {
            self.ports.take((*host).into());
        }
        self.held.insert(held.container.clone(), held);
    }

    fn attached(&self, held: &NetworkSlot) -> Attached {
        let (address, ports) = (held.address, held.ports.clone());
        Attached { address, gateway: self.config.gateway(), ports }
    }

    fn alias(&self, container: &str) -> String {
        format!("volvox:{}:{container}", self.config.bridge)
    }

    fn apply(&mut self, what: &'static str, messages: Vec<NetlinkMessage>) -> Result<(), NetError> {
        self.netfilter.batch(nft::batch(messages)).map_err(doing(what))
    }
}

/// The names of the tables of ours, for all bridges, in the network namespace of the calling thread.
pub fn tables() -> Result<BTreeSet<String>, NetError> {
    let mut found = BTreeSet::new();
    let mut socket = Socket::netfilter().map_err(doing("open a socket"))?;
    for bytes in socket.dump(&nft::dump_tables()).map_err(doing("list tables"))? {
        let name = nft::read_table_name(&bytes).map_err(NetlinkError::from);
        found.insert(name.map_err(doing("read the name of a table"))?);
    }
    Ok(found.into_iter().filter(|name| name.starts_with(ruleset::PREFIX)).collect())
}
