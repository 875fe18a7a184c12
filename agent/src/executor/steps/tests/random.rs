//! Random trees, random outcomes in random order, a cancel at any time: what must always hold.
//!
//! [`World`] is a driver that believes nothing. It keeps what the tree started, and refuses effects
//! that no driver could perform.

use crate::container::exit::End;
use crate::container::exit::Exit;
use crate::container::step::CheckOutcome;
use crate::container::step::StepEvent;
use crate::container::step::StepSignal;
use crate::container::step::TransferFailure;
use crate::container::step::Transferred;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use volvox_protocol::definition::{CheckDefinition, Sidecar};
use volvox_protocol::random::SplitMix;

use super::*;

const TREES: u64 = 30_000;
/// Actions below each other.
const DEPTH: usize = 5;
/// Enough for every tree below to end by itself, if it ends; then it is cancelled.
const EVENTS: usize = 120;
/// More than any of these trees can need to end after a cancel.
const PATIENCE: usize = 1_000;

fn random_action(random: &mut SplitMix, depth: usize) -> Action {
    let leaf = depth == 0 || (depth < DEPTH && random.once_in(4));
    let names = ["", "x"];
    if leaf {
        return match random.below(6) {
            0 => download(random.one_of::<&str>(&names)),
            1 => upload(random.one_of::<&str>(&names)),
            2 => quiet_run("/q"),
            _ => run("/r"),
        };
    }
    let many = |random: &mut SplitMix| {
        let count = if random.once_in(20) { 0 } else { 1 + random.below(3) };
        (0..count).map(|_| random_action(random, depth - 1)).collect::<Vec<_>>()
    };
    match random.below(8) {
        0 | 1 => parallel(many(random)),
        2 | 3 => serial_of(many(random)),
        4 => codependent(many(random)),
        5 => timeout(2_000, random_action(random, depth - 1)),
        6 => progress(random_action(random, depth - 1)),
        _ => tried(random_action(random, depth - 1)),
    }
}

fn random_spec(random: &mut SplitMix) -> StepSpec {
    let maybe = |random: &mut SplitMix, times, depth| {
        random.once_in(times).then(|| random_action(random, depth))
    };
    let setup = maybe(random, 3, 2);
    let monitor = maybe(random, 3, 2);
    let sidecars = (0..random.below(3))
        .map(|_| Sidecar { action: maybe(random, 2, 1), ..Sidecar::default() })
        .collect();
    let check_definition = random.once_in(4).then(|| {
        let mut checks = || (0..random.below(3)).map(|_| tcp(8080, 5_000)).collect::<Vec<_>>();
        let (checks, readiness_checks) = (checks(), checks());
        CheckDefinition { checks, log_source: String::new(), readiness_checks }
    });
    StepSpec {
        setup,
        action: Some(random_action(random, DEPTH)),
        monitor,
        check_definition,
        sidecars,
        start_timeout: Duration::from_millis(*random.one_of(&[0, 700, 5_000])),
        log_source: "APP".into(),
    }
}

/// A process, as its world sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Starting,
    Running,
    Terminated,
    Killed,
}

#[derive(Debug, Default)]
struct World {
    now: Timestamp,
    /// Mostly things go well. Without such worlds no tree would get far.
    kind: bool,
    processes: BTreeMap<StepId, Process>,
    /// These hang in the kernel: not even SIGKILL ends them.
    immortal: BTreeSet<StepId>,
    transfers: BTreeSet<StepId>,
    checks: BTreeSet<StepId>,
    timers: BTreeMap<TimerId, Timestamp>,
    highest: u32,
    cancelled: bool,
    ready: usize,
    routable: usize,
    finished: usize,
    spawned: usize,
}

impl World {
    fn perform(&mut self, random: &mut SplitMix, effects: &[StepOutput]) {
        for effect in effects {
            assert_eq!(self.finished, 0, "{effect:?} after the end");
            self.perform_one(random, effect);
        }
    }

    fn perform_one(&mut self, random: &mut SplitMix, effect: &StepOutput) {
        match effect {
            StepOutput::Spawn { step, .. } => {
                self.begins(step.0);
                self.spawned += 1;
                self.processes.insert(*step, Process::Starting);
                if random.once_in(40) {
                    self.immortal.insert(*step);
                }
            }
            StepOutput::Signal { step, signal } => {
                let process = self.processes.get_mut(step).expect("a process to signal");
                match signal {
                    StepSignal::Term => {
                        assert_eq!(*process, Process::Running, "{step:?}");
                        *process = Process::Terminated;
                    }
                    StepSignal::Kill => {
                        assert_eq!(*process, Process::Terminated, "{step:?}");
                        *process = Process::Killed;
                    }
                }
            }
            StepOutput::StartDownload { step, .. } | StepOutput::StartUpload { step, .. } => {
                self.begins(step.0);
                self.transfers.insert(*step);
            }
            StepOutput::CancelTransfer { step } => assert!(self.transfers.contains(step)),
            StepOutput::StartTimer { timer, after } => {
                assert!(timer.0 > self.highest, "{timer:?} is not new");
                self.highest = timer.0;
                self.timers.insert(*timer, self.now + *after);
            }
            StepOutput::CancelTimer { timer } => assert!(self.timers.remove(timer).is_some()),
            StepOutput::RunCheck { step, .. } => {
                self.begins(step.0);
                self.checks.insert(*step);
            }
            StepOutput::CancelCheck { step } => assert!(self.checks.remove(step)),
            StepOutput::Log { text, source, .. } => {
                assert!(!text.is_empty() && text.len() <= 1_024 && !source.is_empty());
            }
            StepOutput::Ready => {
                assert!(!self.cancelled, "ready although it was told to stop");
                assert_eq!(self.routable, 1, "routability is told right before");
                self.ready += 1;
            }
            StepOutput::Routable(_) => {
                assert_eq!(self.ready, self.routable.min(1), "routable before it is ready");
                self.routable += 1;
            }
            StepOutput::Finished(result) => self.ends(result),
        }
    }

    fn begins(&mut self, id: u32) {
        assert!(id > self.highest, "{id} is not new");
        self.highest = id;
        assert!(!self.cancelled, "{id} begins although it was told to stop");
    }

    fn ends(&mut self, result: &RunResult) {
        self.finished += 1;
        assert!(self.ready <= 1);
        assert_eq!(result.stopped, self.cancelled);
        assert!(!(result.stopped && result.failed));
        assert_eq!(result.failed, !result.failure_reason.is_empty());
        assert!(self.transfers.is_empty() && self.checks.is_empty() && self.timers.is_empty());
        for (step, process) in &self.processes {
            assert_eq!(*process, Process::Killed, "{step:?} was not waited for");
            assert!(self.immortal.contains(step), "{step:?} was given up too early");
        }
    }

    /// Something that may happen next, if anything may. Timers fire in the order of their times,
    /// but anything else may come before them. The time that a killed process has is long enough.
    fn next(&mut self, random: &mut SplitMix) -> Option<StepInput> {
        let mut may: Vec<StepInput> = Vec::new();
        for (step, process) in &self.processes {
            match process {
                Process::Starting => {
                    may.push(StepInput::Event(StepEvent::ProcessStarted(*step)));
                    if random.once_in(if self.kind { 400 } else { 20 }) {
                        may.push(StepInput::Event(StepEvent::SpawnFailed {
                            step: *step,
                            error: "no".into(),
                        }));
                    }
                }
                Process::Running | Process::Terminated | Process::Killed => {
                    if !self.immortal.contains(step) {
                        may.push(StepInput::Event(StepEvent::ProcessExited(random_exit(
                            random, *step, self.kind,
                        ))));
                    }
                }
            }
        }
        let mortal_was_killed = self
            .processes
            .iter()
            .any(|(step, it)| *it == Process::Killed && !self.immortal.contains(step));
        for step in &self.transfers {
            let results = [
                Ok(Transferred::Bytes(2_048)),
                Ok(Transferred::FromCache),
                Err(TransferFailure::Fetch),
                Err(TransferFailure::UploadPayload),
            ];
            let results = if self.kind { &results[..2] } else { &results };
            let result = random.one_of(results).clone();
            may.push(StepInput::Event(StepEvent::TransferDone { step: *step, result }));
        }
        for step in &self.checks {
            let outcomes = [
                CheckOutcome::Passed,
                CheckOutcome::Passed,
                CheckOutcome::Failed("bad".into()),
                CheckOutcome::CouldNotRun("odd".into()),
            ];
            let outcomes = if self.kind { &outcomes[..3] } else { &outcomes };
            let outcome = random.one_of(outcomes).clone();
            may.push(StepInput::Event(StepEvent::CheckResult { step: *step, outcome }));
        }
        let soonest = self.timers.iter().min_by_key(|(timer, due)| (**due, **timer));
        if let Some((timer, _)) = soonest.filter(|_| !mortal_was_killed) {
            may.push(StepInput::TimerFired(*timer));
        }
        if may.is_empty() {
            return None;
        }
        let input = may.swap_remove(random.below(may.len()));
        self.happens(&input);
        Some(input)
    }

    fn happens(&mut self, input: &StepInput) {
        match input {
            StepInput::Event(StepEvent::ProcessStarted(step)) => {
                self.processes.insert(*step, Process::Running);
            }
            StepInput::Event(StepEvent::SpawnFailed { step, .. }) => self.ended(*step),
            StepInput::Event(StepEvent::ProcessExited(exit)) => self.ended(exit.step()),
            StepInput::Event(StepEvent::TransferDone { step, .. }) => {
                self.transfers.remove(step);
            }
            StepInput::Event(StepEvent::CheckResult { step, .. }) => {
                self.checks.remove(step);
            }
            StepInput::TimerFired(timer) => {
                self.now = self.now.max(self.timers.remove(timer).expect("it was chosen of these"));
            }
            StepInput::Cancel => self.cancelled = true,
            StepInput::Begin => {}
        }
    }

    fn ended(&mut self, step: StepId) {
        self.processes.remove(&step);
        self.immortal.remove(&step);
    }

    /// Things that come late, twice or from nowhere.
    fn nonsense(&self, random: &mut SplitMix) -> StepInput {
        let number = u32::try_from(random.below(30)).expect("small") + self.highest + 1;
        match random.below(5) {
            0 => StepInput::Event(StepEvent::ProcessStarted(StepId(number))),
            1 => StepInput::Event(StepEvent::ProcessExited(Exit::new(number, End::Status(0)))),
            2 => StepInput::Event(StepEvent::TransferDone {
                step: StepId(number),
                result: Ok(Transferred::FromCache),
            }),
            3 => StepInput::Event(StepEvent::CheckResult {
                step: StepId(number),
                outcome: CheckOutcome::Passed,
            }),
            _ => StepInput::TimerFired(TimerId(number)),
        }
    }
}

fn random_exit(random: &mut SplitMix, step: StepId, kind: bool) -> Exit {
    let well = kind && !random.once_in(50);
    Exit {
        id: step.0,
        end: End::Status(if well { 0 } else { *random.one_of(&[0, 0, 0, 0, 0, 1, 137]) }),
        at: 0,
        out_of_memory: random.once_in(5),
        out_of_disk: random.once_in(5),
        output: (*random.one_of(&["", "printed"])).to_owned(),
    }
}

/// One tree from its beginning to its end.
fn live(seed: u64) -> World {
    let mut random = SplitMix(seed);
    let spec = random_spec(&mut random);
    let mut tree = StepTree::new(&spec, StepSettings::default());
    let mut world = World { kind: random.once_in(2), ..World::default() };
    let latest = *random.one_of(&[5, 25, EVENTS]);
    let cancel_at = random.below(latest);
    let cancel_early = random.once_in(2);
    if random.once_in(50) {
        world.happens(&StepInput::Cancel);
        let effects = tree.apply(world.now, StepInput::Cancel);
        world.perform(&mut random, &effects);
    }
    let effects = tree.apply(world.now, StepInput::Begin);
    world.perform(&mut random, &effects);
    for event in 0..EVENTS + PATIENCE {
        if tree.is_finished() {
            break;
        }
        if random.once_in(20) {
            let nonsense = world.nonsense(&mut random);
            assert_eq!(tree.apply(world.now, nonsense), []);
            let text = serde_json::to_string(&tree).expect("a tree can be written down");
            let again: StepTree = serde_json::from_str(&text).expect("and read back");
            assert_eq!(again, tree);
            let alive: Vec<_> = tree.processes().collect();
            assert!(alive.iter().all(|step| world.processes.contains_key(step)));
        }
        let cancel = event == if cancel_early { cancel_at } else { EVENTS };
        let input = if cancel { None } else { world.next(&mut random) };
        let input = input.unwrap_or_else(|| {
            // Nothing can happen by itself: that is so only while a process hangs that nobody has
            // told to end.
            let hangs = |step| world.processes.get(step) == Some(&Process::Running);
            assert!(cancel || (!world.cancelled && world.immortal.iter().any(hangs)), "stuck");
            world.happens(&StepInput::Cancel);
            StepInput::Cancel
        });
        let mut twin = tree.clone();
        let effects = tree.apply(world.now, input.clone());
        assert_eq!(twin.apply(world.now, input), effects, "the same twice");
        world.perform(&mut random, &effects);
    }
    assert!(tree.is_finished(), "it never ends");
    assert_eq!(world.finished, 1);
    for input in [StepInput::Begin, StepInput::Cancel, world.nonsense(&mut random)] {
        assert_eq!(tree.apply(world.now, input), [], "after the end");
    }
    world
}

#[test]
fn every_tree_ends_once_and_waits_for_all_it_started() {
    let (mut ready, mut spawned, mut stopped, mut given_up) = (0, 0, 0, 0);
    for seed in 0..TREES {
        let world = std::panic::catch_unwind(|| live(seed))
            .unwrap_or_else(|_| panic!("seed {seed} shows it; the reason stands above"));
        ready += world.ready;
        spawned += world.spawned;
        stopped += usize::from(world.cancelled);
        given_up += world.processes.len();
    }
    let told =
        format!("{spawned} processes, {ready} ready, {stopped} stopped, {given_up} given up");
    println!("{TREES} trees: {told}");
    let varied = ready > 5_000 && stopped > 5_000 && spawned > 50_000 && given_up > 100;
    assert!(varied, "too few of a kind: {told}");
}
