//! What the kernel is asked for: one subject each.

pub mod cgroup;
pub mod check;
pub mod connection;
pub mod dependency;
pub mod files;
pub mod log_reader;
pub mod net;
pub mod shim;
pub mod spec;
pub mod transfer;
