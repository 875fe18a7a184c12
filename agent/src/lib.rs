//! The agent of a Volvox cell: an executor of containers, and the shims that hold them.

pub mod cli;
pub mod config;
pub mod control;
pub mod executor;
pub mod image;
pub mod run;
pub mod runtime;
pub mod shim;
