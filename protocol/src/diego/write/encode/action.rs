//! Actions.

use super::Writer;
use crate::action::{
    Action, DownloadAction, EmitProgressAction, EnvironmentVariable, File, ResourceLimits,
    RunAction, TimeoutAction, TryAction, UploadAction,
};
use crate::diego::write::span;

impl Writer<'_> {
    /// An action in its wrapper: the fields of `Action`.
    pub(super) fn action(&mut self, given: &Action) {
        match given {
            Action::Download(it) => self.message(1, |out| out.download(it)),
            Action::Upload(it) => self.message(2, |out| out.upload(it)),
            Action::Run(it) => self.message(3, |out| out.run(it)),
            Action::Timeout(it) => self.message(4, |out| out.timeout(it)),
            Action::EmitProgress(it) => self.message(5, |out| out.emit_progress(it)),
            Action::Try(it) => self.message(6, |out| {
                let TryAction { action, log_source } = &**it;
                out.inner(1, action.as_ref());
                out.text(2, log_source);
            }),
            Action::Parallel(it) => self.several(7, &it.actions, &it.log_source),
            Action::Serial(it) => self.several(8, &it.actions, &it.log_source),
            Action::Codependent(it) => self.several(9, &it.actions, &it.log_source),
        }
    }

    /// An action, if there is one.
    pub(super) fn inner(&mut self, field: u32, given: Option<&Action>) {
        self.each(field, given, |out, it| out.action(it));
    }

    fn several(&mut self, field: u32, actions: &[Action], log_source: &str) {
        self.message(field, |out| {
            out.each(1, actions, |out, it| out.action(it));
            out.text(2, log_source);
        });
    }

    fn download(&mut self, given: &DownloadAction) {
        self.text(1, &given.artifact);
        self.text(2, &given.from);
        self.text(3, &given.to);
        self.text(4, &given.cache_key);
        self.text(5, &given.log_source);
        self.text(6, &given.user);
        self.text(7, &given.checksum_algorithm);
        self.text(8, &given.checksum_value);
    }

    fn upload(&mut self, given: &UploadAction) {
        self.text(1, &given.artifact);
        self.text(2, &given.from);
        self.text(3, &given.to);
        self.text(4, &given.log_source);
        self.text(5, &given.user);
    }

    fn run(&mut self, given: &RunAction) {
        self.text(1, &given.path);
        self.texts(2, &given.args);
        self.text(3, &given.dir);
        self.environment(4, &given.env);
        self.each(5, given.resource_limits.as_ref(), |out, limits| {
            let ResourceLimits { nofile, nproc } = limits;
            for (field, limit) in [(1, nofile), (2, nproc)] {
                if let Some(limit) = limit {
                    out.said(field, *limit);
                }
            }
        });
        self.text(6, &given.user);
        self.text(7, &given.log_source);
        self.yes(8, given.suppress_log_output);
        self.files(9, &given.volume_mounted_files);
    }

    fn timeout(&mut self, given: &TimeoutAction) {
        self.inner(1, given.action.as_ref());
        self.signed(2, given.deprecated_timeout_ns);
        self.text(3, &given.log_source);
        self.signed(4, span(given.timeout_ms));
    }

    fn emit_progress(&mut self, given: &EmitProgressAction) {
        self.inner(1, given.action.as_ref());
        self.text(2, &given.start_message);
        self.text(3, &given.success_message);
        self.text(4, &given.failure_message_prefix);
        self.text(5, &given.log_source);
    }

    pub(super) fn environment(&mut self, field: u32, given: &[EnvironmentVariable]) {
        self.each(field, given, |out, it| {
            out.text(1, &it.name);
            out.text(2, &it.value);
        });
    }

    pub(super) fn files(&mut self, field: u32, given: &[File]) {
        self.each(field, given, |out, it| {
            out.text(1, &it.path);
            out.text(2, &it.content);
        });
    }
}
