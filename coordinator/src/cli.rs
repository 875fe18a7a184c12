//! The command line of `volvox-coordinator`: runs the coordinator, and looks after its tokens, its
//! mesh and its database.

mod cert;
mod init;
mod mesh;
pub(crate) mod owner;
mod serve;
mod socket;
mod token;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use self::cert::CertCommand;
use self::init::InitArgs;
use self::mesh::{JoinTokenCommand, MemberCommand};
use self::token::TokenCommand;
use crate::config::{CoordinatorConfig, LogFormat, SAMPLE};
use crate::offline;
use clap::{CommandFactory as _, Parser, Subcommand};
use volvox_protocol::time::span;

/// The configuration of an installed coordinator: taken when none is named and it is there.
const CONFIG: &str = "/etc/volvox/coordinator.toml";

/// The coordinator of a Volvox fleet.
///
/// `run` serves it. The other commands look after its tokens, its mesh and the database in its data
/// folder.
#[derive(Debug, Parser)]
#[command(name = "volvox-coordinator", version, after_help = EXAMPLES)]
struct CoordinatorArguments {
    #[command(subcommand)]
    command: CoordinatorCommand,
}

const EXAMPLES: &str = "Examples:
  volvox-coordinator init    --uses 10
  volvox-coordinator run     --config /etc/volvox/coordinator.toml
  volvox-coordinator config  > coordinator.toml
  volvox-coordinator token create --name ci --role write --expires 30d
  volvox-coordinator cert issue --role admin --name cfdot --out ./cfdot
  volvox-coordinator join-token create --uses 10 --expires 1h
  volvox-coordinator member revoke cell-7
  volvox-coordinator check   --data-dir /var/lib/volvox
  volvox-coordinator backup  --data-dir /var/lib/volvox --to /backups/board-monday.db
  volvox-coordinator backup  --keep 7
  volvox-coordinator restore --data-dir /var/lib/volvox --from /backups/board-monday.db
  volvox-coordinator dump    --data-dir /var/lib/volvox > records.jsonl

Logging goes to stderr; VOLVOX_LOG sets its level (error, warn, info, debug).";

#[derive(Debug, Subcommand)]
enum CoordinatorCommand {
    /// Begin a cluster: make the data folder and the authority, and print the line to run on a cell.
    ///
    /// May be repeated: what is there stays, and another line is printed. Works beside a coordinator
    /// that runs, and before one does.
    Init(InitArgs),
    /// Serve: the board, the auction, the mesh and the HTTP API, until SIGTERM.
    Run {
        /// The configuration; without it /etc/volvox/coordinator.toml, if that is there.
        #[arg(long)]
        config: Option<PathBuf>,
        /// The data folder; comes before the configuration's.
        #[arg(long)]
        data_dir: Option<PathBuf>,
        /// A join token, to enter an existing mesh at the first start; without it, a new cluster is made.
        #[arg(long)]
        join: Option<String>,
    },
    /// Print every configuration key with its default and what it means, or check a file.
    Config {
        /// Check this file instead.
        #[arg(long)]
        check: Option<PathBuf>,
    },
    /// Make, list and revoke tokens for the HTTP API.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Make certificates for clients of the HTTP API that show one.
    #[command(subcommand)]
    Cert(CertCommand),
    /// Make, list and revoke the lines with which machines join.
    #[command(subcommand)]
    JoinToken(JoinTokenCommand),
    /// List and expel the machines of the mesh.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Read the whole database and say what is wrong with it.
    ///
    /// Ends with 0 when it is sound, 1 when it is not, 2 when it could not be read at all. Works
    /// while a coordinator is running, and changes nothing.
    Check {
        /// The coordinator's data folder; without it, that of the configuration in /etc/volvox.
        #[arg(long)]
        data_dir: Option<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Copy the database to a new file, also while a coordinator is running.
    Backup {
        /// The coordinator's data folder; without it, that of the configuration in /etc/volvox.
        #[arg(long)]
        data_dir: Option<PathBuf>,
        /// The file to write; by default a new one in the folder `backups` of the data folder.
        #[arg(long)]
        to: Option<PathBuf>,
        /// How many of those in `backups` to keep, with the new one: older ones are deleted. Copies
        /// with other names than it gives, and those made before a new schema, are not counted.
        #[arg(long, conflicts_with = "to", value_parser = clap::value_parser!(u32).range(1..))]
        keep: Option<u32>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Put a backup in the place of the database. The coordinator must be stopped.
    ///
    /// The database that was there is kept beside it under another name.
    Restore {
        /// The coordinator's data folder; without it, that of the configuration in /etc/volvox.
        #[arg(long)]
        data_dir: Option<PathBuf>,
        /// The backup; by default the newest in the folder `backups` of the data folder.
        #[arg(long)]
        from: Option<PathBuf>,
        /// Print the result as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print every readable record as one line of JSON, also from a damaged database.
    Dump {
        /// The coordinator's data folder; without it, that of the configuration in /etc/volvox.
        #[arg(long)]
        data_dir: Option<PathBuf>,
    },
}

/// What may be asked of the program: for manuals, completions and tests.
pub fn command() -> clap::Command {
    CoordinatorArguments::command()
}

/// The program.
pub fn main() -> ExitCode {
    let command = CoordinatorArguments::parse().command;
    if !matches!(command, CoordinatorCommand::Run { .. }) {
        serve::log(LogFormat::Text, "warn");
    }
    let result = match command {
        CoordinatorCommand::Run { config, data_dir, join } => {
            let config = config.or_else(installed);
            serve::run(config.as_deref(), data_dir.as_deref(), join.as_deref())
        }
        CoordinatorCommand::Init(arguments) => init::run(&arguments),
        CoordinatorCommand::Config { check } => config(check.as_deref()),
        CoordinatorCommand::Cert(command) => cert::run(command),
        CoordinatorCommand::Token(command) => token::run(command),
        CoordinatorCommand::JoinToken(command) => mesh::join_token(command),
        CoordinatorCommand::Member(command) => mesh::member(command),
        CoordinatorCommand::Check { data_dir, json } => {
            folder(data_dir).and_then(|it| offline::check(&it, json))
        }
        CoordinatorCommand::Backup { data_dir, to, keep, json } => {
            folder(data_dir).and_then(|it| offline::backup(&it, to, keep, json))
        }
        CoordinatorCommand::Restore { data_dir, from, json } => {
            folder(data_dir).and_then(|it| offline::restore(&it, from, json))
        }
        CoordinatorCommand::Dump { data_dir } => folder(data_dir).and_then(|it| offline::dump(&it)),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            offline::complain(&error);
            ExitCode::from(2)
        }
    }
}

/// The configuration of an installed coordinator, if there is one.
fn installed() -> Option<PathBuf> {
    Some(PathBuf::from(CONFIG)).filter(|it| it.exists())
}

/// The data folder that was named, or the one of the installed configuration, which is read only then:
/// a faulty one must not keep a backup from being made or put back.
fn folder(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match named {
        Some(folder) => Ok(folder),
        None => Ok(CoordinatorConfig::read(installed().as_deref(), None)?.data_dir),
    }
}

fn config(check: Option<&Path>) -> anyhow::Result<ExitCode> {
    match check {
        None => offline::say(SAMPLE.trim_end()),
        Some(path) => {
            CoordinatorConfig::read(Some(path), None)?;
            offline::say(&format!("{} is in order", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the lifetime of a token or certificate: a second at least.
fn lifetime(text: &str) -> Result<Duration, String> {
    let span = span::parse(text).map_err(|error| error.to_string())?;
    let least = (span >= Duration::from_secs(1)).then_some(span);
    least.ok_or_else(|| format!("{text:?}: a second to ten years is wanted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lifetime_is_a_second_at_least() {
        assert_eq!(lifetime("1s"), Ok(Duration::from_secs(1)));
        for bad in ["0", "0d", "999ms", "3", "9999d"] {
            assert!(lifetime(bad).is_err(), "{bad:?} was let through");
        }
    }
}
