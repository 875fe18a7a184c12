//! The program `volvox-agent` on the folders of a cell.

use std::process::{Child, Command, Stdio};

use volvox_agent::control::ControlClient;

use crate::cell::{Cell, until};

/// The program, with the configuration of this cell.
pub(crate) fn command(cell: &Cell) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volvox-agent"));
    command.arg("--config").arg(cell.folder.path().join("agent.toml"));
    command
}

/// The agent as a program, on the folders of a cell.
pub(crate) struct Agent {
    pub(crate) child: Child,
    socket: std::path::PathBuf,
    log: std::path::PathBuf,
}

impl Agent {
    pub(crate) fn start(cell: &Cell) -> Agent {
        let folder = cell.folder.path();
        let config = folder.join("agent.toml");
        let text = format!(
            "cell_id = \"cell\"\nstate_dir = {:?}\nrun_dir = {:?}\n\
             [capacity]\nmemory_mb = 8000\ndisk_mb = 8000\ncontainers = 80\n\
             [network]\nbridge = \"volvoxt0\"\nsubnet = \"10.77.0.0/24\"\nhost_address = \"127.0.0.1\"\n\
             first_port = 61000\nlast_port = 61999\n",
            cell.config.state,
            folder.join("agent-run"),
        );
        std::fs::write(&config, text).unwrap();
        let log = folder.join("agent.log");
        let stderr = std::fs::File::options().create(true).append(true).open(&log).unwrap();
        let child = command(cell).arg("run").stdin(Stdio::null()).stderr(stderr).spawn().unwrap();
        Agent { child, socket: folder.join("agent-run/agent.sock"), log }
    }

    pub(crate) fn client(&mut self) -> ControlClient {
        until("the agent answers", || {
            let ended = self.child.try_wait().unwrap();
            assert!(ended.is_none(), "the agent has ended: {ended:?}");
            ControlClient::connect(&self.socket).ok()
        })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let ended = self.child.wait();
        if std::thread::panicking() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last: Vec<&str> = said.lines().rev().take(40).collect();
            let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
            eprintln!("the agent ended with {ended:?} and said last:\n{last}");
        }
    }
}
