//! The mesh: how soon all know all, who is gone and how loaded each is, and what that costs.
//!
//! Up to 200 members run here for real. Larger meshes are simulated: the members are the real ones, the network, the clock and the
//! signatures are not, and bytes are counted by a model of QUIC. So processor time and memory of a
//! member are no figures of a simulation.

mod real;
mod simulated;

use std::path::Path;

use volvox_bench::figures::Figures;

/// Measures the group `mesh`: the real members first, alone, then the simulated ones on two threads.
pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    real::run(figures)?;
    // What follows takes long.
    figures.write(Path::new("bench-results.json"))?;
    simulated::run(figures, "")
}

/// Only the real members.
pub(crate) fn run_real(figures: &mut Figures) -> anyhow::Result<()> {
    real::run(figures)
}

/// Only real members that are killed alone, or start again.
pub(crate) fn run_restarts(figures: &mut Figures) -> anyhow::Result<()> {
    real::run_restarts(figures)
}

/// Only the simulated members: all, or the part of this name.
pub(crate) fn run_simulated(figures: &mut Figures, part: &str) -> anyhow::Result<()> {
    simulated::run(figures, part.trim_start_matches("mesh.simulated."))
}
