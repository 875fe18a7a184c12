//! The parts of definitions.

use super::{Writer, whole};
use crate::definition::{
    CachedDependency, CertificateProperties, Check, CheckDefinition, DynamicValue, ImageLayer,
    LogRateLimit, MetricTagValue, MetricTags, Network, Sidecar, VolumeMount,
};
use crate::diego::message as m;
use crate::diego::write::count;
use crate::diego::write::part::{digest_algorithm, layer_type, media_type};
use crate::egress::SecurityGroupRule;

impl Writer<'_> {
    pub(super) fn dependency(&mut self, given: &CachedDependency) {
        self.text(1, &given.name);
        self.text(2, &given.from);
        self.text(3, &given.to);
        self.text(4, &given.cache_key);
        self.text(5, &given.log_source);
        self.text(6, &given.checksum_algorithm);
        self.text(7, &given.checksum_value);
    }

    pub(super) fn certificate(&mut self, given: &CertificateProperties) {
        self.texts(1, &given.organizational_unit);
    }

    pub(super) fn network(&mut self, given: &Network) {
        for (name, value) in &given.properties {
            self.message(1, |out| {
                out.text(1, name);
                out.text(2, value);
            });
        }
    }

    pub(super) fn log_rate_limit(&mut self, given: &LogRateLimit) {
        self.signed(1, given.bytes_per_second);
    }

    pub(super) fn checks(&mut self, given: &CheckDefinition) {
        self.each(1, &given.checks, |out, it| out.check(it));
        self.text(2, &given.log_source);
        self.each(3, &given.readiness_checks, |out, it| out.check(it));
    }

    fn check(&mut self, given: &Check) {
        match given {
            Check::Tcp(tcp) => self.message(1, |out| {
                out.number(1, tcp.port.into());
                out.number(2, tcp.connect_timeout_ms);
                out.number(3, tcp.interval_ms);
            }),
            Check::Http(http) => self.message(2, |out| {
                out.number(1, http.port.into());
                out.number(2, http.request_timeout_ms);
                out.text(3, &http.path);
                out.number(4, http.interval_ms);
            }),
        }
    }

    pub(super) fn layer(&mut self, given: &ImageLayer) {
        self.text(1, &given.name);
        self.text(2, &given.url);
        self.text(3, &given.destination_path);
        self.number(4, whole(layer_type(given.layer_type).into()));
        self.number(5, whole(media_type(given.media_type).into()));
        self.number(6, whole(digest_algorithm(given.digest_algorithm).into()));
        self.text(7, &given.digest_value);
    }

    pub(super) fn metric_tags(&mut self, field: u32, given: &MetricTags) {
        for (name, value) in given {
            let value = match value {
                MetricTagValue::Static(text) => Tag::Static(text),
                MetricTagValue::Dynamic(value) => Tag::Dynamic(*value),
            };
            self.metric_tag(field, name, &value);
        }
    }

    /// A tag, as an entry of a map: an entry leaves out a value that says nothing.
    pub(super) fn metric_tag(&mut self, field: u32, name: &str, value: &Tag<'_>) {
        self.message(field, |out| {
            out.text(1, name);
            match value {
                Tag::Static("") => {}
                Tag::Static(text) => out.message(2, |out| out.text(1, text)),
                Tag::Dynamic(value) => out.message(2, |out| {
                    let value = match value {
                        DynamicValue::Index => m::DynamicValue::Index,
                        DynamicValue::InstanceGuid => m::DynamicValue::InstanceGuid,
                    };
                    out.number(2, whole(value.into()));
                }),
            }
        });
    }

    pub(super) fn egress_rule(&mut self, given: &SecurityGroupRule) {
        self.text(1, &given.protocol);
        self.texts(2, &given.destinations);
        for port in &given.ports {
            self.said(3, (*port).into());
        }
        self.each(4, given.port_range.as_ref(), |out, range| {
            out.number(1, range.start.into());
            out.number(2, range.end.into());
        });
        self.each(5, given.icmp_info.as_ref(), |out, info| {
            out.signed(1, info.kind.into());
            out.signed(2, info.code.into());
        });
        self.yes(6, given.log);
        self.texts(7, &given.annotations);
    }

    pub(super) fn sidecar(&mut self, given: &Sidecar) {
        self.inner(1, given.action.as_ref());
        self.number(2, whole(count(given.disk_mb)));
        self.number(3, whole(count(given.memory_mb)));
    }

    pub(super) fn volume_mount(&mut self, given: &VolumeMount) {
        self.text(1, &given.driver);
        self.text(3, &given.container_dir);
        self.text(6, &given.mode);
        self.each(7, given.shared.as_ref(), |out, it| {
            out.text(1, &it.volume_id);
            out.text(2, &it.mount_config);
        });
        self.each(8, given.dedicated.as_ref(), |out, it| {
            out.text(1, &it.mounter_id);
            out.text(2, &it.mount_config);
            out.text(3, &it.device_config);
        });
    }
}

/// The value of a metric tag as it stands in a record, packed or not.
#[derive(Debug, serde::Deserialize)]
pub(super) enum Tag<'a> {
    /// This text.
    Static(&'a str),
    /// What the instance has.
    Dynamic(DynamicValue),
}
