//! The transport's limits and times, and what they are in quinn's terms.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{IdleTimeout, TransportConfig, VarInt};

use super::{TransportError, enrolment};
use crate::identity::MemberId;
use crate::transport::Tls;

/// The versions of the mesh's protocol that this release speaks, the newest first.
pub const VERSIONS: [u16; 1] = [1];
/// What a version is called in the handshake: this and its number.
const PROTOCOL: &str = "volvox-mesh/";
/// The name that is asked for in handshakes. Who a member is, its certificate says and not a name.
pub const SERVER_NAME: &str = "volvox";

/// How many streams with a packet each a peer may have open. More than one, so that a lost UDP
/// packet does not hold up the next message.
const PACKET_STREAMS: u32 = 16;
/// How many requests above the limit a peer may begin, so that it hears `Busy` and not nothing.
const SURPLUS_REQUESTS: usize = 16;
/// What a peer may send on one stream before we read.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
/// What a peer may send before it is known who it is.
pub(super) const STRANGER_WINDOW: u32 = 64 << 10;
/// What waits unread or unsent as datagrams, per link: some fifty. Beyond, the oldest are dropped.
const DATAGRAM_BUFFER: usize = 64 << 10;
/// What waits unacknowledged in streams, per link.
const SEND_WINDOW: u64 = 2 << 20;
/// What may be buffered of a handshake's messages: a few certificates.
const CRYPTO_BUFFER: usize = 16 << 10;
/// What may be buffered of one connection that we have not looked at yet, and of all of them.
const INCOMING_BUFFER: u64 = 8 << 10;
const INCOMING_BUFFERS: u64 = 2 << 20;
/// The longest idle timeout.
const IDLE_MOST: Duration = Duration::from_secs(86_400);
/// What every path of the internet carries in one piece.
const INITIAL_MTU: u16 = 1_200;

/// Limits and times of a transport.
#[derive(Clone)]
pub struct Settings {
    /// Where to listen. The IPv6 wildcard also listens on IPv4, and is the IPv4 wildcard on a
    /// machine without IPv6.
    pub listen: SocketAddr,
    /// Who we are: a link to ourselves is refused.
    pub me: Option<MemberId>,
    /// The versions that we speak, the newest first. Two members speak the first one in the
    /// answering side's list that the dialling side has too.
    pub versions: Vec<u16>,
    /// How many members may have a link.
    pub max_links: usize,
    /// How many dials may be under way at once. Others wait for them.
    pub dials_at_once: usize,
    /// How long a dial may take, from its first packet on, and a handshake that others began.
    pub dial_deadline: Duration,
    /// After how long without a packet a link is dead. The smaller one of both sides counts. Also
    /// after how long without use a connection is closed that has a newer one beside it.
    pub idle_timeout: Duration,
    /// How often to send something on a link that is quiet.
    pub keep_alive: Option<Duration>,
    /// How long a message by stream may take, from its first byte to its last, in and out.
    pub message_deadline: Duration,
    /// How long the exchange with one who enrols may take, after the handshake.
    pub enrol_deadline: Duration,
    /// From how many handshakes on that others began an address must be proven first.
    pub half_open_retry: usize,
    /// How many handshakes that others began may be under way. More are refused.
    pub half_open_most: usize,
    /// How long a request may be that we send or serve.
    pub request_limit: usize,
    /// How long a reply may be that we send or accept.
    pub reply_limit: usize,
    /// How many requests of one connection are served at once.
    pub requests_per_link: usize,
    /// How many requests are served at once.
    pub requests_at_once: usize,
    /// How many streams of one connection may be open at once, whoever opened them.
    pub streams_per_link: usize,
    /// How many streams may be open at once.
    pub streams_at_once: usize,
    /// How many bytes of messages and requests from all links may be held at once. Datagrams do
    /// not count.
    pub inbound_bytes: usize,
    /// How many of them may be of one member.
    pub inbound_per_link: usize,
    /// What a member may send on one link before we read.
    pub receive_window: u32,
    /// Answers those who want to become members. Without it they are refused.
    pub enrolment: Option<enrolment::Enrolment>,
}

impl Settings {
    /// Those of a cell: few links.
    pub fn cell(listen: SocketAddr) -> Self {
        Self {
            listen,
            me: None,
            versions: VERSIONS.to_vec(),
            max_links: 64,
            dials_at_once: 8,
            dial_deadline: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(60),
            keep_alive: Some(Duration::from_secs(20)),
            message_deadline: Duration::from_secs(10),
            enrol_deadline: Duration::from_secs(10),
            half_open_retry: 64,
            half_open_most: 256,
            request_limit: 2 << 20,
            reply_limit: 4 << 20,
            requests_per_link: 64,
            requests_at_once: 1024,
            streams_per_link: 32,
            streams_at_once: 64,
            inbound_bytes: 64 << 20,
            inbound_per_link: 16 << 20,
            receive_window: 4 << 20,
            enrolment: None,
        }
    }

    /// Those of a coordinator: a link to every cell.
    pub fn coordinator(listen: SocketAddr) -> Self {
        Self {
            max_links: 16_384,
            // The cells dial, and keep their links alive: through NAT they must, and once is enough.
            keep_alive: None,
            // After a restart every cell comes at once.
            half_open_retry: 512,
            half_open_most: 2_048,
            streams_at_once: 512,
            inbound_bytes: 256 << 20,
            inbound_per_link: 32 << 20,
            receive_window: 2 << 20,
            ..Self::cell(listen)
        }
    }

    /// The wildcard of both families, with a port that the system chooses.
    pub fn anywhere() -> SocketAddr {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
    }

    /// Refuses what no transport can have.
    pub(super) fn check(&self) -> Result<(), TransportError> {
        if self.idle_timeout.is_zero() || self.idle_timeout > IDLE_MOST {
            return Err(TransportError::Settings("idle_timeout must be above zero, up to a day"));
        }
        if self.versions.is_empty() {
            return Err(TransportError::Settings("versions must name one"));
        }
        Ok(())
    }

    fn protocols(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.versions.iter().map(|version| format!("{PROTOCOL}{version}").into_bytes())
    }

    /// What all connections have in common.
    fn transport(&self) -> Result<TransportConfig, TransportError> {
        let idle = IdleTimeout::try_from(self.idle_timeout)
            .map_err(|_| TransportError::Settings("idle_timeout is too long"))?;
        let requests = self.requests_per_link + self.streams_per_link + SURPLUS_REQUESTS;
        let requests = u32::try_from(requests)
            .map_err(|_| TransportError::Settings("requests_per_link is too large"))?;
        let mut config = TransportConfig::default();
        config
            .max_concurrent_bidi_streams(VarInt::from_u32(requests))
            .max_concurrent_uni_streams(VarInt::from_u32(PACKET_STREAMS))
            .max_idle_timeout(Some(idle))
            .keep_alive_interval(self.keep_alive)
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(STRANGER_WINDOW))
            .send_window(SEND_WINDOW)
            .datagram_receive_buffer_size(Some(DATAGRAM_BUFFER))
            .datagram_send_buffer_size(DATAGRAM_BUFFER)
            .crypto_buffer_size(CRYPTO_BUFFER)
            .initial_mtu(INITIAL_MTU);
        Ok(config)
    }

    /// How we answer handshakes.
    pub(super) fn server(&self, tls: &Tls) -> Result<quinn::ServerConfig, TransportError> {
        let mut crypto = (*tls.server).clone();
        crypto.alpn_protocols = self.protocols().chain([enrolment::PROTOCOL.to_vec()]).collect();
        // A request that is sent before the handshake is over can be replayed by others.
        crypto.max_early_data_size = 0;
        let crypto = QuicServerConfig::try_from(Arc::new(crypto)).map_err(TransportError::tls)?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        config
            .transport_config(Arc::new(self.transport()?))
            .max_incoming(self.half_open_most.max(1))
            .incoming_buffer_size(INCOMING_BUFFER)
            .incoming_buffer_size_total(INCOMING_BUFFERS);
        Ok(config)
    }

    /// How we dial.
    pub(super) fn client(&self, tls: &Tls) -> Result<quinn::ClientConfig, TransportError> {
        let mut crypto = (*tls.client).clone();
        crypto.alpn_protocols = self.protocols().collect();
        crypto.enable_early_data = false;
        self.client_with(crypto)
    }

    /// How we dial with this TLS as it is.
    pub(super) fn client_with(
        &self,
        crypto: rustls::ClientConfig,
    ) -> Result<quinn::ClientConfig, TransportError> {
        let crypto = QuicClientConfig::try_from(Arc::new(crypto)).map_err(TransportError::tls)?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(self.transport()?));
        Ok(config)
    }
}

/// The version that a protocol's name stands for.
pub(super) fn version(protocol: &[u8]) -> Option<u16> {
    std::str::from_utf8(protocol).ok()?.strip_prefix(PROTOCOL)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_has_its_version_in_its_name() {
        assert_eq!(version(b"volvox-mesh/1"), Some(1));
        assert_eq!(version(b"volvox-mesh/65535"), Some(65535));
        for other in [&b"volvox-mesh/"[..], b"volvox-mesh/65536", b"volvox-enrol/1", b"h3", b"\xff"]
        {
            assert_eq!(version(other), None, "{other:?}");
        }
    }
}
