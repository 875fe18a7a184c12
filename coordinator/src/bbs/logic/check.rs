//! What must hold of the whole board at any time. Tests run this after every command; it looks
//! at everything, so nothing else does.

use std::collections::{BTreeMap, BTreeSet};

use volvox_protocol::actual_lrp::{ActualLrp, LrpState, Presence};
use volvox_protocol::deployment::{LrpDeployment, Rollout, RolloutPhase};
use volvox_protocol::digest::{Digest, DigestItem};
use volvox_protocol::limits::{DEFINITIONS, INSTANCES};
use volvox_protocol::modification_tag::Epoch;
use volvox_protocol::task::{Task, TaskState};
use volvox_protocol::time::Timestamp;

use super::Board;
use super::schedule::DueTime;
use super::txn::subject_of;
use crate::bbs::command::{ConvergeKey, RowId};

/// Looks the whole board over. Empty when everything holds, else what does not.
pub fn check(board: &Board, now: Timestamp) -> Vec<String> {
    let mut broken = Vec::new();
    check_processes(board, &mut broken);
    broken.extend(board.records.tasks().flat_map(|task| task_faults(task)));
    check_cells(board, &mut broken);
    check_rows(board, &mut broken);
    check_agenda(board, now, &mut broken);
    broken
}

fn check_processes(board: &Board, broken: &mut Vec<String>) {
    let mut count = 0;
    for (guid, process) in board.records.processes() {
        count += process.instances().len();
        for pair in process.instances().windows(2) {
            if pair[0].lrp.order() >= pair[1].lrp.order() {
                broken.push(format!("{guid}: two records share a key, or are out of order"));
            }
        }
        for slot in process.instances() {
            if slot.lrp.process_guid != *guid {
                broken.push(format!("{guid}: holds a record of {}", slot.lrp.process_guid));
            }
            broken.extend(record_faults(&slot.lrp));
        }
        if let Some((_, deployment)) = &process.deployment {
            broken.extend(deployment_faults(deployment));
            let strange =
                process.instances().iter().filter(|it| it.lrp.domain != deployment.domain);
            broken.extend(strange.map(|it| format!("{guid}/{}: another domain", it.lrp.index)));
        }
        if process.deployment.is_none() && process.instances().is_empty() {
            broken.push(format!("{guid}: an empty process was not forgotten"));
        }
    }
    if count != board.records.instance_count() {
        broken.push(format!("{count} records, counted as {}", board.records.instance_count()));
    }
}

/// What is wrong with an instance record by itself.
pub fn record_faults(lrp: &ActualLrp) -> Vec<String> {
    let mut faults = Vec::new();
    let name = format!("{}/{} {:?}", lrp.process_guid, lrp.index, lrp.presence);
    match (lrp.presence, &lrp.state) {
        (Presence::Ordinary, _)
        | (Presence::Evacuating | Presence::Suspect, LrpState::Running(..))
        | (Presence::Suspect, LrpState::Claimed(_)) => {}
        (Presence::Evacuating, LrpState::Claimed(_))
        | (
            Presence::Evacuating | Presence::Suspect,
            LrpState::Unclaimed { .. } | LrpState::Crashed,
        ) => faults.push(format!("{name} is {}", lrp.state.name())),
    }
    if lrp.stopping && (lrp.instance().is_none() || lrp.presence == Presence::Evacuating) {
        faults.push(format!("{name} is {} and is to be stopped", lrp.state.name()));
    }
    if lrp.modification_tag.epoch == Epoch::NONE {
        faults.push(format!("{name} has no epoch"));
    }
    if let LrpState::Crashed = lrp.state
        && lrp.crash_count == 0
    {
        faults.push(format!("{name} is CRASHED and has never crashed"));
    }
    faults
}

/// What is wrong with a deployment by itself.
pub fn deployment_faults(deployment: &LrpDeployment) -> Vec<String> {
    let mut faults = Vec::new();
    let guid = &deployment.process_guid;
    if deployment.definitions.get(&deployment.active_definition_id).is_none() {
        faults.push(format!("{guid}: the active definition is not among the definitions"));
    }
    if let Some(healthy) = &deployment.healthy_definition_id
        && deployment.definitions.get(healthy).is_none()
    {
        faults.push(format!("{guid}: the healthy definition is not among the definitions"));
    }
    if deployment.instances > INSTANCES {
        faults.push(format!("{guid}: {} instances", deployment.instances));
    }
    if deployment.definitions.len() > DEFINITIONS {
        faults.push(format!("{guid}: {} definitions", deployment.definitions.len()));
    }
    let twice = deployment.definitions.iter().find(|(id, _)| deployment.history.get(id).is_some());
    if let Some((id, _)) = twice {
        faults.push(format!("{guid}: definition {id} is in use and in the history"));
    }
    if let Some(roll) = &deployment.roll {
        faults.extend(roll_faults(deployment, roll));
    }
    faults
}

/// What is wrong with an update by itself.
fn roll_faults(deployment: &LrpDeployment, roll: &Rollout) -> Vec<String> {
    let mut faults = Vec::new();
    let guid = &deployment.process_guid;
    let mut must = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("{guid}: the update {what}: {roll:?}"));
        }
    };
    let previous = &roll.previous_definition_id;
    must(deployment.definitions.get(previous).is_some(), "comes from an unknown definition");
    must(*previous != deployment.active_definition_id, "goes nowhere");
    must(roll.border <= deployment.instances, "is beyond its instances");
    let flights: Vec<u32> = roll.in_flight.iter().map(|flight| flight.index).collect();
    for indices in [&flights, &roll.stuck] {
        must(indices.is_sorted_by(|one, other| one < other), "is out of order");
        must(indices.iter().all(|it| *it < deployment.instances), "is beyond its instances");
        let ahead = indices.iter().any(|it| roll.phase(*it) == RolloutPhase::Ahead);
        must(!ahead, "waits for what it has not taken up");
    }
    must(!flights.iter().any(|it| roll.stuck.contains(it)), "waits for what is stuck");
    faults
}

/// What is wrong with a task by itself.
pub fn task_faults(task: &Task) -> Vec<String> {
    let mut faults = Vec::new();
    let mut must = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("task {} is {:?} and {what}", task.task_guid, task.state));
        }
    };
    let ended = task.first_completed_at != Timestamp::ZERO;
    match task.state {
        TaskState::Pending => {
            must(task.cell_id.is_none(), "has a cell");
            must(!ended, "has ended before");
        }
        TaskState::Running => {
            must(task.cell_id.is_some(), "has no cell");
            must(!ended, "has ended before");
        }
        TaskState::Completed | TaskState::Resolving => must(ended, "has no end"),
    }
    must(task.failed || task.failure_reason.is_empty(), "succeeded with a failure reason");
    faults
}

fn check_cells(board: &Board, broken: &mut Vec<String>) {
    let mut instances: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for lrp in board.records.instances() {
        if let Some(cell) = lrp.cell_id() {
            instances.entry(cell).or_default().insert(std::sync::Arc::as_ptr(lrp));
        }
    }
    let mut tasks: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for task in board.records.tasks() {
        if let Some(cell) = &task.cell_id {
            tasks.entry(cell).or_default().insert(std::sync::Arc::as_ptr(task));
        }
    }
    let named: BTreeSet<_> = board.records.named_cells().collect();
    let expected: BTreeSet<_> = instances.keys().chain(tasks.keys()).copied().collect();
    if named != expected {
        broken.push(format!("cells {named:?} are named, {expected:?} should be"));
    }
    for cell in expected {
        let found: BTreeSet<*const ActualLrp> =
            board.records.instances_on(cell).map(std::sync::Arc::as_ptr).collect();
        if found != instances.remove(cell).unwrap_or_default() {
            broken.push(format!("the instances on cell {cell} are not those that name it"));
        }
        let found: BTreeSet<*const Task> =
            board.records.tasks_on(cell).map(std::sync::Arc::as_ptr).collect();
        if found != tasks.remove(cell).unwrap_or_default() {
            broken.push(format!("the tasks on cell {cell} are not those that name it"));
        }
        let items = board.records.instances_on(cell).map(|lrp| DigestItem::of_record(lrp));
        let items = items.chain(board.records.tasks_on(cell).map(|task| DigestItem::of_task(task)));
        if board.records.digest_on(cell) != items.collect::<Digest>() {
            broken.push(format!("the digest of cell {cell} is not that of what is on it"));
        }
    }
}

fn check_rows(board: &Board, broken: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    let mut see = |row: RowId| {
        if row >= board.next_row {
            broken.push(format!("row {row:?} was never given out"));
        }
        if !seen.insert(row) {
            broken.push(format!("row {row:?} holds two records"));
        }
    };
    for (_, process) in board.records.processes() {
        process.deployment.iter().for_each(|(row, _)| see(*row));
        process.instances().iter().for_each(|slot| see(slot.row));
    }
    for task in board.records.tasks() {
        board.records.task(&task.task_guid).iter().for_each(|(row, _)| see(*row));
    }
    for record in board.records.domains() {
        board.records.domain(&record.domain).iter().for_each(|(row, _)| see(*row));
    }
}

fn check_agenda(board: &Board, now: Timestamp, broken: &mut Vec<String>) {
    let all = board.every_subject();
    for subject in &all {
        let judged = board.evaluate(now, subject);
        let attention = judged.map_or(DueTime::None, |(attention, _)| attention);
        let remembered = board.agenda.get(subject);
        if *remembered != attention && !attention.is_only_older(remembered) {
            broken.push(format!("{subject:?} is judged {attention:?}, remembered {remembered:?}"));
        }
    }
    for subject in board.agenda.subjects().filter(|subject| !all.contains(subject)) {
        broken.push(format!("{subject:?} is on the agenda and does not exist"));
    }
    let mut on_record: BTreeSet<ConvergeKey> =
        board.records.instances().map(|lrp| subject_of(lrp)).collect();
    on_record.extend(board.records.tasks().map(|task| ConvergeKey::Task(task.task_guid.clone())));
    for subject in board.asked.keys().filter(|subject| !on_record.contains(subject)) {
        broken.push(format!("{subject:?} was asked about and does not exist"));
    }
}
