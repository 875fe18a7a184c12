//! Public keys that certificates are made for: which ones are taken, and how a signing request shows one.

use rcgen::{PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::CertificateSigningRequestDer;
use rustls::pki_types::pem::PemObject as _;
use volvox_protocol::limits::SIGNING_REQUEST_BYTES;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::SubjectPublicKeyInfo;

/// Bits of an RSA key.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// Why a key, or the request that shows it, is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The request is too long.
    #[error("it has {0} bytes, the limit is {SIGNING_REQUEST_BYTES}")]
    Long(usize),
    /// The request is none.
    #[error("it is no certificate signing request in PEM (PKCS#10): {0}")]
    Form(String),
    /// The request was not signed with the key that it shows.
    #[error("its signature is not one of its own key")]
    Signature,
    /// The key is of a kind, or of a size, that is not taken.
    #[error("the key is to be ECDSA with P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits")]
    Kind,
}

/// A public key that is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    algorithm: &'static SignatureAlgorithm,
    bytes: Vec<u8>,
}

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl PublicKey {
    /// The key in a signing request. Whatever else the request asks for is not looked at.
    pub(super) fn requested(text: &str) -> Result<Self, KeyError> {
        if text.len() > SIGNING_REQUEST_BYTES {
            return Err(KeyError::Long(text.len()));
        }
        let form = |error: &dyn ToString| KeyError::Form(error.to_string());
        let der = CertificateSigningRequestDer::from_pem_slice(text.as_bytes())
            .map_err(|error| form(&error))?;
        let (rest, request) =
            X509CertificationRequest::from_der(&der).map_err(|error| form(&error))?;
        if !rest.is_empty() {
            return Err(form(&"there is more after it"));
        }
        let key = PublicKey::taken(&request.certification_request_info.subject_pki)?;
        request.verify_signature().map_err(|_| KeyError::Signature)?;
        Ok(key)
    }

    /// The public half of a key that there is.
    pub(super) fn of(pair: &impl PublicKeyData) -> Result<Self, KeyError> {
        let der = pair.subject_public_key_info();
        let (_, info) = SubjectPublicKeyInfo::from_der(&der).map_err(|_| KeyError::Kind)?;
        PublicKey::taken(&info)
    }

    fn taken(info: &SubjectPublicKeyInfo<'_>) -> Result<Self, KeyError> {
        let kinds = [
            &rcgen::PKCS_ECDSA_P256_SHA256,
            &rcgen::PKCS_ECDSA_P384_SHA384,
            &rcgen::PKCS_ED25519,
            &rcgen::PKCS_RSA_SHA256,
        ];
        let bytes = info.subject_public_key.as_ref();
        // What the certificate will say of the key is to be, byte for byte, what was said of it.
        let key = kinds
            .into_iter()
            .map(|algorithm| PublicKey { algorithm, bytes: bytes.to_vec() })
            .find(|key| key.subject_public_key_info() == info.raw)
            .ok_or(KeyError::Kind)?;
        let fits = if *key.algorithm == rcgen::PKCS_ECDSA_P256_SHA256 {
            bytes.len() == 65 && bytes.starts_with(&[4])
        } else if *key.algorithm == rcgen::PKCS_ECDSA_P384_SHA384 {
            bytes.len() == 97 && bytes.starts_with(&[4])
        } else if *key.algorithm == rcgen::PKCS_ED25519 {
            bytes.len() == 32
        } else {
            info.parsed().is_ok_and(|key| RSA_BITS.contains(&key.key_size()))
        };
        if fits { Ok(key) } else { Err(KeyError::Kind) }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn request(key: &KeyPair) -> String {
        CertificateParams::default().serialize_request(key).unwrap().pem().unwrap()
    }

    fn rsa() -> KeyPair {
        KeyPair::from_pem(include_str!("../../../tests/samples/rsa-for-tests.pem")).unwrap()
    }

    #[test]
    fn keys_of_all_kinds_come_out_as_they_went_in() {
        let made =
            [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_ED25519]
                .map(|algorithm| KeyPair::generate_for(algorithm).unwrap());
        for key in made.iter().chain([&rsa()]) {
            let read = PublicKey::requested(&request(key)).unwrap();
            assert_eq!(read.subject_public_key_info(), key.subject_public_key_info());
            assert_eq!(PublicKey::of(key), Ok(read));
        }
    }

    #[test]
    fn a_request_must_be_one_and_signed_with_its_own_key() {
        let key = KeyPair::generate().unwrap();
        let der = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
        let read = |der: &[u8]| PublicKey::requested(&pem(der));
        assert!(read(&der).is_ok());
        let mut other = der.clone();
        // The last byte is of the signature.
        *other.last_mut().unwrap() ^= 1;
        assert_eq!(read(&other), Err(KeyError::Signature));
        let longer = [&der[..], &[0]].concat();
        assert!(matches!(read(&longer), Err(KeyError::Form(_))));
        for bad in ["", "hello", "-----BEGIN CERTIFICATE REQUEST-----\n"] {
            assert!(matches!(PublicKey::requested(bad), Err(KeyError::Form(_))), "{bad:?}");
        }
        let certificate = CertificateParams::default().self_signed(&key).unwrap().pem();
        assert!(matches!(PublicKey::requested(&certificate), Err(KeyError::Form(_))));
        let long = "x".repeat(SIGNING_REQUEST_BYTES + 1);
        assert_eq!(PublicKey::requested(&long), Err(KeyError::Long(long.len())));
    }

    #[test]
    fn nothing_cut_short_or_bent_makes_us_fall() {
        let key = KeyPair::generate().unwrap();
        let der = CertificateParams::default().serialize_request(&key).unwrap().der().to_vec();
        for at in 0..der.len() {
            assert!(PublicKey::requested(&pem(&der[..at])).is_err(), "{at} bytes");
            let mut bent = der.clone();
            bent[at] ^= 0x20;
            // The frame around it is not signed; what is taken for all that is the same key.
            let read = PublicKey::requested(&pem(&bent));
            assert!(read.is_err() || read == PublicKey::of(&key), "byte {at}");
        }
    }

    /// These bytes as the PEM of a request.
    fn pem(der: &[u8]) -> String {
        let text = data_encoding::BASE64.encode(der);
        format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----\n")
    }
}
