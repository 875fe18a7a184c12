//! Calls consumers: one POST for each, on a thread that may wait.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::runtime::Handle;
use ureq::config::Config;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use volvox_protocol::task::{Task, TaskCallback};

use super::logic::{CallResult, CallbackSettings, Key, PER_HOST, key_of};

/// Where Linux distributions keep the certificates that the machine trusts.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Why nobody can be called.
#[derive(Debug, thiserror::Error)]
#[error("callbacks: cannot read trusted certificates from {path}: {what}")]
pub struct CaBundleError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub what: String,
}

/// Calls consumers. Its threads are as many as calls at once, no more.
#[derive(Debug)]
pub struct CallbackClient {
    agent: ureq::Agent,
    runtime: Handle,
}

impl CallbackClient {
    /// A client that calls from the runtime in which this is called.
    pub fn new(settings: &CallbackSettings) -> Result<Self, CaBundleError> {
        Ok(CallbackClient { agent: agent(settings)?, runtime: Handle::current() })
    }

    /// Calls the consumer of a task. Does not wait: what became of it is told.
    pub(crate) fn call(
        &self,
        task: Arc<Task>,
        tell: impl FnOnce(Key, CallResult) + Send + 'static,
    ) {
        let agent = self.agent.clone();
        self.runtime.spawn(async move {
            let key = key_of(&task);
            let called = tokio::task::spawn_blocking(move || call(&agent, &task));
            let failed = |_| CallResult::No("the client failed: see the log".to_owned());
            tell(key, called.await.unwrap_or_else(failed));
        });
    }
}

fn call(agent: &ureq::Agent, task: &Task) -> CallResult {
    let body = match serde_json::to_vec(&TaskCallback::from(task)) {
        Ok(body) => body,
        Err(error) => return CallResult::No(error.to_string()),
    };
    let url = &task.definition.completion_callback_url;
    match agent.post(url).content_type("application/json").send(&body[..]) {
        Ok(answer) => CallResult::by_status(answer.status().as_u16()),
        Err(
            error @ (ureq::Error::Timeout(_) | ureq::Error::Io(_) | ureq::Error::ConnectionFailed),
        ) => CallResult::Again(error.to_string()),
        Err(error) => CallResult::No(error.to_string()),
    }
}

fn agent(settings: &CallbackSettings) -> Result<ureq::Agent, CaBundleError> {
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

fn read_certificates(path: &Path) -> Result<Vec<Certificate<'static>>, CaBundleError> {
    let failed = |what: String| CaBundleError { path: path.to_owned(), what };
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
