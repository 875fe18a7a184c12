//! Nobody notices an update: as long as nothing that runs crashes and no cell is lost, every index
//! that was served when an update began is served after every step of it, and of all that follow.
//!
//! Nor does a reader of the older stream lose sight: what it keeps for each index is what serves there.
//!
//! New instances may fail to start, cells may be emptied, the coordinator may be restarted, updates
//! may be cancelled, superseded, paused and rolled back, the process may be scaled.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use super::play::{Cast, Random, Step, What};
use super::rolls;
use super::watch::Watch;
use volvox_protocol::deployment::{LrpDeploymentDefinition, LrpDeploymentUpdate, RolloutPause};
use volvox_protocol::id::DefinitionId;
use volvox_protocol::tables::crash::CrashPolicy;

const SEQUENCES: u64 = 2_000;

fn p() -> ProcessGuid {
    ProcessGuid::new("p0").unwrap()
}

fn name(nth: u64) -> DefinitionId {
    DefinitionId::new(&format!("n{nth}")).unwrap()
}

/// Makes steps in which nothing that runs goes but what was told to stop.
struct Calm<'a> {
    cast: &'a Cast,
    random: Random,
    /// Definitions so far, and containers so far: each new one has a name of its own.
    definitions: u64,
    containers: u64,
    /// Whether cells are emptied. What the older stream is told of that does not add up, as the
    /// tables have it.
    empties: bool,
}

impl Calm<'_> {
    fn create(&mut self, instances: u32) -> Command {
        let asked = LrpDeploymentDefinition {
            process_guid: p(),
            domain: self.cast.domains[0].clone(),
            instances,
            routes: Default::default(),
            annotation: String::new(),
            metric_tags: Default::default(),
            update_strategy: UpdateStrategy::Rolling,
            rollout: Some(rolls::policy(&mut self.random)),
            definition_id: name(0),
            definition: rolls::definition(&mut self.random),
        };
        Command::CreateDeployment(Box::new(Valid::new(asked).unwrap()))
    }

    fn next(&mut self, board: &Board) -> Step {
        const MS: [u64; 8] = [1, 1, 1, 1, 1_000, 30_000, 60_000, 600_000];
        let after = Duration::from_millis(*self.random.of(&MS));
        let seed = self.random.next();
        let what = match self.random.below(50) {
            0 => What::Restart,
            _ => What::Apply(self.command(board)),
        };
        Step { after, seed, what }
    }

    fn command(&mut self, board: &Board) -> Command {
        let any = self.random.below(self.definitions + 1);
        match self.random.below(40) {
            0 => {
                let ttl = *self.random.of(&[Duration::ZERO, Duration::from_secs(60)]);
                Command::UpsertDomain(self.cast.domains[0].clone(), ttl)
            }
            1..4 => self.update(),
            4 if board.records.deployment(&p()).is_none() => self.create(3),
            4 => Command::ActivateDefinition(p(), name(any)),
            5 => Command::CancelUpdate(p()),
            6 => Command::Rollback(p(), name(any)),
            7 => Command::PromoteUpdate(p()),
            8 => Command::PauseUpdate(p()),
            9 => Command::ResumeUpdate(p()),
            10 if self.random.percent(10) => Command::DeleteDeployment(p()),
            10 => Command::ConvergeAll,
            11..18 => Command::ConvergeDue,
            _ => self.cell(board),
        }
    }

    fn update(&mut self) -> Command {
        let new = self.random.percent(80);
        self.definitions += u64::from(new);
        let random = &mut self.random;
        let update = LrpDeploymentUpdate {
            instances: random.percent(20).then(|| u32::try_from(random.below(5)).unwrap()),
            rollout: random.percent(30).then(|| rolls::policy(random)),
            definition_id: new.then(|| name(self.definitions)),
            definition: new.then(|| Box::new(rolls::definition(random))),
            ..Default::default()
        };
        Command::UpdateDeployment(p(), Box::new(Valid::new(update).unwrap()))
    }

    fn cell(&mut self, board: &Board) -> Command {
        let all: Vec<&Arc<ActualLrp>> = board.records.instances().collect();
        if all.is_empty() {
            return Command::ConvergeDue;
        }
        let random = &mut self.random;
        let lrp = random.of(&all);
        let (key, dice) = (lrp.key(), random.below(20));
        self.containers += 1;
        let new = InstanceKey {
            instance_guid: InstanceGuid::new(&format!("i{}", self.containers)).unwrap(),
            cell_id: random.of(&self.cast.cells).clone(),
        };
        let request = match (&lrp.state, lrp.presence) {
            (_, Presence::Evacuating | Presence::Suspect) => return Command::ConvergeDue,
            (LrpState::Crashed, _) => return Command::ConvergeDue,
            (LrpState::Unclaimed { .. }, _) if dice < 3 => {
                return Command::FailLrp(key, "no room".into());
            }
            (LrpState::Unclaimed { .. }, _) if dice < 12 => CellRequest::ClaimLrp(key, new),
            (LrpState::Unclaimed { .. }, _) => CellRequest::StartLrp(key, new, running()),
            (LrpState::Claimed(of) | LrpState::Running(of, _), _) if lrp.stopping => {
                CellRequest::RemoveLrp(key, of.clone())
            }
            (LrpState::Claimed(of), _) if dice < 8 => {
                CellRequest::CrashLrp(key, of.clone(), "exit 1".into())
            }
            (LrpState::Claimed(of), _) if dice < 9 && self.empties => {
                CellRequest::EvacuateClaimed(key, of.clone())
            }
            (LrpState::Claimed(of), _) => CellRequest::StartLrp(key, of.clone(), running()),
            (LrpState::Running(of, _), _) if dice < 3 && self.empties => {
                CellRequest::EvacuateRunning(key, of.clone(), running())
            }
            (LrpState::Running(..), _) => return Command::ConvergeDue,
        };
        cell_says(request)
    }
}

/// The indices at which something runs that was not told to stop.
fn served(board: &Board) -> BTreeSet<u32> {
    let runs = board.records.instances().filter(|lrp| lrp.state.is_running() && !lrp.stopping);
    runs.map(|lrp| lrp.index).collect()
}

/// A reader of the older stream that knows nothing of definitions and keeps one record for each
/// index.
#[derive(Default)]
struct Reader(BTreeMap<u32, Arc<ActualLrp>>);

impl Reader {
    fn hears(&mut self, outcome: Option<ApplyResult>) -> Result<(), String> {
        for event in outcome.into_iter().flat_map(|outcome| outcome.events) {
            let (old, new) = match &event {
                Event::GroupCreated(new) => (None, Some(only(new))),
                Event::GroupChanged(old, new) => (Some(only(old)), Some(only(new))),
                Event::GroupRemoved(old) => (Some(only(old)), None),
                Event::DesiredLrpCreated(_)
                | Event::DesiredLrpChanged(..)
                | Event::DesiredLrpRemoved(_)
                | Event::InstanceCreated(_)
                | Event::InstanceChanged(..)
                | Event::InstanceRemoved(_)
                | Event::Crashed(_)
                | Event::TaskCreated(_)
                | Event::TaskChanged(..)
                | Event::TaskRemoved(_) => continue,
            };
            let Some(index) = old.or(new).map(|lrp| lrp.index) else { continue };
            let known = self.0.remove(&index);
            if known.as_deref().map(shown) != old.map(|lrp| shown(lrp)) {
                return Err(format!("a reader of groups knows {known:#?} and hears {event:#?}"));
            }
            self.0.extend(new.map(|new| (index, Arc::clone(new))));
        }
        Ok(())
    }

    fn agrees(&self, board: &Board) -> Result<(), String> {
        let process = board.records.process(&p());
        let there = process.map(|process| process.resolved()).unwrap_or_default();
        let there: Vec<_> = there.iter().map(|lrp| shown(lrp)).collect();
        let known: Vec<_> = self.0.values().map(|lrp| shown(lrp)).collect();
        if there == known {
            return Ok(());
        }
        Err(format!("a reader of groups knows {known:#?}, there is {there:#?}"))
    }
}

/// What such a reader looks at.
fn shown(lrp: &ActualLrp) -> (u32, DefinitionId, LrpState) {
    (lrp.index, lrp.definition_id.clone(), lrp.state.clone())
}

fn instances(board: &Board) -> u32 {
    board.records.deployment(&p()).map_or(0, |(_, deployment)| deployment.instances)
}

fn play(cast: &Cast, seed: u64) -> Result<(), String> {
    let empties = seed.is_multiple_of(2);
    let mut calm = Calm { cast, random: Random(seed), definitions: 0, containers: 0, empties };
    let mut reader = Reader::default();
    // Old records of emptied cells would expire, and that is not about updates.
    let evacuation_timeout = Duration::from_secs(1 << 40);
    let crash_policy = CrashPolicy::default();
    let settings = BoardSettings { evacuation_timeout, crash_policy, ..BoardSettings::default() };
    let mut watch = Watch::new(settings);
    for cell in &cast.cells {
        watch.apply(0, Command::CellPresence(cell.clone(), CellPresence::Present))?;
    }
    let count = u32::try_from(calm.random.below(5)).unwrap();
    let create = calm.create(count);
    reader.hears(watch.apply(1, create)?)?;
    let mut had: BTreeSet<u32> = BTreeSet::new();
    let mut taken = Vec::new();
    for _ in 0..120 {
        let step = calm.next(&watch.board);
        taken.push(step.clone());
        let outcome = watch.take(step)?;
        if !empties {
            reader.hears(outcome)?;
            reader.agrees(&watch.board)?;
        }
        let (here, count) = (served(&watch.board), instances(&watch.board));
        had.retain(|index| *index < count);
        if let Some(index) = had.difference(&here).next() {
            let told: Vec<String> = taken.iter().map(|it| format!("{it:?}")).collect();
            return Err(format!("index {index} is not served any more after\n{}", told.join("\n")));
        }
        had.extend(here.into_iter().filter(|index| *index < count));
    }
    Ok(())
}

#[test]
fn what_was_served_when_an_update_began_is_served_after_every_step() {
    let cast = Cast::new();
    for seed in 0..SEQUENCES {
        if let Err(why) = super::caught(|| play(&cast, seed)) {
            panic!("seed {seed}: {why}");
        }
    }
    println!("{SEQUENCES} calm sequences hold");
}

/// The calm sequences must be about something: updates that finish, are cancelled, superseded and
/// wait, and instances that are replaced.
#[test]
fn the_calm_sequences_reach_ends_of_updates() {
    let cast = Cast::new();
    let (mut finished, mut back, mut paused, mut replaced) = (0, 0, 0, 0);
    for seed in 0..200 {
        let random = Random(seed);
        let mut calm = Calm { cast: &cast, random, definitions: 0, containers: 0, empties: true };
        let mut watch = Watch::new(BoardSettings::default());
        let create = calm.create(2);
        watch.apply(1, create).unwrap();
        for _ in 0..120 {
            let step = calm.next(&watch.board);
            let roll = |watch: &Watch| {
                let known = watch.board.records.deployment(&p());
                known.and_then(|(_, it)| it.roll.clone())
            };
            let before = roll(&watch);
            let outcome = watch.take(step).unwrap();
            let after = roll(&watch);
            finished += u32::from(before.is_some() && after.is_none());
            back += u32::from(after.as_ref().is_some_and(|roll| !roll.reason.is_empty()));
            paused +=
                u32::from(after.as_ref().and_then(|roll| roll.pause) == Some(RolloutPause::Canary));
            let effects = outcome.map(|outcome| outcome.effects).unwrap_or_default();
            let stops = effects.iter().filter(|it| matches!(it, BoardEffect::StopInstance(..)));
            replaced += stops.count();
        }
    }
    println!("{finished} finished, {back} on the way back, {paused} waiting, {replaced} stopped");
    assert!(finished > 50 && back > 50 && paused > 50 && replaced > 200);
}
