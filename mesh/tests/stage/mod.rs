//! What tests with real members share: a cluster with its authority in a temporary folder, members
//! with runtimes of their own (so that one can be killed without a word), and waiting.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use volvox_mesh::driver::{MemberView, Mesh, MeshConfig, enrolment, join};
use volvox_mesh::identity::{MemberId, MemberKind};
use volvox_mesh::member::MemberState;
use volvox_mesh::profile::Profile;
use volvox_mesh::request::{Request, Router, Service};
use volvox_mesh::tls::authority::{Authority, VALIDITY};
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::{Credentials, MemberFolder};
use volvox_mesh::tls::registry::{NameConflict, TokenOrder};
use volvox_mesh::tls::token::JoinToken;
use volvox_protocol::id::CellId;

/// Long enough for a busy machine. No test waits so long unless it fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster's authority, and a place for everybody's folders.
pub struct Cluster {
    pub folder: tempfile::TempDir,
    pub authority: Arc<Mutex<Authority>>,
}

impl Cluster {
    pub fn new() -> Cluster {
        Cluster::with_validity(VALIDITY)
    }

    pub fn with_validity(validity: Duration) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let authority =
            Authority::open(system_clock()(), &folder.path().join("authority"), validity).unwrap();
        Cluster { folder, authority: Arc::new(Mutex::new(authority)) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of a coordinator that has its certificate.
    pub fn appoint(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let folder = MemberFolder::open(&path).unwrap();
        let key = folder.joining_key().unwrap();
        let mut authority = self.authority.lock().unwrap();
        let name = CellId::new(name).unwrap();
        let now = system_clock()();
        let issued = authority.appoint(
            now,
            MemberKind::Coordinator,
            name,
            key.public(),
            NameConflict::Refuse,
        );
        let issued = issued.unwrap();
        let ca = authority.ca().clone();
        folder.store(&Credentials::new(key, issued.certificate, ca).unwrap()).unwrap();
        path
    }

    pub fn token(&self, at: &[SocketAddr], uses: u32) -> JoinToken {
        let order = TokenOrder {
            kind: MemberKind::Cell,
            cell: None,
            clash: NameConflict::Refuse,
            uses,
            lifetime: Duration::from_secs(3_600),
            label: "test".to_owned(),
        };
        let addresses: Vec<String> = at.iter().map(ToString::to_string).collect();
        self.authority.lock().unwrap().create_token(system_clock()(), addresses, order).unwrap()
    }

    pub fn config(&self, name: &str, seeds: &[SocketAddr]) -> MeshConfig {
        MeshConfig {
            folder: self.path(name),
            listen: loopback(),
            advertise: None,
            profile: Profile::lan(),
            seeds: seeds.iter().map(ToString::to_string).collect(),
            enrolment: None,
        }
    }

    pub fn coordinator(&self, name: &str) -> Running {
        self.appoint(name);
        self.coordinator_again(name, loopback(), &[])
    }

    pub fn coordinator_again(
        &self,
        name: &str,
        listen: SocketAddr,
        seeds: &[SocketAddr],
    ) -> Running {
        let enrolment = Some(enrolment(self.authority.clone()));
        let config = MeshConfig { enrolment, listen, ..self.config(name, seeds) };
        Running::start(config, Arc::new(Router::new()))
    }

    /// A cell that joins with a token of its own, then starts.
    pub fn cell(&self, name: &str, coordinator: &Running) -> Running {
        self.cell_with(name, coordinator, Arc::new(Router::new()), |config| config)
    }

    pub fn cell_with(
        &self,
        name: &str,
        coordinator: &Running,
        service: Arc<dyn Service>,
        change: impl FnOnce(MeshConfig) -> MeshConfig,
    ) -> Running {
        let at = coordinator.mesh.listens_at();
        self.join(name, &self.token(&[at], 1));
        Running::start(change(self.config(name, &[at])), service)
    }

    pub fn join(&self, name: &str, token: &JoinToken) -> Credentials {
        let folder = MemberFolder::open(&self.path(name)).unwrap();
        let name = CellId::new(name).unwrap();
        block_on(join(token, MemberKind::Cell, &name, &folder)).unwrap()
    }

    /// A cell that has its certificate starts again.
    pub fn again(&self, name: &str, seeds: &[SocketAddr]) -> Running {
        Running::start(self.config(name, seeds), Arc::new(Router::new()))
    }
}

/// A member that runs, on a thread of its own.
pub struct Running {
    pub mesh: Mesh,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Running {
    pub fn start(config: MeshConfig, service: Arc<dyn Service>) -> Running {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let mesh = runtime.block_on(Mesh::start(config, service)).unwrap();
        Running { mesh, runtime: Some(runtime) }
    }

    pub fn id(&self) -> MemberId {
        self.mesh.me().member
    }

    pub fn at(&self) -> SocketAddr {
        self.mesh.listens_at()
    }

    /// Ends without a word: no packet of it leaves the machine any more, and nothing of it writes to
    /// its folder, as after a kill.
    pub fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_timeout(PATIENCE);
    }

    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.as_ref().unwrap().block_on(future)
    }

    pub fn members(&self) -> Vec<MemberView> {
        self.block_on(self.mesh.members()).unwrap()
    }

    /// The names of those that are present here, in order.
    pub fn present(&self) -> Vec<String> {
        let all = self.members().into_iter().filter(|m| m.state == MemberState::Present);
        let mut names: Vec<_> = all.map(|m| m.identity.name.as_str().to_owned()).collect();
        names.sort();
        names
    }

    /// Waits until exactly these are present.
    pub fn wait_for(&self, names: &[&str]) {
        let mut wanted: Vec<&str> = names.to_vec();
        wanted.sort_unstable();
        wait(
            || self.present() == wanted,
            || format!("{} sees {:?}, not {wanted:?}", self.mesh.me().name, self.present()),
        );
    }
}

/// A question for tests.
#[derive(Serialize, Deserialize)]
pub struct Double(pub u32);

impl Request for Double {
    const METHOD: u16 = 7;
    const NAME: &'static str = "double";
    type Reply = u32;
}

/// Answers it.
pub fn doubler() -> Arc<Router> {
    Arc::new(Router::new().on(|_, Double(number), _| async move { Ok(number * 2) }))
}

pub fn loopback() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Waits for a condition; after [`PATIENCE`] it fails and says what it saw.
pub fn wait(mut condition: impl FnMut() -> bool, story: impl Fn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain: {}", story());
        block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
    }
}

pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
