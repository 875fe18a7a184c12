//! The stored form of what consumers desire: a process with the definitions it may be made from.
//!
//! A plain desire is a deployment with one definition, whose id is the process guid. What a
//! consumer sees as a DesiredLRP is the projection of the deployment onto its active definition.
//! How an update goes from one definition to the next is [`Rollout`]; what consumers send is in
//! [`LrpDeploymentDefinition`] and [`LrpDeploymentUpdate`].

mod asked;
mod definitions;
mod old;
mod rollout;
mod rules;
#[cfg(test)]
mod tests;

use crate::definition::{LrpDefinition, MetricTags, Routes, UpdateStrategy};
use crate::desired_lrp::{DesiredLrp, DesiredLrpSchedulingInfo, VolumePlacement};
use crate::id::{DefinitionId, Domain, ProcessGuid};
use crate::modification_tag::ModificationTag;
use crate::packed::Packed;
use crate::record::record;

pub use asked::{
    ActivateLrpDeploymentDefinitionRequest, CancelUpdateDesiredLrpRequest,
    CreateLrpDeploymentRequest, DeleteLrpDeploymentRequest, LrpDeploymentByProcessGuidRequest,
    LrpDeploymentDefinition, LrpDeploymentUpdate, LrpDeploymentsRequest, NamedDefinition,
    RollbackDesiredLrpRequest, UpdateLrpDeploymentRequest,
};
pub use definitions::{Definition, Definitions, History, PastDefinition};
pub use old::LrpDeploymentV1;
pub use rollout::{InFlight, Rollout, RolloutDirection, RolloutPause, RolloutPhase, RolloutPolicy};

record! {
    /// What a consumer wants to run, and from which definitions.
    pub struct LrpDeployment {
        /// The process.
        process_guid: ProcessGuid = "process_guid" required,
        /// Its domain.
        domain: Domain = "domain" required,
        /// How many instances.
        instances: u32 = "instances" always,
        /// Where traffic for it comes from; opaque, by router.
        routes: Packed<Routes> = "routes" omit,
        /// The consumer's own note.
        annotation: Box<str> = "annotation" always,
        /// Tags of its metrics.
        metric_tags: Packed<MetricTags> = "metric_tags" omit,
        /// How evacuation replaces an instance, and how an update does.
        update_strategy: UpdateStrategy = "update_strategy" always,
        /// What instances are made from, by id.
        definitions: Definitions = "definitions" always,
        /// The definition that is to run; always a key of `definitions`.
        active_definition_id: DefinitionId = "active_definition_id" required,
        /// The definition whose instances have been seen to run, if any has; a key of
        /// `definitions` then.
        healthy_definition_id: Option<DefinitionId> = "healthy_definition_id" omit,
        /// Which version of the record this is.
        modification_tag: ModificationTag = "modification_tag" always,
        /// How its updates go; without one, as the seeds tell.
        rollout: Option<Box<RolloutPolicy>> = "rollout" omit,
        /// The update that is under way, if one is.
        roll: Option<Box<Rollout>> = "roll" omit,
        /// Definitions that no instance is made from any more, to go back to.
        history: History = "history" omit,
    }
}

impl LrpDeployment {
    /// The deployment that a plain desire creates.
    pub fn promote(desired: DesiredLrp, modification_tag: ModificationTag) -> Self {
        let id = desired.definition_id.unwrap_or_else(|| (&desired.process_guid).into());
        LrpDeployment {
            process_guid: desired.process_guid,
            domain: desired.domain,
            instances: desired.instances,
            routes: Packed::new(&desired.routes),
            annotation: desired.annotation.into(),
            metric_tags: Packed::new(&desired.metric_tags),
            update_strategy: desired.update_strategy,
            definitions: Definitions::of(id.clone(), &desired.definition),
            active_definition_id: id,
            healthy_definition_id: None,
            modification_tag,
            rollout: None,
            roll: None,
            history: History::default(),
        }
    }

    /// The deployment that a consumer creates in so many words.
    pub fn create(asked: LrpDeploymentDefinition, modification_tag: ModificationTag) -> Self {
        LrpDeployment {
            process_guid: asked.process_guid,
            domain: asked.domain,
            instances: asked.instances,
            routes: Packed::new(&asked.routes),
            annotation: asked.annotation.into(),
            metric_tags: Packed::new(&asked.metric_tags),
            update_strategy: asked.update_strategy,
            definitions: Definitions::of(asked.definition_id.clone(), &asked.definition),
            active_definition_id: asked.definition_id,
            healthy_definition_id: None,
            modification_tag,
            rollout: asked.rollout.map(Box::new),
            roll: None,
            history: History::default(),
        }
    }

    /// The definition that is to run. There always is one in a deployment that the board holds;
    /// one that was decoded from elsewhere may lie.
    pub fn active_definition(&self) -> Option<LrpDefinition> {
        self.active().map(Definition::unpack)
    }

    /// The same as it is kept.
    pub fn active(&self) -> Option<&Definition> {
        self.definitions.get(&self.active_definition_id)
    }

    /// The definition that an update comes from, while one is under way.
    pub fn previous_definition_id(&self) -> Option<&DefinitionId> {
        self.roll.as_ref().map(|roll| &roll.previous_definition_id)
    }

    /// What a consumer that knows nothing of definitions sees.
    pub fn project(&self) -> DesiredLrp {
        DesiredLrp {
            process_guid: self.process_guid.clone(),
            domain: self.domain.clone(),
            instances: self.instances,
            routes: self.routes.get(),
            annotation: self.annotation.to_string(),
            metric_tags: self.metric_tags.get(),
            update_strategy: self.update_strategy,
            modification_tag: self.modification_tag,
            definition_id: Some(self.active_definition_id.clone()),
            previous_definition_id: self.previous_definition_id().cloned(),
            definition: self.active_definition().unwrap_or_default(),
        }
    }

    /// What placing it needs to know, without unpacking the definition.
    pub fn scheduling_info(&self) -> DesiredLrpSchedulingInfo {
        let needs = self.active().map(|active| (**active.requirements()).clone());
        let needs = needs.unwrap_or_default();
        DesiredLrpSchedulingInfo {
            process_guid: self.process_guid.clone(),
            domain: self.domain.clone(),
            log_guid: self.active().map_or("", Definition::log_guid).to_owned(),
            annotation: self.annotation.to_string(),
            instances: self.instances,
            memory_mb: needs.memory_mb,
            disk_mb: needs.disk_mb,
            rootfs: needs.rootfs,
            max_pids: needs.max_pids,
            routes: self.routes.get(),
            epoch: self.modification_tag.epoch,
            index: self.modification_tag.index,
            volume_placement: Some(VolumePlacement { driver_names: needs.volume_drivers }),
            placement_tags: needs.placement_tags,
        }
    }

    /// The LRP with only those fields filled that routing needs, without unpacking the definition:
    /// everything else is empty.
    pub fn routing_info(&self) -> DesiredLrp {
        let log_guid = self.active().map_or("", Definition::log_guid).to_owned();
        DesiredLrp {
            process_guid: self.process_guid.clone(),
            domain: self.domain.clone(),
            instances: self.instances,
            routes: self.routes.get(),
            annotation: String::new(),
            metric_tags: self.metric_tags.get(),
            update_strategy: UpdateStrategy::default(),
            modification_tag: self.modification_tag,
            definition_id: None,
            previous_definition_id: None,
            definition: LrpDefinition { log_guid, ..LrpDefinition::default() },
        }
    }

    /// Has equal names share one text: decoding made a copy of each.
    pub fn share_names(&mut self) {
        if self.active_definition_id.as_str() == self.process_guid.as_str() {
            self.active_definition_id = (&self.process_guid).into();
        }
        let active = &self.active_definition_id;
        self.definitions.share_name(active);
        if let Some(healthy) = &mut self.healthy_definition_id {
            let known = self.definitions.iter().map(|(id, _)| id).find(|id| *id == healthy);
            *healthy = known.unwrap_or(healthy).clone();
        }
    }

    /// The same deployment without what it was made from before: that may be much to show.
    #[must_use]
    pub fn without_history(&self) -> Self {
        LrpDeployment { history: History::default(), ..self.clone() }
    }

    /// How its updates go.
    pub fn policy(&self) -> RolloutPolicy {
        self.rollout.as_deref().copied().unwrap_or_default()
    }

    /// How far the update has come at `index`; without an update every index is done.
    pub fn phase(&self, index: u32) -> RolloutPhase {
        self.roll.as_ref().map_or(RolloutPhase::Done, |roll| roll.phase(index))
    }
}
