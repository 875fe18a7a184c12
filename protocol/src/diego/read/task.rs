//! Tasks.

use std::sync::Arc;

use super::super::message as m;
use super::part::{
    certificate, dependencies, each, egress_rule, environment, files, layer, log_rate_limit,
    metric_tags, network, volume_mount,
};
use super::{action, actual::time, count, id, needed, value};
use crate::id::{CellId, Domain, TaskGuid};
use crate::task::{Task, TaskDefinition, TaskState};
use crate::validate::Checker;

/// How a message wants a task to be run. Rules of the record are not looked at.
pub(super) fn definition(at: &mut Checker, given: m::TaskDefinition) -> TaskDefinition {
    TaskDefinition {
        rootfs: given.root_fs,
        env: environment(given.environment_variables),
        action: action::optional(at, "action", given.action),
        disk_mb: count(at, "disk_mb", given.disk_mb),
        memory_mb: count(at, "memory_mb", given.memory_mb),
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
        max_pids: count(at, "max_pids", given.max_pids),
        certificate_properties: given.certificate_properties.map(certificate),
        image_username: given.image_username,
        image_password: given.image_password.into(),
        image_layers: each(at, "image_layers", given.image_layers, layer),
        log_rate_limit: given.log_rate_limit.map(log_rate_limit),
        metric_tags: metric_tags(at, given.metric_tags),
        volume_mounted_files: files(given.volume_mounted_files),
    }
}

/// A task, as a client reads it.
pub fn task(at: &mut Checker, given: m::Task) -> Task {
    let state = match value(at, "state", given.state, m::TaskState::Invalid) {
        m::TaskState::Invalid => {
            at.field("state", |at| at.require(false, || "is not said".to_owned()));
            TaskState::Pending
        }
        m::TaskState::Pending => TaskState::Pending,
        m::TaskState::Running => TaskState::Running,
        m::TaskState::Completed => TaskState::Completed,
        m::TaskState::Resolving => TaskState::Resolving,
    };
    let cell = given.cell_id.as_str();
    let cell_id = (!cell.is_empty()).then(|| id(at, "cell_id", cell, CellId::new));
    let wanted = needed(at, "task_definition", given.task_definition);
    Task {
        task_guid: id(at, "task_guid", &given.task_guid, TaskGuid::new),
        domain: id(at, "domain", &given.domain, Domain::new),
        definition: Arc::new(definition(at, wanted)),
        state,
        cell_id,
        created_at: time(at, "created_at", given.created_at),
        updated_at: time(at, "updated_at", given.updated_at),
        first_completed_at: time(at, "first_completed_at", given.first_completed_at),
        result: given.result,
        failed: given.failed,
        failure_reason: given.failure_reason,
        rejection_count: count(at, "rejection_count", given.rejection_count),
        rejection_reason: given.rejection_reason,
    }
}
