//! A machine that has containers, as the executor sees it: [`Runtime`] does what is asked, on threads
//! of its own, and tells the outcomes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::exit::Exit;
use super::guid::ContainerGuid;
use super::op::{ContainerOp, OpOutcome};

/// Where a runtime tells what became of the deeds. May be called from any thread, and may make it
/// wait when the executor is behind: no lock may be held that [`Runtime::perform`] takes.
#[derive(Clone)]
pub struct OutcomeSender(Arc<dyn Fn(ContainerGuid, OpOutcome) + Send + Sync>);

impl OutcomeSender {
    /// Outcomes go here.
    pub fn new(tell: impl Fn(ContainerGuid, OpOutcome) + Send + Sync + 'static) -> Self {
        OutcomeSender(Arc::new(tell))
    }

    /// Tells what came to pass of this container.
    pub fn tell(&self, container: ContainerGuid, outcome: OpOutcome) {
        (self.0)(container, outcome);
    }
}

impl std::fmt::Debug for OutcomeSender {
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
        outcomes: &OutcomeSender,
    ) -> Result<BTreeMap<ContainerGuid, RecoveredState>, RuntimeError>;

    /// Begins to do something. It must not wait: the outcome, if there is one, is told later.
    fn perform(&mut self, container: &ContainerGuid, deed: ContainerOp);
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

/// What the machine has of a container after a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveredState {
    /// It is there.
    Alive {
        /// The processes that run.
        running: BTreeSet<u32>,
        /// The processes that have ended, and how.
        exited: BTreeMap<u32, Exit>,
    },
    /// It is dead, or there is nothing of it.
    Dead {
        /// The processes that are known to have ended by themselves, and how.
        exited: BTreeMap<u32, Exit>,
    },
}
