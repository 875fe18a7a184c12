//! A full sync: all that the rep has, page by page, and what the tables say to the records.

use std::sync::atomic::Ordering;

use volvox_mesh::driver::Mesh;
use volvox_mesh::identity::MemberId;
use volvox_mesh::request::AskError;
use volvox_protocol::actual_lrp::{InstanceKey, LrpKey, Presence};
use volvox_protocol::cell_rpc::{
    HeldLrp, HeldTask, LrpRecord, OwnRecords, RecordState, SyncCell, SyncedCell, TaskRecord,
};
use volvox_protocol::container::ContainerState;
use volvox_protocol::id::{CellId, InstanceGuid};
use volvox_protocol::limits::SYNC_ITEMS;
use volvox_protocol::request::{CellRequest, TaskOutcome};
use volvox_protocol::tables::Whose;
use volvox_protocol::tables::rep_lrp::{ContainerPhase, LrpAction, LrpView, rep_lrp};
use volvox_protocol::tables::rep_task::{TaskAction, TaskContainerView, TaskView, rep_task};
use volvox_protocol::task::TaskState;

use super::{ANSWER_WITHIN, Deed, Rep, SyncWish, definition_of};

/// What a sync was about, and what came of it.
pub struct Synced {
    lrps: Vec<HeldLrp>,
    tasks: Vec<HeldTask>,
    replies: Vec<SyncedCell>,
}

impl Rep {
    pub(super) fn begin_sync(&mut self) {
        let (Some(coordinator), SyncWish::Wanted) = (self.coordinator, self.sync) else { return };
        self.sync = SyncWish::UnderWay;
        self.stats.syncs.fetch_add(1, Ordering::Relaxed);
        let lrps = self.instances.iter().map(|(guid, it)| {
            let key = definition_of(&it.key);
            HeldLrp {
                process_guid: key.process_guid,
                definition_id: key.definition_id,
                index: it.key.index,
                instance_guid: guid.clone(),
                state: it.state,
            }
        });
        let lrps: Vec<HeldLrp> = lrps.collect();
        let tasks = self.tasks.iter();
        let tasks: Vec<HeldTask> =
            tasks.map(|(guid, it)| HeldTask { task_guid: guid.clone(), state: it.state }).collect();
        let (deeds, mesh) = (self.deeds.clone(), self.mesh.clone());
        tokio::spawn(async move {
            let outcome = ask_all(&mesh, coordinator, lrps, tasks).await;
            let _ended = deeds.send(Deed::Synced(Box::new(outcome))).await;
        });
    }

    pub(super) fn synced(&mut self, outcome: Result<Synced, AskError>) {
        self.sync = SyncWish::None;
        let Ok(Synced { lrps, tasks, replies }) = outcome else {
            self.sync = SyncWish::Wanted;
            self.later(super::AGAIN, Deed::Again);
            return;
        };
        let records: Vec<&LrpRecord> = replies.iter().flat_map(|it| &it.lrps).collect();
        for held in &lrps {
            self.settle(held, &records);
        }
        let ours = |record: &&&LrpRecord| held_by(record).is_some_and(|it| it.cell_id == self.id);
        let gone: Vec<LrpRecord> = records
            .iter()
            .filter(ours)
            .filter(|it| held_by(it).is_some_and(|on| !self.has(&on.instance_guid, &lrps)))
            .map(|it| (*it).clone())
            .collect();
        gone.into_iter().for_each(|record| self.settle_gone(&record));
        let task_records: Vec<&TaskRecord> = replies.iter().flat_map(|it| &it.tasks).collect();
        for held in &tasks {
            let record = task_records.iter().find(|it| it.task_guid == held.task_guid);
            self.settle_task(held, record.copied());
        }
        for record in task_records {
            let ours =
                record.state == TaskState::Running && record.cell_id.as_ref() == Some(&self.id);
            if ours && !self.tasks.contains_key(&record.task_guid) {
                let lost = TaskOutcome::failed_because("the cell has lost it");
                let (task, cell) = (record.task_guid.clone(), self.id.clone());
                self.wish(CellRequest::CompleteTask(task, cell, lost));
            }
        }
        let old: Vec<_> = replies
            .iter()
            .flat_map(|it| &it.processes)
            .flat_map(|(process, tag)| {
                let known = self.definitions.iter();
                known
                    .filter(move |(key, it)| {
                        key.process_guid == *process && it.modification_tag != *tag
                    })
                    .map(|(key, _)| key.clone())
            })
            .collect();
        if !old.is_empty() {
            self.fetch(old);
        }
    }

    fn has(&self, guid: &InstanceGuid, held: &[HeldLrp]) -> bool {
        self.instances.contains_key(guid) || held.iter().any(|it| it.instance_guid == *guid)
    }

    /// One instance that we had when the sync began.
    fn settle(&mut self, held: &HeldLrp, records: &[&LrpRecord]) {
        let guid = &held.instance_guid;
        let Some(instance) = self.instances.get(guid) else { return };
        if instance.state != held.state || self.evacuating {
            return;
        }
        let (key, stopped) = (instance.key.clone(), instance.stopped);
        let mut at_index = records.iter().filter(|it| {
            it.process_guid == held.process_guid
                && it.definition_id == held.definition_id
                && it.index == held.index
        });
        let ordinary = at_index.clone().find(|it| it.presence == Presence::Ordinary);
        // A suspect of ours serves on: the board will see.
        let is_suspect = at_index.any(|it| {
            it.presence == Presence::Suspect
                && held_by(it).is_some_and(|on| on.instance_guid == *guid)
        });
        if is_suspect {
            return;
        }
        let container = match held.state {
            ContainerState::Reserved => ContainerPhase::Reserved,
            ContainerState::Initializing | ContainerState::Created => ContainerPhase::Starting,
            ContainerState::Running => ContainerPhase::Running,
            ContainerState::Completed if stopped => ContainerPhase::Shutdown,
            ContainerState::Completed => ContainerPhase::Crashed,
        };
        let (action, _) = rep_lrp(container, view(ordinary.copied(), guid, &self.id));
        self.act(action, key, guid);
        if ordinary.is_some_and(|it| it.stopping && held_by(it) == Some(&self.on(guid))) {
            self.stop(guid);
        }
    }

    fn act(&mut self, action: LrpAction, key: LrpKey, guid: &InstanceGuid) {
        match action {
            LrpAction::Nothing => {}
            LrpAction::Delete => self.delete(guid),
            LrpAction::ClaimThenRun | LrpAction::Claim => {
                self.wish(CellRequest::ClaimLrp(key, self.on(guid)));
            }
            LrpAction::Run => self.make(guid),
            LrpAction::Start => self.wish_start(guid),
            LrpAction::CrashThenDelete => {
                self.wish(CellRequest::CrashLrp(key, self.on(guid), "exit status 1".into()));
            }
            LrpAction::RemoveThenDelete | LrpAction::Remove => {
                self.wish(CellRequest::RemoveLrp(key, self.on(guid)));
            }
        }
    }

    /// A record that names a container which we do not have.
    fn settle_gone(&mut self, record: &LrpRecord) {
        let Some(on) = held_by(record).cloned() else { return };
        let key = LrpKey {
            process_guid: record.process_guid.clone(),
            index: record.index,
            domain: record.domain.clone(),
            definition_id: Some(record.definition_id.clone()),
        };
        self.wish(match record.presence {
            Presence::Evacuating => CellRequest::RemoveEvacuating(key, on),
            Presence::Ordinary | Presence::Suspect => CellRequest::RemoveLrp(key, on),
        });
    }

    fn settle_task(&mut self, held: &HeldTask, record: Option<&TaskRecord>) {
        let guid = &held.task_guid;
        if self.tasks.get(guid).is_none_or(|it| it.state != held.state) {
            return;
        }
        let container = match held.state {
            ContainerState::Reserved => TaskContainerView::Reserved,
            ContainerState::Initializing | ContainerState::Created | ContainerState::Running => {
                TaskContainerView::Active
            }
            ContainerState::Completed => TaskContainerView::Completed,
        };
        let whose = |it: &TaskRecord| {
            if it.cell_id.as_ref() == Some(&self.id) { Whose::Ours } else { Whose::Theirs }
        };
        let view = match record.map(|it| (it.state, whose(it))) {
            None => TaskView::Missing,
            Some((TaskState::Pending, _)) => TaskView::Pending,
            Some((TaskState::Running, whose)) => TaskView::Running(whose),
            Some((TaskState::Completed, whose)) => TaskView::Completed(whose),
            Some((TaskState::Resolving, whose)) => TaskView::Resolving(whose),
        };
        match rep_task(container, view).0 {
            TaskAction::Nothing => {}
            TaskAction::Delete => self.delete_task(guid),
            TaskAction::StartThenRun | TaskAction::Start => {
                self.wish(CellRequest::StartTask(guid.clone(), self.id.clone()));
            }
            TaskAction::CompleteThenDelete => self.over(guid.clone()),
            TaskAction::CompleteFailed => {}
        }
    }
}

fn held_by(record: &LrpRecord) -> Option<&InstanceKey> {
    match &record.state {
        RecordState::Claimed(on) | RecordState::Running(on) => Some(on),
        RecordState::Unclaimed | RecordState::Crashed => None,
    }
}

fn view(record: Option<&LrpRecord>, guid: &InstanceGuid, cell: &CellId) -> LrpView {
    let Some(record) = record else { return LrpView::Missing };
    let whose = |on: &InstanceKey| {
        if on.instance_guid == *guid && on.cell_id == *cell { Whose::Ours } else { Whose::Theirs }
    };
    match &record.state {
        RecordState::Unclaimed => LrpView::Unclaimed,
        RecordState::Claimed(on) => LrpView::Claimed(whose(on)),
        RecordState::Running(on) => LrpView::Running(whose(on)),
        RecordState::Crashed => LrpView::Crashed,
    }
}

/// All pages: what we have, then what names us.
async fn ask_all(
    mesh: &Mesh,
    coordinator: MemberId,
    lrps: Vec<HeldLrp>,
    tasks: Vec<HeldTask>,
) -> Result<Synced, AskError> {
    let mut replies = Vec::new();
    let (mut next_lrp, mut next_task, mut own) = (0, 0, OwnRecords::After(0));
    while next_lrp < lrps.len() || next_task < tasks.len() || own != OwnRecords::None {
        let page = |from: usize, all: usize| from..all.min(from + SYNC_ITEMS);
        let asked = SyncCell {
            lrps: lrps[page(next_lrp, lrps.len())].to_vec(),
            tasks: tasks[page(next_task, tasks.len())].to_vec(),
            own,
        };
        let reply = mesh.ask(coordinator, &asked, ANSWER_WITHIN).await?;
        next_lrp += reply.answered_lrps as usize;
        next_task += reply.answered_tasks as usize;
        own = reply.more;
        replies.push(reply);
    }
    Ok(Synced { lrps, tasks, replies })
}
