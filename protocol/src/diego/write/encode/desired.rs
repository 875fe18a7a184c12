//! What is desired. A deployment's routes and tags are read where they are packed; of its definition only
//! what an auction needs is at hand, and that and the log guid are all that placing and routing ask for.

use super::part::Tag;
use super::{Writer, whole};
use crate::definition::{LrpDefinition, Routes};
use crate::deployment::LrpDeployment;
use crate::desired_lrp::DesiredLrp;
use crate::diego::write::definition::strategy;
use crate::diego::write::{count, span};
use crate::packed::Packed;
use crate::request::Requirements;

impl Writer<'_> {
    /// What placing needs to know: the fields of `DesiredLRPSchedulingInfo`.
    pub fn scheduling_info(&mut self, given: &LrpDeployment) {
        let none = Requirements::default();
        let active = given.active();
        let needs = active.map_or(&none, |definition| &**definition.requirements());
        self.message(1, |out| {
            out.text(1, given.process_guid.as_str());
            out.text(2, given.domain.as_str());
            out.text(3, active.map_or("", |definition| definition.log_guid()));
        });
        self.text(2, &given.annotation);
        self.number(3, whole(count(given.instances)));
        self.message(4, |out| {
            out.number(1, whole(count(needs.memory_mb)));
            out.number(2, whole(count(needs.disk_mb)));
            out.text(3, &needs.rootfs);
            out.number(4, whole(count(needs.max_pids)));
        });
        self.message(5, |out| out.packed_routes(&given.routes));
        self.message(6, |out| out.tag(given.modification_tag));
        self.message(7, |out| out.texts(1, &needs.volume_drivers));
        self.texts(8, &needs.placement_tags);
    }

    /// What routing needs to know: the fields of `DesiredLRP`, but for all others.
    pub fn routing_info(&mut self, given: &LrpDeployment) {
        self.text(1, given.process_guid.as_str());
        self.text(2, given.domain.as_str());
        self.number(4, whole(count(given.instances)));
        self.message(15, |out| out.packed_routes(&given.routes));
        self.text(17, given.active().map_or("", |definition| definition.log_guid()));
        self.message(21, |out| out.tag(given.modification_tag));
        for (name, value) in given.metric_tags.view::<Vec<(&str, Tag<'_>)>>() {
            self.metric_tag(35, name, &value);
        }
    }

    /// What is desired, whole: the fields of `DesiredLRP`.
    pub fn desired_lrp(&mut self, given: &DesiredLrp) {
        let LrpDefinition { setup, action, monitor, .. } = &given.definition;
        let definition = &given.definition;
        self.text(1, given.process_guid.as_str());
        self.text(2, given.domain.as_str());
        self.text(3, &definition.rootfs);
        self.number(4, whole(count(given.instances)));
        self.environment(5, &definition.env);
        self.inner(6, setup.as_ref());
        self.inner(7, action.as_ref());
        self.number(8, definition.deprecated_start_timeout_s.into());
        self.inner(9, monitor.as_ref());
        self.number(10, whole(count(definition.disk_mb)));
        self.number(11, whole(count(definition.memory_mb)));
        self.number(12, definition.cpu_weight.into());
        self.yes(13, definition.privileged);
        for port in definition.distinct_ports() {
            self.said(14, port.into());
        }
        self.message(15, |out| out.routes(&given.routes));
        self.text(16, &definition.log_source);
        self.text(17, &definition.log_guid);
        self.text(18, &definition.metrics_guid);
        self.text(19, &given.annotation);
        self.each(20, &definition.egress_rules, |out, it| out.egress_rule(it));
        self.message(21, |out| out.tag(given.modification_tag));
        self.each(22, &definition.cached_dependencies, |out, it| out.dependency(it));
        self.text(23, &definition.legacy_download_user);
        self.text(24, &definition.trusted_system_certificates_path);
        self.each(25, &definition.volume_mounts, |out, it| out.volume_mount(it));
        self.each(26, definition.network.as_ref(), |out, it| out.network(it));
        self.signed(27, span(definition.start_timeout_ms));
        self.texts(28, &definition.placement_tags);
        self.number(29, whole(count(definition.max_pids)));
        self.each(30, definition.certificate_properties.as_ref(), |out, it| out.certificate(it));
        self.text(31, &definition.image_username);
        self.text(32, &definition.image_password);
        self.each(33, definition.check_definition.as_ref(), |out, it| out.checks(it));
        self.each(34, &definition.image_layers, |out, it| out.layer(it));
        self.metric_tags(35, &given.metric_tags);
        self.each(36, &definition.sidecars, |out, it| out.sidecar(it));
        self.each(37, definition.log_rate_limit.as_ref(), |out, it| out.log_rate_limit(it));
        self.files(38, &definition.volume_mounted_files);
        self.number(39, whole(strategy(given.update_strategy).into()));
    }

    fn packed_routes(&mut self, given: &Packed<Routes>) {
        for (router, value) in given.view::<Vec<(&str, &str)>>() {
            self.route(router, value);
        }
    }

    fn routes(&mut self, given: &Routes) {
        for (router, value) in given {
            self.route(router, value.as_str());
        }
    }

    fn route(&mut self, router: &str, value: &str) {
        self.message(1, |out| {
            out.text(1, router);
            out.text(2, value);
        });
    }
}
