//! Commands about the cell as a whole: join, status, members, containers, evacuate. But for joining
//! they ask the agent on this machine, so they work without a coordinator.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use volvox_host::clock::wall;
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::time::Timestamp;

use super::say;
use crate::config::AgentConfig;
use crate::control::{ControlClient, ControlReply, ControlRequest, Status};
use crate::gossip;

/// Of stdin no more than this is read for a line.
const LINE_BYTES: u64 = 64 << 10;

/// Between two looks at an evacuation.
const LOOK: Duration = Duration::from_millis(500);

/// How long an agent that runs has to reach the coordinator after this machine was let in.
const CONTACT: Duration = Duration::from_secs(30);

/// The line to join with; `-` stands for what is on stdin: the line, or the whole command that `init`
/// printed.
pub(super) fn line(given: String) -> anyhow::Result<String> {
    if given != "-" {
        return Ok(given);
    }
    let mut text = String::new();
    // Longer than any line is; what is piped in by mistake is not read to its end.
    std::io::stdin().take(LINE_BYTES).read_to_string(&mut text).context("read the line")?;
    let found = text.split_whitespace().find(|it| it.starts_with("volvox-join-"));
    found.map(str::to_owned).context("there is no line volvox-join-... on stdin")
}

/// Joins the mesh with a line.
pub(super) fn join(config: &AgentConfig, line: &str) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(gossip::join(&config.mesh, line))?;
    say(&format!("joined as cell {}", config.settings.cell_id));
    let Ok(mut client) = ControlClient::connect(&config.socket()) else {
        say("now start the agent: systemctl start volvox-agent, or volvox-agent run");
        return Ok(ExitCode::SUCCESS);
    };
    let end = Instant::now() + CONTACT;
    while Instant::now() < end {
        let status = ask_status(&mut client)?;
        if status.rep.is_some_and(|it| it.coordinator) {
            say("the agent runs and has reached the coordinator: this machine takes work");
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
    let waited = CONTACT.as_secs();
    say(&format!(
        "the agent has not reached the coordinator after {waited} s: volvox-agent status"
    ));
    Ok(ExitCode::FAILURE)
}

/// How the cell is doing.
pub(super) fn status(config: &AgentConfig, json: bool) -> anyhow::Result<ExitCode> {
    let status = ask_status(&mut ControlClient::connect(&config.socket())?)?;
    if json {
        say(&serde_json::to_string_pretty(&status)?);
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!("cell         {}", config.settings.cell_id));
    say(&format!("zone         {}", config.rep.zone));
    let mut counts: Vec<String> = Vec::new();
    for (state, count) in &status.containers {
        counts.push(format!("{count} {state}"));
    }
    let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
    say(&format!("containers   {counts}"));
    say(&format!("room left    {}", room(status.remaining)));
    let Some(mesh) = &status.mesh else {
        say("mesh         no member yet: volvox-agent join LINE");
        return Ok(ExitCode::SUCCESS);
    };
    let until = days_left(mesh.certificate_until);
    say(&format!(
        "mesh         {} at {}, {} members present",
        mesh.name, mesh.address, mesh.present
    ));
    say(&format!("certificate  {until}"));
    if let Some(rep) = &status.rep {
        let coordinator = if rep.coordinator { "reachable" } else { "missing: on its own" };
        say(&format!("coordinator  {coordinator}"));
        let healthy = rep.load.as_ref().is_none_or(|it| it.healthy);
        let told = if healthy { "passes" } else { "FAILS: no new work is taken" };
        say(&format!("self-test    {told} ({} failures in a row)", rep.self_test_failures));
        if let Some(evacuation) = &rep.evacuation {
            let (instances, tasks) = (evacuation.instances_left, evacuation.tasks_left);
            say(&format!("evacuating   {instances} instances and {tasks} tasks left"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn ask_status(client: &mut ControlClient) -> anyhow::Result<Status> {
    match client.ask(&ControlRequest::Status)? {
        ControlReply::Status(status) => Ok(*status),
        other => bail!("the agent answered {other:?}"),
    }
}

fn room(left: CellCapacity) -> String {
    let CellCapacity { memory_mb, disk_mb, containers } = left;
    format!("{memory_mb} MB memory, {disk_mb} MB disk, {containers} containers")
}

fn days_left(until: Timestamp) -> String {
    let left = until.since(wall());
    if left.is_zero() {
        return "has ended: the agent renews it when it reaches a coordinator".to_owned();
    }
    format!("{} days left; it renews itself", left.as_secs() / 86_400)
}

/// The members of the mesh, as this cell sees them.
pub(super) fn members(config: &AgentConfig, json: bool) -> anyhow::Result<ExitCode> {
    let ControlReply::Members(mut members) =
        ControlClient::connect(&config.socket())?.ask(&ControlRequest::Members)?
    else {
        bail!("the agent did not answer with members");
    };
    members.sort_by(|a, b| (&a.kind, &a.name).cmp(&(&b.kind, &b.name)));
    if json {
        say(&serde_json::to_string_pretty(&members)?);
        return Ok(ExitCode::SUCCESS);
    }
    say(&format!(
        "{:<24} {:<12} {:<8} {:<24} {:<12} FREE",
        "NAME", "KIND", "STATE", "ADDRESS", "ZONE"
    ));
    for member in members {
        let state = match (member.present, member.evacuating, member.healthy) {
            (false, _, _) => "missing",
            (true, true, _) => "leaving",
            (true, false, false) => "ill",
            (true, false, true) => "present",
        };
        let free = member.free.map(room).unwrap_or_default();
        let (name, kind) = (member.name, member.kind);
        say(&format!(
            "{name:<24} {kind:<12} {state:<8} {:<24} {:<12} {free}",
            member.address, member.zone
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is used now.
pub(super) fn metrics(config: &AgentConfig) -> anyhow::Result<ExitCode> {
    match ControlClient::connect(&config.socket())?.ask(&ControlRequest::Metrics)? {
        ControlReply::Metrics(text) => say(text.trim_end()),
        other => bail!("the agent answered {other:?}"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands all work over. With `wait` it tells how that goes until the cell is empty.
pub(super) fn evacuate(config: &AgentConfig, wait: bool) -> anyhow::Result<ExitCode> {
    let mut client = ControlClient::connect(&config.socket())?;
    client.ask(&ControlRequest::Evacuate)?;
    if !wait {
        say("the cell hands its work over; the agent ends when it is empty (volvox-agent status)");
        return Ok(ExitCode::SUCCESS);
    }
    let mut told = None;
    let begun = Instant::now();
    loop {
        // The agent ends when it is done: that nobody answers any more is success.
        let Ok(status) = ask_status(&mut client) else {
            say(&format!("evacuated after {} s", begun.elapsed().as_secs()));
            return Ok(ExitCode::SUCCESS);
        };
        let evacuation = status.rep.and_then(|it| it.evacuation).context("it is not evacuating")?;
        let left = (evacuation.instances_left, evacuation.tasks_left);
        if told != Some(left) {
            say(&format!("{} instances and {} tasks left", left.0, left.1));
            told = Some(left);
        }
        std::thread::sleep(LOOK);
    }
}
