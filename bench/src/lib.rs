//! What the benchmarks share: a fleet to measure on, and a place to put the figures.

pub mod figures;
pub mod fleet;
