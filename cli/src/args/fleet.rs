//! Flags of the commands about the fleet and about the program itself.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Subcommand};
use clap_complete::Shell;
use volvox_protocol::id::{CellId, Domain, ProcessGuid, TaskGuid};
use volvox_protocol::role::Role;
use volvox_protocol::time::span;

use super::Waiting;

#[derive(Debug, Args)]
#[command(after_help = "With --json, one object for each event: {\"id\", \"event\", \"data\"}.

Examples:
  volvox events
  volvox events --cell cell-7
  volvox events --tasks --snapshot --json")]
pub(crate) struct EventsArgs {
    /// Only instances of this cell. Apps are always told of.
    #[arg(long, value_name = "CELL")]
    pub(crate) cell: Option<CellId>,
    /// Tasks instead of apps and instances.
    #[arg(long)]
    pub(crate) tasks: bool,
    /// First all there is, then what changes.
    #[arg(long)]
    pub(crate) snapshot: bool,
    /// Go on after the event with this id.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<String>,
    /// End after so many events.
    #[arg(long, value_name = "COUNT")]
    pub(crate) count: Option<u64>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox explain web            instance 0
  volvox explain web 3
  volvox explain --task migrate-7")]
pub(crate) struct ExplainArgs {
    /// The app.
    #[arg(required_unless_present = "task", conflicts_with = "task")]
    pub(crate) app: Option<ProcessGuid>,
    /// Which of its instances.
    #[arg(default_value_t = 0)]
    pub(crate) index: u32,
    /// A task instead.
    #[arg(long, value_name = "TASK")]
    pub(crate) task: Option<TaskGuid>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox evacuate cell-7 --wait --timeout 15m")]
pub(crate) struct EvacuateArgs {
    /// The cell.
    pub(crate) cell: CellId,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HoldCommand {
    /// Say whether the replacement of vanished cells is held, and until when.
    #[command(after_help = "Examples:\n  volvox hold show")]
    Show,
    /// Replace what was on the vanished cells now.
    #[command(after_help = "Examples:\n  volvox hold release")]
    Release,
}

#[derive(Debug, Subcommand)]
pub(crate) enum JoinTokenCommand {
    /// Make a line with which machines join, and print it. It is shown this once.
    #[command(
        visible_alias = "make",
        after_help = "Examples:
  volvox join-token create --uses 10 --expires 1h
  volvox join-token create --cell edge-7 --replace"
    )]
    Create {
        /// Let in coordinators, not cells.
        #[arg(long)]
        coordinator: bool,
        /// Only for the cell of this id.
        #[arg(long, value_name = "CELL")]
        cell: Option<CellId>,
        /// Expel a live member that has that id: for a machine that was set up anew.
        #[arg(long, requires = "cell")]
        replace: bool,
        /// How often it may be used.
        #[arg(long, default_value_t = 1, value_name = "COUNT")]
        uses: u32,
        /// For how long it may be used, such as 30m or 7d.
        #[arg(long, default_value = "1d", value_parser = span::parse, value_name = "SPAN")]
        expires: Duration,
        /// For people.
        #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
        label: String,
        /// Where joining machines find the coordinator, host:port; may be given several times. By
        /// default where it says that it is.
        #[arg(long, value_name = "ADDRESS")]
        address: Vec<String>,
    },
    /// List the join tokens, without their secrets.
    #[command(after_help = "Examples:\n  volvox join-token list")]
    List,
    /// Take a join token back. Who has joined with it stays.
    #[command(after_help = "Examples:\n  volvox join-token revoke 5f0c1d9e")]
    Revoke {
        /// The token's id.
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum MemberCommand {
    /// List the machines that were ever let in.
    #[command(after_help = "Examples:\n  volvox member list")]
    List,
    /// Expel a machine: nothing that it says is heard any more.
    #[command(after_help = "Examples:\n  volvox member revoke edge-7")]
    Revoke {
        /// The cell's id, or the member's number.
        member: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Make a certificate, and write ca.pem, cert.pem and key.pem. Needs the role admin.
    ///
    /// The key is made here and stays here. The certificate is signed by the coordinator's API, has its
    /// role in it, and cannot be taken back: give it a short life, and make it anew.
    Issue(CertIssueArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox cert issue --role admin
  volvox cert issue --role admin --name cfdot --out ./cfdot --expires 30d
  volvox cert issue --role write --name cloud-controller --private-key rsa.pem --out ./cc
  volvox cert issue --role read --name route-emitter --out ./emitter --force    make it anew")]
pub(crate) struct CertIssueArgs {
    /// What its bearer may do.
    #[arg(
        long,
        value_name = "ROLE",
        value_parser = PossibleValuesParser::new(Role::ALL.map(Role::name))
            .try_map(|name| name.parse::<Role>())
    )]
    pub(crate) role: Role,
    /// Who has it; by default called after the role. Of the role cell, the id of the cell that it
    /// speaks for.
    #[arg(long)]
    pub(crate) name: Option<CellId>,
    /// The folder to write to.
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub(crate) out: PathBuf,
    /// For how long it is valid, such as 12h or 90d; at most 825d.
    #[arg(long, default_value = "90d", value_parser = span::parse, value_name = "SPAN")]
    pub(crate) expires: Duration,
    /// A private key to make it for, in PEM: for peers with TLS 1.2 an RSA key. Without it, a new
    /// one is made (ECDSA, P-256).
    #[arg(long, value_name = "FILE")]
    pub(crate) private_key: Option<PathBuf>,
    /// A name or address of a server that shows it; may be given several times. Without one it is for
    /// clients only.
    #[arg(long)]
    pub(crate) host: Vec<String>,
    /// Overwrite the three files.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DomainCommand {
    /// List the domains that are fresh now.
    #[command(after_help = "Examples:\n  volvox domain list")]
    List,
    /// Say that a domain's apps are complete and current: what is not desired in it may be stopped.
    #[command(after_help = "Examples:
  volvox domain upsert default
  volvox domain upsert cf-apps --ttl 2m")]
    Upsert {
        /// The domain.
        domain: Domain,
        /// For how long, such as 2m; 0: for ever.
        #[arg(long, default_value = "0", value_parser = span::parse, value_name = "SPAN")]
        ttl: Duration,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Where stdout is no terminal, it is printed once.

Examples:
  volvox top
  volvox top --interval 5s")]
pub(crate) struct TopArgs {
    /// How often it is drawn.
    #[arg(long, default_value = "1s", value_parser = span::parse, value_name = "SPAN")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox completions bash > /etc/bash_completion.d/volvox
  volvox completions fish > ~/.config/fish/completions/volvox.fish")]
pub(crate) struct CompletionsArgs {
    /// The shell.
    pub(crate) shell: Shell,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox man --to /usr/share/man/man1
  volvox man > volvox.1")]
pub(crate) struct ManArgs {
    /// Write a page for each command into this folder; without it, the main page is printed.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) to: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox version
  volvox version --client --json")]
pub(crate) struct VersionArgs {
    /// Only this program's: ask nobody.
    #[arg(long)]
    pub(crate) client: bool,
}
