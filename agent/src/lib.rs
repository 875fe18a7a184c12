//! The agent of a Volvox cell. So far: parts of the executor, not yet a program.

pub mod executor;
pub mod image;
pub mod runtime;
pub mod shim;
