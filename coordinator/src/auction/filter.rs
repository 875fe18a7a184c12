//! Whether a cell may take work at all, and what consumers read when no cell can.
//!
//! In Diego's order: root file system, volume drivers, placement tags. Of all cells the one that
//! came furthest gives the error, because it is the nearest to what was asked for. The texts are
//! Diego's, since platforms match on them.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use volvox_protocol::cell::CellInfo;
use volvox_protocol::request::Requirements;

/// What a cell lacks, in the order in which it is looked for: a later one is nearer to a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mismatch {
    /// It cannot mount the root file system.
    Rootfs,
    /// It lacks a volume driver.
    VolumeDrivers,
    /// Its placement tags are others.
    PlacementTags,
}

/// Whether two cells are the same to every filter.
pub fn same_kind(a: &CellInfo, b: &CellInfo) -> bool {
    a.rootfs_providers == b.rootfs_providers
        && a.placement_tags == b.placement_tags
        && a.optional_placement_tags == b.optional_placement_tags
        && a.volume_drivers == b.volume_drivers
}

/// What makes a cell's kind: equal for two cells if they are the same to every filter.
pub fn kind_key(cell: &CellInfo) -> impl Ord + '_ {
    let providers = cell.rootfs_providers.iter();
    let providers: Vec<_> = providers.map(|it| (&it.name, &it.properties)).collect();
    (providers, &cell.placement_tags, &cell.optional_placement_tags, &cell.volume_drivers)
}

/// Whether two pieces of work are the same to every filter.
pub fn same_class(a: &Requirements, b: &Requirements) -> bool {
    a.rootfs == b.rootfs
        && a.placement_tags == b.placement_tags
        && a.volume_drivers == b.volume_drivers
}

/// The first thing that this cell lacks, if it lacks any.
pub fn judge(cell: &CellInfo, work: &Requirements) -> Result<(), Mismatch> {
    if !has_rootfs(cell, &work.rootfs) {
        return Err(Mismatch::Rootfs);
    }
    if !work.volume_drivers.iter().all(|driver| cell.volume_drivers.contains(driver)) {
        return Err(Mismatch::VolumeDrivers);
    }
    let (required, optional) = (&cell.placement_tags, &cell.optional_placement_tags);
    let known = |tag: &String| required.contains(tag) || optional.contains(tag);
    let asked_for = required.iter().all(|tag| work.placement_tags.contains(tag));
    if !asked_for || !work.placement_tags.iter().all(known) {
        return Err(Mismatch::PlacementTags);
    }
    Ok(())
}

/// The scheme must be a provider's, and what follows it one of the provider's, if that names any.
fn has_rootfs(cell: &CellInfo, rootfs: &str) -> bool {
    let (scheme, rest) = rootfs.split_once(':').unwrap_or(("", rootfs));
    let name = rest.split(['?', '#']).next().unwrap_or(rest);
    cell.rootfs_providers.iter().any(|provider| {
        provider.name == scheme
            && (provider.properties.is_empty() || provider.properties.iter().any(|it| it == name))
    })
}

/// Resources that are too small on every cell that was tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Short {
    /// No container is left.
    pub containers: bool,
    /// Disk is short.
    pub disk: bool,
    /// Memory is short.
    pub memory: bool,
}

/// Why work could not be placed. Its text is what the consumer reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PlacementError {
    /// Every cell lacks something; the nearest lacks this.
    Incompatible(Mismatch, Arc<[String]>),
    /// Cells may take it, and none has the room.
    Insufficient(Short),
    /// There is no cell that takes any work.
    NoCells,
    /// Enough containers are being started.
    InFlight,
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::Incompatible(Mismatch::Rootfs, _) => {
                f.write_str("found no compatible cell for required rootfs")
            }
            PlacementError::Incompatible(Mismatch::VolumeDrivers, _) => {
                f.write_str("found no compatible cell with required volume drivers")
            }
            PlacementError::Incompatible(Mismatch::PlacementTags, tags) => write_tags(f, tags),
            PlacementError::Insufficient(short) => {
                let all = [
                    (short.containers, "containers"),
                    (short.disk, "disk"),
                    (short.memory, "memory"),
                ];
                let named: Vec<&str> =
                    all.iter().filter(|(short, _)| *short).map(|(_, name)| *name).collect();
                f.write_str("insufficient resources")?;
                if named.is_empty() { Ok(()) } else { write!(f, ": {}", named.join(", ")) }
            }
            PlacementError::NoCells => f.write_str("unable to communicate to compatible cells"),
            PlacementError::InFlight => {
                f.write_str("waiting to start instance: reached in-flight start limit")
            }
        }
    }
}

fn write_tags(f: &mut fmt::Formatter<'_>, tags: &[String]) -> fmt::Result {
    f.write_str("found no compatible cell with ")?;
    let quoted: Vec<String> = tags.iter().map(|tag| format!("\"{tag}\"")).collect();
    match &quoted[..] {
        [] => f.write_str("no placement tags"),
        [tag] => write!(f, "placement tag {tag}"),
        [tags @ .., last] => write!(f, "placement tags {} and {last}", tags.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use volvox_protocol::cell::{CellCapacity, RootfsProvider};
    use volvox_protocol::id::CellId;

    use super::*;

    fn words(list: &str) -> Vec<String> {
        list.split_whitespace().map(str::to_owned).collect()
    }

    fn cell(tags: &str, optional: &str) -> CellInfo {
        let provider = |name: &str, properties| RootfsProvider {
            name: name.to_owned(),
            properties: words(properties),
        };
        CellInfo {
            cell_id: CellId::new("c").unwrap(),
            zone: "z".to_owned(),
            capacity: CellCapacity::default(),
            rootfs_providers: vec![
                provider("preloaded", "linux windows"),
                provider("preloaded+layer", "linux"),
                provider("docker", ""),
            ],
            placement_tags: words(tags),
            optional_placement_tags: words(optional),
            volume_drivers: words("nfs smb"),
            rep_address: String::new(),
            annotations: Default::default(),
            version: 1,
        }
    }

    fn work(rootfs: &str, drivers: &str, tags: &str) -> Requirements {
        Requirements {
            rootfs: rootfs.to_owned(),
            volume_drivers: words(drivers),
            placement_tags: words(tags),
            ..Requirements::default()
        }
    }

    #[test]
    fn a_rootfs_needs_its_scheme_and_a_fixed_set_its_name() {
        let cell = cell("", "");
        for (rootfs, fits) in [
            ("preloaded:linux", true),
            ("preloaded:other", false),
            ("preloaded+layer:linux?layer=http://x", true),
            ("preloaded+layer:windows", false),
            ("docker:///any#thing", true),
            ("docker", false),
            ("", false),
            ("host:", false),
        ] {
            assert_eq!(judge(&cell, &work(rootfs, "", "")).is_ok(), fits, "{rootfs}");
        }
    }

    #[test]
    fn every_driver_must_be_there() {
        let judge = |drivers| judge(&cell("", ""), &work("preloaded:linux", drivers, ""));
        assert_eq!(judge("smb nfs"), Ok(()));
        assert_eq!(judge("nfs iscsi"), Err(Mismatch::VolumeDrivers));
    }

    /// The law: required ⊆ asked ⊆ required ∪ optional.
    #[test]
    fn required_tags_must_be_asked_for_and_asked_tags_must_be_known() {
        for (required, optional, asked, fits) in [
            ("", "", "", true),
            ("", "", "a", false),
            ("a", "", "", false),
            ("a", "", "a", true),
            ("a", "b", "a", true),
            ("a", "b", "a b", true),
            ("a", "b", "b", false),
            ("", "b", "", true),
            ("", "b", "b", true),
            ("a", "b", "a b c", false),
        ] {
            let judged = judge(&cell(required, optional), &work("docker:x", "", asked));
            assert_eq!(judged.is_ok(), fits, "{required:?} {optional:?} {asked:?}");
        }
    }

    #[test]
    fn the_texts_are_diegos() {
        let tags = |tags| PlacementError::Incompatible(Mismatch::PlacementTags, words(tags).into());
        let short = |containers, disk, memory| {
            PlacementError::Insufficient(Short { containers, disk, memory })
        };
        for (error, text) in [
            (
                PlacementError::Incompatible(Mismatch::Rootfs, words("a").into()),
                "found no compatible cell for required rootfs",
            ),
            (
                PlacementError::Incompatible(Mismatch::VolumeDrivers, [].into()),
                "found no compatible cell with required volume drivers",
            ),
            (tags(""), "found no compatible cell with no placement tags"),
            (tags("x"), "found no compatible cell with placement tag \"x\""),
            (tags("a b c"), "found no compatible cell with placement tags \"a\", \"b\" and \"c\""),
            (short(true, true, true), "insufficient resources: containers, disk, memory"),
            (short(false, false, true), "insufficient resources: memory"),
            (short(false, false, false), "insufficient resources"),
            (PlacementError::NoCells, "unable to communicate to compatible cells"),
            (PlacementError::InFlight, "waiting to start instance: reached in-flight start limit"),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }
}
