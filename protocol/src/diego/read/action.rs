//! Actions.

use super::super::message as m;
use super::part::{each, environment, files};
use super::span;
use crate::action::{
    Action, CodependentAction, DownloadAction, EmitProgressAction, ParallelAction, ResourceLimits,
    RunAction, SerialAction, TimeoutAction, TryAction, UploadAction,
};
use crate::limits::ACTION_DEPTH;
use crate::validate::Checker;

/// An action that need not be there.
pub(super) fn optional(at: &mut Checker, name: &str, given: Option<m::Action>) -> Option<Action> {
    let mut read = None;
    at.field(name, |at| read = given.map(|given| action(at, given, ACTION_DEPTH)));
    read
}

/// Reads the one action that a wrapper holds. `deeper` is how many may still be inside of each other.
fn action(at: &mut Checker, given: m::Action, deeper: usize) -> Action {
    let Some(deeper) = deeper.checked_sub(1) else {
        at.require(false, || format!("is nested deeper than {ACTION_DEPTH}"));
        return nothing();
    };
    let mut found = Vec::new();
    found.extend(given.download_action.map(|it| Action::Download(Box::new(download(*it)))));
    found.extend(given.upload_action.map(|it| Action::Upload(Box::new(upload(*it)))));
    found.extend(given.run_action.map(|it| Action::Run(Box::new(run(*it)))));
    found.extend(given.timeout_action.map(|it| timeout(at, *it, deeper)));
    found.extend(given.emit_progress_action.map(|it| emit_progress(at, *it, deeper)));
    found.extend(given.try_action.map(|it| {
        let action = inner(at, "try", it.action, deeper);
        Action::Try(Box::new(TryAction { action, log_source: it.log_source }))
    }));
    found.extend(given.parallel_action.map(|it| {
        let actions = several(at, "parallel", it.actions, deeper);
        Action::Parallel(Box::new(ParallelAction { actions, log_source: it.log_source }))
    }));
    found.extend(given.serial_action.map(|it| {
        let actions = several(at, "serial", it.actions, deeper);
        Action::Serial(Box::new(SerialAction { actions, log_source: it.log_source }))
    }));
    found.extend(given.codependent_action.map(|it| {
        let actions = several(at, "codependent", it.actions, deeper);
        Action::Codependent(Box::new(CodependentAction { actions, log_source: it.log_source }))
    }));
    let count = found.len();
    at.field("inner-action", |at| {
        at.require(count == 1, || format!("exactly one action is wanted, not {count}"));
    });
    found.pop().unwrap_or_else(nothing)
}

/// Stands for an action that was complained of.
fn nothing() -> Action {
    let run = RunAction { path: "-".to_owned(), user: "-".to_owned(), ..RunAction::default() };
    Action::Run(Box::new(run))
}

fn inner(at: &mut Checker, kind: &str, given: Option<m::Action>, deeper: usize) -> Option<Action> {
    let mut read = None;
    at.field(kind, |at| {
        at.field("action", |at| read = given.map(|given| action(at, given, deeper)));
    });
    read
}

fn several(at: &mut Checker, kind: &str, given: Vec<m::Action>, deeper: usize) -> Vec<Action> {
    let mut read = Vec::new();
    at.field(kind, |at| {
        read = each(at, "actions", given, |at, given| action(at, given, deeper));
    });
    read
}

fn download(given: m::DownloadAction) -> DownloadAction {
    DownloadAction {
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

fn upload(given: m::UploadAction) -> UploadAction {
    UploadAction {
        artifact: given.artifact,
        from: given.from,
        to: given.to,
        log_source: given.log_source,
        user: given.user,
    }
}

fn run(given: m::RunAction) -> RunAction {
    let limits = |it: m::ResourceLimits| ResourceLimits { nofile: it.nofile, nproc: it.nproc };
    RunAction {
        path: given.path,
        args: given.args,
        dir: given.dir,
        env: environment(given.env),
        resource_limits: given.resource_limits.map(limits),
        user: given.user,
        log_source: given.log_source,
        suppress_log_output: given.suppress_log_output,
        volume_mounted_files: files(given.volume_mounted_files),
    }
}

fn timeout(at: &mut Checker, given: m::TimeoutAction, deeper: usize) -> Action {
    let action = inner(at, "timeout", given.action, deeper);
    let mut timeout_ms = 0;
    at.field("timeout", |at| timeout_ms = span(at, "timeout_ms", given.timeout_ms));
    Action::Timeout(Box::new(TimeoutAction {
        action,
        deprecated_timeout_ns: given.deprecated_timeout_ns,
        log_source: given.log_source,
        timeout_ms,
    }))
}

fn emit_progress(at: &mut Checker, given: m::EmitProgressAction, deeper: usize) -> Action {
    Action::EmitProgress(Box::new(EmitProgressAction {
        action: inner(at, "emit_progress", given.action, deeper),
        start_message: given.start_message,
        success_message: given.success_message,
        failure_message_prefix: given.failure_message_prefix,
        log_source: given.log_source,
    }))
}
