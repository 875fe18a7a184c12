//! What was heard of one cell and sent to it, and how far it is trusted.

use std::sync::Arc;
use std::time::Duration;

use volvox_protocol::cell::{CellCapacity, CellInfo, CellLoad};
use volvox_protocol::request::{LrpStart, WorkBatch};
use volvox_protocol::time::{Backoff, Timestamp};

use super::sent_batch::{ReturnedWork, SentBatch};
use crate::auction::fleet::{Eligibility, FleetCell};

/// Batches of one cell that may be unanswered. Such a cell gets no more until it answers or is
/// given up on.
pub const MOST_UNANSWERED: usize = 16;
/// After so long an answer is not waited for, even if nobody says that there is none: whoever
/// should may have found our queue full.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(60);
/// After so long a batch that was answered is in the cell's load, or the cell has forgotten it:
/// it may have been restarted in between. Then its own word counts.
pub const REFLECTED_WITHIN: Duration = Duration::from_secs(10);
/// How long a cell that refused work, or did not answer, gets none.
pub const PAUSE: Backoff =
    Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(32) };
/// A new load ends a pause at once, but not after so many batches that were refused whole. A cell
/// may say a new load with each refusal, and work would go to and fro as fast as the network can.
pub const QUICK_REFUSALS: u32 = 3;

/// For how long a cell gets no work, and why.
#[derive(Debug, Clone, Copy)]
struct CellCooldown {
    standing: Eligibility,
    until: Timestamp,
    /// Whether a new load ends it.
    until_load: bool,
}

/// What was heard of a cell and sent to it.
#[derive(Debug, Default)]
pub(super) struct TrackedCell {
    info: Option<Arc<CellInfo>>,
    load: Option<CellLoad>,
    /// In the order of their numbers.
    sent: Vec<SentBatch>,
    pause: Option<CellCooldown>,
    /// Batches in a row that were refused whole or not answered.
    in_vain: u32,
}

impl TrackedCell {
    /// The cell as a round sees it, once it has said both what it is and how it is doing.
    pub(super) fn cell(&self) -> Option<FleetCell> {
        let (info, load) = (self.info.as_ref()?, self.load.as_ref()?);
        let mut cell = FleetCell::heard(Arc::clone(info), load);
        for sent in self.sent.iter().filter(|sent| !sent.is_reflected()) {
            let CellCapacity { memory_mb, disk_mb, containers } = sent.room();
            cell.free.memory_mb = cell.free.memory_mb.saturating_sub(memory_mb);
            cell.free.disk_mb = cell.free.disk_mb.saturating_sub(disk_mb);
            cell.free.containers = cell.free.containers.saturating_sub(containers);
            cell.starting = cell.starting.saturating_add(containers);
        }
        if cell.standing == Eligibility::Takes {
            cell.standing = if self.is_silent() {
                Eligibility::Silent
            } else {
                self.pause.map_or(Eligibility::Takes, |pause| pause.standing)
            };
        }
        Some(cell)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.sent.iter().filter(|sent| sent.is_unanswered()).count() >= MOST_UNANSWERED
    }

    /// The number of the last batch that the cell says it has.
    pub(super) fn last_batch(&self) -> u64 {
        self.load.as_ref().map_or(0, |load| load.last_batch)
    }

    /// The instances that were sent and may not be on the board yet.
    pub(super) fn under_way(&self) -> impl Iterator<Item = &LrpStart> {
        self.sent.iter().filter(|sent| !sent.is_given_up()).flat_map(SentBatch::lrps)
    }

    /// What was sent and has not been seen there, when the cell is gone.
    pub(super) fn left_behind(self) -> impl Iterator<Item = WorkBatch> {
        self.sent.into_iter().map(SentBatch::into_batch)
    }

    #[cfg(test)]
    pub(super) fn batches_under_way(&self) -> usize {
        self.sent.iter().filter(|sent| !sent.is_given_up()).count()
    }

    #[cfg(test)]
    pub(super) fn batches_given_up(&self) -> usize {
        self.sent.len() - self.batches_under_way()
    }

    /// Takes what a cell says it is; says whether that was new.
    pub(super) fn take_info(&mut self, info: Arc<CellInfo>) -> bool {
        let newer = self.info.as_ref().is_none_or(|known| known.version < info.version);
        if newer {
            self.info = Some(info);
        }
        newer
    }

    /// Takes a newer load; says whether it was newer.
    pub(super) fn take_load(&mut self, load: CellLoad) -> bool {
        // If it counts from the beginning it has forgotten what we sent, or says so in `free`.
        let mut anew = false;
        if let Some(known) = &self.load {
            if load.version <= known.version {
                return false;
            }
            anew = load.last_batch < known.last_batch;
        }
        for sent in &mut self.sent {
            if anew || sent.number() <= load.last_batch {
                sent.reflect();
            }
        }
        if self.pause.is_some_and(|pause| pause.until_load) {
            self.pause = None;
        }
        self.load = Some(load);
        self.tidy();
        true
    }

    /// The cell was restarted. It counts everything from the beginning, and nothing that it said
    /// before holds; answers that are on their way are still answers.
    pub(super) fn reset(&mut self) {
        self.info = None;
        self.load = None;
        self.pause = None;
        self.in_vain = 0;
        self.sent.iter_mut().for_each(SentBatch::reflect);
        self.tidy();
    }

    /// Notes a batch as sent.
    pub(super) fn note(&mut self, now: Timestamp, batch: WorkBatch) {
        let version = self.load.as_ref().map_or(0, |load| load.version);
        let mut sent = SentBatch::new(now, batch, version);
        if sent.number() <= self.last_batch() {
            sent.reflect();
        }
        self.sent.push(sent);
    }

    /// Takes an answer, and what was refused by it. None: nobody waits for this answer.
    pub(super) fn answered(
        &mut self,
        now: Timestamp,
        number: u64,
        refused: &WorkBatch,
    ) -> Option<ReturnedWork> {
        let sent = self.sent.iter_mut().find(|sent| sent.number() == number)?;
        let back = sent.answered(now, refused)?;
        let (version, whole) = (sent.load_version(), sent.room().containers == 0);
        if back.is_empty() {
            self.in_vain = 0;
            self.pause = self.pause.filter(|pause| pause.standing != Eligibility::Silent);
        } else {
            self.in_vain = if whole { self.in_vain.saturating_add(1) } else { 0 };
            let quick = self.in_vain <= QUICK_REFUSALS;
            // If it has said a load since, the picture was wrong and is no longer.
            let said = self.load.as_ref().is_some_and(|load| load.version > version);
            if !(quick && said) {
                self.pause(now, Eligibility::Refused, quick);
            }
        }
        self.tidy();
        Some(back)
    }

    /// Nobody will answer to this batch; says whether anybody waited for it. Gossip may come by
    /// way of others, so a new load is no sign that batches come through.
    pub(super) fn unanswered(&mut self, now: Timestamp, number: u64) -> bool {
        let awaited = |sent: &&mut SentBatch| sent.number() == number && sent.is_unanswered();
        let sent = self.sent.iter_mut().find(awaited);
        let waited = sent.is_some();
        if let Some(sent) = sent {
            sent.give_up(now);
            self.tidy();
            self.in_vain = self.in_vain.saturating_add(1);
            self.pause(now, Eligibility::Silent, false);
        }
        waited
    }

    fn pause(&mut self, now: Timestamp, standing: Eligibility, until_load: bool) {
        // A batch that was refused in part is not in vain, and costs the first pause.
        let until = now + PAUSE.after(self.in_vain.max(1));
        self.pause = Some(CellCooldown { standing, until, until_load });
    }

    /// When something here is to be done that nobody will say.
    pub(super) fn deadline(&self) -> Option<Timestamp> {
        let pause = self.pause.map(|pause| pause.until);
        self.sent.iter().map(SentBatch::deadline).chain(pause).min()
    }

    /// Does what is due by now; says whether that made room.
    pub(super) fn expire(&mut self, now: Timestamp) -> bool {
        let mut gained = false;
        if self.pause.is_some_and(|pause| pause.until <= now) {
            self.pause = None;
            gained = true;
        }
        let due = self.sent.iter().filter(|sent| sent.deadline() <= now);
        let due: Vec<(u64, bool)> = due.map(|it| (it.number(), it.is_unanswered())).collect();
        for (number, awaited) in due {
            if awaited {
                self.unanswered(now, number);
            } else {
                self.sent.retain(|sent| sent.number() != number);
            }
            gained = true;
        }
        gained
    }

    /// Forgets what is answered and reflected: the rest is in the load, and soon on the board. Of what
    /// was given up on it forgets the oldest, if that is much.
    fn tidy(&mut self) {
        self.sent.retain(|sent| sent.is_unanswered() || (!sent.is_reflected() && !sent.is_empty()));
        let given_up = self.sent.iter().filter(|sent| sent.is_given_up()).count();
        let mut forget = given_up.saturating_sub(MOST_UNANSWERED);
        self.sent.retain(|sent| {
            let oldest = forget > 0 && sent.is_given_up();
            forget -= usize::from(oldest);
            !oldest
        });
    }
}
