//! Syncs: what the board has of this cell, read when the two may differ. Of one container, before it
//! is deleted alive; of all, after each new contact with a coordinator and when it says so.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use volvox_protocol::actual_lrp::{LrpKey, Presence};
use volvox_protocol::cell_rpc::{
    HeldLrp, HeldTask, LrpRecord, OwnRecords, SyncCell, SyncedCell, TaskRecord,
};
use volvox_protocol::request::{CellRequest, TaskOutcome};
use volvox_protocol::task::TaskState;
use volvox_protocol::time::Timestamp;

use super::definitions::Fetch;
use super::{AskFailure, BoardRecord, Freshness, PendingOp, Rep, definition_of};
use crate::container::guid::ContainerGuid;
use crate::executor::workload::Owner;
use crate::rep::view;

/// How long to wait after a sync that failed.
const AGAIN: Duration = Duration::from_millis(200);

/// What is to be read, and what is being read.
#[derive(Debug, Default)]
pub(super) struct Syncing {
    full: bool,
    wanted: BTreeSet<ContainerGuid>,
    under_way: Option<UnderWay>,
    not_before: Timestamp,
}

#[derive(Debug)]
struct UnderWay {
    full: bool,
    /// The version that each container had when it was asked for.
    versions: BTreeMap<ContainerGuid, u64>,
}

impl Syncing {
    pub(super) fn want_full(&mut self) {
        self.full = true;
    }

    pub(super) fn want(&mut self, guid: ContainerGuid) {
        self.wanted.insert(guid);
    }

    pub(super) fn clear(&mut self) {
        *self = Syncing::default();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_none() && !self.full && self.wanted.is_empty()
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        let waits = self.under_way.is_none() && (self.full || !self.wanted.is_empty());
        waits.then_some(self.not_before)
    }
}

impl Rep {
    pub(super) fn begin_sync(&mut self, now: Timestamp) {
        let can = self.coordinator.is_some() && self.syncing.due().is_some_and(|due| due <= now);
        if !can {
            return;
        }
        let full = std::mem::take(&mut self.syncing.full);
        let wanted = std::mem::take(&mut self.syncing.wanted);
        let own = if full { OwnRecords::After(0) } else { OwnRecords::None };
        let mut asked = SyncCell { lrps: Vec::new(), tasks: Vec::new(), own };
        let mut versions = BTreeMap::new();
        for (guid, entry) in &self.entries {
            let Some(state) = entry.state().filter(|_| full || wanted.contains(guid)) else {
                continue;
            };
            match &entry.owner {
                Owner::Lrp { key, instance } => {
                    let of = definition_of(key);
                    asked.lrps.push(HeldLrp {
                        process_guid: of.process_guid,
                        definition_id: of.definition_id,
                        index: key.index,
                        instance_guid: instance.clone(),
                        state,
                    });
                }
                Owner::Task { guid, .. } => {
                    asked.tasks.push(HeldTask { task_guid: guid.clone(), state });
                }
                Owner::Local(_) => continue,
            }
            versions.insert(guid.clone(), entry.version);
        }
        // What is gone meanwhile needs no reading.
        for guid in wanted {
            if !versions.contains_key(&guid)
                && let Some(entry) = self.entries.get_mut(&guid)
                && entry.busy == PendingOp::Reading
            {
                entry.busy = PendingOp::No;
                self.forget_if_over(&guid);
            }
        }
        self.syncing.under_way = Some(UnderWay { full, versions });
        self.effects.push(super::RepOutput::Sync(self.contact, asked));
    }

    pub(super) fn synced(&mut self, now: Timestamp, outcome: Result<Vec<SyncedCell>, AskFailure>) {
        let Some(asked) = self.syncing.under_way.take() else { return };
        let Ok(pages) = outcome else {
            self.syncing.not_before = now + AGAIN;
            self.syncing.full |= asked.full;
            for guid in asked.versions.into_keys() {
                if self.entries.get(&guid).is_some_and(|it| it.busy == PendingOp::Reading) {
                    self.syncing.wanted.insert(guid);
                }
            }
            return;
        };
        let records = SyncedRecords::of(&pages);
        for (guid, version) in &asked.versions {
            let look = self.believe_record(guid, *version, &records);
            self.evaluate(now, guid, look);
            self.stop_if_told(now, guid, &records);
            // It may be gone by now.
            self.forget_if_over(guid);
        }
        if asked.full {
            self.settle_missing(&asked.versions, &pages);
            self.forget_unmade(now);
            self.fetch_changed(&pages);
        }
    }

    fn believe_record(
        &mut self,
        guid: &ContainerGuid,
        version: u64,
        records: &SyncedRecords<'_>,
    ) -> Freshness {
        let cell = self.settings.cell_id.clone();
        let Some(entry) = self.entries.get_mut(guid) else { return Freshness::Believed };
        if entry.busy == PendingOp::Reading {
            entry.busy = PendingOp::No;
        }
        if entry.version != version || entry.busy == PendingOp::Asking {
            // The board has answered meanwhile, or is about to: that is later than what was read.
            return Freshness::Believed;
        }
        entry.belief = match &entry.owner {
            Owner::Lrp { key, instance } => {
                let own = volvox_protocol::actual_lrp::InstanceKey {
                    instance_guid: instance.clone(),
                    cell_id: cell,
                };
                let record = view::judged_by(records.at(key).into_iter(), &own);
                let reported = record.and_then(|it| it.reported.clone());
                BoardRecord::Lrp(view::of_record(record, &own), reported)
            }
            Owner::Task { guid: task, .. } => {
                BoardRecord::Task(view::of_task(records.tasks.get(task.as_str()).copied(), &cell))
            }
            Owner::Local(_) => return Freshness::Believed,
        };
        Freshness::Fresh
    }

    /// An order to stop may have been lost.
    fn stop_if_told(&mut self, now: Timestamp, guid: &ContainerGuid, records: &SyncedRecords<'_>) {
        let Some(entry) = self.entries.get(guid) else { return };
        let Owner::Lrp { key, instance } = &entry.owner else { return };
        let own = self.on(instance);
        let told = records.at(key).iter().any(|it| it.stopping && view::held_by(it) == Some(&own));
        let stops = entry.stop && entry.container.as_ref().is_none_or(|it| it.container.stopped);
        if told && !stops {
            self.stop(now, guid);
        }
    }

    /// Records that name this cell, and no container of ours.
    fn settle_missing(&mut self, asked: &BTreeMap<ContainerGuid, u64>, pages: &[SyncedCell]) {
        let cell = self.settings.cell_id.clone();
        let has = |rep: &Rep, guid: &ContainerGuid| {
            asked.contains_key(guid)
                || rep.entries.get(guid).is_some_and(|it| {
                    it.container.is_some() || it.busy != PendingOp::No || it.alone.is_restarting()
                })
        };
        for record in pages.iter().flat_map(|it| &it.lrps) {
            let Some(on) = view::held_by(record).filter(|on| on.cell_id == cell) else { continue };
            let guid = ContainerGuid::from(on.instance_guid.clone());
            // An evacuating record goes whenever there is no container, also one that was there when
            // the sync began: nothing else will remove it.
            let stays = match record.presence {
                Presence::Evacuating => self
                    .entries
                    .get(&guid)
                    .is_some_and(|it| it.container.is_some() || it.busy == PendingOp::Reserving),
                Presence::Ordinary | Presence::Suspect => has(self, &guid),
            };
            if stays {
                continue;
            }
            let key = LrpKey {
                process_guid: record.process_guid.clone(),
                index: record.index,
                domain: record.domain.clone(),
                definition_id: Some(record.definition_id.clone()),
            };
            let request = match record.presence {
                Presence::Evacuating => CellRequest::RemoveEvacuating(key, on.clone()),
                Presence::Ordinary | Presence::Suspect => CellRequest::RemoveLrp(key, on.clone()),
            };
            self.reports.queue_once(request);
        }
        for task in pages.iter().flat_map(|it| &it.tasks) {
            let ours = task.state == TaskState::Running && task.cell_id.as_ref() == Some(&cell);
            if ours && !has(self, &ContainerGuid::from(&task.task_guid)) {
                let lost = TaskOutcome::failed_because(self.why_lost());
                let request = CellRequest::CompleteTask(task.task_guid.clone(), cell.clone(), lost);
                self.reports.queue_once(request);
            }
        }
    }

    /// The coordinator is there: what was assigned and has no container is its business now.
    fn forget_unmade(&mut self, now: Timestamp) {
        if self.is_alone(now) {
            return;
        }
        let unmade: Vec<ContainerGuid> = self
            .entries
            .iter()
            .filter(|(_, it)| it.container.is_none() && !it.alone.is_restarting())
            .map(|(guid, _)| guid.clone())
            .collect();
        unmade.iter().for_each(|guid| self.forget_if_over(guid));
    }

    /// Routes and tags that are others than those we have.
    fn fetch_changed(&mut self, pages: &[SyncedCell]) {
        for (process, tag) in pages.iter().flat_map(|it| &it.processes) {
            let old = self.definitions.iter().filter(|(key, known)| {
                key.process_guid == *process && known.modification_tag != *tag
            });
            let old: Vec<Fetch> = old.map(|(key, _)| Fetch::Lrp(key.clone())).collect();
            old.into_iter().for_each(|it| self.fetching.want(it));
        }
        // After a restart of the agent nothing is known of what runs on.
        let unknown = self.entries.values().filter_map(|entry| match &entry.owner {
            Owner::Lrp { key, .. } => Some(definition_of(key)),
            Owner::Task { .. } | Owner::Local(_) => None,
        });
        let unknown = unknown.filter(|key| !self.definitions.contains_key(key)).map(Fetch::Lrp);
        let unknown: Vec<Fetch> = unknown.collect();
        unknown.into_iter().for_each(|it| self.fetching.want(it));
    }
}

/// The records of all pages, to be found by index.
struct SyncedRecords<'a> {
    lrps: BTreeMap<(&'a str, &'a str, u32), Vec<&'a LrpRecord>>,
    tasks: BTreeMap<&'a str, &'a TaskRecord>,
}

impl<'a> SyncedRecords<'a> {
    fn of(pages: &'a [SyncedCell]) -> Self {
        let mut lrps: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in pages.iter().flat_map(|it| &it.lrps) {
            let at = (record.process_guid.as_str(), record.definition_id.as_str(), record.index);
            lrps.entry(at).or_default().push(record);
        }
        let tasks = pages.iter().flat_map(|it| &it.tasks);
        SyncedRecords { lrps, tasks: tasks.map(|it| (it.task_guid.as_str(), it)).collect() }
    }

    fn at(&self, key: &LrpKey) -> Vec<&'a LrpRecord> {
        let of = definition_of(key);
        let at = (of.process_guid.as_str(), of.definition_id.as_str(), key.index);
        self.lrps.get(&at).cloned().unwrap_or_default()
    }
}
