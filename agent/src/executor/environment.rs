//! The variables of a process and the limits of a container, as functions of what is known of both.
//!
//! Nothing here reads the agent's own environment: none of it may leak into a container.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;
use volvox_protocol::action::EnvironmentVariable;
use volvox_protocol::actual_lrp::PortMapping;
use volvox_protocol::id::InstanceGuid;

use crate::container::network::ContainerNetwork;
use crate::container::spec::Limits;

/// Where in the container an instance finds its certificate and key.
pub const CREDENTIALS_FOLDER: &str = "/etc/cf-instance-credentials";

/// What a container's variables are made from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerFacts<'a> {
    /// The instance and its index. A task has none.
    pub instance: Option<(&'a InstanceGuid, u32)>,
    /// The definition's own variables.
    pub env: &'a [EnvironmentVariable],
    /// Where the cell's certificates are mounted; empty: nowhere.
    pub system_certificates_path: &'a str,
    /// Whether the container has a certificate of its own.
    pub identity: Identity,
}

/// Whether a container has a certificate of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Identity {
    /// It has none.
    #[default]
    Absent,
    /// Certificate and key lie in [`CREDENTIALS_FOLDER`].
    Mounted,
}

/// The variables of all processes of a container. A later one overrides an earlier one, so a
/// definition may replace what is said of the instance, but not where certificates are.
pub fn container_environment(facts: &ContainerFacts<'_>) -> Vec<EnvironmentVariable> {
    let mut env = Vec::new();
    if let Some((guid, index)) = facts.instance {
        for (guid_name, index_name) in
            [("INSTANCE_GUID", "INSTANCE_INDEX"), ("CF_INSTANCE_GUID", "CF_INSTANCE_INDEX")]
        {
            env.push(variable(guid_name, guid.as_str()));
            env.push(variable(index_name, index.to_string()));
        }
    }
    env.extend_from_slice(facts.env);
    if !facts.system_certificates_path.is_empty() {
        env.push(variable("CF_SYSTEM_CERT_PATH", facts.system_certificates_path));
    }
    if facts.identity == Identity::Mounted {
        env.push(variable("CF_INSTANCE_CERT", format!("{CREDENTIALS_FOLDER}/instance.crt")));
        env.push(variable("CF_INSTANCE_KEY", format!("{CREDENTIALS_FOLDER}/instance.key")));
    }
    env
}

/// The variables that tell a process how it is reached.
pub fn network_environment(network: &ContainerNetwork) -> Vec<EnvironmentVariable> {
    let external = network.external_address;
    let mut env = vec![
        variable("CF_INSTANCE_IP", external.to_string()),
        variable("CF_INSTANCE_INTERNAL_IP", network.internal_address.to_string()),
    ];
    if let Some(address) = network.internal_ipv6 {
        env.push(variable("CF_INSTANCE_INTERNAL_IPV6", address.to_string()));
    }
    match network.ports.first() {
        None => {
            env.push(variable("CF_INSTANCE_PORT", ""));
            env.push(variable("CF_INSTANCE_ADDR", ""));
        }
        Some(first) if first.host_port != 0 => {
            let port = first.host_port;
            let address = match external {
                IpAddr::V4(address) => format!("{address}:{port}"),
                IpAddr::V6(address) => format!("[{address}]:{port}"),
            };
            env.push(variable("CF_INSTANCE_PORT", port.to_string()));
            env.push(variable("CF_INSTANCE_ADDR", address));
        }
        Some(_) => {}
    }
    let ports: Vec<_> = network.ports.iter().map(TellPort::from).collect();
    let ports = serde_json::to_string(&ports).expect("numbers make valid JSON");
    env.push(variable("CF_INSTANCE_PORTS", ports));
    env
}

/// A port as CF_INSTANCE_PORTS tells of it: what is 0 is left out.
#[derive(Serialize)]
struct TellPort {
    #[serde(skip_serializing_if = "Option::is_none")]
    external: Option<u32>,
    internal: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_tls_proxy: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    internal_tls_proxy: Option<u32>,
}

impl From<&PortMapping> for TellPort {
    fn from(port: &PortMapping) -> Self {
        let given = |port: u32| (port != 0).then_some(port);
        TellPort {
            external: given(port.host_port),
            internal: port.container_port,
            external_tls_proxy: given(port.host_tls_proxy_port),
            internal_tls_proxy: given(port.container_tls_proxy_port),
        }
    }
}

/// The variables of one process: the container's, then the action's, then the network's. Of those
/// with one name the last stays, where it stands.
pub fn process_environment(
    container: &[EnvironmentVariable],
    action: &[EnvironmentVariable],
    network: &[EnvironmentVariable],
) -> Vec<EnvironmentVariable> {
    let all: Vec<_> = container.iter().chain(action).chain(network).collect();
    let mut seen = BTreeSet::new();
    let mut env: Vec<_> =
        all.into_iter().rev().filter(|it| seen.insert(it.name.as_str())).cloned().collect();
    env.reverse();
    env
}

fn variable(name: &str, value: impl Into<String>) -> EnvironmentVariable {
    EnvironmentVariable { name: name.to_owned(), value: value.into() }
}

/// What a definition asks for, as far as limits go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitFacts {
    /// Whose container it is.
    pub owner: Owner,
    /// Memory; 0: no limit.
    pub memory_mb: u32,
    /// Disk; 0: no limit.
    pub disk_mb: u32,
    /// Processes; 0: no limit.
    pub max_pids: u32,
    /// Share of the processors, in hundredths of the cell's most.
    pub cpu_weight: u32,
}

/// Whose container it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// An instance's.
    Lrp,
    /// A task's.
    Task,
}

/// A cell's own numbers for limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitSettings {
    /// The CPU shares of a container with a weight of 100.
    pub max_cpu_shares: u32,
    /// Files and folders in a container.
    pub inodes: u64,
    /// Memory on top of an instance's, for its proxy; 0 on a cell without.
    pub proxy_memory_mb: u32,
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings { max_cpu_shares: 1_024, inodes: 200_000, proxy_memory_mb: 0 }
    }
}

/// The limits of a container on a root file system of this size, in bytes. What is not limited is 0.
pub fn limits(facts: LimitFacts, settings: LimitSettings, rootfs_bytes: u64) -> Limits {
    let (proxy_memory_mb, cpu_weight) = match facts.owner {
        Owner::Lrp => (settings.proxy_memory_mb, facts.cpu_weight.max(1)),
        Owner::Task => (0, facts.cpu_weight),
    };
    let unless_zero = |given: u32, limit: u64| if given == 0 { 0 } else { limit };
    let memory_mb = u64::from(facts.memory_mb) + u64::from(proxy_memory_mb);
    let disk_bytes = mebibytes(facts.disk_mb.into()).saturating_add(rootfs_bytes);
    Limits {
        memory_bytes: unless_zero(facts.memory_mb, mebibytes(memory_mb)),
        cpu_shares: u64::from(settings.max_cpu_shares) * u64::from(cpu_weight) / 100,
        pids: facts.max_pids.into(),
        disk_bytes: unless_zero(facts.disk_mb, disk_bytes),
        inodes: settings.inodes,
    }
}

/// At most 2³³ of them come in, so 2⁵³ bytes go out.
fn mebibytes(count: u64) -> u64 {
    count << 20
}

#[cfg(test)]
mod tests;
