//! The mesh: how cells and coordinators find each other, know who is there, and hear each other's
//! capacity.
//!
//! | module | what it holds |
//! |---|---|
//! | [`identity`] | who a member is, and what proves it |
//! | [`codec`] | bytes of gossip and requests; how two releases understand each other |
//! | [`record`], [`message`] | what members say of themselves and to each other |
//! | [`profile`] | how often, and how patiently: `lan`, `wan`, `metered` |
//! | [`logic`] | one member, without a socket and without a clock |
//! | [`simulation`] | thousands of them in one thread |
//! | [`tls`] | the authority, join tokens, certificates, and what rustls needs of them |
//! | [`request`] | typed questions and answers between members |
//! | [`driver`] | a running member: what agent and coordinator start |
//! | [`transport`] | links over QUIC: packets of gossip, requests, enrolment |

pub mod codec;
pub mod driver;
pub mod identity;
pub mod member;
pub mod message;
pub mod profile;
pub mod record;
pub mod request;
pub mod simulation;
pub mod tls;
pub mod transport;
