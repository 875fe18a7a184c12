//! The stored form of what consumers desire: a process with the definitions it may be made from.
//!
//! A plain desire is a deployment with one definition, whose id is the process guid. What a
//! consumer sees as a DesiredLRP is the projection of the deployment onto its active definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::definition::{LrpDefinition, MetricTags, Routes, UpdateStrategy};
use crate::desired_lrp::DesiredLrp;
use crate::id::{DefinitionId, Domain, ProcessGuid};
use crate::tag::ModificationTag;

/// What a consumer wants to run, and from which definitions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LrpDeployment {
    /// The process.
    pub process_guid: ProcessGuid,
    /// Its domain.
    pub domain: Domain,
    /// How many instances.
    pub instances: u32,
    /// Where traffic for it comes from; opaque, by router.
    pub routes: Routes,
    /// The consumer's own note.
    pub annotation: String,
    /// Tags of its metrics.
    pub metric_tags: MetricTags,
    /// How evacuation replaces an instance.
    pub update_strategy: UpdateStrategy,
    /// What instances are made from, by id.
    pub definitions: BTreeMap<DefinitionId, Arc<LrpDefinition>>,
    /// The definition that is to run; always a key of `definitions`.
    pub active_definition_id: DefinitionId,
    /// The definition whose instances have been seen to run, if any has.
    pub healthy_definition_id: Option<DefinitionId>,
    /// Which version of the record this is.
    pub modification_tag: ModificationTag,
}

impl LrpDeployment {
    /// The deployment that a plain desire creates.
    pub fn promote(desired: DesiredLrp, modification_tag: ModificationTag) -> Self {
        let id = desired.definition_id.unwrap_or_else(|| (&desired.process_guid).into());
        LrpDeployment {
            process_guid: desired.process_guid,
            domain: desired.domain,
            instances: desired.instances,
            routes: desired.routes,
            annotation: desired.annotation,
            metric_tags: desired.metric_tags,
            update_strategy: desired.update_strategy,
            definitions: BTreeMap::from([(id.clone(), Arc::new(desired.definition))]),
            active_definition_id: id,
            healthy_definition_id: None,
            modification_tag,
        }
    }

    /// The definition that is to run. There always is one in a deployment that the board holds;
    /// one that was decoded from elsewhere may lie.
    pub fn active_definition(&self) -> Option<&Arc<LrpDefinition>> {
        self.definitions.get(&self.active_definition_id)
    }

    /// What a consumer that knows nothing of definitions sees.
    pub fn project(&self) -> DesiredLrp {
        DesiredLrp {
            process_guid: self.process_guid.clone(),
            domain: self.domain.clone(),
            instances: self.instances,
            routes: self.routes.clone(),
            annotation: self.annotation.clone(),
            metric_tags: self.metric_tags.clone(),
            update_strategy: self.update_strategy,
            modification_tag: self.modification_tag,
            definition_id: Some(self.active_definition_id.clone()),
            previous_definition_id: None,
            definition: self.active_definition().map(|def| (**def).clone()).unwrap_or_default(),
        }
    }

    /// Whether an instance of `definition` is wanted at `index`.
    pub fn wants(&self, definition: &DefinitionId, index: u32) -> bool {
        index < self.instances && *definition == self.active_definition_id
    }
}
