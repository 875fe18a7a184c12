//! A whole fleet in one thread, from one seed: the real board and writer, auction, cells' floor, reps,
//! executors, step trees, members of the mesh and the store, on a network, a clock, disks and machines that are
//! simulated. The same seed is the same run, to the last event.
//!
//! | module | what it is |
//! |---|---|
//! | [`plan`] | what a run is made of: sizes, times, which kinds of trouble |
//! | [`world`] | the queue of events and the clock; everybody is in it |
//! | `cell` | one machine with its disk, and the agent on it while there is one: its executor, and its rep |
//! | `center` | the coordinator: writer, floor, post, auction |
//! | `desk` | what it answers to cells |
//! | `callbacks` | whom it tells of the ends of tasks |
//! | `disk` | the coordinator's disk: its real store and SQLite on files that fail |
//! | `consumer` | somebody who desires, scales, updates, cancels, rolls back and deletes at random |
//! | `trouble` | everything that goes wrong, and its end |
//! | `checks` | what must always hold, and what must hold in the end |
//! | [`scale`] | very large fleets that lose cells |
//! | `shrink` | less of a run that fails, while it still fails |
//!
//! The harness stands in for the drivers, which are thin: it performs the same effects in the same
//! order, only later, twice, half or not at all. Where a driver decided something, that was made a pure
//! part of its crate, which runs here; `docs/testing.md` says what was not.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod callbacks;
mod cell;
mod center;
mod checks;
mod consumer;
mod desk;
mod disk;
pub mod plan;
pub mod scale;
mod shrink;
mod trouble;
pub mod world;

pub use checks::Failure;
pub use plan::{Kind, Plan};
pub use shrink::shrink;
pub use world::{Outcome, World, run};
