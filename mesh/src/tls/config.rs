//! What rustls, and so quinn, needs of our certificates.
//!
//! TLS 1.3 only, ring's algorithms by name and never the process's default, Ed25519 only. There is
//! no early data and no resumption: a resumed session brings a peer back without its certificate
//! being looked at, and so an expelled one too. Connections here are few and long, and a full
//! handshake costs a signature and two checks.
//!
//! One server serves both protocols. On [`ALPN_ENROL`] the client has no certificate, so TLS cannot
//! insist on one: whoever takes connections on [`ALPN_MESH`] must ask [`peer`] first. A certificate
//! that *is* shown must be right on either.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{
    CertificateError as TlsCertificateError, ClientConfig, DigitallySignedStruct,
    DistinguishedName, Error as TlsError, OtherError, PeerIncompatible, ServerConfig,
    SignatureScheme,
};
use volvox_protocol::time::Timestamp;

use super::certificate::{CaCertificate, Fingerprint};
use super::credentials::Credentials;
use crate::identity::{Authenticator, CertificateError, Kind, MemberIdentity};

/// The protocol of members.
pub const ALPN_MESH: &[u8] = b"volvox-mesh/1";

/// The protocol of those who want to become members, or to stay.
pub const ALPN_ENROL: &[u8] = b"volvox-enrol/1";

/// The name to connect to: certificates are for members, not for hosts, and nobody looks at it.
pub const SERVER_NAME: &str = "volvox";

/// Where the time comes from.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The system's clock.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Timestamp::ZERO + since.unwrap_or_default()
    })
}

/// What a coordinator or a cell listens with.
pub fn server_config(credentials: &Credentials, clock: &Clock) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let verifier = Arc::new(MemberVerifier { ca: credentials.ca().clone(), tls: provider.clone() });
    // Who joins knows only the fingerprint of the authority's certificate, so that is sent too.
    let chain = vec![
        CertificateDer::from(credentials.certificate().to_vec()),
        CertificateDer::from(credentials.ca().der().to_vec()),
    ];
    let mut config = ServerConfig::builder_with_details(provider, time(clock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, credentials.key().for_rustls())?;
    config.alpn_protocols = vec![ALPN_MESH.to_vec(), ALPN_ENROL.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.max_early_data_size = 0;
    Ok(config)
}

/// What a member connects to other members with.
pub fn client_config(credentials: &Credentials, clock: &Clock) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = Arc::new(MemberVerifier { ca: credentials.ca().clone(), tls: provider.clone() });
    let chain = vec![CertificateDer::from(credentials.certificate().to_vec())];
    let config = ClientConfig::builder_with_details(provider, time(clock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, credentials.key().for_rustls())?;
    Ok(finish(config, ALPN_MESH))
}

/// What a machine connects with to join or to renew: it shows no certificate, and talks only to a
/// coordinator of the authority with this fingerprint.
pub fn joining_config(ca: Fingerprint, clock: &Clock) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = Arc::new(JoiningVerifier { ca, tls: provider.clone() });
    let config = ClientConfig::builder_with_details(provider, time(clock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(finish(config, ALPN_ENROL))
}

/// Who is at the other end of a mesh connection, and its certificate. Asks for the time again,
/// since the handshake may be a while ago; of revocations the caller knows.
pub fn peer(
    now: Timestamp,
    authenticator: &impl Authenticator,
    certificates: Option<&[CertificateDer<'_>]>,
) -> Result<(MemberIdentity, Vec<u8>), CertificateError> {
    let certificate = certificates.and_then(<[_]>::first).ok_or_else(|| {
        CertificateError::Malformed("the peer showed none, and the mesh is for members".into())
    })?;
    let identity = authenticator.identity(now, certificate)?;
    Ok((Arc::unwrap_or_clone(identity), certificate.to_vec()))
}

/// The certificates in what `quinn::Connection::peer_identity` gives.
pub fn peer_certificates(identity: Option<Box<dyn Any>>) -> Option<Vec<CertificateDer<'static>>> {
    identity?.downcast().ok().map(|certificates| *certificates)
}

fn finish(mut config: ClientConfig, alpn: &[u8]) -> ClientConfig {
    config.alpn_protocols = vec![alpn.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_early_data = false;
    config.enable_sni = false;
    config
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

struct ClockProvider(Clock);

impl fmt::Debug for ClockProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClockProvider")
    }
}

impl TimeProvider for ClockProvider {
    fn current_time(&self) -> Option<UnixTime> {
        let now = (self.0)();
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(now.as_nanos())))
    }
}

fn time(clock: &Clock) -> Arc<dyn TimeProvider> {
    Arc::new(ClockProvider(Arc::clone(clock)))
}

fn timestamp(now: UnixTime) -> Timestamp {
    Timestamp::from_secs(now.as_secs())
}

/// Our words as rustls's, so that the other side gets the alert that says it best.
fn refusal(error: CertificateError) -> TlsError {
    TlsError::InvalidCertificate(match error {
        CertificateError::Foreign => TlsCertificateError::UnknownIssuer,
        CertificateError::Expired => TlsCertificateError::Expired,
        CertificateError::Revoked(_) => TlsCertificateError::Revoked,
        CertificateError::Malformed(_) => TlsCertificateError::Other(OtherError(Arc::new(error))),
    })
}

/// TLS 1.2 is never spoken; rustls asks all the same for the function.
fn no_tls12() -> Result<HandshakeSignatureValid, TlsError> {
    Err(TlsError::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic))
}

/// What rustls asks of every verifier about the signatures of handshakes: TLS 1.3 and Ed25519, nothing
/// else. Both of its traits want the same three functions.
macro_rules! handshake_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _certificate: &CertificateDer<'_>,
            _signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, TlsError> {
            no_tls12()
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            certificate: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, TlsError> {
            let algorithms = &self.tls.signature_verification_algorithms;
            verify_tls13_signature(message, certificate, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }
    };
}

/// Takes the certificates of one authority's members, at either end.
#[derive(Debug)]
struct MemberVerifier {
    ca: CaCertificate,
    tls: Arc<CryptoProvider>,
}

impl MemberVerifier {
    fn check(&self, now: UnixTime, certificate: &CertificateDer<'_>) -> Result<(), TlsError> {
        self.ca.read_at(timestamp(now), certificate).map(|_| ()).map_err(refusal)
    }
}

impl ClientCertVerifier for MemberVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, TlsError> {
        self.check(now, end_entity).map(|()| ClientCertVerified::assertion())
    }

    handshake_signatures!();
}

impl ServerCertVerifier for MemberVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        self.check(now, end_entity).map(|()| ServerCertVerified::assertion())
    }

    handshake_signatures!();
}

/// Why a machine that wants to join does not talk to this server. rustls shows the `{:?}` of it, so
/// that is in words too.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoiningError {
    /// The authority's certificate is not there, or not the token's.
    #[error("the server does not belong to the cluster of the join token (fingerprint {0})")]
    Fingerprint(Fingerprint),
    /// A cell that poses as a coordinator, to get at the token.
    #[error("the server is a cell, and only a coordinator enrols")]
    NotCoordinator,
}

impl fmt::Debug for JoiningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Takes a coordinator of the authority with a fingerprint.
#[derive(Debug)]
struct JoiningVerifier {
    ca: Fingerprint,
    tls: Arc<CryptoProvider>,
}

/// Whether a joining machine may talk to the server with this chain.
fn check_joining(
    now: Timestamp,
    wanted: Fingerprint,
    certificate: &[u8],
    rest: &[CertificateDer<'_>],
) -> Result<(), TlsError> {
    let other = |error: JoiningError| {
        TlsError::InvalidCertificate(TlsCertificateError::Other(OtherError(Arc::new(error))))
    };
    let ca = rest
        .iter()
        .find(|ca| Fingerprint::of(ca) == wanted)
        .ok_or_else(|| other(JoiningError::Fingerprint(wanted)))?;
    let ca = CaCertificate::parse(ca).map_err(refusal)?;
    match ca.read_at(now, certificate).map_err(refusal)?.kind {
        Kind::Coordinator => Ok(()),
        Kind::Cell => Err(other(JoiningError::NotCoordinator)),
    }
}

impl ServerCertVerifier for JoiningVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        check_joining(timestamp(now), self.ca, end_entity, intermediates)
            .map(|()| ServerCertVerified::assertion())
    }

    handshake_signatures!();
}
