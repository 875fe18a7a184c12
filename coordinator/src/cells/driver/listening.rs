//! The loop: hears the mesh, the board and the cells' answers to work, and passes on what follows.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot};
use tracing::{error, info, warn};
use volvox_host::clock::Clock;
use volvox_mesh::driver::Mesh;
use volvox_mesh::identity::Kind;
use volvox_mesh::member::{MemberEvent, MemberState};
use volvox_mesh::record::Content;
use volvox_protocol::id::CellId;

use super::desk::Desk;
use super::mailbox::Inbox;
use super::post::Post;
use super::tally::Tally;
use super::teller::Teller;
use super::{Control, Shown};
use crate::auction::driver::{Auction, Input};
use crate::bbs::driver::Bbs;
use crate::cells::logic::{Floor, Listed, Note, Told};
use crate::cells::settings::Settings;

/// How often digests are compared, pauses are looked at, and so on, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often cells that the mesh has forgotten are forgotten here.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// How long orders that wait may take to be sent before we leave.
const DRAIN: Duration = Duration::from_secs(5);
const DRAIN_LOOK: Duration = Duration::from_millis(20);

pub(super) struct Loop {
    settings: Settings,
    time: Clock,
    mesh: Mesh,
    bbs: Bbs,
    auction: Auction,
    post: Arc<Post>,
    teller: Teller,
    desk: Arc<Desk>,
    tally: Arc<Tally>,
    shown: Arc<Shown>,
    floor: Floor,
}

impl Loop {
    #[expect(clippy::too_many_arguments, reason = "everything that it stands between")]
    pub(super) fn new(
        settings: Settings,
        time: Clock,
        mesh: Mesh,
        bbs: Bbs,
        auction: Auction,
        post: Arc<Post>,
        teller: Teller,
        desk: Arc<Desk>,
        tally: Arc<Tally>,
        shown: Arc<Shown>,
    ) -> Loop {
        let floor = Floor::new(time.now(), &settings);
        Loop { settings, time, mesh, bbs, auction, post, teller, desk, tally, shown, floor }
    }

    pub(super) async fn run(
        mut self,
        mut events: broadcast::Receiver<MemberEvent>,
        mut inbox: Inbox,
        mut answers: mpsc::Receiver<Input>,
        mut controls: mpsc::Receiver<Control>,
    ) {
        // What happened between the member's start and now.
        self.list_again().await;
        let look_every = LOOK_EVERY.min(self.settings.mismatch_lasts / 4);
        let mut look = tokio::time::interval(look_every.max(Duration::from_millis(10)));
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tidy = tokio::time::interval(TIDY_EVERY);
        tidy.reset();
        let mut board_is_open = true;
        loop {
            let wake = self.wake_in();
            tokio::select! {
                control = controls.recv() => match control {
                    Some(Control::Synced) => self.floor.synced(self.time.now()),
                    Some(Control::Release) => self.floor.release(self.time.now()),
                    Some(Control::Stop(done)) => return self.stop(&mut inbox, done).await,
                    None => return,
                },
                event = events.recv() => match event {
                    Ok(event) => self.happened(event),
                    Err(RecvError::Lagged(missed)) => {
                        warn!(missed, "the mesh was too fast for us: its members are listed again");
                        self.tally.lagged.add(1);
                        // What still waits there is older than the list.
                        events = events.resubscribe();
                        self.list_again().await;
                    }
                    Err(RecvError::Closed) => return,
                },
                effects = inbox.queue.recv(), if board_is_open => match effects {
                    Some(effects) => self.floor.asked(effects),
                    None => board_is_open = false,
                },
                Some(input) = answers.recv() => self.tell_auction(input),
                _ = look.tick() => self.look(inbox.lost.load(Ordering::Relaxed)),
                _ = tidy.tick() => self.tidy().await,
                () = tokio::time::sleep(wake) => self.pass(),
            }
            self.follow();
        }
    }

    fn wake_in(&self) -> Duration {
        const LONG: Duration = Duration::from_secs(60);
        let wake = self.floor.wake_at();
        wake.map_or(LONG, |at| at.since(self.time.now()).max(Duration::from_millis(1)).min(LONG))
    }

    fn happened(&mut self, event: MemberEvent) {
        let now = self.time.now();
        match event {
            MemberEvent::Present { identity, generation, address } => {
                if identity.kind == Kind::Cell {
                    self.floor.came(now, &identity, Some(generation), address);
                }
            }
            MemberEvent::Missing { identity, left } => {
                if identity.kind == Kind::Cell {
                    self.floor.went(now, &identity, left);
                }
            }
            MemberEvent::Published(record) => match &record.content {
                Content::Info(info) => self.floor.heard_info(Arc::new(info.clone())),
                Content::Load(load) => self.floor.heard_load(load.clone()),
                Content::Certificate | Content::Alive(_) | Content::Revocations(_) => {}
            },
            MemberEvent::Expelled => error!("this coordinator was revoked: no cell hears it"),
            MemberEvent::TooManyRevoked { left_out, limit } => {
                error!(left_out, limit, "more machines are expelled than the mesh can name");
            }
            MemberEvent::Revoked(_) | MemberEvent::Moved(_) => {}
        }
    }

    /// Does what follows from what the floor has heard.
    fn follow(&mut self) {
        let told = self.floor.told();
        if told.is_empty() {
            return;
        }
        for told in told {
            match told {
                Told::Auction(input) => self.tell_auction(input),
                Told::Board(cell, presence) => self.teller.presence(cell, presence),
                Told::Settled(cells) => {
                    info!(cells, "all cells have been heard");
                    self.teller.settled();
                    self.shown.settled.store(true, Ordering::Relaxed);
                }
                Told::Open(cell, member) => self.post.open(&cell, member),
                Told::Close(cell) => self.post.close(&cell),
                Told::Order(cell, order) => self.post.push(&cell, order),
                Told::SyncAll => {
                    warn!("what the board asked of its cells was lost: all are to sync");
                    self.post.sync_all();
                }
                Told::Show(cell) => self.show(&cell),
                Told::Note(note) => self.note(note),
            }
        }
        let mut holding = self.shown.holding.write().unwrap_or_else(PoisonError::into_inner);
        *holding = self.floor.holding();
    }

    fn note(&self, note: Note) {
        match note {
            Note::Came(cell, member) => {
                info!(cell = cell.as_str(), %member, "a cell is there");
                self.tally.cells_came.add(1);
            }
            Note::Restarted(cell, member) => {
                info!(cell = cell.as_str(), %member, "a cell was restarted");
            }
            Note::Went(cell, left) => {
                info!(cell = cell.as_str(), left, "a cell is missing");
                self.tally.cells_went.add(1);
            }
            Note::Differs(cell) => {
                info!(cell = cell.as_str(), "cell and board lastingly differ: the cell is to sync");
                self.tally.mismatches.add(1);
            }
            Note::Held(holding, missing) => {
                self.tally.holds.add(1);
                error!(
                    missing,
                    held = holding.cells,
                    of = holding.of,
                    for_seconds = holding.until.since(holding.since).as_secs(),
                    until = ?holding.until,
                    "MANY CELLS VANISHED TOGETHER: nothing is replaced until they are back or \
                     the time is over. Look at the network; release the hold if they are lost"
                );
            }
            Note::Released(why) => warn!(?why, "the loss of cells is no longer held"),
        }
    }

    fn tell_auction(&mut self, input: Input) {
        // Work that is not heard is asked for again by convergence, an answer is given up in time.
        let is_of_cells = !matches!(input, Input::Request(..) | Input::Answered(..));
        if self.auction.hear(input).is_err() {
            self.tally.auction_busy.add(1);
            if is_of_cells {
                self.floor.auction_missed();
            }
        }
    }

    /// What readers see of a cell.
    fn show(&self, cell: &CellId) {
        let mut cells = self.shown.cells.write().unwrap_or_else(PoisonError::into_inner);
        match self.floor.cell(cell) {
            Some(shown) => cells.insert(cell.clone(), shown),
            None => cells.remove(cell),
        };
    }

    /// What is due because of who is there.
    fn pass(&mut self) {
        self.floor.pass(self.time.now(), &self.bbs.view().snapshot());
    }

    /// What is looked at once in a while.
    fn look(&mut self, effects_lost: u64) {
        let records = self.bbs.view().snapshot();
        let is_idle = |cell: &CellId| self.post.is_idle(cell) && !self.desk.is_serving(cell);
        self.floor.look(self.time.now(), &records, effects_lost, is_idle);
        self.post.pass();
    }

    /// Asks the mesh for everybody.
    async fn list_again(&mut self) {
        let Ok(members) = self.mesh.members().await else { return };
        let cells = members.into_iter().filter(|member| member.identity.kind == Kind::Cell);
        let listed = cells.map(|member| Listed {
            is_there: member.state == MemberState::Present,
            identity: member.identity,
            address: member.address,
            info: member.info.map(Arc::new),
            load: member.load,
        });
        self.floor.listed(self.time.now(), listed.collect());
        self.follow();
    }

    /// Forgets cells that the mesh has forgotten.
    async fn tidy(&mut self) {
        let Ok(members) = self.mesh.members().await else { return };
        self.floor.forget_others(&members.iter().map(|member| &member.identity.name).collect());
    }

    /// Sends what waits, and leaves.
    async fn stop(mut self, inbox: &mut Inbox, done: oneshot::Sender<()>) {
        inbox.queue.close();
        while let Ok(effects) = inbox.queue.try_recv() {
            self.floor.asked(effects);
        }
        self.follow();
        let end = self.time.now() + DRAIN;
        while !self.post.is_all_idle() && self.time.now() < end {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        self.mesh.leave().await;
        let _nobody_waits = done.send(());
    }
}
