//! What agent and shim both ask of the kernel: one subject each, no decisions.

pub mod cgroup;
mod devices;
pub(crate) mod remove;
pub(crate) mod sys;
