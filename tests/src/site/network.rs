//! Hosts that are network namespaces, each with a wire to one switch, which is a bridge in a namespace
//! of its own.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command};
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use nix::sched::{CloneFlags, setns, unshare};
use volvox_agent::runtime::net::link::{self, Veth};
use volvox_agent::runtime::net::netlink::Socket;

use super::http;

#[expect(clippy::unwrap_used, dead_code, reason = "shared with the tests of the mesh")]
#[path = "../../../mesh/tests/namespaces/nft.rs"]
mod nft;

/// Addresses that are for tests of networks.
const NETWORK: [u8; 2] = [198, 18];

/// A network namespace that lives as long as this does, or a process in it.
struct Namespace(OwnedFd);

impl Namespace {
    fn new() -> anyhow::Result<Namespace> {
        let fd = std::thread::spawn(|| -> anyhow::Result<OwnedFd> {
            unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
            Ok(OwnedFd::from(File::open("/proc/thread-self/ns/net")?))
        });
        Ok(Namespace(fd.join().map_err(|_| anyhow!("a thread panicked"))??))
    }

    /// Does something inside, on a thread of its own; what is made there stays there.
    fn run<T: Send>(&self, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET).context("enter a namespace")?;
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// What all wires end at.
pub(super) struct Switch {
    namespace: Namespace,
    hosts: u8,
}

impl Switch {
    pub(super) fn new() -> anyhow::Result<Switch> {
        let namespace = Namespace::new()?;
        namespace.run(|| {
            let mut socket = Socket::route()?;
            link::add_bridge(&mut socket, "switch", [2, 0, 0, 0, 0, 1], 1_500)?;
            let bridge = link::named(&mut socket, "switch")?.context("no bridge")?;
            Ok(link::set_up(&mut socket, bridge.index)?)
        })?;
        Ok(Switch { namespace, hosts: 0 })
    }

    /// Another host, with a wire.
    pub(super) fn host(&mut self) -> anyhow::Result<Host> {
        self.hosts += 1;
        let number = self.hosts;
        let address = Ipv4Addr::new(NETWORK[0], NETWORK[1], 0, number);
        let namespace = Namespace::new()?;
        let wire = format!("wire{number}");
        self.namespace.run(|| {
            let mut socket = Socket::route()?;
            let bridge = link::named(&mut socket, "switch")?.context("no bridge")?;
            let mac = [2, 0, 0, 0, 2, number];
            let veth = Veth {
                name: &wire,
                peer: "eth0",
                peer_mac: mac,
                namespace: namespace.0.as_fd(),
                mtu: 1_500,
            };
            link::add_veth(&mut socket, &veth)?;
            let end = link::named(&mut socket, &wire)?.context("no wire")?;
            link::set_master(&mut socket, end.index, bridge.index)?;
            Ok(link::set_up(&mut socket, end.index)?)
        })?;
        namespace.run(|| {
            let mut socket = Socket::route()?;
            let lo = link::named(&mut socket, "lo")?.context("no lo")?;
            link::set_up(&mut socket, lo.index)?;
            let eth = link::named(&mut socket, "eth0")?.context("no eth0")?;
            link::add_address(&mut socket, eth.index, address, 24)?;
            Ok(link::set_up(&mut socket, eth.index)?)
        })?;
        Ok(Host { namespace, address })
    }
}

/// A host.
pub struct Host {
    namespace: Namespace,
    /// Where it is.
    pub address: Ipv4Addr,
}

impl Host {
    /// Starts a process here.
    pub(super) fn spawn(&self, command: &mut Command) -> anyhow::Result<Child> {
        let program = command.get_program().to_owned();
        self.namespace.run(|| command.spawn().with_context(|| format!("start {program:?}")))
    }

    /// Nothing that comes from these arrives here any more; from all others it does.
    pub(super) fn deafen(&self, to: &[Ipv4Addr]) {
        let _done = self.namespace.run(|| {
            nft::deafen(to);
            Ok(())
        });
    }

    /// A port of the loopback here.
    pub(super) fn listen(&self) -> anyhow::Result<std::net::TcpListener> {
        self.namespace.run(|| Ok(std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?))
    }

    /// Somebody on this host, for another thread.
    pub fn client(&self) -> anyhow::Result<Client> {
        let fd = self.namespace.0.try_clone()?;
        Ok(Client(Host { namespace: Namespace(fd), address: self.address }))
    }

    /// A connection from here.
    pub fn connect(&self, to: SocketAddr, within: Duration) -> anyhow::Result<TcpStream> {
        self.namespace.run(|| {
            let stream = TcpStream::connect_timeout(&to, within)?;
            stream.set_read_timeout(Some(within))?;
            stream.set_write_timeout(Some(within))?;
            Ok(stream)
        })
    }

    /// GET / of an address, from here.
    pub fn get(&self, to: SocketAddr, within: Duration) -> anyhow::Result<http::Answer> {
        let stream = self.connect(to, within)?;
        http::ask(stream, "GET / HTTP/1.0\r\nhost: x\r\n\r\n")
    }
}

/// Somebody on a host.
pub struct Client(Host);

impl Client {
    /// GET / of an address, from there.
    pub fn get(&self, to: SocketAddr, within: Duration) -> anyhow::Result<http::Answer> {
        self.0.get(to, within)
    }
}
