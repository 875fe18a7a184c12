//! What a cell is told of the records: definitions of what it has, and pages of a sync.
//!
//! Definitions hold passwords. So a cell is told only of those that the board has it down for: of
//! instances that it has claimed, runs or evacuates, and of tasks that it has started.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeSet;

use volvox_protocol::exchange::{
    Carried, FetchDefinitions, FetchedDefinitions, FetchedLrp, FetchedTask, HeldLrp, HeldTask,
    LrpRecord, OwnRecords, SyncCell, SyncedCell, TaskRecord, size,
};
use volvox_protocol::id::{CellId, DefinitionId, ProcessGuid};
use volvox_protocol::limits::{FETCH_BYTES, SYNC_BYTES, SYNC_ITEMS};
use volvox_protocol::task::TaskState;

use crate::bbs::command::RowId;
use crate::bbs::state::Records;

/// The definitions that `cell` asks for, as far as they are its business and fit.
pub fn fetch(records: &Records, cell: &CellId, asked: FetchDefinitions) -> FetchedDefinitions {
    let mut reply = FetchedDefinitions::default();
    if asked.is_empty() {
        return reply;
    }
    let has: BTreeSet<(&ProcessGuid, &DefinitionId)> = if asked.lrps.is_empty() {
        BTreeSet::new()
    } else {
        records.instances_on(cell).map(|lrp| (&lrp.process_guid, &lrp.definition_id)).collect()
    };
    let mut room = Room::new(FETCH_BYTES);
    for key in asked.lrps {
        let deployment = records.deployment(&key.process_guid).map(|(_, deployment)| deployment);
        let known = deployment.filter(|_| has.contains(&(&key.process_guid, &key.definition_id)));
        let known = known.and_then(|it| Some((it, it.definitions.get(&key.definition_id)?)));
        let Some((deployment, definition)) = known else {
            reply.unknown.lrps.push(key);
            continue;
        };
        let fetched = FetchedLrp {
            key,
            domain: deployment.domain.clone(),
            modification_tag: deployment.modification_tag,
            definition: Carried::packed(definition.packed()),
            metric_tags: Carried::packed(&deployment.metric_tags),
            routes: Carried::packed(&deployment.routes),
        };
        if room.take(size(&fetched)) {
            reply.lrps.push(fetched);
        } else {
            reply.left.lrps.push(fetched.key);
        }
    }
    for guid in asked.tasks {
        let known = records.task(&guid).map(|(_, task)| task);
        let known = known
            .filter(|task| task.state == TaskState::Running && task.cell_id.as_ref() == Some(cell));
        let Some(task) = known else {
            reply.unknown.tasks.push(guid);
            continue;
        };
        let definition = Carried::new(&*task.definition);
        let fetched = FetchedTask { task_guid: guid, domain: task.domain.clone(), definition };
        if room.take(size(&fetched)) {
            reply.tasks.push(fetched);
        } else {
            reply.left.tasks.push(fetched.task_guid);
        }
    }
    reply
}

/// One page of a sync.
pub fn sync(records: &Records, cell: &CellId, asked: &SyncCell) -> SyncedCell {
    let mut page = Page {
        cell,
        room: Room::new(SYNC_BYTES),
        reply: SyncedCell {
            answered_lrps: 0,
            answered_tasks: 0,
            lrps: Vec::new(),
            tasks: Vec::new(),
            processes: Vec::new(),
            more: asked.own,
        },
    };
    page.answer_lrps(records, &asked.lrps);
    page.answer_tasks(records, &asked.tasks);
    let answered = page.reply.answered_lrps as usize == asked.lrps.len()
        && page.reply.answered_tasks as usize == asked.tasks.len();
    if let (OwnRecords::After(row), true) = (asked.own, answered) {
        page.reply.more = page.own(records, RowId(row));
    }
    let mut reply = page.reply;
    let processes: BTreeSet<&ProcessGuid> =
        reply.lrps.iter().map(|lrp| &lrp.process_guid).collect();
    reply.processes = processes
        .into_iter()
        .filter_map(|process| {
            let (_, deployment) = records.deployment(process)?;
            Some((process.clone(), deployment.modification_tag))
        })
        .collect();
    reply
}

/// What differs between what the cell says it has and what the records say, in numbers: for the log.
pub fn differences(records: &Records, cell: &CellId, asked: &SyncCell) -> usize {
    use volvox_protocol::digest::Item;
    let lrp = |held: &HeldLrp| {
        let process = records.process(&held.process_guid);
        let slots = process.map_or(&[][..], |it| it.at(&held.definition_id, held.index));
        let own = slots.iter().find(|slot| {
            slot.lrp
                .instance()
                .is_some_and(|it| it.instance_guid == held.instance_guid && it.cell_id == *cell)
        });
        Item::of_container(&held.instance_guid, held.state)
            != own.and_then(|slot| Item::of_record(&slot.lrp))
    };
    let task = |held: &HeldTask| {
        let known = records.task(&held.task_guid).map(|(_, task)| task);
        let own = known.filter(|task| task.cell_id.as_ref() == Some(cell));
        Item::of_task_container(&held.task_guid, held.state)
            != own.and_then(|task| Item::of_task(task))
    };
    asked.lrps.iter().filter(|held| lrp(held)).count()
        + asked.tasks.iter().filter(|held| task(held)).count()
}

/// Bytes that are left in a reply. The first entry always fits: none is longer than a reply may be.
struct Room {
    left: usize,
    used: bool,
}

impl Room {
    const fn new(bytes: usize) -> Self {
        Room { left: bytes, used: false }
    }

    fn take(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.left || !self.used;
        if fits {
            self.left = self.left.saturating_sub(bytes);
            self.used = true;
        } else {
            // What comes later is not let past what was left.
            self.left = 0;
        }
        fits
    }
}

struct Page<'a> {
    cell: &'a CellId,
    room: Room,
    reply: SyncedCell,
}

impl Page<'_> {
    fn answer_lrps(&mut self, records: &Records, asked: &[HeldLrp]) {
        for held in asked {
            let process = records.process(&held.process_guid);
            let slots = process.map_or(&[][..], |it| it.at(&held.definition_id, held.index));
            let found: Vec<LrpRecord> =
                slots.iter().map(|slot| LrpRecord::for_cell(&slot.lrp, self.cell)).collect();
            if !self.room.take(found.iter().map(size).sum()) {
                return;
            }
            self.reply.lrps.extend(found);
            self.reply.answered_lrps += 1;
        }
    }

    fn answer_tasks(&mut self, records: &Records, asked: &[HeldTask]) {
        for held in asked {
            let found = records.task(&held.task_guid).map(|(_, task)| TaskRecord::from(&**task));
            if !self.room.take(found.iter().map(size).sum()) {
                return;
            }
            self.reply.tasks.extend(found);
            self.reply.answered_tasks += 1;
        }
    }

    /// Records that name the cell, from the first after `row` on, as many as fit.
    fn own(&mut self, records: &Records, row: RowId) -> OwnRecords {
        let mut lrps = records.instances_on_after(self.cell, row).peekable();
        let mut tasks = records.tasks_on_after(self.cell, row).peekable();
        let mut last = row;
        for _ in 0..SYNC_ITEMS {
            let lrp_first = match (lrps.peek(), tasks.peek()) {
                (None, None) => return OwnRecords::None,
                (Some((lrp, _)), Some((task, _))) => lrp < task,
                (lrp, _) => lrp.is_some(),
            };
            if lrp_first {
                let Some((at, lrp)) = lrps.next() else { break };
                let record = LrpRecord::for_cell(lrp, self.cell);
                if !self.room.take(size(&record)) {
                    break;
                }
                self.reply.lrps.push(record);
                last = at;
            } else {
                let Some((at, task)) = tasks.next() else { break };
                let record = TaskRecord::from(&**task);
                if !self.room.take(size(&record)) {
                    break;
                }
                self.reply.tasks.push(record);
                last = at;
            }
        }
        OwnRecords::After(last.0)
    }
}
