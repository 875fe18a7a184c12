//! The BBS's messages as our records. Reading is total: whatever stands in a message, it becomes a record
//! or complaints, with the paths of the JSON form. What cannot be said in a record (a guid with a space, a
//! negative count) is complained of here; all other rules are the record's own, and are looked at in the
//! same pass, so that a client hears of everything at once.

mod action;
mod actual;
mod definition;
mod part;
mod request;
mod task;

pub use actual::{actual_lrp, group};
pub use definition::desired_lrp;
pub use task::task;

use prost::Message;

use super::message as m;
use super::precheck::{self, PrecheckError};
use crate::id::IdError;
use crate::limits::JSON_BYTES;
use crate::validate::{Checker, Invalid};
use crate::wire::DecodeError;

/// Why a body was not read. Nothing was kept of it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiegoDecodeError {
    /// Longer than a body may be.
    #[error(transparent)]
    TooLarge(DecodeError),
    /// There is more in it than there may be, or it is no protobuf.
    #[error(transparent)]
    Misshapen(#[from] PrecheckError),
    /// It is not the message that was asked for.
    #[error("the body is not the message that this route takes")]
    Undecodable,
    /// It breaks rules.
    #[error(transparent)]
    Invalid(#[from] Invalid),
}

/// A request that Diego's clients can make.
pub trait DiegoRequest: Sized {
    /// Reads the message of a request. Requests of our own routes have none, and are never read.
    fn from_diego(body: &[u8]) -> Result<Self, DiegoDecodeError>;
}

/// Reads a message. Unknown fields are skipped.
pub fn decode<M: Message + Default>(held_as: &str, body: &[u8]) -> Result<M, DiegoDecodeError> {
    if body.len() > JSON_BYTES {
        let too_large = DecodeError::TooLarge { given: body.len(), limit: JSON_BYTES };
        return Err(DiegoDecodeError::TooLarge(too_large));
    }
    precheck::look_over(held_as, body)?;
    M::decode(body).or_else(|_| {
        let readable = precheck::readable(held_as, body).ok_or(DiegoDecodeError::Undecodable)?;
        M::decode(&readable[..]).map_err(|_| DiegoDecodeError::Undecodable)
    })
}

/// Reads a message and makes a record of it.
fn read<M: Message + Default, T>(
    held_as: &str,
    body: &[u8],
    make: impl FnOnce(&mut Checker, M) -> T,
) -> Result<T, DiegoDecodeError> {
    let message = decode(held_as, body)?;
    let mut at = Checker::default();
    let made = make(&mut at, message);
    Ok(at.finish(made)?)
}

/// An identifier; a complaint and a dash if the text is none.
fn id<T>(at: &mut Checker, name: &str, text: &str, new: impl Fn(&str) -> Result<T, IdError>) -> T {
    match new(text) {
        Ok(id) => id,
        Err(error) => {
            at.field(name, |at| at.require(false, || error.to_string()));
            new("-").expect("a dash is an identifier of every kind")
        }
    }
}

/// A count: not negative.
fn count(at: &mut Checker, name: &str, given: i32) -> u32 {
    at.field(name, |at| at.require(given >= 0, || format!("is {given}, must be 0 or more")));
    u32::try_from(given).unwrap_or_default()
}

/// A span: not negative.
fn span(at: &mut Checker, name: &str, given: i64) -> u64 {
    at.field(name, |at| at.require(given >= 0, || format!("is {given}, must be 0 or more")));
    u64::try_from(given).unwrap_or_default()
}

/// A value of an enumeration; the default and a complaint if the number is not known.
fn value<E: TryFrom<i32>>(at: &mut Checker, name: &str, given: i32, otherwise: E) -> E {
    E::try_from(given).unwrap_or_else(|_| {
        at.field(name, |at| at.require(false, || format!("{given} is no known value")));
        otherwise
    })
}

/// A nested message that must be there; a complaint and an empty one if it is not.
fn needed<T: Default>(at: &mut Checker, name: &str, given: Option<T>) -> T {
    at.field(name, |at| at.require(given.is_some(), || MISSING.to_owned()));
    given.unwrap_or_default()
}

/// What is said of a nested message that is not there.
pub(super) const MISSING: &str = "must be given";

/// A tag; one that is none reads as no tag.
fn modification_tag(given: Option<m::ModificationTag>) -> crate::modification_tag::ModificationTag {
    let given = given.unwrap_or_default();
    let epoch = given.epoch.parse().unwrap_or_default();
    crate::modification_tag::ModificationTag { epoch, index: given.index }
}
