//! The board as the store gives it back. A record that breaks a rule is not taken: the store sets
//! it aside and goes on.

use std::sync::Arc;

use volvox_protocol::actual_lrp::{ActualLrp, InstanceKey, LrpState};
use volvox_protocol::deployment::{LrpDeployment, PastDefinition};
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::task::Task;
use volvox_protocol::time::Timestamp;

use super::schedule::ConvergeSchedule;
use super::{Board, check};
use crate::bbs::command::{Change, DomainRecord, RowId};

impl Board {
    /// Puts a record as the store gave it back, or says why it cannot be one of ours. Domains and
    /// deployments come before instances. Nothing is due before [`Board::loaded`].
    pub fn load(&mut self, change: Change) -> Result<(), String> {
        let (row, change) = match change {
            Change::Domain(row, None, Some(domain)) => {
                if self.records.domain(&domain.domain).is_some() {
                    return Err(format!("domain {:?} is there twice", domain.domain));
                }
                (row, Change::Domain(row, None, Some(domain)))
            }
            Change::Deployment(row, None, Some(deployment)) => {
                if self.records.deployment(&deployment.process_guid).is_some() {
                    return Err(format!("desired LRP {} is there twice", deployment.process_guid));
                }
                let faults = check::deployment_faults(&deployment);
                if let Some(fault) = faults.into_iter().next() {
                    return Err(fault);
                }
                let mut deployment = Arc::unwrap_or_clone(deployment);
                deployment.share_names();
                (row, Change::Deployment(row, None, Some(Arc::new(deployment))))
            }
            Change::Actual(row, None, Some(lrp)) => {
                if let Some(fault) = self.actual_fault(&lrp) {
                    return Err(fault);
                }
                (row, Change::Actual(row, None, Some(self.share(lrp))))
            }
            Change::Task(row, None, Some(task)) => {
                if self.records.task(&task.task_guid).is_some() {
                    return Err(format!("task {} is there twice", task.task_guid));
                }
                let faults = check::task_faults(&task);
                if let Some(fault) = faults.into_iter().next() {
                    return Err(fault);
                }
                (row, Change::Task(row, None, Some(task)))
            }
            Change::Domain(..)
            | Change::Deployment(..)
            | Change::Actual(..)
            | Change::Task(..)
            | Change::Presence(..)
            | Change::Settled(..)
            | Change::Asked(..) => return Err("it is not a stored record".to_owned()),
        };
        if !mutated(Bug::RowsAreReused) {
            self.next_row = self.next_row.max(RowId(row.0.saturating_add(1)));
        }
        self.records.put(&change);
        Ok(())
    }

    /// All records are back: works out what convergence has to look at.
    pub fn loaded(&mut self, now: Timestamp) {
        self.opened_at = now;
        self.leave_the_future(now);
        self.promote_what_runs();
        let mut found = Vec::new();
        self.each_subject(|subject| {
            if let Some((attention, _)) = self.evaluate(now, &subject) {
                found.push((subject, attention));
            }
        });
        self.agenda = ConvergeSchedule::default();
        for (subject, attention) in found {
            self.agenda.set(subject, attention);
        }
    }

    /// Brings times that are still to come back to now: the clock was set back while nobody was
    /// here, and what waits for them would wait too long. Freshness lasts no longer than it was
    /// granted. Only here and not in the store: the next start does the same again.
    fn leave_the_future(&mut self, now: Timestamp) {
        let mut changes = Vec::new();
        for record in self.records.domains() {
            let expires_at = record.expires_at.min(DomainRecord::end(now, record.ttl));
            if expires_at != record.expires_at
                && let Some((row, before)) = self.records.domain(&record.domain)
            {
                let after = DomainRecord { expires_at, ..before.clone() };
                changes.push(Change::Domain(*row, Some(before.clone()), Some(after)));
            }
        }
        for (_, process) in self.records.processes() {
            if let Some((row, before)) = &process.deployment
                && is_ahead_of(now, before)
            {
                let after = Some(Arc::new(brought_back(now, before)));
                changes.push(Change::Deployment(*row, Some(Arc::clone(before)), after));
            }
            for slot in process.instances().iter().filter(|slot| slot.lrp.since > now) {
                let after = ActualLrp { since: now, ..(*slot.lrp).clone() };
                let before = Some(Arc::clone(&slot.lrp));
                changes.push(Change::Actual(slot.row, before, Some(Arc::new(after))));
            }
        }
        for task in self.records.tasks() {
            let latest = task.created_at.max(task.updated_at).max(task.first_completed_at);
            if latest > now
                && let Some((row, before)) = self.records.task(&task.task_guid)
            {
                let after = Task {
                    created_at: task.created_at.min(now),
                    updated_at: task.updated_at.min(now),
                    first_completed_at: task.first_completed_at.min(now),
                    ..(**task).clone()
                };
                changes.push(Change::Task(*row, Some(Arc::clone(before)), Some(Arc::new(after))));
            }
        }
        for change in changes {
            self.records.put(&change);
        }
    }

    /// A deployment from before there were healthy definitions has one if an instance runs. Only
    /// here and not in the store, as above.
    fn promote_what_runs(&mut self) {
        let mut changes = Vec::new();
        for (_, process) in self.records.processes() {
            if let Some((row, before)) = &process.deployment
                && before.healthy_definition_id.is_none()
                && before.roll.is_none()
                && process.has_run(&before.active_definition_id)
            {
                let healthy_definition_id = Some(before.active_definition_id.clone());
                let after = LrpDeployment { healthy_definition_id, ..(**before).clone() };
                let before = Some(Arc::clone(before));
                changes.push(Change::Deployment(*row, before, Some(Arc::new(after))));
            }
        }
        for change in changes {
            self.records.put(&change);
        }
    }

    /// Drops all freshness: nothing is stopped before a consumer has vouched for its domain again.
    pub fn forget_domains(&mut self) {
        let known: Vec<_> = self.records.domains().map(|record| record.domain.clone()).collect();
        for domain in known {
            if let Some((row, record)) = self.records.domain(&domain).cloned() {
                self.records.put(&Change::Domain(row, Some(record), None));
            }
        }
    }

    /// Takes over what another board had heard of the mesh: the store was read again, the mesh
    /// was not lost.
    pub fn listen_on(&mut self, now: Timestamp, other: Board) {
        self.presence = other.presence;
        self.heard = other.heard;
        self.loaded(now);
    }

    fn actual_fault(&self, lrp: &ActualLrp) -> Option<String> {
        let process = self.records.process(&lrp.process_guid);
        let twin = process.and_then(|it| it.find(&lrp.definition_id, lrp.index, lrp.presence));
        if twin.is_some() {
            return Some(format!(
                "{}/{} is there twice as {:?}",
                lrp.process_guid, lrp.index, lrp.presence
            ));
        }
        let deployment = process.and_then(|it| it.deployment.as_ref());
        if let Some((_, deployment)) = deployment.filter(|(_, it)| it.domain != lrp.domain) {
            return Some(format!(
                "{}/{} is of domain {:?}, its desired LRP of {:?}",
                lrp.process_guid, lrp.index, lrp.domain, deployment.domain
            ));
        }
        check::record_faults(lrp).into_iter().next()
    }

    /// The same record, its names shared with those of its deployment and of its cell: decoding
    /// made a copy of each.
    fn share(&self, lrp: Arc<ActualLrp>) -> Arc<ActualLrp> {
        let mut lrp = Arc::unwrap_or_clone(lrp);
        if let Some((_, deployment)) = self.records.deployment(&lrp.process_guid) {
            lrp.process_guid = deployment.process_guid.clone();
            lrp.domain = deployment.domain.clone();
            if deployment.active_definition_id == lrp.definition_id {
                lrp.definition_id = deployment.active_definition_id.clone();
            }
        }
        if let LrpState::Claimed(instance) | LrpState::Running(instance, _) = &mut lrp.state
            && let Some(cell_id) = self.records.named_cell(&instance.cell_id)
        {
            *instance = InstanceKey { cell_id: cell_id.clone(), ..instance.clone() };
        }
        Arc::new(lrp)
    }
}

/// Whether a time of a deployment is still to come.
fn is_ahead_of(now: Timestamp, deployment: &LrpDeployment) -> bool {
    let roll = deployment.roll.as_deref();
    let flights = roll.into_iter().flat_map(|roll| roll.in_flight.iter().map(|it| it.since));
    let times = roll.into_iter().flat_map(|roll| [roll.began_at, roll.progressed_at]);
    let past = deployment.history.iter().map(|past| past.retired_at);
    flights.chain(times).chain(past).any(|time| time > now)
}

/// The same deployment with no time that is still to come.
fn brought_back(now: Timestamp, deployment: &LrpDeployment) -> LrpDeployment {
    let mut after = deployment.clone();
    if let Some(roll) = &mut after.roll {
        roll.began_at = roll.began_at.min(now);
        roll.progressed_at = roll.progressed_at.min(now);
        for flight in &mut roll.in_flight {
            flight.since = flight.since.min(now);
        }
    }
    let most = after.history.len();
    for past in deployment.history.iter().filter(|past| past.retired_at > now) {
        after.history.push(PastDefinition { retired_at: now, ..past.clone() }, most);
    }
    after
}
