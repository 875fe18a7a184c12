//! One call to the coordinator of this machine, by its socket.

use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_host::http;
use volvox_protocol::api::LifecycleResponse;

/// How long the coordinator has to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest answer.
const ANSWER_BYTES: u64 = 64 << 20;

/// Whether a coordinator answers there.
pub(super) fn is_served(socket: &Path) -> anyhow::Result<bool> {
    match UnixStream::connect(socket) {
        Ok(_) => Ok(true),
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
        {
            Ok(false)
        }
        Err(error) => {
            Err(error).with_context(|| format!("speak to {}: are you root?", socket.display()))
        }
    }
}

/// Posts a request and gives the answer, or says why there is none.
pub(super) fn call<A: DeserializeOwned>(
    socket: &Path,
    path: &str,
    request: &impl Serialize,
) -> anyhow::Result<A> {
    let config = http::config("volvox-coordinator").timeout_per_read(Some(PATIENCE));
    let agent = http::on_socket(config.timeout_per_write(Some(PATIENCE)).build(), socket);
    let body = serde_json::to_vec(request)?;
    let post = agent.post(format!("http://localhost{path}")).content_type("application/json");
    let mut answer = match post.send(&body[..]) {
        Ok(answer) => answer,
        Err(ureq::Error::Io(error))
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
        {
            bail!("no coordinator is running at {}: start it first", socket.display())
        }
        Err(error) => {
            return Err(error).with_context(|| format!("speak to {}", socket.display()));
        }
    };
    let body = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec();
    let body = body.context("hear the coordinator")?;
    if let Ok(LifecycleResponse { error: Some(error) }) = serde_json::from_slice(&body) {
        bail!("{}", error.message);
    }
    if answer.status() != 200 {
        bail!("the coordinator answered: {:?} {}", answer.version(), answer.status());
    }
    serde_json::from_slice(&body).context("read the coordinator's answer")
}
