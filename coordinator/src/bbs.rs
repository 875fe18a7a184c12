//! The BBS: every rule about LRPs, tasks, domains, evacuation, suspects and convergence, and the
//! store that makes its decisions last.
//!
//! [`logic`] decides: `(state, now, command) → changes + events + effects | rejection`, a plain
//! function. The [`Core`](crate::core::Core) takes commands in batches and applies them; when their changes
//! are committed in one transaction of the [`store`], it publishes them to the [`view`], answers, and
//! hands out events (by the [`hub`]) and effects. Whoever reads, reads a view: never the board, never SQLite.

pub mod clock;
pub mod command;
pub mod hub;
pub mod logic;
pub mod settings;
pub mod state;
pub mod store;
pub mod view;
