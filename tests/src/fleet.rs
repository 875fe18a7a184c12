//! A fleet in one process: the real board, the real mesh over QUIC on loopback with real certificates,
//! the real coordinator's side, and cells whose containers are simulated ([`rep`]).
//!
//! For tests and for the benchmark. A cell with a runtime of its own can be killed: it says nothing
//! any more, as after kill -9. Many cells that need not be killed share one.

pub mod rep;
pub mod streams;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle, Runtime};
use volvox_coordinator::bbs::command::{CallError, Command, Reply};
use volvox_coordinator::bbs::settings::BoardSettings;
use volvox_coordinator::bbs::state::Records;
use volvox_coordinator::cells::settings::CellsSettings;
use volvox_coordinator::core::{CoreSettings, Traces};
use volvox_coordinator::driver::cells::{self, Cells};
use volvox_coordinator::driver::{Bbs, Subscribers};
use volvox_host::sync::{lock, unpoisoned};
use volvox_mesh::driver::{Mesh, MeshConfig, enrolment, join};
use volvox_mesh::identity::MemberKind;
use volvox_mesh::profile::Profile;
use volvox_mesh::tls::authority::{Authority, VALIDITY};
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::{Credentials, MemberFolder};
use volvox_mesh::tls::registry::NameConflict;
use volvox_mesh::tls::token::JoinToken;
use volvox_protocol::cell::CellCapacity;
use volvox_protocol::event::Event;
use volvox_protocol::id::CellId;

use self::rep::{Deed, Look, Rep, Stats};
use self::streams::FakeStreams;

/// The authority of a cluster, and a place for everybody's folders.
pub struct Cluster {
    folder: tempfile::TempDir,
    authority: Arc<Mutex<Authority>>,
}

impl Cluster {
    /// A new cluster, in a temporary folder.
    pub fn new() -> anyhow::Result<Cluster> {
        let folder = tempfile::tempdir()?;
        let place = folder.path().join("authority");
        let authority = Authority::open(system_clock()(), &place, VALIDITY)?;
        Ok(Cluster { folder, authority: Arc::new(Mutex::new(authority)) })
    }

    /// The folder of a member. It gets a certificate if it has none.
    pub fn appoint(&self, kind: MemberKind, name: &str) -> anyhow::Result<PathBuf> {
        let path = self.folder.path().join(name);
        if path.exists() {
            return Ok(path);
        }
        let folder = MemberFolder::open(&path)?;
        let key = folder.joining_key()?;
        let name = CellId::new(name)?;
        let mut authority = lock(&self.authority);
        let issued =
            authority.appoint(system_clock()(), kind, name, key.public(), NameConflict::Refuse)?;
        let ca = authority.ca().clone();
        folder.store(&Credentials::new(key, issued.certificate, ca)?)?;
        Ok(path)
    }

    /// Where the board of a coordinator is kept.
    pub fn board(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}-board"))
    }
}

/// How a coordinator is started.
#[derive(Clone)]
pub struct Plan {
    /// Its name: the next one with the same name has its certificate and its board.
    pub name: String,
    /// Where it listens: a restarted one where the last one did.
    pub listen: SocketAddr,
    /// Its cells.
    pub cells: CellsSettings,
    /// Its board.
    pub board: BoardSettings,
    /// Threads of its runtime.
    pub threads: usize,
    /// While somebody holds this, the board's writer stands still after a commit that desires a process.
    pub brake: Arc<Mutex<()>>,
}

impl Default for Plan {
    fn default() -> Self {
        let settle_after = Duration::from_millis(500);
        Plan {
            name: "coordinator".to_owned(),
            listen: ([127, 0, 0, 1], 0).into(),
            cells: CellsSettings { settle_after, ..CellsSettings::default() },
            board: BoardSettings::default(),
            threads: 2,
            brake: Arc::default(),
        }
    }
}

/// A coordinator without its API.
pub struct Coordinator {
    bbs: Bbs,
    cells: Cells,
    came_up: Arc<CameUp>,
    runtime: Option<Runtime>,
}

/// How many instances have come to run, for those who wait for it.
#[derive(Debug, Default)]
pub struct CameUp {
    count: Mutex<u64>,
    more: Condvar,
}

impl CameUp {
    /// How many so far.
    pub fn count(&self) -> u64 {
        *lock(&self.count)
    }

    /// Waits until there are so many; false: that took longer than `patience`.
    pub fn wait_for(&self, count: u64, patience: Duration) -> bool {
        let so_far = lock(&self.count);
        let waited = self.more.wait_timeout_while(so_far, patience, |so_far| *so_far < count);
        let (so_far, _) = unpoisoned(waited);
        *so_far >= count
    }

    fn hear(&self, events: &[Event]) {
        let came_up = events.iter().filter(|event| match event {
            Event::InstanceChanged(before, after) => {
                after.state.is_running() && !before.state.is_running()
            }
            Event::InstanceCreated(after) => after.state.is_running(),
            _ => false,
        });
        let came_up = came_up.count() as u64;
        if came_up > 0 {
            *lock(&self.count) += came_up;
            self.more.notify_all();
        }
    }
}

struct Listens {
    brake: Arc<Mutex<()>>,
    came_up: Arc<CameUp>,
}

impl Subscribers for Listens {
    fn tell(&mut self, _: u64, events: Vec<Event>, _: Traces) {
        self.came_up.hear(&events);
        if events.iter().any(|event| matches!(event, Event::DesiredLrpCreated(_))) {
            drop(lock(&self.brake));
        }
    }

    fn resync(&mut self, _: u64) {}
}

impl Coordinator {
    /// Starts one. Its board may have records from before.
    pub fn start(cluster: &Cluster, plan: &Plan) -> anyhow::Result<Coordinator> {
        let folder = cluster.appoint(MemberKind::Coordinator, &plan.name)?;
        let runtime =
            Builder::new_multi_thread().worker_threads(plan.threads).enable_all().build()?;
        let board = cluster.board(&plan.name);
        std::fs::create_dir_all(&board)?;
        let came_up = Arc::new(CameUp::default());
        let (brake, heard) = (Arc::clone(&plan.brake), Arc::clone(&came_up));
        let listens = Listens { brake, came_up: heard };
        let settings = CoreSettings { cells: plan.cells.clone(), ..CoreSettings::default() };
        let bbs = Bbs::open(&board, plan.board.clone(), settings, listens, None)?;
        let config = MeshConfig {
            folder,
            listen: plan.listen,
            advertise: None,
            profile: Profile::lan(),
            seeds: Vec::new(),
            enrolment: Some(enrolment(Arc::clone(&cluster.authority))),
        };
        let cells = runtime.block_on(cells::start(&plan.cells, config, &bbs))?;
        Ok(Coordinator { bbs, cells, came_up, runtime: Some(runtime) })
    }

    /// The board.
    pub fn bbs(&self) -> &Bbs {
        &self.bbs
    }

    /// Its side of the cells.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// What has come to run.
    pub fn came_up(&self) -> &CameUp {
        &self.came_up
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.cells.mesh().listens_at()
    }

    /// What readers see.
    pub fn records(&self) -> Arc<Records> {
        self.bbs.view().snapshot()
    }

    /// Has a command carried out.
    pub fn call(&self, command: Command) -> Result<Reply, CallError> {
        self.bbs.call(command)
    }

    /// Runs a future where the coordinator runs.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> anyhow::Result<T> {
        let runtime = self.runtime.as_ref().context("the coordinator was killed")?;
        Ok(runtime.block_on(future))
    }

    /// Ends as it should: sends what waits, says goodbye, closes the board.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.block_on(self.cells.stop())?;
        // What is left of it must not keep the board open.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
        Ok(())
    }

    /// Ends without a word. The board's file is closed: that a process was killed with it open is
    /// tested elsewhere.
    pub fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(10));
        }
    }
}

/// How a cell is started, and how it behaves.
#[derive(Debug, Clone)]
pub struct CellPlan {
    /// Its id: the next one with the same has its certificate, and begins empty.
    pub name: String,
    /// Its zone.
    pub zone: String,
    /// All of its room.
    pub capacity: CellCapacity,
    /// How long a container takes to run.
    pub start_takes: Duration,
    /// How long a task runs.
    pub task_takes: Duration,
    /// Says that it has room, and takes no work all the same.
    pub refuses_work: bool,
    /// Pace of its mesh.
    pub profile: Profile,
}

impl CellPlan {
    /// A cell of that name with much room, whose containers start at once and whose tasks run long.
    pub fn named(name: &str) -> CellPlan {
        CellPlan {
            name: name.to_owned(),
            zone: "z1".to_owned(),
            capacity: CellCapacity { memory_mb: 65_536, disk_mb: 262_144, containers: 250 },
            start_takes: Duration::ZERO,
            task_takes: Duration::from_secs(86_400),
            refuses_work: false,
            profile: Profile::lan(),
        }
    }
}

/// A cell with simulated containers.
pub struct FakeCell {
    id: CellId,
    mesh: Mesh,
    deeds: tokio::sync::mpsc::Sender<Deed>,
    stats: Arc<Stats>,
    streams: Arc<FakeStreams>,
    runtime: Option<Runtime>,
}

impl FakeCell {
    /// Starts one with a runtime of its own, so that it can be killed.
    pub fn start(cluster: &Cluster, at: SocketAddr, plan: CellPlan) -> anyhow::Result<FakeCell> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let handle = runtime.handle().clone();
        let stats = Arc::new(Stats::default());
        let mut cell = FakeCell::start_on(&handle, cluster, at, plan, stats)?;
        cell.runtime = Some(runtime);
        Ok(cell)
    }

    /// Starts one on a runtime that it shares with others, and whose figures it shares.
    pub fn start_on(
        runtime: &Handle,
        cluster: &Cluster,
        at: SocketAddr,
        plan: CellPlan,
        stats: Arc<Stats>,
    ) -> anyhow::Result<FakeCell> {
        let folder = cluster.appoint(MemberKind::Cell, &plan.name)?;
        FakeCell::serve(runtime, folder, vec![at.to_string()], plan, stats)
    }

    /// Joins by the line of a join token, as a machine does: for a coordinator that has an authority
    /// of its own. It has a runtime of its own, and keeps its membership in `folder`.
    pub fn join(line: &str, folder: &Path, plan: CellPlan) -> anyhow::Result<FakeCell> {
        let token = JoinToken::parse(line)?;
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (id, member) = (CellId::new(&plan.name)?, MemberFolder::open(folder)?);
        runtime.block_on(join(&token, MemberKind::Cell, &id, &member))?;
        drop(member);
        let (handle, stats) = (runtime.handle().clone(), Arc::new(Stats::default()));
        let (folder, seeds) = (folder.to_path_buf(), token.addresses().to_vec());
        let mut cell = FakeCell::serve(&handle, folder, seeds, plan, stats)?;
        cell.runtime = Some(runtime);
        Ok(cell)
    }

    fn serve(
        runtime: &Handle,
        folder: PathBuf,
        seeds: Vec<String>,
        plan: CellPlan,
        stats: Arc<Stats>,
    ) -> anyhow::Result<FakeCell> {
        let id = CellId::new(&plan.name)?;
        let config = MeshConfig {
            folder,
            listen: ([127, 0, 0, 1], 0).into(),
            advertise: None,
            profile: plan.profile.clone(),
            seeds,
            enrolment: None,
        };
        let (deeds, inbox) = rep::channel();
        let streams = Arc::new(FakeStreams::default());
        let service = Arc::new(streams::register(rep::router(deeds.clone()), &streams));
        let (mesh, rep) = runtime.block_on(async {
            let mesh = Mesh::start(config, service).await?;
            let rep = Rep::new(id.clone(), plan, mesh.clone(), deeds.clone(), Arc::clone(&stats));
            anyhow::Ok((mesh, rep))
        })?;
        let events = mesh.subscribe();
        runtime.spawn(rep.run(inbox, events));
        Ok(FakeCell { id, mesh, deeds, stats, streams, runtime: None })
    }

    /// Which cell it is.
    pub fn id(&self) -> &CellId {
        &self.id
    }

    /// Its member of the mesh, to misuse.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// What it counts.
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// Its logs and terminals.
    pub fn streams(&self) -> &Arc<FakeStreams> {
        &self.streams
    }

    /// What it has now. Nothing, if it was killed.
    pub fn look(&self) -> Look {
        let (reply, look) = tokio::sync::oneshot::channel();
        let sent = self.deeds.blocking_send(Deed::Look(reply));
        sent.ok().and_then(|()| look.blocking_recv().ok()).unwrap_or_default()
    }

    /// Tells it to do something.
    pub fn tell(&self, deed: Deed) {
        let _ended = self.deeds.blocking_send(deed);
    }

    /// Runs a future where the cell runs, if it has a runtime of its own.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> anyhow::Result<T> {
        let runtime = self.runtime.as_ref().context("the cell has no runtime of its own")?;
        Ok(runtime.block_on(future))
    }

    /// Stops its only thread: it does nothing and answers nobody, until what is given back is dropped.
    pub fn freeze(&self) -> anyhow::Result<Frozen> {
        let runtime = self.runtime.as_ref().context("the cell has no runtime of its own")?;
        let (frozen, thaw) = std::sync::mpsc::channel::<()>();
        runtime.spawn(async move {
            let _thawed = thaw.recv();
        });
        Ok(Frozen(frozen))
    }

    /// Ends without a word: no packet of it leaves the machine any more.
    pub fn kill(mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A cell that stands still until this is dropped.
#[derive(Debug)]
pub struct Frozen(
    #[expect(dead_code, reason = "dropping it is what it is for")] std::sync::mpsc::Sender<()>,
);
