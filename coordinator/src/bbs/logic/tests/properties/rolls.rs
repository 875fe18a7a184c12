//! Makes steps that are mostly about updates, from the seeds at [`ROLLS`] and above. The seeds below
//! it mean what they always meant.

use super::super::*;
use super::play::{Cast, Random, Step, What};
use volvox_protocol::deployment::{
    LrpDeploymentDefinition, LrpDeploymentUpdate, NamedDefinition, RolloutPolicy,
};
use volvox_protocol::id::DefinitionId;

/// Seeds from here on are about updates.
pub(super) const ROLLS: u64 = 1_000_000;

const IDS: [&str; 4] = ["v0", "v1", "v2", "v3"];

fn id(random: &mut Random) -> DefinitionId {
    let name: &&str = random.of(&IDS);
    DefinitionId::new(name).unwrap()
}

pub(super) fn definition(random: &mut Random) -> LrpDefinition {
    LrpDefinition {
        memory_mb: u32::try_from(random.below(3)).unwrap() + 1,
        ..desired("p", "d", 1).definition
    }
}

/// Every other policy is that of the seeds.
pub(super) fn policy(random: &mut Random) -> RolloutPolicy {
    if random.percent(50) {
        return RolloutPolicy::default();
    }
    RolloutPolicy {
        max_in_flight: u32::try_from(random.below(4)).unwrap(),
        canary_instances: *random.of(&[0, 0, 1, 2]),
        min_healthy_time_ms: *random.of(&[0, 0, 1_000, 60_000]),
        stuck_after_ms: *random.of(&[0, 1_000, 60_000]),
        progress_deadline_ms: *random.of(&[0, 0, 70_000, 600_000]),
        rollback_on_failure: random.percent(40),
    }
}

impl Cast {
    /// The next step of a sequence about updates.
    pub(super) fn next_of_roll(&self, random: &mut Random, board: &Board) -> Step {
        const MS: [u64; 16] =
            [1, 1, 1, 1, 1, 1, 1, 1, 1, 500, 1_000, 5_000, 30_000, 60_000, 600_000, 3_000_000_000];
        let after = Duration::from_millis(*random.of(&MS));
        let seed = random.next();
        let what = match random.below(100) {
            0..2 => What::Restart,
            _ => What::Apply(self.roll_command(random, board)),
        };
        Step { after, seed, what }
    }

    fn roll_command(&self, random: &mut Random, board: &Board) -> Command {
        let process = random.of(&self.processes).clone();
        match random.below(100) {
            0..3 => {
                let ttl = [0, 0, 60].map(Duration::from_secs);
                Command::UpsertDomain(random.of(&self.domains).clone(), *random.of(&ttl))
            }
            3..8 => self.create(random, process),
            8 => Command::DeleteDeployment(process),
            9..18 => update_of(random, process),
            18..21 => {
                let named =
                    NamedDefinition { definition_id: id(random), definition: definition(random) };
                let lrp_definition = Some(Box::new(named));
                let update = DesiredLrpUpdate { lrp_definition, ..Default::default() };
                Command::UpdateDesiredLrp(process, Box::new(Valid::new(update).unwrap()))
            }
            21..23 => Command::ActivateDefinition(process, id(random)),
            23..26 => Command::CancelUpdate(process),
            26..29 => Command::Rollback(process, id(random)),
            29..31 => Command::PromoteUpdate(process),
            31 => Command::PauseUpdate(process),
            32..34 => Command::ResumeUpdate(process),
            34..36 => Command::RetireLrp(self.key(random, board)),
            36 => Command::RemoveLrp(self.key(random, board)),
            37 => Command::FailLrp(self.key(random, board), "because".into()),
            38..42 => Command::CellPresence(random.of(&self.cells).clone(), CellPresence::Present),
            42..44 => Command::CellPresence(random.of(&self.cells).clone(), CellPresence::Missing),
            44 => cell_says(self.about_an_instance(random, board)),
            45 => Command::ConvergeAll,
            46..60 => Command::ConvergeDue,
            _ => self.fitting(random, board),
        }
    }

    fn create(&self, random: &mut Random, process: ProcessGuid) -> Command {
        if random.percent(30) {
            let desired = self.desired.iter().filter(|it| it.process_guid == process);
            let desired: Vec<_> = desired.collect();
            return Command::DesireLrp(Box::new((*random.of(&desired)).clone()));
        }
        let recreate = process.as_str() == "p1";
        let asked = LrpDeploymentDefinition {
            process_guid: process,
            domain: random.of(&self.domains).clone(),
            instances: u32::try_from(random.below(4)).unwrap(),
            routes: Default::default(),
            annotation: String::new(),
            metric_tags: Default::default(),
            update_strategy: if recreate {
                UpdateStrategy::Recreate
            } else {
                UpdateStrategy::Rolling
            },
            rollout: Some(policy(random)),
            definition_id: id(random),
            definition: definition(random),
        };
        Command::CreateDeployment(Box::new(Valid::new(asked).unwrap()))
    }

    /// What the cell of some record is likely to say next of it.
    fn fitting(&self, random: &mut Random, board: &Board) -> Command {
        let all: Vec<&Arc<ActualLrp>> = board.records.instances().collect();
        if all.is_empty() {
            return Command::ConvergeDue;
        }
        let lrp = random.of(&all);
        let key = lrp.key();
        let holder = lrp.instance().cloned().unwrap_or_else(|| InstanceKey {
            instance_guid: random.of(&self.guids).clone(),
            cell_id: random.of(&self.cells).clone(),
        });
        let mut running = random.of(&self.running).clone();
        Arc::make_mut(&mut running).routable = random.percent(80);
        let why = "exit 1".into();
        let dice = random.below(20);
        cell_says(match (&lrp.state, lrp.presence) {
            (_, Presence::Evacuating) if dice < 5 => CellRequest::RemoveEvacuating(key, holder),
            (LrpState::Unclaimed { .. } | LrpState::Crashed, _) if dice < 6 => {
                CellRequest::ClaimLrp(key, holder)
            }
            (LrpState::Unclaimed { .. } | LrpState::Crashed, _) => {
                CellRequest::StartLrp(key, holder, running)
            }
            _ if lrp.stopping && dice < 16 => CellRequest::RemoveLrp(key, holder),
            (LrpState::Claimed(_), _) if dice < 6 => CellRequest::CrashLrp(key, holder, why),
            (LrpState::Claimed(_), _) if dice < 8 => CellRequest::EvacuateClaimed(key, holder),
            (LrpState::Claimed(_), _) => CellRequest::StartLrp(key, holder, running),
            (LrpState::Running(..), _) if dice < 5 => CellRequest::CrashLrp(key, holder, why),
            (LrpState::Running(..), _) if dice < 9 => {
                CellRequest::EvacuateRunning(key, holder, running)
            }
            (LrpState::Running(..), _) => CellRequest::StartLrp(key, holder, running),
        })
    }
}

fn update_of(random: &mut Random, process: ProcessGuid) -> Command {
    let new = random.percent(70);
    let update = LrpDeploymentUpdate {
        instances: random.percent(30).then(|| u32::try_from(random.below(4)).unwrap()),
        rollout: random.percent(30).then(|| policy(random)),
        definition_id: new.then(|| id(random)),
        definition: new.then(|| Box::new(definition(random))),
        ..Default::default()
    };
    Command::UpdateDeployment(process, Box::new(Valid::new(update).unwrap()))
}
