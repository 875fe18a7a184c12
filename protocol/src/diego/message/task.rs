//! Tasks.

use std::collections::BTreeMap;

use super::{
    Action, CachedDependency, CertificateProperties, EnvironmentVariable, File, ImageLayer,
    LogRateLimit, MetricTagValue, Network, SecurityGroupRule, VolumeMount, messages,
};

messages! {
    TaskDefinition = "TaskDefinition" {
        root_fs: String = 1 [string],
        environment_variables: Vec<EnvironmentVariable> = 2 [message, repeated],
        action: Option<Action> = 3 [message, optional],
        disk_mb: i32 = 4 [int32],
        memory_mb: i32 = 5 [int32],
        cpu_weight: u32 = 6 [uint32],
        privileged: bool = 7 [bool],
        log_source: String = 8 [string],
        log_guid: String = 9 [string],
        metrics_guid: String = 10 [string],
        result_file: String = 11 [string],
        completion_callback_url: String = 12 [string],
        annotation: String = 13 [string],
        egress_rules: Vec<SecurityGroupRule> = 14 [message, repeated],
        cached_dependencies: Vec<CachedDependency> = 15 [message, repeated],
        legacy_download_user: String = 16 [string],
        trusted_system_certificates_path: String = 17 [string],
        volume_mounts: Vec<VolumeMount> = 18 [message, repeated],
        network: Option<Network> = 19 [message, optional],
        placement_tags: Vec<String> = 20 [string, repeated],
        max_pids: i32 = 21 [int32],
        certificate_properties: Option<CertificateProperties> = 22 [message, optional],
        image_username: String = 23 [string],
        image_password: String = 24 [string],
        image_layers: Vec<ImageLayer> = 25 [message, repeated],
        log_rate_limit: Option<LogRateLimit> = 26 [message, optional],
        metric_tags: BTreeMap<String, MetricTagValue> = 27 [btree_map = "string, message"],
        volume_mounted_files: Vec<File> = 28 [message, repeated],
    }
    Task = "Task" {
        task_definition: Option<TaskDefinition> = 1 [message, optional],
        task_guid: String = 2 [string],
        domain: String = 3 [string],
        created_at: i64 = 4 [int64],
        updated_at: i64 = 5 [int64],
        first_completed_at: i64 = 6 [int64],
        state: i32 = 7 [enumeration = "super::TaskState"],
        cell_id: String = 8 [string],
        result: String = 9 [string],
        failed: bool = 10 [bool],
        failure_reason: String = 11 [string],
        rejection_count: i32 = 12 [int32],
        rejection_reason: String = 13 [string],
    }
}
