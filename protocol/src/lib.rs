//! The records and messages of Volvox. Everything here is pure: values, their rules, their
//! encodings (JSON for consumers, protobuf for Diego's own, postcard for disk and mesh) and the state tables.
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`], [`time`], [`modification_tag`], [`limits`], [`secret`] | identifiers, times, modification tags, every limit, passwords |
//! | [`validate`], [`packed`] | `Valid<T>`: a value that exists is valid; `Packed<T>`: a value kept small |
//! | [`action`], [`egress`], [`definition`] | what to run, what it may reach, everything around it |
//! | [`desired_lrp`], [`deployment`], [`task`] | what consumers ask for, and the record of it |
//! | [`actual_lrp`] | one instance of an LRP, as the board knows it |
//! | [`resolve`] | one instance per index, for readers who know nothing of definitions |
//! | [`container`], [`cell`] | what a machine holds and what it says of itself |
//! | [`api`], [`role`], [`schema`] | bodies of the HTTP API; who may call; descriptions of JSON forms |
//! | [`diego`] | the BBS's protobuf messages, and our records in them |
//! | [`event`], [`request`], [`cell_rpc`] | what subscribers see; what cells and coordinator say to each other, and in which batches |
//! | [`stream`] | what flows between a person and a container: a log, a terminal |
//! | [`digest`] | one number for everything on a cell |
//! | [`random`] | numbers from a seed, for simulations and choices that need not be secret |
//! | [`wire`] | frames, versions and decoding that does not trust its input |
//! | [`tables`] | the state tables, one `match` each, mirrored in `docs/tables` |

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

mod record;

pub mod action;
pub mod actual_lrp;
pub mod api;
pub mod cell;
pub mod cell_rpc;
pub mod container;
pub mod definition;
pub mod deployment;
pub mod desired_lrp;
pub mod diego;
pub mod digest;
pub mod egress;
pub mod event;
pub mod id;
pub mod injected_bug;
pub mod instance_info;
pub mod limits;
pub mod modification_tag;
pub mod packed;
pub mod random;
pub mod request;
pub mod resolve;
pub mod role;
pub mod schema;
pub mod secret;
pub mod stream;
pub mod tables;
pub mod task;
pub mod time;
pub mod validate;
pub mod wire;
