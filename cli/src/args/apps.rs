//! Flags of the commands about apps.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use volvox_protocol::id::{CellId, DefinitionId, Domain, ProcessGuid};
use volvox_protocol::time::span;

/// Whether to wait, and for how long.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Waiting {
    /// Wait until it is so, and say how it goes on.
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) limit: WaitingFor,
}

/// For how long to wait.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct WaitingFor {
    /// How long to wait at most, such as 90s or 10m; 0: for ever.
    #[arg(long, default_value = "10m", value_parser = span::parse, value_name = "SPAN")]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
#[command(
    after_help = "The file has one app, or several under [[app]]; docs/cli.md has the reference.

Examples:
  volvox apply -f app.toml --wait --timeout 5m
  volvox apply -f app.toml --dry-run
  generate-apps | volvox apply -f -"
)]
pub(crate) struct ApplyArgs {
    /// The file, TOML or JSON; `-` for stdin. May be given several times.
    #[arg(short, long = "file", required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Change nothing; show what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// What is to run: what apps and tasks have in common.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct What {
    /// The root file system, such as host: or preloaded:NAME.
    #[arg(long, value_name = "URL")]
    pub(crate) rootfs: Option<String>,
    /// Memory: megabytes, or with a unit such as 2G. Without it, no limit.
    #[arg(long, short, value_name = "SIZE")]
    pub(crate) memory: Option<String>,
    /// Disk: megabytes, or with a unit such as 2G. Without it, no limit.
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,
    /// An environment variable. May be given several times.
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Who runs it in the container; root by default.
    #[arg(long, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Its working folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) dir: Option<String>,
    /// Whose it is; `default` by default.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<Domain>,
    /// A tag that the cell must have. May be given several times.
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox run web --rootfs host: --memory 64 --instances 2 --port 8080 -- /bin/sh -c 'serve 8080'
  volvox run api --rootfs preloaded:linux --port 80 --check-http /healthz --wait -- /api
  volvox run web --rootfs host: --dry-run -- /bin/true")]
pub(crate) struct RunArgs {
    /// The app.
    #[arg(value_name = "APP")]
    pub(crate) name: ProcessGuid,
    /// How many instances; a new app has one.
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub(crate) instances: Option<u32>,
    /// A port that it listens on. May be given several times; the first is the main one.
    #[arg(long = "port", short, value_name = "PORT")]
    pub(crate) ports: Vec<u32>,
    /// Healthy while this path answers on the first port.
    #[arg(long, value_name = "PATH", conflicts_with = "check_tcp")]
    pub(crate) check_http: Option<String>,
    /// Healthy while this port accepts connections.
    #[arg(long, value_name = "PORT")]
    pub(crate) check_tcp: Option<u32>,
    #[command(flatten)]
    pub(crate) what: What,
    /// Change nothing; show what would change.
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
    /// The program and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox ps
  volvox ps web --watch
  volvox ps --cell cell-7 --json | jq '.instances[].process_guid'")]
pub(crate) struct PsArgs {
    /// Only these apps.
    #[arg(value_name = "APP")]
    pub(crate) apps: Vec<ProcessGuid>,
    /// Only instances on this cell.
    #[arg(long, value_name = "CELL")]
    pub(crate) cell: Option<CellId>,
    /// Only instances of this domain.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<Domain>,
    /// Show them again and again, until q or Ctrl-C.
    #[arg(long, short)]
    pub(crate) watch: bool,
    /// How often, with --watch.
    #[arg(long, default_value = "1s", value_parser = span::parse, value_name = "SPAN")]
    pub(crate) interval: Duration,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox scale web 5 --wait
  volvox scale web 0")]
pub(crate) struct ScaleArgs {
    /// The app.
    pub(crate) app: ProcessGuid,
    /// How many instances.
    pub(crate) instances: u32,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox stop web             removes the app and all its instances
  volvox stop web 3           stops instance 3; another takes its place
  volvox stop web --wait")]
pub(crate) struct StopArgs {
    /// The app.
    pub(crate) app: ProcessGuid,
    /// Only this instance: another takes its place.
    pub(crate) index: Option<u32>,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

/// An app, and whether to wait for what comes of it.
#[derive(Debug, Args)]
pub(crate) struct AppArgs {
    /// The app.
    pub(crate) app: ProcessGuid,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    /// The app.
    pub(crate) app: ProcessGuid,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox rollback web --wait                to the one before
  volvox rollback web d-1f0c2a9b4e6d        `volvox history web` lists them")]
pub(crate) struct RollbackArgs {
    /// The app.
    pub(crate) app: ProcessGuid,
    /// The definition; by default the one that was last in use before.
    pub(crate) definition: Option<DefinitionId>,
    #[command(flatten)]
    pub(crate) waiting: Waiting,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  volvox history web
  volvox history web --json | jq '.definitions[].definition_id'")]
pub(crate) struct HistoryArgs {
    /// The app.
    pub(crate) app: ProcessGuid,
}

#[derive(Debug, Args)]
#[command(after_help = "Ends with 0, also when they differ; with --exit-code, 1 then.

Examples:
  volvox diff web                           from the one before to the one that is to run
  volvox diff web d-1f0c2a9b4e6d            from that one to the one that is to run
  volvox diff web d-1f0c2a9b4e6d d-77ab31c0f2de --exit-code")]
pub(crate) struct DiffArgs {
    /// The app.
    pub(crate) app: ProcessGuid,
    /// The older definition; by default the one that was last in use before.
    pub(crate) from: Option<DefinitionId>,
    /// The newer definition; by default the one that is to run.
    pub(crate) to: Option<DefinitionId>,
    /// End with 1 when they differ.
    #[arg(long)]
    pub(crate) exit_code: bool,
}
