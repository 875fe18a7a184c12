//! Types that callers of the transport pass and receive.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::CertificateDer;

use super::DIALS;
use crate::identity::{CertificateError, MemberId, MemberIdentity, MemberKind};

/// Reads and checks the certificates that a peer presented. `None`: it presented none.
pub type Identify =
    Arc<dyn Fn(Option<&[CertificateDer<'static>]>) -> Result<Peer, CertificateError> + Send + Sync>;

/// Keys and certificates. The transport replaces the protocols (ALPN) in both configurations. The
/// server must request a client certificate but not require one, because enrolling machines have
/// none.
#[derive(Clone)]
pub struct Tls {
    /// TLS configuration for incoming handshakes.
    pub server: Arc<rustls::ServerConfig>,
    /// TLS configuration for dials. The server name is always [`SERVER_NAME`](super::SERVER_NAME).
    pub client: Arc<rustls::ClientConfig>,
    /// Checks the certificates of a peer and returns its identity.
    pub identify: Identify,
}

/// The member at the other end of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Identity from the peer's certificate.
    pub identity: MemberIdentity,
    /// The certificate (X.509, DER).
    pub certificate: Vec<u8>,
}

/// Event for the owner of a transport. Only packets may be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportEvent {
    /// A link came up, or it has a newer connection: the member restarted, its address changed, or
    /// a dial by this member succeeded too. No packet of a member comes before its first `LinkUp`.
    LinkUp {
        /// The other member and its certificate.
        peer: Peer,
        /// Remote address of the connection.
        address: SocketAddr,
        /// Whether this member dialled the connection.
        dialled: bool,
    },
    /// The last connection to the member has ended.
    LinkDown {
        /// The other member.
        member: MemberId,
        /// Cause, as text for operators.
        reason: String,
    },
    /// A dial did not become a link. Every dial that was not refused ends in `DialFailed` or in
    /// `LinkUp`.
    DialFailed {
        /// The member that was expected. `None`: any member.
        member: Option<MemberId>,
        /// Address that was dialled.
        address: SocketAddr,
        /// Cause, as text for operators.
        reason: String,
    },
    /// A packet was received.
    Packet {
        /// Sender, as its certificate names it.
        from: MemberId,
        /// Remote address of the connection.
        address: SocketAddr,
        /// The packet, as the peer sent it.
        bytes: Bytes,
    },
}

/// Why a transport could not be opened or changed. After a failed
/// [`Transport::replace_tls`](super::Transport::replace_tls) it is unchanged. After a failed
/// [`Transport::rebind`](super::Transport::rebind) it may listen on another port.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The socket cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Socket {
        /// Local address of the socket.
        address: SocketAddr,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The given TLS configuration cannot be used for QUIC.
    #[error("TLS cannot be used for QUIC: {0}")]
    Tls(String),
    /// A setting is out of range; the text names it.
    #[error("settings: {0}")]
    Settings(&'static str),
}

impl TransportError {
    pub(super) fn tls(error: impl std::fmt::Display) -> Self {
        Self::Tls(error.to_string())
    }
}

/// Why a dial was not started. No event follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialRefused {
    /// The member or the address is being dialled, or its failure was not reported yet.
    #[error("the member or the address is being dialled")]
    UnderWay,
    /// The number of dials is at its limit.
    #[error("{DIALS} dials are under way")]
    Full,
    /// The transport was shut down.
    #[error("the transport was shut down")]
    Stopped,
}

/// State of one link, at the time of the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// The other member.
    pub member: MemberId,
    /// Kind of the other member.
    pub kind: MemberKind,
    /// Current remote address.
    pub address: SocketAddr,
    /// Whether this member dialled the connection that is used for sending.
    pub dialled: bool,
    /// Version of the mesh protocol that both sides agreed on.
    pub version: u16,
    /// Estimated round-trip time.
    pub round_trip: Duration,
    /// Number of UDP packets sent on this connection.
    pub sent_packets: u64,
    /// Number of bytes in these UDP packets, QUIC's overhead included.
    pub sent_bytes: u64,
}
