//! Real endpoints on loopback: members, unauthenticated peers and attackers.

mod enrolment;
mod hostile;
mod links;
mod packets;
mod requests;
mod streams;

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, Endpoint};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use tokio::sync::mpsc;
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::*;
use crate::identity::{MemberIdentity, MemberKind};
use crate::request::Router;

/// Long enough for an overloaded machine, and a limit for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The certificate authority (CA) of a cluster.
struct Authority(CertifiedIssuer<'static, KeyPair>);

fn member(n: u8) -> MemberId {
    MemberId([n; 16])
}

fn key() -> KeyPair {
    KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap()
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "authority");
        Self(CertifiedIssuer::self_signed(params, key()).unwrap())
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    /// TLS with a certificate that has this common name. `identify` accepts `cell-N` and
    /// `coordinator-N`.
    fn tls_named(&self, name: &str) -> Tls {
        let mut params = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let leaf_key = key();
        let leaf = params.signed_by(&leaf_key, &self.0).unwrap().der().clone();
        let secret = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(leaf_key.serialize_der()));
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots(), provider.clone())
            .allow_unauthenticated()
            .build()
            .unwrap();
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![leaf.clone()], secret())
            .unwrap();
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.roots())
            .with_client_auth_cert(vec![leaf], secret())
            .unwrap();
        Tls { server: Arc::new(server), client: Arc::new(client), identify: Arc::new(identify) }
    }

    fn tls(&self, kind: MemberKind, n: u8) -> Tls {
        match kind {
            MemberKind::Cell => self.tls_named(&format!("cell-{n}")),
            MemberKind::Coordinator => self.tls_named(&format!("coordinator-{n}")),
        }
    }

    /// TLS of a client that trusts the CA and has no certificate.
    fn stranger(&self) -> rustls::ClientConfig {
        rustls::ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth()
    }
}

fn identify(shown: Option<&[CertificateDer<'static>]>) -> Result<Peer, CertificateError> {
    let malformed = || CertificateError::Malformed("of a test".into());
    let leaf = shown.and_then(<[_]>::first).ok_or_else(malformed)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| malformed())?;
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let name = name.ok_or_else(malformed)?;
    let (kind, n) = name.split_once('-').ok_or_else(malformed)?;
    let kind = if kind == "cell" { MemberKind::Cell } else { MemberKind::Coordinator };
    let identity = MemberIdentity {
        member: member(n.parse().map_err(|_| malformed())?),
        kind,
        name: CellId::new(name).map_err(|_| malformed())?,
        public_key: [0; 32],
        not_before: Timestamp::from_secs(0),
        not_after: Timestamp::from_secs(0),
    };
    Ok(Peer { identity, certificate: leaf.to_vec() })
}

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A member under test.
struct Side {
    transport: Transport,
    events: mpsc::Receiver<TransportEvent>,
    id: MemberId,
}

/// Builder of a member under test.
struct Build {
    settings: TransportSettings,
    tls: Tls,
    service: Router,
    capacity: usize,
    id: MemberId,
}

impl Build {
    fn new(authority: &Authority, n: u8) -> Self {
        Self::of_kind(authority, MemberKind::Cell, n)
    }

    fn of_kind(authority: &Authority, kind: MemberKind, n: u8) -> Self {
        Self {
            settings: TransportSettings::cell(loopback()),
            tls: authority.tls(kind, n),
            service: Router::new(),
            capacity: 256,
            id: member(n),
        }
    }

    fn set(mut self, change: impl FnOnce(&mut TransportSettings)) -> Self {
        change(&mut self.settings);
        self
    }

    fn serving(mut self, service: Router) -> Self {
        self.service = service;
        self
    }

    fn open(self) -> Side {
        let (sender, events) = mpsc::channel(self.capacity);
        let service = Arc::new(self.service);
        let transport = Transport::open(self.settings, self.tls, sender, service).unwrap();
        Side { transport, events, id: self.id }
    }
}

fn cell(authority: &Authority, n: u8) -> Side {
    Build::new(authority, n).open()
}

async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(PATIENCE, future).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain for {what}"))
}

/// Polls until the condition is true.
async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(2));
    patiently(what, async {
        while !so() {
            looks.tick().await;
        }
    })
    .await;
}

impl Side {
    fn address(&self) -> SocketAddr {
        self.transport.address()
    }

    async fn next(&mut self) -> TransportEvent {
        patiently("a happening", self.events.recv()).await.unwrap()
    }

    async fn link_up(&mut self) -> (MemberId, SocketAddr, bool) {
        match self.next().await {
            TransportEvent::LinkUp { peer, address, dialled } => {
                (peer.identity.member, address, dialled)
            }
            other => panic!("not a LinkUp: {other:?}"),
        }
    }

    async fn link_down(&mut self) -> (MemberId, String) {
        match self.next().await {
            TransportEvent::LinkDown { member, reason } => (member, reason),
            other => panic!("not a LinkDown: {other:?}"),
        }
    }

    async fn dial_failed(&mut self) -> (SocketAddr, String) {
        match self.next().await {
            TransportEvent::DialFailed { address, reason, .. } => (address, reason),
            other => panic!("not a DialFailed: {other:?}"),
        }
    }

    async fn packet(&mut self) -> (MemberId, Bytes) {
        match self.next().await {
            TransportEvent::Packet { from, bytes, .. } => (from, bytes),
            other => panic!("not a Packet: {other:?}"),
        }
    }

    async fn counted(&self, reason: Reason, least: u64) {
        let counted = || self.transport.counters().of(reason) >= least;
        until(&format!("{least} of {reason:?}"), counted).await;
    }

    /// Dials, and waits until both sides have reported the link.
    async fn link_to(&mut self, other: &mut Side) {
        self.transport.dial(Some(other.id), other.address()).unwrap();
        assert_eq!(self.link_up().await, (other.id, other.address(), true));
        let (from, _, dialled) = other.link_up().await;
        assert_eq!((from, dialled), (self.id, false));
    }

    /// Sends a packet and waits until it arrives: the link works.
    async fn reaches(&self, other: &mut Side) {
        self.transport.send(other.id, Bytes::from_static(b"hello"), Delivery::Stream);
        assert_eq!(other.packet().await, (self.id, Bytes::from_static(b"hello")));
    }
}

/// A member that is a bare QUIC client: the test controls every byte that it sends.
struct Raw {
    _endpoint: Endpoint,
    connection: Connection,
}

/// Connects a bare client with this TLS and these protocols.
async fn raw_with(
    tls: rustls::ClientConfig,
    protocols: &[&[u8]],
    to: SocketAddr,
) -> Result<Raw, quinn::ConnectionError> {
    let mut tls = tls;
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let endpoint = Endpoint::client(loopback()).unwrap();
    let config = TransportSettings::cell(loopback()).client_with(tls).unwrap();
    let connecting = endpoint.connect_with(config, to, SERVER_NAME).unwrap();
    let connection = patiently("a handshake", connecting).await?;
    Ok(Raw { _endpoint: endpoint, connection })
}

async fn raw(authority: &Authority, n: u8, to: &mut Side) -> Raw {
    let tls = (*authority.tls(MemberKind::Cell, n).client).clone();
    let raw = raw_with(tls, &[b"volvox-mesh/1"], to.address()).await.unwrap();
    assert_eq!(to.link_up().await.0, member(n));
    raw
}
