//! What consumers ask of deployments: create, update, activate, delete; cancel, roll back, promote,
//! pause and resume an update. All of it changes the deployment and nothing else: `rollout.rs` judges
//! what follows for the instances, and convergence does it.

use std::sync::Arc;

use volvox_protocol::definition::{LrpDefinition, MetricTags, Routes};
use volvox_protocol::deployment::{
    Definition, LrpDeployment, LrpDeploymentDefinition, LrpDeploymentUpdate, PastDefinition,
    Rollout, RolloutDirection, RolloutPause, RolloutPolicy,
};
use volvox_protocol::desired_lrp::DesiredLrpUpdate;
use volvox_protocol::event::Event;
use volvox_protocol::id::{DefinitionId, ProcessGuid};
use volvox_protocol::limits::DEFINITIONS;
use volvox_protocol::packed::Packed;
use volvox_protocol::request::Rejection;
use volvox_protocol::secret::Secret;

use super::desired::fits_metrics_guid;
use super::txn::Txn;
use crate::bbs::command::{Reply, RowId};

/// A deployment as it is on the board.
pub(super) type DeploymentRow = (RowId, Arc<LrpDeployment>);

/// A change of a deployment, by whichever door it came.
#[derive(Default)]
pub(super) struct DeploymentPatch {
    instances: Option<u32>,
    routes: Option<Routes>,
    annotation: Option<String>,
    metric_tags: Option<MetricTags>,
    image_login: Option<(String, Secret)>,
    rollout: Option<RolloutPolicy>,
    definition: Option<(DefinitionId, LrpDefinition)>,
}

impl From<DesiredLrpUpdate> for DeploymentPatch {
    fn from(update: DesiredLrpUpdate) -> Self {
        DeploymentPatch {
            instances: update.instances,
            routes: update.routes,
            annotation: update.annotation,
            metric_tags: update.metric_tags,
            image_login: update.image_username.zip(update.image_password),
            rollout: None,
            definition: update.lrp_definition.map(|it| (it.definition_id, it.definition)),
        }
    }
}

impl From<LrpDeploymentUpdate> for DeploymentPatch {
    fn from(update: LrpDeploymentUpdate) -> Self {
        DeploymentPatch {
            instances: update.instances,
            routes: update.routes,
            annotation: update.annotation,
            metric_tags: update.metric_tags,
            image_login: None,
            rollout: update.rollout,
            definition: update.definition_id.zip(update.definition.map(|it| *it)),
        }
    }
}

fn name(process: &ProcessGuid) -> String {
    format!("desired LRP {process}")
}

impl Txn<'_> {
    pub(super) fn create_deployment(
        &mut self,
        asked: LrpDeploymentDefinition,
    ) -> Result<Reply, Rejection> {
        let tag = self.new_tag();
        self.deploy(LrpDeployment::create(asked, tag))
    }

    /// Puts a new deployment and asks for the start of all its instances.
    pub(super) fn deploy(&mut self, deployment: LrpDeployment) -> Result<Reply, Rejection> {
        let process = &deployment.process_guid;
        if self.board.records.deployment(process).is_some() {
            return Err(Rejection::Exists(name(process)));
        }
        let known = self.board.records.process(process);
        let runs = known.is_some_and(|it| it.has_run(&deployment.active_definition_id));
        let healthy_definition_id = runs.then(|| deployment.active_definition_id.clone());
        let deployment = Arc::new(LrpDeployment { healthy_definition_id, ..deployment });
        self.put_deployment(None, Some(Arc::clone(&deployment)));
        self.emit(Event::DesiredLrpCreated(Arc::clone(&deployment)));
        self.adopt(&deployment);
        self.create_missing(&deployment, 0);
        Ok(Reply::Done)
    }

    pub(super) fn update_desired_lrp(
        &mut self,
        process: &ProcessGuid,
        update: DesiredLrpUpdate,
    ) -> Result<Reply, Rejection> {
        let (_, before) = self.known(process)?;
        if update.lrp_definition.is_some() && before.roll.is_some() {
            return Err(Rejection::UpdateInProgress(name(process)));
        }
        self.update_deployment(process, update)
    }

    pub(super) fn update_deployment(
        &mut self,
        process: &ProcessGuid,
        update: impl Into<DeploymentPatch>,
    ) -> Result<Reply, Rejection> {
        let edit: DeploymentPatch = update.into();
        let known = self.known(process)?;
        let instances = edit.instances;
        let after = self.edited(&known.1, edit)?;
        let after = self.change_deployment(&known, after);
        // An update that does not speak of instances stops none: what is beyond and still there is
        // for convergence, which asks whether the domain is fresh.
        if let Some(instances) = instances {
            self.stop_beyond(process, instances);
            self.create_missing(&after, known.1.instances);
        }
        self.tell_running(&known.1, &after);
        Ok(Reply::Done)
    }

    /// The deployment after an edit, or why it cannot be.
    fn edited(
        &self,
        before: &LrpDeployment,
        edit: DeploymentPatch,
    ) -> Result<LrpDeployment, Rejection> {
        let mut after = before.clone();
        if let Some(instances) = edit.instances {
            after.instances = instances;
            if let Some(roll) = &mut after.roll {
                roll.scale_to(instances);
            }
        }
        if let Some(routes) = edit.routes {
            after.routes = Packed::new(&routes);
        }
        if let Some(annotation) = edit.annotation {
            after.annotation = annotation.into();
        }
        if let Some((image_username, image_password)) = edit.image_login
            && let Some(definition) = before.active_definition()
        {
            let definition = LrpDefinition { image_username, image_password, ..definition };
            let id = after.active_definition_id.clone();
            after.definitions.insert(id, Definition::new(&definition));
        }
        if let Some(policy) = edit.rollout {
            after.rollout = (policy != RolloutPolicy::default()).then(|| Box::new(policy));
        }
        let new_definition = edit.definition.is_some();
        if let Some((id, definition)) = edit.definition {
            if before.definitions.get(&id).is_some() {
                let of = name(&before.process_guid);
                return Err(Rejection::Exists(format!("definition {id} of {of}")));
            }
            self.add_definition(&mut after, id.clone(), Definition::new(&definition))?;
            self.begin_roll(&mut after, id);
        }
        if edit.metric_tags.is_some() || new_definition {
            let metric_tags = edit.metric_tags.unwrap_or_else(|| before.metric_tags.get());
            fits_metrics_guid(&metric_tags, after.active_definition().as_ref())?;
            after.metric_tags = Packed::new(&metric_tags);
        }
        Ok(after)
    }

    /// Adds a definition to those that instances may be made from. Those that no instance is made
    /// from any more make room.
    fn add_definition(
        &self,
        after: &mut LrpDeployment,
        id: DefinitionId,
        definition: Definition,
    ) -> Result<(), Rejection> {
        self.prune(after);
        if after.definitions.len() >= DEFINITIONS {
            let given = after.definitions.len() + 1;
            return Err(Rejection::Invalid(format!(
                "definitions: has {given} entries in use, the limit is {DEFINITIONS}"
            )));
        }
        after.history.remove(&id);
        after.definitions.insert(id, definition);
        Ok(())
    }

    /// Begins to go to a definition that the deployment has, and gives up what was under way.
    fn begin_roll(&self, after: &mut LrpDeployment, to: DefinitionId) {
        // The way back from an update that superseded another leads to what was last complete.
        let active = &after.active_definition_id;
        let (complete, other) = match &after.roll {
            None => (active, active),
            Some(roll) => match roll.order {
                RolloutDirection::Rising => (&roll.previous_definition_id, active),
                RolloutDirection::Falling => (active, &roll.previous_definition_id),
            },
        };
        let previous = if *complete == to { other.clone() } else { complete.clone() };
        after.roll = Some(Box::new(Rollout::rising(self.now, previous)));
        self.set_active(after, to);
    }

    /// Goes back to the definition that was active before, the last index first.
    pub(super) fn begin_way_back(&self, after: &mut LrpDeployment, why: &str) {
        let Some(roll) = &after.roll else { return };
        let to = roll.previous_definition_id.clone();
        let from = after.active_definition_id.clone();
        let way = Rollout::falling(self.now, from, after.instances, why);
        after.roll = Some(Box::new(way));
        self.set_active(after, to);
    }

    /// A definition that runs somewhere need not prove itself again.
    fn set_active(&self, after: &mut LrpDeployment, to: DefinitionId) {
        let process = self.board.records.process(&after.process_guid);
        if process.is_some_and(|process| process.has_run(&to)) {
            after.healthy_definition_id = Some(to.clone());
        }
        after.active_definition_id = to;
    }

    /// Takes out the definitions that no instance is made from, and that no instance would be.
    /// What they were stays in the history.
    pub(super) fn prune(&self, after: &mut LrpDeployment) {
        let Some(process) = self.board.records.process(&after.process_guid) else { return };
        let idle: Vec<DefinitionId> =
            process.idle_definitions(after).map(|(id, _)| id.clone()).collect();
        for definition_id in idle {
            if let Some(definition) = after.definitions.remove(&definition_id) {
                let definition = definition.packed().clone();
                let past = PastDefinition { definition_id, definition, retired_at: self.now };
                after.history.push(past, self.board.settings.definition_history);
            }
        }
    }

    pub(super) fn activate_definition(
        &mut self,
        process: &ProcessGuid,
        definition: &DefinitionId,
    ) -> Result<Reply, Rejection> {
        let known = self.known(process)?;
        if known.1.definitions.get(definition).is_none() {
            let of = name(process);
            return Err(Rejection::NotFound(format!("definition {definition} of {of}")));
        }
        if known.1.active_definition_id != *definition {
            let mut after = (*known.1).clone();
            self.begin_roll(&mut after, definition.clone());
            self.change_deployment(&known, after);
        }
        Ok(Reply::Done)
    }

    pub(super) fn cancel_update(&mut self, process: &ProcessGuid) -> Result<Reply, Rejection> {
        let known = self.known(process)?;
        match known.1.roll.as_ref().map(|roll| roll.order) {
            None => Err(Rejection::NoUpdateInProgress(name(process))),
            // It is on its way back already.
            Some(RolloutDirection::Falling) => Ok(Reply::Done),
            Some(RolloutDirection::Rising) => {
                let mut after = (*known.1).clone();
                self.begin_way_back(&mut after, "cancelled");
                self.change_deployment(&known, after);
                Ok(Reply::Done)
            }
        }
    }

    pub(super) fn roll_back(
        &mut self,
        process: &ProcessGuid,
        definition: &DefinitionId,
    ) -> Result<Reply, Rejection> {
        let known = self.known(process)?;
        if known.1.roll.is_some() {
            return Err(Rejection::UpdateInProgress(name(process)));
        }
        if known.1.active_definition_id == *definition {
            return Ok(Reply::Done);
        }
        let mut after = (*known.1).clone();
        if after.definitions.get(definition).is_none() {
            let Some(past) = after.history.remove(definition) else {
                let of = name(process);
                return Err(Rejection::NotFound(format!("definition {definition} of {of}")));
            };
            let restored = Definition::from(past.definition);
            self.add_definition(&mut after, definition.clone(), restored)?;
        }
        self.begin_roll(&mut after, definition.clone());
        fits_metrics_guid(&after.metric_tags.get(), after.active_definition().as_ref())?;
        self.change_deployment(&known, after);
        Ok(Reply::Done)
    }

    pub(super) fn promote_update(&mut self, process: &ProcessGuid) -> Result<Reply, Rejection> {
        self.edit_roll(process, |now, roll| {
            roll.promoted = true;
            if roll.pause == Some(RolloutPause::Canary) {
                roll.pause = None;
                roll.progressed_at = now;
            }
        })
    }

    pub(super) fn pause_update(&mut self, process: &ProcessGuid) -> Result<Reply, Rejection> {
        self.edit_roll(process, |_, roll| roll.pause = roll.pause.or(Some(RolloutPause::Asked)))
    }

    pub(super) fn resume_update(&mut self, process: &ProcessGuid) -> Result<Reply, Rejection> {
        self.edit_roll(process, |now, roll| {
            if let Some(RolloutPause::Asked | RolloutPause::Stalled) = roll.pause {
                roll.pause = None;
                roll.progressed_at = now;
            }
        })
    }

    fn edit_roll(
        &mut self,
        process: &ProcessGuid,
        edit: impl FnOnce(volvox_protocol::time::Timestamp, &mut Rollout),
    ) -> Result<Reply, Rejection> {
        let known = self.known(process)?;
        let mut after = (*known.1).clone();
        let Some(roll) = &mut after.roll else {
            return Err(Rejection::NoUpdateInProgress(name(process)));
        };
        edit(self.now, roll);
        if after.roll != known.1.roll {
            self.change_deployment(&known, after);
        }
        Ok(Reply::Done)
    }

    /// Puts another version of a deployment, and tells of it.
    pub(super) fn change_deployment(
        &mut self,
        known: &DeploymentRow,
        mut after: LrpDeployment,
    ) -> Arc<LrpDeployment> {
        after.modification_tag = known.1.modification_tag.next();
        let after = Arc::new(after);
        self.put_deployment(Some(known), Some(Arc::clone(&after)));
        self.emit(Event::DesiredLrpChanged(Arc::clone(&known.1), Arc::clone(&after)));
        after
    }

    /// An instance has come to run. If it is the first of the active definition, that is healthy;
    /// an update that wants to see it run for a while says so later.
    pub(super) fn has_started(&mut self, process: &ProcessGuid, definition: &DefinitionId) {
        let Some(known) = self.board.records.deployment(process) else { return };
        let deployment = &known.1;
        let waits = deployment.roll.is_some() && !deployment.policy().min_healthy_time().is_zero();
        if deployment.active_definition_id == *definition
            && deployment.healthy_definition_id.as_ref() != Some(definition)
            && !waits
        {
            let known = known.clone();
            let healthy_definition_id = Some(known.1.active_definition_id.clone());
            let after = LrpDeployment { healthy_definition_id, ..(*known.1).clone() };
            self.change_deployment(&known, after);
        }
    }
}

impl crate::bbs::state::Process {
    /// Whether an instance of this definition runs, in whichever presence: it can, then.
    pub(super) fn has_run(&self, definition: &DefinitionId) -> bool {
        let mut slots = self.instances().iter();
        slots.any(|slot| slot.lrp.state.is_running() && slot.lrp.definition_id == *definition)
    }

    /// The definitions of a deployment that no instance is made from, and that no instance would
    /// be: not the active, the healthy or the one that an update would go back to.
    pub(super) fn idle_definitions<'a>(
        &'a self,
        deployment: &'a LrpDeployment,
    ) -> impl Iterator<Item = (&'a DefinitionId, &'a Definition)> {
        deployment.definitions.iter().filter(|(id, _)| {
            **id != deployment.active_definition_id
                && deployment.healthy_definition_id.as_ref() != Some(id)
                && deployment.previous_definition_id() != Some(id)
                && !self.has(id)
        })
    }
}
