//! The HTTP client of downloads and uploads: time-outs, trust, redirects, and which addresses it
//! may speak to. `fetch.rs` and `upload.rs` use it; nobody else speaks HTTP outwards.
//!
//! Each transfer has an agent of its own, so that a cancel can tear it away and none reuses the
//! connection of another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

use super::retry::Network;

/// Where Linux distributions keep the certificates that the machine trusts.
const TRUSTED: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// How the client behaves.
#[derive(Debug, Clone)]
pub struct HttpConfig {
    /// For a name, and then for a connection.
    pub connect: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// For one try, redirects and all.
    pub total: Duration,
    /// How many redirects are followed. None leads from https to http.
    pub redirects: u32,
    /// Addresses that are not spoken to, by whatever name.
    pub denied: Vec<Network>,
    /// The certificates to trust, as PEM; empty: those of the machine.
    pub trusted: PathBuf,
}

impl Default for HttpConfig {
    fn default() -> Self {
        HttpConfig {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(10),
            total: Duration::from_secs(600),
            redirects: 10,
            denied: Network::NOT_FOR_DOWNLOADS.to_vec(),
            trusted: PathBuf::new(),
        }
    }
}

/// The client cannot be set up. The operator must act.
#[derive(Debug, thiserror::Error)]
#[error("cannot read trusted certificates from {path}: {source}")]
pub struct NoTrust {
    /// Which file.
    pub path: PathBuf,
    /// What went wrong.
    pub source: io::Error,
}

/// All addresses of a host are denied by the cell's configuration.
#[derive(Debug, thiserror::Error)]
#[error("no address of {host} may be spoken to by downloads")]
pub struct DeniedAddress {
    /// The host, as the URL has it.
    pub host: String,
}

/// A client, ready to make agents.
#[derive(Debug, Clone)]
pub struct Http {
    config: HttpConfig,
    tls: TlsConfig,
}

impl Http {
    /// Reads the certificates. A machine without any can speak plain HTTP only.
    pub fn new(config: HttpConfig) -> Result<Http, NoTrust> {
        let certificates = if config.trusted.as_os_str().is_empty() {
            let found = TRUSTED.iter().map(Path::new).find(|path| path.exists());
            found.map_or(Ok(Vec::new()), read_certificates)?
        } else {
            read_certificates(&config.trusted)?
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(certificates)))
            .unversioned_rustls_crypto_provider(provider)
            .build();
        Ok(Http { config, tls })
    }

    /// An agent for a download: it follows redirects.
    pub fn for_download(&self, url: &str) -> ureq::Agent {
        self.agent(url, self.config.redirects)
    }

    /// An agent for an upload: it follows none.
    pub fn for_upload(&self, url: &str) -> ureq::Agent {
        self.agent(url, 0)
    }

    fn agent(&self, url: &str, redirects: u32) -> ureq::Agent {
        let is_secure = url.get(..6).is_some_and(|it| it.eq_ignore_ascii_case("https:"));
        let config = Config::builder()
            .https_only(is_secure)
            .http_status_as_error(false)
            .max_redirects(redirects)
            .max_redirects_will_error(true)
            // A proxy of the environment would resolve names for us, past the denied addresses.
            .proxy(None)
            .timeout_resolve(Some(self.config.connect))
            .timeout_connect(Some(self.config.connect))
            .timeout_per_read(Some(self.config.idle))
            .timeout_per_write(Some(self.config.idle))
            .timeout_global(Some(self.config.total))
            .max_idle_connections(0)
            .user_agent("volvox-agent")
            .tls_config(self.tls.clone())
            .build();
        let resolver = Guarded { denied: self.config.denied.clone() };
        ureq::Agent::with_parts(config, DefaultConnector::new(), resolver)
    }
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate<'static>>, NoTrust> {
    let failed = |source| NoTrust { path: path.to_owned(), source };
    let pem = fs::read(path).map_err(failed)?;
    let mut certificates = Vec::new();
    for item in parse_pem(&pem) {
        match item.map_err(|error| failed(error.into_io()))? {
            PemItem::Certificate(certificate) => certificates.push(certificate.to_owned()),
            _ => tracing::debug!(path = %path.display(), "passed over what is no certificate"),
        }
    }
    Ok(certificates)
}

/// The system's resolver, without the addresses that are denied. The connection is made to the
/// addresses returned here, so a name cannot change its mind in between.
#[derive(Debug)]
struct Guarded {
    denied: Vec<Network>,
}

impl Resolver for Guarded {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        let mut allowed = self.empty();
        for address in found.iter() {
            if !self.denied.iter().any(|it| it.contains(address.ip())) {
                allowed.push(*address);
            }
        }
        if allowed.is_empty() {
            let host = uri.host().unwrap_or_default().to_owned();
            return Err(ureq::Error::Other(Box::new(DeniedAddress { host })));
        }
        Ok(allowed)
    }
}
