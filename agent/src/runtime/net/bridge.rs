//! The bridge itself: made or found, and given its address. `net.rs` calls this when it opens.

use nix::errno::Errno;

use super::address;
use super::error::{NetError, doing};
use super::link;
use super::netlink::Socket;
use super::settings::NetworkConfig;

/// Whether the bridge was there before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    New,
    Old,
}

/// Makes the bridge, or finds it by its name and the hardware address that we give to bridges of
/// that name. Another's link of that name is left alone.
pub(super) fn make_or_find(
    route: &mut Socket,
    config: &NetworkConfig,
) -> Result<(u32, Age), NetError> {
    let (name, mtu) = (config.bridge.as_str(), config.mtu);
    let mac = address::bridge_mac(name);
    let age = match link::add_bridge(route, name, mac, mtu) {
        Err(failure) if failure.is(Errno::EEXIST) => Age::Old,
        made => made.map(|()| Age::New).map_err(doing("make the bridge"))?,
    };
    let found = link::named(route, name).map_err(doing("find the bridge"))?;
    let ours = found.filter(|link| link.kind == "bridge" && link.mac == mac);
    let Some(bridge) = ours else { return Err(NetError::Foreign { bridge: name.into() }) };
    link::set_mtu(route, bridge.index, mtu).map_err(doing("set the bridge's MTU"))?;
    Ok((bridge.index, age))
}

/// Gives the bridge the first address of the subnet, unless it has it. Refuses a subnet that meets
/// an address which the machine has, and a bridge that has another from an earlier configuration.
pub(super) fn give_address(
    route: &mut Socket,
    bridge: u32,
    config: &NetworkConfig,
) -> Result<(), NetError> {
    let subnet = config.subnet;
    let wanted = (bridge, config.gateway(), subnet.prefix());
    let found = link::addresses(route).map_err(doing("list addresses"))?;
    for (index, address, prefix) in &found {
        let meets = *index == bridge || subnet.meets(*address, *prefix);
        if meets && (*index, *address, *prefix) != wanted {
            return Err(NetError::SubnetTaken { subnet, address: *address });
        }
    }
    if found.contains(&wanted) {
        return Ok(());
    }
    link::add_address(route, bridge, config.gateway(), subnet.prefix())
        .map_err(doing("give the bridge its address"))
}
