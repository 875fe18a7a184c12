//! What a cell says of itself to everybody: rarely changing facts and often changing load.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::definition::rules::{list, needed, text, text_map, texts, within};
use crate::id::CellId;
use crate::limits::MEGABYTES;
use crate::record::record;
use crate::validate::{Checker, Validate};

record! {
    /// Room for containers: all of a cell's, or what is free of it.
    #[derive(Default, Copy)]
    pub struct CellCapacity {
        /// Memory.
        memory_mb: u32 = "memory_mb" always,
        /// Disk.
        disk_mb: u32 = "disk_mb" always,
        /// Containers.
        containers: u32 = "containers" always,
    }
}

record! {
    /// A kind of root file system that a cell can mount.
    #[derive(Default)]
    pub struct RootfsProvider {
        /// The scheme, such as `preloaded` or `docker`.
        name: String = "name" always,
        /// The root file systems of that scheme; empty: any.
        properties: Vec<String> = "properties" omit,
    }
}

/// What a cell is. Changes with its configuration, so seldom that everybody keeps a copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellInfo {
    /// Which cell.
    pub cell_id: CellId,
    /// Where instances of one process should not all be.
    pub zone: String,
    /// All of its room.
    pub capacity: CellCapacity,
    /// The root file systems it can mount.
    pub rootfs_providers: Vec<RootfsProvider>,
    /// Only work that asks for all of these is placed here.
    pub placement_tags: Vec<String>,
    /// Work may ask for these, and need not.
    pub optional_placement_tags: Vec<String>,
    /// The volume drivers it has.
    pub volume_drivers: Vec<String>,
    /// Where requests for this cell go.
    pub rep_address: String,
    /// The operator's notes.
    pub annotations: BTreeMap<String, String>,
    /// Counts up with every change; the highest is the newest.
    pub version: u64,
}

/// How a cell is doing. Said after every change, so it is small.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellLoad {
    /// Which cell.
    pub cell_id: CellId,
    /// Counts up with every change; the highest is the newest.
    pub version: u64,
    /// The room that is left.
    pub free: CellCapacity,
    /// Containers that are being started.
    pub starting_containers: u32,
    /// Whether it hands its work over and takes none.
    pub evacuating: bool,
    /// Whether its self-test passes.
    pub healthy: bool,
    /// The number of the last batch of work that `free` reflects.
    pub last_batch: u64,
    /// A digest of its instances and their states.
    pub digest: u128,
}

/// Whether the mesh hears of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum CellPresence {
    /// It is there.
    Present,
    /// It is not, or nobody can reach it.
    Missing,
}

record! {
    /// A cell as the API lists it.
    pub struct CellPresenceJson {
        /// Which cell.
        cell_id: CellId = "cell_id" required,
        /// Where requests for it go.
        rep_address: String = "rep_address" always,
        /// Its zone.
        zone: String = "zone" always,
        /// All of its room.
        capacity: CellCapacity = "capacity" omit,
        /// The root file systems it can mount.
        rootfs_providers: Vec<RootfsProvider> = "rootfs_provider_list" omit,
        /// Only work that asks for all of these is placed there.
        placement_tags: Vec<String> = "placement_tags" omit,
        /// Work may ask for these, and need not.
        optional_placement_tags: Vec<String> = "optional_placement_tags" omit,
        /// The address as a URL, when it is one.
        rep_url: String = "rep_url" always,
        /// The operator's notes.
        annotations: BTreeMap<String, String> = "annotations" always,
    }
}

impl From<&CellInfo> for CellPresenceJson {
    fn from(cell: &CellInfo) -> Self {
        let is_url = ["http://", "https://"].iter().any(|head| cell.rep_address.starts_with(head));
        CellPresenceJson {
            cell_id: cell.cell_id.clone(),
            rep_address: cell.rep_address.clone(),
            zone: cell.zone.clone(),
            capacity: cell.capacity,
            rootfs_providers: cell.rootfs_providers.clone(),
            placement_tags: cell.placement_tags.clone(),
            optional_placement_tags: cell.optional_placement_tags.clone(),
            rep_url: if is_url { cell.rep_address.clone() } else { String::new() },
            annotations: cell.annotations.clone(),
        }
    }
}

impl Validate for CellInfo {
    fn check(&self, at: &mut Checker) {
        text(at, "zone", &self.zone);
        at.field("capacity", |at| self.capacity.check(at));
        list(at, "rootfs_providers", &self.rootfs_providers);
        texts(at, "placement_tags", &self.placement_tags);
        texts(at, "optional_placement_tags", &self.optional_placement_tags);
        texts(at, "volume_drivers", &self.volume_drivers);
        needed(at, "rep_address", &self.rep_address);
        text_map(at, "annotations", &self.annotations);
    }
}

impl Validate for CellCapacity {
    fn check(&self, at: &mut Checker) {
        for (name, given) in [("memory_mb", self.memory_mb), ("containers", self.containers)] {
            at.field(name, |at| at.require(given > 0, || "must be more than 0".into()));
        }
        within(at, "memory_mb", self.memory_mb.into(), MEGABYTES.into());
        within(at, "disk_mb", self.disk_mb.into(), MEGABYTES.into());
    }
}

impl Validate for RootfsProvider {
    fn check(&self, at: &mut Checker) {
        needed(at, "name", &self.name);
        texts(at, "properties", &self.properties);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::definition::tests::{check, round_trip};

    const INFO: &str = include_str!("../tests/samples/cell_info.json");

    #[test]
    fn what_a_cell_says_survives_both_encodings() {
        round_trip::<CellInfo>(INFO);
        let load: CellLoad = round_trip(include_str!("../tests/samples/cell_load.json"));
        let most = CellLoad { digest: u128::MAX, version: u64::MAX, ..load };
        assert!(crate::wire::encode_frame(&most).unwrap().len() < 64, "a load is small");
    }

    #[test]
    fn cells_keep_their_rules() {
        check::<CellInfo>(
            INFO,
            &[
                ("{}", ""),
                (r#"{"rep_address":""}"#, "rep_address: must not be empty"),
                (
                    r#"{"capacity":{"memory_mb":0,"disk_mb":0,"containers":0}}"#,
                    "capacity.memory_mb: must be more than 0, \
                     capacity.containers: must be more than 0",
                ),
                (
                    r#"{"capacity":{"memory_mb":4294967295,"disk_mb":4294967295,"containers":1}}"#,
                    "capacity.memory_mb: is 4294967295, the limit is 1073741824, \
                     capacity.disk_mb: is 4294967295, the limit is 1073741824",
                ),
                (
                    r#"{"rootfs_providers":[{"properties":[]}]}"#,
                    "rootfs_providers[0].name: must not be empty",
                ),
                (
                    r#"{"cell_id":"../x"}"#,
                    "cell_id: cell_id \"../x\" may only contain letters, digits, '_', '-' and '.' \
                     (not first)",
                ),
            ],
        );
        let long = "x".repeat(4097);
        for (patch, expected) in [
            (json!({"zone": long}), "zone: has 4097 bytes, the limit is 4096"),
            (
                json!({"annotations": {"a": long}}),
                "annotations.a: has 4097 bytes, the limit is 4096",
            ),
            (
                json!({"volume_drivers": vec!["a"; 257]}),
                "volume_drivers: has 257 entries, the limit is 256",
            ),
        ] {
            check::<CellInfo>(INFO, &[(&patch.to_string(), expected)]);
        }
    }

    #[test]
    fn the_api_lists_cells_in_diegos_words() {
        let mut cell: CellInfo = serde_json::from_str(INFO).unwrap();
        let mut expected = json!({
            "cell_id": "cell-1", "rep_address": "10.0.0.1:1801", "zone": "z1",
            "capacity": {"memory_mb": 4096, "disk_mb": 8192, "containers": 250},
            "rootfs_provider_list": [
                {"name": "preloaded", "properties": ["cflinuxfs4"]}, {"name": "docker"}
            ],
            "placement_tags": ["gpu"], "optional_placement_tags": ["ssd"],
            "rep_url": "", "annotations": {"rack": "7"},
        });
        assert_eq!(round_trip::<CellPresenceJson>(&expected.to_string()), (&cell).into());
        cell.rep_address = "https://cell-1:1801".to_owned();
        cell.annotations.clear();
        expected["rep_address"] = json!("https://cell-1:1801");
        expected["rep_url"] = json!("https://cell-1:1801");
        expected["annotations"] = json!({});
        assert_eq!(serde_json::to_value(CellPresenceJson::from(&cell)).unwrap(), expected);
    }
}
