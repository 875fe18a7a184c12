//! The auction: which cell gets which work.
//!
//! [`logic`] decides: `(fleet, batch, where instances are) → placements + failures`, a plain
//! function. [`rounds`] decides what each round is about: it collects work, takes capacity as heard
//! minus what was sent and is not yet reflected, and carries over what was refused or found no
//! place; they are a part of the [`Core`](crate::core::Core). No cell is ever polled.
//!
//! | file | what it holds |
//! |---|---|
//! | [`settings`] | weights, the zone policy, the limit on starts, the cluster's seed |
//! | [`fleet`] | the cells of one round, in an order of their own |
//! | [`batch`] | work, each piece once, and in which order it is placed |
//! | [`board`] | what the auction asks the BBS |
//! | [`filter`] | whether a cell may take it, and the errors that consumers see |
//! | [`score`] | what it costs in evenness to place it on a cell |
//! | [`index`] | the cheapest cell of many, without looking at all of them |
//! | [`explain`] | why an instance or a task is where it is, or is nowhere |

pub mod batch;
pub mod board;
pub mod explain;
pub mod filter;
pub mod fleet;
pub mod index;
pub mod logic;
pub mod rounds;
pub mod score;
pub mod settings;
