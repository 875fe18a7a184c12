//! What a consumer asks for: so many instances of a definition, with routes.
//!
//! The JSON form is flat, Diego's: the definition's keys stand beside the others.

mod info;
mod rules;
#[cfg(test)]
mod tests;

use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::definition::{LrpDefinition, MetricTags, Routes, UpdateStrategy};
use crate::deployment::NamedDefinition;
use crate::id::{DefinitionId, Domain, ProcessGuid};
use crate::modification_tag::ModificationTag;
use crate::record::{is_default, read_flat, record};
use crate::secret::Secret;

pub use info::{DesiredLrpSchedulingInfo, VolumePlacement, routing_info};

/// A long running process as a consumer wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredLrp {
    /// Which process.
    pub process_guid: ProcessGuid,
    /// Whose it is.
    pub domain: Domain,
    /// How many.
    pub instances: u32,
    /// What the routers are told.
    pub routes: Routes,
    /// The consumer's note.
    pub annotation: String,
    /// Tags on its metrics and log lines.
    pub metric_tags: MetricTags,
    /// How instances are replaced.
    pub update_strategy: UpdateStrategy,
    /// Which version of the record this is. Set by the board, whatever was sent.
    pub modification_tag: ModificationTag,
    /// Which definition this is; without one, the process guid names it.
    pub definition_id: Option<DefinitionId>,
    /// Which definition it replaces while an update is under way.
    pub previous_definition_id: Option<DefinitionId>,
    /// How to run it.
    pub definition: LrpDefinition,
}

impl Serialize for DesiredLrp {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !to.is_human_readable() {
            return self.in_order().serialize(to);
        }
        let mut open = to.serialize_struct("DesiredLrp", 10 + LrpDefinition::FIELDS)?;
        open.serialize_field("process_guid", &self.process_guid)?;
        open.serialize_field("domain", &self.domain)?;
        open.serialize_field("instances", &self.instances)?;
        if !self.routes.is_empty() {
            open.serialize_field("routes", &self.routes)?;
        }
        open.serialize_field("annotation", &self.annotation)?;
        if !self.metric_tags.is_empty() {
            open.serialize_field("metric_tags", &self.metric_tags)?;
        }
        open.serialize_field("update_strategy", &self.update_strategy)?;
        if !is_default(&self.modification_tag) {
            open.serialize_field("modification_tag", &self.modification_tag)?;
        }
        if let Some(id) = &self.definition_id {
            open.serialize_field("definition_id", id)?;
        }
        if let Some(id) = &self.previous_definition_id {
            open.serialize_field("previous_definition_id", id)?;
        }
        self.definition.serialize_fields(&mut open, true)?;
        open.end()
    }
}

impl DesiredLrp {
    /// The binary form: all fields in their order.
    fn in_order(&self) -> impl Serialize {
        (
            &self.process_guid,
            &self.domain,
            &self.instances,
            &self.routes,
            &self.annotation,
            &self.metric_tags,
            &self.update_strategy,
            &self.modification_tag,
            &self.definition_id,
            &self.previous_definition_id,
            &self.definition,
        )
    }
}

impl<'de> Deserialize<'de> for DesiredLrp {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if !from.is_human_readable() {
            let (
                process_guid,
                domain,
                instances,
                routes,
                annotation,
                metric_tags,
                update_strategy,
                modification_tag,
                definition_id,
                previous_definition_id,
                definition,
            ) = Deserialize::deserialize(from)?;
            return Ok(DesiredLrp {
                process_guid,
                domain,
                instances,
                routes,
                annotation,
                metric_tags,
                update_strategy,
                modification_tag,
                definition_id,
                previous_definition_id,
                definition,
            });
        }
        let missing = |key| move || serde::de::Error::missing_field(key);
        let (head, definition) = read_flat::<D, head::Head, _>(from, "a desired LRP")?;
        Ok(DesiredLrp {
            process_guid: head.process_guid.ok_or_else(missing("process_guid"))?,
            domain: head.domain.ok_or_else(missing("domain"))?,
            instances: head.instances,
            routes: head.routes,
            annotation: head.annotation,
            metric_tags: head.metric_tags,
            update_strategy: head.update_strategy,
            modification_tag: head.modification_tag,
            definition_id: head.definition_id,
            previous_definition_id: head.previous_definition_id,
            definition,
        })
    }
}

mod head {
    #![allow(unreachable_pub, reason = "record! declares what the world may see")]
    use super::*;

    record! {
        /// The keys of a desired LRP that are not its definition's, for reading.
        #[derive(Default)]
        pub struct Head {
            process_guid: Option<ProcessGuid> = "process_guid" always,
            domain: Option<Domain> = "domain" always,
            instances: u32 = "instances" always,
            routes: Routes = "routes" always,
            annotation: String = "annotation" always,
            metric_tags: MetricTags = "metric_tags" always,
            update_strategy: UpdateStrategy = "update_strategy" always,
            modification_tag: ModificationTag = "modification_tag" always,
            definition_id: Option<DefinitionId> = "definition_id" always,
            previous_definition_id: Option<DefinitionId> = "previous_definition_id" always,
        }
    }
}

record! {
    /// A change of a desired LRP. What is not given stays. A definition replaces the whole one that
    /// there is, instance by instance; everything else changes without new containers.
    #[derive(Default)]
    pub struct DesiredLrpUpdate {
        /// How many.
        instances: Option<u32> = "instances" omit,
        /// All the routes.
        routes: Option<Routes> = "routes" omit,
        /// The consumer's note.
        annotation: Option<String> = "annotation" omit,
        /// All the tags.
        metric_tags: Option<MetricTags> = "metric_tags" omit,
        /// Who fetches the image; goes with the password.
        image_username: Option<String> = "image_username" omit,
        /// The password of who fetches the image; goes with the name.
        image_password: Option<Secret> = "image_password" omit,
        /// What is to run from now on, with its id.
        lrp_definition: Option<Box<NamedDefinition>> = "lrp_definition" omit,
    }
}
