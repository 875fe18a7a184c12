//! TLS configurations for rustls, and so for quinn, with the cluster's certificates.
//!
//! TLS 1.3 only, Ed25519 only, and always ring's algorithms, never the process's default. There is
//! no early data and no resumption: a resumed session reconnects a peer without a check of its
//! certificate, even if it was revoked. There are few connections and they are long, and a full
//! handshake costs one signature and two verifications.
//!
//! One server serves both protocols. On [`ALPN_ENROL`] the client has no certificate, so TLS cannot
//! require one. The code that accepts connections on [`ALPN_MESH`] must therefore call [`peer`]
//! first. A certificate that is presented must be valid on either protocol.

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
use crate::identity::{Authenticator, CertificateError, MemberIdentity, MemberKind};

/// Protocol between members.
pub const ALPN_MESH: &[u8] = b"volvox-mesh/1";

/// Protocol for machines that join, and for members that renew.
pub const ALPN_ENROL: &[u8] = b"volvox-enrol/1";

/// Server name in the handshake. It is not checked: certificates are for members, not for hosts.
pub const SERVER_NAME: &str = "volvox";

/// Source of the current time.
pub type TlsClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The system's clock.
pub fn system_clock() -> TlsClock {
    Arc::new(volvox_host::clock::wall)
}

/// Configuration with which a coordinator or a cell listens.
pub fn server_config(
    credentials: &Credentials,
    clock: &TlsClock,
) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let verifier = Arc::new(MemberVerifier { ca: credentials.ca().clone(), tls: provider.clone() });
    // A joining machine has only the fingerprint of the CA's certificate, so that certificate is
    // sent too.
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

/// Configuration with which a member connects to other members.
pub fn client_config(
    credentials: &Credentials,
    clock: &TlsClock,
) -> Result<ClientConfig, TlsError> {
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

/// Configuration with which a machine connects to join or to renew. It presents no certificate, and
/// accepts only a coordinator of the certificate authority (CA) with this fingerprint.
pub fn joining_config(ca: Fingerprint, clock: &TlsClock) -> Result<ClientConfig, TlsError> {
    let provider = provider();
    let verifier = Arc::new(JoiningVerifier { ca, tls: provider.clone() });
    let config = ClientConfig::builder_with_details(provider, time(clock))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(finish(config, ALPN_ENROL))
}

/// Identity and certificate of the peer of a mesh connection. Checks the time again, since the
/// handshake may have been a while ago. The caller checks revocations.
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

/// The certificates in the result of `quinn::Connection::peer_identity`.
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

struct ClockProvider(TlsClock);

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

fn time(clock: &TlsClock) -> Arc<dyn TimeProvider> {
    Arc::new(ClockProvider(Arc::clone(clock)))
}

fn timestamp(now: UnixTime) -> Timestamp {
    Timestamp::from_secs(now.as_secs())
}

/// Converts the error to rustls's, so that the peer receives the most precise TLS alert.
fn refusal(error: CertificateError) -> TlsError {
    TlsError::InvalidCertificate(match error {
        CertificateError::Foreign => TlsCertificateError::UnknownIssuer,
        CertificateError::Expired => TlsCertificateError::Expired,
        CertificateError::Revoked(_) => TlsCertificateError::Revoked,
        CertificateError::Malformed(_) => TlsCertificateError::Other(OtherError(Arc::new(error))),
    })
}

/// TLS 1.2 is never used, but rustls requires the function.
fn no_tls12() -> Result<HandshakeSignatureValid, TlsError> {
    Err(TlsError::PeerIncompatible(PeerIncompatible::Tls13RequiredForQuic))
}

/// Verification of handshake signatures, which rustls requires from every verifier: TLS 1.3 and
/// Ed25519 only. Both of its traits require the same three functions.
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

/// Accepts the certificates of members of one CA, as client or as server.
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

/// Why a joining machine does not trust this server. rustls shows the `{:?}` of it, so that is a
/// readable text too.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
pub enum JoiningError {
    /// The CA's certificate is missing, or does not have this fingerprint (the token's).
    #[error("the server does not belong to the cluster of the join token (fingerprint {0})")]
    Fingerprint(Fingerprint),
    /// The server is a cell that poses as a coordinator to get the token.
    #[error("the server is a cell, and only a coordinator enrols")]
    NotCoordinator,
}

impl fmt::Debug for JoiningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Accepts a coordinator of the CA with this fingerprint.
#[derive(Debug)]
struct JoiningVerifier {
    ca: Fingerprint,
    tls: Arc<CryptoProvider>,
}

/// Whether a joining machine may trust the server with this certificate chain.
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
        MemberKind::Coordinator => Ok(()),
        MemberKind::Cell => Err(other(JoiningError::NotCoordinator)),
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
