//! The five calls of a cell that is being emptied. What becomes of a running instance is
//! `tables/bbs_evacuate.rs`.

use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpKey, LrpState, Presence, Running};
use volvox_protocol::definition::UpdateStrategy;
use volvox_protocol::event::Event;
use volvox_protocol::request::Rejection;
use volvox_protocol::tables::Whose;
use volvox_protocol::tables::bbs_evacuate::{
    EvacuateAction, EvacuatingView, OrdinaryView, bbs_evacuate,
};

use super::actual::{ReporterState, standing};
use super::instance_name;
use super::txn::{IndexRecords, Txn, group_of};
use crate::bbs::command::Reply;
use crate::bbs::state::InstanceRow;

const KEEP: Reply = Reply::KeepContainer(true);
const DELETE: Reply = Reply::KeepContainer(false);

fn whose(holder: &InstanceKey, caller: &InstanceKey) -> Whose {
    if holder == caller { Whose::Ours } else { Whose::Theirs }
}

fn ordinary_view(slot: Option<&InstanceRow>, caller: &InstanceKey) -> OrdinaryView {
    match slot.map(|slot| &slot.lrp.state) {
        None => OrdinaryView::Missing,
        Some(LrpState::Unclaimed { placement_error }) if placement_error.is_empty() => {
            OrdinaryView::Unclaimed
        }
        Some(LrpState::Unclaimed { .. }) => OrdinaryView::UnclaimedWithError,
        Some(LrpState::Claimed(holder)) => OrdinaryView::Claimed(whose(holder, caller)),
        Some(LrpState::Running(holder, _)) => OrdinaryView::Running(whose(holder, caller)),
        Some(LrpState::Crashed) => OrdinaryView::Crashed,
    }
}

fn evacuating_view(slot: Option<&InstanceRow>, caller: &InstanceKey) -> EvacuatingView {
    match slot.and_then(|slot| slot.lrp.instance()) {
        Some(holder) => EvacuatingView::Running(whose(holder, caller)),
        None => EvacuatingView::Missing,
    }
}

impl Txn<'_> {
    pub(super) fn evacuate_claimed(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
    ) -> Result<Reply, Rejection> {
        let at = self.evacuee(key, instance)?;
        self.leave(&at, instance);
        if let Some(slot) = at.ordinary_of(instance) {
            let lrp = self.unclaim(slot);
            self.group_changed(&at, slot, &lrp);
        }
        Ok(DELETE)
    }

    pub(super) fn evacuate_crashed(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
        why: &str,
    ) -> Result<Reply, Rejection> {
        let at = self.evacuee(key, instance)?;
        self.leave(&at, instance);
        if at.ordinary_of(instance).is_some() {
            self.crash_ordinary(key, &at, instance, (why, ReporterState::Leaving))?;
        }
        Ok(DELETE)
    }

    pub(super) fn evacuate_stopped(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
    ) -> Result<Reply, Rejection> {
        let at = self.evacuee(key, instance)?;
        self.leave(&at, instance);
        if at.ordinary_of(instance).is_some() {
            self.remove_ordinary(&at);
        }
        Ok(DELETE)
    }

    pub(super) fn remove_evacuating(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
    ) -> Result<Reply, Rejection> {
        let at = self.index(key);
        match &at.evacuating {
            Some(slot) if !slot.lrp.is_held_by(instance) => {
                Err(Rejection::CannotRemove(standing(Some(slot))))
            }
            Some(slot) => {
                self.remove_evacuee(slot);
                Ok(Reply::Done)
            }
            None => Ok(Reply::Done),
        }
    }

    pub(super) fn evacuate_running(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
        running: Arc<Running>,
    ) -> Result<Reply, Rejection> {
        let at = self.index(key);
        if let Some(reply) = self.recreate(key, &at, instance) {
            return Ok(reply);
        }
        if let Some(slot) = at.suspect_of(instance) {
            let modification_tag = slot.lrp.modification_tag.next();
            let lrp = self.evacuee_of(&slot.lrp, instance, running);
            let lrp = ActualLrp { modification_tag, ..lrp };
            self.suspect_evacuates(&at, slot, lrp);
            self.has_started(&key.process_guid, &at.definition);
            return Ok(KEEP);
        }
        let ordinary = ordinary_view(at.ordinary.as_ref(), instance);
        let evacuating = evacuating_view(at.evacuating.as_ref(), instance);
        let (action, _) = bbs_evacuate(ordinary, evacuating);
        match action {
            EvacuateAction::Nothing | EvacuateAction::DeleteContainer => {}
            EvacuateAction::CreateEvacuating => {
                if let Some(ordinary) = &at.ordinary {
                    let lrp = self.evacuee_of(&ordinary.lrp, instance, running);
                    self.create_evacuee(lrp);
                }
            }
            EvacuateAction::CreateEvacuatingAndUnclaim => self.evacuate(&at, instance, running),
            EvacuateAction::TakeOverEvacuatingAndUnclaim => {
                if let Some(other) = &at.evacuating {
                    self.remove_evacuee(other);
                }
                self.evacuate(&at, instance, running);
            }
            EvacuateAction::Unclaim => {
                if let Some(slot) = &at.ordinary {
                    let lrp = self.unclaim(slot);
                    self.group_changed(&at, slot, &lrp);
                }
            }
            EvacuateAction::RemoveEvacuatingAndDeleteContainer => {
                if let Some(slot) = &at.evacuating {
                    self.remove_evacuee(slot);
                }
            }
        }
        if action.keeps_container() {
            self.has_started(&key.process_guid, &at.definition);
        }
        Ok(Reply::KeepContainer(action.keeps_container()))
    }

    /// With the strategy RECREATE no second instance is ever run beside the first: an instance
    /// moves only while all the others serve, and its container goes at once.
    fn recreate(
        &mut self,
        key: &LrpKey,
        at: &IndexRecords,
        instance: &InstanceKey,
    ) -> Option<Reply> {
        let deployment = self.deployment(&key.process_guid)?;
        if deployment.update_strategy != UpdateStrategy::Recreate {
            return None;
        }
        self.leave(at, instance);
        let Some(slot) = at.ordinary_of(instance) else { return Some(DELETE) };
        let process = self.board.records.process(&key.process_guid)?;
        let serving = process
            .instances()
            .iter()
            .filter(|slot| slot.lrp.presence == Presence::Ordinary && slot.lrp.state.is_running())
            .count();
        if serving < deployment.instances as usize {
            return Some(KEEP);
        }
        let lrp = self.unclaim(slot);
        self.group_changed(at, slot, &lrp);
        Some(DELETE)
    }

    /// The index that `key` names, if any of its records is the caller's.
    fn evacuee(&self, key: &LrpKey, instance: &InstanceKey) -> Result<IndexRecords, Rejection> {
        let at = self.index(key);
        let known = at.ordinary_of(instance).or(at.evacuating_of(instance));
        match known.or(at.suspect_of(instance)) {
            Some(_) => Ok(at),
            None => Err(Rejection::NotFound(instance_name(&key.process_guid, key.index))),
        }
    }

    /// The evacuating and the suspect record of an instance that has ended go.
    fn leave(&mut self, at: &IndexRecords, instance: &InstanceKey) {
        if let Some(slot) = at.evacuating_of(instance) {
            self.remove_evacuee(slot);
        }
        if let Some(slot) = at.suspect_of(instance) {
            self.remove_suspect(slot);
        }
    }

    /// Moves the ordinary record's instance to an evacuating record and frees the ordinary one
    /// for a replacement. Readers see the instance change its presence and a new record come.
    fn evacuate(&mut self, at: &IndexRecords, instance: &InstanceKey, running: Arc<Running>) {
        let Some(slot) = &at.ordinary else { return };
        let unclaimed = self.replace(slot, self.next_version(&slot.lrp, LrpState::unclaimed()));
        let evacuee = self.evacuee_of(&slot.lrp, instance, running);
        let evacuee = self.create_quietly(evacuee);
        self.emit(Event::InstanceChanged(Arc::clone(&slot.lrp), Arc::clone(&evacuee)));
        self.emit(Event::InstanceCreated(Arc::clone(&unclaimed)));
        self.emit(Event::GroupCreated(group_of(&evacuee)));
        self.group_changed(at, slot, &unclaimed);
        self.request_start(&unclaimed);
    }

    /// The evacuating record of an instance. It has its own time to live, counted from now, and
    /// its cell is emptying itself: nobody has to be told to stop it.
    fn evacuee_of(
        &mut self,
        lrp: &ActualLrp,
        instance: &InstanceKey,
        running: Arc<Running>,
    ) -> ActualLrp {
        let instance = match lrp.instance() {
            Some(known) if known == instance => known.clone(),
            Some(_) | None => self.shared(instance.clone()),
        };
        ActualLrp {
            presence: Presence::Evacuating,
            state: LrpState::Running(instance, running),
            stopping: false,
            since: self.now,
            modification_tag: self.new_tag(),
            ..lrp.clone()
        }
    }

    fn create_evacuee(&mut self, lrp: ActualLrp) {
        let lrp = self.create(lrp);
        self.emit(Event::GroupCreated(group_of(&lrp)));
    }

    pub(super) fn remove_evacuee(&mut self, slot: &InstanceRow) {
        self.remove(slot);
        self.emit(Event::GroupRemoved(group_of(&slot.lrp)));
    }
}
