//! Keys and certificates: who may be a member, and how a connection proves it.
//!
//! The cluster has one authority, made when the first coordinator starts. It gives a certificate to
//! whoever brings a join token, renews it, and knows whom it expelled. A member makes its own key,
//! and the key never leaves its machine. What decides here is pure and fenced, file by file; what
//! touches the disk is `authority`, `folder` and `durable`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`authority`] | the cluster's authority: its key, its register, its folder |
//! | [`register`] | who was issued what, and which tokens may still be used |
//! | [`token`] | the line that an operator pastes on a new cell |
//! | [`enrol`] | joining and renewing: the messages, the answer, and the asking side |
//! | [`certificate`] | what our certificates look like; strict reading |
//! | [`key`] | a member's own key |
//! | [`notary`] | [`crate::identity::Authenticator`] with these certificates |
//! | [`folder`] | a member's key and certificate on disk |
//! | [`config`] | what rustls, and so quinn, needs |

pub mod authenticator;
pub mod authority;
pub mod certificate;
pub mod config;
pub mod credentials;
pub mod durable;
mod encoding;
pub mod enrol;
pub mod key;
pub mod registry;
pub mod token;

#[cfg(test)]
mod tests;
