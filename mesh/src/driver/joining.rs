//! Joining the mesh: the machine that asks, and the coordinator that answers.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use volvox_host::sync::lock;
use volvox_protocol::id::CellId;

use crate::driver::address;
use crate::identity::MemberKind;
use crate::tls::authority::Authority;
use crate::tls::config::{joining_config, system_clock};
use crate::tls::credentials::{Credentials, FolderError, MemberFolder};
use crate::tls::enrol::{EnrolError, EnrolReply, EnrolRequest, accept_join, answer, request_join};
use crate::tls::token::JoinToken;
use crate::transport::{Enrolment, enrol};

/// Time limit for the answer of one coordinator.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why this machine did not become a member. It may try again with the same token.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The member directory cannot be read or written.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// TLS cannot be configured.
    #[error("TLS: {0}")]
    Tls(String),
    /// No address of the join token gave an answer. The text has one line per address.
    #[error("no coordinator could be reached:\n{0}")]
    Unreachable(String),
    /// A coordinator refused, or its reply has no valid certificate.
    #[error(transparent)]
    Refused(#[from] EnrolError),
}

/// Joins with a token: generates the key on this machine, requests the certificate from a
/// coordinator, and stores both in `folder`. May be repeated after any failure or crash with the
/// same token.
pub async fn join(
    token: &JoinToken,
    kind: MemberKind,
    name: &CellId,
    folder: &MemberFolder,
) -> Result<Credentials, JoinError> {
    let clock = system_clock();
    let key = folder.joining_key()?;
    let request = request_join(token, kind, name, &key).encode();
    let mut failures = Vec::new();
    let names: Vec<String> = token.addresses().iter().map(ToString::to_string).collect();
    for at in address::resolve(&names).await.addresses {
        match ask(at, token.ca(), &request).await {
            Ok(reply) => {
                let credentials = accept_join(clock(), token, kind, name, key, reply)?;
                folder.store(&credentials)?;
                return Ok(credentials);
            }
            Err(error) => failures.push(format!("  {at}: {error}")),
        }
    }
    if failures.is_empty() {
        failures.push(format!("  none of {} resolves", names.join(", ")));
    }
    Err(JoinError::Unreachable(failures.join("\n")))
}

/// Sends one request to one coordinator, which is verified by the fingerprint of its CA only.
pub(super) async fn ask(
    at: SocketAddr,
    ca: crate::tls::certificate::Fingerprint,
    request: &[u8],
) -> Result<EnrolReply, String> {
    let config = joining_config(ca, &system_clock()).map_err(|e| e.to_string())?;
    let reply = enrol(at, config, request.to_vec(), DEADLINE).await.map_err(|e| e.to_string())?;
    EnrolReply::decode(&reply).map_err(|e| e.to_string())
}

/// Handler for enrolment requests. The CA writes to disk, so requests run one at a time, on a
/// blocking thread.
pub fn enrolment(authority: Arc<Mutex<Authority>>) -> Enrolment {
    Arc::new(move |bytes, from| {
        let authority = authority.clone();
        Box::pin(async move {
            let work = move || {
                let request = match EnrolRequest::decode(&bytes) {
                    Ok(request) => request,
                    Err(error) => {
                        let reason = format!("the request is not understood: {error}");
                        return EnrolReply::Refused { reason, again: false }.encode();
                    }
                };
                let mut authority = lock(&authority);
                let reply = answer(&mut authority, system_clock()(), &request);
                match &reply {
                    EnrolReply::Issued { member, .. } => {
                        tracing::info!(%from, ?member, "certificate issued");
                    }
                    EnrolReply::Refused { reason, .. } => {
                        tracing::warn!(%from, reason, "enrolment refused");
                    }
                }
                reply.encode()
            };
            tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| {
                let reason = "the coordinator failed: see its log".to_owned();
                EnrolReply::Refused { reason, again: true }.encode()
            })
        })
    })
}
