//! Enrolment protocol, for machines that are not members yet: one short request, one short reply.
//!
//! The client presents no certificate, so it gets little: few connections at the same time, little
//! memory, little time. The callback reads the request, checks the join token and returns the
//! reply.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, Endpoint};
use tokio::time::timeout;

use super::link::Outgoing;
use super::{
    Code, Reason, SERVER_NAME, TransportError, TransportInner, TransportSettings, canonical, words,
};
use crate::request::BoxFuture;

/// Name of the protocol in the TLS handshake (ALPN).
pub(super) const PROTOCOL: &[u8] = b"volvox-enrol/1";
/// Maximum length of a request and of a reply, in bytes.
pub const ENROL_LIMIT: usize = 16 << 10;
/// Maximum number of enrolments that are served at the same time.
pub(super) const AT_ONCE: usize = 32;

/// Answers an enrolment request, given its bytes and the address of the client. It has
/// [`TransportSettings::enrol_deadline`] and is dropped after that.
pub type Enrolment = Arc<dyn Fn(Vec<u8>, SocketAddr) -> BoxFuture<Vec<u8>> + Send + Sync>;

/// Why an enrolment request has no reply.
#[derive(Debug, thiserror::Error)]
pub enum EnrolCallError {
    /// The socket cannot be bound, or TLS cannot be used. Nothing was sent.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The request has this many bytes, which is too long. Nothing was sent.
    #[error("the request has {0} bytes, the limit is {ENROL_LIMIT}")]
    TooLarge(usize),
    /// No reply in time. The request may have been received.
    #[error("{0} did not answer in time")]
    Deadline(SocketAddr),
    /// The server is unreachable, is not trusted, or refused. The request may have been received.
    #[error("{address}: {reason}")]
    Failed {
        /// Address that was asked.
        address: SocketAddr,
        /// Cause, as text for operators.
        reason: String,
    },
}

/// Serves one enrolment connection.
pub(super) async fn serve(inner: &TransportInner, connection: Connection) {
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
        // Closing now would drop bytes that the client has not acknowledged. The client closes.
        connection.closed().await;
        Ok(())
    };
    match timeout(inner.settings.enrol_deadline, exchange).await {
        Ok(Ok(())) => {}
        Ok(Err(why)) => refuse(&why),
        Err(_) => refuse("it took too long"),
    }
}

/// Sends an enrolment request to the member at `address`. `tls` decides which server is trusted;
/// its protocols (ALPN) are replaced. Returns after at most `deadline`, plus up to a second to
/// close.
pub async fn enrol(
    address: SocketAddr,
    mut tls: rustls::ClientConfig,
    request: Vec<u8>,
    deadline: Duration,
) -> Result<Vec<u8>, EnrolCallError> {
    if request.len() > ENROL_LIMIT {
        return Err(EnrolCallError::TooLarge(request.len()));
    }
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    tls.enable_early_data = false;
    let local: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let config = TransportSettings::cell(local).client_with(tls)?;
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
            // The close reason of the peer is more precise than "stream was reset".
            connection.close_reason().map_or_else(|| words(&error), |reason| words(&reason))
        })
    };
    let answer = timeout(deadline, exchange).await;
    endpoint.close(Code::Done.into(), b"");
    // Waits until the server receives the close. If it does not, the server closes at its deadline.
    let _ = timeout(super::SHUTDOWN, endpoint.wait_idle()).await;
    match answer {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(reason)) => Err(EnrolCallError::Failed { address, reason }),
        Err(_) => Err(EnrolCallError::Deadline(address)),
    }
}
