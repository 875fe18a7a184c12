//! The agent's side of a container: its folder, its shim, what it answers. Finds shims again
//! after a restart, and clears up after those that died.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::program::{Program, ends_within};
use super::shim_timeouts::{RetryDecision, ShimActivity, Waiting};
use crate::container::exit::Exit;
use crate::container::spec::Hierarchy;
use crate::container::spec::{ContainerSpec, LogLine, ProcessSpec, TerminalSize, is_container_id};
use crate::kernel::cgroup::Cgroup;
use crate::kernel::remove::remove_all;
use crate::kernel::sys;
use crate::shim::connection::Connection;
use crate::shim::wire::{EXITS, LOGS, MADE_WITHIN_S, SOCKET, SPEC, ShimReply, ShimRequest, Status};
use crate::shim::{Wants, exits};

/// How long a shim may take to answer. It does little that takes long: destroy, and whatever its disk
/// makes long.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How many times as long it may take to make its container: the disk may be slow then too.
const MAKING: u32 = 15;
/// How long it may take to make a container.
pub const MADE_WITHIN: Duration = PATIENCE.saturating_mul(MAKING);
/// How much longer the agent waits: for a shim that gives up, and says so.
const GIVING_UP: Duration = Duration::from_secs(20);
/// How often a shim is looked at that does not answer, and how long after each other.
const LOOKS: usize = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);
/// How long a shim that is killed may take to be gone.
const DEATH_WITHIN: Duration = Duration::from_secs(10);

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
    /// The shim does not answer: it has died, and its container with it; or it hangs. Put it down and
    /// clear up.
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

/// Whole seconds, rounded up: a shim that has none could make nothing.
fn seconds(span: Duration) -> u64 {
    span.as_secs().saturating_add(u64::from(span.subsec_nanos() > 0))
}

/// The containers of one cell: a folder with a folder for each.
#[derive(Debug, Clone)]
pub struct Shims {
    folder: PathBuf,
    program: PathBuf,
    patience: Duration,
}

impl Shims {
    /// The containers below `folder`, held by this program.
    pub fn new(folder: &Path, program: &Path) -> Self {
        Shims { folder: folder.to_owned(), program: program.to_owned(), patience: PATIENCE }
    }

    /// The same, with another patience than [`PATIENCE`].
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Shims { patience, ..self }
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
        // What containers write, setuid programs too, is for nobody else on the machine.
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(&self.folder).map_err(doing("make the containers' folder"))?;
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
        let within = self.patience.saturating_mul(MAKING);
        let child = Command::new(program.path())
            .arg0("volvox-shim")
            .arg(folder)
            .env(MADE_WITHIN_S, seconds(within).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let (status, said) = child
            .and_then(|child| ends_within(child, within.saturating_add(GIVING_UP)))
            .map_err(|error| failed(format!("start {}: {error}", self.program.display())))?;
        if !status.success() {
            return Err(failed(said.trim().trim_start_matches("volvox-shim: ").to_owned()));
        }
        self.attach(&spec.id)
    }

    /// Talks to the shim of a container that is there.
    pub fn attach(&self, id: &str) -> Result<Shim, ShimError> {
        // Want of descriptors or memory is our own trouble: it says nothing of the shim.
        let gone = |source: io::Error| match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
                ShimError::Io { doing: format!("reach the shim of {id}"), source }
            }
            Some(_) | None => ShimError::Gone { id: id.to_owned(), source },
        };
        // A socket's path may have no more than a hundred bytes; through the folder it is short.
        let folder = std::fs::File::open(self.folder(id)).map_err(gone)?;
        let path = format!("/proc/self/fd/{}/{SOCKET}", std::os::fd::AsRawFd::as_raw_fd(&folder));
        let stream = UnixStream::connect(path).map_err(gone)?;
        let connection = Connection::new(stream).map_err(gone)?;
        Ok(Shim {
            id: id.to_owned(),
            patience: self.patience,
            connection,
            answers: VecDeque::new(),
            exits: BTreeMap::new(),
            shown: VecDeque::new(),
        })
    }

    /// Runs a process with a terminal, over a connection of its own. The spec must give a size.
    pub fn terminal(&self, id: &str, spec: ProcessSpec) -> Result<Terminal, ShimError> {
        let process = spec.id;
        let mut shim = self.attach(id)?;
        shim.run(spec)?;
        Ok(Terminal { shim, process })
    }

    /// Removes what all containers of a machine share, if no cell uses it any more.
    pub fn close(&self) {
        if let Ok(hierarchy) = Hierarchy::detect() {
            hierarchy.remove_parent();
        }
    }

    /// What a container was made from, if that can be read.
    pub fn spec(&self, id: &str) -> Option<ContainerSpec> {
        let bytes = std::fs::read(self.folder(id).join(SPEC)).ok()?;
        serde_json::from_slice(&bytes).ok()
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
        exits::read(&self.folder(id).join(EXITS)).map_err(doing("read the exit records"))
    }

    /// Where a container's log is: the newest file. None is there before the first line.
    pub fn log(&self, id: &str) -> PathBuf {
        self.folder(id).join(LOGS).join("0.log")
    }

    /// Asks a shim for everything once more, for as long as one is waited for.
    pub(crate) fn ask_again(
        &self,
        id: &str,
        mut waiting: Waiting,
    ) -> Result<(Status, Shim), ShimError> {
        loop {
            let error = match self.attach(id).and_then(|mut shim| Ok((shim.status()?, shim))) {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            match waiting.unanswered(self.seen(id, &error)) {
                RetryDecision::AskAgain => {
                    tracing::debug!(container = id, %error, "a shim is slow")
                }
                RetryDecision::GiveUp => return Err(error),
            }
        }
    }

    /// Looks at a shim that gave this error. Takes a second.
    fn seen(&self, id: &str, error: &ShimError) -> ShimActivity {
        match error {
            ShimError::Io { .. } => {
                std::thread::sleep(BETWEEN_LOOKS * u32::try_from(LOOKS).unwrap_or(1));
                ShimActivity::NotAsked
            }
            ShimError::Gone { .. } => {
                let holder = self.attach(id).ok().and_then(|shim| shim.holder().ok());
                let works = |holder| {
                    std::thread::sleep(BETWEEN_LOOKS);
                    is_at_work(holder)
                };
                match holder.is_some_and(|holder| (0..LOOKS).any(|_| works(holder))) {
                    true => ShimActivity::AtWork,
                    false => ShimActivity::StandsStill,
                }
            }
            ShimError::Create { .. } | ShimError::Refused(_) => ShimActivity::StandsStill,
        }
    }

    /// Ends a shim that does not answer, if it is still there. Its container dies with it.
    pub fn kill(&self, id: &str) -> Result<(), ShimError> {
        let mut shim = match self.attach(id) {
            Ok(shim) => shim,
            // Nobody listens: it is dead.
            Err(ShimError::Gone { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let what = format!("end the shim of {id}");
        let holder = shim.holder().map_err(doing(what.clone()))?;
        let handle = match sys::hold_of(holder) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            handle => handle.map_err(doing(what.clone()))?,
        };
        // While nobody has hung up, the one that listens lives, and the number is its own.
        shim.connection.receive::<ShimReply>();
        if shim.connection.is_closed() {
            return Ok(());
        }
        match sys::signal(handle.as_fd(), libc::SIGKILL) {
            Err(error) if error.raw_os_error() != Some(libc::ESRCH) => {
                return Err(doing(what)(error));
            }
            Ok(()) | Err(_) => {}
        }
        let gone = sys::poll(&[(handle.as_raw_fd(), libc::POLLIN)], Some(DEATH_WITHIN));
        match gone.map_err(doing(what.clone()))?.is_empty() {
            true => Err(doing(what)(io::ErrorKind::TimedOut.into())),
            false => Ok(()),
        }
    }

    /// Ends a container by its shim, or by force if that does not answer. Nothing is left but its
    /// folder and its cgroup, for [`Shims::clear`].
    pub fn end(&self, id: &str) -> Result<(), ShimError> {
        match self.attach(id).and_then(Shim::destroy) {
            Ok(()) => Ok(()),
            Err(ShimError::Gone { .. }) => self.kill(id),
            Err(error) => Err(error),
        }
    }

    /// Removes everything of a container whose shim is dead or has destroyed it: its processes,
    /// its cgroup, its folder. Its mounts went with the shim.
    pub fn clear(&self, id: &str) -> Result<(), ShimError> {
        let hierarchy = Hierarchy::detect().map_err(doing("find the cgroups"))?;
        Cgroup::new(hierarchy, id).destroy().map_err(doing("clear the cgroup"))?;
        remove_all(&self.folder(id)).map_err(doing(format!("remove the folder of {id}")))
    }
}

/// Whether a process computes, or waits for a disk. One that is stopped does neither, nor does one that
/// waits for what never comes.
fn is_at_work(process: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
    // The name before it may hold anything, a bracket too.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('R' | 'D'))
}

/// A conversation with one shim, a question at a time.
#[derive(Debug)]
pub struct Shim {
    id: String,
    patience: Duration,
    connection: Connection,
    answers: VecDeque<ShimReply>,
    exits: BTreeMap<u32, Exit>,
    shown: VecDeque<Vec<u8>>,
}

impl Shim {
    /// The container's name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Hands the conversation over, with the ends of processes that were heard on the way.
    pub fn into_connection(self) -> (Connection, Vec<Exit>) {
        (self.connection, self.exits.into_values().collect())
    }

    /// Runs a process.
    pub fn run(&mut self, spec: ProcessSpec) -> Result<(), ShimError> {
        self.ask(&ShimRequest::Run(spec)).map(drop)
    }

    /// Sends a signal to a process and its group.
    pub fn signal(&mut self, process: u32, signal: i32) -> Result<(), ShimError> {
        self.ask(&ShimRequest::Signal(process, signal)).map(drop)
    }

    /// Adds a line to the container's log.
    pub fn log(&mut self, line: LogLine) -> Result<(), ShimError> {
        self.ask(&ShimRequest::Log(line)).map(drop)
    }

    /// Acknowledges the end of a process: the shim and the disk forget it.
    pub fn forget(&mut self, process: u32) -> Result<(), ShimError> {
        self.ask(&ShimRequest::Forget(process))?;
        self.exits.remove(&process);
        Ok(())
    }

    /// The container and all its processes.
    pub fn status(&mut self) -> Result<Status, ShimError> {
        match self.ask(&ShimRequest::Status)? {
            ShimReply::Status(status) => Ok(status),
            other => Err(ShimError::Refused(format!("the shim answered {other:?} for its status"))),
        }
    }

    /// Kills and cleans up everything. The folder is left for [`Shims::clear`].
    pub fn destroy(mut self) -> Result<(), ShimError> {
        self.ask(&ShimRequest::Destroy).map(drop)
    }

    /// Waits until a process has ended, for so long.
    pub fn wait(&mut self, process: u32, patience: Duration) -> Result<Option<Exit>, ShimError> {
        if !self.exits.contains_key(&process) {
            let known = self.status()?.exited;
            self.exits.extend(known.into_iter().map(|exit| (exit.id, exit)));
        }
        let deadline = Instant::now() + patience;
        loop {
            if let Some(exit) = self.exits.get(&process) {
                return Ok(Some(exit.clone()));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.listen(left)?;
        }
    }

    fn ask(&mut self, request: &ShimRequest) -> Result<ShimReply, ShimError> {
        self.connection.send(request);
        let deadline = Instant::now() + self.patience;
        loop {
            match self.answers.pop_front() {
                Some(ShimReply::Failed(reason)) => return Err(ShimError::Refused(reason)),
                Some(reply) => return Ok(reply),
                None => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.gone(io::ErrorKind::TimedOut.into()));
            }
            self.listen(left)?;
        }
    }

    /// Who listens at the other end.
    fn holder(&self) -> io::Result<i32> {
        let peer = nix::sys::socket::getsockopt(
            &self.connection,
            nix::sys::socket::sockopt::PeerCredentials,
        )?;
        Ok(peer.pid())
    }

    /// Hears what comes next, and sorts it.
    fn listen(&mut self, patience: Duration) -> Result<(), ShimError> {
        self.connection.flush();
        let wants = if self.connection.has_output() { Wants::Both } else { Wants::Read };
        let fd = self.connection.as_raw_fd();
        crate::shim::wait_ready(fd, wants, patience).map_err(|error| self.gone(error))?;
        let mut heard = false;
        for reply in self.connection.receive::<ShimReply>() {
            heard = true;
            match reply {
                ShimReply::Exited(exit) => drop(self.exits.insert(exit.id, exit)),
                ShimReply::Output(_, bytes) => self.shown.push_back(bytes),
                ShimReply::Done | ShimReply::Failed(_) | ShimReply::Status(_) => {
                    self.answers.push_back(reply)
                }
            }
        }
        if !heard && self.connection.is_closed() {
            return Err(self.gone(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    fn gone(&self, source: io::Error) -> ShimError {
        ShimError::Gone { id: self.id.clone(), source }
    }
}

/// A process with a terminal. Dropping this hangs up on it.
///
/// For an interactive shell: put the person's terminal into raw mode, pass what is typed to
/// [`Terminal::input`] while [`Terminal::is_behind`] is false, write what [`Terminal::next`] gives,
/// and on SIGWINCH call [`Terminal::resize`], until it gives the end.
#[derive(Debug)]
pub struct Terminal {
    shim: Shim,
    process: u32,
}

/// What comes from a process with a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// Bytes for the person's terminal.
    Output(Vec<u8>),
    /// It ended. Nothing follows.
    Exited(Exit),
}

impl Terminal {
    /// Types these bytes. Does not wait: what the shim does not take yet is kept here.
    pub fn input(&mut self, bytes: &[u8]) {
        // Small enough that what is shown is not kept waiting for long.
        const PIECE: usize = 16 << 10;
        for piece in bytes.chunks(PIECE) {
            self.shim.connection.send(&ShimRequest::Input(self.process, piece.to_vec()));
        }
    }

    /// Whether what was typed is waiting to be taken: type no more until it is.
    pub fn is_behind(&self) -> bool {
        self.shim.connection.has_output()
    }

    /// Says that no input follows.
    pub fn end_input(&mut self) {
        self.shim.connection.send(&ShimRequest::EndInput(self.process));
    }

    /// Says that the terminal has another size now.
    pub fn resize(&mut self, size: TerminalSize) {
        self.shim.connection.send(&ShimRequest::Resize(self.process, size));
    }

    /// Sends a signal to the program and its group. Does not wait for whether it was there.
    pub fn signal(&mut self, signal: i32) {
        self.shim.connection.send(&ShimRequest::Signal(self.process, signal));
    }

    /// Passes on what waits to be taken, as far as the shim listens.
    pub fn flush(&mut self) {
        self.shim.connection.flush();
    }

    /// What comes next, within so long.
    pub fn next(&mut self, patience: Duration) -> Result<Option<TerminalEvent>, ShimError> {
        let deadline = Instant::now() + patience;
        loop {
            // Nobody waits for whether a key was taken: one typed too late is typed in vain.
            self.shim.answers.clear();
            if let Some(bytes) = self.shim.shown.pop_front() {
                return Ok(Some(TerminalEvent::Output(bytes)));
            }
            if let Some(exit) = self.shim.exits.get(&self.process) {
                return Ok(Some(TerminalEvent::Exited(exit.clone())));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.shim.listen(left)?;
        }
    }
}

impl AsFd for Terminal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shim.connection.as_fd()
    }
}

impl AsRawFd for Terminal {
    /// To wait for together with the person's own: readable when [`Terminal::next`] has something.
    fn as_raw_fd(&self) -> RawFd {
        self.shim.connection.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::Instant;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::is_at_work;

    /// Waits until it is, or is not, at work, with a deadline.
    fn becomes(child: &Child, at_work: bool) -> bool {
        let until = Instant::now() + std::time::Duration::from_secs(30);
        let id = child.id().cast_signed();
        while Instant::now() < until {
            if is_at_work(id) == at_work {
                return true;
            }
            std::thread::yield_now();
        }
        false
    }

    #[test]
    fn who_computes_is_slow_and_who_stands_still_hangs() {
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut idle = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_raw(busy.id().cast_signed());
        let computes = becomes(&busy, true);
        kill(pid, Signal::SIGSTOP).unwrap();
        let stands = becomes(&busy, false);
        let waits = becomes(&idle, false);
        busy.kill().unwrap();
        idle.kill().unwrap();
        busy.wait().unwrap();
        idle.wait().unwrap();
        assert!(computes && stands && waits, "{computes} {stands} {waits}");
        assert!(!is_at_work(pid.as_raw()), "it is gone");
    }
}
