//! The executor: which containers there are, what runs in them, when they are healthy.
//!
//! | module | what it decides |
//! |---|---|
//! | [`logic`] | everything: the registry, the step trees and their timers as one value |
//! | [`container_store`] | which containers there are, their states, who may do what to them |
//! | [`resources`] | what is taken of the cell, what is left, what does not fit |
//! | [`steps`] | what runs in a container, in which order, when it is healthy, how it ends |
//! | [`layers`] | what becomes of a definition's image layers |
//! | [`workload`] | whose a container is, and what its definition asks for |
//! | [`environment`] | the variables of a process, the limits of a container |
//! | [`write_ahead`] | what may not begin because it could not be written down |
//! | [`lifecycle_log`] | the lines that tell an application's log what the cell does |
//!
//! All of these are functions of values. [`driver`] feeds them and performs what they return on a
//! [`Runtime`](crate::container::runtime::Runtime); [`store`] keeps what a restart needs.

pub mod container_store;
pub mod driver;
pub mod environment;
pub mod layers;
pub mod lifecycle_log;
pub mod logic;
pub mod resources;
pub mod steps;
pub mod store;
mod timers;
pub mod workload;
pub mod write_ahead;
