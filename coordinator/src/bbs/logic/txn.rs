//! One command's turn on the board: what it changed, said and asked for so far.

use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpGroup, LrpKey, LrpState, Presence};
use volvox_protocol::cell::CellPresence;
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::event::Event;
use volvox_protocol::id::{CellId, DefinitionId, ProcessGuid};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::limits::REASON_BYTES;
use volvox_protocol::modification_tag::{Epoch, ModificationTag};
use volvox_protocol::random::SplitMix;
use volvox_protocol::request::{LrpStart, Requirements, TaskStart};
use volvox_protocol::task::Task;
use volvox_protocol::time::Timestamp;

use super::Board;
use crate::bbs::command::{ApplyResult, BoardEffect, Change, ConvergeKey, Reply, RowId};
use crate::bbs::state::InstanceRow;

pub(super) struct Txn<'a> {
    pub(super) board: &'a mut Board,
    pub(super) now: Timestamp,
    first_row: RowId,
    random: SplitMix,
    pub(super) changes: Vec<Change>,
    pub(super) events: Vec<Event>,
    effects: Vec<BoardEffect>,
    starts: Vec<LrpStart>,
    task_starts: Vec<TaskStart>,
    /// An update is under way, or was taken further.
    pub(super) rolled: bool,
    /// Something changed of a process that has records of several definitions.
    mixed: bool,
}

impl<'a> Txn<'a> {
    pub(super) fn new(board: &'a mut Board, now: Timestamp, seed: u64) -> Self {
        Txn {
            first_row: board.next_row,
            board,
            now,
            random: SplitMix(seed),
            changes: Vec::new(),
            events: Vec::new(),
            effects: Vec::new(),
            starts: Vec::new(),
            task_starts: Vec::new(),
            rolled: false,
            mixed: false,
        }
    }

    pub(super) fn finish(mut self, reply: Reply) -> ApplyResult {
        if self.rolled {
            self.mend_starts();
        }
        if self.mixed {
            self.resolve_groups();
        }
        if !self.starts.is_empty() || !self.task_starts.is_empty() {
            let request = BoardEffect::RequestAuction(self.starts, self.task_starts);
            self.effects.push(request);
        }
        ApplyResult { reply, changes: self.changes, events: self.events, effects: self.effects }
    }

    /// A step of an update may take back what was asked for before it, and may ask about an index
    /// after a higher one.
    fn mend_starts(&mut self) {
        let records = &self.board.records;
        for start in &mut self.starts {
            let definition = &start.definition_id;
            let process = records.process(&start.process_guid);
            start.indices.sort_unstable();
            start.indices.retain(|index| {
                process.is_some_and(|process| {
                    let slot = process.find(definition, *index, Presence::Ordinary);
                    process.wants(definition, *index)
                        && slot.is_some_and(|slot| slot.lrp.instance().is_none())
                })
            });
        }
        self.starts.retain(|start| !start.indices.is_empty());
    }

    pub(super) fn undo(self) {
        self.board.undo(self.now, self.changes.into_iter());
        self.board.next_row = self.first_row;
    }

    pub(super) fn put(&mut self, change: Change) {
        if let Change::Actual(_, Some(before), _) = &change {
            self.mixed = self.mixed || self.is_mixed(&before.process_guid);
        }
        if let Change::Deployment(_, Some(it), _) | Change::Deployment(_, None, Some(it)) = &change
        {
            self.mixed = self.mixed || self.is_mixed(&it.process_guid);
        }
        self.board.put(self.now, &change);
        if let Change::Actual(_, None, Some(new)) = &change {
            self.mixed = self.mixed || self.is_mixed(&new.process_guid);
        }
        self.changes.push(change);
    }

    pub(super) fn emit(&mut self, event: Event) {
        self.events.push(event);
    }

    pub(super) fn effect(&mut self, effect: BoardEffect) {
        self.effects.push(effect);
    }

    pub(super) fn new_row(&mut self) -> RowId {
        let row = self.board.next_row;
        self.board.next_row = RowId(row.0 + 1);
        row
    }

    pub(super) fn new_tag(&mut self) -> ModificationTag {
        let bits = (u128::from(self.random.next()) << 64) | u128::from(self.random.next());
        ModificationTag::new(Epoch::from_random(bits))
    }

    /// Remembers that the outside was asked about `subject` now, or that the question is settled.
    pub(super) fn set_asked(&mut self, subject: ConvergeKey, at: Option<Timestamp>) {
        let before = self.board.asked.get(&subject).copied();
        if before != at {
            self.put(Change::Asked(subject, before, at));
        }
    }

    // Finding records.

    /// The definition that a request is about: the one it names, else the active one, unless only
    /// another has a record at the index.
    pub(super) fn definition_of(&self, key: &LrpKey) -> DefinitionId {
        if let Some(definition) = &key.definition_id {
            return definition.clone();
        }
        let process = self.board.records.process(&key.process_guid);
        if let Some((process, (_, deployment))) =
            process.and_then(|process| Some((process, process.deployment.as_ref()?)))
            && deployment.definitions.len() > 1
            && let Some(definition) = process.definition_at(key.index)
        {
            return definition.clone();
        }
        match self.board.records.deployment(&key.process_guid) {
            Some((_, deployment)) => deployment.active_definition_id.clone(),
            None => (&key.process_guid).into(),
        }
    }

    pub(super) fn find(
        &self,
        process: &ProcessGuid,
        definition: &DefinitionId,
        index: u32,
        presence: Presence,
    ) -> Option<InstanceRow> {
        self.board.records.process(process)?.find(definition, index, presence).cloned()
    }

    /// The records of the index that `key` is about.
    pub(super) fn index(&self, key: &LrpKey) -> IndexRecords {
        self.index_of(&key.process_guid, &self.definition_of(key), key.index)
    }

    /// The records of one index.
    pub(super) fn index_of(
        &self,
        process: &ProcessGuid,
        definition: &DefinitionId,
        index: u32,
    ) -> IndexRecords {
        let mut found = IndexRecords {
            definition: definition.clone(),
            ordinary: None,
            evacuating: None,
            suspect: None,
        };
        let process = self.board.records.process(process);
        for slot in process.map_or(&[][..], |process| process.at(definition, index)) {
            match slot.lrp.presence {
                Presence::Ordinary => found.ordinary = Some(slot.clone()),
                Presence::Evacuating => found.evacuating = Some(slot.clone()),
                Presence::Suspect => found.suspect = Some(slot.clone()),
            }
        }
        found
    }

    pub(super) fn deployment(&self, process: &ProcessGuid) -> Option<Arc<LrpDeployment>> {
        self.board.records.deployment(process).map(|(_, deployment)| Arc::clone(deployment))
    }

    /// Whether an instance is desired where this record is.
    pub(super) fn wants(&self, lrp: &ActualLrp) -> bool {
        let process = self.board.records.process(&lrp.process_guid);
        process.is_some_and(|process| process.wants(&lrp.definition_id, lrp.index))
    }

    pub(super) fn is_missing(&self, cell: &CellId) -> bool {
        self.board.presence(cell) == Some(CellPresence::Missing)
    }

    /// The same instance key, sharing the cell's name with the other records of that cell.
    pub(super) fn shared(&self, instance: InstanceKey) -> InstanceKey {
        match self.board.presence.get_key_value(&instance.cell_id) {
            Some((cell_id, _)) => InstanceKey { cell_id: cell_id.clone(), ..instance },
            None => instance,
        }
    }

    // Changing records. Instance events go with the change; group events are the caller's, since
    // whether the older stream hears of a change depends on why it happened.

    /// Puts a new record, with a created event.
    pub(super) fn create(&mut self, lrp: ActualLrp) -> Arc<ActualLrp> {
        let lrp = self.create_quietly(lrp);
        self.emit(Event::InstanceCreated(Arc::clone(&lrp)));
        lrp
    }

    /// Puts a new record, and leaves the events to the caller.
    pub(super) fn create_quietly(&mut self, lrp: ActualLrp) -> Arc<ActualLrp> {
        let lrp = Arc::new(lrp);
        let row = self.new_row();
        self.settle_question(&lrp, lrp.presence);
        self.put(Change::Actual(row, None, Some(Arc::clone(&lrp))));
        lrp
    }

    /// Puts a changed record in the place of `slot`, with a changed event.
    pub(super) fn change(&mut self, slot: &InstanceRow, lrp: ActualLrp) -> Arc<ActualLrp> {
        let lrp = self.replace(slot, lrp);
        if !(mutated(Bug::DroppedEvent) && lrp.state.is_running()) {
            self.emit(Event::InstanceChanged(Arc::clone(&slot.lrp), Arc::clone(&lrp)));
        }
        lrp
    }

    /// Puts a changed record in the place of `slot`, and leaves the events to the caller.
    pub(super) fn replace(&mut self, slot: &InstanceRow, lrp: ActualLrp) -> Arc<ActualLrp> {
        let lrp = Arc::new(lrp);
        self.settle_question(&slot.lrp, lrp.presence);
        self.put(Change::Actual(slot.row, Some(Arc::clone(&slot.lrp)), Some(Arc::clone(&lrp))));
        lrp
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, slot: &InstanceRow) {
        self.settle_question(&slot.lrp, slot.lrp.presence);
        self.put(Change::Actual(slot.row, Some(Arc::clone(&slot.lrp)), None));
        self.emit(Event::InstanceRemoved(Arc::clone(&slot.lrp)));
    }

    /// A record that was `before` comes to be of the presence `after`, or goes. What was asked of
    /// the outside was about the ordinary record, or about one to come beside the suspect: only a
    /// change of those is an answer.
    fn settle_question(&mut self, before: &ActualLrp, after: Presence) {
        let settled = match (before.presence, after) {
            (Presence::Ordinary, _) | (_, Presence::Ordinary) => true,
            (Presence::Suspect, _) | (_, Presence::Suspect) => {
                let (process, definition) = (&before.process_guid, &before.definition_id);
                self.find(process, definition, before.index, Presence::Ordinary).is_none()
            }
            (Presence::Evacuating, Presence::Evacuating) => false,
        };
        if settled {
            self.set_asked(subject_of(before), None);
        }
    }

    /// Creates an unclaimed record at an index that has no ordinary one, and asks for its start.
    pub(super) fn create_unclaimed(
        &mut self,
        deployment: &LrpDeployment,
        definition: &DefinitionId,
        index: u32,
    ) -> Arc<ActualLrp> {
        let lrp = ActualLrp {
            process_guid: deployment.process_guid.clone(),
            definition_id: definition.clone(),
            index,
            domain: deployment.domain.clone(),
            presence: Presence::Ordinary,
            state: LrpState::unclaimed(),
            crash_count: 0,
            crash_reason: Box::default(),
            stopping: false,
            since: self.now,
            modification_tag: self.new_tag(),
        };
        let lrp = self.create(lrp);
        self.request_start_from(deployment, &lrp);
        lrp
    }

    /// Takes an ordinary record off its cell and asks for its start. Readers see one record go
    /// and another come.
    pub(super) fn unclaim(&mut self, slot: &InstanceRow) -> Arc<ActualLrp> {
        let lrp = self.replace(slot, self.next_version(&slot.lrp, LrpState::unclaimed()));
        self.emit(Event::InstanceRemoved(Arc::clone(&slot.lrp)));
        self.emit(Event::InstanceCreated(Arc::clone(&lrp)));
        self.request_start(&lrp);
        lrp
    }

    /// The same record in another state, or with other facts of the same state. An order to stop
    /// is about the instance: it ends when the record leaves that.
    pub(super) fn next_version(&self, lrp: &ActualLrp, state: LrpState) -> ActualLrp {
        let same = std::mem::discriminant(&lrp.state) == std::mem::discriminant(&state);
        let after = ActualLrp {
            since: if same { lrp.since } else { self.now },
            modification_tag: lrp.modification_tag.next(),
            state,
            ..lrp.clone()
        };
        ActualLrp { stopping: lrp.stopping && after.instance() == lrp.instance(), ..after }
    }

    pub(super) fn put_deployment(
        &mut self,
        before: Option<&(RowId, Arc<LrpDeployment>)>,
        after: Option<Arc<LrpDeployment>>,
    ) {
        let row = before.map(|(row, _)| *row).unwrap_or_else(|| self.new_row());
        let before = before.map(|(_, deployment)| Arc::clone(deployment));
        self.put(Change::Deployment(row, before, after));
    }

    pub(super) fn put_task(
        &mut self,
        before: Option<&(RowId, Arc<Task>)>,
        after: Option<Task>,
    ) -> Option<Arc<Task>> {
        let row = before.map(|(row, _)| *row).unwrap_or_else(|| self.new_row());
        let before = before.map(|(_, task)| Arc::clone(task));
        let after = after.map(Arc::new);
        if let Some(task) = before.as_ref().or(after.as_ref()) {
            self.set_asked(ConvergeKey::Task(task.task_guid.clone()), None);
        }
        self.put(Change::Task(row, before.clone(), after.clone()));
        match (before, &after) {
            (None, Some(after)) => self.emit(Event::TaskCreated(Arc::clone(after))),
            (Some(before), Some(after)) => {
                self.emit(Event::TaskChanged(before, Arc::clone(after)));
            }
            (Some(before), None) => self.emit(Event::TaskRemoved(before)),
            (None, None) => {}
        }
        after
    }

    // Asking for starts. All that one command asks for goes out as one request.

    /// Asks for the start of an unclaimed record, unless nobody desires it: that one only waits
    /// for its domain to be fresh, to go.
    pub(super) fn request_start(&mut self, lrp: &ActualLrp) {
        if self.wants(lrp)
            && let Some(deployment) = self.deployment(&lrp.process_guid)
        {
            self.request_start_from(&deployment, lrp);
        }
    }

    fn request_start_from(&mut self, deployment: &LrpDeployment, lrp: &ActualLrp) {
        let Some(definition) = deployment.definitions.get(&lrp.definition_id) else { return };
        self.rolled |= deployment.roll.is_some();
        if let Some(last) = self.starts.last_mut()
            && last.process_guid == lrp.process_guid
            && last.definition_id == lrp.definition_id
        {
            last.indices.push(lrp.index);
            return;
        }
        let requirements = Arc::clone(definition.requirements());
        self.starts.push(LrpStart {
            process_guid: lrp.process_guid.clone(),
            definition_id: lrp.definition_id.clone(),
            domain: lrp.domain.clone(),
            indices: vec![lrp.index],
            requirements,
        });
    }

    pub(super) fn request_task_start(&mut self, task: &Task) {
        let requirements = Requirements::of_task(&task.definition);
        self.task_starts.push(TaskStart {
            task_guid: task.task_guid.clone(),
            domain: task.domain.clone(),
            requirements: Arc::new(requirements),
        });
    }
}

/// The records of one index, one for each presence at most.
pub(super) struct IndexRecords {
    pub(super) definition: DefinitionId,
    pub(super) ordinary: Option<InstanceRow>,
    pub(super) evacuating: Option<InstanceRow>,
    pub(super) suspect: Option<InstanceRow>,
}

impl IndexRecords {
    /// The suspect record, when it is held by `instance`.
    pub(super) fn suspect_of(&self, instance: &InstanceKey) -> Option<&InstanceRow> {
        self.suspect.as_ref().filter(|slot| slot.lrp.is_held_by(instance))
    }

    /// The evacuating record, when it is held by `instance`.
    pub(super) fn evacuating_of(&self, instance: &InstanceKey) -> Option<&InstanceRow> {
        self.evacuating.as_ref().filter(|slot| slot.lrp.is_held_by(instance))
    }

    /// The ordinary record, when it is held by `instance`.
    pub(super) fn ordinary_of(&self, instance: &InstanceKey) -> Option<&InstanceRow> {
        self.ordinary.as_ref().filter(|slot| slot.lrp.is_held_by(instance))
    }
}

pub(super) fn subject_of(lrp: &ActualLrp) -> ConvergeKey {
    ConvergeKey::Index(lrp.process_guid.clone(), lrp.definition_id.clone(), lrp.index)
}

/// A group that shows one record in its own place.
pub(super) fn group_of(lrp: &Arc<ActualLrp>) -> LrpGroup {
    LrpGroup::fold([lrp])
}

/// Cuts a reason to what a record keeps, and says that it was cut.
pub(super) fn reason(text: &str) -> Box<str> {
    const CUT: &str = "(truncated)";
    if text.len() <= REASON_BYTES {
        return text.into();
    }
    let mut end = REASON_BYTES - CUT.len();
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{CUT}", &text[..end]).into()
}
