//! What is desired.

use super::super::message as m;
use super::part::{
    certificate, checks, dependencies, each, egress_rule, environment, files, layer,
    log_rate_limit, metric_tags, network, routes, sidecar, volume_mount,
};
use super::{action, count, id, modification_tag, span, value};
use crate::definition::{LrpDefinition, UpdateStrategy};
use crate::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use crate::id::{Domain, ProcessGuid};
use crate::validate::Checker;

/// What a message desires. Rules of the record are not looked at.
pub fn desired_lrp(at: &mut Checker, mut given: m::DesiredLrp) -> DesiredLrp {
    let strategy = value(at, "update_strategy", given.update_strategy, m::UpdateStrategy::Rolling);
    DesiredLrp {
        process_guid: id(at, "process_guid", &given.process_guid, ProcessGuid::new),
        domain: id(at, "domain", &given.domain, Domain::new),
        instances: count(at, "instances", given.instances),
        routes: routes(at, given.routes.take().unwrap_or_default()),
        annotation: std::mem::take(&mut given.annotation),
        metric_tags: metric_tags(at, std::mem::take(&mut given.metric_tags)),
        update_strategy: match strategy {
            m::UpdateStrategy::Rolling => UpdateStrategy::Rolling,
            m::UpdateStrategy::Recreate => UpdateStrategy::Recreate,
        },
        modification_tag: modification_tag(given.modification_tag.take()),
        definition_id: None,
        previous_definition_id: None,
        definition: definition(at, given),
    }
}

fn definition(at: &mut Checker, given: m::DesiredLrp) -> LrpDefinition {
    LrpDefinition {
        rootfs: given.root_fs,
        env: environment(given.environment_variables),
        setup: action::optional(at, "setup", given.setup),
        action: action::optional(at, "action", given.action),
        monitor: action::optional(at, "monitor", given.monitor),
        start_timeout_ms: span(at, "start_timeout_ms", given.start_timeout_ms),
        deprecated_start_timeout_s: given.deprecated_start_timeout_s,
        disk_mb: count(at, "disk_mb", given.disk_mb),
        memory_mb: count(at, "memory_mb", given.memory_mb),
        cpu_weight: given.cpu_weight,
        max_pids: count(at, "max_pids", given.max_pids),
        privileged: given.privileged,
        ports: given.ports,
        log_source: given.log_source,
        log_guid: given.log_guid,
        metrics_guid: given.metrics_guid,
        egress_rules: given.egress_rules.into_iter().map(egress_rule).collect(),
        cached_dependencies: dependencies(given.cached_dependencies),
        legacy_download_user: given.legacy_download_user,
        trusted_system_certificates_path: given.trusted_system_certificates_path,
        volume_mounts: given.volume_mounts.into_iter().map(volume_mount).collect(),
        network: given.network.map(network),
        placement_tags: given.placement_tags,
        certificate_properties: given.certificate_properties.map(certificate),
        image_username: given.image_username,
        image_password: given.image_password.into(),
        check_definition: given.check_definition.map(|given| {
            let mut read = Default::default();
            at.field("check_definition", |at| read = checks(at, given));
            read
        }),
        image_layers: each(at, "image_layers", given.image_layers, layer),
        sidecars: each(at, "sidecars", given.sidecars, sidecar),
        log_rate_limit: given.log_rate_limit.map(log_rate_limit),
        volume_mounted_files: files(given.volume_mounted_files),
    }
}

/// A change of what is desired. An empty map of tags says nothing: protobuf cannot tell it from none.
pub(super) fn update(at: &mut Checker, given: m::DesiredLrpUpdate) -> DesiredLrpUpdate {
    let tags = metric_tags(at, given.metric_tags);
    DesiredLrpUpdate {
        instances: given.instances.map(|given| count(at, "instances", given)),
        routes: given.routes.map(|given| routes(at, given)),
        annotation: given.annotation,
        metric_tags: if tags.is_empty() { None } else { Some(tags) },
        image_username: given.image_username,
        image_password: given.image_password.map(Into::into),
        lrp_definition: None,
    }
}
