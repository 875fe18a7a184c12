//! Tasks: work that is done at most once, and has a result.
//!
//! The JSON form is flat, Diego's: the definition's keys stand beside the others.

mod rules;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::action::{Action, EnvironmentVariable, File};
use crate::definition::{
    CachedDependency, CertificateProperties, ImageLayer, LogRateLimit, MetricTags, Network,
    VolumeMount,
};
use crate::egress::SecurityGroupRule;
use crate::id::{CellId, Domain, TaskGuid};
use crate::record::{read_flat, record};
use crate::secret::Secret;
use crate::time::Timestamp;

record! {
    /// How to run a task.
    #[derive(Default)]
    pub struct TaskDefinition {
        /// The root file system, a URL such as `preloaded:NAME`.
        rootfs: String = "rootfs" always,
        /// Variables of every process in the container.
        env: Vec<EnvironmentVariable> = "env" omit,
        /// What it is all about. One is needed.
        action: Option<Action> = "action" omit,
        /// Disk; 0: no limit.
        disk_mb: u32 = "disk_mb" always,
        /// Memory; 0: no limit.
        memory_mb: u32 = "memory_mb" always,
        /// Its share of the processors when they are short.
        cpu_weight: u32 = "cpu_weight" always,
        /// Whether root in the container is root on the cell.
        privileged: bool = "privileged" always,
        /// The source name of its log lines.
        log_source: String = "log_source" always,
        /// Whose log it is.
        log_guid: String = "log_guid" always,
        /// Whose metrics they are; superseded by the metric tag `source_id`.
        metrics_guid: String = "metrics_guid" always,
        /// The file in the container that holds the result; empty: there is none.
        result_file: String = "result_file" always,
        /// Who is told when it is done; empty: nobody.
        completion_callback_url: String = "completion_callback_url" omit,
        /// The consumer's note.
        annotation: String = "annotation" omit,
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
        /// Processes; 0: no limit.
        max_pids: u32 = "max_pids" always,
        /// What the container's certificate says.
        certificate_properties: Option<CertificateProperties> = "certificate_properties" omit,
        /// Who fetches the image.
        image_username: String = "image_username" always,
        /// The password of who fetches the image.
        image_password: Secret = "image_password" always,
        /// Layers on top of the root file system.
        image_layers: Vec<ImageLayer> = "image_layers" omit,
        /// How much it may log.
        log_rate_limit: Option<LogRateLimit> = "log_rate_limit" omit,
        /// Tags on its metrics and log lines.
        metric_tags: MetricTags = "metric_tags" omit,
        /// Small files that are put into the container.
        volume_mounted_files: Vec<File> = "volume_mounted_files" always,
    }
}

impl TaskDefinition {
    /// Says with dependencies and downloads what the image layers say: for readers that do not know
    /// layers.
    pub fn without_layers(&mut self) {
        let user = &self.legacy_download_user;
        let dependencies = &mut self.cached_dependencies;
        let layers = &mut self.image_layers;
        crate::definition::unlayered(layers, dependencies, &mut self.action, user);
    }

    /// The drivers of the volumes, each once, in order.
    pub fn volume_drivers(&self) -> Vec<String> {
        crate::definition::volume_drivers(&self.volume_mounts)
    }
}

/// Where a task is in its life.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum TaskState {
    /// Waits for a cell.
    #[default]
    Pending,
    /// A cell has started it.
    Running,
    /// It has a result or a failure.
    Completed,
    /// Somebody is being told.
    Resolving,
}

/// The record of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Which task.
    pub task_guid: TaskGuid,
    /// Whose it is.
    pub domain: Domain,
    /// How to run it.
    pub definition: Arc<TaskDefinition>,
    /// Where it is in its life.
    pub state: TaskState,
    /// Where it runs or ran.
    pub cell_id: Option<CellId>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When its state last changed.
    pub updated_at: Timestamp,
    /// When it was first completed; zero until then.
    pub first_completed_at: Timestamp,
    /// What its result file held.
    pub result: String,
    /// Whether it failed.
    pub failed: bool,
    /// Why it failed.
    pub failure_reason: String,
    /// How often it was not placed.
    pub rejection_count: u32,
    /// Why it was last not placed.
    pub rejection_reason: String,
}

impl Serialize for Task {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return self.in_order().serialize(to);
        }
        let mut open = to.serialize_struct("Task", 12 + TaskDefinition::FIELDS)?;
        self.definition.serialize_fields(&mut open, true)?;
        open.serialize_field("task_guid", &self.task_guid)?;
        open.serialize_field("domain", &self.domain)?;
        open.serialize_field("created_at", &self.created_at)?;
        open.serialize_field("updated_at", &self.updated_at)?;
        open.serialize_field("first_completed_at", &self.first_completed_at)?;
        open.serialize_field("state", &self.state)?;
        open.serialize_field("cell_id", self.cell_id.as_ref().map_or("", CellId::as_str))?;
        open.serialize_field("result", &self.result)?;
        open.serialize_field("failed", &self.failed)?;
        open.serialize_field("failure_reason", &self.failure_reason)?;
        open.serialize_field("rejection_count", &self.rejection_count)?;
        open.serialize_field("rejection_reason", &self.rejection_reason)?;
        open.end()
    }
}

impl Task {
    /// The binary form: all fields in their order.
    fn in_order(&self) -> impl Serialize {
        (
            &self.task_guid,
            &self.domain,
            &self.definition,
            &self.state,
            &self.cell_id,
            &self.created_at,
            &self.updated_at,
            &self.first_completed_at,
            &self.result,
            &self.failed,
            &self.failure_reason,
            &self.rejection_count,
            &self.rejection_reason,
        )
    }
}

impl<'de> Deserialize<'de> for Task {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() { read_json(from) } else { read_in_order(from) }
    }
}

fn read_in_order<'de, D: Deserializer<'de>>(from: D) -> Result<Task, D::Error> {
    let (
        task_guid,
        domain,
        definition,
        state,
        cell_id,
        created_at,
        updated_at,
        first_completed_at,
        result,
        failed,
        failure_reason,
        rejection_count,
        rejection_reason,
    ) = Deserialize::deserialize(from)?;
    Ok(Task {
        task_guid,
        domain,
        definition,
        state,
        cell_id,
        created_at,
        updated_at,
        first_completed_at,
        result,
        failed,
        failure_reason,
        rejection_count,
        rejection_reason,
    })
}

fn read_json<'de, D: Deserializer<'de>>(from: D) -> Result<Task, D::Error> {
    let missing = |key| move || serde::de::Error::missing_field(key);
    let (head, definition) = read_flat::<D, head::Head, _>(from, "a task")?;
    Ok(Task {
        task_guid: head.task_guid.ok_or_else(missing("task_guid"))?,
        domain: head.domain.ok_or_else(missing("domain"))?,
        definition: Arc::new(definition),
        state: head.state,
        cell_id: head.cell_id.0,
        created_at: head.created_at,
        updated_at: head.updated_at,
        first_completed_at: head.first_completed_at,
        result: head.result,
        failed: head.failed,
        failure_reason: head.failure_reason,
        rejection_count: head.rejection_count,
        rejection_reason: head.rejection_reason,
    })
}

mod head {
    #![allow(unreachable_pub, reason = "record! declares what the world may see")]
    use super::*;

    record! {
        /// The keys of a task that are not its definition's, for reading.
        #[derive(Default)]
        pub struct Head {
            task_guid: Option<TaskGuid> = "task_guid" always,
            domain: Option<Domain> = "domain" always,
            created_at: Timestamp = "created_at" always,
            updated_at: Timestamp = "updated_at" always,
            first_completed_at: Timestamp = "first_completed_at" always,
            state: TaskState = "state" always,
            cell_id: OptionalCellId = "cell_id" always,
            result: String = "result" always,
            failed: bool = "failed" always,
            failure_reason: String = "failure_reason" always,
            rejection_count: u32 = "rejection_count" always,
            rejection_reason: String = "rejection_reason" always,
        }
    }

    /// The cell of a task; JSON has an empty text for none.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(try_from = "String", into = "String")]
    pub struct OptionalCellId(pub Option<CellId>);

    impl crate::schema::Schema for OptionalCellId {
        fn schema(components: &mut crate::schema::Components) -> serde_json::Value {
            String::schema(components)
        }
    }

    impl TryFrom<String> for OptionalCellId {
        type Error = crate::id::IdError;

        fn try_from(text: String) -> Result<Self, Self::Error> {
            if text.is_empty() {
                Ok(OptionalCellId(None))
            } else {
                CellId::new(&text).map(Some).map(OptionalCellId)
            }
        }
    }

    impl From<OptionalCellId> for String {
        fn from(placed: OptionalCellId) -> String {
            placed.0.map(String::from).unwrap_or_default()
        }
    }
}

record! {
    /// What is posted to a task's callback URL when it is done.
    pub struct TaskCallback {
        /// Which task.
        task_guid: TaskGuid = "task_guid" required,
        /// Whether it failed.
        failed: bool = "failed" always,
        /// Why it failed.
        failure_reason: String = "failure_reason" always,
        /// What its result file held.
        result: String = "result" always,
        /// The consumer's note.
        annotation: String = "annotation" omit,
        /// When it was asked for.
        created_at: Timestamp = "created_at" always,
    }
}

impl From<&Task> for TaskCallback {
    fn from(task: &Task) -> Self {
        TaskCallback {
            task_guid: task.task_guid.clone(),
            failed: task.failed,
            failure_reason: task.failure_reason.clone(),
            result: task.result.clone(),
            annotation: task.definition.annotation.clone(),
            created_at: task.created_at,
        }
    }
}
