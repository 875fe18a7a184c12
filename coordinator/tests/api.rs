//! The HTTP API from outside: a whole coordinator in this process, real sockets, a client that holds
//! every answer against the OpenAPI document.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "api/access.rs"]
mod access;
#[path = "api/callbacks.rs"]
mod callbacks;
#[path = "api/certificates.rs"]
mod certificates;
#[path = "api/document.rs"]
mod document;
#[path = "api/events.rs"]
mod events;
#[path = "api/limits.rs"]
mod limits;
#[path = "api/lists.rs"]
mod lists;
#[path = "api/routes.rs"]
mod routes;
#[path = "api/stage.rs"]
mod stage;
