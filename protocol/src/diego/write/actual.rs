//! Instances and cells.

use super::super::message as m;
use super::encode::Writer;
use super::{ListEntry, count, modification_tag, time};
use crate::actual_lrp::{
    ActualLrp, InstanceKey, LrpGroup, LrpKey, NetInfo, PreferredAddress, Presence,
};
use crate::cell::CellPresenceJson;

/// Which instance is meant.
pub(super) fn key(given: &LrpKey) -> m::ActualLrpKey {
    m::ActualLrpKey {
        process_guid: given.process_guid.to_string(),
        index: count(given.index),
        domain: given.domain.to_string(),
    }
}

/// Which container holds an instance; empty texts for none.
pub(super) fn instance_key(given: Option<&InstanceKey>) -> m::ActualLrpInstanceKey {
    given.map_or_else(m::ActualLrpInstanceKey::default, |given| m::ActualLrpInstanceKey {
        instance_guid: given.instance_guid.to_string(),
        cell_id: given.cell_id.to_string(),
    })
}

pub(super) fn net_info(given: &NetInfo) -> m::ActualLrpNetInfo {
    let ports = given.ports.iter().map(|it| m::PortMapping {
        container_port: it.container_port,
        host_port: it.host_port,
        container_tls_proxy_port: it.container_tls_proxy_port,
        host_tls_proxy_port: it.host_tls_proxy_port,
    });
    m::ActualLrpNetInfo {
        address: given.address.to_string(),
        ports: ports.collect(),
        instance_address: given.instance_address.to_string(),
        preferred_address: preferred(given.preferred_address).into(),
        instance_ipv6_address: given.instance_ipv6_address.to_string(),
    }
}

pub(super) const fn preferred(given: PreferredAddress) -> m::PreferredAddress {
    match given {
        PreferredAddress::Unknown => m::PreferredAddress::Unknown,
        PreferredAddress::Instance => m::PreferredAddress::Instance,
        PreferredAddress::Host => m::PreferredAddress::Host,
    }
}

pub(super) const fn presence(given: Presence) -> m::Presence {
    match given {
        Presence::Ordinary => m::Presence::Ordinary,
        Presence::Evacuating => m::Presence::Evacuating,
        Presence::Suspect => m::Presence::Suspect,
    }
}

/// A record. [`Writer::actual_lrp`] writes the same without making it first.
pub(super) fn actual_lrp(given: &ActualLrp) -> m::ActualLrp {
    let running = given.running();
    let nowhere = NetInfo::default();
    let routes = running.iter().flat_map(|it| &it.internal_routes);
    let tags = running.iter().flat_map(|it| it.metric_tags.iter());
    m::ActualLrp {
        actual_lrp_key: Some(key(&given.key())),
        actual_lrp_instance_key: Some(instance_key(given.instance())),
        actual_lrp_net_info: Some(net_info(running.map_or(&nowhere, |it| &it.net_info))),
        crash_count: count(given.crash_count),
        crash_reason: given.crash_reason.to_string(),
        state: given.state.name().to_owned(),
        placement_error: given.placement_error().to_owned(),
        since: time(given.since),
        modification_tag: Some(modification_tag(given.modification_tag)),
        presence: presence(given.presence).into(),
        actual_lrp_internal_routes: routes
            .map(|it| m::ActualLrpInternalRoute { hostname: it.hostname.to_string() })
            .collect(),
        metric_tags: tags.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        routable: Some(running.is_some_and(|it| it.routable)),
        availability_zone: running.map_or(String::new(), |it| it.availability_zone.to_string()),
    }
}

/// What there is at one index.
pub fn group(given: &LrpGroup) -> m::ActualLrpGroup {
    m::ActualLrpGroup {
        instance: given.instance.as_deref().map(actual_lrp),
        evacuating: given.evacuating.as_deref().map(actual_lrp),
    }
}

/// A cell, as the API lists it.
pub fn cell_presence(given: CellPresenceJson) -> m::CellPresence {
    let providers = given.rootfs_providers.into_iter();
    m::CellPresence {
        cell_id: given.cell_id.into(),
        rep_address: given.rep_address,
        zone: given.zone,
        capacity: Some(m::CellCapacity {
            memory_mb: count(given.capacity.memory_mb),
            disk_mb: count(given.capacity.disk_mb),
            containers: count(given.capacity.containers),
        }),
        rootfs_providers: providers
            .map(|it| m::Provider { name: it.name, properties: it.properties })
            .collect(),
        placement_tags: given.placement_tags,
        optional_placement_tags: given.optional_placement_tags,
        rep_url: given.rep_url,
        annotations: given.annotations,
    }
}

impl ListEntry for &ActualLrp {
    fn put_diego(self, out: &mut Vec<u8>) {
        Writer(out).actual_lrp(self);
    }
}

impl ListEntry for &LrpGroup {
    fn put_diego(self, out: &mut Vec<u8>) {
        let mut out = Writer(out);
        for (number, lrp) in [(1, &self.instance), (2, &self.evacuating)] {
            if let Some(lrp) = lrp {
                out.message(number, |out| out.actual_lrp(lrp));
            }
        }
    }
}
