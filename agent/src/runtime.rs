//! What the executor stands on: containers of one machine. [`Runtime`] is what it asks for,
//! [`machine`] does it for real, one kernel subject to a file, and [`fake`] in memory.

pub mod check;
pub mod dependency;
pub mod fake;
pub mod files;
pub mod image_mount;
pub mod log_reader;
pub mod machine;
pub mod net;
pub mod privilege;
mod program;
pub mod shim;
mod shim_timeouts;
pub mod transfer;
