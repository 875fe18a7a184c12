//! A subscriber: snapshot and events make the next snapshot.

use std::collections::BTreeMap;

use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::id::DefinitionId;

use super::super::*;
use crate::bbs::state::Records;

type Key = (ProcessGuid, DefinitionId, u32, Presence);

/// What a subscriber knows that applies every event to its snapshot.
#[derive(Default)]
pub(super) struct Heard {
    deployments: BTreeMap<ProcessGuid, Arc<LrpDeployment>>,
    instances: BTreeMap<Key, Arc<ActualLrp>>,
    tasks: BTreeMap<TaskGuid, Arc<Task>>,
}

impl Heard {
    pub(super) fn hear(&mut self, events: &[Event]) -> Result<(), String> {
        for event in events {
            let heard = match event {
                Event::DesiredLrpCreated(new) => {
                    step(&mut self.deployments, process_of, None, Some(new))
                }
                Event::DesiredLrpChanged(old, new) => {
                    step(&mut self.deployments, process_of, Some(old), Some(new))
                }
                Event::DesiredLrpRemoved(old) => {
                    step(&mut self.deployments, process_of, Some(old), None)
                }
                Event::InstanceCreated(new) => step(&mut self.instances, key_of, None, Some(new)),
                Event::InstanceChanged(old, new) => {
                    step(&mut self.instances, key_of, Some(old), Some(new))
                }
                Event::InstanceRemoved(old) => step(&mut self.instances, key_of, Some(old), None),
                Event::TaskCreated(new) => step(&mut self.tasks, guid_of, None, Some(new)),
                Event::TaskChanged(old, new) => {
                    step(&mut self.tasks, guid_of, Some(old), Some(new))
                }
                Event::TaskRemoved(old) => step(&mut self.tasks, guid_of, Some(old), None),
                Event::Crashed(_)
                | Event::GroupCreated(_)
                | Event::GroupChanged(..)
                | Event::GroupRemoved(_) => Ok(()),
            };
            heard.map_err(|what| format!("{what}: {event:#?}"))?;
        }
        Ok(())
    }

    pub(super) fn agrees(&self, records: &Records) -> Result<(), String> {
        let missed = || "the events do not make the records".to_owned();
        if self.instances.len() != records.instance_count()
            || self.tasks.len() != records.task_count()
        {
            return Err(missed());
        }
        let mut deployments = 0;
        for (guid, process) in records.processes() {
            if let Some((_, deployment)) = &process.deployment {
                deployments += 1;
                if self.deployments.get(guid) != Some(deployment) {
                    return Err(missed());
                }
            }
            for slot in process.instances() {
                if self.instances.get(&key_of(&slot.lrp)) != Some(&slot.lrp) {
                    return Err(missed());
                }
            }
        }
        let tasks_agree = records.tasks().all(|task| self.tasks.get(&task.task_guid) == Some(task));
        if deployments != self.deployments.len() || !tasks_agree {
            return Err(missed());
        }
        Ok(())
    }
}

fn process_of(deployment: &LrpDeployment) -> ProcessGuid {
    deployment.process_guid.clone()
}

fn key_of(lrp: &ActualLrp) -> Key {
    (lrp.process_guid.clone(), lrp.definition_id.clone(), lrp.index, lrp.presence)
}

fn guid_of(task: &Task) -> TaskGuid {
    task.task_guid.clone()
}

/// Removes what was and inserts what is; both must be as the event has them.
fn step<K: Ord, V: PartialEq>(
    known: &mut BTreeMap<K, Arc<V>>,
    key: impl Fn(&V) -> K,
    before: Option<&Arc<V>>,
    after: Option<&Arc<V>>,
) -> Result<(), &'static str> {
    if let Some(before) = before
        && known.remove(&key(before)).as_ref() != Some(before)
    {
        return Err("what was is not what it was");
    }
    if let Some(after) = after
        && known.insert(key(after), Arc::clone(after)).is_some()
    {
        return Err("there is one already");
    }
    Ok(())
}
