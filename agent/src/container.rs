//! What the executor, a machine and the shims say of a container: values that all of them share, so
//! that none of them need know another. They depend on `protocol` only.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

pub mod check_text;
pub mod exit;
pub mod guid;
pub mod network;
pub mod op;
pub mod plan;
pub mod runtime;
pub mod spec;
pub mod step;
pub mod text;
