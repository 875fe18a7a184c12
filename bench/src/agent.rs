//! The agent: how long it takes to take hold of 500 running containers after it was killed, and how
//! many of them did not survive that. Needs root.
//!
//! Measured from outside, with the programs as they are shipped: from the start of the new agent's
//! process until it answers that all of them run. Each container has a network and one process.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use nix::sched::{CloneFlags, unshare};
use volvox_agent::control::{ControlClient, ControlReply, ControlRequest, Start};
use volvox_agent::executor::logic::ContainerView;
use volvox_agent::executor::workload::{Owner, Workload};
use volvox_agent::runtime::shim::Shims;
use volvox_bench::figures::Figures;
use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::container::ContainerState;
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::id::{Domain, InstanceGuid, ProcessGuid};

const CONTAINERS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(120);

/// Measures the group `agent`.
pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    let [time, killed] = ["agent.reattach.500.ms", "agent.reattach.500.killed"];
    if !nix::unistd::geteuid().is_root() {
        figures.missing(time, "ms", "containers need root");
        figures.missing(killed, "", "containers need root");
        return Ok(());
    }
    // A thread of its own has a network of its own, and so have the programs that it starts.
    let measured = std::thread::scope(|scope| scope.spawn(measure).join());
    let (elapsed, lost) =
        measured.map_err(|_| anyhow::anyhow!("measuring the agent panicked"))??;
    figures.note(time, elapsed.as_secs_f64() * 1e3, "ms");
    #[expect(clippy::cast_precision_loss, reason = "at most 500")]
    figures.note(killed, lost as f64, "");
    Ok(())
}

fn measure() -> anyhow::Result<(Duration, usize)> {
    unshare(CloneFlags::CLONE_NEWNET).context("make a network namespace")?;
    let cell = Cell::new()?;
    let mut agent = cell.start()?;
    let mut client = agent.client(&cell)?;
    for nth in 0..CONTAINERS {
        client.ask(&ControlRequest::Start(Box::new(work(&cell.name(nth))?)))?;
    }
    wait_until_all_run(&mut client)?;
    let before = cell.first_processes()?;
    ensure!(before.len() == CONTAINERS, "{} containers were made", before.len());
    drop((client, agent));

    let begun = Instant::now();
    let mut agent = cell.start()?;
    let mut client = agent.client(&cell)?;
    let views = list(&mut client)?;
    let elapsed = begun.elapsed();
    let running = views.iter().filter(|it| it.container.state == ContainerState::Running).count();
    let after = cell.first_processes()?;
    let same = before.iter().filter(|it| after.contains(it)).count();
    let lost = CONTAINERS - same.min(running);
    for view in views {
        client.ask(&ControlRequest::Delete(view.container.guid))?;
    }
    drop((client, agent));
    cell.clean()?;
    Ok((elapsed, lost))
}

fn work(name: &str) -> anyhow::Result<Start> {
    let key = LrpKey {
        process_guid: ProcessGuid::new("bench")?,
        index: 0,
        domain: Domain::new("bench")?,
        definition_id: None,
    };
    let run = RunAction {
        path: "/bin/sleep".into(),
        args: vec!["100000".into()],
        user: "vcap".into(),
        ..RunAction::default()
    };
    let definition = LrpDefinition {
        rootfs: "host:".into(),
        action: Some(Action::Run(Box::new(run))),
        memory_mb: 16,
        ports: vec![8080],
        log_source: "APP".into(),
        ..LrpDefinition::default()
    };
    let owner = Owner::Lrp { key, instance: InstanceGuid::new(name)? };
    Ok(Start { owner, work: Workload::Lrp(Arc::new(definition)) })
}

fn list(client: &mut ControlClient) -> anyhow::Result<Vec<ContainerView>> {
    match client.ask(&ControlRequest::List)? {
        ControlReply::Containers(views) => Ok(views),
        other => bail!("the agent answered {other:?}"),
    }
}

fn wait_until_all_run(client: &mut ControlClient) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let views = list(client)?;
        let ended = views.iter().find(|it| it.container.state == ContainerState::Completed);
        if let Some(ended) = ended {
            bail!("a container has ended: {:?}", ended.container.result);
        }
        if views.iter().all(|it| it.container.state == ContainerState::Running) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the containers do not come to run");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Folders and configuration of an agent.
struct Cell {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Cell {
    fn new() -> anyhow::Result<Cell> {
        let own = std::env::current_exe()?;
        let program = own.with_file_name("volvox-agent");
        ensure!(program.is_file(), "{} is missing: use make bench", program.display());
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let text = format!(
            "cell_id = \"bench\"\nstate_dir = {:?}\nrun_dir = {:?}\n\
             [capacity]\nmemory_mb = 100000\ndisk_mb = 100000\ncontainers = 600\n\
             [network]\nbridge = \"bench1\"\nsubnet = \"10.201.0.0/16\"\nhost_address = \"127.0.0.1\"\n",
            at("state"),
            at("run"),
        );
        std::fs::write(at("agent.toml"), text)?;
        Ok(Cell { folder, program })
    }

    fn name(&self, nth: usize) -> String {
        let unique = self.folder.path().file_name().unwrap_or_default().to_string_lossy();
        format!("bench-{}-{nth}", unique.trim_start_matches('.'))
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--config").arg(self.folder.path().join("agent.toml")).arg(word);
        command.env("VOLVOX_LOG", "error").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn start(&self) -> anyhow::Result<Agent> {
        Ok(Agent(self.command("run").spawn().context("start the agent")?))
    }

    fn clean(&self) -> anyhow::Result<()> {
        ensure!(self.command("clean").status()?.success(), "the cell was not cleaned");
        Ok(())
    }

    fn shims(&self) -> Shims {
        Shims::new(&self.folder.path().join("state/containers"), Path::new("volvox-shim"))
    }

    /// Each container's first process and when that was started.
    fn first_processes(&self) -> anyhow::Result<Vec<(String, i32, String)>> {
        let shims = self.shims();
        let mut all = Vec::new();
        for id in shims.list()? {
            let init = shims.attach(&id)?.status()?.init;
            let stat = std::fs::read_to_string(format!("/proc/{init}/stat"))?;
            let after_name = stat.rsplit(')').next().unwrap_or_default();
            let begun = after_name.split_whitespace().nth(19).unwrap_or_default().to_owned();
            all.push((id, init, begun));
        }
        Ok(all)
    }
}

impl Drop for Cell {
    /// After a failure: whatever there is.
    fn drop(&mut self) {
        let shims = self.shims();
        for id in shims.list().unwrap_or_default() {
            if let Ok(shim) = shims.attach(&id) {
                let _ = shim.destroy();
            }
            let _ = shims.clear(&id);
        }
        shims.close();
    }
}

/// An agent; dropping it kills it, with SIGKILL.
struct Agent(Child);

impl Agent {
    fn client(&mut self, cell: &Cell) -> anyhow::Result<ControlClient> {
        let socket = cell.folder.path().join("run/agent.sock");
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait()? {
                bail!("the agent has ended: {status}");
            }
            if let Ok(client) = ControlClient::connect(&socket) {
                return Ok(client);
            }
            ensure!(Instant::now() < deadline, "the agent does not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
