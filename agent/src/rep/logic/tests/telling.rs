//! What the board tells a cell: definitions, and the records of a sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::actual_lrp::Presence;
use volvox_protocol::cell_rpc::{
    Carried, DefinitionKey, FetchDefinitions, FetchedDefinitions, FetchedLrp, FetchedTask, HeldLrp,
    LrpRecord, OwnRecords, SyncCell, SyncedCell, TaskRecord,
};
use volvox_protocol::definition::{LrpDefinition, MetricTagValue, MetricTags, Routes};
use volvox_protocol::id::TaskGuid;
use volvox_protocol::tables::Whose::Ours;
use volvox_protocol::tables::bbs_task::TaskRecordView;
use volvox_protocol::task::TaskDefinition;

use super::super::KnownDefinition;
use super::board::{Board, Place, Record, Tells, holder};
use super::{cell, domain, process};

impl Board {
    // Definitions.

    pub(super) fn lrp_definition(&self) -> LrpDefinition {
        let path = if self.tells == Tells::Invalid { "" } else { "/bin/serve" };
        LrpDefinition {
            rootfs: "preloaded:linux".to_owned(),
            memory_mb: 10,
            disk_mb: 10,
            action: Some(action(path)),
            ..LrpDefinition::default()
        }
    }

    pub(super) fn fetch(&mut self, asked: FetchDefinitions) -> FetchedDefinitions {
        let mut reply = FetchedDefinitions::default();
        for key in asked.lrps {
            let mut all = self.ordinary.iter().chain(&self.evacuating).chain(&self.suspect);
            let is_ours = |it: &Record| holder(it).is_some_and(|on| on.cell_id == cell());
            let has = all.any(|((of, _), it)| *of == key && is_ours(it));
            if !has || self.tells == Tells::Nothing {
                reply.unknown.lrps.push(key);
            } else if self.tells == Tells::OneAtATime && !reply.lrps.is_empty() {
                reply.left.lrps.push(key);
            } else {
                reply.lrps.push(self.fetched(key));
            }
        }
        for guid in asked.tasks {
            let ours = self.task_view(&guid, &cell()) == TaskRecordView::Running(Ours);
            if !ours || self.tells == Tells::Nothing {
                reply.unknown.tasks.push(guid);
            } else if self.tells == Tells::OneAtATime && !reply.tasks.is_empty() {
                reply.left.tasks.push(guid);
            } else {
                let definition = TaskDefinition {
                    rootfs: "preloaded:linux".to_owned(),
                    action: self.lrp_definition().action,
                    ..TaskDefinition::default()
                };
                let is_rubbish = self.tells == Tells::Rubbish;
                let definition = if is_rubbish { rubbish() } else { Carried::new(&definition) };
                reply.tasks.push(FetchedTask { task_guid: guid, domain: domain(), definition });
            }
        }
        reply
    }

    fn tags(&self) -> MetricTags {
        [("color".to_owned(), MetricTagValue::Static(self.color.clone()))].into()
    }

    /// The definition, as a cell that has fetched it knows it.
    pub(super) fn known(&self) -> Arc<KnownDefinition> {
        Arc::new(KnownDefinition {
            modification_tag: self.tag,
            definition: Arc::new(self.lrp_definition()),
            metric_tags: self.tags(),
            routes: Routes::default(),
        })
    }

    fn fetched(&self, key: DefinitionKey) -> FetchedLrp {
        let tags = self.tags();
        let is_rubbish = self.tells == Tells::Rubbish;
        let definition = if is_rubbish { rubbish() } else { Carried::new(&self.lrp_definition()) };
        FetchedLrp {
            key,
            domain: domain(),
            modification_tag: self.tag,
            definition,
            metric_tags: Carried::new(&tags),
            routes: Carried::new(&Routes::default()),
        }
    }

    // Syncs.

    pub(super) fn sync(&self, asked: &SyncCell) -> SyncedCell {
        let mut lrps = Vec::new();
        for held in &asked.lrps {
            self.records_at(held, &mut lrps);
        }
        let named = asked.tasks.iter().map(|it| it.task_guid.clone());
        let mut tasks: BTreeSet<TaskGuid> = named.collect();
        if asked.own != OwnRecords::None {
            for (presence, records) in self.all() {
                for (at, it) in records {
                    if holder(it).is_some_and(|on| on.cell_id == cell()) {
                        lrps.push(told(presence, at, it));
                    }
                }
            }
            let own = self.tasks.iter().filter(|(_, it)| it.cell == Some(cell()));
            tasks.extend(own.map(|(guid, _)| guid.clone()));
        }
        let task = |guid: TaskGuid| {
            let it = self.tasks.get(&guid)?;
            let (state, cell_id) = (it.state, it.cell.clone());
            Some(TaskRecord { task_guid: guid, domain: domain(), state, cell_id })
        };
        SyncedCell {
            answered_lrps: u32::try_from(asked.lrps.len()).unwrap(),
            answered_tasks: u32::try_from(asked.tasks.len()).unwrap(),
            processes: if lrps.is_empty() { vec![] } else { vec![(process(), self.tag)] },
            lrps,
            tasks: tasks.into_iter().filter_map(task).collect(),
            more: OwnRecords::None,
        }
    }

    fn all(&self) -> [(Presence, &BTreeMap<Place, Record>); 3] {
        [
            (Presence::Ordinary, &self.ordinary),
            (Presence::Evacuating, &self.evacuating),
            (Presence::Suspect, &self.suspect),
        ]
    }

    fn records_at(&self, held: &HeldLrp, lrps: &mut Vec<LrpRecord>) {
        let of = DefinitionKey {
            process_guid: held.process_guid.clone(),
            definition_id: held.definition_id.clone(),
        };
        let at = (of, held.index);
        for (presence, records) in self.all() {
            lrps.extend(records.get(&at).map(|it| told(presence, &at, it)));
        }
    }
}

fn told(presence: Presence, (of, index): &Place, it: &Record) -> LrpRecord {
    let own = holder(it).is_some_and(|on| on.cell_id == cell());
    LrpRecord {
        process_guid: of.process_guid.clone(),
        definition_id: of.definition_id.clone(),
        index: *index,
        domain: domain(),
        presence,
        state: it.state.clone(),
        stopping: it.stopping,
        reported: it.reported.clone().filter(|_| own),
    }
}

fn action(path: &str) -> Action {
    let (path, user) = (path.to_owned(), "root".to_owned());
    Action::Run(Box::new(RunAction { path, user, ..RunAction::default() }))
}

/// Bytes that are no definition.
fn rubbish<T>() -> Carried<T> {
    let bytes = postcard::to_stdvec(&vec![0xff_u8; 3]).unwrap();
    postcard::from_bytes(&bytes).unwrap()
}
