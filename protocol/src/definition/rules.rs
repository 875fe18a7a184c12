//! The rules of definitions and of the parts that LRPs, tasks and actions have in common.

use std::collections::BTreeMap;

use crate::action::{Action, EnvironmentVariable, File};
use crate::limits::{
    ANNOTATION_BYTES, ARGUMENT_BYTES, CPU_WEIGHT, EGRESS_RULES, ENTRIES, ENVIRONMENT, MEGABYTES,
    MOUNTED_FILES_BYTES, PIDS, PORT, PORTS, ROUTES_BYTES, SPAN_MS, TEXT_BYTES,
};
use crate::validate::{Checker, Validate};

use super::{
    CachedDependency, Check, CheckDefinition, DigestAlgorithm, ImageLayer, LayerType, LogRateLimit,
    LrpDefinition, MediaType, MetricTagValue, MetricTags, Network, Routes, Sidecar, VolumeMount,
};

impl Validate for LrpDefinition {
    fn check(&self, at: &mut Checker) {
        rootfs(at, &self.rootfs);
        environment(at, "env", &self.env);
        optional_action(at, "setup", self.setup.as_ref());
        needed_action(at, "action", self.action.as_ref());
        optional_action(at, "monitor", self.monitor.as_ref());
        within(at, "start_timeout_ms", self.start_timeout_ms, SPAN_MS);
        resources(at, self.memory_mb, self.disk_mb, self.cpu_weight, self.max_pids);
        at.at_most("ports", self.ports.len(), PORTS, "entries");
        at.each("ports", &self.ports, |at, given| port(at, *given));
        text(at, "log_source", &self.log_source);
        text(at, "log_guid", &self.log_guid);
        text(at, "metrics_guid", &self.metrics_guid);
        at.at_most("egress_rules", self.egress_rules.len(), EGRESS_RULES, "entries");
        at.each("egress_rules", &self.egress_rules, |at, rule| rule.check(at));
        list(at, "cached_dependencies", &self.cached_dependencies);
        text(at, "legacy_download_user", &self.legacy_download_user);
        text(at, "trusted_system_certificates_path", &self.trusted_system_certificates_path);
        list(at, "volume_mounts", &self.volume_mounts);
        network(at, self.network.as_ref());
        texts(at, "placement_tags", &self.placement_tags);
        if let Some(properties) = &self.certificate_properties {
            at.field("certificate_properties", |at| {
                texts(at, "organizational_unit", &properties.organizational_unit);
            });
        }
        image_login(at, &self.image_username, &self.image_password);
        if let Some(checks) = &self.check_definition {
            at.field("check_definition", |at| checks.check(at));
        }
        image_layers(at, &self.image_layers, &self.legacy_download_user);
        list(at, "sidecars", &self.sidecars);
        log_rate_limit(at, self.log_rate_limit);
        mounted_files(at, &self.volume_mounted_files);
    }
}

impl Validate for CachedDependency {
    fn check(&self, at: &mut Checker) {
        text(at, "name", &self.name);
        needed(at, "from", &self.from);
        needed(at, "to", &self.to);
        text(at, "cache_key", &self.cache_key);
        text(at, "log_source", &self.log_source);
        checksum(at, &self.checksum_algorithm, &self.checksum_value);
    }
}

impl Validate for VolumeMount {
    fn check(&self, at: &mut Checker) {
        needed(at, "driver", &self.driver);
        text(at, "container_dir", &self.container_dir);
        at.field("mode", |at| {
            let known = matches!(self.mode.as_str(), "r" | "rw");
            at.require(known, || format!("must be r or rw, not {}", quote(&self.mode)));
        });
        if let Some(shared) = &self.shared {
            at.field("shared", |at| {
                needed(at, "volume_id", &shared.volume_id);
                at.at_most("mount_config", shared.mount_config.len(), ARGUMENT_BYTES, "bytes");
            });
        }
        if let Some(dedicated) = &self.dedicated {
            at.field("dedicated", |at| {
                needed(at, "mounter_id", &dedicated.mounter_id);
                at.at_most("mount_config", dedicated.mount_config.len(), ARGUMENT_BYTES, "bytes");
                at.at_most("device_config", dedicated.device_config.len(), ARGUMENT_BYTES, "bytes");
            });
        }
    }
}

impl Validate for CheckDefinition {
    fn check(&self, at: &mut Checker) {
        list(at, "checks", &self.checks);
        text(at, "log_source", &self.log_source);
        list(at, "readiness_checks", &self.readiness_checks);
    }
}

impl Validate for Check {
    fn check(&self, at: &mut Checker) {
        match self {
            Check::Tcp(check) => at.field("tcp_check", |at| {
                at.field("port", |at| port(at, check.port));
                within(at, "connect_timeout_ms", check.connect_timeout_ms, SPAN_MS);
                within(at, "interval_ms", check.interval_ms, SPAN_MS);
            }),
            Check::Http(check) => at.field("http_check", |at| {
                at.field("port", |at| port(at, check.port));
                within(at, "request_timeout_ms", check.request_timeout_ms, SPAN_MS);
                text(at, "path", &check.path);
                at.field("path", |at| {
                    let one_line = !check.path.chars().any(|c| c.is_control() || c == ' ');
                    at.require(one_line, || "must not contain spaces or control characters".into());
                });
                within(at, "interval_ms", check.interval_ms, SPAN_MS);
            }),
        }
    }
}

impl Validate for Sidecar {
    fn check(&self, at: &mut Checker) {
        needed_action(at, "action", self.action.as_ref());
        within(at, "disk_mb", self.disk_mb.into(), MEGABYTES.into());
        within(at, "memory_mb", self.memory_mb.into(), MEGABYTES.into());
    }
}

/// The layers, and who owns the exclusive ones.
pub(crate) fn image_layers(at: &mut Checker, layers: &[ImageLayer], download_user: &str) {
    list(at, "image_layers", layers);
    if layers.iter().any(|layer| layer.layer_type == LayerType::Exclusive) {
        at.field("legacy_download_user", |at| {
            at.require(!download_user.is_empty(), || "must be set for EXCLUSIVE layers".into());
        });
    }
}

impl Validate for ImageLayer {
    fn check(&self, at: &mut Checker) {
        text(at, "name", &self.name);
        needed(at, "url", &self.url);
        needed(at, "destination_path", &self.destination_path);
        at.field("layer_type", |at| {
            let said = self.layer_type != LayerType::Invalid;
            at.require(said, || "must be SHARED or EXCLUSIVE".into());
        });
        at.field("media_type", |at| {
            at.require(self.media_type != MediaType::Invalid, || "must be TGZ, TAR or ZIP".into());
        });
        text(at, "digest_value", &self.digest_value);
        let has_algorithm = self.digest_algorithm != DigestAlgorithm::Invalid;
        let exclusive = self.layer_type == LayerType::Exclusive;
        at.field("digest_algorithm", |at| {
            at.require(has_algorithm || self.digest_value.is_empty(), || {
                "must be SHA256 or SHA512 when there is a digest_value".into()
            });
            at.require(has_algorithm || !exclusive, || {
                "must be SHA256 or SHA512 for an EXCLUSIVE layer".into()
            });
        });
        at.field("digest_value", |at| {
            at.require(!self.digest_value.is_empty() || !has_algorithm, || {
                "must be set when there is a digest_algorithm".into()
            });
        });
    }
}

/// A text of ordinary length, which may end up where a zero byte ends it.
pub(crate) fn text(at: &mut Checker, name: &str, text: &str) {
    at.at_most(name, text.len(), TEXT_BYTES, "bytes");
    no_nul(at, name, text);
}

/// A text of ordinary length that must be given.
pub(crate) fn needed(at: &mut Checker, name: &str, given: &str) {
    at.not_empty(name, given);
    text(at, name, given);
}

/// Texts of ordinary length, not too many.
pub(crate) fn texts(at: &mut Checker, name: &str, given: &[String]) {
    at.at_most(name, given.len(), ENTRIES, "entries");
    at.each(name, given, |at, entry| {
        at.require(entry.len() <= TEXT_BYTES, || {
            format!("has {} bytes, the limit is {TEXT_BYTES}", entry.len())
        });
    });
}

/// Texts by name, not too many.
pub(crate) fn text_map(at: &mut Checker, name: &str, given: &BTreeMap<String, String>) {
    at.at_most(name, given.len(), ENTRIES, "entries");
    at.field(name, |at| {
        for (key, value) in given {
            at.require(key.len() <= TEXT_BYTES, || too_long_key(key));
            at.at_most(&shorten(key), value.len(), TEXT_BYTES, "bytes");
        }
    });
}

/// Entries that have rules of their own, not too many.
pub(crate) fn list<T: Validate>(at: &mut Checker, name: &str, given: &[T]) {
    at.at_most(name, given.len(), ENTRIES, "entries");
    at.each(name, given, |at, entry| entry.check(at));
}

/// No zero byte, which would end the text early for the kernel.
pub(crate) fn no_nul(at: &mut Checker, name: &str, text: &str) {
    at.field(name, |at| {
        at.require(!text.contains('\0'), || "must not contain a zero byte".into());
    });
}

/// A number with an upper limit.
pub(crate) fn within(at: &mut Checker, name: &str, given: u64, limit: u64) {
    at.field(name, |at| at.require(given <= limit, || format!("is {given}, the limit is {limit}")));
}

/// A port, at the place where the walk is.
pub(crate) fn port(at: &mut Checker, given: u32) {
    let usable = (1..=PORT).contains(&given);
    at.require(usable, || format!("is {given}, a port is 1 to {PORT}"));
}

/// A root file system: a URL with a scheme. What follows the scheme is the cell's business.
pub(crate) fn rootfs(at: &mut Checker, given: &str) {
    needed(at, "rootfs", given);
    at.field("rootfs", |at| {
        let fits = given.is_empty() || scheme(given).is_some();
        at.require(fits, || format!("{} is no URL with a scheme", quote(given)));
    });
}

/// The scheme of a URL, when there is one and nothing in the text breaks a line.
pub(crate) fn scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once(':')?;
    let first = scheme.bytes().next().is_some_and(|b| b.is_ascii_alphabetic());
    let others = scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
    let printable = !rest.chars().any(|c| c.is_control() || c == ' ');
    (first && others && printable).then_some(scheme)
}

/// What a container may use.
pub(crate) fn resources(at: &mut Checker, memory_mb: u32, disk_mb: u32, cpu: u32, pids: u32) {
    within(at, "memory_mb", memory_mb.into(), MEGABYTES.into());
    within(at, "disk_mb", disk_mb.into(), MEGABYTES.into());
    within(at, "cpu_weight", cpu.into(), CPU_WEIGHT.into());
    within(at, "max_pids", pids.into(), PIDS.into());
}

/// An action that must be there.
pub(crate) fn needed_action(at: &mut Checker, name: &str, action: Option<&Action>) {
    at.field(name, |at| at.require(action.is_some(), || "must be given".into()));
    optional_action(at, name, action);
}

/// An action that may be left out.
pub(crate) fn optional_action(at: &mut Checker, name: &str, action: Option<&Action>) {
    if let Some(action) = action {
        at.field(name, |at| action.check(at));
    }
}

/// Environment variables: what the kernel can hand to a process.
pub(crate) fn environment(at: &mut Checker, name: &str, variables: &[EnvironmentVariable]) {
    at.at_most(name, variables.len(), ENVIRONMENT, "entries");
    at.each(name, variables, |at, variable| {
        needed(at, "name", &variable.name);
        at.field("name", |at| {
            at.require(!variable.name.contains('='), || "must not contain '='".into());
        });
        at.at_most("value", variable.value.len(), ARGUMENT_BYTES, "bytes");
        no_nul(at, "value", &variable.value);
    });
}

/// Files that are put into the container: small in all, and none above its folder.
pub(crate) fn mounted_files(at: &mut Checker, files: &[File]) {
    let name = "volume_mounted_files";
    let bytes = files.iter().map(|file| file.content.len()).sum();
    at.at_most(name, files.len(), ENTRIES, "entries");
    at.at_most(name, bytes, MOUNTED_FILES_BYTES, "bytes of content");
    at.each(name, files, |at, file| {
        needed(at, "path", &file.path);
        at.field("path", |at| {
            let climbs = file.path.split('/').any(|part| part == "..");
            at.require(!climbs, || "must not contain '..'".into());
        });
    });
}

/// A checksum: both halves or none, and an algorithm we know.
pub(crate) fn checksum(at: &mut Checker, algorithm: &str, value: &str) {
    at.field("checksum_algorithm", |at| {
        at.require(value.is_empty() || !algorithm.is_empty(), || {
            "must be set when there is a checksum_value".into()
        });
        let known = ["", "md5", "sha1", "sha256"].iter().any(|a| a.eq_ignore_ascii_case(algorithm));
        at.require(known, || format!("must be md5, sha1 or sha256, not {}", quote(algorithm)));
    });
    text(at, "checksum_value", value);
    at.field("checksum_value", |at| {
        at.require(algorithm.is_empty() || !value.is_empty(), || {
            "must be set when there is a checksum_algorithm".into()
        });
    });
}

/// Name and password of who fetches the image: both or none.
pub(crate) fn image_login(at: &mut Checker, username: &str, password: &str) {
    text(at, "image_username", username);
    text(at, "image_password", password);
    at.field("image_username", |at| {
        let named = password.is_empty() || !username.is_empty();
        at.require(named, || "must be set when there is an image_password".into());
    });
    at.field("image_password", |at| {
        let secret = username.is_empty() || !password.is_empty();
        at.require(secret, || "must be set when there is an image_username".into());
    });
}

/// What the network plug-in is told.
pub(crate) fn network(at: &mut Checker, network: Option<&Network>) {
    if let Some(network) = network {
        at.field("network", |at| text_map(at, "properties", &network.properties));
    }
}

/// How much may be logged.
pub(crate) fn log_rate_limit(at: &mut Checker, limit: Option<LogRateLimit>) {
    if let Some(LogRateLimit { bytes_per_second: given }) = limit {
        at.field("log_rate_limit.bytes_per_second", |at| {
            at.require(given >= -1, || format!("is {given}, must be -1 (no limit) or more"));
        });
    }
}

/// A consumer's note.
pub(crate) fn annotation(at: &mut Checker, annotation: &str) {
    at.at_most("annotation", annotation.len(), ANNOTATION_BYTES, "bytes");
}

/// Routes: not too many, not too long in all.
pub(crate) fn routes(at: &mut Checker, routes: &Routes) {
    let bytes = routes.values().map(|value| value.as_str().len()).sum();
    at.at_most("routes", routes.len(), ENTRIES, "entries");
    at.at_most("routes", bytes, ROUTES_BYTES, "bytes of values");
    at.field("routes", |at| {
        for key in routes.keys() {
            at.require(key.len() <= TEXT_BYTES, || too_long_key(key));
        }
    });
}

/// Tags: static ones have a text, and `source_id` does not contradict the metrics guid.
pub(crate) fn metric_tags(at: &mut Checker, tags: &MetricTags, metrics_guid: &str) {
    at.at_most("metric_tags", tags.len(), ENTRIES, "entries");
    at.field("metric_tags", |at| {
        for (key, value) in tags {
            at.require(key.len() <= TEXT_BYTES, || too_long_key(key));
            if let MetricTagValue::Static(given) = value {
                at.field(&shorten(key), |at| needed(at, "static", given));
            }
        }
        if let Some(value) = tags.get("source_id").filter(|_| !metrics_guid.is_empty()) {
            let same = *value == MetricTagValue::Static(metrics_guid.to_owned());
            at.field("source_id", |at| {
                at.require(same, || {
                    format!("must be static and equal to metrics_guid {}", quote(metrics_guid))
                });
            });
        }
    });
}

/// Who tags the metrics of an LRP and names their guid says whose they are in the tags too: readers look
/// there. One without any tags has none to contradict.
pub(crate) fn source_is_named(at: &mut Checker, tags: &MetricTags, metrics_guid: &str) {
    let named = tags.is_empty() || metrics_guid.is_empty() || tags.contains_key("source_id");
    at.field("metric_tags", |at| {
        at.field("source_id", |at| {
            at.require(named, || {
                format!("must be given, equal to metrics_guid {}", quote(metrics_guid))
            });
        });
    });
}

fn too_long_key(key: &str) -> String {
    format!("has a key of {} bytes, the limit is {TEXT_BYTES}", key.len())
}

/// A text as a complaint shows it.
pub(crate) fn quote(text: &str) -> String {
    format!("{:?}", shorten(text))
}

/// As much of a text as a complaint needs: nobody may make us repeat megabytes.
pub(crate) fn shorten(text: &str) -> String {
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(64).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}
