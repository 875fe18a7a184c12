//! A switch and machines on it: network namespaces that have no name, and end with this process.

use std::fs::File;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use super::nft;
use crate::process::{Member, Orders, PORT};

/// Says that a test could not run here, and why, where people look for it.
fn skip(name: &str, why: &str) {
    let line = format!("SKIPPED {name}: {why}");
    eprintln!("{line}");
    if let Some(path) = std::env::var_os("VOLVOX_SKIPPED") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

/// Whether networks can be made. If not, that is said.
pub(crate) fn can_run(name: &str) -> bool {
    if !nix::unistd::geteuid().is_root() {
        skip(name, "network namespaces need root");
        return false;
    }
    if Command::new("ip").arg("-V").output().is_err() {
        skip(name, "the program ip (iproute2) is missing");
        return false;
    }
    true
}

/// Namespaces of a machine. They last as long as this, or a process in them.
pub(crate) struct Machine {
    net: File,
    mounts: Option<File>,
}

impl Machine {
    fn new() -> Machine {
        let net = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                unshare(CloneFlags::CLONE_NEWNET).unwrap();
                File::open("/proc/thread-self/ns/net").unwrap()
            });
            made.join().unwrap()
        });
        let machine = Machine { net, mounts: None };
        machine.ip("link set lo up");
        machine
    }

    /// Does something on a thread of its own in these namespaces; processes started there stay.
    pub(crate) fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let done = scope.spawn(|| {
                setns(&self.net, CloneFlags::CLONE_NEWNET).unwrap();
                if let Some(mounts) = &self.mounts {
                    unshare(CloneFlags::CLONE_FS).unwrap();
                    setns(mounts, CloneFlags::CLONE_NEWNS).unwrap();
                }
                what()
            });
            done.join().unwrap()
        })
    }

    /// Runs `ip` with these words.
    pub(crate) fn ip(&self, words: &str) {
        let output =
            self.inside(|| Command::new("ip").args(words.split_whitespace()).output().unwrap());
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ip {words}: {complaint}");
    }

    pub(crate) fn start(&self, orders: &Orders) -> Member {
        let member = self.spawn(orders);
        member.begins();
        member
    }

    pub(crate) fn spawn(&self, orders: &Orders) -> Member {
        self.inside(|| Member::spawn(orders))
    }

    /// What programs and `ip` call the network namespace.
    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.net.as_raw_fd())
    }

    /// Puts a small disk of its own in a place; only this machine sees it.
    pub(crate) fn with_small_disk(mut self, at: &Path, kib: u32) -> Machine {
        let mounts = self.inside(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing: Option<&str> = None;
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            let size = format!("size={kib}k,mode=700");
            mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::empty(), Some(size.as_str())).unwrap();
            File::open("/proc/thread-self/ns/mnt").unwrap()
        });
        self.mounts = Some(mounts);
        self
    }

    /// Names are found in this file, and nowhere else: it has no way to a name server.
    pub(crate) fn with_hosts(mut self, hosts: &Path) -> Machine {
        let mounts = self.inside(|| {
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing: Option<&str> = None;
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            mount(Some(hosts), "/etc/hosts", nothing, MsFlags::MS_BIND, nothing).unwrap();
            File::open("/proc/thread-self/ns/mnt").unwrap()
        });
        self.mounts = Some(mounts);
        self
    }
}

/// Some machines on one switch. The addresses are the same in every network; they meet nowhere.
pub(crate) struct Network {
    switch: Machine,
}

/// The address of a place on the switch.
pub(crate) fn at(place: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, place)
}

pub(crate) fn address(place: u8) -> SocketAddr {
    (at(place), PORT).into()
}

impl Network {
    pub(crate) fn new() -> Network {
        let switch = Machine::new();
        switch.ip("link add br0 type bridge");
        switch.ip("link set br0 up");
        Network { switch }
    }

    /// A machine at a place on the switch.
    pub(crate) fn machine(&self, place: u8) -> Machine {
        let machine = Machine::new();
        let path = machine.path();
        self.switch.ip(&format!("link add p{place} type veth peer name eth0 netns {path}"));
        self.switch.ip(&format!("link set p{place} master br0 up"));
        machine.ip(&format!("address add {}/24 dev eth0", at(place)));
        machine.ip("link set eth0 up");
        machine
    }

    /// A machine that others cannot reach: its packets leave with the address of the place.
    pub(crate) fn behind_nat(&self, place: u8) -> (Machine, Machine) {
        let (router, machine) = (self.machine(place), Machine::new());
        router.ip(&format!("link add in0 type veth peer name eth0 netns {}", machine.path()));
        router.ip("address add 192.168.5.1/24 dev in0");
        router.ip("link set in0 up");
        router.inside(|| {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            nft::masquerade();
        });
        machine.ip("address add 192.168.5.2/24 dev eth0");
        machine.ip("link set eth0 up");
        machine.ip("route add default via 192.168.5.1");
        (router, machine)
    }

    /// Pulls the cable of a place, or puts it back.
    pub(crate) fn cable(&self, place: u8, plugged: bool) {
        let state = if plugged { "up" } else { "down" };
        self.switch.ip(&format!("link set p{place} {state}"));
    }
}
