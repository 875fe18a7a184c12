//! What is desired.

use std::collections::BTreeMap;

use super::{
    Action, CachedDependency, CertificateProperties, CheckDefinition, EnvironmentVariable, File,
    ImageLayer, LogRateLimit, MetricTagValue, ModificationTag, Network, ProtoRoutes,
    SecurityGroupRule, Sidecar, VolumeMount, VolumePlacement, messages,
};

messages! {
    DesiredLrpKey = "DesiredLRPKey" {
        process_guid: String = 1 [string],
        domain: String = 2 [string],
        log_guid: String = 3 [string],
    }
    DesiredLrpResource = "DesiredLRPResource" {
        memory_mb: i32 = 1 [int32],
        disk_mb: i32 = 2 [int32],
        root_fs: String = 3 [string],
        max_pids: i32 = 4 [int32],
    }
    DesiredLrpSchedulingInfo = "DesiredLRPSchedulingInfo" {
        desired_lrp_key: Option<DesiredLrpKey> = 1 [message, optional],
        annotation: String = 2 [string],
        instances: i32 = 3 [int32],
        desired_lrp_resource: Option<DesiredLrpResource> = 4 [message, optional],
        routes: Option<ProtoRoutes> = 5 [message, optional],
        modification_tag: Option<ModificationTag> = 6 [message, optional],
        volume_placement: Option<VolumePlacement> = 7 [message, optional],
        placement_tags: Vec<String> = 8 [string, repeated] "PlacementTags",
    }
    DesiredLrpUpdate = "DesiredLRPUpdate" {
        instances: Option<i32> = 1 [int32, optional],
        routes: Option<ProtoRoutes> = 2 [message, optional],
        annotation: Option<String> = 3 [string, optional],
        metric_tags: BTreeMap<String, MetricTagValue> = 4 [btree_map = "string, message"],
        image_username: Option<String> = 5 [string, optional],
        image_password: Option<String> = 6 [string, optional],
    }
    DesiredLrp = "DesiredLRP" {
        process_guid: String = 1 [string],
        domain: String = 2 [string],
        root_fs: String = 3 [string],
        instances: i32 = 4 [int32],
        environment_variables: Vec<EnvironmentVariable> = 5 [message, repeated],
        setup: Option<Action> = 6 [message, optional],
        action: Option<Action> = 7 [message, optional],
        deprecated_start_timeout_s: u32 = 8 [uint32],
        monitor: Option<Action> = 9 [message, optional],
        disk_mb: i32 = 10 [int32],
        memory_mb: i32 = 11 [int32],
        cpu_weight: u32 = 12 [uint32],
        privileged: bool = 13 [bool],
        ports: Vec<u32> = 14 [uint32, repeated, packed = "false"],
        routes: Option<ProtoRoutes> = 15 [message, optional],
        log_source: String = 16 [string],
        log_guid: String = 17 [string],
        metrics_guid: String = 18 [string],
        annotation: String = 19 [string],
        egress_rules: Vec<SecurityGroupRule> = 20 [message, repeated],
        modification_tag: Option<ModificationTag> = 21 [message, optional],
        cached_dependencies: Vec<CachedDependency> = 22 [message, repeated],
        legacy_download_user: String = 23 [string],
        trusted_system_certificates_path: String = 24 [string],
        volume_mounts: Vec<VolumeMount> = 25 [message, repeated],
        network: Option<Network> = 26 [message, optional],
        start_timeout_ms: i64 = 27 [int64],
        placement_tags: Vec<String> = 28 [string, repeated] "PlacementTags",
        max_pids: i32 = 29 [int32],
        certificate_properties: Option<CertificateProperties> = 30 [message, optional],
        image_username: String = 31 [string],
        image_password: String = 32 [string],
        check_definition: Option<CheckDefinition> = 33 [message, optional],
        image_layers: Vec<ImageLayer> = 34 [message, repeated],
        metric_tags: BTreeMap<String, MetricTagValue> = 35 [btree_map = "string, message"],
        sidecars: Vec<Sidecar> = 36 [message, repeated],
        log_rate_limit: Option<LogRateLimit> = 37 [message, optional],
        volume_mounted_files: Vec<File> = 38 [message, repeated],
        update_strategy: i32 = 39 [enumeration = "super::UpdateStrategy"],
    }
}
