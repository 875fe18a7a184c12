//! What readers see: the records as of the last commit, never later.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

use std::sync::{Arc, PoisonError, RwLock};

use super::command::Change;
use super::state::Records;

/// The published records. Clones are handles on the same view.
#[derive(Debug, Clone, Default)]
pub struct View(Arc<RwLock<Arc<Records>>>);

impl View {
    /// A view that shows these records.
    pub fn new(records: Records) -> Self {
        View(Arc::new(RwLock::new(Arc::new(records))))
    }

    /// All records as of the last commit. Costs a pointer, stays as it is, and may be kept.
    pub fn snapshot(&self) -> Arc<Records> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows what has been committed. A snapshot that somebody holds is left as it is.
    pub fn publish<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) {
        let mut shown = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let records = Arc::make_mut(&mut shown);
        for change in changes {
            records.put(change);
        }
    }

    /// Shows other records altogether: the store was read again.
    pub fn replace(&self, records: Records) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(records);
    }
}
