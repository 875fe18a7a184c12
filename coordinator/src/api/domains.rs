//! Domains: whose desired state is complete and current.

use std::time::Duration;

use volvox_host::clock::wall;
use volvox_protocol::api::{DomainsResponse, NoRequest, PingResponse, UpsertDomainRequest};

use super::route::{self, Route};
use crate::bbs::command::Command;

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    vec![
        route::read::<NoRequest, PingResponse>(
            "/v1/ping",
            "Ping",
            "Whether the board answers.",
            |_, _| Ok(PingResponse { available: true }),
        ),
        route::read::<NoRequest, DomainsResponse>(
            "/v1/domains/list",
            "Domains",
            "The domains that are fresh now.",
            |api, _| {
                let now = wall();
                let records = api.bbs.view().snapshot();
                let fresh = records.domains().filter(|domain| domain.expires_at > now);
                let domains = fresh.map(|domain| domain.domain.clone()).collect();
                Ok(DomainsResponse { error: None, domains })
            },
        ),
        route::order::<UpsertDomainRequest>(
            "/v1/domains/upsert",
            "UpsertDomain",
            "Says that a domain's desired state is complete and current, for `ttl` seconds.",
            |request| request.domain.to_string(),
            |request| {
                let ttl = Duration::from_secs(request.ttl.into());
                Command::UpsertDomain(request.domain, ttl)
            },
        ),
    ]
}
