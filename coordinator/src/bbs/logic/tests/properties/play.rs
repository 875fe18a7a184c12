//! Makes steps from a seed: every command there is, on few names, so that they meet.

use super::super::*;
use super::rolls::ROLLS;
use volvox_protocol::definition::MetricTagValue;
use volvox_protocol::id::DefinitionId;
use volvox_protocol::request::TaskOutcome;
use volvox_protocol::tables::crash::CrashPolicy;

/// One thing that happens, and how long after the last one.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) after: Duration,
    pub(super) seed: u64,
    pub(super) what: What,
}

#[derive(Debug, Clone)]
pub(super) enum What {
    /// The board is given a command.
    Apply(Command),
    /// The coordinator ends, and another reads the records back.
    Restart,
}

/// A small generator, so that a seed means the same everywhere and for ever.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        volvox_protocol::random::mix(self.0)
    }

    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(super) fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        let nth = self.below(choices.len() as u64);
        &choices[usize::try_from(nth).expect("it is below a usize")]
    }

    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}

/// The settings of a sequence: every other one gives up on crashes early, so that it happens.
pub(super) fn settings(seed: u64) -> BoardSettings {
    if seed.is_multiple_of(2) {
        return BoardSettings::default();
    }
    let crash_policy =
        CrashPolicy { immediate_restarts: 1, give_up_after: 3, ..CrashPolicy::default() };
    BoardSettings { crash_policy, task_retries: 1, ..BoardSettings::default() }
}

/// Everybody who may appear.
pub(super) struct Cast {
    pub(super) domains: [Domain; 2],
    pub(super) cells: [CellId; 3],
    pub(super) processes: [ProcessGuid; 3],
    pub(super) guids: [InstanceGuid; 4],
    tasks: [TaskGuid; 2],
    other_definition: DefinitionId,
    pub(super) desired: Vec<Valid<DesiredLrp>>,
    updates: Vec<Valid<DesiredLrpUpdate>>,
    definitions: [Valid<TaskDefinition>; 2],
    pub(super) running: [Arc<Running>; 2],
}

impl Cast {
    pub(super) fn new() -> Self {
        let processes = ["p0", "p1", "p2"];
        let mut all = Vec::new();
        for guid in processes {
            for in_domain in ["d0", "d1"] {
                for instances in 0..=3 {
                    let mut lrp = desired(guid, in_domain, instances);
                    if guid == "p1" {
                        lrp.update_strategy = UpdateStrategy::Recreate;
                    }
                    all.push(lrp.clone());
                    lrp.definition_id = Some(DefinitionId::new("other").unwrap());
                    if guid == "p2" && instances < 2 {
                        all.push(lrp);
                    }
                }
            }
        }
        let tags = [("tag".to_owned(), MetricTagValue::Static("value".into()))];
        let scale = |to| DesiredLrpUpdate { instances: Some(to), ..Default::default() };
        let mut updates: Vec<_> = (0..=3).map(scale).collect();
        updates.push(DesiredLrpUpdate::default());
        updates.push(DesiredLrpUpdate {
            instances: Some(2),
            metric_tags: Some(tags.into_iter().collect()),
            ..Default::default()
        });
        let task = |url: &str| {
            let Command::DesireTask(_, _, definition) = desire_task("t", url) else {
                panic!("a desire is a desire")
            };
            *definition
        };
        Cast {
            domains: ["d0", "d1"].map(domain),
            cells: ["c0", "c1", "c2"].map(cell),
            processes: processes.map(|guid| ProcessGuid::new(guid).unwrap()),
            guids: ["g0", "g1", "g2", "g3"].map(|guid| InstanceGuid::new(guid).unwrap()),
            tasks: ["t0", "t1"].map(task_guid),
            other_definition: DefinitionId::new("other").unwrap(),
            desired: all.into_iter().map(|lrp| Valid::new(lrp).unwrap()).collect(),
            updates: updates.into_iter().map(|update| Valid::new(update).unwrap()).collect(),
            definitions: [task(""), task("http://consumer/done")],
            running: [running_at("10.0.0.1"), running_at("10.0.0.2")],
        }
    }

    /// The next step of the sequence of this seed, which has come to this board.
    pub(super) fn next(&self, seed: u64, random: &mut Random, board: &Board) -> Step {
        if seed >= ROLLS {
            self.next_of_roll(random, board)
        } else {
            self.next_of_all(random, board)
        }
    }

    fn next_of_all(&self, random: &mut Random, board: &Board) -> Step {
        const MS: [u64; 18] = [
            1, 1, 1, 1, 1, 1, 1, 1, 500, 1_000, 5_000, 29_999, 30_000, 60_000, 120_000, 600_000,
            960_000, 7_200_000,
        ];
        let after = Duration::from_millis(*random.of(&MS));
        let seed = random.next();
        let what = match random.below(100) {
            0 => What::Restart,
            _ => What::Apply(self.command(random, board)),
        };
        Step { after, seed, what }
    }

    fn command(&self, random: &mut Random, board: &Board) -> Command {
        let ttl = [0, 20, 60, 3_600].map(Duration::from_secs);
        let process = random.of(&self.processes).clone();
        let task = random.of(&self.tasks).clone();
        let why = "because".into();
        match random.below(100) {
            0..4 => Command::UpsertDomain(random.of(&self.domains).clone(), *random.of(&ttl)),
            4..13 => Command::DesireLrp(Box::new(random.of(&self.desired).clone())),
            13..18 => {
                Command::UpdateDesiredLrp(process, Box::new(random.of(&self.updates).clone()))
            }
            18..21 => Command::RemoveDesiredLrp(process),
            21..60 => cell_says(self.about_an_instance(random, board)),
            60..64 => Command::FailLrp(self.key(random, board), why),
            64..66 => Command::RemoveLrp(self.key(random, board)),
            66..69 => Command::RetireLrp(self.key(random, board)),
            69..73 => {
                let of = random.of(&self.domains).clone();
                Command::DesireTask(task, of, Box::new(random.of(&self.definitions).clone()))
            }
            73..80 => cell_says(self.about_a_task(random, task)),
            80 => Command::CancelTask(task),
            81 => Command::FailTask(task, why),
            82..84 => Command::RejectTask(task, why),
            84..86 => Command::ResolvingTask(task, TaskRef::Present),
            86 => Command::DeleteTask(task, TaskRef::Present),
            87..91 => Command::CellPresence(random.of(&self.cells).clone(), CellPresence::Present),
            91..94 => Command::CellPresence(random.of(&self.cells).clone(), CellPresence::Missing),
            94 => Command::CellsSettled,
            95 => Command::ConvergeAll,
            _ => Command::ConvergeDue,
        }
    }

    /// Some instance, by the right domain most of the time.
    pub(super) fn key(&self, random: &mut Random, board: &Board) -> LrpKey {
        let process_guid = random.of(&self.processes).clone();
        let definition_id = match random.below(10) {
            0 => Some((&process_guid).into()),
            1 => Some(self.other_definition.clone()),
            _ => None,
        };
        let known = board.records.deployment(&process_guid);
        let domain = match known.filter(|_| random.percent(95)) {
            Some((_, deployment)) => deployment.domain.clone(),
            None => random.of(&self.domains).clone(),
        };
        let index = u32::from(random.percent(50)) + u32::from(random.percent(20));
        LrpKey { process_guid, index, domain, definition_id }
    }

    /// What some cell says of some instance, which is there as often as not.
    pub(super) fn about_an_instance(&self, random: &mut Random, board: &Board) -> CellRequest {
        let mut key = self.key(random, board);
        let mut instance = InstanceKey {
            instance_guid: random.of(&self.guids).clone(),
            cell_id: random.of(&self.cells).clone(),
        };
        let held = board.records.process(&key.process_guid).map(|process| process.instances());
        let held: Vec<_> = held.into_iter().flatten().map(|slot| &slot.lrp).collect();
        if !held.is_empty() && random.percent(70) {
            let lrp = random.of(&held);
            (key.index, key.definition_id) = (lrp.index, Some(lrp.definition_id.clone()));
            if let Some(holder) = lrp.instance() {
                instance = holder.clone();
            }
        }
        let running = random.of(&self.running).clone();
        let why = "exit 1".into();
        match random.below(40) {
            0..9 => CellRequest::ClaimLrp(key, instance),
            9..20 => CellRequest::StartLrp(key, instance, running),
            20..26 => CellRequest::CrashLrp(key, instance, why),
            26..29 => CellRequest::RemoveLrp(key, instance),
            29..31 => CellRequest::EvacuateClaimed(key, instance),
            31..36 => CellRequest::EvacuateRunning(key, instance, running),
            36..38 => CellRequest::EvacuateCrashed(key, instance, why),
            38 => CellRequest::EvacuateStopped(key, instance),
            _ => CellRequest::RemoveEvacuating(key, instance),
        }
    }

    fn about_a_task(&self, random: &mut Random, task: TaskGuid) -> CellRequest {
        let cell = random.of(&self.cells).clone();
        match random.below(10) {
            0..5 => CellRequest::StartTask(task, cell),
            5..7 => CellRequest::CompleteTask(task, cell, TaskOutcome::failed_because("exit 1")),
            7 => CellRequest::CompleteTask(task, cell, TaskOutcome::default()),
            _ => CellRequest::RejectTask(task, cell, "no disk".into()),
        }
    }
}
