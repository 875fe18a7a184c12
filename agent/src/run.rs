//! The agent at work: builds the machine and the executor, and serves until the process ends. It may
//! be killed at any time; the containers go on, and the next one finds them.

use std::os::unix::fs::DirBuilderExt as _;

use anyhow::Context as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::info;

use crate::config::Config;
use crate::control;
use crate::executor::driver::Executor;
use crate::executor::store::Records;
use crate::runtime::machine::Machine;

/// Runs the agent. Returns only if it cannot start.
pub fn run(config: &Config) -> anyhow::Result<()> {
    let executor = open(config)?;
    let cell_id = &config.settings.cell_id;
    info!(%cell_id, socket = %config.socket().display(), "agent ready");
    control::serve(&config.socket(), &executor)
}

fn open(config: &Config) -> anyhow::Result<Executor> {
    anyhow::ensure!(nix::unistd::geteuid().is_root(), "containers need root: run it as root");
    raise_open_files(config.settings.capacity.containers)?;
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o711);
    for folder in [&config.machine.state, &config.run_dir] {
        builder.create(folder).with_context(|| format!("make {}", folder.display()))?;
    }
    let records = Records::open(&config.records()).context("open the executor's records")?;
    let machine = Machine::open(config.machine.clone())?;
    Executor::open(config.settings.clone(), records, machine).context("open the executor")
}

/// Each container takes two descriptors: the conversation with its shim, and its root.
fn raise_open_files(containers: u32) -> anyhow::Result<()> {
    const OTHERS: u64 = 512;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("read the limit of open files")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raise the limit of open files")?;
    let needed = u64::from(containers) * 2 + OTHERS;
    anyhow::ensure!(
        hard >= needed,
        "{containers} containers need {needed} open files and this process may have {hard}: raise \
         the limit (LimitNOFILE= in a systemd unit), or lower capacity.containers"
    );
    Ok(())
}

/// Removes every container of a cell, its network and its mounts. The agent must not be running.
/// Layers and downloads stay.
pub fn clean(config: &Config) -> anyhow::Result<usize> {
    let executor = open(config)?;
    let containers = executor.containers()?;
    for container in &containers {
        let guid = container.container.guid.clone();
        executor.delete(guid.clone()).with_context(|| format!("delete {guid}"))?;
    }
    drop(executor);
    Machine::remove(config.machine.clone())?;
    match std::fs::remove_dir_all(&config.run_dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", config.run_dir.display()));
        }
        Ok(()) | Err(_) => {}
    }
    Ok(containers.len())
}
