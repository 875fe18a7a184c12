//! A batch that was sent to a cell: what it takes there, and whether the cell has answered.

use volvox_protocol::cell::CellCapacity;
use volvox_protocol::request::{LrpStart, Requirements, TaskStart, WorkBatch};

/// Whether the cell has said which of the work it refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Awaited,
    Here,
}

/// A batch on its way, or with a cell whose load does not show it yet.
#[derive(Debug)]
pub(super) struct Sent {
    batch: WorkBatch,
    room: CellCapacity,
    answer: Answer,
    /// The version of the cell's load that the decision was made from.
    load_version: u64,
}

/// What a cell gave back.
#[derive(Debug, Default)]
pub(super) struct Refused {
    pub(super) lrps: Vec<(LrpStart, Vec<u32>)>,
    pub(super) tasks: Vec<TaskStart>,
}

impl Refused {
    pub(super) fn is_empty(&self) -> bool {
        self.lrps.is_empty() && self.tasks.is_empty()
    }
}

impl Sent {
    pub(super) fn new(batch: WorkBatch, load_version: u64) -> Self {
        let mut room = CellCapacity::default();
        for start in &batch.lrps {
            (0..start.indices.len()).for_each(|_| grow(&mut room, &start.requirements));
        }
        batch.tasks.iter().for_each(|task| grow(&mut room, &task.requirements));
        Sent { batch, room, answer: Answer::Awaited, load_version }
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
        self.answer == Answer::Awaited
    }

    /// The instances that were not refused.
    pub(super) fn lrps(&self) -> impl Iterator<Item = &LrpStart> {
        self.batch.lrps.iter()
    }

    /// Takes out what the cell refuses. What was not in the batch is not believed, and a second
    /// answer says nothing new.
    pub(super) fn answered(&mut self, refused: &WorkBatch) -> Refused {
        let mut back = Refused::default();
        if self.answer == Answer::Here {
            return back;
        }
        self.answer = Answer::Here;
        for named in &refused.lrps {
            let of = |start: &&mut LrpStart| {
                (&start.process_guid, &start.definition_id)
                    == (&named.process_guid, &named.definition_id)
            };
            let Some(start) = self.batch.lrps.iter_mut().find(of) else { continue };
            let mut taken = start.indices.clone();
            taken.retain(|index| named.indices.contains(index));
            start.indices.retain(|index| !taken.contains(index));
            if !taken.is_empty() {
                back.lrps.push((start.clone(), taken));
            }
        }
        self.batch.lrps.retain(|start| !start.indices.is_empty());
        for named in &refused.tasks {
            let of = |task: &TaskStart| task.task_guid == named.task_guid;
            if let Some(at) = self.batch.tasks.iter().position(of) {
                back.tasks.push(self.batch.tasks.remove(at));
            }
        }
        for (start, indices) in &back.lrps {
            indices.iter().for_each(|_| shrink(&mut self.room, &start.requirements));
        }
        back.tasks.iter().for_each(|task| shrink(&mut self.room, &task.requirements));
        back
    }
}

/// Saturating, because no cell has more: what is too much is too much.
fn grow(room: &mut CellCapacity, needs: &Requirements) {
    room.memory_mb = room.memory_mb.saturating_add(needs.memory_mb);
    room.disk_mb = room.disk_mb.saturating_add(needs.disk_mb);
    room.containers = room.containers.saturating_add(1);
}

fn shrink(room: &mut CellCapacity, needs: &Requirements) {
    room.memory_mb = room.memory_mb.saturating_sub(needs.memory_mb);
    room.disk_mb = room.disk_mb.saturating_sub(needs.disk_mb);
    room.containers = room.containers.saturating_sub(1);
}
