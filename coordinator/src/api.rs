//! The HTTP API: the BBS's routes, events, and what operators need.
//!
//! [`listen`] takes connections and bounds what strangers can use up; [`server`] lets a request through
//! (who, how often, how large) to its route; the routes stand in one table ([`routes`]), from which
//! [`openapi`] is made too; what is read and written is [`encoding`]'s. Handlers are thin: they read a
//! snapshot, or queue a command and wait for the board's answer.

pub mod access;
pub mod audit;
mod cells;
mod certificates;
mod deployments;
mod diego;
mod domains;
mod encoding;
mod events;
mod exec;
mod fields;
mod list;
pub mod listen;
mod logs;
mod lrps;
mod members;
mod metrics;
mod openapi;
mod operating;
mod preauth;
mod query;
mod quota;
mod rep;
mod reply;
mod route;
mod routes;
pub mod server;
mod state;
mod target;
mod tasks;
pub mod tls;
mod trace;
mod write_timeout;

pub(crate) use self::members::expelled;
pub use self::metrics::LABELS;
pub use self::quota::Limits;
pub use self::state::{Api, Parts};
