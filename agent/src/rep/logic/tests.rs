//! The rep on a stage: an executor that is a map of containers, a board that is a map of records, a
//! clock that is set by hand. What always holds is checked after every step.

mod alone;
mod board;
mod definitions;
mod evacuating;
mod intake;
mod lives;
mod machine;
mod outcome;
mod random;
mod tables;
mod telling;
mod trouble;

use std::collections::VecDeque;

use volvox_protocol::cell_rpc::{CellAnswer, RecordState, RetryLater};
use volvox_protocol::id::{Domain, ProcessGuid};
use volvox_protocol::request::{CellOrder, LrpStart, Requirements, TaskStart, WorkBatch};
use volvox_protocol::task::TaskState;

use self::board::Board;
use self::machine::Machine;
use self::outcome::subject;
use super::*;

const PASS: Duration = Duration::from_secs(30);

fn cell() -> CellId {
    CellId::new("cell").unwrap()
}

fn process() -> ProcessGuid {
    ProcessGuid::new("process").unwrap()
}

fn domain() -> Domain {
    Domain::new("domain").unwrap()
}

fn key(index: u32) -> LrpKey {
    let definition_id = Some((&process()).into());
    LrpKey { process_guid: process(), index, domain: domain(), definition_id }
}

fn on(cell_id: CellId, instance: &str) -> InstanceKey {
    InstanceKey { instance_guid: InstanceGuid::new(instance).unwrap(), cell_id }
}

fn ours() -> InstanceKey {
    on(cell(), "ours")
}

fn theirs() -> InstanceKey {
    on(CellId::new("other").unwrap(), "theirs")
}

fn guid(name: &str) -> ContainerGuid {
    ContainerGuid::from(InstanceGuid::new(name).unwrap())
}

fn owner(index: u32, instance: &str) -> Owner {
    Owner::Lrp { key: key(index), instance: InstanceGuid::new(instance).unwrap() }
}

fn task() -> TaskGuid {
    TaskGuid::new("task").unwrap()
}

fn task_owner() -> Owner {
    Owner::Task { guid: task(), domain: domain() }
}

fn needs(memory_mb: u32) -> Arc<Requirements> {
    let rootfs = "preloaded:linux".to_owned();
    Arc::new(Requirements { memory_mb, disk_mb: 10, rootfs, ..Requirements::default() })
}

fn settings() -> RepSettings {
    RepSettings::new(cell(), "zone")
}

/// A question on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ask {
    Report(SessionId, CellReport),
    Fetch(SessionId, FetchDefinitions),
    Sync(SessionId, SyncCell),
}

/// What becomes of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    Properly,
    /// It was done, and the answer was lost.
    DoneAndLost,
    /// It was not done, and nobody knows.
    Lost,
    NotDone,
    /// Every request is put off.
    Later,
}

struct Stage {
    rep: Rep,
    now: Timestamp,
    machine: Machine,
    board: Board,
    /// Questions that are not answered.
    asks: VecDeque<Ask>,
    /// Whether questions wait until a test answers them.
    holds: bool,
    /// How they are answered, if not.
    how: How,
    done: Vec<RepOutput>,
    /// What is on the disk.
    assigned: BTreeMap<InstanceGuid, Assigned>,
    answers: BTreeMap<u64, CellOrdersReply>,
    /// Whose record was read just now.
    fresh: BTreeSet<ContainerGuid>,
    /// What was ordered to be deleted.
    cancelled: BTreeSet<ContainerGuid>,
    messages: u64,
}

impl Stage {
    /// Nobody is there.
    fn new() -> Self {
        Stage::with(settings())
    }

    fn with(settings: RepSettings) -> Self {
        let now = Timestamp::from_secs(1_000);
        let mut stage = Stage {
            rep: Rep::new(now, settings, 1),
            now,
            machine: Machine::new(),
            board: Board::new(),
            asks: VecDeque::new(),
            holds: false,
            how: How::Properly,
            done: Vec::new(),
            assigned: BTreeMap::new(),
            answers: BTreeMap::new(),
            fresh: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            messages: 0,
        };
        stage.rep.apply(now, RepInput::Containers(Vec::new(), stage.machine.free()));
        stage
    }

    /// With a coordinator.
    fn connected() -> Self {
        let mut stage = Stage::new();
        stage.meet();
        stage.said();
        stage
    }

    /// An instance of index 0 that runs, as the board knows.
    fn running() -> (Self, ContainerGuid) {
        let mut stage = Stage::connected();
        stage.board.desire(0);
        stage.work(&[0]);
        let guid = stage.only();
        stage.machine.come_up(stage.now, &guid);
        stage.settle();
        stage.said();
        assert!(matches!(stage.board.state(0), Some(RecordState::Running(_))));
        (stage, guid)
    }

    /// An instance was run before: it is on the disk, with its definition.
    fn assign(&mut self, index: u32, instance: &str) {
        let instance = InstanceGuid::new(instance).unwrap();
        let definition = self.board.known();
        let it = Assigned { key: key(index), instance: instance.clone(), definition };
        self.assigned.insert(instance, it.clone());
        self.rep.apply(self.now, RepInput::Assigned(vec![it]));
    }

    /// The agent is started again: it finds what is on its disk, and the containers.
    fn restart(&mut self) {
        let settings = self.rep.settings.clone();
        self.rep = Rep::new(self.now, settings, self.rep.load_version + 1_000);
        self.asks.clear();
        self.fresh.clear();
        self.rep.apply(self.now, RepInput::Assigned(self.assigned.values().cloned().collect()));
        let all = self.machine.show_all();
        self.rep.apply(self.now, RepInput::Containers(all, self.machine.free()));
        self.settle();
    }

    fn meet(&mut self) {
        self.rep.apply(self.now, RepInput::CoordinatorPresent);
        self.settle();
    }

    fn lose(&mut self) {
        self.rep.apply(self.now, RepInput::CoordinatorMissing);
        self.settle();
    }

    fn order(&mut self, orders: Vec<CellOrder>) -> u64 {
        self.messages += 1;
        for order in &orders {
            if let CellOrder::CancelTask(task) = order {
                self.cancelled.insert(ContainerGuid::from(task));
            }
        }
        let orders = CellOrders { orders };
        self.rep.apply(self.now, RepInput::Orders(self.messages, orders, self.messages));
        self.settle();
        self.messages
    }

    fn work(&mut self, indices: &[u32]) -> u64 {
        let lrps = vec![LrpStart {
            process_guid: process(),
            definition_id: (&process()).into(),
            domain: domain(),
            indices: indices.to_vec(),
            requirements: needs(10),
        }];
        let number = self.messages + 1;
        self.order(vec![CellOrder::Work(WorkBatch { number, lrps, tasks: vec![] })])
    }

    fn work_task(&mut self, task_guid: &TaskGuid) -> u64 {
        let start =
            TaskStart { task_guid: task_guid.clone(), domain: domain(), requirements: needs(10) };
        let number = self.messages + 1;
        let batch = WorkBatch { number, lrps: vec![], tasks: vec![start] };
        self.order(vec![CellOrder::Work(batch)])
    }

    /// A task that runs, as the board knows.
    fn running_task() -> (Self, ContainerGuid) {
        let mut stage = Stage::connected();
        stage.board.put_task(&task(), TaskState::Pending, None);
        stage.work_task(&task());
        let guid = ContainerGuid::from(&task());
        stage.machine.come_up(stage.now, &guid);
        stage.settle();
        stage.said();
        assert_eq!(stage.board.tasks[&task()].state, TaskState::Running);
        (stage, guid)
    }

    // What follows.

    /// Until nothing more follows by itself.
    fn settle(&mut self) {
        for _ in 0..1_000 {
            let moved = self.step();
            match self.asks.front().cloned().filter(|_| !self.holds) {
                Some(ask) => self.answer(&ask, self.how),
                None if !moved => return,
                None => {}
            }
        }
        panic!("it never comes to rest: {:#?}", self.done.iter().rev().take(8).collect::<Vec<_>>());
    }

    /// Lets time pass.
    fn wait(&mut self, by: Duration) {
        let end = self.now + by;
        self.settle();
        while self.rep.next_wake() < end {
            self.now = self.rep.next_wake();
            self.settle();
        }
        self.now = end;
        self.settle();
    }

    fn look(&mut self) -> bool {
        let shown = self.machine.show();
        if shown.is_empty() {
            return false;
        }
        self.rep.apply(self.now, RepInput::Containers(shown, self.machine.free()));
        true
    }

    fn step(&mut self) -> bool {
        let looked = self.look();
        let effects = self.rep.poll_outputs(self.now);
        let moved = looked || !effects.is_empty();
        for effect in effects {
            self.perform(effect);
        }
        self.fresh.clear();
        if !moved {
            self.check();
        }
        moved
    }

    fn perform(&mut self, effect: RepOutput) {
        self.done.push(effect.clone());
        let now = self.now;
        match effect {
            RepOutput::Assign(it) => drop(self.assigned.insert(it.instance.clone(), it)),
            RepOutput::Unassign(instance) => drop(self.assigned.remove(&instance)),
            RepOutput::Reserve(batch, wanted) => {
                let refused = self.machine.reserve(now, wanted);
                self.look();
                self.rep.apply(now, RepInput::Reserved(batch, refused));
            }
            RepOutput::Run(guid, work) => {
                let written = self.assigned.keys().any(|it| it.as_str() == guid.as_str());
                assert!(
                    written || matches!(work, Workload::Task(_)),
                    "run before it was written down"
                );
                if let Err(reason) = self.machine.run(now, &guid) {
                    assert!(self.machine.refuses_to_run, "{guid} was run twice: {reason}");
                    self.rep.apply(now, RepInput::NotRun(guid, reason));
                }
            }
            RepOutput::Stop(guid) if self.machine.has_no_time => {
                self.rep.apply(now, RepInput::NotStopped(guid));
            }
            RepOutput::Stop(guid) => self.machine.stop(now, &guid),
            RepOutput::Delete(guid) => {
                self.may_delete(&guid);
                if self.machine.delete(now, &guid).is_err() {
                    self.rep.apply(now, RepInput::NotDeleted(guid));
                }
            }
            RepOutput::Answer(message, reply) => {
                assert!(self.answers.insert(message, reply).is_none(), "answered twice");
            }
            RepOutput::Report(contact, report) => {
                assert!(
                    !self.asks.iter().any(|it| matches!(it, Ask::Report(of, _) if *of == contact))
                );
                self.asks.push_back(Ask::Report(contact, report));
            }
            RepOutput::Fetch(contact, asked) => self.asks.push_back(Ask::Fetch(contact, asked)),
            RepOutput::Sync(contact, asked) => self.asks.push_back(Ask::Sync(contact, asked)),
            RepOutput::PublishLoad(_)
            | RepOutput::Inconceivable(..)
            | RepOutput::Note(..)
            | RepOutput::Evacuated => {}
        }
    }

    /// What starts or runs goes only right after its record was read, or by an order. The board's
    /// answers are the orders of an evacuation.
    fn may_delete(&self, guid: &ContainerGuid) {
        let lives = !matches!(
            self.machine.state(guid),
            None | Some(ContainerState::Reserved | ContainerState::Completed)
        );
        let told = self.fresh.contains(guid)
            || self.cancelled.contains(guid)
            || self.rep.evacuation.is_some();
        assert!(!lives || told, "{guid} lives, and its record was not read");
    }

    fn check(&self) {
        let items = self.rep.entries.values().map(TrackedContainer::item);
        assert_eq!(self.rep.digest, items.collect::<Digest>());
        assert!(self.rep.next_wake() > self.now, "it would turn round and round");
        if let Some(load) = self.rep.load() {
            assert_eq!(load.digest, self.rep.digest.number());
        }
        for ask in &self.asks {
            let Ask::Report(_, report) = ask else { continue };
            let mut names = BTreeSet::new();
            let twice = report.requests.iter().find(|it| !names.insert(subject(it)));
            assert!(self.rep.evacuation.is_some() || twice.is_none(), "two at a time: {twice:?}");
        }
    }

    /// Answers the question that waits.
    fn answer_next(&mut self, how: How) -> Ask {
        let ask = self.asks.front().cloned().expect("somebody asked");
        self.answer(&ask, how);
        self.step();
        ask
    }

    fn answer(&mut self, ask: &Ask, how: How) {
        let at = self.asks.iter().position(|it| it == ask).expect("it was asked");
        self.asks.remove(at);
        let failed = match how {
            How::Properly | How::Later => None,
            How::DoneAndLost | How::Lost => Some(AskFailure::Unknown),
            How::NotDone => Some(AskFailure::NotDone),
        };
        let is_done = matches!(how, How::Properly | How::DoneAndLost);
        let input = match ask.clone() {
            Ask::Report(contact, report) => {
                let later = CellAnswer::Later(RetryLater::Busy);
                let mut reply = CellReportReply {
                    answers: vec![later; report.requests.len()],
                    ..CellReportReply::default()
                };
                if is_done {
                    reply = self.board.report(report);
                }
                RepInput::Reported(contact, failed.map_or(Ok(reply), Err))
            }
            Ask::Fetch(contact, asked) => {
                let reply = self.board.fetch(asked);
                RepInput::Fetched(contact, failed.map_or(Ok(reply), Err))
            }
            Ask::Sync(contact, asked) => {
                let reply = vec![self.board.sync(&asked)];
                if failed.is_none() && contact == self.rep.contact {
                    self.fresh.extend(asked.lrps.iter().map(|it| guid(it.instance_guid.as_str())));
                    self.fresh.extend(asked.tasks.iter().map(|it| (&it.task_guid).into()));
                }
                RepInput::Synced(contact, failed.map_or(Ok(reply), Err))
            }
        };
        self.rep.apply(self.now, input);
    }
}
