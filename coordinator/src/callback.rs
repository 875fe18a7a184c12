//! Telling consumers that their tasks have ended: resolve the task, call its URL, delete it.
//!
//! [`logic`] decides who is called when and what follows, as a part of the [`Core`](crate::core::Core);
//! [`http`] makes the calls; [`failures`] remembers what failed. What is lost (a crash, a full queue, a
//! consumer that does not answer) convergence asks for again.

pub mod failures;
pub mod http;
pub mod logic;
