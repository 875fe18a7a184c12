//! The rules of task definitions.

use crate::definition::rules::{
    annotation, environment, image_layers, image_login, list, log_rate_limit, metric_tags,
    mounted_files, needed_action, network, quote, resources, rootfs, scheme, text, texts,
};
use crate::limits::EGRESS_RULES;
use crate::validate::{Checker, Validate};

use super::TaskDefinition;

impl Validate for TaskDefinition {
    fn check(&self, at: &mut Checker) {
        rootfs(at, &self.rootfs);
        environment(at, "env", &self.env);
        needed_action(at, "action", self.action.as_ref());
        resources(at, self.memory_mb, self.disk_mb, self.cpu_weight, self.max_pids);
        text(at, "log_source", &self.log_source);
        text(at, "log_guid", &self.log_guid);
        text(at, "metrics_guid", &self.metrics_guid);
        text(at, "result_file", &self.result_file);
        callback_url(at, &self.completion_callback_url);
        annotation(at, &self.annotation);
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
        image_layers(at, &self.image_layers, &self.legacy_download_user);
        log_rate_limit(at, self.log_rate_limit);
        metric_tags(at, &self.metric_tags, &self.metrics_guid);
        mounted_files(at, &self.volume_mounted_files);
    }
}

fn callback_url(at: &mut Checker, url: &str) {
    let name = "completion_callback_url";
    text(at, name, url);
    at.field(name, |at| {
        let web = scheme(url).is_some_and(|scheme| {
            ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme))
        });
        // "http:" alone has a scheme and leads nowhere.
        let host = url.split_once("://").is_some_and(|(_, rest)| !rest.starts_with('/'));
        let leads = web && host && !url.ends_with("://");
        at.require(url.is_empty() || leads, || format!("{} is no http or https URL", quote(url)));
    });
}
