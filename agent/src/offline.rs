//! What is done with the containers of a cell whose agent does not run: they are taken away, or asked to
//! end because the machine goes down. Called by commands, which packages and the unit call in turn.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use crate::config::AgentConfig;
use crate::run::open;
use crate::runtime::machine::Machine;
use crate::runtime::shim::{Shim, Shims};

/// Between two looks at containers that were asked to end.
const LOOK: Duration = Duration::from_millis(100);

/// Removes every container of a cell, its network and its mounts, and says how many there were. One that
/// cannot be removed does not keep the others; what is known of it stays, so that this can be done again.
/// Layers and downloads stay.
pub(crate) fn clean(config: &AgentConfig) -> anyhow::Result<usize> {
    if is_bare(config) {
        return Ok(0);
    }
    let executor = open(config)?;
    let containers = executor.containers()?;
    let mut failed: Vec<String> = Vec::new();
    for container in &containers {
        let guid = container.container.guid.clone();
        if let Err(error) = executor.delete(guid.clone()) {
            failed.push(format!("delete {guid}: {error}"));
        }
    }
    drop(executor);
    if let Err(error) = Machine::remove(config.machine.clone()) {
        failed.push(format!("{:#}", anyhow::Error::from(error)));
    }
    if failed.is_empty() {
        match std::fs::remove_dir_all(&config.run_dir) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                failed.push(format!("remove {}: {error}", config.run_dir.display()));
            }
            Ok(()) | Err(_) => {}
        }
    }
    if failed.is_empty() {
        return Ok(containers.len());
    }
    bail!("not everything could be removed; the rest is gone. {}", failed.join("; "))
}

/// Whether there is nothing to remove: no agent ran here, or what it left is gone already. Then nothing
/// need be set up either, which may not even be possible where no agent could run.
fn is_bare(config: &AgentConfig) -> bool {
    let is_empty = |folder: &Path| {
        std::fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
    };
    let state = &config.machine.state;
    let bridge = Path::new("/sys/class/net").join(&config.machine.network.bridge);
    !config.records().exists()
        && is_empty(&state.join("containers"))
        && is_empty(&state.join("layers/mounts"))
        && !bridge.exists()
}

/// What became of the processes in containers that were asked to end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    /// How many were asked.
    pub(crate) asked: usize,
    /// How many still ran when their time was up.
    pub(crate) left: usize,
}

/// Asks all that runs in containers to end, as a stop would, and waits for as long as a stop would. No
/// record is changed: what the cell was assigned is started again at the next boot.
pub(crate) fn end_processes(config: &AgentConfig) -> anyhow::Result<Asked> {
    let shims = Shims::new(&config.machine.state.join("containers"), &config.machine.shim);
    let deadline = Instant::now() + config.settings.steps.graceful_shutdown_interval;
    let mut asked = 0;
    let mut held: Vec<Shim> = Vec::new();
    for id in shims.list().context("list the containers")? {
        // A container without a shim has no processes.
        let Ok(mut shim) = shims.attach(&id) else { continue };
        for process in running(&mut shim) {
            asked += usize::from(shim.signal(process, libc::SIGTERM).is_ok());
        }
        held.push(shim);
    }
    loop {
        let left = held.iter_mut().map(|it| running(it).len()).sum();
        if left == 0 || Instant::now() >= deadline {
            return Ok(Asked { asked, left });
        }
        std::thread::sleep(LOOK);
    }
}

fn running(shim: &mut Shim) -> Vec<u32> {
    shim.status().map(|it| it.running).unwrap_or_default()
}

/// Whether systemd is taking the machine down.
pub(crate) fn is_going_down() -> bool {
    let said = Command::new("systemctl").arg("is-system-running").output();
    said.is_ok_and(|it| it.stdout.trim_ascii() == b"stopping")
}
