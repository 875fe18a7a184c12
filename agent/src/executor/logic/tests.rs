//! The depot on a machine in memory: lives of containers, restarts at any point, and at random.

mod golden;
mod random;

use crate::container::runtime::RecoveredState;
use std::sync::Arc;

use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::id::{Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::task::TaskDefinition;

use super::*;
use crate::executor::resources::ContainerResources;
use crate::runtime::fake::FakeMachine;

const ROOM: CellCapacity = CellCapacity { memory_mb: 1_000, disk_mb: 1_000, containers: 10 };

/// An agent on a machine. What is written down is what a restart reads.
pub(super) struct Agent {
    depot: Executor,
    pub(super) machine: FakeMachine,
    now: Timestamp,
    progress: BTreeMap<ContainerGuid, String>,
    work: BTreeMap<ContainerGuid, String>,
    pub(super) told: Vec<ExecutorOutput>,
    /// Effects that are still performed before the agent dies.
    pub(super) dies_after: Option<usize>,
}

impl Agent {
    pub(super) fn new() -> Self {
        let now = Timestamp::from_secs(100);
        let mut machine = FakeMachine::default();
        assert!(machine.advance(now).is_empty());
        Agent {
            depot: Executor::new(settings()),
            machine,
            now,
            progress: BTreeMap::new(),
            work: BTreeMap::new(),
            told: Vec::new(),
            dies_after: None,
        }
    }

    fn call(&mut self, input: ExecutorInput) -> Result<(), ExecutorRefusal> {
        let before = self.depot.clone();
        match self.depot.apply(self.now, input) {
            Ok(effects) => {
                assert_eq!(container_store::check(&self.depot.registry), Vec::<String>::new());
                self.perform(effects);
                Ok(())
            }
            Err(refusal) => {
                assert_eq!(self.depot, before, "a refusal left a trace");
                Err(refusal)
            }
        }
    }

    fn perform(&mut self, effects: Vec<ExecutorOutput>) {
        for effect in effects {
            if let Some(left) = &mut self.dies_after {
                let Some(less) = left.checked_sub(1) else { return };
                *left = less;
            }
            match &effect {
                ExecutorOutput::Keep(guid) => {
                    let progress = self.depot.progress(guid).expect("what is kept is there");
                    let text = serde_json::to_string(&progress).unwrap();
                    self.progress.insert(guid.clone(), text);
                }
                ExecutorOutput::KeepWork(guid, work) => {
                    self.work.insert(guid.clone(), serde_json::to_string(work).unwrap());
                }
                ExecutorOutput::Do(guid, deed) => self.machine.perform(guid, deed.clone()),
                ExecutorOutput::Forget(guid, _) => {
                    self.progress.remove(guid);
                    self.work.remove(guid);
                }
                ExecutorOutput::Emit(_)
                | ExecutorOutput::RefuseReservation(..)
                | ExecutorOutput::DeleteFailed(..) => {}
            }
            self.told.push(effect);
        }
    }

    /// The agent dies and is started again. The machine goes on.
    pub(super) fn restart(&mut self) {
        self.dies_after = None;
        self.machine.forget_agent();
        // What ends while nobody listens leaves its exit behind.
        drop(self.machine.advance(self.now));
        let known = self.progress.keys().cloned().collect();
        self.machine.retain(&known);
        let found = self.progress.iter().map(|(guid, text)| RecoveredContainer {
            saved: serde_json::from_str(text).unwrap(),
            work: self.work.get(guid).map(|text| serde_json::from_str(text).unwrap()),
            standing: self
                .machine
                .standing(guid)
                .unwrap_or(RecoveredState::Dead { exited: BTreeMap::new() }),
        });
        let (depot, effects) = Executor::restore(self.now, settings(), found.collect());
        self.depot = depot;
        assert_eq!(container_store::check(&self.depot.registry), Vec::<String>::new());
        self.perform(effects);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dies_after == Some(0)
    }

    /// Lets everything happen that is due by then. False when the agent died on the way.
    pub(super) fn advance(&mut self, by: Duration) -> bool {
        let end = self.now + by;
        loop {
            let due = self.machine.next_due().into_iter().chain(self.depot.next_wake()).min();
            self.now = due.map_or(end, |due| due.max(self.now).min(end));
            for (guid, outcome) in self.machine.advance(self.now) {
                // What comes too late is refused, and that is all.
                let _ = self.call(ExecutorInput::Outcome(guid, outcome));
                if self.is_dead() {
                    return false;
                }
            }
            if self.depot.next_wake().is_some_and(|at| at <= self.now) {
                self.call(ExecutorInput::Wake).expect("time is never refused");
                if self.is_dead() {
                    return false;
                }
            }
            let due = self.machine.next_due().into_iter().chain(self.depot.next_wake()).min();
            if self.now >= end && due.is_none_or(|due| due > end) {
                return true;
            }
        }
    }

    fn settle(&mut self) {
        assert!(self.advance(Duration::ZERO));
    }

    fn state(&self, guid: &ContainerGuid) -> Option<ContainerState> {
        self.depot.container(guid).map(|it| it.container.state)
    }

    fn result(&self, guid: &ContainerGuid) -> RunResult {
        self.depot.container(guid).expect("it is there").container.result
    }

    pub(super) fn guids(&self) -> Vec<ContainerGuid> {
        self.depot.held.keys().cloned().collect()
    }

    fn start(&mut self, owner: &Owner, work: &Workload) -> ContainerGuid {
        let wanted = ReservationRequest { owner: owner.clone(), resources: work.resources() };
        self.call(ExecutorInput::Reserve(vec![wanted])).unwrap();
        let guid = owner.container();
        self.call(ExecutorInput::Run(guid.clone(), work.clone())).unwrap();
        guid
    }
}

fn settings() -> ExecutorSettings {
    ExecutorSettings::new(CellId::new("cell").unwrap(), ROOM)
}

pub(super) fn instance(name: &str) -> Owner {
    let key = LrpKey {
        process_guid: ProcessGuid::new("process").unwrap(),
        index: 3,
        domain: Domain::new("domain").unwrap(),
        definition_id: None,
    };
    Owner::Lrp { key, instance: InstanceGuid::new(name).unwrap() }
}

pub(super) fn task(name: &str) -> Owner {
    Owner::Task { guid: TaskGuid::new(name).unwrap(), domain: Domain::new("domain").unwrap() }
}

pub(super) fn run(path: &str, args: &[&str]) -> Action {
    let args = args.iter().map(|it| (*it).to_owned()).collect();
    Action::Run(Box::new(RunAction { path: path.into(), args, ..RunAction::default() }))
}

fn lrp(action: Action) -> Workload {
    Workload::Lrp(Arc::new(LrpDefinition {
        action: Some(action),
        memory_mb: 10,
        ports: vec![8080],
        ..LrpDefinition::default()
    }))
}

fn task_of(action: Action, result_file: &str) -> Workload {
    let result_file = result_file.to_owned();
    Workload::Task(Arc::new(TaskDefinition {
        action: Some(action),
        result_file,
        ..TaskDefinition::default()
    }))
}

#[test]
fn an_instance_runs_until_it_is_stopped_and_leaves_nothing() {
    let mut agent = Agent::new();
    let guid = agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    assert_eq!(agent.state(&guid), Some(ContainerState::Initializing));
    agent.settle();
    assert_eq!(agent.state(&guid), Some(ContainerState::Running));
    assert_eq!(agent.machine.processes(&guid), ["serve"]);
    let view = agent.depot.container(&guid).unwrap();
    assert_eq!(view.network.unwrap().ports[0].container_port, 8080);
    assert!(view.container.routable);
    agent.call(ExecutorInput::Stop(guid.clone())).unwrap();
    agent.settle();
    assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
    assert!(agent.result(&guid).stopped && !agent.result(&guid).failed);
    assert_eq!(
        agent.machine.log(&guid),
        [
            "Cell cell creating container for instance i-1",
            "Cell cell successfully created container for instance i-1",
            "Cell cell stopping instance i-1",
            "Exit status 143",
        ]
    );
    agent.call(ExecutorInput::Delete(guid.clone())).unwrap();
    agent.settle();
    assert_eq!(agent.state(&guid), None);
    assert_eq!(agent.machine.containers().count(), 0);
    assert_eq!(agent.depot.resources().remaining(), ROOM);
    assert!(agent.progress.is_empty() && agent.work.is_empty());
}

#[test]
fn the_environment_of_a_process_tells_who_and_where_it_is() {
    let mut agent = Agent::new();
    agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    agent.settle();
    let spawned = agent.told.iter().find_map(|effect| {
        let ExecutorOutput::Do(_, ContainerOp::Spawn(order)) = effect else { return None };
        Some(order.env.clone())
    });
    let env = spawned.unwrap();
    let value = |name: &str| {
        env.iter().filter_map(|it| it.split_once('=')).find(|it| it.0 == name).map(|it| it.1)
    };
    assert_eq!(value("INSTANCE_GUID"), Some("i-1"));
    assert_eq!(value("CF_INSTANCE_INDEX"), Some("3"));
    assert_eq!(value("CF_INSTANCE_ADDR"), Some("192.0.2.1:60000"));
    assert_eq!(value("CF_INSTANCE_INTERNAL_IP"), Some("10.0.0.2"));
}

#[test]
fn a_crash_is_a_failure_with_its_reason() {
    let mut agent = Agent::new();
    let guid = agent.start(&instance("i-1"), &lrp(run("crash", &["5000", "42"])));
    agent.advance(Duration::from_secs(4));
    assert_eq!(agent.state(&guid), Some(ContainerState::Running));
    agent.advance(Duration::from_secs(2));
    assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
    let result = agent.result(&guid);
    assert!(result.failed && !result.stopped && !result.retryable);
    assert_eq!(result.failure_reason, "LOG: Exited with status 42");
}

#[test]
fn what_cannot_be_made_may_be_tried_again() {
    let mut agent = Agent::new();
    agent.machine.faults.not_made = Some("failed to create container: no".to_owned());
    let guid = agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    agent.settle();
    assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
    assert!(agent.result(&guid).retryable);
    assert_eq!(agent.result(&guid).failure_reason, "failed to create container: no");
    agent.call(ExecutorInput::Delete(guid.clone())).unwrap();
    agent.settle();
    assert_eq!(agent.state(&guid), None);
}

#[test]
fn a_task_gives_its_result_or_why_there_is_none() {
    for (read, failed, text, reason) in [
        (Ok("42".to_owned()), false, "42", ""),
        (Err("no such file".to_owned()), true, "", "no such file"),
    ] {
        let mut agent = Agent::new();
        agent.machine.faults.result = Some(read);
        let guid = agent.start(&task("t"), &task_of(run("true", &[]), "/result"));
        agent.settle();
        assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
        let view = agent.depot.container(&guid).unwrap();
        assert_eq!(view.task_result, text);
        assert_eq!(view.container.result.failed, failed);
        assert_eq!(view.container.result.failure_reason, reason);
    }
    let mut agent = Agent::new();
    let guid = agent.start(&task("t"), &task_of(run("false", &[]), "/result"));
    agent.settle();
    assert!(agent.result(&guid).failed);
    let read = |effect: &ExecutorOutput| {
        matches!(effect, ExecutorOutput::Do(_, ContainerOp::ReadResult(_)))
    };
    assert!(!agent.told.iter().any(read), "a task that failed has no result");
}

#[test]
fn delete_in_any_state_ends_with_nothing() {
    // While it is reserved, being made, made and downloading, running, stubborn, completed.
    let fetch = Action::Download(Box::default());
    let works = [run("serve", &[]), run("stubborn", &[]), run("true", &[]), fetch];
    for (nth, action) in works.into_iter().enumerate() {
        for wait in [0, 500, 1_500, 5_000] {
            let mut agent = Agent::new();
            agent.machine.faults.making = Duration::from_secs(1);
            agent.machine.faults.transfer = Duration::from_secs(60);
            let guid = agent.start(&instance("i-1"), &lrp(action.clone()));
            agent.advance(Duration::from_millis(wait));
            agent.call(ExecutorInput::Delete(guid.clone())).unwrap();
            agent.call(ExecutorInput::Delete(guid.clone())).unwrap();
            agent.advance(Duration::from_secs(15));
            assert_eq!(agent.state(&guid), None, "work {nth} after {wait} ms");
            assert_eq!(agent.machine.containers().count(), 0);
            let destroyed =
                |it: &&ExecutorOutput| matches!(it, ExecutorOutput::Do(_, ContainerOp::Destroy));
            assert_eq!(agent.told.iter().filter(destroyed).count(), 1);
        }
    }
}

#[test]
fn a_container_that_cannot_be_taken_away_is_told_of_and_tried_again() {
    let mut agent = Agent::new();
    agent.machine.faults.not_destroyed = Some("busy".to_owned());
    let guid = agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    agent.settle();
    agent.call(ExecutorInput::Delete(guid.clone())).unwrap();
    agent.settle();
    assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
    assert!(agent.told.contains(&ExecutorOutput::DeleteFailed(guid.clone(), "busy".to_owned())));
    agent.machine.faults.not_destroyed = None;
    agent.call(ExecutorInput::Delete(guid.clone())).unwrap();
    agent.settle();
    assert_eq!(agent.state(&guid), None);
}

#[test]
fn a_container_that_dies_as_a_whole_has_failed() {
    let download = Action::Download(Box::default());
    for action in [run("serve", &[]), run("stubborn", &[]), download] {
        let mut agent = Agent::new();
        agent.machine.faults.transfer = Duration::from_secs(60);
        let guid = agent.start(&instance("i-1"), &lrp(action));
        agent.settle();
        agent.machine.kill(&guid);
        agent.settle();
        assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
        assert_eq!(agent.result(&guid).failure_reason, "missing container: what held it has died");
        agent.call(ExecutorInput::Delete(guid.clone())).unwrap();
        agent.settle();
        assert_eq!(agent.state(&guid), None);
    }
}

#[test]
fn a_container_whose_shim_hangs_goes_on_afterwards_or_has_failed() {
    let mut agent = Agent::new();
    let brief = agent.start(&instance("i-1"), &lrp(run("crash", &["5000", "7"])));
    let [quiet, stopped] =
        ["i-2", "i-3"].map(|name| agent.start(&instance(name), &lrp(run("serve", &[]))));
    agent.settle();
    agent.machine.hang(&brief, Duration::from_secs(15));
    agent.machine.hang(&quiet, Duration::MAX);
    agent.machine.hang(&stopped, Duration::MAX);
    agent.call(ExecutorInput::Stop(stopped.clone())).unwrap();
    agent.advance(Duration::from_secs(10));
    assert_eq!(agent.state(&brief), Some(ContainerState::Running), "nobody has heard of its end");
    agent.advance(Duration::from_secs(6));
    assert_eq!(agent.result(&brief).failure_reason, "LOG: Exited with status 7");
    // Twice it is waited for an answer: to what was asked, or to how it is.
    agent.advance(Duration::from_secs(40));
    assert_eq!(agent.state(&stopped), Some(ContainerState::Completed));
    assert_eq!(agent.state(&quiet), Some(ContainerState::Running));
    agent.advance(Duration::from_secs(20));
    assert_eq!(agent.state(&quiet), Some(ContainerState::Completed));
    assert!(agent.result(&quiet).failure_reason.starts_with("missing container"));
    for guid in [brief, quiet, stopped] {
        agent.call(ExecutorInput::Delete(guid)).unwrap();
    }
    agent.settle();
    assert_eq!(agent.machine.containers().count(), 0);
}

#[test]
fn a_container_whose_shim_is_slow_is_waited_for_but_not_for_ever() {
    let mut agent = Agent::new();
    let [brief, endless, found, lost] = ["i-1", "i-2", "i-3", "i-4"]
        .map(|name| agent.start(&instance(name), &lrp(run("serve", &[]))));
    agent.settle();
    agent.machine.stall(&brief, Duration::from_secs(200));
    agent.machine.stall(&endless, Duration::MAX);
    agent.advance(Duration::from_secs(201));
    for guid in [&brief, &endless] {
        assert_eq!(agent.state(guid), Some(ContainerState::Running));
    }
    // Noticed after 50 s, and asked for five minutes.
    agent.advance(Duration::from_secs(148));
    assert_eq!(agent.state(&endless), Some(ContainerState::Running));
    agent.advance(Duration::from_secs(2));
    assert!(agent.result(&endless).failure_reason.starts_with("missing container"));
    agent.call(ExecutorInput::Stop(brief.clone())).unwrap();
    agent.settle();
    assert!(agent.result(&brief).stopped, "it can be stopped as ever");
    // An agent that starts has less patience.
    agent.machine.stall(&found, Duration::from_secs(60));
    agent.machine.stall(&lost, Duration::from_secs(61));
    agent.restart();
    agent.settle();
    assert_eq!(agent.state(&found), Some(ContainerState::Running));
    assert!(agent.result(&lost).failure_reason.starts_with("missing container"));
}

/// A shim writes an end down before it tells of it, and its disk may stall.
#[test]
fn an_exit_that_is_told_after_the_kill_is_in_the_log() {
    let mut agent = Agent::new();
    let guid = agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    agent.settle();
    agent.call(ExecutorInput::Stop(guid.clone())).unwrap();
    agent.machine.hang(&guid, Duration::from_secs(15));
    agent.advance(Duration::from_secs(12));
    assert_eq!(agent.state(&guid), Some(ContainerState::Running), "nobody has heard of its end");
    agent.advance(Duration::from_secs(4));
    assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
    assert!(agent.result(&guid).stopped && !agent.result(&guid).failed);
    assert_eq!(agent.machine.log(&guid).last(), Some(&"Exit status 143"));
}

#[test]
fn an_exit_that_a_shim_wrote_down_before_it_died_counts() {
    let mut agent = Agent::new();
    let guid = agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    agent.settle();
    agent.machine.kill_untold(&guid, "serve", 9);
    agent.settle();
    assert_eq!(agent.result(&guid).failure_reason, "LOG: Exited with status 9");
    // The same while nobody listens.
    let other = agent.start(&instance("i-2"), &lrp(run("serve", &[])));
    agent.settle();
    agent.machine.kill_untold(&other, "serve", 9);
    agent.restart();
    agent.settle();
    assert_eq!(agent.result(&other).failure_reason, "LOG: Exited with status 9");
}

#[test]
fn a_restart_loses_nothing_and_starts_nothing_twice() {
    let mut agent = Agent::new();
    let serving = agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    let ending = agent.start(&instance("i-2"), &lrp(run("crash", &["5000", "7"])));
    let dying = agent.start(&instance("i-3"), &lrp(run("serve", &[])));
    let task = agent.start(&task("t"), &task_of(run("sleep", &["8000"]), "/result"));
    agent.settle();
    // While nobody listens one process ends and one container dies.
    agent.machine.forget_agent();
    agent.now = agent.now + Duration::from_secs(6);
    agent.machine.kill(&dying);
    agent.restart();
    agent.settle();
    assert_eq!(agent.state(&serving), Some(ContainerState::Running));
    assert_eq!(agent.machine.ever_started(&serving), 1);
    assert_eq!(agent.result(&ending).failure_reason, "LOG: Exited with status 7");
    assert!(agent.result(&dying).failure_reason.starts_with("missing container"));
    agent.advance(Duration::from_secs(3));
    assert_eq!(agent.state(&task), Some(ContainerState::Completed));
    assert_eq!(agent.machine.ever_started(&task), 1);
    assert_eq!(agent.depot.container(&task).unwrap().task_result, "result");
}

#[test]
fn a_machine_that_moved_tells_its_new_address_of_what_runs() {
    let mut agent = Agent::new();
    let guid = agent.start(&instance("i-1"), &lrp(run("serve", &[])));
    agent.settle();
    let text = agent.progress[&guid].clone();
    let restored = RecoveredContainer {
        saved: serde_json::from_str(&text).unwrap(),
        work: None,
        standing: agent.machine.standing(&guid).unwrap(),
    };
    let address = std::net::IpAddr::from([192, 0, 2, 77]);
    let moved = ExecutorSettings { host_address: Some(address), ..settings() };
    let (depot, _) = Executor::restore(agent.now, moved, vec![restored]);
    let network = depot.container(&guid).unwrap().network.unwrap();
    assert_eq!(network.external_address, address);
    assert_eq!(network.ports[0].container_port, 8080);
}

#[test]
fn a_restart_while_it_is_made_lets_it_be_tried_again() {
    let mut agent = Agent::new();
    agent.machine.faults.making = Duration::from_secs(5);
    let guid = agent.start(&task("t"), &task_of(run("true", &[]), ""));
    agent.advance(Duration::from_secs(1));
    agent.restart();
    agent.advance(Duration::from_secs(10));
    assert_eq!(agent.state(&guid), Some(ContainerState::Completed));
    assert!(agent.result(&guid).retryable);
    assert_eq!(agent.machine.ever_started(&guid), 0);
}

#[test]
fn reservations_count_expire_and_are_refused_one_by_one() {
    let mut agent = Agent::new();
    let wanted = |name: &str, memory_mb| ReservationRequest {
        owner: instance(name),
        resources: ContainerResources { memory_mb, disk_mb: 0 },
    };
    let all = vec![wanted("a", 600), wanted("b", 600), wanted("a", 1), wanted("c", 400)];
    agent.call(ExecutorInput::Reserve(all)).unwrap();
    let guids: Vec<String> = agent.guids().iter().map(ToString::to_string).collect();
    assert_eq!(guids, ["a", "c"]);
    let refused = |it: &&ExecutorOutput| matches!(it, ExecutorOutput::RefuseReservation(..));
    assert_eq!(agent.told.iter().filter(refused).count(), 2);
    agent.restart();
    assert_eq!(agent.guids().len(), 2, "reservations are remembered");
    agent.advance(Duration::from_secs(61));
    assert_eq!(agent.guids().len(), 0);
    assert_eq!(agent.depot.resources().remaining(), ROOM);
}
