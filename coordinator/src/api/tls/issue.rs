//! Certificates that the API's authority gives out: to clients, with a role, and on request for servers.
//!
//! The name is the subject's common name, the role its organizational unit. A role counts only in what our
//! own authority has signed. What may be signed is decided here, for the command and for the route alike.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use rustls::pki_types::CertificateDer;
use volvox_host::durable;
use volvox_protocol::id::CellId;
use volvox_protocol::limits::{CERTIFICATE_DAYS, CERTIFICATE_HOSTS, HOST_BYTES};
use volvox_protocol::time::Timestamp;
use x509_parser::prelude::FromDer as _;

use super::key::{KeyError, PublicKey};
use super::{FOLDER, TlsError, host, issuer, read as read_file};
use crate::api::access::Role;

/// What stands before the role in a certificate.
const ROLE: &str = "volvox role ";
/// How far back a certificate begins to be valid, for clocks that are behind ours.
const SKEW: Duration = Duration::from_secs(300);
const DAY: Duration = Duration::from_secs(86_400);

/// MemberSelector a certificate of ours was given to, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// Its name; of the role cell, the cell's.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
}

/// What a certificate is to say.
#[derive(Debug, Clone)]
pub struct CertificateRequest {
    /// For whom; of the role cell, the cell's id. Names are like those of cells.
    pub name: CellId,
    /// What its bearer may do.
    pub role: Role,
    /// How long it is valid.
    pub lifetime: Duration,
    /// Names and addresses, if it is to be shown by a server too.
    pub hosts: Vec<String>,
}

/// A certificate that is to be made, and where it is put.
#[derive(Debug, Clone)]
pub struct IssueRequest {
    /// What it is to say.
    pub terms: CertificateRequest,
    /// A key that there is, such as an RSA key; none: a new one is made, ECDSA with P-256.
    pub key: Option<PathBuf>,
    /// The folder that it is put into.
    pub folder: PathBuf,
    /// Whether files that are there are overwritten.
    pub force: bool,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The authority, for who has to trust the server.
    pub ca: PathBuf,
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// A certificate that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signed {
    /// PEM: the certificate, and after it the authority's.
    pub chain: String,
    /// PEM: the authority's.
    pub ca: String,
    /// When it ends, to the second.
    pub expires_at: Timestamp,
}

/// Why no certificate was made. Nothing was written, or not all.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// How long it would be valid.
    #[error("a certificate is valid for a second to {CERTIFICATE_DAYS} days")]
    Lifetime,
    /// The names of a server are too many.
    #[error("there are {0} hosts, the limit is {CERTIFICATE_HOSTS}")]
    Hosts(usize),
    /// The name of a server.
    #[error(
        "{0:?} is no name or address of a server: labels of letters, digits, - and _ with dots between \
         them, * for the first, at most {HOST_BYTES} bytes; or an IP address"
    )]
    Host(String),
    /// The signing request.
    #[error("the signing request is not taken: {0}")]
    Request(KeyError),
    /// The key that was brought.
    #[error("{path}: {what}; a private key in PKCS#8 is wanted: openssl pkcs8 -topk8 -nocrypt")]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file that would be overwritten.
    #[error("{} is there already: choose another folder, or overwrite it with --force", .0.display())]
    Exists(PathBuf),
    /// The authority, or a file.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Makes a certificate of the authority in this data folder, and writes `ca.pem`, `cert.pem` and
/// `key.pem`.
pub fn issue(now: Timestamp, data_dir: &Path, order: &IssueRequest) -> Result<Written, IssueError> {
    let place = |name: &str| order.folder.join(name);
    let written = Written { ca: place("ca.pem"), cert: place("cert.pem"), key: place("key.pem") };
    for path in [&written.ca, &written.cert, &written.key] {
        if !order.force && path.symlink_metadata().is_ok() {
            return Err(IssueError::Exists(path.clone()));
        }
    }
    let key = match &order.key {
        None => KeyPair::generate().map_err(TlsError::from)?,
        Some(path) => {
            let text = String::from_utf8_lossy(&read_file(path)?).into_owned();
            KeyPair::from_pem(&text).map_err(|error| unusable(path, &error))?
        }
    };
    let path = order.key.as_deref().unwrap_or(Path::new("the new key"));
    let public = PublicKey::of(&key).map_err(|error| unusable(path, &error))?;
    let signed = sign(now, data_dir, &order.terms, &public)?;
    durable::private_folder(&order.folder).map_err(TlsError::from)?;
    // The key first: a certificate without its key is of no use to anybody.
    for (path, text) in [
        (&written.key, key.serialize_pem()),
        (&written.cert, signed.chain),
        (&written.ca, signed.ca),
    ] {
        durable::replace(path, text.as_bytes()).map_err(TlsError::from)?;
    }
    Ok(written)
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> IssueError {
    IssueError::Key { path: path.to_owned(), what: error.to_string() }
}

/// Makes a certificate of the authority in this data folder for the key of a signing request (PEM), whose
/// owner has shown by its signature that it has the private half. What else the request asks for does not
/// count: the terms do.
pub fn issue_for(
    now: Timestamp,
    data_dir: &Path,
    terms: &CertificateRequest,
    request: &str,
) -> Result<Signed, IssueError> {
    let key = PublicKey::requested(request).map_err(IssueError::Request)?;
    sign(now, data_dir, terms, &key)
}

/// The one place where the authority signs for others.
fn sign(
    now: Timestamp,
    data_dir: &Path,
    terms: &CertificateRequest,
    key: &PublicKey,
) -> Result<Signed, IssueError> {
    let params = params(now, terms)?;
    let (issuer, ca) = issuer(&data_dir.join(FOLDER))?;
    let certificate = params.signed_by(key, &issuer).map_err(TlsError::from)?;
    let expires_at = Timestamp::ZERO + seconds(now + terms.lifetime);
    Ok(Signed { chain: certificate.pem() + &ca, ca, expires_at })
}

fn seconds(at: Timestamp) -> Duration {
    Duration::from_secs(at.as_nanos() / 1_000_000_000)
}

fn params(now: Timestamp, terms: &CertificateRequest) -> Result<CertificateParams, IssueError> {
    if terms.lifetime.as_secs() == 0 || terms.lifetime > DAY * CERTIFICATE_DAYS {
        return Err(IssueError::Lifetime);
    }
    if terms.hosts.len() > CERTIFICATE_HOSTS {
        return Err(IssueError::Hosts(terms.hosts.len()));
    }
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + seconds(now - SKEW);
    params.not_after = epoch + seconds(now + terms.lifetime);
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, terms.name.as_str());
    let role = format!("{ROLE}{}", terms.role.name());
    params.distinguished_name.push(DnType::OrganizationalUnitName, role);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !terms.hosts.is_empty() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    params.use_authority_key_identifier_extension = true;
    for name in &terms.hosts {
        if !is_host(name) {
            return Err(IssueError::Host(name.chars().take(64).collect()));
        }
        params.subject_alt_names.push(host(name)?);
    }
    Ok(params)
}

fn is_host(name: &str) -> bool {
    if name.parse::<std::net::IpAddr>().is_ok() {
        return true;
    }
    let odd = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let label = |label: &str| (1..=63).contains(&label.len()) && !label.contains(odd);
    name.len() <= HOST_BYTES && name.strip_prefix("*.").unwrap_or(name).split('.').all(label)
}

/// Name and role in a certificate whose signature was found to be ours.
pub(super) fn read(certificate: &CertificateDer<'_>) -> Option<Issued> {
    let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let units = subject.iter_organizational_unit().filter_map(|unit| unit.as_str().ok());
    let role = units.filter_map(|unit| unit.strip_prefix(ROLE)).next()?.parse().ok()?;
    Some(Issued { name, role })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn terms() -> CertificateRequest {
        CertificateRequest {
            name: CellId::new("cfdot").unwrap(),
            role: Role::Write,
            lifetime: DAY,
            hosts: Vec::new(),
        }
    }

    fn asks_for_more() -> String {
        let mut params = CertificateParams::new(vec!["bbs.example".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "root");
        params.distinguished_name.push(DnType::OrganizationalUnitName, format!("{ROLE}admin"));
        let key = KeyPair::generate().unwrap();
        params.serialize_request(&key).unwrap().pem().unwrap()
    }

    fn refused(terms: &CertificateRequest) -> String {
        let folder = tempfile::tempdir().unwrap();
        issue_for(NOW, folder.path(), terms, &asks_for_more()).unwrap_err().to_string()
    }

    #[test]
    fn a_request_gives_its_key_and_the_terms_say_the_rest() {
        use rustls::pki_types::pem::PemObject as _;
        let folder = tempfile::tempdir().unwrap();
        let signed = issue_for(NOW, folder.path(), &terms(), &asks_for_more()).unwrap();
        assert_eq!(signed.expires_at, NOW + DAY);
        let made = CertificateDer::from_pem_slice(signed.chain.as_bytes()).unwrap();
        assert_eq!(read(&made), Some(Issued { name: "cfdot".into(), role: Role::Write }));
        let (_, parsed) = x509_parser::certificate::X509Certificate::from_der(&made).unwrap();
        assert_eq!(parsed.subject().iter_organizational_unit().count(), 1);
        assert!(parsed.subject_alternative_name().unwrap().is_none());
        assert!(!parsed.extended_key_usage().unwrap().unwrap().value.server_auth);
        assert!(parsed.basic_constraints().unwrap().is_none_or(|it| !it.value.ca));
        assert!(signed.chain.ends_with(&signed.ca));
    }

    #[test]
    fn terms_without_measure_are_refused() {
        for lifetime in [Duration::ZERO, DAY * CERTIFICATE_DAYS + Duration::from_secs(1)] {
            assert!(refused(&CertificateRequest { lifetime, ..terms() }).contains("825 days"));
        }
        let hosts = vec!["a.example".to_owned(); CERTIFICATE_HOSTS + 1];
        assert!(refused(&CertificateRequest { hosts, ..terms() }).contains("the limit is 64"));
        let long = "a.".repeat(127);
        let label = "a".repeat(64);
        for bad in ["", ".", "a..b", "a b", "a.", "*", "a.*.b", "\u{e4}.example", &long, &label] {
            let hosts = vec![bad.to_owned()];
            assert!(
                refused(&CertificateRequest { hosts, ..terms() }).contains("no name"),
                "{bad:?}"
            );
        }
        for good in ["localhost", "*.bbs.example", "a_b.example", "10.0.0.5", "::1"] {
            assert!(is_host(good), "{good}");
        }
    }
}
