//! Calls consumers back: one loop hears of tasks, of the board's answers, of calls that ended and of
//! time, has [`logic`](super::logic) decide, and starts what it says.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};
use volvox_host::clock::{monotonic, wall};
use volvox_host::http;
use volvox_host::sync::lock;
use volvox_host::trust::{self, CaBundleError};
use volvox_protocol::api::CallbackFailure;
use volvox_protocol::task::{Task, TaskCallback};

use super::logic::{self, Effect, Key, PER_HOST, QUEUE, Told, key_of};
pub use super::logic::{Counts, Settings};
use crate::bbs::driver::Bbs;

/// The longest sleep.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);

/// Where the board puts tasks that have ended. Clones are the same place.
#[derive(Debug, Clone)]
pub struct Outbox(mpsc::Sender<Arc<Task>>);

impl Outbox {
    /// Has the consumer of a task told. Does not wait.
    pub fn call_back(&self, task: Arc<Task>) {
        if self.0.try_send(task).is_err() {
            debug!("too many callbacks wait; convergence will ask again");
        }
    }
}

/// What comes out of an [`Outbox`].
#[derive(Debug)]
pub struct Inbox(mpsc::Receiver<Arc<Task>>);

/// A place for tasks, and what takes them from there.
pub fn mailbox() -> (Outbox, Inbox) {
    let (outbox, inbox) = mpsc::channel(QUEUE);
    (Outbox(outbox), Inbox(inbox))
}

/// What is known of callbacks. Clones are handles on the same.
#[derive(Debug, Clone)]
pub struct Callbacks(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Only the loop changes it, and holds it for no longer than a decision takes.
    logic: Mutex<logic::Callbacks>,
    stopping: watch::Sender<bool>,
}

impl Callbacks {
    fn new(settings: Settings) -> Self {
        let logic = Mutex::new(logic::Callbacks::new(settings));
        Callbacks(Arc::new(Shared { logic, stopping: watch::Sender::default() }))
    }

    /// The last failures, the latest first.
    pub fn failures(&self) -> Vec<CallbackFailure> {
        self.logic().failures()
    }

    /// How many there were, and are.
    pub fn counts(&self) -> Counts {
        self.logic().counts()
    }

    /// Ends: what is under way is left to the next coordinator, which asks again.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    fn logic(&self) -> MutexGuard<'_, logic::Callbacks> {
        lock(&self.0.logic)
    }
}

/// Begins to take tasks from the inbox. Ends when the last outbox is gone.
pub fn start(settings: Settings, bbs: Bbs, inbox: Inbox) -> Result<Callbacks, CaBundleError> {
    let agent = agent(&settings)?;
    let callbacks = Callbacks::new(settings);
    let driver = Driver { callbacks: callbacks.clone(), bbs, agent, under_way: JoinSet::new() };
    tokio::spawn(driver.work(inbox));
    Ok(callbacks)
}

/// What the loop hears.
enum Heard {
    Task(Arc<Task>),
    Answered(Key, Result<(), String>),
    Called(Key, Told),
    Time,
}

struct Driver {
    callbacks: Callbacks,
    bbs: Bbs,
    agent: ureq::Agent,
    /// Dropped at the end, with all that is in it: none of it may keep the board open.
    under_way: JoinSet<Heard>,
}

impl Driver {
    async fn work(mut self, mut inbox: Inbox) {
        let mut stopping = self.callbacks.0.stopping.subscribe();
        loop {
            let wake = self.callbacks.logic().next_wake().since(monotonic()).min(LONGEST_WAIT);
            let heard = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => return,
                task = inbox.0.recv() => match task {
                    Some(task) => Heard::Task(task),
                    None => return,
                },
                Some(outcome) = self.under_way.join_next() => match outcome {
                    Ok(heard) => heard,
                    Err(error) => {
                        error!(%error, "a callback has panicked");
                        continue;
                    }
                },
                () = tokio::time::sleep(wake) => Heard::Time,
            };
            let now = monotonic();
            let effects = {
                let mut logic = self.callbacks.logic();
                match heard {
                    Heard::Task(task) => logic.tell(task),
                    Heard::Answered(key, answer) => logic.answered(&key, answer),
                    Heard::Called(key, told) => logic.called(now, wall(), &key, told),
                    Heard::Time => logic.wake(now),
                }
            };
            effects.into_iter().for_each(|effect| self.perform(effect));
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Ask(key, question) => {
                let command = question.about(key.clone());
                let bbs = self.bbs.clone();
                self.under_way.spawn(async move {
                    let answer = bbs.ask(command).await;
                    Heard::Answered(key, answer.map(drop).map_err(|error| error.to_string()))
                });
            }
            Effect::Call(task) => {
                let agent = self.agent.clone();
                // The client blocks; those threads are as many as calls at once, no more.
                self.under_way.spawn(async move {
                    let key = key_of(&task);
                    let called = tokio::task::spawn_blocking(move || call(&agent, &task));
                    let failed = |_| Told::No("the client failed: see the log".to_owned());
                    Heard::Called(key, called.await.unwrap_or_else(failed))
                });
            }
            Effect::Failed(failure) => {
                let CallbackFailure { task_guid, url, attempts, reason, .. } = failure;
                let task_guid = task_guid.as_str();
                info!(task_guid, url, attempt = attempts, reason, "a callback failed");
            }
            Effect::NotOurs(guid, error) => {
                debug!(task_guid = guid.as_str(), error, "not ours to tell");
            }
            Effect::NotDeleted(guid, error) => {
                warn!(task_guid = guid.as_str(), error, "told, not deleted");
            }
        }
    }
}

fn call(agent: &ureq::Agent, task: &Task) -> Told {
    let body = match serde_json::to_vec(&TaskCallback::from(task)) {
        Ok(body) => body,
        Err(error) => return Told::No(error.to_string()),
    };
    let url = &task.definition.completion_callback_url;
    match agent.post(url).content_type("application/json").send(&body[..]) {
        Ok(answer) => Told::by_status(answer.status().as_u16()),
        Err(
            error @ (ureq::Error::Timeout(_) | ureq::Error::Io(_) | ureq::Error::ConnectionFailed),
        ) => Told::Again(error.to_string()),
        Err(error) => Told::No(error.to_string()),
    }
}

fn agent(settings: &Settings) -> Result<ureq::Agent, CaBundleError> {
    let config = http::config("volvox-coordinator")
        .timeout_global(Some(settings.timeout))
        .max_idle_connections_per_host(PER_HOST)
        .tls_config(http::tls(&trust::read(&settings.trusted)?, None))
        .build();
    Ok(config.new_agent())
}
