//! The rules of what consumers send about deployments. Identifiers were checked when they were made.

use crate::definition::rules::{annotation, metric_tags, routes, source_is_named, within};
use crate::limits::{FILTER_GUIDS, IN_FLIGHT, INSTANCES, SPAN_MS};
use crate::validate::{Checker, Validate};

use super::{
    CreateLrpDeploymentRequest, LrpDeploymentDefinition, LrpDeploymentUpdate,
    LrpDeploymentsRequest, NamedDefinition, RolloutPolicy, UpdateLrpDeploymentRequest,
};

impl Validate for RolloutPolicy {
    fn check(&self, at: &mut Checker) {
        within(at, "max_in_flight", self.max_in_flight.into(), IN_FLIGHT.into());
        within(at, "canary_instances", self.canary_instances.into(), INSTANCES.into());
        within(at, "min_healthy_time_ms", self.min_healthy_time_ms, SPAN_MS);
        within(at, "stuck_after_ms", self.stuck_after_ms, SPAN_MS);
        within(at, "progress_deadline_ms", self.progress_deadline_ms, SPAN_MS);
        at.field("progress_deadline_ms", |at| {
            let (deadline, healthy) = (self.progress_deadline_ms, self.min_healthy_time_ms);
            at.require(deadline == 0 || deadline > healthy, || {
                format!("is {deadline}, and an instance must run for {healthy} to be progress")
            });
        });
    }
}

impl Validate for LrpDeploymentDefinition {
    fn check(&self, at: &mut Checker) {
        within(at, "instances", self.instances.into(), INSTANCES.into());
        routes(at, &self.routes);
        annotation(at, &self.annotation);
        metric_tags(at, &self.metric_tags, &self.definition.metrics_guid);
        source_is_named(at, &self.metric_tags, &self.definition.metrics_guid);
        rollout(at, self.rollout.as_ref());
        at.field("definition", |at| self.definition.check(at));
    }
}

impl Validate for LrpDeploymentUpdate {
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
            let guid = self.definition.as_ref().map_or("", |it| it.metrics_guid.as_str());
            metric_tags(at, given, guid);
        }
        rollout(at, self.rollout.as_ref());
        match (&self.definition_id, &self.definition) {
            (None, None) => {}
            (Some(_), Some(definition)) => at.field("definition", |at| definition.check(at)),
            (Some(_), None) => at.field("definition", |at| {
                at.require(false, || "must be given together with definition_id".into());
            }),
            (None, Some(_)) => at.field("definition_id", |at| {
                at.require(false, || "must be given together with definition".into());
            }),
        }
    }
}

impl Validate for NamedDefinition {
    fn check(&self, at: &mut Checker) {
        self.definition.check(at);
    }
}

impl Validate for CreateLrpDeploymentRequest {
    fn check(&self, at: &mut Checker) {
        at.field("deployment", |at| self.deployment.check(at));
    }
}

impl Validate for UpdateLrpDeploymentRequest {
    fn check(&self, at: &mut Checker) {
        at.field("update", |at| self.update.check(at));
    }
}

impl Validate for LrpDeploymentsRequest {
    fn check(&self, at: &mut Checker) {
        at.at_most("process_guids", self.process_guids.len(), FILTER_GUIDS, "entries");
    }
}

fn rollout(at: &mut Checker, given: Option<&RolloutPolicy>) {
    if let Some(policy) = given {
        at.field("rollout", |at| policy.check(at));
    }
}
