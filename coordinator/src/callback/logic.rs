//! Which consumer is called when, and what becomes of its task.
//!
//! A task goes this way: a place with its host, a place among all calls, the board's leave (only one
//! of those who may tell does), the call; then it is deleted, or there is a pause and another try, or it
//! is given up and left to convergence. The [`Core`](crate::core::Core) has the board asked and the consumer
//! called, and brings the outcomes.
//!
//! What holds: never more than [`CallbackSettings::at_once`] calls, never more than [`PER_HOST`] of one host,
//! never two for one task. A task is deleted only after its own consumer has answered: one that has
//! taken its name meanwhile is another task, to us ([`Key`]) and to the board ([`TaskRef`]).
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::api::CallbackFailure;
use volvox_protocol::id::TaskGuid;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::task::Task;
use volvox_protocol::time::{Backoff, Timestamp};

use crate::bbs::command::{Command, TaskRef};

/// Tasks that may wait to be told of. Convergence asks again for those that found no place.
pub const QUEUE: usize = 16_384;
/// Calls to one host at once: a slow consumer must not hold up the others.
pub const PER_HOST: usize = 16;
/// Letters of a reason.
const REASON: usize = 512;

/// How consumers are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallbackSettings {
    /// Calls at once.
    pub at_once: usize,
    /// Tries, before convergence is left to begin again.
    pub tries: u32,
    /// How long one try may take.
    pub timeout: Duration,
    /// The pause after the first try that failed; doubled after each further one.
    pub pause: Duration,
    /// The certificates to trust, as PEM; empty: those of the machine.
    pub trusted: PathBuf,
}

impl Default for CallbackSettings {
    fn default() -> Self {
        CallbackSettings {
            at_once: 64,
            tries: 3,
            timeout: Duration::from_secs(8),
            pause: Duration::from_millis(500),
            trusted: PathBuf::new(),
        }
    }
}

/// How many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Consumers that were told.
    pub delivered: u64,
    /// Tries that failed.
    pub failed: u64,
    /// Under way, or waiting.
    pub pending: usize,
}

/// One task: its name, and when it was made, since a name may be used again.
pub type Key = (TaskGuid, Timestamp);

/// What the board is asked about a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoardCall {
    /// Whether it is ours to tell: `ResolvingTask`.
    Resolving,
    /// To forget it: `DeleteTask`.
    Delete,
}

impl BoardCall {
    /// How the board is asked it.
    pub fn about(self, (guid, made): Key) -> Command {
        match self {
            BoardCall::Resolving => Command::ResolvingTask(guid, TaskRef::MadeAt(made)),
            BoardCall::Delete => Command::DeleteTask(guid, TaskRef::MadeAt(made)),
        }
    }
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallbackOutput {
    /// Ask the board; then say [`Callbacks::answered`].
    Ask(Key, BoardCall),
    /// Call the consumer; then say [`Callbacks::called`].
    Call(Arc<Task>),
    /// A try failed: for the log.
    Failed(CallbackFailure),
    /// It is not ours to tell, for this reason: for the log.
    NotOurs(TaskGuid, String),
    /// The consumer knows, and the board has not forgotten it, for this reason: for the log.
    NotDeleted(TaskGuid, String),
}

/// What a try came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallResult {
    /// The consumer has answered: it knows.
    Yes,
    /// It may work another time.
    Again(String),
    /// It will not.
    No(String),
}

impl CallResult {
    /// What an answer with this status means. Diego's rule: two mean "not now", every other means
    /// "heard".
    pub fn by_status(status: u16) -> CallResult {
        match status {
            503 | 504 => CallResult::Again(format!("status {status}")),
            _ => CallResult::Yes,
        }
    }
}

/// All callbacks: those under way and those that wait.
#[derive(Debug)]
pub struct Callbacks {
    settings: CallbackSettings,
    under_way: BTreeMap<Key, Callback>,
    hosts: BTreeMap<String, Host>,
    /// Those with a place at their host that wait for one among all.
    line: VecDeque<Key>,
    /// Those with both places.
    at_work: usize,
    pauses: BTreeSet<(Timestamp, Key)>,
    delivered: u64,
    failed: u64,
}

/// One consumer being told.
#[derive(Debug)]
struct Callback {
    task: Arc<Task>,
    host: String,
    tries: u32,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waits,
    Resolves,
    Calls,
    /// The consumer knows: so the task may go.
    Deletes,
    /// Convergence may have taken it back meanwhile: then it is resolved once more.
    ResolvesAgain,
    DeletesAgain,
    Pauses,
}

#[derive(Debug, Default)]
struct Host {
    taken: usize,
    line: VecDeque<Key>,
}

impl Callbacks {
    /// None yet.
    pub fn new(settings: CallbackSettings) -> Self {
        Callbacks {
            settings,
            under_way: BTreeMap::new(),
            hosts: BTreeMap::new(),
            line: VecDeque::new(),
            at_work: 0,
            pauses: BTreeSet::new(),
            delivered: 0,
            failed: 0,
        }
    }

    /// Takes on a task, unless it is being told of already, or too many are.
    pub fn start(&mut self, task: Arc<Task>) -> Vec<CallbackOutput> {
        let mut effects = Vec::new();
        let key = key_of(&task);
        // Convergence asks again for those that found no place.
        if self.under_way.contains_key(&key) || self.under_way.len() >= QUEUE {
            return effects;
        }
        let host = host_of(&task.definition.completion_callback_url).to_owned();
        let telling = Callback { task, host, tries: 0, stage: Stage::Waits };
        self.under_way.insert(key.clone(), telling);
        self.line_up(key);
        self.fill_places(&mut effects);
        effects
    }

    /// The board has answered what it was asked about a task.
    pub fn answered(&mut self, key: &Key, answer: Result<(), String>) -> Vec<CallbackOutput> {
        let mut effects = Vec::new();
        let Some(telling) = self.under_way.get_mut(key) else { return effects };
        let ask = |question| CallbackOutput::Ask(key.clone(), question);
        match (telling.stage, answer) {
            (Stage::Resolves, Ok(())) => {
                telling.stage = Stage::Calls;
                effects.push(CallbackOutput::Call(Arc::clone(&telling.task)));
            }
            (Stage::Resolves, Err(why)) => {
                effects.push(CallbackOutput::NotOurs(key.0.clone(), why));
                self.end(key, &mut effects);
            }
            (Stage::Deletes, Err(_)) => {
                telling.stage = Stage::ResolvesAgain;
                effects.push(ask(BoardCall::Resolving));
            }
            (Stage::ResolvesAgain, _) => {
                telling.stage = Stage::DeletesAgain;
                effects.push(ask(BoardCall::Delete));
            }
            (Stage::DeletesAgain, Err(why)) => {
                effects.push(CallbackOutput::NotDeleted(key.0.clone(), why));
                self.end(key, &mut effects);
            }
            (Stage::Deletes | Stage::DeletesAgain, Ok(())) => self.end(key, &mut effects),
            (Stage::Waits | Stage::Calls | Stage::Pauses, _) => {
                debug_assert!(false, "the board answers about {key:?} what it was not asked");
            }
        }
        effects
    }

    /// What a call came to, at this time of the clock on the wall.
    pub fn called(
        &mut self,
        now: Timestamp,
        wall: Timestamp,
        key: &Key,
        told: CallResult,
    ) -> Vec<CallbackOutput> {
        let mut effects = Vec::new();
        let last = self.settings.tries.max(1);
        let Some(telling) = self.under_way.get_mut(key) else { return effects };
        debug_assert!(telling.stage == Stage::Calls, "{key:?} was not being called");
        let counts_as_told = mutated(Bug::UntoldIsForgotten) && matches!(told, CallResult::No(_));
        let told = if counts_as_told { CallResult::Yes } else { told };
        let (reason, given_up) = match told {
            CallResult::Yes => {
                self.delivered += 1;
                telling.stage = Stage::Deletes;
                effects.push(CallbackOutput::Ask(key.clone(), BoardCall::Delete));
                return effects;
            }
            CallResult::Again(reason) => (reason, telling.tries >= last),
            CallResult::No(reason) => (reason, true),
        };
        let failure = CallbackFailure {
            task_guid: key.0.clone(),
            url: shown(&telling.task.definition.completion_callback_url),
            attempts: telling.tries,
            failed_at: wall,
            reason: short(&reason),
            given_up,
        };
        effects.push(CallbackOutput::Failed(failure));
        self.failed += 1;
        if given_up {
            self.end(key, &mut effects);
        } else {
            self.pause(now, key);
            self.fill_places(&mut effects);
        }
        effects
    }

    /// Time has passed.
    pub fn wake(&mut self, now: Timestamp) -> Vec<CallbackOutput> {
        while let Some((at, _)) = self.pauses.first()
            && *at <= now
            && let Some((_, key)) = self.pauses.pop_first()
        {
            self.line_up(key);
        }
        let mut effects = Vec::new();
        self.fill_places(&mut effects);
        effects
    }

    /// When to call [`Callbacks::wake`].
    pub fn next_wake(&self) -> Timestamp {
        self.pauses.first().map_or(Timestamp::NEVER, |(at, _)| *at)
    }

    /// How many there were, and are.
    pub fn counts(&self) -> Counts {
        let (delivered, failed, pending) = (self.delivered, self.failed, self.under_way.len());
        Counts { delivered, failed, pending }
    }

    /// Puts a task last in the line of its host.
    fn line_up(&mut self, key: Key) {
        let Some(telling) = self.under_way.get_mut(&key) else { return };
        telling.stage = Stage::Waits;
        let host = self.hosts.entry(telling.host.clone()).or_default();
        if host.taken < PER_HOST {
            host.taken += 1;
            self.line.push_back(key);
        } else {
            host.line.push_back(key);
        }
    }

    /// Gives places to those who are next.
    fn fill_places(&mut self, effects: &mut Vec<CallbackOutput>) {
        while self.at_work < self.settings.at_once.max(1)
            && let Some(key) = self.line.pop_front()
        {
            self.at_work += 1;
            let Some(telling) = self.under_way.get_mut(&key) else { continue };
            telling.tries += 1;
            if telling.tries == 1 {
                telling.stage = Stage::Resolves;
                effects.push(CallbackOutput::Ask(key, BoardCall::Resolving));
            } else {
                telling.stage = Stage::Calls;
                effects.push(CallbackOutput::Call(Arc::clone(&telling.task)));
            }
        }
    }

    /// Both places are somebody else's now.
    fn leave(&mut self, host: &str) {
        self.at_work -= 1;
        let Some(of) = self.hosts.get_mut(host) else { return };
        match of.line.pop_front() {
            Some(next) => self.line.push_back(next),
            None => of.taken -= 1,
        }
        if of.taken == 0 {
            self.hosts.remove(host);
        }
    }

    /// A pause is no reason to keep others waiting: places are given back.
    fn pause(&mut self, now: Timestamp, key: &Key) {
        let Some(telling) = self.under_way.get_mut(key) else { return };
        telling.stage = Stage::Pauses;
        let backoff = Backoff { first: self.settings.pause, longest: Duration::MAX };
        let until = now + backoff.after(telling.tries);
        let host = telling.host.clone();
        self.pauses.insert((until, key.clone()));
        self.leave(&host);
    }

    /// Whatever came of it, this one is over.
    fn end(&mut self, key: &Key, effects: &mut Vec<CallbackOutput>) {
        let Some(ended) = self.under_way.remove(key) else { return };
        self.leave(&ended.host);
        self.fill_places(effects);
    }
}

/// Which task this is.
pub fn key_of(task: &Task) -> Key {
    (task.task_guid.clone(), task.created_at)
}

/// The host and port of a URL, for counting.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}

/// A URL without what may be secret: user, password, query and fragment.
fn shown(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = bare.split_once("://") else { return short(bare) };
    let path = rest.find('/').map_or("", |at| &rest[at..]);
    short(&format!("{scheme}://{}{path}", host_of(bare)))
}

fn short(text: &str) -> String {
    text.chars().take(REASON).collect()
}
