//! A value that exists is valid: [`Valid`] can only be made by passing every rule.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One broken rule: where, and what would have been right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Complaint {
    /// The path of the offending field in the JSON form, such as `action.serial.actions[2].run.path`.
    pub path: String,
    /// The rule, with what was given where that helps.
    pub rule: String,
}

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.rule)
    }
}

/// Every rule that a value broke, at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Invalid(pub Vec<Complaint>);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, complaint) in self.0.iter().enumerate() {
            if nth > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{complaint}")?;
        }
        Ok(())
    }
}

/// Collects complaints while a value is walked, and knows where the walk is.
#[derive(Debug, Default)]
pub struct Checker {
    path: Vec<String>,
    complaints: Vec<Complaint>,
}

impl Checker {
    /// Walks into a field: complaints made inside carry its name.
    pub fn field(&mut self, name: &str, walk: impl FnOnce(&mut Checker)) {
        self.path.push(name.to_owned());
        walk(self);
        self.path.pop();
    }

    /// Walks a list under a field name, entry by entry.
    pub fn each<'a, T: 'a>(
        &mut self,
        name: &str,
        entries: impl IntoIterator<Item = &'a T>,
        mut walk: impl FnMut(&mut Checker, &'a T),
    ) {
        for (nth, entry) in entries.into_iter().enumerate() {
            self.path.push(format!("{name}[{nth}]"));
            walk(self, entry);
            self.path.pop();
        }
    }

    /// Complains about the place where the walk is, unless `holds`.
    pub fn require(&mut self, holds: bool, rule: impl FnOnce() -> String) {
        // A hostile value may break a rule in each of a million entries; a person reads ten.
        if !holds && self.complaints.len() < 20 {
            self.complaints.push(Complaint { path: self.path.join("."), rule: rule() });
        }
    }

    /// The value, if nothing was complained of on the way to it.
    pub(crate) fn finish<T>(self, value: T) -> Result<T, Invalid> {
        if self.complaints.is_empty() { Ok(value) } else { Err(Invalid(self.complaints)) }
    }

    /// Complains about a field that must not be empty.
    pub fn not_empty(&mut self, name: &str, text: &str) {
        self.field(name, |at| at.require(!text.is_empty(), || "must not be empty".to_owned()));
    }

    /// Complains about a text or a list that is larger than its limit.
    pub fn at_most(&mut self, name: &str, given: usize, limit: usize, unit: &str) {
        self.field(name, |at| {
            at.require(given <= limit, || format!("has {given} {unit}, the limit is {limit}"));
        });
    }
}

/// A type with rules.
pub trait Validate {
    /// Tells `at` about every rule that `self` breaks.
    fn check(&self, at: &mut Checker);
}

/// A value that passed every rule of its type, and cannot be changed any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Valid<T>(T);

impl<T: Validate> Valid<T> {
    /// Lets `value` through when it breaks no rule, else says which ones it breaks.
    pub fn new(value: T) -> Result<Self, Invalid> {
        let mut checker = Checker::default();
        value.check(&mut checker);
        checker.finish(Valid(value))
    }
}

impl<T> Valid<T> {
    /// Gives the value back, free to be changed and no longer vouched for.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for Valid<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Serialize> Serialize for Valid<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de, T: Validate + Deserialize<'de>> Deserialize<'de> for Valid<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Valid::new(T::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}
