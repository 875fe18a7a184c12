//! What a rep asks the board, and what it does about the answers.

use std::sync::atomic::Ordering;
use std::time::Instant;

use volvox_mesh::request::AskError;
use volvox_mesh::request::methods::open;
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::cell_rpc::{
    CellAnswer, CellReport, CellReportReply, DefinitionKey, FetchDefinitions, FetchedDefinitions,
};
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::request::CellRequest;

use super::{AGAIN, ANSWER_WITHIN, Deed, Rep, Stats, definition_of};

impl Rep {
    /// Sends what is to be reported, unless a report is under way.
    pub(super) fn report(&mut self) {
        let Some(coordinator) = self.coordinator else { return };
        if self.report_is_under_way || self.wishes.is_empty() || Instant::now() < self.not_before {
            return;
        }
        let (times, mut requests): (Vec<Instant>, _) = self.wishes.drain(..).unzip();
        let mut report = CellReport::take(&mut requests);
        let mut times = times.into_iter();
        let sent: Vec<(Instant, CellRequest)> =
            times.by_ref().zip(report.requests.iter().cloned()).collect();
        self.wishes.extend(times.zip(requests));
        report.fetch = self.wanted(&report.requests);
        self.report_is_under_way = true;
        let (deeds, ask) = (self.deeds.clone(), self.mesh.ask(coordinator, &report, ANSWER_WITHIN));
        tokio::spawn(async move {
            let outcome = ask.await;
            let _ended = deeds.send(Deed::Reported(sent, outcome)).await;
        });
    }

    /// Definitions that will be needed when these have been answered.
    fn wanted(&self, requests: &[CellRequest]) -> FetchDefinitions {
        let mut fetch = FetchDefinitions::default();
        for request in requests {
            match request {
                CellRequest::ClaimLrp(key, _) => {
                    let key = definition_of(key);
                    if !self.definitions.contains_key(&key) {
                        fetch.lrps.push(key);
                    }
                }
                CellRequest::StartTask(task, _) => fetch.tasks.push(task.clone()),
                _ => {}
            }
        }
        fetch.lrps.sort();
        fetch.lrps.dedup();
        fetch
    }

    pub(super) fn reported(
        &mut self,
        sent: Vec<(Instant, CellRequest)>,
        outcome: Result<CellReportReply, AskError>,
    ) {
        self.report_is_under_way = false;
        let reply = match outcome {
            Ok(reply) if reply.answers.len() == sent.len() => reply,
            Ok(_) | Err(_) => return self.try_again(sent),
        };
        self.keep(reply.fetched);
        let mut later = Vec::new();
        for ((since, request), answer) in sent.into_iter().zip(reply.answers) {
            if let CellAnswer::Later(_) = answer {
                later.push((since, request));
            } else {
                self.answered(since, request, &answer);
            }
        }
        if !later.is_empty() {
            self.stats.later.fetch_add(1, Ordering::Relaxed);
            self.try_again(later);
        }
    }

    /// All requests may be made twice.
    fn try_again(&mut self, wishes: Vec<(Instant, CellRequest)>) {
        for wish in wishes.into_iter().rev() {
            self.wishes.push_front(wish);
        }
        self.not_before = Instant::now() + AGAIN;
        self.later(AGAIN, Deed::Again);
    }

    fn answered(&mut self, since: Instant, request: CellRequest, answer: &CellAnswer) {
        let agreed = !matches!(answer, CellAnswer::Rejected(_));
        match request {
            CellRequest::ClaimLrp(_, on) => {
                Stats::note(&self.stats.claims_ms, since);
                if agreed { self.make(&on.instance_guid) } else { self.delete(&on.instance_guid) }
            }
            CellRequest::StartLrp(_, on, _) => {
                Stats::note(&self.stats.starts_ms, since);
                if !agreed {
                    self.delete(&on.instance_guid);
                }
            }
            CellRequest::CrashLrp(_, on, _) | CellRequest::RemoveLrp(_, on) => {
                self.delete(&on.instance_guid);
            }
            CellRequest::EvacuateClaimed(_, on)
            | CellRequest::EvacuateRunning(_, on, _)
            | CellRequest::EvacuateCrashed(_, on, _)
            | CellRequest::EvacuateStopped(_, on) => {
                if *answer != CellAnswer::KeepContainer(true) {
                    self.delete(&on.instance_guid);
                }
            }
            CellRequest::RemoveEvacuating(..) => {}
            CellRequest::StartTask(task, _) => {
                if *answer == CellAnswer::ShouldStart(true) {
                    self.run_task(&task);
                } else {
                    self.delete_task(&task);
                }
            }
            CellRequest::CompleteTask(task, ..) | CellRequest::RejectTask(task, ..) => {
                self.delete_task(&task);
            }
        }
    }

    /// Asks for definitions by themselves.
    pub(super) fn fetch(&mut self, keys: Vec<DefinitionKey>) {
        let Some(coordinator) = self.coordinator else { return };
        let asked = FetchDefinitions { lrps: keys.clone(), tasks: Vec::new() };
        let ask = self.mesh.ask(coordinator, &asked, ANSWER_WITHIN);
        let deeds = self.deeds.clone();
        tokio::spawn(async move {
            let outcome = ask.await;
            let _ended = deeds.send(Deed::Fetched(keys, outcome)).await;
        });
    }

    /// What we know of an instance's definition may be old.
    pub(super) fn fetch_anew(&mut self, key: &LrpKey) {
        self.fetch(vec![definition_of(key)]);
    }

    pub(super) fn fetched(
        &mut self,
        asked: Vec<DefinitionKey>,
        outcome: Result<FetchedDefinitions, AskError>,
    ) {
        let waiting = |rep: &Rep| -> Vec<InstanceGuid> {
            rep.waiting_for_definition.iter().cloned().collect()
        };
        match outcome {
            Ok(fetched) => {
                let left = fetched.left.lrps.clone();
                let unknown = fetched.unknown.lrps.clone();
                self.keep(fetched);
                if !left.is_empty() {
                    self.fetch(left);
                }
                for guid in waiting(self) {
                    let Some(instance) = self.instances.get(&guid) else { continue };
                    let key = definition_of(&instance.key);
                    if unknown.contains(&key) {
                        self.stop(&guid);
                    } else if self.definitions.contains_key(&key) {
                        self.make(&guid);
                    }
                }
            }
            Err(_) if !self.waiting_for_definition.is_empty() => self.fetch(asked),
            Err(_) => {}
        }
    }

    fn keep(&mut self, fetched: FetchedDefinitions) {
        for definition in fetched.lrps {
            // A real rep would run it: here it is enough that it could be read.
            if open(&definition.definition).is_ok() {
                self.stats.fetched.fetch_add(1, Ordering::Relaxed);
                self.definitions.insert(definition.key.clone(), definition);
            }
        }
    }
}
