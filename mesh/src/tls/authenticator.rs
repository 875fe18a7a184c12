//! [`Authenticator`] with the certificates of the cluster's certificate authority (CA). Pure.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::Arc;

use volvox_protocol::time::Timestamp;

use super::certificate::CaCertificate;
use super::key::{MemberKey, verify_raw};
use crate::identity::{Authenticator, CertificateError, MemberIdentity, Signature};

/// Prefix of every signed statement. With it, a signature for another purpose (a handshake, a
/// certificate request) is not valid for a statement, and the reverse.
const DOMAIN: &[u8] = b"volvox statement v1\0";

/// Signs with a member's key, and verifies against the CA of its cluster.
#[derive(Debug, Clone)]
pub struct ClusterAuthenticator {
    key: Arc<MemberKey>,
    ca: CaCertificate,
}

impl ClusterAuthenticator {
    /// Authenticator of the member that has `key`, in the cluster of `ca`.
    pub fn new(key: Arc<MemberKey>, ca: CaCertificate) -> Self {
        ClusterAuthenticator { key, ca }
    }

    /// The certificate of the CA.
    pub fn ca(&self) -> &CaCertificate {
        &self.ca
    }
}

fn in_domain(statement: &[u8]) -> Vec<u8> {
    [DOMAIN, statement].concat()
}

impl Authenticator for ClusterAuthenticator {
    fn sign(&self, statement: &[u8]) -> Signature {
        self.key.sign_raw(&in_domain(statement))
    }

    fn identity(
        &self,
        now: Timestamp,
        certificate: &[u8],
    ) -> Result<Arc<MemberIdentity>, CertificateError> {
        self.ca.read_at(now, certificate).map(Arc::new)
    }

    fn verify(&self, identity: &MemberIdentity, statement: &[u8], signature: &Signature) -> bool {
        verify_raw(&identity.public_key, &in_domain(statement), signature)
    }
}
