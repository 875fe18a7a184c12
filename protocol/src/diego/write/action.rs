//! Actions.

use super::super::message as m;
use super::part::{environment, files};
use super::span;
use crate::action::{Action, DownloadAction, RunAction, UploadAction};

/// An action in its wrapper.
pub(super) fn action(given: Action) -> m::Action {
    let inner = |given: Option<Action>| given.map(action);
    let several = |given: Vec<Action>| given.into_iter().map(action).collect();
    let mut wrapper = m::Action::default();
    match given {
        Action::Download(it) => wrapper.download_action = Some(Box::new(download(*it))),
        Action::Upload(it) => wrapper.upload_action = Some(Box::new(upload(*it))),
        Action::Run(it) => wrapper.run_action = Some(Box::new(run(*it))),
        Action::Timeout(it) => {
            wrapper.timeout_action = Some(Box::new(m::TimeoutAction {
                action: inner(it.action),
                deprecated_timeout_ns: it.deprecated_timeout_ns,
                log_source: it.log_source,
                timeout_ms: span(it.timeout_ms),
            }));
        }
        Action::EmitProgress(it) => {
            wrapper.emit_progress_action = Some(Box::new(m::EmitProgressAction {
                action: inner(it.action),
                start_message: it.start_message,
                success_message: it.success_message,
                failure_message_prefix: it.failure_message_prefix,
                log_source: it.log_source,
            }));
        }
        Action::Try(it) => {
            let it = m::TryAction { action: inner(it.action), log_source: it.log_source };
            wrapper.try_action = Some(Box::new(it));
        }
        Action::Parallel(it) => {
            let it = m::ParallelAction { actions: several(it.actions), log_source: it.log_source };
            wrapper.parallel_action = Some(Box::new(it));
        }
        Action::Serial(it) => {
            let it = m::SerialAction { actions: several(it.actions), log_source: it.log_source };
            wrapper.serial_action = Some(Box::new(it));
        }
        Action::Codependent(it) => {
            let actions = several(it.actions);
            let it = m::CodependentAction { actions, log_source: it.log_source };
            wrapper.codependent_action = Some(Box::new(it));
        }
    }
    wrapper
}

fn download(given: DownloadAction) -> m::DownloadAction {
    m::DownloadAction {
        artifact: given.artifact,
        from: given.from,
        to: given.to,
        cache_key: given.cache_key,
        log_source: given.log_source,
        user: given.user,
        checksum_algorithm: given.checksum_algorithm,
        checksum_value: given.checksum_value,
    }
}

fn upload(given: UploadAction) -> m::UploadAction {
    m::UploadAction {
        artifact: given.artifact,
        from: given.from,
        to: given.to,
        log_source: given.log_source,
        user: given.user,
    }
}

fn run(given: RunAction) -> m::RunAction {
    m::RunAction {
        path: given.path,
        args: given.args,
        dir: given.dir,
        env: environment(given.env),
        resource_limits: given
            .resource_limits
            .map(|it| m::ResourceLimits { nofile: it.nofile, nproc: it.nproc }),
        user: given.user,
        log_source: given.log_source,
        suppress_log_output: given.suppress_log_output,
        volume_mounted_files: files(given.volume_mounted_files),
    }
}
