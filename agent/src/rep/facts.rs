//! What the board is told of an instance that runs: how it is reached, its names and its tags.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use volvox_protocol::actual_lrp::{LrpKey, NetInfo, PortMapping, PreferredAddress, Running};
use volvox_protocol::definition::{MetricTags, Routes};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::instance_info::{internal_routes, metric_tags};

use crate::container::network::ContainerNetwork;

/// How an instance is reached.
pub fn net_info(network: &ContainerNetwork) -> NetInfo {
    NetInfo {
        address: network.external_address.to_string().into(),
        ports: network.ports.iter().map(port).collect(),
        instance_address: network.internal_address.to_string().into(),
        preferred_address: PreferredAddress::Host,
        instance_ipv6_address: network
            .internal_ipv6
            .map(|address| address.to_string().into())
            .unwrap_or_default(),
    }
}

fn port(mapping: &PortMapping) -> PortMapping {
    *mapping
}

/// All that is told of it.
pub fn running(
    key: &LrpKey,
    instance: &InstanceGuid,
    network: &ContainerNetwork,
    routable: bool,
    zone: &str,
    wishes: Option<(&MetricTags, &Routes)>,
) -> Running {
    Running {
        net_info: net_info(network),
        internal_routes: wishes.map(|(_, routes)| internal_routes(routes)).unwrap_or_default(),
        metric_tags: wishes.map(|(tags, _)| metric_tags(tags, key, instance)).unwrap_or_default(),
        routable,
        availability_zone: zone.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use serde_json::json;
    use volvox_protocol::id::{Domain, ProcessGuid};
    use volvox_protocol::limits::{ENTRIES, TEXT_BYTES};

    use super::*;

    #[test]
    fn what_is_told_names_the_host_the_ports_the_names_and_the_tags() {
        let key = LrpKey {
            process_guid: ProcessGuid::new("p").unwrap(),
            index: 7,
            domain: Domain::new("d").unwrap(),
            definition_id: None,
        };
        let instance = InstanceGuid::new("i-1").unwrap();
        let network = ContainerNetwork {
            external_address: IpAddr::from([192, 0, 2, 1]),
            internal_address: IpAddr::from([10, 255, 0, 2]),
            internal_ipv6: None,
            ports: vec![PortMapping {
                container_port: 80,
                host_port: 61_000,
                ..Default::default()
            }],
        };
        let tags: MetricTags = serde_json::from_value(json!({
            "app": {"static": "web"}, "nth": {"dynamic": "INDEX"}, "id": {"dynamic": "INSTANCE_GUID"},
        }))
        .unwrap();
        let routes: Routes = serde_json::from_value(json!({
            "internal-router": [{"hostname": "web.internal"}], "cf-router": [],
        }))
        .unwrap();
        let told = running(&key, &instance, &network, true, "z1", Some((&tags, &routes)));
        assert_eq!(told.net_info.address, "192.0.2.1");
        assert_eq!(told.net_info.instance_address, "10.255.0.2");
        assert_eq!(told.net_info.ports[0].host_port, 61_000);
        assert_eq!(told.internal_routes[0].hostname, "web.internal");
        let tags: Vec<_> = told.metric_tags.iter().collect();
        assert_eq!(tags, [("app", "web"), ("id", "i-1"), ("nth", "7")]);
        assert!(told.routable && told.availability_zone == "z1");
        let names = (0..ENTRIES + 9).map(|nth| json!({"hostname": format!("h{nth}")}));
        let long = json!({"hostname": "x".repeat(TEXT_BYTES + 1)});
        let many =
            json!({"internal-router": std::iter::once(long).chain(names).collect::<Vec<_>>()});
        let many: Routes = serde_json::from_value(many).unwrap();
        let told =
            running(&key, &instance, &network, true, "z1", Some((&Default::default(), &many)));
        assert_eq!(told.internal_routes.len(), ENTRIES);
        assert_eq!(told.internal_routes[0].hostname, "h0");
        let odd: Routes = serde_json::from_value(json!({"internal-router": "?"})).unwrap();
        let told =
            running(&key, &instance, &network, false, "z1", Some((&Default::default(), &odd)));
        assert!(told.internal_routes.is_empty() && !told.routable);
    }
}
