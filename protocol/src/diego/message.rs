//! The BBS's messages, as they stand on the wire: package `models` of Diego.
//!
//! Each is declared once, by the numbers and types of its fields. From that come the struct that prost
//! reads and writes, and an entry in [`MESSAGES`], by which bodies are looked over before they are read
//! ([`super::precheck`]) and from which other languages' descriptors are made ([`super::descriptor`]).
//! There are no rules here: what a message means is in [`super::read`] and [`super::write`].

mod action;
mod actual;
mod asked;
mod desired;
mod enums;
mod event;
mod part;
mod task;

pub use action::*;
pub use actual::*;
pub use asked::*;
pub use desired::*;
pub use enums::*;
pub use event::*;
pub use part::*;
pub use task::*;

/// What is known of a message's field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name in the BBS's declaration.
    pub name: &'static str,
    /// Its number.
    pub number: u32,
    /// What it is, in the words of prost's derive: `string`, `message, repeated`.
    pub kind: &'static str,
    /// The type it has here, which names the message or the values of a map.
    pub held_as: &'static str,
}

/// What is known of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declaration {
    /// Its name in the BBS's declaration.
    pub name: &'static str,
    /// The type it is here.
    pub held_as: &'static str,
    /// Its fields, in the order of their declaration.
    pub fields: &'static [Field],
}

/// All messages, file by file.
pub const MESSAGES: [&[Declaration]; 7] = [
    part::DECLARED,
    action::DECLARED,
    actual::DECLARED,
    desired::DECLARED,
    task::DECLARED,
    asked::DECLARED,
    event::DECLARED,
];

/// The message that a type of ours is.
pub fn declaration(held_as: &str) -> Option<&'static Declaration> {
    MESSAGES.iter().copied().flatten().find(|known| known.held_as == held_as)
}

/// Declares messages: `Name = "BBSName" { field: Type = number [kind], … }`. A field whose name cannot be
/// one of ours has the BBS's behind it.
macro_rules! messages {
    ($(
        $name:ident = $bbs:literal {
            $( $field:ident : $ty:ty = $number:tt [$($kind:tt)+] $($as:literal)? ),* $(,)?
        }
    )*) => {
        $(
            #[doc = concat!("The BBS's message `", $bbs, "`.")]
            #[derive(Clone, PartialEq, prost::Message)]
            pub struct $name {
                $(
                    #[doc = concat!("Field ", $number, " of the BBS's message.")]
                    #[prost($($kind)+, tag = $number)]
                    pub $field: $ty,
                )*
            }
        )*

        /// The messages of this file.
        pub(super) const DECLARED: &[super::Declaration] = &[$(
            super::Declaration {
                name: $bbs,
                held_as: stringify!($name),
                fields: &[$(
                    super::Field {
                        name: super::named(stringify!($field), &[$($as)?]),
                        number: $number,
                        kind: stringify!($($kind)+),
                        held_as: stringify!($ty),
                    },
                )*],
            },
        )*];
    };
}
use messages;

/// The name that was given, or else the field's own.
const fn named(own: &'static str, given: &[&'static str]) -> &'static str {
    match given {
        [given, ..] => given,
        [] => own,
    }
}
