//! What consumers desire: domains, desire, remove, and what an update has in common with them.
//! Updates themselves are in `deployment.rs`.

use std::time::Duration;

use volvox_protocol::actual_lrp::{ActualLrp, LrpKey, LrpState, Presence};
use volvox_protocol::definition::{LrpDefinition, MetricTagValue, MetricTags};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::desired_lrp::DesiredLrp;
use volvox_protocol::event::Event;
use volvox_protocol::id::{DefinitionId, Domain, ProcessGuid};
use volvox_protocol::instance_info::{self, INTERNAL_ROUTER};
use volvox_protocol::request::Rejection;

use super::deployment::DeploymentRow;
use super::txn::{Txn, group_of};
use crate::bbs::command::{BoardEffect, Change, DomainRecord, Reply};

impl Txn<'_> {
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
        let tag = self.new_tag();
        self.deploy(LrpDeployment::promote(desired, tag))
    }

    pub(super) fn remove_desired_lrp(&mut self, process: &ProcessGuid) -> Result<Reply, Rejection> {
        let before = self.known(process)?;
        self.put_deployment(Some(&before), None);
        self.emit(Event::DesiredLrpRemoved(before.1));
        self.stop_beyond(process, 0);
        Ok(Reply::Done)
    }

    pub(super) fn known(&self, process: &ProcessGuid) -> Result<DeploymentRow, Rejection> {
        let known = self.board.records.deployment(process).cloned();
        known.ok_or_else(|| Rejection::NotFound(format!("desired LRP {process}")))
    }

    /// What runs of a process already is of the domain in which it was desired before, or which
    /// its cell named. From now on it is of the domain in which it is desired.
    pub(super) fn adopt(&mut self, deployment: &LrpDeployment) {
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
    pub(super) fn create_missing(&mut self, deployment: &LrpDeployment, first: u32) {
        let guid = &deployment.process_guid;
        for index in first..deployment.instances {
            let Some(process) = self.board.records.process(guid) else { return };
            let without =
                |id: &&DefinitionId| process.find(id, index, Presence::Ordinary).is_none();
            let wanted: Vec<DefinitionId> =
                process.wanted(index).filter(without).cloned().collect();
            for definition in wanted {
                let lrp = self.create_unclaimed(deployment, &definition, index);
                if self.find(guid, &definition, index, Presence::Suspect).is_none() {
                    self.emit(Event::GroupCreated(group_of(&lrp)));
                }
            }
        }
    }

    /// Stops every instance at or above `instances`. This was asked for in so many words, so it
    /// does not wait for the domain to be fresh. Evacuating records are left to their cells.
    pub(super) fn stop_beyond(&mut self, process: &ProcessGuid, instances: u32) {
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

    /// Tells a cell that what is desired has changed while the instance was being started: it says
    /// what it fetched before.
    pub(super) fn tell_if_outdated(&mut self, key: &LrpKey) {
        let Some(deployment) = self.deployment(&key.process_guid) else { return };
        let Some(slot) = self.index(key).ordinary else { return };
        let LrpState::Running(on, told) = &slot.lrp.state else { return };
        let tags =
            instance_info::metric_tags(&deployment.metric_tags.get(), key, &on.instance_guid);
        let names = instance_info::internal_routes(&deployment.routes.get());
        if told.metric_tags != tags || told.internal_routes != names {
            self.effect(BoardEffect::UpdateInstance(slot.lrp.key(), on.clone()));
        }
    }

    /// Tells the cells of running instances when what they serve or say has changed.
    pub(super) fn tell_running(&mut self, before: &LrpDeployment, after: &LrpDeployment) {
        let internal = |of: &LrpDeployment| of.routes.get().remove(INTERNAL_ROUTER);
        let same_routes = before.routes == after.routes || internal(before) == internal(after);
        if before.metric_tags == after.metric_tags && same_routes {
            return;
        }
        let Some(process) = self.board.records.process(&after.process_guid) else { return };
        let running = process.instances().iter().filter(|slot| slot.lrp.state.is_running());
        let tell: Vec<BoardEffect> = running
            .filter_map(|slot| {
                let instance = slot.lrp.instance()?.clone();
                Some(BoardEffect::UpdateInstance(slot.lrp.key(), instance))
            })
            .collect();
        for effect in tell {
            self.effect(effect);
        }
    }
}

/// The one rule about tags that an update cannot be held against before it meets its definition.
pub(super) fn fits_metrics_guid(
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
