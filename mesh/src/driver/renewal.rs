//! Renewal of this member's certificate: long before it expires, or afterwards if the member was
//! disconnected for a long time.

use std::net::SocketAddr;
use std::time::Duration;

use super::{DriverCall, MeshDriver, joining, tls};
use crate::identity::MemberKind;
use crate::member::{MemberInput, MemberState};
use crate::tls::enrol::{EnrolReply, accept_renewal, request_renewal};

/// Shortest and longest wait after a renewal that failed or gave the same certificate. The wait is
/// a twentieth of the certificate's validity.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(600));

impl MeshDriver {
    /// When to renew. Depends on the member id, so that members that joined together do not renew
    /// together.
    pub(super) fn renewal_due(&self) -> tokio::time::Instant {
        let [high, low, ..] = self.credentials.identity().member.0;
        let due = self.credentials.renew_at(u16::from_be_bytes([high, low]));
        tokio::time::Instant::now() + due.since((self.clock)())
    }

    /// When to try again.
    pub(super) fn renewal_again(&self) -> tokio::time::Instant {
        let identity = self.credentials.identity();
        let wait = (identity.not_after.since(identity.not_before) / 20).clamp(AGAIN.0, AGAIN.1);
        tokio::time::Instant::now() + wait
    }

    /// Requests a new certificate from a coordinator, in a task of its own.
    pub(super) fn begin_renewal(&mut self) {
        let Some(orders) = self.orders.upgrade() else { return };
        self.renewing = true;
        let old = self.credentials.clone();
        let enrolment = self.config.enrolment.clone();
        let coordinators = self.coordinators();
        let clock = self.clock.clone();
        let folder = self.folder.clone();
        tokio::spawn(async move {
            let request = request_renewal(&old, old.key()).encode();
            let mut replies = Vec::new();
            if let Some(enrolment) = enrolment {
                let here = SocketAddr::from(([127, 0, 0, 1], 0));
                let reply = EnrolReply::decode(&enrolment(request, here).await);
                replies.push(reply.map_err(|e| e.to_string()));
            } else {
                for at in coordinators {
                    let reply = joining::ask(at, old.ca().fingerprint(), &request).await;
                    let is_answer = reply.is_ok();
                    replies.push(reply);
                    if is_answer {
                        break;
                    }
                }
            }
            let mut renewed = None;
            for reply in replies {
                let accept = |reply| {
                    let key = old.key().clone();
                    accept_renewal(clock(), &old, key, reply).map_err(|e| e.to_string())
                };
                match reply.and_then(accept) {
                    Ok(credentials) => renewed = Some(credentials),
                    Err(error) => tracing::warn!(error, "the certificate was not renewed"),
                }
            }
            if let Some(credentials) = renewed.clone() {
                let stored = tokio::task::spawn_blocking(move || folder.store(&credentials)).await;
                if let Ok(Err(error)) = stored {
                    tracing::error!(%error, "the renewed certificate was not kept on disk");
                }
            }
            let _ended = orders.send(DriverCall::Renewed(renewed.unwrap_or(old))).await;
        });
    }

    /// Addresses at which a coordinator may answer: known coordinators (those present first), then
    /// stored peers, then seeds that are IP addresses. Seeds with a host name are not resolved
    /// here.
    fn coordinators(&self) -> Vec<SocketAddr> {
        let members = self.member.members().filter(|(h, ..)| h.kind == MemberKind::Coordinator);
        let mut known: Vec<_> = members.collect();
        known.sort_by_key(|(_, state, _)| *state != MemberState::Present);
        let mut all: Vec<SocketAddr> = known.into_iter().map(|(_, _, at)| at).collect();
        all.extend(self.persisted.peers().iter().map(|peer| peer.address));
        all.extend(self.config.seeds.iter().filter_map(|seed| seed.parse::<SocketAddr>().ok()));
        let mut seen = std::collections::BTreeSet::new();
        all.retain(|address| seen.insert(*address));
        all
    }

    /// Handles the end of the renewal task. `credentials` are new, or the old ones if it failed.
    pub(super) fn renewed(&mut self, credentials: crate::tls::credentials::Credentials) {
        self.renewing = false;
        if credentials.certificate() == self.credentials.certificate() {
            return;
        }
        match tls(&credentials, &self.clock, &self.revoked) {
            Ok(tls) => {
                if let Err(error) = self.transport.replace_tls(tls) {
                    tracing::error!(%error, "the renewed certificate is not used");
                    return;
                }
            }
            Err(error) => {
                tracing::error!(%error, "the renewed certificate is not used");
                return;
            }
        }
        tracing::info!(until = ?credentials.identity().not_after, "certificate renewed");
        let certificate = credentials.certificate().to_vec();
        self.credentials = credentials;
        self.take(MemberInput::Renewed(certificate));
    }
}
