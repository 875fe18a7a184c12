//! `volvox-coordinator join-token …` and `member …`: who is in the mesh. They speak to the coordinator of
//! this machine.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use volvox_protocol::api::{
    JoinTokenIdRequest, JoinTokenRequest, JoinTokenResponse, JoinTokensResponse, LifecycleResponse,
    MemberRequest, MemberRole, MembersResponse, NoRequest,
};

use super::{lifetime, socket};
use crate::offline::say;

/// Where the coordinator is.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The coordinator's data folder.
    #[arg(long, default_value = "/var/lib/volvox/coordinator")]
    data_dir: PathBuf,
    /// Its socket; by default api.sock in the data folder.
    #[arg(long)]
    socket: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

impl Where {
    fn socket(&self) -> PathBuf {
        self.socket.clone().unwrap_or_else(|| self.data_dir.join("api.sock"))
    }
}

/// What to do about join tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum JoinTokenCommand {
    /// Make a line with which machines join, and print it. It is shown this once.
    Create {
        #[command(flatten)]
        at: Where,
        /// Let in coordinators, not cells.
        #[arg(long)]
        coordinator: bool,
        /// Only for the cell of this id.
        #[arg(long)]
        cell: Option<String>,
        /// Expel a live member that has that id: for a machine that was set up anew.
        #[arg(long, requires = "cell")]
        replace: bool,
        /// How often it may be used.
        #[arg(long, default_value_t = 1)]
        uses: u32,
        /// For how long it may be used, such as 30m or 7d.
        #[arg(long, default_value = "1d", value_parser = lifetime)]
        expires: Duration,
        /// For people.
        #[arg(long, default_value = "")]
        label: String,
        /// Where joining machines find this coordinator, host:port; may be given several times. By
        /// default where it says that it is.
        #[arg(long)]
        address: Vec<String>,
    },
    /// List the join tokens, without their secrets.
    List {
        #[command(flatten)]
        at: Where,
    },
    /// Take a join token back. Who has joined with it stays.
    Revoke {
        #[command(flatten)]
        at: Where,
        /// The token's id.
        id: String,
    },
}

/// What to do about members.
#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List the machines that were ever let in.
    List {
        #[command(flatten)]
        at: Where,
    },
    /// Expel a machine: nothing that it says is heard any more.
    Revoke {
        #[command(flatten)]
        at: Where,
        /// The cell's id, or the member's number.
        member: String,
    },
}

pub(crate) fn join_token(command: JoinTokenCommand) -> anyhow::Result<ExitCode> {
    match command {
        JoinTokenCommand::Create {
            at,
            coordinator,
            cell,
            replace,
            uses,
            expires,
            label,
            address,
        } => {
            let request = JoinTokenRequest {
                role: if coordinator { MemberRole::Coordinator } else { MemberRole::Cell },
                cell_id: cell.unwrap_or_default(),
                replace,
                uses,
                lifetime_s: u32::try_from(expires.as_secs()).unwrap_or(u32::MAX),
                label,
                addresses: address,
            };
            let made: JoinTokenResponse =
                socket::call(&at.socket(), "/v1/join_tokens/create", &request)?;
            say(&if at.json { serde_json::to_string(&made)? } else { made.join_token });
        }
        JoinTokenCommand::List { at } => {
            let all: JoinTokensResponse =
                socket::call(&at.socket(), "/v1/join_tokens/list", &NoRequest {})?;
            if at.json {
                say(&serde_json::to_string(&all)?);
            } else {
                say(&format!("{:<18} {:<5} {:<20} LABEL", "ID", "USES", "CELL"));
                for token in all.join_tokens {
                    let cell = if token.cell_id.is_empty() { "any" } else { &token.cell_id };
                    let (id, uses, label) = (&token.id, token.uses_left, &token.label);
                    say(&format!("{id:<18} {uses:<5} {cell:<20} {label}"));
                }
            }
        }
        JoinTokenCommand::Revoke { at, id } => {
            let request = JoinTokenIdRequest { id: id.clone() };
            let _: LifecycleResponse =
                socket::call(&at.socket(), "/v1/join_tokens/revoke", &request)?;
            say(&if at.json { "{}".to_owned() } else { format!("revoked {id}") });
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn member(command: MemberCommand) -> anyhow::Result<ExitCode> {
    match command {
        MemberCommand::List { at } => {
            let all: MembersResponse =
                socket::call(&at.socket(), "/v1/members/list", &NoRequest {})?;
            if at.json {
                say(&serde_json::to_string(&all)?);
            } else {
                say(&format!("{:<34} {:<12} {:<8} NAME", "MEMBER", "ROLE", "STATE"));
                for member in all.members {
                    let role = match member.role {
                        MemberRole::Cell => "cell",
                        MemberRole::Coordinator => "coordinator",
                    };
                    let state = if member.revoked_at.is_some() { "expelled" } else { "in" };
                    let (id, name) = (&member.member_id, &member.name);
                    say(&format!("{id:<34} {role:<12} {state:<8} {name}"));
                }
            }
        }
        MemberCommand::Revoke { at, member } => {
            let known: MembersResponse =
                socket::call(&at.socket(), "/v1/members/list", &NoRequest {})?;
            let is_number = known.members.iter().any(|it| it.member_id == member);
            let request = if is_number {
                MemberRequest { member_id: member.clone(), cell_id: String::new() }
            } else {
                MemberRequest { member_id: String::new(), cell_id: member.clone() }
            };
            let _: LifecycleResponse = socket::call(&at.socket(), "/v1/members/revoke", &request)?;
            say(&if at.json { "{}".to_owned() } else { format!("expelled {member}") });
        }
    }
    Ok(ExitCode::SUCCESS)
}
