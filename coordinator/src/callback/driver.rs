//! Calls consumers back: one loop hears of tasks, of the board's answers, of calls that ended and of
//! time, has [`logic`](super::logic) decide, and starts what it says.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};
use ureq::config::Config;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use volvox_protocol::api::CallbackFailure;
use volvox_protocol::task::{Task, TaskCallback};
use volvox_protocol::time::Timestamp;

use super::logic::{self, Effect, Key, PER_HOST, QUEUE, Told, key_of};
pub use super::logic::{Counts, Settings};
use crate::bbs::driver::Bbs;

/// The longest sleep.
const LONGEST_WAIT: Duration = Duration::from_secs(3_600);
/// Where Linux distributions keep the certificates that the machine trusts.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why nobody can be called.
#[derive(Debug, thiserror::Error)]
#[error("callbacks: cannot read trusted certificates from {path}: {what}")]
pub struct NoTrust {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

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
        self.0.logic.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to take tasks from the inbox. Ends when the last outbox is gone.
pub fn start(settings: Settings, bbs: Bbs, inbox: Inbox) -> Result<Callbacks, NoTrust> {
    let agent = agent(&settings)?;
    let callbacks = Callbacks::new(settings);
    let (began, under_way) = (Instant::now(), JoinSet::new());
    let driver = Driver { callbacks: callbacks.clone(), bbs, agent, began, under_way };
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
    began: Instant,
    /// Dropped at the end, with all that is in it: none of it may keep the board open.
    under_way: JoinSet<Heard>,
}

impl Driver {
    async fn work(mut self, mut inbox: Inbox) {
        let mut stopping = self.callbacks.0.stopping.subscribe();
        loop {
            let wake = self.callbacks.logic().next_wake().since(self.now()).min(LONGEST_WAIT);
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
            let now = self.now();
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

    /// A line of time of our own: pauses do not follow a clock that is set.
    fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.began.elapsed()
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

fn agent(settings: &Settings) -> Result<ureq::Agent, NoTrust> {
    let certificates = if settings.trusted.as_os_str().is_empty() {
        let found = TRUSTED.iter().map(Path::new).find(|path| path.exists());
        found.map_or(Ok(Vec::new()), read_certificates)?
    } else {
        read_certificates(&settings.trusted)?
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .unversioned_rustls_crypto_provider(provider)
        .build();
    let config = Config::builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .timeout_global(Some(settings.timeout))
        .max_idle_connections_per_host(PER_HOST)
        .user_agent("volvox-coordinator")
        .tls_config(tls)
        .build();
    Ok(config.new_agent())
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate<'static>>, NoTrust> {
    let failed = |what: String| NoTrust { path: path.to_owned(), what };
    let pem = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|error| failed(error.to_string()))?
        {
            certificates.push(certificate.to_owned());
        }
    }
    Ok(certificates)
}

fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
