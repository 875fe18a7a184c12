//! What Diego's cells and its auctioneer ask: how instances and tasks fare. Our own cells say the same
//! over the mesh.

use crate::actual_lrp::{InstanceKey, InternalRoute, LrpKey, NetInfo, Running, Tags};
use crate::id::{CellId, ProcessGuid, TaskGuid};
use crate::record::record;

use super::ApiError;

record! {
    /// A cell has won this instance, and is about to start it.
    pub struct ClaimActualLrpRequest {
        /// Which process.
        process_guid: ProcessGuid = "process_guid" required,
        /// Which index.
        index: u32 = "index" always,
        /// Which container.
        actual_lrp_instance_key: InstanceKey = "actual_lrp_instance_key" required,
    }
}

record! {
    /// An instance runs, and this is how to reach it.
    pub struct StartActualLrpRequest {
        /// Which instance.
        actual_lrp_key: LrpKey = "actual_lrp_key" required,
        /// Which container.
        actual_lrp_instance_key: InstanceKey = "actual_lrp_instance_key" required,
        /// How it is reached.
        actual_lrp_net_info: NetInfo = "actual_lrp_net_info" required,
        /// The names under which containers find it.
        actual_lrp_internal_routes: Vec<InternalRoute> = "actual_lrp_internal_routes" omit,
        /// The tags of its metrics.
        metric_tags: Tags = "metric_tags" omit,
        /// Whether traffic may be sent to it; left out: it may.
        routable: Option<bool> = "routable" omit,
        /// The zone of its cell.
        availability_zone: String = "availability_zone" always,
    }
}

impl StartActualLrpRequest {
    /// The three parts of what the cell says.
    pub fn into_parts(self) -> (LrpKey, InstanceKey, Running) {
        let running = Running {
            net_info: self.actual_lrp_net_info,
            internal_routes: self.actual_lrp_internal_routes.into(),
            metric_tags: self.metric_tags,
            routable: self.routable.unwrap_or(true),
            availability_zone: self.availability_zone.into(),
        };
        (self.actual_lrp_key, self.actual_lrp_instance_key, running)
    }
}

/// An instance runs on a cell that is leaving. Says what [`StartActualLrpRequest`] says; the BBS gave the
/// fields of its message other numbers.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct EvacuateRunningActualLrpRequest(pub StartActualLrpRequest);

impl crate::schema::Schema for EvacuateRunningActualLrpRequest {
    fn schema(components: &mut crate::schema::Components) -> serde_json::Value {
        StartActualLrpRequest::schema(components)
    }
}

record! {
    /// An instance crashed.
    pub struct CrashActualLrpRequest {
        /// Which instance.
        actual_lrp_key: LrpKey = "actual_lrp_key" required,
        /// Which container.
        actual_lrp_instance_key: InstanceKey = "actual_lrp_instance_key" required,
        /// Why.
        error_message: String = "error_message" always,
    }
}

record! {
    /// An auction found no cell for an instance.
    pub struct FailActualLrpRequest {
        /// Which instance.
        actual_lrp_key: LrpKey = "actual_lrp_key" required,
        /// Why.
        error_message: String = "error_message" required,
    }
}

record! {
    /// An instance was stopped, or there is no such container.
    pub struct RemoveActualLrpRequest {
        /// Which process.
        process_guid: ProcessGuid = "process_guid" required,
        /// Which index.
        index: u32 = "index" always,
        /// Which container; left out: whatever holds it.
        actual_lrp_instance_key: Option<InstanceKey> = "actual_lrp_instance_key" omit,
    }
}

record! {
    /// Names an instance and the container that holds it.
    pub struct ActualLrpInstanceRequest {
        /// Which instance.
        actual_lrp_key: LrpKey = "actual_lrp_key" required,
        /// Which container.
        actual_lrp_instance_key: InstanceKey = "actual_lrp_instance_key" required,
    }
}

record! {
    /// The answer to a cell that is leaving.
    #[derive(Default)]
    pub struct EvacuationResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// Whether the container is to go on running.
        keep_container: bool = "keep_container" always,
    }
}

record! {
    /// A cell has room for a task, and asks whether to run it.
    pub struct StartTaskRequest {
        /// Which task.
        task_guid: TaskGuid = "task_guid" required,
        /// Which cell.
        cell_id: CellId = "cell_id" required,
    }
}

record! {
    /// The answer to a cell that has room for a task.
    #[derive(Default)]
    pub struct StartTaskResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// Whether it is to run it: true only for the call that started it.
        should_start: bool = "should_start" always,
    }
}

record! {
    /// Gives a task up.
    pub struct FailTaskRequest {
        /// Which task.
        task_guid: TaskGuid = "task_guid" required,
        /// Why.
        failure_reason: String = "failure_reason" required,
    }
}

record! {
    /// A task could not be placed, or begun.
    pub struct RejectTaskRequest {
        /// Which task.
        task_guid: TaskGuid = "task_guid" required,
        /// Why.
        rejection_reason: String = "rejection_reason" required,
    }
}

record! {
    /// A task ended.
    pub struct CompleteTaskRequest {
        /// Which task.
        task_guid: TaskGuid = "task_guid" required,
        /// Which cell ran it.
        cell_id: CellId = "cell_id" required,
        /// Whether it failed.
        failed: bool = "failed" always,
        /// Why it failed.
        failure_reason: String = "failure_reason" always,
        /// What its result file held.
        result: String = "result" always,
    }
}
