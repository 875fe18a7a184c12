//! Instances.

use std::sync::Arc;

use super::super::message as m;
use super::{count, id, modification_tag, needed, span, value};
use crate::actual_lrp::{
    ActualLrp, InstanceKey, InternalRoute, LrpGroup, LrpKey, LrpState, NetInfo, PortMapping,
    PreferredAddress, Presence, Running,
};
use crate::id::{CellId, Domain, InstanceGuid, ProcessGuid};
use crate::time::Timestamp;
use crate::validate::Checker;

/// A time: not before 1970.
pub(super) fn time(at: &mut Checker, name: &str, given: i64) -> Timestamp {
    Timestamp::from_nanos(span(at, name, given))
}

/// Which instance is meant.
pub(super) fn key(at: &mut Checker, given: Option<m::ActualLrpKey>) -> LrpKey {
    let name = "actual_lrp_key";
    let missing = given.is_none();
    let given = needed(at, name, given);
    let mut inside = Checker::default();
    // Of a key that is not there nothing more is said.
    let walk = if missing { &mut inside } else { at };
    let mut read = None;
    walk.field(name, |at| {
        read = Some(LrpKey {
            process_guid: id(at, "process_guid", &given.process_guid, ProcessGuid::new),
            index: count(at, "index", given.index),
            domain: id(at, "domain", &given.domain, Domain::new),
            definition_id: None,
        });
    });
    read.expect("the walk was made")
}

/// Which container is meant.
pub(super) fn instance_key(
    at: &mut Checker,
    given: Option<m::ActualLrpInstanceKey>,
) -> InstanceKey {
    let name = "actual_lrp_instance_key";
    let missing = given.is_none();
    let given = needed(at, name, given);
    let mut inside = Checker::default();
    let walk = if missing { &mut inside } else { at };
    let mut read = None;
    walk.field(name, |at| {
        // In the order in which the BBS complains.
        let cell_id = id(at, "cell_id", &given.cell_id, CellId::new);
        let instance_guid = id(at, "instance_guid", &given.instance_guid, InstanceGuid::new);
        read = Some(InstanceKey { instance_guid, cell_id });
    });
    read.expect("the walk was made")
}

/// How an instance is reached.
pub(super) fn net_info(given: m::ActualLrpNetInfo) -> NetInfo {
    // A later Diego may prefer what we do not know of: as good as no preference, and no reason to refuse
    // that an instance runs.
    let preferred = m::PreferredAddress::try_from(given.preferred_address).unwrap_or_default();
    let ports = given.ports.into_iter().map(|it| PortMapping {
        container_port: it.container_port,
        host_port: it.host_port,
        container_tls_proxy_port: it.container_tls_proxy_port,
        host_tls_proxy_port: it.host_tls_proxy_port,
    });
    NetInfo {
        address: given.address.into(),
        ports: ports.collect(),
        instance_address: given.instance_address.into(),
        preferred_address: match preferred {
            m::PreferredAddress::Unknown => PreferredAddress::Unknown,
            m::PreferredAddress::Instance => PreferredAddress::Instance,
            m::PreferredAddress::Host => PreferredAddress::Host,
        },
        instance_ipv6_address: given.instance_ipv6_address.into(),
    }
}

/// The names under which containers find an instance.
pub(super) fn internal_routes(given: Vec<m::ActualLrpInternalRoute>) -> Box<[InternalRoute]> {
    given.into_iter().map(|it| InternalRoute { hostname: it.hostname.into() }).collect()
}

/// A record, as a client reads it. The definition is not said: it is taken for the process's own.
pub fn actual_lrp(at: &mut Checker, given: m::ActualLrp) -> ActualLrp {
    let key = key(at, given.actual_lrp_key);
    let net = net_info(given.actual_lrp_net_info.unwrap_or_default());
    let state = match given.state.as_str() {
        "UNCLAIMED" => LrpState::Unclaimed { placement_error: given.placement_error.into() },
        "CLAIMED" => LrpState::Claimed(instance_key(at, given.actual_lrp_instance_key)),
        "RUNNING" => {
            let running = Running {
                net_info: net,
                internal_routes: internal_routes(given.actual_lrp_internal_routes),
                metric_tags: given.metric_tags.into_iter().collect(),
                // Absent is unknown, which readers take for routable.
                routable: given.routable.unwrap_or(true),
                availability_zone: given.availability_zone.into(),
            };
            LrpState::Running(instance_key(at, given.actual_lrp_instance_key), Arc::new(running))
        }
        "CRASHED" => LrpState::Crashed,
        _ => {
            at.field("state", |at| at.require(false, || "is not known".to_owned()));
            LrpState::Crashed
        }
    };
    let presence = match value(at, "presence", given.presence, m::Presence::Ordinary) {
        m::Presence::Ordinary => Presence::Ordinary,
        m::Presence::Evacuating => Presence::Evacuating,
        m::Presence::Suspect => Presence::Suspect,
    };
    ActualLrp {
        definition_id: (&key.process_guid).into(),
        process_guid: key.process_guid,
        index: key.index,
        domain: key.domain,
        presence,
        state,
        crash_count: count(at, "crash_count", given.crash_count),
        crash_reason: given.crash_reason.into(),
        stopping: false,
        since: time(at, "since", given.since),
        modification_tag: modification_tag(given.modification_tag),
    }
}

/// A group, as a client reads it.
pub fn group(at: &mut Checker, given: m::ActualLrpGroup) -> LrpGroup {
    let mut group = LrpGroup::default();
    at.field("instance", |at| {
        group.instance = given.instance.map(|it| Arc::new(actual_lrp(at, it)));
    });
    at.field("evacuating", |at| {
        group.evacuating = given.evacuating.map(|it| Arc::new(actual_lrp(at, it)));
    });
    group
}
