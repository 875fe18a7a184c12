//! What consumers desire: domains, desire, update, remove.

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::actual_lrp::{ActualLrp, Presence};
use volvox_protocol::definition::{LrpDefinition, MetricTagValue, MetricTags};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::{DesiredLrp, DesiredLrpUpdate};
use volvox_protocol::event::Event;
use volvox_protocol::id::{Domain, ProcessGuid};
use volvox_protocol::packed::Packed;
use volvox_protocol::request::Rejection;
use volvox_protocol::time::Timestamp;

use super::Board;
use super::turn::{Turn, group_of};
use crate::bbs::command::{Change, DomainRecord, Effect, Reply, RowId, Subject};

/// The router key whose routes the cells themselves serve.
const INTERNAL_ROUTER: &str = "internal-router";

impl Turn<'_> {
    pub(super) fn upsert_domain(
        &mut self,
        domain: Domain,
        ttl: Duration,
    ) -> Result<Reply, Rejection> {
        let expires_at = DomainRecord::end(self.now, ttl);
        let known = self.board.records.domain(&domain).cloned();
        let row = known.as_ref().map(|(row, _)| *row).unwrap_or_else(|| self.new_row());
        let after = DomainRecord { domain, ttl, expires_at };
        self.put(Change::Domain(row, known.map(|(_, record)| record), Some(after)));
        Ok(Reply::Done)
    }

    pub(super) fn desire_lrp(&mut self, desired: DesiredLrp) -> Result<Reply, Rejection> {
        let process = desired.process_guid.clone();
        if self.board.records.deployment(&process).is_some() {
            return Err(Rejection::Exists(format!("desired LRP {process}")));
        }
        let tag = self.new_tag();
        let deployment = Arc::new(LrpDeployment::promote(desired, tag));
        self.put_deployment(None, Some(Arc::clone(&deployment)));
        self.emit(Event::DesiredLrpCreated(Arc::clone(&deployment)));
        self.adopt(&deployment);
        self.create_missing(&deployment, 0);
        Ok(Reply::Done)
    }

    pub(super) fn update_desired_lrp(
        &mut self,
        process: &ProcessGuid,
        update: DesiredLrpUpdate,
    ) -> Result<Reply, Rejection> {
        let (row, before) = self.known(process)?;
        let mut after = (*before).clone();
        after.modification_tag = before.modification_tag.next();
        after.instances = update.instances.unwrap_or(before.instances);
        if let Some(routes) = update.routes {
            after.routes = Packed::new(&routes);
        }
        if let Some(annotation) = update.annotation {
            after.annotation = annotation.into();
        }
        if let Some(metric_tags) = update.metric_tags {
            fits_metrics_guid(&metric_tags, before.active_definition().as_ref())?;
            after.metric_tags = Packed::new(&metric_tags);
        }
        if let (Some(image_username), Some(image_password), Some(definition)) =
            (update.image_username, update.image_password, before.active_definition())
        {
            let definition = LrpDefinition { image_username, image_password, ..definition };
            after.definitions.insert(after.active_definition_id.clone(), &definition);
        }
        let after = Arc::new(after);
        self.put_deployment(Some(&(row, Arc::clone(&before))), Some(Arc::clone(&after)));
        self.emit(Event::DesiredLrpChanged(Arc::clone(&before), Arc::clone(&after)));
        // An update that does not speak of instances stops none: what is beyond and still there is
        // for convergence, which asks whether the domain is fresh.
        if let Some(instances) = update.instances {
            self.stop_beyond(process, instances);
            self.create_missing(&after, before.instances);
        }
        self.tell_running(&before, &after);
        Ok(Reply::Done)
    }

    pub(super) fn remove_desired_lrp(&mut self, process: &ProcessGuid) -> Result<Reply, Rejection> {
        let before = self.known(process)?;
        self.put_deployment(Some(&before), None);
        self.emit(Event::DesiredLrpRemoved(before.1));
        self.stop_beyond(process, 0);
        Ok(Reply::Done)
    }

    fn known(&self, process: &ProcessGuid) -> Result<(RowId, Arc<LrpDeployment>), Rejection> {
        let known = self.board.records.deployment(process).cloned();
        known.ok_or_else(|| Rejection::NotFound(format!("desired LRP {process}")))
    }

    /// What runs of a process already is of the domain in which it was desired before, or which
    /// its cell named. From now on it is of the domain in which it is desired.
    fn adopt(&mut self, deployment: &LrpDeployment) {
        let Some(process) = self.board.records.process(&deployment.process_guid) else { return };
        let strangers: Vec<_> = process
            .instances()
            .iter()
            .filter(|slot| slot.lrp.domain != deployment.domain)
            .cloned()
            .collect();
        for slot in strangers {
            let at = self.index(&slot.lrp.key());
            let lrp = ActualLrp {
                domain: deployment.domain.clone(),
                modification_tag: slot.lrp.modification_tag.next(),
                ..(*slot.lrp).clone()
            };
            let lrp = self.change(&slot, lrp);
            if slot.lrp.presence != Presence::Ordinary || at.suspect.is_none() {
                self.emit(Event::GroupChanged(group_of(&slot.lrp), group_of(&lrp)));
            }
        }
    }

    /// Creates what is missing of the indices from `first` up, and asks for their starts. What
    /// is there already is left alone: somebody is on it.
    fn create_missing(&mut self, deployment: &LrpDeployment, first: u32) {
        let definition = &deployment.active_definition_id;
        for index in first..deployment.instances {
            let process = &deployment.process_guid;
            if self.find(process, definition, index, Presence::Ordinary).is_none() {
                let lrp = self.create_unclaimed(deployment, definition, index);
                if self.find(process, definition, index, Presence::Suspect).is_none() {
                    self.emit(Event::GroupCreated(group_of(&lrp)));
                }
            }
        }
    }

    /// Stops every instance at or above `instances`. This was asked for in so many words, so it
    /// does not wait for the domain to be fresh. Evacuating records are left to their cells.
    fn stop_beyond(&mut self, process: &ProcessGuid, instances: u32) {
        let Some(known) = self.board.records.process(process) else { return };
        let beyond: Vec<_> = known
            .instances()
            .iter()
            .filter(|slot| slot.lrp.index >= instances)
            .filter(|slot| slot.lrp.presence != Presence::Evacuating)
            .cloned()
            .collect();
        // From the highest index down: taking away the last of a long row moves no other. Within
        // an index the ordinary record goes first, as long as the suspect hides it from readers.
        let indices = beyond.chunk_by(|one, other| one.lrp.index == other.lrp.index);
        for slot in indices.rev().flatten() {
            if slot.lrp.presence == Presence::Suspect {
                self.remove_suspect(slot);
            } else {
                let at = self.index(&slot.lrp.key());
                self.retire(&at, slot);
            }
        }
    }

    /// Tells the cells of running instances when what they serve or say has changed.
    fn tell_running(&mut self, before: &LrpDeployment, after: &LrpDeployment) {
        let internal = |of: &LrpDeployment| of.routes.get().remove(INTERNAL_ROUTER);
        let same_routes = before.routes == after.routes || internal(before) == internal(after);
        if before.metric_tags == after.metric_tags && same_routes {
            return;
        }
        let Some(process) = self.board.records.process(&after.process_guid) else { return };
        let running = process.instances().iter().filter(|slot| slot.lrp.state.is_running());
        let tell: Vec<Effect> = running
            .filter_map(|slot| {
                let instance = slot.lrp.instance()?.clone();
                Some(Effect::UpdateInstance(slot.lrp.key(), instance))
            })
            .collect();
        for effect in tell {
            self.effect(effect);
        }
    }
}

/// The one rule about tags that an update cannot be held against before it meets its definition.
fn fits_metrics_guid(
    metric_tags: &MetricTags,
    definition: Option<&LrpDefinition>,
) -> Result<(), Rejection> {
    let guid = definition.map_or("", |definition| &definition.metrics_guid);
    match metric_tags.get("source_id") {
        Some(source) if !guid.is_empty() && *source != MetricTagValue::Static(guid.to_owned()) => {
            Err(Rejection::Invalid(format!(
                "metric_tags.source_id: must be static and equal to metrics_guid {guid:?}"
            )))
        }
        Some(_) | None => Ok(()),
    }
}

impl Board {
    /// Judges the indices that a changed deployment wants or no longer wants.
    pub(super) fn judge_deployment(
        &mut self,
        now: Timestamp,
        before: Option<&LrpDeployment>,
        after: Option<&LrpDeployment>,
    ) {
        let Some(either) = after.or(before) else { return };
        let count = |deployment: Option<&LrpDeployment>| deployment.map_or(0, |it| it.instances);
        let active = |it: &LrpDeployment| it.active_definition_id.clone();
        let same_definition = match (before, after) {
            (Some(before), Some(after)) => active(before) == active(after),
            (Some(_), None) | (None, Some(_)) | (None, None) => false,
        };
        let first = if same_definition { count(before).min(count(after)) } else { 0 };
        let process = &either.process_guid;
        let mut subjects: Vec<Subject> = Vec::new();
        for deployment in [before, after].into_iter().flatten() {
            let definition = &deployment.active_definition_id;
            subjects.extend(
                (first..deployment.instances)
                    .map(|index| Subject::Index(process.clone(), definition.clone(), index)),
            );
        }
        if !same_definition && let Some(known) = self.records.process(process) {
            subjects
                .extend(known.instances().iter().map(|slot| super::turn::subject_of(&slot.lrp)));
        }
        subjects.sort();
        subjects.dedup();
        for subject in subjects {
            self.judge_again(now, subject);
        }
    }
}
