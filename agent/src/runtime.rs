//! What the kernel is asked for: one subject each.

pub mod cgroup;
pub mod connection;
mod devices;
pub mod image_mount;
pub mod net;
pub mod privilege;
mod program;
pub(crate) mod remove;
pub mod shim;
pub mod spec;
