//! The parts of definitions.

use std::collections::BTreeMap;

use super::super::message as m;
use super::{action, count, value};
use crate::action::{EnvironmentVariable, File};
use crate::definition::rules::shorten;
use crate::definition::{
    CachedDependency, CertificateProperties, Check, CheckDefinition, DedicatedDevice,
    DigestAlgorithm, DynamicValue, HttpCheck, ImageLayer, LayerType, LogRateLimit, MediaType,
    MetricTagValue, MetricTags, Network, RouteValue, Routes, SharedDevice, Sidecar, TcpCheck,
    VolumeMount,
};
use crate::egress::{IcmpInfo, PortRange, SecurityGroupRule};
use crate::validate::Checker;

/// Reads each entry of a list, at its own place.
pub(super) fn each<M, T>(
    at: &mut Checker,
    name: &str,
    given: Vec<M>,
    mut read: impl FnMut(&mut Checker, M) -> T,
) -> Vec<T> {
    let mut all = Vec::with_capacity(given.len());
    for (nth, entry) in given.into_iter().enumerate() {
        at.field(&format!("{name}[{nth}]"), |at| all.push(read(at, entry)));
    }
    all
}

pub(super) fn environment(given: Vec<m::EnvironmentVariable>) -> Vec<EnvironmentVariable> {
    let variable =
        |it: m::EnvironmentVariable| EnvironmentVariable { name: it.name, value: it.value };
    given.into_iter().map(variable).collect()
}

pub(super) fn files(given: Vec<m::File>) -> Vec<File> {
    given.into_iter().map(|it| File { path: it.path, content: it.content }).collect()
}

pub(super) fn dependencies(given: Vec<m::CachedDependency>) -> Vec<CachedDependency> {
    let dependency = |it: m::CachedDependency| CachedDependency {
        name: it.name,
        from: it.from,
        to: it.to,
        cache_key: it.cache_key,
        log_source: it.log_source,
        checksum_algorithm: it.checksum_algorithm,
        checksum_value: it.checksum_value,
    };
    given.into_iter().map(dependency).collect()
}

pub(super) fn certificate(given: m::CertificateProperties) -> CertificateProperties {
    CertificateProperties { organizational_unit: given.organizational_unit }
}

pub(super) fn network(given: m::Network) -> Network {
    Network { properties: given.properties }
}

pub(super) fn log_rate_limit(given: m::LogRateLimit) -> LogRateLimit {
    LogRateLimit { bytes_per_second: given.bytes_per_second }
}

pub(super) fn checks(at: &mut Checker, given: m::CheckDefinition) -> CheckDefinition {
    CheckDefinition {
        checks: each(at, "checks", given.checks, check),
        log_source: given.log_source,
        readiness_checks: each(at, "readiness_checks", given.readiness_checks, check),
    }
}

fn check(at: &mut Checker, given: m::Check) -> Check {
    match (given.tcp_check, given.http_check) {
        (Some(tcp), None) => Check::Tcp(TcpCheck {
            port: tcp.port,
            connect_timeout_ms: tcp.connect_timeout_ms,
            interval_ms: tcp.interval_ms,
        }),
        (None, Some(http)) => Check::Http(HttpCheck {
            port: http.port,
            request_timeout_ms: http.request_timeout_ms,
            path: http.path,
            interval_ms: http.interval_ms,
        }),
        (Some(_), Some(_)) => {
            at.require(false, || "is one of tcp_check and http_check, not both".to_owned());
            Check::Tcp(TcpCheck { port: 1, ..TcpCheck::default() })
        }
        // A check with nothing in it has no port either, which is what the BBS complains of.
        (None, None) => {
            at.field("port", |at| at.require(false, || "needs tcp_check or http_check".to_owned()));
            Check::Tcp(TcpCheck { port: 1, ..TcpCheck::default() })
        }
    }
}

pub(super) fn layer(at: &mut Checker, given: m::ImageLayer) -> ImageLayer {
    let layer_type = value(at, "layer_type", given.layer_type, m::LayerType::Shared);
    let media_type = value(at, "media_type", given.media_type, m::MediaType::Tgz);
    let algorithm =
        value(at, "digest_algorithm", given.digest_algorithm, m::DigestAlgorithm::Invalid);
    ImageLayer {
        name: given.name,
        url: given.url,
        destination_path: given.destination_path,
        layer_type: match layer_type {
            m::LayerType::Invalid => LayerType::Invalid,
            m::LayerType::Shared => LayerType::Shared,
            m::LayerType::Exclusive => LayerType::Exclusive,
        },
        media_type: match media_type {
            m::MediaType::Invalid => MediaType::Invalid,
            m::MediaType::Tgz => MediaType::Tgz,
            m::MediaType::Tar => MediaType::Tar,
            m::MediaType::Zip => MediaType::Zip,
        },
        digest_algorithm: match algorithm {
            m::DigestAlgorithm::Invalid => DigestAlgorithm::Invalid,
            m::DigestAlgorithm::Sha256 => DigestAlgorithm::Sha256,
            m::DigestAlgorithm::Sha512 => DigestAlgorithm::Sha512,
        },
        digest_value: given.digest_value,
    }
}

pub(super) fn metric_tags(
    at: &mut Checker,
    given: BTreeMap<String, m::MetricTagValue>,
) -> MetricTags {
    let mut tags = MetricTags::new();
    at.field("metric_tags", |at| {
        for (name, given) in given {
            // A number that is none of the known is none to the BBS either; without a text it is then
            // the record's own rule that is broken.
            let dynamic = m::DynamicValue::try_from(given.dynamic).unwrap_or_default();
            at.field(&shorten(&name), |at| {
                at.field("static", |at| {
                    let both = !given.fixed.is_empty() && dynamic != m::DynamicValue::Invalid;
                    at.require(!both, || "must not be given beside dynamic".to_owned());
                });
            });
            let tag = match dynamic {
                m::DynamicValue::Invalid => MetricTagValue::Static(given.fixed),
                m::DynamicValue::Index => MetricTagValue::Dynamic(DynamicValue::Index),
                m::DynamicValue::InstanceGuid => {
                    MetricTagValue::Dynamic(DynamicValue::InstanceGuid)
                }
            };
            tags.insert(name, tag);
        }
    });
    tags
}

pub(super) fn egress_rule(given: m::SecurityGroupRule) -> SecurityGroupRule {
    SecurityGroupRule {
        protocol: given.protocol,
        destinations: given.destinations,
        ports: given.ports,
        port_range: given.port_range.map(|it| PortRange { start: it.start, end: it.end }),
        icmp_info: given.icmp_info.map(|it| IcmpInfo { kind: it.kind, code: it.code }),
        log: given.log,
        annotations: given.annotations,
    }
}

pub(super) fn sidecar(at: &mut Checker, given: m::Sidecar) -> Sidecar {
    Sidecar {
        action: action::optional(at, "action", given.action),
        disk_mb: count(at, "disk_mb", given.disk_mb),
        memory_mb: count(at, "memory_mb", given.memory_mb),
    }
}

pub(super) fn volume_mount(given: m::VolumeMount) -> VolumeMount {
    let shared = |it: m::SharedDevice| SharedDevice {
        volume_id: it.volume_id,
        mount_config: it.mount_config,
    };
    let dedicated = |it: m::DedicatedDevice| DedicatedDevice {
        mounter_id: it.mounter_id,
        mount_config: it.mount_config,
        device_config: it.device_config,
    };
    VolumeMount {
        driver: given.driver,
        container_dir: given.container_dir,
        mode: given.mode,
        shared: given.shared.map(shared),
        dedicated: given.dedicated.map(dedicated),
    }
}

pub(super) fn routes(at: &mut Checker, given: m::ProtoRoutes) -> Routes {
    let mut routes = Routes::new();
    at.field("routes", |at| {
        for (router, given) in given.routes {
            let read = std::str::from_utf8(&given)
                .map_err(|error| error.to_string())
                .and_then(|text| RouteValue::new(text).map_err(|error| error.to_string()));
            match read {
                Ok(value) => drop(routes.insert(router, value)),
                Err(error) => at.require(false, || error),
            }
        }
    });
    routes
}
