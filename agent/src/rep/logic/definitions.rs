//! Definitions: fetched with a claim or a start, or by themselves, kept for as long as an instance of
//! them is here. One question at a time; one that failed is asked again, after a while.

use std::collections::VecDeque;
use std::sync::Arc;

use volvox_mesh::request::methods::open;
use volvox_protocol::cell_rpc::{DefinitionKey, FetchDefinitions, FetchedDefinitions};
use volvox_protocol::id::TaskGuid;
use volvox_protocol::limits::FETCH_ITEMS;
use volvox_protocol::time::Timestamp;

use super::reports::ASK_AGAIN;
use super::{AskFailure, Assigned, KnownDefinition, PendingOp, Rep, RepOutput, definition_of};
use crate::container::guid::ContainerGuid;
use crate::executor::workload::Owner;

/// Something whose definition is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fetch {
    Lrp(DefinitionKey),
    Task(TaskGuid),
}

/// What is to be fetched, and what is being fetched.
#[derive(Debug, Default)]
pub(super) struct Fetching {
    wanted: VecDeque<Fetch>,
    under_way: Option<FetchDefinitions>,
    not_before: Timestamp,
    /// In a row.
    failures: u32,
}

impl Fetching {
    pub(super) fn want(&mut self, what: Fetch) {
        if !self.wanted.contains(&what) {
            self.wanted.push_back(what);
        }
    }

    fn want_all(&mut self, all: FetchDefinitions) {
        let lrps = all.lrps.into_iter().map(Fetch::Lrp);
        lrps.chain(all.tasks.into_iter().map(Fetch::Task)).for_each(|it| self.want(it));
    }

    pub(super) fn clear(&mut self) {
        *self = Fetching::default();
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        let waits = self.under_way.is_none() && !self.wanted.is_empty();
        waits.then_some(self.not_before)
    }
}

impl Rep {
    /// Asks for what is missing, unless that is under way.
    pub(super) fn begin_fetch(&mut self, now: Timestamp) {
        let can = self.coordinator.is_some() && self.fetching.due().is_some_and(|due| due <= now);
        if !can {
            return;
        }
        let mut asked = FetchDefinitions::default();
        while asked.lrps.len().max(asked.tasks.len()) < FETCH_ITEMS
            && let Some(next) = self.fetching.wanted.pop_front()
        {
            match next {
                Fetch::Lrp(key) => asked.lrps.push(key),
                Fetch::Task(guid) => asked.tasks.push(guid),
            }
        }
        self.fetching.under_way = Some(asked.clone());
        self.effects.push(RepOutput::Fetch(self.contact, asked));
    }

    pub(super) fn fetched(
        &mut self,
        now: Timestamp,
        outcome: Result<FetchedDefinitions, AskFailure>,
    ) {
        let Some(asked) = self.fetching.under_way.take() else { return };
        let Ok(fetched) = outcome else {
            let fetching = &mut self.fetching;
            fetching.failures = fetching.failures.saturating_add(1);
            fetching.not_before = now + ASK_AGAIN.after(fetching.failures);
            return fetching.want_all(asked);
        };
        self.fetching.failures = 0;
        let unknown = not_given(asked, &fetched);
        self.learn(fetched);
        let all: Vec<ContainerGuid> = self.entries.keys().cloned().collect();
        for guid in all {
            self.go_on_with(now, &guid, &unknown);
        }
        // Routes or tags may be others now.
        self.judge_all(now);
    }

    pub(super) fn learn(&mut self, fetched: FetchedDefinitions) {
        for lrp in fetched.lrps {
            // Whoever wanted it may be gone.
            if self.instances_of(&lrp.key).is_empty() {
                continue;
            }
            let known = (open(&lrp.definition), open(&lrp.metric_tags), open(&lrp.routes));
            let (Ok(definition), Ok(metric_tags), Ok(routes)) = known else {
                // Written by a release that we do not understand.
                self.unreadable.insert(lrp.key);
                continue;
            };
            let (modification_tag, definition) = (lrp.modification_tag, Arc::new(definition));
            let known = KnownDefinition { modification_tag, definition, metric_tags, routes };
            self.know(lrp.key, Arc::new(known));
        }
        for task in fetched.tasks {
            if self.entries.contains_key(&ContainerGuid::from(&task.task_guid)) {
                let definition = open(&task.definition).ok().map(Arc::new);
                self.tasks.insert(task.task_guid, definition);
            }
        }
        self.fetching.want_all(fetched.left);
    }

    /// What is written down of instances must not be older than what is known.
    fn know(&mut self, key: DefinitionKey, known: Arc<KnownDefinition>) {
        self.unreadable.remove(&key);
        if self.definitions.get(&key) == Some(&known) {
            return;
        }
        for guid in self.instances_of(&key) {
            let Some(entry) = self.entries.get(&guid).filter(|it| it.assigned) else { continue };
            let Owner::Lrp { key, instance } = entry.owner.clone() else { continue };
            let definition = Arc::clone(&known);
            self.effects.push(RepOutput::Assign(Assigned { key, instance, definition }));
        }
        self.definitions.insert(key, known);
    }

    fn instances_of(&self, key: &DefinitionKey) -> Vec<ContainerGuid> {
        let of = self.entries.iter().filter(|(_, entry)| match &entry.owner {
            Owner::Lrp { key: of, .. } => definition_of(of) == *key,
            Owner::Task { .. } | Owner::Local(_) => false,
        });
        of.map(|(guid, _)| guid.clone()).collect()
    }

    /// What waited for its definition runs, or cannot.
    fn go_on_with(&mut self, now: Timestamp, guid: &ContainerGuid, unknown: &FetchDefinitions) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        if entry.busy != PendingOp::Fetching {
            return;
        }
        // It was ours when we asked for it, and is not any more; or it is fetched, or wanted again.
        let is_unknown = match &entry.owner {
            Owner::Lrp { key, .. } => unknown.lrps.contains(&definition_of(key)),
            Owner::Task { guid, .. } => unknown.tasks.contains(guid),
            Owner::Local(_) => false,
        };
        entry.busy = PendingOp::No;
        if is_unknown {
            entry.granted = false;
            return self.look_again(now, guid);
        }
        match entry.owner.clone() {
            Owner::Lrp { key, instance } => self.run_lrp(guid, &key, &instance),
            Owner::Task { guid: task, .. } => self.run_task(guid, &task),
            Owner::Local(_) => {}
        }
    }
}

/// What was asked for and is neither given nor put off.
fn not_given(asked: FetchDefinitions, reply: &FetchedDefinitions) -> FetchDefinitions {
    let FetchDefinitions { mut lrps, mut tasks } = asked;
    lrps.retain(|key| {
        !reply.left.lrps.contains(key) && !reply.lrps.iter().any(|it| it.key == *key)
    });
    tasks.retain(|guid| {
        !reply.left.tasks.contains(guid) && !reply.tasks.iter().any(|it| it.task_guid == *guid)
    });
    FetchDefinitions { lrps, tasks }
}
