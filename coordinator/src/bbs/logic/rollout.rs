//! The roll: what is to be done about a deployment, and when. Index by index the new instance runs
//! before the old one is told to stop.
//!
//! The deployment's record says which indices have been taken up ([`Rollout`]); which definitions are
//! wanted at an index follows from that (`state/wanted.rs`), and `converge.rs` creates and stops
//! accordingly. Here only the record moves on: an index lands, another is taken up, the update is
//! over, has stalled or goes back. Everything is judged from stored records, so a coordinator that
//! was restarted goes on where the last one was.

use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, LrpState, Presence};
use volvox_protocol::deployment::{LrpDeployment, Rollout, RolloutDirection, RolloutPause};
use volvox_protocol::id::ProcessGuid;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::time::Timestamp;

use super::Board;
use super::converge::Repair;
use super::schedule::DueTime;
use super::txn::Txn;
use crate::bbs::command::ConvergeKey;
use crate::bbs::state::Process;

/// What is to be done about a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RolloutStep {
    /// New instances have run for long enough: their indices are done.
    Land,
    /// Indices have held up the update for too long: it goes on without them.
    LeaveBehind,
    /// There is room in flight, and there are indices to take up.
    TakeUp,
    /// The canaries are there: wait for somebody to promote the update.
    AwaitPromotion,
    /// There was no progress for too long.
    Stall,
    /// The new definition fails, and the policy is to go back then.
    GoBack,
    /// Every index is done.
    Finish,
    /// A definition has no instance left.
    Prune,
    /// A definition has been in the history for long enough.
    Forget,
}

const STALLED: &str = "no progress within the deadline";
const CRASHED: &str = "a new instance crashes again and again";

/// Whether convergence has to look at a deployment: most have one definition and no past.
pub(super) fn is_eventful(deployment: &LrpDeployment) -> bool {
    deployment.roll.is_some() || deployment.definitions.len() > 1 || !deployment.history.is_empty()
}

impl Board {
    /// What is to be done about a deployment, and when. What is due first comes first.
    pub(super) fn judge_roll(&self, guid: &ProcessGuid) -> Option<(DueTime, Repair)> {
        let process = self.records.process(guid)?;
        let (_, deployment) = process.deployment.as_ref()?;
        if !is_eventful(deployment) {
            return None;
        }
        let is_over =
            |roll: &Rollout| roll.in_flight.is_empty() && roll.next(deployment.instances).is_none();
        if mutated(Bug::RollNeverEnds) && deployment.roll.as_deref().is_some_and(is_over) {
            return None;
        }
        let mut first: Option<(Timestamp, RolloutStep)> = None;
        let mut due = |at: Timestamp, deed: RolloutStep| {
            if at != Timestamp::NEVER && first.is_none_or(|(known, _)| at < known) {
                first = Some((at, deed));
            }
        };
        if let Some(roll) = &deployment.roll {
            self.judge_flights(process, deployment, roll, &mut due);
            self.judge_progress(deployment, roll, &mut due);
        }
        if process.idle_definitions(deployment).next().is_some() {
            due(Timestamp::ZERO, RolloutStep::Prune);
        }
        if let Some(oldest) = deployment.history.iter().map(|past| past.retired_at).min() {
            due(oldest + self.settings.definition_history_age, RolloutStep::Forget);
        }
        first.map(|(at, deed)| (DueTime::At(at), Repair::Deployment(deed)))
    }

    fn judge_flights(
        &self,
        process: &Process,
        deployment: &LrpDeployment,
        roll: &Rollout,
        due: &mut impl FnMut(Timestamp, RolloutStep),
    ) {
        let policy = deployment.policy();
        let proven =
            deployment.healthy_definition_id.as_ref() == Some(&deployment.active_definition_id);
        let goes_back = policy.rollback_on_failure && roll.order == RolloutDirection::Rising;
        let stuck_after = policy.stuck_after(self.settings.stuck_after);
        let flights = roll.in_flight.iter().map(|flight| (flight.index, Some(flight.since)));
        for (index, since) in flights.chain(roll.stuck.iter().map(|index| (*index, None))) {
            let new = new_instance(process, deployment, index);
            match (new.map(|lrp| (&lrp.state, lrp.since)), since) {
                (Some((LrpState::Running(_, running), runs_since)), _) if running.routable => {
                    due(runs_since + policy.min_healthy_time(), RolloutStep::Land);
                }
                (Some((LrpState::Crashed, _)), _) if goes_back => {
                    due(Timestamp::ZERO, RolloutStep::GoBack);
                }
                (_, Some(since)) if proven => due(since + stuck_after, RolloutStep::LeaveBehind),
                (_, _) => {}
            }
        }
    }

    fn judge_progress(
        &self,
        deployment: &LrpDeployment,
        roll: &Rollout,
        due: &mut impl FnMut(Timestamp, RolloutStep),
    ) {
        if roll.is_over(deployment.instances) {
            due(Timestamp::ZERO, RolloutStep::Finish);
        }
        if roll.pause.is_some() {
            return;
        }
        // The way back has no deadline: there is nothing else to go to.
        if roll.order == RolloutDirection::Rising {
            let deadline = roll.progressed_at + deployment.policy().progress_deadline();
            // While nobody was here no cell could tell of progress.
            due(deadline.max(self.opened_at + self.settings.stale_after), RolloutStep::Stall);
        }
        if room(deployment, roll) > 0 {
            due(Timestamp::ZERO, RolloutStep::TakeUp);
        } else if awaits_promotion(deployment, roll) {
            due(Timestamp::ZERO, RolloutStep::AwaitPromotion);
        }
    }
}

/// The instance of the active definition at an index, unless it has been told to stop.
fn new_instance<'a>(
    process: &'a Process,
    deployment: &LrpDeployment,
    index: u32,
) -> Option<&'a ActualLrp> {
    let slot = process.find(&deployment.active_definition_id, index, Presence::Ordinary)?;
    (!slot.lrp.stopping).then_some(&*slot.lrp)
}

/// Whether an instance does what the old one did: it runs, and traffic may be sent to it.
fn serves(lrp: &ActualLrp) -> bool {
    lrp.running().is_some_and(|running| running.routable)
}

/// How many indices have to be done before somebody promotes the update.
fn canaries(deployment: &LrpDeployment, roll: &Rollout) -> Option<u32> {
    let canaries = deployment.policy().canary_instances;
    (!roll.promoted && canaries > 0).then_some(canaries)
}

/// How many more indices may be taken up now.
fn room(deployment: &LrpDeployment, roll: &Rollout) -> u32 {
    if roll.next(deployment.instances).is_none() {
        return 0;
    }
    let flying = u32::try_from(roll.in_flight.len()).unwrap_or(u32::MAX);
    let more = u32::from(mutated(Bug::OneMoreInFlight));
    let room = (deployment.policy().in_flight() + more).saturating_sub(flying);
    match canaries(deployment, roll) {
        // Only a rising update has canaries: the border is how many were taken up.
        Some(canaries) => room.min(canaries.saturating_sub(roll.border)),
        None => room,
    }
}

fn awaits_promotion(deployment: &LrpDeployment, roll: &Rollout) -> bool {
    let instances = deployment.instances;
    roll.next(instances).is_some()
        && canaries(deployment, roll).is_some_and(|canaries| roll.done(instances) >= canaries)
}

impl Txn<'_> {
    /// Takes an update further, or tidies up after one.
    pub(super) fn deal_with_deployment(&mut self, process: &ProcessGuid, deed: RolloutStep) {
        let Some(known) = self.board.records.deployment(process).cloned() else { return };
        self.rolled = true;
        let mut after = (*known.1).clone();
        match deed {
            RolloutStep::Land => self.land(&mut after),
            RolloutStep::LeaveBehind => self.leave_behind(&mut after),
            RolloutStep::TakeUp => self.take_up(&mut after),
            RolloutStep::AwaitPromotion => set_pause(&mut after, RolloutPause::Canary),
            RolloutStep::Stall => self.stall(&mut after),
            RolloutStep::GoBack => self.begin_way_back(&mut after, CRASHED),
            RolloutStep::Finish => self.finish_roll(&mut after),
            RolloutStep::Prune => self.prune(&mut after),
            RolloutStep::Forget => {
                let (now, age) = (self.now, self.board.settings.definition_history_age);
                after.history.retain(|past| past.retired_at + age > now);
            }
        }
        self.change_deployment(&known, after);
    }

    fn land(&self, after: &mut LrpDeployment) {
        let Some(process) = self.board.records.process(&after.process_guid) else { return };
        let min_healthy_time = after.policy().min_healthy_time();
        let Some(mut roll) = after.roll.take() else { return };
        let flights = roll.in_flight.iter().map(|flight| flight.index);
        let landed: Vec<u32> = flights
            .chain(roll.stuck.iter().copied())
            .filter(|index| {
                new_instance(process, after, *index)
                    .is_some_and(|lrp| serves(lrp) && lrp.since + min_healthy_time <= self.now)
            })
            .collect();
        for index in landed {
            roll.land(index);
        }
        roll.progressed_at = self.now;
        roll.pause = roll.pause.filter(|pause| *pause != RolloutPause::Stalled);
        after.healthy_definition_id = Some(after.active_definition_id.clone());
        after.roll = Some(roll);
    }

    /// It may have come to its end because no index was left.
    fn finish_roll(&self, after: &mut LrpDeployment) {
        after.roll = None;
        let process = self.board.records.process(&after.process_guid);
        if after.healthy_definition_id.is_none()
            && process.is_some_and(|process| process.has_run(&after.active_definition_id))
        {
            after.healthy_definition_id = Some(after.active_definition_id.clone());
        }
    }

    fn leave_behind(&self, after: &mut LrpDeployment) {
        let stuck_after = after.policy().stuck_after(self.board.settings.stuck_after);
        let Some(process) = self.board.records.process(&after.process_guid) else { return };
        let Some(mut roll) = after.roll.take() else { return };
        let serves = |index| new_instance(process, after, index).is_some_and(serves);
        let late = roll.in_flight.iter().filter(|it| it.since + stuck_after <= self.now);
        let late: Vec<u32> = late.map(|it| it.index).filter(|index| !serves(*index)).collect();
        for index in late {
            roll.leave_behind(index);
        }
        after.roll = Some(roll);
    }

    /// Takes up as many indices as there is room for. Those at which the new instance runs
    /// already, and nothing else is, are passed over.
    fn take_up(&self, after: &mut LrpDeployment) {
        let Some(process) = self.board.records.process(&after.process_guid) else { return };
        let instances = after.instances;
        let is_proven = after.healthy_definition_id.as_ref() == Some(&after.active_definition_id);
        let Some(mut roll) = after.roll.take() else { return };
        while room(after, &roll) > 0 {
            let Some(index) = roll.next(instances) else { break };
            let new = new_instance(process, after, index);
            if is_proven && new.is_some_and(serves) {
                roll.pass(index);
                roll.progressed_at = self.now;
            } else {
                roll.take_up(self.now, index);
            }
        }
        after.roll = Some(roll);
    }

    fn stall(&self, after: &mut LrpDeployment) {
        if after.policy().rollback_on_failure {
            self.begin_way_back(after, STALLED);
        } else {
            set_pause(after, RolloutPause::Stalled);
        }
    }
}

fn set_pause(after: &mut LrpDeployment, pause: RolloutPause) {
    if let Some(roll) = &mut after.roll {
        roll.pause = Some(pause);
    }
}

impl Board {
    /// Judges what a changed deployment wants or no longer wants.
    pub(super) fn judge_deployment(
        &mut self,
        now: Timestamp,
        before: Option<&LrpDeployment>,
        after: Option<&LrpDeployment>,
    ) {
        let Some(either) = after.or(before) else { return };
        let guid = &either.process_guid;
        let mut subjects: Vec<ConvergeKey> = Vec::new();
        match (before, after) {
            (Some(before), Some(after)) if !is_all_new(before, after) => {
                for index in changed_indices(before, after) {
                    let ids = after.definitions.iter().map(|(id, _)| id);
                    subjects
                        .extend(ids.map(|id| ConvergeKey::Index(guid.clone(), id.clone(), index)));
                }
            }
            (_, _) => {
                for deployment in [before, after].into_iter().flatten() {
                    let count = deployment.instances;
                    for (id, _) in deployment.definitions.iter() {
                        let at = |index| ConvergeKey::Index(guid.clone(), id.clone(), index);
                        subjects.extend((0..count).map(at));
                    }
                }
                if let Some(known) = self.records.process(guid) {
                    let there = known.instances().iter();
                    subjects.extend(there.map(|slot| super::txn::subject_of(&slot.lrp)));
                }
            }
        }
        subjects.sort();
        subjects.dedup();
        for subject in subjects {
            self.reschedule(now, subject);
        }
        self.reschedule(now, ConvergeKey::Deployment(guid.clone()));
    }

    /// Judges what depends on a record of the index besides the record itself: the other
    /// definitions there, and the update.
    pub(super) fn judge_beside(&mut self, now: Timestamp, lrp: &ActualLrp) {
        let Some((_, deployment)) = self.records.deployment(&lrp.process_guid) else { return };
        if deployment.roll.is_none() && deployment.definitions.len() == 1 {
            return;
        }
        let deployment = Arc::clone(deployment);
        let guid = &lrp.process_guid;
        for (id, _) in deployment.definitions.iter().filter(|(id, _)| **id != lrp.definition_id) {
            self.reschedule(now, ConvergeKey::Index(guid.clone(), id.clone(), lrp.index));
        }
        self.reschedule(now, ConvergeKey::Deployment(guid.clone()));
    }
}

/// Whether every index has to be judged again.
fn is_all_new(before: &LrpDeployment, after: &LrpDeployment) -> bool {
    let order = |it: &LrpDeployment| it.roll.as_ref().map(|roll| roll.order);
    let rolls = before.roll.is_some() || after.roll.is_some();
    let over = |it: &LrpDeployment| it.roll.as_ref().is_some_and(|it_| it_.is_over(it.instances));
    before.active_definition_id != after.active_definition_id
        || before.update_strategy != after.update_strategy
        || (rolls && before.healthy_definition_id != after.healthy_definition_id)
        || (order(before) != order(after) && !(after.roll.is_none() && over(before)))
}

/// The indices at which something else may be wanted now.
fn changed_indices(before: &LrpDeployment, after: &LrpDeployment) -> Vec<u32> {
    let (few, many) =
        (before.instances.min(after.instances), before.instances.max(after.instances));
    let mut indices: Vec<u32> = (few..many).collect();
    if let (Some(before), Some(after)) = (&before.roll, &after.roll) {
        let (low, high) = (before.border.min(after.border), before.border.max(after.border));
        indices.extend(low..high);
        for roll in [before, after] {
            indices.extend(roll.in_flight.iter().map(|flight| flight.index));
            indices.extend(&roll.stuck);
        }
    }
    indices
}
