//! The agent of a Volvox cell: a rep that speaks to the coordinator, an executor of containers, and the
//! shims that hold them.

pub mod cli;
pub mod config;
pub mod container;
pub mod control;
pub mod core;
pub mod executor;
pub mod gossip;
pub mod image;
pub mod kernel;
mod offline;
pub mod rep;
pub mod run;
pub mod runtime;
pub mod shim;
pub mod streams;
