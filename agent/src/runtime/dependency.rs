//! Cached dependencies: fetched all at the same time, unpacked once for the whole cell, and bound
//! read-only into each container that wants them.
//!
//! The unpacked folder is named by its archive's SHA-256 and its owner, so containers share it
//! whatever they call it. It stays as long as somebody holds it: the caller keeps [`Dependencies`]
//! until the container is gone. After a restart it takes the holds anew, by the sources of the
//! container's binds ([`LayerStore::hold`]), and before it first calls [`LayerStore::remove_unused`].
//!
//! A failure of one ends the others. Unlike Diego we also take an answer that the cache cannot keep:
//! it is fetched each time.
//!
//! [`LayerStore::hold`]: crate::image::layers::LayerStore::hold
//! [`LayerStore::remove_unused`]: crate::image::layers::LayerStore::remove_unused

use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use volvox_host::sync::{lock, unpoisoned};
use volvox_protocol::definition::CachedDependency;

use super::transfer::{ArchiveRequest, FetchFailed, Transfers, detected};
use crate::container::spec::LogStream;
use crate::container::spec::{Access, Bind};
use crate::container::step::Transferred;
use crate::container::text::size;
use crate::image::cancel::Cancel;
use crate::image::extract::{Ownership, Purpose};
use crate::image::layers::{LayerError, LayerHold, UnpackSpec};
use crate::image::retry::shown_url;

/// What a container gets.
#[derive(Debug)]
pub struct Dependencies {
    /// One for each dependency, in their order.
    pub binds: Vec<Bind>,
    /// To be kept until the container is gone.
    pub holds: Vec<LayerHold>,
}

/// A line for the application's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DependencyLine {
    /// The dependency's log source; empty: the container's.
    pub source: String,
    /// On which stream.
    pub stream: LogStream,
    /// The line, without its end.
    pub text: String,
}

/// The container cannot have its dependencies. Nothing is held; the details are in the agent's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DependencyError {
    /// One of them failed.
    #[error("failed to download cached artifacts")]
    Failed,
    /// Somebody wanted it stopped.
    #[error("cancelled")]
    Cancelled,
}

/// Why one dependency is not there.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("{0:?} is no plain absolute path")]
    Target(String),
    #[error(transparent)]
    Fetch(#[from] FetchFailed),
    #[error("{0}")]
    Format(String),
    #[error(transparent)]
    Layer(#[from] LayerError),
}

/// Gets all dependencies of a container. `ownership` says who owns their files on the machine;
/// `tell` is called from several threads.
pub fn fetch_all(
    wanted: &[CachedDependency],
    transfers: &Transfers,
    ownership: Ownership,
    tell: &(dyn Fn(DependencyLine) + Sync),
    cancel: &Cancel,
) -> Result<Dependencies, DependencyError> {
    // A cancel interrupts one blocked call, so each thread has its own.
    let cancels: Vec<Cancel> = wanted.iter().map(|_| Cancel::new()).collect();
    let all = cancels.clone();
    cancel.on_cancel(move || all.iter().for_each(Cancel::cancel));
    let next = Mutex::new(wanted.iter().zip(&cancels).enumerate());
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let taken = lock(&next).next();
            let Some((number, (dependency, own))) = taken else { return };
            let fetched = fetch(dependency, transfers, ownership, tell, own);
            if fetched.is_none() {
                cancels.iter().for_each(Cancel::cancel);
            }
            lock(&done).push((number, fetched));
        }
    };
    std::thread::scope(|scope| {
        // More threads than slots would only wait.
        for _ in 0..wanted.len().min(transfers.config().downloads.max(1)) {
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                // No thread is to be had: this one does it, or others that were.
                work();
            }
        }
    });
    if cancel.is_cancelled() {
        return Err(DependencyError::Cancelled);
    }
    let mut done = unpoisoned(done.into_inner());
    done.sort_by_key(|(number, _)| *number);
    let parts: Option<Vec<_>> = done.into_iter().map(|(_, fetched)| fetched).collect();
    let (binds, holds) = parts.ok_or(DependencyError::Failed)?.into_iter().unzip();
    Ok(Dependencies { binds, holds })
}

/// Gets one dependency, and says so. `None`: it failed, which is logged.
fn fetch(
    dependency: &CachedDependency,
    transfers: &Transfers,
    ownership: Ownership,
    tell: &(dyn Fn(DependencyLine) + Sync),
    cancel: &Cancel,
) -> Option<(Bind, LayerHold)> {
    let CachedDependency { name, log_source, .. } = dependency;
    let say = |stream, text: String| {
        if !name.is_empty() {
            tell(DependencyLine { source: log_source.clone(), stream, text });
        }
    };
    if cancel.is_cancelled() {
        return None;
    }
    say(LogStream::Out, format!("Downloading {name}..."));
    match unpacked(dependency, transfers, ownership, cancel) {
        Ok((bind, hold, moved)) => {
            let size = match moved {
                Transferred::Bytes(bytes) => format!(" ({})", size(bytes)),
                Transferred::FromCache => String::new(),
            };
            say(LogStream::Out, format!("Downloaded {name}{size}"));
            Some((bind, hold))
        }
        Err(error) => {
            if cancel.is_cancelled() {
                tracing::debug!(url = shown_url(&dependency.from), "a dependency was cancelled");
            } else {
                tracing::warn!(url = shown_url(&dependency.from), %error, "a dependency failed");
            }
            say(LogStream::Err, format!("Downloading {name} failed"));
            None
        }
    }
}

fn unpacked(
    dependency: &CachedDependency,
    transfers: &Transfers,
    ownership: Ownership,
    cancel: &Cancel,
) -> Result<(Bind, LayerHold, Transferred), Fault> {
    let target = plain(&dependency.to).ok_or_else(|| Fault::Target(dependency.to.clone()))?;
    let wanted = ArchiveRequest {
        url: &dependency.from,
        cache_key: &dependency.cache_key,
        algorithm: &dependency.checksum_algorithm,
        value: &dependency.checksum_value,
    };
    let _slot = transfers.download_slot(cancel)?;
    let held = transfers.fetch(wanted, cancel)?;
    let format = detected(&held).map_err(Fault::Format)?;
    let limits = transfers.config().limits;
    let recipe = UnpackSpec { format, purpose: Purpose::Download, ownership, limits };
    let hold = transfers.layers().downloaded(&held.file, &held.sha256, recipe, cancel)?;
    let bind = Bind { source: hold.path(), target, access: Access::ReadOnly };
    let moved =
        if held.was_cached { Transferred::FromCache } else { Transferred::Bytes(held.bytes) };
    Ok((bind, hold, moved))
}

/// An absolute path below the root, without `.`, `..`, doubled slashes and NULs.
fn plain(path: &str) -> Option<PathBuf> {
    let below = path.strip_prefix('/')?;
    let below = below.strip_suffix('/').unwrap_or(below);
    let is_plain = !path.contains('\0')
        && below.split('/').all(|part| !matches!(part, "" | "." | ".."))
        && Path::new(below).components().all(|it| matches!(it, Component::Normal(_)));
    is_plain.then(|| Path::new("/").join(below))
}

#[cfg(test)]
mod tests;
