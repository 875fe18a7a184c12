//! The rules of desired LRPs and of their changes. The identifiers were checked when they were
//! made.

use crate::definition::rules::{annotation, image_login, metric_tags, routes, within};
use crate::limits::INSTANCES;
use crate::validate::{Checker, Validate};

use super::{DesiredLrp, DesiredLrpUpdate};

impl Validate for DesiredLrp {
    fn check(&self, at: &mut Checker) {
        within(at, "instances", self.instances.into(), INSTANCES.into());
        routes(at, &self.routes);
        annotation(at, &self.annotation);
        metric_tags(at, &self.metric_tags, &self.definition.metrics_guid);
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
        // The metrics guid of the definition is not at hand: the board looks at it again.
        if let Some(given) = &self.metric_tags {
            metric_tags(at, given, "");
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
    }
}
