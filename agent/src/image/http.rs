//! The HTTP client of downloads and uploads: time-outs, trust, redirects, and which addresses it
//! may speak to. `fetch.rs` and `upload.rs` use it; nobody else speaks HTTP outwards.
//!
//! Each transfer has an agent of its own, so that a cancel can tear it away and none reuses the
//! connection of another.

use std::path::PathBuf;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::TlsConfig;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use volvox_host::http;
use volvox_host::trust::{self, CaBundleError};

use super::retry::IpNetwork;

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
    pub denied: Vec<IpNetwork>,
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
            denied: IpNetwork::NOT_FOR_DOWNLOADS.to_vec(),
            trusted: PathBuf::new(),
        }
    }
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
    pub fn new(config: HttpConfig) -> Result<Http, CaBundleError> {
        let tls = http::tls(&trust::read(&config.trusted)?, None);
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
        // A proxy of the environment would resolve names for us, past the denied addresses: the
        // configuration has none.
        let config = http::config("volvox-agent")
            .https_only(is_secure)
            .max_redirects(redirects)
            .timeout_resolve(Some(self.config.connect))
            .timeout_connect(Some(self.config.connect))
            .timeout_per_read(Some(self.config.idle))
            .timeout_per_write(Some(self.config.idle))
            .timeout_global(Some(self.config.total))
            .max_idle_connections(0)
            .tls_config(self.tls.clone())
            .build();
        let resolver = FilteringResolver { denied: self.config.denied.clone() };
        ureq::Agent::with_parts(config, DefaultConnector::new(), resolver)
    }
}

/// The system's resolver, without the addresses that are denied. The connection is made to the
/// addresses returned here, so a name cannot change its mind in between.
#[derive(Debug)]
struct FilteringResolver {
    denied: Vec<IpNetwork>,
}

impl Resolver for FilteringResolver {
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
