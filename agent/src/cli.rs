//! The command line of `volvox-agent`: run the agent, and look after its containers by hand.

mod cell;
mod check;
mod container;
mod terminal;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};

use crate::config::AgentConfig;
use crate::{offline, run};

/// The agent of a Volvox cell: it runs containers on this machine.
#[derive(Debug, Parser)]
#[command(name = "volvox-agent", version, after_help = EXAMPLES)]
struct AgentArguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: AgentCommand,
}

const EXAMPLES: &str = "Examples:
  volvox-agent run                                    all defaults: state in /var/lib/volvox/agent
  volvox-agent --config agent.toml run
  volvox-agent join volvox-join-v1...                 make this machine a cell of a cluster
  ssh coordinator volvox-coordinator init | volvox-agent join -
  volvox-agent status                                 how the cell is doing, coordinator or not
  volvox-agent evacuate --wait                        empty the cell before maintenance
  volvox-agent container start --name web --port 8080 -- python3 -m http.server 8080
  volvox-agent container list
  volvox-agent container logs web --follow
  volvox-agent container exec web -- sh
  volvox-agent container delete web
  volvox-agent clean                                  remove all containers and the network

Containers need root. Logging goes to stderr; VOLVOX_LOG sets its level (error, warn, info, debug).";

/// The configuration of an installed agent: taken when none is named and it is there.
const CONFIG: &str = "/etc/volvox/agent.toml";

/// What every command knows.
#[derive(Debug, Args)]
struct Common {
    /// The configuration file (TOML); without it /etc/volvox/agent.toml, if that is there.
    #[arg(long, global = true)]
    config: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Run the agent. Stopping it, in whatever way, stops no container (unless rep.evacuate_on_stop).
    Run,
    /// Make this machine a cell of a cluster, with a line of `volvox-coordinator init` or `join-token`.
    ///
    /// An agent that runs notices by itself, and is waited for.
    Join {
        /// The line; or `-`: it is read from stdin, and shows neither in the list of processes nor in
        /// the shell's history.
        line: String,
    },
    /// How this cell is doing. Works without a coordinator.
    Status {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// The members of the mesh, as this cell sees them. Works without a coordinator.
    Members {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// The containers of this cell. Works without a coordinator.
    Containers {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Hand all work over to other cells and take no more; the agent ends when the cell is empty.
    Evacuate {
        /// Wait until it is, and tell how it goes.
        #[arg(long)]
        wait: bool,
    },
    /// Look whether this machine can be a cell, and say what to do about what is missing.
    ///
    /// Works with and without a running agent. Ends with 1 if something is missing.
    Check {
        /// Print it as JSON.
        #[arg(long)]
        json: bool,
    },
    /// What the agent and its containers use now, in Prometheus' words.
    Metrics,
    /// Print every key of the configuration with its default and what it means, or check a file.
    Config {
        /// Check this file instead.
        #[arg(long)]
        check: Option<PathBuf>,
    },
    /// Remove every container, the network and the mounts of a cell whose agent does not run.
    ///
    /// Layers and downloads stay in the state folder. What cannot be removed is told, and keeps nothing
    /// else: run it again when the reason is gone.
    Clean,
    /// Ask what runs in containers to end, if this machine is going down; systemd calls it.
    ///
    /// The cell's assignments stay as they are, and are started again after the boot. It waits for
    /// containers.graceful_shutdown_s at most.
    Shutdown {
        /// Also if the machine is not going down.
        #[arg(long)]
        anyway: bool,
    },
    /// Look after the containers of the agent that runs on this machine: for debugging.
    #[command(subcommand)]
    Container(container::ContainerCommand),
}

/// What may be asked of the program: for manuals, completions and tests.
pub fn command() -> clap::Command {
    AgentArguments::command()
}

/// The program.
pub fn main() -> ExitCode {
    let AgentArguments { common, command } = AgentArguments::parse();
    let level = if matches!(command, AgentCommand::Run) { "info" } else { "warn" };
    let filter = tracing_subscriber::EnvFilter::try_from_env("VOLVOX_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    log.with_writer(std::io::stderr).init();
    let result = if let AgentCommand::Config { check } = command {
        configuration(check.as_deref())
    } else {
        let installed = || Some(PathBuf::from(CONFIG)).filter(|it| it.exists());
        let file = common.config.or_else(installed);
        AgentConfig::read(file.as_deref()).and_then(|config| perform(&config, command))
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            complain(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}

fn configuration(check: Option<&Path>) -> anyhow::Result<ExitCode> {
    match check {
        None => say(crate::config::SAMPLE.trim_end()),
        Some(path) => {
            AgentConfig::read(Some(path))?;
            say(&format!("{} is in order", path.display()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn perform(config: &AgentConfig, command: AgentCommand) -> anyhow::Result<ExitCode> {
    match command {
        AgentCommand::Run => run::run(config).map(|()| ExitCode::SUCCESS),
        AgentCommand::Clean => offline::clean(config).map(|containers| {
            say(&format!("removed {containers} containers, the network and the mounts"));
            ExitCode::SUCCESS
        }),
        AgentCommand::Shutdown { anyway } => shutdown(config, anyway),
        AgentCommand::Join { line } => cell::join(config, &cell::line(line)?),
        AgentCommand::Status { json } => cell::status(config, json),
        AgentCommand::Members { json } => cell::members(config, json),
        AgentCommand::Containers { json } => {
            container::run(config, container::ContainerCommand::List { json })
        }
        AgentCommand::Evacuate { wait } => cell::evacuate(config, wait),
        AgentCommand::Check { json } => check::run(config, json),
        AgentCommand::Metrics => cell::metrics(config),
        AgentCommand::Config { check } => configuration(check.as_deref()),
        AgentCommand::Container(command) => container::run(config, command),
    }
}

fn shutdown(config: &AgentConfig, anyway: bool) -> anyhow::Result<ExitCode> {
    if !anyway && !offline::is_going_down() {
        return Ok(ExitCode::SUCCESS);
    }
    let offline::Asked { asked, left } = offline::end_processes(config)?;
    say(&format!("asked {asked} processes in containers to end; {left} still run"));
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::print_stdout, reason = "what the person has asked for")]
fn say(text: &str) {
    println!("{text}");
}

#[expect(clippy::print_stderr, reason = "the one place that tells a person what went wrong")]
fn complain(text: &str) {
    eprintln!("volvox-agent: {text}");
}
