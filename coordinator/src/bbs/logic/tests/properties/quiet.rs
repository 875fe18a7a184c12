//! With fresh domains and cells that do as they are told, the running set becomes the desired set
//! from any state; with all cells there, or with one of them gone for good.

use std::collections::BTreeSet;

use volvox_protocol::deployment::RolloutPause;
use volvox_protocol::tables::crash::Restart;

use super::super::*;
use super::play::Cast;
use super::watch::Watch;
use crate::bbs::state::{InstanceRow, Process};

/// No sequence needs a tenth of this.
const ROUNDS: u64 = 1_000;

pub(super) fn comes_to_rest(cast: &Cast, watch: &mut Watch) -> Result<(), String> {
    let (gone, there) = if watch.board.next_row.0.is_multiple_of(2) {
        cast.cells.split_at(0)
    } else {
        cast.cells.split_at(1)
    };
    let mut told = Vec::new();
    let fresh = cast.domains.iter().map(|it| Command::UpsertDomain(it.clone(), Duration::ZERO));
    let gone = gone.iter().map(|it| Command::CellPresence(it.clone(), CellPresence::Missing));
    let back = there.iter().map(|it| Command::CellPresence(it.clone(), CellPresence::Present));
    for command in fresh.chain(gone).chain(back).chain([Command::ConvergeDue]) {
        told.extend(watch.apply(0, command)?.into_iter().flat_map(|outcome| outcome.effects));
    }
    for round in 0..ROUNDS {
        let requests = obey(there, round, std::mem::take(&mut told), &watch.board);
        if requests.is_empty() {
            match watch.board.next_deadline() {
                Some(at) => watch.now = watch.now.max(at),
                None => {
                    let on = let_go_on(&watch.board);
                    if on.is_empty() {
                        return is_as_desired(there, &watch.board);
                    }
                    for command in on {
                        watch.apply(round, command)?;
                    }
                }
            }
        }
        let requests = requests.into_iter().map(cell_says);
        for command in requests.chain([Command::ConvergeDue]) {
            let outcome = watch.apply(round, command)?;
            told.extend(outcome.into_iter().flat_map(|outcome| outcome.effects));
        }
    }
    Err(format!("the board does not come to rest: {told:?}"))
}

/// What obedient cells say: what is to start runs, what is to stop goes, what was claimed runs, what
/// runs is ready. A stop that was lost before comes again.
fn obey(
    there: &[CellId],
    round: u64,
    effects: Vec<BoardEffect>,
    board: &Board,
) -> Vec<CellRequest> {
    let mut said = Vec::new();
    for effect in effects {
        match effect {
            BoardEffect::RequestAuction(starts, _) => {
                for start in starts {
                    for index in start.indices {
                        let key = LrpKey {
                            process_guid: start.process_guid.clone(),
                            index,
                            domain: start.domain.clone(),
                            definition_id: Some(start.definition_id.clone()),
                        };
                        let instance = InstanceKey {
                            instance_guid: InstanceGuid::new(&format!("r{round}")).unwrap(),
                            cell_id: there[index as usize % there.len()].clone(),
                        };
                        said.push(CellRequest::ClaimLrp(key.clone(), instance.clone()));
                        said.push(CellRequest::StartLrp(key, instance, running()));
                    }
                }
            }
            BoardEffect::StopInstance(key, instance) => {
                said.push(CellRequest::RemoveLrp(key, instance));
            }
            BoardEffect::UpdateInstance(..)
            | BoardEffect::CancelTask(..)
            | BoardEffect::CallBack(_) => {}
        }
    }
    for lrp in board.records.instances() {
        let not_ready = lrp.running().is_some_and(|running| !running.routable);
        let starts = lrp.presence == Presence::Ordinary && not_ready;
        if let LrpState::Claimed(instance) | LrpState::Running(instance, _) = &lrp.state
            && (starts || !lrp.state.is_running())
            && there.contains(&instance.cell_id)
            && !lrp.stopping
        {
            said.push(CellRequest::StartLrp(lrp.key(), instance.clone(), running()));
        }
    }
    said
}

/// What an operator says to updates that wait for one.
fn let_go_on(board: &Board) -> Vec<Command> {
    let mut all = Vec::new();
    for (guid, process) in board.records.processes() {
        let deployment = process.deployment.as_ref().map(|(_, deployment)| deployment);
        let pause = deployment.and_then(|it| it.roll.as_ref()).and_then(|roll| roll.pause);
        all.extend(pause.map(|pause| match pause {
            RolloutPause::Canary => Command::PromoteUpdate(guid.clone()),
            RolloutPause::Asked | RolloutPause::Stalled => Command::ResumeUpdate(guid.clone()),
        }));
    }
    all
}

/// Whether an update waits for an instance that is never restarted: nothing will move it.
fn is_given_up(board: &Board, process: &Process) -> bool {
    let Some((_, deployment)) = &process.deployment else { return false };
    let never = |slot: &&InstanceRow| {
        slot.lrp.state == LrpState::Crashed
            && board.settings.crash_policy.restart(slot.lrp.crash_count) == Restart::Never
    };
    let crashed = process.instances().iter().filter(never);
    deployment.roll.is_some()
        && crashed.filter(|slot| process.wants(&slot.lrp.definition_id, slot.lrp.index)).count() > 0
}

fn is_as_desired(there: &[CellId], board: &Board) -> Result<(), String> {
    let mut wanted = BTreeSet::new();
    let mut found = BTreeSet::new();
    for (guid, process) in board.records.processes() {
        if is_given_up(board, process) {
            continue;
        }
        if let Some((_, deployment)) = &process.deployment {
            if let Some(roll) = &deployment.roll {
                return Err(format!("at rest, and {guid} rolls: {roll:#?}"));
            }
            if deployment.definitions.len() > 1 && deployment.instances > 0 {
                return Err(format!("at rest, and {guid} has definitions left over"));
            }
            let definition = &deployment.active_definition_id;
            wanted.extend((0..deployment.instances).map(|index| (guid, definition, index)));
        }
        for slot in process.instances() {
            let lrp = &slot.lrp;
            let given_up = lrp.state == LrpState::Crashed
                && board.settings.crash_policy.restart(lrp.crash_count) == Restart::Never;
            let serves =
                lrp.state.is_running() && lrp.cell_id().is_some_and(|cell| there.contains(cell));
            if lrp.presence != Presence::Ordinary || !(serves || given_up) || lrp.stopping {
                return Err(format!("at rest, and there is {lrp:#?}"));
            }
            found.insert((guid, &lrp.definition_id, lrp.index));
        }
    }
    if wanted != found {
        return Err(format!("at rest, {found:?} is there and {wanted:?} is desired"));
    }
    Ok(())
}
