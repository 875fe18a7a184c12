//! The cells as one value: what the mesh and time say goes in, what the auction, the board and the cells
//! are to be told comes out. Nothing is done here.
//!
//! A cell that has gone is remembered: if it comes back, it need not say again what it is.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use volvox_mesh::identity::{MemberId, MemberIdentity};
use volvox_protocol::cell::{CellInfo, CellLoad, CellPresence};
use volvox_protocol::id::CellId;
use volvox_protocol::injected_bug::{Bug, mutated};
use volvox_protocol::request::CellOrder;
use volvox_protocol::time::Timestamp;

use super::drift::{DriftDetector, Observation};
use super::loss::{HoldEnd, HoldStatus, LossTracker, PresenceChange};
use super::settings::CellsSettings;
use crate::auction::rounds::AuctionInput;
use crate::bbs::state::Records;

/// A coordinator that has found nobody who knew anything settles after so many times the time.
const ALONE: u32 = 3;

/// What follows, in this order.
#[derive(Debug)]
pub enum Told {
    /// The auction is to hear this.
    Auction(AuctionInput),
    /// The board is to hear that a cell is there, or is not.
    Board(CellId, CellPresence),
    /// The board is to hear that all cells have been heard: so many are there.
    Settled(usize),
    /// What is for this cell goes to this member from now on. What waited for another is dropped.
    Open(CellId, MemberId),
    /// Nothing can be sent to this cell any more.
    Close(CellId),
    /// The cell is to be told this.
    Order(CellId, CellOrder),
    /// Readers are to see what [`CellTable::cell`] says of this cell now.
    Show(CellId),
    /// For people, and to be counted.
    Note(CellNotice),
}

/// Something that people want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellNotice {
    /// A cell is there.
    Came(CellId, MemberId),
    /// A cell was restarted.
    Restarted(CellId, MemberId),
    /// A cell is missing; whether it said goodbye.
    Went(CellId, bool),
    /// A cell and the board lastingly differ.
    Differs(CellId),
    /// Many cells vanished together: of how many, and how many are missing.
    Held(HoldStatus, usize),
    /// Their loss is no longer held.
    Released(HoldEnd),
}

/// A cell that is there, as it last said.
#[derive(Debug, Clone)]
pub struct CellStatus {
    /// What it is.
    pub info: Arc<CellInfo>,
    /// How it is doing, if it has said.
    pub load: Option<CellLoad>,
    /// Who it is in the mesh.
    pub member: MemberId,
    /// Where it is.
    pub address: SocketAddr,
    /// Since when it is there.
    pub since: Timestamp,
}

/// A cell in a list of all members of the mesh.
#[derive(Debug)]
pub struct Listed {
    /// Who.
    pub identity: Arc<MemberIdentity>,
    /// Whether it is there.
    pub is_there: bool,
    /// Where.
    pub address: SocketAddr,
    /// What it last said of its nature.
    pub info: Option<Arc<CellInfo>>,
    /// What it last said of its load.
    pub load: Option<CellLoad>,
}

#[derive(Debug, Default)]
struct CellEntry {
    /// Who it is, while it is there.
    there: Option<PresentSince>,
    info: Option<Arc<CellInfo>>,
    load: Option<CellLoad>,
}

#[derive(Debug, Clone, Copy)]
struct PresentSince {
    member: MemberId,
    /// Its life, if we have heard which.
    generation: Option<u64>,
    address: SocketAddr,
    since: Timestamp,
}

/// All cells that the coordinator has heard of.
#[derive(Debug)]
pub struct CellTable {
    presence: LossTracker,
    watch: DriftDetector,
    cells: BTreeMap<CellId, CellEntry>,
    settle_after: std::time::Duration,
    /// When it is time to say that all have been heard.
    settle_at: Timestamp,
    out: Vec<Told>,
}

impl CellTable {
    /// Nobody has been heard of yet.
    pub fn new(now: Timestamp, settings: &CellsSettings) -> Self {
        CellTable {
            presence: LossTracker::new(settings.hold.clone()),
            watch: DriftDetector::new(settings.mismatch_lasts, settings.longest_sync_pause),
            cells: BTreeMap::new(),
            settle_after: settings.settle_after,
            settle_at: now + settings.settle_after * ALONE,
            out: Vec::new(),
        }
    }

    /// When to [`CellTable::pass`], if nothing is heard.
    pub fn wake_at(&self) -> Option<Timestamp> {
        let settle = (!self.presence.is_settled()).then_some(self.settle_at);
        self.presence.wake_at().into_iter().chain(settle).min()
    }

    /// A cell that is there and has said what it is.
    pub fn cell(&self, cell: &CellId) -> Option<CellStatus> {
        let known = self.cells.get(cell)?;
        let PresentSince { member, address, since, .. } = known.there?;
        let (info, load) = (Arc::clone(known.info.as_ref()?), known.load.clone());
        Some(CellStatus { info, load, member, address, since })
    }

    /// Whether the mesh has said last that this cell is there.
    pub fn is_there(&self, cell: &CellId) -> bool {
        self.cells.get(cell).is_some_and(|known| known.there.is_some())
    }

    /// Whether the loss of many cells is held back now.
    pub fn holding(&self) -> Option<HoldStatus> {
        self.presence.holding()
    }

    /// Whether all cells that are there have been heard.
    pub fn is_settled(&self) -> bool {
        self.presence.is_settled()
    }

    /// What follows from all that was taken in since this was last called.
    #[must_use]
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.out)
    }

    /// The mesh has told what it knew.
    pub fn synced(&mut self, now: Timestamp) {
        self.settle_at = self.settle_at.min(now + self.settle_after);
    }

    /// An operator has losses that are held acted on.
    pub fn release(&mut self, now: Timestamp) {
        let words = self.presence.release(now);
        self.say(words);
    }

    /// A cell is there: new, again, in a new life, or at another address.
    pub fn cell_present(
        &mut self,
        now: Timestamp,
        identity: &MemberIdentity,
        generation: Option<u64>,
        address: SocketAddr,
    ) {
        let cell = &identity.name;
        let known = self.cells.entry(cell.clone()).or_default();
        let before = known.there;
        // The life may not have been heard yet: then the first that is named is this one.
        let another_life = before.is_some_and(|it| {
            it.member != identity.member
                || (it.generation.is_some() && generation.is_some() && it.generation != generation)
        });
        let since = before.filter(|_| !another_life).map_or(now, |it| it.since);
        let generation = generation.or(before.and_then(|it| it.generation));
        known.there = Some(PresentSince { member: identity.member, generation, address, since });
        let is_new = before.is_none();
        if is_new || another_life {
            self.out.push(Told::Open(cell.clone(), identity.member));
            self.watch.forget(cell);
            let note = if is_new { CellNotice::Came } else { CellNotice::Restarted };
            self.out.push(Told::Note(note(cell.clone(), identity.member)));
            // What its last life said is told again: it stands until the new one says otherwise.
            self.restart_in_auction(cell);
        }
        let words = self.presence.cell_present(now, cell);
        self.say(words);
        self.out.push(Told::Show(cell.clone()));
    }

    /// A cell is there no longer; whether it said goodbye.
    pub fn cell_missing(&mut self, now: Timestamp, identity: &MemberIdentity, left: bool) {
        let cell = &identity.name;
        let Some(known) = self.cells.get_mut(cell) else { return };
        if known.there.is_none_or(|it| it.member != identity.member) {
            return;
        }
        known.there = None;
        self.out.push(Told::Note(CellNotice::Went(cell.clone(), left)));
        self.out.push(Told::Auction(AuctionInput::Gone(cell.clone())));
        self.out.push(Told::Close(cell.clone()));
        self.watch.forget(cell);
        let words = self.presence.cell_missing(now, cell);
        self.say(words);
        self.out.push(Told::Show(cell.clone()));
    }

    /// A cell says what it is.
    pub fn on_info(&mut self, info: Arc<CellInfo>) {
        let cell = info.cell_id.clone();
        let known = self.cells.entry(cell.clone()).or_default();
        let goes_back = known.info.as_ref().is_some_and(|it| info.version < it.version);
        known.info = Some(Arc::clone(&info));
        if known.there.is_some() {
            if goes_back {
                self.restart_in_auction(&cell);
            } else {
                self.out.push(Told::Auction(AuctionInput::Info(info)));
            }
        }
        self.out.push(Told::Show(cell));
    }

    /// A cell says how it is doing.
    pub fn on_load(&mut self, load: CellLoad) {
        let cell = load.cell_id.clone();
        let known = self.cells.entry(cell.clone()).or_default();
        if known.load.as_ref() == Some(&load) {
            // Of a list, and told once more.
            return;
        }
        // The mesh tells only what is newer. So a lower count is a new life's, whether or not we
        // have heard of that yet.
        let goes_back = known.load.as_ref().is_some_and(|it| load.version <= it.version);
        known.load = Some(load.clone());
        if known.there.is_some() {
            if goes_back {
                self.restart_in_auction(&cell);
            } else {
                self.out.push(Told::Auction(AuctionInput::Load(load)));
            }
        }
        self.out.push(Told::Show(cell));
    }

    /// Has the auction begin anew with a cell that is there.
    fn restart_in_auction(&mut self, cell: &CellId) {
        let Some(known) = self.cells.get(cell) else { return };
        let info = known.info.clone().map(AuctionInput::Info);
        let load = known.load.clone().map(AuctionInput::Load);
        let all = [Some(AuctionInput::Reborn(cell.clone())), info, load];
        self.out.extend(all.into_iter().flatten().map(Told::Auction));
    }

    /// Passes on what follows from who is there.
    fn say(&mut self, words: Vec<PresenceChange>) {
        for word in words {
            let told = match word {
                PresenceChange::Present(cell) => Told::Board(cell, CellPresence::Present),
                PresenceChange::Missing(_) if mutated(Bug::MissingIsNotTold) => continue,
                PresenceChange::Missing(cell) => Told::Board(cell, CellPresence::Missing),
                PresenceChange::Settled => Told::Settled(self.presence.present().len()),
                PresenceChange::Held(holding) => {
                    let missing = holding.of - self.presence.present().len();
                    Told::Note(CellNotice::Held(holding, missing))
                }
                PresenceChange::Released(why) => Told::Note(CellNotice::Released(why)),
            };
            self.out.push(told);
        }
    }

    /// What is due because of who is there.
    pub fn pass(&mut self, now: Timestamp, records: &Records) {
        let words = self.presence.pass(now);
        self.say(words);
        if !self.presence.is_settled() && self.settle_at <= now {
            let words = self.presence.settle(now, records.named_cells());
            self.say(words);
            // If that is held, the hold ends it.
            self.settle_at = Timestamp::NEVER;
        }
    }

    /// What is looked at once in a while. `is_idle`: nothing is under way to this cell.
    pub fn look(&mut self, now: Timestamp, records: &Records, is_idle: impl Fn(&CellId) -> bool) {
        self.compare_digests(now, records, is_idle);
        // The timer begins anew with everything that is heard: in a storm it might never end.
        self.pass(now, records);
    }

    fn compare_digests(
        &mut self,
        now: Timestamp,
        records: &Records,
        is_idle: impl Fn(&CellId) -> bool,
    ) {
        for (cell, known) in &self.cells {
            let (Some(_), Some(load)) = (&known.there, &known.load) else { continue };
            let board = records.digest_on(cell).number();
            // Most agree: whether something is under way is asked of the others only.
            let is_quiet = load.digest == board || is_idle(cell);
            let said = load.digest;
            let sight =
                if is_quiet { Observation::Quiet { said, board } } else { Observation::UnderWay };
            if self.watch.check_drift(now, cell, sight) {
                self.out.push(Told::Note(CellNotice::Differs(cell.clone())));
                self.out.push(Told::Order(cell.clone(), CellOrder::Sync));
            }
        }
    }

    fn tell_auction_everything(&mut self) {
        let cells: Vec<(CellId, bool)> =
            self.cells.iter().map(|(cell, known)| (cell.clone(), known.there.is_some())).collect();
        for (cell, is_there) in cells {
            if is_there {
                self.restart_in_auction(&cell);
            } else {
                self.out.push(Told::Auction(AuctionInput::Gone(cell)));
            }
        }
    }

    /// All members of the mesh that are cells: makes good what was missed. Lives are not in that list,
    /// so each cell counts as begun anew.
    pub fn listed(&mut self, now: Timestamp, all: Vec<Listed>) {
        for Listed { identity, is_there, address, info, load } in all {
            let known = self.cells.entry(identity.name.clone()).or_default();
            // Of two members with one name, only the one that is there says what the cell is.
            if is_there || known.there.is_none() {
                known.info = info.or(known.info.take());
                known.load = load.or(known.load.take());
            }
            if is_there {
                if let Some(there) = &mut known.there {
                    there.generation = None;
                }
                self.cell_present(now, &identity, None, address);
            } else {
                self.cell_missing(now, &identity, false);
            }
        }
        self.tell_auction_everything();
    }

    /// Forgets cells that the mesh has forgotten: those named here are all that it knows.
    pub fn forget_others(&mut self, names: &BTreeSet<&CellId>) {
        self.cells.retain(|cell, known| known.there.is_some() || names.contains(cell));
    }
}
