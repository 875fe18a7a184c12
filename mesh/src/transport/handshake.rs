//! How connections are established: incoming handshakes, and dials by this member.
//!
//! A connection becomes a link when its certificate is checked and the pool has a free slot. Until
//! then nothing is read from it. The answering side then sends a welcome on its first stream, and
//! only the welcome makes it a link for the dialling side. The reason: in TLS 1.3 the client
//! finishes the handshake before the server has checked the client's certificate.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, ConnectionError, Incoming};
use tokio::time::timeout;
use volvox_host::clock::monotonic;
use volvox_host::sync::lock;

use super::link::{self, Link, Outgoing};
use super::{
    Code, Peer, Reason, SERVER_NAME, TransportInner, canonical, enrolment, settings::version, words,
};
use crate::identity::{CertificateError, MemberId};

/// First byte of the first stream of the answering side. Later releases may define what follows in
/// that stream.
pub(super) const WELCOME: u8 = b'W';
/// Maximum number of bytes that are read from a welcome.
const WELCOME_LENGTH: usize = 64;
/// TLS alert `no_application_protocol`: the two sides have no protocol in common.
const NO_APPLICATION_PROTOCOL: u8 = 120;

/// What to do with an incoming handshake.
#[derive(Debug, PartialEq, Eq)]
enum HandshakeDecision {
    Open,
    /// The client must prove its address first. This uses no memory here.
    Retry,
    Shut,
}

/// Decides by the number of incoming handshakes in progress. `proven`: the client's address is
/// validated. `retry` and `most` are the limits from the settings.
fn decide(half_open: usize, proven: bool, retry: usize, most: usize) -> HandshakeDecision {
    if half_open >= most {
        HandshakeDecision::Shut
    } else if half_open >= retry && !proven {
        HandshakeDecision::Retry
    } else {
        HandshakeDecision::Open
    }
}

/// Answers handshakes until the endpoint is closed.
pub(super) async fn answer(inner: Arc<TransportInner>) {
    while let Some(incoming) = inner.endpoint.accept().await {
        let half_open = inner.half_open.load(Ordering::Relaxed);
        let (retry, most) = (inner.settings.half_open_retry, inner.settings.half_open_most);
        let proven = incoming.remote_address_validated();
        let from = incoming.remote_address();
        match decide(half_open, proven, retry, most) {
            HandshakeDecision::Open => {
                let handshake = HalfOpen::new(inner.clone());
                tokio::spawn(greet(handshake, incoming));
            }
            HandshakeDecision::Retry => {
                inner.tally.count(Reason::Retried, from);
                if let Err(error) = incoming.retry() {
                    error.into_incoming().ignore();
                }
            }
            HandshakeDecision::Shut => {
                inner.tally.count(Reason::HalfOpenFull, from);
                // An address that is not proven gets no answer: it may be the address of a victim.
                if proven { incoming.refuse() } else { incoming.ignore() }
            }
        }
    }
}

/// Counts an incoming handshake in progress.
struct HalfOpen(Arc<TransportInner>);

impl HalfOpen {
    fn new(inner: Arc<TransportInner>) -> Self {
        inner.half_open.fetch_add(1, Ordering::Relaxed);
        Self(inner)
    }
}

impl Drop for HalfOpen {
    fn drop(&mut self) {
        self.0.half_open.fetch_sub(1, Ordering::Relaxed);
        if std::thread::panicking() {
            self.0.tally.count(Reason::Panicked, "a handshake");
        }
    }
}

/// Completes an incoming handshake: the result is a link or a refusal.
async fn greet(handshake: HalfOpen, incoming: Incoming) {
    let inner = handshake.0.clone();
    let from = incoming.remote_address();
    let connected = async { incoming.accept()?.await };
    let connection = match timeout(inner.settings.dial_deadline, connected).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => {
            let reason = match &error {
                ConnectionError::TransportError(error) if error.code == no_protocol() => {
                    Reason::UnknownProtocol
                }
                _ => Reason::HandshakeFailed,
            };
            return inner.tally.count(reason, format_args!("{from}: {}", words(&error)));
        }
        Err(_) => {
            return inner.tally.count(Reason::HandshakeFailed, format_args!("{from}: too slow"));
        }
    };
    let spoken = protocol(&connection);
    if spoken == enrolment::PROTOCOL {
        drop(handshake);
        return enrolment::serve(&inner, connection).await;
    }
    let Some(version) = version(&spoken) else {
        inner.tally.count(Reason::UnknownProtocol, from);
        return connection.close(Code::Protocol.into(), b"unknown protocol");
    };
    let peer = match inner.identify(&connection) {
        Ok(peer) => peer,
        Err(error) => {
            let reason = match (&connection.peer_identity(), &error) {
                (None, _) => Reason::NoIdentity,
                (
                    Some(_),
                    CertificateError::Malformed(_)
                    | CertificateError::Foreign
                    | CertificateError::Expired
                    | CertificateError::Revoked(_),
                ) => Reason::BadCertificate,
            };
            inner.tally.count(reason, format_args!("{from}: {error}"));
            return connection.close(Code::NoIdentity.into(), error.to_string().as_bytes());
        }
    };
    if inner.settings.me == Some(peer.identity.member) {
        inner.tally.count(Reason::UnexpectedMember, format_args!("{from} is ourselves"));
        return connection.close(Code::Unexpected.into(), b"this is yourself");
    }
    welcome(&inner, connection, peer, version).await;
}

/// Admits a link and sends the welcome.
async fn welcome(inner: &Arc<TransportInner>, connection: Connection, peer: Peer, version: u16) {
    // Before the link is in the pool, so that no packet's stream comes before this one.
    let opened = timeout(inner.settings.dial_deadline, connection.open_uni()).await;
    let Ok(Ok(stream)) = opened else {
        inner.tally.count(Reason::HandshakeFailed, "no stream for a welcome");
        return connection.close(Code::Protocol.into(), b"no stream for a welcome");
    };
    let link = Link::new(inner, peer, connection, false, version);
    if admit(inner, &link) {
        // A failed write means that the connection has ended; the link's task reports that.
        let _ = Outgoing::new(stream).finish_with(&mut [Bytes::from_static(&[WELCOME])]).await;
    }
}

/// Adds a connection to the pool and starts its task. Returns false if the connection is refused;
/// it is closed then.
fn admit(inner: &Arc<TransportInner>, link: &Arc<Link>) -> bool {
    let member = link.peer.identity.member;
    if link.quota.is_barred(monotonic()) {
        inner.tally.count(Reason::Barred, format_args!("{member} comes again too soon"));
        link.close(Code::Excess, "you sent too much: come again later");
        return false;
    }
    let mut state = inner.state();
    let Some(admitted) = state.pool.admit(link.clone()) else {
        drop(state);
        inner.tally.count(Reason::PoolFull, member);
        link.close(Code::Full, "there are as many links as there may be");
        return false;
    };
    let address = canonical(link.connection.remote_address());
    let told = state.link_changes.up(&link.peer, address, link.dialled);
    if let Some((displaced, _)) = &admitted.displaced {
        state.link_changes.down(*displaced, "gave way to another link".into());
    }
    drop(state);
    inner.news.notify_one();
    tokio::spawn(link::run(inner.clone(), link.clone(), told));
    if let Some(surplus) = admitted.surplus {
        surplus.close(Code::Done, "newer connections exist");
    }
    if let Some((displaced, connections)) = admitted.displaced {
        inner.tally.count(Reason::Displaced, displaced);
        connections.iter().for_each(|link| link.close(Code::Full, "gave way to another link"));
    }
    true
}

/// A dial in progress. When it is dropped and `failure` is set, the failure is reported.
struct Dial {
    inner: Arc<TransportInner>,
    member: Option<MemberId>,
    address: SocketAddr,
    /// Why the dial failed. `None`: it succeeded.
    failure: Option<String>,
}

impl Drop for Dial {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.inner.tally.count(Reason::Panicked, "a dial");
        }
        let mut state = self.inner.state();
        match self.failure.take() {
            None => state.end_dial(self.member, self.address),
            Some(reason) => {
                state.link_changes.dial_failed(self.member, self.address, reason.clone());
                drop(state);
                let (address, tally) = (self.address, &self.inner.tally);
                tally.count(Reason::DialFailed, format_args!("{address}: {reason}"));
                self.inner.news.notify_one();
            }
        }
    }
}

/// Dials, after waiting for a free slot of [`dials_at_once`](super::TransportSettings::dials_at_once).
pub(super) async fn dial(
    inner: Arc<TransportInner>,
    member: Option<MemberId>,
    address: SocketAddr,
) {
    let failure = Some("its task ended".into());
    let mut dial = Dial { inner: inner.clone(), member, address, failure };
    let Ok(_turn) = inner.dials.acquire().await else { return };
    let attempt = attempt(&inner, member, address);
    dial.failure = match timeout(inner.settings.dial_deadline, attempt).await {
        Ok(Ok(link)) => (!admit(&inner, &link)).then(|| "there is no room for more links".into()),
        Ok(Err(reason)) => Some(reason),
        Err(_) => Some("nobody answered in time".into()),
    };
}

async fn attempt(
    inner: &TransportInner,
    member: Option<MemberId>,
    address: SocketAddr,
) -> Result<Arc<Link>, String> {
    let config = lock(&inner.dialler).config.clone();
    let connecting = inner.endpoint.connect_with(config, address, SERVER_NAME);
    let connecting = connecting.map_err(|error| words(&error))?;
    let connection = connecting.await.map_err(|error| words(&error))?;
    let close = |code: Code, why: String| {
        connection.close(code.into(), why.as_bytes());
        why
    };
    let peer = inner.identify(&connection).map_err(|error| {
        inner.tally.count(Reason::BadCertificate, format_args!("{address}: {error}"));
        close(Code::NoIdentity, error.to_string())
    })?;
    let answered = peer.identity.member;
    if member.is_some_and(|member| member != answered) || inner.settings.me == Some(answered) {
        inner.tally.count(Reason::UnexpectedMember, format_args!("{address}: {answered}"));
        return Err(close(Code::Unexpected, format!("member {answered} answered")));
    }
    let version = version(&protocol(&connection))
        .ok_or_else(|| close(Code::Protocol, "no protocol was agreed on".into()))?;
    let mut stream = connection.accept_uni().await.map_err(|error| words(&error))?;
    let first = stream.read_chunk(WELCOME_LENGTH, true).await.map_err(|error| words(&error))?;
    if first.and_then(|chunk| chunk.bytes.first().copied()) != Some(WELCOME) {
        return Err(close(Code::Protocol, "it did not say welcome".into()));
    }
    Ok(Link::new(inner, peer, connection, true, version))
}

/// The protocol (ALPN) that both sides agreed on. Empty: none.
fn protocol(connection: &Connection) -> Vec<u8> {
    let data = connection.handshake_data().and_then(|any| any.downcast::<HandshakeData>().ok());
    data.and_then(|data| data.protocol).unwrap_or_default()
}

fn no_protocol() -> quinn::TransportErrorCode {
    quinn::TransportErrorCode::crypto(NO_APPLICATION_PROTOCOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_handshakes_make_strangers_prove_their_address_and_more_shut_the_door() {
        for (half_open, proven, expected) in [
            (0, false, HandshakeDecision::Open),
            (3, false, HandshakeDecision::Open),
            (4, false, HandshakeDecision::Retry),
            (4, true, HandshakeDecision::Open),
            (7, true, HandshakeDecision::Open),
            (8, true, HandshakeDecision::Shut),
            (8, false, HandshakeDecision::Shut),
        ] {
            assert_eq!(decide(half_open, proven, 4, 8), expected, "{half_open} {proven}");
        }
        assert_eq!(decide(0, false, 0, 8), HandshakeDecision::Retry);
    }
}
