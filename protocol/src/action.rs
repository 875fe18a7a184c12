//! What to run: the tree of actions of a definition.
//!
//! An action is a JSON object with one key, the kind. A tree comes from strangers, so its nesting
//! is counted while it is read: one that is too deep is refused before it can fill the stack.

mod rules;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use serde::{Deserialize, Deserializer};

use crate::limits::ACTION_DEPTH;
use crate::record::{one_of, record};

one_of! {
    /// One thing to do, or several of them combined.
    pub enum Action ("an action") {
        /// Fetches an archive and unpacks it into the container.
        Download(Box<DownloadAction>) = 0 "download",
        /// Sends a file of the container somewhere.
        Upload(Box<UploadAction>) = 1 "upload",
        /// Runs a process until it exits.
        Run(Box<RunAction>) = 2 "run",
        /// Fails when the inner action takes too long.
        Timeout(Box<TimeoutAction>) = 3 "timeout",
        /// Says in the log how the inner action goes.
        EmitProgress(Box<EmitProgressAction>) = 4 "emit_progress",
        /// Succeeds whatever the inner action does.
        Try(Box<TryAction>) = 5 "try",
        /// Runs all at once; fails when one fails, after all are done.
        Parallel(Box<ParallelAction>) = 6 "parallel",
        /// Runs one after the other, up to the first that fails.
        Serial(Box<SerialAction>) = 7 "serial",
        /// Runs all at once; when one ends, the others are stopped.
        Codependent(Box<CodependentAction>) = 8 "codependent",
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let _deeper = Deeper::enter().map_err(serde::de::Error::custom)?;
        Action::read_one_of(from)
    }
}

impl Action {
    /// The actions directly below this one.
    pub fn children(&self) -> &[Action] {
        match self {
            Action::Download(_) | Action::Upload(_) | Action::Run(_) => &[],
            Action::Timeout(inner) => inner.action.as_slice(),
            Action::EmitProgress(inner) => inner.action.as_slice(),
            Action::Try(inner) => inner.action.as_slice(),
            Action::Parallel(inner) => &inner.actions,
            Action::Serial(inner) => &inner.actions,
            Action::Codependent(inner) => &inner.actions,
        }
    }
}

thread_local! {
    /// How many actions this thread is reading, each inside the one before.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// One level of nesting, for as long as it lives.
struct Deeper;

impl Deeper {
    fn enter() -> Result<Self, String> {
        DEPTH.with(|depth| {
            if depth.get() >= ACTION_DEPTH {
                return Err(format!("actions are nested deeper than {ACTION_DEPTH}"));
            }
            depth.set(depth.get() + 1);
            Ok(Deeper)
        })
    }
}

impl Drop for Deeper {
    fn drop(&mut self) {
        DEPTH.with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

record! {
    /// Fetches an archive and unpacks it into the container.
    #[derive(Default)]
    pub struct DownloadAction {
        /// What the log calls it; nothing is logged without.
        artifact: String = "artifact" omit,
        /// The URL of the archive.
        from: String = "from" always,
        /// The folder in the container to unpack into.
        to: String = "to" always,
        /// The name under which the cell may keep the archive; empty: it is not kept.
        cache_key: String = "cache_key" always,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
        /// Who owns the unpacked files.
        user: String = "user" always,
        /// `md5`, `sha1` or `sha256`, in any case.
        checksum_algorithm: String = "checksum_algorithm" omit,
        /// The checksum in hexadecimal.
        checksum_value: String = "checksum_value" omit,
    }
}

record! {
    /// Sends a file of the container somewhere.
    #[derive(Default)]
    pub struct UploadAction {
        /// What the log calls it; nothing is logged without.
        artifact: String = "artifact" omit,
        /// The path of the file in the container.
        from: String = "from" always,
        /// The URL to send it to.
        to: String = "to" always,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
        /// Who reads the file.
        user: String = "user" always,
    }
}

record! {
    /// Runs a process until it exits.
    #[derive(Default)]
    pub struct RunAction {
        /// The program, in the container.
        path: String = "path" always,
        /// Its arguments, without the program's name.
        args: Vec<String> = "args" omit,
        /// Its working folder; empty: the user's home.
        dir: String = "dir" omit,
        /// Variables on top of the container's.
        env: Vec<EnvironmentVariable> = "env" omit,
        /// Limits of the process.
        resource_limits: Option<ResourceLimits> = "resource_limits" omit,
        /// Who runs it.
        user: String = "user" always,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
        /// Throws away what the process prints.
        suppress_log_output: bool = "suppress_log_output" always,
        /// Declared by Diego, used by nobody: cells read the definition's list.
        volume_mounted_files: Vec<File> = "volume_mounted_files" always,
    }
}

record! {
    /// Fails when the inner action takes too long.
    #[derive(Default)]
    pub struct TimeoutAction {
        /// What is timed. One is needed.
        action: Option<Action> = "action" omit,
        /// Nanoseconds, from old clients; not used.
        deprecated_timeout_ns: i64 = "timeout" omit,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
        /// How long it may take.
        timeout_ms: u64 = "timeout_ms" always,
    }
}

record! {
    /// Says in the log how the inner action goes.
    #[derive(Default)]
    pub struct EmitProgressAction {
        /// What is reported on. One is needed.
        action: Option<Action> = "action" omit,
        /// Said before.
        start_message: String = "start_message" always,
        /// Said after a success.
        success_message: String = "success_message" always,
        /// Said after a failure, before its reason.
        failure_message_prefix: String = "failure_message_prefix" always,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
    }
}

record! {
    /// Succeeds whatever the inner action does.
    #[derive(Default)]
    pub struct TryAction {
        /// What is tried. One is needed.
        action: Option<Action> = "action" omit,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
    }
}

record! {
    /// Runs all at once; fails when one fails, after all are done.
    #[derive(Default)]
    pub struct ParallelAction {
        /// At least one.
        actions: Vec<Action> = "actions" omit,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
    }
}

record! {
    /// Runs one after the other, up to the first that fails.
    #[derive(Default)]
    pub struct SerialAction {
        /// At least one.
        actions: Vec<Action> = "actions" omit,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
    }
}

record! {
    /// Runs all at once; when one ends, the others are stopped.
    #[derive(Default)]
    pub struct CodependentAction {
        /// At least one.
        actions: Vec<Action> = "actions" omit,
        /// The source name of its log lines.
        log_source: String = "log_source" omit,
    }
}

record! {
    /// Limits of one process. What is not given is the cell's default.
    #[derive(Default)]
    pub struct ResourceLimits {
        /// Open files.
        nofile: Option<u64> = "nofile" omit,
        /// Processes of the user: accepted, and without effect, as in Diego.
        nproc: Option<u64> = "nproc" omit,
    }
}

record! {
    /// One variable of a process's environment.
    #[derive(Default)]
    pub struct EnvironmentVariable {
        /// Its name.
        name: String = "name" required,
        /// Its value.
        value: String = "value" always,
    }
}

record! {
    /// A small file that is put into the container.
    #[derive(Default)]
    pub struct File {
        /// Where, below the folder for mounted files.
        path: String = "path" required,
        /// What is in it.
        content: String = "content" always,
    }
}
