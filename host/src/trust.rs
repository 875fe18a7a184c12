//! Certificate authorities: read from a PEM file that an operator names, or from where the
//! machine keeps those that it trusts.

use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};

/// Where Linux distributions keep the certificates that the machine trusts.
const MACHINES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// A CA bundle cannot be read: nothing can be trusted before the operator has mended it.
#[derive(Debug, thiserror::Error)]
#[error("cannot read trusted certificates from {path}: {source}")]
pub struct CaBundleError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub source: io::Error,
}

/// The file of the machine's own authorities. `None`: it has none of the usual ones.
pub fn machines_bundle() -> Option<&'static Path> {
    MACHINES.iter().map(Path::new).find(|path| path.exists())
}

/// Reads a CA bundle. `path` empty: the machine's own, and nothing where it has none.
pub fn read(path: &Path) -> Result<Vec<CertificateDer<'static>>, CaBundleError> {
    let path = if path.as_os_str().is_empty() { machines_bundle() } else { Some(path) };
    let Some(path) = path else { return Ok(Vec::new()) };
    let failed = |source| CaBundleError { path: path.to_owned(), source };
    let pem = std::fs::read(path).map_err(failed)?;
    certificates(&pem).map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// All certificates of a PEM text. What is something else is passed over.
pub fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &str = "before\n-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n\
        -----BEGIN PUBLIC KEY-----\nAQID\n-----END PUBLIC KEY-----\n\
        -----BEGIN CERTIFICATE-----\nBAUG\n-----END CERTIFICATE-----\n";

    #[test]
    fn certificates_are_read_and_the_rest_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, PEM).unwrap();
        let found = read(&path).unwrap();
        let found: Vec<&[u8]> = found.iter().map(AsRef::as_ref).collect();
        assert_eq!(found, [&[1, 2, 3][..], &[4, 5, 6]]);
    }

    #[test]
    fn a_bundle_that_is_missing_or_damaged_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        for damage in
            [None, Some("-----BEGIN CERTIFICATE-----\nAQID\n"), Some(&PEM.replace("AQID", "A%"))]
        {
            if let Some(text) = damage {
                std::fs::write(&path, text).unwrap();
            }
            let error = read(&path).unwrap_err().to_string();
            let named = format!("cannot read trusted certificates from {}: ", path.display());
            assert!(error.starts_with(&named), "{error}");
        }
    }
}
