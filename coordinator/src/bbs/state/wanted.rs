//! Which definitions are to have an instance at an index. Without an update it is the active one.
//!
//! While an update rolls, this follows from how far it has come (the deployment) and from what is
//! at the index (its records), and from nothing else: whoever holds the records knows it.

use volvox_protocol::actual_lrp::{LrpState, Presence};
use volvox_protocol::definition::UpdateStrategy;
use volvox_protocol::deployment::{LrpDeployment, RolloutPhase};
use volvox_protocol::id::DefinitionId;

use super::{InstanceRow, Process};

impl Process {
    /// Whether an instance of `definition` is to be at `index`.
    pub fn wants(&self, definition: &DefinitionId, index: u32) -> bool {
        let Some((_, deployment)) = &self.deployment else { return false };
        if index >= deployment.instances {
            return false;
        }
        let active = *definition == deployment.active_definition_id;
        match deployment.phase(index) {
            RolloutPhase::Done => active,
            RolloutPhase::InFlight => active || self.kept(deployment, index) == Some(definition),
            RolloutPhase::Ahead => self.kept(deployment, index) == Some(definition),
        }
    }

    /// The definitions of which an instance is to be at `index`: none, one or two.
    pub fn wanted(&self, index: u32) -> impl Iterator<Item = &DefinitionId> {
        let deployment = self.deployment.as_ref().map(|(_, deployment)| &**deployment);
        let deployment = deployment.filter(|deployment| index < deployment.instances);
        let (active, kept) = match deployment.map(|it| (it, it.phase(index))) {
            None => (None, None),
            Some((it, RolloutPhase::Done)) => (Some(&it.active_definition_id), None),
            Some((it, RolloutPhase::InFlight)) => {
                (Some(&it.active_definition_id), self.kept(it, index))
            }
            Some((it, RolloutPhase::Ahead)) => (None, self.kept(it, index)),
        };
        kept.into_iter().chain(active)
    }

    /// Whether what is wanted at `index` runs there: then whatever else is there may go.
    pub fn is_served(&self, index: u32) -> bool {
        self.wanted(index).any(|definition| {
            let slot = self.find(definition, index, Presence::Ordinary);
            slot.is_some_and(|slot| slot.lrp.state.is_running() && !slot.lrp.stopping)
        })
    }

    /// Whether an instance of another definition has to go before one of `definition` may come:
    /// with the strategy RECREATE no two are ever run side by side.
    pub fn must_wait(&self, definition: &DefinitionId, index: u32) -> bool {
        let Some((_, deployment)) = &self.deployment else { return false };
        let others = deployment.definitions.iter().filter(|(id, _)| *id != definition);
        deployment.update_strategy == UpdateStrategy::Recreate
            && others
                .filter_map(|(id, _)| self.find(id, index, Presence::Ordinary))
                .any(|slot| slot.lrp.instance().is_some())
    }

    /// The definition that is kept at an index beside the active one, or instead of it.
    ///
    /// What runs stays. What does not run has to start outside of the sequence: from the healthy
    /// definition, if there is one.
    fn kept<'a>(&'a self, deployment: &'a LrpDeployment, index: u32) -> Option<&'a DefinitionId> {
        let active = &deployment.active_definition_id;
        let healthy = deployment.healthy_definition_id.as_ref();
        let in_flight = deployment.phase(index) == RolloutPhase::InFlight;
        if in_flight && deployment.update_strategy == UpdateStrategy::Recreate {
            return None;
        }
        let candidates = deployment.definitions.iter().map(|(id, _)| id);
        let candidates = candidates.filter(|id| !in_flight || *id != active);
        let here = candidates.filter_map(|id| {
            let slot = self.find(id, index, Presence::Ordinary)?;
            Some((rank(slot), Some(id) != healthy, id))
        });
        // The first of equals: the one that came before the others.
        let best = here.min_by_key(|(rank, unproven, _)| (*rank, *unproven));
        match (best, healthy) {
            (Some((Rank::Runs, _, id)), _) => Some(id),
            (_, Some(healthy)) => (!in_flight || healthy != active).then_some(healthy),
            (Some((_, _, id)), None) => Some(id),
            (None, None) => (!in_flight).then_some(active),
        }
    }
}

/// How much there is to keep of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Runs,
    Starts,
    Waits,
    Goes,
}

fn rank(slot: &InstanceRow) -> Rank {
    match &slot.lrp.state {
        LrpState::Claimed(_) | LrpState::Running(..) if slot.lrp.stopping => Rank::Goes,
        LrpState::Running(..) => Rank::Runs,
        LrpState::Claimed(_) => Rank::Starts,
        LrpState::Unclaimed { .. } | LrpState::Crashed => Rank::Waits,
    }
}
