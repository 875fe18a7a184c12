//! The stored form of what consumers desire: a process with the definitions it may be made from.
//!
//! A plain desire is a deployment with one definition, whose id is the process guid. What a
//! consumer sees as a DesiredLRP is the projection of the deployment onto its active definition.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::definition::{LrpDefinition, MetricTags, Routes, UpdateStrategy};
use crate::desired_lrp::DesiredLrp;
use crate::id::{DefinitionId, Domain, ProcessGuid};
use crate::packed::Packed;
use crate::request::Requirements;
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
    pub routes: Packed<Routes>,
    /// The consumer's own note.
    pub annotation: Box<str>,
    /// Tags of its metrics.
    pub metric_tags: Packed<MetricTags>,
    /// How evacuation replaces an instance.
    pub update_strategy: UpdateStrategy,
    /// What instances are made from, by id.
    pub definitions: Definitions,
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
            routes: Packed::new(&desired.routes),
            annotation: desired.annotation.into(),
            metric_tags: Packed::new(&desired.metric_tags),
            update_strategy: desired.update_strategy,
            definitions: Definitions::of(id.clone(), &desired.definition),
            active_definition_id: id,
            healthy_definition_id: None,
            modification_tag,
        }
    }

    /// The definition that is to run. There always is one in a deployment that the board holds;
    /// one that was decoded from elsewhere may lie.
    pub fn active_definition(&self) -> Option<LrpDefinition> {
        self.definitions.get(&self.active_definition_id).map(Definition::unpack)
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
            previous_definition_id: None,
            definition: self.active_definition().unwrap_or_default(),
        }
    }

    /// Whether an instance of `definition` is wanted at `index`.
    pub fn wants(&self, definition: &DefinitionId, index: u32) -> bool {
        index < self.instances && *definition == self.active_definition_id
    }
}

/// One definition: what an auction asks of it at hand, the rest packed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    requirements: Arc<Requirements>,
    packed: Packed<LrpDefinition>,
}

impl Definition {
    /// Packs a definition.
    pub fn new(definition: &LrpDefinition) -> Self {
        let packed = Packed::new(definition);
        Definition { requirements: Arc::new(Requirements::of(definition)), packed }
    }

    /// The whole definition.
    pub fn unpack(&self) -> LrpDefinition {
        self.packed.get()
    }

    /// The whole definition as it is kept.
    pub fn packed(&self) -> &Packed<LrpDefinition> {
        &self.packed
    }

    /// What an instance of it needs of a cell.
    pub fn requirements(&self) -> &Arc<Requirements> {
        &self.requirements
    }
}

impl Serialize for Definition {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.packed.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let packed = Packed::<LrpDefinition>::deserialize(from)?;
        Ok(Definition { requirements: Arc::new(Requirements::of(&packed.get())), packed })
    }
}

/// The definitions of one deployment by id: one, or a few while an update rolls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definitions(Box<[(DefinitionId, Definition)]>);

impl Definitions {
    /// A single definition.
    pub fn of(id: DefinitionId, definition: &LrpDefinition) -> Self {
        Definitions(Box::new([(id, Definition::new(definition))]))
    }

    /// The definition with this id.
    pub fn get(&self, id: &DefinitionId) -> Option<&Definition> {
        self.iter().find(|(known, _)| *known == id).map(|(_, definition)| definition)
    }

    /// All of them, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = (&DefinitionId, &Definition)> {
        self.0.iter().map(|(id, definition)| (id, definition))
    }

    /// Adds a definition, or replaces the one with the same id.
    pub fn insert(&mut self, id: DefinitionId, definition: &LrpDefinition) {
        let mut all = std::mem::take(&mut self.0).into_vec();
        let definition = Definition::new(definition);
        match all.iter_mut().find(|(known, _)| *known == id) {
            Some(known) => known.1 = definition,
            None => all.push((id, definition)),
        }
        self.0 = all.into_boxed_slice();
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tag::Epoch;

    fn desired() -> DesiredLrp {
        let sample = serde_json::json!({
            "process_guid": "p", "domain": "d", "instances": 3, "rootfs": "host:",
            "annotation": "note", "memory_mb": 64, "disk_mb": 32, "max_pids": 16,
            "placement_tags": ["gpu"], "routes": {"r": [{"port": 8080}]},
            "metric_tags": {"source_id": {"static": "s"}},
            "action": {"run": {"path": "/bin/true", "user": "nobody"}},
            "volume_mounts": [{"driver": "nfs", "container_dir": "/data", "mode": "r"}],
        });
        serde_json::from_value(sample).unwrap()
    }

    #[test]
    fn the_projection_of_a_promotion_is_what_was_desired() {
        let tag = ModificationTag::new(Epoch::from_random(7));
        let projected = LrpDeployment::promote(desired(), tag).project();
        let definition_id = Some(DefinitionId::new("p").unwrap());
        let expected = DesiredLrp { modification_tag: tag, definition_id, ..desired() };
        assert_eq!(projected, expected);
    }

    #[test]
    fn a_deployment_reads_back_with_what_an_auction_needs() {
        let deployment = LrpDeployment::promote(desired(), ModificationTag::default());
        let bytes = postcard::to_stdvec(&deployment).unwrap();
        let read: LrpDeployment = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(read, deployment);
        let definition = read.definitions.get(&read.active_definition_id).unwrap();
        let needs = definition.requirements();
        assert_eq!((needs.memory_mb, needs.disk_mb, needs.max_pids), (64, 32, 16));
        assert_eq!(
            (&needs.placement_tags[..], &needs.volume_drivers[..]),
            (&["gpu".to_owned()][..], &["nfs".to_owned()][..])
        );
        let json = serde_json::to_string(&deployment).unwrap();
        assert_eq!(serde_json::from_str::<LrpDeployment>(&json).unwrap(), deployment);
    }

    #[test]
    fn a_definition_is_wanted_at_its_indices_only() {
        let mut deployment = LrpDeployment::promote(desired(), ModificationTag::default());
        let (active, other) =
            (deployment.active_definition_id.clone(), DefinitionId::new("v2").unwrap());
        deployment.definitions.insert(other.clone(), &desired().definition);
        assert_eq!(deployment.definitions.len(), 2);
        assert!(deployment.wants(&active, 0) && deployment.wants(&active, 2));
        assert!(!deployment.wants(&active, 3) && !deployment.wants(&other, 0));
    }
}
