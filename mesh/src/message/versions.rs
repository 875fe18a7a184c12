//! The versions that a member has of one subject. On the way a list of topic and version; here one
//! place for each topic, since a comparison has thousands of them and none should cost an allocation.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::record::{Topic, Version, varint};

/// At most one version for each topic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Versions([Option<Version>; Topic::ALL.len()]);

impl Versions {
    /// The version of this topic.
    pub const fn of(&self, topic: Topic) -> Option<Version> {
        self.0[topic as usize]
    }

    /// Those there are, in the order of their topics.
    pub fn iter(&self) -> impl Iterator<Item = (Topic, Version)> + '_ {
        Topic::ALL.into_iter().filter_map(|topic| Some((topic, self.of(topic)?)))
    }

    /// Bytes on the way.
    pub(super) fn size(&self) -> usize {
        let each = self.iter().map(|(_, v)| 1 + varint(v.generation) + varint(v.count.into()));
        1 + each.sum::<usize>()
    }
}

impl FromIterator<(Topic, Version)> for Versions {
    fn from_iter<I: IntoIterator<Item = (Topic, Version)>>(all: I) -> Self {
        let mut versions = Versions::default();
        all.into_iter().for_each(|(topic, version)| versions.0[topic as usize] = Some(version));
        versions
    }
}

impl Serialize for Versions {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Its length comes first, so it must be known.
        to.collect_seq(self.iter().collect::<Vec<_>>())
    }
}

impl<'de> Deserialize<'de> for Versions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Versions;

            fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
                to.write_str("topics and versions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Versions, A::Error> {
                let mut versions = Versions::default();
                while let Some((topic, version)) = list.next_element::<(Topic, Version)>()? {
                    versions.0[topic as usize] = Some(version);
                }
                Ok(versions)
            }
        }
        from.deserialize_seq(Each)
    }
}
