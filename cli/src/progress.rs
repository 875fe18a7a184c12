//! How far an app has come on its way to what is wanted: values in, a verdict and lines out. Pure;
//! `wait.rs` looks again and again and shows what is new.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use volvox_protocol::actual_lrp::{ActualLrp, LrpState, Presence};
use volvox_protocol::deployment::{LrpDeployment, RolloutDirection, RolloutPause, RolloutPhase};
use volvox_protocol::id::DefinitionId;

/// What stands at one index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct IndexProgress {
    /// The app.
    pub(crate) app: String,
    /// Which instance.
    pub(crate) index: u32,
    /// `waiting` while the update has not come to it, else the state of the wanted instance, or
    /// `stopping`.
    pub(crate) state: String,
    /// From which definition.
    pub(crate) definition_id: String,
    /// Where.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) cell_id: String,
    /// What holds it up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

impl IndexProgress {
    /// The line that tells people.
    pub(crate) fn line(&self) -> String {
        let at =
            if self.cell_id.is_empty() { String::new() } else { format!(" on {}", self.cell_id) };
        let note = if self.note.is_empty() { String::new() } else { format!(": {}", self.note) };
        let state = self.state.to_lowercase();
        format!("{}/{} {state}{at} ({}){note}", self.app, self.index, self.definition_id)
    }
}

/// Whether to go on waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WaitState {
    /// Everything is as it is wanted.
    Done,
    /// It is on its way.
    Going,
    /// It waits for somebody: who must do what.
    Waits(String),
    /// It has not come so far and perhaps never will, and why.
    Failed(String),
    /// Something else is wanted meanwhile, and why.
    Overtaken(String),
}

/// One look at an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) steps: Vec<IndexProgress>,
    pub(crate) verdict: WaitState,
    /// Indices that are done, of how many.
    pub(crate) done: (u32, u32),
}

/// Looks at an app that is to run from the definition `wanted`; none: from whichever is active.
pub(crate) fn look(
    deployment: &LrpDeployment,
    instances: &[Arc<ActualLrp>],
    wanted: Option<&DefinitionId>,
) -> Snapshot {
    let active = &deployment.active_definition_id;
    let wanted = wanted.unwrap_or(active);
    if active != wanted {
        let verdict = overtaken(deployment, wanted);
        return Snapshot { steps: Vec::new(), verdict, done: (0, deployment.instances) };
    }
    let mut at: BTreeMap<u32, Vec<&ActualLrp>> = BTreeMap::new();
    for lrp in instances {
        at.entry(lrp.index).or_default().push(lrp);
    }
    let mut steps = Vec::new();
    let mut crashed = None;
    let mut done = 0;
    for index in 0..deployment.instances {
        let found = at.remove(&index).unwrap_or_default();
        let ours = found.iter().find(|lrp| {
            lrp.definition_id == *wanted && lrp.presence == Presence::Ordinary && !lrp.stopping
        });
        let ahead = deployment.phase(index) == RolloutPhase::Ahead;
        if let Some(lrp) = ours
            && lrp.state == LrpState::Crashed
        {
            crashed.get_or_insert_with(|| crash(lrp));
        }
        let ready = ours.is_some_and(|lrp| lrp.running().is_some_and(|it| it.routable));
        done +=
            u32::from(ready && deployment.phase(index) == RolloutPhase::Done && found.len() == 1);
        let stands = ours.or_else(|| found.iter().find(|_| ahead));
        steps.push(step(deployment, index, wanted, stands.copied(), ours.is_none() && ahead));
    }
    let beyond = at.into_values().flatten();
    steps.extend(beyond.map(|lrp| IndexProgress {
        state: "stopping".to_owned(),
        ..step(deployment, lrp.index, wanted, Some(lrp), false)
    }));
    let all_done = done == deployment.instances && steps.len() as u64 == u64::from(done);
    let verdict = verdict(deployment, all_done, crashed);
    Snapshot { steps, verdict, done: (done, deployment.instances) }
}

fn crash(lrp: &ActualLrp) -> String {
    let (app, index, count) = (&lrp.process_guid, lrp.index, lrp.crash_count);
    format!("{app}/{index} has crashed {count} times in a row: {}", lrp.crash_reason)
}

fn step(
    deployment: &LrpDeployment,
    index: u32,
    wanted: &DefinitionId,
    stands: Option<&ActualLrp>,
    waiting: bool,
) -> IndexProgress {
    let state = match stands {
        _ if waiting => "waiting",
        None => "UNCLAIMED",
        Some(lrp) if lrp.running().is_some_and(|it| !it.routable) => "not ready",
        Some(lrp) => lrp.state.name(),
    };
    let note = stands.map_or("", |lrp| match &lrp.state {
        LrpState::Unclaimed { placement_error } => placement_error,
        LrpState::Crashed => &lrp.crash_reason,
        LrpState::Claimed(_) | LrpState::Running(..) => "",
    });
    let definition = stands.map_or(wanted, |lrp| &lrp.definition_id);
    IndexProgress {
        app: deployment.process_guid.to_string(),
        index,
        state: state.to_owned(),
        definition_id: definition.to_string(),
        cell_id: stands.and_then(ActualLrp::cell_id).map(ToString::to_string).unwrap_or_default(),
        note: note.to_owned(),
    }
}

/// The update was taken back, by itself or by somebody, or another one came.
fn overtaken(deployment: &LrpDeployment, wanted: &DefinitionId) -> WaitState {
    let (app, active) = (&deployment.process_guid, &deployment.active_definition_id);
    let back = deployment.roll.as_ref().filter(|roll| roll.order == RolloutDirection::Falling);
    let past = deployment.roll.is_none();
    WaitState::Overtaken(match back {
        Some(roll) if !roll.reason.is_empty() => {
            format!("the update of {app} was taken back to {active}: {}", roll.reason)
        }
        Some(_) => format!("the update of {app} was taken back to {active}"),
        None if past => format!("the update of {app} was taken back: it runs {active}"),
        None => format!("{app} is to run {active} now, not {wanted}"),
    })
}

fn verdict(deployment: &LrpDeployment, all_done: bool, crashed: Option<String>) -> WaitState {
    let app = &deployment.process_guid;
    match &deployment.roll {
        None if all_done => WaitState::Done,
        None => crashed.map_or(WaitState::Going, WaitState::Failed),
        Some(roll) => match roll.pause {
            Some(RolloutPause::Stalled) => WaitState::Failed(format!(
                "the update of {app} has stalled: no index was done in time"
            )),
            Some(RolloutPause::Canary) => WaitState::Waits(format!(
                "the canaries of {app} run: `volvox promote {app}` lets the update go on, \
                 `volvox cancel {app}` takes it back"
            )),
            Some(RolloutPause::Asked) => WaitState::Waits(format!(
                "the update of {app} is paused: `volvox resume {app}` lets it go on"
            )),
            None => crashed.map_or(WaitState::Going, WaitState::Failed),
        },
    }
}

#[cfg(test)]
mod tests;
