//! What clients ask, and what they are answered.

use std::collections::BTreeMap;

use super::{
    ActualLrp, ActualLrpGroup, ActualLrpInstanceKey, ActualLrpInternalRoute, ActualLrpKey,
    ActualLrpNetInfo, CellPresence, DesiredLrp, DesiredLrpSchedulingInfo, DesiredLrpUpdate, Error,
    Task, TaskDefinition, messages,
};

messages! {
    PingResponse = "PingResponse" {
        available: bool = 1 [bool],
    }
    DomainsResponse = "DomainsResponse" {
        error: Option<Error> = 1 [message, optional],
        domains: Vec<String> = 2 [string, repeated],
    }
    UpsertDomainResponse = "UpsertDomainResponse" {
        error: Option<Error> = 1 [message, optional],
    }
    UpsertDomainRequest = "UpsertDomainRequest" {
        domain: String = 1 [string],
        ttl: u32 = 2 [uint32],
    }
    CellsResponse = "CellsResponse" {
        error: Option<Error> = 1 [message, optional],
        cells: Vec<CellPresence> = 2 [message, repeated],
    }

    ActualLrpLifecycleResponse = "ActualLRPLifecycleResponse" {
        error: Option<Error> = 1 [message, optional],
    }
    ActualLrpGroupsResponse = "ActualLRPGroupsResponse" {
        error: Option<Error> = 1 [message, optional],
        actual_lrp_groups: Vec<ActualLrpGroup> = 2 [message, repeated],
    }
    ActualLrpGroupResponse = "ActualLRPGroupResponse" {
        error: Option<Error> = 1 [message, optional],
        actual_lrp_group: Option<ActualLrpGroup> = 2 [message, optional],
    }
    ActualLrpGroupsRequest = "ActualLRPGroupsRequest" {
        domain: String = 1 [string],
        cell_id: String = 2 [string],
    }
    ActualLrpGroupsByProcessGuidRequest = "ActualLRPGroupsByProcessGuidRequest" {
        process_guid: String = 1 [string],
    }
    ActualLrpGroupByProcessGuidAndIndexRequest = "ActualLRPGroupByProcessGuidAndIndexRequest" {
        process_guid: String = 1 [string],
        index: i32 = 2 [int32],
    }
    ClaimActualLrpRequest = "ClaimActualLRPRequest" {
        process_guid: String = 1 [string],
        index: i32 = 2 [int32],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 3 [message, optional],
    }
    StartActualLrpRequest = "StartActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
        actual_lrp_net_info: Option<ActualLrpNetInfo> = 3 [message, optional],
        actual_lrp_internal_routes: Vec<ActualLrpInternalRoute> = 4 [message, repeated],
        metric_tags: BTreeMap<String, String> = 5 [btree_map = "string, string"],
        routable: Option<bool> = 6 [bool, optional] "Routable",
        availability_zone: String = 7 [string],
    }
    CrashActualLrpRequest = "CrashActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
        error_message: String = 3 [string],
    }
    FailActualLrpRequest = "FailActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        error_message: String = 2 [string],
    }
    RetireActualLrpRequest = "RetireActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
    }
    RemoveActualLrpRequest = "RemoveActualLRPRequest" {
        process_guid: String = 1 [string],
        index: i32 = 2 [int32],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 3 [message, optional],
    }
    ActualLrpsResponse = "ActualLRPsResponse" {
        error: Option<Error> = 1 [message, optional],
        actual_lrps: Vec<ActualLrp> = 2 [message, repeated],
    }
    ActualLrpsRequest = "ActualLRPsRequest" {
        domain: String = 1 [string],
        cell_id: String = 2 [string],
        process_guid: String = 3 [string],
        index: Option<i32> = 4 [int32, optional],
    }
    ActualLrpsByProcessGuidsResponse = "ActualLRPsByProcessGuidsResponse" {
        error: Option<Error> = 1 [message, optional],
        actual_lrps: Vec<ActualLrp> = 2 [message, repeated],
    }
    ActualLrpsByProcessGuidsRequest = "ActualLRPsByProcessGuidsRequest" {
        process_guids: Vec<String> = 1 [string, repeated],
    }

    EvacuationResponse = "EvacuationResponse" {
        error: Option<Error> = 1 [message, optional],
        keep_container: bool = 2 [bool],
    }
    EvacuateClaimedActualLrpRequest = "EvacuateClaimedActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
    }
    EvacuateRunningActualLrpRequest = "EvacuateRunningActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
        actual_lrp_net_info: Option<ActualLrpNetInfo> = 3 [message, optional],
        actual_lrp_internal_routes: Vec<ActualLrpInternalRoute> = 5 [message, repeated],
        metric_tags: BTreeMap<String, String> = 6 [btree_map = "string, string"],
        routable: Option<bool> = 7 [bool, optional] "Routable",
        availability_zone: String = 8 [string],
    }
    EvacuateStoppedActualLrpRequest = "EvacuateStoppedActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
    }
    EvacuateCrashedActualLrpRequest = "EvacuateCrashedActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
        error_message: String = 3 [string],
    }
    RemoveEvacuatingActualLrpRequest = "RemoveEvacuatingActualLRPRequest" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
    }
    RemoveEvacuatingActualLrpResponse = "RemoveEvacuatingActualLRPResponse" {
        error: Option<Error> = 1 [message, optional],
    }

    DesiredLrpLifecycleResponse = "DesiredLRPLifecycleResponse" {
        error: Option<Error> = 1 [message, optional],
    }
    DesiredLrpsResponse = "DesiredLRPsResponse" {
        error: Option<Error> = 1 [message, optional],
        desired_lrps: Vec<DesiredLrp> = 2 [message, repeated],
    }
    DesiredLrpsRequest = "DesiredLRPsRequest" {
        domain: String = 1 [string],
        process_guids: Vec<String> = 2 [string, repeated],
        app_guids: Vec<String> = 3 [string, repeated],
    }
    DesiredLrpResponse = "DesiredLRPResponse" {
        error: Option<Error> = 1 [message, optional],
        desired_lrp: Option<DesiredLrp> = 2 [message, optional],
    }
    DesiredLrpSchedulingInfosResponse = "DesiredLRPSchedulingInfosResponse" {
        error: Option<Error> = 1 [message, optional],
        desired_lrp_scheduling_infos: Vec<DesiredLrpSchedulingInfo> = 2 [message, repeated],
    }
    DesiredLrpSchedulingInfoByProcessGuidResponse = "DesiredLRPSchedulingInfoByProcessGuidResponse" {
        error: Option<Error> = 1 [message, optional],
        desired_lrp_scheduling_info: Option<DesiredLrpSchedulingInfo> = 2 [message, optional],
    }
    DesiredLrpByProcessGuidRequest = "DesiredLRPByProcessGuidRequest" {
        process_guid: String = 1 [string],
    }
    DesireLrpRequest = "DesireLRPRequest" {
        desired_lrp: Option<DesiredLrp> = 1 [message, optional],
    }
    UpdateDesiredLrpRequest = "UpdateDesiredLRPRequest" {
        process_guid: String = 1 [string],
        update: Option<DesiredLrpUpdate> = 2 [message, optional],
    }
    RemoveDesiredLrpRequest = "RemoveDesiredLRPRequest" {
        process_guid: String = 1 [string],
    }

    TaskLifecycleResponse = "TaskLifecycleResponse" {
        error: Option<Error> = 1 [message, optional],
    }
    DesireTaskRequest = "DesireTaskRequest" {
        task_definition: Option<TaskDefinition> = 1 [message, optional],
        task_guid: String = 2 [string],
        domain: String = 3 [string],
    }
    StartTaskRequest = "StartTaskRequest" {
        task_guid: String = 1 [string],
        cell_id: String = 2 [string],
    }
    StartTaskResponse = "StartTaskResponse" {
        error: Option<Error> = 1 [message, optional],
        should_start: bool = 2 [bool],
    }
    FailTaskRequest = "FailTaskRequest" {
        task_guid: String = 1 [string],
        failure_reason: String = 2 [string],
    }
    RejectTaskRequest = "RejectTaskRequest" {
        task_guid: String = 1 [string],
        rejection_reason: String = 2 [string],
    }
    TaskGuidRequest = "TaskGuidRequest" {
        task_guid: String = 1 [string],
    }
    CompleteTaskRequest = "CompleteTaskRequest" {
        task_guid: String = 1 [string],
        cell_id: String = 2 [string],
        failed: bool = 3 [bool],
        failure_reason: String = 4 [string],
        result: String = 5 [string],
    }
    TasksRequest = "TasksRequest" {
        domain: String = 1 [string],
        cell_id: String = 2 [string],
    }
    TasksResponse = "TasksResponse" {
        error: Option<Error> = 1 [message, optional],
        tasks: Vec<Task> = 2 [message, repeated],
    }
    TaskByGuidRequest = "TaskByGuidRequest" {
        task_guid: String = 1 [string],
    }
    TaskResponse = "TaskResponse" {
        error: Option<Error> = 1 [message, optional],
        task: Option<Task> = 2 [message, optional],
    }
    EventsByCellId = "EventsByCellId" {
        cell_id: String = 1 [string],
    }
}
