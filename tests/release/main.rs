//! What a release is made of beside the programs: systemd units, the installer, documentation,
//! monitoring. Nothing in them may name what the programs do not have. `make vmtest` tries the packages
//! themselves, in a virtual machine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod cluster;
mod commands;
mod installer;
mod markdown;
mod monitoring;
mod places;
mod reference;
mod units;
