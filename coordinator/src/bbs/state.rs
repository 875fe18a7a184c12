//! The records themselves, with the ways to find them.
//!
//! The same structure serves twice: the writer's board works on one copy, the readers' view on
//! another that lags by one commit. Both are changed only by [`Records::put`], one change at a
//! time, and undone by putting the inverse.
//!
//! Records hang on shared pointers in shards that are copied on write. Taking a snapshot clones
//! a few thousand pointers whatever the fleet's size, and then costs the writer one copied shard
//! (some hundred pointers) for each shard it touches while the snapshot lives.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, LrpGroup, Presence};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::digest::{Digest, DigestItem};
use volvox_protocol::id::{CellId, DefinitionId, Domain, ProcessGuid, TaskGuid};
use volvox_protocol::resolve;
use volvox_protocol::task::Task;

use super::command::{Change, DomainRecord, RowId};

mod wanted;

/// Shards of a map. A power of two; 250,000 entries make some 250 a shard.
/// Unit tests have three processes and walk all shards after every command.
const SHARDS: usize = if cfg!(test) { 4 } else { 1_024 };

/// A map that clones in constant time and copies a shard at a time when written.
#[derive(Debug, Clone)]
struct Shards<K, V>(Arc<[Arc<BTreeMap<K, V>>]>);

impl<K: Ord + Clone + AsRef<str>, V: Clone> Shards<K, V> {
    fn new() -> Self {
        let empty = Arc::default();
        Shards((0..SHARDS).map(|_| Arc::clone(&empty)).collect())
    }

    /// FNV-1a: fixed for all time and all machines, so that order never differs between runs.
    fn shard_of(key: &str) -> usize {
        let mut hash: u32 = 0x811c_9dc5;
        for byte in key.bytes() {
            hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        }
        (hash ^ (hash >> 16)) as usize % SHARDS
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.0[Self::shard_of(key.as_ref())].get(key)
    }

    fn shard_mut(&mut self, key: &K) -> &mut BTreeMap<K, V> {
        let shards = Arc::make_mut(&mut self.0);
        Arc::make_mut(&mut shards[Self::shard_of(key.as_ref())])
    }

    fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().flat_map(|shard| shard.iter())
    }

    fn len(&self) -> usize {
        self.0.iter().map(|shard| shard.len()).sum()
    }
}

/// One instance record and where the store keeps it.
#[derive(Debug, Clone)]
pub struct InstanceRow {
    /// Where the store keeps it.
    pub row: RowId,
    /// The record.
    pub lrp: Arc<ActualLrp>,
}

/// Everything known of one process: what is desired of it and what there is.
#[derive(Debug, Clone, Default)]
pub struct Process {
    /// What is desired, if the process is desired at all.
    pub deployment: Option<(RowId, Arc<LrpDeployment>)>,
    /// Its instance records by definition, index and presence.
    instances: Vec<InstanceRow>,
}

impl Process {
    /// All instance records, ordered by definition, index and presence.
    pub fn instances(&self) -> &[InstanceRow] {
        &self.instances
    }

    /// The records of one index: at most one for each presence.
    pub fn at(&self, definition: &DefinitionId, index: u32) -> &[InstanceRow] {
        let key = (definition, index);
        let from = self.instances.partition_point(|slot| prefix(&slot.lrp) < key);
        // One for each presence at most: looking at the next few beats searching for their end.
        let these = self.instances[from..].iter().take_while(|slot| prefix(&slot.lrp) == key);
        &self.instances[from..from + these.count()]
    }

    /// The record of one index in one presence.
    pub fn find(
        &self,
        definition: &DefinitionId,
        index: u32,
        presence: Presence,
    ) -> Option<&InstanceRow> {
        self.at(definition, index).iter().find(|slot| slot.lrp.presence == presence)
    }

    /// Whether there is a record of this definition, whatever its index and presence.
    pub fn has(&self, definition: &DefinitionId) -> bool {
        let from = self.instances.partition_point(|slot| slot.lrp.definition_id < *definition);
        self.instances.get(from).is_some_and(|slot| slot.lrp.definition_id == *definition)
    }

    /// The definitions that there are records of, each once.
    pub fn definitions(&self) -> impl Iterator<Item = &DefinitionId> {
        let mut rest = &self.instances[..];
        std::iter::from_fn(move || {
            let id = &rest.first()?.lrp.definition_id;
            let of = rest.partition_point(|slot| slot.lrp.definition_id == *id);
            rest = &rest[of..];
            Some(id)
        })
    }

    /// The definition that a reader means who names an index and no definition: the active one
    /// when it has a record there, or the only one that has.
    pub fn definition_at(&self, index: u32) -> Option<&DefinitionId> {
        let active = self.deployment.as_ref().map(|(_, it)| &it.active_definition_id);
        if let Some(active) = active.filter(|active| !self.at(active, index).is_empty()) {
            return Some(active);
        }
        // Without the active one, that of a reader who sees one instance for each index.
        let here = self.definitions().flat_map(|id| self.at(id, index));
        let shown = resolve::resolved(here.map(|slot| &slot.lrp), active);
        let shown = &shown.first()?.definition_id;
        self.definitions().find(|id| *id == shown)
    }

    /// The records of one index of one definition as a group.
    pub fn group(&self, definition: &DefinitionId, index: u32) -> LrpGroup {
        LrpGroup::fold(self.at(definition, index).iter().map(|slot| &slot.lrp))
    }

    /// One group for each definition and index, in the order of these.
    pub fn groups(&self) -> Vec<((DefinitionId, u32), LrpGroup)> {
        resolve::groups(self.instances.iter().map(|slot| &slot.lrp))
    }

    /// One record for each index: what a consumer sees that knows nothing of definitions,
    /// evacuations and suspects.
    pub fn resolved(&self) -> Vec<Arc<ActualLrp>> {
        let active =
            self.deployment.as_ref().map(|(_, deployment)| &deployment.active_definition_id);
        resolve::resolved(self.instances.iter().map(|slot| &slot.lrp), active)
    }

    fn put(&mut self, row: RowId, before: Option<&ActualLrp>, after: Option<&Arc<ActualLrp>>) {
        if let Some(before) = before {
            let found =
                self.instances.binary_search_by(|slot| slot.lrp.order().cmp(&before.order()));
            debug_assert!(found.is_ok(), "a change starts from a record that is there");
            if let Ok(nth) = found {
                match after {
                    Some(after) if after.order() == before.order() => {
                        self.instances[nth] = InstanceRow { row, lrp: Arc::clone(after) };
                        return;
                    }
                    Some(_) | None => {
                        self.instances.remove(nth);
                    }
                }
            }
        }
        if let Some(after) = after {
            let found =
                self.instances.binary_search_by(|slot| slot.lrp.order().cmp(&after.order()));
            debug_assert!(found.is_err(), "two records never share a key");
            let slot = InstanceRow { row, lrp: Arc::clone(after) };
            match found {
                Ok(nth) => self.instances[nth] = slot,
                Err(nth) => self.instances.insert(nth, slot),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.deployment.is_none() && self.instances.is_empty()
    }
}

fn prefix(lrp: &ActualLrp) -> (&DefinitionId, u32) {
    (&lrp.definition_id, lrp.index)
}

/// What is on one cell.
#[derive(Debug, Clone, Default)]
struct OnCell {
    instances: BTreeMap<RowId, Arc<ActualLrp>>,
    tasks: BTreeMap<RowId, Arc<Task>>,
    /// The number of all of these together: what the cell's own should be.
    digest: Digest,
}

/// All records of the board.
#[derive(Debug, Clone)]
pub struct Records {
    processes: Shards<ProcessGuid, Arc<Process>>,
    tasks: Shards<TaskGuid, (RowId, Arc<Task>)>,
    domains: Arc<BTreeMap<Domain, (RowId, DomainRecord)>>,
    cells: Arc<BTreeMap<CellId, Arc<OnCell>>>,
    instances: usize,
}

impl Default for Records {
    fn default() -> Self {
        Records {
            processes: Shards::new(),
            tasks: Shards::new(),
            domains: Arc::default(),
            cells: Arc::default(),
            instances: 0,
        }
    }
}

impl Records {
    /// Everything known of a process.
    pub fn process(&self, process: &ProcessGuid) -> Option<&Process> {
        self.processes.get(process).map(Arc::as_ref)
    }

    /// All processes, in an order that is the same in every run.
    pub fn processes(&self) -> impl Iterator<Item = (&ProcessGuid, &Process)> {
        self.processes.iter().map(|(guid, process)| (guid, process.as_ref()))
    }

    /// What is desired of a process.
    pub fn deployment(&self, process: &ProcessGuid) -> Option<&(RowId, Arc<LrpDeployment>)> {
        self.process(process)?.deployment.as_ref()
    }

    /// What is desired of all processes, in an order that is the same in every run.
    pub fn deployments(&self) -> impl Iterator<Item = &Arc<LrpDeployment>> {
        self.processes().filter_map(|(_, process)| process.deployment.as_ref().map(|(_, it)| it))
    }

    /// All instance records.
    pub fn instances(&self) -> impl Iterator<Item = &Arc<ActualLrp>> {
        self.processes().flat_map(|(_, process)| process.instances.iter().map(|slot| &slot.lrp))
    }

    /// One record for each index of each process, see [`Process::resolved`].
    pub fn resolved(&self) -> impl Iterator<Item = Arc<ActualLrp>> {
        self.processes().flat_map(|(_, process)| process.resolved())
    }

    /// How many instance records there are.
    pub fn instance_count(&self) -> usize {
        self.instances
    }

    /// How many processes there are, desired or only running.
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// The instance records on one cell.
    pub fn instances_on(&self, cell: &CellId) -> impl Iterator<Item = &Arc<ActualLrp>> {
        self.cells.get(cell).into_iter().flat_map(|on| on.instances.values())
    }

    /// The instance records on one cell that stand after a row, in the order of their rows: a new
    /// one comes last, so that whoever reads page by page misses none.
    pub fn instances_on_after(
        &self,
        cell: &CellId,
        row: RowId,
    ) -> impl Iterator<Item = (RowId, &Arc<ActualLrp>)> {
        let after = (Bound::Excluded(row), Bound::Unbounded);
        let on = self.cells.get(cell).into_iter();
        on.flat_map(move |on| on.instances.range(after)).map(|(row, lrp)| (*row, lrp))
    }

    /// The tasks on one cell that stand after a row, in the order of their rows.
    pub fn tasks_on_after(
        &self,
        cell: &CellId,
        row: RowId,
    ) -> impl Iterator<Item = (RowId, &Arc<Task>)> {
        let after = (Bound::Excluded(row), Bound::Unbounded);
        let on = self.cells.get(cell).into_iter();
        on.flat_map(move |on| on.tasks.range(after)).map(|(row, task)| (*row, task))
    }

    /// The digest of all that is on one cell, kept up to date with every change.
    pub fn digest_on(&self, cell: &CellId) -> Digest {
        self.cells.get(cell).map_or(Digest::default(), |on| on.digest)
    }

    /// The tasks on one cell.
    pub fn tasks_on(&self, cell: &CellId) -> impl Iterator<Item = &Arc<Task>> {
        self.cells.get(cell).into_iter().flat_map(|on| on.tasks.values())
    }

    /// The name of a cell as the records that name it share it.
    pub fn named_cell(&self, cell: &CellId) -> Option<&CellId> {
        self.cells.get_key_value(cell).map(|(cell, _)| cell)
    }

    /// The cells that some record names.
    pub fn named_cells(&self) -> impl Iterator<Item = &CellId> {
        self.cells.keys()
    }

    /// One task.
    pub fn task(&self, task: &TaskGuid) -> Option<&(RowId, Arc<Task>)> {
        self.tasks.get(task)
    }

    /// All tasks, in an order that is the same in every run.
    pub fn tasks(&self) -> impl Iterator<Item = &Arc<Task>> {
        self.tasks.iter().map(|(_, (_, task))| task)
    }

    /// How many tasks there are.
    pub fn task_count(&self) -> usize {
        self.tasks.len()
    }

    /// One domain.
    pub fn domain(&self, domain: &Domain) -> Option<&(RowId, DomainRecord)> {
        self.domains.get(domain)
    }

    /// All domains by name, those that have expired and are not yet pruned too.
    pub fn domains(&self) -> impl Iterator<Item = &DomainRecord> {
        self.domains.values().map(|(_, record)| record)
    }

    /// Takes one step. Changes of what is not a record pass by.
    pub fn put(&mut self, change: &Change) {
        match change {
            Change::Domain(row, before, after) => {
                let domains = Arc::make_mut(&mut self.domains);
                match (before, after) {
                    (_, Some(after)) => {
                        domains.insert(after.domain.clone(), (*row, after.clone()));
                    }
                    (Some(before), None) => {
                        domains.remove(&before.domain);
                    }
                    (None, None) => {}
                }
            }
            Change::Deployment(row, before, after) => {
                let Some(process) = before.as_ref().or(after.as_ref()).map(|it| &it.process_guid)
                else {
                    return;
                };
                let after = after.as_ref().map(|after| (*row, Arc::clone(after)));
                self.edit_process(process, |process| process.deployment = after);
            }
            Change::Actual(row, before, after) => {
                self.put_actual(*row, before.as_ref(), after.as_ref());
            }
            Change::Task(row, before, after) => {
                self.put_task(*row, before.as_ref(), after.as_ref());
            }
            Change::Presence(..) | Change::Settled(..) | Change::Asked(..) => {}
        }
    }

    fn put_actual(
        &mut self,
        row: RowId,
        before: Option<&Arc<ActualLrp>>,
        after: Option<&Arc<ActualLrp>>,
    ) {
        let Some(process) = before.or(after).map(|lrp| &lrp.process_guid) else { return };
        self.edit_process(process, |process| {
            process.put(row, before.map(Arc::as_ref), after);
        });
        let old_cell = before.and_then(|lrp| lrp.cell_id());
        let new_cell = after.and_then(|lrp| lrp.cell_id());
        if let Some(cell) = old_cell.filter(|cell| new_cell != Some(cell)) {
            self.edit_cell(cell, |on| {
                let gone = on.instances.remove(&row);
                on.digest.take(gone.as_deref().and_then(DigestItem::of_record));
            });
        }
        if let (Some(cell), Some(after)) = (new_cell, after) {
            self.edit_cell(cell, |on| {
                let old = on.instances.insert(row, Arc::clone(after));
                on.digest.take(old.as_deref().and_then(DigestItem::of_record));
                on.digest.put(DigestItem::of_record(after));
            });
        }
        self.instances += usize::from(after.is_some());
        self.instances -= usize::from(before.is_some());
    }

    fn put_task(&mut self, row: RowId, before: Option<&Arc<Task>>, after: Option<&Arc<Task>>) {
        let Some(guid) = before.or(after).map(|task| &task.task_guid) else { return };
        let shard = self.tasks.shard_mut(guid);
        match after {
            Some(after) => shard.insert(guid.clone(), (row, Arc::clone(after))),
            None => shard.remove(guid),
        };
        let old_cell = before.and_then(|task| task.cell_id.as_ref());
        let new_cell = after.and_then(|task| task.cell_id.as_ref());
        if let Some(cell) = old_cell.filter(|cell| new_cell != Some(cell)) {
            self.edit_cell(cell, |on| {
                let gone = on.tasks.remove(&row);
                on.digest.take(gone.as_deref().and_then(DigestItem::of_task));
            });
        }
        if let (Some(cell), Some(after)) = (new_cell, after) {
            self.edit_cell(cell, |on| {
                let old = on.tasks.insert(row, Arc::clone(after));
                on.digest.take(old.as_deref().and_then(DigestItem::of_task));
                on.digest.put(DigestItem::of_task(after));
            });
        }
    }

    fn edit_process(&mut self, guid: &ProcessGuid, edit: impl FnOnce(&mut Process)) {
        let shard = self.processes.shard_mut(guid);
        let process = match shard.get_mut(guid) {
            Some(process) => process,
            None => shard.entry(guid.clone()).or_default(),
        };
        edit(Arc::make_mut(process));
        if process.is_empty() {
            shard.remove(guid);
        }
    }

    fn edit_cell(&mut self, cell: &CellId, edit: impl FnOnce(&mut OnCell)) {
        let cells = Arc::make_mut(&mut self.cells);
        let on = match cells.get_mut(cell) {
            Some(on) => on,
            None => cells.entry(cell.clone()).or_default(),
        };
        edit(Arc::make_mut(on));
        if on.instances.is_empty() && on.tasks.is_empty() {
            cells.remove(cell);
        }
    }
}
