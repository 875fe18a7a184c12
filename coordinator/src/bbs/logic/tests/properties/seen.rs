//! Whether the random sequences reach what they are about: a property that is never tried holds.

use std::collections::BTreeMap;

use super::super::*;
use super::play::{Step, What};

/// How often something came about.
#[derive(Default)]
pub(super) struct Seen(BTreeMap<String, u64>);

/// Commands that some sequences must see accepted and, but for those marked with a star, refused.
const COMMANDS: [&str; 29] = [
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
const SITUATIONS: [&str; 19] = [
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

impl Seen {
    fn note(&mut self, what: &str) {
        *self.0.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn look(
        &mut self,
        before: &Board,
        step: &Step,
        outcome: Option<&Outcome>,
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
                Effect::StopInstance(_, of) if converged => {
                    let marked = |lrp: &&Arc<ActualLrp>| lrp.stopping && lrp.is_held_by(of);
                    let repeated = before.records.instances().find(marked).is_some();
                    self.note(if repeated { "stop repeated" } else { "stop asked by convergence" });
                }
                Effect::RequestAuction(..) if converged => self.note("start asked by convergence"),
                Effect::StopInstance(..) | Effect::RequestAuction(..) => {}
                Effect::UpdateInstance(..) => self.note("update asked"),
                Effect::CancelTask(..) => self.note("task cancelled on its cell"),
                Effect::CallBack(_) => self.note("called back"),
            }
        }
        for (_, process) in after.records.processes() {
            let all = process.instances();
            let full = |at: &[_]| at.len() == 3;
            if all.iter().any(|it| full(process.at(&it.lrp.definition_id, it.lrp.index))) {
                self.note("three records at an index");
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
    pub(super) fn is_complete(&self) {
        let mut wanted: Vec<String> = SITUATIONS.map(str::to_owned).to_vec();
        for name in COMMANDS {
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
