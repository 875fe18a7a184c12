//! Our records as the BBS's messages. Writing is total: what a message cannot say (a count above two
//! thousand million, ids of definitions) is cut to what it can, or left out.
//!
//! Sub-messages that Diego's own encoder always writes are always there, also when they are empty.

mod action;
mod actual;
mod definition;
mod encode;
mod event;
mod part;
mod reply;
mod task;

pub use actual::{cell_presence, group};
pub use definition::{desired_lrp, scheduling_info};
pub use encode::Writer;
pub use event::event;
pub use reply::error_type;
pub use task::task;

use super::{error_text, message as m};
use crate::api::ApiError;
use crate::modification_tag::{Epoch, ModificationTag};
use crate::time::Timestamp;

/// An answer that Diego's clients can read.
pub trait DiegoReply: Sized {
    /// The bytes of the message. Answers of our own routes have none.
    fn into_diego(self) -> Vec<u8>;
}

/// An entry of a list that Diego's clients can read.
pub trait ListEntry: Sized {
    /// Writes the message's bytes behind what is there. Takes what was made for it, and no more than a
    /// look at what others share.
    fn put_diego(self, out: &mut Vec<u8>);
}

/// A count, as far as the BBS can count.
fn count(given: u32) -> i32 {
    i32::try_from(given).unwrap_or(i32::MAX)
}

/// A span, as far as the BBS can count.
fn span(given: u64) -> i64 {
    i64::try_from(given).unwrap_or(i64::MAX)
}

/// A time, as far as the BBS can count.
fn time(given: Timestamp) -> i64 {
    span(given.as_nanos())
}

fn modification_tag(given: ModificationTag) -> m::ModificationTag {
    let epoch = if given.epoch == Epoch::NONE { String::new() } else { given.epoch.to_string() };
    m::ModificationTag { epoch, index: given.index }
}

/// A failure; its kind is one of the BBS's, or not known to it. Broken rules are told in its words.
pub fn error(given: &ApiError) -> m::Error {
    let kind = error_type(&given.kind);
    // The BBS begins these two with a capital letter.
    const CAPITAL: [m::ErrorType; 2] =
        [m::ErrorType::InvalidStateTransition, m::ErrorType::RunningOnDifferentCell];
    let standard = STANDARD.iter().find(|(known, _)| *known == kind);
    let message = if let Some((_, standard)) = standard {
        (*standard).to_owned()
    } else if kind == m::ErrorType::InvalidRequest && !given.details.is_empty() {
        error_text::told(given.details.iter().map(|it| (it.path.as_str(), it.rule.as_str())))
    } else if CAPITAL.contains(&kind) {
        let (first, rest) = given.message.split_at_checked(1).unwrap_or_default();
        first.to_ascii_uppercase() + rest
    } else {
        given.message.clone()
    };
    m::Error { kind: kind.into(), message }
}

/// What the BBS says of these, whatever it was about. Ours would say more, and nobody who looks for the BBS's
/// words would find them.
const STANDARD: [(m::ErrorType, &str); 7] = [
    (m::ErrorType::ResourceExists, "the requested resource already exists"),
    (m::ErrorType::ResourceNotFound, "the requested resource could not be found"),
    (m::ErrorType::ActualLrpCannotBeClaimed, "cannot claim actual LRP"),
    (m::ErrorType::ActualLrpCannotBeStarted, "cannot start actual LRP"),
    (m::ErrorType::ActualLrpCannotBeCrashed, "cannot crash actual LRP"),
    (m::ErrorType::ActualLrpCannotBeFailed, "cannot fail actual LRP"),
    (m::ErrorType::ActualLrpCannotBeRemoved, "cannot remove actual LRP"),
];
