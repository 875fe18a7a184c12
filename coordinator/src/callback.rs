//! Telling consumers that their tasks have ended: resolve the task, call its URL, delete it.
//!
//! [`driver`] does it, some at a time, and remembers what failed. What it loses (a crash, a full
//! queue, a consumer that does not answer) convergence asks for again.

pub mod driver;
