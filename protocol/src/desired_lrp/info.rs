//! Smaller views of a desired LRP, for readers that need less.

use crate::definition::{LrpDefinition, Routes};
use crate::id::{Domain, ProcessGuid};
use crate::modification_tag::Epoch;
use crate::record::record;

use super::DesiredLrp;

record! {
    /// What placing an LRP needs to know. Key, resources and tag stand flat, as in Diego.
    pub struct DesiredLrpSchedulingInfo {
        /// Which process.
        process_guid: ProcessGuid = "process_guid" required,
        /// Whose it is.
        domain: Domain = "domain" required,
        /// Whose log it is.
        log_guid: String = "log_guid" always,
        /// The consumer's note.
        annotation: String = "annotation" always,
        /// How many.
        instances: u32 = "instances" always,
        /// Memory.
        memory_mb: u32 = "memory_mb" always,
        /// Disk.
        disk_mb: u32 = "disk_mb" always,
        /// The root file system.
        rootfs: String = "rootfs" always,
        /// Processes.
        max_pids: u32 = "max_pids" always,
        /// What the routers are told.
        routes: Routes = "routes" always,
        /// The record's life.
        epoch: Epoch = "epoch" always,
        /// The record's version in that life.
        index: u32 = "index" always,
        /// The volumes it needs.
        volume_placement: Option<VolumePlacement> = "volume_placement" omit,
        /// Tags that the cell must have.
        placement_tags: Vec<String> = "placement_tags" omit,
    }
}

record! {
    /// The volumes that a cell must be able to mount.
    #[derive(Default)]
    pub struct VolumePlacement {
        /// The drivers, each once.
        driver_names: Vec<String> = "driver_names" always,
    }
}

impl From<DesiredLrp> for DesiredLrpSchedulingInfo {
    fn from(lrp: DesiredLrp) -> Self {
        let definition = lrp.definition;
        DesiredLrpSchedulingInfo {
            process_guid: lrp.process_guid,
            domain: lrp.domain,
            annotation: lrp.annotation,
            instances: lrp.instances,
            memory_mb: definition.memory_mb,
            disk_mb: definition.disk_mb,
            max_pids: definition.max_pids,
            routes: lrp.routes,
            epoch: lrp.modification_tag.epoch,
            index: lrp.modification_tag.index,
            volume_placement: Some(VolumePlacement { driver_names: definition.volume_drivers() }),
            log_guid: definition.log_guid,
            rootfs: definition.rootfs,
            placement_tags: definition.placement_tags,
        }
    }
}

/// The LRP with only those fields filled that routing needs: everything else is empty.
pub fn routing_info(lrp: DesiredLrp) -> DesiredLrp {
    DesiredLrp {
        annotation: String::new(),
        update_strategy: Default::default(),
        definition_id: None,
        previous_definition_id: None,
        definition: LrpDefinition { log_guid: lrp.definition.log_guid, ..LrpDefinition::default() },
        ..lrp
    }
}
