//! Whether what a command wrote and asked for fits what is there.

use std::collections::BTreeSet;

use volvox_protocol::id::DefinitionId;
use volvox_protocol::task::TaskState;

use super::super::*;

/// Anything else is another version; another presence alone is the same version. The age of a
/// record is that of its state.
pub(super) fn tags_fit(outcome: &ApplyResult) -> Result<(), String> {
    for change in &outcome.changes {
        let fits = match change {
            Change::Actual(_, None, Some(new)) => new.modification_tag.index == 0,
            Change::Actual(_, Some(old), Some(new)) if old.presence == new.presence => {
                let same_state = old.state.name() == new.state.name();
                new.modification_tag == old.modification_tag.next()
                    && (new.since == old.since || !same_state)
            }
            Change::Actual(_, Some(old), Some(new))
                if old.presence != new.presence && new.presence != Presence::Evacuating =>
            {
                **new == ActualLrp { presence: new.presence, ..(**old).clone() }
            }
            Change::Deployment(_, Some(old), Some(new)) => {
                new.modification_tag == old.modification_tag.next()
            }
            Change::Actual(..)
            | Change::Deployment(..)
            | Change::Domain(..)
            | Change::Task(..)
            | Change::Presence(..)
            | Change::Settled(..)
            | Change::Asked(..) => true,
        };
        if !fits {
            return Err(format!("the tag does not fit {change:#?}"));
        }
    }
    Ok(())
}

/// Every effect is about something that is there: starts about records that are desired and wait
/// for a cell, all that came to wait and each once; stops about what is held and marked so,
/// updates about what is held; calls about tasks that have ended.
pub(super) fn effects_fit(
    before: &Board,
    after: &Board,
    outcome: &ApplyResult,
) -> Result<(), String> {
    let find = |of: &Board, process: &ProcessGuid, definition: &DefinitionId, index| {
        let slot = of.records.process(process)?.find(definition, index, Presence::Ordinary)?;
        Some(Arc::clone(&slot.lrp))
    };
    let mut asked = BTreeSet::new();
    for effect in &outcome.effects {
        let fits = match effect {
            BoardEffect::RequestAuction(starts, tasks) => {
                let lrps = starts.iter().all(|start| {
                    let (process, definition) = (&start.process_guid, &start.definition_id);
                    start.indices.is_sorted()
                        && start.indices.iter().all(|index| {
                            let lrp = find(after, process, definition, *index);
                            let known = after.records.process(process);
                            asked.insert((process.clone(), definition.clone(), *index))
                                && known.is_some_and(|it| it.wants(definition, *index))
                                && lrp.is_some_and(|it| it.instance().is_none())
                        })
                });
                let tasks = tasks.iter().all(|start| {
                    let task = after.records.task(&start.task_guid);
                    task.is_some_and(|(_, task)| task.state == TaskState::Pending)
                });
                lrps && tasks
            }
            BoardEffect::StopInstance(key, instance)
            | BoardEffect::UpdateInstance(key, instance) => {
                let process = after.records.process(&key.process_guid);
                let mut slots = process.into_iter().flat_map(|process| process.instances());
                let stops = matches!(effect, BoardEffect::StopInstance(..));
                slots.any(|slot| {
                    let held = slot.lrp.key() == *key && slot.lrp.is_held_by(instance);
                    held && (slot.lrp.stopping || !stops)
                })
            }
            BoardEffect::CancelTask(_, guid) => after
                .records
                .task(guid)
                .is_some_and(|(_, task)| task.failed && task.state == TaskState::Completed),
            BoardEffect::CallBack(called) => after
                .records
                .task(&called.task_guid)
                .is_some_and(|(_, task)| task == called && task.state == TaskState::Completed),
        };
        if !fits {
            return Err(format!("nothing fits {effect:?}"));
        }
    }
    for change in &outcome.changes {
        let Change::Actual(_, _, Some(new)) = change else { continue };
        let (process, definition) = (&new.process_guid, &new.definition_id);
        let waits = |lrp: &Arc<ActualLrp>| matches!(lrp.state, LrpState::Unclaimed { .. });
        let known = after.records.process(process);
        let came_to_wait = find(after, process, definition, new.index).is_some_and(|it| waits(&it))
            && !find(before, process, definition, new.index).is_some_and(|it| waits(&it));
        if came_to_wait
            && known.is_some_and(|it| it.wants(definition, new.index))
            && !asked.contains(&(process.clone(), definition.clone(), new.index))
        {
            return Err(format!("nobody asked for the start of {new:?}"));
        }
    }
    Ok(())
}
