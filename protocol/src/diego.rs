//! Diego's own clients: the BBS's protobuf messages, and our records in them.
//!
//! The messages are declared by us, field by field ([`message`]); prost reads and writes them. A body is
//! looked over before it is read ([`shape`]), becomes the same values that JSON is read into ([`read`]),
//! and what those break is told in the BBS's words ([`wording`]). Answers and events are written from our
//! records ([`write`]). [`descriptor`] tells other languages of the same messages.

pub mod descriptor;
pub mod message;
pub mod read;
pub mod shape;
mod unspoken;
pub mod wording;
pub mod write;

pub use read::{Request, Unread};
pub use write::{Entry, Reply};
