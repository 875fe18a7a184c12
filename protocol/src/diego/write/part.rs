//! The parts of definitions.

use super::super::message as m;
use super::{action, count};
use crate::action::{EnvironmentVariable, File};
use crate::definition::{
    CachedDependency, CertificateProperties, Check, CheckDefinition, DigestAlgorithm, DynamicValue,
    ImageLayer, LayerType, LogRateLimit, MediaType, MetricTagValue, MetricTags, Network, Routes,
    Sidecar, VolumeMount,
};
use crate::egress::SecurityGroupRule;

pub(super) fn environment(given: Vec<EnvironmentVariable>) -> Vec<m::EnvironmentVariable> {
    let variable =
        |it: EnvironmentVariable| m::EnvironmentVariable { name: it.name, value: it.value };
    given.into_iter().map(variable).collect()
}

pub(super) fn files(given: Vec<File>) -> Vec<m::File> {
    given.into_iter().map(|it| m::File { path: it.path, content: it.content }).collect()
}

pub(super) fn dependencies(given: Vec<CachedDependency>) -> Vec<m::CachedDependency> {
    let dependency = |it: CachedDependency| m::CachedDependency {
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

pub(super) fn certificate(given: CertificateProperties) -> m::CertificateProperties {
    m::CertificateProperties { organizational_unit: given.organizational_unit }
}

pub(super) fn network(given: Network) -> m::Network {
    m::Network { properties: given.properties }
}

pub(super) fn log_rate_limit(given: LogRateLimit) -> m::LogRateLimit {
    m::LogRateLimit { bytes_per_second: given.bytes_per_second }
}

pub(super) fn checks(given: CheckDefinition) -> m::CheckDefinition {
    m::CheckDefinition {
        checks: given.checks.into_iter().map(check).collect(),
        log_source: given.log_source,
        readiness_checks: given.readiness_checks.into_iter().map(check).collect(),
    }
}

fn check(given: Check) -> m::Check {
    match given {
        Check::Tcp(tcp) => m::Check {
            tcp_check: Some(m::TcpCheck {
                port: tcp.port,
                connect_timeout_ms: tcp.connect_timeout_ms,
                interval_ms: tcp.interval_ms,
            }),
            http_check: None,
        },
        Check::Http(http) => m::Check {
            tcp_check: None,
            http_check: Some(m::HttpCheck {
                port: http.port,
                request_timeout_ms: http.request_timeout_ms,
                path: http.path,
                interval_ms: http.interval_ms,
            }),
        },
    }
}

pub(super) const fn layer_type(given: LayerType) -> m::LayerType {
    match given {
        LayerType::Invalid => m::LayerType::Invalid,
        LayerType::Shared => m::LayerType::Shared,
        LayerType::Exclusive => m::LayerType::Exclusive,
    }
}

pub(super) const fn media_type(given: MediaType) -> m::MediaType {
    match given {
        MediaType::Invalid => m::MediaType::Invalid,
        MediaType::Tgz => m::MediaType::Tgz,
        MediaType::Tar => m::MediaType::Tar,
        MediaType::Zip => m::MediaType::Zip,
    }
}

pub(super) const fn digest_algorithm(given: DigestAlgorithm) -> m::DigestAlgorithm {
    match given {
        DigestAlgorithm::Invalid => m::DigestAlgorithm::Invalid,
        DigestAlgorithm::Sha256 => m::DigestAlgorithm::Sha256,
        DigestAlgorithm::Sha512 => m::DigestAlgorithm::Sha512,
    }
}

pub(super) fn layer(given: ImageLayer) -> m::ImageLayer {
    m::ImageLayer {
        name: given.name,
        url: given.url,
        destination_path: given.destination_path,
        layer_type: layer_type(given.layer_type).into(),
        media_type: media_type(given.media_type).into(),
        digest_algorithm: digest_algorithm(given.digest_algorithm).into(),
        digest_value: given.digest_value,
    }
}

pub(super) fn metric_tags(
    given: MetricTags,
) -> std::collections::BTreeMap<String, m::MetricTagValue> {
    let tag = |given: MetricTagValue| match given {
        MetricTagValue::Static(fixed) => m::MetricTagValue { fixed, dynamic: 0 },
        MetricTagValue::Dynamic(DynamicValue::Index) => {
            m::MetricTagValue { fixed: String::new(), dynamic: m::DynamicValue::Index.into() }
        }
        MetricTagValue::Dynamic(DynamicValue::InstanceGuid) => m::MetricTagValue {
            fixed: String::new(),
            dynamic: m::DynamicValue::InstanceGuid.into(),
        },
    };
    given.into_iter().map(|(name, value)| (name, tag(value))).collect()
}

pub(super) fn egress_rule(given: SecurityGroupRule) -> m::SecurityGroupRule {
    m::SecurityGroupRule {
        protocol: given.protocol,
        destinations: given.destinations,
        ports: given.ports,
        port_range: given.port_range.map(|it| m::PortRange { start: it.start, end: it.end }),
        icmp_info: given.icmp_info.map(|it| m::IcmpInfo { kind: it.kind, code: it.code }),
        log: given.log,
        annotations: given.annotations,
    }
}

pub(super) fn sidecar(given: Sidecar) -> m::Sidecar {
    m::Sidecar {
        action: given.action.map(action::action),
        disk_mb: count(given.disk_mb),
        memory_mb: count(given.memory_mb),
    }
}

pub(super) fn volume_mount(given: VolumeMount) -> m::VolumeMount {
    m::VolumeMount {
        driver: given.driver,
        container_dir: given.container_dir,
        mode: given.mode,
        shared: given
            .shared
            .map(|it| m::SharedDevice { volume_id: it.volume_id, mount_config: it.mount_config }),
        dedicated: given.dedicated.map(|it| m::DedicatedDevice {
            mounter_id: it.mounter_id,
            mount_config: it.mount_config,
            device_config: it.device_config,
        }),
    }
}

pub(super) fn routes(given: &Routes) -> m::ProtoRoutes {
    let route = |(router, value): (&String, &crate::definition::RouteValue)| {
        (router.clone(), value.as_str().as_bytes().to_vec())
    };
    m::ProtoRoutes { routes: given.iter().map(route).collect() }
}
