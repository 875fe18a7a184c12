//! Evacuation: the cell takes nothing new, asks the board again and again what to do with each
//! instance, and ends when it is empty or its time is over. Tasks may run to their end meanwhile.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use volvox_protocol::cell_rpc::CellAnswer;
use volvox_protocol::request::{CellRequest, TaskOutcome};
use volvox_protocol::tables::rep_lrp::ContainerPhase;
use volvox_protocol::time::Timestamp;

use super::{Rep, RepOutput};
use crate::container::guid::ContainerGuid;
use crate::executor::workload::Owner;
use crate::rep::view;

/// The seeds' reason for a task that was still running.
pub(super) const TIMED_OUT: &str = "timed out during cell evacuation";
/// How long what is left has to be taken away after that.
const LAST_GRACE: Duration = Duration::from_secs(30);

/// An evacuation under way.
#[derive(Debug)]
pub(super) struct Evacuation {
    since: Timestamp,
    next_poll: Timestamp,
    timed_out: bool,
    over: bool,
}

/// How an evacuation is getting on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvacuationStatus {
    /// When it began.
    pub since: Timestamp,
    /// When it ends at the latest.
    pub until: Timestamp,
    /// Instances that are still here.
    pub instances_left: usize,
    /// Tasks that still run here.
    pub tasks_left: usize,
    /// Whether it has ended.
    pub over: bool,
}

impl Rep {
    pub(super) fn evacuate(&mut self, now: Timestamp) {
        if self.evacuation.is_none() {
            let (timed_out, over) = (false, false);
            self.evacuation = Some(Evacuation { since: now, next_poll: now, timed_out, over });
        }
    }

    pub(super) fn evacuation_status(&self) -> Option<EvacuationStatus> {
        let evacuation = self.evacuation.as_ref()?;
        let here = || self.entries.values().filter(|it| it.container.is_some());
        let tasks = here().filter(|it| matches!(it.owner, Owner::Task { .. })).count();
        let instances = here().filter(|it| matches!(it.owner, Owner::Lrp { .. })).count();
        Some(EvacuationStatus {
            since: evacuation.since,
            until: evacuation.since + self.settings.evacuation_timeout,
            instances_left: instances,
            tasks_left: tasks,
            over: evacuation.over,
        })
    }

    pub(super) fn evacuation_due(&self) -> Option<Timestamp> {
        let evacuation = self.evacuation.as_ref().filter(|it| !it.over)?;
        let end = evacuation.since + self.settings.evacuation_timeout;
        let end = if evacuation.timed_out { end + LAST_GRACE } else { end };
        Some(evacuation.next_poll.min(end))
    }

    pub(super) fn has_timed_out(&self) -> bool {
        self.evacuation.as_ref().is_some_and(|it| it.timed_out)
    }

    /// Looks at what is still here, once in a while, and gives up at the end.
    pub(super) fn poll_evacuees(&mut self, now: Timestamp) {
        let Some(evacuation) = &mut self.evacuation else { return };
        if evacuation.over {
            return;
        }
        let time_is_over = now >= evacuation.since + self.settings.evacuation_timeout;
        if time_is_over && !evacuation.timed_out {
            evacuation.timed_out = true;
            evacuation.next_poll = now + self.settings.evacuate_every;
            return self.take_the_rest_away();
        }
        if now >= evacuation.next_poll {
            evacuation.next_poll = now + self.settings.evacuate_every;
            self.judge_all(now);
        }
    }

    pub(super) fn judge_evacuee(&mut self, now: Timestamp, guid: &ContainerGuid) {
        if self.coordinator.is_none() {
            return;
        }
        let Some(entry) = self.entries.get(guid) else { return };
        let Owner::Lrp { key, instance } = &entry.owner else { return };
        let (key, on) = (key.clone(), self.on(instance));
        let request = match view::of_container(entry.container.as_ref().map(|it| &it.container)) {
            ContainerPhase::Absent => return,
            ContainerPhase::Reserved | ContainerPhase::Starting => {
                CellRequest::EvacuateClaimed(key, on)
            }
            // Told to stop: its record goes first, so that routers know, and then the container.
            ContainerPhase::Running if entry.stop => CellRequest::EvacuateStopped(key, on),
            ContainerPhase::Running => match self.facts(guid) {
                Some(running) => CellRequest::EvacuateRunning(key, on, running),
                None => return,
            },
            ContainerPhase::Crashed => {
                CellRequest::EvacuateCrashed(key, on, self.crash_reason(guid))
            }
            ContainerPhase::Shutdown => CellRequest::EvacuateStopped(key, on),
        };
        // The next time is the next poll's, whatever comes between.
        let poll = self.evacuation.as_ref().map_or(now, |it| it.next_poll);
        if let Some(entry) = self.entries.get_mut(guid) {
            entry.not_before = poll;
        }
        self.ask(guid, request);
    }

    /// What the board said; no answer is a refusal. False: this was no question of an evacuation.
    pub(super) fn evacuee_answered(
        &mut self,
        now: Timestamp,
        guid: &ContainerGuid,
        request: &CellRequest,
        answer: Option<&CellAnswer>,
    ) -> bool {
        let goes = match request {
            CellRequest::EvacuateRunning(..) => answer == Some(&CellAnswer::KeepContainer(false)),
            // Whatever the answer is: it is of no use here.
            CellRequest::EvacuateClaimed(..)
            | CellRequest::EvacuateCrashed(..)
            | CellRequest::EvacuateStopped(..) => true,
            CellRequest::ClaimLrp(..)
            | CellRequest::StartLrp(..)
            | CellRequest::CrashLrp(..)
            | CellRequest::RemoveLrp(..)
            | CellRequest::RemoveEvacuating(..)
            | CellRequest::StartTask(..)
            | CellRequest::CompleteTask(..)
            | CellRequest::RejectTask(..) => return false,
        };
        let Some(entry) = self.entries.get_mut(guid) else { return true };
        if goes {
            // Nothing of it is ours on the board any more.
            entry.belief =
                super::BoardRecord::Lrp(volvox_protocol::tables::rep_lrp::LrpView::Missing, None);
            if entry.container.is_some() {
                self.drain_then_delete(now, guid);
            }
        }
        true
    }

    /// The time is over.
    fn take_the_rest_away(&mut self) {
        let cell = self.settings.cell_id.clone();
        let left: Vec<ContainerGuid> = self
            .entries
            .iter()
            .filter(|(_, it)| it.container.is_some())
            .map(|(guid, _)| guid.clone())
            .collect();
        for guid in left {
            let request = match &self.entries[&guid].owner {
                Owner::Lrp { key, instance } => {
                    CellRequest::RemoveEvacuating(key.clone(), self.on(instance))
                }
                Owner::Task { guid, .. } => {
                    let outcome = TaskOutcome::failed_because(TIMED_OUT);
                    CellRequest::CompleteTask(guid.clone(), cell.clone(), outcome)
                }
                Owner::Local(_) => continue,
            };
            let told = "the evacuation has reached its timeout".to_owned();
            self.effects.push(RepOutput::Note(guid.clone(), told));
            self.reports.queue_once(request);
            self.delete(&guid);
        }
    }

    /// Empty, and the board knows all of it: the agent may end.
    pub(super) fn end_evacuation(&mut self, now: Timestamp) {
        let is_empty = self
            .entries
            .values()
            .all(|it| it.container.is_none() && it.busy == super::PendingOp::No || it.is_local());
        // What was lost on the way is found by a sync.
        let told = self.reports.is_idle() && self.syncing.is_idle() || self.coordinator.is_none();
        let latest = self.settings.evacuation_timeout + LAST_GRACE;
        let Some(evacuation) = &mut self.evacuation else { return };
        let too_late = now >= evacuation.since + latest;
        if !evacuation.over && (is_empty && told || too_late) {
            evacuation.over = true;
            self.effects.push(RepOutput::Evacuated);
        }
    }
}
