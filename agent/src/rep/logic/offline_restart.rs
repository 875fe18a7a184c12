//! A cell without a coordinator: what crashes is restarted here, within the crash policy; what was
//! assigned before a power cut is started again. The container keeps its name, so that the record that
//! names it is right again. When there is a coordinator, the tables settle who stays.

use volvox_protocol::container::ContainerState;
use volvox_protocol::tables::Whose::Ours;
use volvox_protocol::tables::crash::{CrashOutcome, Restart};
use volvox_protocol::tables::rep_lrp::{ContainerPhase, LrpView};
use volvox_protocol::time::Timestamp;

use super::orders::Batch;
use super::{BoardRecord, Freshness, PendingOp, Rep, RepOutput, TrackedContainer, definition_of};
use crate::container::guid::ContainerGuid;
use crate::executor::logic::{self, ReservationRequest};
use crate::executor::workload::{Owner, Workload};
use crate::rep::view;

/// How an instance fares without a coordinator.
#[derive(Debug, Clone, Default)]
pub(super) struct OfflineRestart {
    /// Crashes in a row, as far as this cell knows.
    crashes: u32,
    /// Since when it runs, if it does or did.
    running_since: Option<Timestamp>,
    /// The crash that `restart_at` is about, by its time.
    crash: Option<Timestamp>,
    restart_at: Option<Timestamp>,
    restarting: bool,
    /// It could not be made again: nothing is tried until something else changes.
    gave_up: bool,
}

impl OfflineRestart {
    pub(super) fn is_restarting(&self) -> bool {
        self.restarting
    }

    /// The container that crashed could not be taken away: it is still that crash, later.
    pub(super) fn put_off(&mut self, crash: Option<Timestamp>, until: Timestamp) {
        if self.restarting {
            self.restarting = false;
            (self.crash, self.restart_at) = (crash, Some(until));
        }
    }

    pub(super) fn give_up(&mut self) {
        self.restarting = false;
        self.gave_up = true;
    }
}

impl TrackedContainer {
    /// Notes since when it runs: an instance that ran long had recovered.
    pub(super) fn note_running(&mut self, view: &logic::ContainerView) {
        match view.container.state {
            ContainerState::Running => {
                self.alone.running_since = Some(view.container.since);
            }
            ContainerState::Reserved | ContainerState::Initializing | ContainerState::Created => {
                self.alone.running_since = None;
            }
            ContainerState::Completed => {}
        }
    }

    fn may_be_restarted(&self) -> bool {
        let idle = self.busy == PendingOp::No && !self.alone.restarting && !self.alone.gave_up;
        idle && !self.stop && self.is_ours()
    }

    /// Whether the board would have it run here, as far as we know.
    fn is_ours(&self) -> bool {
        match &self.belief {
            BoardRecord::Unknown => true,
            BoardRecord::Lrp(record, _) => {
                matches!(record, LrpView::Claimed(Ours) | LrpView::Running(Ours))
            }
            BoardRecord::Task(_) => false,
        }
    }
}

impl Rep {
    /// Whether the cell has to look after itself.
    pub(super) fn is_alone(&self, now: Timestamp) -> bool {
        self.coordinator.is_none() && now >= self.since + self.settings.alone_after
    }

    /// When to look after instances next. Once the cell knows that it is alone it looks at everything
    /// as it happens, so only what waits is left.
    pub(super) fn alone_due(&self) -> Option<Timestamp> {
        if self.coordinator.is_some() || self.evacuation.is_some() {
            return None;
        }
        if !self.knows_alone {
            return Some(self.since + self.settings.alone_after);
        }
        let waiting = self.entries.values().filter(|it| {
            let container = it.container.as_ref().map(|it| &it.container);
            it.may_be_restarted() && view::of_container(container) == ContainerPhase::Crashed
        });
        waiting.filter_map(|it| Some(it.alone.restart_at?.max(it.not_before))).min()
    }

    pub(super) fn look_after_the_lone(&mut self, now: Timestamp) {
        if !self.is_alone(now) || self.evacuation.is_some() {
            return;
        }
        self.knows_alone = true;
        let all: Vec<ContainerGuid> = self.entries.keys().cloned().collect();
        for guid in all {
            self.look_after(now, &guid);
        }
    }

    fn look_after(&mut self, now: Timestamp, guid: &ContainerGuid) {
        let policy = self.settings.crash_policy.clone();
        let Some(entry) = self.entries.get_mut(guid) else { return };
        let Owner::Lrp { key, .. } = &entry.owner else { return };
        let known = self.definitions.contains_key(&definition_of(key));
        if !known || !entry.may_be_restarted() || now < entry.not_before {
            return;
        }
        let container = entry.container.as_ref().map(|it| &it.container);
        let Some(ended) = container.map(|it| it.since) else {
            if entry.assigned {
                entry.alone.restarting = true;
                self.make_again(guid);
            }
            return;
        };
        if view::of_container(container) != ContainerPhase::Crashed {
            return;
        }
        let alone = &mut entry.alone;
        if alone.crash != Some(ended) {
            let ran_for = alone.running_since.map(|since| ended.since(since));
            let (count, outcome) = policy.crash(alone.crashes, ran_for);
            alone.crashes = count;
            alone.crash = Some(ended);
            alone.restart_at = match (outcome, policy.restart(count)) {
                (CrashOutcome::RestartNow, _) => Some(now),
                (CrashOutcome::Wait, Restart::After(wait)) => Some(ended + wait),
                (CrashOutcome::Wait, Restart::Never) => None,
            };
        }
        if alone.restart_at.is_some_and(|at| at <= now) {
            alone.restart_at = None;
            alone.crash = None;
            alone.restarting = true;
            let told =
                format!("crashed without a coordinator, {} times in a row: restart", alone.crashes);
            self.effects.push(RepOutput::Note(guid.clone(), told));
            self.delete(guid);
        }
    }

    /// Sets room aside for an instance that had a container before.
    pub(super) fn make_again(&mut self, guid: &ContainerGuid) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        let Owner::Lrp { key, .. } = &entry.owner else { return };
        let Some(known) = self.definitions.get(&definition_of(key)) else {
            entry.alone.give_up();
            return;
        };
        entry.busy = PendingOp::Reserving;
        let resources = Workload::Lrp(known.definition.clone()).resources();
        let wanted = ReservationRequest { owner: entry.owner.clone(), resources };
        self.next_batch += 1;
        self.reserving.insert(self.next_batch, Batch::Again(guid.clone()));
        self.effects.push(RepOutput::Reserve(self.next_batch, vec![wanted]));
    }

    pub(super) fn no_room_again(&mut self, now: Timestamp, guid: &ContainerGuid, reason: &str) {
        self.effects.push(RepOutput::Note(guid.clone(), format!("cannot be restarted: {reason}")));
        let Some(entry) = self.entries.get_mut(guid) else { return };
        entry.busy = PendingOp::No;
        entry.alone.restarting = false;
        if self.coordinator.is_none() {
            entry.not_before = now + self.settings.pass_every;
        } else {
            // There is a coordinator again, and it finds another cell.
            self.evaluate(now, guid, Freshness::Believed);
        }
    }

    /// The room is there: run it as before.
    pub(super) fn run_again(&mut self, guid: &ContainerGuid) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        entry.alone.restarting = false;
        if entry.stop {
            // It was told to stop while it was between two containers.
            return self.delete(guid);
        }
        let Owner::Lrp { key, instance } = entry.owner.clone() else { return };
        self.run_lrp(guid, &key, &instance);
    }
}
