//! What each of our programs needs of its own machine, and nothing that is about containers or
//! fleets. A closed list, one file for each:
//!
//! - [`clock`]: what time it is;
//! - [`durable`]: files that survive a crash whole;
//! - [`trust`]: certificate authorities, from PEM files;
//! - [`http`]: the configuration of HTTP clients, also over a Unix socket;
//! - [`thread`]: a thread that is joined when its owner goes;
//! - [`sync`]: locks without poison;
//! - [`terminal`]: raw mode and size of the terminal.
//!
//! Pure code uses none of it: it is told the time, and owns what it changes.

pub mod clock;
pub mod durable;
pub mod http;
pub mod sync;
pub mod terminal;
pub mod thread;
pub mod trust;
