//! A whole site on one machine: the real programs in network namespaces with wires between them. A
//! coordinator, cells with real containers, and a host outside that only has a wire.
//!
//! For the end-to-end tests and for the benchmark of the closed loop. Needs root. When a site is
//! dropped everything goes: processes, containers, networks, folders.

mod check;
mod http;
mod network;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

pub use self::http::Answer;
use self::network::{Host, Switch};

/// How long anything may take, on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// The folder with our programs: beside this one's.
pub fn programs() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("find this program")?;
    let folder = own.ancestors().skip(1).find(|it| it.join("volvox-agent").is_file());
    let folder = folder.with_context(|| {
        format!("no volvox-agent near {}: cargo build --workspace --bins", own.display())
    })?;
    Ok(folder.to_owned())
}

/// How a coordinator is set up, beyond the usual: lines of TOML by section.
pub type Settings = BTreeMap<&'static str, String>;

/// A whole site.
pub struct Site {
    switch: Switch,
    folder: tempfile::TempDir,
    programs: PathBuf,
    /// A host that is no member: for consumers and clients.
    pub outside: Host,
    coordinator_host: Host,
    coordinator: Option<Child>,
    cells: BTreeMap<String, Cell>,
}

/// A cell of the site.
pub struct Cell {
    name: String,
    host: Host,
    config: PathBuf,
    folder: PathBuf,
    agent: Option<Child>,
}

impl Site {
    /// A site with a coordinator, which has these settings.
    pub fn new(settings: &Settings) -> anyhow::Result<Site> {
        Site::of(programs()?, settings)
    }

    /// ... with the programs of this folder.
    pub fn of(programs: PathBuf, settings: &Settings) -> anyhow::Result<Site> {
        let folder = tempfile::Builder::new().prefix("volvox-site-").tempdir()?;
        open_to_all(folder.path())?;
        let mut switch = Switch::new()?;
        let outside = switch.host()?;
        let coordinator_host = switch.host()?;
        let mut text = format!("data_dir = {:?}\n", folder.path().join("coordinator"));
        text += "name = \"coordinator\"\n";
        let mut sections: BTreeMap<&str, String> = settings.clone();
        let address = coordinator_host.address;
        sections.entry("api").or_default().push_str("\nlisten = [\"127.0.0.1:8889\"]\n");
        let mesh = sections.entry("mesh").or_default();
        mesh.push_str(&format!("\nlisten = \"{address}:8890\"\n"));
        let cells = sections.entry("cells").or_default();
        if !cells.contains("settle_s") {
            cells.push_str("\nsettle_s = 2\n");
        }
        let convergence = sections.entry("convergence").or_default();
        if !convergence.contains("stale_after_s") {
            // What was lost on its way to a cell is looked for again soon.
            convergence.push_str("\nstale_after_s = 2\n");
        }
        for (name, lines) in sections {
            text += &format!("[{name}]\n{lines}\n");
        }
        std::fs::write(folder.path().join("coordinator.toml"), text)?;
        let mut site = Site {
            switch,
            folder,
            programs,
            outside,
            coordinator_host,
            coordinator: None,
            cells: BTreeMap::new(),
        };
        site.start_coordinator()?;
        Ok(site)
    }

    /// What is started from now on is started from this folder.
    pub fn use_programs(&mut self, folder: PathBuf) {
        self.programs = folder;
    }

    /// The log file of the coordinator or a cell.
    pub fn log(&self, member: &str) -> PathBuf {
        self.folder.path().join(format!("{member}.log"))
    }

    // The coordinator.

    fn socket(&self) -> PathBuf {
        self.folder.path().join("coordinator/api.sock")
    }

    /// The data folder of the coordinator.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("coordinator")
    }

    /// Starts the coordinator, and waits until it answers.
    pub fn start_coordinator(&mut self) -> anyhow::Result<()> {
        ensure!(self.coordinator.is_none(), "the coordinator runs already");
        let log = append(&self.log("coordinator"))?;
        let mut command = Command::new(self.programs.join("volvox-coordinator"));
        command.arg("run").arg("--config").arg(self.folder.path().join("coordinator.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env("VOLVOX_LOG", "info");
        self.coordinator = Some(self.coordinator_host.spawn(&mut command)?);
        self.wait("the coordinator is ready", |site| {
            let ready = http::get(&site.socket(), "/readyz").is_ok_and(|it| it.status == 200);
            ready.then_some(())
        })
    }

    /// kill -9.
    pub fn kill_coordinator(&mut self) -> anyhow::Result<()> {
        let mut child = self.coordinator.take().context("the coordinator does not run")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// A call of the API that must succeed.
    pub fn call(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let answer = self.try_call(path, body)?;
        ensure!(answer.status == 200, "{path} answered {} {}", answer.status, answer.text);
        Ok(serde_json::from_str(&answer.text)?)
    }

    /// A call of the API.
    pub fn try_call(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        http::post(&self.socket(), path, &body.to_string())
    }

    /// What the program `volvox` says, on the coordinator's machine.
    pub fn volvox(&self, arguments: &[&str]) -> anyhow::Result<Output> {
        self.volvox_typed(arguments, Stdio::null())
    }

    /// The same, with this to read.
    pub fn volvox_typed(&self, arguments: &[&str], typed: Stdio) -> anyhow::Result<Output> {
        let mut command = Command::new(self.programs.join("volvox"));
        command.arg("--api").arg(format!("unix:{}", self.socket().display())).args(arguments);
        command.stdin(typed).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(self.coordinator_host.spawn(&mut command)?.wait_with_output()?)
    }

    /// Somebody who calls from another thread.
    pub fn caller(&self) -> Caller {
        Caller(self.socket())
    }

    /// A port of the coordinator's host, where it finds consumers to call back.
    pub fn listen_beside_the_coordinator(&self) -> anyhow::Result<std::net::TcpListener> {
        self.coordinator_host.listen()
    }

    /// Desires an LRP.
    pub fn desire(&self, lrp: &Value) -> anyhow::Result<()> {
        self.call("/v1/desired_lrp/desire.r2", &json!({"desired_lrp": lrp})).map(drop)
    }

    /// Sets how many instances there are to be.
    pub fn scale(&self, process: &str, instances: u32) -> anyhow::Result<()> {
        let body = json!({"process_guid": process, "update": {"instances": instances}});
        self.call("/v1/desired_lrp/update", &body).map(drop)
    }

    /// Makes a domain fresh, for so many seconds; 0: for ever.
    pub fn freshen(&self, domain: &str, ttl: u32) -> anyhow::Result<()> {
        self.call("/v1/domains/upsert", &json!({"domain": domain, "ttl": ttl})).map(drop)
    }

    /// All records of a process.
    pub fn lrps(&self, process: &str) -> anyhow::Result<Vec<Value>> {
        let found = self.call("/v1/actual_lrps/list", &json!({"process_guid": process}))?;
        Ok(found["actual_lrps"].as_array().cloned().unwrap_or_default())
    }

    /// A task; none if there is no such.
    pub fn task(&self, guid: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.try_call("/v1/tasks/get_by_task_guid.r2", &json!({"task_guid": guid}))?;
        if answer.status == 404 {
            return Ok(None);
        }
        let found: Value = serde_json::from_str(&answer.text)?;
        Ok(Some(found["task"].clone()))
    }

    /// Waits until so many instances run and no other record is there.
    pub fn until_running(&self, process: &str, count: usize) -> anyhow::Result<Vec<Value>> {
        self.wait(&format!("{count} instances of {process} run, and no others are there"), |site| {
            let all = site.lrps(process).ok()?;
            let settled = all.len() == count && all.iter().all(is_running);
            settled.then_some(all)
        })
    }

    /// Waits until something is so.
    pub fn wait<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&Site) -> Option<T>,
    ) -> anyhow::Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            if Instant::now() > end {
                anyhow::bail!("{what}: not within {PATIENCE:?}\n{}", self.story());
            }
            crate::wait::pause(Duration::from_millis(10));
        }
    }

    /// What there is, and the ends of all logs: for a test that failed.
    pub fn story(&self) -> String {
        let mut story = String::new();
        if let Ok(all) = self.call("/v1/actual_lrps/list", &json!({})) {
            for lrp in all["actual_lrps"].as_array().into_iter().flatten() {
                story += &format!("{}\n", line_of(lrp));
            }
        }
        for entry in std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|it| it == "log") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                story += &format!("--- {}\n", path.display());
                story += &lines[lines.len().saturating_sub(40)..].join("\n");
                story.push('\n');
            }
        }
        story
    }

    // Cells.

    /// Adds a cell and waits until the coordinator knows it. `more` is TOML for its configuration.
    pub fn add_cell(&mut self, name: &str, zone: &str, more: &str) -> anyhow::Result<()> {
        let host = self.switch.host()?;
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder)?;
        open_to_all(&folder)?;
        let address = host.address;
        let mut text = format!(
            "cell_id = {name:?}\nzone = {zone:?}\nstate_dir = {:?}\nrun_dir = {:?}\n",
            folder.join("state"),
            folder.join("run"),
        );
        if !more.contains("[capacity]") {
            text += "[capacity]\nmemory_mb = 4096\ndisk_mb = 8192\ncontainers = 100\n";
        }
        text += &format!("[network]\nbridge = \"volvox0\"\nhost_address = \"{address}\"\n");
        text += &format!("[mesh]\nlisten = \"{address}:8891\"\n");
        if !more.contains("[self_test]") {
            text += "[self_test]\nenabled = false\n";
        }
        if !more.contains("[containers]") {
            text += "[containers]\ngraceful_shutdown_s = 1\n";
        }
        text += more;
        let config = self.folder.path().join(format!("{name}.toml"));
        std::fs::write(&config, text)?;
        let cell = Cell { name: name.to_owned(), host, config, folder, agent: None };
        let created = Command::new(self.programs.join("volvox-coordinator"))
            .args(["join-token", "create", "--data-dir"])
            .arg(self.data())
            .output()?;
        let line = String::from_utf8(created.stdout)?;
        let joined = cell.agent(&self.programs, &["join", line.trim()])?;
        ensure!(joined.status.success(), "join: {}", String::from_utf8_lossy(&joined.stderr));
        self.cells.insert(name.to_owned(), cell);
        self.start_agent(name)?;
        self.until_cell(name, true)
    }

    /// Waits until the coordinator has a cell in its list, or has not.
    pub fn until_cell(&self, name: &str, there: bool) -> anyhow::Result<()> {
        self.wait(&format!("cell {name} is there: {there}"), |site| {
            let cells = site.call("/v1/cells/list.r1", &json!({})).ok()?;
            let found = cells["cells"].as_array()?.iter().any(|it| it["cell_id"] == name);
            (found == there).then_some(())
        })
    }

    /// A cell.
    pub fn cell(&self, name: &str) -> anyhow::Result<&Cell> {
        self.cells.get(name).with_context(|| format!("there is no cell {name}"))
    }

    /// The cells' names.
    pub fn cell_names(&self) -> Vec<String> {
        self.cells.keys().cloned().collect()
    }

    /// Starts the agent of a cell, and waits until it answers on its socket.
    pub fn start_agent(&mut self, name: &str) -> anyhow::Result<()> {
        let log = append(&self.log(name))?;
        let programs = self.programs.clone();
        let cell = self.cells.get_mut(name).with_context(|| format!("there is no cell {name}"))?;
        ensure!(cell.agent.is_none(), "the agent of {name} runs already");
        let mut command = Command::new(programs.join("volvox-agent"));
        command.arg("--config").arg(&cell.config).arg("run");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        command.env("VOLVOX_LOG", "info");
        cell.agent = Some(cell.host.spawn(&mut command)?);
        self.wait(&format!("the agent of {name} answers"), |site| {
            let cell = site.cells.get(name)?;
            let status = cell.agent(&site.programs, &["status", "--json"]).ok()?;
            status.status.success().then_some(())
        })
    }

    /// kill -9 of the agent alone: its containers go on.
    pub fn kill_agent(&mut self, name: &str) -> anyhow::Result<()> {
        let cell = self.cells.get_mut(name).with_context(|| format!("there is no cell {name}"))?;
        let mut child = cell.agent.take().with_context(|| format!("no agent of {name} runs"))?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Sends the agent a signal.
    pub fn signal_agent(&self, name: &str, signal: nix::sys::signal::Signal) -> anyhow::Result<()> {
        let child = self.cell(name)?.agent.as_ref().context("the agent does not run")?;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id())?);
        Ok(nix::sys::signal::kill(pid, signal)?)
    }

    /// Waits until the agent has ended by itself, and gives its exit code.
    pub fn until_agent_ended(&mut self, name: &str) -> anyhow::Result<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            let cell = self.cells.get_mut(name).context("there is no such cell")?;
            let child = cell.agent.as_mut().context("the agent does not run")?;
            if let Some(status) = child.try_wait()? {
                cell.agent = None;
                return Ok(status.code().unwrap_or(-1));
            }
            ensure!(Instant::now() < end, "the agent of {name} goes on\n{}", self.story());
            crate::wait::pause(Duration::from_millis(10));
        }
    }

    /// Power off: agent, shims and all that runs in containers, at once; and what is on a tmpfs.
    pub fn power_off(&mut self, name: &str) -> anyhow::Result<()> {
        let agent = self.kill_agent(name);
        let cell = self.cell(name)?;
        cell.kill_shims()?;
        std::fs::remove_dir_all(cell.folder.join("run"))?;
        agent
    }

    /// Cuts the wires between two members, or mends them. `coordinator` is a name too.
    pub fn cut(&mut self, one: &str, others: &[&str]) -> anyhow::Result<()> {
        let addresses: Vec<Ipv4Addr> =
            others.iter().map(|it| Ok(self.host_of(it)?.address)).collect::<anyhow::Result<_>>()?;
        let own = self.host_of(one)?;
        own.deafen(&addresses);
        let address = own.address;
        for name in self.cell_names().iter().map(String::as_str).chain(["coordinator"]) {
            let is_cut = others.contains(&name);
            if name != one {
                self.host_of(name)?.deafen(if is_cut {
                    std::slice::from_ref(&address)
                } else {
                    &[]
                });
            }
        }
        Ok(())
    }

    fn host_of(&self, name: &str) -> anyhow::Result<&Host> {
        if name == "coordinator" { Ok(&self.coordinator_host) } else { Ok(&self.cell(name)?.host) }
    }

    /// What `volvox-agent` says on a cell.
    pub fn agent(&self, name: &str, arguments: &[&str]) -> anyhow::Result<Output> {
        self.cell(name)?.agent(&self.programs, arguments)
    }

    /// The containers of a cell, as its agent tells.
    pub fn containers(&self, name: &str) -> anyhow::Result<Vec<Value>> {
        let output = self.agent(name, &["containers", "--json"])?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let all: Value = serde_json::from_slice(&output.stdout)?;
        Ok(all.as_array().cloned().unwrap_or_default())
    }
}

/// Calls the API, whether or not there is a coordinator.
pub struct Caller(PathBuf);

impl Caller {
    /// A call of the API.
    pub fn call(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        http::post(&self.0, path, &body.to_string())
    }
}

impl Cell {
    /// Where the cell is.
    pub fn address(&self) -> Ipv4Addr {
        self.host.address
    }

    /// Its process, if its agent runs.
    pub fn pid(&self) -> Option<u32> {
        self.agent.as_ref().map(Child::id)
    }

    /// Its folder of state.
    pub fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    fn agent(&self, programs: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
        let mut command = Command::new(programs.join("volvox-agent"));
        command.arg("--config").arg(&self.config).args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(self.host.spawn(&mut command)?.wait_with_output()?)
    }

    /// The processes that hold its containers.
    fn shims(&self) -> Vec<nix::unistd::Pid> {
        let place = self.folder.display().to_string();
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|it| it.parse().ok()) else { continue };
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            if line.contains("volvox-shim") && line.contains(&place) {
                found.push(nix::unistd::Pid::from_raw(pid));
            }
        }
        found
    }

    fn kill_shims(&self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let shims = self.shims();
            if shims.is_empty() {
                return Ok(());
            }
            for pid in shims {
                let _gone = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
            }
            ensure!(Instant::now() < end, "shims of {} do not die", self.name);
            crate::wait::pause(Duration::from_millis(5));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let names = self.cell_names();
        for name in &names {
            let _not_running = self.kill_agent(name);
        }
        let _not_running = self.kill_coordinator();
        for name in &names {
            let cleaned = self.agent(name, &["clean"]);
            if let Ok(output) = cleaned
                && !output.status.success()
            {
                tell(&format!("clean {name}: {}", String::from_utf8_lossy(&output.stderr)));
            }
        }
    }
}

#[expect(clippy::print_stderr, reason = "what a test could not clean must be seen")]
fn tell(what: &str) {
    eprintln!("{what}");
}

/// Whether a record is RUNNING.
pub fn is_running(lrp: &Value) -> bool {
    lrp["state"] == "RUNNING"
}

/// A record in a line.
pub fn line_of(lrp: &Value) -> String {
    let text = |name: &str| lrp[name].as_str().unwrap_or_default().to_owned();
    format!(
        "{} {} {} {} {} {} {}",
        text("process_guid"),
        lrp["index"],
        text("state"),
        text("presence"),
        text("cell_id"),
        text("instance_guid"),
        text("placement_error")
    )
}

/// Containers' users must be able to walk through.
fn open_to_all(folder: &Path) -> anyhow::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o711))?)
}

fn append(path: &Path) -> anyhow::Result<std::fs::File> {
    Ok(std::fs::File::options().create(true).append(true).open(path)?)
}
