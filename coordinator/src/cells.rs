//! The coordinator's side of its cells: who is there, what they report, what they are told to do.
//!
//! | file | what it holds | pure |
//! |---|---|---|
//! | [`settings`] | times, shares and limits | yes |
//! | [`loss`] | when the board is told that a cell is missing, and when that is held back | yes |
//! | [`drift`] | which cell is to sync, because it and the board lastingly disagree | yes |
//! | [`logic`] | the cells as one value: who is there, and who is to be told what | yes |
//! | [`orders`] | what waits to be sent to one cell | yes |
//! | [`order_queues`] | what waits for all of them, and what comes of each message | yes |
//! | [`admission`] | who may ask, and how much at once | yes |
//! | [`sync`] | what a cell is told of the records: definitions, and pages of a sync | yes |
//!
//! All of it is a part of the [`Core`](crate::core::Core) but the desk, which stands before it; the member
//! of the mesh is in [`driver::cells`](crate::driver::cells).

pub mod admission;
pub mod drift;
pub mod logic;
pub mod loss;
pub mod order_queues;
pub mod orders;
pub mod settings;
pub mod sync;

pub use settings::CellsSettings;
