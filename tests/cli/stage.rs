//! A coordinator, cells that joined it as machines do, and the program.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use volvox_coordinator::config::CoordinatorConfig;
use volvox_coordinator::run::{self, Coordinator};
use volvox_tests::fleet::{CellPlan, FakeCell};
use volvox_tests::wait::until;

/// A coordinator at work, until this is dropped.
pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    lines: String,
    /// Where its cells find it, also after a restart.
    mesh: SocketAddr,
    coordinator: Option<Coordinator>,
    /// A new one for each life of the coordinator: nothing of the last one is left then.
    runtime: Option<Runtime>,
    cells: Vec<FakeCell>,
}

/// What the program said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// The document that it printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The lines of JSON that it printed.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        let line = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {self:?}"));
        self.out.lines().map(line).collect()
    }
}

impl Stage {
    /// A coordinator without cells.
    pub(crate) fn new() -> Stage {
        Stage::with("")
    }

    /// A coordinator with these lines in its configuration.
    pub(crate) fn with(lines: &str) -> Stage {
        Stage::at(tempfile::tempdir().unwrap(), lines)
    }

    pub(crate) fn at(folder: tempfile::TempDir, lines: &str) -> Stage {
        Stage::listening(folder, lines, ([127, 0, 0, 1], 0).into())
    }

    /// One whose mesh is at this address.
    pub(crate) fn listening(folder: tempfile::TempDir, lines: &str, mesh: SocketAddr) -> Stage {
        let lines = lines.to_owned();
        let cells = Vec::new();
        let mut stage = Stage { folder, lines, mesh, coordinator: None, runtime: None, cells };
        stage.start();
        stage
    }

    /// A coordinator with cells of these names, all heard.
    pub(crate) fn of_cells(names: &[&str]) -> Stage {
        let mut stage = Stage::new();
        for name in names {
            stage.join(CellPlan::named(name));
        }
        stage
    }

    pub(crate) fn start(&mut self) {
        let text = format!(
            "name = \"test\"\napi.listen = [\"127.0.0.1:0\"]\nmesh.listen = \"{}\"\n\
             shutdown.grace_s = 2\ncells.settle_s = 1\n{}",
            self.mesh, self.lines
        );
        let config = CoordinatorConfig::parse(&text, Some(&self.data())).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let coordinator = runtime.block_on(run::start(config, None)).unwrap();
        self.mesh = coordinator.cells().mesh().listens_at();
        self.coordinator = Some(coordinator);
        self.runtime = Some(runtime);
    }

    pub(crate) fn stop(&mut self) {
        if let Some((runtime, coordinator)) = self.runtime.take().zip(self.coordinator.take()) {
            runtime.block_on(coordinator.stop());
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }

    /// A machine joins, and is heard.
    pub(crate) fn join(&mut self, plan: CellPlan) {
        let line = self.done(&["join-token", "create"]).out;
        self.join_with(&line, plan);
    }

    /// A machine joins with this line, and is heard.
    pub(crate) fn join_with(&mut self, line: &str, plan: CellPlan) {
        let folder = self.folder.path().join(format!("cell-{}", plan.name));
        let name = plan.name.clone();
        self.cells.push(FakeCell::join(line, &folder, plan).unwrap());
        until(
            || {
                let cells = self.done(&["cells", "--json"]).json();
                let mut cells = cells["cells"].as_array().into_iter().flatten();
                cells.any(|cell| cell["cell_id"] == name.as_str() && cell["healthy"] == true)
            },
            || format!("{name} is not heard"),
        );
    }

    pub(crate) fn cell(&self, name: &str) -> &FakeCell {
        self.cells.iter().find(|cell| cell.id().as_str() == name).unwrap()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Where the API listens.
    pub(crate) fn address(&self) -> String {
        self.coordinator.as_ref().unwrap().addresses()[0].to_string()
    }

    /// The program with these words, at the coordinator's socket.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = program();
        command.arg("--api").arg(format!("unix:{}", self.data().join("api.sock").display()));
        command.args(words);
        command
    }

    /// The program with these words, ended.
    pub(crate) fn volvox(&self, words: &[&str]) -> Said {
        said(self.command(words))
    }

    /// The program with these words, which must succeed.
    #[track_caller]
    pub(crate) fn done(&self, words: &[&str]) -> Said {
        let said = self.volvox(words);
        assert_eq!(said.code, 0, "{words:?}: {said:?}");
        said
    }

    /// The program with these words, which goes on until it is killed.
    pub(crate) fn begin(&self, words: &[&str]) -> Begun {
        let mut command = self.command(words);
        Begun(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// An app file with this text.
    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// An app of so many instances and so much memory, in a file.
    pub(crate) fn app(&self, instances: u32, memory: u32, more: &str) -> String {
        let text = format!(
            "name = \"web\"\ninstances = {instances}\nrootfs = \"preloaded:test\"\n\
             command = [\"/app\"]\nmemory = {memory}\n{more}"
        );
        self.file("web.toml", &text)
    }

    /// The instances of an app that there are: index, state, definition, cell, guid.
    pub(crate) fn instances(&self, app: &str) -> Vec<Value> {
        let found = self.done(&["ps", app, "--json"]).json();
        found["instances"].as_array().cloned().unwrap_or_default()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program that goes on, killed when dropped.
pub(crate) struct Begun(pub(crate) Child);

impl Drop for Begun {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program, with nothing of this machine in its environment.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_volvox-under-test"));
    command.env_clear().env("HOME", "/nonexistent").stdin(Stdio::null());
    command
}

pub(crate) fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The coordinator as a program, if it was built beside this test.
pub(crate) fn coordinator_program() -> Option<PathBuf> {
    let ours = Path::new(env!("CARGO_BIN_EXE_volvox-under-test"));
    Some(ours.with_file_name("volvox-coordinator")).filter(|path| path.exists())
}
