//! Work that waits for cells: merged, each piece once, and put in order.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volvox_protocol::id::{DefinitionId, ProcessGuid, TaskGuid};
use volvox_protocol::request::{LrpStart, Requirements, TaskStart};

use super::fleet::number;
use super::score::ResourceRequest;

/// Pieces of work in one batch. What comes on top is refused: convergence asks for it again.
pub const MOST_WORK: usize = 1_000_000;

/// Work of one round. The order in which it came makes no difference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    lrps: BTreeMap<(ProcessGuid, DefinitionId), LrpStart>,
    tasks: BTreeMap<TaskGuid, TaskStart>,
    len: usize,
}

/// One piece of work: a place in [`Batch::lrps`] and an index of it, or a place in
/// [`Batch::tasks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BatchItem {
    /// An instance.
    Lrp {
        /// The start.
        start: u32,
        /// The index.
        index: u32,
    },
    /// A task.
    Task(u32),
}

impl Batch {
    /// A batch of these.
    pub fn of(lrps: Vec<LrpStart>, tasks: Vec<TaskStart>) -> Self {
        let mut batch = Batch::default();
        lrps.into_iter().for_each(|start| _ = batch.add_lrp(start));
        tasks.into_iter().for_each(|task| _ = batch.add_task(task));
        batch
    }

    /// Adds instances; those that are there already are not added twice. What is said of them now
    /// holds for all of them: the process may have been desired anew. Gives back how many found no
    /// room in the batch.
    pub fn add_lrp(&mut self, start: LrpStart) -> usize {
        self.add_lrp_up_to(MOST_WORK, start)
    }

    /// The same, if the batch may hold no more than `most` pieces.
    pub fn add_lrp_up_to(&mut self, most: usize, mut start: LrpStart) -> usize {
        let room = most.saturating_sub(self.len);
        let key = (start.process_guid.clone(), start.definition_id.clone());
        let mut new = std::mem::take(&mut start.indices);
        if !new.is_sorted_by(|a, b| a < b) {
            new.sort_unstable();
            new.dedup();
        }
        match self.lrps.entry(key) {
            Entry::Vacant(entry) => {
                let refused = new.len().saturating_sub(room);
                new.truncate(room);
                self.len += new.len();
                if !new.is_empty() {
                    entry.insert(LrpStart { indices: new, ..start });
                }
                refused
            }
            Entry::Occupied(mut entry) => {
                let known = std::mem::take(&mut entry.get_mut().indices);
                new.retain(|index| known.binary_search(index).is_err());
                let refused = new.len().saturating_sub(room);
                new.truncate(room);
                self.len += new.len();
                new.extend_from_slice(&known);
                new.sort_unstable();
                entry.insert(LrpStart { indices: new, ..start });
                refused
            }
        }
    }

    /// What the batch says of this definition's instances.
    pub fn requirements(
        &self,
        process: &ProcessGuid,
        definition: &DefinitionId,
    ) -> Option<&Arc<Requirements>> {
        let key = (process.clone(), definition.clone());
        self.lrps.get(&key).map(|start| &start.requirements)
    }

    /// Takes out the instances that are named by `start`. What it says of them holds for those
    /// that stay.
    pub fn remove_lrp(&mut self, start: &LrpStart) {
        let key = (start.process_guid.clone(), start.definition_id.clone());
        let Entry::Occupied(mut entry) = self.lrps.entry(key) else { return };
        let gone: BTreeSet<u32> = start.indices.iter().copied().collect();
        let known = entry.get_mut();
        let before = known.indices.len();
        known.indices.retain(|index| !gone.contains(index));
        known.requirements = Arc::clone(&start.requirements);
        self.len -= before - known.indices.len();
        if known.indices.is_empty() {
            entry.remove();
        }
    }

    /// Takes out a task.
    pub fn remove_task(&mut self, task: &TaskGuid) {
        self.len -= usize::from(self.tasks.remove(task).is_some());
    }

    /// The least that any piece wants of each, whatever the others want.
    pub fn smallest(&self) -> ResourceRequest {
        let lrps = self.lrps().map(|start| &start.requirements);
        let all = lrps.chain(self.tasks().map(|task| &task.requirements));
        let start = ResourceRequest { memory_mb: u32::MAX, disk_mb: u32::MAX };
        all.fold(start, |least, it| ResourceRequest {
            memory_mb: least.memory_mb.min(it.memory_mb),
            disk_mb: least.disk_mb.min(it.disk_mb),
        })
    }

    /// Adds a task, once; what is said of it now holds. Gives back how many found no room in the
    /// batch.
    pub fn add_task(&mut self, task: TaskStart) -> usize {
        self.add_task_up_to(MOST_WORK, task)
    }

    /// The same, if the batch may hold no more than `most` pieces.
    pub fn add_task_up_to(&mut self, most: usize, task: TaskStart) -> usize {
        match self.tasks.entry(task.task_guid.clone()) {
            Entry::Occupied(mut entry) => {
                entry.insert(task);
                0
            }
            Entry::Vacant(_) if self.len >= most => 1,
            Entry::Vacant(entry) => {
                entry.insert(task);
                self.len += 1;
                0
            }
        }
    }

    /// Whether the batch has this task.
    pub fn has_task(&self, task: &TaskGuid) -> bool {
        self.tasks.contains_key(task)
    }

    /// Adds all of another batch. Gives back how many pieces found no room.
    pub fn merge(&mut self, other: Batch) -> usize {
        let lrps: usize = other.lrps.into_values().map(|start| self.add_lrp(start)).sum();
        let tasks: usize = other.tasks.into_values().map(|task| self.add_task(task)).sum();
        lrps + tasks
    }

    /// Keeps what is still wanted.
    pub fn retain(
        &mut self,
        mut lrp: impl FnMut(&LrpStart, u32) -> bool,
        mut task: impl FnMut(&TaskStart) -> bool,
    ) {
        self.lrps.retain(|_, start| {
            let mut indices = std::mem::take(&mut start.indices);
            indices.retain(|index| lrp(start, *index));
            start.indices = indices;
            !start.indices.is_empty()
        });
        self.tasks.retain(|_, start| task(start));
        self.len = self.lrps.values().map(|start| start.indices.len()).sum::<usize>();
        self.len += self.tasks.len();
    }

    /// Pieces of work.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no work.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The instances, by process and definition.
    pub fn lrps(&self) -> impl ExactSizeIterator<Item = &LrpStart> {
        self.lrps.values()
    }

    /// The tasks, by guid.
    pub fn tasks(&self) -> impl ExactSizeIterator<Item = &TaskStart> {
        self.tasks.values()
    }

    /// The order in which work is placed: instances of index 0, tasks, then the further indices,
    /// each by memory, the largest first. Every process has an instance before any has two, and
    /// large work finds room before small work has broken it up.
    pub fn order(&self) -> Vec<BatchItem> {
        // A piece's rank in one number: its group, then its place by size. The places by size are
        // worked out once for each start, not for each instance.
        let by_size = rank(self.lrps().map(|start| &start.requirements));
        let mut instances = Vec::with_capacity(self.len);
        let mut first = Vec::new();
        for (start, (LrpStart { indices, .. }, rank)) in self.lrps().zip(by_size).enumerate() {
            for index in indices {
                let piece = (u64::from(*index) << 32 | u64::from(rank), number(start));
                if *index == 0 { first.push(piece) } else { instances.push(piece) }
            }
        }
        first.sort_unstable();
        instances.sort_unstable();
        let by_size = rank(self.tasks().map(|task| &task.requirements));
        let mut tasks: Vec<(u32, u32)> = by_size.into_iter().zip(0..).collect();
        tasks.sort_unstable();

        let lrp = |(key, start): (u64, u32)| BatchItem::Lrp {
            start,
            index: u32::try_from(key >> 32).expect("it was put there from 32 bits"),
        };
        let mut order = Vec::with_capacity(self.len);
        order.extend(first.into_iter().map(lrp));
        order.extend(tasks.into_iter().map(|(_, task)| BatchItem::Task(task)));
        order.extend(instances.into_iter().map(lrp));
        order
    }
}

/// The place of each by size: memory first, then disk, both falling; equal work stays in the
/// order it is given in.
fn rank<'a>(work: impl Iterator<Item = &'a Arc<Requirements>>) -> Vec<u32> {
    let mut order: Vec<(Reverse<(u32, u32)>, u32)> = work
        .zip(0..)
        .map(|(needs, place)| (Reverse((needs.memory_mb, needs.disk_mb)), place))
        .collect();
    order.sort_unstable();
    let mut ranks = vec![0; order.len()];
    for ((_, place), rank) in order.into_iter().zip(0..) {
        ranks[place as usize] = rank;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use volvox_protocol::id::Domain;

    use super::*;

    fn needs(memory_mb: u32) -> Arc<Requirements> {
        Arc::new(Requirements { memory_mb, ..Requirements::default() })
    }

    fn lrp(process: &str, memory_mb: u32, indices: &[u32]) -> LrpStart {
        let process_guid = ProcessGuid::new(process).unwrap();
        LrpStart {
            definition_id: (&process_guid).into(),
            process_guid,
            domain: Domain::new("d").unwrap(),
            indices: indices.to_vec(),
            requirements: needs(memory_mb),
        }
    }

    fn task(guid: &str, memory_mb: u32) -> TaskStart {
        TaskStart {
            task_guid: TaskGuid::new(guid).unwrap(),
            domain: Domain::new("d").unwrap(),
            requirements: needs(memory_mb),
        }
    }

    fn order(batch: &Batch) -> Vec<String> {
        let lrps: Vec<&LrpStart> = batch.lrps().collect();
        let tasks: Vec<&TaskStart> = batch.tasks().collect();
        let name = |work: &BatchItem| match work {
            BatchItem::Lrp { start, index } => {
                format!("{}/{index}", lrps[*start as usize].process_guid)
            }
            BatchItem::Task(task) => tasks[*task as usize].task_guid.to_string(),
        };
        batch.order().iter().map(name).collect()
    }

    #[test]
    fn index_0_comes_first_then_tasks_then_the_rest_each_by_memory() {
        let lrps = vec![lrp("s", 1, &[0, 1, 2]), lrp("l", 9, &[2, 1, 0]), lrp("m", 5, &[1])];
        let batch = Batch::of(lrps, vec![task("small", 2), task("large", 7)]);
        let expected = "l/0 s/0 large small l/1 m/1 s/1 l/2 s/2";
        assert_eq!(order(&batch).join(" "), expected);
        let without = Batch::of(vec![lrp("s", 1, &[0])], vec![task("t", 7)]);
        assert_eq!(order(&without), ["s/0", "t"], "whatever else is in the batch");
    }

    #[test]
    fn what_comes_twice_is_there_once_in_whatever_order() {
        let mut batch = Batch::of(vec![lrp("a", 1, &[2, 0, 2]), lrp("b", 1, &[])], vec![]);
        batch.add_lrp(lrp("a", 1, &[1, 0]));
        batch.add_task(task("t", 1));
        batch.add_task(task("t", 2));
        assert_eq!(
            (batch.len(), order(&batch)),
            (4, ["a/0", "t", "a/1", "a/2"].map(Into::into).into())
        );
        let mut other = Batch::of(vec![lrp("a", 1, &[0, 1])], vec![task("t", 2)]);
        assert_eq!(other.merge(Batch::of(vec![lrp("a", 1, &[2])], vec![])), 0);
        assert_eq!(other, batch);
    }

    #[test]
    fn a_full_batch_refuses_and_says_how_much() {
        let all: Vec<u32> = (0..number(MOST_WORK) - 1).collect();
        let mut batch = Batch::of(vec![lrp("a", 1, &all)], vec![]);
        assert_eq!(batch.add_lrp(lrp("b", 1, &[0, 1, 2])), 2);
        assert_eq!(batch.add_lrp(lrp("a", 1, &[0, u32::MAX])), 1);
        assert_eq!(batch.add_lrp(lrp("c", 1, &[0])), 1);
        assert_eq!(batch.add_task(task("t", 1)), 1);
        assert_eq!((batch.len(), batch.lrps().len()), (MOST_WORK, 2));
    }

    #[test]
    fn what_is_no_longer_wanted_goes() {
        let mut batch =
            Batch::of(vec![lrp("a", 1, &[0, 1]), lrp("b", 1, &[0])], vec![task("t", 1)]);
        batch.retain(|start, index| start.process_guid.as_str() == "a" && index == 1, |_| false);
        assert_eq!((batch.len(), order(&batch)), (1, vec!["a/1".to_owned()]));
    }
}
