//! Telling consumers that their tasks have ended: resolve the task, call its URL, delete it.
//!
//! [`logic`] decides who is called when and what follows, and remembers what failed; [`driver`] asks the
//! board and makes the calls. What is lost (a crash, a full queue, a consumer that does not answer)
//! convergence asks for again.

pub mod driver;
pub mod logic;
