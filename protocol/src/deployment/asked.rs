//! What consumers send about deployments and about updates of desired LRPs.

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::definition::{LrpDefinition, MetricTags, Routes, UpdateStrategy};
use crate::id::{DefinitionId, Domain, ProcessGuid};
use crate::record::{read_flat, record};

use super::RolloutPolicy;

record! {
    /// A deployment to be created, with its first definition.
    pub struct LrpDeploymentDefinition {
        /// Which process.
        process_guid: ProcessGuid = "process_guid" required,
        /// Whose it is.
        domain: Domain = "domain" required,
        /// How many.
        instances: u32 = "instances" always,
        /// What the routers are told.
        routes: Routes = "routes" omit,
        /// The consumer's note.
        annotation: String = "annotation" always,
        /// Tags on its metrics and log lines.
        metric_tags: MetricTags = "metric_tags" omit,
        /// How instances are replaced.
        update_strategy: UpdateStrategy = "update_strategy" always,
        /// How its updates go.
        rollout: Option<RolloutPolicy> = "rollout" omit,
        /// What the definition is called.
        definition_id: DefinitionId = "definition_id" required,
        /// How to run it.
        definition: LrpDefinition = "definition" required,
    }
}

record! {
    /// A change of a deployment. What is not given stays.
    #[derive(Default)]
    pub struct LrpDeploymentUpdate {
        /// How many.
        instances: Option<u32> = "instances" omit,
        /// All the routes.
        routes: Option<Routes> = "routes" omit,
        /// The consumer's note.
        annotation: Option<String> = "annotation" omit,
        /// All the tags.
        metric_tags: Option<MetricTags> = "metric_tags" omit,
        /// How this update and those to come go, all of it.
        rollout: Option<RolloutPolicy> = "rollout" omit,
        /// What the new definition is called; goes with the definition.
        definition_id: Option<DefinitionId> = "definition_id" omit,
        /// What is to run from now on; goes with its id.
        definition: Option<Box<LrpDefinition>> = "definition" omit,
    }
}

/// A definition that says what it is called: the id stands beside the definition's own keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedDefinition {
    /// What it is called.
    pub definition_id: DefinitionId,
    /// How to run it.
    pub definition: LrpDefinition,
}

impl Serialize for NamedDefinition {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return (&self.definition_id, &self.definition).serialize(to);
        }
        let mut open = to.serialize_struct("NamedDefinition", 1 + LrpDefinition::FIELDS)?;
        open.serialize_field("definition_id", &self.definition_id)?;
        self.definition.serialize_fields(&mut open, true)?;
        open.end()
    }
}

impl<'de> Deserialize<'de> for NamedDefinition {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            let (definition_id, definition) = Deserialize::deserialize(from)?;
            return Ok(NamedDefinition { definition_id, definition });
        }
        let (name, definition) = read_flat::<D, name::Name, _>(from, "a definition with its id")?;
        let missing = || serde::de::Error::missing_field("definition_id");
        let definition_id = name.definition_id.ok_or_else(missing)?;
        Ok(NamedDefinition { definition_id, definition })
    }
}

mod name {
    #![allow(unreachable_pub, reason = "record! declares what the world may see")]
    use super::*;

    record! {
        /// The key that is not the definition's, for reading.
        #[derive(Default)]
        pub struct Name {
            definition_id: Option<DefinitionId> = "definition_id" always,
        }
    }
}

record! {
    /// Create this deployment.
    pub struct CreateLrpDeploymentRequest {
        /// The deployment.
        deployment: LrpDeploymentDefinition = "deployment" required,
    }
}

record! {
    /// Change this deployment. A new definition supersedes an update that is under way.
    pub struct UpdateLrpDeploymentRequest {
        /// Which one.
        process_guid: ProcessGuid = "process_guid" required,
        /// How.
        update: LrpDeploymentUpdate = "update" always,
    }
}

record! {
    /// Go to a definition that the deployment has.
    pub struct ActivateLrpDeploymentDefinitionRequest {
        /// Which deployment.
        process_guid: ProcessGuid = "process_guid" required,
        /// Which definition.
        definition_id: DefinitionId = "definition_id" required,
    }
}

record! {
    /// Stop every instance and forget the deployment.
    pub struct DeleteLrpDeploymentRequest {
        /// Which one.
        process_guid: ProcessGuid = "process_guid" required,
    }
}

record! {
    /// Show one deployment.
    pub struct LrpDeploymentByProcessGuidRequest {
        /// Which one.
        process_guid: ProcessGuid = "process_guid" required,
    }
}

record! {
    /// Show deployments: those of a domain, those that are named, or all.
    #[derive(Default)]
    pub struct LrpDeploymentsRequest {
        /// Only those of this domain.
        domain: Option<Domain> = "domain" omit,
        /// Only these, when any are named.
        process_guids: Vec<ProcessGuid> = "process_guids" omit,
    }
}

record! {
    /// Take back the update that is under way.
    pub struct CancelUpdateDesiredLrpRequest {
        /// Of which process.
        process_guid: ProcessGuid = "process_guid" required,
    }
}

record! {
    /// Go back to an earlier definition.
    pub struct RollbackDesiredLrpRequest {
        /// Of which process.
        process_guid: ProcessGuid = "process_guid" required,
        /// To which one.
        definition_id: DefinitionId = "definition_id" required,
    }
}
