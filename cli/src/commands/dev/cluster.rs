//! A coordinator and cells on this machine: brought up, and taken away again without a trace.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use volvox_protocol::api::{JoinTokenRequest, JoinTokenResponse, MemberRole};

use super::child::{Child, last_lines};
use super::layout::{self, CellLayout, Layout, Places};
use super::processes::{Processes, Stop};
use super::slot::{self, ClusterDir, DevSlot};
use super::{Programs, remove};
use crate::client::Client;
use crate::client::dev::{DevInstance, SOCKET, TOKEN};
use crate::client::endpoint::{EndpointUrl, ResolvedEndpoint};
use crate::commands::cells;
use crate::error::Failure;

/// What each part has to become ready, on a busy machine.
const READY: Duration = Duration::from_secs(60);
/// How long a join token may be used: it is used at once.
const TOKEN_LIFETIME_S: u32 = 600;

pub(super) struct Cluster {
    pub(super) folder: ClusterDir,
    pub(super) slot: DevSlot,
    pub(super) layout: Layout,
    pub(super) api: SocketAddr,
    programs: Programs,
    mesh: SocketAddr,
    client: Client,
}

impl Cluster {
    pub(super) fn new(
        folder: ClusterDir,
        slot: DevSlot,
        layout: Layout,
        programs: Programs,
    ) -> Result<Self, Failure> {
        let address = layout.coordinator();
        let api = free_tcp(address, 8_889)?;
        let mesh = free_udp(address, 8_890)?;
        let client = Client::new(&ResolvedEndpoint {
            way: EndpointUrl::Unix(slot.path.join(SOCKET)),
            token: None,
            ca: None,
            certificate: None,
            guessed: false,
        })?;
        Ok(Cluster { folder, slot, layout, api, programs, mesh, client })
    }

    /// How other commands are told of it.
    pub(super) fn way(&self) -> String {
        self.client.place()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path.join("coordinator")
    }

    pub(super) fn log(&self, name: &str) -> PathBuf {
        self.folder.path.join(format!("{name}.log"))
    }

    /// Says of itself what others need to find it, and to clean up after it.
    pub(super) fn tell(&self) -> Result<(), Failure> {
        let entry = DevInstance {
            pid: std::process::id(),
            folder: self.folder.path.clone(),
            temporary: self.folder.temporary,
            cells: self.layout.cells,
            base: self.layout.base,
            api: self.api,
        };
        slot::tell(&self.slot, &entry)
    }

    /// Writes all configurations, before anything else: those of an earlier life of this folder may
    /// name what is another's now.
    pub(super) fn configure(&self, room: CellLayout) -> Result<(), Failure> {
        let socket = self.slot.path.join(SOCKET);
        let text = layout::coordinator(&self.data(), &socket, self.api, self.mesh);
        self.write("coordinator", &text)?;
        for cell in 1..=self.layout.cells {
            let name = layout::name(cell);
            let state = self.folder.path.join(&name);
            let run = self.slot.path.join(&name);
            let places = Places { state: &state, run: &run, shim: &self.programs.shim };
            let mesh = free_udp(self.layout.cell(cell), 8_891)?;
            let text = layout::agent(&self.layout, cell, places, room, mesh, self.mesh);
            self.write(&name, &text)?;
        }
        Ok(())
    }

    /// Starts the coordinator, and waits until it answers.
    pub(super) fn start_coordinator(&self, crew: &mut Processes) -> Result<(), Stop> {
        let config = self.config("coordinator");
        let words = ["run", "--config"].map(OsStr::new);
        let words = [words[0], words[1], config.as_os_str()];
        let log = self.log("coordinator");
        let program = &self.programs.coordinator;
        crew.add(Child::start("the coordinator", program, &words, Some(&log))?);
        let ready = || cells::states(&self.client).is_ok();
        crew.until(READY, ready, || late("the coordinator", &log))?;
        self.lend_token()?;
        Ok(())
    }

    /// The token that whoever called `sudo` was lent; none: nobody did.
    pub(super) fn lent_token(&self) -> Option<PathBuf> {
        Some(self.slot.path.join(TOKEN)).filter(|path| path.exists())
    }

    /// Whoever called `sudo` may use what they started, without being root.
    fn lend_token(&self) -> Result<(), Failure> {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        let path = self.slot.path.join(TOKEN);
        // One that was killed may have left the token of another cluster.
        let _left = std::fs::remove_file(&path);
        let Some(user) = number("SUDO_UID") else { return Ok(()) };
        let failed = |error: std::io::Error| Failure::failed(format!("lend the token: {error}"));
        let token = std::fs::read(self.data().join("admin.token")).map_err(failed)?;
        super::write_private(&path, &token).map_err(failed)?;
        std::os::unix::fs::chown(&path, Some(user), number("SUDO_GID")).map_err(failed)
    }

    /// Starts a cell: it joins, unless it has in an earlier life of this folder.
    pub(super) fn start_cell(&self, crew: &mut Processes, cell: u8) -> Result<(), Stop> {
        let name = layout::name(cell);
        let config = self.config(&name);
        if !self.folder.path.join(&name).join("mesh/member.pem").exists() {
            self.join(crew, &name, &config)?;
        }
        let agent = self.agent(&format!("the agent of {name}"), &config, "run", &[])?;
        crew.add(agent);
        Ok(())
    }

    fn join(&self, crew: &mut Processes, name: &str, config: &Path) -> Result<(), Stop> {
        let request = JoinTokenRequest {
            role: MemberRole::Cell,
            cell_id: name.to_owned(),
            // One that was killed on its way may have been let in without knowing it.
            replace: true,
            uses: 1,
            lifetime_s: TOKEN_LIFETIME_S,
            label: "volvox dev".to_owned(),
            addresses: vec![self.mesh.to_string()],
        };
        let made: JoinTokenResponse = self.client.call("/v1/join_tokens/create", &request)?;
        let what = format!("the joining of {name}");
        let mut joining = self.agent(&what, config, "join", &[OsStr::new(&made.join_token)])?;
        let status = crew.until_ended(&mut joining)?;
        if status.success() { Ok(()) } else { Err(joining.died(status).into()) }
    }

    fn agent(
        &self,
        name: &str,
        config: &Path,
        word: &str,
        more: &[&OsStr],
    ) -> Result<Child, Failure> {
        let mut words = vec![OsStr::new("--config"), config.as_os_str(), OsStr::new(word)];
        words.extend(more);
        Child::start(name, &self.programs.agent, &words, Some(&config.with_extension("log")))
    }

    /// Waits until the coordinator hears a cell.
    pub(super) fn until_ready(&self, crew: &mut Processes, cell: u8) -> Result<(), Stop> {
        let name = layout::name(cell);
        let is_heard = || {
            let states = cells::states(&self.client);
            let heard = states
                .map(|all| all.cells.iter().any(|it| it.cell_id.as_str() == name && it.healthy));
            heard.unwrap_or(false)
        };
        crew.until(READY, is_heard, || late(&name, &self.log(&name)))
    }

    fn config(&self, name: &str) -> PathBuf {
        self.folder.path.join(format!("{name}.toml"))
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let path = self.config(name);
        let written = std::fs::write(&path, text);
        written.map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
    }

    /// Ends everything and removes what is not to stay. What could not be removed is told, and stays
    /// for `volvox dev --clean`.
    pub(super) fn end(self, crew: &mut Processes) -> Result<(), Failure> {
        crew.end(|name| name.starts_with("the agent"));
        let removed =
            remove::containers(crew, &self.programs, &self.folder.path, self.layout.cells);
        crew.end(|_| true);
        removed?;
        if self.folder.temporary {
            remove::folder(&self.folder.path)?;
        }
        self.slot.remove();
        Ok(())
    }
}

fn late(what: &str, log: &Path) -> Failure {
    let seconds = READY.as_secs();
    let mut message = format!("{what} is not ready after {seconds} s");
    for line in last_lines(log) {
        message += &format!("\n{line}");
    }
    Failure::waited(message)
}

/// This port of an address if it is free, else any.
fn free_tcp(address: Ipv4Addr, port: u16) -> Result<SocketAddr, Failure> {
    let bound = TcpListener::bind((address, port)).or_else(|_| TcpListener::bind((address, 0)));
    bound.and_then(|it| it.local_addr()).map_err(|error| no_port(address, &error))
}

fn free_udp(address: Ipv4Addr, port: u16) -> Result<SocketAddr, Failure> {
    let bound = UdpSocket::bind((address, port)).or_else(|_| UdpSocket::bind((address, 0)));
    bound.and_then(|it| it.local_addr()).map_err(|error| no_port(address, &error))
}

fn no_port(address: Ipv4Addr, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{address}: no port is free: {error}"))
}
