//! Events.

use super::{
    ActualLrp, ActualLrpGroup, ActualLrpInstanceKey, ActualLrpKey, ActualLrpNetInfo, DesiredLrp,
    ModificationTag, Task, messages,
};

messages! {
    ActualLrpCreatedEvent = "ActualLRPCreatedEvent" {
        actual_lrp_group: Option<ActualLrpGroup> = 1 [message, optional],
    }
    ActualLrpChangedEvent = "ActualLRPChangedEvent" {
        before: Option<ActualLrpGroup> = 1 [message, optional],
        after: Option<ActualLrpGroup> = 2 [message, optional],
    }
    ActualLrpRemovedEvent = "ActualLRPRemovedEvent" {
        actual_lrp_group: Option<ActualLrpGroup> = 1 [message, optional],
    }
    ActualLrpInstanceCreatedEvent = "ActualLRPInstanceCreatedEvent" {
        actual_lrp: Option<ActualLrp> = 1 [message, optional],
        trace_id: String = 2 [string],
    }
    ActualLrpInfo = "ActualLRPInfo" {
        actual_lrp_net_info: Option<ActualLrpNetInfo> = 3 [message, optional],
        crash_count: i32 = 4 [int32],
        crash_reason: String = 5 [string],
        state: String = 6 [string],
        placement_error: String = 7 [string],
        since: i64 = 8 [int64],
        modification_tag: Option<ModificationTag> = 9 [message, optional],
        presence: i32 = 10 [enumeration = "super::Presence"],
        routable: Option<bool> = 11 [bool, optional] "Routable",
        availability_zone: String = 12 [string],
    }
    ActualLrpInstanceChangedEvent = "ActualLRPInstanceChangedEvent" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
        before: Option<ActualLrpInfo> = 3 [message, optional],
        after: Option<ActualLrpInfo> = 4 [message, optional],
        trace_id: String = 5 [string],
    }
    ActualLrpInstanceRemovedEvent = "ActualLRPInstanceRemovedEvent" {
        actual_lrp: Option<ActualLrp> = 1 [message, optional],
        trace_id: String = 2 [string],
    }
    DesiredLrpCreatedEvent = "DesiredLRPCreatedEvent" {
        desired_lrp: Option<DesiredLrp> = 1 [message, optional],
        trace_id: String = 2 [string],
    }
    DesiredLrpChangedEvent = "DesiredLRPChangedEvent" {
        before: Option<DesiredLrp> = 1 [message, optional],
        after: Option<DesiredLrp> = 2 [message, optional],
        trace_id: String = 3 [string],
    }
    DesiredLrpRemovedEvent = "DesiredLRPRemovedEvent" {
        desired_lrp: Option<DesiredLrp> = 1 [message, optional],
        trace_id: String = 2 [string],
    }
    ActualLrpCrashedEvent = "ActualLRPCrashedEvent" {
        actual_lrp_key: Option<ActualLrpKey> = 1 [message, optional],
        actual_lrp_instance_key: Option<ActualLrpInstanceKey> = 2 [message, optional],
        crash_count: i32 = 3 [int32],
        crash_reason: String = 4 [string],
        since: i64 = 5 [int64],
    }
    TaskCreatedEvent = "TaskCreatedEvent" {
        task: Option<Task> = 1 [message, optional],
    }
    TaskChangedEvent = "TaskChangedEvent" {
        before: Option<Task> = 1 [message, optional],
        after: Option<Task> = 2 [message, optional],
    }
    TaskRemovedEvent = "TaskRemovedEvent" {
        task: Option<Task> = 1 [message, optional],
    }
}
