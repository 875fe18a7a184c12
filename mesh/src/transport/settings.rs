//! Limits and times of the transport, and their translation to quinn's configuration.

use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{EndpointConfig, IdleTimeout, TransportConfig, VarInt};
use quinn_proto::HashedConnectionIdGenerator;
use ring::hmac;

use super::{TransportError, enrolment};
use crate::identity::MemberId;
use crate::transport::Tls;

/// Versions of the mesh protocol that this release supports, the newest first.
pub const VERSIONS: [u16; 1] = [1];
/// Name of the protocol in the TLS handshake (ALPN): this prefix and the version number.
const PROTOCOL: &str = "volvox-mesh/";
/// Server name in the TLS handshake. It has no meaning: the certificate identifies the member.
pub const SERVER_NAME: &str = "volvox";

/// Maximum number of open packet streams of a peer. More than one, so that a lost UDP packet does
/// not delay the next message.
const PACKET_STREAMS: u32 = 16;
/// Number of requests above the limit that a peer may start, so that it receives `Busy` instead of
/// no answer.
const SURPLUS_REQUESTS: usize = 16;
/// Bytes that a peer may send on one stream before they are read.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
/// Bytes that a peer may send on a connection before its identity is known.
pub(super) const STRANGER_WINDOW: u32 = 64 << 10;
/// Bytes of datagrams that wait unread or unsent, per link: about fifty datagrams. Above that, QUIC
/// drops the oldest.
const DATAGRAM_BUFFER: usize = 64 << 10;
/// Unacknowledged bytes in streams, per link.
const SEND_WINDOW: u64 = 2 << 20;
/// Buffer for the messages of one handshake, in bytes: a few certificates.
const CRYPTO_BUFFER: usize = 16 << 10;
/// Buffers for connections that are not accepted yet, in bytes: for one, and for all of them.
const INCOMING_BUFFER: u64 = 8 << 10;
const INCOMING_BUFFERS: u64 = 2 << 20;
/// Maximum of [`TransportSettings::idle_timeout`].
const IDLE_MOST: Duration = Duration::from_secs(86_400);
/// Packet size that every path on the internet carries without fragmentation, in bytes.
const INITIAL_MTU: u16 = 1_200;
/// Assumed round-trip time of a new connection. A lost first packet is sent again after three times
/// this; the default of quinn would have it lost for a second. A longer path costs a repeated packet.
const INITIAL_RTT: Duration = Duration::from_millis(100);

/// Limits and times of a transport.
#[derive(Clone)]
pub struct TransportSettings {
    /// Address of the UDP socket. The IPv6 wildcard also accepts IPv4. On a machine without IPv6 it
    /// becomes the IPv4 wildcard.
    pub listen: SocketAddr,
    /// Id of this member: a link to itself is refused. `None`: no check.
    pub me: Option<MemberId>,
    /// Supported versions of the mesh protocol, the newest first; not empty. Two members use the
    /// first one in the answering side's list that the dialling side supports too.
    pub versions: Vec<u16>,
    /// A secret of this member that survives a restart. With it the endpoint answers a packet of a
    /// connection that an earlier process had, so that the peer notices the restart at once. `None`:
    /// a random one, and peers notice it when their connection is idle for too long.
    pub reset_key: Option<[u8; 32]>,
    /// Maximum number of members with a link.
    pub max_links: usize,
    /// Maximum number of dials at the same time. Further dials wait.
    pub dials_at_once: usize,
    /// Time limit of a dial, from its first packet on, and of an incoming handshake.
    pub dial_deadline: Duration,
    /// A link without a received packet for this long is closed. The smaller value of both sides
    /// applies. Also: a connection that has a newer one beside it is closed after this time without
    /// use. Above zero, at most one day.
    pub idle_timeout: Duration,
    /// Interval of keep-alive packets on a quiet link. `None`: this side sends none.
    pub keep_alive: Option<Duration>,
    /// Time limit of a message by stream, from its first byte to its last, received or sent.
    pub message_deadline: Duration,
    /// Time limit of one enrolment, after the handshake.
    pub enrol_deadline: Duration,
    /// Number of incoming handshakes in progress from which on a client must prove its address. 0:
    /// always.
    pub half_open_retry: usize,
    /// Maximum number of incoming handshakes in progress. More are refused.
    pub half_open_most: usize,
    /// Maximum length of a request, sent or served, in bytes.
    pub request_limit: usize,
    /// Maximum length of a reply, sent or received, in bytes.
    pub reply_limit: usize,
    /// Maximum number of requests of one connection that are served at the same time.
    pub requests_per_link: usize,
    /// Maximum number of requests that are served at the same time, of all connections.
    pub requests_at_once: usize,
    /// Maximum number of open streams of one connection, opened by either side.
    pub streams_per_link: usize,
    /// Maximum number of open streams, of all connections.
    pub streams_at_once: usize,
    /// Memory budget for received messages and requests of all links, in bytes. Datagrams are not
    /// counted.
    pub inbound_bytes: usize,
    /// Part of `inbound_bytes` that one member may use, in bytes.
    pub inbound_per_link: usize,
    /// Bytes that a member may send on one connection before they are read.
    pub receive_window: u32,
    /// Answers enrolment requests. `None`: this member refuses them.
    pub enrolment: Option<enrolment::Enrolment>,
}

impl TransportSettings {
    /// quinn's endpoint: after a restart it recognises connection ids of the process before.
    pub(super) fn endpoint(&self) -> EndpointConfig {
        let Some(key) = self.reset_key else { return EndpointConfig::default() };
        let half = |at: usize| key[at..].first_chunk::<8>().copied().unwrap_or_default();
        let ids = u64::from_le_bytes(half(0)) ^ u64::from_le_bytes(half(24));
        let mut config = EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &key)));
        config.cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(ids)));
        // After a restart all peers send at the same time, and each must receive its answer. An answer is
        // smaller than what provoked it, and only a connection id of this member's provokes one.
        config.min_reset_interval(Duration::ZERO);
        config
    }

    /// Settings of a cell: few links.
    pub fn cell(listen: SocketAddr) -> Self {
        Self {
            listen,
            me: None,
            versions: VERSIONS.to_vec(),
            reset_key: None,
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

    /// Settings of a coordinator: a link to every cell.
    pub fn coordinator(listen: SocketAddr) -> Self {
        Self {
            max_links: 16_384,
            // The cells dial and send keep-alives: through NAT they must, and one side is enough.
            keep_alive: None,
            // After a restart of the coordinator all cells connect at the same time.
            half_open_retry: 512,
            half_open_most: 2_048,
            streams_at_once: 512,
            inbound_bytes: 256 << 20,
            inbound_per_link: 32 << 20,
            receive_window: 2 << 20,
            ..Self::cell(listen)
        }
    }

    /// The wildcard address of IPv6 and IPv4, with a port that the operating system chooses.
    pub fn anywhere() -> SocketAddr {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))
    }

    /// Checks the ranges of the settings.
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

    /// The part of quinn's configuration that all connections share.
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
            .initial_mtu(INITIAL_MTU)
            .initial_rtt(INITIAL_RTT);
        Ok(config)
    }

    /// Configuration for incoming handshakes.
    pub(super) fn server(&self, tls: &Tls) -> Result<quinn::ServerConfig, TransportError> {
        let mut crypto = (*tls.server).clone();
        crypto.alpn_protocols = self.protocols().chain([enrolment::PROTOCOL.to_vec()]).collect();
        // A request sent before the handshake is complete (early data) can be replayed by an
        // attacker.
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

    /// Configuration for dials to members.
    pub(super) fn client(&self, tls: &Tls) -> Result<quinn::ClientConfig, TransportError> {
        let mut crypto = (*tls.client).clone();
        crypto.alpn_protocols = self.protocols().collect();
        crypto.enable_early_data = false;
        self.client_with(crypto)
    }

    /// Configuration for dials with this TLS configuration, unchanged.
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

/// Version number in the name of a protocol. `None`: it is not a mesh protocol.
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
