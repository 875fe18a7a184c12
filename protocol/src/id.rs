//! The identifiers of the model: who, where, which.
//!
//! Each is a string of its own type that was checked when it was made, so that an identifier in
//! hand may be used in a path, a certificate or a log line without another look. They are shared,
//! not copied: a clone costs a reference count, and the board's records point at one text.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits::ID_BYTES;

/// Why a text is no identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Nothing was given.
    #[error("{kind} must not be empty")]
    Empty {
        /// The kind of identifier that was asked for.
        kind: &'static str,
    },
    /// Longer than any identifier may be.
    #[error("{kind} has {given} bytes, the limit is {ID_BYTES}")]
    TooLong {
        /// The kind of identifier that was asked for.
        kind: &'static str,
        /// How long the text was.
        given: usize,
    },
    /// A character that this kind does not admit.
    #[error("{kind} {text:?} may only contain {admits}")]
    Character {
        /// The kind of identifier that was asked for.
        kind: &'static str,
        /// What was given.
        text: String,
        /// What this kind admits, in words.
        admits: &'static str,
    },
}

/// Which characters a kind of identifier admits.
#[derive(Clone, Copy)]
enum Admits {
    /// Letters, digits, `_` and `-`: what Diego allows in a guid.
    Guid,
    /// As a guid, and dots, but not in front (it may become a file name).
    Name,
    /// Anything printable: domains and zones are the consumer's words.
    Printable,
}

impl Admits {
    const fn words(self) -> &'static str {
        match self {
            Admits::Guid => "letters, digits, '_' and '-'",
            Admits::Name => "letters, digits, '_', '-' and '.' (not first)",
            Admits::Printable => "printable characters",
        }
    }

    fn admits(self, text: &str) -> bool {
        let guid = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        match self {
            Admits::Guid => text.chars().all(guid),
            Admits::Name => !text.starts_with('.') && text.chars().all(|c| guid(c) || c == '.'),
            Admits::Printable => !text.chars().any(char::is_control),
        }
    }
}

fn check(kind: &'static str, admits: Admits, text: &str) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { kind });
    }
    if text.len() > ID_BYTES {
        return Err(IdError::TooLong { kind, given: text.len() });
    }
    if !admits.admits(text) {
        let text = text.to_owned();
        return Err(IdError::Character { kind, text, admits: admits.words() });
    }
    Ok(())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $admits:expr) => {
        $(#[$doc])*
        #[expect(clippy::derived_hash_with_manual_eq, reason = "equal pointers are equal texts")]
        #[derive(Clone, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Arc<str>);

        // Records of one process share its names, so most comparisons are of one text with itself.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl $name {
            /// Checks `text` and makes an identifier of it.
            pub fn new(text: &str) -> Result<Self, IdError> {
                check($kind, $admits, text)?;
                Ok(Self(Arc::from(text)))
            }

            /// The identifier's text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(&text)
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0.as_ref().to_owned()
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &self.0)
            }
        }
    };
}

id!(
    /// One long running process, for all of its life and through all of its definitions.
    ProcessGuid, "process_guid", Admits::Guid
);
id!(
    /// One definition of a process. A plain desire uses the process guid.
    DefinitionId, "definition_id", Admits::Name
);
id!(
    /// One container of an LRP: a fresh one for every placement.
    InstanceGuid, "instance_guid", Admits::Guid
);
id!(
    /// One machine of the fleet.
    CellId, "cell_id", Admits::Name
);
id!(
    /// One task.
    TaskGuid, "task_guid", Admits::Guid
);
id!(
    /// A consumer's grouping of its LRPs and tasks, and the unit of freshness.
    Domain, "domain", Admits::Printable
);

impl From<&ProcessGuid> for DefinitionId {
    /// The definition id of a process that was desired without naming one.
    fn from(process: &ProcessGuid) -> Self {
        DefinitionId(Arc::clone(&process.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_admit_what_diego_admits_and_nothing_else() {
        for good in ["a", "A-b_9", "0"] {
            assert_eq!(ProcessGuid::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "a b", "a/b", "a.b", "ä", "a\0", "../x"] {
            assert!(ProcessGuid::new(bad).is_err(), "{bad:?} was let through");
        }
        assert!(ProcessGuid::new(&"x".repeat(ID_BYTES)).is_ok());
        assert!(ProcessGuid::new(&"x".repeat(ID_BYTES + 1)).is_err());
    }

    #[test]
    fn a_name_never_climbs_out_of_a_folder() {
        assert!(CellId::new("cell-1.eu").is_ok());
        for bad in [".", "..", ".hidden", "a/b", "a\\b"] {
            assert!(CellId::new(bad).is_err(), "{bad:?} was let through");
        }
    }

    #[test]
    fn the_complaint_names_the_kind_the_text_and_the_way_out() {
        let text = TaskGuid::new("no spaces").unwrap_err().to_string();
        assert_eq!(text, "task_guid \"no spaces\" may only contain letters, digits, '_' and '-'");
    }

    #[test]
    fn ids_refuse_to_be_decoded_from_bad_text() {
        assert!(serde_json::from_str::<Domain>("\"\"").is_err());
        assert!(serde_json::from_str::<Domain>("\"two words\"").is_ok());
        assert!(serde_json::from_str::<Domain>("\"line\\nbreak\"").is_err());
    }
}
