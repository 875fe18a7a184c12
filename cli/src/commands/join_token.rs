//! `volvox join-token`: the lines with which machines join.

use serde_json::json;
use volvox_host::clock::wall;
use volvox_protocol::api::{
    JoinTokenIdRequest, JoinTokenRequest, JoinTokenResponse, JoinTokensResponse, LifecycleResponse,
    MemberRole, NoRequest,
};
use volvox_protocol::time::span;

use crate::Context;
use crate::args::JoinTokenCommand;
use crate::error::{Code, Failure};
use crate::output::Table;

pub(super) fn run(context: &mut Context, command: JoinTokenCommand) -> Result<(), Failure> {
    let client = context.client()?;
    match command {
        JoinTokenCommand::Create { coordinator, cell, replace, uses, expires, label, address } => {
            let seconds = u32::try_from(expires.as_secs()).unwrap_or(u32::MAX);
            if seconds == 0 || uses == 0 {
                return Err(Failure::usage("--expires and --uses must be at least 1s and 1"));
            }
            let request = JoinTokenRequest {
                role: if coordinator { MemberRole::Coordinator } else { MemberRole::Cell },
                cell_id: cell.map(String::from).unwrap_or_default(),
                replace,
                uses,
                lifetime_s: seconds,
                label,
                addresses: address,
            };
            let made: JoinTokenResponse = client.call("/v1/join_tokens/create", &request)?;
            let document = json!({"id": made.id, "join_token": made.join_token, "expires_at": made.expires_at});
            context.out.show(&document, |out| out.line(&made.join_token))
        }
        JoinTokenCommand::List => {
            let all: JoinTokensResponse = client.call("/v1/join_tokens/list", &NoRequest {})?;
            context
                .out
                .show(&json!({"join_tokens": all.join_tokens}), |out| out.table(&table(&all)))
        }
        JoinTokenCommand::Revoke { id } => {
            let request = JoinTokenIdRequest { id: id.clone() };
            let done: Result<LifecycleResponse, Failure> =
                client.call("/v1/join_tokens/revoke", &request);
            done.map_err(|failure| {
                failure.about(&id).hint_for(Code::Usage, "`volvox join-token list` lists their ids")
            })?;
            let document = json!({"join_token": id, "action": "revoked"});
            context.out.show(&document, |out| out.line(&format!("{id} revoked")))
        }
    }
}

fn table(all: &JoinTokensResponse) -> Table {
    let mut table = Table::new(&["ID", "ROLE", "CELL", "USES LEFT", "EXPIRES IN", "LABEL"]);
    let now = wall();
    for token in &all.join_tokens {
        let role = match token.role {
            MemberRole::Cell => "cell",
            MemberRole::Coordinator => "coordinator",
        };
        let cell = if token.cell_id.is_empty() { "any" } else { &token.cell_id };
        let left = if token.expires_at <= now {
            "expired".to_owned()
        } else {
            span::show(token.expires_at.since(now))
        };
        table.row([
            token.id.clone().into(),
            role.into(),
            cell.into(),
            token.uses_left.to_string().into(),
            left.into(),
            token.label.clone().into(),
        ]);
    }
    table.without_empty("LABEL")
}
