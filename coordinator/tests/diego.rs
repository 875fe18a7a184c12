//! Diego's own clients against a whole coordinator: protobuf over mutual TLS, with certificates that the
//! coordinator's own authority gave out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "diego/access.rs"]
mod access;
#[path = "diego/client.rs"]
mod client;
#[path = "diego/events.rs"]
mod events;
#[path = "diego/python.rs"]
mod python;
#[path = "diego/rep.rs"]
mod rep;
#[path = "diego/routes.rs"]
mod routes;
