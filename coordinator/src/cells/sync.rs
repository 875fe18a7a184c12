//! What a cell is told of the records: definitions of what it has, and pages of a sync.
//!
//! Definitions hold passwords. So a cell is told only of those that the board has it down for: of
//! instances that it has claimed, runs or evacuates, and of tasks that it has started.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::BTreeSet;

use volvox_protocol::cell_rpc::{
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
    let mut room = ByteBudget::new(FETCH_BYTES);
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

/// How much fits on a page of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize {
    /// Records that name the cell.
    pub items: usize,
    /// Bytes of all records.
    pub bytes: usize,
}

impl PageSize {
    /// As the protocol has it.
    pub const FULL: PageSize = PageSize { items: SYNC_ITEMS, bytes: SYNC_BYTES };
}

/// One page of a sync.
pub fn sync(records: &Records, cell: &CellId, asked: &SyncCell, page_size: PageSize) -> SyncedCell {
    let mut page = Page {
        cell,
        most: page_size.items,
        room: ByteBudget::new(page_size.bytes),
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
    use volvox_protocol::digest::DigestItem;
    let lrp = |held: &HeldLrp| {
        let process = records.process(&held.process_guid);
        let slots = process.map_or(&[][..], |it| it.at(&held.definition_id, held.index));
        let own = slots.iter().find(|slot| {
            slot.lrp
                .instance()
                .is_some_and(|it| it.instance_guid == held.instance_guid && it.cell_id == *cell)
        });
        DigestItem::of_container(&held.instance_guid, held.state)
            != own.and_then(|slot| DigestItem::of_record(&slot.lrp))
    };
    let task = |held: &HeldTask| {
        let known = records.task(&held.task_guid).map(|(_, task)| task);
        let own = known.filter(|task| task.cell_id.as_ref() == Some(cell));
        DigestItem::of_task_container(&held.task_guid, held.state)
            != own.and_then(|task| DigestItem::of_task(task))
    };
    asked.lrps.iter().filter(|held| lrp(held)).count()
        + asked.tasks.iter().filter(|held| task(held)).count()
}

/// Bytes that are left in a reply. The first entry always fits: none is longer than a reply may be.
struct ByteBudget {
    left: usize,
    used: bool,
}

impl ByteBudget {
    const fn new(bytes: usize) -> Self {
        ByteBudget { left: bytes, used: false }
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
    most: usize,
    room: ByteBudget,
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
        for _ in 0..self.most {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, NetInfo, Running, Tags};
    use volvox_protocol::cell::CellPresence;
    use volvox_protocol::cell_rpc::{DefinitionKey, RecordState};
    use volvox_protocol::container::ContainerState;
    use volvox_protocol::id::{Domain, InstanceGuid, TaskGuid};
    use volvox_protocol::request::CellRequest;
    use volvox_protocol::time::Timestamp;
    use volvox_protocol::validate::Valid;

    use super::*;
    use crate::bbs::command::Command;
    use crate::bbs::logic::Board;
    use crate::bbs::settings::BoardSettings;

    fn cell(name: &str) -> CellId {
        CellId::new(name).unwrap()
    }

    fn does(board: &mut Board, command: Command) {
        board.apply(Timestamp::from_secs(1_000), 1, command).unwrap();
    }

    fn key(process: &str, index: u32) -> LrpKey {
        let process_guid = ProcessGuid::new(process).unwrap();
        LrpKey { process_guid, index, domain: Domain::new("d").unwrap(), definition_id: None }
    }

    fn on(cell_name: &str, guid: &str) -> InstanceKey {
        InstanceKey { instance_guid: InstanceGuid::new(guid).unwrap(), cell_id: cell(cell_name) }
    }

    fn running(tag: &str) -> Arc<Running> {
        Arc::new(Running {
            net_info: NetInfo { address: "192.0.2.1".into(), ..NetInfo::default() },
            internal_routes: Box::default(),
            metric_tags: [("t".to_owned(), tag.to_owned())].into_iter().collect::<Tags>(),
            routable: true,
            availability_zone: "z".into(),
        })
    }

    /// So many instances of `p` on cell a, with an annotation of that length, and task `t` on it.
    fn board(instances: u32, variable: usize, tag: usize) -> Board {
        let mut board = Board::new(BoardSettings::default());
        for name in ["a", "b"] {
            does(&mut board, Command::CellPresence(cell(name), CellPresence::Present));
        }
        let action = json!({"run": {"path": "/bin/true", "user": "root"}});
        for process in ["p", "q"] {
            let desired = json!({
                "process_guid": process, "domain": "d", "rootfs": "preloaded:linux",
                "instances": instances, "action": action,
                "env": [{"name": "V", "value": "x".repeat(variable)}],
            });
            let desired = Valid::new(serde_json::from_value(desired).unwrap()).unwrap();
            does(&mut board, Command::DesireLrp(Box::new(desired)));
        }
        let definition = json!({"rootfs": "preloaded:linux", "action": action});
        let definition = Valid::new(serde_json::from_value(definition).unwrap()).unwrap();
        let (task, domain) = (TaskGuid::new("t").unwrap(), Domain::new("d").unwrap());
        does(&mut board, Command::DesireTask(task.clone(), domain, Box::new(definition)));
        let mut says = |request| does(&mut board, Command::Cell(Valid::new(request).unwrap()));
        for index in 0..instances {
            let tag = running(&"x".repeat(tag));
            says(CellRequest::StartLrp(key("p", index), on("a", &format!("p{index}")), tag));
        }
        says(CellRequest::ClaimLrp(key("q", 0), on("b", "q0")));
        says(CellRequest::StartTask(task, cell("a")));
        board
    }

    fn definition(process: &str) -> DefinitionKey {
        let process_guid = ProcessGuid::new(process).unwrap();
        DefinitionKey { definition_id: (&process_guid).into(), process_guid }
    }

    fn held(process: &str, index: u32, guid: &str) -> HeldLrp {
        let DefinitionKey { process_guid, definition_id } = definition(process);
        HeldLrp {
            process_guid,
            definition_id,
            index,
            instance_guid: InstanceGuid::new(guid).unwrap(),
            state: ContainerState::Running,
        }
    }

    #[test]
    fn a_cell_is_told_what_it_has_work_of() {
        let board = board(2, 10, 1);
        let task = TaskGuid::new("t").unwrap();
        let asked = FetchDefinitions {
            lrps: vec![definition("p"), definition("q"), definition("none")],
            tasks: vec![task.clone(), TaskGuid::new("none").unwrap()],
        };
        let told = fetch(board.records(), &cell("a"), asked.clone());
        assert_eq!(told.lrps.iter().map(|it| &it.key).collect::<Vec<_>>(), [&definition("p")]);
        assert_eq!(told.tasks.iter().map(|it| &it.task_guid).collect::<Vec<_>>(), [&task]);
        assert_eq!(told.unknown.lrps, [definition("q"), definition("none")]);
        assert_eq!(told.unknown.tasks, [TaskGuid::new("none").unwrap()]);
        assert!(told.left.is_empty());
        let told = fetch(board.records(), &cell("b"), asked);
        assert_eq!(told.lrps.iter().map(|it| &it.key).collect::<Vec<_>>(), [&definition("q")]);
        assert_eq!(told.unknown.tasks.len(), 2);
    }

    #[test]
    fn what_does_not_fit_is_named_and_comes_with_the_next_question() {
        let board = board(1, 100_000, 1);
        let mut asked = FetchDefinitions { lrps: vec![definition("p"); 25], tasks: vec![] };
        let mut got = 0;
        while !asked.is_empty() {
            let told = fetch(board.records(), &cell("a"), asked);
            assert!(size(&told) < 2 * FETCH_BYTES && !told.lrps.is_empty());
            got += told.lrps.len();
            asked = told.left;
        }
        assert_eq!(got, 25);
    }

    #[test]
    fn a_sync_tells_of_every_record_at_an_index_and_of_all_that_name_the_cell() {
        let mut board = board(3, 1, 1);
        let evacuate = CellRequest::EvacuateRunning(key("p", 1), on("a", "p1"), running("x"));
        does(&mut board, Command::Cell(Valid::new(evacuate).unwrap()));
        let asked = SyncCell {
            lrps: vec![held("p", 1, "p1"), held("q", 0, "mine"), held("gone", 0, "g")],
            tasks: vec![HeldTask {
                task_guid: TaskGuid::new("t").unwrap(),
                state: ContainerState::Running,
            }],
            own: OwnRecords::None,
        };
        let told = sync(board.records(), &cell("a"), &asked, PageSize::FULL);
        assert_eq!((told.answered_lrps, told.answered_tasks), (3, 1));
        let at = |process: &'static str| {
            told.lrps.iter().filter(move |it| it.process_guid.as_str() == process)
        };
        assert_eq!(at("p").count(), 2, "the evacuating and the ordinary one");
        assert!(at("p").any(|it| it.state == RecordState::Unclaimed));
        assert!(
            matches!(&at("q").next().unwrap().state, RecordState::Claimed(on) if on.cell_id == cell("b"))
        );
        assert_eq!((at("gone").count(), told.tasks.len(), told.processes.len()), (0, 1, 2));
        let own = SyncCell { lrps: vec![], tasks: vec![], own: OwnRecords::After(0) };
        let told = sync(board.records(), &cell("a"), &own, PageSize::FULL);
        assert_eq!((told.lrps.len(), told.tasks.len(), told.more), (3, 1, OwnRecords::None));
        assert!(told.lrps.iter().all(|it| it.reported.is_some()));
        assert_eq!(differences(board.records(), &cell("a"), &asked), 2);
    }

    #[test]
    fn pages_of_a_sync_hold_everything_once() {
        // 4 KB for each record: some 250 fit into a page.
        let board = board(600, 1, 4_000);
        let mut asked = SyncCell {
            lrps: (0..600).map(|index| held("p", index, "x")).collect(),
            tasks: vec![],
            own: OwnRecords::After(0),
        };
        let (mut answered, mut own, mut pages) = (0, 0, 0);
        while !asked.lrps.is_empty() || asked.own != OwnRecords::None {
            let told = sync(board.records(), &cell("a"), &asked, PageSize::FULL);
            assert!(size(&told) < 2 * SYNC_BYTES, "{} bytes", size(&told));
            asked.lrps.drain(..told.answered_lrps as usize);
            answered += told.answered_lrps;
            own += told.lrps.len() - told.answered_lrps as usize + told.tasks.len();
            asked.own = told.more;
            pages += 1;
        }
        assert_eq!((answered, own), (600, 601), "600 instances and a task name the cell");
        assert!(pages >= 5, "{pages} pages");
    }
}
