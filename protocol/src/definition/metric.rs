//! Tags on the metrics and log lines of an instance.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::record::one_of;

/// Tags by name.
pub type MetricTags = BTreeMap<String, MetricTagValue>;

one_of! {
    /// The value of a tag.
    pub enum MetricTagValue ("a metric tag") {
        /// This text.
        Static(String) = 0 "static",
        /// What the instance has.
        Dynamic(DynamicValue) = 1 "dynamic",
    }
}

impl<'de> Deserialize<'de> for MetricTagValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        MetricTagValue::read_one_of(from)
    }
}

/// A value that each instance fills in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DynamicValue {
    /// Its index.
    #[serde(rename = "INDEX")]
    Index,
    /// Its instance guid.
    #[serde(rename = "INSTANCE_GUID")]
    InstanceGuid,
}
