//! Links, addresses and routes by rtnetlink: what `net.rs` asks of the kernel below IP filtering.
//! Each function is one or two requests on the socket it is given, and so acts in the socket's
//! namespace. Nothing here remembers anything.

use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use super::netlink::{NetlinkError, Socket};
use super::wire::{self, Malformed, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NetlinkMessage};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_SETLINK: u16 = 19;
const RTM_NEWADDR: u16 = 20;
const RTM_DELADDR: u16 = 21;
const RTM_GETADDR: u16 = 22;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;

const AF_UNSPEC: u8 = 0;
const AF_INET: u8 = 2;
const AF_BRIDGE: u8 = 7;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_PROTINFO: u16 = 12;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_NET_NS_FD: u16 = 28;

const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;

const IFLA_BRPORT_LEARNING: u16 = 8;
const IFLA_BRPORT_UNICAST_FLOOD: u16 = 9;
const IFLA_BRPORT_ISOLATED: u16 = 33;

const NDA_LLADDR: u16 = 2;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

const IFF_UP: u32 = 1;
/// `struct ifinfomsg`: family, type, index, flags, which flags are meant.
const IFINFO: usize = 16;
/// `struct ifaddrmsg`: family, prefix, flags, scope, index.
const IFADDR: usize = 8;

/// A hardware address.
pub type Mac = [u8; 6];

/// A link as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its number in the namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// What whoever made it wrote on it; empty if nothing.
    pub alias: String,
    /// `bridge`, `veth`…; empty for hardware.
    pub kind: String,
    /// The hardware address; empty if it has none.
    pub mac: Vec<u8>,
    /// The index of the bridge that it is a port of, 0 if none.
    pub master: u32,
    /// Is it switched on?
    pub is_up: bool,
}

/// One end of a veth pair that stays here, and the end that goes elsewhere.
#[derive(Debug)]
pub struct Veth<'a> {
    /// What the end here is called.
    pub name: &'a str,
    /// What the other end is called.
    pub peer: &'a str,
    /// The hardware address of the other end.
    pub peer_mac: Mac,
    /// Where the other end goes.
    pub namespace: BorrowedFd<'a>,
    /// How long a packet may be.
    pub mtu: u32,
}

/// All links of the namespace.
pub fn list(socket: &mut Socket) -> Result<Vec<Link>, NetlinkError> {
    let request = NetlinkMessage::new(RTM_GETLINK, NLM_F_DUMP, &ifinfo(AF_UNSPEC, 0, 0));
    let found = socket.dump(&request)?;
    Ok(found.iter().map(|bytes| read_link(bytes)).collect::<Result<_, _>>()?)
}

/// The link of this name, if there is one.
pub fn named(socket: &mut Socket, name: &str) -> Result<Option<Link>, NetlinkError> {
    let request =
        NetlinkMessage::new(RTM_GETLINK, 0, &ifinfo(AF_UNSPEC, 0, 0)).text(IFLA_IFNAME, name);
    match socket.ask(request) {
        Ok(found) => Ok(found.first().map(|bytes| read_link(bytes)).transpose()?),
        Err(error) if error.is(Errno::ENODEV) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A bridge with an address of its own: otherwise it takes the lowest of its ports' addresses, and
/// containers that come and go would change it under the others' feet.
pub fn add_bridge(socket: &mut Socket, name: &str, mac: Mac, mtu: u32) -> Result<(), NetlinkError> {
    let message =
        NetlinkMessage::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &ifinfo(AF_UNSPEC, 0, 0))
            .text(IFLA_IFNAME, name)
            .attr(IFLA_ADDRESS, &mac)
            .u32(IFLA_MTU, mtu)
            .nest(IFLA_LINKINFO, |info| {
                info.text(IFLA_INFO_KIND, "bridge")
                    .nest(IFLA_INFO_DATA, |data| data.u8(IFLA_BR_MCAST_SNOOPING, 0))
            });
    socket.request(message)
}

/// A veth pair whose other end is born in the other namespace.
pub fn add_veth(socket: &mut Socket, veth: &Veth<'_>) -> Result<(), NetlinkError> {
    let message =
        NetlinkMessage::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &ifinfo(AF_UNSPEC, 0, 0))
            .text(IFLA_IFNAME, veth.name)
            .u32(IFLA_MTU, veth.mtu)
            .nest(IFLA_LINKINFO, |info| {
                info.text(IFLA_INFO_KIND, "veth").nest(IFLA_INFO_DATA, |data| {
                    data.nest(VETH_INFO_PEER, |mut peer| {
                        peer.raw(&ifinfo(AF_UNSPEC, 0, 0));
                        peer.text(IFLA_IFNAME, veth.peer)
                            .attr(IFLA_ADDRESS, &veth.peer_mac)
                            .u32(IFLA_MTU, veth.mtu)
                            .attr(IFLA_NET_NS_FD, &veth.namespace.as_raw_fd().to_ne_bytes())
                    })
                })
            });
    socket.request(message)
}

/// Writes whose it is on the link. Not possible while it is made.
pub fn set_alias(socket: &mut Socket, index: u32, alias: &str) -> Result<(), NetlinkError> {
    let message = NetlinkMessage::new(RTM_SETLINK, 0, &ifinfo(AF_UNSPEC, index, 0));
    socket.request(message.attr(IFLA_IFALIAS, alias.as_bytes()))
}

/// Makes the link a port of the bridge.
pub fn set_master(socket: &mut Socket, index: u32, bridge: u32) -> Result<(), NetlinkError> {
    let message = NetlinkMessage::new(RTM_SETLINK, 0, &ifinfo(AF_UNSPEC, index, 0));
    socket.request(message.u32(IFLA_MASTER, bridge))
}

/// Closes a port of a bridge to all but the bridge itself: no frame to or from another such port,
/// no frame for others flooded to it, no address learned from what it sends but the one given.
pub fn isolate(socket: &mut Socket, index: u32, mac: Mac) -> Result<(), NetlinkError> {
    let message = NetlinkMessage::new(RTM_SETLINK, 0, &ifinfo(AF_BRIDGE, index, 0)).nest(
        IFLA_PROTINFO,
        |port| {
            port.u8(IFLA_BRPORT_ISOLATED, 1)
                .u8(IFLA_BRPORT_LEARNING, 0)
                .u8(IFLA_BRPORT_UNICAST_FLOOD, 0)
        },
    );
    socket.request(message)?;
    // NUD_NOARP: it does not age. NTF_MASTER: it is the bridge's to know.
    let message =
        NetlinkMessage::new(RTM_NEWNEIGH, NLM_F_CREATE, &neighbour(AF_BRIDGE, index, 0x40, 0x04));
    socket.request(message.attr(NDA_LLADDR, &mac))
}

/// Says who has an address on the link, for good, so that nobody is asked.
pub fn add_neighbour(
    socket: &mut Socket,
    index: u32,
    address: Ipv4Addr,
    mac: Mac,
) -> Result<(), NetlinkError> {
    const NDA_DST: u16 = 1;
    const NUD_PERMANENT: u16 = 0x80;
    let fixed = neighbour(AF_INET, index, NUD_PERMANENT, 0);
    let message = NetlinkMessage::new(RTM_NEWNEIGH, NLM_F_CREATE, &fixed);
    socket.request(message.attr(NDA_DST, &address.octets()).attr(NDA_LLADDR, &mac))
}

/// Switches the link on.
pub fn set_up(socket: &mut Socket, index: u32) -> Result<(), NetlinkError> {
    socket.request(NetlinkMessage::new(RTM_SETLINK, 0, &ifinfo(AF_UNSPEC, index, IFF_UP)))
}

/// Sets the hardware address.
pub fn set_mac(socket: &mut Socket, index: u32, mac: Mac) -> Result<(), NetlinkError> {
    let message = NetlinkMessage::new(RTM_SETLINK, 0, &ifinfo(AF_UNSPEC, index, 0));
    socket.request(message.attr(IFLA_ADDRESS, &mac))
}

/// Sets how long a packet may be.
pub fn set_mtu(socket: &mut Socket, index: u32, mtu: u32) -> Result<(), NetlinkError> {
    let message = NetlinkMessage::new(RTM_SETLINK, 0, &ifinfo(AF_UNSPEC, index, 0));
    socket.request(message.u32(IFLA_MTU, mtu))
}

/// Removes the link, and with a veth its other end.
pub fn delete(socket: &mut Socket, index: u32) -> Result<(), NetlinkError> {
    socket.request(NetlinkMessage::new(RTM_DELLINK, 0, &ifinfo(AF_UNSPEC, index, 0)))
}

/// Gives the link an address.
pub fn add_address(
    socket: &mut Socket,
    index: u32,
    address: Ipv4Addr,
    prefix: u8,
) -> Result<(), NetlinkError> {
    let message =
        NetlinkMessage::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &ifaddr(index, prefix));
    socket.request(both(message, address))
}

/// Takes an address from the link.
pub fn delete_address(
    socket: &mut Socket,
    index: u32,
    address: Ipv4Addr,
    prefix: u8,
) -> Result<(), NetlinkError> {
    let message = NetlinkMessage::new(RTM_DELADDR, 0, &ifaddr(index, prefix));
    socket.request(both(message, address))
}

/// The IPv4 addresses of all links: whose, which, and the length of its prefix.
pub fn addresses(socket: &mut Socket) -> Result<Vec<(u32, Ipv4Addr, u8)>, NetlinkError> {
    let mut found = Vec::new();
    for bytes in socket.dump(&NetlinkMessage::new(RTM_GETADDR, NLM_F_DUMP, &ifaddr(0, 0)))? {
        let attributes = bytes.get(IFADDR..).ok_or(Malformed)?;
        if let Some(local) = wire::find(attributes, IFA_LOCAL)? {
            let address = Ipv4Addr::from(wire::array_at::<4>(local, 0)?);
            found.push((wire::u32_at(&bytes, 4)?, address, bytes[1]));
        }
    }
    Ok(found)
}

/// All goes to the gateway, which need not be in a network of the link's own ("onlink").
pub fn add_default_route(
    socket: &mut Socket,
    index: u32,
    gateway: Ipv4Addr,
) -> Result<(), NetlinkError> {
    const RTA_OIF: u16 = 4;
    const RTA_GATEWAY: u16 = 5;
    const RTNH_F_ONLINK: u32 = 4;
    // struct rtmsg: family, lengths of destination and source, tos, table (main), protocol (static),
    // scope (universe), type (unicast), flags.
    let mut fixed = [AF_INET, 0, 0, 0, 254, 4, 0, 1, 0, 0, 0, 0];
    fixed[8..12].copy_from_slice(&RTNH_F_ONLINK.to_ne_bytes());
    let message = NetlinkMessage::new(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, &fixed)
        .u32(RTA_OIF, index)
        .attr(RTA_GATEWAY, &gateway.octets());
    socket.request(message)
}

fn ifinfo(family: u8, index: u32, flags: u32) -> [u8; IFINFO] {
    let mut fixed = [0; IFINFO];
    fixed[0] = family;
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    // Only these flags are meant; the others stay.
    fixed[12..16].copy_from_slice(&flags.to_ne_bytes());
    fixed
}

/// `struct ndmsg`: family, padding, index, state, flags, type.
fn neighbour(family: u8, index: u32, state: u16, flags: u8) -> [u8; 12] {
    let mut fixed = [0; 12];
    (fixed[0], fixed[10]) = (family, flags);
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..10].copy_from_slice(&state.to_ne_bytes());
    fixed
}

fn ifaddr(index: u32, prefix: u8) -> [u8; IFADDR] {
    let mut fixed = [0; IFADDR];
    (fixed[0], fixed[1]) = (AF_INET, prefix);
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed
}

/// Our address and the other end's, which on all but point-to-point links are the same.
fn both(message: NetlinkMessage, address: Ipv4Addr) -> NetlinkMessage {
    message.attr(IFA_LOCAL, &address.octets()).attr(IFA_ADDRESS, &address.octets())
}

fn read_link(bytes: &[u8]) -> Result<Link, Malformed> {
    let attributes = bytes.get(IFINFO..).ok_or(Malformed)?;
    let info = wire::find(attributes, IFLA_LINKINFO)?.unwrap_or_default();
    let master = wire::find(attributes, IFLA_MASTER)?;
    Ok(Link {
        index: wire::u32_at(bytes, 4)?,
        name: wire::text_of(attributes, IFLA_IFNAME)?.ok_or(Malformed)?,
        alias: wire::text_of(attributes, IFLA_IFALIAS)?.unwrap_or_default(),
        kind: wire::text_of(info, IFLA_INFO_KIND)?.unwrap_or_default(),
        mac: wire::find(attributes, IFLA_ADDRESS)?.unwrap_or_default().to_vec(),
        master: master.map_or(Ok(0), |index| wire::u32_at(index, 0))?,
        is_up: wire::u32_at(bytes, 8)? & IFF_UP != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_back_as_the_kernel_writes_it() {
        let mut bytes = ifinfo(0, 7, IFF_UP).to_vec();
        bytes.extend([8, 0, 3, 0, b'v', b'x', b'1', 0]); // IFLA_IFNAME
        bytes.extend([8, 0, 10, 0, 5, 0, 0, 0]); // IFLA_MASTER
        bytes.extend([10, 0, 1, 0, 2, 3, 4, 5, 6, 7, 0, 0]); // IFLA_ADDRESS
        bytes.extend([7, 0, 20, 0, b'a', b':', b'b', 0]); // IFLA_IFALIAS, without its zero
        bytes.extend([13, 0, 18, 0, 9, 0, 1, 0, b'v', b'e', b't', b'h', 0, 0, 0, 0]);
        let (name, alias, kind) = ("vx1".into(), "a:b".into(), "veth".into());
        let mac = vec![2, 3, 4, 5, 6, 7];
        let link = Link { index: 7, name, alias, kind, mac, master: 5, is_up: true };
        assert_eq!(read_link(&bytes), Ok(link));
        for end in 0..24 {
            assert_eq!(read_link(&bytes[..end]), Err(Malformed), "cut at {end}");
        }
    }

    #[test]
    fn only_the_named_flags_are_changed() {
        let fixed = ifinfo(AF_UNSPEC, 258, IFF_UP);
        assert_eq!(fixed, [0, 0, 0, 0, 2, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0]);
    }
}
