//! What follows for one instance from what is desired of its process: its names and its tags. A cell
//! tells them, and the board holds them against what is desired now.

use serde::Deserialize;

use crate::actual_lrp::{InternalRoute, LrpKey, Tags};
use crate::definition::{DynamicValue, MetricTagValue, MetricTags, Routes};
use crate::id::InstanceGuid;
use crate::limits::{ENTRIES, TEXT_BYTES};

/// The router key whose routes the cells themselves serve.
pub const INTERNAL_ROUTER: &str = "internal-router";

/// One entry of the internal routes, as consumers write it.
#[derive(Debug, Deserialize)]
struct Internal {
    hostname: String,
}

/// The names of an instance. Those that cannot be read are none: other routers may use the same key for
/// something else. More or longer ones than the board takes are left out: it would never hear that the
/// instance runs.
pub fn internal_routes(routes: &Routes) -> Box<[InternalRoute]> {
    let Some(value) = routes.get(INTERNAL_ROUTER) else { return Box::default() };
    let read: Result<Vec<Internal>, _> = serde_json::from_str(value.as_str());
    read.unwrap_or_default()
        .into_iter()
        .filter(|it| it.hostname.len() <= TEXT_BYTES)
        .take(ENTRIES)
        .map(|it| InternalRoute { hostname: it.hostname.into() })
        .collect()
}

/// The tags of one instance.
pub fn metric_tags(tags: &MetricTags, key: &LrpKey, instance: &InstanceGuid) -> Tags {
    tags.iter()
        .map(|(name, value)| {
            let value = match value {
                MetricTagValue::Static(text) => text.clone(),
                MetricTagValue::Dynamic(DynamicValue::Index) => key.index.to_string(),
                MetricTagValue::Dynamic(DynamicValue::InstanceGuid) => instance.to_string(),
            };
            (name.clone(), value)
        })
        .collect()
}
