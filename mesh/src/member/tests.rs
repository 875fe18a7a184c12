//! A mesh of real members on a simulated network.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod bounds;
mod detection;
mod filter;
mod fleets;
mod health;
mod hostile;
mod random;
mod revoked;
mod trouble;
