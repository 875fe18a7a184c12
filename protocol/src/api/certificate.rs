//! Client certificates.

use super::ApiError;
use crate::id::CellId;
use crate::record::record;
use crate::role::Role;
use crate::time::Timestamp;

record! {
    /// Has a certificate signed by the API's authority, for a key that stays with the caller.
    pub struct IssueCertificateRequest {
        /// What its bearer may do.
        role: Role = "role" required,
        /// Who has it; of the role cell, the cell's id.
        name: CellId = "name" required,
        /// A certificate signing request (PKCS#10, PEM) for the key. Only the key counts: all that it
        /// asks for is said here.
        csr: String = "csr" required,
        /// For how many seconds it is valid; 0: 90 days.
        lifetime_s: u32 = "lifetime_s" omit,
        /// Names and addresses of a server that shows it; empty: it is for clients only.
        hosts: Vec<String> = "hosts" omit,
    }
}

record! {
    /// A certificate.
    #[derive(Default)]
    pub struct IssueCertificateResponse {
        /// Why it failed.
        error: Option<ApiError> = "error" omit,
        /// PEM: the certificate, and after it the authority's.
        certificate: String = "certificate" omit,
        /// PEM: the authority's, for who has to trust the API.
        ca: String = "ca" omit,
        /// When it ends.
        expires_at: Timestamp = "expires_at" omit,
    }
}
