//! A whole cell in a test: a real executor on a real machine, in a network namespace of its own, so
//! that any number can run at once.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use volvox_agent::container::guid::ContainerGuid;
use volvox_agent::container::spec::LogLimits;
use volvox_agent::executor::driver::ExecutorHandle;
use volvox_agent::executor::logic::{ContainerView, ExecutorSettings, ReservationRequest};
use volvox_agent::executor::store::ContainerRecords;
use volvox_agent::executor::workload::{Owner, Workload};
use volvox_agent::image::extract::Ownership;
use volvox_agent::image::fetch::FetchConfig;
use volvox_agent::image::limits::UnpackLimits;
use volvox_agent::image::rootfs::{HostRoot, RootfsConfig};
use volvox_agent::runtime::machine::{Machine, MachineConfig, ShimTimeouts};
use volvox_agent::runtime::net::netlink::Socket;
use volvox_agent::runtime::net::{NetworkConfig, link};
use volvox_agent::runtime::shim::Shims;
use volvox_agent::runtime::transfer::TransferConfig;
use volvox_protocol::action::{Action, RunAction};
use volvox_protocol::actual_lrp::LrpKey;
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::container::{ContainerState, RunResult};
use volvox_protocol::definition::LrpDefinition;
use volvox_protocol::id::{CellId, Domain, InstanceGuid, ProcessGuid, TaskGuid};
use volvox_protocol::task::TaskDefinition;

use crate::stage::{can_run, pause};

/// How long anything may take before a test has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something to become true, not for ever.
pub(crate) fn until<T>(what: &str, mut holds: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = holds() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        pause();
    }
}

pub(crate) struct Cell {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) config: MachineConfig,
    pub(crate) settings: ExecutorSettings,
    pub(crate) executor: Option<ExecutorHandle>,
    prefix: String,
}

impl Cell {
    /// A cell, or nothing where there can be none.
    pub(crate) fn new(name: &str) -> Option<Cell> {
        Cell::with(name, |_, _| {})
    }

    pub(crate) fn with(
        name: &str,
        change: impl FnOnce(&mut MachineConfig, &mut ExecutorSettings),
    ) -> Option<Cell> {
        if !can_run(name) {
            return None;
        }
        // Threads and programs that are started from here on are in this network too.
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let mut route = Socket::route().unwrap();
        let loopback = link::named(&mut route, "lo").unwrap().unwrap().index;
        link::set_up(&mut route, loopback).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path().file_name().unwrap().to_str().unwrap();
        let prefix = prefix.trim_start_matches('.').to_owned();
        let mut config = machine(folder.path());
        let capacity = CellCapacity { memory_mb: 4_000, disk_mb: 4_000, containers: 50 };
        let mut settings = ExecutorSettings::new(CellId::new("cell").unwrap(), capacity);
        settings.steps.graceful_shutdown_interval = Duration::from_secs(2);
        change(&mut config, &mut settings);
        let mut cell = Cell { folder, config, settings, executor: None, prefix };
        cell.open();
        Some(cell)
    }

    /// Starts the executor, or starts it again.
    pub(crate) fn open(&mut self) {
        self.executor = None;
        let records = ContainerRecords::open(&self.folder.path().join("run")).unwrap();
        let machine = Machine::open(self.config.clone()).unwrap();
        self.executor =
            Some(ExecutorHandle::open(self.settings.clone(), records, machine).unwrap());
    }

    pub(crate) fn executor(&self) -> &ExecutorHandle {
        self.executor.as_ref().unwrap()
    }

    fn start(&self, owner: Owner, work: Workload) -> ContainerGuid {
        let guid = owner.container();
        let wanted = ReservationRequest { owner, resources: work.resources() };
        assert_eq!(self.executor().reserve(vec![wanted]).unwrap(), Vec::new());
        self.executor().run(guid.clone(), work).unwrap();
        guid
    }

    /// An instance with this definition.
    pub(crate) fn work(&self, name: &str, definition: LrpDefinition) -> (Owner, Workload) {
        let key = LrpKey {
            process_guid: ProcessGuid::new("process").unwrap(),
            index: 3,
            domain: Domain::new("domain").unwrap(),
            definition_id: None,
        };
        let instance = InstanceGuid::new(&format!("{}-{name}", self.prefix)).unwrap();
        (Owner::Lrp { key, instance }, Workload::Lrp(Arc::new(definition)))
    }

    pub(crate) fn start_lrp(&self, name: &str, definition: LrpDefinition) -> ContainerGuid {
        let (owner, work) = self.work(name, definition);
        self.start(owner, work)
    }

    pub(crate) fn start_task(&self, name: &str, definition: TaskDefinition) -> ContainerGuid {
        let guid = TaskGuid::new(&format!("{}-{name}", self.prefix)).unwrap();
        let domain = Domain::new("domain").unwrap();
        self.start(Owner::Task { guid, domain }, Workload::Task(Arc::new(definition)))
    }

    pub(crate) fn view(&self, guid: &ContainerGuid) -> ContainerView {
        self.executor().container(guid.clone()).unwrap().expect("the container is there")
    }

    pub(crate) fn reaches(&self, guid: &ContainerGuid, state: ContainerState) -> ContainerView {
        until(&format!("{guid} is {state:?}"), || {
            let view = self.view(guid);
            let ended = view.container.state == ContainerState::Completed;
            assert!(
                !ended || state == ContainerState::Completed,
                "{guid} has ended: {:?}\n{}",
                view.container.result,
                self.log(guid),
            );
            (view.container.state == state).then_some(view)
        })
    }

    /// Waits until a container has completed: how it ended.
    pub(crate) fn ends(&self, guid: &ContainerGuid) -> RunResult {
        self.reaches(guid, ContainerState::Completed).container.result
    }

    /// A task from its start to its end: its result, what it left, its log.
    pub(crate) fn task(
        &self,
        name: &str,
        definition: TaskDefinition,
    ) -> (RunResult, String, String) {
        let guid = self.start_task(name, definition);
        let result = self.ends(&guid);
        let (left, log) = (self.view(&guid).task_result, self.log(&guid));
        self.executor().delete(guid).unwrap();
        (result, left, log)
    }

    pub(crate) fn container_folder(&self, guid: &ContainerGuid) -> PathBuf {
        self.config.state.join("containers").join(guid.as_str())
    }

    /// The lines of a container's log: source and text.
    pub(crate) fn log(&self, guid: &ContainerGuid) -> String {
        self.log_is_written(guid);
        let path = self.container_folder(guid).join("logs/0.log");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines = text.lines().map(|line| line.splitn(3, ' ').nth(2).unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The log, when this is in it. The executor's own lines are sent on another connection than the
    /// one on which the log is asked for: they may come later.
    #[track_caller]
    pub(crate) fn log_with(&self, guid: &ContainerGuid, wanted: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self.log(guid);
            if log.contains(wanted) {
                return log;
            }
            assert!(Instant::now() < deadline, "{wanted:?} is not in the log:\n{log}");
            pause();
        }
    }

    fn shims(&self) -> Shims {
        Shims::new(&self.config.state.join("containers"), &self.config.shim)
    }

    /// Waits until the shim has written all lines that it was given: who asks later is answered
    /// later.
    fn log_is_written(&self, guid: &ContainerGuid) {
        if let Ok(mut shim) = self.shims().attach(guid.as_str()) {
            shim.status().unwrap();
        }
    }

    /// The pid of a container's first process, and of its shim.
    pub(crate) fn pids(&self, guid: &ContainerGuid) -> (i32, i32) {
        let init = self.shims().attach(guid.as_str()).unwrap().status().unwrap().init;
        let stat = std::fs::read_to_string(format!("/proc/{init}/stat")).unwrap();
        let after = stat.rsplit(')').next().unwrap();
        (init, after.split_whitespace().nth(1).unwrap().parse().unwrap())
    }

    /// What is left on the machine that has our name on it.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        // Images are mounted for as long as the cell is there.
        let ours = mounts.lines().filter(|it| it.contains(&self.prefix));
        left.extend(ours.filter(|it| !it.contains("/layers/mounts/")).map(str::to_owned));
        for tree in std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten() {
            let ours = std::fs::read_dir(tree.path().join("volvox")).into_iter().flatten();
            let names = ours.flatten().map(|it| it.path().display().to_string());
            left.extend(names.filter(|it| it.contains(&self.prefix)));
        }
        let containers = std::fs::read_dir(self.config.state.join("containers"));
        let files = std::fs::read_dir(self.config.state.join("files"));
        for folder in [containers, files].into_iter().flatten() {
            left.extend(folder.flatten().map(|it| it.path().display().to_string()));
        }
        let links = link::list(&mut Socket::route().unwrap()).unwrap();
        let ours = links.into_iter().filter(|it| it.alias.contains(&self.prefix));
        left.extend(ours.map(|it| it.name));
        for process in std::fs::read_dir("/proc").unwrap().flatten() {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            if line.starts_with(self.config.shim.to_str().unwrap()) && line.contains(&self.prefix) {
                left.push(line);
            }
        }
        left
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return self.clear();
        }
        let Some(executor) = &self.executor else { return self.clear() };
        for view in executor.containers().unwrap() {
            executor.delete(view.container.guid).unwrap();
        }
        let room = executor.remaining().unwrap();
        assert_eq!(room, self.settings.capacity, "all room is back");
        until("nothing is left", || self.leftovers().is_empty().then_some(()));
        self.executor = None;
        Machine::remove(self.config.clone()).unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.prefix), "a mount is left:\n{mounts}");
    }
}

impl Cell {
    /// Ends what a test that has failed leaves.
    fn clear(&mut self) {
        self.executor = None;
        let shims = self.shims();
        for id in shims.list().unwrap_or_default() {
            if let Ok(shim) = shims.attach(&id) {
                let _ = shim.destroy();
            }
            let _ = shims.clear(&id);
        }
        shims.close();
    }
}

fn machine(folder: &Path) -> MachineConfig {
    let mut fetch = FetchConfig::default();
    // The servers of these tests are on the loopback.
    fetch.http.denied.clear();
    MachineConfig {
        state: folder.join("state"),
        shim: env!("CARGO_BIN_EXE_volvox-shim").into(),
        network: NetworkConfig {
            bridge: "volvoxt0".to_owned(),
            subnet: "10.77.0.0/24".parse().unwrap(),
            host_address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port_range: 61_000..=61_999,
            mtu: 1_500,
            deny: Vec::new(),
        },
        rootfs: RootfsConfig {
            preloaded: std::collections::BTreeMap::new(),
            host: HostRoot::At("/".into()),
            ownership: Ownership::Shifted { uid_offset: 0, gid_offset: 0, ids: 65_536 },
            limits: UnpackLimits::default(),
        },
        fetch,
        transfers: TransferConfig::default(),
        cache_bytes: 1 << 30,
        allow_privileged: false,
        certificates: None,
        log: LogLimits::default(),
        silence: ShimTimeouts::default(),
    }
}

pub(crate) fn run(path: &str, args: &[&str]) -> RunAction {
    RunAction {
        path: path.to_owned(),
        args: args.iter().map(|it| (*it).to_owned()).collect(),
        user: "vcap".to_owned(),
        log_source: "APP".to_owned(),
        ..RunAction::default()
    }
}

/// Runs a script.
pub(crate) fn sh(script: &str) -> Action {
    Action::Run(Box::new(run("/bin/sh", &["-c", script])))
}

pub(crate) fn task(action: Action) -> TaskDefinition {
    TaskDefinition {
        rootfs: "host:".to_owned(),
        action: Some(action),
        memory_mb: 64,
        disk_mb: 64,
        log_source: "TASK".to_owned(),
        ..TaskDefinition::default()
    }
}

pub(crate) fn lrp(action: Action) -> LrpDefinition {
    LrpDefinition {
        rootfs: "host:".to_owned(),
        action: Some(action),
        memory_mb: 64,
        disk_mb: 64,
        cpu_weight: 100,
        log_source: "LRP".to_owned(),
        ..LrpDefinition::default()
    }
}

/// Answers every request with 200 while there is no file `/tmp/bad`. Perl is on every Debian.
pub(crate) fn web() -> Action {
    let script = r#"
        use IO::Socket::INET;
        my $s = IO::Socket::INET->new(Listen => 128, LocalPort => 8080, ReuseAddr => 1) or die "$!";
        print "listening\n"; $| = 1;
        while (my $c = $s->accept) {
            while (my $l = <$c>) { last if $l =~ /^\r?\n$/ }
            my $status = -e "/tmp/bad" ? "503 Bad" : "200 OK";
            print $c "HTTP/1.1 $status\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
            close $c;
        }"#;
    Action::Run(Box::new(run("/usr/bin/perl", &["-e", script])))
}

/// Heads and bodies.
type Requests = Vec<(String, Vec<u8>)>;

/// A server on the loopback that gives one answer to every request and keeps the bodies it got.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) requests: Arc<Mutex<Requests>>,
}

impl Server {
    pub(crate) fn new(answer: Vec<u8>) -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), answer.clone());
                std::thread::spawn(move || serve(stream, &kept, &answer));
            }
        });
        Server { url, requests }
    }

    pub(crate) fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

fn serve(mut stream: std::net::TcpStream, kept: &Mutex<Requests>, answer: &[u8]) -> Option<()> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4_096];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break end + 4;
        }
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(0, |it| it.trim().parse().unwrap_or(0));
    while bytes.len() < end + length {
        let read = stream.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
    }
    kept.lock().unwrap().push((head.clone(), bytes[end..].to_vec()));
    if head.contains("if-none-match: \"one\"") {
        stream
            .write_all(b"HTTP/1.1 304 Not Modified\r\nETag: \"one\"\r\nConnection: close\r\n\r\n")
            .ok()?;
        return Some(());
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"one\"\r\nConnection: close\r\n\r\n",
        answer.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(answer).ok()
}

/// A tar archive of one file, made by hand.
pub(crate) fn tar(name: &str, text: &str) -> Vec<u8> {
    let mut header = [0_u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    for (at, field) in [
        (100, "0000644\0".to_owned()),
        (108, "0000000\0".to_owned()),
        (116, "0000000\0".to_owned()),
        (124, format!("{:011o}\0", text.len())),
        (136, "00000000000\0".to_owned()),
        (148, "        ".to_owned()),
        (156, "0".to_owned()),
        (257, "ustar\0".to_owned()),
        (263, "00".to_owned()),
    ] {
        header[at..at + field.len()].copy_from_slice(field.as_bytes());
    }
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let mut archive = header.to_vec();
    archive.extend_from_slice(text.as_bytes());
    archive.resize(archive.len().next_multiple_of(512) + 1_024, 0);
    archive
}
