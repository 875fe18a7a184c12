//! Instances: what the table says to a container and its record, and what is asked of the board.

use std::sync::Arc;

use volvox_protocol::actual_lrp::{LrpKey, Running};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::request::CellRequest;
use volvox_protocol::tables::rep_lrp::{ContainerPhase, LrpAction, LrpView, rep_lrp};
use volvox_protocol::tables::{Likelihood, Whose};
use volvox_protocol::time::Timestamp;

use super::definitions::Fetch;
use super::{
    Assigned, BoardRecord, Freshness, PendingOp, Rep, RepOutput, TrackedContainer, definition_of,
};
use crate::container::guid::ContainerGuid;
use crate::executor::workload::{Owner, Workload};
use crate::rep::facts;
use crate::rep::view;

/// What an exit says that left no reason: the board wants one.
const NO_REASON: &str = "the process ended";
/// What is wrong with a definition that a later release has written.
pub(super) const UNREADABLE: &str = "it cannot be read: is the coordinator of a later release?";

impl Rep {
    pub(super) fn judge_lrp(&mut self, guid: &ContainerGuid, look: Freshness) {
        let Some(entry) = self.entries.get(guid) else { return };
        let Owner::Lrp { key, instance } = &entry.owner else { return };
        if entry.alone.is_restarting() || self.coordinator.is_none() {
            return;
        }
        let BoardRecord::Lrp(lrp, reported) = &entry.belief else { return };
        let container = view::of_container(entry.container.as_ref().map(|it| &it.container));
        let (lrp, reported) = (*lrp, reported.clone());
        let (key, instance) = (key.clone(), instance.clone());
        let (action, likelihood) = match (container, lrp) {
            (ContainerPhase::Running, LrpView::Claimed(Whose::Ours))
                if mutated(Bug::NeverStarted) =>
            {
                (LrpAction::Nothing, Likelihood::Expected)
            }
            (ContainerPhase::Running, LrpView::Running(Whose::Theirs))
                if mutated(Bug::KeepsWhatIsTheirs) =>
            {
                (LrpAction::Nothing, Likelihood::Expected)
            }
            (ContainerPhase::Crashed, LrpView::Running(Whose::Ours))
                if mutated(Bug::CrashIsIgnored) =>
            {
                (LrpAction::Nothing, Likelihood::Expected)
            }
            _ => rep_lrp(container, lrp),
        };
        self.note_unexpected_row(guid, likelihood, format!("{container:?} × {lrp:?}: {action:?}"));
        let on = self.on(&instance);
        match action {
            LrpAction::Nothing => {
                if (container, lrp) == (ContainerPhase::Running, LrpView::Running(Whose::Ours)) {
                    self.assign_again(guid, &key, &instance);
                }
                self.bring_up_to_date(guid, key, &instance, reported.as_deref());
            }
            LrpAction::Delete => match container {
                ContainerPhase::Starting | ContainerPhase::Running
                    if look == Freshness::Believed =>
                {
                    self.read(guid);
                }
                ContainerPhase::Absent => {}
                ContainerPhase::Reserved
                | ContainerPhase::Starting
                | ContainerPhase::Running
                | ContainerPhase::Crashed
                | ContainerPhase::Shutdown => self.delete(guid),
            },
            LrpAction::ClaimThenRun | LrpAction::Claim => {
                self.ask(guid, CellRequest::ClaimLrp(key, on));
            }
            LrpAction::Run => self.run_lrp(guid, &key, &instance),
            LrpAction::Start => {
                if let Some(running) = self.facts(guid) {
                    self.ask(guid, CellRequest::StartLrp(key, on, running));
                }
            }
            LrpAction::CrashThenDelete => {
                let reason = self.crash_reason(guid);
                self.ask(guid, CellRequest::CrashLrp(key, on, reason));
            }
            LrpAction::RemoveThenDelete | LrpAction::Remove => {
                self.ask(guid, CellRequest::RemoveLrp(key, on));
            }
        }
    }

    /// It runs, and it is not written down that it is to run here: the disk of the agent before us was
    /// full. Its definition is asked for once in each regular pass, for the board may not have it.
    fn assign_again(&mut self, guid: &ContainerGuid, key: &LrpKey, instance: &InstanceGuid) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        if entry.assigned || entry.stop {
            return;
        }
        let of = definition_of(key);
        if let Some(definition) = self.definitions.get(&of).cloned() {
            entry.assigned = true;
            let (key, instance) = (key.clone(), instance.clone());
            self.effects.push(RepOutput::Assign(Assigned { key, instance, definition }));
        } else if !entry.fetched && !self.unreadable.contains(&of) {
            entry.fetched = true;
            self.fetching.want(Fetch::Lrp(of));
        }
    }

    /// The board knows that it runs. It also has to know how it is reached now, and its tags. Those are
    /// not known before the definition is: until then the board knows better.
    fn bring_up_to_date(
        &mut self,
        guid: &ContainerGuid,
        key: LrpKey,
        instance: &InstanceGuid,
        reported: Option<&Running>,
    ) {
        let (Some(reported), Some(now)) = (reported, self.facts(guid)) else { return };
        if *reported != *now
            && !mutated(Bug::TagsAreNotTold)
            && self.definitions.contains_key(&definition_of(&key))
        {
            self.ask(guid, CellRequest::StartLrp(key, self.on(instance), now));
        }
    }

    /// What is told of an instance that runs; nothing of one that does not.
    pub(super) fn facts(&self, guid: &ContainerGuid) -> Option<Arc<Running>> {
        let entry = self.entries.get(guid)?;
        let Owner::Lrp { key, instance } = &entry.owner else { return None };
        let container = entry.container.as_ref()?;
        if container.container.state != volvox_protocol::container::ContainerState::Running {
            return None;
        }
        let known = self.definitions.get(&definition_of(key));
        let wishes = known.map(|it| (&it.metric_tags, &it.routes));
        let network = container.network.as_ref()?;
        let routable = container.container.routable && !self.draining.contains_key(guid);
        let zone = &self.settings.zone;
        Some(Arc::new(facts::running(key, instance, network, routable, zone, wishes)))
    }

    pub(super) fn crash_reason(&self, guid: &ContainerGuid) -> Box<str> {
        let container = self.entries.get(guid).and_then(|it| it.container.as_ref());
        let reason = container.map_or("", |it| it.container.result.failure_reason.as_str());
        if reason.is_empty() { NO_REASON.into() } else { cut(reason).into() }
    }

    /// Makes a container of a reservation: written down first.
    pub(super) fn run_lrp(&mut self, guid: &ContainerGuid, key: &LrpKey, instance: &InstanceGuid) {
        let of = definition_of(key);
        let Some(known) = self.definitions.get(&of).cloned() else {
            if self.unreadable.contains(&of) {
                return self.cannot_run(guid, UNREADABLE);
            }
            self.fetching.want(Fetch::Lrp(of));
            if let Some(entry) = self.entries.get_mut(guid) {
                entry.busy = PendingOp::Fetching;
            }
            return;
        };
        let work = Workload::Lrp(Arc::clone(&known.definition));
        if let Err(problem) = work.validate() {
            return self.cannot_run(guid, &problem);
        }
        let Some(entry) = self.entries.get_mut(guid) else { return };
        entry.assigned = true;
        entry.busy = PendingOp::Beginning;
        let (key, instance) = (key.clone(), instance.clone());
        self.effects.push(RepOutput::Assign(Assigned { key, instance, definition: known }));
        self.effects.push(RepOutput::Run(guid.clone(), work));
    }

    /// A definition that cannot be run here is a crash: the board's patience with crashes applies.
    pub(super) fn cannot_run(&mut self, guid: &ContainerGuid, problem: &str) {
        let Some(entry) = self.entries.get(guid) else { return };
        let Owner::Lrp { key, instance } = &entry.owner else { return };
        let reason = format!("this cell cannot run its definition: {}", cut(problem));
        let (key, on) = (key.clone(), self.on(instance));
        self.effects.push(RepOutput::Note(guid.clone(), reason.clone()));
        self.ask(guid, CellRequest::CrashLrp(key, on, reason.into()));
    }

    /// The executor would not: the reservation goes, and the table does the rest.
    pub(super) fn not_run(&mut self, guid: ContainerGuid, reason: &str) {
        self.effects.push(RepOutput::Note(guid.clone(), format!("cannot be run: {reason}")));
        let Some(entry) = self.entries.get_mut(&guid) else { return };
        entry.alone.give_up();
        if entry.container.is_some() {
            self.delete(&guid);
        }
    }

    /// Told to stop. The end of the container tells the rest.
    pub(super) fn stop(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        entry.stop = true;
        if entry.assigned
            && let Owner::Lrp { instance, .. } = &entry.owner
        {
            // So that it does not come back after a power cut.
            entry.assigned = false;
            if !mutated(Bug::StaysAssigned) {
                self.effects.push(RepOutput::Unassign(instance.clone()));
            }
        }
        let leaves = self.evacuation.is_some() && self.coordinator.is_some();
        if entry.container.is_some() && !leaves {
            self.drain(now, guid);
        } else {
            // An evacuee is asked about at once, not at the next poll.
            entry.not_before = Timestamp::ZERO;
            self.evaluate(now, guid, Freshness::Believed);
        }
    }

    /// What the board answered to a request about an instance.
    pub(super) fn lrp_answered(&mut self, guid: &ContainerGuid, request: &CellRequest) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        use volvox_protocol::tables::Whose::Ours;
        entry.belief = match request {
            CellRequest::ClaimLrp(..) => BoardRecord::Lrp(LrpView::Claimed(Ours), None),
            CellRequest::StartLrp(_, _, running) => {
                BoardRecord::Lrp(LrpView::Running(Ours), Some(Arc::clone(running)))
            }
            // Perhaps it waits for an auction instead: either way it is not ours, and not to be claimed.
            CellRequest::CrashLrp(..) => BoardRecord::Lrp(LrpView::Crashed, None),
            CellRequest::RemoveLrp(..) => BoardRecord::Lrp(LrpView::Missing, None),
            CellRequest::EvacuateClaimed(..)
            | CellRequest::EvacuateRunning(..)
            | CellRequest::EvacuateCrashed(..)
            | CellRequest::EvacuateStopped(..)
            | CellRequest::RemoveEvacuating(..)
            | CellRequest::StartTask(..)
            | CellRequest::CompleteTask(..)
            | CellRequest::RejectTask(..) => return,
        };
    }

    /// What was assigned before this life. Its containers may have survived; the executor says.
    pub(super) fn assigned(&mut self, all: Vec<Assigned>) {
        for Assigned { key, instance, definition } in all {
            self.definitions.insert(definition_of(&key), definition);
            let owner = Owner::Lrp { key, instance };
            let entry = self.entries.entry(owner.container());
            let entry = entry.or_insert_with(|| TrackedContainer::new(owner, BoardRecord::Unknown));
            entry.assigned = true;
        }
    }
}

/// A reason that fits into a request.
pub(super) fn cut(reason: &str) -> &str {
    let limit = volvox_protocol::limits::REASON_BYTES;
    if reason.len() <= limit {
        return reason;
    }
    let end = (0..=limit).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
    &reason[..end]
}
