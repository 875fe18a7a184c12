//! Whether the random sequences reach what they are about: a property that is never tried holds.

use std::collections::{BTreeMap, BTreeSet};

use volvox_protocol::deployment::{Rollout, RolloutPause, RolloutPhase};
use volvox_protocol::id::DefinitionId;

use super::super::*;
use super::play::{Step, What};
use crate::bbs::state::Process;

/// How often something came about.
#[derive(Default)]
pub(super) struct Seen(BTreeMap<String, u64>);

/// Commands that some sequences must see accepted and, but for those marked with a star, refused.
pub(super) const COMMANDS: [&str; 29] = [
    "*UpsertDomain",
    "DesireLrp",
    "UpdateDesiredLrp",
    "RemoveDesiredLrp",
    "ClaimLrp",
    "StartLrp",
    "CrashLrp",
    "RemoveLrp",
    "EvacuateClaimed",
    "*EvacuateRunning",
    "EvacuateCrashed",
    "EvacuateStopped",
    "RemoveEvacuating",
    "StartTask",
    "CompleteTask",
    "RejectTask",
    "FailLrp",
    "RetireLrp",
    "DesireTask",
    "CancelTask",
    "FailTask",
    "ResolvingTask",
    "DeleteTask",
    "*CellPresence",
    "*CellsSettled",
    "*ConvergeDue",
    "*ConvergeAll",
    "board RemoveLrp",
    "board RejectTask",
];

/// What must be met somewhere.
pub(super) const SITUATIONS: [&str; 19] = [
    "suspect CLAIMED",
    "suspect RUNNING",
    "suspect promoted",
    "suspect evacuates",
    "suspect gone",
    "replacement lost",
    "evacuating record expired",
    "three records at an index",
    "CRASHED",
    "restarted by convergence",
    "placement error cleared",
    "adopted into another domain",
    "stop asked by convergence",
    "stop repeated",
    "cell forgotten",
    "start asked by convergence",
    "update asked",
    "task cancelled on its cell",
    "called back",
];

/// Commands that some random rolls must see, as above.
pub(super) const ROLL_COMMANDS: [&str; 12] = [
    "CreateDeployment",
    "UpdateDeployment",
    "UpdateDesiredLrp",
    "ActivateDefinition",
    "DeleteDeployment",
    "CancelUpdate",
    "Rollback",
    "PromoteUpdate",
    "PauseUpdate",
    "ResumeUpdate",
    "RetireLrp",
    "StartLrp",
];

/// What must be met somewhere in the random rolls.
pub(super) const ROLL_SITUATIONS: [&str; 22] = [
    "begun",
    "superseded",
    "cancelled",
    "went back by itself",
    "taken up",
    "landed",
    "healthy",
    "left behind",
    "landed after all",
    "awaits promotion",
    "paused",
    "stalled",
    "finished",
    "pruned",
    "back from the history",
    "forgotten",
    "scaled in the middle",
    "three definitions at an index",
    "suspect and another definition",
    "evacuating and another definition",
    "stop asked by convergence",
    "stand-in gone because another definition runs",
];

impl Seen {
    fn note(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn look(
        &mut self,
        before: &Board,
        step: &Step,
        outcome: Option<&ApplyResult>,
        after: &Board,
    ) {
        let What::Apply(command) = &step.what else { return };
        let told = if let Command::Cell(request) = command {
            format!("{:?}", **request)
        } else if let Command::RemoveLrp(_) | Command::RejectTask(..) = command {
            format!("board {command:?}")
        } else {
            format!("{command:?}")
        };
        let name = told.split('(').next().unwrap_or_default();
        self.note(&format!("{name} {}", if outcome.is_some() { "accepted" } else { "refused" }));
        let Some(outcome) = outcome else { return };
        let converged = matches!(outcome.reply, Reply::Converged(_));
        for change in &outcome.changes {
            if let Change::Deployment(_, Some(old), Some(new)) = change {
                self.look_at_deployment(old, new);
            }
            if let Change::Actual(_, Some(old), None) = change
                && converged
                && old.presence != Presence::Ordinary
                && let Some(process) = after.records.process(&old.process_guid)
                && process.is_served(old.index)
                && process.find(&old.definition_id, old.index, Presence::Ordinary).is_none()
            {
                self.note("stand-in gone because another definition runs");
            }
            if let Change::Actual(_, old, new) = change {
                self.look_at_record(converged, old.as_deref(), new.as_deref());
            }
            if let Change::Actual(_, Some(old), None) = change
                && old.presence == Presence::Ordinary
                && let Some(process) = before.records.process(&old.process_guid)
                && process.find(&old.definition_id, old.index, Presence::Suspect).is_some()
                && let Some(process) = after.records.process(&old.process_guid)
                && process.find(&old.definition_id, old.index, Presence::Ordinary).is_none()
            {
                self.note("replacement lost");
            }
            if let Change::Presence(_, _, None) = change {
                self.note("cell forgotten");
            }
        }
        for effect in &outcome.effects {
            match effect {
                BoardEffect::StopInstance(_, of) if converged => {
                    let marked = |lrp: &&Arc<ActualLrp>| lrp.stopping && lrp.is_held_by(of);
                    let repeated = before.records.instances().find(marked).is_some();
                    self.note(if repeated { "stop repeated" } else { "stop asked by convergence" });
                }
                BoardEffect::RequestAuction(..) if converged => {
                    self.note("start asked by convergence")
                }
                BoardEffect::StopInstance(..) | BoardEffect::RequestAuction(..) => {}
                BoardEffect::UpdateInstance(..) => self.note("update asked"),
                BoardEffect::CancelTask(..) => self.note("task cancelled on its cell"),
                BoardEffect::CallBack(_) => self.note("called back"),
            }
        }
        for (_, process) in after.records.processes() {
            self.look_at_indices(process);
            let all = process.instances();
            let full = |at: &[_]| at.len() == 3;
            if all.iter().any(|it| full(process.at(&it.lrp.definition_id, it.lrp.index))) {
                self.note("three records at an index");
            }
        }
    }

    fn look_at_deployment(&mut self, old: &LrpDeployment, new: &LrpDeployment) {
        let back = |roll: &Rollout| !roll.reason.is_empty();
        match (&old.roll, &new.roll) {
            (None, Some(_)) => self.note("begun"),
            (Some(_), None) => self.note("finished"),
            (Some(_), Some(roll)) if old.active_definition_id != new.active_definition_id => {
                self.note(match &*roll.reason {
                    "" => "superseded",
                    "cancelled" => "cancelled",
                    _ => "went back by itself",
                });
            }
            (Some(one), Some(other)) if !back(one) => self.look_at_roll(one, other),
            (_, _) => {}
        }
        if new.definitions.len() < old.definitions.len() {
            self.note("pruned");
        }
        let known = |id: &DefinitionId| new.history.get(id).is_some();
        for past in old.history.iter().filter(|past| !known(&past.definition_id)) {
            let back = new.definitions.get(&past.definition_id).is_some();
            self.note(if back { "back from the history" } else { "forgotten" });
        }
        if new.roll.is_some() && old.healthy_definition_id != new.healthy_definition_id {
            self.note("healthy");
        }
        if new.roll.is_some() && old.roll.is_some() && old.instances != new.instances {
            self.note("scaled in the middle");
        }
    }

    fn look_at_roll(&mut self, old: &Rollout, new: &Rollout) {
        let flies = |roll: &Rollout, index| roll.flight(index).is_some();
        if new.in_flight.iter().any(|flight| !flies(old, flight.index)) {
            self.note("taken up");
        }
        if old.in_flight.iter().any(|it| new.phase(it.index) == RolloutPhase::Done) {
            self.note("landed");
        }
        if new.stuck.iter().any(|index| !old.stuck.contains(index)) {
            self.note("left behind");
        }
        if old.stuck.iter().any(|index| new.phase(*index) == RolloutPhase::Done) {
            self.note("landed after all");
        }
        match new.pause.filter(|_| old.pause.is_none()) {
            Some(RolloutPause::Canary) => self.note("awaits promotion"),
            Some(RolloutPause::Asked) => self.note("paused"),
            Some(RolloutPause::Stalled) => self.note("stalled"),
            None => {}
        }
    }

    fn look_at_indices(&mut self, process: &Process) {
        let mut here: BTreeMap<u32, BTreeSet<&DefinitionId>> = BTreeMap::new();
        for slot in process.instances() {
            here.entry(slot.lrp.index).or_default().insert(&slot.lrp.definition_id);
        }
        for slot in process.instances() {
            let count = here.get(&slot.lrp.index).map_or(0, BTreeSet::len);
            match slot.lrp.presence {
                Presence::Suspect if count > 1 => self.note("suspect and another definition"),
                Presence::Evacuating if count > 1 => self.note("evacuating and another definition"),
                Presence::Ordinary | Presence::Suspect | Presence::Evacuating => {}
            }
            if count > 2 {
                self.note("three definitions at an index");
            }
        }
    }

    fn look_at_record(
        &mut self,
        converged: bool,
        old: Option<&ActualLrp>,
        new: Option<&ActualLrp>,
    ) {
        use Presence::{Evacuating, Ordinary, Suspect};
        let presences = (old.map(|lrp| lrp.presence), new.map(|lrp| lrp.presence));
        match presences {
            (Some(Ordinary), Some(Suspect)) => {
                self.note(&format!("suspect {}", new.map_or("", |lrp| lrp.state.name())));
            }
            (Some(Suspect), Some(Ordinary)) => self.note("suspect promoted"),
            (Some(Suspect), Some(Evacuating)) => self.note("suspect evacuates"),
            (Some(Suspect), None) => self.note("suspect gone"),
            (Some(Evacuating), None) if converged => self.note("evacuating record expired"),
            (_, _) => {}
        }
        let (Some(old), Some(new)) = (old, new) else { return };
        if new.state == LrpState::Crashed {
            self.note("CRASHED");
        }
        if converged && old.state == LrpState::Crashed {
            self.note("restarted by convergence");
        }
        if !old.placement_error().is_empty() && new.placement_error().is_empty() {
            self.note("placement error cleared");
        }
        if old.domain != new.domain {
            self.note("adopted into another domain");
        }
    }

    /// Says what was never met.
    pub(super) fn is_complete(&self, commands: &[&str], situations: &[&str]) {
        let mut wanted: Vec<String> = situations.iter().map(|it| (*it).to_owned()).collect();
        for name in commands {
            wanted.push(format!("{} accepted", name.trim_start_matches('*')));
            if !name.starts_with('*') {
                wanted.push(format!("{name} refused"));
            }
        }
        let never: Vec<_> = wanted.iter().filter(|what| !self.0.contains_key(*what)).collect();
        println!("{:#?}", self.0);
        assert!(never.is_empty(), "never met: {never:#?}");
    }
}
