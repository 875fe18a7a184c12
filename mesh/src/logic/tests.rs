//! A mesh of real members on a simulated network.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod expelled;
mod fleets;
mod hostile;
mod random;
mod trouble;
