//! placeholder until merged
pub(crate) mod real;
