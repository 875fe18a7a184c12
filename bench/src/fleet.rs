//! A fleet of the size that is claimed: definitions as a real platform writes them, instances
//! with addresses, ports and tags.

use std::sync::Arc;

use anyhow::Context as _;
use volvox_coordinator::bbs::command::Command;
use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, PortMapping, Running};
use volvox_protocol::actual_lrp::{PreferredAddress, Tags};
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid};
use volvox_protocol::request::CellRequest;
use volvox_protocol::validate::Valid;

/// The domain that everything is in.
pub fn domain() -> anyhow::Result<Domain> {
    Ok(Domain::new("cf-apps")?)
}

/// The guid of the `nth` process: as long as a real one.
pub fn process_guid(nth: usize) -> anyhow::Result<ProcessGuid> {
    Ok(ProcessGuid::new(&format!("{nth:08x}-5a8d-4c8e-9d8f-0123456789ab"))?)
}

/// The id of the `nth` cell.
pub fn cell_id(nth: usize) -> anyhow::Result<CellId> {
    Ok(CellId::new(&format!("cell-{nth:04}"))?)
}

/// An LRP as a platform would desire it, as JSON.
pub fn desired(nth: usize, instances: u32) -> anyhow::Result<serde_json::Value> {
    let guid = process_guid(nth)?;
    Ok(serde_json::json!({
        "process_guid": guid, "domain": "cf-apps", "rootfs": "preloaded:cflinuxfs4",
        "instances": instances, "memory_mb": 256, "disk_mb": 1024, "cpu_weight": 10,
        "max_pids": 1024, "ports": [8080], "log_guid": guid, "log_source": "CELL",
        "annotation": "1700000000.0", "start_timeout_ms": 60000,
        "env": [{"name": "LANG", "value": "en_US.UTF-8"}],
        "routes": {"cf-router": [{"hostnames": [format!("app-{nth}.example.com")], "port": 8080}]},
        "metric_tags": {"source_id": {"static": guid}, "instance_id": {"dynamic": "INDEX"}},
        "setup": {"serial": {"actions": [{"download": {
            "from": format!("https://blobs.example.com/droplets/{guid}"), "to": ".",
            "user": "vcap", "cache_key": format!("droplets-{guid}"),
        }}]}},
        "action": {"codependent": {"actions": [{"run": {
            "path": "/tmp/lifecycle/launcher", "user": "vcap",
            "args": ["app", "bundle exec rackup config.ru -p $PORT", "{}"],
            "env": [{"name": "PORT", "value": "8080"},
                    {"name": "VCAP_APP_PORT", "value": "8080"},
                    {"name": "MEMORY_LIMIT", "value": "256m"}],
            "resource_limits": {"nofile": 16384}, "log_source": "APP/PROC/WEB",
        }}]}},
        "check_definition": {"checks": [{"tcp_check": {"port": 8080}}], "log_source": "HEALTH"},
        "egress_rules": [{"protocol": "all", "destinations": ["0.0.0.0-9.255.255.255"]},
                         {"protocol": "tcp", "destinations": ["10.0.0.0/8"], "ports": [53, 443]}],
    }))
}

/// The order to run such an LRP.
pub fn desire(nth: usize, instances: u32) -> anyhow::Result<Command> {
    let json = desired(nth, instances)?;
    let desired: DesiredLrp = serde_json::from_value(json).context("read the sample LRP")?;
    Ok(Command::DesireLrp(Box::new(Valid::new(desired)?)))
}

/// The key of one instance.
pub fn key(nth: usize, index: u32) -> anyhow::Result<LrpKey> {
    let process_guid = process_guid(nth)?;
    Ok(LrpKey { process_guid, index, domain: domain()?, definition_id: None })
}

/// The container of one instance, on a cell.
pub fn instance(nth: usize, index: u32, cell: &CellId) -> anyhow::Result<InstanceKey> {
    let instance_guid = InstanceGuid::new(&format!("{nth:08x}-{index:04x}-4a1b-8c2d-1234"))?;
    Ok(InstanceKey { instance_guid, cell_id: cell.clone() })
}

/// A claim of one instance.
pub fn claim(nth: usize, index: u32, cell: &CellId) -> anyhow::Result<Command> {
    let request = CellRequest::ClaimLrp(key(nth, index)?, instance(nth, index, cell)?);
    Ok(Command::Cell(Valid::new(request)?))
}

/// A start of one instance.
pub fn start(nth: usize, index: u32, cell: &CellId) -> anyhow::Result<Command> {
    let host_port = 61_000 + index % 4_000;
    let net_info = NetInfo {
        address: "10.0.17.23".into(),
        ports: Box::new([PortMapping { container_port: 8080, host_port, ..Default::default() }]),
        instance_address: "10.255.96.17".into(),
        preferred_address: PreferredAddress::Host,
        instance_ipv6_address: "".into(),
    };
    let guid = String::from(process_guid(nth)?);
    let tags: Tags =
        [("source_id".to_owned(), guid), ("instance_id".to_owned(), index.to_string())]
            .into_iter()
            .collect();
    let running = Running {
        net_info,
        internal_routes: Box::default(),
        metric_tags: tags,
        routable: true,
        availability_zone: "z1".into(),
    };
    let request =
        CellRequest::StartLrp(key(nth, index)?, instance(nth, index, cell)?, Arc::new(running));
    Ok(Command::Cell(Valid::new(request)?))
}
