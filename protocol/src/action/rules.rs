//! The rules of actions.

use crate::definition::rules::{checksum, environment, mounted_files, needed, text};
use crate::limits::{ACTION_COUNT, ACTION_DEPTH, ARGUMENT_BYTES, ARGUMENTS, SPAN_MS};
use crate::validate::{Checker, Validate};

use super::{Action, DownloadAction, RunAction, TimeoutAction, UploadAction};

impl Validate for Action {
    fn check(&self, at: &mut Checker) {
        let fits = self.fits();
        at.require(fits, || format!("has more than {ACTION_COUNT} actions"));
        if fits {
            walk(at, self, 1);
        }
    }
}

impl Action {
    /// Whether the tree has no more actions than it may.
    fn fits(&self) -> bool {
        let mut count = 0;
        let mut todo = vec![self];
        while let Some(action) = todo.pop() {
            count += 1;
            if count > ACTION_COUNT {
                return false;
            }
            todo.extend(action.children());
        }
        true
    }

    /// The key under which the children stand, and whether one may be missing.
    const fn holds(&self) -> Holds {
        match self {
            Action::Download(_) | Action::Upload(_) | Action::Run(_) => Holds::Nothing,
            Action::Timeout(_) | Action::EmitProgress(_) | Action::Try(_) => Holds::One,
            Action::Parallel(_) | Action::Serial(_) | Action::Codependent(_) => Holds::Several,
        }
    }
}

/// What stands below an action.
enum Holds {
    Nothing,
    One,
    Several,
}

fn walk(at: &mut Checker, action: &Action, depth: usize) {
    at.require(depth <= ACTION_DEPTH, || format!("is nested deeper than {ACTION_DEPTH}"));
    if depth > ACTION_DEPTH {
        return;
    }
    at.field(action.key(), |at| {
        match action {
            Action::Download(download) => download.check(at),
            Action::Upload(upload) => upload.check(at),
            Action::Run(run) => run.check(at),
            Action::Timeout(timeout) => check_timeout(at, timeout),
            Action::EmitProgress(progress) => {
                text(at, "start_message", &progress.start_message);
                text(at, "success_message", &progress.success_message);
                text(at, "failure_message_prefix", &progress.failure_message_prefix);
                text(at, "log_source", &progress.log_source);
            }
            Action::Try(inner) => text(at, "log_source", &inner.log_source),
            Action::Parallel(inner) => text(at, "log_source", &inner.log_source),
            Action::Serial(inner) => text(at, "log_source", &inner.log_source),
            Action::Codependent(inner) => text(at, "log_source", &inner.log_source),
        }
        let children = action.children();
        match action.holds() {
            Holds::Nothing => {}
            Holds::One => at.field("action", |at| {
                at.require(!children.is_empty(), || "must be given".into());
                children.iter().for_each(|child| walk(at, child, depth + 1));
            }),
            Holds::Several => {
                at.field("actions", |at| {
                    at.require(!children.is_empty(), || "must not be empty".into());
                });
                at.each("actions", children, |at, child| walk(at, child, depth + 1));
            }
        }
    });
}

fn check_timeout(at: &mut Checker, timeout: &TimeoutAction) {
    text(at, "log_source", &timeout.log_source);
    at.field("timeout_ms", |at| {
        at.require((1..=SPAN_MS).contains(&timeout.timeout_ms), || {
            format!("is {}, must be 1 to {SPAN_MS}", timeout.timeout_ms)
        });
    });
}

impl Validate for DownloadAction {
    fn check(&self, at: &mut Checker) {
        text(at, "artifact", &self.artifact);
        needed(at, "from", &self.from);
        needed(at, "to", &self.to);
        text(at, "cache_key", &self.cache_key);
        text(at, "log_source", &self.log_source);
        needed(at, "user", &self.user);
        checksum(at, &self.checksum_algorithm, &self.checksum_value);
    }
}

impl Validate for UploadAction {
    fn check(&self, at: &mut Checker) {
        text(at, "artifact", &self.artifact);
        needed(at, "from", &self.from);
        needed(at, "to", &self.to);
        text(at, "log_source", &self.log_source);
        needed(at, "user", &self.user);
    }
}

impl Validate for RunAction {
    fn check(&self, at: &mut Checker) {
        needed(at, "path", &self.path);
        at.at_most("args", self.args.len(), ARGUMENTS, "entries");
        at.each("args", &self.args, |at, arg| {
            at.require(arg.len() <= ARGUMENT_BYTES, || {
                format!("has {} bytes, the limit is {ARGUMENT_BYTES}", arg.len())
            });
            at.require(!arg.contains('\0'), || "must not contain a zero byte".into());
        });
        text(at, "dir", &self.dir);
        environment(at, "env", &self.env);
        needed(at, "user", &self.user);
        text(at, "log_source", &self.log_source);
        mounted_files(at, &self.volume_mounted_files);
    }
}
