//! When the board is told that a cell is missing, and when that is held back.
//!
//! A single loss is told at once: its work is wanted elsewhere. But when many cells vanish together,
//! more likely the network, a switch or we ourselves are ill, and replacing everything would
//! double the load on the rest. So when more than a share of the cells goes missing within a window,
//! what has not been told yet is *held* for a grace time. The board goes on believing in those cells;
//! the auction does not, and sends them nothing.
//!
//! - The first losses of a window, fewer than could ever be many, are told at once. From then on each
//!   waits a moment (`gather`) to see how many they become: so a rack of a large fleet is told a few
//!   seconds late, and a large part of the fleet is not told in pieces.
//! - A cell that comes back while it is held was never gone, as far as the board knows.
//! - What goes missing while others are held is held with them, and until the same end. The end is not
//!   put off: then all who are still missing are told, and counting begins anew.
//! - What was told before the hold began stays told.
//! - At the start, cells that records name and that were not heard by the time they should have been
//!   count as lost together. If they are many, that we have heard everybody is held too.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use volvox_protocol::id::CellId;
use volvox_protocol::time::Timestamp;

use super::settings::HoldPolicy;

/// What follows from what was heard, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PresenceChange {
    /// Tell the board that the cell is there.
    Present(CellId),
    /// Tell the board that the cell is missing.
    Missing(CellId),
    /// Tell the board that all cells have been heard.
    Settled,
    /// Replacement is held from now on: an operator should look.
    Held(HoldStatus),
    /// It is held no longer, and this is why.
    Released(HoldEnd),
}

/// Why a hold has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldEnd {
    /// All that were held are back.
    CameBack,
    /// Its time was over.
    TimeIsUp,
    /// An operator said so.
    Told,
}

/// A hold, for people to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldStatus {
    /// Cells that are held: missing, and the board does not know.
    pub cells: usize,
    /// Cells that there were when it began, these included.
    pub of: usize,
    /// Since when.
    pub since: Timestamp,
    /// Until when, if they do not come back and nobody says otherwise.
    pub until: Timestamp,
}

/// A cell that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct MissingCell {
    at: Timestamp,
    told: Told,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The board knows.
    Yes,
    /// It will be told, unless the cell comes back.
    NotYet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hold {
    of: usize,
    since: Timestamp,
    until: Timestamp,
}

/// Whether the board knows that it has heard of everybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum SettleState {
    /// It is not time yet.
    #[default]
    Early,
    /// It would be, but many are held.
    Held,
    Done,
}

/// Who is there, who is not, and what the board knows of it.
#[derive(Debug)]
pub struct LossTracker {
    policy: HoldPolicy,
    present: BTreeSet<CellId>,
    /// Missing, and either within the window or not told.
    lost: BTreeMap<CellId, MissingCell>,
    hold: Option<Hold>,
    settling: SettleState,
}

impl LossTracker {
    /// Nobody has been heard of.
    pub fn new(policy: HoldPolicy) -> Self {
        LossTracker {
            policy,
            present: BTreeSet::new(),
            lost: BTreeMap::new(),
            hold: None,
            settling: SettleState::Early,
        }
    }

    /// The cells that are there.
    pub fn present(&self) -> &BTreeSet<CellId> {
        &self.present
    }

    /// Whether the board has been told that it has heard of everybody.
    pub fn is_settled(&self) -> bool {
        self.settling == SettleState::Done
    }

    /// The hold that there is.
    pub fn holding(&self) -> Option<HoldStatus> {
        let Hold { of, since, until } = self.hold?;
        Some(HoldStatus { cells: self.untold().count(), of, since, until })
    }

    /// The mesh has heard a cell.
    pub fn cell_present(&mut self, now: Timestamp, cell: &CellId) -> Vec<PresenceChange> {
        if !self.present.insert(cell.clone()) {
            return Vec::new();
        }
        let mut words = Vec::new();
        match self.lost.remove(cell) {
            Some(MissingCell { told: Told::NotYet, .. }) if self.settling == SettleState::Done => {}
            // Before the end of settling the board may never have heard of it.
            Some(_) | None => words.push(PresenceChange::Present(cell.clone())),
        }
        if self.hold.is_some() && self.untold().next().is_none() {
            words.extend(self.end(now, HoldEnd::CameBack));
        }
        words
    }

    /// The mesh finds a cell missing.
    pub fn cell_missing(&mut self, now: Timestamp, cell: &CellId) -> Vec<PresenceChange> {
        if !self.present.remove(cell) {
            return Vec::new();
        }
        self.forget(now);
        self.lost.insert(cell.clone(), MissingCell { at: now, told: Told::NotYet });
        if self.hold.is_some() {
            return Vec::new();
        }
        if self.are_many() {
            return vec![self.begin(now)];
        }
        if self.lost.len() < self.policy.at_least {
            return self.tell(|_| true);
        }
        Vec::new()
    }

    /// Everybody who is there should have been heard by now. `named` are the cells that records name.
    pub fn settle<'a>(
        &mut self,
        now: Timestamp,
        named: impl IntoIterator<Item = &'a CellId>,
    ) -> Vec<PresenceChange> {
        if self.settling != SettleState::Early {
            return Vec::new();
        }
        self.forget(now);
        let unheard: Vec<CellId> = named
            .into_iter()
            .filter(|cell| !self.present.contains(*cell) && !self.lost.contains_key(*cell))
            .cloned()
            .collect();
        let lost = MissingCell { at: now, told: Told::NotYet };
        self.lost.extend(unheard.iter().map(|cell| (cell.clone(), lost)));
        if self.hold.is_some() {
            self.settling = SettleState::Held;
            return Vec::new();
        }
        if self.are_many() {
            self.settling = SettleState::Held;
            return vec![self.begin(now)];
        }
        // The board finds them missing by itself.
        unheard.iter().for_each(|cell| {
            self.lost.insert(cell.clone(), MissingCell { at: now, told: Told::Yes });
        });
        self.settling = SettleState::Done;
        vec![PresenceChange::Settled]
    }

    /// Does what is due by now.
    pub fn pass(&mut self, now: Timestamp) -> Vec<PresenceChange> {
        match self.hold {
            Some(hold) if hold.until <= now => self.end(now, HoldEnd::TimeIsUp),
            Some(_) => Vec::new(),
            None => {
                let gather = self.policy.gather;
                let words = self.tell(|lost| lost.at + gather <= now);
                self.forget(now);
                words
            }
        }
    }

    /// An operator wants the losses acted on now.
    pub fn release(&mut self, now: Timestamp) -> Vec<PresenceChange> {
        if self.hold.is_some() { self.end(now, HoldEnd::Told) } else { Vec::new() }
    }

    /// When to [`pass`](LossTracker::pass) if nothing is heard.
    pub fn wake_at(&self) -> Option<Timestamp> {
        match self.hold {
            Some(hold) => Some(hold.until),
            None => self.untold().map(|(_, lost)| lost.at + self.policy.gather).min(),
        }
    }

    fn untold(&self) -> impl Iterator<Item = (&CellId, &MissingCell)> {
        self.lost.iter().filter(|(_, lost)| lost.told == Told::NotYet)
    }

    fn are_many(&self) -> bool {
        let (lost, all) = (self.lost.len(), self.lost.len() + self.present.len());
        lost >= self.policy.at_least.max(1)
            && self.policy.share_percent < 100
            && lost.saturating_mul(100)
                > all.saturating_mul(usize::try_from(self.policy.share_percent).unwrap_or(100))
    }

    fn begin(&mut self, now: Timestamp) -> PresenceChange {
        let of = self.lost.len() + self.present.len();
        self.hold = Some(Hold { of, since: now, until: now + self.policy.grace });
        PresenceChange::Held(self.holding().expect("it was begun in the line above"))
    }

    /// Ends the hold, tells what is still missing, and begins to count anew.
    fn end(&mut self, now: Timestamp, why: HoldEnd) -> Vec<PresenceChange> {
        self.hold = None;
        let mut words = vec![PresenceChange::Released(why)];
        words.extend(self.tell(|_| true));
        if why == HoldEnd::CameBack {
            self.forget(now);
        } else {
            self.lost.clear();
        }
        if self.settling == SettleState::Held {
            self.settling = SettleState::Done;
            words.push(PresenceChange::Settled);
        }
        words
    }

    fn tell(&mut self, due: impl Fn(&MissingCell) -> bool) -> Vec<PresenceChange> {
        let mut words = Vec::new();
        for (cell, lost) in &mut self.lost {
            if lost.told == Told::NotYet && due(lost) {
                lost.told = Told::Yes;
                words.push(PresenceChange::Missing(cell.clone()));
            }
        }
        words
    }

    /// Losses before the window that the board knows count no longer.
    fn forget(&mut self, now: Timestamp) {
        let window = self.policy.window;
        self.lost.retain(|_, lost| lost.told == Told::NotYet || lost.at + window > now);
    }
}
