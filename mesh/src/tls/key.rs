//! A member's own Ed25519 key. It signs, and is stored in the member's directory; it is never sent.
//! Generating a key reads randomness from the operating system, all else is pure.

use std::fmt;

use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::identity::Signature;

/// Why a key could not be generated or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The operating system gave no randomness.
    #[error("the operating system gives no randomness")]
    NoRandomness,
    /// Not an Ed25519 key in PKCS#8; the text gives the reason.
    #[error("not an Ed25519 private key in PKCS#8: {0}")]
    Malformed(String),
}

/// A private key and its public key.
pub struct MemberKey {
    pair: Ed25519KeyPair,
    public: [u8; 32],
    pkcs8: Vec<u8>,
}

impl MemberKey {
    /// Generates a new key.
    pub fn generate() -> Result<Self, KeyError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| KeyError::NoRandomness)?;
        Self::from_pkcs8(document.as_ref())
    }

    /// Reads the bytes of [`MemberKey::pkcs8`].
    pub fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8)
            .map_err(|error| KeyError::Malformed(error.to_string()))?;
        let public = pair.public_key().as_ref().try_into().expect("Ed25519 keys have 32 bytes");
        Ok(MemberKey { pair, public, pkcs8: pkcs8.to_vec() })
    }

    /// The private key as PKCS#8, version 2. Store it only on the member's own disk.
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// The public key: 32 bytes.
    pub fn public(&self) -> [u8; 32] {
        self.public
    }

    /// A secret that only this key gives, the same after every restart. `purpose` keeps one apart from
    /// another.
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &self.pkcs8);
        let tag = hmac::sign(&key, purpose.as_bytes());
        tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
    }

    /// Signs the bytes unchanged: callers add a prefix for the kind of statement.
    pub(super) fn sign_raw(&self, bytes: &[u8]) -> Signature {
        Signature(self.pair.sign(bytes).as_ref().try_into().expect("Ed25519 signs in 64 bytes"))
    }

    pub(super) fn for_rustls(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.pkcs8.clone()))
    }
}

impl fmt::Debug for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemberKey({})", super::encoding::hex(&self.public[..4]))
    }
}

/// Whether `signature` over exactly these bytes was made with the private key of `public`.
pub(super) fn verify_raw(public: &[u8; 32], bytes: &[u8], signature: &Signature) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(bytes, &signature.0).is_ok()
}

impl rcgen::PublicKeyData for MemberKey {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &rcgen::PKCS_ED25519
    }
}

impl rcgen::SigningKey for MemberKey {
    fn sign(&self, bytes: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(self.sign_raw(bytes).0.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_and_shown_to_nobody() {
        let key = MemberKey::generate().unwrap();
        let again = MemberKey::from_pkcs8(key.pkcs8()).unwrap();
        assert_eq!(key.public(), again.public());
        assert_eq!(key.sign_raw(b"x"), again.sign_raw(b"x"));
        assert_eq!(key.derive("x"), again.derive("x"));
        assert_ne!(key.derive("x"), key.derive("y"));
        assert!(verify_raw(&key.public(), b"x", &again.sign_raw(b"x")));
        assert!(!verify_raw(&key.public(), b"y", &again.sign_raw(b"x")));
        assert_eq!(format!("{key:?}").len(), "MemberKey(01234567)".len());
        let cut = &key.pkcs8()[..40];
        assert!(matches!(MemberKey::from_pkcs8(cut), Err(KeyError::Malformed(_))));
    }
}
