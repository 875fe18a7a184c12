//! The loop: hears the mesh, the board and the cells' answers to work, and passes on what follows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, mpsc, oneshot};
use tracing::{error, info, warn};
use volvox_mesh::driver::{Mesh, MeshEvent};
use volvox_mesh::identity::{Holder, Kind, MemberId};
use volvox_mesh::logic::Standing;
use volvox_protocol::cell::{CellInfo, CellLoad, CellPresence};
use volvox_protocol::id::CellId;
use volvox_protocol::request::CellOrder;
use volvox_protocol::time::Timestamp;

use super::desk::Desk;
use super::mailbox::Inbox;
use super::post::Post;
use super::tally::Tally;
use super::teller::Teller;
use super::{Control, PresentCell, Shown, Time};
use crate::auction::driver::{Auction, Input};
use crate::bbs::command::Effect;
use crate::bbs::driver::Bbs;
use crate::cells::digests::{Sight, Watch};
use crate::cells::presence::{Presence, Word};
use crate::cells::settings::Settings;

/// How often digests are compared, pauses are looked at, and so on, at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A coordinator that has found nobody who knew anything settles after so many times the time.
const ALONE: u32 = 3;
/// How often cells that the mesh has forgotten are forgotten here.
const TIDY_EVERY: Duration = Duration::from_secs(600);
/// How long orders that wait may take to be sent before we leave.
const DRAIN: Duration = Duration::from_secs(5);
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// A cell, as the mesh last told of it. One that has gone is remembered: if it comes back, it need
/// not say again what it is.
#[derive(Default)]
struct Known {
    /// Who it is, while it is there.
    there: Option<There>,
    info: Option<Arc<CellInfo>>,
    load: Option<CellLoad>,
}

#[derive(Clone, Copy)]
struct There {
    member: MemberId,
    /// Its life, if we have heard which.
    generation: Option<u64>,
    address: SocketAddr,
    since: Timestamp,
}

pub(super) struct Loop {
    settings: Settings,
    time: Time,
    mesh: Mesh,
    bbs: Bbs,
    auction: Auction,
    post: Arc<Post>,
    teller: Teller,
    desk: Arc<Desk>,
    tally: Arc<Tally>,
    shown: Arc<Shown>,
    presence: Presence,
    watch: Watch,
    cells: BTreeMap<CellId, Known>,
    /// When it is time to say that all have been heard.
    settle_at: Timestamp,
    /// The auction has missed something: it is told everything again.
    auction_is_behind: bool,
    effects_lost: u64,
}

impl Loop {
    #[expect(clippy::too_many_arguments, reason = "everything that it stands between")]
    pub(super) fn new(
        settings: Settings,
        time: Time,
        mesh: Mesh,
        bbs: Bbs,
        auction: Auction,
        post: Arc<Post>,
        teller: Teller,
        desk: Arc<Desk>,
        tally: Arc<Tally>,
        shown: Arc<Shown>,
    ) -> Loop {
        let presence = Presence::new(settings.hold.clone());
        let watch = Watch::new(settings.mismatch_lasts, settings.longest_sync_pause);
        let settle_at = time.now() + settings.settle_after * ALONE;
        Loop {
            settings,
            time,
            mesh,
            bbs,
            auction,
            post,
            teller,
            desk,
            tally,
            shown,
            presence,
            watch,
            cells: BTreeMap::new(),
            settle_at,
            auction_is_behind: false,
            effects_lost: 0,
        }
    }

    pub(super) async fn run(
        mut self,
        mut events: broadcast::Receiver<MeshEvent>,
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
                    Some(Control::Synced) => {
                        let at = self.time.now() + self.settings.settle_after;
                        self.settle_at = self.settle_at.min(at);
                    }
                    Some(Control::Release) => {
                        let words = self.presence.release(self.time.now());
                        self.say(words);
                    }
                    Some(Control::Stop(done)) => return self.stop(&mut inbox, done).await,
                    None => return,
                },
                event = events.recv() => match event {
                    Ok(event) => self.happened(event),
                    Err(RecvError::Lagged(missed)) => {
                        warn!(missed, "the mesh was too fast for us: its members are listed again");
                        self.tally.lagged.add(1);
                        self.list_again().await;
                    }
                    Err(RecvError::Closed) => return,
                },
                effects = inbox.queue.recv(), if board_is_open => match effects {
                    Some(effects) => self.asked(effects),
                    None => board_is_open = false,
                },
                Some(input) = answers.recv() => self.tell_auction(input),
                _ = look.tick() => self.look(inbox.lost.load(Ordering::Relaxed)),
                _ = tidy.tick() => self.tidy().await,
                () = tokio::time::sleep(wake) => self.pass(),
            }
        }
    }

    fn wake_in(&self) -> Duration {
        const LONG: Duration = Duration::from_secs(60);
        let settle = (!self.presence.is_settled()).then_some(self.settle_at);
        let wake = self.presence.wake_at().into_iter().chain(settle).min();
        wake.map_or(LONG, |at| at.since(self.time.now()).max(Duration::from_millis(1)).min(LONG))
    }

    fn happened(&mut self, event: MeshEvent) {
        match event {
            MeshEvent::Present { holder, generation, address } => {
                if holder.kind == Kind::Cell {
                    self.came(&holder, Some(generation), address);
                }
            }
            MeshEvent::Missing { holder, left } => {
                if holder.kind == Kind::Cell {
                    self.went(&holder, left);
                }
            }
            MeshEvent::Info(info) => self.heard_info(info),
            MeshEvent::Load(load) => self.heard_load((*load).clone()),
            MeshEvent::Expelled => error!("this coordinator was revoked: no cell hears it"),
            MeshEvent::TooManyRevoked { left_out, limit } => {
                error!(left_out, limit, "more machines are expelled than the mesh can name");
            }
            MeshEvent::Revoked(_) | MeshEvent::Moved(_) => {}
        }
    }

    fn came(&mut self, holder: &Holder, generation: Option<u64>, address: SocketAddr) {
        let (now, cell) = (self.time.now(), &holder.name);
        let known = self.cells.entry(cell.clone()).or_default();
        let before = known.there;
        // The life may not have been heard yet: then the first that is named is this one.
        let another_life = before.is_some_and(|it| {
            it.member != holder.member
                || (it.generation.is_some() && generation.is_some() && it.generation != generation)
        });
        let since = before.filter(|_| !another_life).map_or(now, |it| it.since);
        let generation = generation.or(before.and_then(|it| it.generation));
        known.there = Some(There { member: holder.member, generation, address, since });
        let is_new = before.is_none();
        if is_new || another_life {
            self.post.open(cell, holder.member);
            self.watch.forget(cell);
        }
        if is_new {
            info!(cell = cell.as_str(), member = %holder.member, "a cell is there");
            self.tally.cells_came.add(1);
        } else if another_life {
            info!(cell = cell.as_str(), member = %holder.member, "a cell was restarted");
        }
        if is_new || another_life {
            // What its last life said is told again: it stands until the new one says otherwise.
            self.tell_anew(cell);
        }
        let words = self.presence.came(now, cell);
        self.say(words);
        self.show(cell);
    }

    fn went(&mut self, holder: &Holder, left: bool) {
        let cell = &holder.name;
        let Some(known) = self.cells.get_mut(cell) else { return };
        if known.there.is_none_or(|it| it.member != holder.member) {
            return;
        }
        known.there = None;
        info!(cell = cell.as_str(), left, "a cell is missing");
        self.tally.cells_went.add(1);
        self.tell_auction(Input::Gone(cell.clone()));
        self.post.close(cell);
        self.watch.forget(cell);
        let words = self.presence.went(self.time.now(), cell);
        self.say(words);
        self.show(cell);
    }

    fn heard_info(&mut self, info: Arc<CellInfo>) {
        let cell = info.cell_id.clone();
        let known = self.cells.entry(cell.clone()).or_default();
        let goes_back = known.info.as_ref().is_some_and(|it| info.version < it.version);
        known.info = Some(Arc::clone(&info));
        if known.there.is_some() {
            if goes_back {
                self.tell_anew(&cell);
            } else {
                self.tell_auction(Input::Info(info));
            }
        }
        self.show(&cell);
    }

    fn heard_load(&mut self, load: CellLoad) {
        let cell = load.cell_id.clone();
        let known = self.cells.entry(cell.clone()).or_default();
        // The mesh tells only what is newer. So a lower count is a new life's, whether or not we
        // have heard of that yet.
        let goes_back = known.load.as_ref().is_some_and(|it| load.version <= it.version);
        known.load = Some(load.clone());
        if known.there.is_some() {
            if goes_back {
                self.tell_anew(&cell);
            } else {
                self.tell_auction(Input::Load(load));
            }
        }
        self.show(&cell);
    }

    /// Has the auction begin anew with a cell that is there.
    fn tell_anew(&mut self, cell: &CellId) {
        let Some(known) = self.cells.get(cell) else { return };
        let (info, load) = (known.info.clone(), known.load.clone());
        self.tell_auction(Input::Reborn(cell.clone()));
        if let Some(info) = info {
            self.tell_auction(Input::Info(info));
        }
        if let Some(load) = load {
            self.tell_auction(Input::Load(load));
        }
    }

    fn tell_auction(&mut self, input: Input) {
        // Work that is not heard is asked for again by convergence, an answer is given up in time.
        let is_of_cells = !matches!(input, Input::Request(..) | Input::Answered(..));
        if self.auction.hear(input).is_err() {
            self.tally.auction_busy.add(1);
            self.auction_is_behind |= is_of_cells;
        }
    }

    /// What readers see of a cell.
    fn show(&self, cell: &CellId) {
        let shown = self.cells.get(cell).and_then(|known| {
            let There { member, address, since, .. } = known.there?;
            let (info, load) = (Arc::clone(known.info.as_ref()?), known.load.clone());
            Some(PresentCell { info, load, member, address, since })
        });
        let mut cells = self.shown.cells.write().unwrap_or_else(PoisonError::into_inner);
        match shown {
            Some(shown) => cells.insert(cell.clone(), shown),
            None => cells.remove(cell),
        };
    }

    /// Passes on what follows from who is there.
    fn say(&mut self, words: Vec<Word>) {
        for word in words {
            match word {
                Word::Present(cell) => self.teller.presence(cell, CellPresence::Present),
                Word::Missing(cell) => self.teller.presence(cell, CellPresence::Missing),
                Word::Settled => {
                    info!(cells = self.presence.present().len(), "all cells have been heard");
                    self.teller.settled();
                    self.shown.settled.store(true, Ordering::Relaxed);
                }
                Word::Held(holding) => {
                    self.tally.holds.add(1);
                    error!(
                        missing = holding.of - self.presence.present().len(),
                        held = holding.cells,
                        of = holding.of,
                        for_seconds = holding.until.since(holding.since).as_secs(),
                        until = ?holding.until,
                        "MANY CELLS VANISHED TOGETHER: nothing is replaced until they are back or \
                         the time is over. Look at the network; release the hold if they are lost"
                    );
                }
                Word::Released(why) => warn!(?why, "the loss of cells is no longer held"),
            }
        }
        let mut holding = self.shown.holding.write().unwrap_or_else(PoisonError::into_inner);
        *holding = self.presence.holding();
    }

    /// What a commit asks for.
    fn asked(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::RequestAuction(lrps, tasks) => {
                    self.tell_auction(Input::Request(lrps, tasks));
                }
                Effect::StopInstance(key, instance) => {
                    let cell = instance.cell_id.clone();
                    self.post.push(&cell, CellOrder::StopInstance(key, instance));
                }
                Effect::UpdateInstance(key, instance) => {
                    let cell = instance.cell_id.clone();
                    self.post.push(&cell, CellOrder::UpdateInstance(key, instance));
                }
                Effect::CancelTask(cell, task) => {
                    self.post.push(&cell, CellOrder::CancelTask(task));
                }
                Effect::CallBack(_) => {}
            }
        }
    }

    /// What is due because of who is there.
    fn pass(&mut self) {
        let now = self.time.now();
        let words = self.presence.pass(now);
        self.say(words);
        if !self.presence.is_settled() && self.settle_at <= now {
            let records = self.bbs.view().snapshot();
            let words = self.presence.settle(now, records.named_cells());
            self.say(words);
            // If that is held, the hold ends it.
            self.settle_at = Timestamp::NEVER;
        }
    }

    /// What is looked at once in a while.
    fn look(&mut self, effects_lost: u64) {
        if effects_lost > self.effects_lost {
            self.effects_lost = effects_lost;
            warn!(effects_lost, "what the board asked of its cells was lost: all are to sync");
            self.post.sync_all();
        }
        if std::mem::take(&mut self.auction_is_behind) {
            self.tell_auction_everything();
        }
        self.compare_digests();
        self.post.pass();
        // The timer begins anew with everything that is heard: in a storm it might never end.
        self.pass();
    }

    fn compare_digests(&mut self) {
        let now = self.time.now();
        let records = self.bbs.view().snapshot();
        for (cell, known) in &self.cells {
            let (Some(_), Some(load)) = (&known.there, &known.load) else { continue };
            let board = records.digest_on(cell).number();
            // Most agree: whether something is under way is asked of the others only.
            let is_quiet =
                load.digest == board || (self.post.is_idle(cell) && !self.desk.is_serving(cell));
            let said = load.digest;
            let sight = if is_quiet { Sight::Quiet { said, board } } else { Sight::UnderWay };
            if self.watch.look(now, cell, sight) {
                info!(cell = cell.as_str(), "cell and board lastingly differ: the cell is to sync");
                self.tally.mismatches.add(1);
                self.post.push(cell, CellOrder::Sync);
            }
        }
    }

    fn tell_auction_everything(&mut self) {
        let cells: Vec<(CellId, bool)> =
            self.cells.iter().map(|(cell, known)| (cell.clone(), known.there.is_some())).collect();
        for (cell, is_there) in cells {
            if is_there {
                self.tell_anew(&cell);
            } else {
                self.tell_auction(Input::Gone(cell));
            }
        }
    }

    /// Asks the mesh for everybody, and makes good what was missed. Lives are not in that list: so
    /// each cell counts as begun anew.
    async fn list_again(&mut self) {
        let Ok(members) = self.mesh.members().await else { return };
        for member in members {
            let holder = &member.holder;
            if holder.kind != Kind::Cell {
                continue;
            }
            let known = self.cells.entry(holder.name.clone()).or_default();
            let is_there = member.standing == Standing::Present;
            // Of two members with one name, only the one that is there says what the cell is.
            if is_there || known.there.is_none() {
                known.info = member.info.map(Arc::new).or(known.info.take());
                known.load = member.load.or(known.load.take());
            }
            if is_there {
                if let Some(there) = &mut known.there {
                    there.generation = None;
                }
                self.came(&member.holder, None, member.address);
            } else {
                self.went(&member.holder, false);
            }
        }
        self.tell_auction_everything();
    }

    /// Forgets cells that the mesh has forgotten.
    async fn tidy(&mut self) {
        let Ok(members) = self.mesh.members().await else { return };
        let names: std::collections::BTreeSet<&CellId> =
            members.iter().map(|member| &member.holder.name).collect();
        self.cells.retain(|cell, known| known.there.is_some() || names.contains(cell));
    }

    /// Sends what waits, and leaves.
    async fn stop(mut self, inbox: &mut Inbox, done: oneshot::Sender<()>) {
        inbox.queue.close();
        while let Ok(effects) = inbox.queue.try_recv() {
            self.asked(effects);
        }
        let end = self.time.now() + DRAIN;
        while !self.post.is_all_idle() && self.time.now() < end {
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        self.mesh.leave().await;
        let _nobody_waits = done.send(());
    }
}
