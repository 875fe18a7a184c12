//! The coordinator of a Volvox fleet: one process with the board of desired and actual state (the
//! BBS), the auction that finds cells for work, the cells themselves as the mesh tells of them, and the
//! HTTP API.

pub mod api;
pub mod auction;
pub mod bbs;
pub mod callback;
pub mod cells;
pub mod cli;
pub mod config;
pub mod core;
pub mod driver;
mod offline;
pub mod run;
