//! How to run something: the parts that LRPs and tasks share, and the definition of an LRP.
//!
//! A definition is what a container is made from. It does not say how many, under which name or
//! with which routes: see [`crate::desired_lrp`] and [`crate::task`].

mod checks;
mod image;
mod metric;
mod old;
mod route;
pub(crate) mod rules;
#[cfg(test)]
pub(crate) mod tests;
mod volume;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::action::{Action, EnvironmentVariable, File};
use crate::egress::SecurityGroupRule;
use crate::record::record;
use crate::secret::Secret;

pub use checks::{Check, CheckDefinition, HttpCheck, TcpCheck};
pub(crate) use image::unlayered;
pub use image::{
    CachedDependency, DigestAlgorithm, ImageLayer, LayerType, MediaType, exclusive_downloads,
    shared_dependencies,
};
pub use metric::{DynamicValue, MetricTagValue, MetricTags};
pub use route::{RouteError, RouteValue, Routes};
pub(crate) use volume::volume_drivers;
pub use volume::{DedicatedDevice, SharedDevice, VolumeMount};

record! {
    /// How to run an LRP.
    #[derive(Default)]
    pub struct LrpDefinition {
        /// The root file system, a URL such as `preloaded:NAME`.
        rootfs: String = "rootfs" always,
        /// Variables of every process in the container.
        env: Vec<EnvironmentVariable> = "env" always,
        /// Runs first, and must succeed.
        setup: Option<Action> = "setup" omit,
        /// What it is all about. One is needed.
        action: Option<Action> = "action" omit,
        /// Run again and again: while it succeeds the instance is healthy.
        monitor: Option<Action> = "monitor" omit,
        /// How long it may take to become healthy; 0: as long as it wants.
        start_timeout_ms: u64 = "start_timeout_ms" always,
        /// Seconds, from old clients. The key says otherwise, in Diego too.
        deprecated_start_timeout_s: u32 = "deprecated_timeout_ns" omit,
        /// Disk; 0: no limit.
        disk_mb: u32 = "disk_mb" always,
        /// Memory; 0: no limit.
        memory_mb: u32 = "memory_mb" always,
        /// Its share of the processors when they are short.
        cpu_weight: u32 = "cpu_weight" always,
        /// Processes; 0: no limit.
        max_pids: u32 = "max_pids" always,
        /// Whether root in the container is root on the cell.
        privileged: bool = "privileged" always,
        /// The ports it listens on.
        ports: Vec<u32> = "ports" omit,
        /// The source name of its log lines.
        log_source: String = "log_source" always,
        /// Whose log it is.
        log_guid: String = "log_guid" always,
        /// Whose metrics they are; superseded by the metric tag `source_id`.
        metrics_guid: String = "metrics_guid" always,
        /// What it may reach.
        egress_rules: Vec<SecurityGroupRule> = "egress_rules" omit,
        /// Archives that are mounted into the container and kept on the cell.
        cached_dependencies: Vec<CachedDependency> = "cached_dependencies" omit,
        /// Who owns what dependencies and exclusive layers unpack.
        legacy_download_user: String = "legacy_download_user" omit,
        /// Where in the container the cell's certificates appear; empty: nowhere.
        trusted_system_certificates_path: String = "trusted_system_certificates_path" omit,
        /// Volumes.
        volume_mounts: Vec<VolumeMount> = "volume_mounts" omit,
        /// What the network plug-in is told.
        network: Option<Network> = "network" omit,
        /// Tags that the cell must have.
        placement_tags: Vec<String> = "placement_tags" omit,
        /// What the instance's certificate says.
        certificate_properties: Option<CertificateProperties> = "certificate_properties" omit,
        /// Who fetches the image.
        image_username: String = "image_username" omit,
        /// The password of who fetches the image.
        image_password: Secret = "image_password" omit,
        /// Checks that need no process in the container; they replace the monitor.
        check_definition: Option<CheckDefinition> = "check_definition" omit,
        /// Layers on top of the root file system.
        image_layers: Vec<ImageLayer> = "image_layers" omit,
        /// Processes beside the action.
        sidecars: Vec<Sidecar> = "sidecars" omit,
        /// How much it may log.
        log_rate_limit: Option<LogRateLimit> = "log_rate_limit" omit,
        /// Small files that are put into the container.
        volume_mounted_files: Vec<File> = "volume_mounted_files" always,
    }
}

impl LrpDefinition {
    /// Says with dependencies and downloads what the image layers say: for readers that do not know
    /// layers.
    pub fn without_layers(&mut self) {
        let user = &self.legacy_download_user;
        let dependencies = &mut self.cached_dependencies;
        unlayered(&mut self.image_layers, dependencies, &mut self.setup, user);
    }

    /// The drivers of the volumes, each once, in order.
    pub fn volume_drivers(&self) -> Vec<String> {
        volume_drivers(&self.volume_mounts)
    }

    /// The ports, each once, in the order they were given: the first is the main one.
    pub fn distinct_ports(&self) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        self.ports.iter().copied().filter(|port| seen.insert(*port)).collect()
    }
}

record! {
    /// What the network plug-in is told, word for word.
    #[derive(Default)]
    pub struct Network {
        /// Its settings.
        properties: BTreeMap<String, String> = "properties" omit,
    }
}

record! {
    /// What an instance's certificate says.
    #[derive(Default)]
    pub struct CertificateProperties {
        /// Its organizational units.
        organizational_unit: Vec<String> = "organizational_unit" omit,
    }
}

record! {
    /// How much may be logged.
    #[derive(Default, Copy)]
    pub struct LogRateLimit {
        /// 0: nothing; -1: as much as it wants.
        bytes_per_second: i64 = "bytes_per_second" omit,
    }
}

record! {
    /// A process beside the action, in the same container.
    #[derive(Default)]
    pub struct Sidecar {
        /// What to run. One is needed.
        action: Option<Action> = "action" omit,
        /// Disk on top of the definition's.
        disk_mb: u32 = "disk_mb" always,
        /// Memory on top of the definition's.
        memory_mb: u32 = "memory_mb" always,
    }
}

/// How the instances of an old definition make way for those of a new one. In JSON the number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub enum UpdateStrategy {
    /// The new one runs before the old one is stopped.
    #[default]
    Rolling,
    /// The old one is stopped before the new one starts.
    Recreate,
}

impl TryFrom<u8> for UpdateStrategy {
    type Error = String;

    fn try_from(number: u8) -> Result<Self, String> {
        match number {
            0 => Ok(UpdateStrategy::Rolling),
            1 => Ok(UpdateStrategy::Recreate),
            _ => Err(format!("update_strategy is 0 (rolling) or 1 (recreate), not {number}")),
        }
    }
}

impl From<UpdateStrategy> for u8 {
    fn from(strategy: UpdateStrategy) -> u8 {
        match strategy {
            UpdateStrategy::Rolling => 0,
            UpdateStrategy::Recreate => 1,
        }
    }
}
