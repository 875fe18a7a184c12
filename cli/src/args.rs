//! What may be asked: all commands, their flags and their examples. What they mean is told in
//! `docs/cli.md`; what they do stands in the file of the command.

mod apps;
mod dev;
mod fleet;
mod live;
mod task;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::output::Color;

pub(crate) use self::apps::{
    AppArgs, ApplyArgs, DiffArgs, HistoryArgs, PauseArgs, PsArgs, RollbackArgs, RunArgs, ScaleArgs,
    StopArgs, Waiting, WaitingFor, What,
};
pub(crate) use self::dev::DevArgs;
pub(crate) use self::fleet::{
    CertCommand, CertIssueArgs, CompletionsArgs, DomainCommand, EvacuateArgs, EventsArgs,
    ExplainArgs, HoldCommand, JoinTokenCommand, ManArgs, MemberCommand, TopArgs, VersionArgs,
};
pub(crate) use self::live::{ExecArgs, LogsArgs};
pub(crate) use self::task::{TaskCommand, TaskRunArgs};

/// Runs apps and tasks on a Volvox fleet, and looks after it.
#[derive(Debug, Parser)]
#[command(name = "volvox", version, after_help = EXAMPLES, max_term_width = 100)]
pub(crate) struct CliArguments {
    #[command(flatten)]
    pub(crate) place: Endpoint,
    /// Print JSON for programs, not tables for people.
    #[arg(long, global = true, help_heading = "Output")]
    pub(crate) json: bool,
    /// When to colour; NO_COLOR is heeded.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "WHEN",
        help_heading = "Output"
    )]
    pub(crate) color: Color,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

const EXAMPLES: &str = "Examples:
  volvox run web --rootfs host: --memory 64 --instances 2 --port 8080 -- /bin/sh -c 'serve'
  volvox apply -f app.toml --wait
  volvox ps --watch
  volvox scale web 5 --wait
  volvox task run --rootfs host: --result-file /tmp/out -- /bin/sh -c 'date > /tmp/out'
  volvox rollback web --wait
  volvox logs web --follow
  volvox exec web -- sh
  volvox events --json | jq .event

On the coordinator's own machine no address is needed. From elsewhere:
  export VOLVOX_API=https://fleet.example:8889 VOLVOX_CA=ca.pem VOLVOX_TOKEN_FILE=~/.volvox-token

Ends with 0 done, 1 failed, 2 bad input, 3 not found, 4 refused, 5 coordinator not reached,
6 waited in vain.";

/// Where the coordinator is, and with what we come to it.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Coordinator")]
pub(crate) struct Endpoint {
    /// Where it is: https://HOST:PORT, http://127.0.0.1:PORT or unix:/PATH. By default this machine's.
    #[arg(long, global = true, env = "VOLVOX_API", value_name = "URL")]
    pub(crate) api: Option<String>,
    /// The token to show. Others on this machine can see it in the list of processes: prefer a file.
    /// [env: VOLVOX_TOKEN=]
    // Not by clap's `env`: a file that a flag names must come before a token of the environment.
    #[arg(long, global = true, value_name = "TOKEN")]
    pub(crate) token: Option<String>,
    /// A file with the token to show. [env: VOLVOX_TOKEN_FILE=]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "token")]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file of the authorities to trust; by default those of this machine.
    #[arg(long, global = true, env = "VOLVOX_CA", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file of a client certificate to show.
    #[arg(long, global = true, env = "VOLVOX_CERT", value_name = "FILE")]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file of the client certificate's key.
    #[arg(long, global = true, env = "VOLVOX_KEY", value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// A configuration file with these settings; by default ~/.config/volvox/config.toml.
    #[arg(long, global = true, env = "VOLVOX_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Create or update apps from files.
    Apply(ApplyArgs),
    /// Create or update one app from flags.
    Run(Box<RunArgs>),
    /// Run one-off tasks, and look after them.
    #[command(subcommand)]
    Task(TaskCommand),
    /// List apps.
    #[command(after_help = "Examples:\n  volvox apps\n  volvox apps --json | jq '.apps[].name'")]
    Apps,
    /// List instances: their state, where they are, what holds them up.
    Ps(PsArgs),
    /// List cells: their room, their state, what is on them.
    #[command(
        after_help = "Examples:\n  volvox cells\n  volvox cells --json | jq '.cells[] | select(.evacuating)'"
    )]
    Cells,
    /// Change how many instances an app has.
    Scale(ScaleArgs),
    /// Remove apps, or stop one instance so that another takes its place.
    Stop(StopArgs),
    /// Show what instances or a task have written, and what they write.
    Logs(LogsArgs),
    /// Run a command with a terminal in an instance or a task. Ends with its status.
    Exec(ExecArgs),
    /// Follow what happens, across reconnections.
    Events(EventsArgs),
    /// Say why an instance or a task is where it is, or nowhere.
    Explain(ExplainArgs),
    /// Have a cell hand its work over to others.
    Evacuate(EvacuateArgs),
    /// Look at, or end, the hold after many cells have vanished together.
    #[command(subcommand)]
    Hold(HoldCommand),
    /// Make, list and revoke the lines with which machines join.
    #[command(subcommand)]
    JoinToken(JoinTokenCommand),
    /// List and expel the machines of the fleet.
    #[command(subcommand)]
    Member(MemberCommand),
    /// Make certificates for clients of the API: Diego's own, and those without a token.
    #[command(subcommand)]
    Cert(CertCommand),
    /// List the domains that are fresh, or say that one is.
    #[command(subcommand)]
    Domain(DomainCommand),
    /// Show cells and apps, live.
    Top(TopArgs),
    /// Go back to an earlier definition of an app.
    Rollback(RollbackArgs),
    /// Take back the update of an app that is under way.
    #[command(after_help = "Examples:\n  volvox cancel web --wait")]
    Cancel(AppArgs),
    /// Let an update go on beyond its canaries.
    #[command(after_help = "Examples:\n  volvox promote web --wait")]
    Promote(AppArgs),
    /// Have an update take up no more instances.
    #[command(after_help = "Examples:\n  volvox pause web")]
    Pause(PauseArgs),
    /// Let a paused or stalled update go on.
    #[command(after_help = "Examples:\n  volvox resume web --wait")]
    Resume(AppArgs),
    /// List the definitions of an app that there are and were.
    History(HistoryArgs),
    /// Show what differs between two definitions of an app.
    Diff(DiffArgs),
    /// Run a coordinator and cells on this machine, to try things out. Needs root.
    Dev(DevArgs),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Write man pages.
    Man(ManArgs),
    /// Print the release of this program and of the coordinator.
    Version(VersionArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_arguments_are_sound_and_every_command_has_examples() {
        let mut command = CliArguments::command();
        command.clone().debug_assert();
        check(&mut command);
    }

    fn check(command: &mut clap::Command) {
        let has_children = command.has_subcommands();
        let name = command.get_name().to_owned();
        assert!(command.get_about().is_some(), "{name} has no word about it");
        if !has_children {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Examples:"), "{name} has no examples");
        }
        for argument in command.get_arguments() {
            let id = argument.get_id();
            assert!(argument.get_help().is_some(), "{name} {id}: no word about it");
        }
        for child in command.get_subcommands_mut() {
            check(child);
        }
    }
}
