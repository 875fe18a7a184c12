//! The rules of desired LRPs and of their changes. The identifiers were checked when they were
//! made.

use crate::definition::rules::{
    annotation, image_login, metric_tags, routes, source_is_named, within,
};
use crate::limits::INSTANCES;
use crate::validate::{Checker, Validate};

use super::{DesiredLrp, DesiredLrpUpdate};

impl Validate for DesiredLrp {
    fn check(&self, at: &mut Checker) {
        within(at, "instances", self.instances.into(), INSTANCES.into());
        routes(at, &self.routes);
        annotation(at, &self.annotation);
        metric_tags(at, &self.metric_tags, &self.definition.metrics_guid);
        source_is_named(at, &self.metric_tags, &self.definition.metrics_guid);
        self.definition.check(at);
    }
}

impl Validate for DesiredLrpUpdate {
    fn check(&self, at: &mut Checker) {
        if let Some(instances) = self.instances {
            within(at, "instances", instances.into(), INSTANCES.into());
        }
        if let Some(given) = &self.routes {
            routes(at, given);
        }
        if let Some(given) = &self.annotation {
            annotation(at, given);
        }
        // Without a new definition the metrics guid is not at hand: the board looks at it again.
        if let Some(given) = &self.metric_tags {
            let new = self.lrp_definition.as_ref();
            metric_tags(at, given, new.map_or("", |it| it.definition.metrics_guid.as_str()));
        }
        match (&self.image_username, &self.image_password) {
            (None, None) => {}
            (Some(username), Some(password)) => image_login(at, username, password),
            (Some(_), None) => at.field("image_password", |at| {
                at.require(false, || "must be given together with image_username".into());
            }),
            (None, Some(_)) => at.field("image_username", |at| {
                at.require(false, || "must be given together with image_password".into());
            }),
        }
        if let Some(named) = &self.lrp_definition {
            at.field("lrp_definition", |at| named.check(at));
            at.field("image_username", |at| {
                at.require(self.image_username.is_none(), || {
                    "must stand in lrp_definition when there is one".into()
                });
            });
        }
    }
}
