//! Two real endpoints on loopback: which peers connect, which are refused, and with which texts.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, ServerConfig};

use super::*;
use crate::identity::{CertificateError, MemberIdentity};
use crate::tls::certificate::Fingerprint;
use crate::tls::config::{
    ALPN_ENROL, ALPN_MESH, SERVER_NAME, TlsClock, client_config, joining_config, peer,
    peer_certificates, server_config,
};

const LIMIT: Duration = Duration::from_secs(20);

/// A clock that tests set.
#[derive(Clone)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn at(now: Timestamp) -> Self {
        Hand(Arc::new(AtomicU64::new(now.as_nanos())))
    }

    fn set(&self, now: Timestamp) {
        self.0.store(now.as_nanos(), Ordering::SeqCst);
    }

    fn clock(&self) -> TlsClock {
        let hand = Arc::clone(&self.0);
        Arc::new(move || Timestamp::from_nanos(hand.load(Ordering::SeqCst)))
    }
}

/// Result of a connection at its two ends.
struct Outcome {
    client: Result<Connection, ConnectionError>,
    server: Result<Connection, ConnectionError>,
}

impl Outcome {
    /// The error at the client: its own, or the one that the server sent.
    fn refusal(self) -> String {
        match self.client {
            Err(error) => error.to_string(),
            Ok(_) => panic!("it was let in"),
        }
    }
}

fn listen(credentials: &Credentials, hand: &Hand) -> Endpoint {
    let tls = server_config(credentials, &hand.clock()).unwrap();
    let quic = QuicServerConfig::try_from(tls).unwrap();
    let config = ServerConfig::with_crypto(Arc::new(quic));
    Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
}

async fn dial(server: &Endpoint, tls: rustls::ClientConfig) -> Outcome {
    let quic = QuicClientConfig::try_from(tls).unwrap();
    let config = ClientConfig::new(Arc::new(quic));
    let client = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = server.local_addr().unwrap();
    let connecting = client.connect_with(config, address, SERVER_NAME).unwrap();
    let accept = async { server.accept().await.unwrap().await };
    // In TLS 1.3 a client is connected before the server has checked its certificate. If the server
    // rejects the certificate, it closes the connection.
    let connect = async {
        let connection = connecting.await?;
        match connection.accept_uni().await {
            Ok(_) => Ok(connection),
            Err(error) => Err(error),
        }
    };
    let greet = async {
        let connection = accept.await?;
        let mut stream = connection.open_uni().await?;
        stream.write_all(b"hello").await.map_err(|_| ConnectionError::LocallyClosed)?;
        Ok(connection)
    };
    let both = async { tokio::join!(connect, greet) };
    let (client, server) = tokio::time::timeout(LIMIT, both).await.unwrap();
    Outcome { client, server }
}

fn seen(
    now: Timestamp,
    us: &Credentials,
    connection: &Connection,
) -> Result<(MemberIdentity, Vec<u8>), CertificateError> {
    let certificates = peer_certificates(connection.peer_identity());
    peer(now, &us.authenticator(), certificates.as_deref())
}

fn protocol(connection: &Connection) -> Vec<u8> {
    let data = connection.handshake_data().unwrap();
    let data = data.downcast::<quinn::crypto::rustls::HandshakeData>().unwrap();
    data.protocol.unwrap()
}

#[tokio::test]
async fn two_members_connect_and_know_each_other() {
    let (ca, hand) = (Ca::new(), Hand::at(NOW));
    let (a, b) = (ca.credentials(MemberKind::Cell, "a"), ca.credentials(MemberKind::Cell, "b"));
    let server = listen(&a, &hand);
    let outcome = dial(&server, client_config(&b, &hand.clock()).unwrap()).await;
    let (client, server) = (outcome.client.unwrap(), outcome.server.unwrap());
    let (identity, certificate) = seen(NOW, &a, &server).unwrap();
    assert_eq!((&identity, &certificate[..]), (b.identity(), b.certificate()));
    assert_eq!(seen(NOW, &b, &client).unwrap().0, *a.identity());
    assert_eq!(protocol(&server), ALPN_MESH);
    // A long connection outlives the certificate: a later check reports it.
    let later = NOW + VALIDITY + DAY;
    assert_eq!(seen(later, &a, &server), Err(CertificateError::Expired));
}

#[tokio::test]
async fn another_clusters_member_is_refused_at_both_ends() {
    let (ca, other, hand) = (Ca::new(), Ca::new(), Hand::at(NOW));
    let server = listen(&ca.credentials(MemberKind::Cell, "a"), &hand);
    // A server of this cluster, a client of another: the client is the first to see a certificate.
    let theirs = other.credentials(MemberKind::Cell, "b");
    let refused = dial(&server, client_config(&theirs, &hand.clock()).unwrap()).await.refusal();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
    // A client that trusts members of this cluster, but has a certificate of another one.
    let ours = ca.credentials(MemberKind::Cell, "c");
    let mut config = client_config(&ours, &hand.clock()).unwrap();
    config.client_auth_cert_resolver =
        client_config(&theirs, &hand.clock()).unwrap().client_auth_cert_resolver;
    let outcome = dial(&server, config).await;
    let at_server = outcome.server.unwrap_err().to_string();
    assert!(at_server.contains("UnknownIssuer"), "{at_server}");
    let told = outcome.client.unwrap_err().to_string();
    assert!(told.contains("UnknownIssuer"), "{told}");
}

#[tokio::test]
async fn an_ended_certificate_is_refused_at_both_ends() {
    let ca = Ca::new();
    let (a, b) = (ca.credentials(MemberKind::Cell, "a"), ca.credentials(MemberKind::Cell, "b"));
    let (server_hand, client_hand) = (Hand::at(NOW), Hand::at(NOW + VALIDITY + DAY));
    let server = listen(&a, &server_hand);
    let config = || client_config(&b, &client_hand.clock()).unwrap();
    let refused = dial(&server, config()).await.refusal();
    assert!(refused.contains("Expired"), "{refused}");
    server_hand.set(NOW + VALIDITY + DAY);
    client_hand.set(NOW);
    let outcome = dial(&server, config()).await;
    let at_server = outcome.server.unwrap_err().to_string();
    assert!(at_server.contains("Expired"), "{at_server}");
    let told = outcome.client.unwrap_err().to_string();
    assert!(told.contains("Expired"), "{told}");
    // The same two, while the certificate is valid.
    server_hand.set(NOW);
    assert!(dial(&server, config()).await.client.is_ok());
}

#[tokio::test]
async fn a_peer_without_a_certificate_is_no_member() {
    let (ca, hand) = (Ca::new(), Hand::at(NOW));
    let coordinator = ca.credentials(MemberKind::Coordinator, "c");
    let server = listen(&coordinator, &hand);
    let mut config = joining_config(ca.certificate.fingerprint(), &hand.clock()).unwrap();
    config.alpn_protocols = vec![ALPN_MESH.to_vec()];
    let outcome = dial(&server, config).await;
    let connection = outcome.server.unwrap();
    assert_eq!(protocol(&connection), ALPN_MESH);
    let refused = seen(NOW, &coordinator, &connection).unwrap_err().to_string();
    assert!(refused.contains("the peer showed none"), "{refused}");
}

#[tokio::test]
async fn a_machine_joins_by_the_fingerprint_alone() {
    let (ca, hand) = (Ca::new(), Hand::at(NOW));
    let server = listen(&ca.credentials(MemberKind::Coordinator, "c"), &hand);
    let config = joining_config(ca.certificate.fingerprint(), &hand.clock()).unwrap();
    let outcome = dial(&server, config).await;
    assert!(outcome.client.is_ok());
    let connection = outcome.server.unwrap();
    assert_eq!(protocol(&connection), ALPN_ENROL);
    assert!(connection.peer_identity().is_none());
}

#[tokio::test]
async fn a_machine_joins_nobody_else() {
    let (ca, other, hand) = (Ca::new(), Ca::new(), Hand::at(NOW));
    let join = |fingerprint: Fingerprint| joining_config(fingerprint, &hand.clock()).unwrap();
    // A coordinator of another cluster.
    let server = listen(&other.credentials(MemberKind::Coordinator, "c"), &hand);
    let refused = dial(&server, join(ca.certificate.fingerprint())).await.refusal();
    assert!(refused.contains("does not belong to the cluster of the join token"), "{refused}");
    // A cell of the cluster that wants to get the token.
    let server = listen(&ca.credentials(MemberKind::Cell, "a"), &hand);
    let refused = dial(&server, join(ca.certificate.fingerprint())).await.refusal();
    assert!(refused.contains("only a coordinator enrols"), "{refused}");
    // A coordinator whose certificate has expired.
    let server = listen(&ca.credentials(MemberKind::Coordinator, "c"), &hand);
    hand.set(NOW + VALIDITY + DAY);
    let refused = dial(&server, join(ca.certificate.fingerprint())).await.refusal();
    assert!(refused.contains("Expired"), "{refused}");
}

#[tokio::test]
async fn a_foreign_coordinator_that_shows_our_authority_is_refused() {
    let (ca, other, hand) = (Ca::new(), Ca::new(), Hand::at(NOW));
    // The CA's certificate is not secret: any server can send it with its own certificate.
    let theirs = other.credentials(MemberKind::Coordinator, "c");
    let mut tls = server_config(&theirs, &hand.clock()).unwrap();
    let provider = rustls::crypto::ring::default_provider();
    let chain = vec![theirs.certificate().to_vec().into(), ca.certificate.der().to_vec().into()];
    let key = provider.key_provider.load_private_key(theirs.key().for_rustls()).unwrap();
    let certified = rustls::sign::CertifiedKey::new(chain, key);
    tls.cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    let quic = QuicServerConfig::try_from(tls).unwrap();
    let config = ServerConfig::with_crypto(Arc::new(quic));
    let server = Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let config = joining_config(ca.certificate.fingerprint(), &hand.clock()).unwrap();
    let refused = dial(&server, config).await.refusal();
    assert!(refused.contains("UnknownIssuer"), "{refused}");
}

#[tokio::test]
async fn a_stolen_certificate_without_its_key_is_refused() {
    let (ca, hand) = (Ca::new(), Hand::at(NOW));
    let server = listen(&ca.credentials(MemberKind::Coordinator, "c"), &hand);
    let (victim, thief) =
        (ca.credentials(MemberKind::Cell, "a"), ca.credentials(MemberKind::Cell, "b"));
    let provider = rustls::crypto::ring::default_provider();
    let key = provider.key_provider.load_private_key(thief.key().for_rustls()).unwrap();
    let chain = vec![victim.certificate().to_vec().into()];
    let certified = rustls::sign::CertifiedKey::new(chain, key);
    let mut config = client_config(&thief, &hand.clock()).unwrap();
    config.client_auth_cert_resolver = Arc::new(rustls::sign::SingleCertAndKey::from(certified));
    let outcome = dial(&server, config).await;
    let refused = outcome.server.unwrap_err().to_string();
    assert!(refused.contains("BadSignature") || refused.contains("signature"), "{refused}");
}

#[tokio::test]
async fn nobody_comes_back_without_showing_a_certificate() {
    let (ca, hand) = (Ca::new(), Hand::at(NOW));
    let server = listen(&ca.credentials(MemberKind::Cell, "a"), &hand);
    // A client that tries to resume sessions.
    let mut config = client_config(&ca.credentials(MemberKind::Cell, "b"), &hand.clock()).unwrap();
    config.resumption = rustls::client::Resumption::in_memory_sessions(8);
    config.enable_early_data = true;
    let config = Arc::new(config);
    for round in 0..2 {
        let outcome = dial(&server, (*config).clone()).await;
        assert!(outcome.server.is_ok(), "{round}");
    }
    hand.set(NOW + VALIDITY + DAY);
    // The client's own check of the server would fail now too, so this client uses an old time.
    let mut careless = (*config).clone();
    careless.time_provider =
        client_config(&ca.credentials(MemberKind::Cell, "x"), &Hand::at(NOW).clock())
            .unwrap()
            .time_provider;
    let refused = dial(&server, careless).await.server.unwrap_err().to_string();
    assert!(refused.contains("Expired"), "{refused}");
}

#[test]
fn configurations_are_strict() {
    let (ca, hand) = (Ca::new(), Hand::at(NOW));
    let credentials = ca.credentials(MemberKind::Cell, "a");
    let server = server_config(&credentials, &hand.clock()).unwrap();
    assert_eq!((server.send_tls13_tickets, server.max_early_data_size), (0, 0));
    assert!(!server.ticketer.enabled() && !server.session_storage.can_cache());
    assert_eq!(server.alpn_protocols, [ALPN_MESH.to_vec(), ALPN_ENROL.to_vec()]);
    let client = client_config(&credentials, &hand.clock()).unwrap();
    assert!(!client.enable_early_data && !client.enable_sni);
    assert_eq!(client.alpn_protocols, [ALPN_MESH.to_vec()]);
}
