//! What cells and coordinator ask each other, in batches that fit a link.
//!
//! | who asks | question | answer |
//! |---|---|---|
//! | cell | [`CellReport`]: what became of instances and tasks, and which definitions it wants then | one [`CellAnswer`] each, and the definitions |
//! | cell | [`FetchDefinitions`] | [`FetchedDefinitions`] |
//! | cell | [`SyncCell`]: all that it has, page by page | [`SyncedCell`]: every record that bears on it |
//! | coordinator | [`CellOrders`]: work, stops, cancels, updates | one [`OrderAnswer`] each |
//!
//! Each message may grow at its end (`mesh/src/codec.rs`), and each enum by further variants; whatever
//! else changes is another message with another number. Lists have limits and are refused while they
//! are read, so that a short message cannot claim much memory.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::actual_lrp::{ActualLrp, InstanceKey, LrpState, Presence, Running};
use crate::container::ContainerState;
use crate::definition::{LrpDefinition, MetricTags, Routes};
use crate::id::{CellId, DefinitionId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use crate::limits::{
    FETCH_ITEMS, ORDER_BYTES, ORDER_ITEMS, REPORT_BYTES, REPORT_ITEMS, SYNC_ITEMS,
};
use crate::modification_tag::ModificationTag;
use crate::packed::Packed;
use crate::request::{CellOrder, CellRequest, Rejection};
use crate::task::{Task, TaskDefinition, TaskState};

/// What became of instances and tasks on a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellReport {
    /// In this order.
    #[serde(deserialize_with = "up_to::<_, _, REPORT_ITEMS>")]
    pub requests: Vec<CellRequest>,
    /// Definitions that the cell wants when that is done: of what it claims or starts just now.
    pub fetch: FetchDefinitions,
}

impl CellReport {
    /// Takes what fits into one report off the front of `queue`: something, unless it is empty.
    pub fn take(queue: &mut VecDeque<CellRequest>) -> Self {
        CellReport {
            requests: take(queue, REPORT_ITEMS, REPORT_BYTES),
            fetch: FetchDefinitions::default(),
        }
    }
}

/// The answers to a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellReportReply {
    /// One for each request, in their order.
    pub answers: Vec<CellAnswer>,
    /// What was to be fetched.
    pub fetched: FetchedDefinitions,
}

/// The answer to one request of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CellAnswer {
    /// Done, or there was nothing to do.
    Done,
    /// Whether the cell shall run the task: true only for the call that started it.
    ShouldStart(bool),
    /// Whether the evacuating cell shall leave the container running.
    KeepContainer(bool),
    /// No, and nothing has changed.
    Rejected(Rejection),
    /// Not now, and nothing has changed: ask again.
    Later(RetryLater),
}

/// Why the board could not take a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RetryLater {
    /// Too many wait already. All that follows in the report is answered so too, lest it overtake.
    Busy,
    /// The disk did not take it, nor anything else that it would have taken at the same time.
    NotSaved,
}

/// Which definition of which process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DefinitionKey {
    /// The process.
    pub process_guid: ProcessGuid,
    /// Its definition.
    pub definition_id: DefinitionId,
}

/// Asks for all that a cell needs to run instances and tasks. It is told only of what the board has
/// it down for: definitions hold passwords.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchDefinitions {
    /// Of instances.
    #[serde(deserialize_with = "up_to::<_, _, FETCH_ITEMS>")]
    pub lrps: Vec<DefinitionKey>,
    /// Of tasks.
    #[serde(deserialize_with = "up_to::<_, _, FETCH_ITEMS>")]
    pub tasks: Vec<TaskGuid>,
}

impl FetchDefinitions {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.lrps.is_empty() && self.tasks.is_empty()
    }
}

/// What was asked for, as far as it fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedDefinitions {
    /// Of instances.
    pub lrps: Vec<FetchedLrp>,
    /// Of tasks.
    pub tasks: Vec<FetchedTask>,
    /// There is no such thing, or this cell does not have it.
    pub unknown: FetchDefinitions,
    /// What did not fit: ask again.
    pub left: FetchDefinitions,
}

/// All that a cell needs to run instances of one definition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedLrp {
    /// Which.
    pub key: DefinitionKey,
    /// Whose.
    pub domain: Domain,
    /// The version of the record that this is from: a sync says whether it is still the last.
    pub modification_tag: ModificationTag,
    /// How to run it.
    pub definition: Carried<LrpDefinition>,
    /// The tags of its metrics.
    pub metric_tags: Carried<MetricTags>,
    /// Its routes: a cell serves the internal ones.
    pub routes: Carried<Routes>,
}

/// All that a cell needs to run a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedTask {
    /// Which.
    pub task_guid: TaskGuid,
    /// Whose.
    pub domain: Domain,
    /// How to run it.
    pub definition: Carried<TaskDefinition>,
}

/// A value in its own bytes, so that it may grow at its end and be read by another release: who has
/// the rules of the mesh's codec opens it. `{:?}` shows no more than its length.
pub struct Carried<T> {
    bytes: Arc<[u8]>,
    of: PhantomData<fn() -> T>,
}

impl<T> Carried<T> {
    /// What was packed, as it is.
    pub fn packed(packed: &Packed<T>) -> Self
    where
        T: Serialize + serde::de::DeserializeOwned,
    {
        Carried { bytes: Arc::clone(packed.bytes()), of: PhantomData }
    }

    /// Packs a value.
    pub fn new(value: &T) -> Self
    where
        T: Serialize,
    {
        let bytes = postcard::to_stdvec(value).expect("our records know their lengths");
        Carried { bytes: bytes.into(), of: PhantomData }
    }

    /// The bytes: postcard, perhaps of another release.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T> Clone for Carried<T> {
    fn clone(&self) -> Self {
        Carried { bytes: Arc::clone(&self.bytes), of: PhantomData }
    }
}

impl<T> PartialEq for Carried<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<T> Eq for Carried<T> {}

impl<T> fmt::Debug for Carried<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes.len())
    }
}

impl<T> Serialize for Carried<T> {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.bytes)
    }
}

impl<'de, T> Deserialize<'de> for Carried<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        Ok(Carried { bytes: bytes.into(), of: PhantomData })
    }
}

/// One page of all that a cell has, and a question for all that bears on it. A cell asks so after
/// each new link to a coordinator and when it is told to; and of one instance, before it deletes a
/// container that lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncCell {
    /// Instances that it has.
    #[serde(deserialize_with = "up_to::<_, _, SYNC_ITEMS>")]
    pub lrps: Vec<HeldLrp>,
    /// Tasks that it has.
    #[serde(deserialize_with = "up_to::<_, _, SYNC_ITEMS>")]
    pub tasks: Vec<HeldTask>,
    /// Whether it also asks for the records that name it, and from where on.
    pub own: OwnRecords,
}

/// A page of the records that name a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnRecords {
    /// None of them.
    None,
    /// Those after this place: 0 for the first page, later what the reply before said.
    After(u64),
}

/// An instance on a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLrp {
    /// Of which process.
    pub process_guid: ProcessGuid,
    /// Of which definition.
    pub definition_id: DefinitionId,
    /// Its index.
    pub index: u32,
    /// The container.
    pub instance_guid: InstanceGuid,
    /// How far the container has come.
    pub state: ContainerState,
}

/// A task on a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldTask {
    /// Which.
    pub task_guid: TaskGuid,
    /// How far its container has come.
    pub state: ContainerState,
}

/// The records that bear on a cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncedCell {
    /// How many of the instances and tasks that were named are answered here, from the first on. The
    /// rest did not fit: ask for them again.
    pub answered_lrps: u32,
    /// As above, of tasks.
    pub answered_tasks: u32,
    /// Every record at the indices that were named, whoever's they are, and those that name the
    /// cell. An index with none here has none. One may be here twice.
    pub lrps: Vec<LrpRecord>,
    /// The tasks that were named, and those that name the cell.
    pub tasks: Vec<TaskRecord>,
    /// The present version of what is desired, for each process here that is desired. Where it is
    /// another than the one that was fetched, tags and routes may be others: fetch them again.
    pub processes: Vec<(ProcessGuid, ModificationTag)>,
    /// Where the next page of the records that name the cell begins, if there is one.
    pub more: OwnRecords,
}

/// A record of an instance, as far as a rep looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LrpRecord {
    /// The process.
    pub process_guid: ProcessGuid,
    /// The definition.
    pub definition_id: DefinitionId,
    /// The index.
    pub index: u32,
    /// The domain.
    pub domain: Domain,
    /// How its cell stands to the fleet.
    pub presence: Presence,
    /// How far it has come, and who has it.
    pub state: RecordState,
    /// Its cell has been told to stop it.
    pub stopping: bool,
    /// What the asking cell last reported of it, if it has it and it runs.
    pub reported: Option<Arc<Running>>,
}

/// How far an instance has come, and who has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordState {
    /// Waits for a cell.
    Unclaimed,
    /// Being started.
    Claimed(InstanceKey),
    /// Runs.
    Running(InstanceKey),
    /// Waits for its restart.
    Crashed,
}

impl LrpRecord {
    /// The record as `cell` is told of it.
    pub fn for_cell(lrp: &ActualLrp, cell: &CellId) -> Self {
        let (state, reported) = match &lrp.state {
            LrpState::Unclaimed { .. } => (RecordState::Unclaimed, None),
            LrpState::Claimed(instance) => (RecordState::Claimed(instance.clone()), None),
            LrpState::Running(instance, running) => {
                let own = instance.cell_id == *cell;
                (RecordState::Running(instance.clone()), own.then(|| Arc::clone(running)))
            }
            LrpState::Crashed => (RecordState::Crashed, None),
        };
        LrpRecord {
            process_guid: lrp.process_guid.clone(),
            definition_id: lrp.definition_id.clone(),
            index: lrp.index,
            domain: lrp.domain.clone(),
            presence: lrp.presence,
            state,
            stopping: lrp.stopping,
            reported,
        }
    }
}

/// A task, as far as a rep looks at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// Which.
    pub task_guid: TaskGuid,
    /// Whose.
    pub domain: Domain,
    /// Where it is in its life.
    pub state: TaskState,
    /// Where it runs or ran.
    pub cell_id: Option<CellId>,
}

impl From<&Task> for TaskRecord {
    fn from(task: &Task) -> Self {
        TaskRecord {
            task_guid: task.task_guid.clone(),
            domain: task.domain.clone(),
            state: task.state,
            cell_id: task.cell_id.clone(),
        }
    }
}

/// Orders to a cell, to be taken in this order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellOrders {
    /// At least one.
    #[serde(deserialize_with = "up_to::<_, _, ORDER_ITEMS>")]
    pub orders: Vec<CellOrder>,
}

impl CellOrders {
    /// Takes what fits into one message off the front of `queue`: something, unless it is empty.
    pub fn take(queue: &mut VecDeque<CellOrder>) -> Self {
        CellOrders { orders: take(queue, ORDER_ITEMS, ORDER_BYTES) }
    }
}

/// What a cell says to its orders. Taken is not done: that is reported when it is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellOrdersReply {
    /// One for each order.
    pub answers: Vec<OrderAnswer>,
}

/// What a cell says to one order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OrderAnswer {
    /// It will do it, or it has nothing to do. Of work: all of it is admitted.
    Taken,
    /// Of work: this is not admitted, the rest is.
    Refused(RefusedWork),
    /// It cannot, for this reason.
    Failed(Box<str>),
}

/// Work that a cell does not admit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedWork {
    /// Instances.
    pub lrps: Vec<RefusedLrps>,
    /// Tasks.
    pub tasks: Vec<RefusedTask>,
}

/// Instances that a cell does not admit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedLrps {
    /// Of which definition.
    pub key: DefinitionKey,
    /// Which.
    pub indices: Vec<u32>,
    /// Why.
    pub reason: Box<str>,
}

/// A task that a cell does not admit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedTask {
    /// Which.
    pub task_guid: TaskGuid,
    /// Why.
    pub reason: Box<str>,
}

/// Takes as many as fit off the front: one at least, if there is one.
fn take<T: Serialize>(queue: &mut VecDeque<T>, most: usize, bytes: usize) -> Vec<T> {
    let mut taken = Vec::new();
    let mut used = 0;
    while taken.len() < most
        && let Some(next) = queue.front()
    {
        used += size(next);
        if used > bytes && !taken.is_empty() {
            break;
        }
        taken.extend(queue.pop_front());
    }
    taken
}

/// How many bytes a value takes in a message.
pub fn size<T: Serialize>(value: &T) -> usize {
    let counter = postcard::ser_flavors::Size::default();
    postcard::serialize_with_flavor(value, counter).expect("our records know their lengths")
}

/// Reads a list of at most `MOST`: the next one is refused when it is met, not when all are in memory.
fn up_to<'de, D, T, const MOST: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct Bounded<T, const MOST: usize>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for Bounded<T, MOST> {
        type Value = Vec<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "a list of at most {MOST} entries")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut entries = Vec::new();
            while let Some(entry) = list.next_element()? {
                if entries.len() == MOST {
                    return Err(A::Error::custom(format!("has more than {MOST} entries")));
                }
                entries.push(entry);
            }
            Ok(entries)
        }
    }

    from.deserialize_seq(Bounded::<T, MOST>(PhantomData))
}
