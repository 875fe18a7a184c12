//! Tasks.

use super::{Writer, whole};
use crate::diego::write::task::state;
use crate::diego::write::{count, time};
use crate::id::CellId;
use crate::task::{Task, TaskDefinition};

impl Writer<'_> {
    /// A task: the fields of `Task`.
    pub fn task(&mut self, given: &Task) {
        self.message(1, |out| out.task_definition(&given.definition));
        self.text(2, given.task_guid.as_str());
        self.text(3, given.domain.as_str());
        self.signed(4, time(given.created_at));
        self.signed(5, time(given.updated_at));
        self.signed(6, time(given.first_completed_at));
        self.number(7, whole(state(given.state).into()));
        self.text(8, given.cell_id.as_ref().map_or("", CellId::as_str));
        self.text(9, &given.result);
        self.yes(10, given.failed);
        self.text(11, &given.failure_reason);
        self.number(12, whole(count(given.rejection_count)));
        self.text(13, &given.rejection_reason);
    }

    fn task_definition(&mut self, given: &TaskDefinition) {
        self.text(1, &given.rootfs);
        self.environment(2, &given.env);
        self.inner(3, given.action.as_ref());
        self.number(4, whole(count(given.disk_mb)));
        self.number(5, whole(count(given.memory_mb)));
        self.number(6, given.cpu_weight.into());
        self.yes(7, given.privileged);
        self.text(8, &given.log_source);
        self.text(9, &given.log_guid);
        self.text(10, &given.metrics_guid);
        self.text(11, &given.result_file);
        self.text(12, &given.completion_callback_url);
        self.text(13, &given.annotation);
        self.each(14, &given.egress_rules, |out, it| out.egress_rule(it));
        self.each(15, &given.cached_dependencies, |out, it| out.dependency(it));
        self.text(16, &given.legacy_download_user);
        self.text(17, &given.trusted_system_certificates_path);
        self.each(18, &given.volume_mounts, |out, it| out.volume_mount(it));
        self.each(19, given.network.as_ref(), |out, it| out.network(it));
        self.texts(20, &given.placement_tags);
        self.number(21, whole(count(given.max_pids)));
        self.each(22, given.certificate_properties.as_ref(), |out, it| out.certificate(it));
        self.text(23, &given.image_username);
        self.text(24, &given.image_password);
        self.each(25, &given.image_layers, |out, it| out.layer(it));
        self.each(26, given.log_rate_limit.as_ref(), |out, it| out.log_rate_limit(it));
        self.metric_tags(27, &given.metric_tags);
        self.files(28, &given.volume_mounted_files);
    }
}
