//! Speaks to the coordinator: one call, or a stream of events. The only place that knows HTTP.

pub(crate) mod dev;
pub(crate) mod endpoint;
pub(crate) mod frames;
pub(crate) mod sse;

use std::io::{BufReader, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;
use ureq::tls::{Certificate, ClientCert, PrivateKey, TlsConfig};
use ureq::{Agent, Body};
use volvox_host::http;
use volvox_host::trust;
use volvox_protocol::actual_lrp::ActualLrp;
use volvox_protocol::api::{
    ActualLrpsRequest, ActualLrpsResponse, ApiError, LifecycleResponse, LrpDeploymentResponse,
    ProcessGuidRequest,
};
use volvox_protocol::deployment::LrpDeployment;
use volvox_protocol::id::ProcessGuid;

use self::endpoint::{EndpointUrl, ResolvedEndpoint};
use self::frames::Frames;
use crate::error::{Failure, OWN_TOKEN};

/// How long the coordinator has to answer a call.
const PATIENCE: Duration = Duration::from_secs(75);
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// A stream that says nothing for so long is dead: it has a heartbeat every 15 seconds.
const SILENCE: Duration = Duration::from_secs(50);
/// Bytes of an answer.
const MOST_BYTES: u64 = 4 << 30;

/// The way to one coordinator.
pub(crate) struct Client {
    agent: Agent,
    base: String,
    token: Option<String>,
    found: ResolvedEndpoint,
}

/// The lines of a stream of events.
pub(crate) type Stream = BufReader<ureq::BodyReader<'static>>;

impl Client {
    pub(crate) fn new(found: &ResolvedEndpoint) -> Result<Self, Failure> {
        let mut config = http::config(concat!("volvox/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(SILENCE));
        let (agent, base) = match &found.way {
            EndpointUrl::Unix(path) => {
                (http::on_socket(config.build(), path), "http://localhost".to_owned())
            }
            EndpointUrl::Url(url) => {
                if url.starts_with("https://") {
                    config = config.tls_config(tls(found)?);
                }
                (config.build().new_agent(), url.clone())
            }
        };
        Ok(Client { agent, base, token: found.token.clone(), found: found.clone() })
    }

    /// Where the coordinator is, for people.
    pub(crate) fn place(&self) -> String {
        self.found.way.to_string()
    }

    /// Posts a request and gives the answer.
    pub(crate) fn call<A: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
    ) -> Result<A, Failure> {
        let body = serde_json::to_vec(request)?;
        let mut post = self.agent.post(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            post = post.header("authorization", format!("Bearer {token}"));
        }
        let sent = post.content_type("application/json").send(&body[..]);
        let answer = self.text(sent)?;
        understand(&answer)
    }

    /// Gets a record that takes no request.
    pub(crate) fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, Failure> {
        let answer = self.text(self.asking(path).call())?;
        understand(&answer)
    }

    /// Opens a stream of events, after the one with this id.
    pub(crate) fn events(&self, path: &str, after: Option<&str>) -> Result<Stream, Failure> {
        let mut get = self.asking(path);
        if let Some(after) = after {
            get = get.header("last-event-id", after);
        }
        let answer = get.call().map_err(|error| self.unreachable(&error))?;
        if answer.status() != 200 {
            self.text(Ok(answer))?;
            return Err(Failure::failed("the coordinator's answer is no stream of events"));
        }
        Ok(BufReader::new(answer.into_body().into_with_config().limit(u64::MAX).reader()))
    }

    /// Posts a request whose answer is a connection that goes on as frames.
    pub(crate) fn frames(&self, path: &str, body: &str) -> Result<Frames, Failure> {
        Frames::open(&self.found, path, body)
    }

    /// What is desired of an app.
    pub(crate) fn deployment(&self, app: &ProcessGuid) -> Result<Arc<LrpDeployment>, Failure> {
        let request = ProcessGuidRequest { process_guid: app.clone() };
        let answer: LrpDeploymentResponse = self
            .call("/v1/lrp_deployments/get_by_process_guid", &request)
            .map_err(|failure| failure.of_app(app))?;
        answer.deployment.ok_or_else(|| Failure::not_found("").of_app(app))
    }

    /// The same, when it may not be there.
    pub(crate) fn find_deployment(
        &self,
        app: &ProcessGuid,
    ) -> Result<Option<Arc<LrpDeployment>>, Failure> {
        match self.deployment(app) {
            Ok(found) => Ok(Some(found)),
            Err(failure) if failure.code == crate::error::Code::NotFound => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// The instances that a filter means.
    pub(crate) fn instances(
        &self,
        request: &ActualLrpsRequest,
    ) -> Result<Vec<Arc<ActualLrp>>, Failure> {
        let answer: ActualLrpsResponse = self.call("/v1/actual_lrps/list", request)?;
        Ok(answer.actual_lrps)
    }

    /// The instances of an app.
    pub(crate) fn instances_of(&self, app: &ProcessGuid) -> Result<Vec<Arc<ActualLrp>>, Failure> {
        let process_guid = app.to_string();
        self.instances(&ActualLrpsRequest { process_guid, ..ActualLrpsRequest::default() })
    }

    fn asking(&self, path: &str) -> ureq::RequestBuilder<ureq::typestate::WithoutBody> {
        let get = self.agent.get(format!("{}{path}", self.base));
        // With a certificate and without a word, events would come as Diego's clients read them.
        let get = get.header("accept", "application/json, text/event-stream");
        match &self.token {
            Some(token) => get.header("authorization", format!("Bearer {token}")),
            None => get,
        }
    }

    /// The text of an answer that is a success.
    fn text(&self, sent: Result<Response<Body>, ureq::Error>) -> Result<String, Failure> {
        let mut answer = sent.map_err(|error| self.unreachable(&error))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(MOST_BYTES).read_to_string();
        let text = text.map_err(|error| self.unreachable(&error))?;
        if status == 200 {
            return Ok(text);
        }
        let said: Option<ApiError> =
            serde_json::from_str::<LifecycleResponse>(&text).ok().and_then(|it| it.error);
        let error = said.unwrap_or_else(|| ApiError {
            message: format!(
                "{} answered with status {status}: is it a coordinator?",
                self.place()
            ),
            ..ApiError::default()
        });
        Err(Failure::answered(status, &error))
    }

    fn unreachable(&self, error: &ureq::Error) -> Failure {
        let place = self.place();
        let kind = if let ureq::Error::Io(error) = error { Some(error.kind()) } else { None };
        let own_token;
        let hint = match kind {
            Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) if self.found.guessed => {
                "no coordinator seems to run on this machine: start it (`volvox dev` starts one to \
                 try things out), or say where it is with --api or VOLVOX_API"
            }
            Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
                "is the coordinator running, and is that its address?"
            }
            Some(ErrorKind::PermissionDenied) => {
                own_token = format!(
                    "its socket is for root (sudo) and the coordinator's user; others use --api \
                     http://127.0.0.1:8889 with a token; {OWN_TOKEN}"
                );
                &own_token
            }
            _ if matches!(error, ureq::Error::Tls(_) | ureq::Error::Rustls(_))
                || error.to_string().contains("certificate") =>
            {
                "trust its authority with --ca: `api/ca.pem` in the coordinator's data folder, \
                 unless it has a certificate of yours"
            }
            _ => "a change that was asked for may have happened: look before you repeat it",
        };
        Failure::unreachable(format!("cannot reach the coordinator at {place}: {error}")).hint(hint)
    }
}

fn understand<A: DeserializeOwned>(text: &str) -> Result<A, Failure> {
    serde_json::from_str(text).map_err(|error| {
        Failure::failed(format!("the coordinator's answer is not understood: {error}"))
            .hint("are its release and ours the same? `volvox version` shows both")
    })
}

fn tls(found: &ResolvedEndpoint) -> Result<TlsConfig, Failure> {
    let authorities = authorities(found)?;
    let own = match &found.certificate {
        None => None,
        Some((certificate, key)) => {
            let pem = endpoint::read(key, "the key")?;
            let key = PrivateKey::from_pem(pem.as_bytes()).map_err(|error| {
                Failure::usage(format!("{}: no private key in PEM: {error}", key.display()))
            })?;
            let chain = certificates(certificate)?;
            let chain: Vec<_> =
                chain.iter().map(|it| Certificate::from_der(it).to_owned()).collect();
            Some(ClientCert::new_with_certs(&chain, key))
        }
    };
    Ok(http::tls(&authorities, own))
}

/// Who may sign the coordinator's certificate: what the person named, or whom this machine trusts.
fn authorities(found: &ResolvedEndpoint) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let named = match &found.ca {
        Some(path) => Some(path.as_path()),
        None => trust::machines_bundle(),
    };
    named.map_or(Ok(Vec::new()), certificates)
}

/// The certificates in a file, one at least.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let pem = endpoint::read(path, "the certificates")?;
    match trust::certificates(pem.as_bytes()) {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Failure::usage(format!("{}: no certificate is in it", path.display()))),
        Err(error) => Err(Failure::usage(format!("{}: no PEM: {error}", path.display()))),
    }
}
