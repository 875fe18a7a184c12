//! Diego's own clients: the BBS's protobuf messages, and our records in them.
//!
//! The messages are declared by us, field by field ([`message`]); prost reads and writes them. A body is
//! looked over before it is read ([`precheck`]), becomes the same values that JSON is read into ([`read`]),
//! and what those break is told in the BBS's words ([`error_text`]). Answers and events are written from our
//! records ([`write`]). [`descriptor`] tells other languages of the same messages.

pub mod descriptor;
pub mod error_text;
pub mod message;
mod native_routes;
pub mod precheck;
pub mod read;
pub mod write;

pub use read::{DiegoDecodeError, DiegoRequest};
pub use write::{DiegoReply, ListEntry};
