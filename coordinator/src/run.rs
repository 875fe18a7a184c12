//! A coordinator at work: builds the parts, joins them, and takes them down in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context as _;
use tokio::task::JoinHandle;
use volvox_host::sync::lock;
use volvox_mesh::driver as mesh;
use volvox_mesh::identity::MemberKind;
use volvox_mesh::tls::authority::Authority;
use volvox_mesh::tls::config::system_clock;
use volvox_mesh::tls::credentials::{Credentials, MemberFolder};
use volvox_mesh::tls::registry::NameConflict;
use volvox_mesh::tls::token::JoinToken;

use crate::api::access::{Access, TokenFile};
use crate::api::audit::Audit;
use crate::api::expelled;
use crate::api::listen::{self, Listener};
use crate::api::tls::Tls;
use crate::api::{Api, Parts, tls};
use crate::bbs::command::{CallError, Command};
use crate::bbs::hub::Hub;
use crate::callback::http::CallbackClient;
use crate::config::CoordinatorConfig;
use crate::core::{Converge, CoreSettings};
use crate::driver::cells::{self, Cells};
use crate::driver::{Bbs, some_number};

/// The folder of the authority, in the data folder.
pub const AUTHORITY: &str = "authority";
/// The folder of our own membership, in the data folder.
pub(crate) const MEMBER: &str = "member";

/// A coordinator at work.
pub struct Coordinator {
    api: Arc<Api>,
    bbs: Bbs,
    cells: Cells,
    addresses: Vec<SocketAddr>,
    admin_token: PathBuf,
    serving: JoinHandle<()>,
    /// The last commit that the watchdog saw.
    seen: AtomicU64,
}

/// Starts everything. When this comes back, calls are served.
pub async fn start(config: CoordinatorConfig, join: Option<&str>) -> anyhow::Result<Coordinator> {
    let clock = system_clock();
    raise_descriptor_limit();
    let hub = Hub::new(some_number(), config.memory);
    let client = CallbackClient::new(&config.callbacks)?;
    // First: it takes the lock of the data folder, so everything in it is ours from here on.
    let (folder, board, subscribers) = (config.data_dir.clone(), config.board.clone(), hub.clone());
    let settings = CoreSettings {
        converge: Converge::Itself(config.full_pass),
        cells: config.cells.clone(),
        auction: config.auction.clone(),
        callbacks: config.callbacks.clone(),
    };
    let opening = move || Bbs::open(&folder, board, settings, subscribers, Some(client));
    let bbs = tokio::task::spawn_blocking(opening).await?.context("open the board")?;
    let report = bbs.load_report();
    tracing::info!(?report, "the board is open");

    let tokens = TokenFile::of(&config.data_dir);
    let admin_token = tokens.ensure_admin(clock()).context("make the admin's token")?;
    let access = Access::open(tokens, config.certificates.clone()).context("read the tokens")?;
    let (file_bytes, files) = config.audit;
    let audit = Audit::open(&config.data_dir, file_bytes, files).context("open the audit")?;

    let authority = membership(&config, join).await?;
    let revoked = authority.as_ref().map(|authority| {
        let authority = lock(authority);
        expelled(clock(), &authority)
    });
    let member = mesh::MeshConfig {
        folder: config.data_dir.join(MEMBER),
        listen: config.mesh_listen,
        advertise: config.mesh_advertise,
        profile: config.profile.clone(),
        seeds: config.seeds.clone(),
        enrolment: authority.clone().map(mesh::enrolment),
    };
    let cells = cells::start(&config.cells, member, &bbs).await.context("join the mesh")?;
    if let Some(revoked) = revoked {
        cells.mesh().revoke(revoked).await.context("tell the mesh who is expelled")?;
    }

    let (listeners, tls) = listeners(&config)?;
    let addresses: Vec<SocketAddr> = listeners.iter().filter_map(Listener::address).collect();
    let api = Api::new(Parts {
        bbs: bbs.clone(),
        hub,
        access,
        audit,
        limits: config.limits,
        cells: Some(cells.clone()),
        authority,
        data_dir: config.data_dir.clone(),
        tls,
    });
    api.set_ready();
    let serving = tokio::spawn(listen::serve(Arc::clone(&api), listeners, config.grace));
    tracing::info!(?addresses, socket = %config.socket.display(), "the API is served");
    let seen = AtomicU64::new(0);
    Ok(Coordinator { api, bbs, cells, addresses, admin_token, serving, seen })
}

impl Coordinator {
    /// Where the API is served.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The file with a token of the role admin.
    pub fn admin_token(&self) -> &PathBuf {
        &self.admin_token
    }

    /// The cells.
    pub fn cells(&self) -> &Cells {
        &self.cells
    }

    /// The board.
    pub fn bbs(&self) -> &Bbs {
        &self.bbs
    }

    /// Whether the board still does what it is told: for a watchdog.
    pub async fn is_well(&self, patience: Duration) -> bool {
        let asked = self.bbs.ask(Command::ConvergeDue);
        let Ok(answer) = tokio::time::timeout(patience, asked).await else { return false };
        let (_, commit) = self.bbs.view().snapshot_at();
        let got_on = self.seen.swap(commit, Ordering::Relaxed) != commit;
        match answer {
            // A full disk is trouble, and not a reason to be killed for.
            Ok(_) | Err(CallError::Rejected(_) | CallError::Store(_)) => true,
            // A queue that is full and gets on is work; one that does not is the end.
            Err(CallError::Busy) => got_on,
            Err(CallError::Closed) => false,
        }
    }

    /// Takes everything down: no new calls, those under way are finished, a goodbye to the mesh, and
    /// the board last.
    pub async fn stop(self) {
        self.api.stop();
        if self.serving.await.is_err() {
            tracing::error!("serving the API has panicked");
        }
        self.bbs.stop_callbacks();
        self.cells.stop().await;
        let Coordinator { api, bbs, cells, .. } = self;
        drop(cells);
        // The last handle waits until the writer has finished what was in its queue.
        let closing = tokio::task::spawn_blocking(move || {
            drop(api);
            drop(bbs);
        });
        if closing.await.is_err() {
            tracing::error!("closing the board has panicked");
        }
    }
}

/// Sees to it that we are a member of a mesh: of one that we are let into by a join token, or of one
/// whose authority we are. The authority, if it is ours.
async fn membership(
    config: &CoordinatorConfig,
    join: Option<&str>,
) -> anyhow::Result<Option<Arc<Mutex<Authority>>>> {
    let clock = system_clock();
    let folder =
        MemberFolder::open(&config.data_dir.join(MEMBER)).context("open the membership")?;
    let path = config.data_dir.join(AUTHORITY);
    let is_member = config.data_dir.join(MEMBER).join("member.pem").exists();
    if let (Some(line), false) = (join, is_member) {
        anyhow::ensure!(
            !path.exists(),
            "{} has an authority of its own: it cannot join another mesh",
            config.data_dir.display()
        );
        let token = JoinToken::parse(line.trim()).context("the join token")?;
        mesh::join(&token, MemberKind::Coordinator, &config.name, &folder).await.context("join")?;
        return Ok(None);
    }
    if is_member && !path.exists() {
        return Ok(None);
    }
    let mut authority =
        Authority::open(clock(), &path, config.validity).context("open the cluster's authority")?;
    if !is_member {
        let key = folder.joining_key()?;
        let name = config.name.clone();
        let issued = authority.appoint(
            clock(),
            MemberKind::Coordinator,
            name,
            key.public(),
            NameConflict::Replace,
        )?;
        let ca = authority.ca().clone();
        folder.store(&Credentials::new(key, issued.certificate, ca)?)?;
    }
    Ok(Some(Arc::new(Mutex::new(authority))))
}

/// Where the API listens, and what it shows who it is with, if anywhere.
fn listeners(config: &CoordinatorConfig) -> anyhow::Result<(Vec<Listener>, Option<Arc<Tls>>)> {
    let needs_tls = |address: &SocketAddr| config.tls_on_loopback || !address.ip().is_loopback();
    let tls = if config.listen.iter().any(needs_tls) {
        Some(tls::config(&config.data_dir, &config.certificate, config.client_ca.as_deref())?)
    } else {
        None
    };
    let mut listeners = vec![Listener::unix(&config.socket)?];
    for address in &config.listen {
        let tls = tls.clone().filter(|_| needs_tls(address));
        listeners.push(Listener::tcp(*address, tls)?);
    }
    Ok((listeners, tls))
}

/// As many descriptors as the system lets us have: each connection is one.
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard));
    if let Err(error) = raised {
        tracing::warn!(%error, "the limit of descriptors stays as it is");
    }
}
