//! What an operator may choose about the coordinator's side of its cells.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::time::Duration;

/// Times, shares and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellsSettings {
    /// How long after it has heard what others knew a new coordinator waits, before cells that it
    /// has not heard of count as missing. Cells dial again within 15 s.
    pub settle_after: Duration,
    /// When many cells vanish together.
    pub hold: HoldPolicy,
    /// How long cell and board must disagree in the same way before the cell is told to sync.
    pub mismatch_lasts: Duration,
    /// The longest pause between two such orders to one cell; it doubles up to this.
    pub longest_sync_pause: Duration,
    /// How long a cell has to answer to orders. What it does then is not known.
    pub answer_within: Duration,
    /// Reports, fetches and pages of syncs of one cell that are served at once. More are refused as
    /// busy.
    pub requests_per_cell: usize,
}

/// When the loss of cells is held back instead of acted on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldPolicy {
    /// More than this share of the cells, in hundredths; 100: never hold.
    pub share_percent: u32,
    /// And at least so many.
    pub at_least: usize,
    /// Within this time.
    pub window: Duration,
    /// For so long.
    pub grace: Duration,
    /// From the loss on that could make the number full ([`HoldPolicy::at_least`]), each waits so
    /// long before it is acted on: those who vanish together are found missing one after the other.
    pub gather: Duration,
}

impl Default for HoldPolicy {
    fn default() -> Self {
        HoldPolicy {
            share_percent: 30,
            at_least: 3,
            window: Duration::from_secs(30),
            grace: Duration::from_secs(60),
            gather: Duration::from_secs(3),
        }
    }
}

impl Default for CellsSettings {
    fn default() -> Self {
        CellsSettings {
            settle_after: Duration::from_secs(20),
            hold: HoldPolicy::default(),
            mismatch_lasts: Duration::from_secs(10),
            longest_sync_pause: Duration::from_secs(600),
            answer_within: Duration::from_secs(10),
            requests_per_cell: 8,
        }
    }
}
