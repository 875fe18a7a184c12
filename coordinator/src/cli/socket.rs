//! One call to the coordinator of this machine, by its socket.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde::de::DeserializeOwned;
use volvox_protocol::api::LifecycleResponse;

/// How long the coordinator has to answer.
const PATIENCE: Duration = Duration::from_secs(30);

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
    let mut stream = match UnixStream::connect(socket) {
        Ok(stream) => stream,
        Err(error)
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) =>
        {
            bail!("no coordinator is running at {}: start it first", socket.display())
        }
        Err(error) => {
            return Err(error).with_context(|| format!("speak to {}", socket.display()));
        }
    };
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let body = serde_json::to_vec(request)?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).context("ask the coordinator")?;
    stream.write_all(&body).context("ask the coordinator")?;
    let mut answer = Vec::new();
    stream.take(64 << 20).read_to_end(&mut answer).context("hear the coordinator")?;
    let (head, body) = split(&answer).context("the coordinator's answer is no HTTP")?;
    // The routes asked here answer in one piece, with its length.
    if let Ok(LifecycleResponse { error: Some(error) }) = serde_json::from_slice(body) {
        bail!("{}", error.message);
    }
    if !head.starts_with("HTTP/1.1 200") {
        bail!("the coordinator answered: {}", head.lines().next().unwrap_or_default());
    }
    serde_json::from_slice(body).context("read the coordinator's answer")
}

fn split(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}
