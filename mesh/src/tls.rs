//! Keys and certificates: which machine may be a member, and how a connection proves it.
//!
//! The cluster has one certificate authority (CA), created when the first coordinator starts. It
//! issues a certificate to a machine with a join token, renews it, and stores which members are
//! revoked. A member generates its own key, and the key never leaves its machine. Decisions are
//! pure and fenced, file by file; only `authority` and `credentials` access the disk.
//!
//! - [`authority`]: the CA of the cluster: its key, its registry, its directory
//! - [`registry`]: issued certificates, revoked members, and valid join tokens
//! - [`token`]: the join token that an operator pastes on a new cell
//! - [`enrol`]: joining and renewing: the messages, the answer, and the asking side
//! - [`certificate`]: the format of certificates; strict reading
//! - [`key`]: a member's own key
//! - [`authenticator`]: [`crate::identity::Authenticator`] with these certificates
//! - [`credentials`]: a member's key and certificate on disk
//! - [`config`]: configurations for rustls, and so for quinn

pub mod authenticator;
pub mod authority;
pub mod certificate;
pub mod config;
pub mod credentials;
mod encoding;
pub mod enrol;
pub mod key;
pub mod registry;
pub mod token;

#[cfg(test)]
mod tests;
