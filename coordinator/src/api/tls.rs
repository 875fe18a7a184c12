//! TLS of the API: the operator's certificate, or one of our own; and who shows which client certificate.
//!
//! The API has an authority of its own, made once. It signs the server's certificate unless the operator
//! brings one, and client certificates, whose role stands in them ([`issue`]). Roles of certificates that
//! others have signed are in the configuration.

mod issue;
mod key;
mod reload;

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

pub use issue::{
    CertificateRequest, IssueError, IssueRequest, Issued, Signed, Written, issue, issue_for,
};
pub use key::KeyError;
use reload::ReloadingCertificate;
use volvox_host::durable;

/// The folder of what we make ourselves, in the data folder.
pub const FOLDER: &str = "api";
/// The certificate that clients have to trust, in that folder.
pub const CA: &str = "ca.pem";

/// Which certificate the API shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Certificate {
    /// The operator's.
    Files {
        /// PEM, the server's own first.
        chain: PathBuf,
        /// PEM.
        key: PathBuf,
    },
    /// One of our own, signed by an authority that is made for it. Clients trust `ca.pem`.
    Own {
        /// For these names and addresses.
        names: Vec<String>,
    },
}

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file.
    #[error(transparent)]
    File(#[from] durable::FileError),
    /// What is in a file.
    #[error("{path}: {what}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A certificate could not be made.
    #[error("make a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// Certificate and key do not go together, or are of no use.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// The authorities of client certificates are of no use.
    #[error("TLS: client certificates: {0}")]
    Clients(String),
}

/// What is needed to answer, and to know whom our own certificates were given to.
#[derive(Debug)]
pub struct Tls {
    config: Arc<ServerConfig>,
    own: Arc<dyn ClientCertVerifier>,
    shown: Arc<ReloadingCertificate>,
}

impl Tls {
    /// What the next connection is answered with.
    pub(super) fn for_next(&self) -> Arc<ServerConfig> {
        self.shown.look_again();
        Arc::clone(&self.config)
    }

    /// When the certificate that is shown ends, in seconds since 1970.
    pub(super) fn shown_until(&self) -> u64 {
        self.shown.until()
    }

    /// MemberSelector we gave this certificate to. TLS has accepted it, but perhaps as another authority's.
    pub(super) fn issued(&self, shown: &[CertificateDer<'_>]) -> Option<Issued> {
        let (first, others) = shown.split_first()?;
        self.own.verify_client_cert(first, others, UnixTime::now()).ok()?;
        issue::read(first)
    }
}

/// What rustls needs to answer. Callers may show a certificate of our own authority, and with `client_ca`
/// of these.
pub fn config(
    data_dir: &Path,
    certificate: &Certificate,
    client_ca: Option<&Path>,
) -> Result<Arc<Tls>, TlsError> {
    let folder = data_dir.join(FOLDER);
    authority_files(&folder)?;
    let (chain, key) = match certificate {
        Certificate::Files { chain, key } => (chain.clone(), key.clone()),
        Certificate::Own { names } => own(&folder, names)?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?;
    let verifier = |paths: &[&Path]| -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let mut roots = RootCertStore::empty();
        for path in paths {
            for root in certificates(path)? {
                roots.add(root)?;
            }
        }
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()
            .map_err(|error| TlsError::Clients(error.to_string()))
    };
    let ours = folder.join(CA);
    let all: Vec<&Path> = client_ca.into_iter().chain([ours.as_path()]).collect();
    let builder = builder.with_client_cert_verifier(verifier(&all)?);
    let own = verifier(&[&ours])?;
    let shown = Arc::new(ReloadingCertificate::open(chain, key, provider)?);
    let mut config = builder.with_cert_resolver(Arc::<ReloadingCertificate>::clone(&shown));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(Tls { config: Arc::new(config), own, shown }))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let missing =
        || TlsError::Content { path: path.to_owned(), what: "there is no such file".into() };
    durable::read(path, 1 << 20)?.ok_or_else(missing)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let bad = |what: String| TlsError::Content { path: path.to_owned(), what };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let all = all.map_err(|error| bad(error.to_string()))?;
    if all.is_empty() { Err(bad("there is no certificate in it".into())) } else { Ok(all) }
}

/// The files of the API's authority: its certificate and its key, made if there are none.
fn authority_files(folder: &Path) -> Result<(PathBuf, PathBuf), TlsError> {
    durable::private_folder(folder)?;
    let (ca_path, ca_key_path) = (folder.join(CA), folder.join("ca.key"));
    let missing = || Ok::<_, durable::FileError>(durable::read(&ca_path, 1 << 16)?.is_none());
    if missing()? {
        // One maker at a time, also of several processes: two would leave the key of one and the
        // certificate of the other.
        let _turn = turn(&folder.join("lock"))?;
        if !missing()? {
            return Ok((ca_path, ca_key_path));
        }
        let key = KeyPair::generate()?;
        let certificate = authority().self_signed(&key)?;
        // The key first: a certificate without its key would be taken for finished.
        durable::replace(&ca_key_path, key.serialize_pem().as_bytes())?;
        durable::replace(&ca_path, certificate.pem().as_bytes())?;
    }
    Ok((ca_path, ca_key_path))
}

fn turn(path: &Path) -> Result<File, durable::FileError> {
    let failed = |source| durable::FileError { verb: "lock", path: path.to_owned(), source };
    let file = File::options().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(failed)?;
    file.lock().map_err(failed)?;
    Ok(file)
}

/// Makes the API's authority in this data folder, if there is none yet.
pub fn ensure_authority(data_dir: &Path) -> Result<(), TlsError> {
    authority_files(&data_dir.join(FOLDER)).map(drop)
}

/// The authority as it signs, and its certificate as PEM.
fn issuer(folder: &Path) -> Result<(Issuer<'static, KeyPair>, String), TlsError> {
    let (ca_path, ca_key_path) = authority_files(folder)?;
    let bad = |path: &Path, what: String| TlsError::Content { path: path.to_owned(), what };
    let text = |path: &Path| -> Result<String, TlsError> {
        String::from_utf8(read(path)?).map_err(|error| bad(path, error.to_string()))
    };
    let issuer = Issuer::new(authority(), KeyPair::from_pem(&text(&ca_key_path)?)?);
    Ok((issuer, text(&ca_path)?))
}

/// The name or address of a server, as certificates have it.
fn host(name: &str) -> Result<SanType, TlsError> {
    Ok(match name.parse::<IpAddr>() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName(name.try_into()?),
    })
}

/// Makes a certificate of the API's authority at each start: the names may have changed, and none of them
/// has to be renewed while we run.
fn own(folder: &Path, names: &[String]) -> Result<(PathBuf, PathBuf), TlsError> {
    let (issuer, ca_text) = issuer(folder)?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "volvox-coordinator");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_after = rcgen::date_time_ymd(2099, 1, 1);
    for name in names {
        params.subject_alt_names.push(host(name)?);
    }
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    let (chain_path, key_path) = (folder.join("server.pem"), folder.join("server.key"));
    durable::replace(&key_path, key.serialize_pem().as_bytes())?;
    durable::replace(&chain_path, (certificate.pem() + &ca_text).as_bytes())?;
    Ok((chain_path, key_path))
}

/// What the authority's certificate says. Always the same: issuing looks at it again.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Volvox API");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    params.not_after = rcgen::date_time_ymd(2099, 1, 1);
    params
}

/// The names in a certificate that TLS has accepted: the subject's common name and the DNS names.
pub(crate) fn names_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::certificate::X509Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok());
    let alternative = parsed.subject_alternative_name().ok().flatten();
    let dns = alternative.iter().flat_map(|names| &names.value.general_names);
    let dns = dns.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    common.chain(dns).map(str::to_owned).collect()
}
