//! The shim's life: make the container, then wait for the agent, for ends and for output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Instant, SystemTime};

use seccompiler::BpfProgram;
use volvox_protocol::time::Timestamp;

use super::container::Container;
use super::disk::Verdict;
use super::lines::Lines;
use super::logs::{Log, Stream};
use super::sys::{self, Fork};
use super::{mounts, pipe, process, seccomp};
use crate::runtime::connection::Connection;
use crate::runtime::spec::{
    ContainerSpec, EXITS, End, Exit, LOGS, ProcessSpec, Reply, Request, SOCKET, SPEC, Status,
    is_container_id,
};

/// Agents that may be connected: one, and its successor while it is replaced, and a person.
const CONNECTIONS: usize = 8;
/// Processes that a container may have had, running or ended.
const PROCESSES: usize = 4_096;

/// Makes the container of `folder` and holds it until it is destroyed. Returns in the process that
/// was called as soon as the container is there: the one that holds it has left it behind.
pub fn run(folder: &Path) -> io::Result<()> {
    let (mut hear, mut say) = pipe()?;
    // The holder must not be the agent's child, so that nobody has to wait for it. It has to be
    // born before the container, whose first process dies with it.
    match sys::fork(0)? {
        Fork::Parent(holder, _) => {
            drop(say);
            let mut said = String::new();
            hear.read_to_string(&mut said)?;
            match said.as_str() {
                "ready" => Ok(()),
                complaint => {
                    let _ = sys::wait_for(holder);
                    Err(io::Error::other(complaint.to_owned()))
                }
            }
        }
        Fork::Child => {
            drop(hear);
            let status = match Shim::start(folder) {
                Ok(mut shim) => {
                    let told = say.write_all(b"ready");
                    drop(say);
                    let held = told.and_then(|()| shim.hold());
                    i32::from(held.is_err())
                }
                Err(error) => {
                    let _ = say.write_all(error.to_string().as_bytes());
                    1
                }
            };
            sys::exit_now(status)
        }
    }
}

struct Shim {
    container: Container,
    init_is_gone: bool,
    is_out_of_disk: bool,
    filters: Vec<BpfProgram>,
    log: Log,
    children: OwnedFd,
    listener: UnixListener,
    connections: Vec<Connection>,
    running: BTreeMap<u32, Process>,
    exited: BTreeMap<u32, Exit>,
    /// Pipes of processes whose end is known, held open by what they started.
    leftovers: Vec<Source>,
}

struct Process {
    pid: i32,
    /// How often the kernel had killed in this container for want of memory when it started.
    oom_kills: u64,
    sources: Vec<Source>,
}

/// One pipe that output comes from.
struct Source {
    pipe: File,
    lines: Lines,
    stream: Stream,
    name: String,
}

impl Shim {
    fn start(folder: &Path) -> io::Result<Self> {
        sys::begin_session()?;
        let spec: ContainerSpec = serde_json::from_slice(&std::fs::read(folder.join(SPEC))?)
            .map_err(|error| io::Error::other(format!("read the spec: {error}")))?;
        if !is_container_id(&spec.id) {
            return Err(io::Error::other(format!("{:?} is no name for a container", spec.id)));
        }
        // A socket's path may have no more than a hundred bytes; from here it has ten.
        std::env::set_current_dir(folder)?;
        std::fs::create_dir_all(EXITS)?;
        let log = Log::open(Path::new(LOGS), spec.log, now())?;
        let filters = seccomp::compile()?;
        let children = sys::child_signals()?;
        let container = Container::create(&spec, &std::env::current_dir()?)?;
        let listener = UnixListener::bind(SOCKET)?;
        listener.set_nonblocking(true)?;
        let shim = Shim {
            container,
            init_is_gone: false,
            is_out_of_disk: false,
            filters,
            log,
            children,
            listener,
            connections: Vec::new(),
            running: BTreeMap::new(),
            exited: BTreeMap::new(),
            leftovers: Vec::new(),
        };
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        for standard in 0..3 {
            sys::put_in_place(nothing.as_fd(), standard)?;
        }
        Ok(shim)
    }

    /// Serves until it is told to destroy the container.
    fn hold(&mut self) -> io::Result<()> {
        loop {
            let ready = self.wait()?;
            self.check_disk();
            if ready.contains(&self.children.as_raw_fd()) {
                self.reap();
            }
            self.pump(&ready);
            if ready.contains(&self.listener.as_raw_fd()) {
                self.accept();
            }
            if self.serve(&ready) {
                return Ok(());
            }
        }
    }

    fn wait(&self) -> io::Result<Vec<RawFd>> {
        let sources = self.running.values().flat_map(|it| &it.sources).chain(&self.leftovers);
        let mut waiting: Vec<(RawFd, i16)> =
            sources.map(|source| (source.pipe.as_raw_fd(), libc::POLLIN)).collect();
        waiting.push((self.children.as_raw_fd(), libc::POLLIN));
        waiting.push((self.listener.as_raw_fd(), libc::POLLIN));
        for connection in &self.connections {
            let wants =
                if connection.has_output() { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
            waiting.push((connection.as_raw_fd(), wants));
        }
        let next = self.container.disk.next_check().filter(|_| !self.init_is_gone);
        sys::poll(&waiting, next.map(|at| at.saturating_duration_since(Instant::now())))
    }

    /// Ends a container that has more on disk than it may. Its first process takes all others along.
    fn check_disk(&mut self) {
        let is_due = self.container.disk.next_check().is_some_and(|at| at <= Instant::now());
        if is_due && !self.init_is_gone && self.container.disk.check() == Verdict::Over {
            self.is_out_of_disk = true;
            let _ = sys::signal(self.container.pidfd.as_fd(), libc::SIGKILL);
        }
    }

    // Ends.

    fn reap(&mut self) {
        let mut signals = [0; 1024];
        while nix::unistd::read(&self.children, &mut signals).is_ok_and(|read| read > 0) {}
        while let Some((pid, status)) = sys::reap() {
            if pid == self.container.init {
                self.init_is_gone = true;
                continue;
            }
            let known = self.running.iter().find(|(_, process)| process.pid == pid);
            if let Some(id) = known.map(|(id, _)| *id) {
                self.end(id, status);
            }
        }
    }

    fn end(&mut self, id: u32, status: i32) {
        let Some(mut process) = self.running.remove(&id) else { return };
        let end = if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Status(libc::WEXITSTATUS(status))
        };
        let was_killed = end == End::Signal(libc::SIGKILL);
        let out_of_memory = was_killed && self.container.cgroup.oom_kills() > process.oom_kills;
        let out_of_disk = was_killed && self.is_out_of_disk;
        let exit = Exit { id, end, out_of_memory, out_of_disk, at: now().as_nanos() };
        // On the disk before anybody is told. If the disk does not take it, the agent is told all
        // the same: it may have to ask again after the next start, but it knows now.
        let _ = record(&exit);
        self.exited.insert(id, exit);
        // Everything it had written before it ended is in its pipes already.
        for source in &mut process.sources {
            drain(source, &mut self.log);
        }
        self.leftovers.append(&mut process.sources);
        for connection in &mut self.connections {
            connection.send(&Reply::Exited(exit));
        }
    }

    // Output.

    fn pump(&mut self, ready: &[RawFd]) {
        for process in self.running.values_mut() {
            let log = &mut self.log;
            process.sources.retain_mut(|source| {
                !ready.contains(&source.pipe.as_raw_fd()) || drain(source, log)
            });
        }
        let log = &mut self.log;
        self.leftovers
            .retain_mut(|source| !ready.contains(&source.pipe.as_raw_fd()) || drain(source, log));
    }

    // The agent.

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.connections.len() >= CONNECTIONS {
                // The oldest is the likeliest to be a dead agent's.
                self.connections.remove(0);
            }
            if let Ok(connection) = Connection::new(stream) {
                self.connections.push(connection);
            }
        }
    }

    /// Answers. True when the container has been destroyed and nothing is left to do.
    fn serve(&mut self, ready: &[RawFd]) -> bool {
        let mut connections = std::mem::take(&mut self.connections);
        let mut destroyed = false;
        for connection in &mut connections {
            if !ready.contains(&connection.as_raw_fd()) {
                continue;
            }
            for request in connection.receive::<Request>() {
                let reply = match request {
                    Request::Run(spec) => self.start_process(&spec),
                    Request::Signal(id, signal) => self.signal(id, signal),
                    Request::Status => Reply::Status(self.status()),
                    Request::Destroy => {
                        let done = self.destroy();
                        destroyed |= done.is_ok();
                        answer(done)
                    }
                };
                connection.send(&reply);
            }
            connection.flush();
        }
        connections.retain(|connection| !connection.is_closed());
        connections.append(&mut self.connections);
        self.connections = connections;
        destroyed
    }

    fn start_process(&mut self, spec: &ProcessSpec) -> Reply {
        if self.init_is_gone {
            return Reply::Failed("the container is gone".to_owned());
        }
        if self.running.contains_key(&spec.id) || self.exited.contains_key(&spec.id) {
            return Reply::Failed(format!("there is a process {} already", spec.id));
        }
        if self.running.len() + self.exited.len() >= PROCESSES {
            return Reply::Failed(format!(
                "the container has had {PROCESSES} processes, the limit"
            ));
        }
        let oom_kills = self.container.cgroup.oom_kills();
        let spawned = process::spawn(&self.container, spec, &self.filters).and_then(|spawned| {
            sys::set_nonblocking(spawned.stdout.as_fd())?;
            sys::set_nonblocking(spawned.stderr.as_fd())?;
            Ok(spawned)
        });
        match spawned {
            Err(error) => Reply::Failed(error.to_string()),
            Ok(spawned) => {
                let source = |pipe, stream| Source {
                    pipe,
                    lines: Lines::default(),
                    stream,
                    name: spec.source.clone(),
                };
                let sources =
                    vec![source(spawned.stdout, Stream::Out), source(spawned.stderr, Stream::Err)];
                self.running.insert(spec.id, Process { pid: spawned.pid, oom_kills, sources });
                Reply::Done
            }
        }
    }

    fn signal(&self, id: u32, signal: i32) -> Reply {
        match self.running.get(&id) {
            // It is our child and not reaped yet, so the number is still its own.
            Some(process) => answer(sys::signal_group(process.pid, signal)),
            None => Reply::Failed(format!("no process {id} is running")),
        }
    }

    fn status(&self) -> Status {
        Status {
            init: if self.init_is_gone { 0 } else { self.container.init },
            running: self.running.keys().copied().collect(),
            exited: self.exited.values().copied().collect(),
            notes: self.container.notes.clone(),
        }
    }

    fn destroy(&mut self) -> io::Result<()> {
        if !self.init_is_gone {
            sys::signal(self.container.pidfd.as_fd(), libc::SIGKILL)?;
            sys::wait_for(self.container.init)?;
            self.init_is_gone = true;
        }
        self.container.cgroup.destroy()?;
        self.reap();
        mounts::remove(Path::new("."))?;
        self.container.disk.clear()
    }
}

fn answer(done: io::Result<()>) -> Reply {
    match done {
        Ok(()) => Reply::Done,
        Err(error) => Reply::Failed(error.to_string()),
    }
}

/// Writes down how a process ended, so that it is there after anything that may happen next.
fn record(exit: &Exit) -> io::Result<()> {
    let name = format!("{EXITS}/{}", exit.id);
    let partial = format!("{name}.partial");
    let mut file = File::create(&partial)?;
    file.write_all(&serde_json::to_vec(exit)?)?;
    file.sync_all()?;
    std::fs::rename(partial, name)?;
    File::open(EXITS)?.sync_all()
}

/// Takes what is in a pipe. False when nothing can come any more.
fn drain(source: &mut Source, log: &mut Log) -> bool {
    // A process that writes without end must not keep us from everything else.
    const TURNS: usize = 16;
    let mut buffer = [0; 16_384];
    for _ in 0..TURNS {
        match source.pipe.read(&mut buffer) {
            Ok(0) => {
                source.lines.flush(|line| log.line(now(), source.stream, &source.name, line));
                return false;
            }
            Ok(read) => {
                let lines = &mut source.lines;
                lines.take(&buffer[..read], |line| {
                    log.line(now(), source.stream, &source.name, line);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
    true
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
