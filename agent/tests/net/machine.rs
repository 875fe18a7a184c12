//! What the tests of the network stand on: namespaces as machines, servers and clients in them.

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeVal;
use volvox_agent::runtime::net::link::{self, Veth};
use volvox_agent::runtime::net::netlink::Socket;
use volvox_agent::runtime::net::{Attached, CellNetwork, Ipv4Network, NetworkConfig, tables};
use volvox_protocol::egress::{IcmpInfo, SecurityGroupRule};

use crate::stage::{can_run, pause};

/// What comes, comes within microseconds; nothing here is answered later than this.
pub(crate) const NEVER: Duration = Duration::from_millis(250);
/// How long to wait for what must come, on a busy machine.
pub(crate) const SURELY: Duration = Duration::from_secs(10);

pub(crate) const HOST: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// Further addresses of the world outside.
pub(crate) const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
pub(crate) const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);
pub(crate) const ELSEWHERE_GATEWAY: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// A network namespace that lives as long as this does.
pub(crate) struct Namespace(pub(crate) OwnedFd);

impl Namespace {
    pub(crate) fn new() -> Namespace {
        let fd = thread::spawn(|| {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            OwnedFd::from(File::open("/proc/thread-self/ns/net").unwrap())
        });
        Namespace(fd.join().unwrap())
    }

    /// Does something inside, on a thread of its own; sockets made there stay there.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                setns(self.0.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
                work()
            });
            inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    pub(crate) fn route(&self) -> Socket {
        self.run(|| Socket::route().unwrap())
    }

    pub(crate) fn index(&self, name: &str) -> u32 {
        link::named(&mut self.route(), name).unwrap().unwrap().index
    }

    /// Gives a link an address and switches it on.
    pub(crate) fn address(&self, name: &str, address: Ipv4Addr, prefix: u8) {
        let (mut route, index) = (self.route(), self.index(name));
        link::add_address(&mut route, index, address, prefix).unwrap();
        link::set_up(&mut route, index).unwrap();
    }

    /// Answers each TCP connection with the text, until the process ends.
    pub(crate) fn serve(&self, address: Ipv4Addr, port: u16, text: &'static str) -> u16 {
        let listener = self.run(|| TcpListener::bind((address, port)).unwrap());
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = stream.and_then(|mut stream| stream.write_all(text.as_bytes()));
            }
        });
        port
    }

    /// Sends each datagram back, with the sender's address.
    pub(crate) fn echo(&self, address: Ipv4Addr, port: u16) {
        let socket = self.run(|| UdpSocket::bind((address, port)).unwrap());
        thread::spawn(move || {
            while let Ok((_, sender)) = socket.recv_from(&mut [0; 64]) {
                let _ = socket.send_to(sender.ip().to_string().as_bytes(), sender);
            }
        });
    }

    /// What a server there says; nothing if it cannot be reached.
    pub(crate) fn connect(
        &self,
        address: Ipv4Addr,
        port: u16,
        patience: Duration,
    ) -> Option<String> {
        self.run(|| {
            let address = SocketAddr::from((address, port));
            let mut stream = TcpStream::connect_timeout(&address, patience).ok()?;
            stream.set_read_timeout(Some(SURELY)).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).ok()?;
            Some(text)
        })
    }

    #[track_caller]
    pub(crate) fn reaches(&self, address: Ipv4Addr, port: u16, text: &str) {
        let said = self.connect(address, port, SURELY);
        assert_eq!(said.as_deref(), Some(text), "at {address}:{port}");
    }

    #[track_caller]
    pub(crate) fn misses(&self, address: Ipv4Addr, port: u16) {
        assert_eq!(self.connect(address, port, NEVER), None, "at {address}:{port}");
    }

    /// The address that an echo server saw, if it answered a datagram from `from`. Asks again and
    /// again: the first datagram may come before a new interface is awake.
    pub(crate) fn ask(
        &self,
        from: Ipv4Addr,
        to: Ipv4Addr,
        port: u16,
        patience: Duration,
    ) -> Option<String> {
        self.run(|| {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            answer(&socket, to, port, patience)
        })
    }

    /// Is an ICMP request of this type answered?
    pub(crate) fn pings(&self, address: Ipv4Addr, kind: u8, patience: Duration) -> bool {
        self.run(|| {
            let flags = SockFlag::SOCK_CLOEXEC;
            let protocol = SockProtocol::Icmp;
            let fd = socket(AddressFamily::Inet, SockType::Raw, flags, protocol).unwrap();
            let wait = i64::try_from(NEVER.as_micros()).unwrap();
            setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(0, wait)).unwrap();
            // Type, code, checksum, id, sequence; a timestamp request has twelve bytes more.
            let mut request = [0; 20];
            (request[0], request[4]) = (kind, 77);
            let sum: u16 = !(u16::from(kind) * 256 + 77 * 256);
            request[2..4].copy_from_slice(&sum.to_be_bytes());
            let to = SockaddrIn::from(SocketAddrV4::new(address, 0));
            let deadline = Instant::now() + patience;
            let mut buffer = [0; 128];
            loop {
                let _ = sendto(fd.as_raw_fd(), &request, &to, MsgFlags::empty());
                while let Ok(count) = recv(fd.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
                    let from = &buffer[12..16];
                    let reply = buffer[20] == if kind == 8 { 0 } else { kind + 1 };
                    if count >= 28 && from == address.octets() && reply {
                        return true;
                    }
                }
                if Instant::now() >= deadline {
                    return false;
                }
            }
        })
    }
}

/// What an echo server answers to this socket, asked until it does or patience ends.
pub(crate) fn answer(
    socket: &UdpSocket,
    to: Ipv4Addr,
    port: u16,
    patience: Duration,
) -> Option<String> {
    let deadline = Instant::now() + patience;
    socket.set_read_timeout(Some(NEVER)).unwrap();
    let mut buffer = [0; 64];
    loop {
        let _ = socket.send_to(b"?", (to, port));
        match socket.recv(&mut buffer) {
            Ok(count) => return Some(String::from_utf8_lossy(&buffer[..count]).into_owned()),
            Err(_) if Instant::now() >= deadline => return None,
            Err(_) => {}
        }
    }
}

/// Waits for what happens elsewhere in the kernel, soon.
#[track_caller]
pub(crate) fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SURELY;
    while !condition() {
        assert!(Instant::now() < deadline, "it did not come");
        pause();
    }
}

/// A machine with the world outside: `up0` leads to it.
pub(crate) struct Machine {
    pub(crate) here: Namespace,
    pub(crate) outside: Namespace,
    pub(crate) config: NetworkConfig,
}

impl Machine {
    pub(crate) fn new() -> Machine {
        let (here, outside) = (Namespace::new(), Namespace::new());
        let veth = Veth {
            name: "up0",
            peer: "up0",
            peer_mac: [2, 0, 0, 0, 0, 9],
            namespace: outside.0.as_fd(),
            mtu: 1_500,
        };
        link::add_veth(&mut here.route(), &veth).unwrap();
        for namespace in [&here, &outside] {
            link::set_up(&mut namespace.route(), namespace.index("lo")).unwrap();
        }
        here.address("up0", HOST, 24);
        outside.address("up0", OUTSIDE, 24);
        // Further places outside, and the way back for what is not translated.
        outside.address("lo", METADATA, 32);
        outside.address("lo", ELSEWHERE, 32);
        link::add_default_route(&mut here.route(), here.index("up0"), OUTSIDE).unwrap();
        link::add_default_route(&mut outside.route(), outside.index("up0"), HOST).unwrap();
        Machine { here, outside, config: config(HOST) }
    }

    pub(crate) fn open(&self) -> CellNetwork {
        self.here.run(|| CellNetwork::open(self.config.clone()).unwrap())
    }

    /// The names of all links but those of the machine itself.
    pub(crate) fn links(&self) -> Vec<String> {
        let links = link::list(&mut self.here.route()).unwrap();
        let names = links.into_iter().map(|link| link.name);
        names.filter(|name| !matches!(name.as_str(), "lo" | "up0")).collect()
    }

    /// Neither links nor tables of ours are left.
    #[track_caller]
    pub(crate) fn is_clean(&self) {
        assert_eq!(self.links(), Vec::<String>::new());
        assert_eq!(self.here.run(|| tables().unwrap()), BTreeSet::new());
    }
}

pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random bridge and a random subnet of 10.200.0.0/13.
pub(crate) fn config(host: Ipv4Addr) -> NetworkConfig {
    let random = random();
    let [_, _, _, _, _, a, b, _] = random.to_be_bytes();
    NetworkConfig {
        bridge: format!("vt{:08x}", random >> 32),
        subnet: Ipv4Network::new(Ipv4Addr::new(10, 200 + (a & 7), b, 0), 24).unwrap(),
        host_address: IpAddr::V4(host),
        port_range: 61_001..=61_010,
        mtu: 1_400,
        deny: vec!["169.254.169.254/32".parse().unwrap()],
    }
}

/// Without root nothing here can run.
pub(crate) fn cannot_run(name: &str) -> bool {
    !can_run(name)
}

pub(crate) fn attach(
    network: &mut CellNetwork,
    name: &str,
    rules: &[SecurityGroupRule],
) -> (Namespace, Attached) {
    let namespace = Namespace::new();
    let attached = network.attach(name, namespace.0.as_fd(), &[8080], rules).unwrap();
    (namespace, attached)
}

pub(crate) fn allow(protocol: &str, destinations: &[&str], ports: &[u32]) -> SecurityGroupRule {
    SecurityGroupRule {
        protocol: protocol.into(),
        destinations: destinations.iter().map(|text| (*text).to_owned()).collect(),
        ports: ports.to_vec(),
        ..SecurityGroupRule::default()
    }
}

pub(crate) fn everything() -> [SecurityGroupRule; 1] {
    [allow("all", &["0.0.0.0/0"], &[])]
}

pub(crate) fn icmp(kind: i32, code: i32) -> SecurityGroupRule {
    let icmp_info = Some(IcmpInfo { kind, code });
    SecurityGroupRule { icmp_info, ..allow("icmp", &["0.0.0.0/0"], &[]) }
}
