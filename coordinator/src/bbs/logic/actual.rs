//! Claim, start, crash, fail, remove, retire: the life of an ordinary record. What is allowed is
//! `tables/bbs_transition.rs`; where a suspect record stands at the index, `suspect.rs` has the
//! first word.

use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpKey, LrpState, Presence, Running};
use volvox_protocol::event::{Crash, Event};
use volvox_protocol::id::Domain;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::request::Rejection;
use volvox_protocol::tables::Whose;
use volvox_protocol::tables::bbs_transition::{LrpRequest, RecordView, Transition, bbs_transition};
use volvox_protocol::tables::crash::CrashOutcome;

use super::instance_name;
use super::txn::{IndexRecords, Txn, group_of, reason, subject_of};
use crate::bbs::command::{BoardEffect, Reply};
use crate::bbs::state::InstanceRow;

/// What the cell is doing that reports a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReporterState {
    /// What it always does.
    AtWork,
    /// It is being emptied.
    Leaving,
}

/// How the table sees a record, from the caller's place.
fn view(slot: Option<&InstanceRow>, caller: Option<&InstanceKey>) -> RecordView {
    let Some(slot) = slot else { return RecordView::Missing };
    let whose = |holder: &InstanceKey| {
        if caller == Some(holder) { Whose::Ours } else { Whose::Theirs }
    };
    match &slot.lrp.state {
        LrpState::Unclaimed { .. } => RecordView::Unclaimed,
        LrpState::Claimed(holder) => RecordView::Claimed(whose(holder)),
        LrpState::Running(holder, _) => RecordView::Running(whose(holder)),
        LrpState::Crashed => RecordView::Crashed,
    }
}

/// How a rejection tells what the record is instead.
pub(super) fn standing(slot: Option<&InstanceRow>) -> String {
    let Some(slot) = slot else { return "missing".to_owned() };
    match slot.lrp.instance() {
        Some(instance) => format!(
            "{} by instance {} on cell {}",
            slot.lrp.state.name(),
            instance.instance_guid,
            instance.cell_id
        ),
        None => slot.lrp.state.name().to_owned(),
    }
}

fn not_found(key: &LrpKey) -> Rejection {
    Rejection::NotFound(instance_name(&key.process_guid, key.index))
}

impl Txn<'_> {
    pub(super) fn claim_lrp(
        &mut self,
        key: &LrpKey,
        instance: InstanceKey,
    ) -> Result<Reply, Rejection> {
        let at = self.index(key);
        if at.suspect_of(&instance).is_some() {
            return Ok(Reply::Done);
        }
        let slot = at.ordinary.as_ref();
        match (bbs_transition(view(slot, Some(&instance)), LrpRequest::Claim), slot) {
            (Transition::Apply | Transition::Create, Some(slot)) => {
                let state = LrpState::Claimed(self.shared(instance));
                let lrp = self.change(slot, self.next_version(&slot.lrp, state));
                self.group_changed(&at, slot, &lrp);
                Ok(Reply::Done)
            }
            (Transition::Nothing, _) => Ok(Reply::Done),
            (Transition::Refuse, Some(slot)) if mutated(Bug::UncheckedClaim) => {
                let state = LrpState::Claimed(self.shared(instance));
                self.change(slot, self.next_version(&slot.lrp, state));
                Ok(Reply::Done)
            }
            (Transition::Refuse, _) => Err(Rejection::CannotClaim(standing(slot))),
            (Transition::Apply | Transition::Create, None) | (Transition::NotFound, _) => {
                Err(not_found(key))
            }
        }
    }

    pub(super) fn start_lrp(
        &mut self,
        key: &LrpKey,
        instance: InstanceKey,
        running: Arc<Running>,
    ) -> Result<Reply, Rejection> {
        let at = self.index(key);
        if let Some(suspect) = at.suspect_of(&instance) {
            return self.start_by_suspect(&at, suspect, running);
        }
        let slot = at.ordinary.as_ref();
        if let Some(domain) = self.domain_of(key, slot).filter(|domain| *domain != key.domain) {
            let known = format!("of domain {domain:?}, not {:?}", key.domain);
            return Err(Rejection::CannotStart(known));
        }
        match (bbs_transition(view(slot, Some(&instance)), LrpRequest::Start), slot) {
            (Transition::Apply, Some(slot)) => {
                let same = slot.lrp.is_held_by(&instance) && slot.lrp.running() == Some(&running);
                if !same {
                    let instance = match slot.lrp.instance() {
                        Some(known) if *known == instance => known.clone(),
                        Some(_) | None => self.shared(instance),
                    };
                    let state = LrpState::Running(instance, running);
                    let lrp = self.change(slot, self.next_version(&slot.lrp, state));
                    self.group_started(&at, slot, &lrp);
                }
            }
            (Transition::Create | Transition::Apply, _) => {
                let state = LrpState::Running(self.shared(instance), running);
                let lrp = self.unheard_of(key, &at, state);
                let lrp = self.create(lrp);
                self.emit(Event::GroupCreated(group_of(&lrp)));
            }
            (Transition::Nothing, _) => {}
            (Transition::Refuse, _) => return Err(Rejection::CannotStart(standing(slot))),
            (Transition::NotFound, _) => return Err(not_found(key)),
        }
        self.drop_stand_ins(&at);
        self.has_started(&key.process_guid, &at.definition);
        self.tell_if_outdated(key);
        Ok(Reply::Done)
    }

    /// What runs needs nobody to stand in for it.
    fn drop_stand_ins(&mut self, at: &IndexRecords) {
        if let Some(slot) = &at.evacuating {
            self.remove(slot);
            self.emit(Event::GroupRemoved(group_of(&slot.lrp)));
        }
        if let Some(slot) = at.suspect.as_ref().filter(|_| !mutated(Bug::SuspectStays)) {
            self.remove_suspect(slot);
        }
    }

    pub(super) fn crash_lrp(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
        why: &str,
    ) -> Result<Reply, Rejection> {
        let at = self.index(key);
        if let Some(slot) = at.suspect_of(instance) {
            self.suspect_crashed(&at, slot);
            return Ok(Reply::Done);
        }
        self.crash_ordinary(key, &at, instance, (why, ReporterState::AtWork))
    }

    /// The crash dance: restart at once while the count is small, else wait.
    pub(super) fn crash_ordinary(
        &mut self,
        key: &LrpKey,
        at: &IndexRecords,
        instance: &InstanceKey,
        (why, cell): (&str, ReporterState),
    ) -> Result<Reply, Rejection> {
        let slot = at.ordinary.as_ref();
        match bbs_transition(view(slot, Some(instance)), LrpRequest::Crash) {
            Transition::Apply | Transition::Create => {}
            Transition::Nothing => return Ok(Reply::Done),
            Transition::NotFound => return Err(not_found(key)),
            Transition::Refuse => return Err(Rejection::CannotCrash(standing(slot))),
        }
        let running = slot.filter(|slot| slot.lrp.state.is_running());
        let ran_for = running.map(|slot| self.now.since(slot.lrp.since));
        let before = slot.map_or(0, |slot| slot.lrp.crash_count);
        let (count, outcome) = self.board.settings.crash_policy.crash(before, ran_for);
        // The suspect still serves, so its replacement need not hurry: it waits for convergence.
        let outcome = if at.suspect.is_some() { CrashOutcome::Wait } else { outcome };

        let crash = Crash {
            key: LrpKey {
                definition_id: Some(at.definition.clone()),
                domain: self.domain_of(key, slot).unwrap_or_else(|| key.domain.clone()),
                ..key.clone()
            },
            instance: instance.clone(),
            crash_count: count,
            crash_reason: reason(why),
            since: self.now,
        };
        // What a leaving cell loses moves on, as it would have: the BBS calls that no crash.
        if cell == ReporterState::AtWork || outcome == CrashOutcome::Wait {
            self.emit(Event::Crashed(crash));
        }
        let state = match outcome {
            CrashOutcome::RestartNow => LrpState::unclaimed(),
            CrashOutcome::Wait => LrpState::Crashed,
        };
        let mut lrp = match slot {
            Some(slot) => self.next_version(&slot.lrp, state),
            None => self.unheard_of(key, at, state),
        };
        lrp.crash_count = count;
        lrp.crash_reason = reason(why);
        let lrp = match (slot, outcome) {
            (None, _) => {
                let lrp = self.create(lrp);
                self.emit(Event::GroupCreated(group_of(&lrp)));
                lrp
            }
            (Some(slot), CrashOutcome::Wait) => {
                let lrp = self.change(slot, lrp);
                self.group_changed(at, slot, &lrp);
                lrp
            }
            (Some(slot), CrashOutcome::RestartNow) => {
                let lrp = self.replace(slot, lrp);
                self.emit(Event::InstanceRemoved(Arc::clone(&slot.lrp)));
                self.emit(Event::InstanceCreated(Arc::clone(&lrp)));
                self.group_changed(at, slot, &lrp);
                lrp
            }
        };
        if outcome == CrashOutcome::RestartNow {
            self.request_start(&lrp);
        }
        Ok(Reply::Done)
    }

    /// A record of something that a cell tells of and the board had forgotten.
    fn unheard_of(&mut self, key: &LrpKey, at: &IndexRecords, state: LrpState) -> ActualLrp {
        let known = self.board.records.deployment(&key.process_guid);
        let (process_guid, definition_id) = match known {
            Some((_, deployment)) if deployment.active_definition_id == at.definition => {
                (deployment.process_guid.clone(), deployment.active_definition_id.clone())
            }
            Some(_) | None => (key.process_guid.clone(), at.definition.clone()),
        };
        ActualLrp {
            process_guid,
            definition_id,
            index: key.index,
            domain: self.domain_of(key, None).unwrap_or_else(|| key.domain.clone()),
            presence: Presence::Ordinary,
            state,
            crash_count: 0,
            crash_reason: Box::default(),
            stopping: false,
            since: self.now,
            modification_tag: self.new_tag(),
        }
    }

    /// The domain that the board knows the instance to be of.
    fn domain_of(&self, key: &LrpKey, slot: Option<&InstanceRow>) -> Option<Domain> {
        let deployment = self.board.records.deployment(&key.process_guid);
        let desired = deployment.map(|(_, deployment)| deployment.domain.clone());
        desired.or_else(|| slot.map(|slot| slot.lrp.domain.clone()))
    }

    /// The auction found no cell. That is an answer, so the next question waits its time; told
    /// again, it changes nothing.
    pub(super) fn fail_lrp(&mut self, key: &LrpKey, why: &str) -> Result<Reply, Rejection> {
        if why.is_empty() {
            return Err(Rejection::Invalid("error_message: must not be empty".to_owned()));
        }
        let at = self.index(key);
        let slot = at.ordinary.as_ref();
        match (bbs_transition(view(slot, None), LrpRequest::Fail), slot) {
            (Transition::Apply, Some(slot)) => {
                let state = LrpState::Unclaimed { placement_error: reason(why) };
                if state != slot.lrp.state {
                    let lrp = self.change(slot, self.next_version(&slot.lrp, state));
                    self.group_changed(&at, slot, &lrp);
                }
                self.set_asked(subject_of(&slot.lrp), Some(self.now));
                Ok(Reply::Done)
            }
            (Transition::Refuse, _) => Err(Rejection::CannotFail(standing(slot))),
            (Transition::NotFound, _) => Err(not_found(key)),
            (Transition::Nothing | Transition::Create | Transition::Apply, _) => Ok(Reply::Done),
        }
    }

    pub(super) fn remove_lrp(
        &mut self,
        key: &LrpKey,
        instance: &InstanceKey,
    ) -> Result<Reply, Rejection> {
        let at = self.index(key);
        if let Some(slot) = at.suspect_of(instance) {
            self.remove_suspect(slot);
            return Ok(Reply::Done);
        }
        match bbs_transition(view(at.ordinary.as_ref(), Some(instance)), LrpRequest::Remove) {
            Transition::Apply => self.remove_ordinary(&at),
            Transition::Nothing | Transition::Create => {}
            Transition::NotFound | Transition::Refuse => return Err(not_found(key)),
        }
        Ok(Reply::Done)
    }

    pub(super) fn remove_any_lrp(&mut self, key: &LrpKey) -> Result<Reply, Rejection> {
        let at = self.index(key);
        match bbs_transition(view(at.ordinary.as_ref(), None), LrpRequest::RemoveAny) {
            Transition::Apply => self.remove_ordinary(&at),
            Transition::Nothing | Transition::Create => {}
            Transition::NotFound | Transition::Refuse => return Err(not_found(key)),
        }
        Ok(Reply::Done)
    }

    /// Removes the ordinary record, and begins anew at once where one is still desired.
    pub(super) fn remove_ordinary(&mut self, at: &IndexRecords) {
        let Some(slot) = &at.ordinary else { return };
        self.remove(slot);
        self.group_removed(at, slot);
        let lrp = &slot.lrp;
        if self.wants(lrp)
            && let Some(deployment) = self.deployment(&lrp.process_guid)
        {
            let lrp = self.create_unclaimed(&deployment, &lrp.definition_id, lrp.index);
            if at.suspect.is_none() {
                self.emit(Event::GroupCreated(group_of(&lrp)));
            }
        }
    }

    pub(super) fn retire_lrp(&mut self, key: &LrpKey) -> Result<Reply, Rejection> {
        let at = self.index(key);
        match &at.ordinary {
            None => Err(not_found(key)),
            Some(slot) => {
                self.retire(&at, slot);
                Ok(Reply::Done)
            }
        }
    }

    /// Stops one instance: its cell is told, and removes the record when it has done so; until
    /// then the record says so, and convergence tells the cell again. What is on no cell, or on a
    /// missing one, goes at once. The older stream does not know of stopping and is not told.
    pub(super) fn retire(&mut self, at: &IndexRecords, slot: &InstanceRow) {
        let lrp = &slot.lrp;
        match lrp.instance() {
            Some(instance) if !self.is_missing(&instance.cell_id) => {
                if !lrp.stopping {
                    let modification_tag = lrp.modification_tag.next();
                    let stopping = true;
                    self.change(slot, ActualLrp { stopping, modification_tag, ..(**lrp).clone() });
                }
                self.effect(BoardEffect::StopInstance(lrp.key(), instance.clone()));
                self.set_asked(subject_of(lrp), Some(self.now));
            }
            Some(_) | None => self.remove_ordinary(at),
        }
    }

    // The group stream. While a suspect record stands at an index it is what readers of groups
    // see there, and the ordinary one's doings are not told.

    pub(super) fn group_changed(
        &mut self,
        at: &IndexRecords,
        before: &InstanceRow,
        after: &Arc<ActualLrp>,
    ) {
        if at.suspect.is_none() {
            self.emit(Event::GroupChanged(group_of(&before.lrp), group_of(after)));
        }
    }

    fn group_started(&mut self, at: &IndexRecords, before: &InstanceRow, after: &Arc<ActualLrp>) {
        if at.suspect.is_none() {
            self.emit(Event::GroupChanged(group_of(&before.lrp), group_of(after)));
        } else {
            self.emit(Event::GroupCreated(group_of(after)));
        }
    }

    fn group_removed(&mut self, at: &IndexRecords, slot: &InstanceRow) {
        if at.suspect.is_none() {
            self.emit(Event::GroupRemoved(group_of(&slot.lrp)));
        }
    }
}
