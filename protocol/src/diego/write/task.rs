//! Tasks.

use super::super::message as m;
use super::part::{
    certificate, dependencies, egress_rule, environment, files, layer, log_rate_limit, metric_tags,
    network, volume_mount,
};
use super::{action, count, time};
use crate::id::CellId;
use crate::task::{Task, TaskDefinition, TaskState};

pub(super) const fn state(given: TaskState) -> m::TaskState {
    match given {
        TaskState::Pending => m::TaskState::Pending,
        TaskState::Running => m::TaskState::Running,
        TaskState::Completed => m::TaskState::Completed,
        TaskState::Resolving => m::TaskState::Resolving,
    }
}

/// A task, whole. [`Writer::task`](super::Writer::task) writes the same without making it first.
pub fn task(given: &Task) -> m::Task {
    m::Task {
        task_definition: Some(definition((*given.definition).clone())),
        task_guid: given.task_guid.to_string(),
        domain: given.domain.to_string(),
        created_at: time(given.created_at),
        updated_at: time(given.updated_at),
        first_completed_at: time(given.first_completed_at),
        state: state(given.state).into(),
        cell_id: given.cell_id.as_ref().map_or("", CellId::as_str).to_owned(),
        result: given.result.clone(),
        failed: given.failed,
        failure_reason: given.failure_reason.clone(),
        rejection_count: count(given.rejection_count),
        rejection_reason: given.rejection_reason.clone(),
    }
}

fn definition(given: TaskDefinition) -> m::TaskDefinition {
    m::TaskDefinition {
        root_fs: given.rootfs,
        environment_variables: environment(given.env),
        action: given.action.map(action::action),
        disk_mb: count(given.disk_mb),
        memory_mb: count(given.memory_mb),
        cpu_weight: given.cpu_weight,
        privileged: given.privileged,
        log_source: given.log_source,
        log_guid: given.log_guid,
        metrics_guid: given.metrics_guid,
        result_file: given.result_file,
        completion_callback_url: given.completion_callback_url,
        annotation: given.annotation,
        egress_rules: given.egress_rules.into_iter().map(egress_rule).collect(),
        cached_dependencies: dependencies(given.cached_dependencies),
        legacy_download_user: given.legacy_download_user,
        trusted_system_certificates_path: given.trusted_system_certificates_path,
        volume_mounts: given.volume_mounts.into_iter().map(volume_mount).collect(),
        network: given.network.map(network),
        placement_tags: given.placement_tags,
        max_pids: count(given.max_pids),
        certificate_properties: given.certificate_properties.map(certificate),
        image_username: given.image_username,
        image_password: given.image_password.to_string(),
        image_layers: given.image_layers.into_iter().map(layer).collect(),
        log_rate_limit: given.log_rate_limit.map(log_rate_limit),
        metric_tags: metric_tags(given.metric_tags),
        volume_mounted_files: files(given.volume_mounted_files),
    }
}
