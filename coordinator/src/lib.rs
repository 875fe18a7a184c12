//! The coordinator of a Volvox fleet: the BBS, the board of desired and actual state, and the
//! auction that finds cells for work.

pub mod auction;
pub mod bbs;
pub mod cells;
