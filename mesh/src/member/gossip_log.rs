//! News on its way: what is to be told to each of those we tell, in order, within a budget.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::collections::VecDeque;
use std::time::Duration;

use volvox_protocol::time::Timestamp;

use crate::identity::MemberId;
use crate::record::Item;

/// News that is kept for those who have not been told. What falls out is found by comparison.
const RUMOURS: usize = 1_024;

/// News that is kept after everybody was told, for those who come: a newcomer is told everything by
/// one, and what came up between that and its first links nobody else would tell it.
const RECENT: (usize, Duration) = (128, Duration::from_secs(2));

/// One piece, and from whom we have it.
#[derive(Debug)]
pub(super) struct GossipItem {
    pub(super) item: Item,
    pub(super) from: Option<MemberId>,
    at: Timestamp,
}

/// A log that several readers follow, each at its own place.
#[derive(Debug, Default)]
pub(super) struct GossipLog {
    first: u64,
    rumours: VecDeque<GossipItem>,
}

impl GossipLog {
    pub(super) fn push(&mut self, now: Timestamp, item: Item, from: Option<MemberId>) {
        self.rumours.push_back(GossipItem { item, from, at: now });
        if self.rumours.len() > RUMOURS {
            self.rumours.pop_front();
            self.first += 1;
        }
    }

    /// The place from which one who is new to us is told.
    pub(super) fn recent(&self, now: Timestamp) -> u64 {
        let (most, span) = RECENT;
        let young = self.rumours.iter().rev().take(most);
        let young = young.take_while(|enqueue| now.since(enqueue.at) < span).count();
        self.end() - young as u64
    }

    /// The place after the last piece.
    pub(super) fn end(&self) -> u64 {
        self.first + self.rumours.len() as u64
    }

    /// The pieces from `place` on, with the place after each. What was dropped is skipped.
    pub(super) fn from(&self, place: u64) -> impl Iterator<Item = (u64, &GossipItem)> {
        let skip = usize::try_from(place.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let skip = skip.min(self.rumours.len());
        let after = self.first + skip as u64 + 1;
        (after..).zip(self.rumours.range(skip..))
    }

    /// Everybody has read up to `place`.
    pub(super) fn drop_until(&mut self, now: Timestamp, place: u64) {
        let place = place.min(self.recent(now));
        while self.first < place && self.rumours.pop_front().is_some() {
            self.first += 1;
        }
        if self.rumours.is_empty() && self.rumours.capacity() > 256 {
            self.rumours.shrink_to(16);
        }
    }
}

/// So much for each second, and a little at once.
#[derive(Debug)]
pub(super) struct Budget {
    per_second: u32,
    /// In thousandths, so that short spans count; below zero: a debt.
    left: i64,
    most: i64,
    at: Timestamp,
}

impl Budget {
    pub(super) fn new(per_second: u32, at_once: u32, now: Timestamp) -> Budget {
        let most = i64::from(at_once) * 1_000;
        Budget { per_second, left: most, most, at: now }
    }

    /// Whether anything is left.
    pub(super) fn is_open(&mut self, now: Timestamp) -> bool {
        self.refill(now);
        self.left > 0
    }

    /// Takes `amount` if there is anything left. What is overdrawn is waited for.
    pub(super) fn take(&mut self, now: Timestamp, amount: usize) -> bool {
        if !self.is_open(now) {
            return false;
        }
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(amount.saturating_mul(1_000));
        true
    }

    fn refill(&mut self, now: Timestamp) {
        let span = u32::try_from(now.since(self.at).as_millis()).unwrap_or(u32::MAX);
        if span > 0 {
            self.at = self.at + Duration::from_millis(span.into());
            let earned = i64::from(span) * i64::from(self.per_second);
            self.left = self.left.saturating_add(earned).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::identity::Signature;
    use crate::record::{Suspicion, Version};

    fn item(count: u32) -> Item {
        let nobody = MemberId([0; 16]);
        let alive = Version { generation: 0, count };
        let signature = Signature::NONE;
        Item::Suspicion(Arc::new(Suspicion { by: nobody, subject: nobody, alive, signature }))
    }

    #[test]
    fn each_reader_gets_each_piece_once_and_a_slow_one_misses_the_oldest() {
        let (start, later) = (Timestamp::from_secs(1), Timestamp::from_secs(9));
        let mut log = GossipLog::default();
        (0..3).for_each(|count| log.push(start, item(count), None));
        let places: Vec<u64> = log.from(1).map(|(after, _)| after).collect();
        assert_eq!((places, log.end()), (vec![2, 3], 3));
        log.drop_until(later, 2);
        assert_eq!(log.from(0).map(|(after, _)| after).collect::<Vec<_>>(), [3]);
        (0..10_000).for_each(|count| log.push(start, item(count), None));
        assert_eq!(log.from(0).count(), RUMOURS);
        assert_eq!(log.from(0).last().unwrap().0, log.end());
        log.drop_until(later, log.end());
        assert_eq!(log.from(0).count(), 0);
    }

    #[test]
    fn who_comes_is_told_what_is_recent_and_no_more() {
        let (most, span) = RECENT;
        let (start, half) = (Timestamp::from_secs(1), span / 2);
        let mut log = GossipLog::default();
        (0..5).for_each(|count| log.push(start, item(count), None));
        (0..7).for_each(|count| log.push(start + half, item(count), None));
        log.drop_until(start + half, log.end());
        assert_eq!(log.from(log.recent(start + half)).count(), 12, "all were read, and are kept");
        assert_eq!(log.from(log.recent(start + span)).count(), 7);
        (0..1_000).for_each(|count| log.push(start + span, item(count), None));
        assert_eq!(log.from(log.recent(start + span)).count(), most);
        log.drop_until(start + span * 2, log.end());
        assert_eq!((log.from(0).count(), log.recent(start + span * 2)), (0, log.end()));
    }

    #[test]
    fn a_budget_is_kept_over_time_whatever_the_steps() {
        let start = Timestamp::from_secs(1);
        let mut budget = Budget::new(1_000, 500, start);
        let mut taken = 0;
        for step in 0..10_000u64 {
            let now = start + Duration::from_micros(step * 700);
            if budget.take(now, 100) {
                taken += 100;
            }
        }
        assert!((7_000..=7_700).contains(&taken), "{taken} bytes in seven seconds");
    }
}
