//! What the older stream is told while an update rolls. Its readers know nothing of definitions:
//! they keep one record for each index, and it must be the one that serves.
//!
//! Group events are emitted by whoever changes a record, as the tables tell, for the definition of
//! that record. Where an index has records of more than one definition, a reader without
//! definitions would take the new instance for the old one. There the events of the turn are
//! replaced by one: what such a reader saw before the turn, and what it sees after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, LrpGroup, Presence};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::event::Event;
use volvox_protocol::id::{DefinitionId, ProcessGuid};
use volvox_protocol::resolve::resolved;

use super::txn::{Txn, group_of};
use crate::bbs::command::Change;

type IndexKey = (ProcessGuid, u32);
type Key = (DefinitionId, Presence);
type RecordStep<'a> = (Option<&'a Arc<ActualLrp>>, Option<&'a Arc<ActualLrp>>);
type Here = BTreeMap<Key, Arc<ActualLrp>>;

impl Txn<'_> {
    /// Whether a process has records of more than one definition.
    pub(super) fn is_mixed(&self, process: &ProcessGuid) -> bool {
        let slots = self.board.records.process(process).map(|process| process.instances());
        // They are in the order of their definitions.
        slots.is_some_and(|slots| match (slots.first(), slots.last()) {
            (Some(first), Some(last)) => first.lrp.definition_id != last.lrp.definition_id,
            (_, _) => false,
        })
    }

    /// Tells the readers of groups one instance for each index.
    pub(super) fn resolve_groups(&mut self) {
        let mut places: BTreeSet<IndexKey> = self.events.iter().filter_map(place).collect();
        places.extend(self.places_of_another_active());
        let mut mended: BTreeMap<IndexKey, Option<Event>> = BTreeMap::new();
        let (steps, were_active) = (self.steps(), self.were_active());
        for place in places {
            let steps = steps.get(&(&place.0, place.1)).map_or(&[][..], Vec::as_slice);
            let (before, after, definitions) = self.around(&place, steps);
            if definitions > 1 {
                let known = self.board.records.deployment(&place.0);
                let active = known.map(|(_, deployment)| &deployment.active_definition_id);
                let was_active = were_active.get(&place.0).copied().unwrap_or(active);
                let old = resolved(before.values(), was_active);
                let new = resolved(after.values(), active);
                mended.insert(place, step(old.first(), new.first()));
            }
        }
        if mended.is_empty() {
            return;
        }
        let mut events = Vec::with_capacity(self.events.len());
        for event in std::mem::take(&mut self.events) {
            match place(&event).and_then(|place| mended.get_mut(&place)) {
                Some(instead) => events.extend(instead.take()),
                None => events.push(event),
            }
        }
        events.extend(mended.into_values().flatten());
        self.events = events;
    }

    /// What became of the records of each index in this turn, in order.
    fn steps(&self) -> BTreeMap<(&ProcessGuid, u32), Vec<RecordStep<'_>>> {
        let mut steps: BTreeMap<(&ProcessGuid, u32), Vec<RecordStep<'_>>> = BTreeMap::new();
        for change in &self.changes {
            if let Change::Actual(_, before, after) = change
                && let Some(lrp) = before.as_ref().or(after.as_ref())
            {
                let here = steps.entry((&lrp.process_guid, lrp.index)).or_default();
                here.push((before.as_ref(), after.as_ref()));
            }
        }
        steps
    }

    /// The records of an index before the turn and after it, and of how many definitions there
    /// were some at any time in it.
    fn around(&self, (process, index): &IndexKey, steps: &[RecordStep<'_>]) -> (Here, Here, usize) {
        let known = self.board.records.process(process);
        let there = known.into_iter().flat_map(|known| known.definitions());
        let told = steps.iter().flat_map(|(before, after)| [*before, *after]).flatten();
        let told: BTreeSet<&DefinitionId> = told.map(|it| &it.definition_id).collect();
        let ids: BTreeSet<&DefinitionId> = there.chain(told.iter().copied()).collect();
        let slots = ids.into_iter().flat_map(|id| known.map_or(&[][..], |it| it.at(id, *index)));
        let after: Here = slots.map(|slot| (key_of(&slot.lrp), Arc::clone(&slot.lrp))).collect();
        let mut before = after.clone();
        let met: BTreeSet<&DefinitionId> = after.keys().map(|(id, _)| id).chain(told).collect();
        let definitions = met.len();
        for (old, new) in steps.iter().rev() {
            if let Some(new) = new {
                before.remove(&key_of(new));
            }
            if let Some(old) = old {
                before.insert(key_of(old), Arc::clone(old));
            }
        }
        (before, after, definitions)
    }

    /// What was active before the turn, of the processes whose deployment changed in it.
    fn were_active(&self) -> BTreeMap<&ProcessGuid, Option<&DefinitionId>> {
        let mut were = BTreeMap::new();
        for change in self.changes.iter().rev() {
            if let Change::Deployment(_, before, after) = change
                && let Some(either) = before.as_ref().or(after.as_ref())
            {
                let active = before.as_ref().map(|it| &it.active_definition_id);
                were.insert(&either.process_guid, active);
            }
        }
        were
    }

    /// Where another record may be shown because another definition has become the active one.
    fn places_of_another_active(&self) -> BTreeSet<IndexKey> {
        let mut places = BTreeSet::new();
        for change in &self.changes {
            let Change::Deployment(_, before, after) = change else { continue };
            let active = |it: &Option<Arc<LrpDeployment>>| {
                it.as_ref().map(|deployment| deployment.active_definition_id.clone())
            };
            if active(before) != active(after)
                && let Some(either) = before.as_ref().or(after.as_ref())
                && let Some(process) = self.board.records.process(&either.process_guid)
            {
                let indices = process.instances().iter().map(|slot| slot.lrp.index);
                places.extend(indices.map(|index| (either.process_guid.clone(), index)));
            }
        }
        places
    }
}

/// The index that a group event is about.
fn place(event: &Event) -> Option<IndexKey> {
    let group = match event {
        Event::GroupCreated(group) | Event::GroupRemoved(group) | Event::GroupChanged(_, group) => {
            group
        }
        Event::DesiredLrpCreated(_)
        | Event::DesiredLrpChanged(..)
        | Event::DesiredLrpRemoved(_)
        | Event::InstanceCreated(_)
        | Event::InstanceChanged(..)
        | Event::InstanceRemoved(_)
        | Event::Crashed(_)
        | Event::TaskCreated(_)
        | Event::TaskChanged(..)
        | Event::TaskRemoved(_) => return None,
    };
    let LrpGroup { instance, evacuating } = group;
    let lrp = instance.as_ref().or(evacuating.as_ref())?;
    Some((lrp.process_guid.clone(), lrp.index))
}

fn key_of(lrp: &ActualLrp) -> Key {
    (lrp.definition_id.clone(), lrp.presence)
}

/// From what a reader saw to what it sees. An order to stop is nothing to it.
fn step(old: Option<&Arc<ActualLrp>>, new: Option<&Arc<ActualLrp>>) -> Option<Event> {
    match (old, new) {
        (None, None) => None,
        (None, Some(new)) => Some(Event::GroupCreated(group_of(new))),
        (Some(old), None) => Some(Event::GroupRemoved(group_of(old))),
        (Some(old), Some(new)) => {
            let same = old.state == new.state
                && old.definition_id == new.definition_id
                && old.presence == new.presence;
            (!same).then(|| Event::GroupChanged(group_of(old), group_of(new)))
        }
    }
}
