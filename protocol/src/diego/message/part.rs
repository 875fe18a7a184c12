//! What many messages hold: errors, tags, and the parts of definitions.

use std::collections::BTreeMap;

use super::{Action, messages};

messages! {
    Error = "Error" {
        kind: i32 = 1 [enumeration = "super::ErrorType"] "type",
        message: String = 2 [string],
    }
    ModificationTag = "ModificationTag" {
        epoch: String = 1 [string],
        index: u32 = 2 [uint32],
    }
    EnvironmentVariable = "EnvironmentVariable" {
        name: String = 1 [string],
        value: String = 2 [string],
    }
    File = "File" {
        path: String = 1 [string],
        content: String = 2 [string],
    }
    CachedDependency = "CachedDependency" {
        name: String = 1 [string],
        from: String = 2 [string],
        to: String = 3 [string],
        cache_key: String = 4 [string],
        log_source: String = 5 [string],
        checksum_algorithm: String = 6 [string],
        checksum_value: String = 7 [string],
    }
    CertificateProperties = "CertificateProperties" {
        organizational_unit: Vec<String> = 1 [string, repeated],
    }
    CheckDefinition = "CheckDefinition" {
        checks: Vec<Check> = 1 [message, repeated],
        log_source: String = 2 [string],
        readiness_checks: Vec<Check> = 3 [message, repeated],
    }
    Check = "Check" {
        tcp_check: Option<TcpCheck> = 1 [message, optional],
        http_check: Option<HttpCheck> = 2 [message, optional],
    }
    TcpCheck = "TCPCheck" {
        port: u32 = 1 [uint32],
        connect_timeout_ms: u64 = 2 [uint64],
        interval_ms: u64 = 3 [uint64],
    }
    HttpCheck = "HTTPCheck" {
        port: u32 = 1 [uint32],
        request_timeout_ms: u64 = 2 [uint64],
        path: String = 3 [string],
        interval_ms: u64 = 4 [uint64],
    }
    ImageLayer = "ImageLayer" {
        name: String = 1 [string],
        url: String = 2 [string],
        destination_path: String = 3 [string],
        layer_type: i32 = 4 [enumeration = "super::LayerType"],
        media_type: i32 = 5 [enumeration = "super::MediaType"],
        digest_algorithm: i32 = 6 [enumeration = "super::DigestAlgorithm"],
        digest_value: String = 7 [string],
    }
    LogRateLimit = "LogRateLimit" {
        bytes_per_second: i64 = 1 [int64],
    }
    MetricTagValue = "MetricTagValue" {
        fixed: String = 1 [string] "static",
        dynamic: i32 = 2 [enumeration = "super::DynamicValue"],
    }
    Network = "Network" {
        properties: BTreeMap<String, String> = 1 [btree_map = "string, string"],
    }
    PortRange = "PortRange" {
        start: u32 = 1 [uint32],
        end: u32 = 2 [uint32],
    }
    IcmpInfo = "ICMPInfo" {
        kind: i32 = 1 [int32] "type",
        code: i32 = 2 [int32],
    }
    SecurityGroupRule = "SecurityGroupRule" {
        protocol: String = 1 [string],
        destinations: Vec<String> = 2 [string, repeated],
        ports: Vec<u32> = 3 [uint32, repeated, packed = "false"],
        port_range: Option<PortRange> = 4 [message, optional],
        icmp_info: Option<IcmpInfo> = 5 [message, optional],
        log: bool = 6 [bool],
        annotations: Vec<String> = 7 [string, repeated],
    }
    Sidecar = "Sidecar" {
        action: Option<Action> = 1 [message, optional],
        disk_mb: i32 = 2 [int32],
        memory_mb: i32 = 3 [int32],
    }
    SharedDevice = "SharedDevice" {
        volume_id: String = 1 [string],
        mount_config: String = 2 [string],
    }
    DedicatedDevice = "DedicatedDevice" {
        mounter_id: String = 1 [string],
        mount_config: String = 2 [string],
        device_config: String = 3 [string],
    }
    VolumeMount = "VolumeMount" {
        driver: String = 1 [string],
        container_dir: String = 3 [string],
        mode: String = 6 [string],
        shared: Option<SharedDevice> = 7 [message, optional],
        dedicated: Option<DedicatedDevice> = 8 [message, optional],
    }
    VolumePlacement = "VolumePlacement" {
        driver_names: Vec<String> = 1 [string, repeated],
    }
    ProtoRoutes = "ProtoRoutes" {
        routes: BTreeMap<String, Vec<u8>> = 1 [btree_map = "string, bytes"],
    }
}
