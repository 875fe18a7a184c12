//! Routes: what the routers are told of an LRP. We keep them and do not look inside.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::limits::ROUTE_DEPTH;

/// Routes by router.
pub type Routes = BTreeMap<String, RouteValue>;

/// A JSON value as text. Space between its parts is gone, so equal texts mean equal values; the
/// other way round holds but for numbers, escapes and the order of keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteValue(Box<str>);

/// Why a text is no route value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// It is not one JSON value. Nothing was kept.
    #[error("not a JSON value: {0}")]
    Json(String),
    /// Readers of routes would refuse it. Nothing was kept.
    #[error("nested deeper than {ROUTE_DEPTH}")]
    Depth,
}

impl RouteValue {
    /// Checks that `text` is one JSON value and keeps it.
    pub fn new(text: &str) -> Result<Self, RouteError> {
        let json = |error: serde_json::Error| RouteError::Json(error.to_string());
        Self::from_checked(serde_json::from_str::<&RawValue>(text).map_err(json)?.get())
    }

    /// The value as compact JSON.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Drops the space from a text that is known to be JSON, and counts its nesting.
    fn from_checked(text: &str) -> Result<Self, RouteError> {
        let mut kept = String::with_capacity(text.len());
        let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
        for c in text.chars() {
            if in_string {
                in_string = c != '"' || escaped;
                escaped = c == '\\' && !escaped;
            } else {
                match c {
                    ' ' | '\t' | '\r' | '\n' => continue,
                    '"' => in_string = true,
                    '[' | '{' => depth += 1,
                    ']' | '}' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                if depth > ROUTE_DEPTH {
                    return Err(RouteError::Depth);
                }
            }
            kept.push(c);
        }
        Ok(RouteValue(kept.into_boxed_str()))
    }
}

impl fmt::Debug for RouteValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for RouteValue {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            serde_json::from_str::<&RawValue>(&self.0).map_err(S::Error::custom)?.serialize(to)
        } else {
            to.serialize_str(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for RouteValue {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            let raw = Box::<RawValue>::deserialize(from)?;
            RouteValue::from_checked(raw.get()).map_err(D::Error::custom)
        } else {
            RouteValue::new(&String::deserialize(from)?).map_err(D::Error::custom)
        }
    }
}
