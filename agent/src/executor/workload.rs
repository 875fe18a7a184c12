//! What a container is for: whose it is, and what its definition asks of the cell.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use volvox_protocol::action::EnvironmentVariable;
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::id::{Domain, InstanceGuid, TaskGuid};
use volvox_protocol::task::TaskDefinition;
use volvox_protocol::validate::Valid;

use super::environment::{
    ContainerFacts, Identity, LimitFacts, LimitSettings, Owner as LimitOwner,
    container_environment, limits,
};
use super::layers::cached_dependencies;
use super::lifecycle_log::log_source;
use super::resources::ContainerResources;
use super::steps::StepSpec;
use crate::container::guid::ContainerGuid;
use crate::container::plan::ContainerPlan;

/// Layers are shared and read-only: a container is charged for what it writes, so the size of its
/// root file system is neither added to its limit nor measured.
const ROOTFS_BYTES: u64 = 0;

/// Whose container it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// An instance.
    Lrp {
        /// Of which process, at which index.
        key: LrpKey,
        /// Its own name, which is the container's too.
        instance: InstanceGuid,
    },
    /// A task.
    Task {
        /// Which one. Its name is the container's too.
        guid: TaskGuid,
        /// Its domain.
        domain: Domain,
    },
    /// This machine's own: a self-test, or something that a person started by hand. The board does
    /// not know of it.
    Local(InstanceGuid),
}

impl Owner {
    /// The name of its container.
    pub fn container(&self) -> ContainerGuid {
        match self {
            Owner::Lrp { instance, .. } => ContainerGuid::from(instance.clone()),
            Owner::Task { guid, .. } => ContainerGuid::from(guid),
            Owner::Local(guid) => ContainerGuid::from(guid.clone()),
        }
    }
}

/// The definition that a container is made from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Workload {
    /// An instance's.
    Lrp(Arc<LrpDefinition>),
    /// A task's.
    Task(Arc<TaskDefinition>),
}

impl Workload {
    /// Says which rules the definition breaks, if any.
    pub fn validate(&self) -> Result<(), String> {
        let checked = match self {
            Workload::Lrp(it) => Valid::new(LrpDefinition::clone(it)).map(drop),
            Workload::Task(it) => Valid::new(TaskDefinition::clone(it)).map(drop),
        };
        checked.map_err(|problems| problems.to_string())
    }

    /// What it takes of the cell.
    pub fn resources(&self) -> ContainerResources {
        let (memory_mb, disk_mb) = match self {
            Workload::Lrp(it) => (it.memory_mb, it.disk_mb),
            Workload::Task(it) => (it.memory_mb, it.disk_mb),
        };
        ContainerResources { memory_mb, disk_mb }
    }

    /// What runs in it.
    pub fn steps(&self) -> StepSpec {
        match self {
            Workload::Lrp(it) => StepSpec::of_lrp(it),
            Workload::Task(it) => StepSpec::of_task(it),
        }
    }

    /// The source of log lines that name none.
    pub fn log_source(&self) -> &str {
        log_source(match self {
            Workload::Lrp(it) => &it.log_source,
            Workload::Task(it) => &it.log_source,
        })
    }

    /// The file whose contents are the result; empty: there is none.
    pub fn result_file(&self) -> &str {
        match self {
            Workload::Lrp(_) => "",
            Workload::Task(it) => &it.result_file,
        }
    }

    /// The variables of all its processes.
    pub fn environment(&self, owner: &Owner) -> Vec<EnvironmentVariable> {
        let instance = match owner {
            Owner::Lrp { key, instance } => Some((instance, key.index)),
            Owner::Task { .. } | Owner::Local(_) => None,
        };
        let (env, system_certificates_path) = match self {
            Workload::Lrp(it) => (&it.env, &it.trusted_system_certificates_path),
            Workload::Task(it) => (&it.env, &it.trusted_system_certificates_path),
        };
        container_environment(&ContainerFacts {
            instance,
            env,
            system_certificates_path,
            identity: Identity::Absent,
        })
    }

    /// How it is to be made.
    pub fn plan(&self, settings: LimitSettings) -> ContainerPlan {
        match self {
            Workload::Lrp(it) => ContainerPlan {
                rootfs: it.rootfs.clone(),
                privileged: it.privileged,
                limits: limits(
                    LimitFacts {
                        owner: LimitOwner::Lrp,
                        memory_mb: it.memory_mb,
                        disk_mb: it.disk_mb,
                        max_pids: it.max_pids,
                        cpu_weight: it.cpu_weight,
                    },
                    settings,
                    ROOTFS_BYTES,
                ),
                ports: ports(&it.distinct_ports()),
                egress_rules: it.egress_rules.clone(),
                dependencies: cached_dependencies(&it.image_layers, &it.cached_dependencies),
                files: it.volume_mounted_files.clone(),
                certificates_path: it.trusted_system_certificates_path.clone(),
                log_bytes_per_second: log_limit(it.log_rate_limit.map(|it| it.bytes_per_second)),
                volume_drivers: it.volume_drivers(),
                log_source: self.log_source().to_owned(),
            },
            Workload::Task(it) => ContainerPlan {
                rootfs: it.rootfs.clone(),
                privileged: it.privileged,
                limits: limits(
                    LimitFacts {
                        owner: LimitOwner::Task,
                        memory_mb: it.memory_mb,
                        disk_mb: it.disk_mb,
                        max_pids: it.max_pids,
                        cpu_weight: it.cpu_weight,
                    },
                    settings,
                    ROOTFS_BYTES,
                ),
                ports: Vec::new(),
                egress_rules: it.egress_rules.clone(),
                dependencies: cached_dependencies(&it.image_layers, &it.cached_dependencies),
                files: it.volume_mounted_files.clone(),
                certificates_path: it.trusted_system_certificates_path.clone(),
                log_bytes_per_second: log_limit(it.log_rate_limit.map(|it| it.bytes_per_second)),
                volume_drivers: it.volume_mounts.iter().map(|it| it.driver.clone()).collect(),
                log_source: self.log_source().to_owned(),
            },
        }
    }
}

/// A definition that was admitted names no others.
fn ports(given: &[u32]) -> Vec<u16> {
    given.iter().filter_map(|port| u16::try_from(*port).ok()).collect()
}

/// -1 is no limit, and so is none.
fn log_limit(bytes_per_second: Option<i64>) -> Option<u64> {
    bytes_per_second.and_then(|limit| u64::try_from(limit).ok())
}
