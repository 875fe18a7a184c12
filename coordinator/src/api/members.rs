//! Letting machines into the mesh and out of it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use volvox_host::clock::wall;
use volvox_host::sync::lock;
use volvox_mesh::identity::{MemberId, MemberKind};
use volvox_mesh::record::Revocation;
use volvox_mesh::tls::authority::{Authority, AuthorityError};
use volvox_mesh::tls::registry::{MemberSelector, NameConflict, TokenOrder};
use volvox_mesh::tls::token::TokenId;
use volvox_protocol::api::{
    JoinTokenIdRequest, JoinTokenInfo, JoinTokenRequest, JoinTokenResponse, JoinTokensResponse,
    LifecycleResponse, MemberInfo, MemberRequest, MemberRole, MembersResponse, NoRequest,
};
use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::Api;
use super::access::Role;
use super::reply::ApiFailure;
use super::route::{self, Route};

/// For how long a token may be used unless it says otherwise.
const DAY: u32 = 86_400;

/// The routes.
pub(super) fn routes() -> Vec<Route> {
    let routes = vec![
        route::change::<JoinTokenRequest, JoinTokenResponse, _>(
            "/v1/join_tokens/create",
            "CreateJoinToken",
            "Makes a line with which machines join. It is shown this once.",
            |request| format!("{:?} {}", request.role, request.cell_id),
            |api, request| async move { create(&api, request).await },
        ),
        route::ask::<NoRequest, JoinTokensResponse, _>(
            "/v1/join_tokens/list",
            "JoinTokens",
            "The join tokens there are, without their secrets.",
            |api, _| async move {
                let join_tokens = with_authority(&api, |authority| Ok(tokens(authority))).await?;
                Ok(JoinTokensResponse { error: None, join_tokens })
            },
        ),
        route::change::<JoinTokenIdRequest, LifecycleResponse, _>(
            "/v1/join_tokens/revoke",
            "RevokeJoinToken",
            "Takes a join token back. Who has joined with it stays.",
            |request| request.id.clone(),
            |api, request| async move {
                let id: TokenId = request
                    .id
                    .parse()
                    .map_err(|_| ApiFailure::field("id", "is no id of a token"))?;
                with_authority(&api, move |authority| authority.revoke_token(id)).await?;
                Ok(LifecycleResponse { error: None })
            },
        ),
        route::ask::<NoRequest, MembersResponse, _>(
            "/v1/members/list",
            "Members",
            "The machines that were ever let in.",
            |api, _| async move {
                let members = with_authority(&api, |authority| Ok(members(authority))).await?;
                Ok(MembersResponse { error: None, members })
            },
        ),
        route::change::<MemberRequest, LifecycleResponse, _>(
            "/v1/members/revoke",
            "RevokeMember",
            "Expels a machine: nothing that it says is heard any more.",
            |request| format!("{}{}", request.member_id, request.cell_id),
            |api, request| async move { revoke(&api, request).await },
        ),
    ];
    routes.into_iter().map(|route| route.with_role(Role::Admin)).collect()
}

fn tokens(authority: &Authority) -> Vec<JoinTokenInfo> {
    let tokens = authority.register().tokens().map(|(id, token)| JoinTokenInfo {
        id: id.to_string(),
        role: role_of(token.kind),
        cell_id: token.cell.as_ref().map(ToString::to_string).unwrap_or_default(),
        uses_left: token.uses_left,
        created_at: token.created,
        expires_at: token.expires,
        label: token.label.clone(),
    });
    tokens.collect()
}

fn members(authority: &Authority) -> Vec<MemberInfo> {
    let members = authority.register().members().map(|(id, member)| MemberInfo {
        member_id: id.to_string(),
        role: role_of(member.kind),
        name: member.name.to_string(),
        joined_at: member.joined,
        certificate_until: member.not_after,
        revoked_at: member.revoked,
    });
    members.collect()
}

const fn role_of(kind: MemberKind) -> MemberRole {
    match kind {
        MemberKind::Cell => MemberRole::Cell,
        MemberKind::Coordinator => MemberRole::Coordinator,
    }
}

impl Api {
    fn authority(&self) -> Result<&Arc<Mutex<Authority>>, ApiFailure> {
        self.authority.as_ref().ok_or_else(|| {
            ApiFailure::not_found("the authority of the cluster (another coordinator has it): it")
        })
    }
}

/// Those whom the mesh must know to be expelled: their certificates have not all ended.
pub(crate) fn expelled(now: Timestamp, authority: &Authority) -> Vec<Revocation> {
    let revoked = authority.register().revoked().into_iter().filter(|it| it.until > now);
    revoked.map(|it| Revocation::new(it.member, it.until)).collect()
}

/// The authority writes to disk: on a thread that may wait.
async fn with_authority<T: Send + 'static>(
    api: &Arc<Api>,
    work: impl FnOnce(&mut Authority) -> Result<T, AuthorityError> + Send + 'static,
) -> Result<T, ApiFailure> {
    let authority = Arc::clone(api.authority()?);
    let worked = tokio::task::spawn_blocking(move || work(&mut lock(&authority)));
    match worked.await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error @ (AuthorityError::Refused(_) | AuthorityError::Token(_)))) => {
            Err(ApiFailure::invalid(error.to_string()))
        }
        Ok(Err(error)) => Err(ApiFailure::busy(error.to_string())),
        Err(_) => Err(ApiFailure::busy("the authority failed: see the log")),
    }
}

/// Where this coordinator says that it is.
async fn own_address(api: &Api) -> Option<String> {
    let status = api.cells.as_ref()?.mesh().status().await.ok()?;
    Some(status.address.to_string())
}

async fn create(
    api: &Arc<Api>,
    request: JoinTokenRequest,
) -> Result<JoinTokenResponse, ApiFailure> {
    let cell = match request.cell_id.as_str() {
        "" => None,
        id => Some(CellId::new(id).map_err(|e| ApiFailure::field("cell_id", e.to_string()))?),
    };
    if request.replace && cell.is_none() {
        return Err(ApiFailure::field("replace", "needs a cell_id: one token replaces one cell"));
    }
    let addresses = if request.addresses.is_empty() {
        own_address(api).await.into_iter().collect()
    } else {
        request.addresses
    };
    if addresses.is_empty() {
        return Err(ApiFailure::field("addresses", "name where this coordinator is: host:port"));
    }
    let lifetime = if request.lifetime_s == 0 { DAY } else { request.lifetime_s };
    let lifetime = Duration::from_secs(lifetime.into());
    let order = TokenOrder {
        kind: match request.role {
            MemberRole::Cell => MemberKind::Cell,
            MemberRole::Coordinator => MemberKind::Coordinator,
        },
        cell,
        clash: if request.replace { NameConflict::Replace } else { NameConflict::Refuse },
        uses: request.uses.max(1),
        lifetime,
        label: request.label,
    };
    let begun = wall();
    let token =
        with_authority(api, move |authority| authority.create_token(begun, addresses, order))
            .await?;
    Ok(JoinTokenResponse {
        error: None,
        id: token.id().to_string(),
        join_token: token.line(),
        expires_at: begun + lifetime,
    })
}

async fn member(api: &Arc<Api>, id: String) -> Result<MemberId, ApiFailure> {
    let found = with_authority(api, move |authority| {
        let mut members = authority.register().members().map(|(member, _)| member);
        Ok(members.find(|member| member.to_string() == id))
    });
    found.await?.ok_or_else(|| ApiFailure::field("member_id", "is no number of a member"))
}

async fn revoke(api: &Arc<Api>, request: MemberRequest) -> Result<LifecycleResponse, ApiFailure> {
    let whom = match (request.member_id.as_str(), request.cell_id.as_str()) {
        ("", "") => return Err(ApiFailure::field("cell_id", "name a cell, or a member_id")),
        (id, "") => MemberSelector::Member(member(api, id.to_owned()).await?),
        ("", id) => {
            let id = CellId::new(id).map_err(|e| ApiFailure::field("cell_id", e.to_string()))?;
            MemberSelector::Name(MemberKind::Cell, id)
        }
        _ => return Err(ApiFailure::field("cell_id", "name a cell or a member_id, not both")),
    };
    let revoked = with_authority(api, move |authority| {
        authority.revoke(wall(), &whom)?;
        Ok(expelled(wall(), authority))
    })
    .await?;
    if let Some(cells) = &api.cells {
        let told = cells.mesh().revoke(revoked).await;
        told.map_err(|error| ApiFailure::busy(error.to_string()))?;
    }
    Ok(LifecycleResponse { error: None })
}
