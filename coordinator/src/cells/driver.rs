//! The coordinator as a member of the mesh: hears cells, serves them, sends them work and orders.
//!
//! One loop hears the mesh, the board and the auction's answers, hands what it heard to the pure
//! parts, and performs what comes back. It waits for nothing else: the [`desk`] serves cells in tasks
//! of the mesh, the [`post`] sends in tasks of its own, the [`teller`] waits for the board.

pub mod mailbox;

mod desk;
mod listening;
mod post;
mod tally;
mod teller;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use volvox_host::clock::Clock;
use volvox_mesh::driver::{Config, Mesh, MeshError};
use volvox_mesh::identity::MemberId;
use volvox_mesh::request::AskError;
use volvox_protocol::exchange::OrderAnswer;
use volvox_protocol::id::CellId;
use volvox_protocol::request::CellOrder;

use self::desk::Desk;
use self::listening::Loop;
use self::mailbox::Inbox;
use self::post::{Counter, Post};
pub use self::tally::Counters;
use self::tally::Tally;
use self::teller::Teller;
pub use super::logic::PresentCell;
use super::presence::Holding;
use super::settings::Settings;
use crate::auction::driver::Auction;
use crate::bbs::driver::Bbs;

/// Answers of cells to work that wait for the loop. Those who bring more wait.
const ANSWERS: usize = 1_024;
/// Orders of the caller that wait for the loop.
const CONTROLS: usize = 64;

/// Why the coordinator has no cells.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It could not become a member of the mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
    /// The auction has no thread.
    #[error("cannot start the auction: {0}")]
    Auction(#[from] std::io::Error),
}

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

enum Control {
    /// The mesh has told us what it knew.
    Synced,
    Release,
    Stop(oneshot::Sender<()>),
}

/// What the loop shows to others.
#[derive(Default)]
struct Shown {
    cells: RwLock<BTreeMap<CellId, PresentCell>>,
    holding: RwLock<Option<Holding>>,
    settled: AtomicBool,
    effects_lost: Arc<AtomicU64>,
}

/// The coordinator's side of its cells, at work. Clones are handles on the same one; it ends when the
/// last is dropped, or when it is told to.
#[derive(Clone)]
pub struct Cells {
    mesh: Mesh,
    auction: Auction,
    post: Arc<Post>,
    tally: Arc<Tally>,
    shown: Arc<Shown>,
    controls: mpsc::Sender<Control>,
}

/// Becomes a member of the mesh, and sets the auction and everything between them and the board to
/// work.
pub async fn start(
    settings: Settings,
    mesh: Config,
    bbs: Bbs,
    inbox: Inbox,
    auction: crate::auction::settings::Settings,
) -> Result<Cells, StartError> {
    let time = Clock::start();
    let tally = Arc::new(Tally::default());
    let desk = Desk::new(bbs.clone(), Arc::clone(&tally), settings.requests_per_cell);
    let mesh = Mesh::start(mesh, Arc::new(desk.router())).await?;
    let events = mesh.subscribe();
    let (heard, answers) = mpsc::channel(ANSWERS);
    let within = settings.answer_within;
    let post = Post::new(mesh.clone(), time, within, Arc::clone(&tally), heard);
    let teller = Teller::start(bbs.clone(), Arc::clone(&tally));
    let counter = Counter { post: Arc::clone(&post), teller: teller.clone() };
    // Microseconds: no coordinator before us has sent more than one batch in each.
    let last = time.now().as_nanos() / 1_000;
    let auction = Auction::open_after(last, auction, bbs.view().clone(), counter)?;
    let effects_lost = Arc::clone(&inbox.lost);
    let shown = Arc::new(Shown { effects_lost, ..Shown::default() });
    let (controls, orders) = mpsc::channel(CONTROLS);
    let cells = Cells {
        mesh: mesh.clone(),
        auction: auction.clone(),
        post: Arc::clone(&post),
        tally: Arc::clone(&tally),
        shown: Arc::clone(&shown),
        controls,
    };
    tokio::spawn(tell_when_synced(mesh.clone(), cells.controls.downgrade()));
    let looping = Loop::new(settings, time, mesh, bbs, auction, post, teller, desk, tally, shown);
    tokio::spawn(looping.run(events, inbox, answers, orders));
    Ok(cells)
}

/// Asks the mesh until it has heard what others knew.
async fn tell_when_synced(mesh: Mesh, controls: mpsc::WeakSender<Control>) {
    const LOOK_EVERY: Duration = Duration::from_millis(250);
    while let Ok(status) = mesh.status().await {
        let Some(controls) = controls.upgrade() else { return };
        if status.synced {
            let _ended = controls.send(Control::Synced).await;
            return;
        }
        drop(controls);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

impl Cells {
    /// The cells that are there and have said what they are, in the order of their ids.
    pub fn list(&self) -> Vec<PresentCell> {
        let cells = self.shown.cells.read().unwrap_or_else(PoisonError::into_inner);
        cells.values().cloned().collect()
    }

    /// The auction: why something is where it is, what would become of a batch.
    pub fn auction(&self) -> &Auction {
        &self.auction
    }

    /// The member of the mesh.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Who a cell is in the mesh, if it is there.
    pub fn member(&self, cell: &CellId) -> Option<MemberId> {
        self.post.member(cell)
    }

    /// Everything counted so far.
    pub fn counters(&self) -> Counters {
        self.tally.read(self.shown.effects_lost.load(Ordering::Relaxed))
    }

    /// Orders that wait to be sent to cells.
    pub fn orders_waiting(&self) -> usize {
        self.post.waiting()
    }

    /// Whether all cells that are there have been heard: from then on, who was not is missing.
    pub fn is_settled(&self) -> bool {
        self.shown.settled.load(Ordering::Relaxed)
    }

    /// Whether the loss of many cells is held back now, of how many and until when.
    pub fn holding(&self) -> Option<Holding> {
        self.shown.holding.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has the losses that are held acted on now.
    pub async fn release_hold(&self) {
        let _ended = self.controls.send(Control::Release).await;
    }

    /// Tells a cell to hand its work over. It says in its load that it does.
    pub async fn evacuate(&self, cell: &CellId) -> Result<(), OrderError> {
        let member = self.post.member(cell).ok_or_else(|| OrderError::NotThere(cell.clone()))?;
        match self.post.ask(member, CellOrder::Evacuate).await {
            Ok(OrderAnswer::Taken) => Ok(()),
            Ok(OrderAnswer::Failed(reason)) => Err(OrderError::Cannot(cell.clone(), reason)),
            Ok(OrderAnswer::Refused(_)) => {
                Err(OrderError::Cannot(cell.clone(), "it takes this for work".into()))
            }
            Err(error) => Err(OrderError::Unanswered(cell.clone(), error)),
        }
    }

    /// Sends what waits, says goodbye to the mesh, and ends. What the board asks for afterwards is
    /// lost: the next coordinator asks again.
    pub async fn stop(&self) {
        let (done, stopped) = oneshot::channel();
        if self.controls.send(Control::Stop(done)).await.is_ok() {
            let _ended = stopped.await;
        }
    }
}
