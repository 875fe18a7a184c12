//! What callers of the transport give and hear.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustls::pki_types::CertificateDer;

use super::DIALS;
use crate::identity::{CertificateError, Kind, MemberId, MemberIdentity};

/// Reads and checks the certificates that a peer showed; `None` if it showed none.
pub type Identify =
    Arc<dyn Fn(Option<&[CertificateDer<'static>]>) -> Result<Peer, CertificateError> + Send + Sync>;

/// Keys and certificates. The protocols (ALPN) in the configurations are replaced by ours. The
/// server must ask for a certificate and let pass who has none: those who enrol have none.
#[derive(Clone)]
pub struct Tls {
    /// How we answer.
    pub server: Arc<rustls::ServerConfig>,
    /// How we dial. Servers are asked for by [`SERVER_NAME`](super::SERVER_NAME).
    pub client: Arc<rustls::ClientConfig>,
    /// Who the peer is.
    pub identify: Identify,
}

/// The other side of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// MemberSelector its certificate names.
    pub identity: MemberIdentity,
    /// The certificate (X.509, DER).
    pub certificate: Vec<u8>,
}

/// What the owner of a transport hears. Only packets may be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransportEvent {
    /// There is a link, or a newer connection of one: the member restarted, its address changed, or
    /// a dial of ours succeeded too. No packet of a member comes before its first `LinkUp`.
    LinkUp {
        /// Whose.
        peer: Peer,
        /// Where it is.
        address: SocketAddr,
        /// Whether we dialled.
        dialled: bool,
    },
    /// The last connection to the member is gone.
    LinkDown {
        /// Whose.
        member: MemberId,
        /// Why, for people.
        reason: String,
    },
    /// A dial did not become a link. Every dial that was not refused ends in this or in `LinkUp`.
    DialFailed {
        /// Who was to be there.
        member: Option<MemberId>,
        /// Where.
        address: SocketAddr,
        /// Why, for people.
        reason: String,
    },
    /// A packet came.
    Packet {
        /// From whom, as its certificate says.
        from: MemberId,
        /// From where.
        address: SocketAddr,
        /// The packet.
        bytes: Bytes,
    },
}

/// Why there is no transport, or it could not be changed. It is as it was before.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The socket.
    #[error("cannot listen on {address}: {source}")]
    Socket {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// TLS as given cannot be used for QUIC.
    #[error("TLS cannot be used for QUIC: {0}")]
    Tls(String),
    /// A setting.
    #[error("settings: {0}")]
    Settings(&'static str),
}

impl TransportError {
    pub(super) fn tls(error: impl std::fmt::Display) -> Self {
        Self::Tls(error.to_string())
    }
}

/// Why a dial was not begun. Nothing will be told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialRefused {
    /// The member or the address is being dialled, or its failure was not told yet.
    #[error("the member or the address is being dialled")]
    UnderWay,
    /// There are as many dials as there may be.
    #[error("{DIALS} dials are under way")]
    Full,
    /// The transport was shut down.
    #[error("the transport was shut down")]
    Stopped,
}

/// One link, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkInfo {
    /// Whose.
    pub member: MemberId,
    /// What the member is for.
    pub kind: Kind,
    /// Where it is now.
    pub address: SocketAddr,
    /// Whether we dialled the connection that is used for sending.
    pub dialled: bool,
    /// The version of the mesh's protocol that both speak.
    pub version: u16,
    /// How long a packet and its acknowledgement take.
    pub round_trip: Duration,
    /// UDP packets that we sent on this connection.
    pub sent_packets: u64,
    /// Bytes in them, with all of QUIC's.
    pub sent_bytes: u64,
}
