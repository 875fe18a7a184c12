//! A batch that was sent to a cell: what it takes there, and whether the cell has answered.

use std::collections::BTreeSet;

use volvox_protocol::cell::CellCapacity;
use volvox_protocol::id::{DefinitionId, ProcessGuid, TaskGuid};
use volvox_protocol::request::{LrpStart, Requirements, TaskStart, WorkBatch};
use volvox_protocol::time::Timestamp;

use super::tracked_cell::{ANSWER_WITHIN, REFLECTED_WITHIN};

/// Whether the cell has said which of the work it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BatchAnswer {
    /// Not yet; it was sent then.
    Awaited(Timestamp),
    /// Then.
    Here(Timestamp),
    /// It will not; that was known then.
    Never(Timestamp),
}

/// Whether the cell's load counts the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoadReflection {
    NotYet,
    Reflected,
}

/// A batch on its way, or with a cell whose load does not show it yet.
#[derive(Debug)]
pub(super) struct SentBatch {
    batch: WorkBatch,
    room: CellCapacity,
    answer: BatchAnswer,
    in_load: LoadReflection,
    /// The version of the cell's load that the decision was made from.
    load_version: u64,
}

/// What a cell gave back.
#[derive(Debug, Default)]
pub(super) struct ReturnedWork {
    pub(super) lrps: Vec<LrpStart>,
    pub(super) tasks: Vec<TaskStart>,
}

impl ReturnedWork {
    pub(super) fn is_empty(&self) -> bool {
        self.lrps.is_empty() && self.tasks.is_empty()
    }
}

impl SentBatch {
    pub(super) fn new(now: Timestamp, batch: WorkBatch, load_version: u64) -> Self {
        let room = room_of(&batch);
        let (answer, in_load) = (BatchAnswer::Awaited(now), LoadReflection::NotYet);
        SentBatch { batch, room, answer, in_load, load_version }
    }

    pub(super) fn number(&self) -> u64 {
        self.batch.number
    }

    pub(super) fn load_version(&self) -> u64 {
        self.load_version
    }

    /// What the work takes that was not refused.
    pub(super) fn room(&self) -> CellCapacity {
        self.room
    }

    pub(super) fn is_unanswered(&self) -> bool {
        matches!(self.answer, BatchAnswer::Awaited(_))
    }

    /// Nobody will answer. It takes no room any more.
    pub(super) fn give_up(&mut self, now: Timestamp) {
        self.answer = BatchAnswer::Never(now);
        self.room = CellCapacity::default();
    }

    pub(super) fn is_given_up(&self) -> bool {
        matches!(self.answer, BatchAnswer::Never(_))
    }

    /// Whether the cell has refused all of it.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.lrps.is_empty() && self.batch.tasks.is_empty()
    }

    pub(super) fn into_batch(self) -> WorkBatch {
        self.batch
    }

    pub(super) fn is_reflected(&self) -> bool {
        self.in_load == LoadReflection::Reflected
    }

    /// The cell's load counts it, or the cell knows nothing of it.
    pub(super) fn reflect(&mut self) {
        self.in_load = LoadReflection::Reflected;
    }

    /// When it is given up on.
    pub(super) fn deadline(&self) -> Timestamp {
        match self.answer {
            BatchAnswer::Awaited(since) | BatchAnswer::Never(since) => since + ANSWER_WITHIN,
            BatchAnswer::Here(since) => since + REFLECTED_WITHIN,
        }
    }

    /// The instances that were not refused.
    pub(super) fn lrps(&self) -> impl Iterator<Item = &LrpStart> {
        self.batch.lrps.iter()
    }

    /// Takes out what the cell refuses. What was not in the batch is not believed. None: it has
    /// answered before, and a second answer says nothing new.
    pub(super) fn answered(&mut self, now: Timestamp, refused: &WorkBatch) -> Option<ReturnedWork> {
        if !self.is_unanswered() {
            return None;
        }
        self.answer = BatchAnswer::Here(now);
        let named = refused.lrps.iter().flat_map(|start| {
            let of = (&start.process_guid, &start.definition_id);
            start.indices.iter().map(move |index| (of, *index))
        });
        let lrps: BTreeSet<((&ProcessGuid, &DefinitionId), u32)> = named.collect();
        let tasks: BTreeSet<&TaskGuid> = refused.tasks.iter().map(|it| &it.task_guid).collect();

        let mut back = ReturnedWork::default();
        for start in &mut self.batch.lrps {
            let indices = std::mem::take(&mut start.indices);
            let (given_back, kept) = indices.into_iter().partition(|index| {
                lrps.contains(&((&start.process_guid, &start.definition_id), *index))
            });
            start.indices = kept;
            let given_back: Vec<u32> = given_back;
            if !given_back.is_empty() {
                back.lrps.push(LrpStart { indices: given_back, ..start.clone() });
            }
        }
        self.batch.lrps.retain(|start| !start.indices.is_empty());
        let all = std::mem::take(&mut self.batch.tasks);
        (back.tasks, self.batch.tasks) =
            all.into_iter().partition(|task| tasks.contains(&task.task_guid));
        // Anew, not by subtraction: a sum that saturated cannot be taken apart.
        self.room = room_of(&self.batch);
        Some(back)
    }
}

fn room_of(batch: &WorkBatch) -> CellCapacity {
    let mut room = CellCapacity::default();
    for start in &batch.lrps {
        (0..start.indices.len()).for_each(|_| grow(&mut room, &start.requirements));
    }
    batch.tasks.iter().for_each(|task| grow(&mut room, &task.requirements));
    room
}

/// Saturating, because no cell has more: what is too much is too much.
fn grow(room: &mut CellCapacity, needs: &Requirements) {
    room.memory_mb = room.memory_mb.saturating_add(needs.memory_mb);
    room.disk_mb = room.disk_mb.saturating_add(needs.disk_mb);
    room.containers = room.containers.saturating_add(1);
}
