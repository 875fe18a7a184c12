//! The mesh: how cells and coordinators find each other, know who is there, and hear each other's
//! capacity.
//!
//! | module | what it holds |
//! |---|---|
//! | [`identity`] | who a member is, and what proves it |
//! | [`codec`] | bytes of gossip and requests; how two releases understand each other |
//! | [`request`] | typed questions and answers between members |
//! | [`transport`] | links over QUIC: packets of gossip, requests, enrolment |

pub mod codec;
pub mod identity;
pub mod request;
pub mod transport;
