//! Format of the cluster's certificates: written by `issue`, read by [`CaCertificate::read`].
//!
//! X.509, always with Ed25519. A member's certificate has no subject. One alternative name
//! identifies the member: `volvox://<member id>/<cell or coordinator>/<name>`. The certificate
//! authority (CA) signs nothing else, so the signature is verified before anything inside is
//! parsed: the parser only reads what the CA has written.
//!
//! A certificate is a function of its [`CertificateContent`] and the CA's key, to the byte, because
//! Ed25519 uses no randomness. The same request twice gives the same certificate twice.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::fmt;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, SanType, SerialNumber,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use super::encoding;
use super::key::{MemberKey, verify_raw};
use crate::identity::{CertificateError, MemberId, MemberIdentity, MemberKind, Signature};

/// Maximum length of a certificate, in bytes.
pub const CERTIFICATE_BYTES: usize = 2048;

/// Validity of the CA's own certificate: 20 years.
pub const CA_VALIDITY: Duration = Duration::from_secs(20 * 365 * 86_400);

/// How long before the current time a certificate's validity starts, for clocks that are behind the
/// CA's.
pub const SKEW: Duration = Duration::from_secs(300);

const CA_NAME: &str = "volvox cluster";

/// The last second that a certificate can contain: the end of the year 9999.
const LAST_SECOND: u64 = 253_402_300_799;

/// Algorithm identifier of Ed25519 (DER).
const ED25519: [u8; 7] = [0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70];

/// Bytes between the signed part and the signature: the algorithm, and the head of a bit string of
/// 64 bytes.
const TAIL: [u8; 10] = [0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x41, 0x00];

/// SHA-256 of the CA's certificate. A joining cell identifies its cluster by it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate (DER).
    pub fn of(certificate: &[u8]) -> Self {
        Fingerprint(Sha256::digest(certificate).into())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::hex(&self.0))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", encoding::hex(&self.0[..4]))
    }
}

/// Everything that a member's certificate contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateContent {
    /// Id of the member.
    pub member: MemberId,
    /// Kind of the member: cell or coordinator.
    pub kind: MemberKind,
    /// Cell id, or the name of a coordinator.
    pub name: CellId,
    /// Public key of the member (Ed25519).
    pub public_key: [u8; 32],
    /// Serial number, unique among the certificates of one CA.
    pub serial: u64,
    /// Start of validity. Only whole seconds are written.
    pub not_before: Timestamp,
    /// End of validity. Only whole seconds are written.
    pub not_after: Timestamp,
}

/// When to renew: after half of the validity and up to an eighth later, so that cells that joined
/// together do not renew together. `jitter` is the part of that eighth, in units of 1/65536.
pub fn renew_at(not_before: Timestamp, not_after: Timestamp, jitter: u16) -> Timestamp {
    let life = not_after.since(not_before);
    not_before + life / 2 + (life / 8 / 65_536) * u32::from(jitter)
}

/// Seconds since the Unix epoch, limited to [`LAST_SECOND`].
fn seconds(at: Timestamp) -> Duration {
    Duration::from_secs((at.as_nanos() / 1_000_000_000).min(LAST_SECOND))
}

fn ca_params(now: Timestamp) -> CertificateParams {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + seconds(now - SKEW);
    params.not_after = epoch + seconds(now + CA_VALIDITY);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, CA_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

/// Creates the CA's certificate for its own key, self-signed (DER).
pub(super) fn issue_ca(now: Timestamp, key: &MemberKey) -> Vec<u8> {
    let certificate = ca_params(now).self_signed(key);
    certificate.expect("these parameters have a binary form").der().to_vec()
}

/// A member's public key, in the form that rcgen needs.
struct PublicKey([u8; 32]);

impl rcgen::PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

/// Creates the certificate with this content, signed with the CA's key (DER).
pub(super) fn issue(authority: &MemberKey, terms: &CertificateContent) -> Vec<u8> {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.serial_number = Some(SerialNumber::from(terms.serial));
    params.not_before = epoch + seconds(terms.not_before);
    params.not_after = epoch + seconds(terms.not_after);
    params.distinguished_name = rcgen::DistinguishedName::new();
    let uri = format!("volvox://{}/{}/{}", terms.member, kind_word(terms.kind), terms.name);
    let uri = uri.try_into().expect("a checked name is ASCII");
    params.subject_alt_names = vec![SanType::URI(uri)];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    // rcgen uses only the name and the key of the issuer for the signature.
    let issuer = Issuer::new(ca_params(Timestamp::ZERO), authority);
    let certificate = params.signed_by(&PublicKey(terms.public_key), &issuer);
    certificate.expect("these parameters have a binary form").der().to_vec()
}

fn kind_word(kind: MemberKind) -> &'static str {
    match kind {
        MemberKind::Cell => "cell",
        MemberKind::Coordinator => "coordinator",
    }
}

fn malformed(what: &str) -> CertificateError {
    CertificateError::Malformed(what.to_owned())
}

/// The CA's certificate, verified, with the values that members' certificates are checked against.
#[derive(Clone, PartialEq, Eq)]
pub struct CaCertificate {
    der: Vec<u8>,
    public_key: [u8; 32],
    subject: Vec<u8>,
    not_after: Timestamp,
}

impl fmt::Debug for CaCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaCertificate({:?})", self.fingerprint())
    }
}

impl CaCertificate {
    /// Reads a CA's certificate, and verifies that it is self-signed. The caller must know that it
    /// is the right CA: by its fingerprint, or by where it was read from.
    pub fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        let (signed, signature) = split(der)?;
        let certificate = parse(der)?;
        let public_key = public_key(&certificate)?;
        if !certificate.is_ca() {
            return Err(malformed("it is not an authority's"));
        }
        if !verify_raw(&public_key, signed, &signature) {
            return Err(malformed("the authority did not sign its own certificate"));
        }
        let (_, not_after) = validity(&certificate)?;
        let subject = certificate.subject().as_raw().to_vec();
        Ok(CaCertificate { der: der.to_vec(), public_key, subject, not_after })
    }

    /// The certificate (DER).
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// The fingerprint, as in join tokens.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.der)
    }

    /// End of the CA's validity. No certificate of this CA is valid after it.
    pub fn not_after(&self) -> Timestamp {
        self.not_after
    }

    /// Public key of the CA.
    pub fn public_key(&self) -> [u8; 32] {
        self.public_key
    }

    /// Verifies that this CA issued a certificate, and returns the member's identity. Ignores the
    /// time.
    pub fn read(&self, der: &[u8]) -> Result<MemberIdentity, CertificateError> {
        let (signed, signature) = split(der)?;
        if !verify_raw(&self.public_key, signed, &signature) {
            return Err(CertificateError::Foreign);
        }
        let (identity, issuer) = read_unsigned(der)?;
        if issuer != self.subject {
            return Err(CertificateError::Foreign);
        }
        Ok(identity)
    }

    /// As [`CaCertificate::read`], for a certificate that must be valid at `now`.
    pub fn read_at(&self, now: Timestamp, der: &[u8]) -> Result<MemberIdentity, CertificateError> {
        let identity = self.read(der)?;
        if now < identity.not_before || now > identity.not_after || now > self.not_after {
            return Err(CertificateError::Expired);
        }
        Ok(identity)
    }
}

/// Splits a certificate into the signed part and the signature. Strict to the byte: lengths have
/// the shortest form, no bytes follow, and the algorithm is Ed25519.
fn split(der: &[u8]) -> Result<(&[u8], Signature), CertificateError> {
    if der.len() > CERTIFICATE_BYTES {
        let given = der.len();
        let text = format!("it has {given} bytes, the limit is {CERTIFICATE_BYTES}");
        return Err(CertificateError::Malformed(text));
    }
    let shape = || malformed("it is not an Ed25519 certificate in DER");
    let (length, body) = match der {
        [0x30, 0x82, high, low, body @ ..] => (usize::from(*high) << 8 | usize::from(*low), body),
        [0x30, 0x81, length, body @ ..] => (usize::from(*length), body),
        _ => return Err(shape()),
    };
    let shortest = if der[1] == 0x82 { length > 0xff } else { length > 0x7f };
    if length != body.len() || !shortest {
        return Err(shape());
    }
    let (rest, signature) = body.split_last_chunk::<64>().ok_or_else(shape)?;
    let (signed, tail) = rest.split_last_chunk::<10>().ok_or_else(shape)?;
    if *tail != TAIL {
        return Err(shape());
    }
    Ok((signed, Signature(*signature)))
}

fn parse(der: &[u8]) -> Result<X509Certificate<'_>, CertificateError> {
    let (rest, certificate) =
        X509Certificate::from_der(der).map_err(|_| malformed("it is not X.509"))?;
    if !rest.is_empty() {
        return Err(malformed("bytes follow it"));
    }
    if certificate.version() != X509Version::V3 {
        return Err(malformed("it is not version 3"));
    }
    Ok(certificate)
}

fn public_key(certificate: &X509Certificate<'_>) -> Result<[u8; 32], CertificateError> {
    // The whole head of the key's record: the algorithm, no parameters, a bit string of 32 bytes.
    let raw = certificate.public_key().raw;
    let head = [&[0x30, 0x2a][..], &ED25519, &[0x03, 0x21, 0x00]].concat();
    let key = raw.strip_prefix(&head[..]).and_then(|key| key.try_into().ok());
    key.ok_or_else(|| malformed("its key is not Ed25519"))
}

fn validity(certificate: &X509Certificate<'_>) -> Result<(Timestamp, Timestamp), CertificateError> {
    let validity = certificate.validity();
    let read = |seconds: i64| u64::try_from(seconds).map(Timestamp::from_secs);
    match (read(validity.not_before.timestamp()), read(validity.not_after.timestamp())) {
        (Ok(from), Ok(to)) if from < to => Ok((from, to)),
        _ => Err(malformed("its validity is no span of time")),
    }
}

/// Reads a member's certificate without verifying any signature. Returns the identity that it
/// claims, and the raw name of its issuer. This alone proves nothing; it is public as a target for
/// fuzzing.
pub fn read_unsigned(der: &[u8]) -> Result<(MemberIdentity, Vec<u8>), CertificateError> {
    split(der)?;
    let certificate = parse(der)?;
    let public_key = public_key(&certificate)?;
    let (not_before, not_after) = validity(&certificate)?;
    if certificate.is_ca() {
        return Err(malformed("it is an authority's, not a member's"));
    }
    let (mut names, mut usages) = (Vec::new(), Vec::new());
    for extension in certificate.extensions() {
        #[expect(clippy::wildcard_enum_match_arm, reason = "we know four, of a long list")]
        match extension.parsed_extension() {
            ParsedExtension::SubjectAlternativeName(name) => names.push(name),
            ParsedExtension::ExtendedKeyUsage(usage) => usages.push(usage),
            ParsedExtension::BasicConstraints(basic) if !basic.ca => {}
            ParsedExtension::KeyUsage(usage) if usage.digital_signature() => {}
            ParsedExtension::BasicConstraints(_) | ParsedExtension::KeyUsage(_) => {
                return Err(malformed("it is not for connections"));
            }
            _ if extension.critical => return Err(malformed("it has an unknown critical part")),
            // A later release of the CA may add extensions.
            _ => {}
        }
    }
    match usages[..] {
        [usage] if usage.client_auth && usage.server_auth => {}
        _ => return Err(malformed("it is not for both ends of a connection")),
    }
    let (member, kind, name) = match names[..] {
        [name] => match name.general_names[..] {
            [GeneralName::URI(uri)] => read_uri(uri),
            _ => None,
        },
        _ => None,
    }
    .ok_or_else(|| malformed("it does not name one member of a cluster"))?;
    let identity = MemberIdentity { member, kind, name, public_key, not_before, not_after };
    Ok((identity, certificate.issuer().as_raw().to_vec()))
}

fn read_uri(uri: &str) -> Option<(MemberId, MemberKind, CellId)> {
    let mut parts = uri.strip_prefix("volvox://")?.splitn(3, '/');
    let member = MemberId(encoding::from_hex(parts.next()?)?);
    let kind = match parts.next()? {
        "cell" => MemberKind::Cell,
        "coordinator" => MemberKind::Coordinator,
        _ => return None,
    };
    let name = CellId::new(parts.next()?).ok()?;
    Some((member, kind, name))
}

#[cfg(test)]
mod tests;
