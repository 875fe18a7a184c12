//! Updates of deployments. This file has the stage; `seed_003.rs` and `seed_004.rs` have a test for
//! every sentence of these seeds, `beyond.rs` what goes further, `middle.rs` what may happen in the
//! middle of a roll.

mod beyond;
mod middle;
mod readers;
mod seed_003;
mod seed_004;

use super::*;
use volvox_protocol::deployment::{
    LrpDeploymentDefinition, LrpDeploymentUpdate, NamedDefinition, RolloutDirection, RolloutPause,
    RolloutPolicy,
};
use volvox_protocol::id::DefinitionId;

fn id(text: &str) -> DefinitionId {
    DefinitionId::new(text).unwrap()
}

/// Each definition can be told by its memory: that of `id2` is 2.
fn definition(name: &str) -> LrpDefinition {
    let memory_mb = name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(0);
    LrpDefinition { memory_mb, ..desired("p", "d", 1).definition }
}

fn create_with(instances: u32, rollout: RolloutPolicy) -> Command {
    let asked = LrpDeploymentDefinition {
        process_guid: process(),
        domain: domain("d"),
        instances,
        routes: Default::default(),
        annotation: String::new(),
        metric_tags: Default::default(),
        update_strategy: UpdateStrategy::Rolling,
        rollout: Some(rollout),
        definition_id: id("id1"),
        definition: definition("id1"),
    };
    Command::CreateDeployment(Box::new(Valid::new(asked).unwrap()))
}

fn create(instances: u32) -> Command {
    create_with(instances, RolloutPolicy::default())
}

fn edit(update: LrpDeploymentUpdate) -> Command {
    Command::UpdateDeployment(process(), Box::new(Valid::new(update).unwrap()))
}

/// An update of the deployment to this definition, by the door of seed 003.
fn to(name: &str) -> Command {
    edit(LrpDeploymentUpdate {
        definition_id: Some(id(name)),
        definition: Some(Box::new(definition(name))),
        ..Default::default()
    })
}

/// An update of the desired LRP to this definition, by the door of seed 004.
fn desire_definition(name: &str) -> Command {
    let named = NamedDefinition { definition_id: id(name), definition: definition(name) };
    update(DesiredLrpUpdate { lrp_definition: Some(Box::new(named)), ..Default::default() })
}

fn activate(name: &str) -> Command {
    Command::ActivateDefinition(process(), id(name))
}

fn cancel() -> Command {
    Command::CancelUpdate(process())
}

fn roll_back(name: &str) -> Command {
    Command::Rollback(process(), id(name))
}

fn key_of(name: &str, index: u32) -> LrpKey {
    LrpKey { definition_id: Some(id(name)), ..key(index) }
}

/// A stage on which cells speak of definitions, and whose board converges after every step as the
/// driver's does.
#[derive(Clone)]
struct Rolling {
    stage: Stage,
    containers: u32,
}

impl Rolling {
    /// So many instances of `id1`, all unclaimed.
    fn created(create: Command) -> Self {
        let mut stage = Stage::new();
        for cell in ["cell-1", "cell-2", "cell-3"] {
            stage.does(present(cell));
        }
        stage.does(Command::UpsertDomain(domain("d"), Duration::ZERO));
        stage.does(create);
        Rolling { stage, containers: 0 }
    }

    /// So many instances of `id1`, all running.
    fn deployed(instances: u32) -> Self {
        Rolling::deployed_with(instances, RolloutPolicy::default())
    }

    fn deployed_with(instances: u32, rollout: RolloutPolicy) -> Self {
        let mut rolling = Rolling::created(create_with(instances, rollout));
        for index in 0..instances {
            rolling.starts("id1", index);
        }
        rolling
    }

    /// Carries out a command and lets the board converge. Gives back what both asked for.
    fn does(&mut self, command: Command) -> Vec<String> {
        let mut told = effects_of(&self.stage.does(command));
        told.extend(effects_of(&self.stage.converge()));
        told
    }

    fn refuses(&mut self, command: Command) -> String {
        let before = self.stage.deployment();
        let rejection = self.stage.refuses(command);
        assert_eq!(self.stage.deployment(), before, "a refusal changes nothing");
        format!("{}: {rejection}", rejection.kind())
    }

    fn waits(&mut self, seconds: u64) -> Vec<String> {
        self.stage.wait(seconds);
        effects_of(&self.stage.converge())
    }

    /// The container that holds a record, or a new one on the cell of its index.
    fn holder(&mut self, name: &str, index: u32) -> InstanceKey {
        let process = self.stage.board.records.process(&process()).expect("p is known");
        let slot = process.find(&id(name), index, Presence::Ordinary);
        if let Some(known) = slot.and_then(|slot| slot.lrp.instance().cloned()) {
            return known;
        }
        self.containers += 1;
        instance(&format!("i{}", self.containers), &format!("cell-{}", index % 3 + 1))
    }

    fn claims(&mut self, name: &str, index: u32) -> Vec<String> {
        let holder = self.holder(name, index);
        self.does(cell_says(CellRequest::ClaimLrp(key_of(name, index), holder)))
    }

    fn starts(&mut self, name: &str, index: u32) -> Vec<String> {
        let holder = self.holder(name, index);
        self.does(cell_says(CellRequest::StartLrp(key_of(name, index), holder, running())))
    }

    fn crashes(&mut self, name: &str, index: u32) -> Vec<String> {
        let holder = self.holder(name, index);
        self.does(cell_says(CellRequest::CrashLrp(key_of(name, index), holder, "exit 1".into())))
    }

    /// The cell has stopped it, as it was told.
    fn stops(&mut self, name: &str, index: u32) -> Vec<String> {
        let holder = self.holder(name, index);
        self.does(cell_says(CellRequest::RemoveLrp(key_of(name, index), holder)))
    }

    fn evacuates(&mut self, name: &str, index: u32) -> Vec<String> {
        let holder = self.holder(name, index);
        self.does(cell_says(CellRequest::EvacuateRunning(key_of(name, index), holder, running())))
    }

    /// The cells stop everything that they were told to stop.
    fn sweep(&mut self) {
        let all = self.stage.board.records.instances().filter(|lrp| lrp.stopping);
        let all: Vec<_> = all.map(|lrp| (lrp.definition_id.clone(), lrp.index)).collect();
        for (name, index) in all {
            self.stops(name.as_str(), index);
        }
    }

    /// Starts what is asked for and stops what is told to, until nothing is left to do.
    fn obeys(&mut self, effects: Vec<String>) {
        let mut left = effects;
        while let Some(effect) = (!left.is_empty()).then(|| left.remove(0)) {
            let words: Vec<&str> = effect.split([' ', '/']).collect();
            let [what, name, index] = words[..] else { panic!("{effect}") };
            let index = index.parse().unwrap();
            left.extend(match what {
                "start" => self.starts(name, index),
                _ => self.stops(name, index),
            });
        }
    }

    /// What is at each index, such as `id1 RUNNING, id2 UNCLAIMED`; presences other than ordinary
    /// and the order to stop are named.
    fn shown(&self) -> Vec<String> {
        let process = self.stage.board.records.process(&process());
        let slots = process.map(|process| process.instances()).unwrap_or_default();
        let count = slots.iter().map(|slot| slot.lrp.index + 1).max().unwrap_or_default();
        let at = |index| {
            let here = slots.iter().map(|slot| &slot.lrp).filter(|lrp| lrp.index == index);
            let words = here.map(|lrp| {
                let presence = match lrp.presence {
                    Presence::Ordinary => "",
                    Presence::Evacuating => " EVACUATING",
                    Presence::Suspect => " SUSPECT",
                };
                let stops = if lrp.stopping { " stops" } else { "" };
                format!("{} {}{presence}{stops}", lrp.definition_id, lrp.state.name())
            });
            words.collect::<Vec<_>>().join(", ")
        };
        (0..count).map(at).collect()
    }

    /// Asserts what is at each index.
    #[track_caller]
    fn shows<const N: usize>(&self, expected: [&str; N]) {
        assert_eq!(self.shown(), expected);
    }

    /// Such as `id1 id2: id2 active, id1 healthy, from id1`.
    fn told(&self) -> String {
        let deployment = self.stage.deployment();
        let ids: Vec<&str> = deployment.definitions.iter().map(|(id, _)| id.as_str()).collect();
        let healthy = deployment.healthy_definition_id.as_ref().map_or("none", |id| id.as_str());
        let from = deployment.previous_definition_id().map(|id| format!(", from {id}"));
        let active = &deployment.active_definition_id;
        let from = from.unwrap_or_default();
        format!("{}: {active} active, {healthy} healthy{from}", ids.join(" "))
    }

    /// Asserts which definitions there are, which is active and healthy, and where it comes from.
    #[track_caller]
    fn tells(&self, expected: &str) {
        assert_eq!(self.told(), expected);
    }

    fn pause(&self) -> Option<RolloutPause> {
        self.stage.deployment().roll.as_ref().and_then(|roll| roll.pause)
    }
}

/// Such as `start id2/0` and `stop id1/0`.
fn effects_of(outcome: &ApplyResult) -> Vec<String> {
    let mut told = Vec::new();
    for effect in &outcome.effects {
        match effect {
            BoardEffect::RequestAuction(starts, _) => {
                for start in starts {
                    let indices = start.indices.iter();
                    told.extend(indices.map(|it| format!("start {}/{it}", start.definition_id)));
                }
            }
            BoardEffect::StopInstance(key, _) => {
                let of = key.definition_id.as_ref().map_or("", |id| id.as_str());
                told.push(format!("stop {of}/{}", key.index));
            }
            BoardEffect::UpdateInstance(key, _) => told.push(format!("update {}", key.index)),
            BoardEffect::CancelTask(..) | BoardEffect::CallBack(_) => {}
        }
    }
    told
}
