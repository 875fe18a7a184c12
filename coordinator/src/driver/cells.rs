//! The coordinator as a member of the mesh, and the handle on its cells. A task passes on what the mesh
//! says; everything that follows from it the [`Core`](crate::core::Core) decides.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tracing::{error, warn};
use volvox_mesh::driver::{Mesh, MeshConfig, MeshError};
use volvox_mesh::identity::{MemberId, MemberKind};
use volvox_mesh::member::{MemberEvent, MemberState};
use volvox_mesh::request::AskError;
use volvox_protocol::cell_rpc::{CellOrders, OrderAnswer};
use volvox_protocol::id::CellId;
use volvox_protocol::request::CellOrder;

use super::Bbs;
use super::inbox::Inbox;
use super::outputs::{MeshLink, Shared};
use super::rpc::Rpc;
pub use super::tally::Counters;
use crate::auction::explain::{ExplainTarget, Explanation};
use crate::bbs::command::CallError;
use crate::cells::admission::Admission;
use crate::cells::logic::{CellStatus, Listed};
use crate::cells::loss::HoldStatus;
use crate::cells::settings::CellsSettings;
use crate::core::Signal;

/// How often cells that the mesh has forgotten are forgotten here.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// How often the mesh is asked whether it has heard what others knew.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the mesh is not listened to when the coordinator has no time.
const BREATH: Duration = Duration::from_millis(10);
/// How long orders that wait may take to be sent before we leave.
const DRAIN: Duration = Duration::from_secs(5);

/// Why a cell did not take an order that somebody waits for.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// No such cell is there.
    #[error("cell {0} is not there")]
    NotThere(CellId),
    /// It did not answer, or refused to listen.
    #[error("cell {0}: {1}")]
    Unanswered(CellId, AskError),
    /// It says that it cannot.
    #[error("cell {0} cannot: {1}")]
    Cannot(CellId, Box<str>),
}

/// The coordinator's side of its cells, at work. Clones are handles on the same one; the mesh is listened
/// to until the last is dropped, or until it is told to stop.
#[derive(Clone)]
pub struct Cells {
    mesh: Mesh,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
    answer_within: Duration,
    stopping: Arc<watch::Sender<bool>>,
}

/// Becomes a member of the mesh: from here on cells are heard, served and told what to do.
pub async fn start(
    settings: &CellsSettings,
    member: MeshConfig,
    bbs: &Bbs,
) -> Result<Cells, MeshError> {
    let rpc = Rpc {
        inbox: Arc::clone(&bbs.inbox),
        view: bbs.view.clone(),
        shared: Arc::clone(&bbs.shared),
        desk: Mutex::new(Admission::new(settings.requests_per_cell)),
        told: Mutex::default(),
    };
    let mesh = Mesh::start(member, Arc::new(Arc::new(rpc).router())).await?;
    let answer_within = settings.answer_within;
    let link = MeshLink { mesh: mesh.clone(), runtime: Handle::current(), answer_within };
    // A board is of one mesh: who started it first has it.
    let _is_first = bbs.link.set(link);
    let (stopping, stop) = watch::channel(false);
    let events = mesh.subscribe();
    let listener = Listener {
        mesh: mesh.clone(),
        inbox: Arc::clone(&bbs.inbox),
        shared: Arc::clone(&bbs.shared),
    };
    tokio::spawn(listener.run(events, stop));
    Ok(Cells {
        mesh,
        inbox: Arc::clone(&bbs.inbox),
        shared: Arc::clone(&bbs.shared),
        answer_within,
        stopping: Arc::new(stopping),
    })
}

impl Cells {
    /// The cells that are there and have said what they are, in the order of their ids.
    pub fn list(&self) -> Vec<CellStatus> {
        let cells = self.shared.cells.read().unwrap_or_else(PoisonError::into_inner);
        cells.values().cloned().collect()
    }

    /// Why this is where it is. None: no remembered round of the auction was about it.
    pub async fn explain(&self, subject: ExplainTarget) -> Result<Option<Explanation>, CallError> {
        self.inbox.explain(subject)?.await.map_err(|_| CallError::Closed)
    }

    /// The member of the mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Who a cell is in the mesh, if it is there.
    pub fn member(&self, cell: &CellId) -> Option<MemberId> {
        let cells = self.shared.cells.read().unwrap_or_else(PoisonError::into_inner);
        cells.get(cell).map(|cell| cell.member)
    }

    /// Everything counted so far.
    pub fn counters(&self) -> Counters {
        self.shared.tally.read()
    }

    /// Orders that wait to be sent to cells, as of a second ago.
    pub fn orders_waiting(&self) -> usize {
        self.shared.orders_waiting.load(Ordering::Relaxed)
    }

    /// Whether all cells that are there have been heard: from then on, who was not is missing.
    pub fn is_settled(&self) -> bool {
        self.shared.is_settled.load(Ordering::Relaxed)
    }

    /// Whether the loss of many cells is held back now, of how many and until when.
    pub fn holding(&self) -> Option<HoldStatus> {
        self.shared.holding.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the losses that are held acted on now.
    pub fn release_hold(&self) {
        self.inbox.signal(Signal::ReleaseHold);
    }

    /// Tells a cell to hand its work over. It says in its load that it does.
    pub async fn evacuate(&self, cell: &CellId) -> Result<(), OrderError> {
        let member = self.member(cell).ok_or_else(|| OrderError::NotThere(cell.clone()))?;
        match self.ask(member, CellOrder::Evacuate).await {
            Ok(OrderAnswer::Taken) => Ok(()),
            Ok(OrderAnswer::Failed(reason)) => Err(OrderError::Cannot(cell.clone(), reason)),
            Ok(OrderAnswer::Refused(_)) => {
                Err(OrderError::Cannot(cell.clone(), "it takes this for work".into()))
            }
            Err(error) => Err(OrderError::Unanswered(cell.clone(), error)),
        }
    }

    /// Asks one order of a cell, apart from what waits, and waits for the answer.
    async fn ask(&self, member: MemberId, order: CellOrder) -> Result<OrderAnswer, AskError> {
        let message = CellOrders { orders: vec![order] };
        let reply = self.mesh.ask(member, &message, self.answer_within).await?;
        let answer = reply.answers.into_iter().next();
        answer.ok_or_else(|| AskError::BadReply("no answer to an order".to_owned()))
    }

    /// Sends what waits, says goodbye to the mesh, and hears it no longer. What the board asks for
    /// afterwards is lost: the next coordinator asks again.
    pub async fn stop(&self) {
        let idle = self.inbox.when_idle();
        if tokio::time::timeout(DRAIN, idle).await.is_err() {
            warn!("orders to cells are left to the next coordinator");
        }
        self.stopping.send_replace(true);
        self.mesh.leave().await;
    }
}

/// Ends when it is told to, or when nobody is left who could say so.
async fn until(stop: &mut watch::Receiver<bool>) {
    let _stopped = stop.wait_for(|stop| *stop).await;
}

/// Passes on what the mesh says.
struct Listener {
    mesh: Mesh,
    inbox: Arc<Inbox>,
    shared: Arc<Shared>,
}

impl Listener {
    async fn run(
        self,
        mut events: broadcast::Receiver<MemberEvent>,
        mut stop: watch::Receiver<bool>,
    ) {
        // What happened between the member's start and now.
        self.list().await;
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        tidy.reset();
        let mut look = tokio::time::interval(LOOK_EVERY);
        let mut is_synced = false;
        loop {
            tokio::select! {
                () = until(&mut stop) => return,
                event = events.recv() => match event {
                    Ok(event) => self.happened(event).await,
                    Err(RecvError::Lagged(missed)) => {
                        warn!(missed, "the mesh was too fast for us: its members are listed again");
                        self.shared.tally.lagged.add(1);
                        // What still waits there is older than the list.
                        events = events.resubscribe();
                        self.list().await;
                    }
                    Err(RecvError::Closed) => return,
                },
                _ = look.tick(), if !is_synced => {
                    is_synced = self.mesh.status().await.is_ok_and(|status| status.synced);
                    if is_synced {
                        self.tell(Signal::MeshSynced).await;
                    }
                }
                _ = tidy.tick() => self.tidy().await,
            }
        }
    }

    async fn happened(&self, event: MemberEvent) {
        match &event {
            MemberEvent::Expelled => error!("this coordinator was revoked: no cell hears it"),
            MemberEvent::TooManyRevoked { left_out, limit } => {
                error!(left_out, limit, "more machines are expelled than the mesh can name");
            }
            MemberEvent::Present { .. }
            | MemberEvent::Missing { .. }
            | MemberEvent::Published(_)
            | MemberEvent::Revoked(_)
            | MemberEvent::Moved(_) => {}
        }
        self.tell(Signal::Member(event)).await;
    }

    /// Waits while there is no room: what the mesh says meanwhile waits there, or is listed again.
    async fn tell(&self, mut signal: Signal) {
        while let Err(refused) = self.inbox.hear_mesh(signal) {
            if self.inbox.is_closed() {
                return;
            }
            signal = *refused;
            tokio::time::sleep(BREATH).await;
        }
    }

    /// All cells of the mesh.
    async fn list(&self) {
        let Ok(members) = self.mesh.members().await else { return };
        let cells = members.into_iter().filter(|member| member.identity.kind == MemberKind::Cell);
        let listed = cells.map(|member| Listed {
            is_there: member.state == MemberState::Present,
            identity: member.identity,
            address: member.address,
            info: member.info.map(Arc::new),
            load: member.load,
        });
        self.tell(Signal::Members(listed.collect())).await;
    }

    /// Forgets cells that the mesh has forgotten.
    async fn tidy(&self) {
        let Ok(members) = self.mesh.members().await else { return };
        let names = members.iter().map(|member| member.identity.name.clone()).collect();
        self.tell(Signal::Known(names)).await;
    }
}
