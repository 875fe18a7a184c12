//! What a machine needs to know to make a container: its definition, with the cell's policy applied.

use volvox_protocol::action::File;
use volvox_protocol::definition::CachedDependency;
use volvox_protocol::egress::SecurityGroupRule;

use super::spec::Limits;

/// What the machine needs to know to make a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlan {
    /// The root file system's URL.
    pub rootfs: String,
    /// Whether its root is the cell's root.
    pub privileged: bool,
    /// What it may use.
    pub limits: Limits,
    /// The ports that it listens on, each once, the main one first.
    pub ports: Vec<u16>,
    /// What it may reach.
    pub egress_rules: Vec<SecurityGroupRule>,
    /// What is mounted into it from the cell's cache.
    pub dependencies: Vec<CachedDependency>,
    /// Small files that are put into it.
    pub files: Vec<File>,
    /// Where the cell's certificates appear; empty: nowhere.
    pub certificates_path: String,
    /// What it may log in a second; nothing is no limit.
    pub log_bytes_per_second: Option<u64>,
    /// The volume drivers it wants.
    pub volume_drivers: Vec<String>,
    /// The source of its log lines.
    pub log_source: String,
}
