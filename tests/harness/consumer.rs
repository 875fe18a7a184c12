//! Somebody who desires, scales, updates, cancels, rolls back and deletes at random, and remembers what
//! it was told: what was acknowledged must be so in the end.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use volvox_coordinator::bbs::command::CallError;
use volvox_coordinator::bbs::command::{Command, Reply, TaskRef};
use volvox_coordinator::bbs::store::StoreError;
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::deployment::RolloutPause;
use volvox_protocol::id::{DefinitionId, Domain, ProcessGuid, TaskGuid};
use volvox_protocol::random::SplitMix;
use volvox_protocol::task::TaskState;
use volvox_protocol::validate::Valid;

use super::center::Ticket;
use super::plan::Plan;
use super::world::{Event, For, World};

/// How long a domain is fresh when the consumer has said so.
pub(super) const FRESH: Duration = Duration::from_secs(15);
const FRESHEN_EVERY: Duration = Duration::from_secs(5);
const DOMAINS: [&str; 2] = ["apps", "jobs"];
/// How the names begin of definitions that can run, and of those that cannot.
const GOOD: &str = "good";
const BAD: &str = "bad";
/// After the database was lost the consumer needs some time before it vouches for anything.
const AFTER_LOSS: Duration = Duration::from_secs(25);

/// What is known of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Known {
    /// It was acknowledged that it has so many instances.
    Has(u32),
    /// It was acknowledged that it is gone.
    Gone,
    /// A wish was not answered: who knows.
    Unsure,
}

#[derive(Debug, Clone)]
struct Wish {
    process: ProcessGuid,
    then: Option<Known>,
}

/// The consumer.
#[derive(Debug)]
pub(super) struct Consumer {
    random: SplitMix,
    pub(super) known: BTreeMap<ProcessGuid, Known>,
    definitions: BTreeMap<ProcessGuid, Vec<DefinitionId>>,
    waiting: BTreeMap<u64, Wish>,
    next: u64,
    tasks: u64,
    silent_until: volvox_protocol::time::Timestamp,
}

impl Consumer {
    pub(super) fn new(plan: &Plan) -> Consumer {
        Consumer {
            random: SplitMix(plan.seed ^ 0x636f_6e73),
            known: BTreeMap::new(),
            definitions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            next: 0,
            tasks: 0,
            silent_until: volvox_protocol::time::Timestamp::ZERO,
        }
    }

    /// The coordinator has died: what it was asked is in doubt.
    pub(super) fn unanswered(&mut self) {
        for wish in std::mem::take(&mut self.waiting).into_values() {
            if wish.then.is_some() {
                self.known.insert(wish.process, Known::Unsure);
            }
        }
    }

    /// All that was asked for is lost.
    pub(super) fn forget(&mut self) {
        self.unanswered();
        self.known.clear();
        self.definitions.clear();
    }

    fn some_process(&mut self) -> Option<ProcessGuid> {
        let all: Vec<&ProcessGuid> = self.known.keys().collect();
        if all.is_empty() {
            return None;
        }
        Some((*self.random.one_of(&all)).clone())
    }

    fn new_id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn domain(&mut self) -> Domain {
        let domain = DOMAINS[self.random.below(DOMAINS.len())];
        Domain::new(domain).expect("a name of plain letters")
    }

    /// A definition: mostly one that runs, sometimes one that does not. And which of the two.
    fn definition(&mut self) -> (Value, &'static str) {
        let (path, args) = match self.random.below(12) {
            0 => ("crash", vec![(self.random.next() % 20_000).to_string(), "1".to_owned()]),
            1 => ("missing", vec![]),
            2 => ("stubborn", vec![]),
            3 => ("exit", vec!["3".to_owned()]),
            _ => ("server", vec![]),
        };
        let memory = *self.random.one_of(&[32, 64, 128, 256]);
        let mut definition = definition(path, &args, memory);
        let mut kind = if matches!(path, "server" | "stubborn") { GOOD } else { BAD };
        if self.random.once_in(2) {
            // Somebody may be talking to it.
            definition["ports"] = json!([8_080]);
        }
        match self.random.below(9) {
            0 => {
                definition["monitor"] = run("true", &[]);
                definition["start_timeout_ms"] = json!(5_000);
            }
            1 => {
                let passes = !self.random.once_in(3);
                definition["monitor"] = run(if passes { "true" } else { "false" }, &[]);
                definition["start_timeout_ms"] = json!(4_000);
                kind = if passes { kind } else { BAD };
            }
            2 => {
                let span = 500 + self.random.next() % 8_000;
                definition["setup"] = run("sleep", &[span.to_string()]);
            }
            3 => {
                // A monitor that hangs: nothing ever comes of it.
                definition["monitor"] = run("server", &[]);
                definition["start_timeout_ms"] = json!(3_000);
                kind = BAD;
            }
            4 => {
                let check = json!({"tcp_check": {"port": 8_080, "interval_ms": 2_000}});
                definition["ports"] = json!([8_080]);
                definition["check_definition"] = json!({
                    "checks": [check], "readiness_checks": [check], "log_source": "HEALTH",
                });
                definition["start_timeout_ms"] = json!(5_000);
            }
            _ => {}
        }
        (definition, kind)
    }
}

fn run(path: &str, args: &[String]) -> Value {
    json!({"run": {"path": path, "args": args, "user": "nobody"}})
}

fn definition(path: &str, args: &[String], memory_mb: u32) -> Value {
    json!({
        "rootfs": "host:", "memory_mb": memory_mb, "disk_mb": 16,
        "action": run(path, args),
    })
}

impl World {
    /// One wish, then the next.
    pub(super) fn wish(&mut self) {
        if self.calm {
            return;
        }
        for _ in 0..8 {
            if self.wish_something() {
                break;
            }
        }
        let every = u64::try_from(self.plan.wish_every.as_millis()).unwrap_or(1);
        let after = every / 2 + self.consumer.random.next() % (every + 1);
        let at = self.now() + Duration::from_millis(after);
        self.plan(at, For::World, Event::Wish);
    }

    fn wish_something(&mut self) -> bool {
        let roll = self.consumer.random.below(20);
        if roll < 3 {
            return self.desire();
        }
        if roll < 6 {
            return self.desire_task();
        }
        let Some(process) = self.consumer.some_process() else { return self.desire() };
        let definitions = self.consumer.definitions.get(&process).cloned().unwrap_or_default();
        let (command, then) = match roll {
            6..=9 => {
                let instances = u32::try_from(self.consumer.random.below(self.plan.instances + 1));
                let instances = instances.unwrap_or(1);
                let update = json!({"instances": instances});
                let Some(update) = valid(update) else { return false };
                let then = Some(Known::Has(instances));
                (Command::UpdateDesiredLrp(process.clone(), update), then)
            }
            10..=12 => return self.update(&process),
            13 => (Command::CancelUpdate(process.clone()), None),
            14 if !definitions.is_empty() => {
                let to = self.consumer.random.one_of(&definitions).clone();
                match self.consumer.random.below(2) {
                    0 => (Command::Rollback(process.clone(), to), None),
                    _ => (Command::ActivateDefinition(process.clone(), to), None),
                }
            }
            15 => (Command::PauseUpdate(process.clone()), None),
            16 => match self.consumer.random.below(2) {
                0 => (Command::ResumeUpdate(process.clone()), None),
                _ => (Command::PromoteUpdate(process.clone()), None),
            },
            17 => {
                let index = u32::try_from(self.consumer.random.below(self.plan.instances));
                let key = LrpKey {
                    process_guid: process.clone(),
                    index: index.unwrap_or(0),
                    domain: Domain::new(DOMAINS[0]).expect("a name of plain letters"),
                    definition_id: None,
                };
                (Command::RetireLrp(key), None)
            }
            18 => {
                let number = self.consumer.next.to_string();
                let change = match self.consumer.random.below(2) {
                    0 => json!({"metric_tags": {"n": {"static": number}}}),
                    _ => {
                        json!({"routes": {"internal-router": [{"hostname": format!("h{number}")}]}})
                    }
                };
                let Some(update) = valid(change) else { return false };
                (Command::UpdateDesiredLrp(process.clone(), update), None)
            }
            _ => match self.consumer.random.below(2) {
                0 => (Command::RemoveDesiredLrp(process.clone()), Some(Known::Gone)),
                _ => (Command::DeleteDeployment(process.clone()), Some(Known::Gone)),
            },
        };
        if self.plan.tells {
            let text: String = format!("{command:?}").chars().take(120).collect();
            self.tell(|| format!("consumer: {text}"));
        }
        self.ask_for(process, command, then);
        true
    }

    fn desire(&mut self) -> bool {
        let has = self.consumer.known.values().filter(|known| **known != Known::Gone).count();
        let has = has + self.consumer.waiting.len();
        if has >= self.plan.processes {
            return false;
        }
        let number = self.consumer.new_id();
        let domain = self.consumer.domain();
        let instances = 1 + self.consumer.random.below(self.plan.instances);
        let (mut desired, kind) = self.consumer.definition();
        let guid = ProcessGuid::new(&format!("{kind}-p{number}")).expect("plain letters");
        let then = Known::Has(u32::try_from(instances).unwrap_or(1));
        self.tell(|| format!("consumer: desire {guid} × {instances}"));
        let command = if self.consumer.random.once_in(3) {
            let deployment = json!({
                "process_guid": guid.as_str(), "domain": domain.as_str(), "instances": instances,
                "definition_id": format!("{kind}-d{number}"), "definition": desired,
            });
            let Some(deployment) = valid(deployment) else { return false };
            Command::CreateDeployment(deployment)
        } else {
            desired["process_guid"] = json!(guid.as_str());
            desired["domain"] = json!(domain.as_str());
            desired["instances"] = json!(instances);
            let Some(desired) = valid(desired) else { return false };
            Command::DesireLrp(desired)
        };
        self.ask_for(guid, command, Some(then));
        true
    }

    fn update(&mut self, process: &ProcessGuid) -> bool {
        let (definition, kind) = self.consumer.definition();
        let id = format!("{kind}-d{}", self.consumer.new_id());
        let policy = match self.consumer.random.below(4) {
            0 => json!({"canary_instances": 1}),
            1 => json!({"max_in_flight": 3, "min_healthy_time_ms": 500}),
            2 => json!({"progress_deadline_ms": 20_000, "rollback_on_failure": true}),
            _ => json!({}),
        };
        let command = if self.consumer.random.once_in(4) {
            let mut named = definition;
            named["definition_id"] = json!(id);
            let Some(update) = valid(json!({"lrp_definition": named})) else { return false };
            Command::UpdateDesiredLrp(process.clone(), update)
        } else {
            let update = json!({"definition_id": id, "definition": definition, "rollout": policy});
            let Some(update) = valid(update) else { return false };
            Command::UpdateDeployment(process.clone(), update)
        };
        let id = DefinitionId::new(&id).expect("a name of plain letters");
        self.consumer.definitions.entry(process.clone()).or_default().push(id);
        self.tell(|| format!("consumer: update {process}"));
        self.ask_for(process.clone(), command, None);
        true
    }

    fn desire_task(&mut self) -> bool {
        self.consumer.tasks += 1;
        let name = |nth: u64| TaskGuid::new(&format!("t{nth}")).expect("a name of plain letters");
        let mut guid = name(self.consumer.tasks);
        if self.consumer.random.once_in(6) {
            let before = 1 + self.consumer.random.next() % 4;
            let earlier = name(self.consumer.tasks.saturating_sub(before).max(1));
            // One whose end somebody is being told of, if there is one.
            let calls = self.center.alive.iter().flat_map(|it| it.calls.keys());
            let told = calls.map(|(guid, _)| guid.clone()).next();
            let earlier = told.filter(|_| self.consumer.random.once_in(2)).unwrap_or(earlier);
            self.submit(Command::CancelTask(earlier.clone()), Ticket::Nobody);
            if self.consumer.random.once_in(2) {
                return true;
            }
            // It is taken away, and its name given to another.
            self.submit(Command::ResolvingTask(earlier.clone(), TaskRef::Present), Ticket::Nobody);
            self.submit(Command::DeleteTask(earlier.clone(), TaskRef::Present), Ticket::Nobody);
            self.count("name used again");
            guid = earlier;
        }
        let (path, first) = match self.consumer.random.below(4) {
            0 => ("true", 0),
            1 => ("false", 0),
            2 => ("missing", 0),
            _ => ("sleep", self.consumer.random.next() % 15_000),
        };
        // The last one tells it from others of its name.
        let args = [first.to_string(), format!("of {}", self.consumer.tasks)];
        let mut task = definition(path, &args, 32);
        if self.consumer.random.once_in(2) {
            let host = *self.consumer.random.one_of(&["one", "two"]);
            task["completion_callback_url"] = json!(format!("http://{host}/done"));
        }
        let domain = self.consumer.domain();
        let Some(task) = valid(task) else { return false };
        self.submit(Command::DesireTask(guid, domain, task), Ticket::Nobody)
    }

    fn ask_for(&mut self, process: ProcessGuid, command: Command, then: Option<Known>) {
        let wish = self.consumer.new_id();
        if then.is_some() {
            // Until it is answered, nobody knows.
            let sent = Wish { process: process.clone(), then };
            self.consumer.waiting.insert(wish, sent);
        }
        if !self.submit(command, Ticket::Wish(wish)) {
            self.consumer.waiting.remove(&wish);
        }
    }

    pub(super) fn wish_answered(&mut self, wish: u64, result: Result<Reply, CallError>) {
        let Some(Wish { process, then }) = self.consumer.waiting.remove(&wish) else { return };
        match result {
            Ok(_) => {
                self.count("wish granted");
                if let Some(then) = then {
                    self.consumer.known.insert(process, then);
                }
            }
            Err(CallError::Store(error)) if matches!(*error, StoreError::Doubtful { .. }) => {
                self.consumer.known.insert(process, Known::Unsure);
            }
            Err(_) => self.count("wish refused"),
        }
    }

    /// Vouches for the domains, unless the consumer is silent.
    pub(super) fn freshen(&mut self) {
        let at = self.now() + FRESHEN_EVERY;
        self.plan(at, For::World, Event::Freshen);
        if self.trouble.silent && !self.calm {
            return;
        }
        if self.now() < self.consumer.silent_until {
            return;
        }
        for domain in DOMAINS {
            let domain = Domain::new(domain).expect("a name of plain letters");
            self.submit(Command::UpsertDomain(domain, FRESH), Ticket::Nobody);
        }
        if self.center.alive.is_some() {
            self.checks.vouched();
        }
    }

    /// The database was lost: the consumer takes its time.
    pub(super) fn hold_back(&mut self) {
        self.consumer.silent_until = self.now() + AFTER_LOSS;
    }

    /// When there is no more trouble the consumer wants only what can run, and clears away what waits
    /// for it.
    pub(super) fn keep_calm(&mut self) {
        let Some(alive) = &self.center.alive else { return };
        let records = alive.view.snapshot();
        let mut wishes = Vec::new();
        for deployment in records.deployments() {
            let guid = deployment.process_guid.clone();
            if !deployment.active_definition_id.as_str().starts_with(GOOD) {
                let id = format!("{GOOD}-d{}", self.consumer.new_id());
                let update = json!({
                    "definition_id": id, "definition": definition("server", &[], 32), "rollout": {},
                });
                if let Some(update) = valid(update) {
                    wishes.push(Command::UpdateDeployment(guid, update));
                }
            } else if let Some(roll) = &deployment.roll {
                match roll.pause {
                    None => {}
                    Some(RolloutPause::Canary) => wishes.push(Command::PromoteUpdate(guid)),
                    Some(_) => wishes.push(Command::ResumeUpdate(guid)),
                }
            }
        }
        for task in records.tasks() {
            let guid = task.task_guid.clone();
            let waits = task.definition.completion_callback_url.is_empty();
            match task.state {
                TaskState::Completed if waits => {
                    wishes.push(Command::ResolvingTask(guid.clone(), TaskRef::Present));
                    wishes.push(Command::DeleteTask(guid, TaskRef::Present));
                }
                TaskState::Resolving if waits => {
                    wishes.push(Command::DeleteTask(guid, TaskRef::Present))
                }
                _ => {}
            }
        }
        for command in wishes {
            self.submit(command, Ticket::Nobody);
        }
    }
}

fn valid<T>(value: Value) -> Option<Box<Valid<T>>>
where
    Valid<T>: serde::de::DeserializeOwned,
{
    match serde_json::from_value(value) {
        Ok(valid) => Some(Box::new(valid)),
        Err(error) => unreachable!("the consumer's wishes are valid: {error}"),
    }
}
