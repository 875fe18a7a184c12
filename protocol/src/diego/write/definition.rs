//! What is desired.

use super::super::message as m;
use super::part::{
    certificate, checks, dependencies, egress_rule, environment, files, layer, log_rate_limit,
    metric_tags, network, routes, sidecar, volume_mount,
};
use super::{action, count, modification_tag, span};
use crate::definition::UpdateStrategy;
use crate::desired_lrp::{DesiredLrp, DesiredLrpSchedulingInfo};
use crate::modification_tag::ModificationTag;

pub(super) const fn strategy(given: UpdateStrategy) -> m::UpdateStrategy {
    match given {
        UpdateStrategy::Rolling => m::UpdateStrategy::Rolling,
        UpdateStrategy::Recreate => m::UpdateStrategy::Recreate,
    }
}

/// What is desired, whole. [`Writer::desired_lrp`](super::Writer::desired_lrp) writes the same without
/// making it first.
pub fn desired_lrp(given: DesiredLrp) -> m::DesiredLrp {
    let ports = given.definition.distinct_ports();
    let definition = given.definition;
    m::DesiredLrp {
        process_guid: given.process_guid.into(),
        domain: given.domain.into(),
        root_fs: definition.rootfs,
        instances: count(given.instances),
        environment_variables: environment(definition.env),
        setup: definition.setup.map(action::action),
        action: definition.action.map(action::action),
        deprecated_start_timeout_s: definition.deprecated_start_timeout_s,
        monitor: definition.monitor.map(action::action),
        disk_mb: count(definition.disk_mb),
        memory_mb: count(definition.memory_mb),
        cpu_weight: definition.cpu_weight,
        privileged: definition.privileged,
        ports,
        routes: Some(routes(&given.routes)),
        log_source: definition.log_source,
        log_guid: definition.log_guid,
        metrics_guid: definition.metrics_guid,
        annotation: given.annotation,
        egress_rules: definition.egress_rules.into_iter().map(egress_rule).collect(),
        modification_tag: Some(modification_tag(given.modification_tag)),
        cached_dependencies: dependencies(definition.cached_dependencies),
        legacy_download_user: definition.legacy_download_user,
        trusted_system_certificates_path: definition.trusted_system_certificates_path,
        volume_mounts: definition.volume_mounts.into_iter().map(volume_mount).collect(),
        network: definition.network.map(network),
        start_timeout_ms: span(definition.start_timeout_ms),
        placement_tags: definition.placement_tags,
        max_pids: count(definition.max_pids),
        certificate_properties: definition.certificate_properties.map(certificate),
        image_username: definition.image_username,
        image_password: definition.image_password.to_string(),
        check_definition: definition.check_definition.map(checks),
        image_layers: definition.image_layers.into_iter().map(layer).collect(),
        metric_tags: metric_tags(given.metric_tags),
        sidecars: definition.sidecars.into_iter().map(sidecar).collect(),
        log_rate_limit: definition.log_rate_limit.map(log_rate_limit),
        volume_mounted_files: files(definition.volume_mounted_files),
        update_strategy: strategy(given.update_strategy).into(),
    }
}

/// What placing needs to know. [`Writer::scheduling_info`](super::Writer::scheduling_info) writes the same
/// straight from a deployment.
pub fn scheduling_info(given: DesiredLrpSchedulingInfo) -> m::DesiredLrpSchedulingInfo {
    let tag = ModificationTag { epoch: given.epoch, index: given.index };
    m::DesiredLrpSchedulingInfo {
        desired_lrp_key: Some(m::DesiredLrpKey {
            process_guid: given.process_guid.into(),
            domain: given.domain.into(),
            log_guid: given.log_guid,
        }),
        annotation: given.annotation,
        instances: count(given.instances),
        desired_lrp_resource: Some(m::DesiredLrpResource {
            memory_mb: count(given.memory_mb),
            disk_mb: count(given.disk_mb),
            root_fs: given.rootfs,
            max_pids: count(given.max_pids),
        }),
        routes: Some(routes(&given.routes)),
        modification_tag: Some(modification_tag(tag)),
        volume_placement: given
            .volume_placement
            .map(|it| m::VolumePlacement { driver_names: it.driver_names }),
        placement_tags: given.placement_tags,
    }
}
