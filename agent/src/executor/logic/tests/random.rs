//! Random cells: calls, faults, deaths of containers and of the agent at any effect. Whatever
//! happened, deletes end with an empty machine and all room back, and a task's action starts at most
//! once.

use std::collections::BTreeSet;
use std::time::Duration;

use volvox_protocol::action::{Action, CodependentAction, SerialAction, TimeoutAction};
use volvox_protocol::definition::{Check, CheckDefinition, LrpDefinition, Sidecar, TcpCheck};
use volvox_protocol::random::SplitMix;

use super::super::*;
use super::{Agent, ROOM, instance, run, task, task_of};

const SEEDS: u64 = 3_000;
const STEPS: usize = 40;

fn action(random: &mut SplitMix, depth: usize) -> Action {
    let leaf = |random: &mut SplitMix| match random.below(8) {
        0 => run("true", &[]),
        1 => run("exit", &["3"]),
        2 => run("sleep", &["2000"]),
        3 => run("crash", &["1500", "9"]),
        4 => run("missing", &[]),
        5 => run("stubborn", &[]),
        6 => Action::Download(Box::default()),
        _ => run("serve", &[]),
    };
    if depth == 0 {
        return leaf(random);
    }
    let actions = vec![action(random, depth - 1), action(random, depth - 1)];
    match random.below(5) {
        0 => Action::Serial(Box::new(SerialAction { actions, ..SerialAction::default() })),
        1 => Action::Codependent(Box::new(CodependentAction {
            actions,
            ..CodependentAction::default()
        })),
        2 => Action::Timeout(Box::new(TimeoutAction {
            action: Some(action(random, depth - 1)),
            timeout_ms: 700,
            ..TimeoutAction::default()
        })),
        _ => leaf(random),
    }
}

fn definition(random: &mut SplitMix) -> LrpDefinition {
    let check = Check::Tcp(TcpCheck { port: 8080, ..TcpCheck::default() });
    let checks = CheckDefinition {
        checks: vec![check.clone()],
        readiness_checks: if random.once_in(2) { vec![check] } else { Vec::new() },
        ..CheckDefinition::default()
    };
    LrpDefinition {
        setup: random.once_in(3).then(|| action(random, 1)),
        action: Some(action(random, 2)),
        monitor: random.once_in(3).then(|| action(random, 1)),
        check_definition: random.once_in(4).then_some(checks),
        sidecars: if random.once_in(5) {
            vec![Sidecar { action: Some(run("serve", &[])), ..Sidecar::default() }]
        } else {
            Vec::new()
        },
        start_timeout_ms: 3_000,
        memory_mb: 100,
        ..LrpDefinition::default()
    }
}

struct Play {
    random: SplitMix,
    agent: Agent,
    next: u32,
    tasks: BTreeSet<ContainerGuid>,
}

impl Play {
    fn step(&mut self) {
        let guids = self.agent.guids();
        let some = (!guids.is_empty()).then(|| self.random.one_of(&guids).clone());
        if self.random.once_in(6) {
            self.agent.dies_after = Some(self.random.below(6));
        }
        match (self.random.below(12), some) {
            (0..=2, _) => self.begin(),
            (3, Some(guid)) => drop(self.agent.call(ExecutorInput::Stop(guid))),
            (4, Some(guid)) => drop(self.agent.call(ExecutorInput::Delete(guid))),
            (5, Some(guid)) => self.agent.machine.kill(&guid),
            (6, Some(guid)) => self.agent.machine.end_process(&guid, "serve", 1),
            (7, _) => self.faults(),
            _ => {
                let by = Duration::from_millis(self.random.below(4_000) as u64);
                self.agent.advance(by);
            }
        }
        if self.agent.dies_after.is_some() && (self.agent.is_dead() || self.random.once_in(2)) {
            self.agent.restart();
        }
        self.agent.dies_after = None;
        for guid in &self.tasks {
            assert!(self.agent.machine.ever_started(guid) <= 1, "{guid} was started twice");
        }
    }

    fn begin(&mut self) {
        self.next += 1;
        let name = format!("c-{}", self.next);
        let (owner, work) = if self.random.once_in(3) {
            let path = *self.random.one_of(&["true", "false", "serve", "stubborn", "missing"]);
            let owner = task(&name);
            self.tasks.insert(owner.container());
            (owner, task_of(run(path, &[]), "/result"))
        } else {
            (instance(&name), Workload::Lrp(definition(&mut self.random).into()))
        };
        let guid = owner.container();
        let wanted = ReservationRequest { owner, resources: work.resources() };
        let _ = self.agent.call(ExecutorInput::Reserve(vec![wanted]));
        if !self.agent.is_dead() {
            let _ = self.agent.call(ExecutorInput::Run(guid, work));
        }
    }

    fn faults(&mut self) {
        let mut once = |times: usize| self.random.once_in(times);
        let faults = &mut self.agent.machine.faults;
        faults.making = Duration::from_millis(if once(2) { 0 } else { 900 });
        faults.not_made = once(4).then(|| "no".to_owned());
        faults.not_destroyed = once(4).then(|| "busy".to_owned());
        faults.transfer = Duration::from_millis(if once(2) { 0 } else { 2_500 });
        faults.check_failure = once(3).then(|| "refused".to_owned());
        faults.result = once(3).then(|| Err("none".to_owned()));
    }

    fn end(&mut self) {
        self.agent.machine.faults = crate::runtime::fake::Faults::default();
        for round in 0.. {
            let left = self.agent.guids();
            let held: Vec<_> = left.iter().map(|it| &self.agent.depot.held[it]).collect();
            let told = &self.agent.told[self.agent.told.len().saturating_sub(12)..];
            assert!(round < 5, "these do not go away: {held:#?}\n{told:#?}");
            for guid in self.agent.guids() {
                let _ = self.agent.call(ExecutorInput::Delete(guid));
            }
            self.agent.advance(Duration::from_secs(30));
            if self.agent.guids().is_empty() {
                break;
            }
        }
        assert_eq!(self.agent.machine.containers().count(), 0);
        assert_eq!(self.agent.depot.resources().remaining(), ROOM);
        assert!(self.agent.progress.is_empty() && self.agent.work.is_empty());
        assert_eq!(self.agent.depot.next_wake(), None, "a timer was left");
    }
}

#[test]
fn whatever_happens_nothing_is_left_and_no_task_starts_twice() {
    for seed in 0..SEEDS {
        let mut play =
            Play { random: SplitMix(seed), agent: Agent::new(), next: 0, tasks: BTreeSet::new() };
        let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                play.step();
            }
            play.end();
        }));
        assert!(played.is_ok(), "seed {seed}: the story above went wrong");
    }
}
