//! `volvox-coordinator token …`: who may call the API.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::api::access::{Role, Token, TokenFile};
use anyhow::Context as _;
use clap::Subcommand;
use volvox_mesh::tls::config::system_clock;

use super::lifetime;
use super::owner::become_owner;
use crate::offline::say;

/// What to do about tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token and print it. It is shown this once; only a hash of it is kept.
    Create {
        /// The coordinator's data folder.
        #[arg(long, default_value = "/var/lib/volvox/coordinator")]
        data_dir: PathBuf,
        /// For people: who has it.
        #[arg(long)]
        name: String,
        /// What its bearer may do: read, write or admin.
        #[arg(long)]
        role: Role,
        /// For how long, such as 12h or 30d; without it, for ever.
        #[arg(long, value_parser = lifetime)]
        expires: Option<Duration>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the tokens, without their secrets.
    List {
        /// The coordinator's data folder.
        #[arg(long, default_value = "/var/lib/volvox/coordinator")]
        data_dir: PathBuf,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Take a token back. A running coordinator hears of it within a second.
    Revoke {
        /// The coordinator's data folder.
        #[arg(long, default_value = "/var/lib/volvox/coordinator")]
        data_dir: PathBuf,
        /// The token's id, or its name.
        token: String,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(command: TokenCommand) -> anyhow::Result<ExitCode> {
    let now = system_clock()();
    let (TokenCommand::Create { data_dir, .. }
    | TokenCommand::List { data_dir, .. }
    | TokenCommand::Revoke { data_dir, .. }) = &command;
    become_owner(data_dir)?;
    match command {
        TokenCommand::Create { data_dir, name, role, expires, json } => {
            volvox_host::durable::private_folder(&data_dir).context("make the data folder")?;
            let (text, token) = TokenFile::of(&data_dir).create(now, &name, role, expires)?;
            if json {
                say(&serde_json::json!({"token": text, "id": token.id}).to_string());
            } else {
                say(&text);
            }
        }
        TokenCommand::List { data_dir, json } => {
            let tokens = TokenFile::of(&data_dir).list()?;
            if json {
                let shown: Vec<_> = tokens.iter().map(shown).collect();
                say(&serde_json::to_string(&shown)?);
            } else {
                say(&format!("{:<10} {:<6} {:<8} NAME", "ID", "ROLE", "STATE"));
                for token in &tokens {
                    let (id, role, name) = (&token.id, token.role.name(), &token.name);
                    say(&format!("{id:<10} {role:<6} {:<8} {name}", state(token, now)));
                }
            }
        }
        TokenCommand::Revoke { data_dir, token, json } => {
            let token = TokenFile::of(&data_dir).revoke(now, &token)?;
            if json {
                say(&shown(&token).to_string());
            } else {
                say(&format!("revoked {} ({})", token.id, token.name));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn state(token: &Token, now: volvox_protocol::time::Timestamp) -> &'static str {
    if token.revoked_at.is_some() {
        "revoked"
    } else if token.is_valid(now) {
        "valid"
    } else {
        "expired"
    }
}

/// A token for programs: everything but the hash.
fn shown(token: &Token) -> serde_json::Value {
    serde_json::json!({
        "id": token.id, "name": token.name, "role": token.role, "created_at": token.created_at,
        "expires_at": token.expires_at, "revoked_at": token.revoked_at,
        "state": state(token, system_clock()()),
    })
}
