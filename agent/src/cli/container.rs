//! `volvox-agent container …`: start, list, show, logs, exec, stop, delete, events.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use volvox_host::clock::wall;
use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::id::InstanceGuid;
use volvox_protocol::task::TaskDefinition;

use super::{say, terminal};
use crate::config::AgentConfig;
use crate::container::guid::ContainerGuid;
use crate::control::{ControlClient, ControlReply, ControlRequest, Start};
use crate::executor::logic::ContainerView;
use crate::executor::workload::{Owner, Workload};
use crate::runtime::log_reader::{LogReader, Position};
use crate::runtime::shim::Shims;
use crate::shim::wire::LOGS;

/// Between two looks at a log that is followed.
const LOOK: Duration = Duration::from_millis(100);

/// What to do with containers.
#[derive(Debug, Subcommand)]
pub(super) enum ContainerCommand {
    /// Start a container: of a program, or of a whole definition.
    #[command(after_help = START_EXAMPLES)]
    Start {
        /// Its name; by default a new one.
        #[arg(long)]
        name: Option<String>,
        /// The root file system.
        #[arg(long, default_value = "host:")]
        rootfs: String,
        /// Who runs the program.
        #[arg(long, default_value = "vcap")]
        user: String,
        /// Memory; 0: no limit.
        #[arg(long, default_value_t = 128)]
        memory_mb: u32,
        /// Disk; 0: no limit.
        #[arg(long, default_value_t = 512)]
        disk_mb: u32,
        /// A port that it listens on; may be given again.
        #[arg(long = "port")]
        ports: Vec<u32>,
        /// An LRP definition (JSON file) in place of a program.
        #[arg(long, conflicts_with_all = ["task", "program"])]
        lrp: Option<PathBuf>,
        /// A task definition (JSON file) in place of a program.
        #[arg(long, conflicts_with = "program")]
        task: Option<PathBuf>,
        /// Print the container as JSON.
        #[arg(long)]
        json: bool,
        /// The program and its arguments.
        #[arg(last = true)]
        program: Vec<String>,
    },
    /// All containers.
    List {
        /// Print them as JSON.
        #[arg(long)]
        json: bool,
    },
    /// One container, as JSON.
    Show {
        /// Which one.
        name: String,
    },
    /// The log of a container.
    Logs {
        /// Which one.
        name: String,
        /// Go on with what comes, until the container is deleted.
        #[arg(long, short)]
        follow: bool,
    },
    /// Run a program in a container, with a terminal if there is one here. Ends with its status.
    Exec {
        /// Which one.
        name: String,
        /// Who runs it.
        #[arg(long, default_value = "root")]
        user: String,
        /// The program and its arguments.
        #[arg(last = true, required = true)]
        program: Vec<String>,
    },
    /// Stop a container, gracefully, and wait until it has completed.
    Stop {
        /// Which one.
        name: String,
    },
    /// Delete a container, whatever it does, and wait until nothing is left of it.
    Delete {
        /// Which ones.
        #[arg(required_unless_present = "all")]
        names: Vec<String>,
        /// All of them.
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// What happens from now on, as lines of JSON.
    Events,
}

const START_EXAMPLES: &str = "Examples:
  volvox-agent container start --name hello -- /bin/echo hello
  volvox-agent container start --port 8080 --memory-mb 64 -- python3 -m http.server 8080
  volvox-agent container start --task task.json";

/// Does it.
pub(super) fn run(config: &AgentConfig, command: ContainerCommand) -> anyhow::Result<ExitCode> {
    let client = || ControlClient::connect(&config.socket());
    match command {
        ContainerCommand::Start {
            name,
            rootfs,
            user,
            memory_mb,
            disk_mb,
            ports,
            lrp,
            task,
            json,
            program,
        } => {
            let (owner, work) = match (lrp, task) {
                (Some(path), None) => (by_hand(name)?, Workload::Lrp(Arc::new(read(&path)?))),
                (None, Some(path)) => {
                    (by_hand(name)?, Workload::Task(Arc::new(read::<TaskDefinition>(&path)?)))
                }
                (Some(_), Some(_)) => bail!("--lrp and --task cannot be given together"),
                (None, None) => {
                    let Some((path, args)) = program.split_first() else {
                        bail!("give a program after --, or --lrp FILE, or --task FILE");
                    };
                    let run = RunAction {
                        path: path.clone(),
                        args: args.to_vec(),
                        user,
                        ..RunAction::default()
                    };
                    let definition = LrpDefinition {
                        rootfs,
                        memory_mb,
                        disk_mb,
                        ports,
                        cpu_weight: 100,
                        log_source: "APP".to_owned(),
                        action: Some(Action::Run(Box::new(run))),
                        ..LrpDefinition::default()
                    };
                    (by_hand(name)?, Workload::Lrp(Arc::new(definition)))
                }
            };
            start(&mut client()?, owner, work, json)
        }
        ContainerCommand::List { json } => list(&mut client()?, json),
        ContainerCommand::Show { name } => {
            let view = show(&mut client()?, &guid(&name)?)?;
            say(&serde_json::to_string_pretty(&view)?);
            Ok(ExitCode::SUCCESS)
        }
        ContainerCommand::Logs { name, follow } => logs(config, &guid(&name)?, follow),
        ContainerCommand::Exec { name, user, program } => {
            let shims = shims(config);
            let guid = guid(&name)?;
            terminal::exec(&shims, guid.as_str(), &user, &program)
        }
        ContainerCommand::Stop { name } => stop(&mut client()?, &guid(&name)?),
        ContainerCommand::Delete { names, all } => delete(&mut client()?, &names, all),
        ContainerCommand::Events => events(&mut client()?),
    }
}

fn shims(config: &AgentConfig) -> Shims {
    Shims::new(&config.machine.state.join("containers"), &config.machine.shim)
}

fn read<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> anyhow::Result<T> {
    let named = || format!("definition {}", path.display());
    let text = std::fs::read(path).with_context(named)?;
    serde_json::from_slice(&text).with_context(named)
}

fn guid(name: &str) -> anyhow::Result<ContainerGuid> {
    Ok(InstanceGuid::new(name).with_context(|| format!("name {name:?}"))?.into())
}

fn new_name(name: Option<String>) -> String {
    name.unwrap_or_else(|| format!("c-{:x}", wall().as_nanos() / 1_000))
}

/// What a person starts by hand: the board never hears of it.
fn by_hand(name: Option<String>) -> anyhow::Result<Owner> {
    let name = new_name(name);
    Ok(Owner::Local(InstanceGuid::new(&name).with_context(|| format!("name {name:?}"))?))
}

/// Starts it and waits until it runs, or has ended.
fn start(
    client: &mut ControlClient,
    owner: Owner,
    work: Workload,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let guid = owner.container();
    client.ask(&ControlRequest::Start(Box::new(Start { owner, work })))?;
    let view = wait(client, &guid, |state| {
        matches!(state, ContainerState::Running | ContainerState::Completed)
    })?;
    if json {
        say(&serde_json::to_string_pretty(&view)?);
    } else {
        say(&line(&view));
    }
    Ok(if view.container.result.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn show(client: &mut ControlClient, guid: &ContainerGuid) -> anyhow::Result<ContainerView> {
    match client.ask(&ControlRequest::Show(guid.clone()))? {
        ControlReply::Container(Some(view)) => Ok(*view),
        ControlReply::Container(None) => bail!("there is no container {guid}"),
        other => bail!("the agent answered {other:?}"),
    }
}

fn wait(
    client: &mut ControlClient,
    guid: &ContainerGuid,
    enough: impl Fn(ContainerState) -> bool,
) -> anyhow::Result<ContainerView> {
    loop {
        let view = show(client, guid)?;
        if enough(view.container.state) {
            return Ok(view);
        }
        std::thread::sleep(LOOK);
    }
}

fn line(view: &ContainerView) -> String {
    let container = &view.container;
    let network = view.network.as_ref();
    let address = network.map(|it| it.internal_address.to_string()).unwrap_or_default();
    let ports: Vec<String> = network
        .iter()
        .flat_map(|it| &it.ports)
        .map(|it| format!("{}->{}", it.host_port, it.container_port))
        .collect();
    let result = &container.result;
    let ended = match container.state {
        ContainerState::Completed if result.stopped => "stopped",
        ContainerState::Completed if result.failed => result.failure_reason.as_str(),
        ContainerState::Completed => "succeeded",
        ContainerState::Reserved
        | ContainerState::Initializing
        | ContainerState::Created
        | ContainerState::Running => "",
    };
    let state = format!("{:?}", container.state).to_uppercase();
    let (name, ports) = (container.guid.as_str(), ports.join(","));
    let text = format!("{name:<24} {state:<12} {address:<15} {ports:<20} {ended}");
    text.trim_end().to_owned()
}

fn list(client: &mut ControlClient, json: bool) -> anyhow::Result<ExitCode> {
    let ControlReply::Containers(views) = client.ask(&ControlRequest::List)? else {
        bail!("the agent did not list its containers");
    };
    if json {
        say(&serde_json::to_string_pretty(&views)?);
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("{:<24} {:<12} {:<15} {:<20} END", "NAME", "STATE", "ADDRESS", "PORTS"));
    for view in &views {
        say(&line(view));
    }
    Ok(ExitCode::SUCCESS)
}

fn logs(config: &AgentConfig, guid: &ContainerGuid, follow: bool) -> anyhow::Result<ExitCode> {
    let folder = shims(config).folder(guid.as_str()).join(LOGS);
    let opened = LogReader::open(&folder, Position::default());
    let mut reader = opened.with_context(|| format!("there is no log of {guid}"))?;
    let mut out = io::stdout().lock();
    loop {
        let lines = match reader.read_more() {
            Ok(lines) => lines,
            // It was deleted, and its log with it.
            Err(_) if follow && !folder.exists() => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error).context("read the log"),
        };
        for line in &lines {
            write!(out, "{} [{}] ", time(line.at.as_nanos()), line.source)?;
            out.write_all(&line.text)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        if lines.is_empty() {
            if !follow || !folder.exists() {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// Hours, minutes, seconds and milliseconds, in UTC.
fn time(nanos: u64) -> String {
    let ms = nanos / 1_000_000;
    let (seconds, ms) = (ms / 1_000 % 86_400, ms % 1_000);
    format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn stop(client: &mut ControlClient, guid: &ContainerGuid) -> anyhow::Result<ExitCode> {
    client.ask(&ControlRequest::Stop(guid.clone()))?;
    let view = wait(client, guid, |state| state == ContainerState::Completed)?;
    say(&line(&view));
    Ok(ExitCode::SUCCESS)
}

fn delete(client: &mut ControlClient, names: &[String], all: bool) -> anyhow::Result<ExitCode> {
    let mut guids = Vec::new();
    if all {
        let ControlReply::Containers(views) = client.ask(&ControlRequest::List)? else {
            bail!("the agent did not list its containers");
        };
        guids.extend(views.into_iter().map(|view| view.container.guid));
    }
    for name in names {
        guids.push(guid(name)?);
    }
    for guid in guids {
        client.ask(&ControlRequest::Delete(guid.clone()))?;
        say(&format!("deleted {guid}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn events(client: &mut ControlClient) -> anyhow::Result<ExitCode> {
    client.ask(&ControlRequest::Events)?;
    loop {
        match client.hear()? {
            ControlReply::Event(event) => say(&serde_json::to_string(&event)?),
            other => bail!("the agent said {other:?}"),
        }
    }
}
