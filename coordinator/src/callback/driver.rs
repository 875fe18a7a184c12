//! Calls consumers back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use ureq::config::Config;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use volvox_protocol::api::CallbackFailure;
use volvox_protocol::id::TaskGuid;
use volvox_protocol::task::{Task, TaskCallback};
use volvox_protocol::time::Timestamp;

use crate::bbs::command::Command;
use crate::bbs::driver::Bbs;

/// Tasks that may wait to be told of. Convergence asks again for those that found no place.
const QUEUE: usize = 16_384;
/// Failures that are remembered.
const FAILURES: usize = 1_000;
/// Calls to one host at once: a slow consumer must not hold up the others.
const PER_HOST: usize = 16;
/// Letters of a reason.
const REASON: usize = 512;
/// Where Linux distributions keep the certificates that the machine trusts.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// How consumers are called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
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

impl Default for Settings {
    fn default() -> Self {
        Settings {
            at_once: 64,
            tries: 3,
            timeout: Duration::from_secs(8),
            pause: Duration::from_millis(500),
            trusted: PathBuf::new(),
        }
    }
}

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
            tracing::debug!("too many callbacks wait; convergence will ask again");
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
#[derive(Debug, Clone, Default)]
pub struct Callbacks(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    delivered: AtomicU64,
    failed: AtomicU64,
    book: Mutex<Book>,
    stopping: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Book {
    under_way: BTreeSet<TaskGuid>,
    hosts: BTreeMap<String, Arc<Semaphore>>,
    failures: BTreeMap<TaskGuid, CallbackFailure>,
    order: VecDeque<TaskGuid>,
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

impl Callbacks {
    /// The last failures, the latest first.
    pub fn failures(&self) -> Vec<CallbackFailure> {
        let mut failures: Vec<_> = self.book().failures.values().cloned().collect();
        failures.sort_by_key(|failure| std::cmp::Reverse(failure.failed_at));
        failures
    }

    /// How many there were, and are.
    pub fn counts(&self) -> Counts {
        Counts {
            delivered: self.0.delivered.load(Ordering::Relaxed),
            failed: self.0.failed.load(Ordering::Relaxed),
            pending: self.book().under_way.len(),
        }
    }

    /// Ends: what is under way is left to the next coordinator, which asks again.
    pub fn stop(&self) {
        self.0.stopping.send_replace(true);
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, failure: CallbackFailure) {
        self.0.failed.fetch_add(1, Ordering::Relaxed);
        let mut book = self.book();
        let guid = failure.task_guid.clone();
        if book.failures.insert(guid.clone(), failure).is_none() {
            book.order.push_back(guid);
        }
        if book.order.len() > FAILURES
            && let Some(oldest) = book.order.pop_front()
        {
            book.failures.remove(&oldest);
        }
    }

    /// Takes on a task, unless it is being told of already. Gives the gate of its host.
    fn begin(&self, task: &Task) -> Option<Arc<Semaphore>> {
        let mut book = self.book();
        // Convergence asks again for those that found no place.
        if book.under_way.len() >= QUEUE || !book.under_way.insert(task.task_guid.clone()) {
            return None;
        }
        let host = host_of(&task.definition.completion_callback_url).to_owned();
        let gate = book.hosts.entry(host).or_insert_with(|| Arc::new(Semaphore::new(PER_HOST)));
        Some(Arc::clone(gate))
    }

    fn end(&self, task: &Task, gate: Arc<Semaphore>) {
        drop(gate);
        let mut book = self.book();
        book.under_way.remove(&task.task_guid);
        let host = host_of(&task.definition.completion_callback_url);
        if book.hosts.get(host).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            book.hosts.remove(host);
        }
    }
}

/// Begins to take tasks from the inbox. Ends when the last outbox is gone.
pub fn start(settings: Settings, bbs: Bbs, mut inbox: Inbox) -> Result<Callbacks, NoTrust> {
    let callbacks = Callbacks::default();
    let caller = Arc::new(Caller {
        agent: agent(&settings)?,
        gate: Semaphore::new(settings.at_once.max(1)),
        callbacks: callbacks.clone(),
        settings,
        bbs,
    });
    let mut stopping = callbacks.0.stopping.subscribe();
    tokio::spawn(async move {
        // Dropped at the end, with all that is in it: none of it may keep the board open.
        let mut telling = JoinSet::new();
        loop {
            let task = tokio::select! {
                task = inbox.0.recv() => task,
                _ = stopping.wait_for(|stopping| *stopping) => return,
                Some(_) = telling.join_next(), if !telling.is_empty() => continue,
            };
            let Some(task) = task else { return };
            let Some(gate) = caller.callbacks.begin(&task) else { continue };
            let caller = Arc::clone(&caller);
            telling.spawn(async move {
                caller.tell(&task, &gate).await;
                caller.callbacks.end(&task, gate);
            });
        }
    });
    Ok(callbacks)
}

struct Caller {
    settings: Settings,
    agent: ureq::Agent,
    bbs: Bbs,
    gate: Semaphore,
    callbacks: Callbacks,
}

/// What a try came to.
enum Told {
    /// The consumer has answered: it knows.
    Yes,
    /// It may work another time.
    Again(String),
    /// It will not.
    No(String),
}

impl Caller {
    async fn tell(&self, task: &Arc<Task>, host: &Semaphore) {
        let guid = &task.task_guid;
        let mut pause = self.settings.pause;
        for attempt in 1..=self.settings.tries.max(1) {
            // Held for one try at a time: a pause is no reason to keep others waiting.
            let (Ok(of_host), Ok(of_all)) = (host.acquire().await, self.gate.acquire().await)
            else {
                return;
            };
            // Only one of those who may tell does: the board lets one through.
            if attempt == 1
                && let Err(error) = self.bbs.ask(Command::ResolvingTask(guid.clone())).await
            {
                tracing::debug!(task_guid = guid.as_str(), %error, "not ours to tell");
                return;
            }
            let last = attempt == self.settings.tries.max(1);
            let (reason, given_up) = match self.call(task).await {
                Told::Yes => return self.forget(guid).await,
                Told::Again(reason) => (reason, last),
                Told::No(reason) => (reason, true),
            };
            let url = shown(&task.definition.completion_callback_url);
            tracing::info!(task_guid = guid.as_str(), url, attempt, reason, "a callback failed");
            self.callbacks.note(CallbackFailure {
                task_guid: guid.clone(),
                url,
                attempts: attempt,
                failed_at: now(),
                reason,
                given_up,
            });
            if given_up {
                return;
            }
            drop((of_host, of_all));
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2);
        }
    }

    /// The consumer knows: so the task may go. Convergence may have taken it back meanwhile.
    async fn forget(&self, guid: &TaskGuid) {
        self.callbacks.0.delivered.fetch_add(1, Ordering::Relaxed);
        let delete = || self.bbs.ask(Command::DeleteTask(guid.clone()));
        if delete().await.is_ok() {
            return;
        }
        let resolved = self.bbs.ask(Command::ResolvingTask(guid.clone())).await;
        if let Err(error) = resolved.map(drop).and(delete().await.map(drop)) {
            tracing::warn!(task_guid = guid.as_str(), %error, "told, not deleted");
        }
    }

    async fn call(&self, task: &Arc<Task>) -> Told {
        let (agent, task) = (self.agent.clone(), Arc::clone(task));
        // The client blocks; those threads are as many as calls at once, no more.
        let called = tokio::task::spawn_blocking(move || {
            let url = &task.definition.completion_callback_url;
            let body = serde_json::to_vec(&TaskCallback::from(&*task));
            let body = body.map_err(|error| Told::No(error.to_string()))?;
            let request = agent.post(url).content_type("application/json");
            request.send(&body[..]).map_err(|error| match error {
                ureq::Error::Timeout(_) | ureq::Error::Io(_) | ureq::Error::ConnectionFailed => {
                    Told::Again(short(&error.to_string()))
                }
                other => Told::No(short(&other.to_string())),
            })
        });
        match called.await {
            // Diego's rule: these two mean "not now", every other answer means "heard".
            Ok(Ok(answer)) => match answer.status().as_u16() {
                status @ (503 | 504) => Told::Again(format!("status {status}")),
                _ => Told::Yes,
            },
            Ok(Err(told)) => told,
            Err(_) => Told::No("the client failed: see the log".to_owned()),
        }
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

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
