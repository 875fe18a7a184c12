//! The agent's side of a container: its folder, its shim, what it answers. Finds shims again
//! after a restart, and clears up after those that died.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::cgroup::{Cgroup, Hierarchy};
use super::connection::Connection;
use super::program::Program;
use super::spec::{
    ContainerSpec, EXITS, Exit, LOGS, ProcessSpec, Reply, Request, SOCKET, SPEC, Status,
    is_container_id,
};

/// How long a shim may take to answer. It does nothing that takes long but destroy.
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a container could not be made or reached.
#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    /// The container could not be made. Nothing of it is left.
    #[error("make container {id}: {reason}")]
    Create {
        /// The container.
        id: String,
        /// Why not.
        reason: String,
    },
    /// The shim said no. Nothing has changed.
    #[error("{0}")]
    Refused(String),
    /// The shim does not answer: it has died, and its container with it. Clear it up.
    #[error("the shim of container {id} does not answer: {source}")]
    Gone {
        /// The container.
        id: String,
        /// What the socket said.
        source: io::Error,
    },
    /// The host's file system or cgroups did not do what they were asked.
    #[error("{doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What became of it.
        source: io::Error,
    },
}

fn doing(what: impl Into<String>) -> impl FnOnce(io::Error) -> ShimError {
    let doing = what.into();
    move |source| ShimError::Io { doing, source }
}

/// The containers of one cell: a folder with a folder for each.
#[derive(Debug, Clone)]
pub struct Shims {
    folder: PathBuf,
    program: PathBuf,
}

impl Shims {
    /// The containers below `folder`, held by this program.
    pub fn new(folder: &Path, program: &Path) -> Self {
        Shims { folder: folder.to_owned(), program: program.to_owned() }
    }

    /// The folder of one container.
    pub fn folder(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    /// Makes a container. It is there when this returns, with no process of its own yet.
    pub fn create(&self, spec: &ContainerSpec) -> Result<Shim, ShimError> {
        if !is_container_id(&spec.id) {
            let reason = "that is no name for a container".to_owned();
            return Err(ShimError::Create { id: spec.id.clone(), reason });
        }
        let folder = self.folder(&spec.id);
        std::fs::create_dir_all(&self.folder).map_err(doing("make the containers' folder"))?;
        std::fs::create_dir(&folder).map_err(doing(format!("make {}", folder.display())))?;
        let made = self.start(spec, &folder);
        if made.is_err() {
            // Whatever it had begun is in its folder and its cgroup.
            let _ = self.clear(&spec.id);
        }
        made
    }

    fn start(&self, spec: &ContainerSpec, folder: &Path) -> Result<Shim, ShimError> {
        let failed = |reason: String| ShimError::Create { id: spec.id.clone(), reason };
        let json = serde_json::to_vec(spec).map_err(|error| failed(error.to_string()))?;
        std::fs::write(folder.join(SPEC), json).map_err(doing("write the spec"))?;
        let program = Program::sealed(&self.program)
            .map_err(|error| failed(format!("start {}: {error}", self.program.display())))?;
        let output = Command::new(program.path())
            .arg0("volvox-shim")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .map_err(|error| failed(format!("start {}: {error}", self.program.display())))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(failed(said.trim().trim_start_matches("volvox-shim: ").to_owned()));
        }
        self.attach(&spec.id)
    }

    /// Talks to the shim of a container that is there.
    pub fn attach(&self, id: &str) -> Result<Shim, ShimError> {
        let gone = |source| ShimError::Gone { id: id.to_owned(), source };
        // A socket's path may have no more than a hundred bytes; through the folder it is short.
        let folder = std::fs::File::open(self.folder(id)).map_err(gone)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", std::os::fd::AsRawFd::as_raw_fd(&folder));
        let stream = UnixStream::connect(path).map_err(gone)?;
        let connection = Connection::new(stream).map_err(gone)?;
        Ok(Shim { id: id.to_owned(), connection, exits: Vec::new() })
    }

    /// All containers that have a folder, by name.
    pub fn list(&self) -> Result<Vec<String>, ShimError> {
        let entries = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(doing("list the containers")(error)),
        };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }

    /// How the processes of a container ended, as written down by its shim, dead or alive.
    pub fn recorded_exits(&self, id: &str) -> Result<BTreeMap<u32, Exit>, ShimError> {
        let mut exits = BTreeMap::new();
        let Ok(entries) = std::fs::read_dir(self.folder(id).join(EXITS)) else { return Ok(exits) };
        for entry in entries.flatten() {
            let bytes = std::fs::read(entry.path()).map_err(doing("read an exit record"))?;
            if let Ok(exit) = serde_json::from_slice::<Exit>(&bytes) {
                exits.insert(exit.id, exit);
            }
        }
        Ok(exits)
    }

    /// Where a container's log is: the newest file.
    pub fn log(&self, id: &str) -> PathBuf {
        self.folder(id).join(LOGS).join("0.log")
    }

    /// Removes everything of a container whose shim is dead or has destroyed it: its processes,
    /// its cgroup, its folder. Its mounts went with the shim.
    pub fn clear(&self, id: &str) -> Result<(), ShimError> {
        let hierarchy = Hierarchy::detect().map_err(doing("find the cgroups"))?;
        Cgroup::new(hierarchy, id).destroy().map_err(doing("clear the cgroup"))?;
        match std::fs::remove_dir_all(self.folder(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(doing(format!("remove the folder of {id}"))(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// A conversation with one shim.
#[derive(Debug)]
pub struct Shim {
    id: String,
    connection: Connection,
    exits: Vec<Exit>,
}

impl Shim {
    /// The container's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs a process.
    pub fn run(&mut self, spec: ProcessSpec) -> Result<(), ShimError> {
        self.ask(&Request::Run(spec)).map(drop)
    }

    /// Sends a signal to a process and its group.
    pub fn signal(&mut self, process: u32, signal: i32) -> Result<(), ShimError> {
        self.ask(&Request::Signal(process, signal)).map(drop)
    }

    /// The container and all its processes.
    pub fn status(&mut self) -> Result<Status, ShimError> {
        match self.ask(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            other => Err(ShimError::Refused(format!("the shim answered {other:?} for its status"))),
        }
    }

    /// Kills and cleans up everything. The folder is left for [`Shims::clear`].
    pub fn destroy(mut self) -> Result<(), ShimError> {
        self.ask(&Request::Destroy).map(drop)
    }

    /// Waits until a process has ended, for so long.
    pub fn wait(&mut self, process: u32, patience: Duration) -> Result<Option<Exit>, ShimError> {
        let known = self.status()?.exited.into_iter().find(|exit| exit.id == process);
        if known.is_some() {
            return Ok(known);
        }
        let deadline = Instant::now() + patience;
        loop {
            if let Some(exit) = self.exits.iter().find(|exit| exit.id == process) {
                return Ok(Some(*exit));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.listen(left)?;
        }
    }

    fn ask(&mut self, request: &Request) -> Result<Reply, ShimError> {
        self.connection.send(request);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let slow = io::Error::from(io::ErrorKind::TimedOut);
                return Err(ShimError::Gone { id: self.id.clone(), source: slow });
            }
            match self.listen(left)? {
                Some(Reply::Failed(reason)) => return Err(ShimError::Refused(reason)),
                Some(reply) => return Ok(reply),
                None => {}
            }
        }
    }

    /// Hears the next answer. Ends of processes are remembered on the way.
    fn listen(&mut self, patience: Duration) -> Result<Option<Reply>, ShimError> {
        let gone = |source| ShimError::Gone { id: self.id.clone(), source };
        let fd = std::os::fd::AsRawFd::as_raw_fd(&self.connection);
        crate::shim::wait_readable(fd, patience).map_err(gone)?;
        let mut answer = None;
        for reply in self.connection.receive::<Reply>() {
            match reply {
                Reply::Exited(exit) => self.exits.push(exit),
                Reply::Done | Reply::Failed(_) | Reply::Status(_) => answer = Some(reply),
            }
        }
        if answer.is_none() && self.connection.is_closed() {
            let closed = io::Error::from(io::ErrorKind::UnexpectedEof);
            return Err(ShimError::Gone { id: self.id.clone(), source: closed });
        }
        self.connection.flush();
        Ok(answer)
    }
}
