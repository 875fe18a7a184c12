//! The shim's life: make the container, then wait for the agent, for ends and for output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use seccompiler::BpfProgram;
use volvox_host::clock::wall;

use super::connection::Connection;
use super::container::Container;
use super::disk::DiskState;
use super::exits::{Durability, Exits};
use super::logs::Log;
use super::output::{ProcessOutput, Source, TerminalTarget};
use super::terminal::Terminal;
use super::wire::{EXITS, LOGS, PROCESSES, RUNNING, SOCKET, SPEC, ShimReply, ShimRequest, Status};
use super::{mounts, pipe, process, seccomp};
use crate::container::exit::{End, Exit};
use crate::container::spec::{ContainerSpec, OutputTarget, ProcessSpec, is_container_id};
use crate::kernel::sys::{self, Fork};

/// Who may be connected at once: an agent, its successor while it is replaced, and terminals.
const CLIENTS: usize = 16;
/// Of these, kept from terminals: an agent that comes back must find a place.
const AGENTS: usize = 4;
/// Bytes that wait for a client before its terminals are no longer read.
const BEHIND: usize = 64 << 10;
/// How long the processes of a container may take to die when they are killed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long one that is given up may take to be gone.
const DEATH_WITHIN: Duration = Duration::from_secs(5);
/// Pipes held open by what ended processes have started: the oldest are let go.
const LEFTOVERS: usize = 128;

/// Makes the container of `folder` and holds it until it is destroyed. Returns in the process that
/// was called as soon as the container is there: the one that holds it has left it behind. If it is not
/// there within `patience`, it is given up.
pub fn run(folder: &Path, patience: Duration) -> io::Result<()> {
    let (mut hear, mut say) = pipe()?;
    // The holder must not be the agent's child, so that nobody has to wait for it. It has to be
    // born before the container, whose first process dies with it.
    match sys::fork(0)? {
        Fork::Parent(holder, handle) => {
            drop(say);
            if !comes_within(&hear, patience)? {
                // What it had begun dies with it. It is not waited for for ever: a disk may keep it.
                sys::signal(handle.as_fd(), libc::SIGKILL)?;
                sys::poll(&[(handle.as_raw_fd(), libc::POLLIN)], Some(DEATH_WITHIN))?;
                let seconds = patience.as_secs();
                let late = format!("the container was not there after {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, late));
            }
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
            // Until the container is there it does not outlive the one that is to tell of it.
            let started = sys::die_with_reader(say.as_fd())
                .and_then(|()| Shim::start(folder))
                .and_then(|shim| sys::prctl(libc::PR_SET_PDEATHSIG, 0).map(|()| shim));
            let status = match started {
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

/// Whether something can be read from a pipe within so long, or its other end is gone.
fn comes_within(pipe: &File, patience: Duration) -> io::Result<bool> {
    // None is later than the clock counts.
    let deadline = Instant::now().checked_add(patience);
    loop {
        let left = deadline.map(|it| it.saturating_duration_since(Instant::now()));
        if !sys::poll(&[(pipe.as_raw_fd(), libc::POLLIN)], left)?.is_empty() {
            return Ok(true);
        }
        if left.is_some_and(|it| it.is_zero()) {
            return Ok(false);
        }
    }
}

struct Shim {
    container: Container,
    init_is_gone: bool,
    is_out_of_disk: bool,
    /// Who the container's root is on the host.
    owner: u32,
    filters: Vec<BpfProgram>,
    nothing: File,
    log: Log,
    exits: Exits,
    children: OwnedFd,
    listener: UnixListener,
    clients: Vec<Client>,
    next_client: u64,
    running: BTreeMap<u32, Process>,
    /// Pipes of processes whose end is known, held open by what they started.
    leftovers: Vec<Source>,
}

struct Process {
    pid: i32,
    /// How often the kernel had killed in this container for want of memory when it started.
    oom_kills: u64,
    outlives: Durability,
    outlet: ProcessOutput,
}

/// Somebody connected.
struct Client {
    number: u64,
    connection: Connection,
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
        let exits = Exits::create(Path::new(EXITS))?;
        let log = Log::new(Path::new(LOGS), spec.log, wall());
        let filters = seccomp::compile()?;
        let children = sys::child_signals()?;
        let container = Container::create(&spec, &std::env::current_dir()?)?;
        // From now on our children are born in the container's process namespace, and are ours.
        sys::enter(container.pidfd.as_fd(), libc::CLONE_NEWPID)?;
        let listener = UnixListener::bind(SOCKET)?;
        listener.set_nonblocking(true)?;
        let nothing = File::options().read(true).write(true).open("/dev/null")?;
        for standard in 0..3 {
            sys::put_in_place(nothing.as_fd(), standard)?;
        }
        Ok(Shim {
            container,
            init_is_gone: false,
            is_out_of_disk: false,
            owner: if spec.privileged { 0 } else { spec.first_id },
            filters,
            nothing,
            log,
            exits,
            children,
            listener,
            clients: Vec::new(),
            next_client: 0,
            running: BTreeMap::new(),
            leftovers: Vec::new(),
        })
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
        let sources = self.running.values().flat_map(|it| &it.outlet.sources);
        let mut waiting: Vec<(RawFd, i16)> = sources
            .chain(&self.leftovers)
            .map(|source| (source.as_raw_fd(), libc::POLLIN))
            .collect();
        waiting.push((self.children.as_raw_fd(), libc::POLLIN));
        waiting.push((self.listener.as_raw_fd(), libc::POLLIN));
        for client in &self.clients {
            // Who types faster than a process reads is not heard until it has read.
            let is_full = self.terminals().any(|it| it.client == client.number && it.is_full());
            let mut wants = if is_full { 0 } else { libc::POLLIN };
            if client.connection.has_output() {
                wants |= libc::POLLOUT;
            }
            waiting.push((client.connection.as_raw_fd(), wants));
        }
        for terminal in self.terminals() {
            // Who does not take what a terminal shows is not shown more.
            let is_behind = self.client(terminal.client).is_none_or(|it| it.backlog() > BEHIND);
            let mut wants = if is_behind { 0 } else { libc::POLLIN };
            if terminal.has_input() {
                wants |= libc::POLLOUT;
            }
            if wants != 0 {
                waiting.push((terminal.as_raw_fd(), wants));
            }
        }
        let disk = self.container.disk.next_check().filter(|_| !self.init_is_gone);
        let patience = disk.map(|at| at.saturating_duration_since(Instant::now()));
        // Rounded up, as poll counts whole milliseconds and would return too early.
        sys::poll(&waiting, patience.map(|it| it + Duration::from_millis(1)))
    }

    /// Ends a container that has more on disk than it may. Its first process takes all others along.
    fn check_disk(&mut self) {
        let is_due = self.container.disk.next_check().is_some_and(|at| at <= Instant::now());
        if is_due && !self.init_is_gone && self.container.disk.check() == DiskState::Over {
            self.is_out_of_disk = true;
            let _ = sys::signal(self.container.pidfd.as_fd(), libc::SIGKILL);
        }
    }

    fn terminals(&self) -> impl Iterator<Item = &Terminal> {
        self.running.values().filter_map(|it| it.outlet.terminal.as_ref())
    }

    fn client(&self, number: u64) -> Option<&Connection> {
        let found = self.clients.iter().find(|it| it.number == number);
        found.map(|it| &it.connection)
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
        if let Some(terminal) = process.outlet.terminal.take() {
            self.show_the_rest(id, terminal);
        }
        let Process { oom_kills, outlives, .. } = process;
        let (output, mut left) = process.outlet.finish(&mut self.log);
        self.leftovers.append(&mut left);
        let over = self.leftovers.len().saturating_sub(LEFTOVERS);
        self.leftovers.drain(..over);
        let end = if libc::WIFSIGNALED(status) {
            End::Signal(libc::WTERMSIG(status))
        } else {
            End::Status(libc::WEXITSTATUS(status))
        };
        let was_killed = end == End::Signal(libc::SIGKILL);
        let out_of_memory = was_killed && self.container.cgroup.oom_kills() > oom_kills;
        let out_of_disk = was_killed && self.is_out_of_disk;
        let at = wall().as_nanos();
        let exit = Exit { id, end, out_of_memory, out_of_disk, at, output };
        // Written down before anybody is told.
        self.exits.record(&exit, outlives);
        let told = ShimReply::Exited(exit);
        for client in &mut self.clients {
            client.connection.send(&told);
        }
    }

    /// The last that a terminal shows. When it is let go, the kernel hangs up on who still has it.
    fn show_the_rest(&mut self, id: u32, mut terminal: Terminal) {
        // The kernel holds no more of it than this.
        const TURNS: usize = 16;
        let found = self.clients.iter_mut().find(|it| it.number == terminal.client);
        let Some(client) = found else { return };
        for _ in 0..TURNS {
            match terminal.read() {
                Ok(bytes) if !bytes.is_empty() => {
                    client.connection.send(&ShimReply::Output(id, bytes))
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    // Output.

    fn pump(&mut self, ready: &[RawFd]) {
        for (id, process) in &mut self.running {
            process.outlet.pump(ready, &mut self.log);
            let Some(terminal) = &mut process.outlet.terminal else { continue };
            if !ready.contains(&terminal.as_raw_fd()) {
                continue;
            }
            terminal.write();
            let client = self.clients.iter_mut().find(|it| it.number == terminal.client);
            match (terminal.read(), client) {
                (Ok(bytes), Some(client)) if !bytes.is_empty() => {
                    client.connection.send(&ShimReply::Output(*id, bytes));
                }
                (Ok(_), _) => {}
                // Nobody inside has it open any more.
                (Err(_), _) => process.outlet.terminal = None,
            }
        }
        let log = &mut self.log;
        self.leftovers.retain_mut(|it| !ready.contains(&it.as_raw_fd()) || it.pump(log));
    }

    // The agent.

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // A dead agent's connections are closed: those that are there have somebody behind them.
            if self.clients.len() < CLIENTS
                && let Ok(connection) = Connection::new(stream)
            {
                self.clients.push(Client { number: self.next_client, connection });
                self.next_client += 1;
            }
        }
    }

    /// Answers. True when the container has been destroyed and nothing is left to do.
    fn serve(&mut self, ready: &[RawFd]) -> bool {
        let mut destroyed = false;
        for nth in 0..self.clients.len() {
            let Client { number, connection } = &mut self.clients[nth];
            if !ready.contains(&connection.as_raw_fd()) {
                continue;
            }
            let number = *number;
            connection.flush();
            for request in connection.receive::<ShimRequest>() {
                let ends = matches!(request, ShimRequest::Destroy);
                let reply = self.answer(number, request);
                destroyed |= ends && reply == ShimReply::Done;
                self.clients[nth].connection.send(&reply);
            }
        }
        for gone in self.clients.extract_if(.., |client| client.connection.is_closed()) {
            hang_up(&mut self.running, gone.number);
        }
        destroyed
    }

    fn answer(&mut self, client: u64, request: ShimRequest) -> ShimReply {
        match request {
            ShimRequest::Run(spec) => self.start_process(client, &spec),
            ShimRequest::Signal(id, signal) => self.signal(id, signal),
            ShimRequest::Log(line) => {
                self.log.record(wall(), line.stream, &line.source, &line.text);
                ShimReply::Done
            }
            ShimRequest::Input(id, bytes) => self.terminal(client, id, |it| {
                it.input(&bytes);
                Ok(())
            }),
            ShimRequest::EndInput(id) => self.terminal(client, id, |it| {
                it.end_input();
                Ok(())
            }),
            ShimRequest::Resize(id, size) => self.terminal(client, id, |it| it.resize(size)),
            ShimRequest::Forget(id) if self.running.contains_key(&id) => {
                ShimReply::Failed(format!("process {id} is running"))
            }
            ShimRequest::Forget(id) => {
                self.exits.forget(id);
                ShimReply::Done
            }
            ShimRequest::Status => ShimReply::Status(self.status()),
            ShimRequest::Destroy => answer(self.destroy()),
        }
    }

    fn start_process(&mut self, client: u64, spec: &ProcessSpec) -> ShimReply {
        let known = self.running.len() + self.exits.kept().len();
        let refusal = if self.init_is_gone {
            Some("the container is gone".to_owned())
        } else if self.running.contains_key(&spec.id) || self.exits.kept().contains_key(&spec.id) {
            Some(format!("there is a process {} already", spec.id))
        } else if self.running.len() >= RUNNING {
            Some(format!("{RUNNING} processes are running, the limit"))
        } else if spec.terminal.is_some() && self.clients.len() > CLIENTS - AGENTS {
            Some(format!("{} are connected; the other places are for agents", self.clients.len()))
        } else if known >= PROCESSES {
            let ended = self.exits.kept().len();
            Some(format!(
                "{known} processes are known, the limit; forget some of {ended} that ended"
            ))
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return ShimReply::Failed(refusal);
        }
        let oom_kills = self.container.cgroup.oom_kills();
        let outlives = match spec.output {
            OutputTarget::Capture => Durability::Programs,
            OutputTarget::Log | OutputTarget::Discard => Durability::Machine,
        };
        let place = TerminalTarget { init: self.container.init, owner: self.owner, client };
        let started =
            ProcessOutput::new(spec, place, &self.nothing).and_then(|(outlet, streams)| {
                let pid = process::spawn(&self.container, spec, &self.filters, &streams)?;
                Ok(Process { pid, oom_kills, outlives, outlet })
            });
        answer(started.map(|process| drop(self.running.insert(spec.id, process))))
    }

    fn terminal(
        &mut self,
        client: u64,
        id: u32,
        act: impl FnOnce(&mut Terminal) -> io::Result<()>,
    ) -> ShimReply {
        let found = self.running.get_mut(&id).and_then(|it| it.outlet.terminal.as_mut());
        match found {
            Some(terminal) if terminal.client == client => answer(act(terminal)),
            Some(_) | None => ShimReply::Failed(format!("no process {id} has a terminal of yours")),
        }
    }

    fn signal(&self, id: u32, signal: i32) -> ShimReply {
        match self.running.get(&id) {
            // It is our child and not reaped yet, so the number is still its own.
            Some(process) => answer(sys::signal_group(process.pid, signal)),
            None => ShimReply::Failed(format!("no process {id} is running")),
        }
    }

    fn status(&self) -> Status {
        Status {
            init: if self.init_is_gone { 0 } else { self.container.init },
            running: self.running.keys().copied().collect(),
            exited: self.exits.kept().values().cloned().collect(),
            notes: self.container.notes.clone(),
        }
    }

    fn destroy(&mut self) -> io::Result<()> {
        if !self.init_is_gone {
            sys::signal(self.container.pidfd.as_fd(), libc::SIGKILL)?;
        }
        // The first process ends last: the kernel holds it until all others are reaped, which is for
        // us to do with those that we started.
        let deadline = Instant::now() + PATIENCE;
        while !self.init_is_gone {
            if Instant::now() > deadline {
                return Err(io::Error::other("the container's processes do not end"));
            }
            sys::poll(&[(self.children.as_raw_fd(), libc::POLLIN)], Some(PATIENCE))?;
            self.reap();
        }
        self.container.cgroup.destroy()?;
        self.reap();
        mounts::remove(Path::new("."))?;
        // A quota that cannot be lifted is set anew by the next container with these ids.
        let _ = self.container.disk.clear();
        Ok(())
    }
}

fn answer(done: io::Result<()>) -> ShimReply {
    match done {
        Ok(()) => ShimReply::Done,
        Err(error) => ShimReply::Failed(error.to_string()),
    }
}

/// Whoever asked for these terminals is gone: without its terminal, a session is told to end.
fn hang_up(running: &mut BTreeMap<u32, Process>, client: u64) {
    for process in running.values_mut() {
        if process.outlet.terminal.as_ref().is_some_and(|it| it.client == client) {
            process.outlet.terminal = None;
            let _ = sys::signal_group(process.pid, libc::SIGHUP);
        }
    }
}
