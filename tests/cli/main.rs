//! `volvox` against a whole coordinator, with cells on the real mesh whose containers are simulated.
//! Each test has a cluster of its own. What is said word for word is tested in `cli/tests`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod access;
mod apps;
mod dev;
mod fleet;
mod init;
mod stage;
mod streams;
mod tasks;
mod updates;
