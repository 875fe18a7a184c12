//! Shapes of the record that older programs have stored. Read, never written.

use serde::{Deserialize, Serialize};

use crate::definition::{MetricTags, Routes, UpdateStrategy};
use crate::id::{DefinitionId, Domain, ProcessGuid};
use crate::modification_tag::ModificationTag;
use crate::packed::Packed;

use super::{Definitions, History, LrpDeployment};

/// A deployment as record version 1 has it: before there were updates.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LrpDeploymentV1 {
    process_guid: ProcessGuid,
    domain: Domain,
    instances: u32,
    routes: Packed<Routes>,
    annotation: Box<str>,
    metric_tags: Packed<MetricTags>,
    update_strategy: UpdateStrategy,
    definitions: Definitions,
    active_definition_id: DefinitionId,
    healthy_definition_id: Option<DefinitionId>,
    modification_tag: ModificationTag,
}

impl From<LrpDeploymentV1> for LrpDeployment {
    fn from(old: LrpDeploymentV1) -> Self {
        LrpDeployment {
            process_guid: old.process_guid,
            domain: old.domain,
            instances: old.instances,
            routes: old.routes,
            annotation: old.annotation,
            metric_tags: old.metric_tags,
            update_strategy: old.update_strategy,
            definitions: old.definitions,
            active_definition_id: old.active_definition_id,
            healthy_definition_id: old.healthy_definition_id,
            modification_tag: old.modification_tag,
            rollout: None,
            roll: None,
            history: History::default(),
        }
    }
}

impl From<LrpDeployment> for LrpDeploymentV1 {
    /// What an older program would have written of it, for tests of the way forward.
    fn from(new: LrpDeployment) -> Self {
        LrpDeploymentV1 {
            process_guid: new.process_guid,
            domain: new.domain,
            instances: new.instances,
            routes: new.routes,
            annotation: new.annotation,
            metric_tags: new.metric_tags,
            update_strategy: new.update_strategy,
            definitions: new.definitions,
            active_definition_id: new.active_definition_id,
            healthy_definition_id: new.healthy_definition_id,
            modification_tag: new.modification_tag,
        }
    }
}
