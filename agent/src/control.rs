//! The socket that people (and programs) on the machine use to look at an agent and its containers:
//! lines of JSON, one for a request, one for each answer. Only root can open it.

pub mod metrics;

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use anyhow::Context as _;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tracing::{debug, error};
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::time::Timestamp;

use crate::container::guid::ContainerGuid;
use crate::container::spec::is_container_id;
use crate::executor::container_store::ContainerEvent;
use crate::executor::driver::{CallError, ExecutorHandle};
use crate::executor::logic::{ContainerView, ReservationRequest};
use crate::executor::workload::{Owner, Workload};
use crate::gossip::MemberStatus;
use crate::rep::status::RepStatus;
use crate::run::Membership;

/// Bytes of one request: a definition with all that it may say fits.
const REQUEST_BYTES: u64 = 8 << 20;
/// Conversations at a time.
const CONNECTIONS: usize = 64;
/// How often somebody who hears of events is looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How long a conversation may be silent before a request is whole.
const PATIENCE: Duration = Duration::from_secs(30);

/// What may be asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// Reserve room and run this.
    Start(Box<Start>),
    /// Stop it, gracefully.
    Stop(ContainerGuid),
    /// Delete it; the answer comes when nothing is left.
    Delete(ContainerGuid),
    /// All containers.
    List,
    /// One container.
    Show(ContainerGuid),
    /// The room that is left.
    Remaining,
    /// Every event from now on, a line each.
    Events,
    /// How the cell is doing.
    Status,
    /// The members of the mesh, as seen from here.
    Members,
    /// Hand all work over to other cells; the agent ends when it is empty.
    Evacuate,
    /// What the agent and its containers use now.
    Metrics,
}

/// A container to start.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Start {
    /// For whom.
    pub owner: Owner,
    /// With which definition.
    pub work: Workload,
}

/// What is answered.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlReply {
    /// It was done, or begun.
    Done,
    /// It was not, for this reason.
    Failed(String),
    /// All containers.
    Containers(Vec<ContainerView>),
    /// One container, if it is there.
    Container(Option<Box<ContainerView>>),
    /// The room that is left.
    Remaining(CellCapacity),
    /// Something happened to a container.
    Event(ContainerEvent),
    /// How the cell is doing.
    Status(Box<Status>),
    /// The members of the mesh.
    Members(Vec<MemberStatus>),
    /// In Prometheus' words.
    Metrics(String),
}

/// How a cell is doing, as it knows itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Its containers, by state.
    pub containers: BTreeMap<String, usize>,
    /// The room that is left.
    pub remaining: CellCapacity,
    /// The rep, if this machine is a member of a mesh.
    pub rep: Option<RepStatus>,
    /// The mesh, if it is.
    pub mesh: Option<MeshStatus>,
}

/// How the cell is in the mesh.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeshStatus {
    /// Its name there.
    pub name: String,
    /// Where it says that it is.
    pub address: String,
    /// Members that are there, itself included.
    pub present: usize,
    /// How little it trusts itself; 0 is well.
    pub health: u32,
    /// When its certificate ends.
    pub certificate_until: Timestamp,
}

/// What the socket serves.
#[derive(Clone)]
pub struct Service {
    /// The containers.
    pub executor: ExecutorHandle,
    /// The rep and the mesh, when there are.
    pub member: Membership,
    /// Where the mesh runs.
    pub runtime: Handle,
    /// The folder of the containers.
    pub containers: PathBuf,
}

/// Takes the socket: only one agent may have it.
pub fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    // The records are locked: whoever made the socket that is there is gone.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("remove {}", path.display()));
        }
        Ok(()) | Err(_) => {}
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until the process ends.
pub fn serve(listener: &UnixListener, service: &Service) {
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                error!(%error, "a conversation could not be begun");
                continue;
            }
        };
        if open.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS {
            open.fetch_sub(1, Ordering::AcqRel);
            let busy =
                ControlReply::Failed(format!("{CONNECTIONS} conversations are open already"));
            let _ = say(&stream, &busy);
            continue;
        }
        let (service, count) = (service.clone(), Arc::clone(&open));
        let spawned = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            if let Err(error) = converse(&stream, &service) {
                debug!(%error, "a conversation broke off");
            }
            count.fetch_sub(1, Ordering::AcqRel);
        });
        if let Err(error) = spawned {
            open.fetch_sub(1, Ordering::AcqRel);
            error!(%error, "a conversation could not be begun");
        }
    }
}

fn say(mut stream: &UnixStream, reply: &ControlReply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn converse(stream: &UnixStream, service: &Service) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = lines.by_ref().take(REQUEST_BYTES).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let told =
                format!("a request may have {REQUEST_BYTES} bytes and must end with a line feed");
            return say(stream, &ControlReply::Failed(told));
        }
        match serde_json::from_slice(&line) {
            Ok(ControlRequest::Events) => return events(stream, &service.executor),
            Ok(request) => say(stream, &answer(service, request))?,
            Err(error) => say(stream, &ControlReply::Failed(format!("not a request: {error}")))?,
        }
    }
}

fn answer(service: &Service, request: ControlRequest) -> ControlReply {
    let executor = &service.executor;
    let done = |result: Result<(), CallError>| match result {
        Ok(()) => ControlReply::Done,
        Err(error) => ControlReply::Failed(error.to_string()),
    };
    let failed = |error: CallError| ControlReply::Failed(error.to_string());
    match request {
        ControlRequest::Start(start) => start_one(executor, *start).unwrap_or_else(failed),
        ControlRequest::Stop(guid) => done(executor.stop(guid)),
        ControlRequest::Delete(guid) => done(executor.delete(guid)),
        ControlRequest::List => executor.containers().map_or_else(failed, ControlReply::Containers),
        ControlRequest::Show(guid) => executor
            .container(guid)
            .map_or_else(failed, |found| ControlReply::Container(found.map(Box::new))),
        ControlRequest::Remaining => {
            executor.remaining().map_or_else(failed, ControlReply::Remaining)
        }
        ControlRequest::Status => {
            look(service).map_or_else(failed, |status| ControlReply::Status(Box::new(status)))
        }
        ControlRequest::Metrics => ControlReply::Metrics(metrics::text(service)),
        ControlRequest::Members => members(service),
        ControlRequest::Evacuate => match service.member.get() {
            Some(member) => {
                member.rep.evacuate();
                ControlReply::Done
            }
            None => ControlReply::Failed(NO_MEMBER.to_owned()),
        },
        // `converse` has taken it.
        ControlRequest::Events => ControlReply::Done,
    }
}

const NO_MEMBER: &str = "this machine is no member of a mesh yet: volvox-agent join LINE";

fn look(service: &Service) -> Result<Status, CallError> {
    let mut containers = BTreeMap::new();
    for view in service.executor.containers()? {
        let state = format!("{:?}", view.container.state).to_uppercase();
        *containers.entry(state).or_default() += 1;
    }
    let remaining = service.executor.remaining()?;
    let member = service.member.get();
    let mesh = member.and_then(|member| {
        let status = service.runtime.block_on(member.mesh.status()).ok()?;
        Some(MeshStatus {
            name: member.mesh.me().name.to_string(),
            address: status.address.to_string(),
            present: status.present,
            health: status.health,
            certificate_until: status.certificate_until,
        })
    });
    let rep = member.and_then(|member| member.rep.status().ok());
    Ok(Status { containers, remaining, rep, mesh })
}

fn members(service: &Service) -> ControlReply {
    let Some(member) = service.member.get() else {
        return ControlReply::Failed(NO_MEMBER.to_owned());
    };
    match service.runtime.block_on(member.mesh.members()) {
        Ok(all) => ControlReply::Members(all.iter().map(MemberStatus::from).collect()),
        Err(error) => ControlReply::Failed(error.to_string()),
    }
}

fn start_one(executor: &ExecutorHandle, start: Start) -> Result<ControlReply, CallError> {
    let Start { owner, work } = start;
    if let Err(error) = work.validate() {
        return Ok(ControlReply::Failed(error));
    }
    let guid = owner.container();
    if !is_container_id(guid.as_str()) {
        let told = format!("name {:?}: at most 63 letters, digits, _ and -", guid.as_str());
        return Ok(ControlReply::Failed(told));
    }
    let wanted = ReservationRequest { owner, resources: work.resources() };
    if let Some((_, refusal)) = executor.reserve(vec![wanted])?.into_iter().next() {
        return Ok(ControlReply::Failed(refusal.to_string()));
    }
    executor.run(guid, work)?;
    Ok(ControlReply::Done)
}

fn events(stream: &UnixStream, executor: &ExecutorHandle) -> io::Result<()> {
    let Ok(events) = executor.subscribe() else { return Ok(()) };
    say(stream, &ControlReply::Done)?;
    loop {
        match events.recv_timeout(LOOK) {
            Ok(event) => say(stream, &ControlReply::Event(event))?,
            // Who has gone must not keep a place.
            Err(RecvTimeoutError::Timeout) if has_hung_up(stream) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    say(stream, &ControlReply::Failed("fell behind, or the agent has ended: list again".to_owned()))
}

fn has_hung_up(stream: &UnixStream) -> bool {
    let mut waiting = [PollFd::new(stream.as_fd(), PollFlags::POLLHUP)];
    poll(&mut waiting, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}

/// The asking end.
#[derive(Debug)]
pub struct ControlClient {
    stream: BufReader<UnixStream>,
}

impl ControlClient {
    /// Talks to the agent behind this socket.
    pub fn connect(path: &Path) -> anyhow::Result<ControlClient> {
        let stream = UnixStream::connect(path).with_context(|| {
            format!("no agent answers on {} (is it running? are you root?)", path.display())
        })?;
        Ok(ControlClient { stream: BufReader::new(stream) })
    }

    /// Asks, and waits for the answer. What the agent refuses is an error.
    pub fn ask(&mut self, request: &ControlRequest) -> anyhow::Result<ControlReply> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).context("ask the agent")?;
        self.hear()
    }

    /// The next answer: for events, there is more than one.
    pub fn hear(&mut self) -> anyhow::Result<ControlReply> {
        let mut line = String::new();
        self.stream.read_line(&mut line).context("hear the agent")?;
        anyhow::ensure!(!line.is_empty(), "the agent has ended");
        match serde_json::from_str(&line).context("understand the agent")? {
            ControlReply::Failed(reason) => anyhow::bail!("{reason}"),
            reply => Ok(reply),
        }
    }
}
