//! What the executor stands on: containers of one machine. [`Runtime`] is what it asks for,
//! [`machine`] does it for real, one kernel subject to a file, and [`fake`] in memory.

pub mod check;
pub mod dependency;
pub mod fake;
pub mod files;
pub mod image_mount;
pub mod log_reader;
pub mod machine;
pub mod net;
pub mod privilege;
mod program;
pub mod shim;
mod silence;
pub mod transfer;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::container::op::Deed;
use crate::executor::logic::{Input, Standing};
use crate::executor::registry::ContainerGuid;

/// Where a runtime tells what became of the deeds. May be called from any thread, and may make it
/// wait when the executor is behind: no lock may be held that [`Runtime::perform`] takes.
#[derive(Clone)]
pub struct Outcomes(Arc<dyn Fn(Input) + Send + Sync>);

impl Outcomes {
    /// Outcomes go here.
    pub fn new(tell: impl Fn(Input) + Send + Sync + 'static) -> Self {
        Outcomes(Arc::new(tell))
    }

    /// Tells one.
    pub fn tell(&self, outcome: Input) {
        (self.0)(outcome);
    }
}

impl std::fmt::Debug for Outcomes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outcomes")
    }
}

/// A machine that has containers.
pub trait Runtime: Send + 'static {
    /// Finds what is there after a restart, and takes hold of it. What is not known is removed.
    /// Called once, before anything is performed. Nothing is told before this has returned.
    fn find(
        &mut self,
        known: &BTreeSet<ContainerGuid>,
        outcomes: &Outcomes,
    ) -> Result<BTreeMap<ContainerGuid, Standing>, RuntimeError>;

    /// Begins to do something. It must not wait: the outcome, if there is one, is told later.
    fn perform(&mut self, container: &ContainerGuid, deed: Deed);
}

/// The machine cannot hold containers. The executor does not start; a person must look.
#[derive(Debug, thiserror::Error)]
#[error("{doing}: {source}")]
pub struct RuntimeError {
    /// What was tried.
    pub doing: String,
    /// What became of it.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl RuntimeError {
    /// For `map_err`: an error of what is being done.
    pub fn doing<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        doing: impl Into<String>,
    ) -> impl FnOnce(E) -> RuntimeError {
        let doing = doing.into();
        move |error| RuntimeError { doing, source: error.into() }
    }
}
