//! The agent as a member of the mesh: joins, says what this cell is, hears which coordinator there is,
//! and hands the rep what it is ordered.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tracing::{error, info, warn};
use volvox_host::clock::wall;
use volvox_mesh::driver::{self, MemberView, Mesh};
use volvox_mesh::identity::{MemberId, MemberKind};
use volvox_mesh::member::{MemberEvent, MemberState};
use volvox_mesh::profile::Profile;
use volvox_mesh::request::{Router, RpcRefusal};
use volvox_mesh::tls::credentials::MemberFolder;
use volvox_mesh::tls::token::JoinToken;
use volvox_protocol::cell::{CellCapacity, CellInfo, RootfsProvider};
use volvox_protocol::cell_rpc::CellOrders;
use volvox_protocol::id::CellId;

use crate::rep::driver::RepHandle;

/// Where the addresses of the join token are kept, for the next start.
const SEEDS: &str = "seeds";

/// How this cell is in the mesh.
#[derive(Debug, Clone)]
pub struct AgentMeshConfig {
    /// Where key, certificate and known peers are kept.
    pub folder: PathBuf,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Where others reach it; none: it is found out.
    pub advertise: Option<SocketAddr>,
    /// The pace.
    pub profile: Profile,
    /// Others that may be there, besides those of the join token.
    pub seeds: Vec<String>,
    /// What the cell says of itself.
    pub info: CellFacts,
}

/// What a cell says of itself.
#[derive(Debug, Clone)]
pub struct CellFacts {
    /// Which cell.
    pub cell_id: CellId,
    /// Its zone.
    pub zone: String,
    /// All of its room.
    pub capacity: CellCapacity,
    /// The root file systems it can mount.
    pub rootfs_providers: Vec<RootfsProvider>,
    /// Only work that asks for all of these is placed here.
    pub placement_tags: Vec<String>,
    /// Work may ask for these.
    pub optional_placement_tags: Vec<String>,
    /// The operator's notes.
    pub annotations: BTreeMap<String, String>,
}

impl AgentMeshConfig {
    /// Whether this machine has joined.
    pub fn is_member(&self) -> bool {
        self.folder.join("member.pem").exists()
    }

    fn all_seeds(&self) -> Vec<String> {
        let kept = std::fs::read_to_string(self.folder.join(SEEDS)).unwrap_or_default();
        let kept = kept.lines().map(str::to_owned);
        let mut all: Vec<String> = self.seeds.iter().cloned().chain(kept).collect();
        all.dedup();
        all
    }
}

/// Joins with a token. May be repeated.
pub async fn join(config: &AgentMeshConfig, line: &str) -> anyhow::Result<()> {
    let token = JoinToken::parse(line.trim()).context("the join token")?;
    anyhow::ensure!(
        !config.is_member(),
        "{} is there: this machine is a member already; to join another cluster, stop the agent, \
         remove its containers (volvox-agent clean) and that folder",
        config.folder.display()
    );
    let folder = MemberFolder::open(&config.folder)?;
    let seeds = token.addresses().join("\n");
    let path = config.folder.join(SEEDS);
    std::fs::write(&path, seeds).with_context(|| format!("write {}", path.display()))?;
    driver::join(&token, MemberKind::Cell, &config.info.cell_id, &folder).await?;
    Ok(())
}

/// What other members may ask of this cell: orders of a coordinator. More can be added.
pub fn router(rep: RepHandle) -> Router {
    Router::new().on::<CellOrders, _, _>(move |from, orders, _| {
        let rep = rep.clone();
        async move {
            if from.kind != MemberKind::Coordinator {
                return Err(RpcRefusal::NotAllowed("only a coordinator orders".to_owned()));
            }
            let answer = rep.order(orders).map_err(|_| RpcRefusal::Busy)?;
            answer.await.map_err(|_| RpcRefusal::Failed("the rep has ended".to_owned()))
        }
    })
}

/// Begins the member's life, and says what this cell is.
pub async fn start(config: &AgentMeshConfig, router: Router) -> anyhow::Result<Mesh> {
    let mesh = Mesh::start(
        driver::MeshConfig {
            folder: config.folder.clone(),
            listen: config.listen,
            advertise: config.advertise,
            profile: config.profile.clone(),
            seeds: config.all_seeds(),
            enrolment: None,
        },
        Arc::new(router),
    )
    .await
    .context("join the mesh")?;
    let name = &mesh.me().name;
    anyhow::ensure!(
        *name == config.info.cell_id,
        "this machine joined as cell {name:?} and is configured as {:?}: set cell_id back, or join \
         again under the new name",
        config.info.cell_id
    );
    Ok(mesh)
}

/// Says what this cell is.
async fn say_what_we_are(mesh: &Mesh, facts: &CellFacts) {
    let version = wall().as_nanos() / 1_000;
    let info = CellInfo {
        cell_id: facts.cell_id.clone(),
        zone: facts.zone.clone(),
        capacity: facts.capacity,
        rootfs_providers: facts.rootfs_providers.clone(),
        placement_tags: facts.placement_tags.clone(),
        optional_placement_tags: facts.optional_placement_tags.clone(),
        volume_drivers: Vec::new(),
        rep_address: mesh
            .status()
            .await
            .map_or_else(|_| mesh.listens_at().to_string(), |status| status.address.to_string()),
        annotations: facts.annotations.clone(),
        version,
    };
    if let Err(error) = mesh.publish_info(info).await {
        error!(%error, "the mesh was not told what this cell is");
    }
}

/// Tells the rep which coordinator can be asked, for as long as there is a mesh.
pub async fn follow(mesh: Mesh, facts: CellFacts, rep: RepHandle) {
    let mut events = mesh.subscribe();
    say_what_we_are(&mesh, &facts).await;
    let mut known = look(&mesh).await;
    if known.is_some() {
        rep.coordinator(known);
    }
    loop {
        match events.recv().await {
            Ok(MemberEvent::Present { identity, .. })
                if identity.kind == MemberKind::Coordinator =>
            {
                info!(coordinator = %identity.name, "a coordinator is there");
                // Another one does not take the place of one that answers; the same may be new.
                if known.is_none_or(|it| it == identity.member) {
                    known = Some(identity.member);
                    rep.coordinator(known);
                }
            }
            Ok(MemberEvent::Missing { identity, .. }) if known == Some(identity.member) => {
                warn!(coordinator = %identity.name, "the coordinator is missing");
                known = look(&mesh).await;
                rep.coordinator(known);
            }
            Ok(MemberEvent::Moved(_)) => say_what_we_are(&mesh, &facts).await,
            Ok(MemberEvent::Expelled) => {
                error!("this cell is expelled from the mesh: nothing that it says is heard");
            }
            Ok(
                MemberEvent::Present { .. }
                | MemberEvent::Missing { .. }
                | MemberEvent::Published(_)
                | MemberEvent::Revoked(_)
                | MemberEvent::TooManyRevoked { .. },
            ) => {}
            Err(RecvError::Lagged(_)) => {
                let now = look(&mesh).await;
                if now != known {
                    known = now;
                    rep.coordinator(known);
                }
            }
            Err(RecvError::Closed) => return,
        }
    }
}

async fn look(mesh: &Mesh) -> Option<MemberId> {
    let members = mesh.members().await.unwrap_or_default();
    let coordinator = members.iter().find(|member| {
        member.identity.kind == MemberKind::Coordinator && member.state == MemberState::Present
    });
    coordinator.map(|member| member.identity.member)
}

/// A member, for people.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its name.
    pub name: String,
    /// `cell` or `coordinator`.
    pub kind: String,
    /// Whether it is there.
    pub present: bool,
    /// Where it says it is.
    pub address: String,
    /// Its zone, if it is a cell.
    pub zone: String,
    /// The room that is left, if it is a cell and has said so.
    pub free: Option<CellCapacity>,
    /// Whether it hands its work over.
    pub evacuating: bool,
    /// Whether its self-test passes.
    pub healthy: bool,
}

impl From<&MemberView> for MemberStatus {
    fn from(member: &MemberView) -> Self {
        let load = member.load.as_ref();
        MemberStatus {
            name: member.identity.name.to_string(),
            kind: match member.identity.kind {
                MemberKind::Cell => "cell".to_owned(),
                MemberKind::Coordinator => "coordinator".to_owned(),
            },
            present: member.state == MemberState::Present,
            address: member.address.to_string(),
            zone: member.info.as_ref().map(|it| it.zone.clone()).unwrap_or_default(),
            free: load.map(|it| it.free),
            evacuating: load.is_some_and(|it| it.evacuating),
            healthy: load.is_none_or(|it| it.healthy),
        }
    }
}

/// The path of the folder, for messages.
pub fn folder_of(state: &Path) -> PathBuf {
    state.join("mesh")
}
