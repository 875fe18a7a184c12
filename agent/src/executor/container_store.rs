//! The registry: which containers there are, and what may happen to each of them next.
//!
//! `apply(now, input)` decides everything and does nothing. The rep's calls and the outcomes of the
//! driver's work are inputs; what the driver has to do, and what the rep is told, are effects. A
//! refusal leaves no trace. A container counts in the cell's resources from its reservation until
//! it is gone, and is given back once.
//!
//! The law is the state table of `volvox_protocol::container`: a state changes in one place,
//! `Container::advance`, which asks the table first.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod check;
mod container;
#[cfg(test)]
mod tests;

use crate::container::guid::ContainerGuid;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::container::{ContainerState, RunResult};
use volvox_protocol::time::Timestamp;

use super::resources::{ContainerResources, Resources, Shortage};

pub use check::check;
pub use container::{Container, Deletion};

/// How long a reservation stands when nobody runs it.
pub const RESERVATION_EXPIRY: Duration = Duration::from_secs(60);

/// What somebody wants of the registry, or tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreInput {
    /// The rep wants room for these. Each is taken or refused for itself, in this order.
    Reserve(Vec<Reservation>),
    /// The rep wants this reservation to become a container.
    Run(ContainerGuid),
    /// The driver has made the container.
    Created(ContainerGuid),
    /// The step tree is ready.
    Running(ContainerGuid),
    /// The step tree says whether traffic may go there.
    Routable(ContainerGuid, bool),
    /// It could not be made, or its step tree has finished.
    Completed(ContainerGuid, RunResult),
    /// The rep wants it to stop, gracefully.
    Stop(ContainerGuid),
    /// The rep wants it gone.
    Delete(ContainerGuid),
    /// The driver has taken it away: there is nothing left of it on the machine.
    Destroyed(ContainerGuid),
    /// The driver could not take it away. It has completed at least; the next delete tries again.
    DestroyFailed(ContainerGuid),
    /// Time has passed: reservations that nobody ran are dropped.
    ExpireReservations,
}

/// Room that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Under which name. It must be new.
    pub guid: ContainerGuid,
    /// How much.
    pub resources: ContainerResources,
}

/// What the driver has to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreOutput {
    /// Tell the rep.
    Emit(ContainerEvent),
    /// Tell whoever asked that this one got no room.
    RefuseReservation(ContainerGuid, ExecutorRefusal),
    /// Make the container; then say `Created` or `Completed`.
    Create(ContainerGuid),
    /// Give up making it. Nobody waits for its `Created` any more.
    AbandonCreate(ContainerGuid),
    /// Begin its step tree.
    BeginSteps(ContainerGuid),
    /// Cancel its step tree; `Completed` follows when that has finished.
    CancelSteps(ContainerGuid),
    /// Take it away: end what is being made, cancel its step tree and wait for that, destroy the
    /// rest; then say `Destroyed` or `DestroyFailed`.
    Destroy(ContainerGuid),
    /// It is not in the registry any more. Whoever reconciles this guid should look again.
    Forget(ContainerGuid, RemovalReason),
}

/// What the rep is told. It names the container; the rep reads it afresh before it acts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerEvent {
    /// Room is set aside.
    Reserved(ContainerGuid),
    /// It runs; said again when its routability changes.
    Running(ContainerGuid),
    /// It has ended.
    Completed(ContainerGuid),
}

impl ContainerEvent {
    /// The container that it is about.
    pub fn guid(&self) -> &ContainerGuid {
        match self {
            ContainerEvent::Reserved(guid)
            | ContainerEvent::Running(guid)
            | ContainerEvent::Completed(guid) => guid,
        }
    }
}

/// Why a container left the registry.
///
/// A reservation that expires or is stopped is no completed container: the state table forbids
/// RESERVED → COMPLETED, and nothing ran that could have a result. The rep finds no container, and
/// its tables know that row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalReason {
    /// It was deleted.
    Deleted,
    /// A reservation that nobody ran in time.
    Expired,
    /// A reservation that was told to stop.
    StoppedBeforeRunning,
}

/// Why an input could not be. The registry is as it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecutorRefusal {
    /// There is a container of this name. The asker must choose another.
    #[error("container guid {0} is not available")]
    GuidNotAvailable(ContainerGuid),
    /// It does not fit. The asker must place it elsewhere.
    #[error(transparent)]
    InsufficientResources(#[from] Shortage),
    /// There is no container of this name. Nothing to do.
    #[error("container {0} not found")]
    NotFound(ContainerGuid),
    /// The state table forbids it. The caller acted on an old view and must look again.
    #[error("container {guid} may not go from {from:?} to {to:?}")]
    InvalidTransition {
        /// Which container.
        guid: ContainerGuid,
        /// Its state.
        from: ContainerState,
        /// The state it was to have.
        to: ContainerState,
    },
    /// It is on its way out, and takes part in nothing new.
    #[error("container {0} is being deleted")]
    Deleting(ContainerGuid),
    /// Nobody asked for it to be taken away. The driver is mistaken.
    #[error("container {0} is not being deleted")]
    NotDeleting(ContainerGuid),
    /// Only what is created or runs can be routable. The driver is mistaken, or late.
    #[error("container {guid} is {state:?} and has no routes")]
    NotRoutable {
        /// Which container.
        guid: ContainerGuid,
        /// Its state.
        state: ContainerState,
    },
}

/// All containers of a cell, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStore {
    containers: BTreeMap<ContainerGuid, Container>,
    resources: Resources,
    reservation_expiry: Duration,
}

impl ContainerStore {
    /// An empty registry of a cell with this much room.
    pub fn new(capacity: CellCapacity, reservation_expiry: Duration) -> Self {
        let resources = Resources::new(capacity);
        ContainerStore { containers: BTreeMap::new(), resources, reservation_expiry }
    }

    /// The registry after a restart: what the driver found on the machine, whether it fits or not.
    /// Of two with one name the first stays.
    pub fn restore(
        capacity: CellCapacity,
        reservation_expiry: Duration,
        found: impl IntoIterator<Item = Container>,
    ) -> Self {
        let mut registry = ContainerStore::new(capacity, reservation_expiry);
        for container in found {
            if !registry.containers.contains_key(&container.guid) {
                registry.resources.take_what_is_there(container.resources);
                registry.containers.insert(container.guid.clone(), container);
            }
        }
        registry
    }

    /// The container of this name.
    pub fn container(&self, guid: &ContainerGuid) -> Option<&Container> {
        self.containers.get(guid)
    }

    /// All containers, by name.
    pub fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }

    /// The cell's room, and what is left of it.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// When to say [`StoreInput::ExpireReservations`] next, if ever.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        let reserved = self.containers().filter(|it| it.state == ContainerState::Reserved);
        reserved.map(|it| it.since + self.reservation_expiry).min()
    }

    /// Decides about one input.
    pub fn apply(
        &mut self,
        now: Timestamp,
        input: StoreInput,
    ) -> Result<Vec<StoreOutput>, ExecutorRefusal> {
        match input {
            StoreInput::Reserve(wanted) => Ok(self.reserve(now, wanted)),
            StoreInput::Run(guid) => {
                self.live(&guid)?.advance(now, ContainerState::Initializing)?;
                Ok(vec![StoreOutput::Create(guid)])
            }
            StoreInput::Created(guid) => {
                self.live(&guid)?.advance(now, ContainerState::Created)?;
                Ok(vec![StoreOutput::BeginSteps(guid)])
            }
            StoreInput::Running(guid) => {
                self.live(&guid)?.advance(now, ContainerState::Running)?;
                Ok(vec![StoreOutput::Emit(ContainerEvent::Running(guid))])
            }
            StoreInput::Routable(guid, routable) => self.set_routable(guid, routable),
            StoreInput::Completed(guid, result) => {
                self.known(&guid)?.complete(now, result)?;
                Ok(vec![StoreOutput::Emit(ContainerEvent::Completed(guid))])
            }
            StoreInput::Stop(guid) => self.stop(now, guid),
            StoreInput::Delete(guid) => self.delete(guid),
            StoreInput::Destroyed(guid) => {
                self.deleting(&guid)?;
                Ok(vec![self.forget(guid, RemovalReason::Deleted)])
            }
            StoreInput::DestroyFailed(guid) => self.keep(now, guid),
            StoreInput::ExpireReservations => Ok(self.expire(now)),
        }
    }

    fn known(&mut self, guid: &ContainerGuid) -> Result<&mut Container, ExecutorRefusal> {
        self.containers.get_mut(guid).ok_or_else(|| ExecutorRefusal::NotFound(guid.clone()))
    }

    /// One that is not on its way out.
    fn live(&mut self, guid: &ContainerGuid) -> Result<&mut Container, ExecutorRefusal> {
        let container = self.known(guid)?;
        match container.deletion {
            Deletion::NotAsked => Ok(container),
            Deletion::Underway => Err(ExecutorRefusal::Deleting(guid.clone())),
        }
    }

    fn deleting(&mut self, guid: &ContainerGuid) -> Result<&mut Container, ExecutorRefusal> {
        let container = self.known(guid)?;
        match container.deletion {
            Deletion::Underway => Ok(container),
            Deletion::NotAsked => Err(ExecutorRefusal::NotDeleting(guid.clone())),
        }
    }

    fn reserve(&mut self, now: Timestamp, wanted: Vec<Reservation>) -> Vec<StoreOutput> {
        let one = |Reservation { guid, resources }| match self.make_room(now, &guid, resources) {
            Ok(()) => StoreOutput::Emit(ContainerEvent::Reserved(guid)),
            Err(refusal) => StoreOutput::RefuseReservation(guid, refusal),
        };
        wanted.into_iter().map(one).collect()
    }

    fn make_room(
        &mut self,
        now: Timestamp,
        guid: &ContainerGuid,
        wanted: ContainerResources,
    ) -> Result<(), ExecutorRefusal> {
        if self.containers.contains_key(guid) {
            return Err(ExecutorRefusal::GuidNotAvailable(guid.clone()));
        }
        self.resources.take(wanted)?;
        self.containers.insert(guid.clone(), Container::reserved(now, guid.clone(), wanted));
        Ok(())
    }

    /// Before it runs the step tree only says what to begin with. Later a change is an event.
    fn set_routable(
        &mut self,
        guid: ContainerGuid,
        routable: bool,
    ) -> Result<Vec<StoreOutput>, ExecutorRefusal> {
        let container = self.live(&guid)?;
        let state = container.state;
        match state {
            ContainerState::Created | ContainerState::Running => {}
            ContainerState::Reserved | ContainerState::Initializing | ContainerState::Completed => {
                return Err(ExecutorRefusal::NotRoutable { guid, state });
            }
        }
        let changed = container.routable != routable;
        container.routable = routable;
        if changed && state == ContainerState::Running {
            return Ok(vec![StoreOutput::Emit(ContainerEvent::Running(guid))]);
        }
        Ok(Vec::new())
    }

    /// Asking twice changes nothing, nor does asking for what has ended.
    fn stop(
        &mut self,
        now: Timestamp,
        guid: ContainerGuid,
    ) -> Result<Vec<StoreOutput>, ExecutorRefusal> {
        let container = self.known(&guid)?;
        if container.stopped || container.deletion == Deletion::Underway {
            return Ok(Vec::new());
        }
        match container.state {
            ContainerState::Reserved => {
                Ok(vec![self.forget(guid, RemovalReason::StoppedBeforeRunning)])
            }
            ContainerState::Initializing => {
                container.stopped = true;
                container.complete(now, RunResult::default())?;
                let ended = StoreOutput::Emit(ContainerEvent::Completed(guid.clone()));
                Ok(vec![StoreOutput::AbandonCreate(guid), ended])
            }
            ContainerState::Created | ContainerState::Running => {
                container.stopped = true;
                Ok(vec![StoreOutput::CancelSteps(guid)])
            }
            ContainerState::Completed => Ok(Vec::new()),
        }
    }

    /// Room is given back when the container is gone, not before: what runs still needs it.
    fn delete(&mut self, guid: ContainerGuid) -> Result<Vec<StoreOutput>, ExecutorRefusal> {
        let container = self.known(&guid)?;
        if container.deletion == Deletion::Underway {
            return Ok(Vec::new());
        }
        if container.state == ContainerState::Reserved {
            return Ok(vec![self.forget(guid, RemovalReason::Deleted)]);
        }
        container.deletion = Deletion::Underway;
        // What ends because we take it away did not crash.
        container.stopped |= container.state != ContainerState::Completed;
        Ok(vec![StoreOutput::Destroy(guid)])
    }

    /// A deletion that failed. It began with the end of whatever ran, so the container is not what
    /// it was: it has completed, and the rep will ask for its deletion again.
    fn keep(
        &mut self,
        now: Timestamp,
        guid: ContainerGuid,
    ) -> Result<Vec<StoreOutput>, ExecutorRefusal> {
        let container = self.deleting(&guid)?;
        container.deletion = Deletion::NotAsked;
        if container.state == ContainerState::Completed {
            return Ok(Vec::new());
        }
        container.complete(now, RunResult::default())?;
        Ok(vec![StoreOutput::Emit(ContainerEvent::Completed(guid))])
    }

    fn expire(&mut self, now: Timestamp) -> Vec<StoreOutput> {
        let expired: Vec<_> = self
            .containers()
            .filter(|it| it.state == ContainerState::Reserved)
            .filter(|it| it.since + self.reservation_expiry <= now)
            .map(|it| it.guid.clone())
            .collect();
        expired.into_iter().map(|guid| self.forget(guid, RemovalReason::Expired)).collect()
    }

    /// The one way out of the registry, and so the one place that gives room back.
    fn forget(&mut self, guid: ContainerGuid, why: RemovalReason) -> StoreOutput {
        if let Some(container) = self.containers.remove(&guid) {
            self.resources.give_back(container.resources);
        }
        StoreOutput::Forget(guid, why)
    }
}
