//! The coordinator's side of its cells: who is there, what they report, what they are told to do.
//!
//! | file | what it holds | pure |
//! |---|---|---|
//! | [`settings`] | times, shares and limits | yes |
//! | [`presence`] | when the board is told that a cell is missing, and when that is held back | yes |
//! | [`digests`] | which cell is to sync, because it and the board lastingly disagree | yes |
//! | [`logic`] | the cells as one value: who is there, and who is to be told what | yes |
//! | [`orders`] | what waits to be sent to one cell | yes |
//! | [`addresses`] | what waits for all of them, and what comes of each message | yes |
//! | [`desk`] | who may ask, and how much at once | yes |
//! | [`records`] | what a cell is told of the records: definitions, and pages of a sync | yes |
//!
//! All of it is a part of the [`Core`](crate::core::Core) but the desk, which stands before it; the member
//! of the mesh is in [`driver::cells`](crate::driver::cells).

pub mod addresses;
pub mod desk;
pub mod digests;
pub mod logic;
pub mod orders;
pub mod presence;
pub mod records;
pub mod settings;

pub use settings::Settings;
