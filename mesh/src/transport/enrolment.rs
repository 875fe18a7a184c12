//! The protocol for those who are no members yet: one question, one answer, both short.
//!
//! Who asks shows no certificate, so nothing is promised to it: few at once, little memory, little
//! time. What is asked and answered is the callback's matter, and so is whether the token is good.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, Endpoint};
use tokio::time::timeout;

use super::link::Outgoing;
use super::{Code, Inner, Reason, SERVER_NAME, Settings, TransportError, canonical, words};
use crate::request::BoxFuture;

/// The protocol's name in the handshake.
pub(super) const PROTOCOL: &[u8] = b"volvox-enrol/1";
/// How long a question and an answer may be.
pub const ENROL_LIMIT: usize = 16 << 10;
/// How many may be answered at once.
pub(super) const AT_ONCE: usize = 32;

/// Answers a stranger's question. It has [`Settings::enrol_deadline`], and is dropped after that.
pub type Enrolment = Arc<dyn Fn(Vec<u8>, SocketAddr) -> BoxFuture<Vec<u8>> + Send + Sync>;

/// Why there was no answer.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// No socket, or TLS that cannot be used. Nothing was sent.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The question is too long. Nothing was sent.
    #[error("the request has {0} bytes, the limit is {ENROL_LIMIT}")]
    TooLarge(usize),
    /// It took too long. Whether the question was heard is unknown.
    #[error("{0} did not answer in time")]
    Deadline(SocketAddr),
    /// Nobody there, not whom we trust, or it refused. Whether the question was heard is unknown.
    #[error("{address}: {reason}")]
    Failed {
        /// Where.
        address: SocketAddr,
        /// Why, for people.
        reason: String,
    },
}

/// Serves one connection of a stranger.
pub(super) async fn serve(inner: &Inner, connection: Connection) {
    let from = canonical(connection.remote_address());
    let refuse = |why: &str| {
        inner.tally.count(Reason::EnrolRefused, format_args!("{from}: {why}"));
        connection.close(Code::Closed.into(), why.as_bytes());
    };
    let Some(enrolment) = &inner.settings.enrolment else {
        return refuse("nobody can enrol here");
    };
    let Ok(_place) = inner.enrolling.try_acquire() else {
        return refuse("too many enrol at once, try again later");
    };
    let exchange = async {
        let (reply, mut request) = connection.accept_bi().await.map_err(|error| words(&error))?;
        let question = request.read_to_end(ENROL_LIMIT).await.map_err(|error| words(&error))?;
        let answer = enrolment(question, from).await;
        if answer.len() > ENROL_LIMIT {
            return Err("the answer is too long".to_owned());
        }
        let mut reply = Outgoing::new(reply);
        let bytes = Bytes::from(answer);
        reply.finish_with(&mut [bytes]).await.map_err(|error| words(&error))?;
        // Closing now would drop what is not acknowledged. The asker closes.
        connection.closed().await;
        Ok(())
    };
    match timeout(inner.settings.enrol_deadline, exchange).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => refuse(&why),
        Err(_) => refuse("it took too long"),
    }
}

/// Asks the member at `address` to let us enrol. `tls` says whom we trust; its protocols (ALPN) are
/// replaced. The answer comes within `deadline` or not at all.
pub async fn enrol(
    address: SocketAddr,
    mut tls: rustls::ClientConfig,
    request: Vec<u8>,
    deadline: Duration,
) -> Result<Vec<u8>, EnrolError> {
    if request.len() > ENROL_LIMIT {
        return Err(EnrolError::TooLarge(request.len()));
    }
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    tls.enable_early_data = false;
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let config = Settings::cell(local).client_with(tls)?;
    let endpoint = Endpoint::client(local)
        .map_err(|source| TransportError::Socket { address: local, source })?;
    let exchange = async {
        let connecting = endpoint.connect_with(config, address, SERVER_NAME);
        let connection =
            connecting.map_err(|error| words(&error))?.await.map_err(|error| words(&error))?;
        let (send, mut recv) = connection.open_bi().await.map_err(|error| words(&error))?;
        let question = Bytes::from(request);
        let sent = Outgoing::new(send).finish_with(&mut [question]).await;
        sent.map_err(|error| words(&error))?;
        recv.read_to_end(ENROL_LIMIT).await.map_err(|error| {
            // The peer's own words say more than that a stream broke off.
            connection.close_reason().map_or_else(|| words(&error), |reason| words(&reason))
        })
    };
    let answer = timeout(deadline, exchange).await;
    endpoint.close(Code::Done.into(), b"");
    // So that the other side hears it. If it does not, it gives up by itself.
    let _ = timeout(super::SHUTDOWN, endpoint.wait_idle()).await;
    match answer {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(reason)) => Err(EnrolError::Failed { address, reason }),
        Err(_) => Err(EnrolError::Deadline(address)),
    }
}
