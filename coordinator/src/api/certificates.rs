//! Certificates for clients that are elsewhere: they keep their key, and show us a signing request.

use std::sync::Arc;
use std::time::Duration;

use volvox_host::clock::wall;
use volvox_protocol::api::{IssueCertificateRequest, IssueCertificateResponse};

use super::Api;
use super::access::Role;
use super::reply::ApiFailure;
use super::route::{self, Route};
use super::tls::{CertificateRequest, IssueError, issue_for};

/// For how long a certificate is valid unless the request says otherwise.
const NINETY_DAYS: u32 = 90 * 86_400;

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    let issuing = route::change::<IssueCertificateRequest, IssueCertificateResponse, _>(
        "/v1/certificates/issue",
        "IssueCertificate",
        "Signs a client certificate with a role, for the key of a signing request. It cannot be taken back.",
        |request| format!("{} {} for {} s", request.role.name(), request.name, seconds(request)),
        |api, request| async move { issue(&api, request).await },
    );
    vec![issuing.with_role(Role::Admin)]
}

const fn seconds(request: &IssueCertificateRequest) -> u32 {
    if request.lifetime_s == 0 { NINETY_DAYS } else { request.lifetime_s }
}

/// The authority is on the disk: on a thread that may wait.
async fn issue(
    api: &Arc<Api>,
    request: IssueCertificateRequest,
) -> Result<IssueCertificateResponse, ApiFailure> {
    let data_dir = api.data_dir.clone();
    let lifetime = Duration::from_secs(seconds(&request).into());
    let IssueCertificateRequest { role, name, csr, hosts, .. } = request;
    let terms = CertificateRequest { name, role, lifetime, hosts };
    let signing = tokio::task::spawn_blocking(move || issue_for(wall(), &data_dir, &terms, &csr));
    let signed = signing.await.map_err(|_| ApiFailure::busy("signing failed: see the log"))?;
    let signed = signed.map_err(|error| refused(&error))?;
    Ok(IssueCertificateResponse {
        error: None,
        certificate: signed.chain,
        ca: signed.ca,
        expires_at: signed.expires_at,
    })
}

fn refused(error: &IssueError) -> ApiFailure {
    match error {
        IssueError::Lifetime => ApiFailure::field("lifetime_s", error.to_string()),
        IssueError::Hosts(_) | IssueError::Host(_) => ApiFailure::field("hosts", error.to_string()),
        IssueError::Request(what) => ApiFailure::field("csr", what.to_string()),
        IssueError::Key { .. } | IssueError::Exists(_) | IssueError::Tls(_) => {
            ApiFailure::busy(error.to_string())
        }
    }
}
