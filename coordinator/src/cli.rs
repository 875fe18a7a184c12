//! The commands of `volvox-coordinator` that are not about a database at rest.

pub(crate) mod mesh;
pub(crate) mod serve;
mod socket;
pub(crate) mod span;
pub(crate) mod token;
