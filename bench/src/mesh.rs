//! The mesh: how soon all know all, who is gone and how loaded each is, and what that costs.
//!
//! Large meshes are simulated: the members are the real ones, the network, the clock and the
//! signatures are not, and bytes are counted by a model of QUIC. So processor time and memory of a
//! member are no figures of a simulation.

mod simulated;

use volvox_bench::figures::Figures;

pub(crate) fn run(figures: &mut Figures) -> anyhow::Result<()> {
    simulated::run(figures)
}
