//! Instances and cells.

use std::collections::BTreeMap;

use super::{ModificationTag, messages};

messages! {
    ActualLrpGroup = "ActualLRPGroup" {
        instance: Option<ActualLrp> = 1 [message, optional],
        evacuating: Option<ActualLrp> = 2 [message, optional],
    }
    PortMapping = "PortMapping" {
        container_port: u32 = 1 [uint32],
        host_port: u32 = 2 [uint32],
        container_tls_proxy_port: u32 = 3 [uint32],
        host_tls_proxy_port: u32 = 4 [uint32],
    }
    ActualLrpKey = "ActualLRPKey" {
        process_guid: String = 1 [string],
        index: i32 = 2 [int32],
        domain: String = 3 [string],
    }
    ActualLrpInstanceKey = "ActualLRPInstanceKey" {
        instance_guid: String = 1 [string],
        cell_id: String = 2 [string],
    }
    ActualLrpNetInfo = "ActualLRPNetInfo" {
        address: String = 1 [string],
        ports: Vec<PortMapping> = 2 [message, repeated],
        instance_address: String = 3 [string],
        preferred_address: i32 = 4 [enumeration = "super::PreferredAddress"],
        instance_ipv6_address: String = 5 [string],
    }
    ActualLrpInternalRoute = "ActualLRPInternalRoute" {
        hostname: String = 1 [string],
    }
    ActualLrp = "ActualLRP" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
        actual_lrp_net_info: Option<ActualLrpNetInfo> = 3 [message, optional],
        crash_count: i32 = 4 [int32],
        crash_reason: String = 5 [string],
        state: String = 6 [string],
        placement_error: String = 7 [string],
        since: i64 = 8 [int64],
        modification_tag: Option<ModificationTag> = 9 [message, optional],
        presence: i32 = 10 [enumeration = "super::Presence"],
        actual_lrp_internal_routes: Vec<ActualLrpInternalRoute> = 11 [message, repeated],
        metric_tags: BTreeMap<String, String> = 12 [btree_map = "string, string"],
        routable: Option<bool> = 13 [bool, optional],
        availability_zone: String = 14 [string],
    }
    CellCapacity = "CellCapacity" {
        memory_mb: i32 = 1 [int32],
        disk_mb: i32 = 2 [int32],
        containers: i32 = 3 [int32],
    }
    Provider = "Provider" {
        name: String = 1 [string],
        properties: Vec<String> = 2 [string, repeated],
    }
    CellPresence = "CellPresence" {
        cell_id: String = 1 [string],
        rep_address: String = 2 [string],
        zone: String = 3 [string],
        capacity: Option<CellCapacity> = 4 [message, optional],
        rootfs_providers: Vec<Provider> = 5 [message, repeated],
        placement_tags: Vec<String> = 6 [string, repeated],
        optional_placement_tags: Vec<String> = 7 [string, repeated],
        rep_url: String = 8 [string],
        annotations: BTreeMap<String, String> = 9 [btree_map = "string, string"],
    }
}
