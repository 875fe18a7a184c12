//! Reports: requests to the board, in batches, one batch at a time; and what their answers mean.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use volvox_mesh::request::methods::open;
use volvox_protocol::container::ContainerState;
use volvox_protocol::exchange::{
    CellAnswer, CellReport, CellReportReply, DefinitionKey, FetchDefinitions, FetchedDefinitions,
};
use volvox_protocol::id::TaskGuid;
use volvox_protocol::limits::FETCH_ITEMS;
use volvox_protocol::request::CellRequest;
use volvox_protocol::time::Timestamp;

use super::{Assigned, Busy, Effect, Fetch, KnownDefinition, Look, Rep, Unanswered, definition_of};
use crate::executor::registry::ContainerGuid;
use crate::executor::work::Owner;

/// The first wait before something is tried again. It doubles.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
/// The longest.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// One request; about a container, unless it is about a record that has none.
type Wish = (Option<ContainerGuid>, CellRequest);

/// What is to be reported, and what is being reported.
#[derive(Debug, Default)]
pub(super) struct Reports {
    waiting: VecDeque<Wish>,
    under_way: Vec<Wish>,
    not_before: Timestamp,
    wait: Duration,
}

impl Reports {
    pub(super) fn queue(&mut self, guid: Option<ContainerGuid>, request: CellRequest) {
        self.waiting.push_back((guid, request));
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = Reports::default();
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        let waits = self.under_way.is_empty() && !self.waiting.is_empty();
        waits.then_some(self.not_before)
    }

    fn put_off(&mut self, now: Timestamp) {
        self.wait = (self.wait * 2).clamp(SHORTEST_WAIT, LONGEST_WAIT);
        self.not_before = now + self.wait;
    }
}

impl Rep {
    /// Sends what has come together, unless a report is under way.
    pub(super) fn report(&mut self, now: Timestamp) {
        let reports = &mut self.reports;
        let can = self.coordinator.is_some() && reports.under_way.is_empty();
        if !can || reports.waiting.is_empty() || now < reports.not_before {
            return;
        }
        let (guids, mut requests): (VecDeque<_>, VecDeque<_>) = reports.waiting.drain(..).unzip();
        let mut report = CellReport::take(&mut requests);
        let mut guids = guids.into_iter();
        reports.under_way = guids.by_ref().zip(report.requests.iter().cloned()).collect();
        reports.waiting.extend(guids.zip(requests));
        report.fetch = self.needed_for(&report.requests);
        self.effects.push(Effect::Report(self.contact, report));
    }

    /// Definitions that will be needed when these have been answered.
    fn needed_for(&self, requests: &[CellRequest]) -> FetchDefinitions {
        let mut fetch = FetchDefinitions::default();
        for request in requests {
            if let CellRequest::ClaimLrp(key, _) = request {
                let key = definition_of(key);
                if !self.definitions.contains_key(&key) {
                    fetch.lrps.push(key);
                }
            } else if let CellRequest::StartTask(task, _) = request {
                fetch.tasks.push(task.clone());
            }
        }
        fetch.lrps.sort();
        fetch.lrps.dedup();
        fetch
    }

    pub(super) fn reported(
        &mut self,
        now: Timestamp,
        outcome: Result<CellReportReply, Unanswered>,
    ) {
        let asked = std::mem::take(&mut self.reports.under_way);
        let reply = match outcome {
            Ok(reply) if reply.answers.len() == asked.len() => reply,
            Ok(_) | Err(Unanswered::Unknown) => return self.report_lost(now, asked),
            Err(Unanswered::NotDone) => return self.ask_later(now, asked),
        };
        self.learn(reply.fetched);
        let mut later = Vec::new();
        for (wish, answer) in asked.into_iter().zip(reply.answers) {
            match answer {
                CellAnswer::Later(_) => later.push(wish),
                CellAnswer::Done
                | CellAnswer::ShouldStart(_)
                | CellAnswer::KeepContainer(_)
                | CellAnswer::Rejected(_) => self.answered(now, wish, &answer),
            }
        }
        if later.is_empty() {
            self.reports.wait = Duration::ZERO;
        } else {
            self.ask_later(now, later);
        }
    }

    /// Nothing was done: the same again, in the same order, after a while.
    fn ask_later(&mut self, now: Timestamp, asked: Vec<Wish>) {
        self.reports.put_off(now);
        for wish in asked.into_iter().rev() {
            self.reports.waiting.push_front(wish);
        }
    }

    /// Perhaps it was done, perhaps not: the records tell.
    fn report_lost(&mut self, now: Timestamp, asked: Vec<Wish>) {
        self.reports.put_off(now);
        self.syncing.want_full();
        for guid in asked.into_iter().filter_map(|(guid, _)| guid) {
            if let Some(entry) = self.entries.get_mut(&guid)
                && entry.busy == Busy::Asking
            {
                entry.busy = Busy::No;
                entry.version += 1;
                self.forget_if_over_and_unknown(&guid);
            }
        }
    }

    fn answered(&mut self, now: Timestamp, (guid, request): Wish, answer: &CellAnswer) {
        let Some(guid) = guid else { return };
        let Some(entry) = self.entries.get_mut(&guid) else { return };
        entry.version += 1;
        if entry.busy == Busy::Asking {
            entry.busy = Busy::No;
        }
        if let CellAnswer::Rejected(rejection) = answer {
            self.effects.push(Effect::Note(guid.clone(), format!("the board: {rejection}")));
            return self.refused(now, &guid, &request);
        }
        entry.refusals = 0;
        let entry = &self.entries[&guid];
        match entry.owner {
            Owner::Lrp { .. } => {
                self.lrp_answered(&guid, &request);
                self.evacuee_answered(&guid, &request, Some(answer));
            }
            Owner::Task { .. } => self.task_answered(&guid, &request, answer),
            Owner::Local(_) => {}
        }
        self.judge(now, &guid, Look::Believed);
        self.forget_if_over(&guid);
    }

    /// Our picture is old: read, and judge again. If that leads to a refusal too, the next pass will
    /// see.
    fn refused(&mut self, now: Timestamp, guid: &ContainerGuid, request: &CellRequest) {
        if self.evacuee_answered(guid, request, None) {
            return;
        }
        let Some(entry) = self.entries.get_mut(guid) else { return };
        entry.refusals += 1;
        if entry.refusals > 1 {
            entry.not_before = now + self.settings.pass_every;
        } else {
            self.read(guid);
        }
    }

    // Definitions.

    fn learn(&mut self, fetched: FetchedDefinitions) {
        for lrp in fetched.lrps {
            let known = (open(&lrp.definition), open(&lrp.metric_tags), open(&lrp.routes));
            let (Ok(definition), Ok(metric_tags), Ok(routes)) = known else {
                self.unreadable(&lrp.key);
                continue;
            };
            let (modification_tag, definition) = (lrp.modification_tag, Arc::new(definition));
            let known = KnownDefinition { modification_tag, definition, metric_tags, routes };
            self.know(lrp.key, Arc::new(known));
        }
        for task in fetched.tasks {
            if let Ok(definition) = open(&task.definition) {
                self.tasks.insert(task.task_guid, Arc::new(definition));
            }
        }
        let left = fetched.left;
        self.fetch.extend(left.lrps.into_iter().map(Fetch::Lrp));
        self.fetch.extend(left.tasks.into_iter().map(Fetch::Task));
    }

    /// What is written down of instances must not be older than what is known.
    fn know(&mut self, key: DefinitionKey, known: Arc<KnownDefinition>) {
        if self.definitions.get(&key) == Some(&known) {
            return;
        }
        for guid in self.instances_of(&key) {
            let Some(entry) = self.entries.get(&guid).filter(|it| it.assigned) else { continue };
            let Owner::Lrp { key, instance } = entry.owner.clone() else { continue };
            let definition = Arc::clone(&known);
            self.effects.push(Effect::Assign(Assigned { key, instance, definition }));
        }
        self.definitions.insert(key, known);
    }

    /// Written by a release that we do not understand.
    fn unreadable(&mut self, key: &DefinitionKey) {
        for guid in self.instances_of(key) {
            if self.entries[&guid].state() == Some(ContainerState::Reserved) {
                self.cannot_run(&guid, "it cannot be read: is the coordinator of a later release?");
            }
        }
    }

    fn instances_of(&self, key: &DefinitionKey) -> Vec<ContainerGuid> {
        let of = self.entries.iter().filter(|(_, entry)| match &entry.owner {
            Owner::Lrp { key: of, .. } => definition_of(of) == *key,
            Owner::Task { .. } | Owner::Local(_) => false,
        });
        of.map(|(guid, _)| guid.clone()).collect()
    }

    /// Asks for what is missing, unless that is under way.
    pub(super) fn begin_fetch(&mut self) {
        if self.fetching || self.fetch.is_empty() || self.coordinator.is_none() {
            return;
        }
        let mut asked = FetchDefinitions::default();
        while let Some(next) = self.fetch.pop_front() {
            match next {
                Fetch::Lrp(key) if !asked.lrps.contains(&key) => asked.lrps.push(key),
                Fetch::Task(guid) if !asked.tasks.contains(&guid) => asked.tasks.push(guid),
                Fetch::Lrp(_) | Fetch::Task(_) => {}
            }
            if asked.lrps.len().max(asked.tasks.len()) == FETCH_ITEMS {
                break;
            }
        }
        self.fetching = true;
        self.effects.push(Effect::Fetch(self.contact, asked));
    }

    pub(super) fn fetched(
        &mut self,
        now: Timestamp,
        outcome: Result<FetchedDefinitions, Unanswered>,
    ) {
        self.fetching = false;
        let unknown = match outcome {
            Ok(fetched) => {
                let unknown = fetched.unknown.clone();
                self.learn(fetched);
                unknown
            }
            // The next pass sees that it still waits, and a sync reads what has become of it.
            Err(_) => {
                self.syncing.want_full();
                FetchDefinitions::default()
            }
        };
        let waiting: Vec<ContainerGuid> = self.entries.keys().cloned().collect();
        for guid in waiting {
            self.go_on_with(now, &guid, &unknown);
        }
        self.bring_all_up_to_date(now);
    }

    /// What waited for its definition runs, or cannot.
    fn go_on_with(&mut self, now: Timestamp, guid: &ContainerGuid, unknown: &FetchDefinitions) {
        let Some(entry) = self.entries.get_mut(guid) else { return };
        if entry.busy != Busy::Fetching {
            return;
        }
        match entry.owner.clone() {
            Owner::Lrp { key, instance } => {
                let of = definition_of(&key);
                if self.fetch.contains(&Fetch::Lrp(of.clone())) {
                    return;
                }
                entry.busy = Busy::No;
                if self.definitions.contains_key(&of) {
                    self.run_lrp(guid, &key, &instance);
                } else if unknown.lrps.contains(&of) {
                    // It was ours when we claimed it, and is not any more.
                    self.read(guid);
                } else {
                    entry.not_before = now + LONGEST_WAIT;
                }
            }
            Owner::Task { guid: task, .. } => {
                if self.fetch.contains(&Fetch::Task(task.clone())) {
                    return;
                }
                entry.busy = Busy::No;
                if self.tasks.contains_key(&task) {
                    self.run_task(guid, &task);
                } else if unknown.tasks.contains(&task) {
                    self.read(guid);
                }
            }
            Owner::Local(_) => {}
        }
    }

    /// Routes or tags may be others now.
    fn bring_all_up_to_date(&mut self, now: Timestamp) {
        self.judge_all(now);
    }

    /// Whoever has the task's container hears that it is not to run.
    pub(super) fn cancel(&mut self, task: &TaskGuid) {
        let guid = ContainerGuid::from(task);
        let is_task = self.entries.get(&guid).is_some_and(|entry| {
            matches!(entry.owner, Owner::Task { .. }) && entry.container.is_some()
        });
        if is_task {
            self.delete(&guid);
        }
    }
}
